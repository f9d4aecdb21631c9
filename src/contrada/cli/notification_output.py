"""How commands print notifications, and what is computed of them: a line each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from contrada.integrations.files import plain_time, shown_text
from contrada.model import Notification
from contrada.model.algebra.nested_objects import json_values
from contrada.model.domains.values import key_of
from contrada.model.syntax import name_text, value_text

ENVELOPE: Final = ("@id", "@publisher", "@time")
"""What filters see of an envelope."""


def json_line(notification: Notification, members: Iterable[str] = ()) -> str:
    """A line of JSON, with these members of the envelope before the attributes."""
    shown = shown_text(notification)
    named = _members(notification, members)
    if not named:
        return shown
    rest = shown.strip()[1:].lstrip()
    return f"{msgspec.json.encode(named).decode()[:-1]}{'' if rest == '}' else ','}{rest}"


def parts_of(notification: Notification, members: Iterable[str] = ()) -> list[str]:
    """These members of the envelope, and the attributes, each as `name=value`."""
    named = _members(notification, members)
    parts = [f"{name}={value_text(key_of(value))}" for name, value in named.items()]
    for name, held in notification.attributes.items():
        each = held if isinstance(held, tuple) else (held,)
        parts.extend(f"{name_text(name)}={value_text(key_of(value))}" for value in each)
    return parts


def _members(notification: Notification, names: Iterable[str]) -> dict[str, str | None]:
    """Members of the envelope, by the names that filters have for them."""
    held = notification.envelope
    found = {"@id": held.id, "@publisher": held.publisher, "@time": plain_time(notification)}
    return {name: found[name] for name in names}


def json_group(group: Mapping[str, Any]) -> str:
    """A line of JSON for what was computed of a group; the items of a list are as notifications."""
    return msgspec.json.encode({name: _shown(value) for name, value in group.items()}).decode()


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [msgspec.Raw(json_line(each).encode()) for each in value]
    return value if isinstance(value, dict) else json_values(value)


def group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    """A line of what was computed of a group; below it a line for each item of a list."""
    plain = {name: value for name, value in group.items() if not isinstance(value, dict | list)}
    remarks = [
        f"{told} {name}: {_remark(each)}"
        for told, several in group.items()
        if isinstance(several, dict)
        for name, each in several.items()
    ]
    yield "  ".join([*(f"{name}={_plain(value)}" for name, value in plain.items()), *remarks])
    for name, items in group.items():
        if isinstance(items, list):
            yield from (f"  {name}:  {'  '.join(parts_of(each))}" for each in items)


def _plain(value: Any) -> str:
    """A value as it is written; integers of any size."""
    return str(value) if type(value) is int else value_text(key_of(value))


def _remark(said: Any) -> str:
    """How many values were skipped, or between which numbers an estimate lies."""
    return " to ".join(map(str, said)) if isinstance(said, tuple) else str(said)
