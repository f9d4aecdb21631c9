"""Waits between attempts grow, are spread, and begin anew."""

from contrada.service.backoff import BACKOFF_FIRST_S, BACKOFF_S_MAX, Backoff


def test_waits_grow_to_a_most_and_begin_anew() -> None:
    """A broker that is away would be asked too often, or one that is back too late."""
    for backoff, share in ((Backoff(lambda: 0.0), 0.5), (Backoff(lambda: 1.0), 1.0)):
        waits = [backoff.next_s() for _ in range(2_000)]
        assert waits[0] == share * BACKOFF_FIRST_S
        assert waits[1:4] == [2 * waits[0], 4 * waits[0], 8 * waits[0]]
        assert waits[-1] == share * BACKOFF_S_MAX
        backoff.reset()
        assert backoff.next_s() == waits[0]


def test_waits_are_spread() -> None:
    """All clients of a broker would come back at the same moment."""
    firsts = {Backoff().next_s() for _ in range(100)}
    assert len(firsts) > 90
    assert all(BACKOFF_FIRST_S / 2 <= each <= BACKOFF_FIRST_S for each in firsts)
