"""Rules of other dialects: matches with a residue, and refusals."""

from collections.abc import Iterator
from typing import cast

import pytest

from contrada.errors import LimitError, RefusedRuleError
from contrada.model import FilterSet, Notification
from contrada.model.languages.atoms import failures
from contrada.model.rule import (
    NO_TEXT,
    SEVERAL_RULES,
    CorrelationRule,
    Note,
    RefusedRule,
    Rule,
    only_rule,
    read_or_refuse,
    require_text,
)
from contrada.model.syntax.parser import parse_filter_set, parse_pattern

CHEAP = parse_filter_set("price < 10")


def test_a_rule_is_its_filters_and_its_residue() -> None:
    """A rule would match by half of its conditions."""
    whole = Rule("whole", CHEAP)
    assert whole.exact_filters("sql") is CHEAP
    assert whole.matches({"price": 9})
    assert not whole.matches(Notification({"price": 10}))
    partial = Rule("partial", CHEAP, "price in (8, 12)", lambda item: item["price"] in (8, 12))
    assert [partial.matches({"price": price}) for price in (7, 8, 12)] == [False, True, False]
    with pytest.raises(RefusedRuleError, match="filters alone cannot express it"):
        partial.exact_filters("sql")


def test_a_residue_that_fails_holds_no() -> None:
    """One rule that does not accept a type would stop all others, or its failure be unknown."""

    def of_text(item: Notification) -> bool:
        return cast("str", item["price"]).startswith("1")

    before = failures.total()
    assert not Rule("text", CHEAP, "text", of_text).matches({"price": 1})
    assert failures.total() == before + 1


def test_a_correlation_asks_for_all_its_parts() -> None:
    """A notification that takes part would not be delivered; or one be asked for twice."""
    pattern = parse_pattern("a = 1 -> b = 2")
    asked = CorrelationRule("both", (pattern, pattern), parse_filter_set("c = 3")).asked
    assert asked == FilterSet([*pattern.filters, *parse_filter_set("c = 3").filters])


def test_a_text_has_one_rule() -> None:
    """The second rule of a text would be ignored; or its file be read to the end."""
    rule, refused = Rule("a", CHEAP), RefusedRule("b", RefusedRuleError("sql", "unknown", "x"))

    def endless() -> Iterator[Rule | RefusedRule]:
        while True:
            yield rule

    assert only_rule("sql", iter([rule])) is rule
    with pytest.raises(RefusedRuleError, match=SEVERAL_RULES):
        only_rule("sql", endless())
    with pytest.raises(RefusedRuleError, match=NO_TEXT):
        only_rule("sql", iter([]))
    with pytest.raises(RefusedRuleError, match="sql: unknown: 'x'"):
        only_rule("sql", iter([refused]))


def test_refusals_have_few_reasons() -> None:
    """Refusals could not be counted by their reason."""

    def fail() -> Rule:
        raise LimitError("RULES_MAX", 3, 4)

    refused = read_or_refuse("a", fail)
    assert isinstance(refused, RefusedRule)
    assert (refused.name, refused.reason) == ("a", "more than RULES_MAX allows")
    assert read_or_refuse("b", lambda: Rule("b", CHEAP)) == Rule("b", CHEAP)
    with pytest.raises(RefusedRuleError) as caught:
        require_text("sql", 1)
    assert RefusedRule("", caught.value).reason == NO_TEXT
    assert require_text("sql", "a") == "a"
    assert str(Note("unknown field", "x")) == "unknown field: x"
