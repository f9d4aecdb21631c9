"""Whole tables in columns, matched without making a notification of each row.

Kernels read a column where Arrow has it in memory; NULL is absent. What they cannot read there
(several values, types that are rarer) is left to matching row by row.

pyarrow is not imported here: a table is known by its methods.
"""

from collections.abc import Callable, Container, Iterator
from itertools import repeat
from typing import Any, Final

import numpy as np

from contrada.errors import InvalidNotificationError
from contrada.matching import tables
from contrada.matching.arrays import Arrays, grow_for
from contrada.matching.tables import COLUMN_COLUMNS, NEED_FOUND, OK, UNREADABLE

_KINDS: Final = {
    "bool": tables.KIND_BOOL,
    "int8": tables.KIND_INT8,
    "int16": tables.KIND_INT16,
    "int32": tables.KIND_INT32,
    "int64": tables.KIND_INT64,
    "uint8": tables.KIND_UINT8,
    "uint16": tables.KIND_UINT16,
    "uint32": tables.KIND_UINT32,
    "float": tables.KIND_FLOAT,
    "double": tables.KIND_DOUBLE,
    "string": tables.KIND_TEXT,
    "binary": tables.KIND_TEXT,
    "large_string": tables.KIND_LARGE_TEXT,
    "large_binary": tables.KIND_LARGE_TEXT,
}
ROWS_AT_ONCE: Final = 256
"""Rows that are read at once where one must be matched by itself."""

_TIME: Final = "timestamp[us, tz="


class Columns:
    """The columns of a table that filters ask for, as kernels want them.

    `described` has a row per column; its addresses are good as long as this is kept.
    """

    def __init__(self, rows: int, arrays: list[tuple[int, int, Any]]) -> None:
        self.rows = rows
        self.described = np.zeros((len(arrays), COLUMN_COLUMNS), dtype=np.int64)
        self._kept = [array for _, _, array in arrays]
        for i, (attr, kind, array) in enumerate(arrays):
            valid, *data = (0 if each is None else each.address for each in array.buffers())
            if array.null_count == 0:
                valid = 0
            self.described[i] = (attr, kind, valid, data[0], data[-1], array.offset)


def columns_of(table: Any, attrs: dict[str, int]) -> Columns | None:
    """The columns that filters ask for; None where one must be taken row by row."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in attrs and name[:1] != "@":
            array = column
            if hasattr(column, "num_chunks"):
                array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            if hasattr(array, "dictionary_decode"):
                array = array.dictionary_decode()
            type_name = str(array.type)
            is_time = type_name.startswith(_TIME)
            kind = tables.KIND_TIME if is_time else _KINDS.get(type_name)
            if kind is None:
                return None
            found.append((attrs[name], kind, array))
    return Columns(table.num_rows, found)


def check_columns(table: Any) -> None:
    """Raises InvalidNotificationError where two columns have one name."""
    seen: set[str] = set()
    for name in table.column_names:
        if name in seen:
            raise InvalidNotificationError(name, "a column", "another column has this name")
        seen.add(name)


def rows_of(table: Any) -> Iterator[dict[str, Any]]:
    """The rows of a table, without what is NULL. Raises InvalidNotificationError."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError) as error:
            raise InvalidNotificationError(name, str(column.type), str(error)) from error
    names = table.column_names
    for row in zip(*columns, strict=True) if columns else repeat((), table.num_rows):
        yield {n: value for n, value in zip(names, row, strict=True) if value is not None}


def asked_for(table: Any, names: Container[str]) -> Any:
    """The columns of these names only: what else is there is never looked at."""
    return table.select([name for name in table.column_names if name in names])


def row_of(table: Any, names: Container[str]) -> Callable[[int], dict[str, Any]]:
    """Rows of a table by number, of these names only.

    Some are read at once: those asked for are near each other.
    """
    table = asked_for(table, names)
    begin = 0
    rows: list[dict[str, Any]] = []

    def row(number: int) -> dict[str, Any]:
        nonlocal begin, rows
        if not begin <= number < begin + len(rows):
            begin, rows = number, list(rows_of(table.slice(number, ROWS_AT_ONCE)))
        return rows[number - begin]

    return row


def match_columns(
    arrays: Arrays, columns: Columns, matched_row: Callable[[int], list[int]]
) -> tuple[Any, Any]:
    """(offsets, what was found) for each row; asks for a row of which only the model can tell."""
    offsets = np.zeros(columns.rows + 1, dtype=np.int64)
    found = np.zeros(4 * columns.rows + 64, dtype=np.int64)
    row = 0
    while row < columns.rows:
        status, row = arrays.match_rows(columns.described, row, offsets, found)
        if status == NEED_FOUND:
            arrays.seen_again()
            found = np.concatenate([found, np.zeros_like(found)])
        elif status == UNREADABLE:
            numbers = matched_row(row)
            begin, end = offsets[row], offsets[row] + len(numbers)
            found = np.resize(found, max(len(found), 2 * end)) if end > len(found) else found
            found[begin:end] = numbers
            row += 1
            offsets[row] = end
        elif status != OK:
            grow_for(arrays, status)
    return offsets, found[: offsets[-1]]
