"""The cost of membership by the number of levels: equations 6.29 to 6.36.

n is the number of participants, l of levels; a = n^(1/l) need not be whole where l varies.
Logarithms are natural.

Source: EPFL 2503 §6.6.3.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Parameters

Floats = NDArray[np.float64]


def branching_slope(n: ArrayLike, levels: ArrayLike) -> Floats:
    """d(n^(1/l)) / dl = -(log n / l²) n^(1/l). Source: EPFL 2503 §6.6.3, equation 6.29."""
    n, levels = _both(n, levels)
    return np.asarray(-np.log(n) / levels**2 * n ** (1 / levels))


def view_slope(n: ArrayLike, levels: ArrayLike, redundancy: int) -> Floats:
    """How a view grows with the levels: dm / dl of m = n^(1/l) (R (l - 1) + 1).

    Source: EPFL 2503 §6.6.3, from equations 6.18 and 6.29.
    """
    n, levels = _both(n, levels)
    size = redundancy * (levels - 1) + 1
    return np.asarray(n ** (1 / levels) * (redundancy - np.log(n) / levels**2 * size))


def view_slope_printed(n: ArrayLike, levels: ArrayLike, redundancy: int) -> Floats:
    """The same as printed, R n^(1/l) (1 - log n / l): that of R l n^(1/l), for m.

    It is less than 0 where l < log n. Source: EPFL 2503 §6.6.3, equation 6.30.
    """
    n, levels = _both(n, levels)
    return np.asarray(redundancy * n ** (1 / levels) * (1 - np.log(n) / levels))


def view_curvature(n: ArrayLike, levels: ArrayLike, redundancy: int) -> Floats:
    """d²m / dl² as printed, R n^(1/l) (log n)² / l³; at l = log n it is R e / log n, above 0.

    Source: EPFL 2503 §6.6.3, equation 6.31.
    """
    n, levels = _both(n, levels)
    return np.asarray(redundancy * n ** (1 / levels) * np.log(n) ** 2 / levels**3)


def smallest_view_levels(n: ArrayLike, redundancy: int) -> Floats:
    """The number of levels, any real one, with which a view is smallest.

    With R = 1 it is log n, which 6.31 gives for all R; else less, and where a view grows with each
    level, 1. Source: EPFL 2503 §6.6.3, the minimum of equation 6.18.
    """
    size = np.log(np.asarray(n, np.float64))
    inside = size**2 - 4 * size * (redundancy - 1) / redundancy
    return np.asarray(np.where(inside > 0, (size + np.sqrt(np.maximum(inside, 0))) / 2, 1.0))


def is_below_smallest(parameters: Parameters) -> bool:
    """Whether l < log n, which follows from R > e by a ≥ R. Source: EPFL 2503 §6.6.3, eq. 6.32."""
    return parameters.levels < math.log(parameters.participants)


def participants_of_level(parameters: Parameters) -> NDArray[np.int64]:
    """Returns d_i for i = 1 … l: the participants with i as highest level. They add up to n.

    With one level all are of it; 6.33 has R a, or a - R, for them. Source: EPFL 2503 §6.6.3,
    equation 6.33.
    """
    a, levels, redundancy = parameters.branching, parameters.levels, parameters.redundancy
    if levels == 1:
        return np.array([a], np.int64)
    between = [redundancy * a ** (levels - level) * (a - 1) for level in range(2, levels)]
    lowest = a ** (levels - 1) * (a - redundancy)
    return np.array([lowest, *between, redundancy * a], np.int64)


def knowing(parameters: Parameters) -> NDArray[np.int64]:
    """u_i = a^i - 1: the participants that know one of level i. Source: EPFL 2503 equation 6.34."""
    return np.array([parameters.branching**i - 1 for i in range(1, parameters.levels + 1)])


def mean_updates(parameters: Parameters) -> float:
    """u_upd, the mean views with a failed participant. Source: EPFL 2503 equation 6.35, its sum."""
    return _mean(parameters, knowing(parameters))


def mean_updates_closed(parameters: Parameters) -> float:
    """u_upd = (a - 1) (R (l - 1) + 1). Source: EPFL 2503 §6.6.3, equation 6.35."""
    a, redundancy, levels = parameters.branching, parameters.redundancy, parameters.levels
    return float((a - 1) * (redundancy * (levels - 1) + 1))


def mean_level(parameters: Parameters) -> float:
    """l_upd, the mean highest level of a participant. Source: EPFL 2503 equation 6.36, its sum."""
    return _mean(parameters, np.arange(1, parameters.levels + 1))


def mean_level_integral(parameters: Parameters) -> float:
    """R a ∫ i a^(-i) di from 1 to l, in place of the sum.

    Rough: it leaves out that most are of level 1 whatever R is.
    Source: EPFL 2503 §6.6.3, equation 6.36, the integral with the sign that it has.
    """
    return -_integrate(parameters, -1)


def mean_level_printed(parameters: Parameters) -> float:
    """l_upd as printed at its end, which is below 0 for the sizes of the thesis' figures.

    The antiderivative of i a^(-i) is -(i + 1 / log a) a^(-i) / log a; it is printed without its
    first minus, and with a minus in the place of its plus.
    Source: EPFL 2503 §6.6.3, equation 6.36, its last line.
    """
    return _integrate(parameters, 1)


def _integrate(parameters: Parameters, sign: int) -> float:
    """R a / log a · (i - sign / log a) a^(-i), at l less at 1."""
    if parameters.branching == 1:
        raise InvalidValueError(1, "log a is 0 for branching a")
    n, levels = float(parameters.participants), parameters.levels
    log_n = math.log(n)
    first = levels**2 * parameters.redundancy * n ** (1 / levels) / (n * log_n)
    second = levels * parameters.redundancy / log_n
    return float(first * (1 - sign / log_n) + second * (sign * levels / log_n - 1))


def _mean(parameters: Parameters, each: NDArray[np.int64]) -> float:
    pairs = zip(participants_of_level(parameters).tolist(), each.tolist(), strict=True)
    return float(sum(d * v for d, v in pairs) / parameters.participants)


def _both(n: ArrayLike, levels: ArrayLike) -> tuple[Floats, Floats]:
    return np.asarray(n, np.float64), np.asarray(levels, np.float64)
