"""JSON lines and JSON documents as records; a line holds one object.

`model/algebra/nested_objects.py` defines the attributes of an object: nested objects become names
joined by dots, an array of scalars becomes several values, `null` is the value null, `{"$time":
"…"}` is a time. Content that no attribute can hold (arrays of objects or of arrays) stays in the
body, which is then the whole line. Integers are exact. An integer outside 64 bits, a decimal
outside the doubles, a duplicate name, `NaN` and any other invalid JSON make a bad record. Declared
types (`contrada.integrations.files.read_options`) apply to texts; times and `"NaN"` are written
this way.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNotificationError, LimitError, ParseError
from contrada.integrations.dialects.json_text import LiteralError, strict
from contrada.integrations.documents import naming_strategies as naming
from contrada.integrations.documents.document_shape import SHAPE_TYPE, shape_of_object
from contrada.integrations.documents.document_slots import ObjectWalk, outermost_array
from contrada.integrations.files import record
from contrada.integrations.files.csv_rows import is_blank
from contrada.integrations.files.lines import Block, printable
from contrada.integrations.files.read_options import ReadOptions, SlotReader
from contrada.model import Notification, Value
from contrada.model.algebra import nested_objects as nested
from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.model.domains.values import MARK_PREFIX

WHOLE_DOCUMENT: Final = "."
"""As `entries`: the document itself is the array."""


def notification_of_object(line: str, options: ReadOptions, *, keep: bool = False) -> Notification:
    """Returns the notification of a line with one JSON object; with `keep` the line is its body.
    Cost: proportional to the line. Raises ParseError, InvalidValueError, LimitError and
    InvalidNotificationError.
    """
    return _notification(decode_value(line), line.encode, options, keep=keep)


def notification_of_content(content: Any, options: ReadOptions) -> Notification:
    """Returns the notification of decoded content, as of the equal JSON object.

    Raises as `notification_of_object`.
    """
    return _notification(content, lambda: nested.as_json(content), options)


@dataclass(slots=True)
class DocumentReport:
    """Repeated and lost names of documents; see `integrations.files.renderer`."""

    repeated: dict[str, int] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)


def records_of_object(
    data: bytes, source: str, options: ReadOptions, report: DocumentReport | None = None
) -> Iterator[record.Record | record.BadRecord]:
    """Yields the records of a JSON document: of an object, or of an array inside it. With the
    strategy `split` and no `entries`, the array is the outermost one with several objects.
    """
    try:
        text = printable(data.decode("utf-8", "surrogateescape"))
        if options.entries is None and options.strategy == "split":
            array = outermost_array(decode_object(text))
            options = replace(options, entries=array, strategy="multi")
        if options.entries is None:
            made = _notification(decode_value(text), lambda: data, options, report=report)
            yield record.Record(source, 1, made)
            return
    except ContradaError as error:
        yield record.bad_record(source, error, None, record.beginning(data))
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
    """Returns the notification of decoded content; `encoded` gives its bytes, for the body."""
    found: dict[str, list[Value]] = {}
    if options.drop:
        content = _drop(content, "", options)
        encoded = partial(_encode, content)
    if (base := naming.base_of(options.strategy)) != "multi":  # Each repeated name gets its own.
        report, slots = report or DocumentReport(), SlotReader(options, is_json=True)
        is_escaped = naming.is_escaping(options.strategy)
        walk = ObjectWalk(is_escaped, report.repeated)
        names: list[naming.Named] = []
        all_names = naming.named(walk.slots(_object(content)), options.strategy, report.lost)
        values = slots.of(naming.noted(all_names, names))
        if not is_escaped:
            return options.notification(values)
        body = shape_of_object(content, base, names, slots.final_attributes(values, names))
        return options.notification(values, body=body, content_type=SHAPE_TYPE)
    put = partial(_put, found=found, options=options)
    if nested.flatten(_object(content), put) and not keep:
        return options.notification(found)
    return options.notification(found, body=encoded(), content_type=nested.JSON_TYPE)


def _drop(content: Any, path: str, options: ReadOptions) -> Any:
    """Returns content without dropped members, also inside arrays: the body has none either."""
    if isinstance(content, list):
        return [_drop(each, path, options) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        key: _drop(each, f"{path}{key}.", options)
        for key, each in content.items()
        if not options.is_dropped(f"{path}{key}")
    }


def read_array(
    data: bytes, source: str, options: ReadOptions, report: DocumentReport | None = None
) -> Iterator[record.Record | record.BadRecord]:
    """Yields the records of the array in a JSON document that `entries` names, numbered from 1.
    `entries` is a path of names joined by dots, or WHOLE_DOCUMENT.
    """
    try:
        name = options.entries or ""
        content = decode_value(printable(data.decode("utf-8", "surrogateescape")))
        for part in () if name == WHOLE_DOCUMENT else name.split("."):
            if not isinstance(content, dict) or part not in content:
                raise ParseError(1, 1, "no such member", f"an array at {name!r}")
            content = content[part]
        if not isinstance(content, list):
            raise ParseError(1, 1, f"a JSON {_kind(content)} at {name!r}", "an array")
    except ContradaError as error:
        yield record.bad_record(source, error, None, record.beginning(data))
        return
    for number, element in enumerate(content, start=1):
        encode = partial(_encode, element)
        try:
            yield record.Record(
                source, number, _notification(element, encode, options, report=report)
            )
        except ContradaError as error:
            text = encode().decode()[: record.BAD_TEXT_CHARS_MAX]
            reason = record.bad_record(source, error, None).reason
            yield record.BadRecord(
                source, f"{options.entries} {number}: {reason}", None, None, text
            )


def _encode(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def read_objects(
    blocks: Iterable[Block | None],
    source: str,
    options: ReadOptions,
    read: record.Make | None = None,
) -> Iterator[record.Record | record.BadRecord]:
    """Yields the records of lines, numbered by line; blank lines are skipped. They are JSON, unless
    `read` reads them. With the strategy `split` a line of JSON may have several records, all with
    its number.
    """
    make = read or partial(notification_of_object, options=options)
    try:
        for block in filter(None, blocks):
            for number, text in map(block.numbered, range(len(block))):
                if is_blank(text):
                    continue
                if read or not options.splits:
                    yield record.record_of(make, source, number, text, options.limits)
                    continue
                try:
                    record.check_line(text, options.limits)
                except ContradaError as error:
                    yield record.bad_record(source, error, number, text)
                    continue
                for each in records_of_object(text.encode(), source, options):
                    if isinstance(each, record.BadRecord):
                        yield replace(each, line=number)
                    else:
                        yield replace(each, number=number)
    except ContradaError as error:
        yield record.bad_record(source, error, None)


def _put(
    name: str, scalars: Iterable[Value], found: dict[str, list[Value]], options: ReadOptions
) -> None:
    name = options.rename.get(name, name)
    convert = options.converter(name) if name in options.types else None
    values = found.setdefault(name, [])
    if len(found) > ATTRIBUTES_MAX:
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(found))
    kinds = (int, float, str) if options.takes_numbers(name) else (str,)
    for scalar in scalars:
        if isinstance(scalar, str) and scalar in options.absent:
            continue
        if convert is None or type(scalar) not in kinds:
            values.append(scalar)
            continue
        try:
            values.append(convert(scalar))
        except ContradaError as error:
            raise InvalidNotificationError(name, scalar, str(error)) from None


def decode_object(line: str) -> dict[str, Any]:
    """Returns the JSON object on a line. Raises ParseError, InvalidValueError, LimitError."""
    return _object(decode_value(line))


def decode_value(line: str) -> Any:
    """Returns the JSON value on a line. Raises as `decode_object`."""
    try:
        return _DECODER.decode(line)
    except json.JSONDecodeError as error:
        found = repr(line[error.pos]) if error.pos < len(line) else "the end of the line"
        expected = error.msg.removeprefix("Expecting ")
        if expected == "value":
            expected = "a JSON value"
        elif expected == error.msg:
            expected = f"one JSON object ({error.msg.lower()})"
        raise ParseError(error.lineno, error.colno, found, expected) from None
    except LiteralError as error:  # The first such literal outside of texts.
        places = (each.start() for each in _TOKEN.finditer(line) if each.group() == error.literal)
        at = next(places, 0)
        before = line[:at]
        row, column = before.count("\n") + 1, at - before.rfind("\n")
        raise ParseError(row, column, error.found, error.expected) from None
    except RecursionError:
        raise LimitError("OBJECT_DEPTH_MAX", nested.OBJECT_DEPTH_MAX) from None


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ParseError(1, 1, f"a JSON {_kind(content)}", "a JSON object")
    return content


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


_PLAIN: Final = frozenset((str, int, float, bool))
_BODY: Final = "$body"
_BODY_MEMBERS: Final = ({"$text", "$type"}, {"$bytes", "$type"})


def shown_text(of: Notification) -> str:
    """Returns the exact JSON line of a notification, without its end.

    The format of `sub --json` and `pub --json`: an object of the attributes in their order. Reading
    it gives an equal notification with type marks and body, but without the envelope:

    - If the body is a line that gives this notification, it is the line. So notifications
      published with objects in arrays are shown as they were.
    - Any other body is the member `$body`, `{"$text": "…", "$type": "content type"}`, or `$bytes`
      if it is not UTF-8. Its two names distinguish it from an attribute.
    """
    if of.content_type == nested.JSON_TYPE and (line := _line_of_body(of)) is not None:
        return line
    if not of.body and not of.content_type:
        return attributes_json(of).decode()
    shown, name = {name: nested.json_values(of[name]) for name in of}, _BODY
    while name in shown:
        name = f"${name}"
    try:
        shown[name] = {"$text": of.body.decode(), "$type": of.content_type}
    except UnicodeDecodeError:
        shown[name] = {**nested.json_value(of.body), "$type": of.content_type}
    return msgspec.json.encode(shown).decode()


def attributes_json(of: Notification) -> bytes:
    """Returns the attributes as an object of JSON, in their order, with values as `shown_text`."""
    values = dict(of.attributes)
    if _PLAIN.issuperset(map(type, values.values())):
        encoded = msgspec.json.encode(values)
        if b"null" not in encoded:  # As which NaN and infinities are encoded.
            return encoded
    return msgspec.json.encode({name: nested.json_values(each) for name, each in values.items()})


def json_group(group: Mapping[str, Any]) -> str:
    """Returns a line of JSON for the aggregates of a group; list items are notifications."""
    return msgspec.json.encode({name: _shown(value) for name, value in group.items()}).decode()


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [msgspec.Raw(shown_text(each).encode()) for each in value]
    return value if isinstance(value, dict) else nested.json_values(value)


def notification_of_shown(line: str, *, keep: bool = False) -> Notification:
    """Returns the notification of a line that `shown_text` wrote, or of any other JSON object. With
    `keep` a line without a body becomes the body, which preserves the order and repetition of
    several values. Cost: proportional to the line. Raises as `notification_of_object`.
    """
    content = decode_object(line)
    marks, bodies = [], []
    for name, member in content.items():
        if name.startswith(MARK_PREFIX) and member is True:
            marks.append(name)
        elif isinstance(member, dict) and member.keys() in _BODY_MEMBERS:
            bodies.append(name)
    if len(bodies) > 1:
        raise ParseError(1, 1, f"two bodies, {bodies[0]!r} and {bodies[1]!r}", "one")
    body, content_type = b"", ""
    for name in bodies:
        body, content_type = _body(name, content.pop(name))
    attributes: dict[str, list[Any]] = {}
    is_whole = nested.flatten(
        content, lambda name, each: attributes.setdefault(name, []).extend(each)
    )
    if not bodies and (keep or not is_whole):
        body, content_type = line.encode(), nested.JSON_TYPE
    elif not is_whole:
        reason = "arrays of objects or arrays stay in the body, which is given already"
        raise InvalidNotificationError(bodies[0], body, reason)
    for name in marks:
        del attributes[name]
    types = [name.removeprefix(MARK_PREFIX) for name in marks]
    return Notification.with_marks(attributes, types, body=body, content_type=content_type)


def _line_of_body(of: Notification) -> str | None:
    try:
        line = of.body.decode()
        found = None if "\n" in line or "\r" in line else notification_of_shown(line)
    except (ContradaError, UnicodeDecodeError):
        return None
    return line if found == of else None


def _body(name: str, member: dict[str, Any]) -> tuple[bytes, str]:
    (kind,) = member.keys() - {"$type"}
    try:
        body = member[kind] if kind == "$text" else nested.value_of_json({kind: member[kind]})
        return body if isinstance(body, bytes) else body.encode(), member["$type"]
    except (AttributeError, ValueError) as error:
        reason = f"expected {error}" if isinstance(error, ValueError) else "expected a text"
        raise InvalidNotificationError(name, member, reason) from None
