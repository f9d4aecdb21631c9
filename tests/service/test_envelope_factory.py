"""Envelopes are filled once, unique, in order."""

import itertools
import time

import pytest

from contrada.errors import InvalidValueError, ServiceError
from contrada.model import Envelope, Notification
from contrada.service import notification_of
from contrada.service.envelope_factory import PUBLISHER_BYTES_MAX, EnvelopeFactory

NOTIFICATION = Notification({"price": 5})


def stamped(stamp: EnvelopeFactory, notification: Notification = NOTIFICATION) -> Notification:
    """One notification, stamped now."""
    return stamp.stamped([notification], stamp.now_us())[0]


def test_envelopes_are_numbered_and_timed() -> None:
    """Patterns could not order the notifications of one publisher."""
    stamp = EnvelopeFactory("desk")
    envelopes = [stamped(stamp).envelope for _ in range(100)]
    assert [each.sequence for each in envelopes] == list(range(1, 101))
    assert {each.publisher for each in envelopes} == {"desk"}
    assert sorted(envelopes, key=lambda each: each.at_us) == envelopes
    assert envelopes[0].at_us > 0


def test_ids_are_unique_across_access_points() -> None:
    """Two runs of one publisher would give the same id to different notifications."""
    stamps = [
        EnvelopeFactory("desk"),
        EnvelopeFactory("desk"),
        EnvelopeFactory(),
        EnvelopeFactory(),
    ]
    ids = {stamped(stamp).envelope.id for stamp in stamps for _ in range(10)}
    assert len(ids) == 40


def test_what_the_caller_has_filled_is_kept() -> None:
    """A replayed notification would get the time of its replay."""
    given = Envelope(time_us=7, ttl_us=9, priority=8, delivery="certified")
    envelope = stamped(EnvelopeFactory(), NOTIFICATION.with_envelope(given)).envelope
    assert (envelope.time_us, envelope.ttl_us, envelope.priority) == (7, 9, 8)
    assert envelope.delivery == "certified"
    assert envelope.id


def test_the_first_moment_of_1970_is_kept() -> None:
    """Old data with the time 0 would be stamped as if it were of now."""
    given = NOTIFICATION.with_envelope(Envelope(time_us=0))
    assert stamped(EnvelopeFactory(), given).envelope.time_us == 0


def test_what_was_published_before_keeps_its_id() -> None:
    """A bridge would make new notifications of those it passes on."""
    before = stamped(EnvelopeFactory("desk"))
    assert stamped(EnvelopeFactory("bridge"), before).is_identical(before)


def test_nobody_else_s_name_is_passed_over() -> None:
    """A notification of another publisher would be published as one's own."""
    stamp = EnvelopeFactory("desk")
    other = NOTIFICATION.with_envelope(Envelope(publisher="task"))
    with pytest.raises(InvalidValueError, match="'task': the publisher of an envelope without"):
        stamped(stamp, other)
    assert stamp.sequence == 0, "no number is lost with it"
    numbered = stamped(stamp, NOTIFICATION.with_envelope(Envelope(publisher="task", sequence=3)))
    assert (numbered.envelope.id, numbered.envelope.publisher) == ("task.3", "task")
    own = stamped(stamp, NOTIFICATION.with_envelope(Envelope(publisher="desk")))
    assert (own.envelope.publisher, own.envelope.sequence) == ("desk", 1)


def test_time_goes_on_where_the_clock_was_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting pattern would wait for hours, or be ordered before an earlier notification."""
    clock_s, passed_us = 3_600, itertools.count(5)
    monkeypatch.setattr(time, "time_ns", lambda: clock_s * 10**9)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(passed_us) * 1000)
    stamp = EnvelopeFactory()
    start_us = stamp.now_us()
    assert start_us == 3_600 * 10**6
    clock_s = 0
    assert stamp.now_us() == start_us
    times_us = [stamp.now_us() for _ in range(40)]
    assert times_us == sorted(times_us)
    assert times_us[-1] == start_us + 20, "half as fast"
    clock_s = 3_601
    assert stamp.now_us() == 3_601 * 10**6


@pytest.mark.parametrize("publisher", ["", "x" * (PUBLISHER_BYTES_MAX + 1), "\udcff"])
def test_a_publisher_has_a_name_of_bounded_length(publisher: str) -> None:
    """Every envelope would carry a name of any length."""
    with pytest.raises(ServiceError, match="publisher"):
        EnvelopeFactory(publisher)


def test_only_what_the_service_made_is_stamped_in_place() -> None:
    """A caller's notification would change by its publication, or be published once only."""
    stamp = EnvelopeFactory()
    held = Notification({"a": 1})
    assert [stamped(stamp, held).envelope.sequence for _ in range(2)] == [1, 2]
    assert held.envelope == Envelope()
    made = notification_of({"a": 1})
    assert stamped(stamp, made) is made
    assert notification_of(held) is held


def test_what_is_stamped_is_an_envelope_as_any_other() -> None:
    """It is not checked again, so that it must be right."""
    for name in ("desk", "é" * (PUBLISHER_BYTES_MAX // 2), None):
        envelope = stamped(EnvelopeFactory(name)).envelope
        again = Envelope(
            **{field: getattr(envelope, field) for field in Envelope.__struct_fields__}
        )
        assert again == envelope
        assert hash(again) == hash(envelope)


def test_what_more_is_promised_of_is_stamped_later() -> None:
    """It is numbered with its like: a higher number would make a duplicate of one that waits."""
    stamp = EnvelopeFactory("desk")
    certified = Notification({"a": 1}, envelope=Envelope(delivery="certified"))
    assert stamp.packed(certified) is certified
    assert not isinstance(made := stamp.packed(NOTIFICATION), bytes)
    assert (made.envelope.publisher, made.envelope.sequence) == ("desk", 1)
    assert isinstance(stamp.packed({"a": 1}), bytes | Notification)
    assert stamped(stamp).envelope.sequence == 3
