"""The kernel of rounds of gossip: compiled and interpreted alike."""

import numpy as np
import pytest

from contrada.lab.gossip_rounds.random_draws import key_of, threshold
from tests.lab.gossip_rounds.test_round_arrays import groups_of
from tests.matching.engines import module, needs_native


@needs_native
@pytest.mark.parametrize("outsider", [-1, 0, 3])
@pytest.mark.parametrize(("members", "fanout"), [(22, 2), (4, 9), (1, 1), (90, 5)])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_compiled_and_interpreted_alike(
    members: int, fanout: int, outsider: int, loss: float
) -> None:
    """The result of a simulation would depend on where it is installed."""
    rounds = np.arange(40, dtype=np.int64) % 9
    results = []
    for compiled in (True, False):
        state, last = groups_of(40, members, 1), np.zeros(40, np.int64)
        room = np.empty(members + 1, np.int64), np.empty(fanout, np.int64)
        sent = module("kernels.gossip_rounds", compiled).gossip(
            *(state.reshape(-1), members, rounds, last),
            *(key_of(5), outsider, threshold(loss), *room),
        )
        results.append((sent, state.tolist(), last.tolist()))
    assert results[0] == results[1]
