"""Rules as they were read, and refused ones."""

from importlib import import_module

import pytest

from contrada.errors import ContradaError, LimitError, RefusedRuleError
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model import FilterSet, Notification
from contrada.model.rule import NOT_FILTERS, RefusedRule, Rule, read_or_refuse


def test_a_residue_decides_the_rest() -> None:
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

    refused = read_or_refuse("r", read)
    assert refused == RefusedRule("r", error)
    assert isinstance(refused, RefusedRule)
    assert refused.reason == reason


TEXTS = {
    "sql": "price < 5",
    "cesql": "price < 5",
    "cloudevents": '{"exact": {"type": "t"}}',
    "eventbridge": '{"price": [{"numeric": ["<", 5]}]}',
    "prometheus": "price < 5",
    "alertmanager": "route: {receiver: desk, matchers: ['price=5']}",
    "pubsub": 'attributes.price = "5"',
    "servicebus": "price < 5",
    "jms": "price < 5",
    "rabbitmq": '{"price": 5}',
    "falco": "fd.price < 5",
    "sigma": "title: t\ndetection: {s: {price|lt: 5}, condition: s}",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_read_alike(dialect: str) -> None:
    """The function names of each dialect would have to be learned."""
    module, text = import_module(DIALECTS[dialect].module), TEXTS[dialect]
    rule = module.read(text)
    assert isinstance(rule, Rule)
    assert module.filters(text) == rule.filters
    assert {"read", "read_rules", "filters"} <= {*module.__all__}
    with pytest.raises(RefusedRuleError):
        module.read("")
    for given in (None, 5, object()):
        for read in (module.read, module.filters):
            with pytest.raises(RefusedRuleError, match=dialect):
                read(given)


@pytest.mark.parametrize(
    ("dialect", "text"), [("cesql", "a = b"), ("cloudevents", '{"suffix": {"a": "5"}}')]
)
def test_filters_that_are_not_the_whole_rule_are_refused(dialect: str, text: str) -> None:
    """Filters would match more than the rule."""
    module = import_module(DIALECTS[dialect].module)
    assert module.read(text).residue
    with pytest.raises(RefusedRuleError, match=NOT_FILTERS):
        module.filters(text)
