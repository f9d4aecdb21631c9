"""Filters of brokers and rule engines against naive evaluators of their conditions.

A condition is a tree: an operator, and its parts. Each dialect writes it as text, and evaluates it
on a mapping; `None` is unknown.
"""

import fnmatch
import json
import math
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.dialects import falco, rabbitmq
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model.rule import RefusedRule, Rule
from tests.strategies import more

Event = Mapping[str, Any]
Truth = bool | None
NAMES = st.sampled_from("ab")
TEXTS = st.sampled_from(["", "a", "ab", "A", "b", "a%", "5", "true", "/a", "/a/b", "//a/b", "/ab"])
NUMBERS = st.sampled_from([0, 1, 5, 2.5, -1])
VALUES = st.one_of(TEXTS, NUMBERS, st.booleans(), st.just(math.nan))
EVENTS = st.dictionaries(NAMES, VALUES | st.none())


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Conditions of AND, OR and NOT over leaves."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.tuples(st.just("not"), inner)
            | st.tuples(st.sampled_from(["and", "or"]), inner, inner)
        ),
        max_leaves=5,
    )


def evaluate(tree: Any, event: Event, leaf: Callable[[Any, Event], Truth]) -> Truth:
    """The truth of a tree; unknown as in SQL."""
    if tree[0] == "not":
        inner = evaluate(tree[1], event, leaf)
        return None if inner is None else not inner
    if tree[0] in ("and", "or"):
        decisive = tree[0] == "or"
        both = [evaluate(part, event, leaf) for part in tree[1:]]
        return decisive if decisive in both else None if None in both else not decisive
    return leaf(tree, event)


def written(tree: Any, leaf: Callable[[Any], str]) -> str:
    """The text of a tree."""
    if tree[0] == "not":
        return f"NOT ({written(tree[1], leaf)})"
    if tree[0] in ("and", "or"):
        return f"({written(tree[1], leaf)}) {tree[0].upper()} ({written(tree[2], leaf)})"
    return leaf(tree)


def check(kind: str, text: str, event: Event, expected: Truth) -> None:
    """Compares the rule of a text with the naive evaluator."""
    rule = import_module(DIALECTS[kind].module).read(text)
    assert rule.matches(dict(event)) is (expected is True), (text, event)


# --- Pub/Sub ------------------------------------------------------------------------------------

PUBSUB = st.tuples(st.sampled_from([":", "=", "!=", "prefix"]), NAMES, TEXTS)


def pubsub_text(leaf: Any) -> str:
    how, name, text = leaf
    if how == ":":
        return f"attributes:{name}"
    if how == "prefix":
        return f"hasPrefix(attributes.{name}, {json.dumps(text)})"
    return f"attributes.{name} {how} {json.dumps(text)}"


def pubsub_truth(leaf: Any, event: Event) -> bool:
    how, name, text = leaf
    if how == ":":
        return name in event
    if how == "prefix":
        return name in event and event[name].startswith(text)
    return (event.get(name) == text) is (how == "=")


@more(2)
@given(trees(PUBSUB), st.dictionaries(NAMES, TEXTS))
def test_pubsub_filters_match_as_written(tree: Any, event: Event) -> None:
    """A subscription would get other messages than in Pub/Sub."""
    expected = evaluate(tree, event, pubsub_truth)
    check("pubsub", written(tree, pubsub_text), event, expected)


# --- RabbitMQ -----------------------------------------------------------------------------------

HEADERS = st.sampled_from(["a", "b", "x-c"])


def equal(one: Any, other: Any) -> bool:
    """Equal values of one kind."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


@more(2)
@given(
    st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"]),
    st.dictionaries(HEADERS, TEXTS | NUMBERS | st.booleans() | st.none()),
    st.dictionaries(HEADERS, VALUES),
)
def test_headers_bindings_match_as_in_rabbitmq(
    how: str | None, arguments: dict[str, Any], event: Event
) -> None:
    """A queue would get other messages than in RabbitMQ."""
    looked_at = [k for k in arguments if k[:2] != "x-" or (how or "").endswith("-with-x")]
    held = [
        k in event and (arguments[k] is None or equal(arguments[k], event[k])) for k in looked_at
    ]
    expected = any(held) if (how or "").startswith("any") else all(held)
    given_how = {} if how is None else {"x-match": how}
    check("rabbitmq", json.dumps({**arguments, **given_how}), event, expected)


DEFINITIONS = {
    "exchanges": [
        {"vhost": "/", "name": "headers", "type": "headers"},
        {"vhost": "/", "name": "topics", "type": "topic"},
    ],
    "bindings": [
        {"vhost": "/", "source": "headers", "destination": "a", "arguments": {"n": 1}},
        {"vhost": "/", "source": "topics", "destination": "b", "arguments": {"n": 1}},
        {"vhost": "other", "source": "headers", "destination": "c", "arguments": {"n": 1}},
        {"vhost": "other", "source": "amq.headers", "destination": "d", "arguments": {"n": 2}},
    ],
}


def test_bindings_of_headers_exchanges_are_read() -> None:
    """A queue would be missing, or have a rule of an exchange that looks at no headers."""
    for content, expected in (
        (DEFINITIONS, [("a", "n = 1"), ("d", "n = 2")]),
        ([{"n": 1}, {"n": 2}], [("1", "n = 1"), ("2", "n = 2")]),
        ({"n": 1}, [("", "n = 1")]),
    ):
        found = list(rabbitmq.read_rules(json.dumps(content)))
        assert [(each.name, str(getattr(each, "filters", ""))) for each in found] == expected
    lines = list(rabbitmq.read_rules('{"n": 1}\n\n{"n": 2}\n'))
    assert [each.name for each in lines] == ["line 1", "line 3"]
    (none,) = rabbitmq.read_rules(json.dumps({**DEFINITIONS, "bindings": []}))
    assert isinstance(none, RefusedRule)


# --- JMS and Service Bus ------------------------------------------------------------------------

ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
SELECTORS = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", *ORDERS]), NAMES, NUMBERS),
    st.tuples(st.sampled_from(["=", "<>"]), NAMES, TEXTS | st.booleans()),
    st.tuples(st.sampled_from(["IN", "NOT IN"]), NAMES, st.lists(TEXTS, min_size=1, max_size=3)),
    st.tuples(
        st.sampled_from(["LIKE", "NOT LIKE"]), NAMES, st.sampled_from(["a%", "_", "%b", "a!%"])
    ),
    st.tuples(st.sampled_from(["NULL", "NOT NULL"]), NAMES, st.none()),
)
BETWEEN = st.tuples(st.sampled_from(["BETWEEN", "NOT BETWEEN"]), NAMES, st.tuples(NUMBERS, NUMBERS))


def literal(value: Any) -> str:
    """A constant of SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def selector_text(leaf: Any) -> str:
    how, name, value = leaf
    if how.endswith("IN"):
        return f"{name} {how} ({', '.join(map(literal, value))})"
    if how.endswith("BETWEEN"):
        return f"{name} {how} {literal(value[0])} AND {literal(value[1])}"
    if how.endswith("LIKE"):
        return f"{name} {how} {literal(value)} ESCAPE '!'"
    return f"{name} IS {how}" if value is None else f"{name} {how} {literal(value)}"


def kind_of(value: Any) -> type:
    """The kind of a value: those of different ones never compare."""
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


def is_like(text: str, shape: str) -> bool:
    """LIKE, with `!` before a character that is meant."""
    plain = {"a%": "a*", "_": "?", "%b": "*b", "a!%": "a%"}
    return fnmatch.fnmatchcase(text, plain[shape])


def selector_truth(leaf: Any, event: Event, *, other_kind: Truth, is_nan_null: bool) -> Truth:
    """The truth of a test; `other_kind` is that of a comparison with another kind of value."""
    how, name, wanted = leaf
    value = event.get(name)
    if is_nan_null and value != value:
        value = None
    if how in ("NULL", "NOT NULL"):
        return (value is None) is (how == "NULL")
    if value is None:
        return None
    kind = (
        str
        if how.endswith(("IN", "LIKE"))
        else float
        if how.endswith("BETWEEN")
        else kind_of(wanted)
    )
    if kind_of(value) is not kind:
        inverted = how in ("NOT IN", "NOT LIKE") and other_kind is not None
        return not other_kind if inverted else other_kind
    if how.endswith("BETWEEN"):
        low, high = wanted
        return bool(low <= value <= high if how == "BETWEEN" else value < low or value > high)
    if how.endswith("IN"):
        return (value in wanted) is (how == "IN")
    if how.endswith("LIKE"):
        return is_like(value, wanted) is (how == "LIKE")
    if how in ORDERS:
        return bool(ORDERS[how](value, wanted))
    return bool(value == wanted) is (how == "=")


@more(4)
@given(trees(SELECTORS | BETWEEN), EVENTS)
def test_selectors_match_as_in_jms(tree: Any, event: Event) -> None:
    """A consumer would get other messages than in JMS."""

    def truth(leaf: Any, of: Event) -> Truth:
        return selector_truth(leaf, of, other_kind=False, is_nan_null=False)

    check("jms", written(tree, selector_text), event, evaluate(tree, event, truth))


@more(4)
@given(trees(SELECTORS), EVENTS)
def test_filters_match_as_in_service_bus(tree: Any, event: Event) -> None:
    """A subscription would get other messages than in Service Bus."""

    def truth(leaf: Any, of: Event) -> Truth:
        return selector_truth(leaf, of, other_kind=None, is_nan_null=True)

    check("servicebus", written(tree, selector_text), event, evaluate(tree, event, truth))


# --- Falco --------------------------------------------------------------------------------------

FIELDS = st.sampled_from(["fd.name", "proc.args[1]"])
ON_TEXT: dict[str, Callable[[str, str], bool]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
    "icontains": lambda value, text: text.lower() in value.lower(),
    "glob": fnmatch.fnmatchcase,
    "iglob": lambda value, shape: fnmatch.fnmatchcase(value.lower(), shape.lower()),
    "regex": operator.eq,  # the texts have no special characters
}
WORDS = st.sampled_from(["a", "ab", "A", "5", "2.5", "true", "/a", "/a/b"])
CHECKS = st.one_of(
    st.tuples(st.sampled_from(["exists"]), FIELDS, st.none()),
    st.tuples(st.sampled_from(["=", "==", "!=", *ON_TEXT]), FIELDS, WORDS),
    st.tuples(st.sampled_from(["glob", "iglob"]), FIELDS, st.sampled_from(["a*", "?", "*/B"])),
    st.tuples(st.sampled_from([*ORDERS]), FIELDS, st.sampled_from(["5", "0", "2.5"])),
    st.tuples(st.sampled_from(["in", "intersects", "pmatch"]), FIELDS, st.lists(WORDS, max_size=3)),
)
MACROS = {"some": ("=", "fd.name", "a"), "any_": ("in", "fd.name", ["ab", "/a"])}


def falco_text(leaf: Any) -> str:
    how, name, value = leaf
    if how == "macro":
        return str(name)
    if how == "exists":
        return f"{name} exists"
    return (
        f"{name} {how} ({', '.join(value)})" if isinstance(value, list) else f"{name} {how} {value}"
    )


def spells(text: str, value: Any) -> bool:
    """Whether a constant is a value, as a text, a number or a truth value."""
    if isinstance(value, str | bool):
        return value == text if isinstance(value, str) else text == str(value).lower()
    return text in ("5", "2.5") and float(text) == value


def falco_truth(leaf: Any, event: Event) -> bool:
    how, name, wanted = leaf
    if how == "macro":
        return falco_truth(MACROS[name], event)
    value = event.get(name)
    if value is None or how == "exists":
        return value is not None
    if how in ("=", "==", "!="):
        return spells(wanted, value) is (how != "!=")
    if how in ORDERS:
        is_number = not isinstance(value, str | bool)
        return is_number and bool(ORDERS[how](value, float(wanted)))
    if how in ("in", "intersects"):
        return any(spells(each, value) for each in wanted)
    if not isinstance(value, str):
        return False
    if how == "pmatch":
        parts = [part for part in value.split("/") if part]
        paths = [[part for part in each.split("/") if part] for each in wanted]
        return any(parts[: len(path)] == path for path in paths)
    return ON_TEXT[how](value, wanted)


@more(4)
@given(
    trees(CHECKS | st.sampled_from(sorted(MACROS)).map(lambda name: ("macro", name, None))),
    st.dictionaries(FIELDS, VALUES | st.none()),
)
def test_conditions_match_as_in_falco(tree: Any, event: Event) -> None:
    """An alert would be missed or invented."""
    text = written(tree, falco_text).replace("NOT", "not").replace("OR", "or").replace("AND", "and")
    macros = [{"macro": name, "condition": falco_text(leaf)} for name, leaf in MACROS.items()]
    (rule,) = falco.read_rules(json.dumps([*macros, {"rule": "r", "condition": text}]))
    assert not isinstance(rule, RefusedRule), rule
    assert rule.matches(dict(event)) is evaluate(tree, event, falco_truth), (text, event)


RULES = """
- rule: a
  condition: b.c = 1
- rule: a
  condition: b.c = 2
  priority: WARNING
  tags: [x, y]
  enabled: false
- rule: z
  condition: b.c = 3
  override: {condition: append}
"""


def test_rules_of_falco_keep_their_description() -> None:
    """An alert would have no level, or a rule that Falco does not run be like the others."""
    found, refused = falco.read_rules(RULES)
    assert isinstance(found, Rule)
    assert found.matches({"b.c": 2})
    assert not found.matches({"b.c": 1})
    assert found.about == {"title": "a", "level": "WARNING", "tags": ["x", "y"]}
    assert [each.reason for each in found.notes] == [falco.DISABLED]
    assert isinstance(refused, RefusedRule)
    assert (refused.name, refused.reason) == ("z", falco.CHANGED)
    (none,) = falco.read_rules("- macro: m\n  condition: b.c = 1\n")
    assert isinstance(none, RefusedRule)
    assert none.reason == falco.NO_RULES


@pytest.mark.parametrize("file", ["falco_rules.yaml", "falco-incubating_rules.yaml"])
def test_rules_of_the_world_are_read(file: str, shared_data: Callable[..., Any]) -> None:
    """Falco's own rules could not be used."""
    text = shared_data("rules_other", file).read_text("utf-8")
    refused = [each for each in falco.read_rules(text) if isinstance(each, RefusedRule)]
    assert refused == []
