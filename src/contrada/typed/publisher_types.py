"""`Published` and `published_by`: the type of the publisher as a subscription criterion.

The notification is that of the obvent, with a mark `@is.by(NAME)` for each class of the publisher.
Any object may be a publisher; its classes have their names as types, else their module and
qualified name. The marks do not change the obvent, and are not published again.

Source: EPFL 2503 §3.7.3 (the type of publishers as a criterion).
"""

from abc import ABC
from typing import Any, Final, Generic, Protocol

from contrada.errors import InvalidObventError
from contrada.model import Filter, Notification
from contrada.service import Item, dissemination_of, notification_of
from contrada.typed.object_parts import known_of
from contrada.typed.obvent import Obvent
from contrada.typed.type_names import given_names, publisher_mark

_OF_ALL: Final = (object, Obvent, ABC, Generic, Protocol)


class Published:
    """An item to publish on behalf of an object."""

    __slots__ = ("by", "item")

    def __init__(self, item: Item, *, by: object) -> None:
        """Raises InvalidObventError if `by` is a class."""
        if isinstance(by, type):
            reason = f"`by` is the class {by.__qualname__}: give the object that publishes"
            raise InvalidObventError("Published", reason)
        self.item = item
        self.by = by

    def to_notification(self) -> Notification:
        """Returns the notification of the item, with the marks of the publisher.

        Cost: that of the item, and some microseconds for each class of the publisher. Raises the
        errors of the item, LimitError, and InvalidObventError for a class without a name.
        """
        made = notification_of(self.item)
        classes = (each for each in known_of(type(self.by)).__mro__ if each not in _OF_ALL)
        marks = {publisher_mark(name): True for each in classes for name in given_names(each)}
        attributes, content = {**made.attributes, **marks}, (made.body, made.content_type)
        return Notification.from_attributes(attributes, *content, made.envelope)

    def chosen_dissemination(self) -> str | None:
        """Returns the dissemination of the item, if its class names one."""
        return dissemination_of(self.item)

    def __repr__(self) -> str:
        return f"Published({self.item!r}, by={self.by!r})"


def published_by(cls: type[Any]) -> Filter:
    """Returns the filter of all publications on behalf of objects of a class, of any type.

    Raises InvalidObventError unless given a class, for a class of all objects, and for a class of
    `__main__` without a name.
    """
    given: Any = cls
    if not isinstance(given, type) or given in _OF_ALL:
        raise InvalidObventError(str(cls), "expected a class, and not one that all objects are of")
    return Filter({publisher_mark(given_names(cls)[-1]): True})
