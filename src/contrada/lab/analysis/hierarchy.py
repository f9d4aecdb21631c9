"""Sizes, interests and expected rounds of the levels of a hierarchy: equations 6.12 to 6.21, 6.28.

Sizes of a regular hierarchy, 6.15 to 6.18, are those of `Parameters`: it has `branching` subsystems
at all places (6.15), `participants` (6.16), `members` of a level (6.17), and a `view_size` (6.18).

Source: EPFL 2503 §6.4.1, §6.5.2, §6.6.2.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrada.gossip.parameters import Parameters, check_correlation, check_interest
from contrada.gossip.rounds import pittel

Floats = NDArray[np.float64]


def known(lines: Sequence[int], redundancy: int) -> int:
    """Returns the entries of a view with tables, from level 1 up, of so many lines.

    A participant of level 1 is one entry, any other line R. The participant itself counts at each
    of its levels. Source: EPFL 2503 §6.4.1, equation 6.12.
    """
    return sum(lines[:1]) + redundancy * sum(lines[1:])


def represented(populations: ArrayLike) -> int:
    """Returns ‖x‖, the participants that a delegate represents: all lowest groups of its subsystem.

    6.13 sums over x(i-1) … x(1) and so over a common branch address of level i; by 6.19, a delegate
    of level i represents a subsystem of level i - 1. Source: EPFL 2503 §6.4.1, equation 6.13.
    """
    return int(np.sum(np.asarray(populations, np.int64)))


def delegate_interest(interest: ArrayLike, count: ArrayLike) -> Floats:
    """Returns p_i, if each of so many is interested with p₁. Source: EPFL 2503 §6.4.1, eq. 6.14."""
    share = np.asarray(interest, np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.asarray(count) * np.log1p(-share)), np.float64)


def level_interest(
    parameters: Parameters, interest: float, level: int, correlation: float = 0.0
) -> float:
    """Returns p_i of a regular hierarchy, 1 - (1 - p₁)^(a^(i-1)).

    With a correlation (see `tastes`) neighbours share interests, and fewer delegates are
    interested. Source: EPFL 2503 §6.5.2, equation 6.19.
    """
    parameters.members(level)
    check_interest(interest)
    if level == 1 or not correlation:
        return float(delegate_interest(interest, float(parameters.branching ** (level - 1))))
    shares = tastes(interest, correlation)
    nobody = sum(weight * (1 - share) ** parameters.branching for weight, share in shares)
    return float(delegate_interest(1 - nobody, float(parameters.branching ** (level - 2))))


def tastes(interest: float, correlation: float) -> list[tuple[float, float]]:
    """Returns the possible interests of the participants of a lowest subsystem, with chances.

    The subsystem has a taste: it likes an event with the chance p₁. A share of its participants,
    the correlation, follows the taste; the others decide independently, with p₁. So p₁ of all are
    interested as before; two of one subsystem are correlated by the square of that share, two of
    different ones are not. Source: EPFL 2503 §6.3.3, §6.3.4: the assumptions behind aggregated
    interests and rounds.
    """
    alone = (1 - check_correlation(correlation)) * check_interest(interest)
    return [(interest, correlation + alone), (1 - interest, alone)]


def level_rounds(parameters: Parameters, interest: float, level: int) -> float:
    """T_i = T(m_i p_i, F p_i), not rounded.

    With `bottom_redundancy` m_1 is R a, as line 27 of figure 6.6 has it.
    Source: EPFL 2503 §6.5.2, in equation 6.20.
    """
    share, members = level_interest(parameters, interest, level), parameters.members(level)
    if level == 1 and parameters.bottom_redundancy:
        members *= parameters.redundancy
    return _rounds(parameters, members * share, parameters.fanout * share)


def total_rounds(parameters: Parameters, interest: float) -> float:
    """T_tot, the rounds of all levels. Source: EPFL 2503 §6.5.2, equation 6.20."""
    levels = range(1, parameters.levels + 1)
    return sum(level_rounds(parameters, interest, level) for level in levels)


def total_rounds_from_delegates(parameters: Parameters, interest: float) -> float:
    """T'_tot, where each level but the highest begins with R infected.

    For p₁ = 1 it is T(n, F), whatever the number of levels (6.28).
    Source: EPFL 2503 §6.5.2, §6.6.2, equations 6.21 and 6.28.
    """
    saved = _rounds(parameters, parameters.redundancy, parameters.fanout)
    return total_rounds(parameters, interest) - (parameters.levels - 1) * saved


def broadcast_rounds(parameters: Parameters) -> float:
    """T(n, F), the rounds of a broadcast to all. Source: EPFL 2503 §6.6.2, equation 6.28."""
    return _rounds(parameters, parameters.participants, parameters.fanout)


def _rounds(parameters: Parameters, n: float, fanout: float) -> float:
    loss, crashes, constant = parameters.loss, parameters.crashes, parameters.constant
    return float(pittel(n, fanout, loss=loss, crashes=crashes, constant=constant))
