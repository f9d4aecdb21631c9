"""`Registrations`: what every client and neighbour has asked for, by identity.

The poset holds only what routing needs, and one filter there may stand for many subscriptions. The
ledger keeps the filters of each party by identity, so that exactly these can be withdrawn.

Invariants: a party in the ledger has at least one entry; `len` is the number of all entries.

Source: PODC 2000 §4, where taken literally a neighbour's narrower filters are forgotten.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from contrada.routing.refusals import check_limit
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Neighbour, NextHop, Party

E = TypeVar("E")

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    """How many parties have entries, and how many these are."""

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
        """Enters what is not there. Raises RefusedError where the ledger is full."""
        self.check_room()
        assert self.get(party, identity) is None, f"{party} {identity} is entered already"
        if party not in self._entries:
            self._entries[party] = {}
            if isinstance(party, NextHop):
                self._next_hops.setdefault(party.neighbour, {})[party.owner] = party
        self._entries[party][identity] = entry
        self._count += 1

    def check_room(self) -> None:
        """Refuses one more entry where the ledger is full."""
        check_limit(self._limits, "registrations_max", self._count + 1)

    def get(self, party: Party, identity: str) -> E | None:
        """The entry; None where there is none."""
        return self.entries_of(party).get(identity)

    def remove(self, party: Party, identity: str) -> E | None:
        """Takes an entry out; None where there is none."""
        entries = self._entries.get(party)
        if entries is None or identity not in entries:
            return None
        entry = entries.pop(identity)
        if not entries:
            self._remove_party(party)
        self._count -= 1
        return entry

    def remove_all(self, party: Party) -> Mapping[str, E]:
        """Takes out all entries of a party."""
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
        """The ways from a neighbour that have entries."""
        return self._next_hops.get(neighbour, {}).values()

    def next_hop(self, neighbour: Neighbour, owner: str) -> NextHop:
        """The way from a neighbour for a home: the very one in the ledger, where it has entries."""
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
        """A frozen view of what the ledger holds."""
        return RegistrationStatistics(len(self._entries), self._count)

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken."""
        assert all(self._entries.values()), "a party without entries is held"
        next_hops = {next_hop for each in self._next_hops.values() for next_hop in each.values()}
        assert all(self._next_hops.values()), "a neighbour without entries is held"
        assert next_hops == {each for each in self._entries if isinstance(each, NextHop)}, (
            "a way is lost"
        )
        assert self._count == sum(map(len, self._entries.values())), "the count is wrong"
