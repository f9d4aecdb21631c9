"""Whole tables in columns, matched without making a notification of each row.

A column of numbers, texts, booleans or times becomes one array of domains and one of keys, as
the kernels want them; NULL is absent. What a column cannot give that way (several values, other
types, integers that no double equals) is left to matching row by row.

pyarrow is not imported here: a table is known by its methods.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from contrada.matching.arrays import Arrays, grow_for
from contrada.matching.compiling import EXACT_MAX
from contrada.matching.tables import COLUMN_COLUMNS, NEED_FOUND, OK
from contrada.model.values import BOOL, NAN, NUMBER, TEXT, TIME


class Column(NamedTuple):
    """A column as the kernels want it."""

    attr: int
    domains: Any
    keys: Any
    text: Any


def columns_of(table: Any, attrs: dict[str, int]) -> list[Column] | None:
    """The columns that filters ask for; None where one must be taken row by row."""
    columns = []
    for name in table.column_names:
        if name in attrs and name[:1] != "@":
            column = _column(attrs[name], table.column(name).combine_chunks())
            if column is None:
                return None
            columns.append(column)
    return columns


def match_columns(arrays: Arrays, columns: list[Column], rows: int) -> tuple[Any, Any]:
    """(offsets, what the kernels put out) for each row."""
    described = np.zeros((len(columns), COLUMN_COLUMNS), dtype=np.int64)
    for i, (attr, domains, keys, text) in enumerate(columns):
        described[i] = (
            attr,
            rows,
            domains.ctypes.data,
            keys.ctypes.data,
            text.ctypes.data,
            len(text),
        )
    offsets = np.zeros(rows + 1, dtype=np.int64)
    found = np.zeros(4 * rows + 64, dtype=np.int64)
    row = 0
    while row < rows:
        status, row = arrays.match_rows(described, row, rows, offsets, found, int(offsets[row]))
        if status == NEED_FOUND:
            found = np.concatenate([found, np.zeros_like(found)])
        elif status != OK:
            grow_for(arrays, status)
    return offsets, found[: offsets[rows]]


def _column(attr: int, array: Any) -> Column | None:
    """A column of one type, or None."""
    kind = str(array.type)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    empty = np.zeros(1, dtype=np.uint8)
    if kind in ("string", "large_string", "binary", "large_binary"):
        ends, text = _texts(array)
        return Column(attr, present.astype(np.uint8) * TEXT, ends, text)
    if kind == "bool":
        keys = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
        return Column(attr, present.astype(np.uint8) * BOOL, keys, empty)
    if kind.startswith("timestamp[us, tz="):
        keys = array.cast("int64").fill_null(0).to_numpy()
        return Column(attr, present.astype(np.uint8) * TIME, np.ascontiguousarray(keys), empty)
    if kind in _NUMBERS:
        return _numbers(attr, array.fill_null(0).to_numpy(), present)
    return None


_NUMBERS: Final = frozenset(
    ["double", "float", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)


def _numbers(attr: int, values: Any, present: Any) -> Column | None:
    doubles = values.astype(np.float64)
    if values.dtype.kind in "iu" and np.any(np.abs(doubles) >= EXACT_MAX):
        return None
    bits = doubles.view(np.int64)
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFFFFFFFFFF), bits)
    is_nan = np.isnan(doubles)
    keys[is_nan] = 0
    large = (np.abs(doubles) >= EXACT_MAX) & (np.abs(doubles) <= 2.0**63)
    if np.any(large):
        return None
    domains = np.where(is_nan, NAN, NUMBER).astype(np.uint8)
    domains[~present] = 0
    return Column(attr, domains, keys, np.zeros(1, dtype=np.uint8))


def _texts(array: Any) -> tuple[Any, Any]:
    """Where the texts end, and all of them one after another."""
    wide = "large" in str(array.type)
    _, ends, data = array.buffers()
    kind: Any = np.int64 if wide else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[array.offset : array.offset + len(array) + 1]
    text = np.zeros(1, dtype=np.uint8) if not data else np.frombuffer(data, dtype=np.uint8)
    return np.ascontiguousarray(offsets.astype(np.int64)), text
