"""`JsonScanner`: finds the values in JSON lines with a compiled kernel.

Plain values of one type are copied into Arrow. Others are converted once for each distinct text.
The results equal those of `contrada.integrations.files.json_batch`; the kernel
`matching.kernels.json_scanner` marks fallback rows. The scanner learns the names of attributes
while it reads.
"""

from collections.abc import Callable, Container, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from contrada.integrations.files.lines import Block, is_utf_8
from contrada.integrations.files.read_options import AllowedNames, ReadOptions
from contrada.integrations.files.value_columns import (
    EXACT_DOUBLE,
    MISSING,
    REFUSED,
    TIME,
    ArrowColumn,
    Column,
)
from contrada.matching.arrow_pack import starts_of
from contrada.matching.kernels import json_scanner

NAMES_SCANNED_MAX: Final = 1_000
"""Names of attributes that are learned of a source. Beyond it: lines are decoded."""

_TABLE: Final = 4_096
BEHIND: Final = b"\n" * 8
"""Padding that kernels may read behind the last byte."""


class JsonScanner:
    """Finds the values of attributes in JSON lines."""

    def __init__(self, allowed: AllowedNames, options: ReadOptions) -> None:
        self._allowed, self._options = allowed, options
        self.attributes: list[str | None] = []
        """The attributes of the learned names, in the order of discovery; None if dropped."""
        self._bytes: list[bytes] = []
        self._refused: set[str] = set()
        self._table = np.full(_TABLE, -1, dtype=np.int64)
        self._seen = np.full(NAMES_SCANNED_MAX, -1, dtype=np.int64)
        last = NAMES_SCANNED_MAX  # The place of no name: of the beginning of a line.
        self._leads = (
            np.zeros((last + 1) * json_scanner.LEAD_BYTES, dtype=np.uint8),
            np.zeros(last + 1, dtype=np.int64),
            np.full(last + 1, last, dtype=np.int64),
        )
        """Of each name the lead, its size, and the name that followed."""
        self._state = np.zeros(4, dtype=np.int64)
        self._is_of_use = True

    def scan(self, block: Block, asked: Container[str] | None) -> "ScannedLines | None":
        """Returns the positions of the values of the attributes asked for, or of all attributes.

        None if the lines should be decoded instead. Cost: the block, and in each line room for each
        of these names that was learned so far.
        """
        if not self._is_of_use or not is_utf_8(block.data):
            return None
        data = np.frombuffer(block.data + BEHIND, dtype=np.uint8)
        columns = self._kept(asked, 0)
        begins = np.full((len(columns) + 1, len(block)), -1, dtype=np.int64)
        lasts = np.full((len(columns) + 1, len(block)), -1, dtype=np.int64)
        is_fallback = np.zeros(len(block), dtype=bool)
        line = 0
        while True:
            known = self._known_names(columns)
            found = (self._seen, begins, lasts, is_fallback, self._state)
            line = json_scanner.scan(
                data, block.ends, line, *known[:3], *self._leads, known[3], *found
            )
            if line == len(block):
                break
            if len(self.attributes) == NAMES_SCANNED_MAX:
                self._is_of_use = False
                return None
            columns |= self._kept(asked, self._learn(block.data))
            if len(columns) > len(begins):
                begins, lasts = (
                    np.concatenate((each, np.full_like(each, -1))) for each in (begins, lasts)
                )
        # The plain reader refuses them and reports it.
        limits = self._options.limits
        is_fallback |= np.diff(block.ends, prepend=-1) > limits.line_chars_max
        places = _join_columns(list(columns.values()), begins, lasts, is_fallback)
        if np.count_nonzero(is_fallback) > limits.fallback_share_max * len(block):
            self._is_of_use = len(block) < 100  # A few odd lines do not predict the others.
            return None
        # Without joined columns a view is enough.
        rows = list(places.values()) if len(places) < len(columns) else slice(len(columns))
        return ScannedLines(data, list(places), begins[rows], lasts[rows], is_fallback)

    def _kept(self, asked: Container[str] | None, first: int) -> dict[int, str]:
        return {
            place: name
            for place, name in enumerate(self.attributes[first:], first)
            if name is not None and (asked is None or name in asked)
        }

    def _known_names(self, columns: Iterable[int]) -> tuple[Any, Any, Any, Any]:
        """Returns the table of names, where each begins, their texts, and the column of each."""
        refused, not_kept = json_scanner.REFUSED, json_scanner.NOT_KEPT
        columns_of = {place: column for column, place in enumerate(columns)}
        column_of = [
            refused if name in self._refused else columns_of.get(place, not_kept)
            for place, name in enumerate(self.attributes)
        ]
        starts = starts_of([len(each) for each in self._bytes])
        joined = np.frombuffer(b"".join(self._bytes) + BEHIND, dtype=np.uint8)
        return self._table, starts, joined, np.array(column_of or [not_kept], dtype=np.int64)

    def _learn(self, data: bytes) -> int:
        """Adds the name at which the kernel stopped to the table; returns its place."""
        begin, end, place, _ = self._state.tolist()
        found = data[begin:end]
        name = self._options.attribute(found.decode())
        self._table[place] = len(self.attributes)
        self.attributes.append(name)
        self._bytes.append(found)
        if name is not None and not self._allowed.allow((name,), 1):
            self._refused.add(name)
        return len(self.attributes) - 1


class ScannedLines:
    """The values of some lines, as positions of their texts."""

    _quote_bytes = 1
    """Bytes of the quotes around a text."""

    def __init__(
        self, data: Any, names: list[str], begins: Any, lasts: Any, is_fallback: Any
    ) -> None:
        self._data, self._begins, self._lasts = data, begins, lasts
        self.names = names
        self.is_fallback = is_fallback

    def column(
        self, place: int, value_of: Callable[[str], Any], *, is_needed: bool = False
    ) -> Column:
        """Returns the values of an attribute.

        Lines with a refused value become fallback rows. With `is_needed` lines without a value do
        so, too.
        """
        begins, lasts = self._begins[place], self._lasts[place]
        tokens = self._texts(begins, lasts).dictionary_encode()
        values = list(map(value_of, tokens.dictionary.to_pylist()))
        codes = tokens.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
        refused = np.array([value is REFUSED for value in values] + [is_needed], dtype=bool)
        self.is_fallback |= refused[codes]
        return Column([*values, MISSING], codes)

    def plain_column(self, place: int, *, has_texts: bool, has_mixed: bool) -> ArrowColumn | None:
        """Returns the values of an attribute that need no conversion; with `has_texts` also texts.

        None for values of several types, or null. With `has_mixed` a column of integers and doubles
        becomes doubles, if that is exact.
        """
        begins, lasts = self._begins[place], self._lasts[place]
        kind, values = np.empty(len(begins), np.uint8), np.empty(len(begins), np.int64)
        bits = self._values_of(begins, lasts, kind, values, has_texts=has_texts)
        found = {each for each in range(json_scanner.HARD + 1) if bits >> each & 1}
        found.discard(json_scanner.NONE)
        if found == {json_scanner.TEXT} and has_texts:
            quote = self._quote_bytes * (begins >= 0)
            return ArrowColumn(self._texts(begins + quote, lasts - quote))
        valid = _valid(begins)
        if found == {json_scanner.BOOL}:
            held = np.packbits(values.astype(bool), bitorder="little")
            return ArrowColumn(_array(pa.bool_(), len(kind), valid, held))
        if found == {json_scanner.INT}:
            return ArrowColumn(_array(pa.int64(), len(kind), valid, values))
        if not found or not found <= {json_scanner.INT, json_scanner.FLOAT, json_scanner.HARD}:
            return None
        doubles = values.view(np.float64)
        if json_scanner.INT in found:
            whole = kind == json_scanner.INT
            if not has_mixed or (np.abs(values[whole]) > EXACT_DOUBLE).any():
                return None
            doubles[whole] = values[whole].astype(np.float64)
        for row in (
            np.flatnonzero(kind == json_scanner.HARD).tolist() if json_scanner.HARD in found else ()
        ):
            doubles[row] = float(self._data[begins[row] : lasts[row]].tobytes())
        return ArrowColumn(_array(pa.float64(), len(kind), valid, doubles))

    def time_column(
        self, place: int, *, has_zone: bool, is_needed: bool = False
    ) -> ArrowColumn | None:
        """Returns the values of an attribute of times; None unless the kernel can read all of them.

        With `is_needed` lines without a value become fallback rows.
        """
        begins, lasts = self._begins[place], self._lasts[place]
        values = np.empty(len(begins), np.int64)
        if not json_scanner.times_of(
            self._data, begins, lasts, self._quote_bytes, has_zone, values
        ):
            return None
        if is_needed:
            self.is_fallback |= begins < 0
        return ArrowColumn(_array(TIME, len(begins), _valid(begins), values))

    def _values_of(
        self, begins: Any, lasts: Any, kinds: Any, values: Any, *, has_texts: bool
    ) -> int:
        """Runs the kernel `values_of`; JSON marks its texts, so `has_texts` is not needed."""
        found: int = json_scanner.values_of(self._data, begins, lasts, kinds, values)
        return found

    def _texts(self, begins: Any, lasts: Any) -> Any:
        """Returns the texts at some positions, known to be UTF-8, as an Arrow column."""
        starts = starts_of(lasts - begins)
        out = np.empty(starts[-1] + len(BEHIND), dtype=np.uint8)
        json_scanner.put_spans(self._data, begins, lasts, starts, out)
        return _array(pa.string(), len(begins), _valid(begins), starts.astype(np.int32), out)

    def has(self, place: int) -> Any:
        """Whether each line has an attribute."""
        return self._begins[place] >= 0

    def in_order(self) -> list[int]:
        """Returns the positions of the names in the most common order; other lines become fallback
        rows.

        A record keeps the order of its line.
        """
        is_there = self._begins >= 0
        packed = np.ascontiguousarray(np.packbits(is_there, axis=0).T)
        patterns = packed.view(f"S{packed.shape[1] or 1}").ravel().tolist()
        firsts = list({pattern: row for row, pattern in enumerate(patterns)}.values())
        order: list[int] = []
        for row in sorted(firsts, key=is_there.sum(axis=0).__getitem__, reverse=True):
            begins = self._begins[:, row]
            before = -1
            for place in sorted(np.flatnonzero(begins >= 0).tolist(), key=begins.__getitem__):
                if place in order:
                    before = max(before, order.index(place))
                else:
                    before += 1
                    order.insert(before, place)
        sorted_begins = self._begins[order]
        so_far = np.maximum.accumulate(sorted_begins, axis=0)
        is_off = (sorted_begins >= 0) & (sorted_begins < so_far)
        self.is_fallback |= is_off.any(axis=0)
        return order


def _join_columns(names: list[str], begins: Any, lasts: Any, is_fallback: Any) -> dict[str, int]:
    """Joins the columns of an attribute that has several names; returns the column of each
    attribute. A line with two of its names becomes a fallback row: it has several values.
    """
    places: dict[str, int] = {}
    for column, name in enumerate(names):
        first = places.setdefault(name, column)
        if first != column:
            is_fallback |= (begins[first] >= 0) & (begins[column] >= 0)
            for held in (begins, lasts):  # They are -1 where there is no value.
                np.maximum(held[first], held[column], out=held[first])
    return places


def _valid(begins: Any) -> Any:
    """Returns Arrow's validity bits; None if all rows have a value."""
    is_there = begins >= 0
    return None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))


def _array(kind: Any, count: int, valid: Any, *held: Any) -> Any:
    return pa.Array.from_buffers(kind, count, [valid, *map(pa.py_buffer, held)])
