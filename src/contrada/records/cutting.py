"""Many rows of CSV at once: Arrow cuts the lines and each distinct cell is converted once.

The meaning of a row is `contrada.records.rows`. Here only those lines are read of which Arrow
and the plain reader give the same cells, and only values that the plain reader would take. All
other lines are *doubtful* and left to it:

- lines with quotes other than around a whole cell or doubled within one, with bytes that are not
  UTF-8, longer than LINE_BYTES_MAX, or first and with a byte order mark; Arrow gets an empty line
  in their place;
- rows with too few or too many cells, of which Arrow tells;
- rows with a cell that is not of its declared type, or without the time that the source needs.
"""

import codecs
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv

from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.records.columns import REFUSED, Column, ColumnBatch, converter
from contrada.records.lines import Block, is_utf_8
from contrada.records.reading import Reading
from contrada.records.writing import WrittenRows, can_write, written_rows

LINE_BYTES_MAX: Final = 2**16
"""Bytes of a line that is read together with others. Beyond it: it is read by itself."""

_LF = ord("\n")


class Cutter:
    """Reads the columns of a file that are asked for, and those whose cells can be bad."""

    def __init__(
        self, columns: tuple[str | None, ...], asked: Iterable[str], reading: Reading
    ) -> None:
        self._reading = reading
        stamp = {reading.stamp} - {None}
        wanted = {*asked, *reading.names_checked()} & set(columns)
        self._count = len(columns)
        # Where every row is bad, the plain reader says why.
        kept = len(columns) - columns.count(None)
        self._is_hopeless = not stamp <= wanted or kept + len(reading.add) > ATTRIBUTES_MAX
        self._places = {
            name: str(place)
            for place, name in enumerate(columns)
            if name is not None and name in wanted
        }
        self._values = {
            name: converter(reading.converter(name), reading.is_absent, is_stamp=name in stamp)
            for name in wanted
        }

    def read(self, block: Block) -> ColumnBatch:
        """The rows of a block."""
        doubtful = doubtful_lines(block, self._reading, single=self._count == 1)
        if self._is_hopeless:
            return ColumnBatch.none_of(block)
        has_breaks = block.starts is not None
        table, ragged = self._table(_emptied(block, doubtful), has_breaks=has_breaks)
        doubtful[ragged] = True
        lines = np.delete(np.arange(len(block)), ragged)
        if len(lines) != table.num_rows:
            return ColumnBatch.none_of(block)  # Arrow did not keep to what it says.
        is_blank = np.diff(block.ends, prepend=-1) == 1
        columns = {}
        for name, place in self._places.items():
            cells = table.column(place).combine_chunks()
            codes = cells.indices.to_numpy()
            values = list(map(self._values[name], cells.dictionary.to_pylist()))
            refused = np.array([value is REFUSED for value in values], dtype=bool)
            doubtful[lines] |= refused[codes]
            columns[name] = Column(values, codes)
        stamps = columns.get(self._reading.stamp or "")
        return ColumnBatch(doubtful, ~doubtful & ~is_blank, lines, columns, stamps)

    def written(self, block: Block) -> WrittenRows | None:
        """The rows of a block as whole notifications; None where they are not read at once.

        All columns have to be asked for. A row of a block that is doubtful is odd.
        """
        if not can_write(self._places, self._reading):
            return None
        batch = self.read(block)
        if not batch.columns or len(batch.lines) != len(block) or batch.is_doubtful.all():
            return None
        rows = written_rows(batch.columns, len(block), self._reading)
        rows.is_odd[batch.is_doubtful] = True
        return rows

    def _table(self, data: bytes, *, has_breaks: bool) -> tuple[Any, list[int]]:
        """A row for each line, but for those whose cells are too few or many: their positions."""
        ragged: list[int] = []

        def skip(row: Any) -> str:
            ragged.append(row.number - 1)
            return "skip"

        quote = self._reading.quote
        has_quotes = bool(quote) and quote.encode() in data
        names = [str(place) for place in range(self._count)]
        table = csv.read_csv(
            pa.py_buffer(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(
                delimiter=self._reading.delimiter,
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


def doubtful_lines(block: Block, reading: Reading, *, single: bool) -> Any:
    """Which lines Arrow could cut in another way than the plain reader; of those with a single
    cell also those that might be blank.
    """
    data = np.frombuffer(block.data, np.uint8)
    doubtful = np.diff(block.ends, prepend=-1) > LINE_BYTES_MAX
    if not is_utf_8(block.data):
        doubtful[_lines_at(block, np.flatnonzero(data >= 0x80))] = True
    quote, delimiter = reading.quote.encode(), reading.delimiter.encode()
    if quote and quote in block.data:
        doubtful[_misquoted(block, data, quote[0], delimiter[0])] = True
    if block.data.startswith(codecs.BOM_UTF8):
        doubtful[0] = True
    if single:
        first = data[np.concatenate(([0], block.ends[:-1] + 1))]
        doubtful |= (first != _LF) & ((first <= 0x20) | (first >= 0x80))
    return doubtful


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


def _emptied(block: Block, doubtful: Any) -> bytes:
    """The lines of a block, the doubtful ones as empty lines."""
    pieces = []
    done = 0
    for line in np.flatnonzero(doubtful).tolist():
        pieces.append(block.data[done : block.begin(line)])
        done = block.ends[line]
    pieces.append(block.data[done:])
    return b"".join(pieces)
