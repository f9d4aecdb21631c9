"""`ConditionSet`: all forms give the answers of the conditions themselves; the choice of a form."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidObventError
from contrada.typed import Obvent
from contrada.typed.conditions import (
    Access,
    Accessor,
    Compare,
    Condition,
    ConditionSet,
    Contains,
    Equals,
    Greater,
    GreaterEqual,
    Invoke,
    IsInstance,
    Less,
    LessEqual,
    Same,
    condition_set,
    static_filter,
)
from contrada.typed.conditions.condition_set import FormName
from contrada.typed.conditions.conditions import AndCondition, CombinedCondition, Comparison
from contrada.typed.conditions.invocation_tree import ConditionGroup, InvocationTree
from tests.typed.conditions.quotes import (
    BID,
    Bid,
    Cheaper,
    Dearer,
    Place,
    Side,
    Stranger,
    UrgentBid,
)

FORMS: tuple[FormName | None, ...] = ("tree", "static", "indexed", None)

numbers = st.sampled_from((-1.0, 0.0, 0.5, 1.0, 2.5, 80.0, math.inf, math.nan, 1, 2**60 + 1))
texts = st.sampled_from(("", "a", "Telco", "Telco Mobiles", "Zurich", "é"))
of_numbers: st.SearchStrategy[Accessor] = st.sampled_from(
    (
        *(Access("price"), Access("amount"), Access("place.fee"), Invoke("get_price")),
        *(Access("other.fee"), Access("other.fee", default=1.0), Invoke("get_place").access("fee")),
        Access("place").invoke("broken"),
        *(Access("place").invoke("broken", default=2.5), Invoke([Bid.get_price])),
        Access("place").invoke("fee_of", (Access("price"),)),
        Access("place").invoke("fee_of", (Access("other.fee"), "CHF")),
    )
)
of_texts: st.SearchStrategy[Accessor] = st.sampled_from(
    (
        *(Access("company"), Access("note"), Access("place.name"), Access("other.name")),
        *(Invoke("get_place.get_name"), Access("company").invoke("upper")),
    )
)
orders = st.sampled_from((Equals, Greater, GreaterEqual, Less, LessEqual))


class Ends(Comparison):
    """A comparison of one's own."""

    sign = "ends with"

    def test(self, found: Any, expected: Any) -> bool:
        return str(found).endswith(expected)


class Near(Comparison):
    """A comparison with an attribute of its own."""

    sign = "near"

    def __init__(self, *given: Any, by: float) -> None:
        super().__init__(*given)
        self.by = by

    def test(self, found: Any, expected: Any) -> bool:
        return bool(abs(found - expected) <= self.by)


class Alike(Equals):
    """A comparison that redefines the test of its base."""

    sign = "alike"

    def test(self, found: Any, expected: Any) -> bool:
        return bool(found.lower() == expected.lower())


class Either(AndCondition):
    """A combination that redefines its base."""

    def holds(self, obvent: Any) -> bool:
        return any(each.holds(obvent) for each in self.parts)


class AtLeast(CombinedCondition):
    """A combination with an attribute of its own."""

    sign = "and or"

    def __init__(self, most: int, *parts: Condition) -> None:
        super().__init__(*parts)
        self.most = most

    def holds(self, obvent: Any) -> bool:
        return sum(each.holds(obvent) for each in self.parts) >= self.most


@dataclass
class Timed(Obvent, name="conditions.Timed"):
    at: datetime


def compared(sides: tuple[Any, Any], result: int) -> Condition:
    return Compare(*sides, result=result)


basic: st.SearchStrategy[Condition] = st.one_of(
    st.builds(lambda kind, one, other: kind(one, other), orders, of_numbers, numbers | of_numbers),
    st.builds(lambda kind, one, other: kind(one, other), orders, of_texts, texts | of_texts),
    st.builds(Contains, of_texts, texts),
    st.builds(compared, st.tuples(of_numbers, numbers), st.sampled_from((-1, 0, 1))),
    st.builds(lambda it: Equals(Invoke("above", (it,)), True), of_numbers | numbers),
    st.sampled_from(
        (
            *(Same("note", None), Same("other", None), Same("side", Side.BUY)),
            *(Equals("side", Side.SELL), IsInstance(UrgentBid), IsInstance("other", Place)),
            *(Ends("company", "o"), Ends(Access("place").invoke("broken"), "")),
            *(Same(Access("place").invoke("broken"), None), IsInstance("other.name", str)),
        )
    ),
)
conditions = st.recursive(
    basic,
    lambda part: st.one_of(
        st.builds(lambda one, other: one & other, part, part),
        st.builds(lambda one, other: one | other, part, part),
        st.builds(lambda one, other: one ^ other, part, part),
        st.builds(lambda it: ~it, part),
    ),
    max_leaves=5,
)
places = st.builds(Place, texts, numbers)
bids = st.builds(
    lambda kind, *given: kind(*given),
    st.sampled_from((Bid, UrgentBid)),
    *(texts, numbers, st.sampled_from((-1, 0, 1, 10, 2**70, 1.5))),
    *(st.sampled_from(Side), st.none() | texts, places, st.none() | places),
)


def form_of(matcher: ConditionSet[Any]) -> str:
    return matcher.form


def is_compiled(matcher: ConditionSet[Any]) -> bool:
    return matcher._static.is_compiled


def sorted_matches(matcher: ConditionSet[int], obvent: Any) -> list[int]:
    return sorted(matcher.matching(obvent))


@given(given=st.lists(conditions, max_size=8), seen=st.lists(bids, min_size=1, max_size=4))
def test_all_forms_agree(given: list[Condition], seen: list[Bid]) -> None:
    """The answer would depend on the number of subscribers."""
    for form in FORMS:
        matcher: ConditionSet[int] = ConditionSet(Bid, form=form)
        for key, condition in enumerate(given):
            matcher.add(key, condition)
        for is_settled in (False, True):
            if is_settled:
                matcher.settle()
            for bid in seen:
                expected = [key for key, it in enumerate(given) if it.conforms(bid)]
                assert sorted_matches(matcher, bid) == expected, form


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.none() | basic), max_size=12),
    seen=st.lists(bids, min_size=1, max_size=2),
)
def test_all_forms_agree_while_conditions_come_and_go(
    steps: list[tuple[int, Condition | None]], seen: list[Bid]
) -> None:
    """A removed key would still match, or shared parts be removed with their first user."""
    sets: list[ConditionSet[int]] = [ConditionSet(Bid, form=it) for it in FORMS]
    held: dict[int, Condition] = {}
    for number, (key, condition) in enumerate(steps):
        if condition is None:
            held.pop(key, None)
        else:
            held[key] = condition
        for matcher in sets:
            if condition is None:
                matcher.remove(key)
            else:
                matcher.add(key, condition)
            if number % 3 == 2:
                matcher.settle()
            assert sorted(matcher) == sorted(held)
            for bid in seen:
                expected = sorted(key for key, it in held.items() if it.conforms(bid))
                assert sorted_matches(matcher, bid) == expected


@given(condition=conditions, bid=bids)
def test_a_rule_agrees_with_its_condition(condition: Condition, bid: Bid) -> None:
    """Brokers would withhold matching obvents, or deliver others."""
    if type(bid.amount) is not int or abs(bid.amount) > 2**62:
        return
    notification = bid.to_notification()
    received = Bid.from_notification(notification)
    assert Bid.lift(condition).matches(notification) == condition.conforms(received)


def test_an_accessor_is_evaluated_once_for_all() -> None:
    """The invocation tree would save nothing; figure 4.16."""
    for form in ("tree", "static"):
        matcher: ConditionSet[str] = ConditionSet(Bid, form=form)
        first = Invoke("counted", ("a",))
        for key, more in {"p": "price", "q": "amount", "r": "company"}.items():
            matcher.add(key, Equals(Access(first, more), 80.0))
        matcher.add("s", Equals(Access(Invoke("counted", ("b",)), "price"), 80.0))
        matcher.add(
            "t", Less("price", 0.0) & Equals(Access(Invoke("counted", ("c",)), "price"), 1.0)
        )
        matcher.settle()
        bid = Bid("Telco", 80.0)
        assert sorted(matcher.matching(bid)) == ["p", "s"]
        assert sorted(bid.calls) == ["a", "b"], form
        for key in "pqr":
            matcher.remove(key)
        matcher.settle()
        bid = Bid("Telco", 80.0)
        assert matcher.matching(bid) == ["s"]
        assert bid.calls == ["b"]


def test_the_tree_holds_the_nodes_in_use() -> None:
    """It would grow with each subscriber, or lose shared nodes; figure 4.16."""
    tree = InvocationTree()
    place = Invoke("get_place")
    groups = [
        ConditionGroup(number, condition, [number])
        for number, condition in enumerate(
            (
                Equals(place.access("name"), "Zurich"),
                Equals(place.access("fee"), 0.5) & Equals(place.access("name"), "Zurich"),
                Equals(place.invoke("fee_of", (Access("price"),)), place.access("fee")),
            )
        )
    ]
    sizes = [0]
    for group in groups:
        tree.put(group)
        sizes.append(len(tree))
    assert sizes == [0, 2, 3, 5]
    assert tree.matching(BID) == [0, 1]
    for group in groups:
        assert len(tree) == sizes[3] - {0: 0, 1: 0, 2: 1}[group.keys[0]]
        tree.drop(group)
    assert len(tree) == 0
    assert tree.matching(BID) == []


def test_one_that_raises_leaves_the_others() -> None:
    """A failing method would take the obvents of all other subscribers."""
    broken = Access("place").invoke("broken")
    for form in FORMS:
        matcher: ConditionSet[str] = ConditionSet(Bid, form=form)
        for key, condition in {
            "raises": Greater(broken, 0.0),
            "raises too": ~Less(broken, 0.0),
            "again": Same(broken, None) | IsInstance(broken, float),
            "given": Equals(Invoke("above", (broken,)), True),
            "other": Equals("company", "Telco Mobiles"),
            "default": Equals(Access("place").invoke("broken", default=3), 3),
        }.items():
            matcher.add(key, condition)
        matcher.settle()
        assert sorted(matcher.matching(BID)) == ["default", "other"], form


def test_what_raised_has_no_fields() -> None:
    """The field of an object that is not there would be one of the program's own."""
    for form in FORMS[:2]:
        matcher: ConditionSet[str] = ConditionSet(form=form)
        for name in ("error", "__class__"):
            matcher.add(name, ~Equals(Invoke("lost").access(name), 3.0))
        matcher.settle()
        assert matcher.matching(BID) == [], form


def test_objects_of_other_classes() -> None:
    """An index would answer for the methods and the ancestors of the declared class."""
    several = {
        "is": IsInstance(Bid) & Less("price", 90.0),
        "method": Less(Invoke("get_price"), 50.0),
        "nested": Greater(Access("place").invoke("fee_of", (1.0,)), 9.0),
    }
    for form in FORMS:
        matcher: ConditionSet[str] = ConditionSet(Bid, form=form)
        for key, condition in several.items():
            matcher.add(key, condition)
        matcher.settle()
        assert matcher.matching(Cheaper("x", 80.0)) == ["method"], form
        odd: Any = Dearer("x")
        assert matcher.matching(Bid("x", 80.0, place=odd)) == ["is", "nested"], form


def test_values_of_undeclared_types() -> None:
    """Filters, which are defined for a field's type only, would decide on other values."""
    odd: Any = "dear"
    for form in FORMS:
        matcher: ConditionSet[str] = ConditionSet(Bid, form=form)
        matcher.add("not", ~Equals("price", 1.0))
        matcher.add("below", Less("price", 1.0))
        matcher.add("large", Greater("amount", 10) & Equals("company", "x"))
        matcher.settle()
        assert matcher.matching(Bid("x", odd)) == ["not"], form
        assert matcher.matching(Bid("x", 1.0, 2**70)) == ["large"], form


def test_own_conditions_have_keys_of_their_own() -> None:
    """A condition would be answered by another one of the same class."""
    parts = Greater("price", 0.0), Greater("amount", 9)
    for form in FORMS:
        matcher: ConditionSet[str] = ConditionSet(Bid, form=form)
        for by in (1.0, 50.0):
            matcher.add(f"by {by}", Near("price", 100.0, by=by))
        for most in (1, 2):
            matcher.add(f"at least {most}", AtLeast(most, *parts))
        matcher.add("alike", Alike("company", "X"))
        matcher.add("either", Either(Equals("company", "x"), Equals("company", "y")))
        wanted = ["alike", "at least 1", "by 50.0", "either"]
        for _ in range(2):
            assert sorted(matcher.matching(Bid("x", 130.0))) == wanted, form
            matcher.settle()


def test_stages_are_not_derived_from() -> None:
    """A tree would evaluate the base class's accessor."""
    with pytest.raises(TypeError, match="derives from Accessor"):
        type("Upper", (Access,), {})


def test_clocks_of_zones_are_not_indexed() -> None:
    """A time that a clock shows twice equals, in Python, only times of the same clock."""
    zone = ZoneInfo("America/New_York")
    twice = datetime(2020, 11, 1, 1, 30, tzinfo=zone)
    for form in FORMS:
        matcher: ConditionSet[str] = ConditionSet(Timed, form=form)
        matcher.add("clock", Equals("at", twice))
        matcher.add("world", Equals("at", twice.astimezone(UTC)))
        matcher.settle()
        assert matcher.matching(Timed(twice)) == ["clock"], form
        assert matcher.matching(Timed(twice.astimezone(UTC))) == ["world"], form


def test_a_method_may_match_by_the_same_set() -> None:
    """An obvent would be judged by the values of another one."""
    matcher: ConditionSet[str] = ConditionSet(form="tree")

    class Asking:
        def __init__(self, number: int, inner: "Asking | None") -> None:
            self.number, self.inner = number, inner

        def asks(self) -> int:
            return len(matcher.matching(self.inner)) if self.inner else 0

    matcher.add("inner", Equals(Invoke("asks"), 1))
    matcher.add("number", Equals("number", 1))
    assert matcher.matching(Asking(2, Asking(1, None))) == ["inner"]
    assert matcher.matching(Asking(1, Asking(2, None))) == ["number"]


def test_without_a_class_it_is_structural() -> None:
    """Objects of similar classes could not be matched."""
    matcher: ConditionSet[str] = ConditionSet()
    matcher.add("a", Less("price", 5.0) & Less("get_price()", 5.0))
    matcher.add("b", Less("prize", 5.0))
    for _ in range(2):
        assert matcher.matching(Stranger(3.0)) == ["a"]
        assert matcher.matching(Bid("x", 3.0)) == ["a"]
        matcher.settle()
    assert form_of(matcher) == "static"


def test_a_set_refuses_invalid_conditions() -> None:
    """A mistake would be discovered at the first obvent, or cost the earlier condition."""
    matcher: ConditionSet[Any] = ConditionSet(Bid)
    matcher.add("a", Less("price", 5.0))
    for condition in (Less("prize", 5.0), lambda bid: True):
        with pytest.raises(InvalidObventError):
            matcher.add("a", condition)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        matcher.add([], Less("price", 5.0))
    assert matcher.matching(Bid("x", 3.0)) == ["a"]
    assert matcher["a"].key == Less("price", 5.0).key
    assert ("a" in matcher, "b" in matcher, len(matcher)) == (True, False, 1)
    with pytest.raises(InvalidObventError, match="form = 'fast'"):
        ConditionSet(Bid, form="fast")  # type: ignore[arg-type]
    with pytest.raises(InvalidObventError, match="needs a class"):
        ConditionSet(form="indexed")


def test_a_changed_chunk_is_compiled_when_that_pays() -> None:
    """Each change would compile all conditions, or none would ever be compiled."""
    matcher: ConditionSet[int] = ConditionSet(Bid, form="static")
    for key in range(static_filter.CHUNK_CONDITIONS_MAX + 10):
        matcher.add(key, Less("price", float(key)))
    assert not is_compiled(matcher)
    for _ in range(static_filter.COMPILE_AFTER + 3):
        assert len(matcher.matching(BID)) == static_filter.CHUNK_CONDITIONS_MAX + 10 - 81
    assert is_compiled(matcher)
    first, last = (chunk.function for chunk in matcher._static.chunks)
    matcher.add(10_000, Less("price", -1.0))
    assert [chunk.function for chunk in matcher._static.chunks] == [first, None]
    assert last is not None
    assert len(matcher.matching(BID)) == static_filter.CHUNK_CONDITIONS_MAX + 10 - 81


def test_an_index_is_used_from_enough_exact_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few conditions would pay for an index, or thousands be evaluated one by one."""
    monkeypatch.setattr(condition_set, "INDEXED_MIN", 20)
    matcher: ConditionSet[int] = ConditionSet(Bid)
    least = 20 + condition_set.INDEXED_MIN_PER_ATTRIBUTE
    for key in range(least - 1):
        matcher.add(key, Equals("price", float(key)))
    matcher.add(-1, Equals("get_place().name", "Zurich"))
    assert (form_of(matcher), matcher.matching(Bid("x", 3.0))) == ("static", [3, -1])
    matcher.add(least - 1, Equals("price", 3.0) & Equals("price", 3.0))
    assert form_of(matcher) == "indexed"
    assert sorted(matcher.matching(Bid("x", 3.0))) == [-1, 3, least - 1]
    # Filters are not defined for an int in a field of doubles: static filters match it.
    assert sorted(matcher.matching(Bid("x", 7))) == [-1, 7]
    matcher.remove(7)
    assert (form_of(matcher), matcher.matching(Bid("x", 7.0))) == ("static", [-1])


def test_conditions_that_are_filters_in_part_are_not_indexed() -> None:
    """Each match of their filters would call the rest of the condition, one by one."""
    matcher: ConditionSet[int] = ConditionSet(Bid, form="indexed")
    for key in range(10):
        matcher.add(key, Less("price", float(key)) & Equals("get_place().name", "Zurich"))
    assert matcher._index is not None
    assert len(matcher._index) == 0
    assert sorted(matcher.matching(Bid("x", 7.0))) == [8, 9]


@pytest.mark.slow
def test_equal_conditions_are_evaluated_once() -> None:
    """A thousand equal subscriptions would cost a thousand times as much."""
    for form in ("tree", "static", "indexed"):
        matcher: ConditionSet[int] = ConditionSet(Bid, form=form)
        for key in range(1_000):
            matcher.add(key, Less(Invoke("get_price"), 100.0) & Contains("company", "Telco"))
        matcher.settle()
        assert sorted(matcher.matching(BID)) == list(range(1_000))
        assert len(matcher._groups) == 1
        matcher.remove(7)
        assert len(matcher.matching(BID)) == 999
