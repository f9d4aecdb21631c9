"""The check of the demo: every wrong delivery is found."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from contrada.model import Envelope, Notification
from examples.demo.check import Expected, difference, faults, identity
from examples.demo.desks import Delivery, Inbox, Interest, StockQuote
from examples.demo.processes import PipelineSummary, SourceSummary

DAY_US = 86_400_000_000
WISH = Interest("operations", "gusts", "wind_gust > 40")
DAY = datetime(2013, 2, 8, tzinfo=UTC)
QUOTE = StockQuote("DIS", DAY, 60.0, 62.5, 59.5, 61.5, 61.5, 1_000)


def event(gust: float, time_us: int = DAY_US) -> Notification:
    """A notification as a reader makes it."""
    return Notification({"wind_gust": gust}, envelope=Envelope(time_us=time_us))


def stamped(notification: Notification, sequence: int) -> Notification:
    """The same as a subscriber gets it."""
    envelope = msgspec.structs.replace(
        notification.envelope, id=f"p.{sequence}", publisher="p", sequence=sequence
    )
    return notification.with_envelope(envelope)


EVENTS = [event(41.0), event(50.0), event(50.0)]
DELIVERED = [stamped(each, number) for number, each in enumerate(EVENTS, start=1)]


def summary(**counts: int) -> PipelineSummary:
    """The pipeline's summary of one source, right by default."""
    said = {"read": 3, "bad": 0, "published": 3, **counts}
    source = SourceSummary("weather", seconds=1.0, **said)
    return PipelineSummary([source], publish_seconds=0.5, seconds=2.0)


def found(delivered: list[Notification], said: PipelineSummary, **dropped: int) -> list[str]:
    """The faults of one subscriber with these deliveries."""
    expected = Expected(
        read=Counter(weather=3),
        published=Counter(weather=3),
        deliveries={WISH.name: Counter(map(identity, EVENTS))},
    )
    inbox = Inbox(WISH, lambda: None, [Delivery(each, 0.0) for each in delivered], dict(dropped))
    return faults(expected, said, [inbox])


def test_right_deliveries_have_no_fault() -> None:
    """The demo would fail without a fault: ids and order are not compared."""
    assert found(DELIVERED[::-1], summary()) == []


def test_a_lost_delivery_is_found() -> None:
    """A lost notification would pass unnoticed, also one that equals another."""
    for lost in DELIVERED:
        kept = [each for each in DELIVERED if each is not lost]
        assert found(kept, summary())[0] == "gusts: 1 missing"


def test_an_extra_delivery_is_found() -> None:
    """A notification delivered twice, or to the wrong subscriber, would pass unnoticed."""
    assert found([*DELIVERED, DELIVERED[0]], summary())[0] == "gusts: 1 extra"
    assert found([*DELIVERED, event(39.0)], summary())[0] == "gusts: 1 extra"


def test_a_changed_delivery_is_missing_and_extra() -> None:
    """A notification with a changed time or value would pass for the right one."""
    for changed in (event(41.0, 2 * DAY_US), event(41.5)):
        lines = found([changed, *DELIVERED[1:]], summary())
        assert [line for line in lines if line.startswith("gusts")] == [
            "gusts: 1 missing",
            "gusts: 1 extra",
        ]


def test_a_counted_loss_is_a_fault() -> None:
    """A drop would pass as fine when another copy compensated for it."""
    assert found(DELIVERED, summary(), queue_full=2) == ["gusts: 2 dropped (queue_full)"]


def test_wrong_counts_of_the_pipeline_are_faults() -> None:
    """The pipeline could skip or double records without a subscriber."""
    for counts in ({"read": 2}, {"bad": 1}, {"published": 4}):
        assert "weather: the pipeline's counts" in found(DELIVERED, summary(**counts))[0]
    nothing = PipelineSummary([], publish_seconds=0.5, seconds=2.0)
    assert "are None" in found(DELIVERED, nothing)[0]


def test_typed_deliveries_are_compared_as_objects() -> None:
    """A wrong price in a typed delivery would pass unnoticed."""
    expected: Counter[object] = Counter([QUOTE])
    right = difference("typed", expected, [replace(QUOTE)])
    assert list(right.lines()) == []
    wrong = difference("typed", expected, [replace(QUOTE, low=0.0)])
    assert [line.strip().split(":")[0] for line in wrong.lines()] == [
        "typed",
        "missing",
        "typed",
        "extra",
    ]
