"""JSON lines to notifications.

Each line is one JSON object. Nested objects become names joined by dots, an array of scalars
becomes several values of its attribute, `null` is the value null, `{"$time": "…"}` is a time:
`model/algebra/nested_objects.py` says it all. What no attribute can hold (arrays of objects, arrays
in arrays) stays in the body, which is then the whole line. Integers are exact; one outside 64 bits,
a decimal outside the doubles, a repeated name, `NaN` and everything else that is no JSON make a bad
record. A declared type is applied to texts, which is how times and `"NaN"` come in;
`contrada.integrations.files.read_options` says how.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from contrada.errors import ContradaError, InvalidNotificationError, LimitError, ParseError
from contrada.integrations.dialects.json_text import LiteralError, strict
from contrada.integrations.documents.document_shape import SHAPE_TYPE, renamed, shape_of_object
from contrada.integrations.documents.json_slots import ObjectWalk, outermost_array
from contrada.integrations.documents.naming_strategies import (
    Named,
    Original,
    base_of,
    is_escaping,
    named,
)
from contrada.integrations.files.csv_rows import is_blank
from contrada.integrations.files.file_limits import FileLimits
from contrada.integrations.files.lines import printable
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import (
    BAD_TEXT_CHARS_MAX,
    BadRecord,
    Record,
    bad_record,
    check_line,
    record_of,
)
from contrada.integrations.files.slot_reader import SlotReader
from contrada.model import Notification, Value
from contrada.model.algebra.nested_objects import JSON_TYPE, OBJECT_DEPTH_MAX, as_json, flatten

NAMES_TOLD_MAX: Final = 65_536
"""Generated names that a renderer keeps. Beyond it: those of further documents are only in their
notifications."""

WHOLE_DOCUMENT: Final = "."
"""As `entries`: the document itself is the array."""


def notification_of_object(line: str, options: ReadOptions, *, keep: bool = False) -> Notification:
    """The notification of a line that holds one JSON object; with `keep` the line is its body.

    Cost: proportional to the line. Raises ParseError, InvalidValueError, LimitError and
    InvalidNotificationError.
    """
    return _notification(_decoded(line), line.encode, options, keep=keep)


def notification_of_content(content: Any, options: ReadOptions) -> Notification:
    """The notification of what is no text: names with values, texts, and such within them.

    It means what a JSON object of these says. Raises as `notification_of_object`.
    """
    return _notification(content, lambda: as_json(content), options)


@dataclass(slots=True)
class DocumentReport:
    """What is told of documents beside their records; see `integrations.files.renderer`."""

    repeated: dict[str, int] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    names: dict[str, Original] = field(default_factory=dict)

    def note(self, names: Iterable[Named]) -> None:
        """Keeps what generated names stand for."""
        if len(self.names) < NAMES_TOLD_MAX:
            self.names.update(renamed(names))


def _by_strategy(
    content: dict[str, Any], options: ReadOptions, report: DocumentReport
) -> Notification:
    """The notification of an object by a strategy that does not leave repeated names together."""
    is_escaped = is_escaping(options.strategy)
    slots = ObjectWalk(is_escaped, report.repeated).slots(content)
    names = named(slots, options.strategy, report.lost)
    values = SlotReader(options, is_json=True)
    found = values.of(names)
    if not is_escaped:
        return options.notification(found)
    report.note(names)
    body = shape_of_object(content, base_of(options.strategy), names, values.held(found, names))
    return options.notification(found, body=body, content_type=SHAPE_TYPE)


def records_of_object(
    data: bytes, source: str, options: ReadOptions, report: DocumentReport | None = None
) -> Iterator[Record | BadRecord]:
    """The records of a JSON document: of an object, or of the array in it that is split.

    By the strategy `split` without `entries` this is the outermost array with several objects.
    """
    report = DocumentReport() if report is None else report
    try:
        text = printable(data.decode("utf-8", "surrogateescape"))
        if options.entries is None and options.strategy == "split":
            array = outermost_array(decoded(text))
            options = replace(options, entries=array, strategy="multi")
        if options.entries is None:
            made = _notification(_decoded(text), lambda: data, options, report=report)
            yield Record(source, 1, made)
            return
    except ContradaError as error:
        yield bad_record(source, error, None, data[:BAD_TEXT_CHARS_MAX].decode("utf-8", "replace"))
        return
    yield from read_array(data, source, options, report)


def _notification(
    content: Any,
    encoded: Callable[[], bytes],
    options: ReadOptions,
    *,
    keep: bool = False,
    report: DocumentReport | None = None,
) -> Notification:
    """The notification of what was decoded; `encoded` gives its bytes, for the body."""
    found: dict[str, list[Value]] = {}
    if options.drop:
        content = _without_dropped(content, "", options)
        encoded = partial(_encoded, content)
    if base_of(options.strategy) != "multi":
        return _by_strategy(
            _object(content), options, DocumentReport() if report is None else report
        )
    put = partial(_put, found=found, options=options)
    if flatten(_object(content), put) and not keep:
        return options.notification(found)
    return options.notification(found, body=encoded(), content_type=JSON_TYPE)


def _without_dropped(content: Any, path: str, options: ReadOptions) -> Any:
    """What is left of an object, also within arrays; so the body, too, has nothing dropped."""
    if isinstance(content, list):
        return [_without_dropped(each, path, options) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        key: _without_dropped(each, f"{path}{key}.", options)
        for key, each in content.items()
        if not options.is_dropped(f"{path}{key}")
    }


def read_array(
    data: bytes, source: str, options: ReadOptions, report: DocumentReport | None = None
) -> Iterator[Record | BadRecord]:
    """The records of the array in a JSON document that `entries` names, numbered from 1.

    `entries` are the names that lead to it, joined by dots, or WHOLE_DOCUMENT. What stands around
    the array takes no part. Cost: proportional to the document.
    """
    try:
        elements = _array(printable(data.decode("utf-8", "surrogateescape")), options.entries or "")
    except ContradaError as error:
        yield bad_record(source, error, None, data[:BAD_TEXT_CHARS_MAX].decode("utf-8", "replace"))
        return
    for number, element in enumerate(elements, start=1):
        encode = partial(_encoded, element)
        try:
            yield Record(source, number, _notification(element, encode, options, report=report))
        except ContradaError as error:
            text = encode().decode()[:BAD_TEXT_CHARS_MAX]
            reason = bad_record(source, error, None).reason
            yield BadRecord(source, f"{options.entries} {number}: {reason}", None, None, text)


def _array(text: str, name: str) -> list[Any]:
    content = _decoded(text)
    for part in () if name == WHOLE_DOCUMENT else name.split("."):
        if not isinstance(content, dict) or part not in content:
            raise ParseError(1, 1, "no such member", f"an array at {name!r}")
        content = content[part]
    if not isinstance(content, list):
        raise ParseError(1, 1, f"a JSON {_kind(content)} at {name!r}", "an array")
    return content


def _encoded(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def read_objects(
    lines: Iterable[str], source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """The records of a file of JSON lines, numbered by line; blank lines are none.

    By the strategy `split` a line may have several records.
    """
    if options.splits:
        return _split_lines(lines, source, options)
    make = partial(notification_of_object, options=options)
    return records_of_lines(lines, source, make, options.limits)


def _split_lines(
    lines: Iterable[str], source: str, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    try:
        for number, text in enumerate(lines, start=1):
            yield from records_of_line(text, source, number, options)
    except ContradaError as error:
        yield bad_record(source, error, None)


def records_of_line(
    text: str, source: str, number: int, options: ReadOptions
) -> Iterator[Record | BadRecord]:
    """The records of a line, all with its number: one, or those that it is split into; or none."""
    if is_blank(text):
        return
    if not options.splits:
        make = partial(notification_of_object, options=options)
        yield record_of(make, source, number, text, options.limits)
        return
    try:
        check_line(text, options.limits)
    except ContradaError as error:
        yield bad_record(source, error, number, text)
        return
    for each in records_of_object(text.encode(), source, options):
        if isinstance(each, BadRecord):
            yield replace(each, line=number)
        else:
            yield replace(each, number=number)


def records_of_lines(
    lines: Iterable[str],
    source: str,
    make: Callable[[str], Notification],
    limits: FileLimits = FileLimits(),
) -> Iterator[Record | BadRecord]:
    """As `read_objects`, by a function that makes the notification of a line."""
    try:
        for number, text in enumerate(lines, start=1):
            if not is_blank(text):
                yield record_of(make, source, number, text, limits)
    except ContradaError as error:
        yield bad_record(source, error, None)


def _put(
    name: str, scalars: Iterable[Value], found: dict[str, list[Value]], options: ReadOptions
) -> None:
    name = options.rename.get(name, name)
    declared = options.converter(name) if name in options.types else None
    values = found.setdefault(name, [])
    takes_numbers = options.takes_numbers(name)
    for scalar in scalars:
        if takes_numbers and type(scalar) in (int, float):
            values.append(_typed(name, scalar, declared))
        elif not isinstance(scalar, str):
            values.append(scalar)
        elif scalar in options.absent:
            continue
        elif declared is None:
            values.append(scalar)
        else:
            values.append(_typed(name, scalar, declared))


def _typed(name: str, given: Any, declared: Any) -> Value:
    try:
        value: Value = declared(given)
    except ContradaError as error:
        raise InvalidNotificationError(name, given, str(error)) from None
    return value


def decoded(line: str) -> dict[str, Any]:
    """The JSON object on a line. Raises ParseError, InvalidValueError, LimitError."""
    return _object(_decoded(line))


def _decoded(line: str) -> Any:
    try:
        return _DECODER.decode(line)
    except json.JSONDecodeError as error:
        found = repr(line[error.pos]) if error.pos < len(line) else "the end of the line"
        raise ParseError(error.lineno, error.colno, found, _expected(error.msg)) from None
    except LiteralError as error:
        at = _column(line, error.literal) - 1
        before = line[:at]
        row, column = before.count("\n") + 1, at - before.rfind("\n")
        raise ParseError(row, column, error.found, error.expected) from None
    except RecursionError:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX) from None


def _object(content: Any) -> dict[str, Any]:
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
    kinds = {dict: "object", list: "array", str: "string", bool: "truth value", type(None): "null"}
    return kinds.get(type(content), "number")


_INTEGER_CHARS_MAX: Final = 40
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\]:,]+')
_NO_NUMBER: Final = 'JSON (which has no such number; write {"$number": "NaN"})'
_DECODER: Final = strict(_int, no_number=_NO_NUMBER)
