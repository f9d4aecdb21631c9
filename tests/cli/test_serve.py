"""What `contrada serve` says when it ends."""

from contrada.cli.serve import _summary
from contrada.net.broker.broker import BrokerStatistics


def test_its_last_words_count_everything() -> None:
    """Whoever runs a broker would not learn what it lost, refused, or could not decide."""
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
    assert _summary(counts) == (
        "3 connections, 7 notifications published, 5 matches; dropped: 2 queue full; "
        "refused: none; safe answers: 1 covers, 4 meets; failed operators: 6 longer"
    )
