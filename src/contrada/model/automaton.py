"""Deterministic finite automata over bytes: how sets of text are decided.

Membership never needs an automaton. Decisions (is one set inside another, do two meet, is one
empty) build them, lazily, one per constant, minimal, and explore products of them.

Invariants: state 0 is the start; `rows[state][byte]` is the next state, for all 256 bytes;
every state can be reached; no two states accept the same rest (the automaton is minimal), so
that a state which accepts nothing, or everything, is one whose row leads only to itself.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.line import Cuts
from contrada.model.values import TEXT

STATES_MAX: Final = 10_000
"""States of one automaton, and of one product of automata. Beyond it decisions are safe."""

AUTOMATA_CACHED_MAX: Final = 4_096
"""Automata kept, by constant; the least recently used is dropped and built again when needed."""

CUTS_MAX: Final = 4_096
"""Cuts that an automaton is turned back into; a language with more stays an expression."""

BYTES: Final = frozenset(range(256))

Row: TypeAlias = "bytes | array[int]"
Edges: TypeAlias = Sequence[Sequence[tuple[frozenset[int], int]]]
"""A machine that may be in several states: per state, the bytes that lead to another."""

DEAD: Final = 0
UNIVERSAL: Final = 1
OPEN: Final = 2


@dataclass(frozen=True)
class Automaton:
    """A minimal deterministic automaton. See the module for the invariants."""

    rows: tuple[Row, ...]
    accepting: tuple[bool, ...]

    @cached_property
    def turns(self) -> tuple[frozenset[int], ...]:
        """Per state, byte 0 and every byte whose next state differs from the byte before."""
        return tuple(
            frozenset([0, *(b + 1 for b, (x, y) in enumerate(pairwise(row)) if x != y)])
            for row in self.rows
        )

    @cached_property
    def fates(self) -> tuple[int, ...]:
        """Per state: DEAD (accepts no rest), UNIVERSAL (accepts every rest) or OPEN."""
        return tuple(
            OPEN if turns != {0} or row[0] != state else (UNIVERSAL if accepts else DEAD)
            for state, (row, turns, accepts) in enumerate(
                zip(self.rows, self.turns, self.accepting, strict=True)
            )
        )

    def accepts(self, text: bytes) -> bool:
        """Whether the text is in the language. Cost: one step per byte."""
        state = 0
        for byte in text:
            state = self.rows[state][byte]
        return self.accepting[state]


def determinise(edges: Edges, starts: frozenset[int], accepting: frozenset[int]) -> Automaton:
    """The minimal automaton of a machine that may be in several states at once.

    An edge for `BYTES` itself is cheap. Raises LimitError beyond `STATES_MAX` states.
    """
    numbers = {starts: 0}
    waiting = [starts]
    rows: list[Row] = []
    for subset in waiting:
        always = frozenset(to for state in subset for on, to in edges[state] if on is BYTES)
        some: dict[int, set[int]] = {}
        for state in subset:
            for on, to in edges[state]:
                if on is not BYTES:
                    for byte in on:
                        some.setdefault(byte, set()).add(to)
        row = [_number(always, numbers, waiting)] * 256
        for byte, targets in some.items():
            row[byte] = _number(always | targets, numbers, waiting)
        rows.append(array("H", row))
    return minimised(rows, [not accepting.isdisjoint(subset) for subset in waiting])


def minimised(rows: Sequence[Sequence[int]], accepting: Sequence[bool]) -> Automaton:
    """The minimal automaton with the same language; states numbered in order of first reach.

    All states must be reachable from state 0. Cost: a pass over all rows per round, at most as
    many rounds as there are states.
    """
    bytes_that_matter = sorted(
        {0} | {b + 1 for row in rows for b, (x, y) in enumerate(pairwise(row)) if x != y}
    )
    columns = [[row[b] for b in bytes_that_matter] for row in rows]
    block = [int(accepts) for accepts in accepting]
    count = len(set(block))
    while True:
        names: dict[tuple[int, ...], int] = {}
        block = [
            names.setdefault((block[s], *(block[t] for t in column)), len(names))
            for s, column in enumerate(columns)
        ]
        if len(names) == count:
            break
        count = len(names)
    return _renumbered(rows, accepting, block, count)


@lru_cache(maxsize=AUTOMATA_CACHED_MAX)
def of_intervals(cuts: Cuts) -> Automaton:
    """The automaton of a set of text intervals. States: at most the bytes of all its ends."""
    ends: list[bytes] = [cut[1] if len(cut) == 2 else b"" for cut in cuts]  # type: ignore[misc]
    inner = {b"": 0}
    for end in ends:
        for length in range(1, len(end)):
            inner.setdefault(end[:length], len(inner))
        if len(inner) > STATES_MAX:
            raise LimitError("STATES_MAX", STATES_MAX)
    outside = len(inner)
    rows: list[Sequence[int]] = [_interval_row(prefix, inner, ends) for prefix in inner]
    accepting = [bisect_right(ends, prefix) & 1 == 1 for prefix in inner]
    rows += [[outside] * 256, [outside + 1] * 256]
    return minimised(*_reachable(rows, [*accepting, False, True]))


def intervals_of(automaton: Automaton) -> Cuts | None:
    """The cuts of an automaton whose language is a finite union of intervals, else None.

    None also where it has more than `CUTS_MAX` cuts, which depends on the language alone. Cost:
    at most 256 steps per byte of every cut.

    A language is such a union exactly when its minimal automaton has no cycle but the loops of
    the states that accept nothing or everything.
    """
    if _has_cycle(automaton):
        return None
    cuts: list[tuple[int] | tuple[int, bytes]] = []
    if automaton.accepting[0]:
        cuts.append((TEXT,))
    prefix = bytearray()
    open_states = [(0, iter(range(256)))] if automaton.fates[0] == OPEN else []
    while open_states:
        state, left = open_states[-1]
        byte = next(left, None)
        if byte is None:
            open_states.pop()
            del prefix[-1:]
            continue
        target = automaton.rows[state][byte]
        if automaton.accepting[target] != len(cuts) & 1:
            cuts.append((TEXT, bytes((*prefix, byte))))
            if len(cuts) > CUTS_MAX:
                return None
        if automaton.fates[target] == OPEN:
            prefix.append(byte)
            open_states.append((target, iter(range(256))))
    return tuple(cuts)


def _number(
    subset: frozenset[int], numbers: dict[frozenset[int], int], waiting: list[frozenset[int]]
) -> int:
    number = numbers.get(subset)
    if number is None:
        if len(numbers) >= STATES_MAX:
            raise LimitError("STATES_MAX", STATES_MAX)
        number = numbers[subset] = len(numbers)
        waiting.append(subset)
    return number


def _renumbered(
    rows: Sequence[Sequence[int]], accepting: Sequence[bool], block: list[int], count: int
) -> Automaton:
    """One state per block, numbered breadth first from the start."""
    order: dict[int, int] = {block[0]: 0}
    members = [0]
    for state in members:
        for target in dict.fromkeys(rows[state]):
            if block[target] not in order:
                order[block[target]] = len(order)
                members.append(target)
    packed = [[order[block[target]] for target in rows[state]] for state in members]
    assert len(members) == count
    row_of = bytes if count <= 256 else (lambda row: array("H", row))
    return Automaton(tuple(map(row_of, packed)), tuple(accepting[state] for state in members))


def _interval_row(prefix: bytes, inner: dict[bytes, int], ends: list[bytes]) -> list[int]:
    outside = len(inner)
    row: list[int] = []
    marks = {end[len(prefix)] for end in ends if len(end) > len(prefix) and end.startswith(prefix)}
    turns = sorted({0} | marks | {mark + 1 for mark in marks if mark < 255})
    for turn, next_turn in pairwise([*turns, 256]):
        longer = prefix + bytes((turn,))
        target = inner.get(longer, outside + (bisect_right(ends, longer) & 1))
        row += [target] * (next_turn - turn)
    return row


def _reachable(
    rows: list[Sequence[int]], accepting: list[bool]
) -> tuple[list[list[int]], list[bool]]:
    order = {0: 0}
    for state in (waiting := [0]):
        for target in dict.fromkeys(rows[state]):
            if target not in order:
                order[target] = len(order)
                waiting.append(target)
    return [[order[t] for t in rows[s]] for s in waiting], [accepting[s] for s in waiting]


def _has_cycle(automaton: Automaton) -> bool:
    """Whether a state that still decides can come back to itself."""
    on_path, done = 1, 2
    marks = [done if fate != OPEN else 0 for fate in automaton.fates]
    stack: list[tuple[int, Iterable[int]]] = []

    def enter(state: int) -> None:
        marks[state] = on_path
        stack.append((state, iter(dict.fromkeys(automaton.rows[state]))))

    if marks[0] != done:
        enter(0)
    while stack:
        state, targets = stack[-1]
        for target in targets:
            if marks[target] == on_path:
                return True
            if marks[target] != done:
                enter(target)
                break
        else:
            marks[state] = done
            stack.pop()
    return False
