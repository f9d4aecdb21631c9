"""Condensing interests: each accuracy covers the one before it, and nothing is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError
from contrada.gossip.condensation import (
    Accuracy,
    condense,
    encode_interests,
    is_interested,
    read_interests,
)
from contrada.gossip.gossip_messages import INTERESTS_BYTES_MAX
from contrada.model import Filter, FilterSet, Notification, to_msgpack
from contrada.model.algebra import sets
from tests import strategies
from tests.strategies import more

_MARKED = st.builds(
    lambda base, marks: Filter.of_sets(
        {**base.sets, **{f"@is.{mark}": sets.eq(True) for mark in marks}}
    ),
    strategies.filters(),
    st.sets(st.sampled_from("ABC"), max_size=3),
)
_INTERESTS = st.lists(st.builds(FilterSet, st.lists(_MARKED, max_size=3)), max_size=4)


@more(0.6)
@given(_INTERESTS, st.lists(strategies.notifications(), max_size=4))
def test_condensed_interests_match_all_originals(
    interests: list[FilterSet], events: list[Notification]
) -> None:
    """An interested participant would miss an event: a filter was lost on its way up."""
    wider = [condense(interests, accuracy) for accuracy in Accuracy]
    for event in events:
        answers = [any(each.matches(event) for each in interests)]
        answers += [each.matches(event) for each in wider]
        assert answers[0] == answers[1], "exact"
        assert answers == sorted(answers), "whoever matched before still does"


@more(0.6)
@given(_INTERESTS)
def test_each_accuracy_covers_the_one_before(interests: list[FilterSet]) -> None:
    """A higher level would refuse an event that a lower level wants; by the algebra, where it
    decides.
    """
    wider = [condense(interests, accuracy) for accuracy in Accuracy]
    for member in (each for of in interests for each in of.filters):
        if all(values.text is None for values in member.sets.values()):
            assert all(each.covers(member) for each in wider)
    for narrow, wide in pairwise(wider[1:]):
        assert wide.covers(narrow)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (Accuracy.EXACT, "a = 1 or a = 2 and b suffix 'x'"),
        (Accuracy.ATTRIBUTES, "a = 1 or a = 2 and b >= ''"),
        (Accuracy.SELECTIVE, "@everything"),
        (Accuracy.TYPES, "@everything"),
    ],
)
def test_condensed_comparisons(accuracy: Accuracy, expected: str) -> None:
    """An operator would be asked about above that should not be, or a range kept that differs."""
    given = [FilterSet("a = 1"), FilterSet("a = 2 and b suffix 'x'")]
    right = FilterSet([Filter({})]) if expected == "@everything" else FilterSet(expected)
    assert condense(given, accuracy) == right


def test_related_types_become_the_most_general() -> None:
    """A subtype would be asked about beside its supertype, or unrelated types joined."""
    stock, bond = Filter({"@is.Stock": True, "price": sets.lt(5)}), Filter({"@is.Bond": True})
    quote = Filter({"@is.Stock": True, "@is.Quote": True, "price": sets.gt(9), "lot": 1})
    given = [FilterSet([stock]), FilterSet([quote]), FilterSet([bond])]
    types = FilterSet([Filter({"@is.Stock": True}), bond])
    assert condense(given, Accuracy.SELECTIVE) == types
    alike = [FilterSet([stock]), FilterSet([quote])]
    assert condense(alike, Accuracy.TYPES) == FilterSet([Filter({"@is.Stock": True})])
    assert condense([FilterSet([stock])], Accuracy.SELECTIVE) == FilterSet([stock])


def test_the_same_lines_give_the_same_bytes() -> None:
    """Delegates would write one line in turns for ever, each in its own words."""
    given = [FilterSet(f"a = {n} and b < {n}") for n in range(30)]
    assert encode_interests(given) == encode_interests(list(given))
    assert read_interests(encode_interests(given)) == FilterSet(given)


def test_earlier_decisions_change_no_bytes() -> None:
    """A delegate that has asked it before would write another line than one that has not."""
    texts = [FilterSet(f"b matches 'k{n}+x?' and d = {n % 3}") for n in range(40)]
    packed = encode_interests(texts)
    assert [encode_interests(texts) for _ in range(2)] == [packed, packed]
    many = [*texts, *(FilterSet(f"c contains 'x{n}' and e = 1") for n in range(30))]
    assert read_interests(encode_interests(many)) == condense(many, Accuracy.ATTRIBUTES)


def test_too_many_filters_are_condensed_more_coarsely() -> None:
    """A line would outgrow a message, or wants would be dropped to make it fit."""
    many = [
        FilterSet([Filter({"@is.T": True, "a": n, "b": sets.suffix(f"{n}"), "c": sets.lt(n)})])
        for n in range(400)
    ]
    packed = encode_interests(many)
    assert len(packed) <= INTERESTS_BYTES_MAX
    assert read_interests(packed) == FilterSet([Filter({"@is.T": True, "b": sets.ALL_TEXT})])
    types = [FilterSet([Filter({f"@is.T{n}": True})]) for n in range(1_500)]
    assert read_interests(encode_interests(types)) == FilterSet([Filter({})])


def test_other_bytes_are_no_interests() -> None:
    """A line would be held of which nobody can be asked."""
    for packed in (b"", b"\xc1", to_msgpack(Filter({"a": 1}))):
        with pytest.raises(EncodingError):
            read_interests(packed)


def test_of_an_unknown_operator_all_may_be_wanted() -> None:
    """An event would be withheld from subscribers that could decide it, by forwarders that
    cannot.
    """
    known = to_msgpack(FilterSet("a suffix 'x'"))
    other = read_interests(known.replace(b"suffix", b"soffix"))
    assert is_interested(other, Notification({"a": "y"}))
