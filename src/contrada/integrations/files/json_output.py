"""Notifications as lines of JSON that are exact and easy to read: `sub --json`, `pub --json`.

A line is an object of the attributes, in their order; several values are an array, and what JSON
does not have is written as `model/algebra/nested_objects.py` says. Read again it gives an equal
notification, but for the envelope, type marks and body included:

- A body that is a line from which this very notification is read is itself the line. So what was
  published with objects in arrays is shown as it was.
- Another body is the member `$body`, `{"$text": "…", "$type": "its content type"}`, or `$bytes`
  where it is no UTF-8. Its two names tell it from an attribute.
"""

from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNotificationError, ParseError
from contrada.integrations.files.json_objects import decoded
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
    """The line that shows a notification, without its end."""
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
    """The notification that a line shows; of other lines, the one that their object is.

    `keep` makes the line the body, where it shows no other: so the order and repeats of several
    values stay. Cost: proportional to the line. Raises ParseError, InvalidValueError, LimitError
    and InvalidNotificationError.
    """
    content = decoded(line)
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
    return Notification.marked(
        attributes,
        [name.removeprefix(MARK_PREFIX) for name in marks],
        body=body,
        content_type=content_type,
    )


def _line_of_body(of: Notification) -> str | None:
    """The body, where it is a line that shows the notification; else None."""
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
