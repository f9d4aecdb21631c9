"""JSON events to notifications, and back.

Fields of different elements of an array of objects must never be combined. So an event with such
arrays becomes a set of notifications: one for each choice of one element of every array, with the
fields of these elements and all fields outside arrays. Plain values beside objects in an array,
also those in arrays within it, are part of every choice. An empty array or object is no value.

        {"a": [{"b": 1, "c": 2}, {"b": 3}], "d": [4, 5]}

            a.b = 1, a.c = 2, d = 4 | 5        a.b = 3, d = 4 | 5

For most patterns without `exists: false` this is the array consistency of AWS; `array_residue`
decides the others on the whole event. A number that neither 64 bits nor a double represent is NaN:
it is present, but equals no number of a pattern, and is within no bounds. AWS, which compares such
numbers as text, gives the same answers.

Source: AWS Event Ruler, README, "JSON Array Matching".
"""

import json
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeAlias

from contrada.errors import EncodingError, InvalidNotificationError, LimitError
from contrada.integrations.dialects.json_text import Inexact, check_depth, decode_json, is_exact
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import INT_MAX, INT_MIN, Value

EVENT_NOTIFICATIONS_MAX: Final = 1_024
"""Notifications of one event, by its arrays of objects. Beyond it: LimitError."""

EVENT_VALUES_MAX: Final = 1_000_000
"""Values of all notifications of one event together. Beyond it: LimitError."""

JSON_TYPE: Final = "application/json"


def notifications(
    event: str | bytes | dict[str, Any], names: Container[str] | None = None
) -> list[Notification]:
    """Returns the notifications of an event, only one for an event without arrays of objects.

    Each has the whole event as its body. `names` limits the attributes to those of filters. Cost:
    the size of the event and of the notifications. Raises EncodingError unless it is a JSON object,
    InvalidNotificationError, and LimitError.
    """
    content = event if isinstance(event, dict) else decode_json(event, exact=True)
    if not isinstance(content, dict):
        raise EncodingError("event", f"expected an object, found {type(content).__name__}")
    read = _EventReader(names).part_of_object(content)
    size = read.size()
    if size > EVENT_VALUES_MAX:
        raise LimitError("EVENT_VALUES_MAX", EVENT_VALUES_MAX, size)
    try:
        if isinstance(event, dict):
            event = json.dumps(event, ensure_ascii=False, allow_nan=False)
        body = event if isinstance(event, bytes) else event.encode()
    except (TypeError, ValueError) as error:
        raise EncodingError("event", f"no JSON can say it: {error}") from None
    found = (Notification(values, body=body, content_type=JSON_TYPE) for values in read.choices())
    return list(dict.fromkeys(found))


def event_of(notification: Notification) -> dict[str, Any]:
    """Returns a notification's event. Raises EncodingError without one, or for large numbers."""
    content = decode_json(notification.body)
    if notification.content_type != JSON_TYPE or not isinstance(content, dict):
        raise EncodingError("event", "the body is no JSON object")
    return content


_FieldValues: TypeAlias = dict[str, list[Value]]


@dataclass(slots=True)
class _EventPart:
    """Content of an object or an element: constant values, and arrays to choose in."""

    values: _FieldValues = field(default_factory=dict)
    arrays: list[list["_EventPart"]] = field(default_factory=list)
    ways: int = 1
    """The number of choices."""

    def size(self) -> int:
        """Returns the number of values in all choices together."""
        own = self.ways * sum(map(len, self.values.values()))
        for array in self.arrays:
            others = self.ways // sum(part.ways for part in array)
            own += others * sum(part.size() for part in array)
        return own

    def choices(self) -> Iterator[_FieldValues]:
        options = [[each for part in array for each in part.choices()] for array in self.arrays]
        for chosen in product(*options):
            found = self.values.copy() if chosen else self.values
            for part in chosen:
                for name, values in part.items():
                    found[name] = found[name] + values if name in found else values
            yield found

    def take(self, other: "_EventPart") -> None:
        """Adds the content of a neighbour."""
        for name, values in other.values.items():
            self.values.setdefault(name, []).extend(values)
        self.arrays += other.arrays
        self._multiply(other.ways)

    def choose(self, elements: list["_EventPart"]) -> None:
        """Adds an array of which one element is chosen."""
        self.arrays.append(elements)
        self._multiply(sum(part.ways for part in elements))

    def _multiply(self, ways: int) -> None:
        """Raises LimitError beyond EVENT_NOTIFICATIONS_MAX, before the rest is read."""
        self.ways *= ways
        if self.ways > EVENT_NOTIFICATIONS_MAX:
            raise LimitError("EVENT_NOTIFICATIONS_MAX", EVENT_NOTIFICATIONS_MAX, self.ways)


class _EventReader:
    """Reads the parts of an event, without attributes that no filter names."""

    def __init__(self, names: Container[str] | None) -> None:
        self._names = names

    def part_of_object(
        self, content: dict[str, Any], path: str | None = None, depth: int = 1
    ) -> _EventPart:
        check_depth(depth)
        part = _EventPart()
        for step, inner in content.items():
            name = step if path is None else f"{path}.{step}"
            if isinstance(inner, dict):
                part.take(self.part_of_object(inner, name, depth + 1))
            elif isinstance(inner, list | tuple):
                part.take(self._part_of_array(inner, name, depth + 1))
            else:
                self._put(part, name, inner)
        return part

    def _part_of_array(
        self, content: list[Any] | tuple[Any, ...], name: str, depth: int
    ) -> _EventPart:
        """Returns the part of an array; an array within it is a choice if it has objects."""
        check_depth(depth)
        part = _EventPart()
        elements: list[_EventPart] = []
        for inner in content:
            if isinstance(inner, dict):
                elements.append(self.part_of_object(inner, name, depth + 1))
            elif isinstance(inner, list | tuple):
                elements.append(self._part_of_array(inner, name, depth + 1))
                if values := elements[-1].values.pop(name, None):
                    part.values.setdefault(name, []).extend(values)
            else:
                self._put(part, name, inner)
        # Elements without content are one choice.
        full = [each for each in elements if each.values or each.arrays]
        if full:
            part.choose(full if len(full) == len(elements) else [*full, _EventPart()])
        return part

    def _put(self, part: _EventPart, name: str, value: object) -> None:
        if self._names is None or name in self._names:
            part.values.setdefault(name, []).append(value_of_json(name, value))


def value_of_json(name: str, value: object) -> Value:
    """Returns a plain JSON value; an integer of more than 64 bits becomes a double."""
    if isinstance(value, Inexact):
        return math.nan
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        return float(value) if is_exact(value) else math.nan
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidNotificationError(name, value, "not JSON")
