"""Checks of accessors and expected values against the declarations of classes.

Undeclared types are not checked: a method without annotations, `Any`, a generic's parameter.

Source: EPFL 2503 §4.5.1 (type safety in accessors).
"""

import inspect
import types
import typing
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from contrada.errors import InvalidObventError
from contrada.typed.shapes import FieldKind, alternatives_of, is_declared, name_of, shape_of

_MISSING: Final = object()

_NEITHER_ORDERED: Final[tuple[tuple[type, ...], ...]] = (
    (bool, int, float, Decimal),
    *((each,) for each in (str, bytes, datetime, date, timedelta)),
)
"""Kinds of values without an order between kinds."""

_WIDER: Final[dict[type, tuple[type, ...]]] = {float: (int, float), complex: (int, float, complex)}
"""The types that an annotation accepts, by the rules of Python's typing."""


class StandInArgument:
    """An argument of which only the type is known."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared


def text_of(argument: object) -> str:
    """Returns an argument as text."""
    return repr(argument) if not hasattr(argument, "eval") else str(argument)


def has_method(function: object, cls: type[Any]) -> bool:
    """Whether a class, or an ancestor, has a function as a method."""
    for each in cls.__mro__:
        held = vars(each).get(getattr(function, "__name__", ""))
        if function in (held, getattr(held, "__func__", held)):
            return True
    return False


def field_type(declared: Any, name: str, place: str) -> Any:
    """Returns the type of a field of objects of a declared type. Raises InvalidObventError."""
    found = []
    for cls in _classes(declared):
        held = _field(cls, name)
        if held is _MISSING:
            raise _refusal(cls, f"{place}: there is no field {name!r}")
        if isinstance(held, types.FunctionType):
            raise _refusal(cls, f"{place}: {name!r} is a method, and no field; invoke it")
        found.append(held)
    return unite(found)


def _field(cls: type[Any], name: str) -> Any:
    if is_declared(cls) and name in (by_name := shape_of(cls).by_name):
        return by_name[name].annotation
    held = inspect.getattr_static(cls, name, _MISSING)
    if isinstance(held, property):
        return _hints(held.fget).get("return", Any)
    if isinstance(held, types.FunctionType | classmethod | staticmethod):
        return getattr(held, "__func__", held)
    annotation = _hints(cls).get(name, _MISSING)
    if annotation is not _MISSING:
        return annotation
    # Plain classes may set undeclared attributes.
    is_open = not is_declared(cls) and isinstance(cls.__init__, types.FunctionType)
    return Any if held is not _MISSING or is_open or hasattr(cls, "__getattr__") else _MISSING


def call_type(declared: Any, name: str, function: Any, arguments: Sequence[Any], place: str) -> Any:
    """Returns the result type of a method of a declared type. Raises InvalidObventError."""
    found = []
    for cls in _classes(declared):
        if function is not None and not has_method(function, cls):
            raise _refusal(cls, f"{place}: {function.__qualname__} is no method of it")
        held = inspect.getattr_static(cls, name, _MISSING)
        if held is _MISSING and hasattr(cls, "__getattr__"):
            continue
        method = getattr(cls, name, _MISSING) if held is not _MISSING else _MISSING
        if not callable(method) or isinstance(held, property):
            what = "there is no method" if held is _MISSING else "a field, and no method, is"
            raise _refusal(cls, f"{place}: {what} {name!r}")
        is_bound = isinstance(held, classmethod | staticmethod)
        found.append(_returned(cls, method, arguments, place, is_bound=is_bound))
    return unite(found)


def _returned(
    cls: type[Any], method: Any, arguments: Sequence[Any], place: str, *, is_bound: bool
) -> Any:
    try:
        signature = inspect.signature(method)
    except (ValueError, TypeError, NameError):
        # Some builtins have no signature. From Python 3.14 on it evaluates the annotations, which
        # may name classes that only type checkers import.
        return Any
    values = arguments if is_bound else (StandInArgument(cls), *arguments)
    try:
        bound = signature.bind(*values)
    except TypeError as error:
        raise _refusal(cls, f"{place}: {error}") from None
    hints = _hints(method)
    for name, given in bound.arguments.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        for each in given if is_rest else (given,):
            if not _takes(hints.get(name, Any), each):
                expected = f"expected {name_of(hints[name])}"
                raise _refusal(cls, f"{place}: argument {name!r} = {_shown(each)}: {expected}")
    returned = hints.get("return", Any)
    return cls if returned is typing.Self else returned


def check_order(declared: Any, other: Any, place: str) -> None:
    """Raises InvalidObventError for two types of values without an order, as numbers and text."""
    mine, its = (
        {
            next((kinds for kinds in _NEITHER_ORDERED if issubclass(cls, kinds)), None)
            for cls in each
        }
        for each in (_classes(declared), _classes(other))
    )
    if mine and its and None not in mine | its and mine.isdisjoint(its):
        reason = f"{place}: {name_of(declared)} and {name_of(other)} have no order"
        raise InvalidObventError(name_of(declared), reason)


def _takes(annotation: Any, given: Any) -> bool:
    """Whether a parameter takes an argument; True if that is not known."""
    if typing.get_origin(annotation) is typing.Literal and not isinstance(given, StandInArgument):
        return given in typing.get_args(annotation)
    expected = [each.type for each in alternatives_of(annotation)]
    wider = [_WIDER.get(cls, (cls,)) for cls in map(_class_of, expected) if cls is not None]
    if len(wider) < len(expected):
        return True
    classes = tuple(cls for each in wider for cls in each)
    if isinstance(given, StandInArgument):
        known = _classes(given.declared)
        return not known or all(issubclass(cls, classes) for cls in known)
    if isinstance(given, bool):
        return bool in classes or int in classes or object in classes
    return isinstance(given, classes)


def _classes(declared: Any) -> list[type[Any]]:
    """The classes of a declared type except None; none if one of them is not known."""
    parts = [it.type for it in alternatives_of(declared) if it.kind is not FieldKind.NONE]
    classes = [_class_of(each) for each in parts]
    return [] if None in classes else [cls for cls in classes if cls is not None]


def _class_of(part: Any) -> type[Any] | None:
    cls = typing.get_origin(part) or part
    known = isinstance(cls, type) and cls is not Any and not getattr(cls, "_is_protocol", False)
    return cls if known or getattr(cls, "_is_runtime_protocol", False) else None


def unite(found: list[Any]) -> Any:
    """Returns the union of the possible types of a stage."""
    distinct = [each for place, each in enumerate(found) if each not in found[:place]]
    if not distinct or Any in distinct:
        return Any
    return distinct[0] if len(distinct) == 1 else typing.Union[tuple(distinct)]  # noqa: UP007


def _hints(of: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(of)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return {}


def _refusal(cls: type[Any], reason: str) -> InvalidObventError:
    return InvalidObventError(cls.__qualname__, reason)


def _shown(given: Any) -> str:
    return name_of(given.declared) if isinstance(given, StandInArgument) else repr(given)
