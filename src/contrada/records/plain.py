"""A notification's attributes as plain JSON values, for people and for other programs' tools.

It is easy to read and not exact: times are ISO 8601 texts, NaN and the infinities are texts.
The exact form is the model's encoding.
"""

import math
from datetime import UTC, datetime
from typing import TypeAlias

from contrada.model import Notification, Value
from contrada.model.domains.values import datetime_of

Plain: TypeAlias = bool | int | float | str | None


def plain_attributes(notification: Notification) -> dict[str, Plain | list[Plain]]:
    """The attributes by name; several values of one are a list."""
    return {
        name: [_plain(one) for one in value] if isinstance(value, tuple) else _plain(value)
        for name, value in notification.attributes.items()
    }


def plain_time(notification: Notification) -> str | None:
    """The envelope's time as ISO 8601, None where it has none."""
    time_us = notification.envelope.time_us
    return None if time_us is None else _iso(datetime_of(time_us))


def _plain(value: Value) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
