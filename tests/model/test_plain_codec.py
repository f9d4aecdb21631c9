"""The compiled codec of plain notifications, its source interpreted, and `model.codec` agree."""

import gc
import math
import sys
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum, StrEnum
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, msgpack
from msgspec.structs import replace

from contrada.errors import ContradaError
from contrada.model import Envelope, Notification
from contrada.model.algebra.attributes import (
    ATTRIBUTES_KEPT_MAX,
    ATTRIBUTES_MAX,
    good_names,
    good_names_and_marks,
)
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.plain_scanner import PUBLISH_HEAD
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.model.domains.values import INT_MAX, INT_MIN, TIME_MAX_US, TIME_MIN_US
from contrada.model.native import NATIVE
from contrada.net.wire.frames import HEADER_BYTES, Request, encode
from contrada.net.wire.message_codec import encode_publish
from contrada.routing.router_messages import Publish
from tests import strategies
from tests.model.test_codec import SPANS, TIMES
from tests.net.requests import decode_request

NOW_US: Final = 1_764_000_000_000_000
PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))


def forms() -> Iterator[Any]:
    """The sources, interpreted, and the compiled form if there is one."""
    pytest.importorskip("cython")
    from contrada.model.algebra import plain_encoder, plain_reader, plain_scanner

    yield SimpleNamespace(**(vars(plain_encoder) | vars(plain_scanner) | vars(plain_reader)))
    if NATIVE is not None:
        yield NATIVE


FORMS: Final = [*forms()]


class Symbol(StrEnum):
    """Members that equal texts."""

    DIS = "DIS"


class Text(str):
    """A text of another type."""

    __slots__ = ()


class Number(int):
    """An integer of another type."""


class Colour(Enum):
    """A value that is plain only when it is looked at."""

    RED = 1


ODD: Final[tuple[Any, ...]] = (
    *(True, False, None, 0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.5),
    *(INT_MAX, INT_MIN, INT_MAX + 1, INT_MIN - 1, 2**64 - 1, 2**64, -32, -33, 127, 128),
    *(255, 256, 65_535, 65_536, 2**32 - 1, 2**32, -128, -129, -(2**15), -(2**15) - 1),
    *(-(2**31), -(2**31) - 1, "", "a", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "y" * 70_000),
    *("größe", "\u20ac" * 100, "\U0001f600", "\ud800", "\x00", b"", b"\xff", b"z" * 256),
    *(b"z" * 65_536, Symbol.DIS, Text("a"), Number(3), Colour.RED, bytearray(b"a"), (1, 2), [1]),
    *([], {"b": 1}, {"$number": "NaN"}, datetime(2026, 11, 20, tzinfo=UTC), 1j, object()),
)
NAMES: Final[tuple[Any, ...]] = (
    *("a", "b", "symbol", "größe", "@x", "@id", "@time", "@is.T", "", "n" * 255, "n" * 256),
    *("\u20ac" * 85, "\u20ac" * 86, "\ud800", "a\x00", "a\x7f", Text("t"), Symbol.DIS, 5, None),
)
Notification({"DIS": 1, "t": 2})  # So that these names are known, of another type too.
values = st.sampled_from(ODD) | st.integers() | st.floats() | st.text() | st.binary()
names = st.sampled_from(NAMES) | st.text(min_size=1, max_size=5)


def encoded(attributes: Any, number: int = 1) -> bytes | None:
    """The encoding by `model.codec`; None where it refuses the attributes."""
    envelope = Envelope(f"p.{number}", "p", number, NOW_US)
    try:
        return to_msgpack(Notification(attributes, envelope=envelope))
    except ContradaError:
        return None


def is_plain(attributes: dict[Any, Any]) -> bool:
    """Whether the compiled codec must take valid attributes."""
    return PLAIN.issuperset(map(type, attributes.values())) and {str}.issuperset(
        map(type, attributes)
    )


def packed(form: Any, items: list[Any], first: int = 1) -> list[bytes]:
    """The encodings of the first items."""
    made: list[bytes] = form.pack_plain(items, 0, len(items), "p.", "p", first, NOW_US, good_names)
    return made


def stamped(form: Any, items: list[Any], first: int = 1) -> list[Notification]:
    """The notifications of the first items."""
    made: list[Notification] = form.stamp_plain(
        *(items, 0, len(items), "p.", "p", first, NOW_US, good_names, Notification, UNSTAMPED)
    )
    return made


def check_encoding(attributes: dict[Any, Any]) -> None:
    expected = encoded(attributes)
    for form in FORMS:
        made = packed(form, [attributes])
        if expected is None or not is_plain(attributes) or len(expected) > 60_000:
            assert made in ([], [expected])
            assert not made or is_plain(attributes)
        else:
            assert made == [expected]
        found = stamped(form, [attributes])
        assert len(found) >= len(made), "less must fit"
        for each in found:
            model = Notification(attributes, envelope=Envelope("p.1", "p", 1, NOW_US))
            assert parts_of(each) == parts_of(model)


@given(st.dictionaries(names, values, max_size=6))
def test_encodings_are_those_of_the_model(attributes: dict[Any, Any]) -> None:
    """A client would publish a notification that its broker refuses, or other values."""
    check_encoding(attributes)


def check_asked(attributes: dict[Any, Any]) -> None:
    """Compares the span of the attributes of some names with that of the model."""
    asked = dict.fromkeys(("a", "b", "größe", "DIS", "t", *(f"n{place}" for place in range(999))))
    chosen = {name: value for name, value in attributes.items() if name in asked}
    expected = encoded(chosen)
    for form in FORMS:
        made = form.pack_asked(attributes, asked)
        if made is not None:
            assert {str} >= {*map(type, attributes)}
            assert is_plain(attributes)
            assert msgpack.encode(msgpack.decode(made)) == msgpack.encode(chosen)
        elif expected is not None and {str} >= {*map(type, attributes)}:
            assert not is_plain(attributes) or len(expected) > 60_000


@given(st.dictionaries(names, values, max_size=20))
def test_spans_of_asked_attributes_are_those_of_msgpack(attributes: dict[Any, Any]) -> None:
    """A match would check other values than those that are given, or not check one."""
    check_asked(attributes)


@pytest.mark.parametrize("count", [0, 15, 16, 998, 1_100, 70_000])
def test_many_asked_attributes_are_packed(count: int) -> None:
    """A map would have the header of a shorter one."""
    check_asked({f"n{place}": place for place in range(count)})


@pytest.mark.parametrize("value", ODD, ids=lambda it: repr(it)[:20].encode("ascii", "replace"))
def test_each_odd_asked_value_is_packed_as_by_msgpack(value: Any) -> None:
    """A value at an end of its range would become another one; or one that nothing asks for would
    be an error.
    """
    check_asked({"a": value, "b": 1})
    for form in FORMS:
        beside = form.pack_asked({"a": value, "b": 1}, {"b": 0})
        assert beside == (msgpack.encode({"b": 1}) if is_plain({"a": value}) else None)


@pytest.mark.parametrize("value", ODD, ids=lambda it: repr(it)[:20].encode("ascii", "replace"))
def test_each_odd_value_is_encoded_as_by_the_model(value: Any) -> None:
    """A value at an end of its range would become another one."""
    check_encoding({"a": value, "b": 1})


@pytest.mark.parametrize("name", NAMES, ids=lambda it: repr(it)[:20].encode("ascii", "replace"))
def test_each_odd_name_is_refused_as_by_the_model(name: Any) -> None:
    """A client could publish an attribute of the system, or one without a name."""
    check_encoding({"a": 1, name: 2})


@pytest.mark.parametrize("count", [0, 15, 16, 17, ATTRIBUTES_MAX, ATTRIBUTES_MAX + 1, 10_000])
def test_many_attributes_are_encoded_as_by_the_model(count: int) -> None:
    """A map would have the header of a shorter one."""
    attributes = {f"n{place}": place for place in range(count)}
    expected = encoded(attributes)
    for form in FORMS:
        made = packed(form, [attributes])
        assert made == ([expected] if expected else [])


@given(
    strategies.notifications(strategies.values(), strategies.names),
    st.sampled_from([Envelope(), Envelope(ttl_us=5, priority=3), Envelope(delivery="certified")]),
)
def test_a_stamped_copy_has_all_parts(of: Notification, envelope: Envelope) -> None:
    """A body, a lifetime or a guarantee would be lost at the publisher."""
    of = of.with_envelope(envelope)
    expected = parts_of(of.with_envelope(replace(envelope, id="p.7", publisher="p", sequence=7)))
    for form in FORMS:
        found = form.stamp_copy(of, Notification, "p.7", "p", 7, NOW_US)
        assert found.envelope.time_us == NOW_US
        untimed = found.with_envelope(replace(found.envelope, time_us=None))
        assert parts_of(untimed) == expected
        assert parts_of(of) == parts_of(of.with_envelope(envelope)), "the given one is unchanged"


@pytest.mark.parametrize("count", [1, ATTRIBUTES_KEPT_MAX, ATTRIBUTES_KEPT_MAX + 1])
def test_a_stamped_notification_is_apart_from_its_mapping(count: int) -> None:
    """A publisher that uses its mapping again would change what subscribers read."""
    for form in FORMS:
        attributes = {f"n{place}": place for place in range(count)}
        (found,) = stamped(form, [attributes])
        attributes["n0"] = 5
        assert found["n0"] == 0
        assert Envelope() == UNSTAMPED


def test_names_are_valid_only_once_they_were_checked() -> None:
    """A name that nobody has checked would be published."""
    for form in FORMS:
        assert packed(form, [{"a name that is new here": 1}]) == []


@pytest.mark.parametrize("first", [0, 8, 98, 2**32 - 2, 2**63 - 4])
def test_a_batch_is_numbered_up_to_what_is_not_plain(first: int) -> None:
    """Two notifications would have one identity, or an item would be left out."""
    items = [{"a": 1}, {"a": "b"}, {}, {"a": [1]}, {"a": 2}]
    expected = [encoded(item, first + place) for place, item in enumerate(items[:3])]
    for form in FORMS:
        assert packed(form, items, first) == expected
        assert [*map(to_msgpack, stamped(form, items, first))] == expected
        again = form.pack_plain(items, 4, 9, "p.", "p", first, NOW_US, good_names)
        assert again == [encoded(items[4], first)]
        assert packed(form, [Notification({"a": 1})]) == []
        assert form.pack_plain(items, 0, 2, "p.", "p", first, NOW_US, good_names) == expected[:2]


@pytest.mark.parametrize("text", ["p", "x" * 31, "x" * 32, "y" * 250, "größe", "\u20ac" * 40])
def test_publishers_are_encoded_as_by_the_model(text: str) -> None:
    """A broker would not know the publisher."""
    envelope = Envelope(f"{text[:240]}.7", text, 7, 0)
    expected = to_msgpack(Notification({"a": 1}, envelope=envelope))
    for form in FORMS:
        made = form.pack_plain([{"a": 1}], 0, 1, f"{text[:240]}.", text, 7, 0, good_names)
        assert made == [expected]


# --- received bytes -------------------------------------------------------------------------------


def parts_of(notification: Notification) -> tuple[Any, ...]:
    """All parts of a notification."""
    envelope, body = notification.envelope, notification.body
    kept = notification.packed, notification.span, notification.content_type
    return repr(dict(notification)), repr(envelope), body, *kept, hash(notification)


def check_decoding(data: bytes, *, is_usual: bool = False) -> None:
    taken = []
    for form in FORMS:
        entries = form.plain_entries([data], 0, good_names_and_marks, Notification, 512)
        taken.append(bool(entries))
        if entries:
            ((found, size, transmission),) = entries
            assert (size, transmission) == (len(data) + 512, None)
            expected = notification_from_msgpack(data)
            assert repr(form.plain_attributes(data)) == repr(dict(expected))
            assert {repr(form.value_of(found, name)) for name in expected} == {
                repr(value) for value in expected.values()
            }
            assert parts_of(found) == parts_of(expected)
    assert len({*taken}) == 1, "the compiled form decides as its source"
    assert taken[0] or not is_usual


usual_values = (
    st.sampled_from([each for each in ODD if type(each) in PLAIN and encoded({"a": each})])
    | st.integers(INT_MIN, INT_MAX)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
)
usual_names = st.sampled_from(["a", "b", "symbol", "größe", "@x", "n" * 255])
ids = st.text(st.characters(max_codepoint=126), max_size=40)
envelopes = st.builds(
    Envelope, ids, ids, st.integers(0, INT_MAX), st.integers(TIME_MIN_US, TIME_MAX_US)
)
usual = st.builds(
    lambda attributes, body, envelope: to_msgpack(
        Notification(attributes, body=body, envelope=envelope)
    ),
    *(st.dictionaries(usual_names, usual_values, max_size=6), st.binary(max_size=300), envelopes),
)


@given(usual)
def test_usual_notifications_are_read_at_once(data: bytes) -> None:
    """All would be checked one by one, at five times the cost."""
    check_decoding(data, is_usual=True)


def test_names_of_usual_signs_are_read_at_once() -> None:
    """Notifications with a name that is new here would be checked one by one, or not at all."""
    data = to_msgpack(Notification({"name": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    for sign in range(256):
        changed = data.replace(b"name", b"nam" + bytes([sign]))
        for form in FORMS:
            entries = form.plain_entries([changed], 0, set(), Notification, 0)
            assert len(entries) == (0x20 <= sign <= 0x7E), sign


@given(usual, st.data())
def test_changed_bytes_are_read_as_by_the_model(data: bytes, draw: st.DataObject) -> None:
    """A subscriber would get what no broker accepts, or read beyond the end of the bytes."""
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(0, len(changed) - 1))
        match draw.draw(st.sampled_from(["byte", "lead", "cut", "insert"])):
            case "byte":
                changed[place] ^= 1 << draw.draw(st.integers(0, 7))
            case "lead":
                changed[place] = draw.draw(st.sampled_from(range(0xC0, 0xE0)))
            case "cut":
                del changed[place : place + draw.draw(st.integers(1, 9))]
            case _:
                changed[place:place] = draw.draw(st.binary(max_size=9))
        if not changed:
            break
    check_decoding(bytes(changed))


RICH: Final = {
    "a": "text",
    "b": -5,
    "größe": 1.5,
    "@x": b"bytes",
    "n": True,
    "m": None,
    "t": datetime(2026, 11, 20, 9, 30, 0, 1, tzinfo=UTC),
    "s": datetime(2026, 11, 20, 9, 30, tzinfo=UTC),
    "l": "\u20ac" * 100,
    "k": 2**40,
    "j": -(2**40),
}


def test_cut_bytes_are_read_as_by_the_model() -> None:
    """The compiled form would read beyond the end."""
    data = to_msgpack(Notification(RICH, body=b"body", envelope=Envelope("p.1", "p", 1, NOW_US)))
    check_decoding(data, is_usual=True)
    for end in range(len(data)):
        check_decoding(data[:end])
        check_decoding(data[:end] + data[end + 1 :])


@pytest.mark.parametrize("begin", [b"", b"\xa4name"])
def test_a_part_of_an_attribute_is_read_as_by_the_model(begin: bytes) -> None:
    """What follows the attributes would be taken for a name or a value, which other readers do."""
    data = to_msgpack(Notification({"name": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    for lead in range(256):
        check_decoding(data.replace(b"\xa4name\x01", begin + bytes([lead])))


@pytest.mark.parametrize("lead", [b"\x7f", b"\x90", b"\xdc\x00\x10", b"\xdf\x00\x10\x00\x00"])
def test_attributes_that_are_no_map_are_read_as_by_the_model(lead: bytes) -> None:
    """A message that other readers refuse would be delivered to some."""
    attributes = {f"n{place}": place for place in range(16)}
    data = to_msgpack(Notification(attributes, envelope=Envelope("p.1", "p", 1, NOW_US)))
    check_decoding(data, is_usual=True)
    assert data.count(b"\xde\x00\x10") == 1
    check_decoding(data.replace(b"\xde\x00\x10", lead))


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("time", TIMES, ids=bytes.hex)
@pytest.mark.parametrize("tail", [b"\xc4\x00\xa0", b"\xc6\0\0\0\x02\xcf\xcf\xa1t", b"\xc4\x01\xa0"])
def test_hostile_spans_are_read_as_by_the_model(span: bytes, time: bytes, tail: bytes) -> None:
    """A subscriber would get two values of one name, or a number that no other side can hold."""
    stamp = b"\x97\xa1i\xa1p\x01" + time + b"\xc0\x04\xabbest-effort"
    check_decoding(b"\x93\x01\xacnotification\x94" + span + stamp + tail)


@pytest.mark.parametrize("count", [15, 16, 32, 33, 300])
def test_many_attributes_are_read_as_by_the_model(count: int) -> None:
    """A long notification would cost quadratic time, or be refused."""
    attributes = {f"n{place}": place for place in range(count)}
    envelope = Envelope("p.1", "p", 1, NOW_US)
    check_decoding(to_msgpack(Notification(attributes, envelope=envelope)), is_usual=count <= 32)


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("p.1", "p", 1, NOW_US, ttl_us=5),
        Envelope("p.1", "p", 1, NOW_US, priority=9),
        Envelope("p.1", "p", 1, NOW_US, delivery="reliable"),
        Envelope("größe", "p", 1, NOW_US),
        Envelope("p.1", "p", 1),
    ],
    ids=["lifetime", "priority", "class", "not ASCII", "no time"],
)
def test_unusual_envelopes_are_checked_one_by_one(envelope: Envelope) -> None:
    """A queue would deliver it in the order of usual ones, or after its end."""
    data = to_msgpack(Notification({"a": 1}, envelope=envelope))
    for form in FORMS:
        assert form.plain_entries([data], 0, good_names_and_marks, Notification, 0) == []


def test_marks_are_read_once_they_are_known() -> None:
    """Typed events would all take the slow way, or a forged mark the quick one."""
    stamp = Envelope("p.1", "p", 1, NOW_US)
    data = to_msgpack(Notification.with_marks({"a": 1}, ["a.Mark"], envelope=stamp))
    check_decoding(data, is_usual=True)
    forged = data.replace(b"a.Mark", b"a.Bark")
    for form in FORMS:
        assert form.plain_entries([forged], 0, good_names_and_marks, Notification, 0) == []


def test_entries_end_before_what_is_not_plain() -> None:
    """A notification would be left out, or delivered twice."""
    stamp = Envelope("p.1", "p", 1, NOW_US)
    one = to_msgpack(Notification({"a": 1}, envelope=stamp))
    several = to_msgpack(Notification({"a": [1, 2]}, envelope=stamp))
    for form in FORMS:
        taken = form.plain_entries(
            [one, one, several, one], 0, good_names_and_marks, Notification, 0
        )
        assert [dict(each) for each, _, _ in taken] == [{"a": 1}] * 2
        rest = form.plain_entries([one, several, one], 2, good_names_and_marks, Notification, 0)
        assert len(rest) == 1


class Reader:
    """An object that reads another request when it is collected."""

    def __init__(self, request: bytes) -> None:
        self.request, self.cycle = request, self

    def __del__(self) -> None:
        few(NATIVE, self.request)


@pytest.fixture
def _collector() -> Iterator[None]:
    """Collects as usual, once the test has ended."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.skipif(NATIVE is None, reason="interpreted, no notification is plain")
@pytest.mark.usefixtures("_collector")
def test_a_finalizer_that_reads_a_message_leaves_another_as_it_is() -> None:
    """A notification would get the id of another one, or bytes of freed memory would be read."""

    def encoded_from(first: int) -> list[bytes]:
        numbers = range(first, first + 9)
        stamps = (Envelope(f"p.{n}", "p", n, NOW_US) for n in numbers)
        return [to_msgpack(Notification({"a": 1}, envelope=each)) for each in stamps]

    request, other = (requested(published(encoded_from(first))) for first in (10, 30))
    # It is refused behind three of its nine, where reading could go on.
    other = other.replace(PUBLISH_HEAD + b"\x99", PUBLISH_HEAD + b"\x93")
    assert few(NATIVE, other) is None
    wanted = [parts_of(notification_from_msgpack(each)) for each in encoded_from(10)]
    found = []
    for allocations in range(1, 60):
        gc.collect()
        gc.set_threshold(0)
        Reader(other)
        gc.set_threshold(allocations)
        read = few(NATIVE, request)
        gc.set_threshold(0)
        found.append(None if read is None else [*map(parts_of, read)])
    # Later versions collect only between two instructions of Python.
    assert None in found or sys.version_info >= (3, 12)
    assert wanted in found
    assert [each for each in found if each not in (None, wanted)] == []


def test_its_constants_are_those_of_the_model() -> None:
    """Nothing would be plain, or another delivery class would be."""
    data = to_msgpack(Notification({}, envelope=Envelope("", "", 0, 0)))
    for form in FORMS:
        assert data.startswith(form.HEAD)
        assert data.endswith(form.TAIL + b"\xc4\x00\xa0")


# --- batches ------------------------------------------------------------------------------------

NUMBER: Final = 300
WAIT_MS: Final = 5_000
decode_frame: Final = msgpack.Decoder(Request).decode
STAMPED = Envelope("an id", "publisher", 7, 1_700_000_000_000_000)


def batch_parts(msg: bytes, form: Any, begin: int = 0) -> list[int] | None:
    """The parts of a notification at a position."""
    parts = array("q", bytes(8 * form.PARTS))
    starts = array("q", (begin, len(msg)))
    is_plain = form.plain_parts(bytearray(msg), starts, parts, good_names_and_marks)
    return parts.tolist() if is_plain else None


@pytest.mark.parametrize("form", FORMS)
def test_parts_are_at_their_positions(form: Any) -> None:
    """A notification would be known by another's name, or matched by other bytes."""
    one = Notification({"a": 1, "b": "x"}, envelope=STAMPED)
    before, data = b"before", to_msgpack(one)
    parts = batch_parts(before + data, form, len(before))
    assert parts is not None
    span, time_us, *texts, begin, end, _ = parts
    whole = before + data
    assert whole[begin:end] == data
    assert whole[span:].startswith(one.span)
    assert time_us == STAMPED.time_us
    found = [whole[at : at + length] for at, length in zip(texts[::2], texts[1::2], strict=True)]
    assert found == [b"an id", b"publisher"]


@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_are_cut_off_are_none(form: Any) -> None:
    """The kernel would read the bytes behind the end as a part."""
    data = to_msgpack(Notification({"a": 1, "b": "x", "c": 2.5, "d": None}, envelope=STAMPED))
    assert batch_parts(data, form) is not None
    for end in range(len(data)):
        assert batch_parts(data[:end], form) is None
    assert batch_parts(data + b"\x00", form) is None


@pytest.mark.parametrize("form", FORMS)
def test_two_attributes_of_one_name_are_none(form: Any) -> None:
    """Filters would look at one of them, and its subscriber at the other."""
    data = to_msgpack(Notification({"aa": 1, "ab": 2}, envelope=STAMPED))
    assert batch_parts(data, form) is not None
    assert batch_parts(data.replace(b"ab", b"aa"), form) is None
    assert batch_parts(data.replace(b"ab", b"@b"), form) is None
    assert batch_parts(data.replace(b"ab", b"a\x7f"), form) is None


@given(one=strategies.notifications(), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_both_forms_find_the_same_parts(one: Notification, at: int, byte: int) -> None:
    """The source, tested where it is interpreted, would differ from the compiled form."""
    data = bytearray(to_msgpack(one.with_envelope(STAMPED)))
    data[at % len(data)] = byte
    found = [batch_parts(bytes(data), form) for form in FORMS]
    assert found == found[:1] * len(FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_publishers_of_a_batch_are_compared(form: Any) -> None:
    """A notification of another publisher would pass under the name of the first."""
    first, other = (
        to_msgpack(Notification({"a": 1}, envelope=Envelope("i", name, 1, NOW_US)))
        for name in ("p", "q")
    )
    for batch, expected in (((first, first), form.SAME), ((first, other), form.PLAIN)):
        starts = array("q", (0, len(batch[0]), sum(map(len, batch))))
        parts = array("q", bytes(8 * 2 * form.PARTS))
        joined = bytearray().join(batch)
        assert form.plain_parts(joined, starts, parts, good_names_and_marks) == expected


# --- few that a client has published --------------------------------------------------------------


def requested(message: bytes, **fields: Any) -> bytes:
    """The payload of a frame with the message of a client."""
    return encode(Request(NUMBER, Raw(message), **{"wait_ms": WAIT_MS, **fields}))[HEADER_BYTES:]


REQUEST_HEAD: Final = encode(Request(0, Raw(b"")))[: HEADER_BYTES - 4]


def few_at(form: Any, stream: bytes | bytearray, at: int, size_max: int = 2**20) -> Any:
    """Number, wait, notifications and size of a frame in a stream that publishes few."""
    kinds = good_names_and_marks, Notification, UNSTAMPED
    return form.few_requested(REQUEST_HEAD, size_max, *kinds, stream, at)


def framed(request: bytes) -> bytes:
    """The frame of a payload."""
    return REQUEST_HEAD + len(request).to_bytes(4) + request


def few(form: Any, request: bytes) -> tuple[Notification, ...] | None:
    """The notifications of a request that publishes few."""
    found = few_at(form, framed(request), 0)
    if found is None:
        return None
    number, wait_ms, notifications, size = found
    assert size == HEADER_BYTES + len(request)
    frame = decode_frame(request)
    assert (number, wait_ms) == (frame.number, frame.wait_ms)
    assert isinstance(notifications, tuple)
    return notifications


def published(encodings: list[bytes]) -> bytes:
    """The message of a client."""
    return bytes(encode_publish(encodings))


@given(st.lists(usual, max_size=17))
def test_few_requested_are_those_of_the_message(encodings: list[bytes]) -> None:
    """A broker would match, or forward, another notification than the published one."""
    request = requested(published(encodings))
    expected = [parts_of(notification_from_msgpack(each)) for each in encodings]
    for form in FORMS:
        found = few(form, request)
        if 0 < len(encodings) < 16:
            assert found is not None
            assert [*map(parts_of, found)] == expected
        else:
            assert found is None


@given(st.lists(usual, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_few_requested_are_refused_if_a_byte_is_another(
    encodings: list[bytes], chance: Random
) -> None:
    """A broker would read beyond the message, or take one that its reader refuses."""
    request = requested(published(encodings))
    for form in FORMS:
        for cut in range(0, len(request), 7):
            assert few(form, request[:cut]) is None
        assert few(form, request + b"\x00") is None
    changed = bytearray(request)
    changed[chance.randrange(len(changed))] = chance.randrange(256)
    for form in FORMS:
        found = few(form, bytes(changed))
        if found is not None:
            read = decode_request(decode_frame(bytes(changed)).message)
            assert isinstance(read, Publish)
            assert [*map(parts_of, found)] == [*map(parts_of, read.notifications)]


@given(usual, st.integers(0, 9))
def test_few_requested_are_those_of_one_frame_of_a_stream(encoding: bytes, at: int) -> None:
    """A broker would read half of a frame, one of another kind, or beyond its end."""
    frame = framed(requested(published([encoding])))
    stream = b"c" * at + frame + frame
    for form in FORMS:
        for place in (at, at + len(frame)):
            _, _, (found,), size = few_at(form, stream, place)
            assert (found.packed, size) == (encoding, len(frame))
        assert few_at(form, stream, at, len(frame)) is not None
        assert few_at(form, stream, at, len(frame) - 1) is None
        assert few_at(form, stream, len(stream)) is None
        assert few_at(form, bytearray(stream), at) is None
        for cut in range(len(frame)):
            assert few_at(form, frame[:cut], 0) is None
        for place in range(HEADER_BYTES):
            for other in (0, 1, 0x7F, 0xFF):
                if frame[place] != other:
                    changed = frame[:place] + bytes((other,)) + frame[place + 1 :]
                    assert few_at(form, changed + frame, 0) is None


def many(form: Any, message: bytes, known: set[str] = good_names_and_marks) -> list[list[int]]:
    """The parts of the notifications of a message; none where it is refused."""
    parts = array("q", bytes(8 * form.PARTS * form.published_count(message)))
    found = form.published_parts(message, parts, known)
    assert found in (0, form.PLAIN, form.SAME)
    rows = range(0, len(parts) if found else 0, form.PARTS)
    return [parts[row : row + form.PARTS].tolist() for row in rows]


@given(st.lists(usual, min_size=1, max_size=5))
def test_published_parts_are_those_of_the_message(encodings: list[bytes]) -> None:
    """A broker would match, or forward, other bytes than the published ones."""
    message = published(encodings)
    for form in FORMS:
        found = many(form, message)
        numbers = array("q", [number for each in found for number in each])
        assert form.encoded_bytes(numbers) == sum(map(len, encodings))
        assert [message[begin:end] for *_, begin, end, _ in found] == encodings
        for (span, time_us, *texts, _, _, _), each in zip(found, encodings, strict=True):
            one = notification_from_msgpack(each)
            assert message[span:].startswith(one.span)
            assert time_us == one.envelope.time_us
            told = [
                message[at : at + size] for at, size in zip(texts[::2], texts[1::2], strict=True)
            ]
            assert told == [one.envelope.id.encode(), one.envelope.publisher.encode()]
        items = [*(item for *_, item in found), len(message) - len(form.PUBLISH_TAIL)]
        pieces = [message[at:end] for at, end in pairwise(items)]
        assert [*map(msgpack.decode, pieces)] == encodings


@given(st.lists(usual, min_size=1, max_size=2), st.randoms(use_true_random=False))
def test_published_parts_are_refused_if_a_byte_is_another(
    encodings: list[bytes], chance: Random
) -> None:
    """A broker would read beyond the message, or take one that its reader refuses."""
    message = published(encodings)
    changed = bytearray(message)
    changed[chance.randrange(len(changed))] = chance.randrange(256)
    cuts = [message[:cut] for cut in range(0, len(message), 37)]
    for form in FORMS:
        assert [many(form, each) for each in (*cuts, message + b"\x00")] == [[]] * (len(cuts) + 1)
        found = many(form, bytes(changed))
        assert found == many(FORMS[0], bytes(changed))
        if found:
            read = decode_request(Raw(bytes(changed)))
            assert isinstance(read, Publish)
            taken = [bytes(changed[begin:end]) for *_, begin, end, _ in found]
            assert taken == [each.packed for each in read.notifications]


@pytest.mark.parametrize("form", FORMS)
def test_names_as_those_before_are_distinct_too(form: Any) -> None:
    """A notification with a repeated name, or one that is not valid, would pass behind another."""
    stamp = Envelope("p.1", "p", 1, NOW_US)
    one = to_msgpack(Notification({"aa": 1, "ab": 2, "ac": 3}, envelope=stamp))
    shorter = to_msgpack(Notification({"aa": 1, "ab": 2}, envelope=stamp))
    longer = to_msgpack(Notification({"aa": 1, "ab": 2, "ac": 3, "ad": 4}, envelope=stamp))
    good = [one, shorter, longer, one, shorter, longer, longer]
    assert len(many(form, published(good))) == len(good)
    for name in (b"aa", b"ab", b"a\x7f", b"@b"):
        other = one.replace(b"ac", name)
        assert many(form, published([one, other])) == []
        assert many(form, published([longer, longer.replace(b"ad", name)])) == []
        assert form.plain_entries([one, other], 0, good_names_and_marks, Notification, 0) != []
        assert len(form.plain_entries([one, other], 0, set(), Notification, 0)) == 1
    marked = to_msgpack(Notification.with_marks({"aa": 1}, ["T"], envelope=stamp))
    assert len(many(form, published([marked, marked]), {"@is.T"})) == 2
    assert many(form, published([marked, marked]), set()) == []


def test_an_array_of_too_many_has_no_parts() -> None:
    """A short message would make a broker allocate memory for notifications that are not there."""
    message = published([])
    for form in FORMS:
        for head in (b"\x9f", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff"):
            assert form.published_count(message.replace(b"\x90", head)) == 0


def test_the_collector_of_cycles_has_no_received_notifications() -> None:
    """Each collection would look at all notifications in queues, a tenth of a reader's time."""
    data = to_msgpack(Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    for form in FORMS:
        ((one, *_),) = form.plain_entries([data], 0, good_names_and_marks, Notification, 0)
        assert gc.is_tracked(one) is (form is not NATIVE)


def test_published_parts_have_crossed_no_link() -> None:
    """A neighbour's message would count as a client's."""
    encoding = to_msgpack(Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    other = Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US, priority=5))
    for form in FORMS:
        assert many(form, published([encoding] * 20)) != []
        assert many(form, bytes(encode_publish([encoding] * 20, hops=1))) == []
        assert many(form, bytes(encode_publish([encoding] * 20, source="north"))) == []
        assert many(form, published([encoding, to_msgpack(other)])) == []


def test_few_requested_have_crossed_no_link() -> None:
    """A neighbour's message would count as a client's."""
    encoding = to_msgpack(Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    other = Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US, priority=5))
    for form in FORMS:
        assert few(form, requested(published([encoding]))) is not None
        assert few(form, requested(bytes(encode_publish([encoding], hops=1)))) is None
        assert few(form, requested(bytes(encode_publish([encoding], source="north")))) is None
        assert few(form, requested(published([encoding, to_msgpack(other)]))) is None


def test_the_fields_of_a_request_are_read_with_the_few() -> None:
    """A publication would have another's answer, or a subscription's fields would be lost."""
    encoding = to_msgpack(Notification({"a": 1}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    message = published([encoding])
    for form in FORMS:
        for wait_ms in (-1, 0, 31, 60_000, 2**40, -(2**63)):
            assert few(form, requested(message, wait_ms=wait_ms, credit=wait_ms)) is not None
        assert few(form, requested(message, when_full="block")) is None
        assert few(form, msgpack.encode((NUMBER, Raw(message)))) is None
        assert few(form, msgpack.encode((NUMBER, Raw(message), 0, 0, "", "later"))) is None
        assert few(form, msgpack.encode((2**64 - 1, Raw(message), 0, 0, ""))) is None
