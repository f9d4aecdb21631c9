"""Tests of draws: numbers that depend only on their purpose."""

import numpy as np

from contrada.lab.gossip_rounds.gossip_runs import GAMMA, chosen, draws, key_of, mixed, threshold


def test_a_draw_is_the_sequence_of_splitmix64() -> None:
    """Arrays and compiled loops would draw other, untested numbers."""
    # The first outputs of the published generator for the seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert draws(1234567, np.arange(3, dtype=np.uint64)).tolist() == known
    assert [mixed(1234567 + GAMMA * (each + 1)) for each in range(3)] == known


def test_keys_differ() -> None:
    """Two runs, or two purposes in a run, would draw the same."""
    keys = {key_of(seed, run, what) for seed in (-1, 0, 1) for run in range(9) for what in range(9)}
    assert len(keys) == 3 * 9 * 9


def test_shares_are_kept() -> None:
    """More or fewer would be interested than requested."""
    assert chosen(1, 100, 1.0).all()
    assert abs(chosen(key_of(2), 200_000, 0.3).mean() - 0.3) < 0.005
    assert not chosen(3, 100, 0.0).any()
    assert threshold(0.5) == 2**63
