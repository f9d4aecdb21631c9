"""`read_correlation`: Sigma's correlations of several events as patterns.

- `event_count` with `gte` or `gt`: a sequence of so many events that match one of the rules
- `temporal_ordered`: the sequence of the rules
- `temporal`: the rules in every order; one event may match several of them

A rule with several filters gives a pattern for each choice. Groups have the same values of
`group-by`, exactly; events without one of these fields take no part. Matches of one pattern have no
event in common. All else is refused: patterns have no upper bounds, count no distinct values, and
group by attributes of one name.

Source: Sigma specification 2.1.0, correlation rules.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from math import factorial, prod
from typing import Any, Final

from contrada.errors import LimitError
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_items import RuleState
from contrada.integrations.dialects.sigma.sigma_pipelines import ProcessingPipeline, ordered_steps
from contrada.integrations.dialects.sigma.sigma_refusals import field_name, refusal
from contrada.integrations.dialects.sigma.sigma_transformations import PipelineStep
from contrada.integrations.dialects.sigma.sigma_values import Spelling
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.pattern import PATTERN_PARTS_MAX, Pattern
from contrada.model.algebra.value_set import PRESENT
from contrada.model.domains.values import INT_MAX

CORRELATION_PATTERNS_MAX: Final = 1_000
"""Patterns of a Sigma correlation. Beyond it: the correlation is refused."""

CORRELATED_RULES_MAX: Final = 5
"""Rules of a Sigma correlation `temporal`. Beyond it: the correlation is refused."""

_KEYS: Final = ("type", "rules", "group-by", "timespan", "aliases", "condition", "generate")
_TIMESPAN: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_REASONS: Final = {
    "value_count": "distinct values, which patterns do not count",
    **dict.fromkeys(("value_sum", "value_avg", "value_percentile"), "statistics of values"),
}


def related_names(document: Mapping[Any, Any]) -> list[str]:
    """Returns the names and ids of the rules that a correlation refers to. Raises
    RefusedRuleError.
    """
    given = document["correlation"]
    if not isinstance(given, dict):
        raise refusal(refusals.CORRELATION, given, "correlation")
    names = given.get("rules")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise refusal(refusals.CORRELATION, names, "correlation.rules")
    if len({*names}) < len(names):
        raise refusal(refusals.CORRELATION, names, "correlation.rules")
    return names


def read_correlation(
    document: Mapping[Any, Any],
    filters: Mapping[str, FilterSet],
    sources: Sequence[LogSource],
    pipelines: Sequence[ProcessingPipeline],
) -> tuple[tuple[Pattern, ...], FilterSet]:
    """Returns the patterns of a correlation, and the filters of events that match it alone.

    `filters` are those of the rules that it refers to, in order, `sources` their log sources.
    Raises RefusedRuleError with the place, and LimitError.
    """
    given = document["correlation"]
    for key in given:
        if key not in _KEYS:
            raise refusal(refusals.CORRELATION, key, "correlation")
    within_us = _within_us(given.get("timespan"))
    renamed = partial(_renamed, document, sources, ordered_steps(pipelines))
    by = _group_by(given, [*filters], renamed)
    kind = given.get("type")
    parts: list[list[FilterSet]]
    if kind == "event_count":
        union = FilterSet(filters.values())
        parts = [[union] * _least(given.get("condition"), PATTERN_PARTS_MAX)]
    elif kind in ("temporal", "temporal_ordered"):
        condition = given.get("condition")
        if condition is not None and _least(condition, len(filters)) != len(filters):
            raise refusal(refusals.COUNT, condition, "correlation.condition")
        parts = [[*filters.values()]]
        if kind == "temporal":
            if len(filters) > CORRELATED_RULES_MAX:
                raise LimitError("CORRELATED_RULES_MAX", CORRELATED_RULES_MAX, len(filters))
            sizes = (max(1, len(each)) for each in filters.values())
            _check_number(factorial(len(filters)) * prod(sizes))
            parts = list(_orders(parts[0]))
    else:
        raise refusal(refusals.CORRELATION_TYPE, _REASONS.get(str(kind), kind), "correlation.type")
    _check_number(sum(prod(len(part) for part in each) for each in parts))
    grouped = Filter(dict.fromkeys(by, PRESENT))
    alone = [each & grouped for sets in parts if len(sets) == 1 for each in sets[0]]
    patterns = (
        Pattern(chosen, by=by, within_us=within_us)
        for sets in parts
        if len(sets) > 1
        for chosen in product(*sets)
    )
    return tuple(patterns), FilterSet(alone)


def _check_number(patterns: int) -> None:
    """Raises LimitError for too many patterns; without common events, before they are made."""
    if patterns > CORRELATION_PATTERNS_MAX:
        raise LimitError("CORRELATION_PATTERNS_MAX", CORRELATION_PATTERNS_MAX, patterns)


def _orders(rules: Sequence[FilterSet]) -> Iterator[list[FilterSet]]:
    """Yields every order of the rules; some of them may match the same event."""
    if not rules:
        yield []
    for size in range(1, len(rules) + 1):
        for first in combinations(range(len(rules)), size):
            common = FilterSet([Filter({})])
            for number in first:
                common = FilterSet([a & b for a in common for b in rules[number]])
            common = FilterSet([each for each in common if not each.is_empty])
            if common.filters:
                rest = [rule for number, rule in enumerate(rules) if number not in first]
                yield from ([common, *order] for order in _orders(rest))


def _least(condition: object, most: int) -> int:
    """Returns the smallest count that a condition accepts. Raises RefusedRuleError for others."""
    place = "correlation.condition"
    if not isinstance(condition, dict) or len(condition) != 1:
        raise refusal(refusals.COUNT, condition, place)
    operator, count = next(iter(condition.items()))
    if operator not in ("gte", "gt") or not isinstance(count, int) or isinstance(count, bool):
        raise refusal(refusals.COUNT, condition, place)
    least: int = count + (operator == "gt")
    if not 1 <= least <= most:
        raise refusal(refusals.COUNT, f"{condition}, expected 1 to {most}", place)
    return least


def _within_us(timespan: object) -> int:
    found = _TIMESPAN.fullmatch(timespan) if isinstance(timespan, str) else None
    within_us = int(found[1]) * _SECONDS[found[2]] * 1_000_000 if found else INT_MAX + 1
    if within_us > INT_MAX:
        raise refusal(refusals.TIMESPAN, timespan, "correlation.timespan")
    return within_us


def _group_by(
    given: Mapping[Any, Any], rules: list[str], renamed: Callable[[str], list[str]]
) -> list[str]:
    """Returns the attributes of groups. Raises RefusedRuleError where they differ by rule."""
    fields, aliases = given.get("group-by", []), given.get("aliases", {})
    if not isinstance(fields, list) or not all(isinstance(each, str) for each in fields):
        raise refusal(refusals.CORRELATION, fields, "correlation.group-by")
    if not isinstance(aliases, dict):
        raise refusal(refusals.CORRELATION, aliases, "correlation.aliases")
    by = []
    for field in fields:
        place = "correlation.group-by"
        names = {field}
        if field in aliases:
            place = f"correlation.aliases.{field}"
            table = aliases[field]
            if not isinstance(table, dict) or {*table} != {*rules}:
                raise refusal(refusals.CORRELATION, table, place)
            names = {str(each) for each in table.values()}
        found = sorted({each for name in names for each in renamed(name)})
        if len(found) != 1:
            raise refusal(refusals.ALIASES, found, place)
        by.append(field_name(found[0], place))
    return by


def _renamed(
    document: Mapping[Any, Any],
    sources: Sequence[LogSource],
    steps: Sequence[PipelineStep],
    field: str,
) -> list[str]:
    """Returns the names that pipelines give to a field. Raises RefusedRuleError, if one refuses."""
    state = RuleState(document, LogSource(), Spelling({}), is_correlation=True, sources=sources)
    found = [field]
    for step in steps:
        found = [name for each in found for name in step.names(each, state)]
        state.count_items(len(found))
        step.apply(state)
    return found
