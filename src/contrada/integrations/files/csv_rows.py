"""Rows of CSV to notifications.

The first row of a file names the columns. A row is a line, or the lines that
`contrada.integrations.files.row_joiner` says, so that one broken row cannot swallow the next. Cells
are parted by commas and quoted as RFC 4180 says, or by the signs that the source's options name; a
line break in a cell is LF. Which value a cell holds is said in `contrada.integrations.files.cells`.
"""

import csv
from collections.abc import Iterable, Iterator
from typing import Final

from contrada.errors import ContradaError, InvalidCellError, ParseError
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord, Record, bad_record, record_of
from contrada.integrations.files.row_joiner import joined_lines
from contrada.model import Notification, Value
from contrada.model.domains.values import check_user_name

_EMPTY: Final = (1, 1, "an empty file", "a line that names the columns")

COLUMNS_MAX: Final = 10_000
"""Columns of a file. Beyond it: the file is a bad record as a whole."""


class CsvRows:
    """Makes the notifications of one file's rows; built from its first line.

    Raises ParseError and InvalidNameError where the first line cannot name the columns, and
    InputError where it is too long, or not UTF-8.
    """

    def __init__(self, header: str, options: ReadOptions) -> None:
        checked = record_of(lambda text: Notification({}), "header", 1, header)
        if isinstance(checked, BadRecord):
            raise checked.error()
        self._options = options
        cells = _cells(header, options)
        self._hint = _hint_for(cells)
        self.columns = _columns(cells, header, options)
        """The attributes of the cells of a row; None for what is dropped."""
        self._converters = [
            (name, options.converter(name) if name else None) for name in self.columns
        ]

    def is_row(self, text: str) -> bool:
        """Whether it has a cell for each column, quoted as it must be."""
        try:
            return len(_cells(text, self._options)) == len(self.columns)
        except ParseError:
            return False

    def notification(self, line: str) -> Notification:
        """The notification of a row.

        Cost: proportional to the row. Raises ParseError, InvalidValueError and
        InvalidNotificationError.
        """
        cells = _cells(line, self._options)
        if len(cells) != len(self._converters):
            found, expected = f"{len(cells)} cells", f"{len(self._converters)}{self._hint}"
            raise ParseError(1, len(line) + 1, found, expected)
        is_absent = self._options.is_absent
        found_values: dict[str, Value] = {}
        for (name, converter), cell in zip(self._converters, cells, strict=True):
            if name is None or converter is None or is_absent(cell):
                continue
            try:
                found_values[name] = converter(cell)
            except ContradaError as error:
                raise InvalidCellError(name, error) from None
        return self._options.notification(found_values)


def columns_of(lines: Iterable[str], options: ReadOptions) -> tuple[str | None, ...]:
    """The attributes of a file's columns, None for what is dropped.

    Raises ParseError for an empty file, and what `CsvRows` raises.
    """
    for _, text in joined_lines(lines, options.quote, lambda text: is_header(text, options)):
        return CsvRows(text, options).columns
    raise ParseError(*_EMPTY)


def read_rows(
    lines: Iterable[str], source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """The records of a file, numbered by line; blank lines are none.

    A file whose first line is no header, or whose lines cannot be read on, gives one bad
    record for that and ends there.
    """
    rows: CsvRows | None = None

    def is_row(text: str) -> bool:
        return is_header(text, options) if rows is None else rows.is_row(text)

    try:
        for line, text in joined_lines(lines, options.quote, is_row):
            if rows is None:
                rows = CsvRows(text, options)
            elif not is_blank_row(text, options):
                yield record_of(rows.notification, source, line, text)
        if rows is None:
            raise ParseError(*_EMPTY)
    except ContradaError as error:
        yield bad_record(source, error, 1 if rows is None else None)


def is_blank(line: str) -> bool:
    """Whether a line holds nothing but blanks."""
    return not line or line.isspace()


def is_blank_row(line: str, options: ReadOptions) -> bool:
    """Whether a line holds nothing but blanks that part no cells."""
    return is_blank(line) and options.delimiter not in line


def is_header(text: str, options: ReadOptions) -> bool:
    """Whether a text can name columns: it is quoted as it must be."""
    try:
        return bool(_cells(text, options))
    except ParseError:
        return False


def _hint_for(columns: list[str]) -> str:
    """What else may part the cells, where nothing seems to part the header's; or nothing."""
    for sign, option in (
        (";", "--delimiter ';'"),
        ("\t", "--delimiter $'\\t'"),
        (",", "--delimiter ,"),
    ):
        if len(columns) == 1 and sign in columns[0]:
            return f"; the header has {sign!r}: {option} parts cells by that"
    return ""


def _columns(cells: list[str], header: str, options: ReadOptions) -> tuple[str | None, ...]:
    names = tuple(map(options.attribute, cells))
    if is_blank(header):
        raise ParseError(1, 1, "a blank line", "the names of the columns")
    if len(names) > COLUMNS_MAX:
        raise ParseError(1, 1, f"{len(names)} columns", f"at most COLUMNS_MAX = {COLUMNS_MAX}")
    hint = _hint_for(cells)
    if hint and not (options.quote and header.startswith(options.quote)):
        raise ParseError(1, 1, "one column", f"more, or its name in quotes{hint}")
    known: set[str] = set()
    for number, name in enumerate(names, start=1):
        if name is None:
            continue
        if not name:
            raise ParseError(1, 1, f"column {number} without a name", "one")
        check_user_name(name)
        if name in known:
            raise ParseError(1, 1, f"the column {name!r} twice", "different names")
        known.add(name)
    return names


def _cells(line: str, options: ReadOptions) -> list[str]:
    delimiter, quote = options.delimiter, options.quote
    if not quote or quote not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), strict=True, delimiter=delimiter, quotechar=quote))
    except csv.Error as error:
        raise ParseError(1, line.rindex(quote) + 1, str(error), "cells as in RFC 4180") from None
