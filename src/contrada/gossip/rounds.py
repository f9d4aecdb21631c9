"""The number of rounds of an event: as many as expected to infect all interested participants.

So buffers are emptied without acknowledgements: an event is dropped after these rounds. The number
depends only on a view: its size, and its number of interested contacts.

Source: EPFL 2503 §6.2, §6.3.4, §6.5.1, §6.5.4; figure 6.6, lines 26 to 35.
"""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Approximation, Parameters

DIGEST_AUDIENCE: Final = 12
"""The audience from which on the asymptote reaches nearly all. Smaller audiences of real
participants exchange digests by default."""

ROUNDS_MAX: Final = 10_000
"""Rounds of an event at a level. Beyond it: this many."""


def pittel(
    n: ArrayLike,
    fanout: ArrayLike,
    *,
    loss: float = 0.0,
    crashes: float = 0.0,
    constant: float = 0.0,
) -> NDArray[np.float64]:
    """Returns T(n, F): expected rounds from one infected to all of n, for large n.

    With n p₁ and F p₁ in place of n and F it is equation 6.9, without loss and crashes 6.4. O(1) is
    0, and T is 0 where n is at most 1. Infinite where F reaches no one.

    Source: EPFL 2503 §6.2, equations 6.4, 6.5 and 6.9.
    """
    size, reached = np.broadcast_arrays(
        np.asarray(n, np.float64), np.asarray(fanout, np.float64) * (1 - loss) * (1 - crashes)
    )
    rounds = np.zeros(size.shape)
    grows = size > 1
    with np.errstate(divide="ignore"):
        spread = 1 / reached[grows] + 1 / np.log1p(reached[grows])
    rounds[grows] = np.log(size[grows]) * spread + constant
    return rounds


def bailey(
    n: ArrayLike, fanout: ArrayLike, target: float, *, loss: float = 0.0, crashes: float = 0.0
) -> NDArray[np.float64]:
    """Returns rounds until a share of n is infected, if s' = F s (n - s) / (n - 1): the simple
    epidemic.

    Rough: it grows by e^F in a round where gossip grows by 1 + F, so its number of rounds is too
    small. Source: EPFL 2503 §6.5.4 (Bailey's approximation).
    """
    size = np.asarray(n, np.float64)
    contacts = np.asarray(fanout, np.float64) * (1 - loss) * (1 - crashes)
    size, contacts = np.broadcast_arrays(size, contacts)
    rounds = np.zeros(size.shape)
    # One missing participant is already below the share, or not.
    grows = (size > 1) & (target * size > 1)
    left, rate = size[grows] - 1, contacts[grows] * size[grows]
    with np.errstate(divide="ignore"):
        rounds[grows] = left / rate * np.log(left * target / (1 - target))
    return rounds


def recursion(n: int, p: float, target: float) -> int:
    """Returns rounds until a share of n is infected, if s grows by its mean in each round.

    `p` is the chance that an infected participant reaches a given other one in a round. At most
    `ROUNDS_MAX`. Source: EPFL 2503 §6.5.4, by equation 6.2.
    """
    infected, goal, rounds = 1.0, target * n, 0
    while infected < goal and rounds < ROUNDS_MAX:
        infected += (n - infected) * -math.expm1(infected * math.log1p(-min(p, 1 - 1e-12)))
        rounds += 1
    return rounds


def expected_rounds(parameters: Parameters, level: int, size: int, hits: int) -> int:
    """Returns the rounds of an event at a level, ROUNDS of figure 6.6.

    A participant gossips while its rounds are less than the expectation, so that is rounded up.

    Args:
        parameters: those of the group. A fixed T is returned.
        level: from 1, the lowest, to l.
        size: participants in the view of the level, including this one: R times its lines, or its
            lines at level 1.
        hits: interested ones, or those that count as such (see `tuned_audience`).
    """
    if not 0 <= hits <= size:
        raise InvalidValueError(hits, f"hits are between 0 and the size of the view, {size}")
    if hits == 0:
        return 0
    if parameters.rounds is not None:
        return parameters.rounds
    share, loss, crashes = hits / size, parameters.loss, parameters.crashes
    fanout = parameters.fanout * share
    counted = hits
    if level == 1 and parameters.bottom_redundancy:
        counted *= parameters.redundancy
    expected: float
    if parameters.approximation is Approximation.RECURSION:
        p = min(1.0, parameters.fanout / max(1, size - 1)) * parameters.success
        expected = recursion(counted, p, parameters.target)
    elif parameters.approximation is Approximation.BAILEY:
        expected = float(bailey(counted, fanout, parameters.target, loss=loss, crashes=crashes))
    else:
        constant = parameters.constant
        expected = float(pittel(counted, fanout, loss=loss, crashes=crashes, constant=constant))
    return min(math.ceil(expected), ROUNDS_MAX)


def tuned_audience(interested: ArrayLike, audience: int) -> NDArray[np.bool_]:
    """Returns the contacts that count as interested: below D also the first D of the view.

    The last axis is the view, in the order of addresses. Without any interested contact none
    counts, since nobody must be reached. Source: EPFL 2503 §6.5.4.
    """
    wanted = np.array(interested, np.bool_)
    hits = wanted.sum(axis=-1, keepdims=True)
    wanted[..., :audience] |= (hits > 0) & (hits < audience)
    return wanted


def exchanges_digests(parameters: Parameters, hits: int) -> bool:
    """Returns whether an audience is so small that it also exchanges digests.

    Pittel's asymptote is for large audiences. Source: EPFL 2503 §6.5.4.
    """
    return 0 < hits < (parameters.digest or 0)


def with_digests(parameters: Parameters) -> Parameters:
    """Returns the parameters of real participants: small audiences exchange digests by default.

    Otherwise a lone interested participant that is no delegate would never receive the event.
    """
    if parameters.digest is not None:
        return parameters
    return replace(parameters, digest=DIGEST_AUDIENCE)
