"""The captured constants of a predicate, as copies from the time of lifting.

Constants of value domains, and tuples, lists, sets and dictionaries of these, are copied: later
changes affect neither the filter nor the residue. `freeze` makes plain copies, for the residue;
`to_run_constant` makes read-only copies for the runs, in which recording values can test
membership.
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
"""Items of a captured collection, with nested ones. Beyond it: it is no constant, and tests that
use it stay at the subscriber."""

ENUM_CLASSES_CACHED_MAX: Final = 512
"""Enumerations with a cached check. Beyond it: the least recently used is dropped."""

SCALARS: Final = frozenset(
    (
        *(type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal),
        *(UUID, timezone, ZoneInfo, types.EllipsisType, types.NotImplementedType),
    )
)


class NotConstantError(Exception):
    """A captured value is no constant of a value domain."""


def freeze(value: Any) -> Any:
    """Returns a copy of a constant. Raises NotConstantError. Cost: linear in its items."""
    kind: Any = type(value)
    if kind in SCALARS or (isinstance(value, enum.Enum) and is_plain_enum(kind)):
        return value
    if kind not in _RUN_TYPES:
        raise NotConstantError(kind.__name__)
    try:
        return _freeze(value, iter(range(CONSTANT_ITEMS_MAX)))
    except RecursionError:
        raise NotConstantError(f"{kind.__name__} nested too deep") from None


def _freeze(value: Any, room: Iterator[int]) -> Any:
    kind: Any = type(value)
    if next(room, None) is None:
        raise NotConstantError(f"more than {CONSTANT_ITEMS_MAX} items")
    if kind in SCALARS or (isinstance(value, enum.Enum) and is_plain_enum(kind)):
        return value
    if kind is dict:
        return {_freeze(key, room): _freeze(each, room) for key, each in value.items()}
    if kind in _RUN_TYPES:
        return kind(_freeze(each, room) for each in value)
    raise NotConstantError(f"{kind.__name__} in a collection")


def to_run_constant(value: Any) -> Any:
    """Returns the copy of a frozen constant for the runs."""
    kind = _RUN_TYPES.get(type(value))
    if kind is None:
        return value
    if kind is RunDict:
        return RunDict({to_run_constant(key): to_run_constant(each) for key, each in value.items()})
    return kind(map(to_run_constant, value))


@lru_cache(maxsize=ENUM_CLASSES_CACHED_MAX)
def is_plain_enum(cls: type) -> bool:
    """Whether an enumeration has plain values as members, and no methods of its own."""
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


_METHODS: Final = (classmethod, staticmethod, property, types.DynamicClassAttribute)
_CODE: Final = (types.FunctionType, *_METHODS)
_HARMLESS: Final = frozenset(
    (
        *("__new__", "__new_member__", "_new_member_", "__init__", "_generate_next_value_"),
        *("_missing_", "__repr__", "__str__", "__format__", "__reduce_ex__"),
    )
)


def _membership(base: Any) -> Any:
    within = base.__contains__

    def contains(self: Any, item: Any) -> bool:
        test = getattr(type(item), "_contrada_is_in", None)
        answer: bool = within(self, item) if test is None else test(item, self)
        return answer

    return contains


def _unchangeable(name: str) -> Any:
    def refuse(self: Any, *arguments: Any, **named: Any) -> Any:
        raise ChangedError(f"{name} changes a captured value")

    return refuse


class ChangedError(BaseException):
    """A run changes a captured collection; only the subscriber's own copy may be changed."""


def _run_class(base: type, name: str, changing: str) -> Any:
    members = {each: _unchangeable(each) for each in changing.split()}
    return type(name, (base,), {"__contains__": _membership(base), **members})


RunTuple: Final = _run_class(tuple, "RunTuple", "")
RunList: Final = _run_class(
    list,
    "RunList",
    "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort",
)
_SET_CHANGES: Final = """__iand__ __ior__ __isub__ __ixor__ add clear difference_update discard
intersection_update pop remove symmetric_difference_update update"""
RunSet: Final = _run_class(set, "RunSet", _SET_CHANGES)
RunFrozenset: Final = _run_class(frozenset, "RunFrozenset", "")
RunDict: Final = _run_class(
    dict, "RunDict", "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update"
)
_RUN_TYPES: Final[dict[type, Any]] = {
    each.__base__: each for each in (RunTuple, RunList, RunSet, RunFrozenset, RunDict)
}
