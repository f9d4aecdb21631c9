"""`Relation` and `Closure`: relations between the states of a machine, applied to sets of states.

A set of states is one integer with a bit for each. A relation is kept as *shifts*, for all pairs
`(s, s + d)` of one distance, and *stars*, from any of some states to all of some others. There are
few of both, so a step of thousands of states costs a few operations (Baeza-Yates and Gonnet, 1992).

Invariant: `Closure(...).of(x)` has the states after any number of steps: one step or none, then two
or none, then four, ….
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from contrada.errors import LimitError
from contrada.model.languages.work_budget import spend

CLOSURE_PAIRS_MAX: Final = 400_000
"""Pairs of states in the relations of all closures of one machine. Beyond it:
InvalidFilterError."""

_PAIR_WORK: Final = 4  # Steps of work that a pair of states counts for
_FEW: Final = 20  # The number of shifts and stars that counts as few


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
        """The number of shifts and stars."""
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
        """The number of shifts and stars."""
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
