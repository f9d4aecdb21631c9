"""What encodings are read, and what becomes of operators that are unknown where they are read."""

from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError
from contrada.model import Filter, encoding
from contrada.model.algebra.valueset import ValueSet
from contrada.model.encoding import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from tests import strategies as some

filters = some.filters(some.value_sets(), some.names)


@pytest.mark.parametrize("size", [20, 21])
def test_json_is_bounded_in_bytes(size: int) -> None:
    """Text of other alphabets could be several times as large as the limit."""
    text = '"' + "é" * (size // 2 - 1) + "x" * (size % 2) + '"'
    assert len(text) < 20
    with (
        mock.patch.object(encoding, "ENCODING_BYTES_MAX", 20),
        pytest.raises(EncodingError) as caught,
    ):
        from_json(text)
    assert ("ENCODING_BYTES_MAX" in caught.value.reason) == (size > 20)


def test_a_surrogate_in_json_is_an_encoding_error() -> None:
    """A stranger's text would raise what nobody catches."""
    with pytest.raises(EncodingError, match="surrogate"):
        from_json('"\ud800"')


def test_unknown_operators_travel_by_msgpack_only() -> None:
    """Either a broker would change what it only carries, or the docstring would lie."""
    unknown = ValueSet((), Literal(Atom("frobs", b"x"), True))
    carried = Filter.of_sets({"a": unknown})
    assert from_msgpack(to_msgpack(carried)) == carried
    with pytest.raises(EncodingError, match="frobs"):
        from_json(to_json(carried))


@given(filters, st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=2)), max_size=3))
def test_plain_filters_are_read_as_all_are(of: Filter, changes: list[tuple[int, bytes]]) -> None:
    """A filter, or what is wrong with a stranger's bytes, would depend on how they are read."""
    data = to_msgpack(of)
    for place, put in changes:
        data = data[:place] + put + data[place + 1 :]
    with mock.patch.object(encoding, "_FILTER_HEAD", b"never"):
        expected = outcome(data)
    for _ in range(2):  # What was kept of it is as good.
        assert outcome(data) == expected


def outcome(data: bytes) -> tuple[str, object]:
    """What bytes encode, to the form, or why they encode nothing."""
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


def test_what_stands_twice_in_an_encoding_is_looked_at() -> None:
    """What stands first would be passed over, whatever it is."""
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


def test_what_is_wrong_is_told_briefly() -> None:
    """A stranger would have his own bytes sent back, and written into logs."""
    for encoded in ({"a": [[], ["x" * 10_000, 1]]}, {"x" * 10_000: [[], 1]}):
        with pytest.raises(EncodingError) as caught:
            from_msgpack(msgspec.msgpack.encode([1, "filter", encoded]))
        assert len(str(caught.value)) < 1_000
