"""What the names of a predicate stand for in its runs, and in the residue.

Constants are copies. Pure builtins, whose answer for constants is always the same, are themselves.
Every other name stands for an object that no run may touch.

Source: EPFL 2503 §5.3.4 (transparent filters).
"""

import builtins
import math
from abc import ABCMeta
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from contrada.typed.predicates.captured_constants import (
    NotConstantError,
    frozen,
    held,
    is_plain_enum,
)
from contrada.typed.predicates.path_explorer import NO_BUILTINS, Path
from contrada.typed.predicates.predicate_code import CodeReading, reading_of
from contrada.typed.predicates.recorded_objects import PredicateRun
from contrada.typed.predicates.recorded_values import NO_DEFAULT, Opaque, Recorded
from contrada.typed.predicates.value_kinds import ENUM_FORKS_MAX, NumberValue

# What gives one answer for constants, and has no effect. A recording value that is given to these
# is asked by them as it is by the code itself, or makes them raise.
_PURE: Final = (
    *(abs, all, any, bool, bytes, chr, dict, divmod, enumerate, float, frozenset, int, len, list),
    *(max, min, ord, pow, range, reversed, round, set, sorted, str, tuple, zip),
    *(datetime, date, timedelta, timezone, Decimal),
    *(math.ceil, math.exp, math.floor, math.isfinite, math.isinf, math.isnan, math.log, math.sqrt),
)


# What asks `issubclass` of an object's class, or gives the same answer.
_INSTANCE_CHECKS: Final = (type.__instancecheck__, ABCMeta.__instancecheck__)


class OpaqueClass(Opaque):
    """A class of which nothing is known but for `isinstance`."""

    __slots__ = ("_contrada_cls",)

    def __init__(self, path: Path, name: str, cls: type) -> None:
        super().__init__(path, name, f"class {name} is used for more than isinstance")
        self._contrada_cls = cls


class OpaqueModule(Opaque):
    """A module, whose names are resolved as they are."""

    __slots__ = ("_contrada_of",)

    def __init__(self, path: Path, name: str, of: ModuleType) -> None:
        super().__init__(path, name, f"module {name} is used for more than its names")
        self._contrada_of = of

    def __getattr__(self, name: str) -> Any:
        whole, known = f"{self._contrada_name}.{name}", vars(self._contrada_of)
        if name not in known:
            self._contrada_refuse(f"{whole} is not there")
        return in_runs(self._contrada_path, whole, known[name])


def in_runs(path: Path, name: str, value: Any) -> Any:
    """What a name with this value is in the runs."""
    try:
        return held(frozen(value))
    except NotConstantError as error:
        reason = f"{name} is {error}, no constant of a value domain"
    if value is isinstance:
        return _recorded_isinstance(path)
    if value is sum:
        return _recorded_sum(path)
    if isinstance(value, ModuleType):
        return OpaqueModule(path, name, value)
    if any(value is each for each in _PURE):
        return value
    if isinstance(value, type):
        if is_plain_enum(value) or (
            issubclass(value, BaseException) and value.__module__ == "builtins"
        ):
            return value
        return OpaqueClass(path, name, value)
    return Opaque(path, name, reason)


def _recorded_isinstance(path: Path) -> Callable[[Any, Any], bool]:
    def isinstance_(value: Any, classes: Any) -> bool:
        known = tuple(_classes(path, classes))
        if any(type(each).__instancecheck__ not in _INSTANCE_CHECKS for each in known):
            path.give_up("isinstance with a class that decides itself what is of it")
        if isinstance(value, Opaque):
            value._contrada_touched("isinstance")
        if isinstance(value, Recorded):
            return value._contrada_is_instance(known)
        return isinstance(value, known)

    return isinstance_


def _recorded_sum(path: Path) -> Callable[..., Any]:
    def sum_(items: Any, /, start: Any = 0) -> Any:
        added = [start, *items]
        # Python 3.12 adds doubles with what their rounding lost, where all are real.
        if any(isinstance(it, float) or _is_double(it) for it in added) and any(
            isinstance(it, Recorded) for it in added
        ):
            path.give_up("a sum of doubles is not lifted")
        return sum(added[1:], start)

    return sum_


def _is_double(value: object) -> bool:
    return isinstance(value, NumberValue) and not value._contrada_is_int


def _classes(path: Path, given: Any) -> Iterator[type]:
    if isinstance(given, tuple):
        for each in given:
            yield from _classes(path, each)
    elif isinstance(given, OpaqueClass):
        yield given._contrada_cls
    elif isinstance(given, type):
        yield given
    else:
        path.give_up("isinstance with more than classes")


def outer_names(function: FunctionType, reading: CodeReading) -> dict[str, Any]:
    """The global names that a function's code uses, with their values now."""
    known, built_in = function.__globals__, vars(builtins)
    return {
        name: known[name] if name in known else built_in[name]
        for name in reading.names
        if name in known or name in built_in
    }


def cells(function: FunctionType) -> dict[str, Any]:
    """The names of outer functions that a function uses, with their values now."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Nothing is stored there yet.
            continue
    return found


def copied(
    function: FunctionType, code: CodeType, names: dict[str, Any], of: Callable[[str, Any], Any]
) -> FunctionType:
    """A function with this code, for which each outer name stands for something else."""
    inner = cells(function)
    new_cells = tuple(
        CellType(of(name, inner[name])) if name in inner else CellType()
        for name in code.co_freevars
    )
    defaults = function.__defaults__
    if defaults is not None:
        defaults = tuple(of(f"a default of {code.co_name}", each) for each in defaults)
    copy = FunctionType(code, names, function.__name__, defaults, new_cells)
    if function.__kwdefaults__:
        copy.__kwdefaults__ = {
            name: of(name, each) for name, each in function.__kwdefaults__.items()
        }
    return copy


def run_copy(lifting: PredicateRun, function: FunctionType, reading: CodeReading) -> FunctionType:
    """The copy of a function that runs are of."""
    assert reading.copy is not None
    path = lifting.path
    names: dict[str, Any] = {
        name: in_runs(path, name, value) for name, value in outer_names(function, reading).items()
    }
    names["__builtins__"] = NO_BUILTINS
    return copied(function, reading.copy, names, lambda name, each: in_runs(path, name, each))


def frozen_copy(function: FunctionType) -> FunctionType:
    """A copy for which constants stay as they are now.

    The function itself, where its code changes outer names, or looks at all of them.
    """
    reading = reading_of(function.__code__, function.__code__.co_filename)
    if reading.is_live:
        return function

    def of(_: str, value: Any) -> Any:
        try:
            return frozen(value)
        except NotConstantError:
            return value

    outer = function.__globals__
    names = {name: of(name, value) for name, value in outer_names(function, reading).items()}
    for name in ("__builtins__", "__name__", "__package__", "__spec__"):
        if name in outer:
            names[name] = outer[name]
    return copied(function, function.__code__, names, of)


def enums_told(function: FunctionType, reading: CodeReading) -> frozenset[type] | None:
    """The enumerations whose members stand on the right of `is`; None where something else does."""
    if not reading.identities:
        return frozenset()
    found = set()
    outer = {**outer_names(function, reading), **cells(function)}
    for (name, *attributes), _, _ in reading.identities:
        value = outer.get(name, NO_DEFAULT)
        for attribute in attributes:
            is_enum = isinstance(value, type) and is_plain_enum(value)
            is_open = is_enum or isinstance(value, ModuleType)
            value = vars(value).get(attribute, NO_DEFAULT) if is_open else NO_DEFAULT
        if value is None or isinstance(value, bool):
            continue
        cls = type(value)
        if value is NO_DEFAULT or not is_plain_enum(cls) or len(cls) > ENUM_FORKS_MAX:  # type: ignore[arg-type]
            return None
        found.add(cls)
    return frozenset(found)
