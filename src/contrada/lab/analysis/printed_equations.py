"""The infection of a hierarchy as the thesis prints it: equations 6.22 to 6.27.

Each level is one chain that begins with one infected member, for an audience of exactly its mean,
m_i p_i. At the lowest level that is pessimistic: the reliability is below that of figure 6.6, most
for small p₁ (see `refined`). 6.24 has P[g_(i+1) = j] as a factor, which 6.25 counts again, so that
its chances do not add up to 1; and a binomial coefficient of j where the entities are j a p_i. Here
that is C(j a p_i, k), and the factor is left out unless it is asked for.

Source: EPFL 2503 §6.5.2.
"""

import math

import numpy as np
from numpy.typing import NDArray

from contrada.gossip.parameters import Parameters
from contrada.lab.analysis.hierarchy import level_interest, level_rounds
from contrada.lab.analysis.markov_chain import Spread, reach, spread

Floats = NDArray[np.float64]


def infected(parameters: Parameters, interest: float, level: int) -> Spread:
    """s_(T_i) in a subsystem of a level, after T_i rounds; its `mean` is E[s_(T_i)].

    The sum ends at m_i p_i, which is rounded down, and is 1 at least; T_i is rounded up, as
    figure 6.6 has it.
    Source: EPFL 2503 §6.5.2, equation 6.22.
    """
    share = level_interest(parameters, interest, level)
    audience, loss, crashes = parameters.members(level) * share, parameters.loss, parameters.crashes
    p = reach(audience, parameters.fanout * share, loss=loss, crashes=crashes)
    rounds = parameters.rounds
    if rounds is None:
        rounds = math.ceil(level_rounds(parameters, interest, level))
    return spread(max(1, math.floor(audience + 1e-9)), p, rounds)


def entity_infected(parameters: Parameters, interest: float, level: int) -> float:
    """r_i, the chance that an entity of a level is infected, if its subsystem was.

    At level 1 it is a participant, above it R delegates. m_i p_i is not rounded here.
    Source: EPFL 2503 §6.5.2, equation 6.23.
    """
    audience = parameters.members(level) * level_interest(parameters, interest, level)
    share = min(1.0, infected(parameters, interest, level).mean / audience)
    return float(1 - (1 - share) ** (parameters.members(level) / parameters.branching))


def entities_infected(
    parameters: Parameters, interest: float, *, counted_twice: bool = False
) -> list[Floats]:
    """P[g_i = k] for k = 0, 1, …: an array for each level from l down to 1.

    The numbers of entities, j a p_i, are rounded. `counted_twice` keeps the factor of 6.24.
    Cost: chances for a^(l-1) p_2 times n p₁ numbers at most.
    Source: EPFL 2503 §6.5.2, equations 6.24 and 6.25.
    """
    above, levels = np.array([0.0, 1.0]), []
    for level in range(parameters.levels, 0, -1):
        each = parameters.branching * level_interest(parameters, interest, level)
        chance = entity_infected(parameters, interest, level)
        counts = np.rint(np.arange(len(above)) * each).astype(np.int64)
        chances = np.zeros(counts[-1] + 1)
        for count, weight in zip(counts.tolist(), above.tolist(), strict=True):
            factor = weight * weight if counted_twice else weight
            chances[: count + 1] += factor * binomial(count, chance)
        levels.append(chances)
        above = chances
    return levels


def expected_entities(parameters: Parameters, interest: float, level: int) -> float:
    """E[g_i] = r_i a p_i, in one subsystem of a level. Source: EPFL 2503 §6.5.2, equation 6.26."""
    chance = entity_infected(parameters, interest, level)
    return chance * parameters.branching * level_interest(parameters, interest, level)


def expected_infected(parameters: Parameters, interest: float) -> float:
    """The product of all E[g_i]: all participants infected. Source: EPFL 2503 §6.5.2, eq. 6.27."""
    levels = range(1, parameters.levels + 1)
    return math.prod(expected_entities(parameters, interest, level) for level in levels)


def reliability(parameters: Parameters, interest: float) -> float:
    """That product divided by n p₁. Source: EPFL 2503 §6.5.2, after equation 6.27."""
    return expected_infected(parameters, interest) / (parameters.participants * interest)


def binomial(count: int, chance: float) -> Floats:
    """The chances of 0, 1, … and all of so many, each with a chance, by itself."""
    if count == 0 or chance <= 0 or chance >= 1:
        sure = np.zeros(count + 1)
        sure[count if chance >= 1 else 0] = 1
        return sure
    hits = np.arange(count + 1)
    logs = np.cumsum(np.log((count - hits[:-1]) / (hits[1:])))
    choose = np.concatenate([[0.0], logs])
    result: Floats = np.exp(choose + hits * math.log(chance) + (count - hits) * math.log1p(-chance))
    return result
