"""CESQL expressions as rules: filters, and a residue where filters cannot say all.

What depends on one attribute and on constants is a set (see `casts`), and AND, OR, XOR and NOT
join sets (see `outcomes`). What is no set (comparisons between attributes, arithmetic, functions)
is bounded: where it is true or false at all, its attributes are there and can be cast. Only those
operands of the topmost AND that have such a part stay as the residue.

Invariant: an event passes an expression exactly where the filters match and the residue holds.

Source: CloudEvents, CESQL 1.0.0; its subscriptions, dialect `sql` (what passes a filter).
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final

from contrada.errors import ParseError, RefusedRuleError
from contrada.integrations.dialects import kleene
from contrada.integrations.dialects.cesql import (
    cesql_casts,
    cesql_values,
    expression_tree,
    functions,
    outcomes,
)
from contrada.integrations.dialects.cesql.cesql_parser import parse
from contrada.integrations.dialects.cesql.evaluation import evaluated, holds, holds_for, returns
from contrada.integrations.dialects.cesql.outcomes import CESQL_FILTERS_MAX, CESQL_MERGED_MAX
from contrada.integrations.dialects.kleene import ALWAYS, Bound, Truth, all_of, filters_of, member
from contrada.model.algebra import boxes, sets
from contrada.model.algebra.expression import MIRRORED
from contrada.model.algebra.filter import Filter, FilterSet, filter_set
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import PRESENT
from contrada.model.domains.values import ABSENT_KEY, Key
from contrada.model.rule import RefusedRule, Rule, checked_text, read_or_refused

DIALECT: Final = "cesql"


def read(text: str, name: str = "", line: int = 1) -> Rule:
    """The rule of an expression; `line` is the number of its first line, for places of refusals.

    Raises RefusedRuleError where the text is not in the syntax (with the place), or calls a
    function that CESQL does not have; LimitError where it is too long or too deep.
    """
    try:
        return translated(parse(checked_text(DIALECT, text)), name)
    except ParseError as error:
        place = f"line {error.line + line - 1}, column {error.column}"
        raise RefusedRuleError(DIALECT, "not in the syntax", error, place) from error


def filters(text: str) -> FilterSet:
    """The filters that say an expression. Raises as `read`, and where a residue is left open."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """The rules of a file: one expression a line, named by its line.

    Empty lines, and those that begin with `#`, are passed over.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name = f"line {number}"
            yield read_or_refused(name, partial(read, line, name, number))


@dataclass(frozen=True, slots=True)
class Residue:
    """What filters leave open of an expression; called with a notification that they match."""

    whole: expression_tree.Expression
    left_open: expression_tree.Expression
    names: tuple[str, ...]

    def __call__(self, notification: Notification) -> bool:
        """Whether the residue holds.

        With several values of an attribute the same ones must do for filters and residue, so the
        whole expression is asked.
        """
        if any(len(notification.keys_of(name)) > 1 for name in self.names):
            return holds(self.whole, notification)
        return holds_for(self.left_open, notification.keys_of)


def translated(expression: expression_tree.Expression, name: str = "") -> Rule:
    """The rule of an expression that is parsed. Raises as `read`, without the syntax."""
    _check_functions(expression)
    if isinstance(
        expression, expression_tree.Attribute
    ):  # alone it must be a Boolean, it is not cast to one
        return Rule(name, FilterSet([Filter({expression.name: sets.eq(True)})]))
    if returns(expression) is not cesql_values.Type.BOOLEAN:
        return Rule(name, FilterSet(()))
    parts = list(_conjuncts(expression, True))
    bounds = [outcome(part).when(wanted) for part, wanted in parts]
    kept = _kept(bounds)
    filters = filter_set(all_of(bounds[place] for place in kept).condition)
    left_open = [
        part if wanted else expression_tree.Not(part)
        for place, (part, wanted) in enumerate(parts)
        if place not in kept or not bounds[place].exact
    ]
    if (
        sum(len(each.sets) for each in filters) * len(expression_tree.names_in(expression))
        <= CESQL_MERGED_MAX
    ):
        filters = FilterSet(map(Filter.of_sets, boxes.merged(each.sets for each in filters)))
    if not left_open or not filters.filters:
        return Rule(name, filters)
    residue = _all_true(left_open)
    return Rule(
        name,
        filters,
        str(residue),
        Residue(expression, residue, expression_tree.names_in(expression)),
    )


def _kept(bounds: list[Bound]) -> set[int]:
    """The places of the bounds that filters say; where all were too many, those of few filters."""
    sizes = [filters_of(bound.condition) for bound in bounds]
    order = sorted(range(len(bounds)), key=sizes.__getitem__)
    products = accumulate((sizes[place] for place in order), operator.mul)
    return {place for place, size in zip(order, products, strict=True) if size <= CESQL_FILTERS_MAX}


def outcome(expression: expression_tree.Expression) -> Truth:
    """Where an expression, cast to a Boolean, is true and where it is false."""
    if not expression_tree.names_in(expression):
        value = _constant(expression, cesql_values.Type.BOOLEAN)
        return kleene.constant(None if value is None else bool(value))
    match expression:
        case expression_tree.Not(operand):
            return outcome(operand).inverse()
        case expression_tree.Logic(name, operands):
            return _JOINED[name]([outcome(each) for each in operands])
        case expression_tree.Call("BOOL", (operand,)):
            return outcome(operand)
        case expression_tree.Equal(left, right) if not expression_tree.names_in(right):
            return _equal_to(left, _constant(right))
        case expression_tree.Equal(left, right) if not expression_tree.names_in(left):
            return _equal_from(_constant(left), right)
    found = _of_attribute(expression)
    return outcomes.within(_needs(expression)) if found is None else outcomes.of_attribute(*found)


_JOINED: Final = {
    "AND": outcomes.conjunction,
    "OR": outcomes.disjunction,
    "XOR": outcomes.exclusive,
}


def _conjuncts(
    expression: expression_tree.Expression, wanted: bool
) -> Iterator[tuple[expression_tree.Expression, bool]]:
    """Expressions that together must be true or false, as wanted, for this one to be so."""
    match expression:
        case expression_tree.Not(operand):
            yield from _conjuncts(operand, not wanted)
        case expression_tree.Logic(name, operands) if name == ("AND" if wanted else "OR"):
            for each in operands:
                yield from _conjuncts(each, wanted)
        case _:
            yield expression, wanted


def _all_true(expressions: list[expression_tree.Expression]) -> expression_tree.Expression:
    """One expression that is true where all expressions, cast to Booleans, are true."""
    if len(expressions) > 1:
        return expression_tree.Logic("AND", tuple(expressions))
    only = expressions[0]
    return (
        only
        if returns(only) is cesql_values.Type.BOOLEAN
        else expression_tree.Call("BOOL", (only,))
    )


def _equal_to(
    left: expression_tree.Expression, constant: expression_tree.CesqlValue | None
) -> Truth:
    """`left = constant`: the left side is cast to the constant's type. None is an error."""
    if constant is None:
        return kleene.constant(None)
    if isinstance(constant, bool):
        return outcome(left) if constant else outcome(left).inverse()
    kind = cesql_values.type_of(constant)
    operand = _uncast(left, kind)
    if not isinstance(operand, expression_tree.Attribute):
        return outcomes.within(_needs(left, kind))
    if isinstance(constant, str):
        return outcomes.of_attribute(operand.name, cesql_casts.equal_to_text(constant))
    return outcomes.of_attribute(
        operand.name, cesql_casts.compared("=", cesql_values.as_whole(constant))
    )


def _equal_from(
    constant: expression_tree.CesqlValue | None, right: expression_tree.Expression
) -> Truth:
    """`constant = right`: the constant is cast to the type of the right side's value."""
    if isinstance(right, expression_tree.Attribute):
        return outcomes.of_attribute(right.name, cesql_casts.one_of([constant]))
    try:
        if constant is None:
            return kleene.constant(None)
        cast = cesql_values.cast_to(returns(right), constant)
    except cesql_values.Interruption:
        return kleene.constant(None)
    if isinstance(cast, bool):
        return outcome(right) if cast else outcome(right).inverse()
    return outcomes.within(_needs(right))


def _of_attribute(
    expression: expression_tree.Expression,
) -> tuple[str, cesql_casts.TruthSets] | None:
    """The attribute on which alone an expression depends, and how; None where it is no set."""
    match expression:
        case expression_tree.Attribute(name):
            return name, cesql_casts.BOOLEAN
        case expression_tree.Exists(name):
            return name, cesql_casts.EXISTS
        case expression_tree.Like(operand, pattern):
            if isinstance(
                inner := _uncast(operand, cesql_values.Type.STRING), expression_tree.Attribute
            ):
                return inner.name, cesql_casts.like(str(pattern.value))
        case expression_tree.In(expression_tree.Attribute(name), elements) if not any(
            map(expression_tree.names_in, elements)
        ):
            return name, cesql_casts.one_of([_constant(each) for each in elements])
        case expression_tree.Call("IS_INT", (expression_tree.Attribute(name),)):
            return name, cesql_casts.IS_INTEGER
        case expression_tree.Call("IS_BOOL", (expression_tree.Attribute(name),)):
            return name, cesql_casts.IS_BOOLEAN
        case expression_tree.Ordered(operator, left, right):
            return _ordered(operator, left, right)
    return None


def _ordered(
    operator: str, left: expression_tree.Expression, right: expression_tree.Expression
) -> tuple[str, cesql_casts.TruthSets] | None:
    """An order between an attribute and a constant, on either side."""
    if not expression_tree.names_in(left):
        operator, left, right = MIRRORED[operator], right, left
    attribute = _uncast(left, cesql_values.Type.INTEGER)
    if expression_tree.names_in(right) or not isinstance(attribute, expression_tree.Attribute):
        return None
    constant = _constant(right, cesql_values.Type.INTEGER)
    if constant is None:
        return attribute.name, cesql_casts.NEVER
    return attribute.name, cesql_casts.compared(operator, cesql_values.as_whole(constant))


_CASTS: Final = {
    cesql_values.Type.BOOLEAN: "BOOL",
    cesql_values.Type.INTEGER: "INT",
    cesql_values.Type.STRING: "STRING",
}


def _uncast(
    expression: expression_tree.Expression, kind: cesql_values.Type
) -> expression_tree.Expression:
    """The expression without calls that cast it to the type to which it is cast anyway."""
    while isinstance(expression, expression_tree.Call) and expression.name == _CASTS[kind]:
        expression = expression.arguments[0]
    return expression


def _constant(
    expression: expression_tree.Expression, kind: cesql_values.Type | None = None
) -> expression_tree.CesqlValue | None:
    """The value of an expression without attributes, cast to a type; None is an error."""
    value, fault = evaluated(expression, _no_event)
    try:
        return None if fault else value if kind is None else cesql_values.cast_to(kind, value)
    except cesql_values.Interruption:
        return None


def _no_event(_: str) -> tuple[Key, ...]:
    return (ABSENT_KEY,)


def _needs(expression: expression_tree.Expression, kind: cesql_values.Type | None = None) -> Bound:
    """Where an expression can have a value at all that casts to a type.

    Each attribute that is evaluated in any case is there, and can be cast to what is asked of it.
    """
    asked: list[tuple[expression_tree.Expression, cesql_values.Type | None]]
    match expression:
        case expression_tree.Attribute(name):
            return member(name, _CASTABLE[kind])
        case expression_tree.Exists():
            return ALWAYS
        case expression_tree.Logic("XOR", operands):
            asked = [(each, cesql_values.Type.BOOLEAN) for each in operands]
        case expression_tree.Logic(_, (operand, *_)) | expression_tree.Not(operand):
            asked = [(operand, cesql_values.Type.BOOLEAN)]
        case expression_tree.Ordered(_, left, right) | expression_tree.Arithmetic(_, left, right):
            asked = [(left, cesql_values.Type.INTEGER), (right, cesql_values.Type.INTEGER)]
        case expression_tree.Negative(operand):
            asked = [(operand, cesql_values.Type.INTEGER)]
        case expression_tree.Call(name, arguments):
            asked = [(each, _parameter(name, arguments, at)) for at, each in enumerate(arguments)]
        case _:
            asked = [(each, None) for each in expression_tree.parts_of(expression)[:2]]
    return all_of([_needs(each, kind) for each, kind in asked])


_CASTABLE: Final = {
    None: PRESENT,
    cesql_values.Type.STRING: PRESENT,
    cesql_values.Type.INTEGER: cesql_casts.INTEGER,
    cesql_values.Type.BOOLEAN: cesql_casts.BOOLEAN.defined,
}
"""What casts to a type; None is no cast."""


def _parameter(
    name: str, arguments: tuple[expression_tree.Expression, ...], at: int
) -> cesql_values.Type | None:
    """What an argument of a function is cast to."""
    function = functions.find(name, len(arguments))
    cast = next((kind for kind, cast in _CASTS.items() if cast == name), None)
    return cast if function is None or cast is not None else function.parameter(at)


def _check_functions(expression: expression_tree.Expression) -> None:
    """Raises RefusedRuleError where a function is called that there is not."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if (
            isinstance(part, expression_tree.Call)
            and functions.find(part.name, len(part.arguments)) is None
        ):
            found = f"{part.name} of {len(part.arguments)} arguments"
            raise RefusedRuleError(DIALECT, "no such function", found)
        waiting += expression_tree.parts_of(part)
