"""`Registrations`: the registrations of every client and neighbour, by identity.

The poset holds only the distinct filters, and one filter there may stand for many subscriptions.
This table keeps the filters of each party by identity, so that exactly these can be withdrawn.

Invariants: a party in the table has at least one entry; `len` is the number of all entries.

Source: PODC 2000 §4; taken literally, it forgets a neighbour's narrower filters.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Neighbour, NextHop, Party, check_limit

E = TypeVar("E")

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    """The numbers of parties and of their entries."""

    parties: int
    entries: int


class Registrations(Generic[E]):
    """Entries by party and identity."""

    def __init__(self, limits: RouterLimits = RouterLimits()) -> None:
        self._limits = limits
        self._entries: dict[Party, dict[str, E]] = {}
        self._next_hops: dict[Neighbour, dict[str, NextHop]] = {}
        self._count = 0

    def add(self, party: Party, identity: str, entry: E) -> None:
        """Adds a new entry. Raises RefusedError if the table is full."""
        self.check_room()
        assert self.get(party, identity) is None, f"{party} {identity} is entered already"
        if party not in self._entries:
            self._entries[party] = {}
            if isinstance(party, NextHop):
                self._next_hops.setdefault(party.neighbour, {})[party.owner] = party
        self._entries[party][identity] = entry
        self._count += 1

    def check_room(self) -> None:
        """Refuses one more entry if the table is full."""
        check_limit(self._limits, "registrations_max", self._count + 1)

    def get(self, party: Party, identity: str) -> E | None:
        """Returns an entry, or None."""
        return self.entries_of(party).get(identity)

    def remove(self, party: Party, identity: str) -> E | None:
        """Removes and returns an entry, or None."""
        entries = self._entries.get(party)
        if entries is None or identity not in entries:
            return None
        entry = entries.pop(identity)
        if not entries:
            self._remove_party(party)
        self._count -= 1
        return entry

    def remove_all(self, party: Party) -> Mapping[str, E]:
        """Removes and returns all entries of a party."""
        entries = self._entries.get(party, {})
        if entries:
            self._remove_party(party)
        self._count -= len(entries)
        return entries

    def _remove_party(self, party: Party) -> None:
        del self._entries[party]
        if isinstance(party, NextHop):
            next_hops = self._next_hops[party.neighbour]
            del next_hops[party.owner]
            if not next_hops:
                del self._next_hops[party.neighbour]

    def next_hops(self, neighbour: Neighbour) -> Collection[NextHop]:
        """Returns the next hops of a neighbour that have entries."""
        return self._next_hops.get(neighbour, {}).values()

    def next_hop(self, neighbour: Neighbour, owner: str) -> NextHop:
        """Returns the next hop of a neighbour and owner: the object in the table, if any."""
        return self._next_hops.get(neighbour, {}).get(owner) or NextHop(neighbour, owner)

    def entries_of(self, party: Party) -> Mapping[str, E]:
        """The entries of a party by identity."""
        return self._entries.get(party, _NONE)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Party, str, E]]:
        """All entries."""
        for party, entries in self._entries.items():
            for identity, entry in entries.items():
                yield party, identity, entry

    def __len__(self) -> int:
        return self._count

    def __contains__(self, party: object) -> bool:
        """Whether a party has entries."""
        return party in self._entries

    def statistics(self) -> RegistrationStatistics:
        """Returns a frozen view of the counters."""
        return RegistrationStatistics(len(self._entries), self._count)

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one."""
        assert all(self._entries.values()), "a party without entries is held"
        next_hops = {next_hop for each in self._next_hops.values() for next_hop in each.values()}
        assert all(self._next_hops.values()), "a neighbour without entries is held"
        assert next_hops == {each for each in self._entries if isinstance(each, NextHop)}, (
            "a way is lost"
        )
        assert self._count == sum(map(len, self._entries.values())), "the count is wrong"
