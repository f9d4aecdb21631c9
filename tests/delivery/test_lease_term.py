"""`LeaseTerm`: a leader has ended before a standby claims its lease, by clocks of other rates."""

import pytest

from contrada.delivery.lease_term import DRIFT, RELEASED, LeaseTerm


@pytest.mark.parametrize(("of_leader", "of_standby"), [(1.0, 1.0), (0.95, 1.05), (1.05, 0.95)])
def test_a_term_ends_before_its_lease_is_claimed(of_leader: float, of_standby: float) -> None:
    """Two brokers would hand out the same records."""
    leader, standby = LeaseTerm(3.0), LeaseTerm(3.0)
    leader.renew(100 * of_leader)
    assert not standby.may_claim(("a", 1), 100 * of_standby)
    claimed_s = next(
        at / 1_000
        for at in range(100_000, 110_000)
        if standby.may_claim(("a", 1), at / 1_000 * of_standby)
    )
    assert not leader.rest_s(claimed_s * of_leader)
    assert claimed_s < 100 + 3.0 / 0.94


def test_a_renewed_lease_is_not_claimed() -> None:
    """A standby would end a leader that serves."""
    standby = LeaseTerm(3.0)
    assert not any(standby.may_claim(("a", count), 2.9 * count) for count in range(10))


def test_a_released_lease_is_claimed_at_once() -> None:
    """An orderly end would hold up the clients for the time of the lease."""
    assert LeaseTerm(3.0).may_claim(("a", RELEASED), 0.0)


def test_a_term_ends() -> None:
    """A leader that was replaced, or has not begun, would read."""
    term = LeaseTerm(3.0)
    assert not term.rest_s(0.0)
    term.renew(1.0)
    assert term.rest_s(1.0) == pytest.approx(DRIFT * 3.0)
    term.end()
    assert not term.rest_s(1.0)
