"""The recording values of each kind of field, with Python's comparisons as sets of values.

The kinds are numbers, texts, times, dates, durations, decimals and members of enumerations. Each
defines the values that equal a constant, and the values in an order to it.

Source: EPFL 2503 §3.5.1 (comparisons).
"""

import math
import operator
import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from contrada.model import ValueSet
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, NOTHING, of_cuts, of_keys, union
from contrada.model.domains import line
from contrada.model.domains.values import (
    EPOCH,
    TEXT,
    TIME,
    TIME_MAX_US,
    TIME_MIN_US,
    datetime_of,
    key_of,
)
from contrada.model.languages.atoms import is_utf8
from contrada.typed.predicates.comparison_bounds import (
    ORDERS,
    Steps,
    number_cuts,
    sides_of,
    stepped_cuts,
)
from contrada.typed.predicates.path_explorer import NO_BUILTINS, Path, RaisesError
from contrada.typed.predicates.recorded_values import (
    NO_DEFAULT,
    Recorded,
    ScalarValue,
    Verdict,
    split,
    without,
)
from contrada.typed.scalars import ALL_TEXT, ALL_TIMES, DOUBLES, INTEGERS, MICROSECOND
from contrada.typed.shapes import enum_values

ENUM_FORKS_MAX: Final = 16
"""Members of an enumeration that runs explore one by one, if a set of members is not enough. Beyond
it: such a run stays at the subscriber."""

NAN: Final = DOUBLES - INTEGERS


class NumberValue(ScalarValue):
    """An integer or a double, possibly after arithmetic with constants."""

    _contrada_false = 0

    __slots__ = ("_contrada_class", "_contrada_is_int", "_contrada_steps", "_contrada_whole")

    def __init__(
        self, path: Path, name: str, cls: type, default: Any = NO_DEFAULT, *, steps: Steps = ()
    ) -> None:
        super().__init__(path, name, default)
        self._contrada_class = cls
        self._contrada_steps = steps
        self._contrada_is_int = cls is int
        self._contrada_whole = INTEGERS if cls is int else DOUBLES

    def _contrada_numbers(self, order: str, other: Any) -> ValueSet:
        if isinstance(other, Decimal) and other.is_nan():
            self._contrada_refuse("a comparison with a Decimal NaN is not lifted")
        if not self._contrada_steps:
            return of_cuts(number_cuts(order, other))
        is_int = self._contrada_whole is INTEGERS
        cuts = stepped_cuts(order, other, self._contrada_steps, is_int=is_int)
        if cuts is None:
            self._contrada_refuse("the arithmetic fails for some numbers")
        return of_cuts(cuts)

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        constants = list(others)
        if any(isinstance(each, complex) for each in constants):
            self._contrada_refuse("a comparison with a complex number is not lifted")
        numbers = [each for each in constants if isinstance(each, int | float | Decimal)]
        if len(numbers) == 1:
            return self._contrada_numbers("==", numbers[0])
        return union(self._contrada_numbers("==", each) for each in numbers)

    def _contrada_is_ordered_with(self, other: Any) -> bool:
        return isinstance(other, int | float | Decimal)

    _contrada_ordered = _contrada_numbers

    def _contrada_verdict(self, order: str, other: Any) -> Verdict:
        verdict = super()._contrada_verdict(order, other)
        if order in ("==", "!=") or not isinstance(other, Decimal):
            return verdict
        if self._contrada_whole is INTEGERS or not isinstance(verdict, tuple):
            return verdict
        # Python raises for the order of NaN and a Decimal.
        (_, yes), (_, no) = verdict
        raises = RaisesError("InvalidOperation: an order of NaN and a Decimal")
        return (True, yes), (False, without(no, NAN)), (raises, NAN)

    def _contrada_is_instance(self, classes: tuple[type, ...]) -> bool:
        if self._contrada_class is IntOrFloat:
            both = {issubclass(int, classes), issubclass(float, classes)}
            if len(both) == 2:
                self._contrada_refuse("an int and a float of one value are the same attribute")
            return self._contrada_test(lambda: both.pop(), lambda it: isinstance(it, classes))
        return super()._contrada_is_instance(classes)

    def __getattr__(self, name: str) -> Any:
        if self._contrada_class is IntOrFloat and (hasattr(int, name) or hasattr(float, name)):
            self._contrada_refuse_use(f"{name} of an int or a float")
        return super().__getattr__(name)

    def _contrada_step(
        self, sign: str, constant: Any, step: Callable[[Any], Any], *, keeps: bool
    ) -> "NumberValue":
        """Returns this number after one more operation that keeps the order or reverses it."""
        if not isinstance(constant, int | float) or self._contrada_class is IntOrFloat:
            self._contrada_refuse_use(f"`{sign}` with {type(constant).__name__}")
        try:
            is_finite = math.isfinite(constant)
        except OverflowError:
            is_finite = False
        if not is_finite:
            self._contrada_refuse_use(f"`{sign}` with such a number")
        default = self._contrada_default
        if default is not NO_DEFAULT:
            try:
                default = step(default)
            except (ArithmeticError, TypeError):
                self._contrada_refuse_use(f"`{sign}` with the default {default!r}")
        stays_int = self._contrada_is_int and isinstance(constant, int) and sign != "/"
        path, name, cls = self._contrada_path, self._contrada_name, int if stays_int else float
        steps = (*self._contrada_steps, (step, keeps))
        stepped = NumberValue(path, name, cls, default, steps=steps)
        stepped._contrada_whole = self._contrada_whole
        return stepped

    def __add__(self, other: Any) -> "NumberValue":
        return self._contrada_step("+", other, lambda it: it + other, keeps=True)

    def __radd__(self, other: Any) -> "NumberValue":
        return self._contrada_step("+", other, lambda it: other + it, keeps=True)

    def __sub__(self, other: Any) -> "NumberValue":
        return self._contrada_step("-", other, lambda it: it - other, keeps=True)

    def __rsub__(self, other: Any) -> "NumberValue":
        return self._contrada_step("-", other, lambda it: other - it, keeps=False)

    def __mul__(self, other: Any) -> "NumberValue":
        return self._contrada_step("*", other, lambda it: it * other, keeps=_is_positive(other))

    def __rmul__(self, other: Any) -> "NumberValue":
        return self._contrada_step("*", other, lambda it: other * it, keeps=_is_positive(other))

    def __truediv__(self, other: Any) -> "NumberValue":
        self._contrada_no_zero(other)
        return self._contrada_step("/", other, lambda it: it / other, keeps=_is_positive(other))

    def __floordiv__(self, other: Any) -> "NumberValue":
        self._contrada_no_zero(other)
        if not (self._contrada_is_int and isinstance(other, int)):
            self._contrada_refuse_use("`//` of a float")
        return self._contrada_step("//", other, lambda it: it // other, keeps=_is_positive(other))

    def __neg__(self) -> "NumberValue":
        return self._contrada_step("-", 1, operator.neg, keeps=False)

    def __pos__(self) -> "NumberValue":
        return self

    def _contrada_no_zero(self, other: Any) -> None:
        if isinstance(other, int | float) and other == 0:
            raise RaisesError("ZeroDivisionError: division by zero")


class IntOrFloat:
    """Represents the class of a field `int | float`."""


def _is_positive(constant: Any) -> bool:
    return isinstance(constant, int | float) and constant > 0


class TextValue(ScalarValue):
    """A str, or bytes."""

    __slots__ = ("_contrada_class",)

    _contrada_whole = ALL_TEXT

    def __init__(self, path: Path, name: str, cls: type, default: Any = NO_DEFAULT) -> None:
        super().__init__(path, name, default)
        self._contrada_class = cls

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        cls: Any = self._contrada_class
        return of_keys((TEXT, _utf8(each)) for each in others if isinstance(each, cls))

    def _contrada_ordered(self, order: str, other: Any) -> ValueSet:
        return of_cuts(_LINES[order]((TEXT, _utf8(other))))

    def __bool__(self) -> bool:
        empty = of_keys(((TEXT, b""),))
        return self._contrada_test(lambda: split(without(ALL_TEXT, empty), empty), bool)

    def __contains__(self, part: Any) -> bool:
        cls: Any = self._contrada_class
        if isinstance(part, Recorded) or (cls is bytes and not isinstance(part, bytes)):
            kind = "another field" if isinstance(part, Recorded) else type(part).__name__
            self._contrada_refuse(f"`in` with {kind} is not lifted")

        def verdict() -> Verdict:
            if not isinstance(part, cls):
                return RaisesError(f"TypeError: {type(part).__name__} in {cls.__name__}")
            return _split_texts(sets.contains, (part,))

        return self._contrada_test(verdict, lambda it: part in it)

    def startswith(self, given: Any, *more: Any) -> bool:
        """As in str and bytes, for a constant or a tuple of constants."""
        return self._contrada_at_end("startswith", sets.prefix, given, more)

    def endswith(self, given: Any, *more: Any) -> bool:
        """As in str and bytes, for a constant or a tuple of constants."""
        return self._contrada_at_end("endswith", sets.suffix, given, more)

    def _contrada_at_end(
        self, method: str, build: Callable[[Any], ValueSet], given: Any, more: tuple[Any, ...]
    ) -> bool:
        cls: Any = self._contrada_class
        texts = given if isinstance(given, tuple) else (given,)
        if more or not all(isinstance(each, cls) for each in texts):
            self._contrada_refuse(f"{method} with more than text, or a tuple of it, is not lifted")
        return self._contrada_test(
            lambda: _split_texts(build, texts), lambda it: getattr(it, method)(given)
        )


def _utf8(text: str | bytes) -> bytes:
    """Returns the bytes of a text, in the order of its characters; lone surrogates, too."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _split_texts(build: Callable[[Any], ValueSet], texts: Iterable[str | bytes]) -> Verdict:
    known = []
    for each in texts:
        encoded = _utf8(each)
        if isinstance(each, bytes) or is_utf8(encoded):
            known.append(build(encoded))
    found = known[0] if len(known) == 1 else union(known)
    return split(found, without(ALL_TEXT, found))


_LINES: Final = {"<": line.below, "<=": line.at_most, ">": line.above, ">=": line.at_least}


class TimeValue(ScalarValue):
    """A datetime with a zone, received in UTC."""

    __slots__ = ()

    _contrada_whole = ALL_TIMES
    _contrada_class = datetime

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        keys = []
        for each in others:
            if isinstance(each, datetime) and each.utcoffset() is not None:
                time_us = (each - EPOCH) // MICROSECOND
                # In Python a time that a zone's clocks show twice, or never, equals no time of
                # another zone.
                if TIME_MIN_US <= time_us <= TIME_MAX_US and datetime_of(time_us) == each:
                    keys.append((TIME, time_us))
        return of_keys(keys)

    def _contrada_is_ordered_with(self, other: Any) -> bool:
        return isinstance(other, datetime) and other.utcoffset() is not None

    def _contrada_ordered(self, order: str, other: Any) -> ValueSet:
        time_us = (other - EPOCH) // MICROSECOND
        if TIME_MIN_US <= time_us <= TIME_MAX_US:
            return of_cuts(_LINES[order]((TIME, time_us)))
        return ALL_TIMES if (time_us > TIME_MAX_US) == (order in ("<", "<=")) else NOTHING


class DateValue(ScalarValue):
    """A date, as its ISO text."""

    __slots__ = ()

    _contrada_whole = ALL_TEXT
    _contrada_class = date

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        alike = (each for each in others if type(each) is date)
        return of_keys(key_of(each.isoformat()) for each in alike)

    def _contrada_is_ordered_with(self, other: Any) -> bool:
        return type(other) is date

    def _contrada_ordered(self, order: str, other: Any) -> ValueSet:
        return of_cuts(_LINES[order](key_of(other.isoformat())))


class DurationValue(ScalarValue):
    """A timedelta, as its microseconds."""

    __slots__ = ()

    _contrada_whole = INTEGERS
    _contrada_class = timedelta
    _contrada_false = timedelta()

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        durations = (each // MICROSECOND for each in others if isinstance(each, timedelta))
        return union(of_cuts(number_cuts("==", each)) for each in durations)

    def _contrada_ordered(self, order: str, other: Any) -> ValueSet:
        return of_cuts(number_cuts(order, other // MICROSECOND))


class DecimalValue(ScalarValue):
    """A Decimal. Its attribute is the nearest double, so its answers are never certain."""

    __slots__ = ()

    _contrada_whole = DOUBLES
    _contrada_class = Decimal
    _contrada_weakness = "the attribute is the double nearest to the decimal"
    _contrada_false = 0

    def _contrada_verdict(self, order: str, other: Any) -> Verdict:
        if not isinstance(other, int | float | Decimal) or other != other:
            self._contrada_refuse(f"a Decimal compared with {type(other).__name__} is not lifted")
        low, high = sides_of(other)
        at_most, at_least = number_cuts("<=", high), number_cuts(">=", low)
        if order in ("==", "!="):
            near = of_cuts(line.intersection(at_most, at_least))
            return split(near, DOUBLES) if order == "==" else split(DOUBLES, near)
        if order in ("<", "<="):
            return split(of_cuts(at_most), of_cuts(at_least) | NAN)
        return split(of_cuts(at_least), of_cuts(at_most) | NAN)

    def _contrada_is_in(self, container: Any) -> bool:
        return any(self == each for each in container)


class MemberValue(ScalarValue):
    """A member of an enumeration without code of its own, as its value or its name.

    Tests that a set of members does not express are run for each member.
    """

    __slots__ = ("_contrada_class", "_contrada_points", "_contrada_whole")

    def __init__(self, path: Path, name: str, cls: Any, default: Any = NO_DEFAULT) -> None:
        super().__init__(path, name, default)
        self._contrada_class = cls
        self._contrada_points = points_of(cls)
        self._contrada_whole = union(self._contrada_points.values())

    def _contrada_equal(self, others: Iterable[Any]) -> ValueSet:
        constants = tuple(others)
        points = self._contrada_points.items()
        return union(point for member, point in points if member in constants)

    def _contrada_real(self, words: str) -> Any:
        """Returns the member itself, another one in each run."""
        path, name = self._contrada_path, self._contrada_name
        option = path.replay(name)
        if option is None:
            if len(self._contrada_points) > ENUM_FORKS_MAX:
                self._contrada_refuse(f"{words} of more than {ENUM_FORKS_MAX} members")
            points = dict(self._contrada_points)
            if self._contrada_default in points:
                points[self._contrada_default] |= ABSENT
            option = path.fork(name, [(member, {name: it}) for member, it in points.items()])
        return path.answer(option)

    def _contrada_compare(self, order: str, other: Any) -> bool:
        if order in ("==", "!=") or isinstance(other, Recorded):
            return super()._contrada_compare(order, other)
        member = self._contrada_real("an order")
        try:
            answer: bool = ORDERS[order](member, other)
        except TypeError as error:
            raise RaisesError(f"TypeError: {error}") from None
        return answer

    def __getattr__(self, name: str) -> Any:
        member = self._contrada_real("an attribute")
        try:
            return getattr(member, name)
        except AttributeError as error:
            raise RaisesError(f"AttributeError: {error}") from None

    def __hash__(self) -> int:
        if sys._getframe(1).f_builtins is not NO_BUILTINS:
            # `in` of an enumeration would look for the member itself, and silently say no.
            self._contrada_refuse_use("a look-up by other code")
        return hash(self._contrada_real("a look-up"))

    def __bool__(self) -> bool:
        return bool(self._contrada_real("the truth"))


def points_of(cls: Any) -> dict[Any, ValueSet]:
    """Returns the members of an enumeration, each with the set of its one value."""
    values: list[Any] = list(enum_values(cls))
    return {member: of_keys((key_of(value),)) for member, value in zip(cls, values, strict=True)}
