"""A notification as an object: its class, and the parts that this class does not know.

Source: EPFL 2503 §3.4.1 (all instances of a type, its subtypes' too), §3.6.3 (delivery is typed).
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from contrada.errors import InvalidObventError
from contrada.model import Notification
from contrada.model.domains.values import MARK_PREFIX
from contrada.typed.object_parts import Parts
from contrada.typed.obvent_codec import READINGS_MAX
from contrada.typed.obvent_type import ObventType, type_of
from contrada.typed.type_names import asked_marks_of, class_named, descendants_of, type_marks
from contrada.typed.unknown_types import Rest, anonymous, keep

logger: Final = logging.getLogger("contrada.typed")


class _ReceivedType:
    """Of which class an object is made of attributes of these names, and the marks that came."""

    __slots__ = ("is_known", "kind", "marks")

    def __init__(self, asked: ObventType, names: tuple[str, ...]) -> None:
        self.marks = type_marks(names)
        carried = set(self.marks)
        # Of these only: a class that nothing can be made of is no hindrance to others.
        marked = [it for it in descendants_of(asked.cls) if carried.issuperset(asked_marks_of(it))]
        known = [type_of(it) for it in marked]
        # Of the most types, the first by name among equals.
        self.kind = min(known, key=lambda it: (-len(it.asked), it.name))
        self.is_known = carried.issubset(self.kind.marks)
        if not self.is_known:
            strange = [it for it in self.marks if class_named(it[len(MARK_PREFIX) :]) is None]
            logger.info(
                "%(marks)s: received as %(kind)s",
                {"marks": ", ".join(strange), "kind": self.kind.name},
            )


def received(cls: type[Any], notification: Notification) -> Any:
    """The object that a notification carries; see `Obvent.from_notification`."""
    attributes = notification.attributes
    asked = type_of(cls)
    arrival = _arrival(asked, attributes)
    for mark in arrival.kind.asked:
        if attributes[mark] is not True:
            raise InvalidObventError(asked.name, "the notification is not of this type")
    carrier = arrival.kind.carrier
    if arrival.is_known and not notification.body:
        made = carrier.taken_plain(arrival.kind.cls, attributes)
        if made is not None:
            return made
    values, rest = carrier.take(Parts.of(notification, arrival.kind.name))
    if arrival.is_known and rest is None:
        return carrier.made(arrival.kind.cls, values)
    return keep(
        carrier.made(anonymous(arrival.kind.cls), values),
        Rest(tuple(it for it in arrival.marks if attributes[it] is True), rest or Parts()),
    )


def _arrival(asked: ObventType, attributes: Mapping[str, Any]) -> _ReceivedType:
    known, names = asked.arrivals, tuple(attributes)
    found: _ReceivedType | None = known.get(names)
    if found is None:
        if not all(name in attributes for name in asked.asked):
            raise InvalidObventError(asked.name, "the notification is not of this type")
        if len(known) >= READINGS_MAX:
            known.clear()
        found = known[names] = _ReceivedType(asked, names)
    return found
