"""`Automaton`: deterministic finite automata over bytes, for decisions about sets of text.

Invariants: state 0 is the start; `rows[state][byte]` is the next state, for all 256 bytes; every
state can be reached; no two states accept the same rest (the automaton is minimal), so a state that
accepts nothing, or everything, is one with a row that leads only to itself.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from contrada.errors import LimitError
from contrada.model.domains.line import Cuts
from contrada.model.domains.values import TEXT
from contrada.model.languages.work_budget import spend

K = TypeVar("K")

STATES_MAX: Final = 10_000
"""States of an automaton, and of a product of automata. Beyond it: the safe answer."""

AUTOMATA_CACHED_MAX: Final = 4_096
"""Automata kept, by constant, of each kind. Beyond it: the least recently used is built again."""

SUBSETS_MAX: Final = 1_000_000
"""States held while an automaton is made deterministic. Beyond it: the safe answer."""

REFINING_MAX: Final = 50_000_000
"""Transitions examined to make an automaton minimal. Beyond it: the safe answer."""

CUTS_MAX: Final = 4_096
"""Cuts of an automaton that is converted to intervals. Beyond it: the set remains an expression."""

_ROW_WORK: Final = 10  # Steps of work for the row of a state
_MINIMISING_WORK: Final = 200  # Steps of work to make even the smallest automaton minimal

BYTES: Final = frozenset(range(256))

NextStates: TypeAlias = "bytes | array[int]"
Edges: TypeAlias = Sequence[Sequence[tuple[frozenset[int], int]]]
"""A nondeterministic automaton: per state, the bytes that lead to another."""

DEAD: Final = 0
UNIVERSAL: Final = 1
OPEN: Final = 2


@dataclass(frozen=True)
class Automaton:
    """A minimal deterministic automaton. See the module for the invariants."""

    rows: tuple[NextStates, ...]
    accepting: tuple[bool, ...]

    @cached_property
    def turns(self) -> tuple[frozenset[int], ...]:
        """Per state, byte 0 and every byte with another next state than the byte before."""
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


class StateNumbers(dict[K, int]):
    """Numbers of states; new ones are added to `met`. Raises LimitError beyond STATES_MAX."""

    def __init__(self, start: K) -> None:
        super().__init__({start: 0})
        self.met = [start]

    def __missing__(self, state: K) -> int:
        if len(self) >= STATES_MAX:
            raise LimitError("STATES_MAX", STATES_MAX)
        self.met.append(state)
        return self.setdefault(state, len(self))


def is_sound(given: object) -> bool:
    """Whether it is an automaton with rows of 256 bytes each, which lead to its states.

    Minimality is not checked: without it some proofs fail, and no answer is wrong.
    """
    if not isinstance(given, Automaton) or not 0 < len(given.rows) <= STATES_MAX:
        return False
    if len(given.accepting) != len(given.rows) or not {True, False}.issuperset(given.accepting):
        return False
    spend(_ROW_WORK * len(given.rows))
    rows: tuple[object, ...] = given.rows
    return all(
        isinstance(row, bytes | array)
        and len(row) == len(BYTES)
        and type(row[0]) is int
        and min(row) >= 0
        and max(row) < len(given.rows)
        for row in rows
    )


def search_automaton(constant: bytes, *, anything_after: bool) -> Automaton:
    """Returns the automaton of texts that end with a constant, or contain it (`anything_after`).

    One state per byte of the constant, and one: the length of its beginning that has just been
    read. Raises LimitError beyond `STATES_MAX`. Source: Knuth, Morris and Pratt, 1977.
    """
    if len(constant) >= STATES_MAX:
        raise LimitError("STATES_MAX", STATES_MAX, len(constant) + 1)
    last = len(constant)
    spend(_ROW_WORK * last)
    rows: list[array[int]] = []
    shorter = array("H", [0]) * 256  # the row of the longest proper suffix that is a beginning, too
    for state, byte in enumerate(constant):
        rows.append(array("H", shorter))
        rows[state][byte] = state + 1
        shorter = rows[shorter[byte]]
    rows.append(array("H", [last]) * 256 if anything_after else array("H", shorter))
    return Automaton(_pack_rows(rows), (*(False,) * last, True))


def determinise(edges: Edges, starts: frozenset[int], accepting: frozenset[int]) -> Automaton:
    """Returns the minimal automaton of a nondeterministic one.

    An edge for `BYTES` itself is cheap. Raises LimitError beyond `STATES_MAX` states, or when
    they stand for more than `SUBSETS_MAX` states of it.
    """
    numbers = StateNumbers(starts)
    rows: list[NextStates] = []
    members = 0
    for subset in numbers.met:
        members += len(subset)
        if members > SUBSETS_MAX:
            raise LimitError("SUBSETS_MAX", SUBSETS_MAX)
        reached = sum(1 + len(on) for state in subset for on, _ in edges[state] if on is not BYTES)
        spend(_ROW_WORK + (len(subset) + reached) // 3)
        # An edge for all bytes is followed once, not 256 times.
        always = frozenset(to for state in subset for on, to in edges[state] if on is BYTES)
        some: dict[int, set[int]] = {}
        for state in subset:
            for on, to in edges[state]:
                if on is not BYTES:
                    for byte in on:
                        some.setdefault(byte, set()).add(to)
        row = [numbers[always]] * 256
        for byte, targets in some.items():
            row[byte] = numbers[always | targets]
        rows.append(array("H", row))
    return minimise(rows, [not accepting.isdisjoint(subset) for subset in numbers.met])


def product_of(automata: Sequence[Automaton], value: Callable[[Sequence[int]], int]) -> Automaton:
    """Returns the minimal automaton of a product, accepting by `value`. Raises LimitError."""
    numbers = StateNumbers((0,) * len(automata))
    rows: list[list[int]] = []
    accepting: list[bool] = []
    for state in numbers.met:
        row: list[int] = []
        accepts = [a.accepting[s] for a, s in zip(automata, state, strict=True)]
        accepting.append(value(accepts) == UNIVERSAL)
        turns = frozenset().union(*(a.turns[s] for a, s in zip(automata, state, strict=True)))
        spend(step_work(len(automata), len(turns)))
        for byte, next_turn in pairwise((*sorted(turns), 256)):
            target = tuple(a.rows[s][byte] for a, s in zip(automata, state, strict=True))
            row += [numbers[target]] * (next_turn - byte)
        rows.append(row)
    return minimise(rows, accepting)


def step_work(leaves: int, turns: int) -> int:
    """Returns about the steps from one state of a product of automata to the next ones."""
    return 1 + (leaves + 4) * (turns + 8) // 16


def difference(whole: Automaton, part: Automaton) -> Automaton:
    """Returns the minimal automaton of the texts of one that are not texts of another."""
    return product_of((whole, part), lambda accepts: accepts[0] and not accepts[1])


def minimise(rows: Sequence[Sequence[int]], accepting: Sequence[bool]) -> Automaton:
    """Returns the minimal automaton with the same language; states in breadth-first order.

    All states must be reachable from state 0. States are first distinguished by their distance to
    acceptance and to rejection, then by their transitions, until nothing changes. Cost: a pass over
    all rows per round; a few rounds for searches, at most one per state, and LimitError beyond
    `REFINING_MAX` transitions.
    """
    import numpy as np  # takes longer to load than all of the model

    spend(_MINIMISING_WORK + 4 * _ROW_WORK * len(rows))
    away = list(zip(*(_distances(rows, accepting, each) for each in (True, False)), strict=True))
    found: dict[object, int] = {}
    block = np.array([found.setdefault(each, len(found)) for each in away], np.uint16)
    targets = np.array([list(row) for row in rows], np.uint16)
    # One byte of each kind: those of one kind have the same next state everywhere.
    columns, size = targets.tobytes(order="F"), 2 * len(targets)
    kinds: dict[bytes, int] = {}
    for byte in range(256):
        kinds.setdefault(columns[byte * size : (byte + 1) * size], byte)
    targets = targets[:, list(kinds.values())]
    looks = 0
    count = 0
    while count < len(found) < len(rows):
        count = len(found)
        looks += targets.size
        if looks > REFINING_MAX:
            raise LimitError("REFINING_MAX", REFINING_MAX)
        spend(len(rows) + targets.size // 100)
        # States of one block stay together while their bytes lead to the same blocks.
        table = np.column_stack((block, block[targets]))
        found = {}
        block = np.array([found.setdefault(row.tobytes(), len(found)) for row in table], np.uint16)
    return _renumber(rows, accepting, block.tolist())


@lru_cache(maxsize=AUTOMATA_CACHED_MAX)
def of_intervals(cuts: Cuts) -> Automaton:
    """Returns the automaton of text intervals: at most one state per byte of their ends.

    The states are the proper prefixes of the ends of intervals. Any other text is inside or outside
    together with all its extensions. Longer prefixes are built first, so that equal states are
    found at once.
    """
    ends: list[bytes] = [cut[1] if len(cut) == 2 else b"" for cut in cuts]  # type: ignore[misc]
    rows: list[array[int]] = [array("H", [sink]) * 256 for sink in (0, 1)]
    accepting = [False, True]
    made = {(False, rows[0].tobytes()): 0, (True, rows[1].tobytes()): 1}
    state_of: dict[bytes, int] = {}
    spend(sum(map(len, ends)))
    for prefix in sorted(_inner(ends), key=len, reverse=True):
        spend(3 * _ROW_WORK + len(prefix) // 100)
        row = _interval_row(prefix, state_of, ends)
        accepts = bisect_right(ends, prefix) & 1 == 1
        state = state_of[prefix] = made.setdefault((accepts, row.tobytes()), len(rows))
        if state == len(rows):
            rows.append(row)
            accepting.append(accepts)
    return _renumber(rows, accepting, range(len(rows)), state_of[b""])


def intervals_of(automaton: Automaton) -> Cuts | None:
    """Returns the cuts of an automaton whose language is a finite union of intervals, else None.

    None also beyond `CUTS_MAX` cuts, which depends on the language alone; they are counted before
    they are made. Cost: 512 steps per state, and 256 per byte of every cut.

    A language is such a union exactly if its minimal automaton has no cycle except the loops of the
    states that accept nothing or everything.
    """
    spend(_ROW_WORK * len(automaton.rows))
    states = _deepest_first(automaton)
    if states is None:
        return None
    spend(5 * _ROW_WORK * len(states))
    steps = cache(lambda state: _steps(automaton, state))
    if _cuts_below(automaton, states, steps) > CUTS_MAX:
        return None
    cuts: list[tuple[int] | tuple[int, bytes]] = []
    if automaton.accepting[0]:
        cuts.append((TEXT,))
    prefix = bytearray()
    open_states = [iter(steps(0))] if automaton.fates[0] == OPEN else []
    while open_states:
        step = next(open_states[-1], None)
        if step is None:
            open_states.pop()
            del prefix[-1:]
            continue
        byte, target = step
        # An odd number of cuts so far means inside; a cut is a change of acceptance.
        if automaton.accepting[target] != len(cuts) & 1:
            cuts.append((TEXT, bytes((*prefix, byte))))
        if automaton.fates[target] == OPEN:
            prefix.append(byte)
            open_states.append(iter(steps(target)))
    return tuple(cuts)


def texts_of(automaton: Automaton, most: int) -> list[bytes] | None:
    """Returns the texts of a language, the shortest first; None if there are more than `most`."""
    states = _deepest_first(automaton)
    if states is None or UNIVERSAL in automaton.fates:
        return None
    counts = dict.fromkeys(range(len(automaton.rows)), 0)
    spend(_ROW_WORK * len(states))
    for state in states:
        longer = sum(counts[target] for target in automaton.rows[state])
        counts[state] = automaton.accepting[state] + longer
    if counts[0] > most:
        return None
    waiting = [(b"", 0)] if counts[0] else []
    for text, state in waiting:
        spend(_ROW_WORK)
        waiting += [
            (text + bytes((byte,)), target)
            for byte, target in enumerate(automaton.rows[state])
            if counts[target]
        ]
    return [text for text, state in waiting if automaton.accepting[state]]


def first_of(automaton: Automaton) -> bytes:
    """Returns the shortest text of a language that is not empty, of these the lowest."""
    first = {0: b""}
    for state in (waiting := [0]):
        if automaton.accepting[state]:
            return first[state]
        for byte in sorted(automaton.turns[state]):
            target = automaton.rows[state][byte]
            if target not in first:
                first[target] = first[state] + bytes((byte,))
                waiting.append(target)
    raise ValueError("the language is empty")


def _distances(rows: Sequence[Sequence[int]], accepting: Sequence[bool], wanted: bool) -> list[int]:
    """Returns per state the fewest bytes to acceptance, or to rejection; -1 if there is no path."""
    sources: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row):
            sources[target].append(state)
    waiting = [state for state, accepts in enumerate(accepting) if accepts is wanted]
    distances = [-1] * len(rows)
    for state in waiting:
        distances[state] = 0
    for state in waiting:
        for source in sources[state]:
            if distances[source] < 0:
                distances[source] = distances[state] + 1
                waiting.append(source)
    return distances


def _renumber(
    rows: Sequence[Sequence[int]], accepting: Sequence[bool], block: Sequence[int], start: int = 0
) -> Automaton:
    """Returns one state per block, numbered breadth first; drops unreachable ones."""
    order = {block[start]: 0}
    members = [start]
    for state in members:
        for target in dict.fromkeys(rows[state]):
            if block[target] not in order:
                order[block[target]] = len(order)
                members.append(target)
    packed = [array("H", [order[block[target]] for target in rows[state]]) for state in members]
    return Automaton(_pack_rows(packed), tuple(accepting[state] for state in members))


def _pack_rows(rows: Sequence[Sequence[int]]) -> tuple[NextStates, ...]:
    if len(rows) <= 256:
        return tuple(bytes(list(row)) for row in rows)
    return tuple(array("H", row) for row in rows)


def _inner(ends: list[bytes]) -> set[bytes]:
    """Returns the proper prefixes of the ends. Raises LimitError beyond `STATES_MAX`."""
    inner = {b""}
    for end in ends:
        if len(end) > STATES_MAX:
            raise LimitError("STATES_MAX", STATES_MAX, len(end))
        for length in range(len(end) - 1, 0, -1):
            prefix = end[:length]
            if prefix in inner:  # and so are all shorter ones
                break
            inner.add(prefix)
        if len(inner) > STATES_MAX:
            raise LimitError("STATES_MAX", STATES_MAX, len(inner))
    return inner


def _interval_row(prefix: bytes, state_of: Mapping[bytes, int], ends: list[bytes]) -> "array[int]":
    """Returns the next state of each byte: a longer prefix, or out (0) or in (1) for good."""
    row: array[int] = array("H")
    at = bisect_right(ends, prefix)
    while at < len(ends) and ends[at].startswith(prefix):
        byte = ends[at][len(prefix)]
        longer = prefix + bytes((byte,))
        row.extend([at & 1] * (byte - len(row)))
        at = bisect_right(ends, longer)
        row.append(state_of.get(longer, at & 1))
        if byte == 255:
            break
        at = bisect_left(ends, prefix + bytes((byte + 1,)))
    row.extend([at & 1] * (256 - len(row)))
    return row


def _steps(automaton: Automaton, state: int) -> list[tuple[int, int]]:
    """Returns the bytes of possible changes, each with its next state."""
    row, turns = automaton.rows[state], automaton.turns[state]
    return [(b, to) for b, to in enumerate(row) if b in turns or automaton.fates[to] == OPEN]


def _cuts_below(
    automaton: Automaton, states: list[int], steps: Callable[[int], list[tuple[int, int]]]
) -> int:
    """Counts the cuts of the language: changes of acceptance along its sorted texts."""
    below: dict[int, tuple[tuple[int, bool], ...]] = {}
    for state in states:
        found = []
        for accepts in (False, True):
            count = 0
            for _, target in steps(state):
                if automaton.accepting[target] != accepts:
                    count, accepts = count + 1, not accepts
                if automaton.fates[target] == OPEN:
                    more, accepts = below[target][accepts]
                    count += more
            found.append((count, accepts))
        below[state] = tuple(found)
    first = automaton.accepting[0]
    return int(first) + (below[0][first][0] if automaton.fates[0] == OPEN else 0)


def _deepest_first(automaton: Automaton) -> list[int] | None:
    """Returns the open states, each after its successors; None if there is a cycle."""
    on_path, done = 1, 2
    marks = [done if fate != OPEN else 0 for fate in automaton.fates]
    stack: list[tuple[int, Iterable[int]]] = []
    order: list[int] = []

    def enter(state: int) -> None:
        marks[state] = on_path
        stack.append((state, iter(dict.fromkeys(automaton.rows[state]))))

    if marks[0] != done:
        enter(0)
    while stack:
        state, targets = stack[-1]
        for target in targets:
            if marks[target] == on_path:  # a cycle; loops of states that are not open are done
                return None
            if marks[target] != done:
                enter(target)
                break
        else:
            marks[state] = done
            order.append(state)
            stack.pop()
    return order
