"""Output of notifications and aggregates, one line each."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from contrada.integrations.files import plain_time, shown_text
from contrada.model import Notification
from contrada.model.algebra.nested_objects import json_values
from contrada.model.domains.values import key_of
from contrada.model.syntax import name_text, value_text

ENVELOPE: Final = ("@id", "@publisher", "@time")
"""The members of an envelope that filters can match."""


def json_line(notification: Notification, members: Iterable[str] = ()) -> str:
    """Returns a line of JSON, with these members of the envelope before the attributes."""
    shown = shown_text(notification)
    named = _members(notification, members)
    if not named:
        return shown
    rest = shown.strip()[1:].lstrip()
    return f"{msgspec.json.encode(named).decode()[:-1]}{'' if rest == '}' else ','}{rest}"


def parts_of(notification: Notification, members: Iterable[str] = ()) -> list[str]:
    """Returns these members of the envelope, and the attributes, each as `name=value`."""
    named = _members(notification, members)
    parts = [f"{name}={value_text(key_of(value))}" for name, value in named.items()]
    for name, held in notification.attributes.items():
        each = held if isinstance(held, tuple) else (held,)
        parts.extend(f"{name_text(name)}={value_text(key_of(value))}" for value in each)
    return parts


def _members(notification: Notification, names: Iterable[str]) -> dict[str, str | None]:
    """Returns members of the envelope, by their names in filters."""
    held = notification.envelope
    found = {"@id": held.id, "@publisher": held.publisher, "@time": plain_time(notification)}
    return {name: found[name] for name in names}


def json_group(group: Mapping[str, Any]) -> str:
    """Returns a line of JSON for the aggregates of a group; list items are notifications."""
    return msgspec.json.encode({name: _shown(value) for name, value in group.items()}).decode()


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [msgspec.Raw(json_line(each).encode()) for each in value]
    return value if isinstance(value, dict) else json_values(value)


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
