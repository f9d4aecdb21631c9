"""Routes, silences and inhibitions of Alertmanager as rules."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.dialects.prometheus import alertmanager
from contrada.model.rule import RefusedRule, Rule

CONFIGURATION = """
route:
  receiver: default
  group_by: [cluster]
  routes:
    - receiver: database
      matchers: [service=~"mysql|cassandra"]
      routes:
        - {receiver: night, matchers: ['severity = "page"'], mute_time_intervals: [holidays]}
    - receiver: everybody
      match: {severity: page}
      continue: true
    - receiver: frontend
      matchers: ['{team="frontend", env!=dev}']
    - receiver: legacy
      match_re: {team: front.*}
inhibit_rules:
  - source_matchers: [severity="critical"]
    target_matchers: ['severity =~ "warning|info"']
    equal: [alertname, cluster]
"""


def rules_of(text: str) -> dict[str, Rule]:
    """The rules of a text, all of which are read."""
    found = list(alertmanager.read_rules(text))
    assert not [each for each in found if isinstance(each, RefusedRule)]
    return {each.name: each for each in found if isinstance(each, Rule)}


def receivers(alert: dict[str, str]) -> list[str]:
    """The receivers of an alert, in the order of the configuration."""
    routes = rules_of(CONFIGURATION)
    return [name for name, rule in routes.items() if " " not in name and rule.matches(alert)]


@pytest.mark.parametrize(
    ("alert", "expected"),
    [
        ({}, ["default"]),
        ({"service": "mysql"}, ["database"]),
        ({"service": "mysql", "severity": "page"}, ["night"]),
        ({"service": "mysqld"}, ["default"]),
        ({"severity": "page"}, ["everybody"]),
        ({"severity": "page", "team": "frontend"}, ["everybody", "frontend"]),
        ({"team": "frontend"}, ["frontend"]),
        ({"team": "frontend", "env": "dev"}, ["legacy"]),
        ({"team": "frontier"}, ["legacy"]),
    ],
)
def test_an_alert_goes_to_its_routes(alert: dict[str, str], expected: list[str]) -> None:
    """A receiver would get alerts of another one."""
    assert receivers(alert) == expected


def test_inhibitions_have_two_sides() -> None:
    """It could not be seen which alerts are muted, and by which ones."""
    found = rules_of(CONFIGURATION)
    source, target = found["inhibition 1 source"], found["inhibition 1 target"]
    assert str(source.filters) == 'severity = "critical"'
    assert str(target.filters) == 'severity in ("info", "warning")'
    (note,) = target.notes
    assert (note.reason, note.found) == (alertmanager.EQUAL, "alertname, cluster")
    refused = alertmanager.read_rules("inhibit_rules: [critical]")
    assert [getattr(each, "reason", "") for each in refused] == 2 * [alertmanager.MATCHER]
    (note,) = found["night"].notes
    assert note == (alertmanager.TIMES, "mute_time_intervals")


def test_silences_are_read() -> None:
    """An operator could not find the alerts that a silence hides."""
    matchers = [
        {"name": "alertname", "value": "Down", "isRegex": False, "isEqual": True},
        {"name": "env", "value": "dev|test", "isRegex": True, "isEqual": False},
    ]
    silence = {"id": "7", "comment": "a migration", "matchers": matchers}
    found = rules_of(json.dumps([silence]))["7"]
    assert found.about == {"title": "a migration"}
    assert found.matches({"alertname": "Down", "env": "prod"})
    assert found.matches({"alertname": "Down"})
    assert not found.matches({"alertname": "Down", "env": "dev"})


@pytest.mark.parametrize(
    ("route", "reason"),
    [
        ("{receiver: a, matchers: ['x']}", alertmanager.MATCHER),
        ("{receiver: a, matchers: ['']}", alertmanager.MATCHER),
        ("{receiver: a, matchers: [5]}", alertmanager.MATCHER),
        ("{receiver: a, matchers: ['a=\"b']}", alertmanager.MATCHER),
        ("{receiver: a, match: [x]}", alertmanager.MATCHER),
        ("{receiver: a, matchers: ['a=~\"(b)\\\\1\"']}", "a regular expression that is not linear"),
        ("{matchers: [a=b]}", alertmanager.RECEIVER),
        ("{receiver: a, routes: {receiver: b}}", alertmanager.ROUTES),
        ("{receiver: a, routes: [b]}", alertmanager.ROUTES),
        ("{receiver: a, routes: [{matchers: ['{']}]}", alertmanager.MATCHER),
    ],
)
def test_malformed_routes_are_refused(route: str, reason: str) -> None:
    """Its alerts would go to other receivers in silence."""
    (found,) = alertmanager.read_rules(f"route: {route}")
    assert isinstance(found, RefusedRule)
    assert found.reason == reason


WORDS = st.sampled_from(["a", 'a="b"', "a=~b.*", "x", "", "a!=", '{a="b",c=d}'])
KEYS = st.sampled_from(
    ["route", "routes", "receiver", "matchers", "match", "match_re", "continue", "inhibit_rules"]
)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=15,
    )
)
def test_any_configuration_is_read_or_refused(content: Any) -> None:
    """A hostile configuration would end the reading of all files."""
    for document in (content, {"route": content}, [{"matchers": [content]}]):
        for each in alertmanager.read_rules(json.dumps(document)):
            assert isinstance(each, Rule) or each.reason
