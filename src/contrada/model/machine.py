"""Machines that search text for a regular expression, one step per byte whatever the expression.

A machine may be in several states at once. Which sets of states it really comes to is found out
while texts are read, and kept: a set becomes a *row* that leads to the next row for each kind of
byte. So a text costs one look-up per byte once its rows are there, and a row costs at most the
machine's size; nothing is ever tried again from an earlier place. Rows are thrown away when there
are too many, and found again. `automaton` follows all rows, for decisions.

Invariants: `Machine.row[kind]` is the next row or `unknown`; the last entry of a row says whether
the machine accepts where the text ends there; once the expression was found, the row is
`accepted` and stays so. Bytes of one kind lead everywhere to the same.

Source: Thompson, 1968 (several states at once); the rows as in RE2.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from contrada.errors import LimitError
from contrada.model import regular
from contrada.model.automaton import STATES_MAX, Automaton, minimised
from contrada.model.regular import (
    AT_END,
    AT_LINE_END,
    AT_LINE_START,
    AT_START,
    AT_WORD_EDGE,
    INSIDE_WORD,
    Anything,
    Chars,
    Choice,
    Look,
    Ranges,
    Sequence,
    Tree,
)

MACHINE_STATES_MAX: Final = 10_000
"""States of one machine."""

ROWS_ENTRIES_MAX: Final = 10_000
"""Entries in the rows of one machine, and states that they stand for, before all are dropped; ten
more for each of its own states."""

FOLLOWED_MAX: Final = 2_000_000
"""States that are followed, each by every kind of byte, to make one automaton."""

MATCH: Final = 0
"""The state where the expression has been found."""

Edge: TypeAlias = tuple[int, int, int]
"""The first and the last byte that lead to a state, and that state."""

Row: TypeAlias = list[Any]
"""Next rows by kind of byte; then the states it stands for and what precedes; then acceptance."""

_AFTER_START, _AFTER_LINE, _AFTER_WORD, _AFTER_OTHER = 1, 2, 3, 4
_WORD_BYTES: Final = frozenset(b for first, last in regular.WORD for b in range(first, last + 1))


class _Program:
    """The states of a machine, built from the end of the expression to its beginning."""

    def __init__(self) -> None:
        self.edges: list[tuple[Edge, ...]] = []
        self.free: list[tuple[int, ...]] = []
        self.looks: list[int] = []
        self._shared: dict[Edge, int] = {}
        self.state()

    def state(self, edges: tuple[Edge, ...] = (), free: tuple[int, ...] = (), look: int = 0) -> int:
        """A new state. Raises LimitError beyond `MACHINE_STATES_MAX`."""
        if len(self.edges) >= MACHINE_STATES_MAX:
            raise LimitError("MACHINE_STATES_MAX", MACHINE_STATES_MAX)
        self.edges.append(edges)
        self.free.append(free)
        self.looks.append(look)
        return len(self.edges) - 1

    def before(self, tree: Tree, after: int) -> int:
        """The state from which a text of the tree leads to the state `after`."""
        if isinstance(tree, Chars):
            return self.characters(tree.ranges, after)
        if isinstance(tree, Sequence):
            for part in reversed(tree.parts):
                after = self.before(part, after)
            return after
        if isinstance(tree, Choice):
            return self.state(free=tuple([self.before(part, after) for part in tree.parts]))
        if isinstance(tree, Look):
            return self.state(free=(after,), look=tree.where)
        if isinstance(tree, Anything):
            loop = self.state(free=(after,))
            self.edges[loop] = ((0, 255, loop),)
            return loop
        entry = self.optional(tree.part, tree.least, tree.most, after)
        for _ in range(tree.least):
            entry = self.before(tree.part, entry)
        return entry

    def optional(self, part: Tree, least: int, most: int | None, after: int) -> int:
        """What may follow the least number of repetitions."""
        if most is None:
            loop = self.state()
            self.free[loop] = (self.before(part, loop), after)
            return loop
        entry = after
        for _ in range(most - least):
            entry = self.state(free=(self.before(part, entry), after))
        return entry

    def characters(self, ranges: Ranges, after: int) -> int:
        """A state that one character leads on from, byte by byte; ends of characters are shared."""
        edges = []
        for spans in (each for first, last in ranges for each in utf8_spans(first, last)):
            target = after
            for low, high in reversed(spans[1:]):
                target = self.shared((low, high, target))
            edges.append((*spans[0], target))
        return self.state(tuple(edges))

    def shared(self, edge: Edge) -> int:
        """The state with just this edge."""
        if edge not in self._shared:
            self._shared[edge] = self.state((edge,))
        return self._shared[edge]


class Machine:
    """Searches texts for what a tree describes: see the module."""

    def __init__(self, tree: Tree) -> None:
        """Raises LimitError beyond `MACHINE_STATES_MAX`. Cost: linear in the machine."""
        program = _Program()
        inner = program.before(tree, MATCH)
        self._start = program.state(free=(inner,))
        program.edges[self._start] = ((0, 255, self._start),)
        self._edges, self._free, self._looks = program.edges, program.free, program.looks
        self.states = len(program.edges)
        self._kinds, self._byte_of = self._classified()
        width = len(self._byte_of)
        self.unknown: Row = [None] * (width + 2)
        self.unknown[:width] = [self.unknown] * width
        self.accepted: Row = [None] * width
        self.accepted += [(frozenset((MATCH,)), 0), True]
        self.accepted[:width] = [self.accepted] * width
        self._forget()

    def finds(self, text: bytes) -> bool:
        """Whether the text has what the machine searches. Cost: linear in the text."""
        row = self._first
        kinds = text.translate(self._kinds)
        for kind in kinds:
            row = row[kind]
        return bool(self._walked(kinds)[-1] if row is self.unknown else row[-1])

    def automaton(self) -> Automaton:
        """The minimal automaton of all texts in which the machine finds something.

        Raises LimitError beyond `STATES_MAX` or `FOLLOWED_MAX`.
        """
        rows = [self._first]
        numbers = {self._first[-2]: 0}
        targets: list[array[int]] = []
        followed = 0
        for row in rows:
            followed += len(row[-2][0]) * len(self._byte_of)
            if followed > FOLLOWED_MAX:
                raise LimitError("FOLLOWED_MAX", FOLLOWED_MAX)
            reached = []
            for kind in range(len(self._byte_of)):
                target = self._next(row, kind)
                if target[-2] not in numbers:
                    if len(rows) >= STATES_MAX:
                        raise LimitError("STATES_MAX", STATES_MAX)
                    numbers[target[-2]] = len(rows)
                    rows.append(target)
                reached.append(numbers[target[-2]])
            targets.append(array("H", [reached[kind] for kind in self._kinds]))
        return minimised(targets, [row[-1] for row in rows])

    def _classified(self) -> tuple[bytes, bytes]:
        """The kind of each byte, and a byte of each kind."""
        starts = {0} | {
            at for edges in self._edges for low, high, _ in edges for at in (low, high + 1)
        }
        if any(self._looks):
            spans = ((0x0A, 0x0A), (0x80, 0xBF), *regular.WORD)
            starts |= {at for low, high in spans for at in (low, high + 1)}
        byte_of = bytes(sorted(starts - {256}))
        kinds = bytearray()
        for byte in range(256):
            kinds.append(kinds[-1] + (byte in starts) if byte else 0)
        return bytes(kinds), byte_of

    def _forget(self) -> None:
        """Drops all rows."""
        self._rows: dict[object, Row] = {}
        self._entries = 0
        self._first = self._row(self._closed((self._start,), 0), _AFTER_START)

    def _walked(self, kinds: bytes) -> Row:
        """The row that a text leads to; rows on the way are found where they are not known."""
        row = self._first
        for kind in kinds:
            row = self._next(row, kind)
        return row

    def _next(self, row: Row, kind: int) -> Row:
        """The row after one more byte."""
        target: Row = row[kind]
        if target is not self.unknown:
            return target
        states, before = row[-2]
        byte = self._byte_of[kind]
        if before:
            states = self._closed(states, _holding(before, byte))
        if MATCH in states:
            target = self.accepted
        else:
            reached = (
                to
                for state in states
                for low, high, to in self._edges[state]
                if low <= byte <= high
            )
            target = self._row(self._closed(reached, 0), _after(byte))
        row[kind] = target
        return target

    def _row(self, states: Iterable[int], before: int) -> Row:
        """The row of a set of states, after what `before` says."""
        if before != _AFTER_START:
            states = [state for state in states if self._looks[state] != AT_START]
        held = frozenset(states)
        if MATCH in held:
            return self.accepted
        looks = any(self._looks[state] for state in held)
        key = (held, before if looks else 0)
        row = self._rows.get(key)
        if row is None:
            if self._entries > ROWS_ENTRIES_MAX + 10 * self.states:
                self._forget()
            at_end = self._closed(held, _holding(before, None)) if looks else held
            row = [self.unknown] * len(self._byte_of) + [key, MATCH in at_end]
            self._rows[key] = row
            self._entries += len(row) + len(held)
        return row

    def _closed(self, states: Iterable[int], holding: int) -> set[int]:
        """The states and those that are reached without a byte, where such places hold."""
        found = set(states)
        waiting = list(found)
        while waiting:
            state = waiting.pop()
            look = self._looks[state]
            if look and not look & holding:
                continue
            for target in self._free[state]:
                if target not in found:
                    found.add(target)
                    waiting.append(target)
        return found


def _holding(before: int, byte: int | None) -> int:
    """Which places lie between what is before and the next byte, or the end."""
    at_start = before == _AFTER_START
    holding = AT_START | AT_LINE_START if at_start else 0
    if before == _AFTER_LINE:
        holding |= AT_LINE_START
    if byte is None:
        holding |= AT_END | AT_LINE_END
    elif byte == 0x0A:
        holding |= AT_LINE_END
    if (before == _AFTER_WORD) != (byte in _WORD_BYTES):
        return holding | AT_WORD_EDGE
    inside_character = byte is not None and 0x80 <= byte <= 0xBF
    return holding if inside_character else holding | INSIDE_WORD


def _after(byte: int) -> int:
    """What a byte is to the place behind it."""
    if byte == 0x0A:
        return _AFTER_LINE
    return _AFTER_WORD if byte in _WORD_BYTES else _AFTER_OTHER


_LENGTHS_END: Final = (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, 0x10FFFF)


def utf8_spans(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The UTF-8 of a range of characters, as sequences of ranges of bytes."""
    start = 0
    for end in _LENGTHS_END:
        low, high = max(first, start), min(last, end)
        if low <= high and end != 0xDFFF:  # there are no characters among the surrogates
            yield from _spans(
                low, high, 1 if end == 0x7F else 2 if end == 0x7FF else 3 + (end > 0xFFFF)
            )
        start = end + 1


def _spans(low: int, high: int, length: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """As `utf8_spans`, of characters of one length in bytes."""
    for ending in range(1, length):
        mask = (1 << 6 * ending) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                yield from _spans(low, low | mask, length)
                yield from _spans((low | mask) + 1, high, length)
                return
            if high & mask != mask:
                yield from _spans(low, (high & ~mask) - 1, length)
                yield from _spans(high & ~mask, high, length)
                return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))
