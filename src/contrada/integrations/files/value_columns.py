"""`Column` and `ColumnBatch`: values of many rows, to match them at once.

A column has the values of one attribute in each row of a batch. An Arrow column has one type. Rows
with another value (a text among numbers, null, several values) are *odd* and matched one by one,
with the same results.

This module, `json_scan` and `packed_records` import pyarrow, and are imported only for large
inputs: the import takes as long as reading some thousand rows one by one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contrada.errors import ContradaError
from contrada.integrations.files.lines import Block
from contrada.integrations.files.read_options import Converter
from contrada.matching.arrow_pack import ColumnPiece, blobs_of, piece_of
from contrada.model.domains.values import time_us_of

EXACT_DOUBLE: Final = 2**53
"""Largest integer for which all smaller ones are doubles, too."""


TEXTS_KEPT_MAX: Final = 2**16
"""Texts of a column with cached values. Beyond it: the least recently used are forgotten."""


ROWS_PROBED: Final = 64
"""Rows of a batch whose matches are counted before its portions are cut."""


class Missing:
    """Marks a value that is absent, or that the plain reader refuses."""


MISSING: Final = Missing()
REFUSED: Final = Missing()

TIME: Final = pa.timestamp("us", tz="UTC")

_TYPES: Final[dict[type, Any]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime: TIME,
}


class Column:
    """The values of an attribute: `values[codes[row]]`, or `values[row]` without codes."""

    def __init__(self, values: Sequence[Any], codes: Any = None) -> None:
        self._values = values
        self._codes = codes

    @cached_property
    def in_arrow(self) -> tuple[Any, Any]:
        """The values for Arrow, and the rows with others; None instead of no value, or no row."""
        values, codes = self._values, self._codes
        array = odd = None
        kind: type
        held: set[type]
        found = set(map(type, values))
        kinds = found - {Missing}
        if kinds == {int, float} and all(
            -EXACT_DOUBLE <= each <= EXACT_DOUBLE for each in values if type(each) is int
        ):
            held, kind = kinds, float
        else:
            kind = next(iter(kinds)) if len(kinds) == 1 else self._most_common()
            held = {kind} & _TYPES.keys()
        if held:
            fits = kinds <= held and Missing not in found
            array = pa.array(
                values if fits else [v if type(v) in held else None for v in values], _TYPES[kind]
            )
            array = array if codes is None else array.take(pa.array(codes))
        if not kinds <= held:
            odd = np.array([type(v) not in (*held, Missing) for v in values], dtype=bool)
            odd = odd if codes is None else odd[codes]
        return array, odd

    def _most_common(self) -> type:
        """Returns the most common type that Arrow can hold; Missing if there is none."""
        uses = np.ones(len(self._values)) if self._codes is None else np.bincount(self._codes)
        counts: dict[type, float] = {}
        for value, count in zip(self._values, uses.tolist(), strict=False):
            if type(value) in _TYPES:
                counts[type(value)] = counts.get(type(value), 0) + count
        return max(counts, key=lambda kind: counts[kind], default=Missing)

    def piece(self, before: bytes) -> tuple[ColumnPiece, Any]:
        """Returns the values as a piece of packed notifications, and the rows with other values."""
        from contrada.matching.kernels.msgpack_writer import BOOL, FLOAT, INT, TEXT, TIME

        kind_of = {bool: BOOL, int: INT, float: FLOAT, str: TEXT, datetime: TIME}
        kinds = np.array([kind_of.get(type(v), 0) for v in self._values], dtype=np.int64)
        codes = np.arange(len(kinds)) if self._codes is None else np.asarray(self._codes)
        is_text = kinds == TEXT
        if is_text.any():  # A piece holds texts or numbers: the majority of rows decides.
            texts = np.count_nonzero(is_text[codes])
            apart = ~is_text if 2 * texts >= np.count_nonzero(kinds[codes]) else is_text
            kinds[apart] = 0
        held: Any
        if (kinds == TEXT).any():
            strings = [v.encode() if k else b"" for v, k in zip(self._values, kinds, strict=True)]
            held = blobs_of(strings).select(codes)
        else:
            held = _numbers(self._values, kinds, is_float=kinds == FLOAT)[codes]
        odd = np.array([type(v) is not Missing for v in self._values], dtype=bool) & (kinds == 0)
        return ColumnPiece(np.frombuffer(before, np.uint8), kinds[codes], held), odd[codes]

    def each(self, texts_of: Callable[[Any], Iterable[str | None]]) -> Any:
        """Returns a text for each row as an Arrow column; made once for each distinct value.
        `texts_of` takes a sequence of values, or an array of times.
        """
        texts = pa.array(texts_of(self._values), pa.string())
        return texts if self._codes is None else texts.take(pa.array(self._codes))

    def value(self, row: int) -> Any:
        """Returns the value of a row, or MISSING or REFUSED."""
        return self._values[row if self._codes is None else self._codes[row]]

    def largest(self, is_asked: Any) -> Any:
        """Returns the largest value of some rows, all of the same type, at least one."""
        held = is_asked
        if self._codes is not None:
            held = np.bincount(self._codes[is_asked], minlength=len(self._values)) > 0
        return max(compress(self._values, held.tolist()))


class ArrowColumn(Column):
    """A column of values that Arrow holds; NULL marks rows without a value."""

    def __init__(self, array: Any) -> None:
        self._held = array

    @property
    def in_arrow(self) -> tuple[Any, Any]:
        return self._held, None

    def piece(self, before: bytes) -> tuple[ColumnPiece, Any]:
        piece = piece_of(before, self._held)
        assert piece is not None, "only where kernels are compiled"
        return piece, np.zeros(len(self._held), dtype=bool)

    def each(self, texts_of: Callable[[Any], Iterable[str | None]]) -> Any:
        held = self._held.dictionary_encode()  # Arrow distinguishes -0.0 from 0.0.
        distinct = held.dictionary
        values = distinct.to_numpy() if distinct.type == TIME else distinct.to_pylist()
        return pa.array(texts_of(values), pa.string()).take(held.indices)

    def value(self, row: int) -> Any:
        found = self._held[row].as_py()
        return MISSING if found is None else found

    def largest(self, is_asked: Any) -> Any:
        return pc.max(self._held.filter(pa.array(is_asked))).as_py()


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """The attributes of a block of lines that was read at once. `is_fallback` marks lines for the
    plain reader, `is_read` lines with their attributes here; a blank line has neither. The columns
    have a row for each of `lines`, in order; rows of lines that are not read are ignored. `stamps`
    is the column with the times of the envelopes.
    """

    is_fallback: Any
    is_read: Any
    lines: Any
    columns: Mapping[str, Column]
    stamps: Column | None = None

    @classmethod
    def none_of(cls, block: Block) -> "ColumnBatch":
        """Returns a batch that leaves all lines to the plain reader."""
        fallback = np.ones(len(block), dtype=bool)
        return cls(fallback, ~fallback, np.arange(0), {})

    @property
    def latest_us(self) -> int | None:
        """The largest time in `stamps` of the lines that were read."""
        is_read = self.is_read[self.lines]
        if self.stamps is None or not is_read.any():
            return None
        return time_us_of(self.stamps.largest(is_read))

    def matches(self, index: Any, keys_at_once: int) -> Iterator[tuple[int, dict[int, list[int]]]]:
        """Yields the sorted keys of each line that was read and that a filter matches, in portions
        of `rows_at_once`, each with the line at which the next one begins.
        """
        columns, count = self.columns, len(self.lines)
        held_in_arrow = {name: column.in_arrow for name, column in columns.items()}
        arrays = {name: array for name, (array, _) in held_in_arrow.items() if array is not None}
        odd = [rows_apart for _, rows_apart in held_in_arrow.values() if rows_apart is not None]
        is_odd = np.logical_or.reduce(odd) if odd else np.zeros(count, dtype=bool)
        # If all columns are odd or absent, an extra column gives the number of rows.
        table = pa.table(arrays or {"": pa.nulls(count)})

        def counts_of(places: Any) -> Any:
            return np.diff(index.match_batch(table.take(places))[0])

        size = rows_at_once(count, len(index), keys_at_once, counts_of)
        for begin in range(0, max(count, 1), size):
            end = min(begin + size, count)
            found = self._keys_of(index, table.slice(begin, end - begin), is_odd[begin:end], begin)
            next_line = int(self.lines[end]) if end < count else len(self.is_read)
            yield (
                next_line,
                {
                    line: found[row]
                    for row in sorted(found)
                    if self.is_read[line := int(self.lines[begin + row])]
                },
            )

    def _keys_of(self, index: Any, table: Any, is_odd: Any, begin: int) -> dict[int, list[int]]:
        offsets, keys = index.match_batch(table)
        matched, every = np.flatnonzero(np.diff(offsets)), keys.tolist()
        bounds = zip(offsets[matched].tolist(), offsets[matched + 1].tolist(), strict=True)
        keys_of = (sorted(every[begin:end]) for begin, end in bounds)
        found = dict(zip(matched.tolist(), keys_of, strict=True))
        for row in np.flatnonzero(is_odd).tolist():
            held = {name: column.value(begin + row) for name, column in self.columns.items()}
            held = {name: value for name, value in held.items() if type(value) is not Missing}
            found[row] = sorted(index.match(held))
        return found


def rows_at_once(count: int, keys: int, keys_at_once: int, counts_of: Callable[[Any], Any]) -> int:
    """Returns how many of `count` rows have at most `keys_at_once` of an index's keys together, if
    each has at most as many as some rows, evenly distributed; `counts_of` counts those of such
    rows. Cost: their match, if the index has so many keys that it may matter.
    """
    if count * keys <= keys_at_once:
        return max(count, 1)
    places = np.linspace(0, count - 1, min(count, ROWS_PROBED)).astype(np.int64)
    return max(keys_at_once // int(counts_of(pa.array(places)).max(initial=1)), 1)


def converter(
    convert: Converter, is_absent: Callable[[str], bool], *, is_stamp: bool
) -> Callable[[str], Any]:
    """Returns the converter of texts to values, MISSING or REFUSED; stamps must be times."""

    @lru_cache(TEXTS_KEPT_MAX, typed=True)
    def value(text: str) -> Any:
        if is_absent(text):
            return REFUSED if is_stamp else MISSING
        try:
            found = convert(text)
        except ContradaError:
            return REFUSED
        return REFUSED if is_stamp and not isinstance(found, datetime) else found

    return value


def _numbers(values: Sequence[Any], kinds: Any, *, is_float: Any) -> Any:
    """Returns values as integers of 64 bits: integers, the bits of doubles, or microseconds."""
    listed = zip(values, kinds.tolist(), strict=True)
    if (is_float | (kinds == 0)).all():
        doubles = [value if kind else 0.0 for value, kind in listed]
        return np.array(doubles, dtype=np.float64).view(np.int64)
    found = [
        0
        if not kind
        else time_us_of(value)
        if isinstance(value, datetime)
        else int(np.float64(value).view(np.int64))
        if type(value) is float
        else int(value)
        for value, kind in listed
    ]
    return np.array(found, dtype=np.int64)
