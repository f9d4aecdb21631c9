"""Patterns of names."""

import pickle
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.name_patterns import WildFilters, name_pattern
from contrada.model import Filter, FilterSet, Notification

PLACES = [
    ("foo.*.bar", "foo.x.bar", True),
    ("foo.*.bar", "foo..bar", False),
    ("foo.*.bar", "foo.x.y.bar", False),
    ("foo.*.bar", "foo.bar", False),
    ("foo.*", "foo.10", True),
    ("*", "foo", True),
    ("*", "foo.bar", False),
    ("*.title", "story.title", True),
    ("foo.ba*", "foo.ba", True),
    ("foo.*ar", "foo.bazaar", True),
    ("foo.b*r*.x", "foo.bar.x", True),
    ("foo.b*r*.x", "foo.bar.y.x", False),
    ("foo.bar<0-9>", "foo.bar7", True),
    ("foo.bar<0-9>", "foo.bar10", False),
    ("foo.bar<0-9>", "foo.bar", False),
    ("foo.<8-12>.x", "foo.10.x", True),
    ("foo.<8-12>.x", "foo.010.x", False),
    ("foo.<8-12>.x", "foo.7.x", False),
    ("<0-0>", "0", True),
    ("<1-3><1-3>", "12", True),
    ("<1-30>2", "22", True),
    (r"a\*b", "a*b", True),
    (r"a\*b", "axb", False),
    (r"a\<b\\", "a<b\\", True),
    ("plain.name", "plain.name", True),
]


@pytest.mark.parametrize(("text", "name", "holds"), PLACES)
def test_names_that_a_pattern_matches(text: str, name: str, holds: bool) -> None:
    """A subscriber would be asked of other names than he wrote."""
    assert name_pattern(text).matches(name) is holds


@given(
    st.text("ab.*1", min_size=1, max_size=8).filter(lambda text: "**" not in text),
    st.text("ab.1", max_size=8),
)
def test_it_is_the_regular_expression(text: str, name: str) -> None:
    """A part that may end in several places would be taken to end in one."""
    parts = [
        "[^.]+" if segment == "*" else re.escape(segment).replace(r"\*", "[^.]*")
        for segment in text.split(".")
    ]
    expected = re.fullmatch(r"\.".join(parts), name) is not None
    assert name_pattern(text).matches(name) is expected


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 1_000))
def test_a_range_holds_its_numbers(one: int, other: int, number: int) -> None:
    """A bound would be left out, or numbers be compared as texts."""
    low, high = sorted((one, other))
    assert name_pattern(f"a<{low}-{high}>").matches(f"a{number}") is (low <= number <= high)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a.<9-1>", 3),
        ("a.<1>", 3),
        ("a.<x-y>", 3),
        ("a.<01-2>", 3),
        ("a<", 2),
        ("a.**", 4),
        ("a\\", 2),
        ("a\\b", 2),
        ("*" + "a" * 300, 1),
    ],
)
def test_wrong_patterns_are_refused_with_their_place(text: str, column: int) -> None:
    """It would match nothing, and nobody knew why."""
    with pytest.raises(ParseError) as found:
        name_pattern(text)
    assert found.value.column == column


def test_a_long_pattern_of_stars_costs_little() -> None:
    """One name would block the matcher for years."""
    assert not name_pattern("a*" * 120 + "b").matches("a" * 250)


def test_filters_get_the_names_that_are_known() -> None:
    """The network would be asked for names that nobody uses, or not for all."""
    text = "`s.*.title` contains 'x' and kind = 'k' or `s.<0-1>.n` > 5"
    names = ["s.0.title", "s.1.title", "s.2.n", "s.1.n", "other"]
    assert WildFilters(text).expand(names) == FilterSet(
        "`s.0.title` contains 'x' and kind = 'k' or `s.1.title` contains 'x' and kind = 'k' "
        "or `s.1.n` > 5"
    )
    assert WildFilters(text).expand([]).is_empty
    assert WildFilters("a = 1").expand([]) == FilterSet("a = 1")


def test_patterns_are_independent_of_one_another() -> None:
    """Two conditions would match only if one entry satisfies both."""
    found = WildFilters("`s.*.a` = 1 and `s.*.b` = 2").expand(["s.0.a", "s.1.a", "s.0.b", "s.1.b"])
    assert len(found) == 4
    assert found.matches({"s.0.a": 1, "s.1.b": 2})


@pytest.mark.parametrize(
    ("text", "attributes", "holds"),
    [
        ("`s.*.a` = 1 and `s.*.b` = 2", {"s.0.a": 1, "s.1.b": 2}, True),
        ("`s.*.a` = 1 and `s.*.b` = 2", {"s.0.a": 1, "s.1.a": 2}, False),
        ("`s.*` = 1 and `*.0` = 2", {"s.0": [1, 2]}, False),
        ("`s.*` = 1 and `*.0` = 2", {"s.0": [1, 2], "s.1": 1}, True),
        ("`s.*` = 1 and s.0 = 2", {"s.0": [1, 2]}, False),
        ("`s.*` = 1 and s.0 = 2", {"s.0": [1, 2], "s.1": 1}, True),
        ("`s.*` > 0 and s.0 = 2", {"s.0": [1, 2]}, True),
    ],
)
def test_one_value_meets_all_constraints_on_its_name(
    text: str, attributes: dict[str, int | list[int]], holds: bool
) -> None:
    """Offline two values of an attribute would do, where a subscriber needs one."""
    assert WildFilters(text).matches(Notification(attributes)) is holds
    assert WildFilters(text).expand(attributes).matches(attributes) is holds


def test_conditions_on_absence_are_refused() -> None:
    """A match would depend on names that others have used."""
    for text in ("`s.*` absent", "`s.*` none of (1, 2)", "`s.*` = 1 or a = 2 and `s.*` absent"):
        with pytest.raises(InvalidFilterError, match="pattern of names"):
            WildFilters(text)


def test_expansion_is_bounded() -> None:
    """Few characters would ask the network for millions of filters."""
    names = [f"s.{number}" for number in range(40)]
    asked = WildFilters("`s.*` = 1 and `s.<0-30>` = 2")
    with pytest.raises(LimitError, match="wild_filters_max"):
        asked.expand(names)
    cover = asked.cover(names)
    assert len(cover) == 31
    assert cover.matches({"s.3": 2, "s.39": 1})
    several = WildFilters("`s.*` = 1 or a = 1 or `s.*` > 3 and b = 2")
    assert len(several.cover([f"s.{number}" for number in range(600)])) == 602
    with pytest.raises(LimitError, match="NAME_PATTERNS_MAX"):
        WildFilters(" and ".join(f"`{letter}*` = 1" for letter in "abcdefghi"))
    few = WildFilters(asked.filters, DocumentLimits(wild_filters_max=30))
    assert few.cover(names) == FilterSet("everything")


VALUES = st.integers(0, 3) | st.lists(st.integers(0, 3), min_size=1, max_size=3)
NAMES = ("a.0", "a.1", "b.0", "a")
PATTERNS = ("`a.*`", "`*.0`", "`<0-9>`", "`a*`", "a", "`a.0`")
CONSTRAINTS = st.tuples(st.sampled_from(PATTERNS), st.integers(0, 3), st.sampled_from("=<>"))


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    st.lists(CONSTRAINTS, min_size=1, max_size=4, unique_by=lambda each: each[0]),
)
def test_the_rule_equals_the_filters(
    attributes: dict[str, int | list[int]], constraints: list[tuple[str, int, str]]
) -> None:
    """Documents that are matched offline would not be those that a subscriber gets."""
    notification = Notification(attributes)
    text = " and ".join(f"{name} {sign} {value}" for name, value, sign in constraints)
    asked = WildFilters(text)
    expected = asked.expand(attributes).matches(notification)
    assert asked.matches(notification) is expected
    assert asked.rule("r").matches(notification) is expected
    assert asked.cover(attributes).matches(notification) or not expected
    assert pickle.loads(pickle.dumps(asked)).matches(notification) is expected


@given(st.lists(st.sampled_from(NAMES), unique=True), st.sampled_from(PATTERNS))
def test_expansion_is_by_brute_force(names: list[str], pattern: str) -> None:
    """A name would be left out, or one too many be asked for."""
    asked = f"{pattern} = 1 and `*.0` > 0" if pattern != "`*.0`" else f"{pattern} = 1"
    literal = pattern.strip("`")
    ways = product(
        [name for name in names if name_pattern(literal).matches(name)]
        if "*" in literal or "<" in literal
        else [literal],
        [name for name in names if name.endswith(".0")] if pattern != "`*.0`" else [None],
    )
    expected = FilterSet(
        Filter({one: 1}) & (Filter("everything") if two is None else Filter(f"`{two}` > 0"))
        for one, two in ways
    )
    assert WildFilters(asked).expand(names) == expected
