"""Output of notifications and aggregates, one line each."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from contrada.integrations.files import plain_time, shown_text
from contrada.model import Notification
from contrada.model.domains.values import key_of
from contrada.model.syntax import name_text, value_text
from contrada.service import DurableRecord

Found: TypeAlias = Notification | DurableRecord[Notification]
"""What a plain or a durable subscription gives."""

ENVELOPE: Final = ("@id", "@publisher", "@time")
"""The members of an envelope that filters can match."""


def item_of(found: Found) -> Notification:
    """Returns the notification, also that of a record."""
    return found.item if isinstance(found, DurableRecord) else found


def json_line(found: Found, members: Iterable[str] = ()) -> str:
    """Returns a line of JSON, with these members of the envelope before the attributes."""
    shown = shown_text(item_of(found))
    named = _members(found, members)
    if not named:
        return shown
    rest = shown.strip()[1:].lstrip()
    return f"{msgspec.json.encode(named).decode()[:-1]}{'' if rest == '}' else ','}{rest}"


def parts_of(found: Found, members: Iterable[str] = ()) -> list[str]:
    """Returns these members of the envelope, and the attributes, each as `name=value`."""
    named = _members(found, members)
    parts = [f"{name}={value_text(key_of(value))}" for name, value in named.items()]
    for name, held in item_of(found).attributes.items():
        each = held if isinstance(held, tuple) else (held,)
        parts.extend(f"{name_text(name)}={value_text(key_of(value))}" for value in each)
    return parts


def _members(found: Found, names: Iterable[str]) -> dict[str, Any]:
    """Returns these members, and of a record its position and attempt with them."""
    notification = item_of(found)
    held = notification.envelope
    members = {"@id": held.id, "@publisher": held.publisher, "@time": plain_time(notification)}
    named: dict[str, Any] = {name: members[name] for name in names}
    if named and isinstance(found, DurableRecord):
        named |= {"@position": found.position, "@attempt": found.attempt}
    return named


def group_text(group: Mapping[str, Any]) -> str:
    """Returns a line for the aggregates of a group, then a line for each item of a list."""
    plain = {name: value for name, value in group.items() if not isinstance(value, dict | list)}
    remarks = [
        f"{label} {name}: {' to '.join(map(str, each)) if isinstance(each, tuple) else each}"
        for label, several in group.items()
        if isinstance(several, dict)
        for name, each in several.items()
    ]
    values = [  # Integers of any size.
        f"{name}={value if type(value) is int else value_text(key_of(value))}"
        for name, value in plain.items()
    ]
    lines = ["  ".join([*values, *remarks])]
    for name, items in group.items():
        if isinstance(items, list):
            lines += (f"  {name}:  {'  '.join(parts_of(each))}" for each in items)
    return "\n".join(lines)
