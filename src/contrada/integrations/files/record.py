"""`Record` and `BadRecord`: a notification with its place in a source, or the reason for none.

`plain_attributes` shows a record to people and to other programs. This form is easy to read and not
exact: times are ISO 8601 texts, NaN and the infinities are texts. The exact forms are the model's
encoding and `contrada.integrations.files.json_objects.shown_text`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contrada.errors import ContradaError, InputError, LimitError, ParseError
from contrada.integrations.files.lines import FileLimits, printable
from contrada.model import Notification, Value
from contrada.model.algebra.nested_objects import json_value, time_text
from contrada.model.domains.values import datetime_of

BAD_TEXT_CHARS_MAX: Final = 2_000
"""Characters kept of a bad record, enough to find and judge it. Beyond it: the rest is cut."""

PlainValue: TypeAlias = bool | int | float | str | None

Make: TypeAlias = Callable[[str], Notification]
"""Converts a line to a notification. Raises ContradaError."""

_OWN_JSON: Final = frozenset((bool, int, str))
"""Types of which each value is its own JSON value."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was read. `number` is the line of a row, or the position of an entry."""

    source: str
    number: int
    notification: Notification


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read: its place, the reason, and the beginning of its text."""

    source: str
    reason: str
    line: int | None = None
    column: int | None = None
    text: str = ""

    def error(self) -> InputError:
        """Returns an InputError, with a text of one line to show."""
        return InputError(self.source, self.reason, self.line, self.column)


def bad_record(source: str, error: ContradaError, line: int | None, text: str = "") -> BadRecord:
    """Returns the bad record for an error in a text that begins on a line."""
    column = None
    reason = str(error)
    if isinstance(error, ParseError):
        line = error.line if line is None else line + error.line - 1
        column = error.column
        reason = error.what
    elif isinstance(error, InputError):
        line, column, reason = error.line or line, error.column, error.reason
    return BadRecord(source, reason, line, column, printable(text[:BAD_TEXT_CHARS_MAX]))


def beginning(data: bytes) -> str:
    """Returns the beginning of a bad document, to show it."""
    return data[:BAD_TEXT_CHARS_MAX].decode("utf-8", "replace")


def record_of(
    make: Make, source: str, line: int, text: str, limits: FileLimits = FileLimits()
) -> Record | BadRecord:
    """Returns the record that `make` reads from a line, or the bad record."""
    try:
        if len(text) > limits.line_chars_max or not text.isascii():
            check_line(text, limits)
        return Record(source, line, make(text))
    except ContradaError as error:
        return bad_record(source, error, line, text)


def check_line(text: str, limits: FileLimits = FileLimits()) -> None:
    """Refuses a line that is too long or not UTF-8. Raises LimitError and ParseError."""
    if len(text) > limits.line_chars_max:
        raise LimitError("line_chars_max", limits.line_chars_max)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # `lines` keeps such bytes as lone surrogates.
        byte = ord(text[error.start]) & 0xFF
        raise ParseError(1, error.start + 1, f"byte 0x{byte:02x}", "UTF-8") from None


def match_object(
    name: str, about: Mapping[str, object], notification: Notification, **place: object
) -> dict[str, object]:
    """Returns a match as a JSON object, with the description of a rule if there is one."""
    found = {
        "subscription": name,
        **place,
        "time": plain_time(notification),
        "attributes": plain_attributes(notification),
    }
    return found | {"rule": about} if about else found


def correlation_object(
    name: str, about: Mapping[str, object], found: Sequence[Notification]
) -> dict[str, object]:
    """Returns a match of several notifications as a JSON object."""
    events = [{"time": plain_time(each), "attributes": plain_attributes(each)} for each in found]
    shown: dict[str, object] = {"subscription": name, "events": events}
    return shown | {"rule": about} if about else shown


def plain_attributes(notification: Notification) -> dict[str, PlainValue | list[PlainValue]]:
    """Returns the attributes by name; several values of one are a list."""
    found: dict[str, Any] = {**notification.attributes}
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = [plain_value(each) for each in value]
        elif type(value) not in _OWN_JSON:
            found[name] = plain_value(value)
    return found


def plain_time(notification: Notification) -> str | None:
    """Returns the envelope's time as ISO 8601; None for an envelope without a time."""
    time_us = notification.envelope.time_us
    return None if time_us is None else time_text(datetime_of(time_us))


def plain_value(value: Value) -> PlainValue:
    """Returns a JSON value; times, bytes and numbers outside JSON become texts."""
    shown = json_value(value)
    return next(iter(shown.values())) if isinstance(shown, dict) else shown  # type: ignore[no-any-return]
