"""Encoded filters, many at once: the same as added one by one, or left to the codec."""

from array import array
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, EncodingError, InvalidFilterError
from contrada.model.codec import from_msgpack, to_msgpack
from contrada.model.domains.values import TIME_MIN_US
from tests import strategies
from tests.matching.engines import COMPILED, arrays_of, loaded_index, module, new_index

PLAIN = (
    "a = 1",
    "a = 1.5 and b > -2.25 and b < 7",
    "a = true and b = false and c = nan and d = null",
    "a > 3 and b <= 9007199254740990",
    "a >= @2026-01-01T00:00:00Z and b < @2026-01-01T00:00:00Z",
    "a = @9999-12-31T23:59:59.999999Z",
    'a = "text" and b = "Ümläut" and c = 0',
    'a = "text" and b = "text"',
    'a = "x"',
    f"{'n' * 31} = 1 and {'n' * 32} = 'x' and {'n' * 33} = 3",
)
UNPLAIN = (
    "a != 1",
    "a = 9007199254740993",
    "a >= 9007199254740992",
    'a = ""',
    'a prefix "x"',
    'a contains "x"',
    "a in (1, 3)",
    "@id = 'x'",
    "new = 1",
    "not a exists",
)


def packed(*texts: str) -> list[bytes]:
    return [to_msgpack(ct.Filter(text)) for text in texts]


def first_unread(encodings: list[bytes], compiled: bool) -> int:
    """The number of filters that the kernel reads before the codec must."""
    segment = module("segment", compiled).IndexSegment()
    for name in ("a", "b", "c", "d", "@id", *("n" * size for size in (31, 32, 33))):
        segment.compiler.attr(name)
    rows = module("packed", compiled).spans_of(encodings)
    return segment.read(rows, array("q", range(len(encodings))), 0)  # type: ignore[no-any-return]


@pytest.mark.parametrize("compiled", COMPILED)
def test_plain_filters_are_read_without_the_codec(compiled: Any) -> None:
    """A million filters would take a minute, and an object each."""
    assert first_unread(packed(*PLAIN), compiled) == len(PLAIN)


@pytest.mark.parametrize("text", UNPLAIN)
@pytest.mark.parametrize("compiled", COMPILED)
def test_other_filters_are_left_to_the_codec(compiled: Any, text: str) -> None:
    """A filter would be another one, or one that nothing checked."""
    assert first_unread(packed("a = 1", text, "a = 2"), compiled) == 1


@pytest.mark.parametrize(
    "sets",
    [
        {"b": [[[4, 1], [4, 2]], None], "a": [[[4, 1], [4, 2]], None]},  # names out of order
        {"a": [[[4, 2], [4, 1]], None]},
        {"a": [[[4, 1], [4, 1]], None]},
        {"a": [[[4, float("nan")], [4, 1]], None]},
        {"a": [[[4, float("-inf")], [4, 1]], None]},
        {"a": [[[4, True], [4, 2]], None]},
        {"a": [[[2, False], [3]], None]},
        {"a": [[[2, 1], [3]], None]},
        {"a": [[[3, 0], [4]], None]},
        {"a": [[[4], [4]], None]},
        {"a": [[[4, 1], [6]], None]},
        {"a": [[[5, 1.5], [6]], None]},
        {"a": [[[5, 2**60], [6]], None]},
        {"a": [[[5, TIME_MIN_US], [6]], None]},
        {"a": [[[6, b""], [6, b"\0"]], None]},
        {"a": [[[6, b"x" * 4_097], [6, b"x" * 4_097 + b"\0"]], None]},
        {"@id": [[[4, 1], [4, 2]], None]},
        {"a": [[[6, b"b"], [6, b"c\0"]], None]},
        {"a": [[[6, "b"], [6, "b\0"]], None]},
        {"a": [[[6, b"b"], [6, b"b\1"]], None]},
        {"a": [[[7], [8]], None]},
        {"a": [[[0], [1]], None]},
        {"a": [[[4, 1]], None]},
        {"a": [[], None]},
        {"a": [[[4, 1], [4, 2]], ["is", "prefix", b"a"]]},
        {"\0": [[[4, 1], [4, 2]], None]},
    ],
)
@pytest.mark.parametrize("compiled", COMPILED)
def test_unusual_encodings_are_left_to_the_codec(compiled: Any, sets: Any) -> None:
    """An invalid filter would be taken, or a valid one in a form that nothing equals."""
    encoding = msgspec.msgpack.encode([1, "filter", sets])
    assert first_unread([encoding], compiled) == 0


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_repeated_name_is_left_to_the_codec(compiled: Any) -> None:
    """A filter would have two constraints of one attribute, and equal none that is added alone."""
    head, one = b"\x93\x01\xa6filter", b"\xa1a" + msgspec.msgpack.encode([[[4, 1], [4, 2]], None])
    assert first_unread([head + b"\x81" + one, head + b"\x82" + one + one], compiled) == 1


@given(
    subscriptions=st.lists(
        st.one_of(strategies.filters(), strategies.filter_sets(), st.sampled_from(PLAIN)),
        max_size=12,
    ),
    keys=st.one_of(
        st.just(range(100)), st.lists(st.integers(0, 9) | st.text(max_size=1), min_size=12)
    ),
    notifications=st.lists(strategies.notifications(), max_size=4),
    before=st.integers(0, 12),
)
@pytest.mark.parametrize("compiled", COMPILED)
def test_encoded_filters_are_those_added_one_by_one(
    compiled: Any, subscriptions: Any, keys: Any, notifications: Any, before: int
) -> None:
    """Keys would have other filters, or matches be missed, after one call for many."""
    filters = [ct.Filter(each) if isinstance(each, str) else each for each in subscriptions]
    keys = keys[: len(filters)]
    one_by_one, together = new_index(compiled), new_index(compiled)
    for key, each in zip(keys, filters, strict=True):
        one_by_one.add(key, each)
    for part in (slice(before), slice(before, None)):
        together.add_encoded(keys[part], [to_msgpack(each) for each in filters[part]])
    together.validate()
    assert dict(together) == dict(one_by_one)
    for each in notifications:
        assert set(together.match(each)) == set(one_by_one.match(each))
    for key in dict.fromkeys(keys):
        together.remove(key)
    together.validate()
    assert len(together) == 0


@given(
    of=st.one_of(strategies.filters(), st.sampled_from(PLAIN).map(ct.Filter)),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    size=st.integers(0, 200),
)
@pytest.mark.parametrize("compiled", COMPILED)
def test_changed_bytes_are_as_the_codec_reads_them(
    compiled: Any, of: Any, changes: Any, size: int
) -> None:
    """A damaged or hostile encoding would be another filter than the codec's."""
    encoding = bytearray(to_msgpack(of))
    for place, byte in changes:
        encoding[place % len(encoding)] = byte
    data = bytes(encoding[: max(size, 9)] if size < 20 else encoding)
    index = new_index(compiled)
    index.add("known", of)
    check_read(index, data)
    index.validate()


def check_read(index: Any, data: bytes) -> None:
    """Asserts that an index with the key "known" adds a filter as the codec reads it."""
    try:
        expected = from_msgpack(data)
    except ContradaError as error:
        with pytest.raises(type(error)):
            index.add_encoded(["new"], [data])
        assert list(index) == ["known"]
    else:
        if isinstance(expected, ct.Filter | ct.FilterSet):
            index.add_encoded(["new"], [data])
            assert index["new"] == expected or expected.unknown()
            index.remove("new")


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("compiled", COMPILED)
def test_each_cut_and_each_byte_is_as_the_codec_reads_it(compiled: Any, text: str) -> None:
    """A length or a sign at its end would be read as another, or bytes behind the end be read."""
    (encoding,) = packed(text)
    index = new_index(compiled)
    index.add("known", ct.Filter(text))
    for place in range(len(encoding)):
        check_read(index, encoding[:place])
        for byte in (encoding[place] - 1, encoding[place] + 1, 0x91, 0xC4):
            check_read(index, encoding[:place] + bytes((byte % 256,)) + encoding[place + 1 :])
    index.validate()
    check_read(index, encoding)


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_before_an_invalid_one_are_added(compiled: Any) -> None:
    """Callers would not know which subscriptions are there."""
    index = new_index(compiled)
    with pytest.raises(EncodingError):
        index.add_encoded(range(4), [*packed("a = 1", "a = 2"), b"\x93", *packed("a = 3")])
    with pytest.raises(InvalidFilterError):
        index.add_encoded([7], [to_msgpack(ct.Notification({"a": 1}))])
    with pytest.raises(ValueError, match="1 keys for 2"):
        index.add_encoded([7], packed("a = 1", "a = 2"))
    index.validate()
    assert list(index) == [0, 1]
    assert index.match({"a": 2}) == [1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_keys_of_equal_filters_are_all_found(compiled: Any, tmp_path: Path) -> None:
    """Of several keys with one filter some would be lost, also after removals and in a file."""
    index = new_index(compiled)
    index.add(100, ct.FilterSet(["a = 1", "b = 7"]))
    index.add_encoded(range(5), packed(*["a = 1"] * 5))
    index.add_encoded(range(5, 8), packed("a = 1", 'b = "x"', 'b = "x"'))
    index.validate()
    assert sorted(index.match({"a": 1})) == [*range(6), 100]
    index.remove(100)
    index.remove(3)
    index.save(tmp_path / "index")
    again = loaded_index(tmp_path / "index", compiled)
    for each in (index, again):
        each.add_encoded(range(20, 22), packed('b = "x"', "b = 3"))
        each.validate()
        assert sorted(each.match({"a": 1})) == [0, 1, 2, 4, 5]
        assert sorted(each.match({"b": "x"})) == [6, 7, 20]


@pytest.mark.parametrize("compiled", COMPILED)
def test_many_filters_have_rooms_of_their_size(compiled: Any) -> None:
    """Half of the entries would be empty; or a later filter would be written over another's."""
    count = 600 if compiled else 90
    index = new_index(compiled)
    index.add("first", ct.Filter({"a": 99, "b": 2}))
    later = [ct.Filter({"a": n % 7, "b": ct.ops.between(n, n + count)}) for n in range(count)]
    index.add_encoded(range(count), [to_msgpack(each) for each in later])
    segment = arrays_of(index)._segment
    index.validate()
    assert segment.arrays.used["entries"] <= count + 3
    for n in range(40):
        index.add(count + n, ct.Filter({"a": n, "b": n % 3}))
        index.add_encoded([2 * count + n], [to_msgpack(ct.Filter({"a": n % 7, "c": n}))])
    index.validate()
    for n in range(count):
        assert n in index.match({"a": n % 7, "b": n})


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_first_of_many_is_assigned_as_the_last(compiled: Any) -> None:
    """The first filters would be assigned to a constant that all of them have."""
    index = new_index(compiled)
    index.add("first", ct.Filter({"a": 99, "b": 99}))
    index.add_encoded(range(50), packed(*(f"a = 1 and b = {n}" for n in range(50))))
    index.match({"a": 1})
    assert arrays_of(index)._segment.arrays.counters.looked[0] == 0


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_that_are_replaced_in_the_same_call_are_gone(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed filter would be assigned, and match under the next key of its slot."""
    monkeypatch.setattr(module("array_engine", compiled), "ENCODINGS_AT_ONCE", 2)
    index = new_index(compiled)
    index.add("first", ct.Filter({"a": 99}))
    index.add_encoded([1, 2, 1, 3], packed("a = 1", "a = 2", "a = 3", "a = 4"))
    index.validate()
    assert [index.match({"a": n}) for n in range(1, 5)] == [[], [2], [1], [3]]


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_that_are_read_after_the_end_of_a_renewal_are_found(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters of the new segment would get no places: their numbers are below those of the old."""
    monkeypatch.setattr(module("array_engine", compiled), "ENCODINGS_AT_ONCE", 20)
    index = new_index(compiled)
    for n in range(100):
        index.add(n, ct.Filter({"a": n}))
    for n in range(40, 100):
        index.remove(n)
    index.begin_renewal()
    index.add_encoded(range(20, 120), packed(*(f"a = {n}" for n in range(20, 120))))
    assert not index.statistics().renewing
    index.validate()
    assert [index.match({"a": n}) for n in range(120)] == [[n] for n in range(120)]


@pytest.mark.parametrize("compiled", COMPILED)
def test_ranges_added_together_may_crowd_a_tree(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ranges would all be in the last bin, and none would be moved to others."""
    monkeypatch.setattr(module("assignment", compiled), "CUT_AT", (64, 90))
    index = new_index(compiled)
    index.add("first", ct.Filter("a < 1"))
    for first, end in ((0, 100), (100, 300)):
        ranges = [ct.Filter({"a": ct.ops.between(n, n + 1)}) for n in range(first, end)]
        index.add_encoded(range(first, end), [to_msgpack(each) for each in ranges])
        assert not arrays_of(index)._segment.assignment.moving
        index.match({"a": end - 10})
        assert arrays_of(index)._segment.arrays.counters.looked[0] < 30


@pytest.mark.parametrize("compiled", COMPILED)
def test_ranges_added_together_get_bins(compiled: Any) -> None:
    """Each notification with the attribute would be checked against all of the ranges."""
    index = new_index(compiled)
    filters = [ct.Filter({"a": ct.ops.between(n, n + 1)}) for n in range(200)]
    index.add_encoded(range(200), [to_msgpack(each) for each in filters])
    index.validate()
    assert sorted(index.match({"a": 50})) == [49, 50]
    assert index.statistics().candidates < 30
    assert arrays_of(index)._segment.arrays.counters.looked[0] < 60


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_column_of_encodings_is_read_in_place(compiled: Any) -> None:
    """A partition of Spark would be copied row by row, or rows of a slice be mixed up."""
    index = new_index(compiled)
    texts = [f"a = {n} and b < {n / 3 + 1}" for n in range(50)] + ["a != 7"]
    column = pa.chunked_array([packed(*texts[:20]), packed(*texts[20:])], pa.binary())
    index.add_encoded(range(3, 51), column.slice(3))
    index.validate()
    assert all(index[n] == ct.Filter(texts[n]) for n in range(3, 51))
    with pytest.raises(EncodingError):
        index.add_encoded([99], pa.array([None], pa.binary()))


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_added_during_a_renewal_are_kept(compiled: Any) -> None:
    """Filters that only the replaced segment has would be lost with it."""
    index = new_index(compiled)
    index.add_encoded(range(30), packed(*(f"a = {n}" for n in range(30))))
    index.begin_renewal()
    index.maintain(5)
    index.add_encoded(range(30, 40), packed(*(f"a = {n}" for n in range(30, 40))))
    while index.maintain(5):
        pass
    index.validate()
    assert all(index.match({"a": n}) == [n] for n in range(40))
