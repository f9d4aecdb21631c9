"""`Expectation` of a multicast in a hierarchy, in agreement with figure 6.6.

The calculation follows one interested, running participant from the top: at each level, the
distribution of the infected among its own subsystem's R delegates. By the linearity of means that
gives the expected reliability. Differences to equations 6.22 to 6.27 as printed:

- the number of interested members is binomial, not always m_i p_i, and rounds depend on it. So the
  audiences of a typical interested participant count: at level 1, itself and others;
- a subsystem begins with its infected delegates: the first ones of its R first subsystems,
  interested or not; uninterested ones gossip but are no audience;
- there is no factor R at level 1, except with `bottom_redundancy`;
- the publisher gossips at all levels; crashed participants are in views, down from the beginning;
- while few are infected, each chooses F different ones.

Left out: the publisher may be a delegate of the top level; an audience D may end amid the delegates
of a subsystem, or before the R first subsystems (it is rounded up). Each group is a chain (see
`markov_chain`): exact to 10,000 members. Audiences out of more than `_EACH` are taken at a few
quantities, those out of more than `_FEW` at their mean.

Source: EPFL 2503 §6.5.2, with footnote 10.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from contrada.gossip.parameters import Parameters, check_interest
from contrada.gossip.rounds import expected_rounds
from contrada.lab.analysis.hierarchy import level_interest, tastes
from contrada.lab.analysis.markov_chain import Spread, first_transitions, reach, settled, spread
from contrada.lab.analysis.printed_equations import Floats, binomial

_LEAST: Final = 1e-7
"""Chances that are left out, of the outcomes of one choice."""

_RARE: Final = 1e-8
"""Chances that are left out, of the outcomes of several choices together."""

_EACH: Final = 200
_FEW: Final = 2_000
_NODES: Final = 7


@dataclass(frozen=True, slots=True)
class ExpectedLevel:
    """Of a level: the chance that an interested subsystem is reached, and its rounds.

    Both on condition that the subsystem above it was reached. At level 1 a subsystem is a
    participant.
    """

    level: int
    reached: float
    rounds: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected reliability, the expected rounds of all levels, and levels from the top."""

    reliability: float
    rounds: float
    levels: tuple[ExpectedLevel, ...]


class _LineState(NamedTuple):
    """The known state of a subsystem's delegates: how many are infected, and up but not infected.

    `publishes`: whether the publisher is in the subsystem; then it gossips there, too.
    """

    infected: int
    waiting: int
    publishes: bool


_LineStates = dict[_LineState, float]


def expectation(parameters: Parameters, interest: float, correlation: float = 0.0) -> Expectation:
    """Returns the expectation of a multicast, with the rounds of `expected_rounds`.

    `correlation` is the correlation of neighbours' interests (see `hierarchy.tastes`). Cost: up to
    a second for 10,000 participants; more with crashes, for some hundred subsystems of a subsystem,
    or for many delegates: half a minute where R = a = 22.
    """
    check_interest(interest)
    if parameters.levels == 1:
        # The publisher is a member: as if it were the only delegate.
        parameters = dataclasses.replace(parameters, redundancy=1)
        lines: _LineStates = {_LineState(1, 0, publishes=False): 1.0}
    else:
        lines = {_LineState(0, 0, publishes=True): 1.0}
    levels, reached = [], 1.0
    for level in range(parameters.levels, 0, -1):
        if level > 1:
            share = level_interest(parameters, interest, level, correlation)
            lines, rounds = _LevelSpread(parameters, share, level).after(lines)
        else:
            lines, rounds = _at_bottom(parameters, interest, correlation, lines)
        reaches = {it: it.infected or (level > 1 and it.publishes) for it in lines}
        part = sum(weight for line, weight in lines.items() if reaches[line])
        levels.append(ExpectedLevel(level, part / reached, rounds / reached))
        reached = part
    total = sum(each.rounds for each in levels)
    return Expectation(reached, total, tuple(levels))


def _at_bottom(
    parameters: Parameters, interest: float, correlation: float, lines: _LineStates
) -> tuple[_LineStates, float]:
    """Returns the participant's state after its lowest group, of any taste."""
    ended: defaultdict[_LineState, float] = defaultdict(float)
    rounds = 0.0
    for weight, share in tastes(interest, correlation):
        # An interested participant is more likely in an interested group.
        weight *= share / interest
        if not weight:
            continue
        part, took = _LevelSpread(parameters, share, 1).after(lines)
        rounds += weight * took
        for line, chance in part.items():
            ended[line] += weight * chance
    return dict(ended), rounds


def reliability(parameters: Parameters, interest: float, correlation: float = 0.0) -> float:
    """Returns the expected share of the interested participants that is reached."""
    return expectation(parameters, interest, correlation).reliability


def settling_rounds(parameters: Parameters, interest: float) -> float:
    """Returns the expected rounds until all interested, running members are reached, without a
    hierarchy.

    The publisher may be interested or not; the rounds are unlimited. Cost: seconds for a hundred
    participants, as in figure 6.9; cached for further p₁.
    """
    check_interest(interest)
    size, loss = parameters.participants, parameters.loss
    share = interest * (1 - parameters.crashes)
    others = _binomial(size - 1, share)
    return sum(chance * _settled(k + 1, (size, parameters.fanout, loss)) for chance, k in others)


@lru_cache(maxsize=4_096)
def _settled(n: int, group: tuple[int, int, float]) -> float:
    size, fanout, loss = group
    return settled(n, reach(size, fanout, loss=loss), first=_first(n, group, 0))


class _LinePlace(NamedTuple):
    """The place of the followed subsystem in its group, with its chance.

    The others: subsystems of infected, waiting or crashed delegates; the few in an audience D, and
    the many after them. `had` and `waits`: the followed subsystem's delegates that entered the
    group infected, or only running; `fresh` others are not known to run.
    """

    chance: float
    infected: int
    waiting: int
    down: int
    few: int
    many: int
    had: int = 0
    waits: int = 0
    fresh: int = 0


class _LevelSpread:
    """One level, for one participant that is interested and running.

    The delegates in a group are the first ones of its first subsystems, one of each (figure 6.5).
    At level 1 a subsystem is a participant, and has no others.
    """

    def __init__(self, parameters: Parameters, interest: float, level: int) -> None:
        self._parameters, self._level = parameters, level
        self._size = parameters.members(level)
        self._delegates = self._size // parameters.branching
        self._interest = interest
        self._up = 1 - parameters.crashes
        comes = level < parameters.levels or parameters.levels == 1
        self._comers = parameters.redundancy if comes else 0
        # D, in subsystems.
        tuned = -(-parameters.audience // self._delegates)
        tuned = max(self._comers, tuned) if tuned else self._comers
        self._few = min(tuned, parameters.branching) - self._comers
        # Cached: requested repeatedly.
        self._rounds_of: dict[int, int] = {}
        self._drawn_of: dict[tuple[int, ...], list[float]] = {}

    def after(self, lines: _LineStates) -> tuple[_LineStates, float]:
        """The delegates of the followed subsystem, after those of its group; and the rounds."""
        ended: defaultdict[_LineState, float] = defaultdict(float)
        rounds, here = 0.0, 1 / self._parameters.branching
        for line, weight in lines.items():
            if not line.infected and not line.publishes:
                continue
            # The publisher is in any subsystem of a group that it is in.
            stays = here if line.publishes else 0.0
            for place in self._places(line):
                for chance, seen, end in self._ends(place, line.publishes):
                    rounds += weight * chance * self._rounds(seen)
                    ended[end._replace(publishes=True)] += weight * chance * stays
                    ended[end] += weight * chance * (1 - stays)
        return dict(ended), rounds

    def _rounds(self, seen: int) -> int:
        if seen not in self._rounds_of:
            rounds = expected_rounds(self._parameters, self._level, self._size, seen)
            self._rounds_of[seen] = rounds
        return self._rounds_of[seen]

    def _places(self, line: _LineState) -> Iterator[_LinePlace]:
        count, few, size = self._parameters.branching, self._few, self._delegates
        down = self._comers - line.infected - line.waiting
        many = count - self._comers - few
        all_others = _LinePlace(1 / count, line.infected, line.waiting, down, few, many)
        # At level 1 the followed participant itself is up, so it is one of the members that are up.
        is_itself = self._level == 1
        known = all_others._replace(chance=all_others.chance / (self._up if is_itself else 1))
        places = [
            known._replace(
                chance=line.infected * known.chance,
                infected=line.infected - 1,
                had=1,
                fresh=size - 1,
            ),
            known._replace(
                chance=line.waiting * known.chance,
                waiting=line.waiting - 1,
                waits=1,
                fresh=size - 1,
            ),
            known._replace(
                chance=0.0 if is_itself else down * known.chance, down=down - 1, fresh=size - 1
            ),
        ]
        for name, number in (("few", few), ("many", many)):
            beside = all_others._replace(**{name: number - 1}, chance=number * all_others.chance)
            new = {"waits": 1} if is_itself else {"fresh": size}
            places.append(beside._replace(**new))
        yield from (place for place in places if place.chance > 0)

    def _ends(self, place: _LinePlace, publishes: bool) -> Iterator[tuple[float, int, _LineState]]:
        """Returns the final states of its delegates: chances, interested ones, and delegates."""
        size, share = self._delegates, self._interest
        numbers = (place.infected, place.waiting, place.down, place.few, place.many)
        for choices in product(*(_binomial(number, share) for number in numbers)):
            chance = place.chance * math.prod(p for p, _ in choices)
            if chance < _RARE:
                continue
            wanting = [number for _, number in choices]
            if size * (1 + sum(wanting)) < self._parameters.audience:
                wanting = [*numbers[:4], wanting[4]]
            begins, beside, lost, *others = wanting
            seen = size * (1 + sum(wanting))
            plain = (size - 1) * (begins + beside + lost) + size * sum(others)
            outsiders = place.infected - begins + publishes
            for (p1, live), (p2, fresh) in product(
                _binomial(plain, self._up), _binomial(place.fresh, self._up)
            ):
                if chance * p1 * p2 < _RARE:
                    continue
                own = place.waits + fresh
                started, waiting = begins + place.had, beside + live + own
                for gained, p3 in enumerate(self._drawn(started, waiting, outsiders, seen, own)):
                    end = _LineState(place.had + gained, own - gained, publishes=False)
                    yield chance * p1 * p2 * p3, seen, end

    def _drawn(
        self, started: int, waiting: int, outsiders: int, seen: int, own: int
    ) -> list[float]:
        """The chances that 0, 1, … of one's own, among those waiting, are infected in the end."""
        key = started, waiting, outsiders, seen, own
        if key in self._drawn_of:
            return self._drawn_of[key]
        group = (self._size, self._parameters.fanout, self._parameters.loss)
        state = _spread(started + waiting, group, self._rounds(seen), started, outsiders)
        fresh = state.infected - started
        possible = fresh >= 0
        drawn = _hypergeometric(fresh[possible], waiting, own, state.chances[possible])
        self._drawn_of[key] = drawn
        return drawn


def _binomial(count: int, chance: float) -> tuple[tuple[float, int], ...]:
    """Returns chances and numbers of the chosen ones: each, a few, or the mean alone."""
    return _quantities(max(0, count), round(chance, 12))


@lru_cache(maxsize=4_096)
def _quantities(count: int, chance: float) -> tuple[tuple[float, int], ...]:
    if chance >= 1 or count == 0:
        return ((1.0, count),)
    if count <= _EACH:
        each = [(p, k) for k, p in enumerate(binomial(count, chance).tolist()) if p > _LEAST]
        total = sum(p for p, _ in each)
        return tuple((p / total, k) for p, k in each)
    mean, deviation = count * chance, math.sqrt(count * chance * (1 - chance))
    if count > _FEW:
        return ((1.0, round(mean)),)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    numbers = np.clip(np.rint(mean + nodes * deviation), 0, count).astype(int)
    weights = weights / weights.sum()
    return tuple(zip(weights.tolist(), numbers.tolist(), strict=True))


@lru_cache(maxsize=65_536)
def _spread(
    n: int, group: tuple[int, int, float], rounds: int, infected: int, outsiders: int
) -> Spread:
    size, fanout, loss = group
    p, first = reach(size, fanout, loss=loss), _first(n, group, outsiders)
    return spread(n, p, rounds, infected=infected, outsiders=outsiders, first=first)


@lru_cache(maxsize=4_096)
def _first(n: int, group: tuple[int, int, float], outsiders: int) -> Floats:
    size, fanout, loss = group
    return first_transitions(n, size, fanout, loss=loss, outsiders=outsiders)


def _hypergeometric(fresh: Floats, waiting: int, draws: int, chances: Floats) -> list[float]:
    """Returns the chances that 0, 1, … of some draws, without return, are fresh."""
    result = []
    for hits in range(draws + 1):
        part = np.full(len(fresh), float(math.comb(draws, hits)))
        for place in range(draws):
            left = fresh - place if place < hits else waiting - fresh - (place - hits)
            part *= np.maximum(0.0, left) / (waiting - place)
        result.append(float(part @ chances))
    return result
