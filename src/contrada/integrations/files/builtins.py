"""A notification's attributes as plain JSON values, for people and for other programs' tools.

It is easy to read and not exact: times are ISO 8601 texts, NaN and the infinities are texts.
The exact forms are the model's encoding, and `contrada.integrations.files.json_output`.
"""

from typing import TypeAlias

from contrada.model import Notification, Value
from contrada.model.algebra.nested_objects import json_value, time_text
from contrada.model.domains.values import datetime_of

PlainValue: TypeAlias = bool | int | float | str | None


def plain_attributes(notification: Notification) -> dict[str, PlainValue | list[PlainValue]]:
    """The attributes by name; several values of one are a list."""
    return {
        name: [plain_value(one) for one in value]
        if isinstance(value, tuple)
        else plain_value(value)
        for name, value in notification.attributes.items()
    }


def plain_time(notification: Notification) -> str | None:
    """The envelope's time as ISO 8601; None for an envelope without a time."""
    time_us = notification.envelope.time_us
    return None if time_us is None else time_text(datetime_of(time_us))


def plain_value(value: Value) -> PlainValue:
    """A value as JSON has it, times and odd numbers as texts."""
    shown = json_value(value)
    return next(iter(shown.values())) if isinstance(shown, dict) else shown  # type: ignore[no-any-return]
