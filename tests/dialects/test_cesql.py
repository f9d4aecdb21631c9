"""CESQL against its specification, and its translation against a plain evaluation."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contrada as ct
from contrada.dialects import cesql
from contrada.errors import ParseError
from tests.dialects import cesql_naive as naive

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "dialects" / "cesql.jsonl"
ROWS = {
    f"{number}: {row['source']}": row
    for number, row in enumerate(map(json.loads, CONFORMANCE.read_text("utf-8").splitlines()), 1)
}


def outcome_of(expression: str, event: ct.Notification) -> tuple[Any, str | None]:
    """The value and the kind of the error; None and "parse" where the text is none."""
    try:
        value, fault = cesql.evaluate(cesql.parse(expression), event)
    except ParseError:
        return None, "parse"
    return value, fault.kind if fault else None


@pytest.mark.parametrize("place", ROWS)
def test_the_interpreter_is_the_specification(place: str) -> None:
    """Expressions would mean something else here than in other engines."""
    row = ROWS[place]
    found = outcome_of(row["expression"], ct.Notification(row["attributes"]))
    assert (repr(found[0]), found[1]) == (repr(row.get("value")), row["error"])
    assert ("why" in row) is ("said" in row)


@pytest.mark.parametrize("place", [p for p, row in ROWS.items() if row["error"] != "parse"])
def test_an_event_passes_where_the_value_is_true_without_an_error(place: str) -> None:
    """A rule would match events for which its expression is false, an error, or no Boolean."""
    row = ROWS[place]
    event = ct.Notification(row["attributes"])
    expression = cesql.parse(row["expression"])
    passes = row["value"] is True and row["error"] is None
    assert cesql.holds(expression, event) is passes
    if row["error"] != "missingFunction":
        assert cesql.read(row["expression"]).matches(event) is passes


def expected_of(tree: naive.Tree, event: dict[str, Any]) -> tuple[Any, str | None]:
    try:
        return naive.value_of(tree, event), None
    except naive.WrongError as error:
        return None, str(error)


def passes(tree: naive.Tree, event: dict[str, Any]) -> bool:
    value, error = expected_of(tree, event)
    return value is True and error is None


@settings(max_examples=400)
@given(naive.trees, naive.events)
def test_the_interpreter_agrees_with_a_plain_evaluation(
    tree: naive.Tree, event: dict[str, Any]
) -> None:
    """Nested casts and errors, which no row of the specification has, would go wrong."""
    value, error = outcome_of(naive.text_of(tree), ct.Notification(event))
    expected, kind = expected_of(tree, event)
    assert error == kind
    if error is None:
        assert repr(value) == repr(expected)


@settings(max_examples=400)
@given(st.one_of(naive.trees, naive.conditions), st.lists(naive.events, min_size=1, max_size=8))
def test_filters_and_residue_are_the_expression(
    tree: naive.Tree, events: list[dict[str, Any]]
) -> None:
    """Translated rules would match other events than their expressions."""
    rule = cesql.read(naive.text_of(tree))
    for event in events:
        assert rule.matches(ct.Notification(event)) is passes(tree, event)


@settings(max_examples=200)
@given(
    st.one_of(naive.trees, naive.conditions),
    st.dictionaries(st.sampled_from(naive.NAMES), st.lists(naive.VALUES, min_size=1, max_size=3)),
)
def test_of_several_values_one_each_must_do(
    tree: naive.Tree, several: dict[str, list[Any]]
) -> None:
    """Filters could match by one value of an attribute, and the residue hold by another."""
    each = (dict(zip(several, chosen, strict=True)) for chosen in product(*several.values()))
    expected = any(passes(tree, event) for event in each)
    assert cesql.read(naive.text_of(tree)).matches(ct.Notification(several)) is expected


@given(st.one_of(naive.trees, naive.conditions))
def test_the_text_of_an_expression_is_read_as_itself(tree: naive.Tree) -> None:
    """A residue that is shown would mean something else than the one that is evaluated."""
    expression = cesql.parse(naive.text_of(tree))
    assert cesql.parse(str(expression)) == expression
