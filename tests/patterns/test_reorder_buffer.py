"""The reorder buffer releases everything once, in order, and never early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidValueError
from contrada.model import Envelope, Notification
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns.reorder_buffer import Order, ReorderBuffer, check_slack, order_of

TIMES = st.integers(0, 12)


def place(time_us: int, publisher: str = "", sequence: int = 0, content: bytes = b"") -> Order:
    return (time_us, publisher, sequence, "", content, b"", "")


ORDERS = st.builds(
    place, TIMES, st.sampled_from("pq"), st.integers(0, 2), st.sampled_from((b"", b"x"))
)


@given(st.lists(ORDERS), st.integers(0, 5))
def test_notifications_in_time_are_released_in_order(orders: list[Order], slack_us: int) -> None:
    """A notification would be lost, repeated, early, or out of order."""
    buffer: ReorderBuffer[int] = ReorderBuffer(100_000)
    taken: list[Order] = []
    released: list[Order] = []
    largest = TIME_MIN_US
    for number, order in enumerate(orders):
        assert buffer.is_late(order[0]) == (order[0] < largest - slack_us)
        if not buffer.is_late(order[0]):
            taken.append(order)
            assert buffer.hold(order, number)
        largest = max(largest, order[0])
        buffer.raise_watermark(largest - slack_us)
        now = [order for order, _ in buffer.release()]
        assert all(time_us < largest - slack_us for time_us, *_ in now)
        released += now
        times = [time_us for time_us, *_ in taken]
        assert buffer.head_us == min(times[len(released) :], default=None) or len(buffer)
        buffer.validate()
    buffer.raise_watermark(largest + 1)
    released += [order for order, _ in buffer.release()]
    assert released == sorted(taken)
    assert len(buffer) == 0


def test_of_equal_orders_the_lower_rank_is_first_then_the_elder() -> None:
    """A notification would fill two places of a run, or a later arrival be taken for the first."""
    buffer: ReorderBuffer[str] = ReorderBuffer(100_000)
    for rank, item in ((0, "b"), (0, "c"), (-2, "a")):
        buffer.hold(place(1, "p", 1), item, rank)
    assert sorted(buffer) == ["a", "b", "c"]
    buffer.raise_watermark(2)
    assert [item for _, item in buffer.release()] == ["a", "b", "c"]


def test_the_watermark_never_falls() -> None:
    """Late notifications would be accepted, out of order."""
    buffer: ReorderBuffer[str] = ReorderBuffer(100_000)
    buffer.raise_watermark(10)
    buffer.raise_watermark(5)
    assert buffer.watermark_us == 10
    assert (buffer.is_late(9), buffer.is_late(10)) == (True, False)


def test_one_too_many_forces_the_watermark_or_drops_the_newest() -> None:
    """Memory would have no bound, or held notifications be lost although they could be released."""
    forced: ReorderBuffer[str] = ReorderBuffer(2)
    assert all(forced.hold(place(time_us), f"{time_us}") for time_us in (5, 3, 4))
    assert (forced.forced, forced.watermark_us) == (1, 4)
    assert [item for _, item in forced.release()] == ["3"]
    kept: ReorderBuffer[str] = ReorderBuffer(2)
    held = [kept.hold(place(time_us), f"{time_us}", forces=False) for time_us in (5, 3, 4)]
    assert held == [True, True, False]
    assert (kept.forced, kept.watermark_us, sorted(kept)) == (1, TIME_MIN_US, ["3", "4"])
    kept.validate()


@given(st.lists(TIMES), st.integers(2, 4))
def test_taking_out_keeps_the_rest_in_order(times: list[int], modulus: int) -> None:
    """A removed item would be held twice, or the rest be out of order."""
    buffer: ReorderBuffer[int] = ReorderBuffer(100_000)
    for time_us in times:
        buffer.hold(place(time_us), time_us)
    taken = buffer.take_out(lambda time_us: time_us % modulus == 0)
    assert taken == sorted(time_us for time_us in times if time_us % modulus == 0)
    buffer.validate()
    buffer.raise_watermark(100)
    rest = [time_us for _, time_us in buffer.release()]
    assert rest == sorted(time_us for time_us in times if time_us % modulus)
    buffer.hold(place(1), 1)
    buffer.clear()
    assert (len(buffer), buffer.head_us) == (0, None)


def test_the_order_is_time_publisher_number_content() -> None:
    """Two servers would put the same notifications in different orders."""
    first = Notification({"a": 1}, envelope=Envelope(publisher="p", sequence=3, time_us=7))
    assert order_of(first)[:3] == (7, "p", 3)
    same = Notification({"a": 1}, envelope=first.envelope)
    assert order_of(same) == order_of(first)
    others = [
        Notification({"a": 1}, envelope=Envelope("1", "p", 3, 7)),
        Notification({"a": 2}, envelope=first.envelope),
        Notification({"a": 1}, body=b"x", envelope=first.envelope),
        Notification({"a": 1}, body=b"x", content_type="t", envelope=first.envelope),
    ]
    assert len({order_of(each) for each in (first, *others)}) == 5


@pytest.mark.parametrize("slack_us", [-1, 1.0, True, "1"])
def test_a_slack_is_microseconds(slack_us: object) -> None:
    """A slack below nothing would make everything late."""
    with pytest.raises(InvalidValueError):
        check_slack(slack_us)  # type: ignore[arg-type]
    assert check_slack(0) == 0
