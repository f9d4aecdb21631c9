"""`CsvBatchReader`: reads many CSV rows at once, with a kernel or with Arrow.

`contrada.integrations.files.csv_rows`, the plain reader, defines the meaning of a row. This reader
takes only lines with certainly the same cells. All other lines are fallback rows:

- lines with quotes other than around a whole cell, with bytes that are not UTF-8, longer than
  LINE_BYTES_MAX, or first and with a byte order mark;
- rows with too few or too many cells;
- rows with a cell that is not of its declared type, or without the time of the envelope.

The kernel `matching.kernels.csv_scanner` reads numbers, truth values, times and texts from their
bytes. Arrow reads blocks with rows of several lines, blocks with too many fallback rows for the
kernel, and all blocks if kernels are not compiled. It accepts doubled quotes within a cell and
converts each distinct cell once. Fallback rows are empty lines to it.
"""

import codecs
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from contrada.integrations.files.json_scan import BEHIND, ScannedLines
from contrada.integrations.files.lines import Block, is_utf_8
from contrada.integrations.files.packed_records import WrittenRows, can_write, written_rows
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.value_columns import (
    REFUSED,
    ArrowColumn,
    Column,
    ColumnBatch,
    converter,
)
from contrada.matching.arrow_pack import blobs_of
from contrada.matching.kernels import csv_scanner, json_scanner
from contrada.model.algebra.attributes import ATTRIBUTES_MAX

LINE_BYTES_MAX: Final = 2**16
"""Bytes of a line in a batch. Beyond it: the plain reader reads the line."""

ABSENT_SCANNED_MAX: Final = 64
"""Texts meaning "no value" that a kernel searches for. Beyond it: Arrow reads the cells."""

_LF = ord("\n")


class CsvBatchReader:
    """Reads the columns that filters name, and those that can make a row bad."""

    def __init__(
        self, columns: tuple[str | None, ...], filter_names: Iterable[str], options: ReadOptions
    ) -> None:
        self._options = options
        stamp = {options.stamp} - {None}
        filter_names = set(filter_names)
        wanted = {*filter_names, *options.names_checked()} & set(columns)
        self._columns = columns
        # If every row is bad, the plain reader gives the reasons.
        kept = len(columns) - columns.count(None)
        self._is_hopeless = not stamp <= wanted or kept + len(options.add) > ATTRIBUTES_MAX
        self._places = {name: str(at) for at, name in enumerate(columns) if name and name in wanted}
        self._values = {
            name: converter(options.converter(name), options.is_absent, is_stamp=name in stamp)
            for name in wanted
        }
        self._numbers_checked = {
            name for name in wanted - filter_names - stamp if options.types[name] == "number"
        }
        """Columns that are only checked to be numbers."""
        self._can_scan = len(options.absent) <= ABSENT_SCANNED_MAX

    def read(self, block: Block, *, has_mixed: bool = True) -> ColumnBatch:
        """Returns the rows of a block; a column has both integers and doubles with `has_mixed`."""
        if self._is_hopeless:
            return ColumnBatch.none_of(block)
        cells = self._scan_cells(block)
        if cells is None:
            return self._read_by_arrow(block)
        stamp, columns = self._options.stamp, {}
        for place, name in enumerate(cells.names):
            found: Column | None = None
            kind = self._options.types.get(name)
            if kind in (None, "number") and name != stamp:
                found = cells.plain_column(place, has_texts=kind is None, has_mixed=has_mixed)
            elif kind == "text" and name != stamp:
                found = cells.text_column(place)
            elif kind == "time":
                has_zone = self._options.zone is not None
                found = cells.time_column(place, has_zone=has_zone, is_needed=name == stamp)
            if found is None:
                found = cells.column(place, self._values[name], is_needed=name == stamp)
            columns[name] = found
        return self._batch(block, cells.is_fallback, np.arange(len(block)), columns)

    def _batch(
        self, block: Block, is_fallback: Any, lines: Any, columns: dict[str, Column]
    ) -> ColumnBatch:
        is_blank = np.diff(block.ends, prepend=-1) == 1
        stamps = columns.get(self._options.stamp or "")
        return ColumnBatch(is_fallback, ~is_fallback & ~is_blank, lines, columns, stamps)

    def _scan_cells(self, block: Block) -> "ScannedCells | None":
        """Returns the positions of the cells of a block; None if Arrow should read it."""
        names = [name for name in self._places if name not in self._numbers_checked]
        # A row has a byte for each cell: so there is no more to note than bytes.
        is_wide = len(names) * len(block) > len(block.data)
        if not self._can_scan or is_wide or block.starts is not None:
            return None
        column_of = {name: column for column, name in enumerate(names)}
        column_of |= dict.fromkeys(self._numbers_checked, csv_scanner.CHECKED)
        places = [column_of.get(name or "", json_scanner.NOT_KEPT) for name in self._columns]
        absent = [text.encode(errors="surrogatepass") for text in self._options.absent]
        starts, texts = blobs_of([*absent, BEHIND])
        quote = self._options.quote.encode()
        has_quotes = bool(quote) and quote in block.data
        signs = (ord(self._options.delimiter), quote[0] if has_quotes else csv_scanner.NO_QUOTE)
        data = np.frombuffer(block.data + BEHIND, np.uint8)
        begins, lasts = np.full((2, len(names), len(block)), -1, dtype=np.int64)
        is_fallback = unreadable_lines(block, single=len(places) == 1)
        outputs = (np.array(places), starts[:-1], texts, begins, lasts, is_fallback)
        csv_scanner.part(data, block.ends, *signs, *outputs)
        if np.count_nonzero(is_fallback) > self._options.limits.fallback_share_max * len(block):
            return None
        return ScannedCells(data, names, begins, lasts, is_fallback)

    def written(self, block: Block) -> WrittenRows | None:
        """Returns the rows of a block, all columns, as whole notifications; fallback rows are odd.
        None if they must be read one by one.
        """
        if not can_write(self._places, self._options):
            return None
        batch = self.read(block, has_mixed=False)
        if not batch.columns or len(batch.lines) != len(block) or batch.is_fallback.all():
            return None
        rows = written_rows(batch.columns, len(block), self._options)
        rows.is_odd[batch.is_fallback] = True
        return rows

    def _read_by_arrow(self, block: Block) -> ColumnBatch:
        fallback = unreadable_lines(block, single=len(self._columns) == 1)
        quote, delimiter = self._options.quote.encode(), self._options.delimiter.encode()
        if quote and quote in block.data:
            fallback[_misquoted_lines(block, quote[0], delimiter[0])] = True
        has_breaks = block.starts is not None
        table, ragged = self._table(_blank_out(block, fallback), has_breaks=has_breaks)
        fallback[ragged] = True
        lines = np.delete(np.arange(len(block)), ragged)
        if len(lines) != table.num_rows:
            return ColumnBatch.none_of(block)  # Arrow has reported other rows than it skipped.
        columns = {}
        for name, place in self._places.items():
            cells = table.column(place).combine_chunks()
            codes = cells.indices.to_numpy()
            values = list(map(self._values[name], cells.dictionary.to_pylist()))
            refused = np.array([value is REFUSED for value in values], dtype=bool)
            fallback[lines] |= refused[codes]
            columns[name] = Column(values, codes)
        return self._batch(block, fallback, lines, columns)

    def _table(self, data: bytes, *, has_breaks: bool) -> tuple[Any, list[int]]:
        """Returns the rows as a table, and the positions of rows with too few or too many cells."""
        ragged: list[int] = []

        def skip(row: Any) -> str:
            ragged.append(row.number - 1)
            return "skip"

        quote = self._options.quote
        has_quotes = bool(quote) and quote.encode() in data
        names = [str(place) for place in range(len(self._columns))]
        table = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=self._options.delimiter,
                quote_char=quote if has_quotes else False,
                double_quote=has_quotes,
                newlines_in_values=has_breaks,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            csv.ConvertOptions(
                check_utf8=False,
                strings_can_be_null=False,
                include_columns=list(self._places.values()) or names[:1],
                column_types=dict.fromkeys(names, pa.dictionary(pa.int32(), pa.string())),
            ),
        )
        return table, ragged


class ScannedCells(ScannedLines):
    """The values of some rows, as positions of their cells."""

    _quote_bytes = 0

    def text_column(self, place: int) -> ArrowColumn:
        """Returns the values of an attribute of texts."""
        return ArrowColumn(self._texts(self._begins[place], self._lasts[place]))

    def _values_of(
        self, begins: Any, lasts: Any, kinds: Any, values: Any, *, has_texts: bool
    ) -> int:
        """Runs the kernel `cells_of`; without texts truth values are not recognized either."""
        found: int = csv_scanner.cells_of(self._data, begins, lasts, has_texts, kinds, values)
        return found


def unreadable_lines(block: Block, *, single: bool) -> Any:
    """Returns the lines that only the plain reader can read, and single cells that may be blank."""
    data = np.frombuffer(block.data, np.uint8)
    found = np.diff(block.ends, prepend=-1) > LINE_BYTES_MAX
    if not is_utf_8(block.data):
        found[np.searchsorted(block.ends, np.flatnonzero(data >= 0x80))] = True
    if block.data.startswith(codecs.BOM_UTF8):
        found[0] = True
    if single:
        first = data[np.concatenate(([0], block.ends[:-1] + 1))]
        found |= (first != _LF) & ((first <= 0x20) | (first >= 0x80))
    return found


def _misquoted_lines(block: Block, quote: int, delimiter: int) -> Any:
    """Returns the lines with quotes that Arrow could read in another way: they neither enclose a
    cell nor are doubled within one. The odd quotes of a line open: before them is the beginning of
    a cell, or the quote that they double. The even quotes close, likewise.
    """
    data = np.frombuffer(block.data, np.uint8)
    quotes = np.flatnonzero(data == quote)
    lines = np.searchsorted(block.ends, quotes)
    firsts = np.flatnonzero(np.diff(lines, prepend=-1))
    counts = np.diff(np.append(firsts, len(lines)))
    opens = (np.arange(len(quotes)) - np.repeat(firsts, counts)) % 2 == 0
    # Every line ends with LF, so index -1, before the first byte, is one, too.
    beside = np.where(opens, data[quotes - 1], data[quotes + 1])
    wrong = (beside != delimiter) & (beside != _LF) & (beside != quote)
    return np.concatenate([lines[wrong], lines[firsts[counts % 2 == 1]]])


def _blank_out(block: Block, fallback: Any) -> bytes:
    """Returns the lines of a block, with fallback rows as empty lines."""
    pieces = []
    done = 0
    for line in np.flatnonzero(fallback).tolist():
        pieces.append(block.data[done : block.ends[line - 1] + 1 if line else 0])
        done = block.ends[line]
    pieces.append(block.data[done:])
    return b"".join(pieces)
