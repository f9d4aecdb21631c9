"""Event patterns as filters, against rows, recorded cases and a direct evaluation."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from contrada.errors import LimitError, RefusedRuleError
from contrada.integrations.dialects import eventbridge
from contrada.integrations.dialects.eventbridge import array_residue, eventbridge_refusals
from contrada.integrations.dialects.json_text import NOT_JSON
from contrada.model import FilterSet, Notification
from contrada.model.languages.decision import safe_answers
from contrada.model.rule import RefusedRule, Rule, read_or_refuse
from tests.integrations.dialects import eventbridge_naive
from tests.integrations.dialects.eventbridge_strategies import (
    ELEMENT_CASES,
    EVENTS,
    OR_CASES,
    PATTERNS,
    VALUE_CASES,
    Case,
)
from tests.strategies import more

ROWS_PATH = Path(__file__).parents[2] / "conformance" / "dialects" / "eventbridge.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(row) for row in ROWS_PATH.read_text("utf-8").splitlines()]


def answer(pattern: dict[str, Any], event: dict[str, Any]) -> str:
    """The recorded answer for a pattern and an event."""
    try:
        rule = eventbridge.read(pattern)
    except RefusedRuleError:
        return "refused"
    found = any(rule.matches(each) for each in eventbridge.notifications(event))
    return "match" if found else "no match"


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{n} {row['source']}") for n, row in enumerate(ROWS, start=1)]
)
def test_patterns_match_as_the_rows(row: dict[str, Any]) -> None:
    """A pattern of AWS would match other events here, or be refused."""
    assert answer(row["pattern"], row["event"]) == row["expected"]
    assert (row["aws"] != row["expected"]) == ("why" in row)


def test_patterns_match_as_recorded(shared_data: Callable[..., Path]) -> None:
    """A case that was recorded against AWS itself would be answered otherwise."""
    path = shared_data("eventbridge_patterns", "event_pattern_cases.jsonl")
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    words = {"match": "match", "no_match": "no match", "invalid_pattern": "refused"}
    wrong = [
        case["name"]
        for case in cases
        if answer(case["pattern"], case["event"]) != words[case["expected"]]
    ]
    assert (wrong, len(cases)) == ([], 108)


def has_content(pattern: dict[str, Any]) -> bool:
    """Whether an alternative constrains a field and the content of the same field."""
    return any(
        other.startswith(f"{name}.")
        for fields in eventbridge_naive.alternatives(pattern, "")
        for name in fields
        for other in fields
    )


def check_against_the_pattern(case: Case) -> None:
    """Compares filters and notifications with the pattern and the event themselves."""
    pattern, event = case
    rule = read_or_refuse("", lambda: eventbridge.read(pattern))
    if isinstance(rule, RefusedRule):
        assert rule.reason == eventbridge_refusals.TWICE
        return
    found = eventbridge.matches(rule, event)
    assert found is eventbridge_naive.matches(pattern, event)
    given = eventbridge.notifications(event)
    assert found is any(map(rule.matches, given))
    assert found <= any(map(rule.filters.matches, given))
    assert bool(rule.residue) <= ('"exists": false' in json.dumps(pattern) or has_content(pattern))
    assert found is pickle.loads(pickle.dumps(rule)).matches(given[0]) or len(given) > 1


@more(10)
@given(VALUE_CASES)
def test_match_expressions_accept_the_right_values(case: Case) -> None:
    """A value would be accepted that the match expression does not accept, or not."""
    check_against_the_pattern(case)


@pytest.mark.slow
@more(10)
@given(ELEMENT_CASES)
def test_fields_of_different_elements_are_not_combined(case: Case) -> None:
    """A pattern would match fields of several elements, or miss those of one."""
    check_against_the_pattern(case)


@more(5)
@given(OR_CASES)
def test_alternatives_beside_one_another_all_hold(case: Case) -> None:
    """Of several `$or` only one would have to hold, or values of an array be mixed up."""
    check_against_the_pattern(case)


@given(PATTERNS, EVENTS)
def test_filters_match_as_the_pattern_does(pattern: dict[str, Any], event: dict[str, Any]) -> None:
    """A translated pattern would match other events than the pattern itself."""
    check_against_the_pattern((pattern, event))


@pytest.mark.parametrize(
    ("pattern", "reason", "place"),
    [
        ("{", NOT_JSON, ""),
        ("[1]", eventbridge_refusals.NO_OBJECT, ""),
        ('{"a": [1], "a": [2]}', NOT_JSON, ""),
        ('{"a": [0.10000000000000000001]}', eventbridge_refusals.INEXACT, "a"),
        ('{"a": {"b": [{"numeric": ["<", 1e-400]}]}}', eventbridge_refusals.INEXACT, "a.b"),
        (
            '{"a": [{"anything-but": [1, 1.00000000000000000001]}]}',
            eventbridge_refusals.INEXACT,
            "a",
        ),
        ('{"a": 1e-400}', eventbridge_refusals.FIELD, "a"),
        ('{"a": [' + "9" * 500 + "]}", eventbridge_refusals.INEXACT, "a"),
        ('{"a": [' + "9" * 350 + "]}", eventbridge_refusals.INEXACT, "a"),
        ('{"a": [NaN]}', NOT_JSON, ""),
        ('{"a": [1e400]}', eventbridge_refusals.INEXACT, "a"),
        ('{"a": ["\\ud800"]}', eventbridge_refusals.NOT_TEXT, "a"),
        ('{"a": [123456789012345678901234567890]}', eventbridge_refusals.INEXACT, "a"),
        ('{"a": [{"anything-but": 18446744073709551617}]}', eventbridge_refusals.INEXACT, "a"),
        ('{"a": {"b": {}}}', eventbridge_refusals.EMPTY_OBJECT, "a.b"),
        ('{"a": {"b": 1}}', eventbridge_refusals.FIELD, "a.b"),
        ('{"a": {"b": []}}', eventbridge_refusals.EMPTY_ARRAY, "a.b"),
        ('{"a.b": [1], "a": {"b": [1]}}', eventbridge_refusals.TWICE, "a.b"),
        ('{"$or": [{"a": [1]}, {"b": [1]}], "b": [2]}', eventbridge_refusals.TWICE, "b"),
        ('{"x": {"$or": [{"a": [1]}]}}', eventbridge_refusals.OR, "x"),
        ('{"@time": [1]}', eventbridge_refusals.NAME, "@time"),
        ('{"": [1]}', eventbridge_refusals.NAME, ""),
        ('{"a": [{"prefix": 1}]}', eventbridge_refusals.STRING, "a"),
        ('{"a": [{"cidr": "10.0.0.1"}]}', eventbridge_refusals.CIDR, "a"),
        ('{"a": [{"cidr": "fe80::1%eth0/64"}]}', eventbridge_refusals.CIDR, "a"),
        ('{"a": [{"wildcard": "**"}]}', eventbridge_refusals.WILDCARD, "a"),
    ],
)
def test_refusals_have_a_reason_and_a_place(pattern: str, reason: str, place: str) -> None:
    """The author of the pattern would not know the part to change."""
    with pytest.raises(RefusedRuleError) as refused:
        eventbridge.read(pattern)
    assert (refused.value.reason, refused.value.place) == (reason, place)


def test_a_thousand_values_are_one_filter() -> None:
    """A long list of values would become as many filters."""
    values = [f"v{n}" for n in range(1_000)] + [{"prefix": f"p{n}"} for n in range(1_000)]
    assert len(eventbridge.read({"a": values, "b": [{"anything-but": values[:500]}]}).filters) == 1


def nested(times: int) -> str:
    return '{"$or": [{"a": [1]}, ' * times + '{"b": [1]}' + "]}" * times


def test_nested_alternatives_are_refused_beyond_a_depth() -> None:
    """A pattern of some kilobytes could end the process."""
    assert len(eventbridge.read(nested(30)).filters) == 2
    for times in (1_000, 100_000):
        with pytest.raises(LimitError) as refused:
            eventbridge.read(nested(times))
        assert refused.value.limit == "JSON_DEPTH_MAX"


@pytest.mark.slow
def test_alternatives_that_multiply_are_refused() -> None:
    """A pattern of some kilobytes could fill the memory with filters."""
    choices = {f"f{n}": {"$or": [{"a": [1]}, {"b": [1]}]} for n in range(40)}
    with pytest.raises(LimitError) as refused:
        eventbridge.read(choices)
    assert refused.value.limit == "CONJUNCTIONS_MAX"


def test_wildcards_that_explode_elsewhere_do_not() -> None:
    """A pattern with many stars could take for ever on one event."""
    rule = eventbridge.read({"a": [{"wildcard": "a*" * 500 + "b"}]})
    [yes] = eventbridge.notifications({"a": "a" * 20_000 + "b"})
    [no] = eventbridge.notifications({"a": "a" * 20_000})
    assert rule.matches(yes)
    assert not rule.matches(no)


PATTERN = {"a": [1]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps(PATTERN), [""]),
        (json.dumps([PATTERN, PATTERN]), ["1", "2"]),
        (f"{json.dumps(PATTERN)}\n\n{json.dumps(PATTERN)}\n", ["1", "2"]),
        (json.dumps({"Name": "n", "EventPattern": json.dumps(PATTERN)}), ["n"]),
        (json.dumps({"Rules": [{"Name": "n", "EventPattern": PATTERN}]}), ["n"]),
    ],
)
def test_files_of_rules_are_read(text: str, names: list[str]) -> None:
    """Rules as they are kept or listed could not be read."""
    rules = list(eventbridge.read_rules(text))
    assert all(isinstance(rule, Rule) for rule in rules)
    assert [rule.name for rule in rules] == names
    assert {str(rule.filters) for rule in rules if isinstance(rule, Rule)} == {"a = 1"}


def test_refused_rules_of_a_file_do_not_stop_the_others() -> None:
    """One bad rule would hide all others."""
    lines = ['{"a": 1}', json.dumps(PATTERN), "{", '{"Name": "timer"}', "5", '{"Name": "x"']
    rules = list(eventbridge.read_rules("\n".join(lines)))
    assert [rule.reason if isinstance(rule, RefusedRule) else "" for rule in rules] == [
        eventbridge_refusals.FIELD,
        "",
        NOT_JSON,
        eventbridge_refusals.NO_PATTERN,
        eventbridge_refusals.NO_OBJECT,
        NOT_JSON,
    ]
    assert [rule.name for rule in rules] == ["1", "2", "3", "timer", "5", "6"]


def test_a_text_that_is_no_file_of_rules_is_refused_once() -> None:
    """A faulty text would raise an error, or be skipped."""
    for text in ("", "{", "[", "[" * 100_000):
        [refused] = eventbridge.read_rules(text)
        assert isinstance(refused, RefusedRule)


def test_alternatives_become_filters() -> None:
    """A pattern would differ from its plain reading."""
    rule = eventbridge.read(
        '{"source": ["x"], "$or": [{"d": {"n": [{"numeric": [">", 0, "<=", 5]}]}}, {"e": [null]}]}'
    )
    expected = "d.n > 0 and d.n <= 5 and source = 'x' or e = null and source = 'x'"
    assert rule.filters == FilterSet(expected)


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ({"a": [0.1]}, '{"a": 0.1000000000000000055511151231257827}', False),
        ({"a": [{"anything-but": 0.1}]}, '{"a": 0.1000000000000000055511151231257827}', True),
        ({"a": [{"numeric": [">", 5]}]}, '{"a": 1180591620717411303425}', False),
        ({"b": [1]}, '{"a": 1180591620717411303425, "b": 1}', True),
        ({"b": [1]}, '{"a": 1e400, "b": 1}', True),
        ({"b": [1]}, {"a": 2**70 + 1, "b": 1}, True),
        ({"a": [{"exists": True}]}, {"a": 2**70 + 1}, True),
        ('{"a": ["x"]}', b'{"a": "x"}', True),
    ],
)
def test_one_call_matches_an_event(pattern: Any, event: Any, expected: bool) -> None:
    """A number would be taken for a near one, or refuse its event."""
    assert eventbridge.matches(pattern, event) is expected
    assert eventbridge.matches(eventbridge.read(pattern), event) is expected


def test_absence_is_decided_also_without_an_event() -> None:
    """A notification that was published by hand would not match a pattern of absence."""
    rule = eventbridge.read({"a": {"b": [{"exists": False}], "c": [1]}})
    assert rule.residue
    assert rule.matches(Notification({"a.c": 1}))
    assert not rule.matches(Notification({"a.c": 1, "a.b": 2}))
    for body in (b"[1]", b"{", b"{}"):
        given = Notification({"a.c": 1}, body=body, content_type="application/json")
        assert rule.matches(given) is (body != b"{}"), "the event itself decides"
    assert not eventbridge.read({"a": [{"exists": False}], "b": {"c": [1]}}).residue


def test_choices_of_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body could be made that takes time without bound."""
    monkeypatch.setattr(array_residue, "VALUES_TRIED_MAX", 1_000)
    names = [f"a{n}" for n in range(20)]
    pattern = {name: {"x": [{"exists": True}]} for name in names} | {
        "z": {"y": [{"exists": False}]}
    }
    event = {name: [{"x": 1}, {"x": 2}] for name in names} | {"z": {"y": 1}}
    rule = eventbridge.read(pattern)
    attributes = {f"{name}.x": 1 for name in names}
    given = Notification(
        attributes, body=json.dumps(event).encode(), content_type="application/json"
    )
    before = safe_answers["eventbridge.arrays"]
    assert rule.matches(given)
    assert safe_answers["eventbridge.arrays"] == before + 1
