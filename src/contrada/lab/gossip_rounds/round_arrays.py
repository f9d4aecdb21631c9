"""`gossip`: rounds of gossip in many groups at once, by arrays. `round_kernels` compiles the same.

State is an array of groups × members of bits: whether a member counts as interested, is running, is
infected. In a round, all members infected before it gossip. Each chooses F different others of its
view, and sends to those that count as interested.

Source: EPFL 2503 figures 6.1, 6.2 and 6.6, in common rounds (§6.2.1).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from contrada.lab.gossip_rounds.random_draws import GAMMA, Words, below, draws, mixed

WANTED: Final = 1
"""The bit of members that count as interested."""

UP: Final = 2
"""The bit of running members."""

INFECTED: Final = 4
"""The bit of members with the event."""

_CHUNK: Final = 2**18
"""Senders looked at together."""

State = NDArray[np.uint8]
Counts = NDArray[np.int64]


def gossip(
    state: State, rounds: Counts, last: Counts, key: int, outsider: int, fanout: int, loss: int
) -> int:
    """Gossips in each group for its rounds. Returns the number of messages.

    Args:
        state: groups × members; infections are written.
        rounds: of each group.
        last: of each group, the round from 1 of its last infection; written.
        key: of the draws of this level of this run.
        outsider: the group in which the publisher gossips too without being a member, or -1.
        fanout: F.
        loss: the bound below which a draw means a lost message.
    """
    members = state.shape[1]
    flat = state.reshape(-1)
    sent = 0
    for number in range(int(rounds.max(initial=0))):
        active = rounds > number
        who = np.flatnonzero((state & INFECTED).astype(np.bool_) & active[:, None])
        group, index = np.divmod(who, members)
        if outsider >= 0 and active[outsider]:
            group, index = np.append(group, outsider), np.append(index, members)
        round_key = mixed(key + GAMMA * (number + 1))
        reached = [np.empty(0, np.int64)]
        for start in range(0, len(group), _CHUNK):
            part = slice(start, start + _CHUNK)
            targets, lost = _targets(group[part], index[part], members, round_key, fanout, loss)
            wanted = (flat[targets] & WANTED).astype(np.bool_)
            sent += int(wanted.sum())
            targets = targets[wanted & ~lost]
            reached.append(targets[(flat[targets] & (UP | INFECTED)) == UP])
        fresh = np.concatenate(reached)
        flat[fresh] |= INFECTED
        last[fresh // members] = number + 1
    return sent


def _targets(
    group: Counts, index: Counts, members: int, key: int, fanout: int, loss: int
) -> tuple[Counts, NDArray[np.bool_]]:
    """Returns the choices of senders, by Floyd's algorithm, as flat places; and the losses."""
    others = members - (index < members)
    choices = np.minimum(fanout, others)
    counter = (group * (members + 1) + index).astype(np.uint64) * np.uint64(2 * fanout)
    picked = np.full((len(group), fanout), -1, np.int64)
    lost = np.zeros((len(group), fanout), np.bool_)
    for turn in range(fanout):
        highest = others - choices + turn
        at: Words = counter + np.uint64(2 * turn)
        pick = below(draws(key, at), (highest + 1).astype(np.uint64)).astype(np.int64)
        pick = np.where((picked[:, :turn] == pick[:, None]).any(axis=1), highest, pick)
        picked[:, turn] = np.where(turn < choices, pick, -1)
        if loss:
            lost[:, turn] = draws(key, at + np.uint64(1)) < np.uint64(loss)
    is_choice = picked >= 0
    places = picked + (picked >= index[:, None]) + (group * members)[:, None]
    return places[is_choice], lost[is_choice]
