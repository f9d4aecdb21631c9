"""`gossip`: rounds of gossip in many groups at once.

State is an array of groups × members of bits: whether a member counts as interested, is running, is
infected.

Source: EPFL 2503 figures 6.1, 6.2 and 6.6, in common rounds (§6.2.1).
"""

import numpy as np
from numpy.typing import NDArray

from contrada.matching.kernels import gossip_rounds
from contrada.matching.kernels.gossip_rounds import INFECTED, UP, WANTED

__all__ = ["INFECTED", "UP", "WANTED", "Counts", "State", "gossip"]

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
    senders = np.empty(members + 1, np.int64)
    picked = np.empty(fanout, np.int64)
    return gossip_rounds.gossip(
        state.reshape(-1), members, rounds, last, key, outsider, loss, senders, picked
    )
