"""The statistics that `contrada serve` prints at its end."""

from contrada.cli.serve import _summary
from contrada.net.broker.broker import BrokerStatistics


def test_the_last_line_has_all_counters() -> None:
    """An operator would not see losses, refusals and undecided relations."""
    counts = BrokerStatistics(
        connections=0,
        connections_total=3,
        links=0,
        subscriptions=0,
        published=7,
        matched=5,
        dropped={"queue full": 2},
        refused={},
        held_bytes=0,
        safe_answers={"covers": 1, "meets": 4},
        operator_failures={"longer": 6},
    )
    assert _summary(counts, as_json=False) == (
        "3 connections, 7 notifications published, 5 matches; dropped: 2 queue full; "
        "refused: none; safe answers: 1 covers, 4 meets; failed operators: 6 longer"
    )
