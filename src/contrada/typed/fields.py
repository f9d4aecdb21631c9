"""The fields of an obvent class: which values they may hold, and how they come back.

A field's annotation is a scalar type of the model or a union of such (`float | None`). Numbers
equal across int and float, and text equal across str and bytes, are one value in the model; a
field turns what comes back into the type that its annotation names.
"""

import dataclasses
import types
import typing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from contrada.errors import InvalidObventError

SCALARS: Final = (type(None), bool, int, float, str, bytes, datetime)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an obvent class."""

    name: str
    kinds: tuple[type, ...]
    required: bool

    def holds(self, value: object) -> bool:
        """Whether the value is of one of the field's types; a float field also takes ints."""
        kind = type(value)
        if kind in self.kinds or (kind is int and float in self.kinds):
            return True
        return kind is not bool and isinstance(value, self.kinds)

    def restored(self, value: object) -> object:
        """The value as one of the field's types; ValueError when it is none."""
        kind = type(value)
        if kind in self.kinds:
            return value
        if kind is int and float in self.kinds:
            return float(value)  # type: ignore[arg-type]
        if kind is float and int in self.kinds and value.is_integer():  # type: ignore[attr-defined]
            return int(value)  # type: ignore[call-overload]
        if kind is str and bytes in self.kinds:
            return value.encode()  # type: ignore[attr-defined]
        if isinstance(value, self.kinds) and kind is not bool:
            return value
        raise ValueError(f"{self.name} = {value!r}: expected {self.expected}")

    @property
    def expected(self) -> str:
        """The field's types in words."""
        return " | ".join("None" if kind is type(None) else kind.__name__ for kind in self.kinds)


def fields_of(cls: type[Any], type_name: str, reserved: frozenset[str]) -> tuple[Field, ...]:
    """The fields of a dataclass. Raises InvalidObventError for one that cannot be published."""
    if "__dataclass_fields__" not in cls.__dict__ and cls.__annotations__:
        raise InvalidObventError(type_name, "it has annotations but is not decorated @dataclass")
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidObventError(type_name, f"an annotation cannot be resolved: {error}") from None
    found = []
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.name in reserved:
            raise InvalidObventError(type_name, f"the field name {field.name!r} is taken by Obvent")
        if not field.init:
            raise InvalidObventError(type_name, f"field {field.name!r} has init=False")
        kinds = _kinds(hints[field.name])
        if kinds is None:
            raise InvalidObventError(
                type_name,
                f"field {field.name!r} is {hints[field.name]}; expected None, bool, int, float, "
                "str, bytes, datetime or a union of these",
            )
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        found.append(Field(field.name, kinds, required))
    return tuple(found)


def _kinds(hint: object) -> tuple[type, ...] | None:
    parts = (hint,)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = typing.get_args(hint)
    kinds = tuple(type(None) if part is None else part for part in parts)
    return kinds if all(kind in SCALARS for kind in kinds) else None  # type: ignore[return-value]
