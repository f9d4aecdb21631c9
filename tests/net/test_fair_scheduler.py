"""How long one connection may keep a server's loop."""

import pytest

from contrada.net.broker.fair_scheduler import AT_ONCE_S, REST_S_MAX, SHARE, TURN_S, FairScheduler


def test_short_slices_are_free() -> None:
    """A fast publisher would be slowed down though nobody waits."""
    turns = FairScheduler(0.0)
    now_s = 0.0
    for _ in range(1_000):
        assert turns.rest_s(now_s, now_s + TURN_S / 2) is None
        now_s += TURN_S / 2
    assert turns.rest_s(now_s, now_s + 1.1 * TURN_S) == 0.0, "the others get a turn, no more"


def test_long_slices_get_a_share_of_the_time() -> None:
    """One client's costly requests, one after the other, would starve all others."""
    turns = FairScheduler(0.0)
    now_s = worked_s = 0.0
    while now_s < 100.0:
        began_s, now_s = now_s, now_s + 0.2
        worked_s += 0.2 - TURN_S
        rest_s = turns.rest_s(began_s, now_s)
        assert rest_s is not None
        now_s += rest_s
    assert worked_s <= now_s * SHARE + AT_ONCE_S + 0.2
    assert worked_s >= now_s * SHARE * 0.9, "it does not get its share"


def test_used_time_is_forgiven() -> None:
    """A client would be slow for ever after one costly request."""
    turns = FairScheduler(0.0)
    assert turns.rest_s(0.0, TURN_S + AT_ONCE_S + 0.5) == pytest.approx(0.5 / SHARE)
    later_s = 0.5 / SHARE + AT_ONCE_S / SHARE + 1.0
    assert turns.rest_s(later_s, later_s + TURN_S + AT_ONCE_S) == pytest.approx(0.0, abs=0.01)


def test_a_rest_is_bounded() -> None:
    """A client that had bad luck once would be taken for dead."""
    turns = FairScheduler(0.0)
    assert turns.rest_s(0.0, 1_000.0) == REST_S_MAX
