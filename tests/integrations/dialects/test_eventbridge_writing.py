"""Filters as event patterns."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import eventbridge
from contrada.integrations.dialects.eventbridge import eventbridge_refusals
from contrada.model import Filter, FilterSet
from tests import strategies
from tests.integrations.dialects.eventbridge_strategies import (
    ELEMENT_CASES,
    EVENTS,
    PATTERNS,
    VALUE_CASES,
    Case,
)
from tests.strategies import more


@pytest.mark.parametrize(
    ("filters", "pattern"),
    [
        ("a = 'x' and b.c = 5", {"a": ["x"], "b": {"c": [5]}}),
        ("a in ('x', 'y', 1, null, true)", {"a": [None, True, 1, "x", "y"]}),
        ("a > 0 and a <= 5", {"a": [{"numeric": [">", 0, "<=", 5]}]}),
        ("a < 1.5", {"a": [{"numeric": ["<", 1.5]}]}),
        ("a prefix 'x' and b suffix 'y'", {"a": [{"prefix": "x"}], "b": [{"suffix": "y"}]}),
        ("a (prefix 'x' | prefix 'y')", {"a": [{"prefix": "x"}, {"prefix": "y"}]}),
        ("a contains 'x*y'", {"a": [{"wildcard": "*x\\*y*"}]}),
        ("a wildcard 'x*\\\\?y*z'", {"a": [{"wildcard": "x*?y*z"}]}),
        ("a = nocase 'x'", {"a": [{"equals-ignore-case": "x"}]}),
        ("a suffix nocase 'x'", {"a": [{"suffix": {"equals-ignore-case": "x"}}]}),
        ("a cidr '10.0.0.0/8'", {"a": [{"cidr": "10.0.0.0/8"}]}),
        ("a = '::1'", {"a": [{"exactly": "::1"}]}),
        ("a any", {"a": [{"exists": True}]}),
        ("a absent", {"a": [{"exists": False}]}),
        ("a any but ('x')", {"a": [{"anything-but": ["x"]}]}),
        ("a any but (1, 2)", {"a": [{"anything-but": [1, 2]}]}),
        ("a none of ('x')", {"a": [{"exists": False}, {"anything-but": ["x"]}]}),
        (
            "a (~(prefix 'x' | suffix 'y' | absent))",
            {"a": [{"anything-but": {"wildcard": ["x*", "*y"]}}]},
        ),
        ("a = 1 and a.b = 2", {"a": [1], "a.b": [2]}),
        ("a = 1 or b = 2", {"$or": [{"a": [1]}, {"b": [2]}]}),
    ],
)
def test_filters_are_patterns(filters: str, pattern: dict[str, Any]) -> None:
    """A pattern would not be the one that a reader expects."""
    assert eventbridge.pattern_of(FilterSet(filters)) == pattern
    assert eventbridge.read(pattern).filters == FilterSet(filters)


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ("a matches /x+y/", eventbridge_refusals.UNSAYABLE),
        ("a contains nocase 'x'", eventbridge_refusals.UNSAYABLE),
        ("a wildcard 'x?'", eventbridge_refusals.UNSAYABLE),
        ("a prefix 'x' and a suffix 'y' and a != 'xy'", eventbridge_refusals.UNSAYABLE),
        ("a < 'x'", eventbridge_refusals.UNSAYABLE),
        ("a < 9223372036854775807", eventbridge_refusals.UNSAYABLE),
        ("a any but ('x', 1)", eventbridge_refusals.UNSAYABLE),
        ("a = x'ff'", eventbridge_refusals.UNSAYABLE),
        ("a cidr '10.0.0.1/32'", eventbridge_refusals.UNSAYABLE),
        ("a = @2026-11-20T09:30:00Z", eventbridge_refusals.MATCHES_NOTHING),
        ("a = 1 and a = 2", eventbridge_refusals.MATCHES_NOTHING),
        ("@publisher = 'x'", eventbridge_refusals.UNSAYABLE_NAME),
        ("prefix = 1 or b = 2", eventbridge_refusals.UNSAYABLE_NAME),
    ],
)
def test_filters_without_a_pattern_are_refused(filters: str, reason: str) -> None:
    """A pattern would match other events than the filter."""
    with pytest.raises(RefusedRuleError) as refused:
        eventbridge.pattern_of(FilterSet(filters))
    assert refused.value.reason == reason


def test_all_and_nothing_are_refused() -> None:
    """AWS has no pattern for them."""
    for filters in (Filter({}), FilterSet([]), FilterSet([Filter({}), Filter("a = 1")])):
        with pytest.raises(RefusedRuleError):
            eventbridge.pattern_of(filters)


def same(one: FilterSet, other: FilterSet, event: dict[str, Any]) -> bool:
    notifications = eventbridge.notifications(event)
    return any(map(one.matches, notifications)) is any(map(other.matches, notifications))


@more(3)
@given(st.one_of(VALUE_CASES, ELEMENT_CASES, st.tuples(PATTERNS, EVENTS)))
def test_patterns_survive_a_round_trip(case: Case) -> None:
    """A pattern that was read and written would match other events."""
    pattern, event = case
    try:
        filters = eventbridge.read(pattern).filters
        written = eventbridge.pattern_of(filters)
    except RefusedRuleError:
        return
    again = eventbridge.read(json.dumps(written)).filters
    assert same(filters, again, event)


@given(strategies.value_sets(), st.lists(EVENTS, max_size=3))
def test_any_set_is_written_or_refused(values: Any, events: list[dict[str, Any]]) -> None:
    """A set would become another pattern."""
    filters = FilterSet([Filter({"a": values})])
    try:
        written = eventbridge.pattern_of(filters)
    except RefusedRuleError:
        return
    again = eventbridge.read(json.dumps(written)).filters
    assert all(same(filters, again, event) for event in events)
