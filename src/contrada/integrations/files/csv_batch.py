"""Many rows of CSV at once: a kernel parts their cells, or Arrow does.

The meaning of a row is `contrada.integrations.files.csv_rows`. Here only those lines are read of
which there is no doubt that the plain reader gives the same cells, and only values that it would
take. All other lines are *doubtful* and left to it:

- lines with quotes other than around a whole cell, with bytes that are not UTF-8, longer than
  LINE_BYTES_MAX, or first and with a byte order mark;
- rows with too few or too many cells;
- rows with a cell that is not of its declared type, or without the time that the source needs.

The kernel, `matching.kernels.csv_scanner`, knows numbers, truth values, times and texts by their
bytes. Arrow reads blocks of which too many lines are doubtful to the kernel, those with rows of
several lines, and all where kernels are not compiled: to it quotes that are doubled within a cell
are no doubt, and each distinct cell is converted once. It gets an empty line in place of a doubtful
one.
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
from contrada.matching.kernels import jit
from contrada.model.algebra.attributes import ATTRIBUTES_MAX

LINE_BYTES_MAX: Final = 2**16
"""Bytes of a line that is read together with others. Beyond it: it is read by itself."""

ABSENT_PARTED_MAX: Final = 64
"""Texts that mean that a cell of CSV holds no value, which a kernel looks for. Beyond it: Arrow
parts the cells."""

_LF = ord("\n")


class CsvBatchReader:
    """Reads the columns of a file that are asked for, and those whose cells can be bad."""

    def __init__(
        self, columns: tuple[str | None, ...], asked: Iterable[str], options: ReadOptions
    ) -> None:
        self._options = options
        stamp = {options.stamp} - {None}
        asked = set(asked)
        wanted = {*asked, *options.names_checked()} & set(columns)
        self._columns = columns
        # Where every row is bad, the plain reader says why.
        kept = len(columns) - columns.count(None)
        self._is_hopeless = not stamp <= wanted or kept + len(options.add) > ATTRIBUTES_MAX
        self._places = {
            name: str(place)
            for place, name in enumerate(columns)
            if name is not None and name in wanted
        }
        self._values = {
            name: converter(options.converter(name), options.is_absent, is_stamp=name in stamp)
            for name in wanted
        }
        self._numbers_checked = {
            name for name in wanted - asked - stamp if options.types[name] == "number"
        }
        """Of these nothing is asked but that they are numbers."""
        self._can_part = not jit.is_pure() and len(options.absent) <= ABSENT_PARTED_MAX

    def read(self, block: Block) -> ColumnBatch:
        """The rows of a block."""
        return self._read(block, has_mixed=True)

    def _read(self, block: Block, *, has_mixed: bool) -> ColumnBatch:
        if self._is_hopeless:
            return ColumnBatch.none_of(block)
        cells = self._parted(block)
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

    def _parted(self, block: Block) -> "ScannedCells | None":
        """Where the cells of a block are; None where Arrow is better asked."""
        names = [name for name in self._places if name not in self._numbers_checked]
        # A row has a byte for each cell: so there is no more to note than bytes.
        is_wide = len(names) * len(block) > len(block.data)
        if not self._can_part or is_wide or block.starts is not None:
            return None
        from contrada.matching.kernels import csv_scanner, json_scanner

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
        told = (np.array(places), (starts[:-1], texts), (begins, lasts), is_fallback)
        csv_scanner.part(data, block.ends, signs, *told)
        if np.count_nonzero(is_fallback) > self._options.limits.fallback_share_max * len(block):
            return None
        return ScannedCells(data, names, begins, lasts, is_fallback)

    def written(self, block: Block) -> WrittenRows | None:
        """The rows of a block as whole notifications; None where they are not read at once.

        All columns have to be asked for. A row of a block that is doubtful is odd.
        """
        if not can_write(self._places, self._options):
            return None
        batch = self._read(block, has_mixed=False)
        if not batch.columns or len(batch.lines) != len(block) or batch.is_fallback.all():
            return None
        rows = written_rows(batch.columns, len(block), self._options)
        rows.is_odd[batch.is_fallback] = True
        return rows

    def _read_by_arrow(self, block: Block) -> ColumnBatch:
        fallback = fallback_lines(block, self._options, single=len(self._columns) == 1)
        has_breaks = block.starts is not None
        table, ragged = self._table(_emptied(block, fallback), has_breaks=has_breaks)
        fallback[ragged] = True
        lines = np.delete(np.arange(len(block)), ragged)
        if len(lines) != table.num_rows:
            return ColumnBatch.none_of(block)  # Arrow did not keep to what it says.
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
        """A row for each line, but for those whose cells are too few or many: their positions."""
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
    """The values of some rows, as the text of their cells."""

    _quote_bytes = 0

    def text_column(self, place: int) -> ArrowColumn:
        """The values of an attribute of texts."""
        return ArrowColumn(self._texts(self._begins[place], self._lasts[place]))

    def _values_of(
        self, begins: Any, lasts: Any, kinds: Any, values: Any, *, has_texts: bool
    ) -> int:
        """Where there can be no texts truth values are none, too."""
        from contrada.matching.kernels import csv_scanner

        found: int = csv_scanner.cells_of(self._data, begins, lasts, has_texts, kinds, values)
        return found


def unreadable_lines(block: Block, *, single: bool) -> Any:
    """Which lines only the plain reader takes as they are; of those with a single cell also those
    that might be blank.
    """
    data = np.frombuffer(block.data, np.uint8)
    found = np.diff(block.ends, prepend=-1) > LINE_BYTES_MAX
    if not is_utf_8(block.data):
        found[_lines_at(block, np.flatnonzero(data >= 0x80))] = True
    if block.data.startswith(codecs.BOM_UTF8):
        found[0] = True
    if single:
        first = data[np.concatenate(([0], block.ends[:-1] + 1))]
        found |= (first != _LF) & ((first <= 0x20) | (first >= 0x80))
    return found


def fallback_lines(block: Block, options: ReadOptions, *, single: bool) -> Any:
    """Which lines Arrow could cut in another way than the plain reader."""
    fallback = unreadable_lines(block, single=single)
    quote, delimiter = options.quote.encode(), options.delimiter.encode()
    if quote and quote in block.data:
        data = np.frombuffer(block.data, np.uint8)
        fallback[_misquoted(block, data, quote[0], delimiter[0])] = True
    return fallback


def _lines_at(block: Block, places: Any) -> Any:
    """The positions of the lines in which these bytes are."""
    return np.searchsorted(block.ends, places)


def _misquoted(block: Block, data: Any, quote: int, delimiter: int) -> Any:
    """The lines in which quotes are not all around a cell or doubled within one.

    Of the quotes of a line the first, third, … open: before them a cell begins, or stands the quote
    that they double. The others close, likewise.
    """
    quotes = np.flatnonzero(data == quote)
    lines = _lines_at(block, quotes)
    firsts = np.flatnonzero(np.diff(lines, prepend=-1))
    counts = np.diff(np.append(firsts, len(lines)))
    opens = (np.arange(len(quotes)) - np.repeat(firsts, counts)) % 2 == 0
    # Every line ends with LF, so that before the first byte stands the last one.
    beside = np.where(opens, data[quotes - 1], data[quotes + 1])
    wrong = (beside != delimiter) & (beside != _LF) & (beside != quote)
    return np.concatenate([lines[wrong], lines[firsts[counts % 2 == 1]]])


def _emptied(block: Block, fallback: Any) -> bytes:
    """The lines of a block, the doubtful ones as empty lines."""
    pieces = []
    done = 0
    for line in np.flatnonzero(fallback).tolist():
        pieces.append(block.data[done : block.begin(line)])
        done = block.ends[line]
    pieces.append(block.data[done:])
    return b"".join(pieces)
