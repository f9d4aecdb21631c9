"""`ScalarValue`: a value that represents a field in the runs of a predicate.

Each gives Python's answers for all values of the field at once: a comparison with a constant splits
the run by two sets of values. A distinction that no set of values expresses ends the run, with the
reason. A field that may be absent has a default, for which Python itself answers.

Names of their own begin with `_contrada_`: no code that is run may contain such a name.

Source: EPFL 2503 §3.5.3 (degrees of expressiveness).
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

from contrada.model import ValueSet
from contrada.model.algebra.value_set import ABSENT, of_cuts
from contrada.model.domains import line
from contrada.typed.predicates.comparison_bounds import ORDERS
from contrada.typed.predicates.path_explorer import Path, RaisesError


class NoDefault(enum.Enum):
    """Represents the default of a field without one."""

    NONE = "none"


NO_DEFAULT: Final = NoDefault.NONE

Verdict = bool | RaisesError | Sequence[tuple[bool | RaisesError, ValueSet]]
"""The answer for all values, or each answer with the set of its values."""


class Recorded:
    """A value without any supported operation: each use ends the run."""

    __slots__ = ("_contrada_name", "_contrada_path")

    def __init__(self, path: Path, name: str) -> None:
        self._contrada_path = path
        self._contrada_name = name

    def _contrada_refuse(self, reason: str) -> NoReturn:
        self._contrada_path.give_up(reason, self._contrada_name)

    def _contrada_refuse_use(self, what: str) -> NoReturn:
        self._contrada_refuse(f"{what} is not lifted")

    def __getattr__(self, name: str) -> Any:
        self._contrada_refuse_use(f"its attribute {name!r}")

    def _contrada_is_in(self, container: Any) -> bool:
        self._contrada_refuse_use("`in`")

    def _contrada_is_instance(self, classes: tuple[type, ...]) -> bool:
        self._contrada_refuse_use("isinstance")


_CALLED: Final = (
    *("len", "reversed", "int", "float", "complex", "bytes", "str", "repr"),
    *("round", "trunc", "floor", "ceil", "abs"),
)
_OPERATORS: Final = (
    {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"}
    | {"divmod": "divmod", "pow": "**", "matmul": "@"}
    | {"lshift": "<<", "rshift": ">>", "and": "&", "xor": "^", "or": "|"}
)
_USES: Final = (
    {f"__{name}__": f"`{name}`" for name in ("lt", "le", "gt", "ge", "eq", "ne")}
    | {f"__{name}__": f"{name}()" for name in _CALLED}
    | {f"__{r}{name}__": f"`{sign}`" for name, sign in _OPERATORS.items() for r in ("", "r")}
    | {"__neg__": "unary `-`", "__pos__": "unary `+`", "__invert__": "`~`"}
    | {"__hash__": "a look-up by it", "__bool__": "its truth", "__iter__": "iterating over it"}
    | {"__length_hint__": "its length", "__contains__": "`in` it", "__getitem__": "`[…]`"}
    | {"__call__": "a call of it", "__index__": "its use as an index"}
    | {"__format__": "formatting it"}
)


def _refusing_method(words: str) -> Callable[..., Any]:
    def touch(self: Recorded, *arguments: Any, **named: Any) -> Any:
        self._contrada_refuse_use(words)

    return touch


for _name, _words in _USES.items():
    setattr(Recorded, _name, _refusing_method(_words))


class Opaque(Recorded):
    """A value that a run may pass on, but not read."""

    __slots__ = ("_contrada_reason",)

    def __init__(self, path: Path, name: str, reason: str) -> None:
        super().__init__(path, name)
        self._contrada_reason = reason

    def _contrada_refuse_use(self, what: str) -> NoReturn:
        self._contrada_refuse(self._contrada_reason)


class ScalarValue(Recorded):
    """A field's value that is one attribute. `_contrada_whole` are its possible values."""

    __slots__ = ("_contrada_default",)

    _contrada_whole: ValueSet
    _contrada_class: type
    _contrada_weakness = ""
    _contrada_false: Any = None
    """The value that is false; None if all are true."""

    def __init__(self, path: Path, name: str, default: Any = NO_DEFAULT) -> None:
        super().__init__(path, name)
        self._contrada_default = default

    def _contrada_test(self, verdict: Callable[[], Verdict], real: Callable[[Any], Any]) -> bool:
        """Splits the run by the answers for all values; Python answers for the default."""
        path, name = self._contrada_path, self._contrada_name
        option = path.replay(name)
        if option is None:
            found = verdict()
            if isinstance(found, bool | RaisesError):
                found = [(found, self._contrada_whole)]
            options: list[tuple[Any, ValueSet]] = [*found]
            if self._contrada_default is not NO_DEFAULT:
                _with_default(options, self._contrada_default, real)
            weakness = self._contrada_weakness
            option = path.test(name, options, self._contrada_whole, weakness=weakness)
        answer: bool = path.answer(option)
        return answer

    def _contrada_compare(self, order: str, other: Any) -> bool:
        if isinstance(other, Recorded):
            if isinstance(other, Opaque):
                other._contrada_refuse_use("")
            self._contrada_refuse("a comparison with another field is not lifted")
        return self._contrada_test(
            lambda: self._contrada_verdict(order, other), lambda it: ORDERS[order](it, other)
        )

    def _contrada_verdict(self, order: str, other: Any) -> Verdict:
        if order in ("==", "!="):
            equal = self._contrada_equal((other,))
            rest = without(self._contrada_whole, equal)
            return split(equal, rest) if order == "==" else split(rest, equal)
        if not self._contrada_is_ordered_with(other):
            mine, its = self._contrada_class.__name__, type(other).__name__
            return RaisesError(f"TypeError: {order!r} between {mine} and {its}")
        ordered = self._contrada_ordered(order, other)
        return split(ordered, without(self._contrada_whole, ordered))

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        raise NotImplementedError

    def _contrada_is_ordered_with(self, other: Any) -> bool:
        return isinstance(other, self._contrada_class)

    def _contrada_ordered(self, order: str, other: Any) -> ValueSet:
        raise NotImplementedError

    def __bool__(self) -> bool:
        false = self._contrada_false
        return self._contrada_test(
            lambda: True if false is None else self._contrada_verdict("!=", false), bool
        )

    def _contrada_is_in(self, container: Any) -> bool:
        def verdict() -> Verdict:
            equal = self._contrada_equal(container)
            return split(equal, without(self._contrada_whole, equal))

        return self._contrada_test(verdict, lambda it: it in container)

    def _contrada_is_instance(self, classes: tuple[type, ...]) -> bool:
        return self._contrada_test(
            lambda: issubclass(self._contrada_class, classes), lambda it: isinstance(it, classes)
        )

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._contrada_class, name) and self._contrada_default is NO_DEFAULT:
            raise RaisesError(f"AttributeError: {self._contrada_class.__name__} has no {name!r}")
        self._contrada_refuse_use(f"{self._contrada_class.__name__}.{name}")


def _comparison_method(order: str) -> Any:
    return lambda self, other: self._contrada_compare(order, other)


for _order in ORDERS:
    setattr(ScalarValue, f"__{ORDERS[_order].__name__}__", _comparison_method(_order))
ScalarValue.__hash__ = Recorded.__hash__  # type: ignore[method-assign]


def without(whole: ValueSet, part: ValueSet) -> ValueSet:
    """Returns the difference of two sets."""
    if whole.text is None and part.text is None:
        return of_cuts(line.difference(whole.line, part.line))
    return whole - part


def split(yes: ValueSet, no: ValueSet) -> Verdict:
    """Returns the verdict with these values for yes, and those for no."""
    return (True, yes), (False, no)


def _with_default(
    options: list[tuple[Any, ValueSet]], default: Any, real: Callable[[Any], Any]
) -> None:
    """Adds absence to the option of the default's answer."""
    answer: Any
    try:
        answer = bool(real(default))
    except Exception as error:  # noqa: BLE001  The predicate raises the same error.
        answer = RaisesError(f"{type(error).__name__}: {error}")
    for place, (known, values) in enumerate(options):
        both_raise = isinstance(known, RaisesError) and isinstance(answer, RaisesError)
        if known is answer or both_raise:
            options[place] = (known, values | ABSENT)
            return
    options.append((answer, ABSENT))
