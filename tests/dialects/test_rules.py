"""Rules as they were read, and refused ones."""

import pytest

from contrada.dialects.rules import RefusedRule, Rule, read_or_refused
from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.model import FilterSet, Notification


def test_a_residue_decides_what_the_filters_leave_open() -> None:
    """A rule would match where only its filters do."""
    rule = Rule("r", FilterSet("a > 0"), "a = b", lambda n: n["a"] == n["b"])
    assert rule.matches(Notification({"a": 1, "b": 1}))
    assert not rule.matches(Notification({"a": 1, "b": 2}))
    assert not rule.matches(Notification({"a": 0, "b": 0}))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RefusedRuleError("sql", "arithmetic is no filter", "a + 1"), "arithmetic is no filter"),
        (LimitError("CONJUNCTIONS_MAX", 10, 11), "more than CONJUNCTIONS_MAX allows"),
    ],
)
def test_refusals_are_counted_by_reason(error: ContradaError, reason: str) -> None:
    """Every refusal would have a reason of its own, with the rule's details in it."""

    def read() -> Rule:
        raise error

    refused = read_or_refused("r", read)
    assert refused == RefusedRule("r", error)
    assert isinstance(refused, RefusedRule)
    assert refused.reason == reason
