"""What reading gives: a record with its notification, or a bad record with its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from contrada.errors import ContradaError, InputError, LimitError, ParseError
from contrada.integrations.files.lines import LINE_CHARS_MAX, printable
from contrada.model import Notification

BAD_TEXT_CHARS_MAX: Final = 2_000
"""Characters kept of a bad record, enough to find and judge it. Beyond it: the rest is cut."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that could be read. `number`: the line of a row, of an entry its position."""

    source: str
    number: int
    notification: Notification


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be read: where it stands, why, and how it begins."""

    source: str
    reason: str
    line: int | None = None
    column: int | None = None
    text: str = ""

    def error(self) -> InputError:
        """The same as an error, whose text is the one line to show."""
        return InputError(self.source, self.reason, self.line, self.column)


def bad_record(source: str, error: ContradaError, line: int | None, text: str = "") -> BadRecord:
    """The bad record that an error makes of a text that begins on a line."""
    column = None
    reason = str(error)
    if isinstance(error, ParseError):
        line = error.line if line is None else line + error.line - 1
        column = error.column
        reason = error.what
    elif isinstance(error, InputError):
        line, column, reason = error.line or line, error.column, error.reason
    return BadRecord(source, reason, line, column, printable(text[:BAD_TEXT_CHARS_MAX]))


def record_of(
    make: Callable[[str], Notification], source: str, line: int, text: str
) -> Record | BadRecord:
    """The record that `make` makes of a line, or the bad record.

    A line longer than LINE_CHARS_MAX and one that is not UTF-8 are bad before it is called.
    """
    try:
        if len(text) > LINE_CHARS_MAX:
            raise LimitError("LINE_CHARS_MAX", LINE_CHARS_MAX)
        if not text.isascii():
            _check_text(text)
        return Record(source, line, make(text))
    except ContradaError as error:
        return bad_record(source, error, line, text)


def _check_text(text: str) -> None:
    """Refuse bytes that are not UTF-8, which reading has kept as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise ParseError(1, error.start + 1, f"byte 0x{byte:02x}", "UTF-8") from None
