"""`Structural`: types by structure, that is, by the members of a protocol or the types of a tuple.

Filters require the attributes of the protocol; its methods are checked at the subscriber, by the
class of the object. An object of no known class becomes a record of the protocol's attributes, if
the protocol has no methods. A tuple has the attributes `0`, `1`, … and a mark with its length.

Source: EPFL 2503 §3.4.2 (structural conformance), §5.5.5 (tuples).
"""

import inspect
import typing
from dataclasses import make_dataclass
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, Final, Generic, TypeVar, cast

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification, mark_name
from contrada.model.algebra.value_set import union
from contrada.model.rule import Rule
from contrada.service import Predicate
from contrada.typed.object_parts import Parts
from contrada.typed.obvent_codec import ObventCodec
from contrada.typed.obvent_type import ObventType, narrowing_filters, read_obvent, type_of
from contrada.typed.predicate_rule import shape_rule
from contrada.typed.scalars import values_of
from contrada.typed.shapes import (
    Default,
    Field,
    FieldKind,
    Shape,
    TypeOption,
    alternatives_of,
    is_declared,
)
from contrada.typed.type_names import conforming_classes, registrations, type_marks

T = TypeVar("T")

TUPLE_VALUES_MAX: Final = 64
"""Values of a published tuple. Beyond it: InvalidObventError."""

STRUCTURES_MAX: Final = 256
"""Cached classes of a protocol by type marks, and cached codecs of tuples by their types. Beyond
it: the classes are all dropped, of the codecs the least recently used."""


class Structural(Generic[T]):
    """All objects with the members of a protocol, `Structural[Priced]()`, or such tuples.

    Raises InvalidObventError at first use for another type, and for members without a type.
    """

    @cached_property
    def _type(self) -> "_ProtocolType | _TupleType":
        declared = getattr(self, "__orig_class__", None)
        if declared is None:
            reason = "a type argument is missing: Structural[Priced]()"
            raise InvalidObventError("Structural", reason)
        structure = typing.get_args(declared)[0]
        if typing.get_origin(structure) is tuple:
            return _TupleType(typing.get_args(structure))
        if getattr(structure, "_is_protocol", False):
            return _ProtocolType(structure)
        raise InvalidObventError(str(structure), "expected a Protocol, or tuple[…] with its types")

    def to_filters(self) -> Filter:
        """Returns the filter for attributes of these names and types."""
        return self._type.filters

    def check_where(self, where: Filter | FilterSet) -> Filter | FilterSet:
        """As `Obvent.check_where`. Raises InvalidObventError if a filter names no member."""
        return narrowing_filters(self._type.name, self._type.shape, where)

    def lift(self, predicate: Predicate[T]) -> Rule:
        """See `Obvent.lift`."""
        return shape_rule(self._type.shape, self._type.filters, self.from_notification, predicate)

    def from_notification(self, notification: Notification) -> T:
        """Returns the object or tuple. Raises InvalidObventError if it does not conform."""
        return cast(T, self._type.read(notification))


class Tuple:
    """Values to publish by position."""

    __slots__ = ("values",)

    def __init__(self, *values: Any) -> None:
        """Raises InvalidObventError for too many values, or none."""
        if not 1 <= len(values) <= TUPLE_VALUES_MAX:
            reason = f"{len(values)} values: expected 1 to TUPLE_VALUES_MAX = {TUPLE_VALUES_MAX}"
            raise InvalidObventError("tuple", reason)
        self.values = values

    def to_notification(self) -> Notification:
        """Returns the notification of these values. Raises InvalidObventError."""
        parts = Parts()
        by_place = SimpleNamespace(**{str(at): value for at, value in enumerate(self.values)})
        _codec_of_types(tuple(map(type, self.values))).write(by_place, parts)
        parts.attributes[_tuple_mark(len(self.values))] = True
        return parts.notification("tuple")

    def __repr__(self) -> str:
        return f"Tuple{self.values!r}"


class _ProtocolType:
    """The type of all objects with the members of a protocol."""

    def __init__(self, protocol: type[Any]) -> None:
        self.name = protocol.__qualname__
        self.protocol = protocol
        hints = typing.get_type_hints(protocol, include_extras=True)
        fields, self.methods = [], []
        for name in _members(protocol):
            member = inspect.getattr_static(protocol, name, None)
            if isinstance(member, property):
                assert member.fget is not None, "a property is read"
                hints[name] = typing.get_type_hints(member.fget).get("return", Any)
            elif callable(member):
                self.methods.append(name)
                continue
            fields.append(_required_field(name, hints.get(name, Any)))
        self.shape = Shape(protocol, tuple(fields), lambda cls, values: cls(**values))
        self.filters = _filters_of(self.shape)
        self._found: dict[tuple[str, ...], type[Any] | str | None] = {}
        self._registrations = registrations()

    @cached_property
    def _record(self) -> type[Any]:
        """The class of objects of unknown classes."""
        return make_dataclass(f"{self.name}…", [(each.name, Any) for each in self.shape.fields])

    @cached_property
    def _codec(self) -> ObventCodec:
        return ObventCodec(self.shape, self.name)

    def read(self, notification: Notification) -> Any:
        found = self._class_of(type_marks(notification))
        if isinstance(found, str):
            raise InvalidObventError(self.name, found)
        if found is not None:
            return read_obvent(found, notification)
        values, _ = self._codec.read(Parts.of(notification, self.name))
        return self._codec.make(self._record, values)

    def _class_of(self, marks: tuple[str, ...]) -> type[Any] | str | None:
        """Returns the class of an object with these marks, a refusal, or None for a record."""
        known = self._found
        if self._registrations != registrations():
            known.clear()
            self._registrations = registrations()
        if marks not in known:
            if len(known) >= STRUCTURES_MAX:
                known.clear()
            known[marks] = self._conforming(set(marks))
        return known[marks]

    def _conforming(self, marks: set[str]) -> type[Any] | str | None:
        known = [type_of(each) for each in conforming_classes(marks)]
        for kind in known:
            if self._conforms(kind):
                return kind.cls
        for kind in known:
            if marks <= kind.marks.keys():  # All its types are known.
                return f"{kind.name} does not conform"
        if self.methods:
            return f"no class known here has its {', '.join(sorted(self.methods))}()"
        return None

    def _conforms(self, kind: ObventType) -> bool:
        own = kind.codec.shape.by_name
        if not all(callable(getattr(kind.cls, each, None)) for each in self.methods):
            return False
        for required in self.shape.fields:
            held = own.get(required.name)
            if held is None:
                if not isinstance(inspect.getattr_static(kind.cls, required.name, None), property):
                    return False
            elif not all(_is_within(each, required.alternatives) for each in held.alternatives):
                return False
        return True


class _TupleType:
    def __init__(self, types: tuple[Any, ...]) -> None:
        self.name = f"tuple[{', '.join(map(str, types))}]"
        if not 1 <= len(types) <= TUPLE_VALUES_MAX or Ellipsis in types:
            reason = f"expected the types of 1 to TUPLE_VALUES_MAX = {TUPLE_VALUES_MAX} values"
            raise InvalidObventError(self.name, reason)
        self.shape = _places(list(types))
        self.codec = ObventCodec(self.shape, self.name)
        self.filters = _filters_of(self.shape) & Filter({_tuple_mark(len(types)): True})

    def read(self, notification: Notification) -> tuple[Any, ...]:
        values, _ = self.codec.read(Parts.of(notification, self.name))
        return tuple(values[field.name] for field in self.shape.fields)


def _members(protocol: type[Any]) -> list[str]:
    found: dict[str, None] = {}
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False) and base is not typing.Protocol:
            own = [*inspect.get_annotations(base), *vars(base)]
            found.update(dict.fromkeys(each for each in own if not each.startswith("_")))
    return list(found)


def _required_field(name: str, annotation: Any) -> Field:
    return Field(name, name, alternatives_of(annotation), Default.NONE, (), annotation)


def _places(types: list[Any]) -> Shape:
    fields = tuple(_required_field(str(place), each) for place, each in enumerate(types))
    return Shape(tuple, fields, lambda _, values: tuple(values.values()))


def _tuple_mark(count: int) -> str:
    return mark_name(f"tuple({count})")


@lru_cache(maxsize=STRUCTURES_MAX)
def _codec_of_types(types: tuple[type[Any], ...]) -> ObventCodec:
    return ObventCodec(_places([_carried_type(each) for each in types]), "tuple")


def _carried_type(kind: type[Any]) -> Any:
    alternative = alternatives_of(kind)[0]
    return Any if alternative.kind is FieldKind.OTHER and not is_declared(kind) else kind


def _filters_of(shape: Shape) -> Filter:
    sets = {
        field.name: union(map(values_of, field.alternatives))
        for field in shape.fields
        if field.is_flat and all(it.kind is not FieldKind.OBJECT for it in field.alternatives)
    }
    return Filter.of_sets(sets)


def _is_within(held: TypeOption, required: tuple[TypeOption, ...]) -> bool:
    """Whether one alternative of a field is among others; ints are floats."""
    for each in required:
        if each.type in (Any, held.type):
            return True
        if each.kind is FieldKind.FLOAT and held.kind is FieldKind.INT:
            return True
        are_classes = isinstance(each.type, type) and isinstance(held.type, type)
        is_wide = held.kind in (FieldKind.OBJECT, FieldKind.ENUM, FieldKind.OTHER)
        if is_wide and are_classes and issubclass(held.type, each.type):
            return True
    return False
