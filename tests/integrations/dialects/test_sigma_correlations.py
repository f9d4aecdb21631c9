"""Correlations of Sigma as patterns: against a direct evaluation, and what is refused."""

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.cli import main
from contrada.cli.rule_alerts import RuleAlerts
from contrada.errors import LimitError
from contrada.integrations.dialects import sigma
from contrada.integrations.dialects.correlation_matcher import CorrelationMatcher
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.model.domains.values import TIME_MAX_US
from contrada.model.rule import CorrelationRule, RefusedRule, Rule

RULES: Final[dict[str, Any]] = {"a": {"x": 1}, "b": {"y": 1}, "c": [{"x": 2}, {"y": 2}]}
"""Some of them can match the same event, and the last has two filters."""


def text_of(correlation: dict[str, Any], **more: Any) -> str:
    rules = [
        {"name": name, "id": f"id-{name}", "detection": {"s": each, "condition": "s"}}
        for name, each in RULES.items()
    ]
    return yaml.safe_dump_all([{"title": "t", "correlation": correlation, **more}, *rules])


def read(correlation: dict[str, Any], **more: Any) -> CorrelationRule | RefusedRule:
    [found] = [
        each for each in sigma.read_all(text_of(correlation), **more) if not isinstance(each, Rule)
    ]
    return found


def event(second: float, **attributes: Any) -> ct.Notification:
    return ct.Notification(attributes, envelope=ct.Envelope(time_us=int(second * 1_000_000)))


def holds(name: str, attributes: Any) -> bool:
    given = RULES[name] if isinstance(RULES[name], list) else [RULES[name]]
    return any(all(attributes.get(f) == v for f, v in each.items()) for each in given)


def is_in_span(correlation: dict[str, Any], events: list[tuple[int, dict[str, Any]]]) -> bool:
    """Whether some events of one group, within the timespan, satisfy the correlation."""
    rules, span = correlation["rules"], int(correlation["timespan"][:-1])
    chosen = (
        [each for each in events if any(holds(rule, each[1]) for rule in rules)]
        if correlation["type"] == "event_count"
        else events
    )
    grouped: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
    for each in chosen:
        key = tuple(each[1].get(field) for field in correlation["group-by"])
        if None not in key:
            grouped.setdefault(key, []).append(each)
    for group in grouped.values():
        for first, _ in group:
            window = [each for each in group if first <= each[0] <= first + span]
            if correlation["type"] == "event_count":
                if len(window) >= correlation["condition"]["gte"]:
                    return True
            elif any(
                all(holds(rule, each[1]) for rule, each in zip(rules, some, strict=True))
                and (correlation["type"] == "temporal" or is_rising([each[0] for each in some]))
                for some in product(window, repeat=len(rules))
            ):
                return True
    return False


def is_rising(times: list[int]) -> bool:
    return all(a < b for a, b in pairwise(times))


CORRELATIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(("event_count", "temporal", "temporal_ordered")),
        "rules": st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
        "group-by": st.sampled_from(([], ["host"], ["host", "user"])),
        "timespan": st.sampled_from(("1s", "3s", "9s")),
    }
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "x": st.integers(1, 2),
            "y": st.integers(1, 2),
            "host": st.sampled_from("pq"),
            "user": st.just("u"),
        },
    ),
    max_size=8,
)


@given(CORRELATIONS, st.integers(1, 4), EVENTS, st.booleans())
def test_a_correlation_matches_where_its_events_are_within_the_span(
    correlation: dict[str, Any], count: int, drawn: list[dict[str, Any]], is_live: bool
) -> None:
    """Events that satisfy a correlation would be missed, or others be reported."""
    if correlation["type"] == "event_count":
        correlation = {**correlation, "condition": {"gte": count}}
    rule = read(correlation)
    assert isinstance(rule, CorrelationRule)
    events = list(enumerate(drawn))
    matcher, arrived_us = CorrelationMatcher({"r": rule}), TIME_MAX_US if is_live else None
    found = [match for at, each in events for match in matcher.push(event(at, **each), arrived_us)]
    found += matcher.end()
    assert bool(found) is is_in_span(correlation, events)
    for name, run in found:
        assert name == "r"
        taken = [(each.envelope.at_us // 1_000_000, dict(each.attributes)) for each in run]
        assert is_in_span(correlation, taken)
        assert all(rule.asked.matches(each) for each in run)


VALID: Final[dict[str, Any]] = {
    "type": "event_count",
    "rules": ["a"],
    "group-by": ["host"],
    "timespan": "5m",
    "condition": {"gte": 3},
}


def test_rules_are_named_by_id_and_consumed_unless_generated() -> None:
    """The single events of a correlation would each be an alert, or none of them where asked."""
    correlation = {**VALID, "rules": ["id-a", "b"]}
    found = list(sigma.read_all(text_of(correlation)))
    assert [type(each) for each in found] == [CorrelationRule, Rule]
    assert isinstance(found[0], CorrelationRule)
    assert found[0].about == {"title": "t"}
    generated = list(sigma.read_all(text_of({**correlation, "generate": True})))
    assert [type(each) for each in generated] == [CorrelationRule, Rule, Rule, Rule]
    refused, *_ = sigma.read_rules(text_of(correlation))
    assert isinstance(refused, RefusedRule)
    assert refused.reason == refusals.CORRELATED


def test_aliases_and_pipelines_name_the_attributes_of_groups() -> None:
    """Events of different hosts would be counted together, or those of one host not at all."""
    aliased = {**VALID, "rules": ["a", "b"], "group-by": ["ip"]}
    aliases = {"ip": {"a": "src", "b": "source.ip"}}
    mapping = {"src": "source.ip", "host": "host.name"}
    steps = [{"type": "field_name_mapping", "mapping": mapping}]
    ecs = sigma.read_pipeline(json.dumps({"transformations": steps}))
    found = read({**aliased, "aliases": aliases}, pipelines=[ecs])
    assert isinstance(found, CorrelationRule)
    assert found.patterns[0].by == ("source.ip",)
    plain = read(VALID, pipelines=[ecs])
    assert isinstance(plain, CorrelationRule)
    assert plain.patterns[0].by == ("host.name",)
    rules = [{"type": "is_sigma_correlation_rule"}]
    failing = [{"type": "rule_failure", "message": "no", "rule_conditions": rules}]
    refused = read(VALID, pipelines=[sigma.read_pipeline(json.dumps({"transformations": failing}))])
    assert isinstance(refused, RefusedRule)
    assert refused.reason == refusals.FAILURE


def test_one_event_may_match_several_rules_in_any_order() -> None:
    """A correlation would miss what happens in one event, or count one that is too few."""
    found = read({**VALID, "type": "temporal", "rules": ["a", "b", "c"], "condition": {"gte": 3}})
    assert isinstance(found, CorrelationRule)
    both, third = {"x": 1, "y": 1, "host": "h"}, {"x": 2, "host": "h"}
    for order in ((both, third), (third, both)):
        matcher = CorrelationMatcher({"r": found})
        runs = [run for n, each in enumerate(order) for run in matcher.push(event(n, **each), n)]
        assert [len(run) for _, run in runs] == [2]
    alone = read({**VALID, "type": "temporal", "rules": ["a", "b"], "condition": {"eq": 2}})
    assert isinstance(alone, RefusedRule)
    pair = read({**VALID, "type": "temporal", "rules": ["a", "b"], "condition": {"gt": 1}})
    assert isinstance(pair, CorrelationRule)
    assert pair.filters.matches(both)
    assert not pair.filters.matches({"x": 1, "y": 1})
    counted = read({**VALID, "condition": {"gt": 2}})
    assert isinstance(counted, CorrelationRule)
    assert [len(each.filters) for each in counted.patterns] == [3]


def test_a_time_ahead_of_the_clock_is_that_of_the_arrival() -> None:
    """One event in the last year would end the matcher, or be within the span of all later ones."""
    rule = read({**VALID, "timespan": "5s", "condition": {"gte": 2}})
    assert isinstance(rule, CorrelationRule)
    matcher = CorrelationMatcher({"r": rule})
    last_s = TIME_MAX_US // 1_000_000
    found = []
    for arrived_s, stamped_s in ((10, last_s), (20, last_s), (22, last_s), (40, 40), (50, 50)):
        given = event(stamped_s, x=1, host="h")
        found += [run for _, run in matcher.push(given, arrived_s * 1_000_000)]
    assert [[each.envelope.at_us // 1_000_000 for each in run] for run in found] == [[20, 22]]


C: Final = "correlation"
REFUSED: Final = [
    *(
        ({"type": each}, refusals.CORRELATION_TYPE, f"{C}.type")
        for each in ("value_count", "value_sum", "value_avg", "value_percentile", None)
    ),
    ({"rules": []}, refusals.CORRELATION, f"{C}.rules"),
    ({"rules": ["a", "a"]}, refusals.CORRELATION, f"{C}.rules"),
    ({"rules": ["z"]}, refusals.NO_RELATED, f"{C}.rules"),
    ({"other": 1}, refusals.CORRELATION, C),
    ({"timespan": "5"}, refusals.TIMESPAN, f"{C}.timespan"),
    ({"timespan": "1M"}, refusals.TIMESPAN, f"{C}.timespan"),
    ({"timespan": "999999999d"}, refusals.TIMESPAN, f"{C}.timespan"),
    *(
        ({"condition": each}, refusals.COUNT, f"{C}.condition")
        for each in (
            None,
            {"lt": 3},
            {"lte": 3},
            {"eq": 3},
            {"neq": 3},
            {"gt": 1, "lte": 5},
            {"gte": 65},
            {"gte": 0},
            {"gte": True},
            {"gte": "3"},
        )
    ),
    ({"type": "temporal", "condition": {"gte": 2}}, refusals.COUNT, f"{C}.condition"),
    ({"type": "temporal", "condition": "a and not b"}, refusals.COUNT, f"{C}.condition"),
    ({"group-by": "host"}, refusals.CORRELATION, f"{C}.group-by"),
    ({"group-by": ["@id"]}, refusals.NAME, f"{C}.group-by"),
    ({"aliases": []}, refusals.CORRELATION, f"{C}.aliases"),
    ({"aliases": {"host": {"b": "f"}}}, refusals.CORRELATION, f"{C}.aliases.host"),
    (
        {"rules": ["a", "b"], "aliases": {"host": {"a": "f", "b": "g"}}},
        refusals.ALIASES,
        f"{C}.aliases.host",
    ),
]


@pytest.mark.parametrize(("change", "reason", "place"), REFUSED, ids=str)
def test_other_correlations_are_refused(change: dict[str, Any], reason: str, place: str) -> None:
    """A correlation would match other events than its author means."""
    found = read({**VALID, **change})
    assert isinstance(found, RefusedRule)
    assert (found.reason, getattr(found.error, "place", None)) == (reason, place)


def test_rules_without_filters_and_chains_are_refused() -> None:
    """A residue would be left out in silence, or the time of an inner match be another one."""
    rule = {"name": "r", "detection": {"s": {"f|fieldref": "g"}, "condition": "s"}}
    inner = {"title": "i", "name": "i", "correlation": {**VALID, "rules": ["r"]}}
    outer = {"title": "o", "correlation": {**VALID, "rules": ["i"]}}
    found = list(sigma.read_all(yaml.safe_dump_all([rule, inner, outer])))
    assert [each.name for each in found] == ["i", "o"]
    assert [str(getattr(each, "error", "")) for each in found] == [
        "sigma: filters alone cannot express it: 'f|fieldref: g'",
        "sigma: correlation.rules: a correlation of correlations: 'i'",
    ]


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"rules": ["c"], "condition": {"gte": 10}}, "CORRELATION_PATTERNS_MAX"),
        ({"type": "temporal", "rules": list("defghi")}, "CORRELATED_RULES_MAX"),
        ({"type": "temporal", "rules": list("vwxyz")}, "CORRELATION_PATTERNS_MAX"),
    ],
)
@pytest.mark.timeout(20)
def test_correlations_are_bounded(
    change: dict[str, Any], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small correlation could become millions of patterns."""
    for name in "defghi":
        monkeypatch.setitem(RULES, name, {name: 1})
    for name in "vwxyz":
        many = [{name: n, f"{name}{n}": n} for n in range(60)]
        monkeypatch.setitem(RULES, name, many)
    condition = change.get("condition")
    found = read({**VALID, "condition": condition, **change})
    assert isinstance(found, RefusedRule)
    assert isinstance(found.error, LimitError)
    assert found.error.limit == limit


def logons(tmp_path: Path, *seconds: int) -> Path:
    path = tmp_path / "a.jsonl"
    lines = ({"x": 1, "host": "h", "at": f"2026-01-01T00:00:{each:02}Z"} for each in seconds)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def test_commands_run_correlations(tmp_path: Path) -> None:
    """Correlations could be read but not run; or events without a time match in any order."""
    rules = tmp_path / "r.yml"
    rules.write_text(text_of({**VALID, "timespan": "5s"}, level="high"))
    command = ["match", "--from", "sigma", str(rules), str(logons(tmp_path, 9, 1, 3, 5))]
    timed = [*command, "--time", "at", "--types", "at=time"]
    [line] = CliRunner().invoke(main, timed).stdout.splitlines()
    found = json.loads(line)
    assert [each["time"][17:19] for each in found["events"]] == ["01", "03", "05"]
    assert found["rule"] == {"title": "t", "level": "high"}
    counted = CliRunner().invoke(main, [*timed, "--count"]).stdout
    assert [cell.strip() for cell in counted.splitlines()[-2].strip("│").split("│")][1:] == [
        "t",
        "high",
        "1",
    ]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2
    assert "record 1 has no time, which correlations need: --time NAME" in refused.stderr
    translated = CliRunner().invoke(main, ["translate", "--from", "sigma", str(rules)])
    assert "# t is the pattern x " in translated.stdout
    assert "by host within 5 s" in translated.stdout
    as_json = CliRunner().invoke(main, ["translate", "--from", "sigma", "--json", str(rules)])
    assert len(json.loads(as_json.stdout.splitlines()[0])["patterns"]) == 1


def test_alerts_of_correlations_are_given_at_once(tmp_path: Path) -> None:
    """A live alert would wait for the next event, or for ever."""
    (tmp_path / "r.yml").write_text(text_of({**VALID, "timespan": "5s"}, level="high"))
    alerts = RuleAlerts(tmp_path / "r.yml", "sigma")
    events = [event(second, x=1, host="h") for second in (1, 2, 2)]
    assert all(alerts.filters.matches(each) for each in events)
    lines = [list(alerts.lines(each, as_json=False)) for each in events]
    assert lines[:2] == [[], []]
    [line] = lines[2]
    assert line.startswith("1970-01-01T00:00:02.000001Z  [high]  t  3 events, the last:  ")
    shown = [list(alerts.lines(each, as_json=True)) for each in events]
    assert len(json.loads(shown[2][0])["events"]) == 3


KEYS = st.sampled_from(("type", "rules", "group-by", "timespan", "aliases", "condition", "x"))
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-1, 70) | st.sampled_from(("a", "b", "host", "5m", "temporal", "gte")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


@given(ANY | st.dictionaries(KEYS, ANY).map(lambda some: {**VALID, **some}))
def test_any_correlation_is_read_or_refused(correlation: Any) -> None:
    """A malformed correlation would end the reading of its file."""
    found = list(sigma.read_all(text_of(correlation)))
    assert isinstance(found[0], CorrelationRule | RefusedRule)
