"""`BodyCodec`: values that are not attributes, as built-in values in the body.

A list is a list, a map a map, an object the map of its fields. `@is` names the class of an object
that is not of the declared class, and the alternative of a union.

Source: EPFL 2503 §3.3.1 (clones are deep), §3.3.3.
"""

import collections
import collections.abc
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from contrada.typed.scalars import reader, type_test, writer
from contrada.typed.shapes import FieldKind, TypeOption, alternatives_of, is_declared, name_of

IS: Final = "@is"
"""The key of a nested object's class, or of the alternative of a union."""

AS_VALUE: Final = "value"

OBVENT_NESTING_MAX: Final = 32
"""Depth of nested values in the body. Beyond it: InvalidObventError."""

_encode: Final = msgspec.msgpack.Encoder().encode

Objects = Callable[[type[Any]], "BodyCodec"]
"""Returns the codec of nested objects of a class."""


@dataclass(frozen=True, slots=True)
class BodyCodec:
    """The codec of values of one annotation.

    `write` raises ValueError, TypeError, OverflowError for a value that the annotation does not
    include, `read` raises ValueError.
    """

    holds: Callable[[Any], bool]
    write: Callable[[Any, int], Any]
    read: Callable[[Any], Any]


def body_codec_of(annotation: Any, objects: Objects) -> BodyCodec:
    """Returns the codec of values of an annotation. Raises TypeError if it has none."""
    alternatives = alternatives_of(annotation)
    if len(alternatives) == 1:
        return _single(alternatives[0], objects)
    return _union(alternatives, objects)


def _single(alternative: TypeOption, objects: Objects) -> BodyCodec:
    if alternative.kind is FieldKind.OBJECT:
        return objects(alternative.type)
    if alternative.kind is FieldKind.OTHER:
        return _container(alternative.type, objects)
    write = _WRITERS.get(alternative.kind) or writer(alternative)
    return BodyCodec(type_test(alternative), lambda value, _: write(value), reader(alternative))


def _write_time(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("a time needs a zone, for example tzinfo=datetime.UTC")
    return value


_WRITERS: Final[dict[FieldKind, Callable[[Any], Any]]] = {
    FieldKind.DECIMAL: str,
    FieldKind.TIME: _write_time,
}


def _union(alternatives: tuple[TypeOption, ...], objects: Objects) -> BodyCodec:
    """Returns the codec of a union. A name identifies the alternative, except in `T | None`."""
    names = [name_of(each.type) for each in alternatives]
    if len(set(names)) < len(names):  # `list[int] | list[str]`, or classes of several modules.
        names = [str(each.type) for each in alternatives]
    codecs = [_single(each, objects) for each in alternatives]
    members = [*zip(names, codecs, strict=True)]
    if len(members) == 2 and FieldKind.NONE in (each.kind for each in alternatives):
        inner = codecs[1] if alternatives[0].kind is FieldKind.NONE else codecs[0]
        return BodyCodec(
            lambda value: value is None or inner.holds(value),
            lambda value, depth: None if value is None else inner.write(value, depth),
            lambda value: None if value is None else inner.read(value),
        )
    named = dict(members)

    def write(value: Any, depth: int) -> Any:
        # The exact type first: an int is no float here, though a float field takes it.
        pairs = zip(members, alternatives, strict=True)
        exact = [it for it, each in pairs if type(value) is each.type]
        refused = ValueError()
        for name, member in exact or members:
            if member.holds(value):
                try:
                    return {IS: name, AS_VALUE: member.write(value, depth)}
                except ValueError as error:  # Perhaps the value is of the next one.
                    refused = error
        raise refused

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or value.get(IS) not in named or AS_VALUE not in value:
            raise ValueError
        return named[value[IS]].read(value[AS_VALUE])

    return BodyCodec(lambda value: any(it.holds(value) for _, it in members), write, read)


def _container(annotation: Any, objects: Objects) -> BodyCodec:
    origin = typing.get_origin(annotation) or annotation
    given = typing.get_args(annotation)
    if origin in (Any, object) or isinstance(annotation, typing.TypeVar):
        return BodyCodec(lambda _: True, _write_builtin, lambda value: value)
    if is_declared(origin):  # It is generic, and its fields are of the types in the arguments.
        return objects(annotation)
    if not isinstance(origin, type):
        raise TypeError(f"expected a type, found {annotation!r}")
    if origin is tuple and given and given[-1] is not Ellipsis:
        return _fixed_tuple(given, objects)
    if issubclass(origin, tuple) and hasattr(origin, "_fields"):
        return _by_msgspec(annotation)
    if typing.is_typeddict(origin):
        return _by_msgspec(annotation)
    if issubclass(origin, collections.abc.Mapping):
        return _mapping(origin, given or (Any, Any), objects)
    if origin in _MADE or issubclass(origin, list | tuple | set | frozenset | collections.deque):
        return _collection(origin, (given or (Any,))[0], objects)
    return _by_msgspec(annotation)


def _collection(origin: type[Any], annotation: Any, objects: Objects) -> BodyCodec:
    item = body_codec_of(annotation, objects)
    made = _MADE.get(origin, origin)

    def write(value: Any, depth: int) -> list[Any]:
        _check_depth(depth)
        found = [_write_item(item, each, depth + 1) for each in value]
        if isinstance(value, collections.abc.Set):  # Equal sets have one encoding.
            found.sort(key=_encode)
        return found

    def read(value: Any) -> Any:
        return made(map(item.read, _checked_list(value)))

    return BodyCodec(lambda value: isinstance(value, origin) and _is_several(value), write, read)


def _is_several(value: Any) -> bool:
    """Whether it is restored with the same items: neither a text nor an iterator."""
    is_text = isinstance(value, str | bytes | bytearray | collections.abc.Mapping)
    return isinstance(value, collections.abc.Collection) and not is_text


def _fixed_tuple(annotations: tuple[Any, ...], objects: Objects) -> BodyCodec:
    items = [body_codec_of(each, objects) for each in annotations]

    def write(value: Any, depth: int) -> list[Any]:
        _check_depth(depth)
        return [_write_item(item, each, depth + 1) for item, each in zip(items, value, strict=True)]

    def read(value: Any) -> Any:
        pairs = zip(items, _checked_list(value), strict=True)
        return tuple(item.read(each) for item, each in pairs)

    return BodyCodec(lambda value: isinstance(value, tuple), write, read)


def _mapping(origin: type[Any], annotations: tuple[Any, Any], objects: Objects) -> BodyCodec:
    made = _MADE.get(origin, origin)
    if issubclass(origin, collections.Counter | collections.defaultdict):
        raise TypeError(f"a {origin.__name__} is not made of its pairs; declare a dict")
    key, item = (body_codec_of(each, objects) for each in annotations)

    def write(value: Any, depth: int) -> list[Any]:
        # Pairs: not every key of Python can be a key of msgpack.
        _check_depth(depth)
        inner = depth + 1
        return [(_write_item(key, k, inner), _write_item(item, v, inner)) for k, v in value.items()]

    def read(value: Any) -> Any:
        return made((key.read(k), item.read(v)) for k, v in _checked_list(value))

    return BodyCodec(lambda value: isinstance(value, origin), write, read)


def _by_msgspec(annotation: Any) -> BodyCodec:
    """Returns the codec of types that msgspec converts: named tuples, typed dictionaries, paths."""
    info = msgspec.inspect.type_info(annotation)  # Raises TypeError for unknown types.
    if isinstance(info, msgspec.inspect.CustomType):
        expected = "expected a value type or a class with fields"
        raise TypeError(f"{expected}, found {name_of(annotation)}")

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None

    def write(value: Any, _: int) -> Any:
        built = msgspec.to_builtins(value)
        # Otherwise only the reader would discover a value of another type.
        again = read(msgspec.msgpack.decode(_encode(built)))
        if again != value and repr(again) != repr(value):  # NaN equals nothing.
            raise ValueError(f"it would be restored as {again!r}: declare the types of its parts")
        return built

    kind = typing.get_origin(annotation) or annotation
    base = dict if typing.is_typeddict(kind) else kind

    def holds(value: Any) -> bool:
        return not isinstance(base, type) or isinstance(value, base)

    return BodyCodec(holds, write, read)


def _checked_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError
    return value


def _write_item(item: BodyCodec, value: Any, depth: int) -> Any:
    if not item.holds(value):
        raise ValueError(f"{value!r} is not of the declared type")
    return item.write(value, depth)


def _write_builtin(value: Any, depth: int) -> Any:
    """Returns a value of any type; only values that msgpack returns unchanged are accepted."""
    _check_depth(depth)
    if value is None or type(value) in _BUILT_IN:
        return value
    if type(value) is list:
        return [_write_builtin(each, depth + 1) for each in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _write_builtin(each, depth + 1) for key, each in value.items()}
    raise ValueError(f"{value!r} is restored only if its type is declared")


def _check_depth(depth: int) -> None:
    if depth > OBVENT_NESTING_MAX:
        limit = f"OBVENT_NESTING_MAX = {OBVENT_NESTING_MAX}"
        raise ValueError(f"nested deeper than {limit}, or in itself")


_BUILT_IN: Final = frozenset((bool, int, float, str, bytes))

_MADE: Final[Mapping[type[Any], Callable[..., Any]]] = {
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
