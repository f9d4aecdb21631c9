"""Exact JSON lines of notifications, the format of `sub --json` and `pub --json`.

A line is an object of the attributes in their order. Several values are an array;
`model/algebra/nested_objects.py` defines values that JSON lacks. Reading a line gives an equal
notification with type marks and body, but without the envelope:

- If the body is a line that gives this very notification, the line is the body. So notifications
  published with objects in arrays are shown as they were.
- Any other body is the member `$body`, `{"$text": "…", "$type": "its content type"}`, or `$bytes`
  if it is not UTF-8. Its two names distinguish it from an attribute.
"""

from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNotificationError, ParseError
from contrada.integrations.files.json_objects import decode_object
from contrada.model import Notification
from contrada.model.algebra.nested_objects import (
    JSON_TYPE,
    flatten,
    json_value,
    json_values,
    value_of_json,
)
from contrada.model.domains.values import MARK_PREFIX

_BODY: Final = "$body"
_BODY_MEMBERS: Final = ({"$text", "$type"}, {"$bytes", "$type"})


def shown_text(of: Notification) -> str:
    """Returns the line of a notification, without its end."""
    if of.content_type == JSON_TYPE and (line := _line_of_body(of)) is not None:
        return line
    shown = {name: json_values(of[name]) for name in of}
    if of.body or of.content_type:
        name = _BODY
        while name in shown:
            name = f"${name}"
        try:
            shown[name] = {"$text": of.body.decode(), "$type": of.content_type}
        except UnicodeDecodeError:
            shown[name] = {**json_value(of.body), "$type": of.content_type}
    return msgspec.json.encode(shown).decode()


def notification_of_shown(line: str, *, keep: bool = False) -> Notification:
    """Returns the notification of a line that `shown_text` wrote, or of any other JSON object. With
    `keep` a line without a body becomes the body, which preserves the order and repetition of
    several values. Cost: proportional to the line. Raises as `notification_of_object`.
    """
    content = decode_object(line)
    marks = [
        name for name, member in content.items() if name.startswith(MARK_PREFIX) and member is True
    ]
    bodies = [
        name
        for name, member in content.items()
        if isinstance(member, dict) and member.keys() in _BODY_MEMBERS
    ]
    if len(bodies) > 1:
        raise ParseError(1, 1, f"two bodies, {bodies[0]!r} and {bodies[1]!r}", "one")
    body, content_type = b"", ""
    for name in bodies:
        body, content_type = _body(name, content.pop(name))
    attributes: dict[str, list[Any]] = {}
    is_whole = flatten(content, lambda name, each: attributes.setdefault(name, []).extend(each))
    if not bodies and (keep or not is_whole):
        body, content_type = line.encode(), JSON_TYPE
    elif not is_whole:
        reason = "arrays of objects or arrays stay in the body, which is given already"
        raise InvalidNotificationError(bodies[0], body, reason)
    for name in marks:
        del attributes[name]
    return Notification.with_marks(
        attributes,
        [name.removeprefix(MARK_PREFIX) for name in marks],
        body=body,
        content_type=content_type,
    )


def _line_of_body(of: Notification) -> str | None:
    """Returns the body if it is a line that gives the notification, else None."""
    try:
        line = of.body.decode()
        found = None if "\n" in line or "\r" in line else notification_of_shown(line)
    except (ContradaError, UnicodeDecodeError):
        return None
    return line if found == of else None


def _body(name: str, member: dict[str, Any]) -> tuple[bytes, str]:
    (kind,) = member.keys() - {"$type"}
    try:
        body = member[kind] if kind == "$text" else value_of_json({kind: member[kind]})
        return body if isinstance(body, bytes) else body.encode(), member["$type"]
    except (AttributeError, ValueError) as error:
        reason = f"expected {error}" if isinstance(error, ValueError) else "expected a text"
        raise InvalidNotificationError(name, member, reason) from None
