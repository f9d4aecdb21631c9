"""Filters of brokers and rule engines against rows of their documentation, and against noise."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

ROWS_PATH = Path(__file__).parents[2] / "conformance" / "dialects"
KINDS = ("pubsub", "servicebus", "jms", "rabbitmq", "falco", "alertmanager")
ROWS: dict[str, list[dict[str, Any]]] = {
    kind: [json.loads(row) for row in (ROWS_PATH / f"{kind}.jsonl").read_text("utf-8").splitlines()]
    for kind in KINDS
}


def answer(kind: str, rule: str, event: dict[str, Any]) -> str:
    """The recorded answer for a rule and an event; each refusal has a reason."""
    found = read_or_refuse("", lambda: import_module(DIALECTS[kind].module).read(rule))
    if isinstance(found, RefusedRule):
        assert found.reason
        assert getattr(found.error, "dialect", kind) == kind
        return "refused"
    return "match" if found.matches(event) else "no match"


@pytest.mark.parametrize("kind", KINDS)
def test_rules_match_as_the_rows(kind: str) -> None:
    """A rule would match other events than where it comes from, or be refused."""
    wrong = [
        (row["rule"], row["event"], found)
        for row in ROWS[kind]
        if (found := answer(kind, row["rule"], row["event"])) != row["expected"]
    ]
    assert wrong == []


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A dialect, and a text that is nearly one of its rules."""
    kind = draw(st.sampled_from(KINDS))
    rules = st.sampled_from([row["rule"] for row in ROWS[kind]])
    text, other = draw(rules), draw(rules)
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    noise = st.sampled_from(
        ["(", ")", '"', "'", "\\", "\ud800", "\0", "NOT ", " and ", "1e999", "é"]
    )
    return kind, text[:start] + draw(noise | st.just(other) | st.just("")) + text[end:]


@given(damaged())
def test_damaged_rules_are_read_or_refused(case: tuple[str, str]) -> None:
    """A hostile rule would end the reading of all files."""
    kind, text = case
    for found in import_module(DIALECTS[kind].module).read_rules(text):
        assert isinstance(found, Rule) or (isinstance(found, RefusedRule) and found.reason)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("pubsub", "(" * 60 + "attributes:a" + ")" * 60),
        ("pubsub", " AND ".join(["attributes:a"] * 10_000)),
        ("jms", "(" * 60 + "a" + ")" * 60),
        ("servicebus", "a = 1 OR " * 100_000 + "a = 1"),
        ("rabbitmq", "[" * 200 + "]" * 200),
        ("alertmanager", "route: {receiver: a, routes: [" + "{match: {a: b}}, " * 1_000 + "]}"),
        ("falco", "a.b = 1 or " * 10_000 + "a.b = 1"),
        ("falco", "- macro: m\n  condition: m\n- rule: r\n  condition: m"),
        (
            "falco",
            "".join(
                f"- macro: m{n}\n"
                f"  condition: {'(a.b = 1 or (a.c = 2 and ' * 20}m{n + 1}{'))' * 20}\n"
                for n in range(15)
            )
            + "- macro: m15\n  condition: a.b = 1\n- rule: r\n  condition: not m0",
        ),
        (
            "falco",
            "".join(f"- macro: m{n}\n  condition: m{n + 1} or m{n + 1}\n" for n in range(15))
            + "- macro: m15\n  condition: a.b = 1\n- rule: r\n  condition: m0",
        ),
    ],
)
def test_too_much_is_refused(kind: str, text: str) -> None:
    """A hostile rule could end the process, or hold it up."""
    (found,) = import_module(DIALECTS[kind].module).read_rules(text)
    assert isinstance(found, RefusedRule)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "inverse", "condition"),
    [("pubsub", "NOT ", "attributes:a"), ("falco", "not ", "a.b exists")],
)
def test_long_chains_of_not_end_soon(kind: str, inverse: str, condition: str) -> None:
    """A small hostile rule would take minutes, since each `not` would invert all that follows."""
    word = " AND " if kind == "pubsub" else " and "
    text = inverse * 12_001 + "(" + word.join([condition] * 2_500) + ")"
    rule = import_module(DIALECTS[kind].module).read(text)
    assert rule.matches({"z": 1})
