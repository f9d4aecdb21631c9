"""`Disjunct`: an item matches by its sets, and by equal values."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError, InvalidNameError, LimitError
from contrada.model import Filter, Notification, to_msgpack
from contrada.model.algebra.relations import meets
from contrada.routing.router_messages import SAME_NAMES_MAX, Disjunct, alternative
from tests.strategies import constraints, filters, notifications

NAMES = ("a", "b", "x0", "x1")
groups = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), max_size=3)


def answers_by_hand(sets: Filter, same: list[list[str]], item: Notification) -> bool:
    """Whether some choice of one value per attribute is in all sets, and equal where due."""
    names = sorted({*sets.sets, *(name for group in same for name in group)})

    def chosen(left: list[str], choice: dict[str, Any]) -> bool:
        if not left:
            return all(
                len({choice[name] for name in group}) == 1 and choice[group[0]][0] != 0
                for group in same
            )
        name, *rest = left
        return any(
            sets.set_of(name).holds(key) and chosen(rest, {**choice, name: key})
            for key in item.keys_of(name)
        )

    return chosen(names, {})


@given(
    filters(constraints, st.sampled_from(NAMES)),
    groups,
    notifications(named=st.sampled_from(NAMES)),
)
def test_an_item_answers_for_some_choice_of_values(
    sets: Filter, same: list[list[str]], item: Notification
) -> None:
    """An item would be left out, or returned though its values differ."""
    one = alternative(sets.sets, same)
    assert one.matches(item) == answers_by_hand(sets, same, item)
    if one.matches(item):  # The sets alone, which routing sees, are wider.
        assert Filter.of_sets(one.query.sets).matches(item)
    as_sent = Disjunct(one.query, one.same)
    assert as_sent.matches(item) == one.matches(item)


@given(
    filters(constraints, st.sampled_from(NAMES)),
    groups,
    notifications(named=st.sampled_from(NAMES)),
)
def test_a_received_disjunct_is_not_trusted(
    sets: Filter, same: list[list[str]], item: Notification
) -> None:
    """A source would trust a stranger's disjunct to be in normal form."""
    distinct = [tuple(dict.fromkeys(group)) for group in same[:1]]
    raw = Disjunct(alternative(sets.sets).query, tuple(distinct))
    assert raw.matches(item) == answers_by_hand(sets, [list(each) for each in distinct], item)


def test_values_are_equal_as_in_the_model() -> None:
    """Equality would be Python's: of 1 and True, or of NaN."""
    one = alternative({}, [("a", "b")])
    assert one.matches(Notification({"a": 5, "b": 5.0}))
    assert one.matches(Notification({"a": math.nan, "b": math.nan}))
    assert one.matches(Notification({"a": None, "b": None}))
    assert one.matches(Notification({"a": [1, 2], "b": [2, 3]}))
    assert not one.matches(Notification({"a": 1, "b": True}))
    assert not one.matches(Notification({}))


def test_normal_form() -> None:
    """A query would be routed to sources without an answer."""
    one = alternative(Filter("a < 5 and b > 3").sets, [("b", "a"), ("c", "b"), ("d",)])
    assert one.same == (("a", "b", "c"),)
    assert str(one.query) == str(
        alternative(
            Filter("a (> 3 & < 5) and b (> 3 & < 5) and c (> 3 & < 5) and d any").sets
        ).query
    )
    assert not meets(one.query, Filter("c > 7"))
    assert meets(one.query, Filter("c = 4"))


def test_refused() -> None:
    """A stranger's names would take unbounded time."""
    with pytest.raises(LimitError):
        alternative({}, [[f"a{n}" for n in range(SAME_NAMES_MAX + 1)]])
    with pytest.raises(InvalidNameError):
        alternative({}, [["a", "\n"]])
    with pytest.raises(InvalidFilterError):
        alternative({}, ["ab"])


def test_it_is_packed_with_its_query() -> None:
    """It would be encoded differently from other messages."""
    one = alternative(Filter("a < 5").sets, [("b", "c")])
    packed = msgspec.msgpack.Encoder(enc_hook=to_msgpack).encode(one)
    assert msgspec.msgpack.decode(packed) == [to_msgpack(one.query), [["b", "c"]]]
