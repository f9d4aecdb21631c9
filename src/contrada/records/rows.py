"""Rows of CSV to notifications.

The first line of a file names the columns. A row is one line, so that a file can be cut at any
line and one broken row cannot swallow the next: a quote that is still open at the end of the
line makes a bad record. Cells are parted by commas and quoted as RFC 4180 says. Which value a
cell holds is said in `contrada.records.cells`.
"""

import csv
from collections.abc import Iterable, Iterator
from typing import Final

from contrada.errors import ContradaError, InvalidCellError, ParseError
from contrada.model import Notification, Value
from contrada.model.domains.values import check_user_name
from contrada.records.reading import Reading
from contrada.records.record import BadRecord, Record, bad_record, record_of

COLUMNS_MAX: Final = 10_000
"""Columns of a file. Beyond it: the file is a bad record as a whole."""


class Rows:
    """Makes the notifications of one file's rows; built from its first line.

    Raises ParseError and InvalidNameError where the first line cannot name the columns, and
    InputError where it is too long, or not UTF-8.
    """

    def __init__(self, header: str, reading: Reading) -> None:
        checked = record_of(lambda text: Notification({}), "header", 1, header)
        if isinstance(checked, BadRecord):
            raise checked.error()
        self.columns = _columns(header)
        self._reading = reading
        self._converters = [(name, reading.converter(name)) for name in self.columns]

    def notification(self, line: str) -> Notification:
        """The notification of a row.

        Cost: proportional to the row. Raises ParseError, InvalidValueError and
        InvalidNotificationError.
        """
        cells = _cells(line)
        if len(cells) != len(self._converters):
            found, expected = f"{len(cells)} cells", f"{len(self._converters)}"
            raise ParseError(1, len(line) + 1, found, expected)
        is_absent = self._reading.is_absent
        found_values: dict[str, Value] = {}
        for (name, converter), cell in zip(self._converters, cells, strict=True):
            if is_absent(cell):
                continue
            try:
                found_values[name] = converter(cell)
            except ContradaError as error:
                raise InvalidCellError(name, error) from None
        return self._reading.notification(found_values)


def read_rows(lines: Iterable[str], source: str, reading: Reading) -> Iterator[Record | BadRecord]:
    """The records of a file, numbered by line; blank lines are none.

    A file whose first line is no header, or whose lines cannot be read on, gives one bad
    record for that and ends there.
    """
    line = 0
    rows: Rows | None = None
    try:
        for line, text in enumerate(lines, start=1):
            if rows is None:
                rows = Rows(text, reading)
            elif not is_blank(text):
                yield record_of(rows.notification, source, line, text)
        if rows is None:
            raise ParseError(1, 1, "an empty file", "a line that names the columns")
    except ContradaError as error:
        yield bad_record(source, error, 1 if rows is None else None)


def is_blank(line: str) -> bool:
    """Whether a line holds nothing but blanks."""
    return not line or line.isspace()


def _columns(header: str) -> tuple[str, ...]:
    names = tuple(_cells(header))
    if is_blank(header):
        raise ParseError(1, 1, "a blank line", "the names of the columns")
    if len(names) > COLUMNS_MAX:
        raise ParseError(1, 1, f"{len(names)} columns", f"at most COLUMNS_MAX = {COLUMNS_MAX}")
    for position, name in enumerate(names):
        check_user_name(name)
        if name in names[:position]:
            raise ParseError(1, 1, f"the column {name!r} twice", "different names")
    return names


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader((line,), strict=True))
    except csv.Error as error:
        raise ParseError(1, line.rindex('"') + 1, str(error), "cells as in RFC 4180") from None
