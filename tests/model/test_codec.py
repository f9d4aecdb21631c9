"""Decoding: valid encodings, and the fate of operators that are unknown to the reader."""

import struct
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError
from contrada.model import Filter, codec
from contrada.model.algebra.value_set import ValueSet
from contrada.model.codec import (
    from_json,
    from_msgpack,
    notification_from_msgpack,
    notification_to_read,
    to_json,
    to_msgpack,
)
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from tests import strategies as some

filters = some.filters(some.value_sets(), some.names)


@pytest.mark.parametrize("size", [20, 21])
def test_json_is_bounded_in_bytes(size: int) -> None:
    """Text of other alphabets could be several times as large as the limit."""
    text = '"' + "é" * (size // 2 - 1) + "x" * (size % 2) + '"'
    assert len(text) < 20
    with mock.patch.object(codec, "ENCODING_BYTES_MAX", 20), pytest.raises(EncodingError) as caught:
        from_json(text)
    assert ("ENCODING_BYTES_MAX" in caught.value.reason) == (size > 20)


def test_a_surrogate_in_json_is_an_encoding_error() -> None:
    """A stranger's text would raise an error that nobody catches."""
    with pytest.raises(EncodingError, match="surrogate"):
        from_json('"\ud800"')


def test_unknown_operators_travel_by_msgpack_only() -> None:
    """Either a broker would change a forwarded filter, or the docstring would lie."""
    unknown = ValueSet((), Literal(Atom("frobs", b"x"), True))
    carried = Filter.of_sets({"a": unknown})
    assert from_msgpack(to_msgpack(carried)) == carried
    with pytest.raises(EncodingError, match="frobs"):
        from_json(to_json(carried))


@given(filters, st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=2)), max_size=3))
def test_plain_filters_are_read_as_all_are(of: Filter, changes: list[tuple[int, bytes]]) -> None:
    """A filter, or the fault in a stranger's bytes, would depend on the decoder."""
    data = to_msgpack(of)
    for place, put in changes:
        data = data[:place] + put + data[place + 1 :]
    with mock.patch.object(codec, "_FILTER_HEAD", b"never"):
        expected = outcome(data)
    for _ in range(2):  # Its cached form is as good.
        assert outcome(data) == expected


def test_repeated_names_stay_cached_beside_many_bounds() -> None:
    """A broker would hold each name as often as somebody asks for it."""

    def read(bound: int) -> ValueSet:
        found = from_msgpack(to_msgpack(Filter({"n": bound, "symbol": "DIS"})))
        assert isinstance(found, Filter)
        return found.sets["symbol"]

    first = read(0)
    for bound in range(codec.SETS_KEPT_MAX + 1):
        assert read(bound) is first


@pytest.mark.parametrize("text", ["n > 1", "s suffix 'x'"])
def test_names_of_attributes_are_held_once(text: str) -> None:
    """A broker would hold each name once per filter."""
    (value_set,) = Filter(text).sets.values()

    def read(number: int) -> str:
        found = from_msgpack(to_msgpack(Filter.of_sets({f"attribute {number}": value_set})))
        assert isinstance(found, Filter)
        (name,) = found.sets
        return name

    some = range(2_000)  # More than a decoder keeps.
    for one, other in zip([*map(read, some)], [*map(read, some)], strict=True):
        assert one is other


def outcome(data: bytes) -> tuple[str, object]:
    """The form of decoded bytes, or the reason of the refusal."""
    try:
        found = from_msgpack(data)
    except EncodingError as error:
        return "error", str(error)
    return str(found), to_msgpack(found)


def test_equal_sets_that_were_read_are_one_object() -> None:
    """A broker would hold every symbol once for each of its subscriptions."""
    read = [from_msgpack(to_msgpack(Filter(f"a = 'x' and b = {n}"))) for n in range(2)]
    first, second = (each.sides["a"] for each in read if isinstance(each, Filter))
    assert first is second


def test_repeated_keys_of_an_encoding_are_checked() -> None:
    """The first of two equal names would be ignored, whatever its value."""
    twice = to_msgpack(Filter("a = 1 and b = 2")).replace(b"\xa1b", b"\xa1a")
    broken = twice.replace(b"\x92\x04\x01", b"\xa2\xff\xff", 1)
    assert from_msgpack(twice) == Filter("a = 2")
    with pytest.raises(EncodingError):
        from_msgpack(broken)


MAP = {(1, 2): 3}
"""A key that is an array, as nobody writes it."""


@pytest.mark.parametrize(
    "encoded",
    [
        [MAP, "filter", {}],
        [1, MAP, {}],
        [1, "filter", {"a": MAP}],
        [1, "filter", {"a": [MAP, None]}],
        [1, "filter", {"a": [[MAP], None]}],
        [1, "filter", {"a": [[[MAP]], None]}],
        [1, "filter", {"a": [[[4, MAP]], None]}],
        [1, "filter", {"a": [[], MAP]}],
        [1, "filter", {"a": [[], ["is", MAP, b""]]}],
        [1, "filter", {"a": [[], ["not", "suffix", MAP]]}],
        [1, "filter", {"a": [[], ["every", MAP]]}],
        [1, "filter", {"a": [[], ["some", [MAP]]]}],
        [1, "filter", {"a": [[], ["some", [["pieces", [[6, MAP]]]]]]}],
        [1, "filter_set", MAP],
        [1, "filter_set", [{"a": MAP}]],
        [1, "advertisement", {"a": MAP}],
        [1, "query", {"a": MAP}],
        [1, "value_set", MAP],
        [1, "value_set", [[], MAP]],
        [1, "pattern", MAP],
        [1, "pattern", [[{}, {"a": MAP}], [], None, False]],
        [1, "pattern", [[{}, {}], MAP, None, False]],
        [1, "pattern", [[{}, {}], [MAP], None, False]],
        [1, "pattern", [[{}, {}], [], MAP, False]],
        [1, "pattern", [[{}, {}], [], None, MAP]],
    ],
)
def test_maps_are_refused_before_they_are_made(encoded: object) -> None:
    """Many keys that are arrays of one hash would take the square of their number, or minutes."""
    with pytest.raises(EncodingError, match=r"Expected .*, got `object`"):
        from_msgpack(msgspec.msgpack.encode(encoded))


@pytest.mark.parametrize(
    "encoded",
    [
        [1, "filter", MAP],
        [1, "filter_set", [MAP]],
        [1, "advertisement", MAP],
        [1, "query", MAP],
        [1, "pattern", [[{}, MAP], [], None, False]],
    ],
)
def test_keys_of_maps_are_names(encoded: object) -> None:
    """As above, of the maps that there are."""
    with pytest.raises(EncodingError, match=r"Expected `str`, got `array`"):
        from_msgpack(msgspec.msgpack.encode(encoded))


def test_errors_are_brief() -> None:
    """A stranger would have his own bytes sent back, and written into logs."""
    for encoded in ({"a": [[], ["x" * 10_000, 1]]}, {"x" * 10_000: [[], 1]}):
        with pytest.raises(EncodingError) as caught:
            from_msgpack(msgspec.msgpack.encode([1, "filter", encoded]))
        assert len(str(caught.value)) < 1_000


# --- notifications that are read at once ------------------------------------------------------

NOW_US = 1_700_000_000_000_000
LAST = b"\xc7\x0c\xff" + struct.pack(">Iq", 999_999_999, 253_402_300_799)
SPANS = {
    "one": b"\x81\xa1a\x01",
    "a long header": b"\xdf\0\0\0\x01\xdb\0\0\0\x01a\xd3" + bytes(8),
    "the largest": b"\x81\xa1a\xcf\x7f" + b"\xff" * 7,
    "too large": b"\x81\xa1a\xcf\x80" + bytes(7),
    "too large, and a text": b"\x82\xa1a\xcf\x80" + bytes(7) + b"\xa1b\xa2\xcf\x8f",
    "twice": b"\x82\xa1a\x01\xa1a\x01",
    "several": b"\x81\xa1a\x92\x01\xca" + struct.pack(">f", 1.5),
    "nested": b"\x81\xa1a" + b"\x91" * 1_900 + b"\x01",
    "after the last time": b"\x81\xa1a" + LAST,
    "no text": b"\x81\xa1a\xa1\xff",
    "an empty list": b"\x81\xa1a\x90",
    "an empty map": b"\x81\xa1a\x80",
    "no value": b"\x81\xa1a\xc1",
    "a mark": b"\x81\xa5@is.T\xc3",
    "of the system": b"\x81\xa3@id\x01",
}
TIMES = [b"\xcf" + struct.pack(">q", NOW_US), b"\xd3" + struct.pack(">q", NOW_US), b"\x05", b"\xff"]


def read(reader: Any, data: bytes) -> Any:
    """All decoded parts, or the reason of the refusal."""
    try:
        found = reader(data)
    except EncodingError as error:
        return str(error)
    return repr(found), found.span, hash(found), to_msgpack(found)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("time", TIMES, ids=bytes.hex)
@pytest.mark.parametrize("body", [b"\xc4\x00", b"\xc6\0\0\0\x02\xcf\xcf"], ids=bytes.hex)
def test_a_subscriber_decodes_as_a_broker(span: bytes, time: bytes, body: bytes) -> None:
    """A subscriber would get a notification that no broker accepts, or an unexpected error."""
    stamp = b"\x97\xa1i\xa1p\x01" + time + b"\xc0\x04\xabbest-effort"
    data = b"\x93\x01\xacnotification\x94" + span + stamp + body + b"\xa0"
    assert read(notification_to_read, data) == read(notification_from_msgpack, data)
