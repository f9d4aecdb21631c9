"""JSON lines to notifications.

Each line is one JSON object. Nested objects become names joined by dots, an array of scalars
becomes several values of its attribute, `null` is the value null, `{"$time": "…"}` is a time:
`model/algebra/nesting.py` says it all. What no attribute can hold (arrays of objects, arrays in
arrays) stays in the body, which is then the whole line. Integers are exact; one outside 64 bits, a
decimal outside the doubles, a repeated name, `NaN` and everything else that is no JSON make a bad
record. A declared type is applied to texts, which is how times and `"NaN"` come in;
`contrada.records.cells` says how.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from contrada.dialects.json_text import LiteralError, strict
from contrada.errors import ContradaError, InvalidNotificationError, LimitError, ParseError
from contrada.model import Notification, Value
from contrada.model.algebra.nesting import JSON_TYPE, OBJECT_DEPTH_MAX, flatten
from contrada.records.reading import Reading
from contrada.records.record import BadRecord, Record, bad_record, record_of
from contrada.records.rows import is_blank


def notification_of_object(line: str, reading: Reading) -> Notification:
    """The notification of a line that holds one JSON object.

    Cost: proportional to the line. Raises ParseError, InvalidValueError, LimitError and
    InvalidNotificationError.
    """
    found: dict[str, list[Value]] = {}
    is_whole = flatten(decoded(line), lambda name, each: _put(name, each, found, reading))
    if is_whole:
        return reading.notification(found)
    return reading.notification(found, body=line.encode(), content_type=JSON_TYPE)


def read_objects(
    lines: Iterable[str], source: str, reading: Reading
) -> Iterator[Record | BadRecord]:
    """The records of a file of JSON lines, numbered by line; blank lines are none."""
    return records_of_lines(lines, source, lambda line: notification_of_object(line, reading))


def records_of_lines(
    lines: Iterable[str], source: str, make: Callable[[str], Notification]
) -> Iterator[Record | BadRecord]:
    """As `read_objects`, by a function that makes the notification of a line."""
    try:
        for number, text in enumerate(lines, start=1):
            if not is_blank(text):
                yield record_of(make, source, number, text)
    except ContradaError as error:
        yield bad_record(source, error, None)


def _put(
    name: str, scalars: Iterable[Value], found: dict[str, list[Value]], reading: Reading
) -> None:
    declared = reading.converter(name) if name in reading.types else None
    values = found.setdefault(name, [])
    for scalar in scalars:
        if not isinstance(scalar, str):
            values.append(scalar)
        elif scalar in reading.absent:
            continue
        elif declared is None:
            values.append(scalar)
        else:
            values.append(_typed(name, scalar, declared))


def _typed(name: str, text: str, declared: Any) -> Value:
    try:
        value: Value = declared(text)
    except ContradaError as error:
        raise InvalidNotificationError(name, text, str(error)) from None
    return value


def decoded(line: str) -> dict[str, Any]:
    """The JSON object on a line. Raises ParseError, InvalidValueError, LimitError."""
    try:
        content = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        found = repr(line[error.pos]) if error.pos < len(line) else "the end of the line"
        raise ParseError(1, error.pos + 1, found, _expected(error.msg)) from None
    except LiteralError as error:
        raise ParseError(1, _column(line, error.literal), error.found, error.expected) from None
    except RecursionError:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX) from None
    if not isinstance(content, dict):
        raise ParseError(1, 1, f"a JSON {_kind(content)}", "a JSON object")
    return content


def _column(line: str, literal: str) -> int:
    """Where a literal stands first, outside of texts."""
    places = (token.start() for token in _TOKEN.finditer(line) if token.group() == literal)
    return next(places, 0) + 1


def _expected(message: str) -> str:
    """The decoder's message as what it would have taken."""
    if message.startswith("Expecting "):
        return message.removeprefix("Expecting ")
    return f"one JSON object ({message.lower()})"


def _int(literal: str) -> int:
    # int() refuses very long texts with an error of its own; no 64-bit integer is that long.
    if len(literal) > _INTEGER_CHARS_MAX:
        raise LiteralError(literal, f"the integer {literal[:40]}", "an integer of 64 bits")
    return int(literal)


def _kind(content: object) -> str:
    kinds = {list: "array", str: "string", bool: "truth value", type(None): "null"}
    return kinds.get(type(content), "number")


_INTEGER_CHARS_MAX: Final = 40
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\]:,]+')
_NO_NUMBER: Final = 'JSON (which has no such number; declare the type of a text "NaN")'
_DECODER: Final = strict(_int, no_number=_NO_NUMBER)
