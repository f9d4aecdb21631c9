"""`Shape`: the declared fields of a class, and the kinds of their values.

Codecs, predicates and schemas all use the shape of a class. The values of a *flat* field are
attributes of the notification. Its alternatives have distinct domains there, so a value identifies
its alternative. Other fields are in the body.

Source: EPFL 2503 §3.2 (objects by value), §3.4.2 (type systems of obvents).
"""

import dataclasses
import enum
import inspect
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import msgspec

from contrada.errors import InvalidObventError


class FieldKind(enum.Enum):
    """The kind of an alternative's values, which decides their form in a notification."""

    NONE = "null"
    BOOL = "bool"
    INT = "an integer of 64 bits"
    FLOAT = "a double"
    TEXT = "text"
    BYTES = "bytes, of the domain of text"
    TIME = "a time"
    DATE = "a date, as its ISO text"
    DURATION = "a duration, as its microseconds"
    DECIMAL = "a decimal: the nearest double, and exactly in the body"
    UUID = "a UUID, as its text"
    ENUM = "a member of an enumeration, as its value or its name"
    OBJECT = "an object, its fields as attributes of their own"
    OTHER = "in the body"


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a field, read if its own is absent. Source: EPFL 2503 §2.4.2."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeOption:
    """One of the types in a field's annotation: `float | None` has two."""

    kind: FieldKind
    type: Any

    @property
    def domain(self) -> object:
        """The domain of its values, which no other alternative of a flat field shares."""
        if self.kind is FieldKind.ENUM:
            return "text" if all(type(it) is str for it in enum_values(self.type)) else "number"
        return _DOMAINS.get(self.kind, self.kind)


class Default(enum.Enum):
    """The default of a field without a default value."""

    NONE = "it is required"
    MADE = "it is made anew for each object"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class.

    `keyword` is its name in the constructor; without `is_init` the constructor does not take it, so
    it is set on the made object. `default` is the value itself, or a `Default`. A field that
    `may_be_unset`, as in msgspec, is absent if its value is UNSET.
    """

    name: str
    keyword: str
    alternatives: tuple[TypeOption, ...]
    default: object
    aliases: tuple[str, ...] = ()
    annotation: Any = None
    is_init: bool = True
    may_be_unset: bool = False

    @property
    def is_required(self) -> bool:
        """Whether the constructor requires it."""
        return self.default is Default.NONE

    @property
    def is_flat(self) -> bool:
        """Whether its values are attributes of the notification."""
        kinds = [each.kind for each in self.alternatives]
        if FieldKind.OTHER in kinds:
            return False
        if FieldKind.OBJECT in kinds and set(kinds) - {FieldKind.OBJECT, FieldKind.NONE}:
            return False  # The attributes of an object have other names than that of a value.
        domains = [each.domain for each in self.alternatives]
        return len(set(domains)) == len(domains) or set(kinds) - {FieldKind.NONE} in _ONE_ANOTHER

    @property
    def expected(self) -> str:
        """The field's types as text."""
        return " | ".join(name_of(each.type) for each in self.alternatives)


@dataclass(frozen=True)
class Shape:
    """The declaration of a class.

    `make` makes an object of it, or of a subclass with the same fields, from values by name. With
    `is_positional`, its constructor takes them in their order.
    """

    cls: type[Any]
    fields: tuple[Field, ...]
    make: Callable[[type[Any], Mapping[str, Any]], Any]
    is_positional: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Its fields by name."""
        return {field.name: field for field in self.fields}


_DECORATED: Final = frozenset(("__dataclass_fields__", "__attrs_attrs__"))
"""The attributes of a class that a decorator has completed."""

_NUMBERS: Final = (FieldKind.INT, FieldKind.FLOAT, FieldKind.DURATION, FieldKind.DECIMAL)
_TEXTS: Final = (FieldKind.TEXT, FieldKind.BYTES, FieldKind.DATE, FieldKind.UUID)
_DOMAINS: Final = {**dict.fromkeys(_NUMBERS, "number"), **dict.fromkeys(_TEXTS, "text")}
# These share a domain, but the Python type of the received value distinguishes them.
_ONE_ANOTHER: Final = ({FieldKind.INT, FieldKind.FLOAT}, {FieldKind.TEXT, FieldKind.BYTES})

KINDS: Final = {
    type(None): FieldKind.NONE,
    bool: FieldKind.BOOL,
    int: FieldKind.INT,
    float: FieldKind.FLOAT,
    str: FieldKind.TEXT,
    bytes: FieldKind.BYTES,
    datetime: FieldKind.TIME,
    date: FieldKind.DATE,
    timedelta: FieldKind.DURATION,
    Decimal: FieldKind.DECIMAL,
    UUID: FieldKind.UUID,
}


def enum_values(cls: type[enum.Enum]) -> list[str] | list[int]:
    """Returns the encoded members: their values if all are str or all int, else their names."""
    values = [member.value for member in cls]
    if all(type(value) is str for value in values) or all(type(value) is int for value in values):
        return values
    return [member.name for member in cls]


def name_of(annotation: Any) -> str:
    """Returns a type as text."""
    if annotation in (None, type(None)):
        return "None"
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    name = None if is_union else getattr(annotation, "__name__", None)
    return name or str(annotation).replace("typing.", "")


def shape_of(annotation: Any, type_name: str = "") -> Shape:
    """Returns the shape of a class, or of a generic one with arguments, as `Box[int]`.

    Raises InvalidObventError for one that cannot be made or read. Cost: some tens of microseconds
    for each field; frequent users cache it.
    """
    reader = _ShapeReader(annotation, type_name or name_of(annotation))
    cls, fields = reader.cls, tuple(reader.fields())
    reader.check_narrowing(fields)
    if _is_pydantic(cls):
        is_root = getattr(cls, "__pydantic_root_model__", False)
        return Shape(cls, fields, _make_root if is_root else _make_model)
    if is_plain(cls):
        if not fields:
            reader.check_unannotated()
        return Shape(cls, fields, _make_plain)
    keywords = {each.name: each.keyword for each in fields if each.is_init}
    reader.check_constructor(set(keywords.values()))
    if any(name != keyword for name, keyword in keywords.items()) or len(keywords) < len(fields):

        def make(made: type[Any], values: Mapping[str, Any]) -> Any:
            given = {keywords[name]: it for name, it in values.items() if name in keywords}
            found = made(**given)
            for name in values.keys() - keywords.keys():
                object.__setattr__(found, name, values[name])
            return found

        return Shape(cls, fields, make)
    taken = [
        each.name
        for each in inspect.signature(cls).parameters.values()
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    is_positional = taken == [each.keyword for each in fields]
    return Shape(cls, fields, lambda made, values: made(**values), is_positional)


def own_fields(
    cls: type[Any], type_name: str, *, is_made: bool = False
) -> tuple[Field, ...] | None:
    """Returns the fields that a class itself annotates, before a decorator makes it a dataclass, or
    with `is_made` also after.

    None while an annotation names a class that is not yet defined. Raises InvalidObventError as
    `shape_of`, for what is known by then.
    """
    try:
        reader = _ShapeReader(cls, type_name)
    except InvalidObventError:  # It names a later definition; the first use reads it again.
        return None
    hints = reader.hints
    reader.check_extra()
    own = [name for name in inspect.get_annotations(cls) if not name.startswith("__")]
    for name in own:
        if isinstance(hints[name], dataclasses.InitVar) and name not in vars(cls):
            raise reader.refusal(f"its constructor wants {name!r}, which is no field")
    if is_made and (issubclass(cls, msgspec.Struct) or not _DECORATED.isdisjoint(vars(cls))):
        return tuple(each for each in reader.fields() if each.name in own)
    fields = tuple(
        reader.field(name, name, msgspec.UNSET)  # Which default it has is known later.
        for name in own
        if not isinstance(hints[name], dataclasses.InitVar)
        and typing.ClassVar not in (hints[name], typing.get_origin(hints[name]))
        and hints[name] is not dataclasses.KW_ONLY
    )
    reader.check_narrowing(fields)
    return fields


def _make_model(cls: Any, values: Mapping[str, Any]) -> Any:
    return cls.model_validate(dict(values), by_alias=False, by_name=True)


def _make_root(cls: Any, values: Mapping[str, Any]) -> Any:
    return cls.model_validate(values["root"])


def _make_plain(cls: type[Any], values: Mapping[str, Any]) -> Any:
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def is_declared(cls: object) -> bool:
    """Whether a class declares fields in one of the supported ways."""
    return isinstance(cls, type) and (not is_plain(cls) or hasattr(cls, "__obvent_names__"))


_ANY_NUMBER: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _ShapeReader:
    def __init__(self, annotation: Any, type_name: str) -> None:
        self.cls: Any = typing.get_origin(annotation) or annotation
        self.type_name = type_name
        try:
            hints = _hints_of(self.cls)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise self.refusal(f"an annotation cannot be resolved: {error}") from None
        given = typing.get_args(annotation)
        arguments = dict(zip(self.cls.__parameters__, given, strict=True)) if given else {}
        self.hints = {name: _with_arguments(hint, arguments) for name, hint in hints.items()}

    def refusal(self, reason: str) -> InvalidObventError:
        return InvalidObventError(self.type_name, reason)

    def fields(self) -> Iterator[Field]:
        if issubclass(self.cls, msgspec.Struct):
            return self.of_struct()
        if _is_pydantic(self.cls):
            return self.of_pydantic()
        if hasattr(self.cls, "__attrs_attrs__"):
            return self.of_attrs()
        if dataclasses.is_dataclass(self.cls):
            return self.of_dataclass()
        return self.of_annotations()

    def field(
        self,
        name: str,
        keyword: str,
        default: object,
        annotation: Any = None,
        *,
        is_init: bool = True,
    ) -> Field:
        found, aliases = _without_extras(self.hints[name])
        annotation = found if annotation is None else annotation
        parts = [*_parts(annotation)]
        may_be_unset = msgspec.UnsetType in parts
        if may_be_unset:
            if default is not msgspec.UNSET:
                raise self.refusal(f"field {name!r} may be UNSET, so this has to be its default")
            parts.remove(msgspec.UnsetType)
            annotation = typing.Union[tuple(parts)]  # noqa: UP007 - of parts that are known now
        if default is Default.NONE and not is_init:
            default = Default.MADE
        options = alternatives_of(annotation)
        return Field(name, keyword, options, default, aliases, annotation, is_init, may_be_unset)

    def of_struct(self) -> Iterator[Field]:
        for each in msgspec.structs.fields(self.cls):
            default = _default(each.default, each.default_factory, msgspec.NODEFAULT)
            yield self.field(each.name, each.name, default)

    def of_pydantic(self) -> Iterator[Field]:
        self.check_extra()
        for name, each in self.cls.model_fields.items():
            default = Default.MADE if each.default_factory is not None else each.default
            default = Default.NONE if each.is_required() else default
            # A generic model with arguments is a class, whose hints are those of the model without.
            annotation = each.annotation if _is_open(self.hints[name]) else None
            yield self.field(name, name, default, annotation)

    def of_attrs(self) -> Iterator[Field]:
        for each in self.cls.__attrs_attrs__:
            if each.name not in self.hints:
                raise self.refusal(f"field {each.name!r} has no annotation")
            default = each.default
            if hasattr(default, "factory"):
                default = Default.MADE
            elif type(default).__name__ == "_Nothing":
                default = Default.NONE
            yield self.field(each.name, each.alias or each.name, default, is_init=each.init)

    def of_dataclass(self) -> Iterator[Field]:
        if "__dataclass_fields__" not in self.cls.__dict__ and self.own_annotations():
            raise self.refusal("it has annotations but is not decorated @dataclass")
        for each in dataclasses.fields(self.cls):
            default = _default(each.default, each.default_factory, dataclasses.MISSING)
            yield self.field(each.name, each.name, default, is_init=each.init)

    def of_annotations(self) -> Iterator[Field]:
        for name in self.hints:
            is_of_class = typing.get_origin(self.hints[name]) is typing.ClassVar
            if not name.startswith("__") and not is_of_class:
                yield self.field(name, name, getattr(self.cls, name, Default.NONE))

    def check_extra(self) -> None:
        if getattr(self.cls, "model_config", {}).get("extra") == "allow":
            raise self.refusal('values beside its fields, extra="allow", would be lost')

    def check_unannotated(self) -> None:
        """Raises InvalidObventError for a plain class without fields whose constructor wants
        values: these would be lost.
        """
        init = inspect.unwrap(inspect.getattr_static(self.cls, "__init__"))
        if not inspect.isfunction(init) or inspect.isabstract(self.cls):
            return
        # No signature: from Python 3.14 on it evaluates annotations that only type checkers know.
        code, least = init.__code__, 1 + len(init.__defaults__ or ())
        if code.co_argcount > least or code.co_kwonlyargcount > len(init.__kwdefaults__ or ()):
            raise self.refusal("its constructor wants values, and no field is annotated")

    def check_narrowing(self, fields: tuple[Field, ...]) -> None:
        """Raises InvalidObventError if a redeclared field is not narrower: filters use its type."""
        often = Counter(it for base in self.cls.__mro__ for it in inspect.get_annotations(base))
        again = [each for each in fields if often[each.name] > 1]
        for base in filter(is_declared, self.cls.__mro__[1:] if again else ()):
            reader = _ShapeReader(base, base.__qualname__)
            for each in (it for it in again if it.name in reader.hints):
                above = reader.field(each.name, each.keyword, each.default)
                if above.is_flat and not all(_is_one_of(it, above) for it in each.alternatives):
                    was = f"{base.__qualname__} declares it {above.expected}"
                    reason = f"field {each.name!r} is {each.expected}, and {was}"
                    raise self.refusal(f"{reason}: a subtype may only narrow it")

    def check_constructor(self, given: set[str]) -> None:
        """Raises InvalidObventError if the constructor requires more than fields, as an InitVar."""
        for each in inspect.signature(self.cls).parameters.values():
            is_asked = each.default is each.empty and each.kind not in _ANY_NUMBER
            if is_asked and each.name not in given:
                raise self.refusal(f"its constructor wants {each.name!r}, which is no field")

    def own_annotations(self) -> bool:
        annotations = (self.hints.get(name) for name in inspect.get_annotations(self.cls))
        return any(typing.get_origin(each) is not typing.ClassVar for each in annotations)


def _hints_of(cls: type[Any]) -> dict[str, Any]:
    """Returns the resolved annotations of a class, which may name a class of a function."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        names = {**vars(cls), cls.__name__: cls}
        return typing.get_type_hints(cls, localns=names, include_extras=True)


def _with_arguments(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """Returns an annotation with the arguments of a generic class in the place of its variables."""
    if isinstance(hint, typing.TypeVar):
        return arguments.get(hint, hint)
    open_ = getattr(hint, "__parameters__", ()) if arguments and not isinstance(hint, type) else ()
    return hint[tuple(arguments.get(each, each) for each in open_)] if open_ else hint


def is_plain(cls: type[Any]) -> bool:
    """Whether objects are made by setting their fields, without `__init__`."""
    return not (
        dataclasses.is_dataclass(cls)
        or issubclass(cls, msgspec.Struct)
        or hasattr(cls, "__attrs_attrs__")
        or _is_pydantic(cls)
    )


def _default(default: object, factory: object, missing: object) -> object:
    """Returns the default of a field: the value, or a `Default` where its value is missing."""
    if default is not missing:
        return default
    return Default.NONE if factory is missing else Default.MADE


def _is_one_of(held: TypeOption, above: Field) -> bool:
    """Whether a superclass's declaration of a field includes all values of an alternative."""
    same = [each.type for each in above.alternatives if each.kind is held.kind]
    if held.kind is FieldKind.OBJECT:
        return any(issubclass(held.type, each) for each in same)
    return held.type in same


def _is_pydantic(cls: type[Any]) -> bool:
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields")


def _without_extras(annotation: Any) -> tuple[Any, tuple[str, ...]]:
    aliases: list[str] = []
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            aliases += [it.name for it in annotation.__metadata__ if isinstance(it, Alias)]
            annotation = annotation.__origin__
        elif origin in (typing.Final, typing.Required, typing.NotRequired):
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation, tuple(aliases)


def alternatives_of(annotation: Any) -> tuple[TypeOption, ...]:
    """Returns the types in an annotation."""
    return tuple(_alternative(part) for part in _parts(annotation))


def _parts(annotation: Any) -> Iterator[Any]:
    """Yields the alternatives of a union, with nested ones, and the types of a Literal's values."""
    annotation, _ = _without_extras(annotation)
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        for part in typing.get_args(annotation):
            yield from _parts(part)
    elif origin is typing.Literal:
        yield from dict.fromkeys(type(value) for value in typing.get_args(annotation))
    else:
        yield type(None) if annotation is None else annotation


def _alternative(annotation: Any) -> TypeOption:
    annotation = _without_arguments(annotation)
    try:
        kind = KINDS.get(annotation, FieldKind.OTHER)
    except TypeError:  # Some annotations of typing cannot be hashed.
        kind = FieldKind.OTHER
    if kind is FieldKind.OTHER and isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            kind = FieldKind.OTHER if issubclass(annotation, enum.Flag) else FieldKind.ENUM
        elif is_declared(annotation):
            kind = FieldKind.OBJECT
    return TypeOption(kind, annotation)


def _without_arguments(annotation: Any) -> Any:
    """Returns a generic class without arguments, if its fields do not depend on them."""
    origin = typing.get_origin(annotation)
    if not is_declared(origin):
        return annotation
    hints = _ShapeReader(origin, origin.__qualname__).hints.values()
    return annotation if any(map(_is_open, hints)) else origin


def _is_open(annotation: Any) -> bool:
    if isinstance(annotation, type):  # A generic class without arguments.
        return False
    return isinstance(annotation, typing.TypeVar) or bool(getattr(annotation, "__parameters__", ()))
