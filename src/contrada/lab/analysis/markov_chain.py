"""`Spread` of an event in one group with full membership, as a Markov chain.

The state is the number of infected members. In a round each infected member reaches each other one
with the chance p, so that the next state is binomial. A group of up to `CHAIN_MAX` is calculated
exactly, apart from tails below `TAIL` in each step. A larger one is exact while few are infected,
and continues with the mean of each state; that is checked up to ten million, against the
simulation, and against the chain at its largest.

With n p₁ and F p₁ in place of n and F the same holds for the interested members (6.6 to 6.8).

Source: EPFL 2503 §6.2.1, §6.2.2.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contrada.errors import InvalidValueError, LimitError

CHAIN_MAX: Final = 10_000
"""Members of a group that is calculated exactly. Beyond it: by means, once many are infected."""

SETTLED_MAX: Final = 100_000
"""Rounds until all are infected. Beyond it: LimitError."""

FEW: Final = 32
"""Infected members up to which distinct choices matter (see `first_transitions`)."""

TAIL: Final = 1e-15
"""The most chance that a step leaves out of a distribution."""

_EXACT_TO: Final = 2_000
"""Infected up to which a group larger than `CHAIN_MAX` is exact."""

_LEAST: Final = 1e-300
"""Replaces a chance of 0, which has no logarithm."""

_CELLS: Final = 2**16
"""Chances calculated at once, so that they stay near the processor."""

_TABLE: Final = 2**14
"""Factorials that are kept; those of more are calculated by Stirling's series."""

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of the infected members: `chances[i]` for `infected[i]`, of `n`."""

    n: int
    infected: Floats
    chances: Floats

    @property
    def mean(self) -> float:
        """E[s], how many are infected on average. Source: EPFL 2503 §6.5.2, equation 6.22."""
        return float(self.infected @ self.chances)

    def at_least(self, share: float) -> float:
        """The chance to infect at least this share: Δ-reliability. Source: EPFL 2503 §6.1.1."""
        return float(self.chances[self.infected >= share * self.n].sum())


def reach(n: float, fanout: float, *, loss: float = 0.0, crashes: float = 0.0) -> float:
    """p(n, F), the chance that one infected reaches a given other in a round; q is 1 - p.

    With n p₁ and F p₁ it is 6.6. At most 1, and 0 where there is no other.
    Source: EPFL 2503 §6.2, equations 6.1 and 6.6.
    """
    if n <= 1:
        return 0.0
    return min(1.0, fanout / (n - 1)) * (1 - loss) * (1 - crashes)


def transitions(n: int, p: float, outsiders: int = 0) -> Floats:
    """p_jk for all j and k from 0 to n, an array of (n + 1)²: a row for each j.

    `outsiders` gossip too, and are none of the n. The exponent that 6.2 prints as j - (n - k) is
    j (n - k), as in 6.7. Cost: n² chances. Errors: LimitError beyond `CHAIN_MAX`.
    Source: EPFL 2503 §6.2, equations 6.2 and 6.7.
    """
    if n > CHAIN_MAX:
        raise LimitError("CHAIN_MAX", CHAIN_MAX, n)
    rows = np.arange(n + 1)
    fresh = np.arange(n + 1)[None, :] - rows[:, None]
    valid = fresh >= 0
    table = np.zeros((n + 1, n + 1))
    table[valid] = np.exp(
        _log_chances(
            np.broadcast_to((n - rows)[:, None], fresh.shape)[valid],
            fresh[valid],
            np.broadcast_to((rows + outsiders)[:, None], fresh.shape)[valid],
            p,
        )
    )
    return table


def first_transitions(
    n: int, size: int, fanout: int, *, loss: float = 0.0, outsiders: int = 0
) -> Floats:
    """Returns the first rows of p_jk with F different choices of each infected member, as in
    gossip.

    6.2 has the F choices of a participant independent, so that a round of one may reach nobody.
    While few are infected that matters. The n are part of a group of `size`, from which the
    infected choose. Rows are for j up to `FEW`; columns for all states that those may lead to.
    Cost: some milliseconds.
    """
    rows = min(n, FEW) + 1
    width = min(n, FEW + (FEW + outsiders) * fanout) + 1
    left = np.minimum(n - np.arange(width), size - 1)
    # chances[k]: that an infected participant infects k, for each number of infected.
    chosen = np.array([_choices(size - 1, each, fanout, loss) for each in left.tolist()]).T
    table = np.eye(rows, width)
    for sender in range(rows - 1 + outsiders):
        # Row j has j infected, and outsiders, that send one after another.
        part = table[max(0, sender + 1 - outsiders) :]
        moved = part * chosen[0]
        for fresh in range(1, min(len(chosen), width)):
            moved[:, fresh:] += (part * chosen[fresh])[:, :-fresh]
        part[...] = moved
    return table


@lru_cache(maxsize=65_536)
def _choices(others: int, susceptible: int, fanout: int, loss: float) -> tuple[float, ...]:
    """The chances to infect 0, 1, …, F, where so many of the others are susceptible."""
    choices = min(fanout, others)
    result = [0.0] * (fanout + 1)
    most = min(choices, susceptible)
    for hits in range(max(0, choices - others + susceptible), most + 1):
        ways = math.comb(susceptible, hits) * math.comb(others - susceptible, choices - hits)
        chance = ways / math.comb(others, choices)
        for fresh in range(hits + 1):
            kept = math.comb(hits, fresh) * (1 - loss) ** fresh * loss ** (hits - fresh)
            result[fresh] += chance * kept
    return tuple(result)


def spreading(
    n: int, p: float, *, infected: int = 1, outsiders: int = 0, first: Floats | None = None
) -> Iterator[Spread]:
    """Yields the distribution of s_t for t = 0, 1, …, without end.

    `first` are rows of p_jk for the first j, in place of those of 6.2. A round from j leads to j at
    least, so that the sum of 6.3 begins at 0 as well as at k/(1 + F). Cost: a round of a group of
    10,000 less than a second. Source: EPFL 2503 §6.2, equations 6.3 and 6.8.
    """
    if not 0 <= infected <= n:
        raise InvalidValueError(infected, f"expected 0 to {n} that are infected at first")
    if not 0 <= p <= 1:
        raise InvalidValueError(p, "p is a chance, from 0 to 1")
    highest = n if n <= CHAIN_MAX else min(n, _EXACT_TO)
    exact = np.zeros(highest + 1)
    many, weights = np.empty(0), np.empty(0)
    if infected <= highest:
        exact[infected] = 1
    else:
        many, weights = np.array([float(infected)]), np.ones(1)
    while True:
        chances = np.concatenate([exact, weights])
        yield Spread(n, np.concatenate([np.arange(highest + 1.0), many]), chances)
        missed = np.exp((many + outsiders) * math.log(max(1 - p, _LEAST)))
        many = many + (n - many) * (1 - missed)
        stepped = _step(exact, n, p, outsiders, first)
        exact, beyond = stepped[: highest + 1], stepped[highest + 1 :]
        entered = np.flatnonzero(beyond > TAIL)
        many = np.concatenate([many, entered + highest + 1.0])
        weights = np.concatenate([weights, beyond[entered]])


def spread(
    n: int,
    p: float,
    rounds: int,
    *,
    infected: int = 1,
    outsiders: int = 0,
    first: Floats | None = None,
) -> Spread:
    """The distribution of s_t after so many rounds. Source: EPFL 2503 §6.2, equation 6.3."""
    every = spreading(n, p, infected=infected, outsiders=outsiders, first=first)
    return next(islice(every, rounds, None))


def settled(n: int, p: float, share: float = 1.0, first: Floats | None = None) -> float:
    """Returns the expected number of rounds until a share of the group is infected, all by default.

    By the chain, up to `CHAIN_MAX`. Source: EPFL 2503 §6.2.1, approximated by equation 6.5.
    """
    if n > CHAIN_MAX:
        raise LimitError("CHAIN_MAX", CHAIN_MAX, n)
    if p <= 0 and share * n > 1:
        return math.inf
    expected = 0.0
    for number, each in enumerate(spreading(n, p, first=first)):
        waiting = 1 - each.at_least(share)
        if waiting < 1e-9:
            break
        if number == SETTLED_MAX:
            raise LimitError("SETTLED_MAX", SETTLED_MAX)
        expected += waiting
    return expected


def _step(weights: Floats, n: int, p: float, outsiders: int, first: Floats | None = None) -> Floats:
    """One round from the states 0, 1, …; all states that it may lead to."""
    known = 0 if first is None else len(first)
    states = known + np.flatnonzero(weights[known:] > TAIL * 1e-6)
    left = n - states
    mean = -np.expm1((states + outsiders) * math.log(max(1 - p, _LEAST))) * left
    # Beyond nine deviations and thirty there is less than TAIL of any binomial distribution.
    width = 9 * np.sqrt(mean) + 30
    low = np.maximum(0, np.floor(mean - width)).astype(np.int64)
    high = np.minimum(left, np.ceil(mean + width)).astype(np.int64)
    reach = int((states + high).max(initial=0)) + 1
    result = np.zeros(max(len(weights), reach, 0 if first is None else first.shape[1]))
    if first is not None:
        result[: first.shape[1]] = weights[:known] @ first
    rows = max(1, _CELLS // int((high - low).max(initial=0) + 1))
    for start in range(0, len(states), rows):
        part = slice(start, start + rows)
        fresh = low[part, None] + np.arange((high - low)[part].max() + 1)[None, :]
        row, column = np.nonzero(fresh <= high[part, None])
        fresh = fresh[row, column]
        state = states[part][row]
        chances = weights[state] * np.exp(_log_chances(n - state, fresh, state + outsiders, p))
        result += np.bincount(state + fresh, chances, len(result))
    return result


def _log_chances(left: Counts, fresh: Counts, senders: Counts, p: float) -> Floats:
    """The logarithm of the chance that `fresh` of those `left` are reached by so many senders."""
    log_q = math.log(max(1 - p, _LEAST))
    missed = senders * log_q
    reached = np.log(np.maximum(-np.expm1(missed), _LEAST))
    chances: Floats = _log_choose(left, fresh) + fresh * reached + (left - fresh) * missed
    return chances


def _log_choose(n: Counts, k: Counts) -> Floats:
    table = _log_factorials()
    left = n - k
    chosen: Floats
    if n.max(initial=0) < _TABLE:
        chosen = table[n] - table[k] - table[left]
        return chosen
    # Stirling's series: of the difference, where both are large, so that no digits are lost.
    falling = _log_factorial(n) - _log_factorial(left)
    large = left >= _TABLE
    a, b, c = n[large].astype(np.float64), k[large].astype(np.float64), left[large]
    falling[large] = b * (np.log(a) - 1) - (c + 0.5) * np.log1p(-b / a) + (1 / a - 1 / c) / 12
    chosen = falling - _log_factorial(k)
    return chosen


def _log_factorial(k: Counts) -> Floats:
    """The logarithm of k!, also of a large one."""
    result = _log_factorials()[np.minimum(k, _TABLE - 1)]
    large = k >= _TABLE
    each = k[large].astype(np.float64)
    result[large] = (each + 0.5) * np.log(each) - each + math.log(2 * math.pi) / 2 + 1 / (12 * each)
    return result


@cache
def _log_factorials() -> Floats:
    return np.array([math.lgamma(k + 1) for k in range(_TABLE)])
