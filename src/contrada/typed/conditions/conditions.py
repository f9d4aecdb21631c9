"""`Condition`: a test of an obvent by a subscriber, as an object; and its combinations.

    cheap = Less("price", 100.0) & Contains("company", "Telco")

If an evaluation raises, the whole condition of the subscription does not match, and the failure is
counted. `&` and `|` evaluate their parts in order, only as far as needed. Conditions are immutable.

Source: EPFL 2503 §3.5.1, §4.5.2, §4.5.3; figures 4.12 to 4.14.
"""

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from copy import copy
from types import FunctionType
from typing import Any, ClassVar, Final

from contrada.errors import InvalidObventError
from contrada.model.languages.atoms import failures
from contrada.typed.conditions.accessors import (
    WHOLE,
    Accessor,
    Share,
    accessor_of,
    are_field_accessors,
    constant_key,
    operand,
)
from contrada.typed.conditions.condition_source import (
    ConditionSource,
    compile_function,
    join,
    negate,
    obvent_name,
)
from contrada.typed.conditions.type_checks import check_order, text_of

CONDITION_DEPTH_MAX: Final = 64
"""Depth of conditions, several with one `&` or `|` as one. Beyond it: InvalidObventError."""

FAILURE: Final = "condition"
"""The name by which a condition that raised is counted among the failures of operators."""


class Condition(ABC):
    """A test of an obvent.

    A condition of your own defines `holds`. Filters express nothing of it, so it is evaluated at
    the subscriber.

    Source: EPFL 2503 §4.5.2 (figure 4.5).
    """

    depth: int = 1

    def __init_subclass__(cls, **options: Any) -> None:
        """Drops inherited derivations of a method that a class redefines: they would ignore it."""
        super().__init_subclass__(**options)
        pairs = ("holds", "expression"), ("holds", "conjuncts"), ("test", "operation")
        for own, derived in pairs:
            if own in vars(cls) and derived not in vars(cls):
                base = Comparison if own == "test" else Condition
                setattr(cls, derived, vars(base)[derived])

    @abstractmethod
    def holds(self, obvent: Any) -> bool:
        """Returns the answer. Raises the errors of the object's methods and comparisons."""

    def conforms(self, obvent: Any) -> bool:
        """Returns the answer; False if the evaluation raises, and the failure is counted."""
        try:
            return bool(self.holds(obvent))
        except Exception:  # noqa: BLE001 - the obvent's own code
            failures.add(FAILURE)
            return False

    def __call__(self, obvent: Any) -> bool:
        """As `conforms`: a condition is a predicate."""
        return self.conforms(obvent)

    def and_(self, other: "Condition") -> "Condition":
        """Holds if both hold. Also `&`."""
        return AndCondition(self, other)

    def or_(self, other: "Condition") -> "Condition":
        """Holds if at least one holds. Also `|`."""
        return OrCondition(self, other)

    def nand(self, other: "Condition") -> "Condition":
        """Holds unless both hold."""
        return NotCondition(AndCondition(self, other))

    def nor(self, other: "Condition") -> "Condition":
        """Holds if none of the two holds."""
        return NotCondition(OrCondition(self, other))

    def xor(self, other: "Condition") -> "Condition":
        """Holds if exactly one holds. Also `^`."""
        return XorCondition(self, other)

    def not_(self) -> "Condition":
        """Holds if this does not. Also `~`."""
        return NotCondition(self)

    __and__, __or__, __xor__, __invert__ = and_, or_, xor, not_

    def __bool__(self) -> bool:
        raise TypeError("combine conditions by `& | ^ ~`, and ask one by conforms(obvent)")

    @property
    def key(self) -> Hashable:
        """A key that is equal for conditions that hold for the same objects."""
        return ("condition", id(self))

    _known: ClassVar[frozenset[str]] = frozenset()
    """The attributes that the `key` covers."""

    @property
    def _has_more(self) -> bool:
        """Whether a class of your own added attributes, which the key does not cover."""
        return not self._known.issuperset(vars(self))

    def accessors(self) -> Iterator[Accessor]:
        """The accessors that it evaluates, once for each use."""
        return iter(())

    def certain_accessors(self) -> Iterator[Accessor]:
        """The accessors that it evaluates for every object."""
        return iter(())

    def with_accessors(self, share: Share) -> "Condition":
        """Returns a copy with accessors replaced by `share`."""
        return self

    def check(self, cls: type[Any]) -> None:
        """Raises InvalidObventError if it reads a member that objects of a class do not have."""
        for each in self.accessors():
            each.check(cls)

    def expression(self, source: ConditionSource) -> ast.expr:
        """Returns the answer as an expression of Python."""
        return source.call(self.holds, obvent_name())

    def predicate(self, cls: type[Any] | None = None) -> FunctionType:
        """Returns the condition as a function of Python, checked against a class if one is given.

        Conjuncts that read only fields are evaluated first: these become filters. Raises
        InvalidObventError. Cost: some tens of microseconds.
        """
        if cls is not None:
            self.check(cls)
        source = ConditionSource(literal=False)
        parts = sorted(self.conjuncts(), key=lambda it: not are_field_accessors(it.accessors()))
        answer = ast.Return(join(ast.And(), [each.expression(source) for each in parts]))
        return compile_function(str(self), [answer], source.names)

    def conjuncts(self) -> Iterator["Condition"]:
        """The parts that must all hold; of a condition that is no conjunction, itself."""
        yield self


class Comparison(Condition):
    """A basic condition: an accessor, and an expected value or accessor.

    With one argument the obvent itself is compared. An accessor may be a path, see `accessor_of`. A
    comparison of your own defines `test`, and a `sign` for its text.
    """

    sign: ClassVar[str]
    _known = frozenset(("accessor", "expected"))

    def __init__(self, *given: Any) -> None:
        if not 1 <= len(given) <= 2:
            expected = "expected an accessor and a value, or a value"
            raise InvalidObventError("any", f"{type(self).__name__}{given!r}: {expected}")
        self.accessor = accessor_of(given[0]) if len(given) == 2 else WHOLE
        self.expected: Any = given[-1]

    def holds(self, obvent: Any) -> bool:
        expected = self.expected
        found = self.accessor.eval(obvent)
        if isinstance(expected, Accessor):
            expected = expected.eval(obvent)
        return bool(self.test(found, expected))

    def test(self, found: Any, expected: Any) -> Any:
        """The comparison: the binary predicate b of the model."""
        raise NotImplementedError

    def operation(self, found: ast.expr, expected: ast.expr, source: ConditionSource) -> ast.expr:
        """Returns the comparison as an expression; a call of `test` for a class of your own."""
        return source.call(self.test, found, expected)

    reads_value: ClassVar[bool] = False
    """Whether the comparison reads the value itself, so that a `RaisedValue` raises its error."""

    @property
    def key(self) -> Hashable:
        if self._has_more:
            return super().key
        expected = self.expected
        held = expected.key if isinstance(expected, Accessor) else constant_key(expected)
        return (type(self), self.accessor.key, held)

    def accessors(self) -> Iterator[Accessor]:
        yield self.accessor
        if isinstance(self.expected, Accessor):
            yield self.expected

    certain_accessors = accessors

    def with_accessors(self, share: Share) -> Condition:
        made = copy(self)
        made.accessor = share(self.accessor)
        if isinstance(self.expected, Accessor):
            made.expected = share(self.expected)
        return made

    def declared(self, cls: type[Any]) -> tuple[Any, Any]:
        """Returns the declared types of both sides."""
        expected = self.expected
        other = expected.check(cls) if isinstance(expected, Accessor) else type(expected)
        return self.accessor.check(cls), other

    def expression(self, source: ConditionSource) -> ast.expr:
        found = source.value(self.accessor, is_read=self.reads_value)
        return self.operation(found, operand(source, self.expected), source)

    def __str__(self) -> str:
        return f"{self.accessor} {self.sign} {text_of(self.expected)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class OperatorComparison(Comparison):
    """A comparison by an operator of Python."""

    reads_value = True
    by: ClassVar[Callable[[Any, Any], Any]]
    operator: ClassVar[type[ast.cmpop]]

    def test(self, found: Any, expected: Any) -> Any:
        return type(self).by(found, expected)

    def operation(self, found: ast.expr, expected: ast.expr, source: ConditionSource) -> ast.expr:
        left, right = (expected, found) if self.operator is ast.In else (found, expected)
        return ast.Compare(left, [self.operator()], [right])


class Equals(OperatorComparison):
    """The value equals the expected one. Source: EPFL 2503 figure 4.12."""

    sign, by, operator = "==", operator.eq, ast.Eq


class OrderComparison(OperatorComparison):
    """A comparison by an order."""

    def check(self, cls: type[Any]) -> None:
        """Raises InvalidObventError also for types without a common order, as numbers and text."""
        check_order(*self.declared(cls), str(self))


class Greater(OrderComparison):
    """The value is above the expected value."""

    sign, by, operator = ">", operator.gt, ast.Gt


class GreaterEqual(OrderComparison):
    """The value is at or above the expected value."""

    sign, by, operator = ">=", operator.ge, ast.GtE


class Less(OrderComparison):
    """The value is below the expected value."""

    sign, by, operator = "<", operator.lt, ast.Lt


class LessEqual(OrderComparison):
    """The value is at or below the expected value."""

    sign, by, operator = "<=", operator.le, ast.LtE


class Contains(OperatorComparison):
    """The value contains the expected one: a text a part, a collection an item."""

    sign, by, operator = "has", operator.contains, ast.In


class Same(Comparison):
    """The value is the expected object itself.

    Each subscriber has objects of its own. So this is for None, for members of enumerations, and
    for objects of the subscriber's own process.

    Source: EPFL 2503 §3.5.1 (identity).
    """

    sign = "is"

    def test(self, found: Any, expected: Any) -> Any:
        return found is expected

    def operation(self, found: ast.expr, expected: ast.expr, source: ConditionSource) -> ast.expr:
        """`is`; filters express it for None only."""
        if self.expected is None:
            return ast.Compare(found, [ast.Is()], [ast.Constant(None)])
        return source.call(operator.is_, found, expected)


class IsInstance(Comparison):
    """The value is an instance of a class."""

    sign = "is of"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if not isinstance(self.expected, type):
            raise InvalidObventError("any", f"IsInstance{given!r}: expected a class")

    def test(self, found: Any, expected: Any) -> Any:
        return isinstance(found, expected)

    def operation(self, found: ast.expr, expected: ast.expr, source: ConditionSource) -> ast.expr:
        return ast.Call(ast.Name("isinstance", ast.Load()), [found, expected], [])

    def __str__(self) -> str:
        return f"{self.accessor} {self.sign} {self.expected.__name__}"


class Compare(Comparison):
    """A comparator returns `result` for the value and the expected value.

    Without a comparator it is their natural order: -1 below, 0 equal, 1 above.

    Source: EPFL 2503 §4.5.2, figure 4.13.
    """

    sign = "against"
    _known = Comparison._known | {"result", "comparator", "natural"}

    def __init__(
        self, *given: Any, result: int, comparator: Callable[[Any, Any], int] | None = None
    ) -> None:
        super().__init__(*given)
        if type(result) is not int or (comparator is None and result not in _NATURAL):
            expected = "an integer" if comparator else "-1, 0 or 1"
            raise InvalidObventError("any", f"result = {result!r}: expected {expected}")
        self.result = result
        self.comparator = comparator
        self.natural = None if comparator else _NATURAL[result]

    def test(self, found: Any, expected: Any) -> Any:
        if self.comparator is None:
            return _ORDERS[self.result](found, expected)
        return self.comparator(found, expected) == self.result

    def operation(self, found: ast.expr, expected: ast.expr, source: ConditionSource) -> ast.expr:
        if self.natural is not None:
            return ast.Compare(found, [self.natural()], [expected])
        called = source.call(self.comparator, found, expected)
        return ast.Compare(called, [ast.Eq()], [ast.Constant(self.result)])

    @property
    def key(self) -> Hashable:
        return (super().key, self.result, self.comparator and id(self.comparator))

    def check(self, cls: type[Any]) -> None:
        sides = self.declared(cls)
        if self.natural not in (None, ast.Eq):
            check_order(*sides, str(self))

    def __str__(self) -> str:
        name = getattr(self.comparator, "__name__", "a comparator")
        by = "" if self.comparator is None else f" by {name}"
        return f"{super().__str__()}{by} gives {self.result}"


_NATURAL: Final[dict[int, type[ast.cmpop]]] = {-1: ast.Lt, 0: ast.Eq, 1: ast.Gt}
_ORDERS: Final = {-1: operator.lt, 0: operator.eq, 1: operator.gt}


class CombinedCondition(Condition):
    """A condition made of conditions: the function f of the model. Raises InvalidObventError."""

    sign: ClassVar[str]
    _known = frozenset(("parts", "depth"))

    def __init__(self, *parts: Any) -> None:
        for each in parts:
            if not isinstance(each, Condition):
                reason = f"{each!r} in {type(self).__name__}: expected a condition"
                raise InvalidObventError("any", reason)
        self.parts: tuple[Condition, ...] = parts
        self.depth = 1 + max((each.depth for each in parts), default=0)
        if self.depth > CONDITION_DEPTH_MAX:
            reason = f"conditions nested deeper than CONDITION_DEPTH_MAX = {CONDITION_DEPTH_MAX}"
            raise InvalidObventError("any", reason)

    @property
    def key(self) -> Hashable:
        if self._has_more:
            return super().key
        return (type(self), *(each.key for each in self.parts))

    def accessors(self) -> Iterator[Accessor]:
        for each in self.parts:
            yield from each.accessors()

    def certain_accessors(self) -> Iterator[Accessor]:
        """Those of the first part."""
        return self.parts[0].certain_accessors() if self.parts else iter(())

    def with_accessors(self, share: Share) -> Condition:
        made = copy(self)
        made.parts = tuple(each.with_accessors(share) for each in self.parts)
        return made

    def check(self, cls: type[Any]) -> None:
        for each in self.parts:
            each.check(cls)

    def __str__(self) -> str:
        return f"({f' {self.sign} '.join(map(str, self.parts))})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class AndCondition(CombinedCondition):
    """All parts hold, evaluated in order as far as needed. Source: EPFL 2503 figure 4.14."""

    sign = "and"

    def __init__(self, *parts: Condition) -> None:
        super().__init__(*_flatten(AndCondition, parts))

    def holds(self, obvent: Any) -> bool:
        return all(each.holds(obvent) for each in self.parts)

    def expression(self, source: ConditionSource) -> ast.expr:
        return join(ast.And(), [each.expression(source) for each in self.parts])

    def conjuncts(self) -> Iterator[Condition]:
        for each in self.parts:
            yield from each.conjuncts()


class OrCondition(CombinedCondition):
    """At least one part holds; evaluated in order up to the first. Without parts: False."""

    sign = "or"

    def __init__(self, *parts: Condition) -> None:
        super().__init__(*_flatten(OrCondition, parts))

    def holds(self, obvent: Any) -> bool:
        return any(each.holds(obvent) for each in self.parts)

    def expression(self, source: ConditionSource) -> ast.expr:
        return join(ast.Or(), [each.expression(source) for each in self.parts])


class XorCondition(CombinedCondition):
    """Exactly one of two holds."""

    sign = "xor"

    def __init__(self, first: Condition, second: Condition) -> None:
        super().__init__(first, second)

    def holds(self, obvent: Any) -> bool:
        first, second = self.parts
        return bool(first.holds(obvent)) != bool(second.holds(obvent))

    def certain_accessors(self) -> Iterator[Accessor]:
        for each in self.parts:
            yield from each.certain_accessors()

    def expression(self, source: ConditionSource) -> ast.expr:
        first, second = (negate(each.expression(source)) for each in self.parts)
        return ast.Compare(first, [ast.NotEq()], [second])


class NotCondition(CombinedCondition):
    """The condition does not hold."""

    sign = "not"

    def __init__(self, part: Condition) -> None:
        super().__init__(part)

    def holds(self, obvent: Any) -> bool:
        return not self.parts[0].holds(obvent)

    def expression(self, source: ConditionSource) -> ast.expr:
        return negate(self.parts[0].expression(source))

    def __str__(self) -> str:
        return f"not {self.parts[0]}"


def _flatten(kind: type[CombinedCondition], parts: tuple[Condition, ...]) -> Iterator[Condition]:
    for each in parts:
        if type(each) is kind:
            yield from each.parts
        else:
            yield each
