"""Tests of rounds of gossip, by arrays and compiled."""

import numpy as np

from contrada.lab.gossip_rounds import round_arrays
from contrada.lab.gossip_rounds.random_draws import chosen, key_of
from contrada.lab.gossip_rounds.round_arrays import INFECTED, UP, WANTED


def groups_of(groups: int, members: int, infected: int) -> round_arrays.State:
    """Groups in which most are interested, most are up, and the first ones are infected."""
    state = np.zeros((groups, members), np.uint8)
    state |= chosen(key_of(1), state.size, 0.7).reshape(state.shape) * np.uint8(WANTED)
    state |= chosen(key_of(2), state.size, 0.9).reshape(state.shape) * np.uint8(UP)
    state[:, :infected] |= INFECTED | UP
    return state


def test_uninterested_members_get_nothing() -> None:
    """Uninterested participants would receive, or crashed ones gossip."""
    before = groups_of(50, 30, 2)
    state, last = before.copy(), np.zeros(50, np.int64)
    rounds = np.full(50, 40, np.int64)
    rounds[7] = 0
    sent = round_arrays.gossip(state, rounds, last, key_of(6), -1, 3, 0)
    fresh = ((state ^ before) & INFECTED).astype(bool)
    assert sent > fresh.sum() > 0
    assert not fresh[(before & (WANTED | UP)) != (WANTED | UP)].any()
    assert not fresh[7].any()
    assert (last[fresh.any(axis=1)] > 0).all()
    others = np.arange(50) != 7
    assert (((state & INFECTED) > 0) | ((before & (WANTED | UP)) != (WANTED | UP)))[others].all()


def test_a_round_is_as_the_chain_has_it() -> None:
    """Senders would choose one twice, themselves, or some more often than others."""
    groups, members = 60_000, 6
    state = np.full((groups, members), WANTED | UP, np.uint8)
    state[:, 2] |= INFECTED
    once = np.ones(groups, np.int64)
    assert (
        round_arrays.gossip(state, once, np.zeros(groups, np.int64), key_of(7), -1, 2, 0)
        == 2 * groups
    )
    reached = ((state & INFECTED) > 0).mean(axis=0)
    assert ((state & INFECTED) > 0).sum() == 3 * groups
    assert reached[2] == 1
    assert np.abs(np.delete(reached, 2) - 2 / 5).max() < 0.01
