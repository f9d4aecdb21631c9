"""Notifications that are passed on as bytes: the same as if each had been looked at."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

import contrada as ct
from contrada.errors import EncodingError
from contrada.matching.bundle import BUNDLE_MIN, Bundle
from contrada.matching.kernels import jit
from contrada.model import Envelope, Notification, to_msgpack
from contrada.model.encoding import notification_from_msgpack
from tests import strategies
from tests.matching.engines import needs_numba

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
    Notification.marked({"a": 1}, ["T"], envelope=STAMPED),
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


@pytest.fixture(autouse=True)
def _loaded() -> None:
    jit.compiled()


def bundle_with(*encodings: bytes) -> Bundle | None:
    """A bundle in which others stand before and behind."""
    other = to_msgpack(Notification({"a": 1}, envelope=STAMPED))
    return Bundle.of([other, *encodings, *[other] * BUNDLE_MIN])


def same(bundle: Bundle, notifications: Sequence[Notification]) -> bool:
    """Whether a bundle tells what notifications tell."""
    envelopes = [each.envelope for each in notifications]
    return (
        [*bundle.identities()] == [(each.publisher, each.id) for each in envelopes]
        and bundle.times_us == [each.time_us for each in envelopes]
        and [each.span for each in bundle] == [each.span for each in notifications]
    )


@needs_numba
@pytest.mark.parametrize("attributes", PLAIN)
@pytest.mark.parametrize("body", [b"", b"b" * 300, b"b" * 70_000])
def test_what_is_plain_is_passed_on_as_it_came(attributes: dict[str, Any], body: bytes) -> None:
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


@needs_numba
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_another_is_looked_at(other: Notification) -> None:
    """What has a time to live, a priority or a promise would be treated as if it had none."""
    assert bundle_with(to_msgpack(other)) is None


@needs_numba
@given(
    one=strategies.notifications(),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    end=st.integers(0, 400) | st.none(),
)
def test_what_could_not_be_read_is_in_no_parcel(
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


@needs_numba
@given(
    wishes=st.lists(strategies.filters(), max_size=6),
    rows=st.lists(strategies.notifications(), min_size=BUNDLE_MIN, max_size=12),
)
def test_a_parcel_matches_what_its_notifications_match(
    wishes: list[ct.Filter], rows: list[Notification]
) -> None:
    """A broker would deliver other things than the embedded service."""
    index: ct.Index[int] = ct.Index(compiled=True)
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
