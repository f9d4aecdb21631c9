"""Filters as values: `&&` against the relations of the filters within."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import InvalidFilterError
from contrada.model.extensions.filter_values import (
    FILTER_BYTES_MAX,
    FILTER_NESTING_MAX,
    FilterIntersects,
    FilterType,
)
from contrada.model.languages import decision
from contrada.model.languages.atoms import Atom, failures

constraints = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from("ab"),
        st.sampled_from(["<", ">=", "!=", "="]),
        st.integers(0, 3),
    ),
    st.builds(
        "{} {} '{}'".format,
        st.sampled_from("ab"),
        st.sampled_from(["prefix", "suffix", "!=", "<", "="]),
        st.sampled_from(["", "x", "xy"]),
    ),
    st.sampled_from(["a absent", "b (absent | > 1)", "a any", "a in (1, 'x')"]),
)
filters = st.lists(constraints, max_size=3).map(lambda parts: " and ".join(parts) or "everything")
filter_sets = st.lists(filters, min_size=1, max_size=2).map(" or ".join)


def meeting(text: str) -> ct.Filter:
    return ct.Filter({"x": ct.Constraint("x", "&&", text).value_set})


def nested(levels: int) -> str:
    """A filter with filters in filters, so many levels in all."""
    f = ct.Filter("price < 100")
    for _ in range(levels - 1):
        f = ct.Filter.of_sets({"x": ct.Constraint("x", "&&", str(f)).value_set})
    return str(f)


def raw_nested(levels: int) -> str:
    """As `nested`, written without being checked; two kinds of quotes keep it short."""
    text = "price < 100"
    for level in range(levels - 1):
        quote = "'\""[level % 2]
        escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        text = f"x && {quote}{escaped}{quote}"
    assert len(text) <= FILTER_BYTES_MAX
    return text


@given(filter_sets, filter_sets)
def test_a_filter_matches_values_that_it_meets(constant: str, value: str) -> None:
    """A query would miss a source, or be sent to one that cannot answer."""
    expected = ct.meets(ct.FilterSet(constant), ct.FilterSet(value))
    assert meeting(constant).matches(ct.Notification({"x": value})) is expected


@given(filter_sets, filter_sets, filter_sets)
def test_covering_is_sound(general: str, special: str, value: str) -> None:
    """A value that matches the covered filter would be lost."""
    n = ct.Notification({"x": value})
    if meeting(general).covers(meeting(special)) and meeting(special).matches(n):
        assert meeting(general).matches(n)


@given(filter_sets, filter_sets)
def test_covering_is_that_of_the_filters_within(general: str, special: str) -> None:
    """A filter would be forwarded although a wider one was before."""
    expected = ct.covers(ct.FilterSet(general), ct.FilterSet(special))
    assert meeting(general).covers(meeting(special)) is expected
    if not expected:
        point = ct.witness(ct.FilterSet(special), but_not=ct.FilterSet(general))
        assert point is not None
        named = {name: point.get(name) for name in point}
        sets = {
            name: ct.ops.eq(value) for name, value in named.items() if not isinstance(value, tuple)
        }
        only = str(ct.Filter({"a": ct.ops.absent(), "b": ct.ops.absent(), **sets}))
        n = ct.Notification({"x": only})
        assert meeting(special).matches(n)
        assert not meeting(general).matches(n)


@given(filter_sets, filter_sets)
def test_two_intersect_unless_one_is_empty(first: str, second: str) -> None:
    """Two subscriptions with a common value would count as apart."""
    answer = FilterIntersects().intersects(first.encode(), Atom("&&", second.encode()))
    everything = ct.Notification({"x": "everything"})
    both = meeting(first).matches(everything) and meeting(second).matches(everything)
    assert answer is both


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price <",
        "a = 1 -> b = 2",
        "x nosuch 'a'",
        "x < null",
        f"a = '{'1' * FILTER_BYTES_MAX}'",
        raw_nested(FILTER_NESTING_MAX + 1),
        raw_nested(14),
    ],
    ids=["empty", "cut", "pattern", "unknown", "null", "long", "nested", "deep"],
)
def test_other_texts_are_refused_or_do_not_match(text: str) -> None:
    """A malformed constant would be accepted, or a malformed value end matching."""
    with pytest.raises(InvalidFilterError) as caught:
        meeting(text)
    assert caught.value.operator == "&&"
    assert not meeting("everything").matches(ct.Notification({"x": text}))
    assert not failures


@pytest.mark.parametrize("value", [b"\xff", b"a = 1 \xff", 5, True, None, 1.5])
def test_values_of_other_kinds_do_not_match(value: ct.Value) -> None:
    """A value that cannot be a filter would match, or end matching with an error."""
    assert not meeting("everything").matches(ct.Notification({"x": value}))
    assert not failures


def test_filters_in_filters() -> None:
    """Nesting within the limit would be refused, or answered for the wrong level."""
    for levels in range(1, FILTER_NESTING_MAX + 1):
        assert meeting(nested(levels)).matches(ct.Notification({"x": nested(levels)}))
    inner = meeting("x && 'a > 5'")
    assert inner.matches(ct.Notification({"x": "x = 'a > 6'"}))
    assert not inner.matches(ct.Notification({"x": "x = 'a < 5'"}))


def test_malformed_filters_within_are_refused() -> None:
    """A bad constant would hide in a filter in a filter."""
    with pytest.raises(InvalidFilterError):
        meeting("x && 'price <'")


def test_the_text_of_a_filter_round_trips() -> None:
    """A filter would not survive being printed."""
    f = ct.Filter("""x && "price < 100 and symbol = 'DIS'" and y not && "a = 1 or b = 2" """)
    assert ct.parse(str(f)) == f


def test_other_operators_beside_it_are_answered_safely() -> None:
    """A filter's text would be taken for something else and decided."""
    assert FilterIntersects().covers(b"a = 1", Atom("suffix", b"1")) is None
    assert FilterIntersects().intersects(b"a = 1", Atom("unifies", b"a")) is None
    assert ct.meets(meeting("a = 1"), ct.Filter({"x": ct.ops.suffix("2")}))
    assert decision.safe_answers == {"meets": 1}


def test_the_type_names_its_operators() -> None:
    """The type object would not be like the others."""
    assert [each.name for each in FilterType().operators()] == ["&&"]
