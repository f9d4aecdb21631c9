"""Notifications as bytes: arguments, refusals, and bundles compared with their members."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

import contrada as ct
from contrada.errors import EncodingError, InvalidNotificationError
from contrada.matching.packed import (
    BUNDLE_MIN,
    EMPTY_SPAN,
    Bundle,
    decode_span,
    encode,
    select_attributes,
    to_notification,
    with_envelope,
)
from contrada.model import Notification, to_msgpack
from contrada.model.algebra.notification import UNSTAMPED, Envelope
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import datetime_of
from contrada.net.wire.message_codec import encode_publish
from tests import strategies
from tests.matching.engines import needs_native

STAMPED = Envelope("publisher.1", "publisher", 1, 1_700_000_000_000_000)
PLAIN: list[dict[str, Any]] = [
    {},
    {"a": 1, "b": -1, "c": 2**63 - 1, "d": -(2**63), "e": 2**40, "f": 300},
    {"n": None, "t": True, "f": False, "x": 1.5, "nan": float("nan"), "inf": float("inf")},
    {
        "text": "x" * 300,
        "empty": "",
        "utf8": "\u00e9\u4e2d\U0001f600" * 9,
        "bytes": bytes(range(256)),
    },
    {"at": datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC), "a b.c-d/e": "\u0000"},
    {f"name{each}": each for each in range(32)},
]
OTHERS: list[Notification] = [
    Notification({"a": [1, 2]}, envelope=STAMPED),
    Notification({"\u00e9": 1}, envelope=STAMPED),
    Notification({"at": datetime(1960, 1, 2, tzinfo=UTC)}, envelope=STAMPED),
    Notification.with_marks({"a": 1}, ["T"], envelope=STAMPED),
    Notification({f"name{each}": each for each in range(33)}, envelope=STAMPED),
    Notification({"a": 1}),
    *(
        Notification({"a": 1}, envelope=changed(STAMPED, **{field: value}))
        for field, value in [
            ("time_us", None),
            ("ttl_us", 1),
            ("priority", 5),
            ("delivery", "reliable"),
            ("id", "\u00e9"),
            ("publisher", "\u00e9"),
        ]
    ),
]
NAMES = ("@id", "@publisher", "@time")


@given(
    attributes=st.dictionaries(st.integers(0, 99).map("a{}".format), st.integers(), max_size=20),
    envelope=strategies.envelopes,
    names=st.lists(st.sampled_from(NAMES), unique=True, min_size=1).map(tuple),
)
def test_the_envelope_is_behind_the_attributes(attributes: Any, envelope: Any, names: Any) -> None:
    """A filter on the publisher would miss notifications, or an attribute be lost."""
    span = encode({name: n % 2**63 for name, n in attributes.items()})
    found = msgspec.msgpack.decode(with_envelope(span, envelope, names))
    times = envelope.time_us or 0
    expected = {
        "@id": envelope.id,
        "@publisher": envelope.publisher,
        "@time": ct.Notification({"t": datetime_of(times)})["t"],
    }
    assert list(found)[len(attributes) :] == list(names)
    assert found == msgspec.msgpack.decode(span) | {name: expected[name] for name in names}


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_a_map_of_any_width_gets_an_envelope(count: int) -> None:
    """The lead of a large map would be read as that of a small one."""
    span = encode({str(n): n for n in range(count)})
    found = msgspec.msgpack.decode(with_envelope(span, Envelope(publisher="p"), ("@publisher",)))
    assert len(found) == count + 1
    assert found["@publisher"] == "p"


@pytest.mark.parametrize(
    "span", [b"", b"\x01", b"\x91\x01", b"\xc1", b"\xde\x00", b"\xdf\x00", b"\xdf" + b"\xff" * 4]
)
def test_other_values_than_maps_are_left_to_the_reader(span: bytes) -> None:
    """Bytes that are no map, or half of its header, would become one; or an error of Python."""
    assert with_envelope(span, UNSTAMPED, NAMES) == span


@pytest.mark.parametrize("span", [b"", b"\x01", b"\xc1", b"\x81\xa1a", b"\x81\xa1a\x01\x00"])
def test_bytes_that_are_no_span_are_refused(span: bytes) -> None:
    """Matching would raise an error other than Contrada's."""
    with pytest.raises(EncodingError):
        decode_span(span)
    with pytest.raises(EncodingError):
        to_notification(span, UNSTAMPED, ())


def test_a_value_that_none_can_have_is_refused() -> None:
    """A map for a value would reach the filters."""
    for span in (encode({"a": {"b": 1}}), encode({"a": 2**64 - 1}), encode({"a": [[1]]})):
        with pytest.raises((InvalidNotificationError, EncodingError)):
            to_notification(span, UNSTAMPED, ())


def test_arguments_become_notifications() -> None:
    """The model would evaluate another notification."""
    given_ = ct.Notification({"a": 1})
    assert to_notification(given_, UNSTAMPED, ()) is given_
    late = Envelope(publisher="p", time_us=5)
    of_span = to_notification(given_.span, late, ())
    assert (of_span, of_span.envelope) == (given_.with_envelope(late), late)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    mapping: dict[str, Any] = {"a": [1, when], "unasked": object(), "@id": "x"}
    of_mapping = to_notification(mapping, late, {"a", "@id"})
    assert of_mapping == ct.Notification({"a": [1, when]})
    assert of_mapping.envelope == UNSTAMPED
    assert select_attributes(mapping, {"a", "@id"}) == {"a": [1, when]}


def test_the_empty_span_has_no_attributes() -> None:
    """NULL in a column would be refused."""
    assert decode_span(EMPTY_SPAN) == {}


# --- several together ----------------------------------------------------------------------------


def bundle_with(*encodings: bytes) -> Bundle | None:
    """A bundle with others before and behind."""
    other = to_msgpack(Notification({"a": 1}, envelope=STAMPED))
    return Bundle.of([other, *encodings, *[other] * BUNDLE_MIN])


def same(bundle: Bundle, notifications: Sequence[Notification]) -> bool:
    """Whether a bundle agrees with its notifications."""
    envelopes = [each.envelope for each in notifications]
    return (
        [*bundle.identities()] == [(each.publisher, each.id) for each in envelopes]
        and bundle.times_us == [each.time_us for each in envelopes]
        and bundle.encoded_bytes == sum(bundle.sizes()) == sum(map(len, bundle.encodings))
        and [each.span for each in bundle] == [each.span for each in notifications]
    )


@needs_native
@pytest.mark.parametrize("attributes", PLAIN)
@pytest.mark.parametrize("body", [b"", b"b" * 300, b"b" * 70_000])
def test_plain_spans_are_passed_on_unchanged(attributes: dict[str, Any], body: bytes) -> None:
    """Most notifications would be looked at one by one."""
    given = [
        Notification(attributes, body=body, envelope=STAMPED, content_type=content_type)
        for content_type in ("", "text/plain")
    ]
    bundle = bundle_with(*map(to_msgpack, given))
    assert bundle is not None
    assert same(bundle[1:3], given)
    assert bundle[1].body == body
    assert bundle.encodings[1] == to_msgpack(given[0])
    assert bundle[:] is bundle
    of_message = Bundle.of_message(bytes(encode_publish(bundle.encodings)))
    assert of_message is not None
    assert same(of_message[1:3], given)


@needs_native
@pytest.mark.parametrize("other", OTHERS)
def test_unusual_notifications_are_checked(other: Notification) -> None:
    """A lifetime, a priority or a guarantee would be ignored."""
    assert bundle_with(to_msgpack(other)) is None


@needs_native
@given(
    one=strategies.notifications(),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    end=st.integers(0, 400) | st.none(),
)
def test_unreadable_notifications_are_in_no_bundle(
    one: Notification, changes: list[tuple[int, int]], end: int | None
) -> None:
    """Bytes of strangers that nobody looked at would reach subscribers."""
    data = bytearray(to_msgpack(one.with_envelope(changed(one.envelope, **_STAMPS))))
    for at, byte in changes:
        data[at % len(data)] = byte
    packed = bytes(data[:end])
    bundle = bundle_with(packed)
    if bundle is not None:
        read = notification_from_msgpack(packed)
        assert same(bundle[1:2], [read])
        assert read.envelope == replace_identity(read.envelope)
        assert to_msgpack(read) == packed


_STAMPS: dict[str, Any] = {
    "id": "i",
    "publisher": "p",
    "time_us": 1_700_000_000_000_000,
    "ttl_us": None,
    "priority": 4,
    "delivery": "best-effort",
}


def replace_identity(envelope: Envelope) -> Envelope:
    """The plain envelope of the same identity."""
    return Envelope(envelope.id, envelope.publisher, envelope.sequence, envelope.time_us)


@needs_native
@given(
    wishes=st.lists(strategies.filters(), max_size=6),
    rows=st.lists(strategies.notifications(), min_size=BUNDLE_MIN, max_size=12),
)
def test_a_bundle_matches_as_its_notifications(
    wishes: list[ct.Filter], rows: list[Notification]
) -> None:
    """A broker would deliver other things than the embedded service."""
    index: ct.Index[int] = ct.Index()
    for number, each in enumerate(wishes):
        index.add(number, each)
    stamped = [each.with_envelope(changed(each.envelope, **_STAMPS)) for each in rows]
    bundle = Bundle.of([*map(to_msgpack, stamped)])
    if bundle is not None:
        found = [sorted(keys) for keys, count in index.match_runs(bundle) for _ in range(count)]
        assert found == [sorted(index.match(each)) for each in stamped]


def test_a_few_make_no_parcel_and_a_step_is_refused() -> None:
    """A call of compiled code for one would cost more than looking at it."""
    data = to_msgpack(Notification({"a": 1}, envelope=STAMPED))
    assert Bundle.of([data] * (BUNDLE_MIN - 1)) is None
    with pytest.raises(EncodingError):
        notification_from_msgpack(data[:-1])
    bundle = Bundle.of([data] * BUNDLE_MIN)
    if bundle is not None:
        with pytest.raises(ValueError, match="in a row"):
            bundle[::2]
