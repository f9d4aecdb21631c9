"""`View`: the view of one participant: a table for each level, with a line for each subsystem.

The table of level i has a line for each populated subsystem of the participant's own subsystem of
level i; that of level 1 for each neighbour, including the participant: R a (l - 1) + a contacts.

A line has a timestamp, which only grows, and an *age*: the rounds since its last stamp, as far as
known here. The age is sent with the line, so that a line without new stamps grows old everywhere at
the same time. A line that is too old is *silent*, and forgotten later.

Source: EPFL 2503 §6.4.1, §6.4.2, figure 6.5, equations 6.12, 6.17 and 6.18.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from contrada.gossip.addresses import AddressSpace, LogicalAddress, branch_of
from contrada.gossip.condensation import Accuracy, encode_interests, read_interests
from contrada.gossip.gossip_messages import AgedLine, Contact, LineStamp, ViewLine
from contrada.gossip.rounds import ROUNDS_MAX
from contrada.model import FilterSet

_encode: Final = msgspec.msgpack.Encoder().encode


class DelegateChoice(StrEnum):
    """The choice of the delegates of a subsystem, the same for all. Source: EPFL 2503 §6.4.2."""

    ADDRESS = "address"
    """The smallest addresses. Above the lowest level: first one delegate of each subsystem."""

    INTEREST = "interest"
    """The delegates that together cover most of the filters, then the smallest addresses."""


@dataclass(frozen=True, slots=True)
class KnownContact:
    """A contact in a view, with the filters of its line."""

    contact: Contact
    filters: FilterSet


class HeldLine:
    """A line of a table, with derived values.

    `since` is the round of its stamp, `first_us` the first stamp with its present content.
    """

    __slots__ = ("filters", "first_us", "is_silent", "line", "mark", "probes", "since")

    def __init__(self, line: ViewLine, since: int) -> None:
        self.line = line
        self.since = since
        self.first_us = line.timestamp_us
        self.mark = mark_of(line)
        self.filters = read_interests(line.interests)
        self.is_silent = False
        self.probes = 0

    @property
    def is_live(self) -> bool:
        """Whether its subsystem is populated, as far as known."""
        return not self.is_silent and self.line.count > 0


def mark_of(line: ViewLine) -> int:
    """Returns a digest of 63 bits of a line without its timestamp."""
    content = _encode((line.digit, line.interests, line.count, line.delegates))
    return int.from_bytes(blake2b(content, digest_size=8).digest()) >> 1


class ViewTable:
    """The lines of one level by digit. `version` changes with their content."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.version = 0
        self._held: dict[int, HeldLine] = {}
        self._live: list[HeldLine] | None = None
        self._known: list[KnownContact] | None = None

    def get(self, digit: int) -> HeldLine | None:
        """Returns the line with a digit, even if silent."""
        return self._held.get(digit)

    def put(self, line: ViewLine, since: int) -> HeldLine:
        """Replaces the line with the same digit."""
        held, new = self._held.get(line.digit), HeldLine(line, since)
        if held is not None and held.mark == new.mark:
            self.restamp(held, line.timestamp_us, since)
            return held
        self._held[line.digit] = new
        self.changed()
        return new

    def restamp(self, held: HeldLine, timestamp_us: int, since: int) -> None:
        """Updates the stamp of an equal line."""
        old = held.line
        held.line = ViewLine(old.digit, timestamp_us, old.interests, old.count, old.delegates)
        held.since = since
        held.probes = 0
        if held.is_silent:
            held.is_silent = False
            self.changed()

    def silence(self, held: HeldLine) -> None:
        """Marks a line as silent."""
        held.is_silent = True
        self.changed()

    def forget(self, digit: int) -> None:
        """Drops a silent line, or one whose subsystem is empty."""
        del self._held[digit]
        self.changed()

    def changed(self) -> None:
        """Clears the derived values."""
        self.version += 1
        self._live = self._known = None

    def live(self) -> list[HeldLine]:
        """Returns the lines of populated subsystems, in the order of digits."""
        if self._live is None:
            live = [held for held in self._held.values() if held.is_live]
            self._live = sorted(live, key=lambda held: held.line.digit)
        return self._live

    def known(self) -> list[KnownContact]:
        """Returns all contacts of this level, in the order of addresses."""
        if self._known is None:
            pairs = ((each, held.filters) for held in self.live() for each in held.line.delegates)
            self._known = [KnownContact(*each) for each in pairs]
        return self._known

    def __iter__(self) -> Iterator[HeldLine]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


class View:
    """The tables of a participant, `view.table(1)` to l; `round` counts the periods."""

    def __init__(self, space: AddressSpace, address: LogicalAddress) -> None:
        self.space = space
        self.address = space.check(address)
        self.round = 0
        self.tables = tuple(ViewTable(level) for level in range(1, space.levels + 1))

    def table(self, level: int) -> ViewTable:
        """Returns the table of a level, from 1 to l."""
        return self.tables[level - 1]

    def digit(self, level: int) -> int:
        """Returns the digit of the own line in the table of a level."""
        return self.address[-level]

    def is_own(self, level: int, digit: int) -> bool:
        """Returns whether a line is the own one, or that of an own subsystem."""
        return self.address[-level] == digit

    def line_faults(self, level: int, line: ViewLine, redundancy: int) -> str:
        """Returns why a line is invalid in the table of a level; empty if it is valid.

        Its delegates are in its subsystem, in the order of addresses: R, or as many as
        participants.
        """
        if not line.digit < self.space.radix(level):
            return "digit"
        if line.count > self.space.room(level):
            return "count"
        delegates = line.delegates
        if len(delegates) != min(line.count, redundancy if level > 1 else 1):
            return "delegates"
        branch = (*branch_of(self.address, level), line.digit)
        for at, contact in enumerate(delegates):
            if not self.space.holds(contact.address) or contact.address[: len(branch)] != branch:
                return "delegates"
            if at and delegates[at - 1].address >= contact.address:
                return "delegates"
        return ""

    def stamps(self, lowest: int) -> tuple[LineStamp, ...]:
        """Returns a digest: the versions of the lines from a level on."""
        tables = self.tables[lowest - 1 :]
        return tuple(self.stamp_of(table.level, held) for table in tables for held in table)

    def aged_lines(self, lowest: int) -> list[AgedLine]:
        """Returns the live lines from a level on, for a newcomer."""
        tables = self.tables[lowest - 1 :]
        return [self.aged(table.level, held) for table in tables for held in table.live()]

    def stamp_of(self, level: int, held: HeldLine) -> LineStamp:
        """Returns the version of a line of a level."""
        line, age = held.line, min(self.round - held.since, ROUNDS_MAX)
        return LineStamp(level, line.digit, line.timestamp_us, held.mark, age)

    def aged(self, level: int, held: HeldLine) -> AgedLine:
        """Returns a line of a level with the rounds since its last stamp, as far as known."""
        return AgedLine(level, min(self.round - held.since, ROUNDS_MAX), held.line)

    def known(self) -> set[Contact]:
        """Returns all contacts, including the participant."""
        return {each.contact for table in self.tables for each in table.known()}


class Condensate(NamedTuple):
    """A condensed table: the last fields of the subsystem's `ViewLine` on the level above."""

    interests: bytes
    count: int  # type: ignore[assignment]
    delegates: tuple[Contact, ...]


def condense_table(
    table: ViewTable,
    redundancy: int,
    accuracy: Accuracy = Accuracy.EXACT,
    choice: DelegateChoice = DelegateChoice.ADDRESS,
) -> Condensate:
    """Returns the condensed table: interests, count and delegates.

    It depends only on the lines, so participants with the same lines get the same result. Source:
    EPFL 2503 §6.4.2.
    """
    lines = table.live()
    if choice is DelegateChoice.INTEREST:
        chosen = _by_interest(lines, redundancy)
    else:
        chosen = _by_address(lines)[:redundancy]
    interests = encode_interests([held.filters for held in lines], accuracy)
    return Condensate(interests, sum(held.line.count for held in lines), tuple(sorted(chosen)))


def _by_address(lines: Sequence[HeldLine]) -> list[Contact]:
    """Returns the first delegates of all lines, then the second ones, as in figure 6.5."""
    ranks = [list(enumerate(held.line.delegates)) for held in lines]
    return [contact for _, contact in sorted(chain.from_iterable(ranks))]


def _by_interest(lines: Sequence[HeldLine], redundancy: int) -> list[Contact]:
    """Returns delegates that greedily cover most remaining filters; then by address."""
    left = [each for held in lines for each in held.filters.filters]
    free = {number: list(held.line.delegates) for number, held in enumerate(lines)}
    chosen: list[Contact] = []
    while len(chosen) < redundancy and any(free.values()):
        numbers = [number for number in free if free[number]]
        gains = {number: sum(map(lines[number].filters.covers, left)) for number in numbers}
        best = max(numbers, key=lambda number: (gains[number], -number))
        chosen.append(free[best].pop(0))
        left = [each for each in left if not lines[best].filters.covers(each)]
    return chosen
