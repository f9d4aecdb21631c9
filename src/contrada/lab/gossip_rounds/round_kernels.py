"""Rounds of gossip in many groups, compiled: the same as `round_arrays`, group after group.

A group of some hundreds stays near the processor, and the draws of a round depend on the drawing
member, so the numbers are those of `round_arrays`. The import needs Numba, and compiles once on a
machine.
"""

import numpy as np
from numba import njit

from contrada.lab.gossip_rounds import random_draws, round_arrays
from contrada.lab.gossip_rounds.round_arrays import Counts, State

_GAMMA = np.uint64(random_draws.GAMMA)
_MIX_1, _MIX_2 = np.uint64(random_draws.MIX_1), np.uint64(random_draws.MIX_2)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_WANTED, _UP = np.uint8(round_arrays.WANTED), np.uint8(round_arrays.UP)
_INFECTED = np.uint8(round_arrays.INFECTED)


def gossip(
    state: State, rounds: Counts, last: Counts, key: int, outsider: int, fanout: int, loss: int
) -> int:
    """Gossips in each group for its rounds, as `round_arrays.gossip`. Returns the messages."""
    return int(_gossip(state, rounds, last, np.uint64(key), outsider, fanout, np.uint64(loss)))


@njit(cache=True, nogil=True)
def _mixed(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@njit(cache=True, nogil=True)
def _gossip(
    state: State,
    rounds: Counts,
    last: Counts,
    key: np.uint64,
    outsider: int,
    fanout: int,
    loss: np.uint64,
) -> int:
    groups, members = state.shape
    senders = np.empty(members + 1, np.int64)
    picked = np.empty(fanout, np.int64)
    sent = 0
    for group in range(groups):
        if rounds[group] == 0:
            continue
        infected = 0
        for member in range(members):
            if state[group, member] & _INFECTED:
                senders[infected] = member
                infected += 1
        if group == outsider:
            senders[infected] = members
            infected += 1
        for number in range(rounds[group]):
            if infected == 0:
                break
            round_key = _mixed(key + _GAMMA * np.uint64(number + 1))
            before = infected
            for place in range(before):
                index = senders[place]
                others = members - 1 if index < members else members
                choices = min(fanout, others)
                counter = np.uint64(group * (members + 1) + index) * np.uint64(2 * fanout)
                for turn in range(choices):
                    highest = others - choices + turn
                    at = counter + _TWO * np.uint64(turn)
                    word = _mixed(round_key + _GAMMA * (at + _ONE))
                    pick = np.int64(((word >> _32) * np.uint64(highest + 1)) >> _32)
                    for earlier in range(turn):
                        if picked[earlier] == pick:
                            pick = highest
                            break
                    picked[turn] = pick
                    target = pick + 1 if pick >= index else pick
                    bits = state[group, target]
                    if not bits & _WANTED:
                        continue
                    sent += 1
                    if bits & _INFECTED or not bits & _UP:
                        continue
                    if loss and _mixed(round_key + _GAMMA * (at + _TWO)) < loss:
                        continue
                    state[group, target] = bits | _INFECTED
                    senders[infected] = target
                    infected += 1
                    last[group] = number + 1
    return sent
