"""Columns as msgpack: byte for byte what notifications of the same rows are written as."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.matching.kernels import jit
from contrada.matching.packing import pieces_of, written
from contrada.model import Notification
from contrada.model.domains.values import INT_MAX, INT_MIN, key_of, value_of

pytestmark = pytest.mark.skipif(jit.is_pure(), reason="columns are written by compiled kernels")

EDGES = [edge + by for edge in (0, 31, 32, 128, 256, 2**15, 2**16, 2**31, 2**32) for by in (-1, 0)]
INTS = st.one_of(st.integers(INT_MIN, INT_MAX), st.sampled_from([*EDGES, *(-e for e in EDGES)]))
TIMES = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**34 - 1, 2**34]).map(
        lambda seconds: datetime.fromtimestamp(seconds, UTC)
    ),
)
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
    blobs = written(len(rows), pieces_of(table.schema.names, table.columns))
    assert list(blobs.each()) == [Notification(without_null(row)).span for row in rows]


@given(st.lists(ROW, min_size=1, max_size=6))
def test_equal_values_are_written_alike(rows: list[dict[str, Any]]) -> None:
    """1 and 1.0, 0.0 and -0.0, NaN and NaN would be values of different groups."""
    table = table_of(rows)
    found = written(len(rows), pieces_of(table.schema.names, table.columns, plain=True))
    for blob, row in zip(found.each(), rows, strict=True):
        plain = {name: value_of(key_of(value)) for name, value in without_null(row).items()}
        assert blob == msgspec.msgpack.encode(plain)


def test_other_integers_and_floats_are_widened() -> None:
    """A column of a narrow type would be read past its end."""
    columns = [pa.array([1, -7], pa.int8()), pa.array([0.5, 0.1], pa.float32())]
    found = written(2, pieces_of(["i", "f"], columns))
    exact = [{"i": 1, "f": 0.5}, {"i": -7, "f": float(np.float32(0.1))}]
    assert list(found.each()) == [msgspec.msgpack.encode(each) for each in exact]


def test_many_columns_have_a_longer_head() -> None:
    """From sixteen attributes on the map would have a wrong head."""
    for count in (15, 16, 300):
        columns = [pa.array([number, None]) for number in range(count)]
        names = [str(number) for number in range(count)]
        first, second = written(2, pieces_of(names, columns)).each()
        assert first == msgspec.msgpack.encode({name: int(name) for name in names})
        assert second == b"\x80"


def test_types_that_are_not_plain_are_left_to_others() -> None:
    """What a list holds would be read as something else."""
    for column in (pa.array([[1]]), pa.array([b"x"]), pa.array([0], pa.timestamp("us"))):
        assert pieces_of(["a"], [column]) is None
