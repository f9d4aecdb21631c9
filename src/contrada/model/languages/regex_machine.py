"""`Machine`: a search for a regular expression that takes one step per byte of the text.

A machine is a nondeterministic automaton that is made deterministic while texts are read. A set of
its states becomes a *row*, which has the next row for each kind of byte: one look-up per byte once
the rows exist. Beyond a limit all rows are dropped.

A new row costs a few operations: a set of states is an integer with a bit for each, and a
`Relation` between states is kept as *shifts*, for all pairs `(s, s + d)` of one distance, and
*stars*, from any of some states to all of some others. There are few of both.

Invariants: `Machine.row[kind]` is the next row or `unknown`; the last entry of a row is whether the
machine accepts at the end of the text; once the expression was found, the row is `accepted` and
remains so. Bytes of one kind have the same next state everywhere. `Closure(...).of(x)` has the
states after any number of steps: one step or none, then two or none, then four, ….

Source: Thompson, 1968 (several states at once); the rows as in RE2; shifts from Baeza-Yates and
Gonnet, 1992.
"""

import operator
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, reduce
from typing import Any, Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.languages import characters, regex_syntax
from contrada.model.languages.automaton import Automaton, StateNumbers, minimise
from contrada.model.languages.characters import Ranges
from contrada.model.languages.work_budget import spend

MACHINE_STATES_MAX: Final = 10_000
"""States of the machine of a regular expression or wildcard. Beyond it: InvalidFilterError."""

MACHINE_WORK_MAX: Final = 660_000
"""Shifts and stars (see the module) of such a machine for a byte, times its states and
2,000. About 40 microseconds. Beyond it: InvalidFilterError."""

CLOSURE_PAIRS_MAX: Final = 400_000
"""Pairs of states in all closures of a machine. Beyond it: InvalidFilterError."""

ROWS_ENTRIES_MAX: Final = 10_000
"""Entries in the rows of such a machine, words of 64 states, and ten for each of its states. Beyond
it: all rows are dropped and computed again."""

FOLLOWED_MAX: Final = 2_000_000
"""States of such a machine that its automaton follows fully. Beyond it: the safe answer."""

_WORK_PER_STEP: Final = 10_000
"""The part of that work that takes about as long as one step of `spend`."""

_STATE_WORK: Final = 8  # Steps of work for a state
_PAIR_WORK: Final = 4  # Steps of work that a pair of states counts for
_ROW_WORK: Final = 4  # Steps of work for a row of the smallest machine
_BYTES_PER_STEP: Final = 20  # Bytes of a text that are looked up in a step
_FEW: Final = 20  # The number of shifts and stars that counts as few
MATCH: Final = 0  # The state where the expression has been found

Edge: TypeAlias = tuple[int, int, int]
"""The first and the last byte of a transition, and its next state."""

MachineRow: TypeAlias = list[Any]
"""Next rows by kind of byte; then the states of the row and the byte before; then acceptance."""

_AFTER_START, _AFTER_LINE, _AFTER_WORD, _AFTER_OTHER = 1, 2, 3, 4
_AFTER_ALL_BUT_1, _AFTER_ALL_BUT_2, _AFTER_E0, _AFTER_ED, _AFTER_F0, _AFTER_F4 = 5, 6, 7, 8, 9, 10
_AFTER_ALL_BUT_3: Final = 11

_LEADS: Final = (
    (0xC2, 0xDF, _AFTER_ALL_BUT_1),
    (0xE0, 0xE0, _AFTER_E0),
    (0xE1, 0xEC, _AFTER_ALL_BUT_2),
    (0xED, 0xED, _AFTER_ED),
    (0xEE, 0xEF, _AFTER_ALL_BUT_2),
    (0xF0, 0xF0, _AFTER_F0),
    (0xF1, 0xF3, _AFTER_ALL_BUT_3),
    (0xF4, 0xF4, _AFTER_F4),
)
"""First bytes of characters of several bytes, with the ranges of the next byte."""

_WITHIN: Final = {
    _AFTER_ALL_BUT_1: (0x80, 0xBF, _AFTER_OTHER),
    _AFTER_ALL_BUT_2: (0x80, 0xBF, _AFTER_ALL_BUT_1),
    _AFTER_ALL_BUT_3: (0x80, 0xBF, _AFTER_ALL_BUT_2),
    _AFTER_E0: (0xA0, 0xBF, _AFTER_ALL_BUT_1),
    _AFTER_ED: (0x80, 0x9F, _AFTER_ALL_BUT_1),
    _AFTER_F0: (0x90, 0xBF, _AFTER_ALL_BUT_2),
    _AFTER_F4: (0x80, 0x8F, _AFTER_ALL_BUT_2),
}
"""Continuation bytes of a character, with the ranges of the next byte."""

_WORD_BYTES: Final = frozenset(b for first, last in characters.WORD for b in range(first, last + 1))
_NOTHING: Final = (1, 0, _AFTER_OTHER)
_LENGTHS_END: Final = (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, 0x10FFFF)


class Relation:
    """The successors of each state."""

    __slots__ = ("_downs", "_stars", "_ups")

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        """A pair is kept with the largest group of its distance, first state or second state.

        Cost: linear in the pairs, and in the states for each.
        """
        distinct = list(dict.fromkeys(pairs))
        by_distance = Counter(second - first for first, second in distinct)
        by_first = Counter(first for first, _ in distinct)
        by_second = Counter(second for _, second in distinct)
        distances: defaultdict[int, int] = defaultdict(int)
        fans_in: defaultdict[int, int] = defaultdict(int)
        fans_out: defaultdict[int, int] = defaultdict(int)
        for first, second in distinct:
            largest = max(by_distance[second - first], by_first[first], by_second[second])
            if by_distance[second - first] == largest:
                distances[second - first] |= 1 << first
            elif by_first[first] == largest:
                fans_out[first] |= 1 << second
            else:
                fans_in[second] |= 1 << first
        self._ups = [(mask, by) for by, mask in distances.items() if by >= 0]
        self._downs = [(mask, -by) for by, mask in distances.items() if by < 0]
        stars: defaultdict[int, int] = defaultdict(int)  # Of the same sources all successors.
        for second, mask in fans_in.items():
            stars[mask] |= 1 << second
        self._stars = [*stars.items(), *((1 << first, mask) for first, mask in fans_out.items())]

    def __len__(self) -> int:
        return len(self._ups) + len(self._downs) + len(self._stars)

    def of(self, states: int) -> int:
        """Returns the states that follow one of these."""
        found = 0
        for mask, by in self._downs:
            found |= (states & mask) >> by
        for mask, by in self._ups:
            found |= (states & mask) << by
        for mask, targets in self._stars:
            if states & mask:
                found |= targets
        return found


class Closure:
    """The states after any number of steps of a relation, including none."""

    __slots__ = ("_relations", "pairs")

    def __init__(self, steps: dict[int, tuple[int, ...]], pairs: int = 0) -> None:
        """`steps` are the direct successors of a state; `pairs` counts on.

        Raises LimitError beyond CLOSURE_PAIRS_MAX. Cost: the pairs, for each power of two up to the
        longest path, each as long as the states.
        """
        powers: list[Relation] = []
        self.pairs = pairs
        power = {first: frozenset(seconds) for first, seconds in steps.items()}
        reached = {first: 1 << first for first in power}
        while True:
            self.pairs += sum(map(len, power.values()))
            if self.pairs > CLOSURE_PAIRS_MAX:
                raise LimitError("CLOSURE_PAIRS_MAX", CLOSURE_PAIRS_MAX)
            spend(_PAIR_WORK * sum(map(len, power.values())))
            further = dict(reached)
            for first, seconds in power.items():
                for second in seconds:
                    further[first] |= reached.get(second, 1 << second)
            if further == reached:
                break
            reached = further
            powers.append(Relation((f, s) for f, seconds in power.items() for s in seconds))
            power = _double(power, CLOSURE_PAIRS_MAX - self.pairs)
        self._relations = self._fewer(powers, reached)

    def __len__(self) -> int:
        return sum(map(len, self._relations))

    def of(self, states: int) -> int:
        """Returns these states and all that steps lead to."""
        for relation in self._relations:
            further = states | relation.of(states)
            if further == states:  # if twice as many steps add nothing, no number of steps does
                break
            states = further
        return states

    def _fewer(self, powers: list[Relation], reached: dict[int, int]) -> list[Relation]:
        """Returns the powers, or the whole closure as one relation if that has fewer operations."""
        pairs = sum(map(int.bit_count, reached.values()))
        operations = sum(map(len, powers))
        if operations <= _FEW or self.pairs + pairs > CLOSURE_PAIRS_MAX // 2:
            return powers
        spend(_PAIR_WORK * pairs)
        self.pairs += pairs
        whole = Relation((first, second) for first in reached for second in bits_of(reached[first]))
        return [whole] if len(whole) < operations else powers


def bits_of(states: int) -> Iterator[int]:
    """Yields the places of the bits of an integer, the lowest first."""
    while states:
        yield (states & -states).bit_length() - 1
        states &= states - 1


def _double(power: dict[int, frozenset[int]], most: int) -> dict[int, frozenset[int]]:
    """Returns the relation of twice as many steps; beyond `most` pairs some may be missing."""
    found: dict[int, frozenset[int]] = {}
    for first, seconds in power.items():
        targets = frozenset[int]().union(*(power.get(second, ()) for second in seconds))
        if targets:
            found[first] = targets
            most -= len(targets)
            if most < 0:
                break
    return found


class _MachineStates:
    """The states of a machine, built from the end of the expression to its beginning."""

    def __init__(self) -> None:
        self.edges: list[tuple[Edge, ...]] = []
        self.free: list[tuple[int, ...]] = []
        self.looks: list[int] = []
        self._shared: dict[Edge, int] = {}
        self.state()

    def state(self, edges: tuple[Edge, ...] = (), free: tuple[int, ...] = (), look: int = 0) -> int:
        if len(self.edges) >= MACHINE_STATES_MAX:
            raise LimitError("MACHINE_STATES_MAX", MACHINE_STATES_MAX)
        spend(_STATE_WORK)
        self.edges.append(edges)
        self.free.append(free)
        self.looks.append(look)
        return len(self.edges) - 1

    def before(self, tree: regex_syntax.Tree, after: int) -> int:
        """Returns the state from which a text of the tree leads to the state `after`."""
        if isinstance(tree, regex_syntax.Chars):
            return self.characters(tree.ranges, after)
        if isinstance(tree, regex_syntax.Sequence):
            for part in reversed(tree.parts):
                after = self.before(part, after)
            return after
        if isinstance(tree, regex_syntax.Alternation):
            return self.state(free=tuple([self.before(part, after) for part in tree.parts]))
        if isinstance(tree, regex_syntax.Look):
            return self.state(free=(after,), look=tree.where)
        if isinstance(tree, regex_syntax.Anything):
            loop = self.state(free=(after,))
            self.edges[loop] = ((0, 255, loop),)
            return loop
        entry = after
        if tree.most is None:
            entry = self.state()
            self.free[entry] = (self.before(tree.part, entry), after)
        for _ in range((tree.most or tree.least) - tree.least):
            entry = self.state(free=(self.before(tree.part, entry), after))
        for _ in range(tree.least):
            entry = self.before(tree.part, entry)
        return entry

    def characters(self, ranges: Ranges, after: int) -> int:
        """Returns the state before one character; equal ends of characters share states."""
        edges = []
        for spans in (each for first, last in ranges for each in utf8_spans(first, last)):
            target = after
            for low, high in reversed(spans[1:]):
                edge = (low, high, target)
                if edge not in self._shared:
                    self._shared[edge] = self.state((edge,))
                target = self._shared[edge]
            edges.append((*spans[0], target))
        return self.state(tuple(edges))

    def classified(self) -> tuple[bytes, bytes]:
        """Returns the kind of each byte, and a byte of each kind."""
        starts = {0} | {
            at for edges in self.edges for low, high, _ in edges for at in (low, high + 1)
        }
        if any(self.looks):
            parts = (*_LEADS, *_WITHIN.values()) if self.asks_inside else ()
            spans = ((0x0A, 0x0A), *characters.WORD, *(part[:2] for part in parts))
            starts |= {at for low, high in spans for at in (low, high + 1)}
        byte_of = bytes(sorted(starts - {256}))
        kinds = bytearray()
        for byte in range(256):
            kinds.append(kinds[-1] + (byte in starts) if byte else 0)
        return bytes(kinds), byte_of

    def step(self, first: int, last: int) -> Relation:
        return Relation(
            (state, target)
            for state, edges in enumerate(self.edges)
            for low, high, target in edges
            if low <= last and first <= high
        )

    @cached_property
    def required_places(self) -> int:
        """The kinds of places (`AT_START` and so on) that some state requires, as bits."""
        return reduce(operator.or_, self.looks, 0)

    @property
    def asks_inside(self) -> bool:
        """Whether a position inside a character makes a difference."""
        return bool(self.required_places & regex_syntax.INSIDE_WORD)

    def closures(self) -> dict[int, Closure]:
        """Returns the transitions without a byte of each state, by the kinds of the place."""
        found: dict[int, Closure] = {}
        pairs = 0
        for holding in sorted({each & self.required_places for each in _holdings()}):
            passable = {
                state: targets
                for state, targets in enumerate(self.free)
                if targets and (not self.looks[state] or self.looks[state] & holding)
            }
            found[holding] = Closure(passable, pairs)
            pairs = found[holding].pairs
        return found


class Machine:
    """Searches texts for what a tree describes: see the module."""

    def __init__(self, tree: regex_syntax.Tree) -> None:
        """Raises LimitError beyond `MACHINE_STATES_MAX`, `MACHINE_WORK_MAX`, CLOSURE_PAIRS_MAX.

        Cost: linear in the machine, except for long runs of optional parts.
        """
        program = _MachineStates()
        inner = program.before(tree, MATCH)
        start = program.state(free=(inner,))
        program.edges[start] = ((0, 255, start),)
        self.states = len(program.edges)
        self._program = program
        self._kinds, self._byte_of = program.classified()
        self._steps: dict[int, Relation] = {}
        self._closures = program.closures()
        spend(2 * self.states)
        times = 2 if program.required_places else 1
        steps = len(program.step(0, 255)) + times * max(map(len, self._closures.values()))
        work = steps * (self.states + 2_000)
        if work > MACHINE_WORK_MAX:
            raise LimitError("MACHINE_WORK_MAX", MACHINE_WORK_MAX, work)
        self._byte_work = _ROW_WORK + work // _WORK_PER_STEP
        self._looking = _bits(state for state, look in enumerate(program.looks) if look)
        self._at_start = _bits(
            s for s, look in enumerate(program.looks) if look == regex_syntax.AT_START
        )
        self._start = self._closures[0].of(1 << start)
        width = len(self._byte_of)
        self.unknown: MachineRow = [None] * (width + 2)
        self.unknown[:width] = [self.unknown] * width
        self.accepted: MachineRow = [None] * width
        self.accepted += [(b"", 0), True]
        self.accepted[:width] = [self.accepted] * width
        self._forget()

    def finds(self, text: bytes) -> bool:
        """Whether the text has a match. Cost: linear in the text."""
        row = self._first
        spend(1 + len(text) // _BYTES_PER_STEP)
        kinds = text.translate(self._kinds)
        for kind in kinds:  # without a test: a row that is not known leads to itself until the end
            row = row[kind]
        if row is self.unknown:
            row = self._first
            for kind in kinds:
                target: MachineRow = row[kind]
                if target is self.unknown:
                    spend(self._byte_work)
                    target = self._next(row, kind)
                row = target
        return bool(row[-1])

    def automaton(self) -> Automaton:
        """Returns the minimal automaton. Raises LimitError beyond STATES_MAX or FOLLOWED_MAX."""
        rows = [self._first]
        # By the states of rows, which may be dropped and made again meanwhile.
        numbers = StateNumbers(self._first[-2])
        targets: list[array[int]] = []
        followed = 0
        for row in rows:
            spend(len(self._byte_of) * (self._byte_work + 1) + 10)
            followed += _set_of(row).bit_count() * len(self._byte_of)
            if followed > FOLLOWED_MAX:
                raise LimitError("FOLLOWED_MAX", FOLLOWED_MAX)
            reached = []
            for kind in range(len(self._byte_of)):
                target = self._next(row, kind)
                if target[-2] not in numbers:
                    rows.append(target)
                reached.append(numbers[target[-2]])
            targets.append(array("H", [reached[kind] for kind in self._kinds]))
        return minimise(targets, [row[-1] for row in rows])

    def _forget(self) -> None:
        self._rows: dict[object, MachineRow] = {}
        self._entries = 0
        self._first = self._row(self._start, _AFTER_START)

    def _next(self, row: MachineRow, kind: int) -> MachineRow:
        target: MachineRow = row[kind]
        if target is not self.unknown:
            return target
        states, before = _set_of(row), row[-2][1]
        byte = self._byte_of[kind]
        if before:  # Only the next byte decides the kind of the place, and so which looks hold.
            states = self._closed(states, _holding(before, byte))
        if states & 1 << MATCH:
            target = self.accepted
        else:
            step = self._steps.get(kind)
            if step is None:
                step = self._steps[kind] = self._program.step(byte, byte)
            after = _after(before, byte, self._program.asks_inside)
            target = self._row(self._closures[0].of(step.of(states)), after)
        row[kind] = target
        return target

    def _row(self, states: int, before: int) -> MachineRow:
        # A state that requires the start of the text never succeeds later; with it there would be
        # more rows. And the context matters only to states that look at it.
        if before != _AFTER_START:
            states &= ~self._at_start
        if states & 1 << MATCH:
            return self.accepted
        looks = states & self._looking
        # Not the integer itself: integers that are alike but for a shift may have one hash.
        key = (states.to_bytes(self.states // 8 + 1, "little"), before if looks else 0)
        row = self._rows.get(key)
        if row is None:
            if self._entries > ROWS_ENTRIES_MAX + 10 * self.states:
                self._forget()
            at_end = self._closed(states, _holding(before, None)) if looks else states
            row = [self.unknown] * len(self._byte_of) + [key, bool(at_end & 1 << MATCH)]
            self._rows[key] = row
            self._entries += len(row) + len(key[0]) // 8
        return row

    def _closed(self, states: int, holding: int) -> int:
        """Returns the states and those reached without a byte at such places."""
        return self._closures[holding & self._program.required_places].of(states)


def _set_of(row: MachineRow) -> int:
    return int.from_bytes(row[-2][0], "little")


def _bits(states: Iterable[int]) -> int:
    return sum(1 << state for state in states)


def _holding(before: int, byte: int | None) -> int:
    """Returns the kinds of the place between this context and the next byte, or the end."""
    at_start = before == _AFTER_START
    holding = regex_syntax.AT_START | regex_syntax.AT_LINE_START if at_start else 0
    if before == _AFTER_LINE:
        holding |= regex_syntax.AT_LINE_START
    if byte is None:
        holding |= regex_syntax.AT_END | regex_syntax.AT_LINE_END
    elif byte == 0x0A:
        holding |= regex_syntax.AT_LINE_END
    if (before == _AFTER_WORD) != (byte in _WORD_BYTES):
        return holding | regex_syntax.AT_WORD_EDGE
    low, high, _ = _WITHIN.get(before, _NOTHING)
    inside_character = byte is not None and low <= byte <= high
    return holding if inside_character else holding | regex_syntax.INSIDE_WORD


@cache
def _holdings() -> frozenset[int]:
    befores = (_AFTER_START, _AFTER_LINE, _AFTER_WORD, _AFTER_OTHER, *_WITHIN)
    return frozenset(_holding(before, byte) for before in befores for byte in (None, *range(256)))


def _after(before: int, byte: int, asks_inside: bool) -> int:
    if byte == 0x0A:
        return _AFTER_LINE
    if byte in _WORD_BYTES:
        return _AFTER_WORD
    if asks_inside:
        for low, high, after in (_WITHIN.get(before, _NOTHING), *_LEADS):
            if low <= byte <= high:
                return after
    return _AFTER_OTHER


def utf8_spans(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields the UTF-8 of a range of characters, as sequences of ranges of bytes."""
    start = 0
    for end in _LENGTHS_END:
        low, high = max(first, start), min(last, end)
        if low <= high and end != 0xDFFF:  # there are no characters among the surrogates
            yield from _spans(low, high, len(chr(low).encode()))
        start = end + 1


def _spans(low: int, high: int, length: int) -> Iterator[tuple[tuple[int, int], ...]]:
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
