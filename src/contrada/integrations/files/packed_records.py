"""`written_rows`: packs many records into whole notifications, from the columns of their values.

The results equal those of the functions for one record. A row is *odd* if a value fits no column
(null, several values, bytes, a text among numbers), or if it lacks the time of its envelope. Odd
rows are left to these functions.

As `contrada.integrations.files.value_columns`, this needs pyarrow.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contrada.errors import LimitError
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import plain_attributes, plain_value
from contrada.integrations.files.value_columns import Column, Missing
from contrada.matching.arrow_pack import Blobs, ColumnPiece, constant_piece, pack_rows
from contrada.model import Notification
from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.model.domains.values import time_us_of

COLUMN_BYTES_MAX: Final = 2**31 - 1
"""Bytes of the notifications of one Arrow batch. Beyond it: LimitError; use smaller batches."""

CONSTANTS_KEPT_MAX: Final = 16
"""Sources with cached constants. Beyond it: the least recently used are packed again."""

_encode: Final = msgspec.json.Encoder().encode
_AS_IT_IS: Final = frozenset((bool, int, str))
_NUMBERS: Final = frozenset((int, float))


class WrittenRows(NamedTuple):
    """Rows as columns; odd rows hold no valid data. `times_us` is None if the source sets no times;
    `attributes` are plain JSON.
    """

    is_odd: Any
    notifications: Any
    times_us: Any
    attributes: Any

    def select(self, rows: Any) -> "WrittenRows":
        """Returns some of the rows."""
        order = pa.array(rows)
        times = None if self.times_us is None else self.times_us[rows]
        notifications, attributes = self.notifications.take(order), self.attributes.take(order)
        return WrittenRows(self.is_odd[rows], notifications, times, attributes)


def can_write(names: Iterable[str], options: ReadOptions) -> bool:
    """Whether records of these attributes can be packed together."""
    most = len(set(names)) + len(options.add) + len(options.marks)
    return most <= ATTRIBUTES_MAX


def written_rows(columns: Mapping[str, Column], count: int, options: ReadOptions) -> WrittenRows:
    """Returns rows of columns as whole notifications. Requires `can_write`. Cost: some ten
    nanoseconds for each value, and more for each distinct one.
    """
    stamped = RowStamps(options, count)
    pieces: list[ColumnPiece] = []
    write: list[Any] = []
    for name, column in columns.items():
        piece, odd = column.piece(msgspec.msgpack.encode(name))
        if name in options.add:  # An added attribute replaces a column: its values become odd.
            odd |= piece.kinds != 0
        stamped.take(name, piece, odd)
        if name not in options.add:
            pieces.append(piece)
            write.append(column.each(_member_writer(name)))
    pieces += stamped.constants()
    return WrittenRows(
        stamped.is_odd,
        binary_of(pack_rows(count, pieces, stamped.times_us)),
        stamped.times_us,
        _objects([*write, *_shown_constants(options)], count),
    )


class RowStamps:
    """The time of each row, and the attributes that all rows share."""

    def __init__(self, options: ReadOptions, count: int) -> None:
        self._options, self._count = options, count
        self._odd = np.zeros(count, dtype=bool)
        self._lacks_time = np.zeros(count, dtype=bool)
        self.times_us: Any = None
        """The time of each row, None if the source sets none."""
        if options.time is not None:
            time = options.add.get(options.time)
            at_us = time_us_of(time) if isinstance(time, datetime) else None
            self.times_us = np.full(count, at_us or 0, dtype=np.int64)
            self._lacks_time[:] = at_us is None

    @property
    def is_odd(self) -> Any:
        """Whether each row is odd."""
        return self._odd | self._lacks_time

    def take(self, name: str, piece: ColumnPiece, odd: Any) -> None:
        """Adds the odd rows of a column, and its times if it is the time of the envelope."""
        self._odd |= odd
        if name == self._options.stamp:
            from contrada.matching.kernels.msgpack_writer import TIME

            self._lacks_time = piece.kinds != TIME
            if not self._lacks_time.all():
                self.times_us = piece.values

    def constants(self) -> list[ColumnPiece]:
        """Returns the added attributes and type marks of each row."""
        add, marks = self._options.add, self._options.marks
        if not add and not marks:
            return []
        packed = _split_span(Notification.with_marks(add, marks).span)
        return [constant_piece(self._count, name, value) for name, value in packed]


@lru_cache(CONSTANTS_KEPT_MAX)
def _split_span(span: bytes) -> tuple[tuple[str, bytes], ...]:
    held = msgspec.msgpack.decode(span, type=dict[str, msgspec.Raw])
    return tuple((name, bytes(value)) for name, value in held.items())


def _shown_constants(options: ReadOptions) -> list[Any]:
    write = plain_attributes(Notification.with_marks(options.add, options.marks))
    return [
        pa.scalar(f"{_encode(name).decode()}:{_encode(value).decode()}")
        for name, value in write.items()
    ]


def _member_writer(name: str) -> Callable[[Any], Iterable[str | None]]:
    """Returns a function that makes JSON members of values; None stands for no member."""
    before = f"{_encode(name).decode()}:"

    def write(value: Any) -> str | None:
        kind = type(value)
        if kind is Missing:
            return None
        if (kind is float and value - value == 0) or kind in _AS_IT_IS:
            return before + _encode(value).decode()
        return before + _encode(plain_value(value)).decode()

    def write_all(values: Any) -> Iterable[str | None]:
        if isinstance(values, np.ndarray):
            return [f'{before}"{each}Z"' for each in _iso_texts(values)]
        if values and set(map(type, values)) <= _NUMBERS and all(map(isfinite, values)):
            # No number contains a comma, so all can be encoded at once.
            return [before + each for each in _encode(values).decode()[1:-1].split(",")]
        return map(write, values)

    return write_all


def _iso_texts(times: Any) -> list[str]:
    """Returns times in ISO 8601, with parts of a second only if they are not 0."""
    seconds = times.astype("datetime64[s]")
    has_parts = seconds != times
    found: list[str] = np.datetime_as_string(seconds).tolist()
    for row in np.flatnonzero(has_parts).tolist():
        found[row] = str(np.datetime_as_string(times[row]))
    return found


def _objects(members: list[Any], count: int) -> Any:
    """Returns JSON objects as a column, from columns of members; NULL members are omitted."""
    if not members:
        return pa.repeat("{}", count)
    arrays = [each if isinstance(each, pa.Array) else pa.repeat(each, count) for each in members]
    # Where all are NULL Arrow's join leaves the row out.
    nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in arrays]
    is_empty = np.logical_and.reduce(nulls)
    arrays[0] = pc.if_else(pa.array(is_empty), "", arrays[0])
    inside = pc.binary_join_element_wise(*arrays, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", inside, "}", "")


def binary_of(blobs: Blobs) -> Any:
    """Returns byte strings as an Arrow column, without a copy. Raises LimitError."""
    starts, data = blobs
    size = int(starts[-1] - starts[0])
    if size > COLUMN_BYTES_MAX:
        raise LimitError("COLUMN_BYTES_MAX", COLUMN_BYTES_MAX, size)
    offsets = pa.py_buffer((starts - starts[0]).astype(np.int32))
    held = pa.py_buffer(data[starts[0] : starts[-1]])
    return pa.Array.from_buffers(pa.binary(), blobs.size, [None, offsets, held])
