"""What a predicate captured, as it was when it was lifted.

Names that stand for constants of a value domain, and tuples, lists, sets and dictionaries of these,
are copied: what happens to them later changes neither the filter nor the residue. `frozen` gives
plain copies, for the residue; `held` gives copies that let recording values ask for membership, and
that nobody changes, for the runs.
"""

import enum
import types
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

CONSTANT_ITEMS_MAX: Final = 10_000
"""Items of a captured collection, those within it included. Beyond it: it is no constant, and tests
that use it stay at the subscriber."""

ENUM_CLASSES_CACHED_MAX: Final = 512
"""Enumerations known to be plain or not. Beyond it: the one unused for longest is looked at
anew."""

SCALARS: Final = frozenset(
    (
        *(type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal),
        *(UUID, timezone, ZoneInfo, types.EllipsisType, types.NotImplementedType),
    )
)


class NotConstantError(Exception):
    """A captured value is no constant of a value domain."""


def frozen(value: Any) -> Any:
    """A copy of a constant. Raises NotConstantError. Cost: linear in its items."""
    kind: Any = type(value)
    if kind in SCALARS or (isinstance(value, enum.Enum) and is_plain_enum(kind)):
        return value
    if kind not in _HELD:
        raise NotConstantError(kind.__name__)
    try:
        return _frozen(value, iter(range(CONSTANT_ITEMS_MAX)))
    except RecursionError:
        raise NotConstantError(f"{kind.__name__} nested too deep") from None


def _frozen(value: Any, room: Iterator[int]) -> Any:
    kind: Any = type(value)
    if next(room, None) is None:
        raise NotConstantError(f"more than {CONSTANT_ITEMS_MAX} items")
    if kind in SCALARS or (isinstance(value, enum.Enum) and is_plain_enum(kind)):
        return value
    if kind is dict:
        return {_frozen(key, room): _frozen(each, room) for key, each in value.items()}
    if kind in _HELD:
        return kind(_frozen(each, room) for each in value)
    raise NotConstantError(f"{kind.__name__} in a collection")


def held(value: Any) -> Any:
    """The copy of a frozen constant that the runs use."""
    kind = _HELD.get(type(value))
    if kind is None:
        return value
    if kind is HeldDict:
        return HeldDict({held(key): held(each) for key, each in value.items()})
    return kind(map(held, value))


@lru_cache(maxsize=ENUM_CLASSES_CACHED_MAX)
def is_plain_enum(cls: type) -> bool:
    """Whether members do nothing but be: no methods of their own, and plain values."""
    if not issubclass(cls, enum.Enum):
        return False
    for each in cls.__mro__:
        if each.__module__ == "enum" or each in (int, str, float, bytes, object):
            continue
        for name, member in vars(each).items():
            if isinstance(member, _CODE) and name not in _HARMLESS:
                return False
    return all(_is_scalar(member.value) for member in cls)


def _is_scalar(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_scalar, value))
    return type(value) in SCALARS


_CODE: Final = (
    types.FunctionType,
    property,
    classmethod,
    staticmethod,
    types.DynamicClassAttribute,
)
_HARMLESS: Final = frozenset(
    (
        *(
            "__new__",
            "__new_member__",
            "_new_member_",
            "__init__",
            "_generate_next_value_",
            "_missing_",
        ),
        *("__repr__", "__str__", "__format__", "__reduce_ex__"),
    )
)


def _membership(base: Any) -> Any:
    within = base.__contains__

    def contains(self: Any, item: Any) -> bool:
        asked = getattr(type(item), "_contrada_within", None)
        answer: bool = within(self, item) if asked is None else asked(item, self)
        return answer

    return contains


def _unchangeable(name: str) -> Any:
    def refuse(self: Any, *arguments: Any, **named: Any) -> Any:
        raise ChangedError(f"{name} changes what was captured")

    return refuse


class ChangedError(BaseException):
    """A run changes a captured collection, which only the subscriber's own copy may be."""


def _held_class(base: type, name: str, changing: str) -> Any:
    members = {each: _unchangeable(each) for each in changing.split()}
    return type(name, (base,), {"__contains__": _membership(base), **members})


HeldTuple: Final = _held_class(tuple, "HeldTuple", "")
HeldList: Final = _held_class(
    list,
    "HeldList",
    "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort",
)
_SET_CHANGES: Final = """__iand__ __ior__ __isub__ __ixor__ add clear difference_update discard
intersection_update pop remove symmetric_difference_update update"""
HeldSet: Final = _held_class(set, "HeldSet", _SET_CHANGES)
HeldFrozenset: Final = _held_class(frozenset, "HeldFrozenset", "")
HeldDict: Final = _held_class(
    dict, "HeldDict", "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update"
)
_HELD: Final[dict[type, Any]] = {
    tuple: HeldTuple,
    list: HeldList,
    set: HeldSet,
    frozenset: HeldFrozenset,
    dict: HeldDict,
}
