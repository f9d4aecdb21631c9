"""Conditions: what a subscriber asks of an obvent, and their combinations.

    cheap = Less("price", 100.0) & Contains("company", "Telco")
    near = Equals(Invoke("get_market.get_name"), "Zurich") | ~GreaterEqual("distance()", 10)
    service.subscribe(StockQuote, cheap & near)

A condition compares what its accessor gets with an expected value, or with what another accessor
gets. Where something raises the whole condition that was asked does not match, and that is counted;
what `&` and `|` need not ask they do not. Conditions are not changed once made.

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
    are_of_fields,
    constant_key,
)
from contrada.typed.conditions.condition_source import (
    ConditionSource,
    compiled,
    joined,
    negated,
    whole,
)
from contrada.typed.conditions.type_checks import check_order, text_of

CONDITION_DEPTH_MAX: Final = 64
"""Conditions within conditions, where several with one `&` or `|` count once. Beyond it:
InvalidObventError."""

HOLDS_OFTEN: Final = 0.1
"""Of how many obvents a condition of which nothing is known is taken to hold."""

FAILURE: Final = "condition"
"""Under which name a condition that raised is counted among the failures of operators."""


class Condition(ABC):
    """A subscriber's question about an obvent, with yes or no for an answer.

    A condition of your own defines `holds`; nothing more is known of it, so it stays at the
    subscriber.

    Source: EPFL 2503 §4.5.2 (figure 4.5).
    """

    depth: int = 1

    def __init_subclass__(cls, **options: Any) -> None:
        """What a class says anew is not written as one before it says it."""
        super().__init_subclass__(**options)
        for said, written in (("holds", "expression"), ("holds", "conjuncts"), ("test", "written")):
            if said in vars(cls) and written not in vars(cls):
                whole_of = Comparison if said == "test" else Condition
                setattr(cls, written, vars(whole_of)[written])

    @abstractmethod
    def holds(self, obvent: Any) -> bool:
        """The answer. Raises what the object's methods and comparisons raise."""

    def conforms(self, obvent: Any) -> bool:
        """The answer; no where something raises, which is counted."""
        try:
            return bool(self.holds(obvent))
        except Exception:  # noqa: BLE001 - the obvent's own code
            failures.add(FAILURE)
            return False

    def __call__(self, obvent: Any) -> bool:
        """As `conforms`, so that a condition is a predicate."""
        return self.conforms(obvent)

    def and_(self, other: "Condition") -> "Condition":
        """Both hold. So does `&`."""
        return AndCondition(self, other)

    def or_(self, other: "Condition") -> "Condition":
        """At least one holds. So does `|`."""
        return OrCondition(self, other)

    def nand(self, other: "Condition") -> "Condition":
        """Not both hold."""
        return NotCondition(AndCondition(self, other))

    def nor(self, other: "Condition") -> "Condition":
        """None of the two holds."""
        return NotCondition(OrCondition(self, other))

    def xor(self, other: "Condition") -> "Condition":
        """Exactly one holds. So does `^`."""
        return XorCondition(self, other)

    def not_(self) -> "Condition":
        """It does not hold. So does `~`."""
        return NotCondition(self)

    __and__, __or__, __xor__, __invert__ = and_, or_, xor, not_

    def __bool__(self) -> bool:
        raise TypeError("combine conditions by `& | ^ ~`, and ask one by conforms(obvent)")

    @property
    def key(self) -> Hashable:
        """The key that it shares with conditions that hold for the same objects."""
        return ("condition", id(self))

    _known: ClassVar[frozenset[str]] = frozenset()
    """The attributes of which its `key` tells."""

    @property
    def _has_more(self) -> bool:
        """Whether a class of your own put more into it, which may tell it from others."""
        return not self._known.issuperset(vars(self))

    def accessors(self) -> Iterator[Accessor]:
        """The accessors that it evaluates, each as often as it does."""
        return iter(())

    def surely(self) -> Iterator[Accessor]:
        """The accessors that it evaluates for every object."""
        return iter(())

    def effort(self) -> tuple[float, float]:
        """About how many comparisons it makes, and how often it holds, where that is not known."""
        return 1.0, HOLDS_OFTEN

    def rebuilt(self, share: Share) -> "Condition":
        """The same, with other accessors."""
        return self

    def check(self, cls: type[Any]) -> None:
        """Raises InvalidObventError where it asks for what objects of a class do not have."""
        for each in self.accessors():
            each.check(cls)

    def expression(self, writing: ConditionSource) -> ast.expr:
        """It as an expression, whose truth is the answer."""
        return writing.call(self.holds, whole())

    def predicate(self, cls: type[Any] | None = None) -> FunctionType:
        """It as a function of Python, checked against a class where one is given.

        What asks fields alone comes first, for that is what filters can say. Raises
        InvalidObventError. Cost: some tens of microseconds.
        """
        if cls is not None:
            self.check(cls)
        written = ConditionSource(literal=False)
        parts = sorted(self.conjuncts(), key=lambda it: not are_of_fields(it.accessors()))
        answer = ast.Return(joined(ast.And(), [each.expression(written) for each in parts]))
        return compiled(str(self), [answer], written.names)

    def conjuncts(self) -> Iterator["Condition"]:
        """Conditions whose conjunction is this condition."""
        yield self


class Comparison(Condition):
    """A basic condition: what an accessor gets, and an expected value or accessor.

    With one argument the obvent itself is compared. An accessor may be given as a path; see
    `accessor_of`. One of your own defines `test`, and a `sign` to be shown with.
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
        """Compares. Raises what the accessors and the comparison raise."""
        expected = self.expected
        found = self.accessor.eval(obvent)
        if isinstance(expected, Accessor):
            expected = expected.eval(obvent)
        return bool(self.test(found, expected))

    def test(self, found: Any, expected: Any) -> Any:
        """The comparison, the binary predicate b of the model."""
        raise NotImplementedError

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """The comparison as an expression: a call, where it is one of your own."""
        return writing.call(self.test, found, expected)

    looks_into: ClassVar[bool] = False
    """Whether the comparison asks the value itself, so that a value that stands for an error can
    raise it."""

    @property
    def key(self) -> Hashable:
        """By its kind, its accessor and what is expected."""
        if self._has_more:
            return super().key
        expected = self.expected
        held = expected.key if isinstance(expected, Accessor) else constant_key(expected)
        return (type(self), self.accessor.key, held)

    def accessors(self) -> Iterator[Accessor]:
        """Its one, and the expected one."""
        yield self.accessor
        if isinstance(self.expected, Accessor):
            yield self.expected

    surely = accessors

    def rebuilt(self, share: Share) -> Condition:
        """With other accessors."""
        made = copy(self)
        made.accessor = share(self.accessor)
        if isinstance(self.expected, Accessor):
            made.expected = share(self.expected)
        return made

    def declared(self, cls: type[Any]) -> tuple[Any, Any]:
        """The declared types of both sides."""
        expected = self.expected
        return (
            self.accessor.check(cls),
            expected.check(cls) if isinstance(expected, Accessor) else type(expected),
        )

    def expression(self, writing: ConditionSource) -> ast.expr:
        """The comparison of both."""
        expected = self.expected
        found = writing.value(self.accessor, looked_into=self.looks_into)
        other = (
            writing.value(expected, looked_into=False)
            if isinstance(expected, Accessor)
            else writing.constant(expected)
        )
        return self.written(found, other, writing)

    def __str__(self) -> str:
        return f"{self.accessor} {self.sign} {text_of(self.expected)}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class Equals(Comparison):
    """The value equals the expected one. Source: EPFL 2503 figure 4.12."""

    sign, looks_into = "==", True

    def test(self, found: Any, expected: Any) -> Any:
        """`==`."""
        return found == expected

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """`==`."""
        return ast.Compare(found, [ast.Eq()], [expected])


class OrderComparison(Comparison):
    """The value stands in an order to the expected one."""

    looks_into = True
    by: ClassVar[Callable[[Any, Any], Any]]
    operator: ClassVar[type[ast.cmpop]]

    def test(self, found: Any, expected: Any) -> Any:
        """The order, as Python has it."""
        return type(self).by(found, expected)

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """The order, as Python has it."""
        return ast.Compare(found, [self.operator()], [expected])

    def check(self, cls: type[Any]) -> None:
        """Also where the two have no order, as numbers and text."""
        check_order(*self.declared(cls), str(self))


class Greater(OrderComparison):
    """It is above the expected value."""

    sign, by, operator = ">", operator.gt, ast.Gt


class GreaterEqual(OrderComparison):
    """It is at or above the expected value."""

    sign, by, operator = ">=", operator.ge, ast.GtE


class Less(OrderComparison):
    """It is below the expected value."""

    sign, by, operator = "<", operator.lt, ast.Lt


class LessEqual(OrderComparison):
    """It is at or below the expected value."""

    sign, by, operator = "<=", operator.le, ast.LtE


class Contains(Comparison):
    """The value has the expected one in it: text a part, a collection an item."""

    sign, looks_into = "has", True

    def test(self, found: Any, expected: Any) -> Any:
        """`in`."""
        return expected in found

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """`in`."""
        return ast.Compare(expected, [ast.In()], [found])


class Same(Comparison):
    """The value is the expected object itself.

    Every subscriber has objects of its own, so this is for None, members of enumerations, and what
    obvents have of the process they are in.

    Source: EPFL 2503 §3.5.1 (identity).
    """

    sign = "is"

    def test(self, found: Any, expected: Any) -> Any:
        """`is`."""
        return found is expected

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """`is`, which filters say of None alone."""
        if self.expected is None:
            return ast.Compare(found, [ast.Is()], [ast.Constant(None)])
        return writing.call(operator.is_, found, expected)


class IsInstance(Comparison):
    """The value is of a class, or of a subclass of it."""

    sign = "is of"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if not isinstance(self.expected, type):
            reason = f"IsInstance{given!r}: expected a class"
            raise InvalidObventError("any", reason)

    def test(self, found: Any, expected: Any) -> Any:
        """`isinstance`."""
        return isinstance(found, expected)

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """`isinstance`."""
        return ast.Call(ast.Name("isinstance", ast.Load()), [found, expected], [])

    def __str__(self) -> str:
        return f"{self.accessor} {self.sign} {self.expected.__name__}"


class Compare(Comparison):
    """What a comparator returns of the value and `to` is `result`.

    Without one that is their natural order: -1 below, 0 equal, 1 above.

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
        """The comparator's result, or the natural order."""
        if self.comparator is None:
            return _ORDERS[self.result](found, expected)
        return self.comparator(found, expected) == self.result

    def written(self, found: ast.expr, expected: ast.expr, writing: ConditionSource) -> ast.expr:
        """A call of the comparator, or the natural order."""
        if self.natural is not None:
            return ast.Compare(found, [self.natural()], [expected])
        called = writing.call(self.comparator, found, expected)
        return ast.Compare(called, [ast.Eq()], [ast.Constant(self.result)])

    @property
    def key(self) -> Hashable:
        """With the comparator and its result."""
        return (super().key, self.result, self.comparator and id(self.comparator))

    def check(self, cls: type[Any]) -> None:
        """As of an order, where the natural one is asked."""
        sides = self.declared(cls)
        if self.natural not in (None, ast.Eq):
            check_order(*sides, str(self))

    def __str__(self) -> str:
        by = (
            ""
            if self.comparator is None
            else f" by {getattr(self.comparator, '__name__', 'a comparator')}"
        )
        return f"{self.accessor} {self.sign} {text_of(self.expected)}{by} gives {self.result}"


_NATURAL: Final[dict[int, type[ast.cmpop]]] = {-1: ast.Lt, 0: ast.Eq, 1: ast.Gt}
_ORDERS: Final = {-1: operator.lt, 0: operator.eq, 1: operator.gt}


class CombinedCondition(Condition):
    """A condition of conditions; the function f of the model. Raises InvalidObventError."""

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
        """By its kind and its parts."""
        if self._has_more:
            return super().key
        return (type(self), *(each.key for each in self.parts))

    def accessors(self) -> Iterator[Accessor]:
        """Those of its parts."""
        for each in self.parts:
            yield from each.accessors()

    def surely(self) -> Iterator[Accessor]:
        """Those of the first part."""
        return self.parts[0].surely() if self.parts else iter(())

    def rebuilt(self, share: Share) -> Condition:
        """With other accessors."""
        made = copy(self)
        made.parts = tuple(each.rebuilt(share) for each in self.parts)
        return made

    def check(self, cls: type[Any]) -> None:
        """Checks its parts."""
        for each in self.parts:
            each.check(cls)

    def __str__(self) -> str:
        return f"({f' {self.sign} '.join(map(str, self.parts))})"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class AndCondition(CombinedCondition):
    """All parts hold; asked in their order, up to the first that does not. Without parts: yes.

    Source: EPFL 2503 figure 4.14.
    """

    sign = "and"

    def __init__(self, *parts: Condition) -> None:
        super().__init__(*_flat(AndCondition, parts))

    def holds(self, obvent: Any) -> bool:
        """Whether all hold."""
        return all(each.holds(obvent) for each in self.parts)

    def expression(self, writing: ConditionSource) -> ast.expr:
        """`and`."""
        return joined(ast.And(), [each.expression(writing) for each in self.parts])

    def effort(self) -> tuple[float, float]:
        """A part is evaluated where all before it hold."""
        made, reached = 0.0, 1.0
        for steps, often in (each.effort() for each in self.parts):
            made, reached = made + reached * steps, reached * often
        return made, reached

    def conjuncts(self) -> Iterator[Condition]:
        """Its parts."""
        for each in self.parts:
            yield from each.conjuncts()


class OrCondition(CombinedCondition):
    """Some part holds; asked in their order, up to the first that does. Without parts: no."""

    sign = "or"

    def __init__(self, *parts: Condition) -> None:
        super().__init__(*_flat(OrCondition, parts))

    def holds(self, obvent: Any) -> bool:
        """Whether one holds."""
        return any(each.holds(obvent) for each in self.parts)

    def expression(self, writing: ConditionSource) -> ast.expr:
        """`or`."""
        return joined(ast.Or(), [each.expression(writing) for each in self.parts])

    def effort(self) -> tuple[float, float]:
        """A part is evaluated where none before it holds."""
        made, reached = 0.0, 1.0
        for steps, often in (each.effort() for each in self.parts):
            made, reached = made + reached * steps, reached * (1 - often)
        return made, 1 - reached


class XorCondition(CombinedCondition):
    """Exactly one of two holds."""

    sign = "xor"

    def __init__(self, first: Condition, second: Condition) -> None:
        super().__init__(first, second)

    def holds(self, obvent: Any) -> bool:
        """Whether one holds, and the other does not."""
        first, second = self.parts
        return bool(first.holds(obvent)) != bool(second.holds(obvent))

    def surely(self) -> Iterator[Accessor]:
        """Those of both parts."""
        for each in self.parts:
            yield from each.surely()

    def effort(self) -> tuple[float, float]:
        """Both parts are asked."""
        (steps, often), (more, other) = (each.effort() for each in self.parts)
        return steps + more, often * (1 - other) + other * (1 - often)

    def expression(self, writing: ConditionSource) -> ast.expr:
        """The two are not alike."""
        first, second = (negated(each.expression(writing)) for each in self.parts)
        return ast.Compare(first, [ast.NotEq()], [second])


class NotCondition(CombinedCondition):
    """The condition does not hold."""

    sign = "not"

    def __init__(self, part: Condition) -> None:
        super().__init__(part)

    def holds(self, obvent: Any) -> bool:
        """Whether it does not."""
        return not self.parts[0].holds(obvent)

    def effort(self) -> tuple[float, float]:
        """As the part, which holds as often as it does not."""
        steps, often = self.parts[0].effort()
        return steps, 1 - often

    def expression(self, writing: ConditionSource) -> ast.expr:
        """`not`."""
        return negated(self.parts[0].expression(writing))

    def __str__(self) -> str:
        return f"not {self.parts[0]}"


def _flat(kind: type[CombinedCondition], parts: tuple[Condition, ...]) -> Iterator[Condition]:
    for each in parts:
        if type(each) is kind:
            yield from each.parts
        else:
            yield each
