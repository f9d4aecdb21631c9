"""Laws of the algebra, by Hypothesis; `make thorough` tries 100,000 examples per relation."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contrada.model import Advertisement, Filter, FilterSet, Notification, Value, ValueSet
from contrada.model.algebra import boxes, relations, sets
from contrada.model.algebra.simplification import simplify
from contrada.model.algebra.value_set import ABSENT, EVERYTHING, NOTHING, PRESENT
from contrada.model.domains.values import ABSENT_KEY, Key, key_of
from contrada.model.languages import decision
from tests import strategies as some

keys: st.SearchStrategy[Key] = st.one_of(st.just(ABSENT_KEY), some.values().map(key_of))
sets_ = some.value_sets()


@given(sets_, sets_, keys)
def test_operations_are_logic_on_membership(a: ValueSet, b: ValueSet, key: Key) -> None:
    """A combined set would hold a value that Boolean logic on its parts does not give."""
    in_a, in_b = a.holds(key), b.holds(key)
    assert (a & b).holds(key) is (in_a and in_b)
    assert (a | b).holds(key) is (in_a or in_b)
    assert (a - b).holds(key) is (in_a and not in_b)
    assert (~a).holds(key) is (not in_a)


@given(sets_, sets_, sets_)
def test_sets_are_a_boolean_algebra(a: ValueSet, b: ValueSet, c: ValueSet) -> None:
    """Rewriting a set by a law of Boolean algebra would make another set of it."""
    assert a & b == b & a
    assert a | b == b | a
    assert a & (b & c) == (a & b) & c
    assert a | (b | c) == (a | b) | c
    assert a & (b | c) == (a & b) | (a & c)
    assert a | (b & c) == (a | b) & (a | c)
    assert a & (a | b) == a == a | (a & b)
    assert ~(a & b) == ~a | ~b
    assert ~~a == a
    assert a & ~a == NOTHING
    assert a | ~a == EVERYTHING
    assert a - b == a & ~b


@given(st.lists(some.pooled_values, min_size=1, max_size=4))
def test_the_three_complements(constants: list[Value]) -> None:
    """`not in`, `any but` and `none of` would no longer differ as documented."""
    inside = sets.in_(*constants)
    assert sets.none_of(*constants) == ~inside
    assert sets.any_but(*constants) == PRESENT - inside == sets.none_of(*constants) - ABSENT
    assert sets.not_in(*constants) <= sets.any_but(*constants)
    assert not sets.not_in(*constants).meets(inside)
    domains = [sets.eq(each) | sets.ne(each) for each in constants if each is not None]
    for each, domain in zip((c for c in constants if c is not None), domains, strict=True):
        assert sets.eq(each) <= inside
        assert domain - inside <= sets.not_in(*constants)


@given(sets_, sets_, sets_)
def test_inclusion_is_a_partial_order(a: ValueSet, b: ValueSet, c: ValueSet) -> None:
    """Inclusion would not be reflexive, antisymmetric or transitive."""
    assert a <= a
    assert (a <= b and b <= a) is (a == b)
    if a <= b and b <= c:
        assert a <= c
    assert (a & b) <= a <= (a | b)
    assert (a <= b) is (a & b == a) is (a - b).is_empty


@given(sets_, sets_, keys)
def test_decisions_agree_with_membership(a: ValueSet, b: ValueSet, key: Key) -> None:
    """A decision would be refuted by a value."""
    if a.holds(key):
        assert not a.is_empty
        assert b.holds(key) or not b >= a
        assert not b.holds(key) or a.meets(b)
    if a.holds(key) is not b.holds(key):
        assert a != b
    assert a.meets(b) is not (a & b).is_empty


@given(sets_, sets_)
def test_witnesses_are_members(a: ValueSet, b: ValueSet) -> None:
    """A set would name a value that it does not hold, or call itself empty and name one."""
    for each in (a, b, a & b, a - b, ~a):
        key = each.some_key()
        assert (key is None) is each.is_empty
        assert key is None or each.holds(key)


@given(sets_, sets_, sets_)
def test_equal_sets_have_equal_hashes(a: ValueSet, b: ValueSet, c: ValueSet) -> None:
    """A set of sets would hold one of them twice."""
    pairs = ((a & (b | c), (a & b) | (a & c)), (~(a | b), ~a & ~b), (a, (a & b) | (a - b)))
    for left, right in pairs:
        assert left == right
        assert hash(left) == hash(right)
    if a == b:
        assert hash(a) == hash(b)


@given(sets_)
def test_the_canonical_form_is_the_same_set(a: ValueSet) -> None:
    """Bringing a set into canonical form would change it."""
    canonical = a.canonical()
    assert canonical == a
    assert canonical.canonical().line == canonical.line


filters = some.filters(sets_)
filter_sets = some.filter_sets()
notifications = some.notifications()


@given(filters, notifications)
def test_a_filter_matches_when_every_set_holds_a_value(
    f: Filter, notification: Notification
) -> None:
    """A filter would match, or not, against the definition of several values."""
    expected = all(
        any(value_set.holds(key) for key in notification.keys_of(name))
        for name, value_set in f.sets.items()
    )
    assert f.matches(notification) is expected
    assert relations.meets(f, notification) is expected


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("a < 5", True),
        ("a > 5", True),
        ("a < 5 and a > 5", False),  # one value has to satisfy all constraints on its attribute
        ("a = 2", False),
        ("a absent", False),
        ("b absent and c absent", True),
        ("b any", False),
    ],
)
def test_one_of_several_values_has_to_match(text: str, matches: bool) -> None:
    """A notification with several values would match by all of them, or by none."""
    notification = Notification({"a": [1, 9], "b": []})
    assert Filter(text).matches(notification) is matches
    assert relations.meets(Filter(text), notification) is matches


@given(filters, filters, notifications)
def test_covers_is_sound(f: Filter, g: Filter, notification: Notification) -> None:
    """A filter would cover another that matches more; routers would lose notifications."""
    if relations.covers(f, g) and g.matches(notification):
        assert f.matches(notification)


@given(filter_sets, filter_sets, notifications)
def test_covers_of_unions_is_sound(f: FilterSet, g: FilterSet, notification: Notification) -> None:
    """A union of filters would cover another that matches more."""
    if relations.covers(f, g) and g.matches(notification):
        assert f.matches(notification)


@given(some.advertisements(sets_), filters, notifications)
def test_relevance_is_sound(a: Advertisement, f: Filter, notification: Notification) -> None:
    """An advertisement would be called irrelevant to a subscription that it serves."""
    if relations.matches(a, notification) and f.matches(notification):
        assert relations.meets(a, f)


@given(some.advertisements(sets_), some.advertisements(sets_), notifications)
def test_covers_of_advertisements_is_sound(
    a: Advertisement, b: Advertisement, notification: Notification
) -> None:
    """An advertisement would cover another that announces more."""
    if relations.covers(a, b) and relations.matches(b, notification):
        assert relations.matches(a, notification)


@given(filters, filters, some.notifications(values_max=1))
def test_meets_is_sound(f: Filter, g: Filter, notification: Notification) -> None:
    """Two filters that one notification of single values matches would be called apart."""
    if f.matches(notification) and g.matches(notification):
        assert relations.meets(f, g)
        assert (f & g).matches(notification)


@given(filters, filters, filters)
def test_covers_is_a_partial_order(f: Filter, g: Filter, h: Filter) -> None:
    """Covering of filters would not be reflexive, antisymmetric or transitive."""
    assert relations.covers(f, f)
    assert relations.equal(f, g) is (f == g)
    if relations.covers(f, g) and relations.covers(g, h):
        assert relations.covers(f, h)
    assert relations.covers(f, f & g)
    assert relations.covers(f | g, f)


@given(filters, filters)
def test_equal_filters_have_equal_hashes(f: Filter, g: Filter) -> None:
    """A set of filters would hold one of them twice."""
    if relations.equal(f, g):
        assert f == g
        assert hash(f) == hash(g)
    assert hash(f & f) == hash(f)


@given(filters, filters, notifications)
def test_merge_is_exact(f: Filter, g: Filter, notification: Notification) -> None:
    """A merged filter would match more or less than the two filters."""
    merged = relations.merge(f, g)
    assume(merged is not None)
    assert merged is not None
    assert merged.matches(notification) is (f.matches(notification) or g.matches(notification))
    assert relations.equal(merged, FilterSet([f, g]))


@given(some.filter_sets(max_size=6), notifications)
def test_simplify_keeps_the_union(f: FilterSet, notification: Notification) -> None:
    """A simplified filter set would match more or less than before."""
    simple = simplify(f)
    assert simple.matches(notification) is f.matches(notification)
    assert relations.equal(simple, f)
    assert len(simple) <= len(f)


@given(filters, some.filter_sets())
def test_the_rest_of_a_box_is_disjoint_pieces(f: Filter, taken: FilterSet) -> None:
    """A subtraction would look at the same points again and again."""
    left = [
        Filter.of_sets(box)
        for box in boxes.subtract_boxes(f.sets, [part.sets for part in taken.filters])
    ]
    for place, piece in enumerate(left):
        assert f.covers(piece)
        assert not any(relations.meets(piece, other) for other in left[:place])
        assert not any(relations.meets(piece, part) for part in taken)


@given(filters, filters)
def test_witnesses_of_filters(f: Filter, g: Filter) -> None:
    """The notification that explains an answer would not show it."""
    both = relations.witness(f, g)
    assert (both is not None) is relations.meets(f, g)
    assert both is None or (f.matches(both) and g.matches(both))
    against = relations.witness(g, but_not=f)
    assert (against is None) is relations.covers(f, g)
    assert against is None or (g.matches(against) and not f.matches(against))


@given(some.advertisements(sets_), filters, filter_sets, some.advertisements())
def test_witnesses_of_advertisements(
    a: Advertisement, f: Filter, fs: FilterSet, b: Advertisement
) -> None:
    """The notification that explains an answer about an advertisement would not show it."""
    covers = relations.matches
    relevant = relations.witness(a, f)
    assert (relevant is not None) is relations.meets(a, f)
    assert relevant is None or (covers(a, relevant) and f.matches(relevant))
    for other in (f, fs):
        beyond = relations.witness(a, but_not=other)
        assert (beyond is None) is relations.covers(other, a)
        assert beyond is None or (covers(a, beyond) and not other.matches(beyond))
    more = relations.witness(a, but_not=b)
    assert (more is None) is relations.covers(b, a)
    assert more is None or (covers(a, more) and not covers(b, more))
    silent = relations.witness(f, but_not=b)
    assert silent is None or (f.matches(silent) and not covers(b, silent))


@given(some.filter_sets(sets_), some.filter_sets(sets_))
def test_nothing_in_these_tests_is_a_guess(f: FilterSet, g: FilterSet) -> None:
    """Small questions would be answered safely instead of exactly."""
    before = decision.safe_answers.total()
    relations.covers(f, g)
    relations.meets(f, g)
    assert decision.safe_answers.total() == before
