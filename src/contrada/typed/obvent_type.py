"""`ObventType`: the derived facts of an obvent class; its objects as notifications, and back.

A notification is read as an object of the nearest known class, with unknown parts kept.

Source: EPFL 2503 §3.3, §3.4.1 (all instances of a type, its subtypes too), §3.6.3 (typed delivery).
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, Final

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification, mark_name
from contrada.model.algebra.notification import raw_attributes
from contrada.model.algebra.value_set import ABSENT, union
from contrada.model.domains.values import MARK_PREFIX
from contrada.typed import type_names
from contrada.typed.body_values import IS
from contrada.typed.object_parts import Parts, Rest, is_unknown, known_of, rest_of
from contrada.typed.obvent_codec import READINGS_MAX, ObventCodec, codec_of
from contrada.typed.qos import NOTHING, Qos, qos_of
from contrada.typed.scalars import values_of
from contrada.typed.shapes import Field, FieldKind, Shape, own_fields

logger: Final = logging.getLogger("contrada.typed")

RESERVED: Final = frozenset(
    ("check_where", "from_notification", "lift", "to_filters", "to_notification")
)
"""The methods of each obvent class; no field has such a name."""


class ObventType:
    """The derived facts of one obvent class. Raises InvalidObventError for other classes.

    `received_types` caches the class of received objects, by the names of their attributes, while
    no class is registered: `registrations` is their number at the last look.
    """

    def __init__(self, cls: type[Any]) -> None:
        names = ("Obvent",) if type_names.is_root(cls) else type_names.names_of(cls)
        if not names:
            reason = "it is no class of obvents: inherit ct.Obvent, or decorate it @ct.obvent"
            raise InvalidObventError(cls.__qualname__, reason)
        self.cls = cls
        self.name = names[0]
        self.received_types: dict[tuple[str, ...], Any] = {}
        self.registrations = type_names.registrations()
        self.marks = dict.fromkeys(type_names.marks_of(cls), True)
        self.required_marks = type_names.required_marks_of(cls)
        self.filters = Filter(dict.fromkeys(self.required_marks, True))
        self.codec = codec_of(cls)
        self.form = self.codec.form_with(self.marks)
        """The attributes of its objects, without values."""
        _check_names(self.name, self.codec.shape.by_name)

    @cached_property
    def qos(self) -> Qos:
        """The delivery guarantees of its objects."""
        return qos_of(self.cls)

    @cached_property
    def is_plain(self) -> bool:
        """Whether its objects are published as mappings are, without options."""
        is_elsewhere = hasattr(self.cls, "chosen_dissemination")
        return not type_names.is_root(self.cls) and not is_elsewhere and self.qos == NOTHING

    def check_where(self, where: Filter | FilterSet) -> Filter | FilterSet:
        """See `Obvent.check_where`."""
        return narrowing_filters(self.name, self.codec.shape, where)


def narrowing_filters(
    type_name: str, shape: Shape, where: Filter | FilterSet
) -> Filter | FilterSet:
    """Returns filters with each field under its aliases, too, as objects of older classes have it.

    Filters of which one itself names an alias, as those of a predicate do, are not changed. Raises
    InvalidObventError if a filter names no field, or a field that is not an attribute, or if each
    filter wants values that no object has by the types of the fields, and LimitError for too many
    filters.
    """
    aliases = {alias for field in shape.fields for alias in field.aliases}
    names = {name for member in where.filters for name in member.sets}
    for name in names:
        _check_field(type_name, shape, name, aliases)
    foreign = [next(_foreign_fields(shape, member, aliases), None) for member in where.filters]
    if foreign and foreign[0] is not None and None not in foreign:
        name, expected = foreign[0].name, foreign[0].expected
        reason = f"`where` wants values of {name!r} that no object has: its type is {expected}"
        raise InvalidObventError(type_name, reason)
    if not aliases.isdisjoint(name.partition(".")[0] for name in names):
        return where
    if all(len(_names_of_path(shape, name)) == 1 for name in names):
        return where
    return FilterSet(_under_aliases(shape, member) for member in where.filters)


def _check_field(type_name: str, shape: Shape, name: str, aliases: Collection[str]) -> None:
    first, _, path = name.partition(".")
    if name.startswith("@") or first in aliases:
        return
    found = shape.by_name.get(first)
    kinds = [] if found is None else [each.kind for each in found.alternatives]
    if found is None or (path and FieldKind.OBJECT not in kinds):
        expected = ", ".join(sorted(shape.by_name)) or "none"
        reason = f"`where` names {name!r}, which is no field; expected {expected}"
        raise InvalidObventError(type_name, reason)
    if not found.is_flat:
        reason = f"`where` names {name!r}, which is in the body; use a predicate"
        raise InvalidObventError(type_name, reason)


def _foreign_fields(shape: Shape, member: Filter, aliases: Collection[str]) -> Iterator[Field]:
    """Yields the fields of which a filter wants only values of other types."""
    for name, values in member.sets.items():
        found = None if name in aliases else shape.by_name.get(name)
        if found is None or FieldKind.OBJECT in [each.kind for each in found.alternatives]:
            continue  # It is of the envelope, an alias, or within an object.
        possible = union((ABSENT, *map(values_of, found.alternatives)))
        if not values.is_empty and not values.meets(possible):
            yield found


def _under_aliases(shape: Shape, member: Filter) -> Filter | FilterSet:
    """Returns the filter of objects with each field under the first of its names that they have."""
    found: Filter | FilterSet = Filter({})
    for name, values in member.sets.items():
        names = _names_of_path(shape, name)
        earlier = [dict.fromkeys(names[:place], ABSENT) for place in range(len(names))]
        ways = [
            Filter.of_sets({**absent, each: values - ABSENT if len(names) > 1 else values})
            for absent, each in zip(earlier, names, strict=True)
        ]
        if len(names) > 1 and ABSENT.issubset(values):
            ways.append(Filter.of_sets(dict.fromkeys(names, ABSENT)))
        found &= FilterSet(ways)
    return found


def _names_of_path(shape: Shape, path: str) -> list[str]:
    """Returns the names that an attribute may have: fields on its path have aliases."""
    first, _, rest = path.partition(".")
    found = shape.by_name.get(first)
    if found is None:
        return [path]
    names = [first, *found.aliases]
    classes = [each.type for each in found.alternatives if each.kind is FieldKind.OBJECT]
    if not rest or not classes:
        return names
    within = _names_of_path(codec_of(classes[0]).shape, rest)
    return [f"{name}.{each}" for name in names for each in within]


def check_definition(cls: type[Any], *, is_made: bool = False) -> None:
    """Raises InvalidObventError for fields that cannot be encoded, if their types are known; with
    `is_made` for those of a class that is a dataclass or the like already.

    Other ones are refused at first use.
    """
    name = type_names.names_of(cls)[0]
    fields = own_fields(cls, name, is_made=is_made)
    if fields is not None:
        ObventCodec(Shape(cls, fields, lambda *_: None), name)
        _check_names(name, [each.name for each in fields])


def _check_names(type_name: str, names: Iterable[str]) -> None:
    for name in RESERVED.intersection(names):
        raise InvalidObventError(type_name, f"the field name {name!r} is taken by Obvent")


_TYPE: Final = "__obvent_type__"
"""The attribute of a class for its ObventType; a subclass inherits that of an ancestor."""


def type_of(cls: type[Any]) -> ObventType:
    """Returns the ObventType of a class. Raises InvalidObventError for no obvent class."""
    found: ObventType | None = getattr(cls, _TYPE, None)
    if found is None or found.cls is not cls:
        if is_unknown(cls):
            return type_of(known_of(cls))
        found = ObventType(cls)
        setattr(cls, _TYPE, found)
    return found


def to_notification(obvent: Any) -> Notification:
    """Returns its notification. Raises InvalidObventError, InvalidNotificationError."""
    cls = type(obvent)
    if type_names.is_root(cls):
        raise InvalidObventError("Obvent", "it is the root of all obvents and has no name")
    if is_unknown(cls):
        return _to_whole_notification(obvent, type_of(known_of(cls)), rest_of(obvent))
    kind = type_of(cls)
    attributes = kind.codec.plain_attributes_of(obvent, kind.form)
    if attributes is None:
        return _to_whole_notification(obvent, kind, None)
    return Notification.from_attributes(attributes, b"", "", kind.qos.envelope_of(obvent))


def plain_attributes(obvent: Any) -> dict[str, Any] | None:
    """Returns the attributes and marks of an object that is published as a mapping of these.

    None for any other: one with parts in a body, an unknown type, or a guarantee, and for one of a
    class with a `to_notification` of its own.
    """
    cls = type(obvent)
    if cls.to_notification is not to_notification:  # Then it need be no class of obvents.
        return None
    kind = type_of(cls)
    if kind.cls is not cls or not kind.is_plain:
        return None
    return kind.codec.plain_attributes_of(obvent, kind.form)


def _to_whole_notification(obvent: Any, kind: ObventType, rest: Rest | None) -> Notification:
    parts, marks = Parts(), kind.marks
    if rest is not None:
        parts.add(rest.parts)
        marks = dict.fromkeys(rest.marks or kind.marks, True)
        within = parts.attributes.pop(IS, "")  # The class by which it was nested in another object.
        if within and isinstance(within, str):
            marks[mark_name(within)] = True
    kind.codec.write(obvent, parts)
    parts.attributes.update(marks)
    return parts.notification(kind.name, kind.qos.envelope_of(obvent))


class ReceivedType:
    """The class of objects with attributes of these names, and their marks."""

    __slots__ = ("all_marks", "is_known", "kind", "marks")

    def __init__(self, subscribed: ObventType, names: tuple[str, ...]) -> None:
        self.marks = type_names.type_marks(names)
        self.all_marks = dict.fromkeys((it for it in names if it.startswith(MARK_PREFIX)), True)
        carried = set(self.marks)
        if type_names.is_root(subscribed.cls):  # Decorated classes do not inherit from it.
            marked = type_names.conforming_classes(carried)
        else:  # Only these are read: an unusable class elsewhere does no harm.
            below = type_names.descendants_of(subscribed.cls)
            marked = [it for it in below if carried.issuperset(type_names.required_marks_of(it))]
        known = [type_of(it) for it in marked]
        # The class with the most ancestors; among equals, the first by name.
        self.kind = min(known or [subscribed], key=lambda it: (-len(it.required_marks), it.name))
        self.is_known = carried.issubset(self.kind.marks)
        if not self.is_known:
            strange = [
                it for it in self.marks if type_names.class_named(it[len(MARK_PREFIX) :]) is None
            ]
            facts = {"marks": ", ".join(strange), "kind": self.kind.name}
            logger.info("%(marks)s: received as %(kind)s", facts)


def read_obvent(cls: type[Any], notification: Notification) -> Any:
    """Returns the object of a notification; see `Obvent.from_notification`."""
    attributes = raw_attributes(notification)
    subscribed = type_of(cls)
    if subscribed.registrations != type_names.registrations():  # Objects may be of a new class.
        subscribed.received_types.clear()
        subscribed.registrations = type_names.registrations()
    names = (*attributes,)
    received = subscribed.received_types.get(names) or _received_type(subscribed, names)
    for mark in received.kind.required_marks:
        if attributes[mark] is not True:
            raise InvalidObventError(subscribed.name, "the notification is not of this type")
    codec = received.kind.codec
    if received.is_known and not notification.body:
        made = codec.read_plain(received.kind.cls, attributes, received.all_marks)
        if made is not None:
            return made
    values, rest = codec.read(Parts.of(notification, received.kind.name))
    if received.is_known and rest is None:
        return codec.make(received.kind.cls, values)
    marks = tuple(it for it in received.marks if attributes[it] is True)
    return codec.make(received.kind.cls, values, Rest(marks, rest or Parts()))


def _received_type(subscribed: ObventType, names: tuple[str, ...]) -> ReceivedType:
    is_of_type = all(name in names for name in subscribed.required_marks)
    if not is_of_type or (type_names.is_root(subscribed.cls) and not type_names.type_marks(names)):
        raise InvalidObventError(subscribed.name, "the notification is not of this type")
    known = subscribed.received_types
    if len(known) >= READINGS_MAX:
        known.clear()
    found = known[names] = ReceivedType(subscribed, names)
    return found
