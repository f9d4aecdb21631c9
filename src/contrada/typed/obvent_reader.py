"""`read_obvent`: the object of a notification, of the nearest known class, with unknown parts kept.

Source: EPFL 2503 §3.4.1 (all instances of a type, with its subtypes), §3.6.3 (typed delivery).
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
from contrada.typed.type_names import class_named, descendants_of, required_marks_of, type_marks
from contrada.typed.unknown_types import Rest, anonymous_subclass, attach_rest

logger: Final = logging.getLogger("contrada.typed")


class ReceivedType:
    """The class of objects with attributes of these names, and their marks."""

    __slots__ = ("is_known", "kind", "marks")

    def __init__(self, subscribed: ObventType, names: tuple[str, ...]) -> None:
        self.marks = type_marks(names)
        carried = set(self.marks)
        # Only these are read: an unusable class elsewhere does no harm.
        marked = [
            it for it in descendants_of(subscribed.cls) if carried.issuperset(required_marks_of(it))
        ]
        known = [type_of(it) for it in marked]
        # The class with the most ancestors; among equals, the first by name.
        self.kind = min(known, key=lambda it: (-len(it.required_marks), it.name))
        self.is_known = carried.issubset(self.kind.marks)
        if not self.is_known:
            strange = [it for it in self.marks if class_named(it[len(MARK_PREFIX) :]) is None]
            logger.info(
                "%(marks)s: received as %(kind)s",
                {"marks": ", ".join(strange), "kind": self.kind.name},
            )


def read_obvent(cls: type[Any], notification: Notification) -> Any:
    """Returns the object of a notification; see `Obvent.from_notification`."""
    attributes = notification.attributes
    subscribed = type_of(cls)
    received = _received_type(subscribed, attributes)
    for mark in received.kind.required_marks:
        if attributes[mark] is not True:
            raise InvalidObventError(subscribed.name, "the notification is not of this type")
    codec = received.kind.codec
    if received.is_known and not notification.body:
        made = codec.read_plain(received.kind.cls, attributes)
        if made is not None:
            return made
    values, rest = codec.read(Parts.of(notification, received.kind.name))
    if received.is_known and rest is None:
        return codec.make(received.kind.cls, values)
    return attach_rest(
        codec.make(anonymous_subclass(received.kind.cls), values),
        Rest(tuple(it for it in received.marks if attributes[it] is True), rest or Parts()),
    )


def _received_type(subscribed: ObventType, attributes: Mapping[str, Any]) -> ReceivedType:
    known, names = subscribed.received_types, tuple(attributes)
    found: ReceivedType | None = known.get(names)
    if found is None:
        if not all(name in attributes for name in subscribed.required_marks):
            raise InvalidObventError(subscribed.name, "the notification is not of this type")
        if len(known) >= READINGS_MAX:
            known.clear()
        found = known[names] = ReceivedType(subscribed, names)
    return found
