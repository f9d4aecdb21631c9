"""Batches of rows and spans, matched by one call without a notification for each row.

A batch is a table in columns, or spans of msgpack in sequence. Kernels read a column in Arrow's own
memory; NULL is absent. Unsupported columns (several values, rare types) are matched row by row. A
span is a map of checked attributes, as a notification's are encoded; kernels read it in place.

pyarrow is not imported here: a table is known by its methods.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, Final

import numpy as np

from contrada.errors import InvalidNotificationError
from contrada.matching.arrow_pack import starts_of
from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels.schema import COLUMN, KINDS, NEED_FOUND, OK, UNREADABLE
from contrada.matching.packed import EMPTY_SPAN
from contrada.model.domains.values import is_system_name

ROWS_AT_ONCE: Final = 256
"""Rows that are read together if one must be matched by itself."""

_TIME: Final = "timestamp[us, tz="

_NO_COLUMNS: Final[Any] = np.zeros(0, dtype=COLUMN)
_NO_STARTS: Final[Any] = np.zeros(1, dtype=np.int64)

_PADDING: Final = bytes(16)
"""Bytes behind the last span, so that a truncated header can be read."""


class Columns:
    """The columns of a table that filters ask for, in the form of kernels.

    `described` has a row per column; its addresses are valid as long as this object lives.
    """

    def __init__(self, rows: int, arrays: list[tuple[int, int, Any]]) -> None:
        self.rows = rows
        self.address, self.starts = 0, _NO_STARTS
        self.described = np.zeros(len(arrays), dtype=COLUMN)
        self._kept = [array for _, _, array in arrays]
        for i, (attr, kind, array) in enumerate(arrays):
            valid, *data = (0 if each is None else each.address for each in array.buffers())
            if array.null_count == 0:
                valid = 0
            self.described[i] = (attr, kind, valid, data[0], data[-1], array.offset)


class PackedBatch:
    """Spans of msgpack in sequence in memory, with the beginning of each in `starts`.

    The last number of `starts` is the end of the last one. `kept` owns the memory.
    """

    described = _NO_COLUMNS

    def __init__(self, address: int, starts: Any, kept: object) -> None:
        self.rows = len(starts) - 1
        self.address, self.starts = address, starts
        self._kept = kept


def spans_of(spans: Sequence[bytes]) -> PackedBatch:
    """Joins spans. Cost: a copy of them."""
    starts = starts_of(np.fromiter(map(len, spans), dtype=np.int64, count=len(spans)))
    joined = np.frombuffer(b"".join((*spans, _PADDING)), dtype=np.uint8)
    return PackedBatch(joined.ctypes.data, starts, joined)


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
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in attrs and not is_system_name(name):
            array = column
            if hasattr(column, "num_chunks"):
                array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
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
    seen: set[str] = set()
    for name in table.column_names:
        if name in seen:
            raise InvalidNotificationError(name, "a column", "another column has this name")
        seen.add(name)


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table, without NULL values. Raises InvalidNotificationError."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError) as error:
            raise InvalidNotificationError(name, str(column.type), str(error)) from error
    names = table.column_names
    for row in zip(*columns, strict=True) if columns else repeat((), table.num_rows):
        yield {n: value for n, value in zip(names, row, strict=True) if value is not None}


def select_columns(table: Any, names: Container[str]) -> Any:
    """Returns the columns of these names only: others are never checked."""
    return table.select([name for name in table.column_names if name in names])


def row_of(table: Any, names: Container[str]) -> Callable[[int], dict[str, Any]]:
    """Returns a function for rows of a table by number, of these names only.

    It reads some rows at once: those asked for are near each other.
    """
    table = select_columns(table, names)
    begin = 0
    rows: list[dict[str, Any]] = []

    def row(number: int) -> dict[str, Any]:
        nonlocal begin, rows
        if not begin <= number < begin + len(rows):
            begin, rows = number, list(rows_of(table.slice(number, ROWS_AT_ONCE)))
        return rows[number - begin]

    return row


def match_rows(
    arrays: Arrays, rows: Columns | PackedBatch, matched_row: Callable[[int], list[int]]
) -> tuple[Any, Any]:
    """Returns (offsets, results) for each row; `matched_row` matches one that needs the model."""
    offsets = np.zeros(rows.rows + 1, dtype=np.int64)
    found = np.zeros(4 * rows.rows + 64, dtype=np.int64)
    row = 0
    while row < rows.rows:
        status, row = arrays.match_rows(rows, row, offsets, found)
        if status == NEED_FOUND:
            arrays.prepare_repeat()
            found = np.concatenate([found, np.zeros_like(found)])
        elif status == UNREADABLE:
            numbers = matched_row(row)
            begin, end = offsets[row], offsets[row] + len(numbers)
            found = np.resize(found, max(len(found), 2 * end)) if end > len(found) else found
            found[begin:end] = numbers
            row += 1
            offsets[row] = end
        elif status != OK:
            arrays.grow_for(status)
    return offsets, found[: offsets[-1]]


def runs_of(offsets: Any, keys: Any) -> list[int]:
    """Returns the beginnings of runs of rows with the same keys, and the end of the last one."""
    counts = np.diff(offsets)
    is_new = counts[1:] != counts[:-1]
    if not len(keys):
        pass  # Nothing matches.
    elif not is_new.any():
        table = keys.reshape(len(counts), -1)
        is_new = (table[1:] != table[:-1]).any(axis=1)
    else:
        bounds, found = offsets.tolist(), keys.tolist()
        rows = [found[begin:end] for begin, end in pairwise(bounds)]
        is_new = np.fromiter((a != b for a, b in pairwise(rows)), dtype=bool, count=len(rows) - 1)
    return [0, *(np.flatnonzero(is_new) + 1).tolist(), len(counts)]


def join_rows(rows: Iterable[list[Any]], *, are_int: bool) -> tuple[Any, Any]:
    """Returns (offsets, keys) of rows that were matched one by one."""
    found = list(rows)
    offsets = starts_of(np.fromiter(map(len, found), dtype=np.int64, count=len(found)))
    kind: Any = np.int64 if are_int else object
    return offsets, np.fromiter(chain.from_iterable(found), dtype=kind, count=offsets[-1])
