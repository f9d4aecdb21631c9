"""The filters of the CloudEvents Subscriptions API to filters, and back.

`exact`, `prefix` and `suffix` compare the text of attributes, all of which must exist. The text of
an Integer is its decimal digits, that of a Boolean `true` or `false`. `not` is true exactly if its
filter is false. A filter that names the attribute `data` is refused: this is the name of JSON data,
so the filter would read the data.

Conditions that are no sets stay as a residue: integers that end with given digits, and residues of
`sql`. The filters then cover those of the subscription, and the residue consists of the
subscription's filters with such a condition.

Source: CloudEvents Subscriptions 1.0-wip §3.2.4; CloudEvents 1.0.2 §3.1 (type system).
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any, Final, NoReturn

from contrada.errors import InvalidValueError, LimitError, RefusedRuleError
from contrada.integrations.dialects import cesql, kleene
from contrada.integrations.dialects.cesql.cesql_values import INTEGER_FIRST, INTEGER_LAST
from contrada.integrations.dialects.cloudevents.cloudevent_json import DATA, NAME, TEXTS
from contrada.integrations.dialects.json_text import check_depth, decode_rule, json_lines
from contrada.integrations.dialects.text_parts import NoPartsError, text_parts
from contrada.model.algebra import sets
from contrada.model.algebra.expression import And, Member, Or
from contrada.model.algebra.filter import Filter, FilterSet, filter_set
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import ABSENT, NOTHING, PRESENT, ValueSet, union
from contrada.model.domains.values import ABSENT_KEY, BOOL, NUMBER, TEXT, key_of
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

DIALECT: Final = "cloudevents"

NO_FILTERS: Final = "filters are an array of objects"
ONE_DIALECT: Final = "a filter has one dialect"
UNKNOWN: Final = "unknown dialect"
ATTRIBUTES: Final = "exact, prefix and suffix take names of attributes with texts, not empty"
SEVERAL: Final = "all and any take an array of filters, not empty"
ONE_FILTER: Final = "not takes a filter"
SQL: Final = "sql takes an expression"
SOURCE: Final = "source is a text, not empty"
TYPES: Final = "types are an array of texts, none empty"

_OF_SUBSCRIPTIONS: Final = frozenset(("filters", "sink", "source", "types"))
"""Names that distinguish a whole subscription from one filter."""

EXPRESSIONS_CHARACTERS_MAX: Final = 200_000
"""Characters of all CESQL expressions of a subscription. Beyond it: the rule is refused."""

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_INTEGER_CHARACTERS: Final = 11
_BOOLS: Final = (("false", False), ("true", True))
_ON_TEXT: Final[dict[str, tuple[Callable[[str, str], bool], Callable[[str], ValueSet]]]] = {
    "exact": (operator.eq, sets.eq),
    "prefix": (str.startswith, sets.prefix),
    "suffix": (str.endswith, sets.suffix),
}
"""How a dialect compares a text, and the texts that it accepts."""
INTEGERS: Final = sets.between(INTEGER_FIRST, INTEGER_LAST)


def read(given: str | bytes | list[Any] | Mapping[str, Any], name: str = "") -> Rule:
    """Returns the rule of a subscription, given as JSON text or as its decoded value.

    It may be an array `filters`, all of which must be true; one such filter; or the whole
    subscription, an object with `filters`, `sink`, `source` or `types`. Its `id` is the name of the
    rule, its `source` must equal the event's, and one of its `types` the event's type. Without any
    of these every event passes. Cost: linear, except filters of `any` in `all`, which multiply up
    to `expression.CONJUNCTIONS_MAX`. Raises RefusedRuleError, also of CESQL, and LimitError.
    """
    content = decode_rule(DIALECT, given, exact=False)
    before: list[Any] = []
    if isinstance(content, Mapping) and _OF_SUBSCRIPTIONS & content.keys():
        name = str(content.get("id", name))
        before, content = list(_subscription_conditions(content)), content.get("filters", [])
    listed = [content] if isinstance(content, Mapping) else content
    if not isinstance(listed, list):
        refuse(NO_FILTERS, listed, "")
    characters = sum(map(len, _expressions_in(listed)))
    if characters > EXPRESSIONS_CHARACTERS_MAX:
        limit = "EXPRESSIONS_CHARACTERS_MAX"
        raise LimitError(limit, EXPRESSIONS_CHARACTERS_MAX, characters)
    bounds = [_truth(each, f"[{n}]", 1).true for n, each in enumerate(listed)]
    asked = [_truth(each, "", 1).true for each in before]
    found = filter_set(kleene.all_of(asked + bounds).condition)
    left = [each for each, bound in zip(listed, bounds, strict=True) if not bound.exact]
    if not left:
        return Rule(name, found)
    residue = FiltersResidue(left, {text: cesql.read(text) for text in _expressions_in(left)})
    return Rule(name, found, json.dumps(left, ensure_ascii=False), residue)


def filters(given: str | bytes | list[Any] | Mapping[str, Any]) -> FilterSet:
    """Returns the filters of a subscription. Raises as `read`, and if a residue remains."""
    return read(given).exact_filters(DIALECT)


def _subscription_conditions(subscription: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the conditions of a subscription besides its filters, as filters."""
    source, types = subscription.get("source"), subscription.get("types")
    if source is not None:
        if not isinstance(source, str) or not source:
            refuse(SOURCE, source, "source")
        yield {"exact": {"source": source}}
    if types is not None:
        if not isinstance(types, list) or not all(isinstance(t, str) and t for t in types):
            refuse(TYPES, types, "types")
        if types:
            yield {"any": [{"exact": {"type": each}} for each in types]}


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file: one subscription or array of filters, or one per line.

    A rule without an `id` has the number of its line as name, a single one no name.
    """
    lines = json_lines(text)
    if not lines:
        yield read_or_refuse("", partial(read, text))
    for number, line in lines.items():
        yield read_or_refuse(str(number), partial(read, line, str(number)))


@dataclass(frozen=True, slots=True)
class FiltersResidue:
    """Filters of a subscription that are evaluated directly."""

    filters: list[Any]
    expressions: dict[str, Rule]
    """The rules of the filters' CESQL expressions."""

    def __call__(self, notification: Notification) -> bool:
        """Whether all filters are true of an event."""
        return all(self._is_true(each, notification) for each in self.filters)

    def _is_true(self, content: dict[str, Any], notification: Notification) -> bool:
        [(dialect, inner)] = content.items()
        match dialect:
            case "all":
                return all(self._is_true(each, notification) for each in inner)
            case "any":
                return any(self._is_true(each, notification) for each in inner)
            case "not":
                return not self._is_true(inner, notification)
            case "sql":
                return self.expressions[inner].matches(notification)
        compare, _ = _ON_TEXT[dialect]
        texts = ((text_of(notification, name), wanted) for name, wanted in inner.items())
        return all(text is not None and compare(text, wanted) for text, wanted in texts)


def text_of(notification: Notification, name: str) -> str | None:
    """Returns an attribute's text; None if absent, or if no event can have its value."""
    [(domain, value), *more] = notification.keys_of(name)
    if more:
        return None
    if domain == TEXT and isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if domain == NUMBER and isinstance(value, int) and INTEGER_FIRST <= value <= INTEGER_LAST:
        return str(value)
    return str(value).lower() if domain == BOOL else None


def refuse(reason: str, found: object, place: str) -> NoReturn:
    """Raises RefusedRuleError of this dialect, with a place in the filters."""
    raise RefusedRuleError(DIALECT, reason, found, place)


def _truth(content: object, place: str, depth: int) -> kleene.Truth:
    check_depth(depth)
    if not isinstance(content, dict):
        refuse(NO_FILTERS, content, place)
    if len(content) != 1:
        refuse(ONE_DIALECT, content, place)
    [(dialect, inner)] = content.items()
    place = f"{place}.{dialect}"
    if dialect in _ON_TEXT:
        return _compare(dialect, inner, place)
    if dialect == "sql":
        return _expression(inner, place)
    if dialect == "not":
        if not isinstance(inner, dict):
            refuse(ONE_FILTER, inner, place)
        return _truth(inner, place, depth + 1).inverse()
    if dialect not in ("all", "any"):
        refuse(UNKNOWN, dialect, place)
    if not isinstance(inner, list) or not inner:
        refuse(SEVERAL, inner, place)
    parts = [_truth(each, f"{place}[{n}]", depth + 1) for n, each in enumerate(inner)]
    return kleene.conjunction(parts) if dialect == "all" else kleene.disjunction(parts)


def _compare(dialect: str, inner: object, place: str) -> kleene.Truth:
    if not isinstance(inner, dict) or not inner:
        refuse(ATTRIBUTES, inner, place)
    truths = []
    for name, text in inner.items():
        if not NAME.fullmatch(name) or name == DATA or not isinstance(text, str) or not text:
            refuse(ATTRIBUTES, {name: text}, place)
        try:
            key_of(text)
        except InvalidValueError:
            refuse(ATTRIBUTES, text, place)
        surely, perhaps = accepted_sets(name, dialect, text)
        exact = perhaps is surely
        sides = kleene.member(name, perhaps, exact), kleene.member(name, ~surely, exact)
        truths.append(kleene.Truth(*sides, kleene.any_of(sides)))
    return kleene.conjunction(truths)


def accepted_sets(name: str, dialect: str, text: str) -> tuple[ValueSet, ValueSet]:
    """Returns the values that `exact`, `prefix` or `suffix` certainly accept, and those that they
    may accept; the same object if exact.
    """
    integers = _with_beginning(text) if dialect == "prefix" else (_integer(text),)
    compare, accept = _ON_TEXT[dialect]
    bools = (sets.eq(value) for shown, value in _BOOLS if compare(shown, text))
    surely = union((accept(text), *bools, *integers))
    if name in TEXTS:
        surely &= sets.prefix("")
    # Only digits end many integers; with a sign before them the text is one whole integer.
    elif dialect == "suffix" and _DIGITS.fullmatch(text):
        return surely, surely | INTEGERS
    return surely, surely


def _expressions_in(content: object) -> Iterator[str]:
    """Yields the texts of all CESQL expressions in filters, also in invalid ones."""
    waiting = [content]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            for dialect, inner in each.items():
                if dialect == "sql" and isinstance(inner, str):
                    yield inner
                elif dialect in ("all", "any", "not"):
                    waiting.append(inner)


def _expression(inner: object, place: str) -> kleene.Truth:
    """Returns the truth of an expression; with a residue its false cases are unknown."""
    if not isinstance(inner, str):
        refuse(SQL, inner, place)
    try:
        rule = cesql.read(inner)
    except RefusedRuleError as error:
        within = f"{place}, {error.place}" if error.place else place
        raise RefusedRuleError(error.dialect, error.reason, error.found, within) from error
    conjunctions = (tuple(starmap(Member, each.sets.items())) for each in rule.filters)
    true = kleene.Bound(Or(tuple(map(And, conjunctions))))
    if rule.residue_holds is None:
        return kleene.certain(true)
    return kleene.Truth(true.loose(), kleene.ALWAYS.loose(), kleene.ALWAYS)


def _integer(text: str) -> ValueSet:
    return sets.eq(int(text)) & INTEGERS if _is_integer(text) else NOTHING


def _is_integer(text: str) -> bool:
    return len(text) <= _INTEGER_CHARACTERS and _INTEGER.fullmatch(text) is not None


def _with_beginning(text: str) -> Iterator[ValueSet]:
    """Yields the integers with this beginning: an interval for each number of further digits."""
    if text == "-":
        yield sets.lt(0) & INTEGERS
    elif text == "0":
        yield sets.eq(0)
    elif _is_integer(text):
        first, sign = abs(int(text)), -1 if text[0] == "-" else 1
        for size in (10**digits for digits in range(_INTEGER_CHARACTERS)):
            low, high = sorted((sign * first * size, sign * ((first + 1) * size - 1)))
            if low <= INTEGER_LAST and high >= INTEGER_FIRST:
                yield sets.between(max(low, INTEGER_FIRST), min(high, INTEGER_LAST))


# --- filters to those of a subscription -----------------------------------------------------------

UNSAYABLE: Final = "no filters of a subscription express this set"
UNSAYABLE_NAME: Final = "no attribute of a CloudEvent has this name"
MATCHES_NOTHING: Final = "no event matches"

_ANY_TEXT: Final = sets.prefix("") | ABSENT
_ANY: Final = _ANY_TEXT | sets.in_(True, False) | INTEGERS
_DIALECTS: Final = {"=": "exact", "prefix": "prefix", "suffix": "suffix"}


def filters_of(filters: Filter | FilterSet) -> list[dict[str, Any]]:
    """Returns the filters of an equal subscription, none if all pass. Raises RefusedRuleError.

    They are equal for all CloudEvents, with attributes of text, integers and bools, one value each.
    """
    members = (filters,) if isinstance(filters, Filter) else filters.filters
    conditions = [_conjunction(each) for each in members if not each.is_empty]
    if not conditions:
        refuse(MATCHES_NOTHING, str(filters), "")
    if len(conditions) == 1:
        return conditions[0]
    if not all(conditions):
        return []
    return [{"any": [_join("all", each) for each in conditions]}]


def _conjunction(member: Filter) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = []
    for name, values in member.sets.items():
        if not NAME.fullmatch(name) or name == DATA:
            refuse(UNSAYABLE_NAME, name, name)
        possible = _ANY_TEXT if name in TEXTS else _ANY
        outside = possible - values
        if not outside.is_empty:
            conditions.append(_attribute(name, values & possible, outside))
    return conditions


def _attribute(name: str, inside: ValueSet, outside: ValueSet) -> dict[str, Any]:
    with suppress(NoPartsError):
        if not inside.holds(ABSENT_KEY):
            return _alternatives(name, inside)
    try:
        present = outside & PRESENT
        if outside.holds(ABSENT_KEY):
            exists = _exists(name)
            without = [] if present.is_empty else [{"not": _alternatives(name, present)}]
            return _join("all", [exists, *without])
        if outside == (_ANY_TEXT if name in TEXTS else _ANY) & PRESENT:
            return {"not": _exists(name)}
        return {"not": _alternatives(name, outside)}
    except (NoPartsError, RefusedRuleError):
        refuse(UNSAYABLE, str(inside), name)


def _exists(name: str) -> dict[str, Any]:
    """Returns the existence of an attribute, which only CESQL has, and not for every name."""
    expression = f"EXISTS {name}"
    if cesql.read(expression).filters != FilterSet([Filter({name: PRESENT})]):
        raise NoPartsError
    return {"sql": expression}


def _alternatives(name: str, values: ValueSet) -> dict[str, Any]:
    """Returns alternative filters on an attribute; they must cover its integers and bools, too."""
    parts = [(_DIALECTS.get(part.operator, ""), part.text) for part in text_parts(values)]
    if not parts or not all(dialect and text for dialect, text in parts):
        raise NoPartsError
    accepted = [accepted_sets(name, *part) for part in parts]
    is_exact = all(surely is perhaps for surely, perhaps in accepted)
    if not is_exact or union(surely for surely, _ in accepted) != values:
        raise NoPartsError
    return _join("any", [{dialect: {name: text}} for dialect, text in parts])


def _join(dialect: str, filters: list[dict[str, Any]]) -> dict[str, Any]:
    return filters[0] if len(filters) == 1 else {dialect: filters}
