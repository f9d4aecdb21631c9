"""Filters of the CloudEvents Subscriptions API, against a direct evaluation of them."""

import json
import pickle
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import LimitError, RefusedRuleError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.dialects.cloudevents import subscription_filters
from contrada.integrations.dialects.json_text import NOT_JSON
from contrada.model import Filter, FilterSet
from contrada.model.rule import RefusedRule, Rule
from tests.strategies import more

LEAST = {"specversion": "1.0", "id": "1", "source": "/here", "type": "made"}
TEXTS = st.sampled_from(
    ("a", "ab", "b", "true", "e", "0", "-0", "5", "05", "15", "-5", "-", "1", "12", "120", "é")
)
NAMES = st.sampled_from(("type", "subject", "ext"))
VALUES = TEXTS | st.booleans() | st.sampled_from((0, 5, -5, 15, 105, 12, 120, -120, 2**31 - 1))

EXPRESSIONS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "type LIKE 'a%'": lambda event: event["type"].startswith("a"),
    "EXISTS subject": lambda event: "subject" in event,
    "subject = 'b'": lambda event: event.get("subject") == "b",
    "subject = type": lambda event: event.get("subject") == event["type"],
    "LENGTH(subject) > 1": lambda event: len(event.get("subject", "")) > 1,
}
"""Expressions of CESQL, one that can fail and two that are no sets among them."""

EVENTS = st.fixed_dictionaries({"type": TEXTS}, optional={"subject": TEXTS, "ext": VALUES}).map(
    lambda attributes: {**LEAST, **attributes}
)
COMPARISONS = st.builds(
    lambda dialect, texts: {dialect: texts},
    st.sampled_from(("exact", "prefix", "suffix")),
    st.dictionaries(NAMES, TEXTS, min_size=1, max_size=2),
)
FILTERS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    COMPARISONS | st.sampled_from(sorted(EXPRESSIONS)).map(lambda text: {"sql": text}),
    lambda inner: (
        st.builds(
            lambda dialect, filters: {dialect: filters},
            st.sampled_from(("all", "any")),
            st.lists(inner, min_size=1, max_size=3),
        )
        | inner.map(lambda each: {"not": each})
    ),
    max_leaves=5,
)


def is_true(content: dict[str, Any], event: dict[str, Any]) -> bool:
    """The definition, on the event in JSON."""
    [(dialect, inner)] = content.items()
    match dialect:
        case "all":
            return all(is_true(each, event) for each in inner)
        case "any":
            return any(is_true(each, event) for each in inner)
        case "not":
            return not is_true(inner, event)
        case "sql":
            return EXPRESSIONS[inner](event)
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in event.items()
    }
    return all(name in texts and compares(dialect, texts[name], inner[name]) for name in inner)


def compares(dialect: str, value: str, text: str) -> bool:
    if dialect == "exact":
        return value == text
    return value.startswith(text) if dialect == "prefix" else value.endswith(text)


@more(10)
@given(st.lists(FILTERS, max_size=2), EVENTS)
def test_rules_pass_the_same_events_as_filters(
    filters: list[dict[str, Any]], event: dict[str, Any]
) -> None:
    """A subscription would get other events here than from another producer."""
    rule = cloudevents.read(filters)
    notification = cloudevents.notification(event)
    expected = all(is_true(each, event) for each in filters)
    assert rule.matches(notification) is expected
    if expected or not rule.residue:
        assert rule.filters.matches(notification) is expected
    again = pickle.loads(pickle.dumps(rule))
    assert again.matches(notification) is expected


@more(10)
@given(st.sampled_from(("exact", "prefix", "suffix")), TEXTS, VALUES, st.booleans())
def test_comparisons_are_of_the_text(dialect: str, text: str, value: object, wanted: bool) -> None:
    """An integer or a truth value would not be compared by its text."""
    event = {**LEAST, "ext": value}
    content: dict[str, Any] = {dialect: {"ext": text}}
    rule = cloudevents.read([content if wanted else {"not": content}])
    assert rule.matches(cloudevents.notification(event)) is (is_true(content, event) is wanted)


@pytest.mark.parametrize("digits", range(1, 13))
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_prefix_of_digits_begins_integers(digits: int, sign: str) -> None:
    """A subscription with a prefix of many digits could not be read, or miss integers."""
    text = sign + "214748364812"[:digits]
    rule = cloudevents.read({"prefix": {"ext": text}})
    for value in (text, f"{text}0", int(text), 2_147_483_647, -2_147_483_648, 214_748_364, 2):
        if isinstance(value, str) or -(2**31) <= value < 2**31:
            event = cloudevents.notification({**LEAST, "ext": value})
            assert rule.matches(event) is str(value).startswith(text), value


@more(5)
@given(st.lists(FILTERS, max_size=2), EVENTS)
def test_filters_survive_a_round_trip(filters: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Filters that were read and written would pass other events."""
    rule = cloudevents.read(filters)
    if rule.residue:
        return
    try:
        written = cloudevents.filters_of(rule.filters)
    except RefusedRuleError:
        return
    notification = cloudevents.notification(event)
    again = cloudevents.read(json.dumps(written))
    assert again.matches(notification) is rule.matches(notification)
    assert again.residue == ""


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"exact": {"type": "a", "subject": "b"}}, "type = 'a' and subject = 'b'"),
        ({"exact": {"ext": "5"}}, "ext in ('5', 5)"),
        ({"exact": {"ext": "true"}}, "ext in ('true', true)"),
        ({"exact": {"type": "5"}}, "type = '5'"),
        ({"prefix": {"type": "a"}}, "type prefix 'a'"),
        ({"prefix": {"ext": "-21474836"}}, "ext (prefix '-21474836' | = -21474836 |"
            " between -214748369 and -214748360 | between -2147483648 and -2147483600)"),
        ({"suffix": {"ext": "e"}}, "ext (suffix 'e' | in (true, false))"),
        ({"not": {"exact": {"type": "a"}}}, "type none of ('a')"),
        ({"not": {"all": [{"exact": {"type": "a"}}, {"prefix": {"id": "b"}}]}},
            "type none of ('a') or id (~prefix 'b' | absent)"),
        ([], "everything"),
    ],
)  # fmt: skip
def test_filters_are_read(filters: Any, expected: str) -> None:
    """A subscription would differ from its plain reading."""
    wanted = FilterSet([Filter({})]) if expected == "everything" else FilterSet(expected)
    assert cloudevents.read(filters).filters == wanted


def test_conditions_that_are_no_set_stay_as_a_residue() -> None:
    """Filters that need no residue would be evaluated again for every event."""
    suffix = {"suffix": {"ext": "5"}}
    rule = cloudevents.read([{"prefix": {"type": "a"}}, {"not": suffix}])
    assert rule.residue == json.dumps([{"not": suffix}])
    assert cloudevents.read([{"suffix": {"subject": "5"}}]).residue == ""
    # Here `sql` is an attribute.
    named = cloudevents.read([{"all": [{"not": suffix}, {"exact": {"sql": "no (CESQL"}}]}])
    assert named.matches({"sql": "no (CESQL", "ext": 6})


@pytest.mark.parametrize(
    ("filters", "reason", "place"),
    [
        ("{", NOT_JSON, ""),
        ("5", subscription_filters.NO_FILTERS, ""),
        ([5], subscription_filters.NO_FILTERS, "[0]"),
        ([{}], subscription_filters.ONE_DIALECT, "[0]"),
        (
            [{"exact": {"type": "a"}, "prefix": {"type": "a"}}],
            subscription_filters.ONE_DIALECT,
            "[0]",
        ),
        ([{"like": {"type": "a"}}], subscription_filters.UNKNOWN, "[0].like"),
        ([{"exact": {}}], subscription_filters.ATTRIBUTES, "[0].exact"),
        ([{"exact": {"type": ""}}], subscription_filters.ATTRIBUTES, "[0].exact"),
        ([{"exact": {"": "a"}}], subscription_filters.ATTRIBUTES, "[0].exact"),
        ([{"exact": {"data": "a"}}], subscription_filters.ATTRIBUTES, "[0].exact"),
        ([{"prefix": {"type": 5}}], subscription_filters.ATTRIBUTES, "[0].prefix"),
        ([{"exact": {"type": "\ud800"}}], subscription_filters.ATTRIBUTES, "[0].exact"),
        ([{"all": []}], subscription_filters.SEVERAL, "[0].all"),
        ([{"any": {"exact": {"type": "a"}}}], subscription_filters.SEVERAL, "[0].any"),
        ([{"any": [{"not": []}]}], subscription_filters.ONE_FILTER, "[0].any[0].not"),
        ([{"sql": 5}], subscription_filters.SQL, "[0].sql"),
    ],
)
def test_refusals_have_a_reason_and_a_place(filters: Any, reason: str, place: str) -> None:
    """The subscriber would not know the part to change."""
    with pytest.raises(RefusedRuleError) as refused:
        cloudevents.read(filters)
    assert (refused.value.reason, refused.value.place) == (reason, place)


def test_expressions_that_cannot_be_read_are_refused() -> None:
    """A subscription would be accepted and pass nothing, or end the process."""
    for text in ("type LIKE", "NOSUCH(type)", "(" * 10_000):
        with pytest.raises((RefusedRuleError, LimitError)):
            cloudevents.read([{"sql": text}])


@pytest.mark.parametrize(
    ("expression", "within"),
    [("x =", ", line 1, column 4"), ("EXISTS data", ", line 1, column 8"), ("f(x)", "")],
)
def test_refusals_name_the_place_of_an_expression(expression: str, within: str) -> None:
    """Of many expressions nobody could find the one that is wrong."""
    filters = [{"sql": "x = 1"}, {"any": [{"not": {"sql": expression}}]}]
    with pytest.raises(RefusedRuleError) as refused:
        cloudevents.read(filters)
    assert refused.value.place == f"[1].any[0].not.sql{within}"


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_many_expressions_are_bounded() -> None:
    """A subscription with thousands of expressions could hold a broker up for minutes."""
    many = [{"any": [{"sql": f"a{n} = {n}"} for n in range(2_000)]}]
    assert len(cloudevents.read(many).filters) == 2_000
    long = [{"any": [{"not": {"sql": "x = " + " " * 1_000 + "1"}}] * 200}]
    with pytest.raises(LimitError) as refused:
        cloudevents.read(long)
    assert refused.value.limit == "EXPRESSIONS_CHARACTERS_MAX"


@pytest.mark.slow
def test_hostile_filters_are_refused() -> None:
    """A subscription of some kilobytes could end the process or fill the memory."""
    deep = '{"not": ' * 50_000 + '{"exact": {"type": "a"}}' + "}" * 50_000
    wide = [{"any": [{"exact": {f"a{n}": "x"}}, {"exact": {f"b{n}": "x"}}]} for n in range(40)]
    for filters in (deep, wide):
        with pytest.raises(LimitError):
            cloudevents.read(filters)
    many = {"any": [{"exact": {"type": f"t{n}"}} for n in range(10_000)]}
    assert len(cloudevents.read(many).filters) == 1


@pytest.mark.parametrize(
    ("filters", "written"),
    [
        ("type = 'a'", [{"exact": {"type": "a"}}]),
        ("type in ('a', 'b')", [{"any": [{"exact": {"type": "a"}}, {"exact": {"type": "b"}}]}]),
        ("subject none of ('a')", [{"not": {"exact": {"subject": "a"}}}]),
        ("subject any", [{"sql": "EXISTS subject"}]),
        ("subject absent", [{"not": {"sql": "EXISTS subject"}}]),
        ("subject any but ('a')",
            [{"all": [{"sql": "EXISTS subject"}, {"not": {"exact": {"subject": "a"}}}]}]),
        ("type = 'a' or id = 'b'", [{"any": [{"exact": {"type": "a"}}, {"exact": {"id": "b"}}]}]),
    ],
)  # fmt: skip
def test_filters_are_written(filters: str, written: list[dict[str, Any]]) -> None:
    """The filters of a subscription would not be those that a reader expects."""
    assert cloudevents.filters_of(FilterSet(filters)) == written


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ("ext = 'x' and ext = 'y'", subscription_filters.MATCHES_NOTHING),
        ("ext = 5", subscription_filters.UNSAYABLE),
        ("ext suffix '5'", subscription_filters.UNSAYABLE),
        ("ext prefix '1'", subscription_filters.UNSAYABLE),
        ("type contains 'a'", subscription_filters.UNSAYABLE),
        ("data.a = 1", subscription_filters.UNSAYABLE_NAME),
    ],
)
def test_filters_without_an_equivalent_are_refused(filters: str, reason: str) -> None:
    """A subscription elsewhere would pass other events than the filter."""
    with pytest.raises(RefusedRuleError) as refused:
        cloudevents.filters_of(FilterSet(filters))
    assert refused.value.reason == reason


def test_all_events_need_no_filters() -> None:
    """A filter that everything passes could not be sent to another producer."""
    assert cloudevents.filters_of(FilterSet([Filter({}), Filter("type = 'a'")])) == []


def test_files_of_subscriptions_are_read() -> None:
    """Subscriptions as they are kept could not be read."""
    filters = [{"exact": {"type": "a"}}]
    whole = {"id": "s", "sink": "https://example.com", "filters": filters}
    lines = "\n".join((json.dumps(whole), json.dumps(filters), "{", json.dumps(filters[0])))
    first, second, bad, last = cloudevents.read_rules(lines)
    assert [first.name, second.name, bad.name, last.name] == ["s", "2", "3", "4"]
    assert isinstance(bad, RefusedRule)
    [alone] = cloudevents.read_rules(json.dumps(filters, indent=1))
    assert isinstance(alone, Rule)
    assert str(alone.filters) == 'type = "a"'
    [refused] = cloudevents.read_rules("")
    assert isinstance(refused, RefusedRule)


@given(
    source=st.none() | TEXTS,
    types=st.none() | st.lists(TEXTS, max_size=3),
    filters=st.lists(FILTERS, max_size=1),
    event=EVENTS,
)
def test_source_and_types_of_a_subscription_are_asked_for(
    source: str | None, types: list[str] | None, filters: list[Any], event: dict[str, Any]
) -> None:
    """A subscription to events of one source would match those of all."""
    asked = {"source": source, "types": types, "filters": filters}
    whole = {"sink": "https://example.com"} | {k: v for k, v in asked.items() if v is not None}
    sent = event | {"source": "a"}
    expected = source in (None, "a") and (not types or event["type"] in types)
    expected = expected and all(is_true(each, sent) for each in filters)
    assert cloudevents.read(whole).matches(cloudevents.notification(sent)) is expected


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ({"source": 5}, subscription_filters.SOURCE),
        ({"source": ""}, subscription_filters.SOURCE),
        ({"types": "made"}, subscription_filters.TYPES),
        ({"types": ["made", 5]}, subscription_filters.TYPES),
        ({"types": ["made", ""]}, subscription_filters.TYPES),
    ],
)
def test_a_source_and_types_that_are_none_are_refused(of: dict[str, Any], reason: str) -> None:
    """A subscription that asks for something else would match everything."""
    with pytest.raises(RefusedRuleError) as refused:
        cloudevents.read({"sink": "https://example.com", **of})
    assert refused.value.reason == reason
