"""Byte strings one behind another; and columns as msgpack, as notifications of the same rows."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from contrada.matching.arrow_pack import (
    blobs_in,
    blobs_of,
    constant_piece,
    join_blobs,
    pack_rows,
    pieces_of,
    write_maps,
)
from contrada.model import Envelope, Notification
from contrada.model.codec import to_msgpack
from contrada.model.domains.values import (
    INT_MAX,
    INT_MIN,
    TIME_MAX_US,
    TIME_MIN_US,
    key_of,
    value_of,
)

STRINGS = st.lists(st.sampled_from((b"", b"a", b"b", b"ab", b"a" * 300)) | st.binary(), max_size=30)
EDGES = [edge + by for edge in (0, 31, 32, 128, 256, 2**15, 2**16, 2**31, 2**32) for by in (-1, 0)]
INTS = st.one_of(st.integers(INT_MIN, INT_MAX), st.sampled_from([*EDGES, *(-e for e in EDGES)]))
TIMES = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**34 - 1, 2**34]).map(
        lambda seconds: datetime.fromtimestamp(seconds, UTC)
    ),
)
MOMENTS = st.integers(TIME_MIN_US, TIME_MAX_US)
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from([31, 32, 255, 256, 65536]).map("x".__mul__))
FLOATS = st.one_of(st.floats(), st.sampled_from((-0.0, 2.0**63, -(2.0**63), 1e300, 3.0)))
NAMES = ("i", "f", "b", "é" * 20, "t")
ROW = st.fixed_dictionaries(
    {
        "i": st.none() | INTS,
        "f": st.none() | FLOATS,
        "b": st.none() | st.booleans(),
        "é" * 20: st.none() | TEXTS,
        "t": st.none() | TIMES,
    }
)
TYPES = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "t": pa.timestamp("us", "UTC")}


def table_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows, which begin somewhere within their columns."""
    fields = [(name, TYPES.get(name, pa.string())) for name in NAMES]
    batch = pa.RecordBatch.from_pylist([rows[0], *rows], pa.schema(fields))
    return batch.slice(1)


def without_null(row: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a row, in the order of the columns."""
    return {name: row[name] for name in NAMES if row[name] is not None}


@given(st.lists(ROW, min_size=1, max_size=6))
def test_columns_are_written_as_notifications_are(rows: list[dict[str, Any]]) -> None:
    """Notifications of columns would be other ones, in another order, or no msgpack."""
    table = table_of(rows)
    blobs = write_maps(len(rows), pieces_of(table.schema.names, table.columns))
    assert list(blobs.each()) == [Notification(without_null(row)).span for row in rows]


@given(st.lists(ROW, min_size=1, max_size=6))
def test_equal_values_are_written_alike(rows: list[dict[str, Any]]) -> None:
    """1 and 1.0, 0.0 and -0.0, NaN and NaN would be values of different groups."""
    table = table_of(rows)
    found = write_maps(len(rows), pieces_of(table.schema.names, table.columns, plain=True))
    for blob, row in zip(found.each(), rows, strict=True):
        plain = {name: value_of(key_of(value)) for name, value in without_null(row).items()}
        assert blob == msgspec.msgpack.encode(plain)


def test_other_integers_and_floats_are_widened() -> None:
    """A column of a narrow type would be read past its end."""
    columns = [pa.array([1, -7], pa.int8()), pa.array([0.5, 0.1], pa.float32())]
    found = write_maps(2, pieces_of(["i", "f"], columns))
    exact = [{"i": 1, "f": 0.5}, {"i": -7, "f": float(np.float32(0.1))}]
    assert list(found.each()) == [msgspec.msgpack.encode(each) for each in exact]


def test_many_columns_have_a_longer_head() -> None:
    """From sixteen attributes on the map would have a wrong head."""
    for count in (15, 16, 300):
        columns = [pa.array([number, None]) for number in range(count)]
        names = [str(number) for number in range(count)]
        first, second = write_maps(2, pieces_of(names, columns)).each()
        assert first == msgspec.msgpack.encode({name: int(name) for name in names})
        assert second == b"\x80"


def test_types_that_are_not_plain_are_left_to_others() -> None:
    """The items of a list would be read as something else."""
    for column in (pa.array([[1]]), pa.array([b"x"]), pa.array([0], pa.timestamp("us"))):
        assert pieces_of(["a"], [column]) is None


@given(STRINGS, st.data())
def test_rows_are_taken_in_their_order(strings: list[bytes], data: st.DataObject) -> None:
    """A match would get the notifications of others."""
    blobs = blobs_of(strings)
    assert list(blobs.each()) == strings
    rows = data.draw(st.lists(st.integers(0, len(strings) - 1))) if strings else []
    taken = blobs.select(np.array(rows, dtype=np.int64))
    assert list(taken.each()) == [strings[row] for row in rows]
    assert [blobs.at(row) for row in rows] == [strings[row] for row in rows]


@given(STRINGS, STRINGS)
def test_joined_blobs_are_in_sequence(first: list[bytes], second: list[bytes]) -> None:
    """Held and new strings would be mixed."""
    assert (
        list(join_blobs([blobs_of(first), blobs_of([]), blobs_of(second)]).each()) == first + second
    )


@given(STRINGS)
def test_equal_strings_have_one_number(strings: list[bytes]) -> None:
    """Two groups would be one, or one group two."""
    codes, firsts = blobs_of(strings).codes()
    known = {each: number for number, each in enumerate(dict.fromkeys(strings))}
    assert codes.tolist() == [known[each] for each in strings]
    assert [strings[row] for row in firsts] == list(known)


@given(STRINGS, st.integers(1, 7))
def test_a_string_falls_to_one_part(strings: list[bytes], count: int) -> None:
    """A group would be followed in two places, each with half of it."""
    parts = blobs_of(strings).parts(count).tolist()
    assert all(0 <= part < count for part in parts)
    again = blobs_of([*strings, b"other"]).parts(count).tolist()
    assert again[:-1] == parts


def test_parts_are_the_same_in_every_process() -> None:
    """Saved state would belong to other parts when a stream continues."""
    assert blobs_of([b"", b"a", b"host-1", b"host-2"]).parts(5).tolist() == [2, 1, 4, 1]


def test_parts_are_about_equal() -> None:
    """Groups that differ little would fall to one part."""
    parts = blobs_of([b"host-%d" % number for number in range(10_000)]).parts(8)
    assert np.bincount(parts).min() > 1_000


@given(STRINGS, st.integers(0, 3))
def test_arrow_columns_are_read_where_they_lie(strings: list[bytes], begin: int) -> None:
    """A column that is a part of another would be read from its beginning."""
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([None, *strings], kind).slice(min(begin, len(strings)))
        assert list(blobs_in(column).each()) == [each or b"" for each in column.to_pylist()]


@given(st.lists(MOMENTS, min_size=1, max_size=9), st.booleans() | INTS | TEXTS, st.booleans())
def test_rows_are_whole_notifications(times: list[int], value: Any, has_times: bool) -> None:
    """A broker would read another time, or refuse the rows of a file."""
    piece = constant_piece(len(times), "é", msgspec.msgpack.encode(value))
    packed = pack_rows(len(times), [piece], np.array(times) if has_times else None)
    envelopes = [Envelope(time_us=time if has_times else None) for time in times]
    assert [*packed.each()] == [
        to_msgpack(Notification({"é": value}, envelope=each)) for each in envelopes
    ]
