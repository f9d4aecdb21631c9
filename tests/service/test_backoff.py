"""Waits between attempts grow, are spread, and begin anew."""

from contrada.service.backoff import Backoff, BackoffLimits

LIMITS = BackoffLimits(first_s=0.5, longest_s=60.0)


def test_waits_grow_to_a_most_and_begin_anew() -> None:
    """A broker that is away would be asked too often, or one that is back too late."""
    for backoff, share in (
        (Backoff(LIMITS, lambda: 0.0), 0.5),
        (Backoff(LIMITS, lambda: 1.0), 1.0),
    ):
        waits = [backoff.next_s() for _ in range(2_000)]
        assert waits[0] == share * LIMITS.first_s
        assert waits[1:4] == [2 * waits[0], 4 * waits[0], 8 * waits[0]]
        assert waits[-1] == share * LIMITS.longest_s
        backoff.reset()
        assert backoff.next_s() == waits[0]


def test_waits_are_spread() -> None:
    """All clients of a broker would come back at the same moment."""
    firsts = {Backoff(LIMITS).next_s() for _ in range(100)}
    assert len(firsts) > 90
    assert all(LIMITS.first_s / 2 <= each <= LIMITS.first_s for each in firsts)
