"""`CsvRows` and `RowJoiner`: the rows of a CSV file, and their notifications.

The first row of a file names the columns. Cells are separated by commas and quoted as in RFC 4180,
or by the characters that the options name. A row is one line, or several with line breaks in quoted
cells; a line break in a cell is LF. A line with an odd number of quotes opens a row that the next
such line can close (RFC 4180, rule 6). The lines between them are one row only if they have a cell
for each column and are within the limits. Otherwise the first line is a bad record and reading
continues behind it, so a forgotten quote costs one line.
"""

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from contrada.errors import ContradaError, InvalidCellError, ParseError
from contrada.integrations.files.lines import Block, LineCutter
from contrada.integrations.files.read_options import Converter, ReadOptions
from contrada.integrations.files.record import BadRecord, Record, bad_record, check_line, record_of
from contrada.model import Notification, Value
from contrada.model.domains.values import check_user_name

_SEPARATORS: Final = {";": "--delimiter ';'", "\t": "--delimiter $'\\t'", ",": "--delimiter ,"}


class CsvRows:
    """Converts the rows of one file to notifications. Raises ParseError, LimitError and
    InvalidNameError for a header that cannot name the columns.
    """

    def __init__(self, header: str, options: ReadOptions) -> None:
        check_line(header, options.limits)
        if header.startswith("{") and _is_object(header):  # Its parts would name columns.
            raise ParseError(1, 1, "a JSON object", "the names of the columns, as in CSV")
        self._options = options
        cells, columns_max = _cells(header, options), options.limits.columns_max
        self._hint = ""
        if len(cells) == 1 and (signs := [sign for sign in _SEPARATORS if sign in cells[0]]):
            option = _SEPARATORS[signs[0]]
            self._hint = f"; the header has {signs[0]!r}: {option} parts cells by that"
        if not header.strip():
            raise ParseError(1, 1, "a blank line", "the names of the columns")
        if len(cells) > columns_max:
            limit = f"at most columns_max = {columns_max}"
            raise ParseError(1, 1, f"{len(cells)} columns", limit)
        if self._hint and not (options.quote and header.startswith(options.quote)):
            raise ParseError(1, 1, "one column", f"more, or its name in quotes{self._hint}")
        self.columns: tuple[str | None, ...] = tuple(
            map(options.attribute, cells) if options.is_renaming else cells
        )
        """The attributes of the cells of a row; None for a dropped column."""
        self._absent = {"", *options.absent}
        self._converters: list[Converter | None] = []
        known: set[str] = set()
        for number, name in enumerate(self.columns, start=1):
            self._converters.append(options.converter(name) if name else None)
            if name is None:
                continue
            if not name:
                raise ParseError(1, 1, f"column {number} without a name", "one")
            check_user_name(name)
            if name in known:
                found = f"the column {name!r} twice"
                if options.rename:
                    same = (cell for cell in cells if options.attribute(cell) == name)
                    found += f" ({' and '.join(map(repr, same))})"
                raise ParseError(1, 1, found, "different names")
            known.add(name)
        options.met.update(known)

    def is_blank(self, line: str) -> bool:
        """Whether a line holds only blanks that separate no cells."""
        return (not line or line.isspace()) and self._options.delimiter not in line

    def notification(self, line: str) -> Notification:
        """Returns the notification of a row. Cost: proportional to the row. Raises ParseError,
        InvalidValueError and InvalidNotificationError.
        """
        cells = _cells(line, self._options)
        if len(cells) != len(self.columns):
            found, expected = f"{len(cells)} cells", f"{len(self.columns)}{self._hint}"
            raise ParseError(1, len(line) + 1, found, expected)
        values: dict[str, Value] = {}
        for name, converter, cell in zip(self.columns, self._converters, cells, strict=True):
            if name is None or converter is None or cell in self._absent:
                continue
            try:
                values[name] = converter(cell)
            except ContradaError as error:
                raise InvalidCellError(name, error) from None
        return self._options.notification(values)


class RowJoiner:
    """Joins the lines of one file into rows, block by block."""

    def __init__(self, options: ReadOptions, header: str | None = None) -> None:
        """`header` is for a part of a file that begins below its first row."""
        self._options = options
        self._sign = options.quote.encode()
        self._held: Block | None = None
        self.rows = None if header is None else CsvRows(header, options)
        """The reader of rows; None until the header is complete."""

    def join(self, block: Block | None) -> Block | None:
        """Returns the rows below the header that this block completes, if any; None ends the file.
        Lines of an open row wait for the next block. Raises ParseError, and as `CsvRows`.
        """
        held, self._held = self._held, None
        if block is None and held is None and self.rows is None:
            raise ParseError(1, 1, "an empty file", "a line that names the columns")
        has_quotes = block is not None and bool(
            held is not None or (self._sign and self._sign in block.data)
        )
        if held is not None:
            block = held if block is None else Block.of(held.first, held.data + block.data)
        if not block:
            return None
        if self.rows is None:
            size = self._header_lines(block) if has_quotes else 1
            if size is None:
                self._held = block
                return None
            header, block = block.cut(size)
            line = header.data[:-1].decode("utf-8", "surrogateescape")
            self.rows = CsvRows(line, self._options)
        return self._join_lines(block) if has_quotes else block  # Else each line is a row.

    def _header_lines(self, block: Block) -> int | None:
        """Returns the number of lines of the header; None if the next block decides it."""
        odd = _odd_lines(block, self._sign)[:2].tolist()
        if not odd or odd[0] > 0:
            return 1
        if len(odd) == 1:
            return None if len(block) < self._options.limits.row_lines_max else 1
        return odd[1] + 1 if self._is_row(block, 0, odd[1]) else 1

    def _join_lines(self, block: Block) -> Block:
        odd = _odd_lines(block, self._sign).tolist()
        ends_row = np.ones(len(block), dtype=bool)
        at = 0
        while at + 1 < len(odd):
            first, last = odd[at : at + 2]
            if self._is_row(block, first, last):
                ends_row[first:last] = False
                at += 1
            at += 1
        if at < len(odd) and len(block) - odd[at] < self._options.limits.row_lines_max:
            block, self._held = block.cut(odd[at])
        return block.of_rows(ends_row[: len(block)])

    def _is_row(self, block: Block, first: int, last: int) -> bool:
        limits = self._options.limits
        if last - first >= limits.row_lines_max:
            return False
        text = block.text(first, last)
        if len(text) > limits.line_chars_max:
            return False
        try:
            cells = _cells(text, self._options)
        except ParseError:
            return False
        return self.rows is None or len(cells) == len(self.rows.columns)


def columns_of(blocks: Iterable[Block], options: ReadOptions) -> tuple[str | None, ...]:
    """Returns the attributes of a file's columns, None for dropped ones. Raises as `RowJoiner`."""
    joiner = RowJoiner(options)
    given = chain(blocks, (None,))
    while joiner.rows is None:
        joiner.join(next(given))
    return joiner.rows.columns


def read_rows(
    blocks: Iterable[Block], source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """Yields the records of a file, numbered by line; blank lines are skipped. An invalid header,
    or an error of the blocks, gives one bad record and ends the file.
    """
    return joined_rows(RowJoiner(options), chain(blocks, (None,)), source, options)


def joined_rows(
    joiner: RowJoiner, blocks: Iterable[Block | None], source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """Yields records as `read_rows`, for some blocks of a file; None ends it."""
    try:
        for block in filter(None, map(joiner.join, blocks)):
            assert joiner.rows is not None, "the header precedes all rows"
            for position in range(len(block)):
                number, text = block.numbered(position)
                if not joiner.rows.is_blank(text):
                    make = joiner.rows.notification
                    yield record_of(make, source, number, text, options.limits)
    except ContradaError as error:
        yield bad_record(source, error, 1 if joiner.rows is None else None)


def is_blank(line: str) -> bool:
    """Whether a line holds nothing but blanks."""
    return not line or line.isspace()


def has_open_quote(data: bytes, quote: str) -> bool:
    """Whether one of some whole lines has an odd number of quotes."""
    sign = quote.encode()
    if not sign or sign not in data:
        return False
    lines = LineCutter()
    return bool(len(_odd_lines(Block.of(1, lines.cut(data) + lines.cut(b"")), sign)))


def _is_object(header: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(header), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _odd_lines(block: Block, sign: bytes) -> Any:
    """Returns the positions of the lines with an odd number of quotes."""
    places = np.flatnonzero(np.frombuffer(block.data, np.uint8) == sign[0])
    counts = np.bincount(np.searchsorted(block.ends, places), minlength=len(block))
    return np.flatnonzero(counts & 1)


def _cells(line: str, options: ReadOptions) -> list[str]:
    delimiter, quote = options.delimiter, options.quote
    if not quote or quote not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), strict=True, delimiter=delimiter, quotechar=quote))
    except csv.Error as error:
        raise ParseError(1, line.rindex(quote) + 1, str(error), "cells as in RFC 4180") from None
