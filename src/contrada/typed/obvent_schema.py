"""`schema_of` and `class_of_schema`: an obvent class as JSON Schema, and a class from a schema.

So publishers and subscribers in other languages, or without the class, share a definition of the
event. Facts beyond JSON Schema are under `x-obvent`: the name of the type, its former names and its
supertypes. `format` gives the meaning of a text or a number.

Source: EPFL 2503 §3.4.2 (interoperable events: an event definition language).
"""

import contextlib
import enum
import keyword
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import Any, Final

from contrada.errors import InvalidObventError
from contrada.typed.obvent import Obvent
from contrada.typed.obvent_type import type_of
from contrada.typed.scalars import reader, type_test, writer
from contrada.typed.shapes import (
    KINDS,
    Default,
    Field,
    FieldKind,
    Shape,
    TypeOption,
    alternatives_of,
    enum_values,
    is_declared,
    name_of,
    shape_of,
)
from contrada.typed.type_names import ancestors_of, class_named, names_of

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

SCHEMA_DEPTH_MAX: Final = 16
"""Depth of a nested schema. Beyond it: InvalidObventError."""

_EXTRA: Final = "x-obvent"
_MAP: Final = "x-map"

_TYPES: Final[dict[FieldKind, dict[str, Any]]] = {
    FieldKind.NONE: {"type": "null"},
    FieldKind.BOOL: {"type": "boolean"},
    FieldKind.INT: {"type": "integer", "format": "int64"},
    FieldKind.FLOAT: {"type": "number", "format": "double"},
    FieldKind.TEXT: {"type": "string"},
    FieldKind.BYTES: {"type": "string", "format": "byte"},
    FieldKind.TIME: {"type": "string", "format": "date-time"},
    FieldKind.DATE: {"type": "string", "format": "date"},
    FieldKind.DURATION: {"type": "integer", "format": "duration-us"},
    FieldKind.DECIMAL: {"type": "string", "format": "decimal"},
    FieldKind.UUID: {"type": "string", "format": "uuid"},
}
_CLASSES: Final[dict[tuple[str, str], type]] = {
    **{(_TYPES[kind]["type"], _TYPES[kind].get("format", "")): cls for cls, kind in KINDS.items()},
    ("integer", ""): int,
    ("number", ""): float,
}


def schema_of(cls: type[Any]) -> dict[str, Any]:
    """Returns the JSON Schema of an obvent class, draft 2020-12, with nested classes in `$defs`.

    Raises InvalidObventError for no obvent class, or a field with a type that has no schema.
    """
    kind = type_of(cls)
    definitions: dict[str, Any] = {}
    schema = _of_shape(kind.codec.shape, kind.name, definitions)
    found = {"$schema": DIALECT, "title": kind.name, **schema}
    if definitions:
        found["$defs"] = definitions
    return found


def class_of_schema(schema: Mapping[str, Any]) -> type[Any]:
    """Returns the obvent class of a schema: the known class of its name, or a new one.

    A new class is a dataclass; unknown supertypes become classes without fields. Raises
    InvalidObventError, with the place, for an unsupported schema.
    """
    extra = schema.get(_EXTRA, {})
    if not isinstance(extra, Mapping):
        raise InvalidObventError("", f"{_EXTRA} = {extra!r}: expected a mapping")
    name = extra.get("name") or schema.get("title")
    if not isinstance(name, str):
        raise InvalidObventError("", f"a schema has a title, or {_EXTRA}.name")
    known = class_named(name)
    if known is not None:
        return known
    reader = _SchemaReader(schema.get("$defs", {}), name)
    try:
        bases = _bases(name, extra.get("supertypes", ()))
        earlier = tuple(extra.get("earlier", ()))
        return reader.made(schema, name, bases, name, earlier)
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidObventError(name, f"it is the schema of no class: {error}") from error


def _of_shape(shape: Shape, name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for each in shape.fields:
        try:
            held = _of_alternatives(each.alternatives, definitions)
        except TypeError as error:
            raise InvalidObventError(name, f"field {each.name!r}: {error}") from None
        if each.aliases:
            held["x-aliases"] = list(each.aliases)
        default = _json_default(each)
        if default is not Default.NONE:
            held["default"] = default
        properties[each.name] = held
    found: dict[str, Any] = {"type": "object", "properties": properties}
    found["required"] = [each.name for each in shape.fields if each.is_required]
    if names := names_of(shape.cls):
        extra: dict[str, Any] = {"name": names[0]}
        if names[1:]:
            extra["earlier"] = list(reversed(names[1:]))
        if above := [names_of(it)[0] for it in ancestors_of(shape.cls)[1:]]:
            extra["supertypes"] = above
        found[_EXTRA] = extra
    return found


def _json_default(declared: Field) -> Any:
    """Returns a field's default as JSON, as in attributes; none if JSON has no such value."""
    if isinstance(declared.default, Default):
        return Default.NONE
    for each in declared.alternatives:
        if each.kind not in _NOT_JSON and type_test(each)(declared.default):
            return writer(each)(declared.default)
    return Default.NONE


_NOT_JSON: Final = (FieldKind.BYTES, FieldKind.TIME, FieldKind.OBJECT, FieldKind.OTHER)


def _of_alternatives(
    alternatives: Sequence[TypeOption], definitions: dict[str, Any]
) -> dict[str, Any]:
    if len(alternatives) == 1:
        return _of_one(alternatives[0], definitions)
    return {"anyOf": [_of_one(each, definitions) for each in alternatives]}


def _of_one(alternative: TypeOption, definitions: dict[str, Any]) -> dict[str, Any]:
    kind, cls = alternative.kind, alternative.type
    if kind is FieldKind.ENUM:
        names = [member.name for member in cls]
        return {"enum": list(enum_values(cls)), "title": cls.__qualname__, "x-names": names}
    if kind is FieldKind.OBJECT:
        name = (*names_of(cls), cls.__qualname__)[0]
        if name not in definitions:
            definitions[name] = {}  # It may contain itself.
            definitions[name] = _of_shape(shape_of(cls, name), name, definitions)
        return {"$ref": f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"}
    if kind is not FieldKind.OTHER:
        return dict(_TYPES[kind])
    return _of_container(cls, definitions)


def _of_container(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    def of(inner: Any) -> dict[str, Any]:
        return _of_alternatives(alternatives_of(inner), definitions)

    origin, given = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in (Any, object):
        return {}
    if isinstance(origin, type) and hasattr(origin, "_fields"):  # A named tuple is a tuple.
        hints = typing.get_type_hints(origin)
        origin, given = tuple, tuple(hints.values())
    if origin is tuple and given and given[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [of(each) for each in given], "items": False}
    if origin in (list, tuple, set, frozenset):
        found: dict[str, Any] = {"type": "array", "items": of(given[0]) if given else {}}
        if origin in (set, frozenset):
            found["uniqueItems"] = True
        return found
    if origin is dict and (not given or given[0] is str):
        return {"type": "object", "additionalProperties": of(given[1]) if given else {}}
    if origin is dict:  # Other keys than texts: as pairs, the encoding of all maps.
        pair = {"type": "array", "prefixItems": [of(each) for each in given], "items": False}
        return {"type": "array", "items": pair, _MAP: True}
    raise TypeError(f"{name_of(annotation)} has no schema")


def _bases(name: str, supertypes: Any) -> tuple[type[Any], ...]:
    if not isinstance(supertypes, Sequence) or isinstance(supertypes, str):
        raise InvalidObventError(name, f"{_EXTRA}.supertypes is a list of names")
    known: list[type[Any]] = []
    for each in reversed(supertypes):  # The most general are last.
        cls = class_named(each)
        if cls is None:
            above = tuple(reversed(known)) or (Obvent,)
            space = {"__module__": __name__, "__obvent_names__": (each,)}
            cls = make_dataclass(each.rpartition(".")[2], [], bases=above[:1], namespace=space)
        known.append(cls)
    nearest = [it for it in known if not any(it in other.__mro__[1:] for other in known)]
    return tuple(reversed(nearest)) or (Obvent,)


class _SchemaReader:
    def __init__(self, definitions: Any, name: str) -> None:
        self.definitions = definitions if isinstance(definitions, Mapping) else {}
        self.name = name
        self.known: dict[str, type[Any]] = {}

    def refusal(self, place: str, reason: str) -> InvalidObventError:
        return InvalidObventError(self.name, f"{place}: {reason}")

    def made(
        self,
        schema: Mapping[str, Any],
        name: str,
        bases: tuple[type[Any], ...],
        place: str,
        earlier: tuple[str, ...] = (),
        depth: int = 0,
    ) -> type[Any]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("type") != "object" or not isinstance(properties, Mapping):
            raise self.refusal(place, "expected the schema of an object, with properties")
        declared_bases = filter(is_declared, bases)
        inherited = {each.name for base in declared_bases for each in shape_of(base).fields}
        fields: list[Any] = []
        for key, inner in properties.items():
            if key in inherited:
                continue
            is_name = isinstance(key, str) and key.isidentifier() and not key.startswith("__")
            if not is_name or keyword.iskeyword(key):
                raise self.refusal(f"{place}.{key}", "no name of a field")
            annotation = self.annotation(inner, f"{place}.{key}", depth + 1)
            is_required = key in required
            declared = field(kw_only=True) if is_required else self.default(annotation, inner)
            fields.append((key, annotation, declared))
        options: dict[str, Any] = {"__module__": __name__}
        cls_name = re.sub(r"\W", "_", name.rpartition(".")[2]) or "Object"
        if Obvent in [base for cls in bases for base in cls.__mro__]:
            options["__obvent_names__"] = (name, *reversed(earlier))
        return make_dataclass(cls_name, fields, bases=bases, namespace=options)

    def default(self, annotation: Any, schema: Mapping[str, Any]) -> Any:
        """An optional field. A property for which there is no default becomes required."""
        if "default" in schema:
            for each in alternatives_of(annotation):
                if each.kind not in _NOT_JSON:
                    with contextlib.suppress(ValueError):
                        return field(default=reader(each)(schema["default"]), kw_only=True)
        made = typing.get_origin(annotation) or annotation
        if made in (list, dict, set, tuple):
            return field(default_factory=made, kw_only=True)
        if type(None) in typing.get_args(annotation) or annotation is Any:
            return field(default=None, kw_only=True)
        return field(kw_only=True)

    def annotation(self, schema: Any, place: str, depth: int) -> Any:
        if depth > SCHEMA_DEPTH_MAX:
            raise self.refusal(place, f"nested deeper than SCHEMA_DEPTH_MAX = {SCHEMA_DEPTH_MAX}")
        if not isinstance(schema, Mapping):
            raise self.refusal(place, "expected a schema")
        if "$ref" in schema:
            return self.referred(schema["$ref"], place, depth)
        if "anyOf" in schema:
            parts = [self.annotation(each, place, depth + 1) for each in schema["anyOf"]]
            return typing.Union[tuple(parts)]  # noqa: UP007 - of a list
        if "enum" in schema:
            return self.enumeration(schema, place)
        if not schema.keys() - {"title", "description", "default"}:
            return Any
        kind = (schema.get("type"), schema.get("format", ""))
        if kind in _CLASSES:
            return _CLASSES[kind]
        if kind[0] == "array":
            return self.array(schema, place, depth)
        if kind[0] == "object" and "additionalProperties" in schema:
            inner = schema["additionalProperties"]
            return dict[str, self.annotation(inner, f"{place}.*", depth + 1)]  # type: ignore[misc]
        if kind[0] == "object":
            return self.made(schema, place, (), place, depth=depth)
        raise self.refusal(place, f"type {kind[0]!r}, format {kind[1]!r} is none of a field")

    def referred(self, reference: Any, place: str, depth: int) -> type[Any]:
        prefix = "#/$defs/"
        if not isinstance(reference, str) or not reference.startswith(prefix):
            raise self.refusal(place, f"{reference!r} is no reference to {prefix}…")
        name = reference[len(prefix) :].replace("~1", "/").replace("~0", "~")
        known = class_named(name) or self.known.get(name)
        if known is None:
            inner = self.definitions.get(name)
            if not isinstance(inner, Mapping):
                raise self.refusal(place, f"{name!r} is not defined")
            extra = inner.get(_EXTRA, {})
            bases = _bases(name, extra.get("supertypes", ())) if extra else ()
            known = self.known[name] = self.made(inner, name, bases, name, depth=depth)
        return known

    def enumeration(self, schema: Mapping[str, Any], place: str) -> type[enum.Enum]:
        values = schema["enum"]
        names = schema.get("x-names") or [f"V_{number}" for number in range(len(values))]
        if not isinstance(values, list) or not values or len(names) != len(values):
            raise self.refusal(place, "expected the values of an enumeration, and as many names")
        pairs = list(zip(names, values, strict=True))
        title = str(schema.get("title", "Values")).rpartition(".")[2]
        make: Any = enum.Enum
        made: type[enum.Enum] = make(title, pairs, module=__name__)
        return made

    def array(self, schema: Mapping[str, Any], place: str, depth: int) -> Any:
        if "prefixItems" in schema:
            parts = [self.annotation(it, f"{place}[]", depth + 1) for it in schema["prefixItems"]]
            return tuple[tuple(parts)]  # type: ignore[misc]
        item = self.annotation(schema.get("items", {}), f"{place}[]", depth + 1)
        if schema.get(_MAP) and len(typing.get_args(item)) == 2:
            return dict[typing.get_args(item)]  # type: ignore[misc]
        return set[item] if schema.get("uniqueItems") else list[item]  # type: ignore[valid-type]
