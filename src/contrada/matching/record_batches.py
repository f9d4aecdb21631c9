"""Batches of rows and spans, matched by one call without a notification for each row.

A batch is a table in columns, or spans of msgpack in sequence. Kernels read a column in Arrow's own
memory; NULL is absent. Unsupported columns (several values, rare types) are matched row by row. A
span is a map of checked attributes, as a notification's are encoded; kernels read it in place.

pyarrow is not imported here: a table is known by its methods.
"""

from array import array as ints
from collections.abc import Callable, Container, Iterator
from itertools import repeat
from typing import Any, Final

import numpy as np

from contrada.errors import InvalidNotificationError
from contrada.matching.kernels.memory import Rows, numbers
from contrada.matching.kernels.schema import COLUMN, KINDS
from contrada.matching.packed import EMPTY_SPAN, PackedBatch, spans_of
from contrada.model.domains.values import is_system_name

ROWS_AT_ONCE: Final = 256
"""Rows that are read together if one must be matched by itself."""

_TIME: Final = "timestamp[us, tz="


class Columns:
    """The columns of a table that filters ask for, in the form of kernels.

    `described` has a row per column; its addresses are valid as long as this object lives. `cells`
    is room for kernels.
    """

    def __init__(self, rows: int, arrays: list[tuple[int, int, Any]]) -> None:
        self.rows = rows
        self.address, self.starts = 0, numbers(1)
        self.cells = numbers(len(arrays) + 1)
        self._kept = [array for _, _, array in arrays]
        described: list[int] = []
        for attr, kind, array in arrays:
            buffers = array.buffers()
            valid = buffers[0] if array.null_count else None
            addresses = map(_address, (valid, buffers[1], buffers[-1]))
            described += (attr, kind, *addresses, array.offset)
        self.described = Rows(COLUMN, ints("q", described))


def _address(buffer: Any) -> int:
    return 0 if buffer is None else buffer.address


def spans_at(column: Any) -> PackedBatch:
    """Returns the spans of an Arrow column of binary values, uncopied; TypeError for another one.

    NULL is a notification without attributes.
    """
    wide = _offset_type(column)
    if hasattr(column, "num_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.null_count:
        column = column.fill_null(EMPTY_SPAN)
    _, starts, data = column.buffers()
    if len(column) == 0 or data is None or data.address == 0:
        return spans_of([b""] * len(column))
    begin, end = column.offset, column.offset + len(column) + 1
    return PackedBatch(data.address, np.frombuffer(starts, wide)[begin:end].astype(np.int64), data)


def _offset_type(column: Any) -> Any:
    kind = {"binary": np.int32, "large_binary": np.int64}.get(str(column.type))
    if kind is None:
        raise TypeError(f"spans are a column of binary values, not of {column.type}")
    return kind


def spans_in(column: Any) -> list[bytes]:
    """Returns the spans of an Arrow column. TypeError as `spans_at`."""
    _offset_type(column)
    return [EMPTY_SPAN if span is None else span for span in column.to_pylist()]


def span_in(column: Any, row: int) -> bytes:
    """Returns one span of an Arrow column."""
    return spans_in(column.slice(row, 1))[0]


def columns_of(table: Any, attrs: dict[str, int]) -> Columns | None:
    """Returns the columns that filters ask for; None if one must be matched row by row."""
    found = []
    if hasattr(table, "to_batches") and len(parts := table.to_batches()) == 1:
        (table,) = parts  # Its columns are arrays, in half the time of those of a table.
    for i, name in enumerate(table.schema.names):  # A table makes an object for each column.
        if name in attrs and not is_system_name(name):
            array = table.column(i)
            if hasattr(array, "num_chunks"):
                array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
            if hasattr(array, "dictionary_decode"):
                array = array.dictionary_decode()
            type_name = str(array.type)
            kind = KINDS.get("time" if type_name.startswith(_TIME) else type_name)
            if kind is None:
                return None
            found.append((attrs[name], kind, array))
    return Columns(table.num_rows, found)


def check_columns(table: Any) -> None:
    """Raises InvalidNotificationError for two columns of one name."""
    names = table.schema.names
    if len(set(names)) < len(names):
        name = next(each for each in names if names.count(each) > 1)
        raise InvalidNotificationError(name, "a column", "another column has this name")


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table, without NULL values. Raises InvalidNotificationError."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            columns.append([_text(each) for each in column.cast("large_binary").to_pylist()])
        except (OverflowError, ValueError) as error:
            raise InvalidNotificationError(name, str(column.type), str(error)) from error
    names = table.column_names
    for row in zip(*columns, strict=True) if columns else repeat((), table.num_rows):
        yield {n: value for n, value in zip(names, row, strict=True) if value is not None}


def _text(data: bytes | None) -> str | bytes | None:
    """Returns the text, or its bytes if they are no UTF-8."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data


def select_columns(table: Any, names: Container[str]) -> Any:
    """Returns the columns of these names only: others are never checked."""
    return table.select([name for name in table.schema.names if name in names])


def row_of(table: Any, names: Container[str]) -> Callable[[int], dict[str, Any]]:
    """Returns a function for rows of a table, with these names; it reads near rows together."""
    begin = 0
    rows: list[dict[str, Any]] = []

    def row(number: int) -> dict[str, Any]:
        nonlocal begin, rows
        if not begin <= number < begin + len(rows):
            some = select_columns(table.slice(number, ROWS_AT_ONCE), names)
            begin, rows = number, list(rows_of(some))
        return rows[number - begin]

    return row


def objects_at(objects: list[Any], places: Any) -> Any:
    """Returns an array of the objects at some places."""
    found = np.empty(len(places), dtype=object)
    found[:] = [objects[place] for place in places]
    return found


def as_integers(numbers: Any) -> Any:
    """Returns an array of integers of 64 bits as NumPy's, uncopied."""
    return np.frombuffer(numbers, dtype=np.int64) if len(numbers) else np.zeros(0, dtype=np.int64)
