"""The values of a predicate's names, in its runs and in its residue.

Constants are copies. Pure builtins, which always return the same for constants, are themselves. Any
other name denotes an object that no run may read.

Source: EPFL 2503 §5.3.4 (transparent filters).
"""

import builtins
import math
from abc import ABCMeta
from collections import ChainMap
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from contrada.typed.predicates.captured_constants import (
    NotConstantError,
    freeze,
    is_plain_enum,
    to_run_constant,
)
from contrada.typed.predicates.path_explorer import NO_BUILTINS, Path
from contrada.typed.predicates.predicate_code import CodeAnalysis, analysis_of
from contrada.typed.predicates.recorded_objects import PredicateRun
from contrada.typed.predicates.recorded_values import NO_DEFAULT, Opaque, Recorded
from contrada.typed.predicates.value_kinds import ENUM_FORKS_MAX, NumberValue

# Pure functions: one result for constants, and no effect. They use a recording value as the code
# itself would, or it makes them raise.
_PURE: Final = (
    *(abs, all, any, bool, bytes, chr, dict, divmod, enumerate, float, frozenset, int, len, list),
    *(max, min, ord, pow, range, reversed, round, set, sorted, str, tuple, zip),
    *(datetime, date, timedelta, timezone, Decimal),
    *(math.ceil, math.exp, math.floor, math.isfinite, math.isinf, math.isnan, math.log, math.sqrt),
)


# Checks that call `issubclass` with an object's class, or give the same answer.
_INSTANCE_CHECKS: Final = (type.__instancecheck__, ABCMeta.__instancecheck__)


class OpaqueClass(Opaque):
    """A class that a run may use only in `isinstance`."""

    __slots__ = ("_contrada_cls",)

    def __init__(self, path: Path, name: str, cls: type) -> None:
        super().__init__(path, name, f"class {name} is used for more than isinstance")
        self._contrada_cls = cls


class OpaqueModule(Opaque):
    """A module, with names that are resolved in turn."""

    __slots__ = ("_contrada_of",)

    def __init__(self, path: Path, name: str, of: ModuleType) -> None:
        super().__init__(path, name, f"module {name} is used for more than its names")
        self._contrada_of = of

    def __getattr__(self, name: str) -> Any:
        whole, known = f"{self._contrada_name}.{name}", vars(self._contrada_of)
        if name not in known:
            self._contrada_refuse(f"{whole} is not there")
        return to_run_value(self._contrada_path, whole, known[name])


def to_run_value(path: Path, name: str, value: Any) -> Any:
    """Returns the value of a name in the runs."""
    try:
        return to_run_constant(freeze(value))
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
            path.give_up("isinstance with a class that decides about its instances itself")
        if isinstance(value, Opaque):
            value._contrada_refuse_use("isinstance")
        if isinstance(value, Recorded):
            return value._contrada_is_instance(known)
        return isinstance(value, known)

    return isinstance_


def _recorded_sum(path: Path) -> Callable[..., Any]:
    def sum_(items: Any, /, start: Any = 0) -> Any:
        added = [start, *items]
        # Python 3.12 compensates the rounding of a sum if all its doubles are real.
        is_double = any(
            isinstance(it, float) or (isinstance(it, NumberValue) and not it._contrada_is_int)
            for it in added
        )
        if is_double and any(isinstance(it, Recorded) for it in added):
            path.give_up("a sum of doubles is not lifted")
        return sum(added[1:], start)

    return sum_


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


def outer_names(function: FunctionType, analysis: CodeAnalysis) -> dict[str, Any]:
    """Returns the global names that a function's code uses, with their present values."""
    known = ChainMap(function.__globals__, vars(builtins))
    return {name: known[name] for name in analysis.names if name in known}


def cells(function: FunctionType) -> dict[str, Any]:
    """Returns the names of outer functions that a function uses, with their present values."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # The cell is still empty.
            continue
    return found


def copy_function(
    function: FunctionType, code: CodeType, names: dict[str, Any], of: Callable[[str, Any], Any]
) -> FunctionType:
    """Returns a function with this code, and with each outer value replaced."""
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
        named = function.__kwdefaults__.items()
        copy.__kwdefaults__ = {name: of(name, each) for name, each in named}
    return copy


def make_run_copy(
    run: PredicateRun, function: FunctionType, analysis: CodeAnalysis
) -> FunctionType:
    """Returns the copy of a function for the runs."""
    assert analysis.copy is not None
    path = run.path
    names: dict[str, Any] = {
        name: to_run_value(path, name, value)
        for name, value in outer_names(function, analysis).items()
    }
    names["__builtins__"] = NO_BUILTINS
    return copy_function(
        function, analysis.copy, names, lambda name, each: to_run_value(path, name, each)
    )


def make_frozen_copy(function: FunctionType) -> FunctionType:
    """Returns a copy with the present values of all constants.

    It is the function itself if its code changes outer names, or looks at all of them.
    """
    analysis = analysis_of(function.__code__, function.__code__.co_filename)
    if analysis.is_live:
        return function

    def of(_: str, value: Any) -> Any:
        try:
            return freeze(value)
        except NotConstantError:
            return value

    outer = function.__globals__
    names = {name: of(name, value) for name, value in outer_names(function, analysis).items()}
    for name in ("__builtins__", "__name__", "__package__", "__spec__"):
        if name in outer:
            names[name] = outer[name]
    return copy_function(function, function.__code__, names, of)


def identity_enums(function: FunctionType, analysis: CodeAnalysis) -> frozenset[type] | None:
    """Returns the enumerations with members right of `is`; None for another operand there."""
    if not analysis.identities:
        return frozenset()
    found = set()
    outer = {**outer_names(function, analysis), **cells(function)}
    for (name, *attributes), _, _ in analysis.identities:
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
