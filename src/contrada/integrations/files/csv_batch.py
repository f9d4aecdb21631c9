"""`CsvBatchReader`: reads many CSV rows at once, with a compiled kernel.

`contrada.integrations.files.csv_rows`, the plain reader, defines the meaning of a row. This reader
takes only rows with certainly the same cells. All others are fallback rows:

- rows with quotes other than around a whole cell or doubled within one, with bytes that are not
  UTF-8, or longer than LINE_BYTES_MAX or `line_chars_max`;
- rows with too few or too many cells;
- rows with a cell that is not of its declared type, or without the time of the envelope.

The kernel `matching.kernels.csv_scanner` finds the cells, and reads numbers, truth values, times
and texts from their bytes. Other values are converted once for each distinct text.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from contrada.integrations.files.json_scan import BEHIND, ScannedLines
from contrada.integrations.files.lines import Block, is_utf_8
from contrada.integrations.files.packed_records import WrittenRows, can_write, written_rows
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.value_columns import ArrowColumn, Column, ColumnBatch, converter
from contrada.matching.arrow_pack import blobs_of
from contrada.matching.kernels import csv_scanner, json_scanner
from contrada.model.algebra.attributes import ATTRIBUTES_MAX

LINE_BYTES_MAX: Final = 2**16
"""Bytes of a row in a batch. Beyond it: the plain reader reads the row."""

ABSENT_SCANNED_MAX: Final = 64
"""Texts meaning "no value" that a kernel searches for. Beyond it: the plain reader reads all."""

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
        kept = len(columns) - columns.count(None)
        self._leaves_all = (
            not stamp <= wanted  # If every row is bad, the plain reader gives the reasons.
            or kept + len(options.add) > ATTRIBUTES_MAX
            or len(options.absent) > ABSENT_SCANNED_MAX
        )
        self._names = [name for name in columns if name and name in wanted]
        self._values = {
            name: converter(options.converter(name), options.is_absent, is_stamp=name in stamp)
            for name in wanted
        }
        self._numbers_checked = {
            name for name in wanted - filter_names - stamp if options.types[name] == "number"
        }
        """Columns that are only checked to be numbers."""

    def read(self, block: Block, *, has_mixed: bool = True) -> ColumnBatch:
        """Returns the rows of a block; a column has both integers and doubles with `has_mixed`."""
        names = [name for name in self._names if name not in self._numbers_checked]
        # A row has a byte for each cell: so there is no more to note than bytes.
        is_ragged = len(names) * len(block) > len(block.data)
        if self._leaves_all or is_ragged:
            return ColumnBatch.none_of(block)
        cells = self._scan_cells(block, names)
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
        is_fallback, stamps = cells.is_fallback, columns.get(stamp or "")
        is_blank = np.diff(block.ends, prepend=-1) == 1
        is_read = ~is_fallback & ~is_blank
        return ColumnBatch(is_fallback, is_read, np.arange(len(block)), columns, stamps)

    def _scan_cells(self, block: Block, names: list[str]) -> "ScannedCells":
        column_of = {name: column for column, name in enumerate(names)}
        column_of |= dict.fromkeys(self._numbers_checked, csv_scanner.CHECKED)
        places = [column_of.get(name or "", json_scanner.NOT_KEPT) for name in self._columns]
        absent = [text.encode(errors="surrogatepass") for text in self._options.absent]
        starts, texts = blobs_of([*absent, BEHIND])
        quote = self._options.quote.encode()
        has_quotes = bool(quote) and quote in block.data
        signs = (ord(self._options.delimiter), quote[0] if has_quotes else csv_scanner.NO_QUOTE)
        # A copy, in which the kernel writes each doubled quote as one.
        data = np.empty(len(block.data) + len(BEHIND), np.uint8)
        data[: len(block.data)], data[len(block.data) :] = np.frombuffer(block.data, np.uint8), _LF
        begins, lasts = np.full((2, len(names), len(block)), -1, dtype=np.int64)
        limits, single = self._options.limits, len(places) == 1
        is_fallback = unreadable_lines(block, limits.line_chars_max, single=single)
        outputs = (np.array(places), starts[:-1], texts, begins, lasts, is_fallback)
        csv_scanner.part(data, block.ends, *signs, *outputs)
        return ScannedCells(data, names, begins, lasts, is_fallback)

    def written(self, block: Block) -> WrittenRows | None:
        """Returns the rows of a block, all columns, as whole notifications; fallback rows are odd.
        None if they must be read one by one.
        """
        if not can_write(self._names, self._options):
            return None
        batch = self.read(block, has_mixed=False)
        if not batch.columns or batch.is_fallback.all():
            return None
        rows = written_rows(batch.columns, len(block), self._options)
        rows.is_odd[batch.is_fallback] = True
        return rows


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


def unreadable_lines(block: Block, line_chars_max: int, *, single: bool) -> Any:
    """Returns the lines that only the plain reader can read, and single cells that may be blank."""
    data = np.frombuffer(block.data, np.uint8)
    found = np.diff(block.ends, prepend=-1) > min(LINE_BYTES_MAX, line_chars_max)
    if not is_utf_8(block.data):
        found[np.searchsorted(block.ends, np.flatnonzero(data >= 0x80))] = True
    if single:
        first = data[np.concatenate(([0], block.ends[:-1] + 1))]
        found |= (first != _LF) & ((first <= 0x20) | (first >= 0x80))
    return found
