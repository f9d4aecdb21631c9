"""CESQL expressions as rules: filters, and a residue for the conditions that filters cannot
express.

A condition on one attribute and constants is a set (see `cesql_casts`); AND, OR, XOR and NOT join
sets. Unlike in Kleene's logic an operand counts only if its predecessors do not decide, so an error
of an early operand can be the result. Other conditions (comparisons between attributes, arithmetic,
functions) have a bound: wherever they are true or false, their attributes exist and can be cast.
The residue holds only those operands of the topmost AND that contain such a condition.

Invariant: an event passes an expression exactly if the filters match and the residue holds.

Source: CloudEvents, CESQL 1.0.0 §3.3 and §3.4.2 (AND and OR stop at a deciding operand); its
subscriptions, dialect `sql` (events that pass a filter).
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from contrada.errors import ParseError, RefusedRuleError
from contrada.integrations.dialects import kleene
from contrada.integrations.dialects.cesql import cesql_casts, functions
from contrada.integrations.dialects.cesql import cesql_values as values
from contrada.integrations.dialects.cesql import expression_tree as tree
from contrada.integrations.dialects.cesql.cesql_parser import parse
from contrada.integrations.dialects.cesql.evaluation import evaluate_keys, holds, holds_for, returns
from contrada.integrations.dialects.dialect_grammar import read_lines
from contrada.integrations.dialects.kleene import Bound, Truth
from contrada.model.algebra import boxes, sets
from contrada.model.algebra.expression import MIRRORED
from contrada.model.algebra.filter import Filter, FilterSet, filter_set
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import PRESENT
from contrada.model.domains.values import ABSENT_KEY
from contrada.model.rule import RefusedRule, Rule, require_text

DIALECT: Final = "cesql"

CESQL_PARTS_MAX: Final = 10_000
"""Value sets and operators on text of a bound. Beyond it: it is loose, the residue decides."""

CESQL_FILTERS_MAX: Final = 1_000
"""Filters of one bound, and of a rule. Beyond it: it is loose, and the residue decides."""

CESQL_MERGED_MAX: Final = 1_000_000
"""Sets of a rule's filters, times its attributes, to merge. Beyond it: they stay separate."""

CESQL_XOR_OPERANDS_MAX: Final = 10
"""Operands of an XOR with exact bounds. Each operand doubles the bounds. Beyond it: they become
loose, and the residue decides."""


def read(text: str, name: str = "", line: int = 1) -> Rule:
    """Returns the rule of an expression that begins on a line of a file.

    Raises RefusedRuleError for a syntax error or an unknown function, and LimitError.
    """
    try:
        return translate(parse(require_text(DIALECT, text)), name)
    except ParseError as error:
        place = f"line {error.line + line - 1}, column {error.column}"
        raise RefusedRuleError(DIALECT, "not in the syntax", error, place) from error


def filters(text: str) -> FilterSet:
    """Returns the filters that equal an expression. Raises as `read`, and if a residue remains."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file, one a line; see `dialect_grammar.read_lines`."""
    return read_lines(text, read)


@dataclass(frozen=True, slots=True)
class Residue:
    """The rest of an expression; called with a notification that the filters match."""

    whole: tree.Expression
    residue_parts: tree.Expression
    names: tuple[str, ...]

    def __call__(self, notification: Notification) -> bool:
        """Whether the residue holds.

        If an attribute has several values, the same one must satisfy filters and residue, so the
        whole expression is evaluated.
        """
        if any(len(notification.keys_of(name)) > 1 for name in self.names):
            return holds(self.whole, notification)
        return holds_for(self.residue_parts, notification.keys_of)


def translate(expression: tree.Expression, name: str = "") -> Rule:
    """Returns the rule of a parsed expression. Raises as `read`, except for syntax errors."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tree.Call) and functions.find(part.name, len(part.arguments)) is None:
            found = f"{part.name} of {len(part.arguments)} arguments"
            raise RefusedRuleError(DIALECT, "no such function", found)
        waiting += tree.parts_of(part)
    if isinstance(expression, tree.Attribute):  # alone it must be a Boolean, it is not cast to one
        return Rule(name, FilterSet([Filter({expression.name: sets.eq(True)})]))
    if returns(expression) is not values.Type.BOOLEAN:
        return Rule(name, FilterSet(()))
    parts = list(_conjuncts(expression, True))
    bounds = [outcome(part).when(wanted) for part, wanted in parts]
    # The bounds that become filters; if all are too many, the small ones.
    sizes = [kleene.filters_of(bound.condition) for bound in bounds]
    order = sorted(range(len(bounds)), key=sizes.__getitem__)
    products = accumulate((sizes[place] for place in order), operator.mul)
    kept = {place for place, size in zip(order, products, strict=True) if size <= CESQL_FILTERS_MAX}
    filters = filter_set(kleene.all_of(bounds[place] for place in kept).condition)
    residue_parts = [
        part if wanted else tree.Not(part)
        for place, (part, wanted) in enumerate(parts)
        if place not in kept or not bounds[place].exact
    ]
    if sum(len(each.sets) for each in filters) * len(tree.names_in(expression)) <= CESQL_MERGED_MAX:
        filters = FilterSet(map(Filter.of_sets, boxes.merge_boxes(each.sets for each in filters)))
    if not residue_parts or not filters.filters:
        return Rule(name, filters)
    residue = (
        tree.Logic("AND", tuple(residue_parts)) if len(residue_parts) > 1 else residue_parts[0]
    )
    if returns(residue) is not values.Type.BOOLEAN:
        residue = tree.Call("BOOL", (residue,))
    holds_rest = Residue(expression, residue, tree.names_in(expression))
    return Rule(name, filters, str(residue), holds_rest)


def outcome(expression: tree.Expression) -> Truth:
    """Returns the truth of an expression, cast to a Boolean."""
    if not tree.names_in(expression):
        value = _constant(expression, values.Type.BOOLEAN)
        return kleene.constant(None if value is None else bool(value))
    match expression:
        case tree.Not(operand):
            return outcome(operand).inverse()
        case tree.Logic(name, operands):
            join = {"AND": _conjunction, "OR": _disjunction, "XOR": _exclusive}[name]
            return join([outcome(each) for each in operands])
        case tree.Call("BOOL", (operand,)):
            return outcome(operand)
        case tree.Equal(left, right) if not tree.names_in(right):
            return _equal_to(left, _constant(right))
        case tree.Equal(left, right) if not tree.names_in(left):
            return _equal_from(_constant(left), right)
        case tree.Attribute(name):
            return _of_sets(name, cesql_casts.BOOLEAN)
        case tree.Exists(name):
            return _of_sets(name, cesql_casts.EXISTS)
        case tree.Call(("IS_INT" | "IS_BOOL") as function, (tree.Attribute(name),)):
            checks = {"IS_INT": cesql_casts.IS_INTEGER, "IS_BOOL": cesql_casts.IS_BOOLEAN}
            return _of_sets(name, checks[function])
        case tree.In(tree.Attribute(name), elements) if not any(map(tree.names_in, elements)):
            return _of_sets(name, cesql_casts.one_of([_constant(each) for each in elements]))
        case tree.Like(operand, pattern):
            if isinstance(inner := _uncast(operand, values.Type.STRING), tree.Attribute):
                return _of_sets(inner.name, cesql_casts.like(str(pattern.value)))
        case tree.Ordered(order, left, right):
            if found := _order_of(order, left, right):
                return _of_sets(*found)
    return _loosely(_needs(expression))


def _conjuncts(expression: tree.Expression, wanted: bool) -> Iterator[tuple[tree.Expression, bool]]:
    """Yields the parts of an expression that must all be true, or false, for it to be `wanted`."""
    match expression:
        case tree.Not(operand):
            yield from _conjuncts(operand, not wanted)
        case tree.Logic(name, operands) if name == ("AND" if wanted else "OR"):
            for each in operands:
                yield from _conjuncts(each, wanted)
        case _:
            yield expression, wanted


def _equal_to(left: tree.Expression, constant: tree.CesqlValue | None) -> Truth:
    """`left = constant`: the left side is cast to the constant's type. None is an error."""
    if constant is None:
        return kleene.constant(None)
    if isinstance(constant, bool):
        return outcome(left) if constant else outcome(left).inverse()
    kind = values.type_of(constant)
    operand = _uncast(left, kind)
    if not isinstance(operand, tree.Attribute):
        return _loosely(_needs(left, kind))
    if isinstance(constant, str):
        sides = cesql_casts.equal_to_text(constant)
    else:
        sides = cesql_casts.compare("=", values.as_whole(constant))
    return _of_sets(operand.name, sides)


def _equal_from(constant: tree.CesqlValue | None, right: tree.Expression) -> Truth:
    """`constant = right`: the constant is cast to the type of the right side's value."""
    if isinstance(right, tree.Attribute):
        return _of_sets(right.name, cesql_casts.one_of([constant]))
    try:
        if constant is None:
            return kleene.constant(None)
        cast = values.cast_to(returns(right), constant)
    except values.Interruption:
        return kleene.constant(None)
    if isinstance(cast, bool):
        return outcome(right) if cast else outcome(right).inverse()
    return _loosely(_needs(right))


def _order_of(
    operator: str, left: tree.Expression, right: tree.Expression
) -> tuple[str, cesql_casts.TruthSets] | None:
    """Returns the truth of an order between an attribute and a constant, on either side."""
    if not tree.names_in(left):
        operator, left, right = MIRRORED[operator], right, left
    attribute = _uncast(left, values.Type.INTEGER)
    if tree.names_in(right) or not isinstance(attribute, tree.Attribute):
        return None
    constant = _constant(right, values.Type.INTEGER)
    if constant is None:
        return attribute.name, cesql_casts.NEVER
    return attribute.name, cesql_casts.compare(operator, values.as_whole(constant))


_CASTS: Final = {
    values.Type.BOOLEAN: "BOOL",
    values.Type.INTEGER: "INT",
    values.Type.STRING: "STRING",
}


def _uncast(expression: tree.Expression, kind: values.Type) -> tree.Expression:
    """Returns the expression without calls that repeat its implicit cast."""
    while isinstance(expression, tree.Call) and expression.name == _CASTS[kind]:
        expression = expression.arguments[0]
    return expression


def _constant(
    expression: tree.Expression, kind: values.Type | None = None
) -> tree.CesqlValue | None:
    """Returns the value of an expression without attributes, cast to a type; None is an error."""
    value, fault = evaluate_keys(expression, lambda _: (ABSENT_KEY,))
    try:
        return None if fault else value if kind is None else values.cast_to(kind, value)
    except values.Interruption:
        return None


def _needs(expression: tree.Expression, kind: values.Type | None = None) -> Bound:
    """Returns a bound of the events for which an expression has a value that casts to a type.

    In these events each attribute that is always evaluated exists and can be cast as needed.
    """
    asked: list[tuple[tree.Expression, values.Type | None]] = []
    match expression:
        case tree.Attribute(name):
            return kleene.member(name, _CASTABLE[kind])
        case tree.Exists():
            return kleene.ALWAYS
        case tree.Logic("XOR", operands):
            asked = [(each, values.Type.BOOLEAN) for each in operands]
        case tree.Logic(_, (operand, *_)) | tree.Not(operand):
            asked = [(operand, values.Type.BOOLEAN)]
        case tree.Ordered(_, left, right) | tree.Arithmetic(_, left, right):
            asked = [(left, values.Type.INTEGER), (right, values.Type.INTEGER)]
        case tree.Negative(operand):
            asked = [(operand, values.Type.INTEGER)]
        case tree.Call(name, arguments):
            function = functions.find(name, len(arguments))
            cast = next((kind for kind, cast in _CASTS.items() if cast == name), None)
            for at, each in enumerate(arguments):
                asked.append((each, cast or (function.parameter(at) if function else None)))
        case _:
            asked = [(each, None) for each in tree.parts_of(expression)[:2]]
    return kleene.all_of([_needs(each, kind) for each, kind in asked])


_CASTABLE: Final = {
    None: PRESENT,
    values.Type.STRING: PRESENT,
    values.Type.INTEGER: cesql_casts.INTEGER,
    values.Type.BOOLEAN: cesql_casts.BOOLEAN.defined,
}
"""The values that cast to a type; None is no cast."""


# --- AND, OR and XOR on truths --------------------------------------------------------------------


def _of_sets(name: str, sets: cesql_casts.TruthSets) -> Truth:
    sides = ((sets.true, sets.exact), (sets.false, sets.exact), (sets.defined, True))
    return Truth(*(kleene.member(name, *each) for each in sides))


def _loosely(bound: Bound) -> Truth:
    """Returns the truth of a condition with only one bound, for true and false."""
    return Truth(bound.loose(), bound.loose(), bound.loose())


def _conjunction(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of AND: false if an operand is, and all before it are true or false.

    A bound that is too large is replaced by the bound of the first operand.
    """
    first = truths[0]
    defined = [each.defined for each in truths]
    falses = [each.false for each in truths]
    true = _first_small(kleene.all_of([each.true for each in truths]), first.true.loose())
    false = _first_small(
        _first_of(falses, defined), kleene.any_of(falses).loose(), first.defined.loose()
    )
    either = _first_small(kleene.any_of([false, kleene.all_of(defined)]), first.defined.loose())
    return Truth(true, false, either)


def _disjunction(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of OR, which is NOT of the AND of the opposites, errors included."""
    return _conjunction([each.inverse() for each in truths]).inverse()


def _exclusive(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of XOR, which evaluates all operands."""
    defined = _first_small(
        kleene.all_of([each.defined for each in truths]), truths[0].defined.loose()
    )
    if len(truths) > CESQL_XOR_OPERANDS_MAX:
        return _loosely(defined)
    true, false = truths[0].true, truths[0].false
    for each in truths[1:]:
        true, false = (
            kleene.any_of([kleene.all_of([true, each.false]), kleene.all_of([false, each.true])]),
            kleene.any_of([kleene.all_of([true, each.true]), kleene.all_of([false, each.false])]),
        )
        if not _is_small(true):
            return _loosely(defined)
    return Truth(true, _first_small(false, defined.loose()), defined)


def _first_small(*bounds: Bound) -> Bound:
    """Returns the first bound that is not too large, else the last."""
    return next(filter(_is_small, bounds), bounds[-1])


def _is_small(bound: Bound) -> bool:
    return bound.size <= CESQL_PARTS_MAX and kleene.filters_of(bound.condition) <= CESQL_FILTERS_MAX


def _first_of(bounds: Sequence[Bound], defined: Sequence[Bound]) -> Bound:
    """Returns the events for which one of the bounds holds and all before it are defined.

    A result that is too large is not completed, as it will not be used.
    """
    found: list[Bound] = []
    before, size = kleene.ALWAYS, 0
    for bound, either in zip(bounds, defined, strict=True):
        found.append(kleene.all_of([before, bound]))
        size += found[-1].size
        if size > CESQL_PARTS_MAX:
            return found[-1]._replace(size=size)
        before = kleene.all_of([before, either])
    return kleene.any_of(found)
