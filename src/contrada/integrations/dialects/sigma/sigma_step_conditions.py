"""`Conditions`: the conditions of a pipeline's step on rules, on items and on names of fields.

Expressions in them search at the beginning of a text, in the syntax of `matches`.

Source: pySigma 2.0.1, documentation of processing pipelines, section on conditions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_conditions import parse_conditions
from contrada.integrations.dialects.sigma.sigma_items import RuleState, SelectionItem
from contrada.integrations.dialects.sigma.sigma_refusals import refusal
from contrada.integrations.dialects.sigma.sigma_values import (
    FieldReference,
    Scalar,
    SigmaValue,
    Text,
    WildcardSign,
    placed,
    plain_of,
    text_of,
)
from contrada.model.algebra import sets
from contrada.model.algebra.expression import And, Formula, Member
from contrada.model.algebra.value_set import ValueSet
from contrada.model.languages import regex_syntax

T = TypeVar("T")
RuleTest: TypeAlias = Callable[[RuleState], bool]
ItemTest: TypeAlias = Callable[[SelectionItem, RuleState], bool]


FieldTest: TypeAlias = Callable[[str | None, RuleState], bool]
"""A test of a field's name, None for keywords."""


def fields_of(item: SelectionItem) -> list[str | None]:
    """Returns the field of an item, and those that its values refer to."""
    values = (each for value in item.values for each in value)
    return [item.field, *(each.field for each in values if isinstance(each, FieldReference))]


class StepParameters:
    """The parameters of a step or condition; each error names the place."""

    def __init__(self, given: object, place: str) -> None:
        if not isinstance(given, dict):
            raise refusal(refusals.PIPELINE, given, place)
        self._given: dict[Any, Any] = dict(given)
        self.place = place

    def take(self, name: str, kind: Any, *default: Any) -> Any:
        """Returns a parameter of a type. Raises RefusedRuleError for another one, or for none."""
        if name not in self._given and default:
            return default[0]
        value = self._given.pop(name, None)
        is_flag = isinstance(value, bool) and kind is not bool and kind is not object
        if not isinstance(value, kind) or is_flag:
            raise refusal(refusals.PARAMETER, value, f"{self.place}.{name}")
        return value

    def end(self) -> None:
        """Raises RefusedRuleError for parameters that nothing has taken."""
        for name in self._given:
            raise refusal(refusals.PARAMETER, name, self.place)


def check_texts(given: object, place: str) -> list[str]:
    """Returns a list of at least one text, also of a text alone. Raises RefusedRuleError."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise refusal(refusals.PARAMETER, given, place)
    return texts


@dataclass(frozen=True, slots=True)
class Conditions(Generic[T]):
    """Tests, joined by `and`, `or`, or an expression over their names, and possibly negated."""

    tests: Mapping[str, T]
    expression: Formula | None = None
    link: Callable[[Iterable[bool]], bool] = all
    negated: bool = False

    def hold(self, ask: Callable[[T], bool]) -> bool:
        """Whether the conditions hold, if `ask` answers a test."""
        if self.expression is None:
            found = self.link(map(ask, self.tests.values()))
        else:
            found = _holds(self.expression, {name: ask(each) for name, each in self.tests.items()})
        return found is not self.negated


def _holds(condition: Formula, answers: Mapping[str, bool]) -> bool:
    if isinstance(condition, Member):
        return condition.values.contains(answers[condition.name])
    join = all if isinstance(condition, And) else any
    return join(_holds(part, answers) for part in condition.parts)


def read_conditions(
    given: StepParameters, kind: str, tests: Mapping[str, Callable[[StepParameters], T]]
) -> Conditions[T]:
    """Returns the conditions of a kind: `rule`, `detection_item` or `field_name`."""
    name, place = f"{kind}_conditions", f"{given.place}.{kind}_conditions"
    listed = given.take(name, list | dict, [])
    named = listed if isinstance(listed, dict) else dict(enumerate(listed))
    link = given.take(f"{kind}_cond_op", str, "and")
    has_link = link != "and"
    text = given.take(f"{kind}_cond_expr", str, None)
    negated = given.take(f"{kind}_cond_not", bool, False)
    if link not in ("and", "or") or (text is not None and has_link):
        raise refusal(refusals.PARAMETER, link, f"{given.place}.{kind}_cond_op")
    read = {}
    for key, each in named.items():
        inner = StepParameters(each, f"{place}[{key}]")
        test = inner.take("type", str)
        if test not in tests:
            raise refusal(refusals.STEP_CONDITION, test, inner.place)
        read[str(key)] = tests[test](inner)
        inner.end()
    expression = None
    if text is not None:
        used: set[str] = set()

        def selected(each: str) -> Formula:
            used.add(each)
            return Member(each, sets.eq(True))

        where = f"{given.place}.{kind}_cond_expr"
        expression = parse_conditions([text], read, selected, where)
        if used != read.keys():
            raise refusal(refusals.STEP_CONDITION, sorted(read.keys() - used), where)
    return Conditions(read, expression, any if link == "or" else all, negated)


def read_expression(given: StepParameters, name: str, text: str) -> ValueSet:
    """Returns the texts at whose beginning an expression matches. Raises RefusedRuleError."""
    with placed(text, f"{given.place}.{name}"):
        regex_syntax.read(text)  # Alone: a parenthesis must not end the group around it.
        return sets.matches(f"^(?:{text})")


# --- conditions on rules ------------------------------------------------------------------------

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": lambda a, b: bool(a == b),
    "ne": lambda a, b: bool(a != b),
    "gte": lambda a, b: bool(a >= b),
    "gt": lambda a, b: bool(a > b),
    "lte": lambda a, b: bool(a <= b),
    "lt": lambda a, b: bool(a < b),
}
_RANKS: Final = {
    "level": ("informational", "low", "medium", "high", "critical"),
    "status": ("unsupported", "deprecated", "experimental", "test", "stable"),
}
_TEXTS: Final = ("id", "title", "name", "author", "description", "license", "taxonomy")
_DATES: Final = ("date", "modified")
_LISTS: Final = ("references", "falsepositives", "fields")


def take_source(given: StepParameters) -> LogSource:
    """Returns the log source whose parts are parameters of a step or condition."""
    parts = ("category", "product", "service")
    return LogSource(**{part: given.take(part, str, "").lower() for part in parts})


def _log_source(given: StepParameters) -> RuleTest:
    asked = take_source(given)

    def holds(state: RuleState) -> bool:
        sources = state.sources if state.is_correlation else (state.source,)
        return any(asked.includes(each) for each in sources)

    return holds


def _contains_field(given: StepParameters) -> RuleTest:
    field = given.take("field", str)
    return lambda state: any(each.field == field for each in state.items())


def _contains_item(given: StepParameters) -> RuleTest:
    field, value = given.take("field", str), given.take("value", str | int | float | bool)

    def holds(state: RuleState) -> bool:
        return any(
            each.field == field and not each.is_expanded and is_value(one, value)
            for each in state.items()
            for alternatives in each.values
            for one in alternatives
        )

    return holds


def _applied(given: StepParameters) -> RuleTest:
    asked = given.take("processing_item_id", str)
    return lambda state: asked in state.applied


def _state(given: StepParameters) -> RuleTest:
    key, value = given.take("key", str), given.take("val", object)
    name = given.take("op", str, "eq")
    if name not in _OPERATORS:
        raise refusal(refusals.PARAMETER, name, f"{given.place}.op")

    def holds(state: RuleState) -> bool:
        return key in state.variables and _compare(name, state.variables[key], value, given.place)

    return holds


def _state_of_part(given: StepParameters) -> Callable[[object, RuleState], bool]:
    holds = _state(given)
    return lambda _, state: holds(state)


def _compare(operator: str, a: object, b: object, place: str) -> bool:
    try:
        return _OPERATORS[operator](a, b)
    except TypeError:
        raise refusal(refusals.STEP_CONDITION, f"{a!r} {operator} {b!r}", place) from None


def _rule_attribute(given: StepParameters) -> RuleTest:
    name, value = given.take("attribute", str), given.take("value", str | int | float)
    operator = given.take("op", str, "eq")
    known = (*_TEXTS, *_DATES, *_LISTS, *_RANKS)
    allowed = {"eq", "ne"} if name in _TEXTS else {*_OPERATORS, "in", "not_in"}
    if operator not in allowed:
        raise refusal(refusals.PARAMETER, operator, f"{given.place}.op")

    def holds(state: RuleState) -> bool:
        held = (state.document if name in known else state.attributes).get(name)
        if name in _LISTS or isinstance(held, list):
            return {"in": value in (held or []), "ne": True}.get(
                operator, operator == "not_in" and value not in (held or [])
            )
        if held is None and name not in known:
            return False
        asked: object = value
        if name in _RANKS and held in _RANKS[name] and value in _RANKS[name]:
            held, asked = _RANKS[name].index(held), _RANKS[name].index(str(value))
        elif held is None or name in _RANKS or type(held) is bool or operator in ("in", "not_in"):
            raise refusal(refusals.STEP_CONDITION, {name: held}, given.place)
        return _compare(operator, held, asked, given.place)

    return holds


def _tag(given: StepParameters) -> RuleTest:
    tag = given.take("tag", str)

    def holds(state: RuleState) -> bool:
        tags = state.document.get("tags")
        return isinstance(tags, list) and tag in tags

    return holds


RULE_TESTS: Final[Mapping[str, Callable[[StepParameters], RuleTest]]] = {
    "logsource": _log_source,
    "contains_field": _contains_field,
    "contains_detection_item": _contains_item,
    "processing_item_applied": _applied,
    "processing_state": _state,
    "is_sigma_rule": lambda given: lambda state: not state.is_correlation,
    "is_sigma_correlation_rule": lambda given: lambda state: state.is_correlation,
    "rule_attribute": _rule_attribute,
    "tag": _tag,
}

# --- conditions on items ------------------------------------------------------------------------


def is_value(held: SigmaValue, asked: str | float) -> bool:
    """Whether a value of a rule is this one, as written: also the case of letters counts."""
    if isinstance(held, Text):
        return isinstance(asked, str) and not held.cased and held.parts == text_of(asked)
    if not isinstance(held, Scalar) or held.value is None or isinstance(asked, str):
        return False
    return isinstance(held.value, bool) is isinstance(asked, bool) and held.value == asked


def _of_values(test: Callable[[SigmaValue | None], bool], given: StepParameters) -> ItemTest:
    """Returns the test of one or all values; those of expansions (`windash`) are no texts."""
    joined = given.take("cond", str)
    if joined not in ("any", "all"):
        raise refusal(refusals.PARAMETER, joined, f"{given.place}.cond")
    join = any if joined == "any" else all

    def holds(item: SelectionItem, _: RuleState) -> bool:
        if item.is_expanded:
            return join(test(None) for _ in item.values)
        return join(test(each) for value in item.values for each in value)

    return holds


def _match_string(given: StepParameters) -> ItemTest:
    accepted = read_expression(given, "pattern", given.take("pattern", str))
    negated = given.take("negate", bool, False)

    def test(value: SigmaValue | None) -> bool:
        found = isinstance(value, Text) and accepted.contains(plain_of(value.parts))
        return found is not negated

    return _of_values(test, given)


def _match_value(given: StepParameters) -> ItemTest:
    asked = given.take("value", str | int | float | bool)
    return _of_values(lambda value: value is not None and is_value(value, asked), given)


def _has_wildcard(value: SigmaValue | None) -> bool:
    return isinstance(value, Text) and any(isinstance(p, WildcardSign) for p in value.parts)


def _is_null(value: SigmaValue | None) -> bool:
    return isinstance(value, Scalar) and value.value is None


def _item_applied(given: StepParameters) -> ItemTest:
    asked = given.take("processing_item_id", str)
    return lambda item, _: asked in item.applied


ITEM_TESTS: Final[Mapping[str, Callable[[StepParameters], ItemTest]]] = {
    "match_string": _match_string,
    "match_value": _match_value,
    "contains_wildcard": partial(_of_values, _has_wildcard),
    "is_null": partial(_of_values, _is_null),
    "processing_item_applied": _item_applied,
    "processing_state": _state_of_part,
}

# --- conditions on names of fields --------------------------------------------------------------


def _fields(given: StepParameters, *, included: bool) -> FieldTest:
    names = check_texts(given.take("fields", list), f"{given.place}.fields")
    mode = given.take("mode", str, "plain")
    if mode not in ("plain", "re"):
        raise refusal(refusals.PARAMETER, mode, f"{given.place}.mode")
    if mode == "plain":
        listed = frozenset(names)
        return lambda field, _: (field in listed) is included
    patterns = [read_expression(given, "fields", each) for each in names]
    return lambda field, _: (
        any(each.contains(field) for each in patterns if field is not None) is included
    )


FIELD_TESTS: Final[Mapping[str, Callable[[StepParameters], FieldTest]]] = {
    "include_fields": partial(_fields, included=True),
    "exclude_fields": partial(_fields, included=False),
    "processing_state": _state_of_part,
}
"""Without `processing_item_applied`, of which pySigma decides by the list `fields` of the rule."""
