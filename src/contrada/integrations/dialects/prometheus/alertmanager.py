"""Routes, silences and inhibitions of Alertmanager to rules over alerts.

A notification is an alert: its labels by their names; an absent label is the empty text. A rule of
a *route* matches the alerts that it handles: those of its parent that its matchers hold for, unless
an earlier route beside it takes them (without `continue`) or a route below it does. Its name is its
receiver. A *silence* has its id as name. An *inhibition* gives two rules, of the alerts that are
its source and its target; the labels that must be `equal` compare two alerts, so a note has them.

Source: Prometheus 3's documentation, Alertmanager: configuration, matchers, silences.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.integrations.dialects.prometheus.promql import label_of, label_values, text_of
from contrada.integrations.dialects.yaml_documents import rules_of_documents
from contrada.model.algebra.expression import TRUE, And, Formula, Member, negation
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.rule import Note, RefusedRule, Rule, only_rule, read_or_refuse, require_text

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "alertmanager"

ROUTES_MAX: Final = 1_000
"""Routes of a configuration of Alertmanager, whose conditions exclude each other. Beyond it: the
configuration is refused."""

NO_RULES: Final = "no route, silence or inhibition"
MATCHER: Final = "a matcher that cannot be read"
ROUTES: Final = "routes that are no list of maps"
RECEIVER: Final = "a route without a receiver"
EQUAL: Final = "labels that must be equal in both alerts"
TIMES: Final = "times at which a route is muted or active"

_MATCHER: Final = re.compile(
    r'\s*(?P<name>[a-zA-Z_:][\w:]*|"(?:[^"\\]|\\.)*+")\s*(?P<how>=~|!~|!=|=)\s*'
    r'(?P<value>"(?:[^"\\]|\\.)*+"|[^\s,"{}][^,"{}]*?)\s*(?:,|\Z)',
    re.ASCII,
)


def read(text: str) -> Rule:
    """Returns the rule of a text that has one. Raises RefusedRuleError, and LimitError."""
    return only_rule(DIALECT, read_rules(require_text(DIALECT, text)))


def filters(text: str) -> FilterSet:
    """Returns the filters of a text with one rule. Raises as `read`."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Returns the rules of a configuration in YAML, or of silences in JSON as `amtool silence query
    -o json` prints them. Cost: linear, and of routes the square of those beside each other; plus
    the filters, see `model.algebra.filter.filter_set`.
    """
    return map(_own, rules_of_documents(DIALECT, text, _rules_of, NO_RULES))


def _rules_of(document: Any) -> Iterator[Rule | RefusedRule]:
    for each in document if isinstance(document, list) else ():
        if isinstance(each, dict) and isinstance(each.get("matchers"), list):
            name = str(each.get("id", ""))
            about = {"title": each["comment"]} if isinstance(each.get("comment"), str) else {}
            yield _rule(name, partial(_silence, each["matchers"]), about=about)
    if not isinstance(document, dict):
        return
    if isinstance(document.get("route"), dict):
        if (routes := _count_routes(document["route"])) > ROUTES_MAX:
            raise LimitError("ROUTES_MAX", ROUTES_MAX, routes)
        yield from _routes(document["route"], TRUE, "")
    inhibited = document.get("inhibit_rules")
    for number, each in enumerate(inhibited if isinstance(inhibited, list) else (), start=1):
        equal = each.get("equal") if isinstance(each, dict) else None
        notes = (Note(EQUAL, ", ".join(map(str, equal))),) if isinstance(equal, list) else ()
        for side in ("source", "target"):
            name = f"inhibition {number} {side}"
            yield _rule(name, partial(_matchers, each, f"{side}_"), notes=notes)


def _rule(name: str, condition: Callable[[], Formula], **parts: Any) -> Rule | RefusedRule:
    return read_or_refuse(name, lambda: Rule(name, filter_set(condition()), **parts))


def _own(rule: Rule | RefusedRule) -> Rule | RefusedRule:
    """Returns a refusal of a matcher, which queries of Prometheus share, as one of Alertmanager."""
    if isinstance(rule, RefusedRule) and isinstance(rule.error, RefusedRuleError):
        error = rule.error
        own = RefusedRuleError(DIALECT, error.reason, error.found, error.place)
        return RefusedRule(rule.name, own)
    return rule


def _count_routes(route: dict[Any, Any]) -> int:
    return 1 + sum(map(_count_routes, _below(route)))


def _below(route: dict[Any, Any]) -> list[dict[Any, Any]]:
    routes = route.get("routes") or []
    if not isinstance(routes, list) or not all(isinstance(each, dict) for each in routes):
        raise RefusedRuleError(DIALECT, ROUTES, routes)
    return routes


def _routes(route: dict[Any, Any], around: Formula, receiver: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a route and of those below it, in order; `around` is the condition of
    its alerts without its own matchers. A malformed matcher refuses the route and those below.
    """
    receiver = str(route.get("receiver") or receiver)
    try:
        if not receiver:
            raise RefusedRuleError(DIALECT, RECEIVER)
        mine = And((around, _matchers(route, "")))
        below = _below(route)
        others = [negation(_matchers(each, "")) for each in below]
    except ContradaError as error:
        yield RefusedRule(receiver, error)
        return
    times = [key for key in ("mute_time_intervals", "active_time_intervals") if key in route]
    notes = tuple(Note(TIMES, each) for each in times)
    yield _rule(receiver, partial(And, (mine, *others)), notes=notes)
    left: list[Formula] = [mine]
    for each, other in zip(below, others, strict=True):
        yield from _routes(each, And(tuple(left)), receiver)
        if each.get("continue") is not True:
            left.append(other)


def _matchers(of: Any, prefix: str) -> Formula:
    """Returns the condition of the matchers of a route, or of one side of an inhibition."""
    if not isinstance(of, dict):
        raise RefusedRuleError(DIALECT, MATCHER, of)
    parts: list[Formula] = []
    for key, how in ((f"{prefix}match", "="), (f"{prefix}match_re", "=~")):
        labels = of.get(key) or {}
        if not isinstance(labels, dict):
            raise RefusedRuleError(DIALECT, MATCHER, labels)
        for name, value in labels.items():
            parts.append(Member(label_of(str(name)), label_values(how, str(value))))
    given = of.get(f"{prefix}matchers") or []
    for text in given if isinstance(given, list) else [given]:
        parts += _written(text)
    return And(tuple(parts))


def _written(text: Any) -> Iterator[Formula]:
    """Yields the conditions of matchers such as `severity=~"page|warn", team=db`."""
    inner = text.strip() if isinstance(text, str) else ""
    inner = inner[1:-1].rstrip() if inner[:1] == "{" and inner[-1:] == "}" else inner
    at = 0
    while at < len(inner) or not inner:
        found = _MATCHER.match(inner, at)
        if found is None:
            raise RefusedRuleError(DIALECT, MATCHER, text)
        at = found.end()
        name, value = (text_of(each) if each[:1] == '"' else each for each in found.group(1, 3))
        yield Member(label_of(name), label_values(found["how"], value))


def _silence(matchers: list[Any]) -> Formula:
    parts: list[Formula] = []
    for each in matchers:
        if not isinstance(each, dict) or not isinstance(each.get("value"), str):
            raise RefusedRuleError(DIALECT, MATCHER, each)
        how = "=~" if each.get("isRegex") is True else "="
        values = label_values(how, each["value"])
        is_equal = each.get("isEqual", True) is True
        parts.append(Member(label_of(str(each.get("name", ""))), values if is_equal else ~values))
    return And(tuple(parts))
