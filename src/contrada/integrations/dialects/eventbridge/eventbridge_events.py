"""JSON events to notifications, and back.

Objects lead to attributes, whose names are joined by dots. An array of plain values is one
attribute with several values; arrays of them in arrays too. An empty array or object is no value.

Fields of different elements of an array of objects must never be combined. So an event with
such arrays is a set of notifications: one for each way to choose one element of every array,
with the fields of these elements and all that stands outside arrays. A pattern matches the event
when it matches one of them. Plain values beside objects in an array are there whatever element
is chosen.

        {"a": [{"b": 1, "c": 2}, {"b": 3}], "d": [4, 5]}

            a.b = 1, a.c = 2, d = 4 | 5        a.b = 3, d = 4 | 5

For every pattern without `exists: false` this is what AWS calls array consistency. With it, a
field counts as absent when the chosen elements lack it, which AWS says in fewer cases: what is left
open is decided on the whole event (see `arrays`).

A number that neither 64 bits nor a double stand for is NaN: it is there, but equals no number that
a pattern can name, and lies within no bounds. So AWS has it, which compares such numbers as text.

Source: AWS Event Ruler, README, "JSON Array Matching".
"""

import json
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeAlias

from contrada.errors import EncodingError, InvalidNotificationError, LimitError
from contrada.integrations.dialects.json_text import Inexact, check_depth, decoded, is_exact
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import INT_MAX, INT_MIN, Value

EVENT_NOTIFICATIONS_MAX: Final = 1_024
"""Notifications that one event becomes, by its arrays of objects. Beyond it: LimitError."""

EVENT_VALUES_MAX: Final = 1_000_000
"""Values that all notifications of one event have together. Beyond it: LimitError."""

JSON_TYPE: Final = "application/json"


def notifications(
    event: str | bytes | dict[str, Any], names: Container[str] | None = None
) -> list[Notification]:
    """The notifications that an event is, one where it has no arrays of objects.

    Each carries the whole event as its body. With `names`, the attributes that some filter asks
    for, all others are left out, which makes fewer notifications.

    Cost: the event's size, and that of the notifications. Raises EncodingError where it is no JSON
    object, InvalidNotificationError, and LimitError beyond EVENT_NOTIFICATIONS_MAX or
    EVENT_VALUES_MAX.
    """
    content = event if isinstance(event, dict) else decoded(event, exact=True)
    if not isinstance(content, dict):
        raise EncodingError("event", f"expected an object, found {type(content).__name__}")
    read = _EventReader(names).part_of_object(content)
    _check_size(read)
    body = _body(event)
    found = (Notification(values, body=body, content_type=JSON_TYPE) for values in read.choices())
    return list(dict.fromkeys(found))


def event_of(notification: Notification) -> dict[str, Any]:
    """The event that a notification came from.

    Raises EncodingError where it came from none, and for numbers beyond the doubles.
    """
    content = decoded(notification.body)
    if notification.content_type != JSON_TYPE or not isinstance(content, dict):
        raise EncodingError("event", "the body is no JSON object")
    return content


def _check_size(part: "_EventPart") -> None:
    size = part.size()
    if size > EVENT_VALUES_MAX:
        raise LimitError("EVENT_VALUES_MAX", EVENT_VALUES_MAX, size)


def _body(event: str | bytes | dict[str, Any]) -> bytes:
    if isinstance(event, bytes):
        return event
    try:
        text = (
            event
            if isinstance(event, str)
            else json.dumps(event, ensure_ascii=False, allow_nan=False)
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise EncodingError("event", f"no JSON can say it: {error}") from None


_FieldValues: TypeAlias = dict[str, list[Value]]


@dataclass(slots=True)
class _EventPart:
    """What an object or an element holds: values that are always there, and arrays to choose in."""

    values: _FieldValues = field(default_factory=dict)
    arrays: list[list["_EventPart"]] = field(default_factory=list)
    ways: int = 1
    """The number of ways to choose."""

    def size(self) -> int:
        """The number of values of all ways to choose together."""
        own = self.ways * sum(map(len, self.values.values()))
        for array in self.arrays:
            others = self.ways // sum(part.ways for part in array)
            own += others * sum(part.size() for part in array)
        return own

    def choices(self) -> Iterator[_FieldValues]:
        """The values of each way to choose."""
        options = [[each for part in array for each in part.choices()] for array in self.arrays]
        for chosen in product(*options):
            yield _joined((self.values, *chosen)) if chosen else self.values

    def take(self, other: "_EventPart") -> None:
        """Takes in what stands beside."""
        for name, values in other.values.items():
            self.values.setdefault(name, []).extend(values)
        self.arrays += other.arrays
        self._multiply(other.ways)

    def choose(self, elements: list["_EventPart"]) -> None:
        """Takes an array in, of which one element is chosen."""
        self.arrays.append(elements)
        self._multiply(sum(part.ways for part in elements))

    def _multiply(self, ways: int) -> None:
        """Raises LimitError beyond EVENT_NOTIFICATIONS_MAX, before the event is read to its end."""
        self.ways *= ways
        if self.ways > EVENT_NOTIFICATIONS_MAX:
            raise LimitError("EVENT_NOTIFICATIONS_MAX", EVENT_NOTIFICATIONS_MAX, self.ways)


def _joined(parts: tuple[_FieldValues, ...]) -> _FieldValues:
    found: _FieldValues = {}
    for part in parts:
        for name, values in part.items():
            found[name] = found[name] + values if name in found else values
    return found


class _EventReader:
    """Reads the parts of an event, without the attributes nobody asks for."""

    def __init__(self, names: Container[str] | None) -> None:
        self._names = names

    def part_of_object(
        self, content: dict[str, Any], path: str | None = None, depth: int = 1
    ) -> _EventPart:
        """The part that an object is."""
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
        """The part that an array is. Arrays of plain values alone are no elements to choose."""
        check_depth(depth)
        part = _EventPart()
        elements: list[_EventPart] = []
        plain = True
        for inner in content:
            if isinstance(inner, dict):
                elements.append(self.part_of_object(inner, name, depth + 1))
                plain = False
            elif isinstance(inner, list | tuple):
                elements.append(self._part_of_array(inner, name, depth + 1))
                plain &= not elements[-1].arrays
            else:
                self._put(part, name, inner)
        if plain:
            for element in elements:
                part.take(element)
        elif elements := _different(elements):
            part.choose(elements)
        return part

    def _put(self, part: _EventPart, name: str, value: object) -> None:
        if self._names is None or name in self._names:
            part.values.setdefault(name, []).append(value_of_json(name, value))


def _different(elements: list[_EventPart]) -> list[_EventPart]:
    """The elements with content, and one empty element if only some are empty."""
    full = [each for each in elements if each.values or each.arrays]
    return full if len(full) in (0, len(elements)) else [*full, _EventPart()]


def value_of_json(name: str, value: object) -> Value:
    """A plain value of JSON; an integer of more than 64 bits as the double that stands for it."""
    if isinstance(value, Inexact):
        return math.nan
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        return float(value) if is_exact(value) else math.nan
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidNotificationError(name, value, "not JSON")
