"""`Ledger`: what every client and neighbour has asked for, by identity.

The poset holds only what routing needs, and one filter there may stand for many subscriptions. The
ledger keeps who asked for what under which identity, so that exactly that can be withdrawn.

Invariants: an origin in the ledger has at least one entry; `len` is the number of all entries.

Source: PODC 2000 §4, where taken literally a neighbour's narrower filters are forgotten.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from contrada.errors import LimitError
from contrada.routing.messages import Origin

LEDGER_ENTRIES_MAX: Final = 1_000_000
"""Entries of one ledger, of all origins together."""

E = TypeVar("E")

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """How many origins have entries, and how many these are."""

    origins: int
    entries: int


class Ledger(Generic[E]):
    """Entries by origin and identity."""

    def __init__(self) -> None:
        self._entries: dict[Origin, dict[str, E]] = {}
        self._count = 0

    def add(self, origin: Origin, identity: str, entry: E) -> None:
        """Enters what is not there. Raises LimitError where the ledger is full."""
        if self._count >= LEDGER_ENTRIES_MAX:
            raise LimitError("LEDGER_ENTRIES_MAX", LEDGER_ENTRIES_MAX)
        assert self.get(origin, identity) is None, f"{origin} {identity} is entered already"
        self._entries.setdefault(origin, {})[identity] = entry
        self._count += 1

    def get(self, origin: Origin, identity: str) -> E | None:
        """The entry; None where there is none."""
        return self.of(origin).get(identity)

    def remove(self, origin: Origin, identity: str) -> E | None:
        """Takes an entry out; None where there is none."""
        entries = self._entries.get(origin)
        if entries is None or identity not in entries:
            return None
        entry = entries.pop(identity)
        if not entries:
            del self._entries[origin]
        self._count -= 1
        return entry

    def remove_all(self, origin: Origin) -> Mapping[str, E]:
        """Takes out all entries of an origin."""
        entries = self._entries.pop(origin, {})
        self._count -= len(entries)
        return entries

    def of(self, origin: Origin) -> Mapping[str, E]:
        """The entries of an origin by identity."""
        return self._entries.get(origin, _NONE)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Origin, str, E]]:
        """All entries."""
        for origin, entries in self._entries.items():
            for identity, entry in entries.items():
                yield origin, identity, entry

    def __len__(self) -> int:
        return self._count

    def __contains__(self, origin: object) -> bool:
        """Whether an origin has entries."""
        return origin in self._entries

    def statistics(self) -> LedgerStatistics:
        """A frozen view of what the ledger holds."""
        return LedgerStatistics(len(self._entries), self._count)

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken."""
        assert all(self._entries.values()), "an origin without entries is held"
        assert self._count == sum(map(len, self._entries.values())), "the count is wrong"
