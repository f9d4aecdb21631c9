"""`ObventCodec`: objects encoded as attributes and a body, and back; docs/typed.md has the table.

Attributes and body entries that the reader's class does not have are kept, so that they can be
published again. Decoding depends only on the names of the attributes, so a read plan is cached for
each set of names. An object whose values need no check is encoded and decoded in one compiled step.

Source: EPFL 2503 §3.3.3 (objects over the wire), §2.4.2 (types that evolve).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, get_origin

from msgspec import UNSET

from contrada.errors import InvalidObventError
from contrada.model.codec import plain_fields, plain_values
from contrada.model.domains.values import MARK_PREFIX
from contrada.typed.body_values import IS, OBVENT_NESTING_MAX, BodyCodec, body_codec_of
from contrada.typed.object_parts import (
    Parts,
    Rest,
    Values,
    anonymous_subclass,
    attach_rest,
    is_unknown,
    known_of,
    rest_of,
)
from contrada.typed.scalars import reader, type_test, writer
from contrada.typed.shapes import KINDS, Field, FieldKind, Shape, name_of, shape_of
from contrada.typed.type_names import class_named, marks_of, names_of

READINGS_MAX: Final = 256
"""Cached read plans of a class. Beyond it: all are dropped."""


GENERICS_MAX: Final = 256
"""Cached codecs of generic classes with arguments. Beyond it: made anew, the least recent first."""


class ObventCodec:
    """The codec of objects of one class."""

    def __init__(self, shape: Shape, type_name: str) -> None:
        self.shape = shape
        self._type_name = type_name
        self._scalars: list[_ScalarField] = []
        self._objects: list[_Nested] = []
        self._elements: list[_BodyField] = []
        for each in shape.fields:
            self._place(each)
        self._get = _tuple_getter(attrgetter, [each.field.name for each in self._scalars])
        self._names = tuple(each.field.name for each in self._scalars)
        self._plain = {each.field.name: each.plain for each in self._scalars}
        """The types by field of values that need no check."""
        self._is_plain = not self._objects and not self._elements
        self._is_read_plainly = (
            self._is_plain
            and shape.is_positional
            and self._names == tuple(each.name for each in shape.fields)
        )
        self._plans: dict[tuple[str, ...], _ReadPlan] = {}

    def _place(self, declared: Field) -> None:
        inner = [each for each in declared.alternatives if each.kind is FieldKind.OBJECT]
        if declared.is_flat and inner:
            self._objects.append(_Nested(declared, inner[0].type))
        elif declared.is_flat:
            self._scalars.append(_ScalarField(declared))
        is_decimal = any(it.kind is FieldKind.DECIMAL for it in declared.alternatives)
        if not declared.is_flat or is_decimal:
            try:
                element = body_codec_of(declared.annotation, object_codec)
            except TypeError as error:
                reason = f"field {declared.name!r} is {name_of(declared.annotation)}: {error}"
                raise InvalidObventError(self._type_name, reason) from None
            self._elements.append(_BodyField(declared, element))

    def form_with(self, marks: Values) -> Values:
        """Returns the attributes of an object with these marks, without its values."""
        return dict.fromkeys(self._plain) | marks

    def plain_attributes_of(self, obvent: Any, form: Values) -> Values | None:
        """Returns the attributes of an object with values that, by their types, need no check.

        `form` is that of the object's marks. None for another object, and without compiled code.
        """
        if plain_fields is None or not self._is_plain:
            return None
        return plain_fields(obvent, self._plain, form)

    def write(self, obvent: Any, parts: Parts, prefix: str = "", depth: int = 0) -> None:
        """Adds the parts of an object, under a path. Raises InvalidObventError."""
        if depth > OBVENT_NESTING_MAX:
            reason = f"nested deeper than OBVENT_NESTING_MAX = {OBVENT_NESTING_MAX}, or in itself"
            raise InvalidObventError(self._type_name, reason)
        for name, value in self._flat(obvent).items():
            parts.attributes[prefix + name] = value
        for nested in self._objects:
            value = getattr(obvent, nested.field.name)
            if value is UNSET and nested.field.may_be_unset:
                continue
            path = prefix + nested.field.name
            if value is None and nested.may_be_none:
                parts.attributes[path] = None
                continue
            if not isinstance(value, nested.cls):
                raise self._refusal(nested.field, value)
            kind, kept = _split_nested(value, nested.cls)
            codec = codec_of(kind)
            if not codec.shape.fields:
                kept.attributes.setdefault(IS, "")
            for held, found in (parts.attributes, kept.attributes), (parts.entries, kept.entries):
                held.update({f"{path}.{name}": it for name, it in found.items()})
            codec.write(value, parts, f"{path}.", depth + 1)
        for entry in self._elements:
            value = getattr(obvent, entry.field.name)
            if (value is None and entry.field.is_flat) or (
                value is UNSET and entry.field.may_be_unset
            ):
                continue
            parts.entries[prefix + entry.field.name] = self._encode_entry(entry, value)

    def read(self, parts: Parts) -> tuple[Values, Parts | None]:
        """Returns the fields by name, and parts that the class lacks. Raises InvalidObventError."""
        attributes = parts.attributes
        names = tuple(attributes)
        plan = self._plans.get(names)
        if plan is None:
            if len(self._plans) >= READINGS_MAX:
                self._plans.clear()
            objects = [each.field.name for each in self._objects]
            plan = self._plans[names] = _ReadPlan(names, self._scalars, objects)
        values = plan.values(attributes, self._type_name)
        rest = None
        if self._objects or self._elements or parts.entries or plan.unknown:
            rest = Parts({name: attributes[name] for name in plan.unknown})
            self._read_more(parts, values, rest)
        if len(values) < len(self.shape.fields):
            for each in self.shape.fields:
                if each.is_required and each.name not in values:
                    raise InvalidObventError(self._type_name, f"field {each.name!r} is absent")
        return values, rest if rest and (rest.attributes or rest.entries) else None

    def read_plain(self, cls: type[Any], attributes: Values, marks: Values) -> Any:
        """Returns the object of attributes with these marks if nothing needs a check, else None.

        Raises InvalidObventError.
        """
        if plain_values is None or not self._is_read_plainly:
            return None
        found = plain_values(attributes, self._plain, marks)
        return None if found is None else self._call(cls, found)

    def make(self, cls: type[Any], values: Values, rest: Rest | None = None) -> Any:
        """Returns an object of a class, with a rest of its anonymous subclass. Raises
        InvalidObventError.
        """
        if rest is None:
            return self._call(self.shape.make, (cls, values))
        unknown = self._call(anonymous_subclass, (cls,))
        return attach_rest(self._call(self.shape.make, (unknown, values)), rest)

    def _call(self, make: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        try:
            return make(*given)
        except Exception as error:  # Its own __post_init__ or validators may raise anything.
            raise InvalidObventError(self._type_name, f"it cannot be made: {error!r}") from error

    def _flat(self, obvent: Any) -> Values:
        values = map(self._encode, self._scalars, self._get(obvent))
        pairs = zip(self._names, values, strict=True)
        return {name: value for name, value in pairs if value is not UNSET}

    def _encode(self, declared: "_ScalarField", value: Any) -> Any:
        if type(value) in declared.plain or (value is UNSET and declared.field.may_be_unset):
            return value
        for holds, write in declared.writers:
            if holds(value):
                try:
                    return write(value)
                except (ValueError, OverflowError, KeyError) as error:
                    reason = f"{declared.field.name} = {value!r}: {error}"
                    raise InvalidObventError(self._type_name, reason) from None
        raise self._refusal(declared.field, value)

    def _refusal(self, field: Field, value: Any) -> InvalidObventError:
        reason = f"{field.name} = {value!r}: expected {field.expected}"
        return InvalidObventError(self._type_name, reason)

    def _encode_entry(self, entry: "_BodyField", value: Any) -> Any:
        name = entry.field.name
        if not entry.element.holds(value):
            reason = f"{name} = {value!r}: expected {name_of(entry.field.annotation)}"
            raise InvalidObventError(self._type_name, reason)
        try:
            return entry.element.write(value, 1)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidObventError(self._type_name, f"{name} = {value!r}: {error}") from None

    def _read_more(self, parts: Parts, values: Values, rest: Parts) -> None:
        rest.entries.update(parts.entries)
        for entry in self._elements:
            name = entry.name_in(parts)
            if name in rest.entries:
                try:
                    values[entry.field.name] = entry.element.read(rest.entries.pop(name))
                except (ValueError, TypeError, RecursionError):
                    expected = name_of(entry.field.annotation)
                    reason = f"{name} is none in the body: expected {expected}"
                    raise InvalidObventError(self._type_name, reason) from None
        for nested in self._objects:
            self._read_nested_field(nested, parts, values, rest)

    def _read_nested_field(
        self, nested: "_Nested", parts: Parts, values: Values, rest: Parts
    ) -> None:
        for name in (nested.field.name, *nested.field.aliases):
            if name in parts.attributes:
                if not nested.may_be_none or parts.attributes[name] is not None:
                    found = f"{name} = {parts.attributes[name]!r}"
                    reason = f"{found}: expected {nested.field.expected}"
                    raise InvalidObventError(self._type_name, reason)
                values[nested.field.name] = None
                rest.attributes.pop(name, None)
                return
            inner = Parts(*(_under(f"{name}.", it) for it in (parts.attributes, parts.entries)))
            if inner.attributes or inner.entries:
                for path in (f"{name}.{it}" for it in (*inner.attributes, *inner.entries)):
                    rest.attributes.pop(path, None)
                    rest.entries.pop(path, None)
                values[nested.field.name] = _read_nested(nested.cls, inner)
                return


class _ScalarField:
    """A field whose values are attributes."""

    def __init__(self, declared: Field) -> None:
        self.field = declared
        self.writers = [(type_test(each), writer(each)) for each in declared.alternatives]
        self._readers = [reader(each) for each in declared.alternatives]
        self.plain = {_PLAIN[it.kind] for it in declared.alternatives if it.kind in _PLAIN}

    def restore(self, value: Any) -> Any:
        """Returns the value as one of the field's types. Raises ValueError."""
        if type(value) in self.plain:
            return value
        for read in self._readers:
            try:
                return read(value)
            except ValueError:
                continue
        raise ValueError(f"{self.field.name} = {value!r}: expected {self.field.expected}")


class _Nested:
    """A field of objects with fields that are attributes."""

    def __init__(self, declared: Field, cls: type[Any]) -> None:
        self.field = declared
        self.cls = cls
        self.may_be_none = any(it.kind is FieldKind.NONE for it in declared.alternatives)


@dataclass(frozen=True, slots=True)
class _BodyField:
    """A field in the body; a decimal is there in addition to its attribute."""

    field: Field
    element: BodyCodec

    def name_in(self, parts: Parts) -> str:
        """Returns its name in the body: an alias if its own name is absent."""
        if not self.field.aliases:
            return self.field.name
        # An entry in addition to an attribute has the name of the attribute.
        held = parts.attributes if self.field.is_flat else parts.entries
        names = (self.field.name, *self.field.aliases)
        return next((it for it in names if it in held), self.field.name)


class _ReadPlan:
    """The way to read an object from attributes of these names, in this order."""

    def __init__(
        self, names: tuple[str, ...], scalars: list[_ScalarField], objects: list[str]
    ) -> None:
        pairs = []
        for each in scalars:
            found = next((it for it in (each.field.name, *each.field.aliases) if it in names), None)
            if found is not None:
                pairs.append((found, each))
        self._get = _tuple_getter(itemgetter, [name for name, _ in pairs])
        self._scalars = [each for _, each in pairs]
        read = {name for name, _ in pairs} | set(objects)
        known = (MARK_PREFIX, *(f"{name}." for name in objects))
        self.unknown = [it for it in names if it not in read and not it.startswith(known)]

    def values(self, attributes: Mapping[str, Any], type_name: str) -> Values:
        pairs = zip(self._scalars, self._get(attributes), strict=True)
        try:
            return {each.field.name: each.restore(value) for each, value in pairs}
        except ValueError as error:
            raise InvalidObventError(type_name, str(error)) from None


_PLAIN: Final = {KINDS[cls]: cls for cls in (type(None), bool, int, float, str, bytes)}

_CODEC: Final = "__obvent_codec__"
"""The attribute of a class for its ObventCodec; a subclass inherits that of an ancestor."""


@lru_cache(maxsize=GENERICS_MAX)
def _codec_of_generic(annotation: Any) -> ObventCodec:
    return ObventCodec(shape_of(annotation), name_of(annotation))


def codec_of(cls: Any) -> ObventCodec:
    """Returns the codec of a class, maybe generic with arguments. Raises InvalidObventError."""
    if get_origin(cls) is not None:
        return _codec_of_generic(cls)
    found: ObventCodec | None = getattr(cls, _CODEC, None)
    if found is None or found.shape.cls is not cls:
        name = (*names_of(cls), cls.__qualname__)[0]
        found = ObventCodec(shape_of(cls, name), name)
        setattr(cls, _CODEC, found)
    return found


def object_codec(declared: Any) -> BodyCodec:
    """Returns the codec of nested objects in the body, of a class or a generic with arguments."""
    cls = get_origin(declared) or declared

    def write(value: Any, depth: int) -> Values:
        kind, parts = _split_nested(value, cls)
        codec_of(declared if kind is cls else kind).write(value, parts, depth=depth)
        return {"": parts.entries, **parts.attributes}

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or type(value.get("")) is not dict:
            raise ValueError
        attributes = {name: it for name, it in value.items() if name}
        return _read_nested(declared, Parts(attributes, value[""]))

    return BodyCodec(lambda value: isinstance(value, cls), write, read)


def _split_nested(value: Any, declared: type[Any]) -> tuple[type[Any], Parts]:
    """Returns the known class of a nested object, and its parts beside the fields of that class.

    It may have been received by itself, with marks of unknown types.
    """
    kind, parts = type(value), Parts()
    strange: list[str] = []
    if is_unknown(kind):
        kind, rest = known_of(kind), rest_of(value)
        parts.add(rest.parts)
        strange = [each for each in rest.marks if each not in marks_of(kind)]
    if IS not in parts.attributes:
        name = strange[0][len(MARK_PREFIX) :] if strange else _subtype_name(kind, declared)
        parts.attributes.update({IS: name} if name else {})
    return kind, parts


def _read_nested(declared: Any, parts: Parts) -> Any:
    """Returns a nested object with its unknown parts; it may be of a known subclass of the
    declared class. Raises InvalidObventError.
    """
    cls, type_name = get_origin(declared) or declared, parts.attributes.get(IS)
    if isinstance(type_name, str):
        known = class_named(type_name)
        is_known = known is not None and issubclass(known, cls)
        if is_known and known is not cls:  # The declared one may have arguments.
            cls = declared = known
        if is_known or not type_name:
            del parts.attributes[IS]
    codec = codec_of(declared)
    values, rest = codec.read(parts)
    return codec.make(cls, values, None if rest is None else Rest((), rest))


def _subtype_name(kind: type[Any], declared: type[Any]) -> str:
    """Returns the name of a nested object's class; "" for the declared class."""
    if kind is declared:
        return ""
    names = names_of(kind)
    if not names:
        nested = f"a nested {kind.__qualname__} in a field of {declared.__qualname__}"
        raise InvalidObventError(kind.__qualname__, f"{nested}: make it an obvent")
    return names[0]


def _under(prefix: str, values: Mapping[str, Any]) -> Values:
    begin = len(prefix)
    return {name[begin:]: value for name, value in values.items() if name.startswith(prefix)}


def _tuple_getter(make: Callable[..., Any], names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a getter of several attributes or items as a tuple, also of one or none."""
    if not names:
        return lambda _: ()
    get = make(*names)
    return get if len(names) > 1 else lambda given: (get(given),)
