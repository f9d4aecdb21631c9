"""Permits: a granted request matches only allowed and requested notifications."""

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from contrada.errors import LimitError, NotPermittedError
from contrada.matching.packed import BUNDLE_MIN, Bundle
from contrada.model import (
    Advertisement,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Selection,
    to_msgpack,
)
from contrada.model.algebra.product import product_covers, product_meets
from contrada.model.syntax.parser import parse_filter_set
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX, alternative
from contrada.service.security import permits
from contrada.service.security.permits import SHARED_FILTERS_MAX, Permit, PublishFilters
from contrada.service.security.principals import EVERYTHING, NOTHING, Principal, free, owns
from tests import strategies
from tests.matching.engines import needs_native
from tests.service.security.singles import singles

narrows = st.booleans()
several = st.lists(strategies.notifications(), min_size=1, max_size=8)


def reader(allowed: FilterSet, *, narrows: bool = True) -> Permit:
    return Permit(Principal("desk", subscribe=allowed, narrows=narrows))


def writer(allowed: FilterSet, *publishers: str, narrows: bool = True) -> Permit:
    return Permit(Principal("desk", allowed, publishers=publishers, narrows=narrows))


# --- reading --------------------------------------------------------------------------------------


@given(
    strategies.filter_sets(),
    st.one_of(strategies.filters(), strategies.filter_sets()),
    narrows,
    several,
)
def test_what_is_subscribed_to_is_allowed_and_wished(
    allowed: FilterSet, wish: Selection, narrows: bool, items: list[Notification]
) -> None:
    """A user could read forbidden notifications, or would miss allowed ones."""
    permit = reader(allowed, narrows=narrows)
    is_covered = allowed.covers(wish)
    try:
        granted = permit.allow_filters(wish)
    except NotPermittedError:
        assert not is_covered
        assert permit.has_narrowed
        assert not narrows or not any(
            allowed.matches(each) and wish.matches(each) and is_single(each) for each in items
        )
        return
    assert (granted is wish) is (is_covered or not permit.has_narrowed)
    assert narrows or granted is wish
    for each in items:
        if granted.matches(each):
            assert allowed.matches(each), "it reads what it may not"
            assert wish.matches(each), "it gets what it did not wish for"
        elif is_single(each):
            assert not (allowed.matches(each) and wish.matches(each)), "it misses what it may read"


def is_single(item: Notification) -> bool:
    """Of several values, one may meet the first filter and another the second."""
    return all(len(item.keys_of(name)) == 1 for name in item)


@given(strategies.filter_sets(max_size=3), strategies.filters())
def test_a_covered_wish_is_granted_as_it_is(allowed: FilterSet, more: Filter) -> None:
    """A request within the permission would be narrowed or refused."""
    assume(allowed.filters)
    for each in allowed.filters:
        wish = each & more
        if not allowed.covers(wish):
            continue  # It could not be decided.
        for narrows in (False, True):
            permit = reader(allowed, narrows=narrows)
            assert permit.allow_filters(wish) is wish
            assert not permit.has_narrowed


@pytest.mark.parametrize(
    ("allowed", "wish", "narrowed"),
    [
        ("a = 1", "a any", "a = 1"),
        ("a = 1 or b = 2", "c = 3", "a = 1 and c = 3 or b = 2 and c = 3"),
        ("a < 5", "not (a = 3)", "a < 3 or a > 3 and a < 5"),
        ("a prefix 'x'", "a suffix 'y'", "a prefix 'x' and a suffix 'y'"),
        ("a = 'DIS'", "a = nocase 'dis'", "a = 'DIS'"),
        ("a matches '^b+$'", "a wildcard '?b*'", "a matches '^b+$' and a wildcard '?b*'"),
        ("@publisher = 'p'", "a any", "@publisher = 'p' and a any"),
        ("b absent", "a any", "a any and b absent"),
    ],
)
def test_a_wider_wish_is_narrowed_or_refused(allowed: str, wish: str, narrowed: str) -> None:
    """A request in other words than the permission would pass it."""
    asked = FilterSet(wish)
    granted = reader(FilterSet(allowed)).allow_filters(asked)
    assert FilterSet(granted) == FilterSet(narrowed)
    with pytest.raises(NotPermittedError, match="'desk' may not subscribe to"):
        reader(FilterSet(allowed), narrows=False).allow_filters(asked)


def test_what_has_nothing_in_common_is_refused() -> None:
    """A subscription in force would never receive a notification, without a reason."""
    for allowed in (FilterSet("a = 1"), NOTHING):
        with pytest.raises(NotPermittedError):
            reader(allowed).allow_filters(Filter("a = 2"))


def test_a_wish_that_becomes_too_many_filters_is_too_much() -> None:
    """One request could take any memory."""
    half = 1 + int(SUBSCRIPTION_FILTERS_MAX**0.5)
    allowed = FilterSet(Filter({"a": n}) for n in range(half))
    wish = FilterSet(Filter({"b": n}) for n in range(half))
    with pytest.raises(LimitError, match="SUBSCRIPTION_FILTERS_MAX"):
        reader(allowed).allow_filters(wish)


@given(strategies.filter_sets(max_size=2), strategies.patterns(), several)
def test_each_filter_of_a_pattern_is_narrowed(
    allowed: FilterSet, pattern: Pattern, items: list[Notification]
) -> None:
    """A pattern would show notifications that a subscription may not."""
    try:
        granted = reader(allowed).allow_pattern(pattern)
    except NotPermittedError:
        return
    assert (granted.by, granted.within_us, granted.every) == (
        *(pattern.by, pattern.within_us),
        pattern.every,
    )
    for wished, got in zip(pattern.filters, granted.filters, strict=True):
        for each in items:
            if got.matches(each):
                assert allowed.matches(each)
                assert wished.matches(each)
    with_all = reader(EVERYTHING, narrows=False).allow_pattern(pattern)
    assert with_all.filters == pattern.filters


def test_a_pattern_of_which_one_filter_is_too_wide_is_refused() -> None:
    """The other parts of a match could reveal forbidden notifications."""
    pattern = Pattern([Filter("a = 1"), Filter("b = 1")])
    for allowed in (
        "a = 1 and b absent",
        "a = 1 and b absent or b = 1 and c = 1 or b = 1 and c = 2",
    ):
        with pytest.raises(NotPermittedError, match="may not subscribe to"):
            reader(FilterSet(allowed)).allow_pattern(pattern)
    with pytest.raises(NotPermittedError):
        reader(FilterSet("a = 1 or b = 1 and c = 1"), narrows=False).allow_pattern(pattern)


@given(
    strategies.filter_sets(),
    st.lists(strategies.queries(), min_size=1, max_size=3),
    st.sampled_from([(), (("a", "b"),)]),
    several,
)
def test_what_is_asked_for_is_allowed(
    allowed: FilterSet, asked: list[Any], same: Any, items: list[Notification]
) -> None:
    """A query would get items that a subscription may not."""
    wished = [alternative(each.sides, same) for each in asked]
    try:
        granted = reader(allowed).allow_query(wished)
    except NotPermittedError:
        return
    for each in items:
        if any(it.matches(each) for it in granted):
            assert allowed.matches(each)
            assert any(it.matches(each) for it in wished)
        elif is_single(each) and allowed.matches(each):
            assert not any(it.matches(each) for it in wished)


def test_a_question_that_becomes_too_many_alternatives_is_too_much() -> None:
    """Each source would have to check all queries."""
    allowed = FilterSet(Filter({"a": n}) for n in range(ALTERNATIVES_MAX + 1))
    with pytest.raises(LimitError, match="ALTERNATIVES_MAX"):
        reader(allowed).allow_query([alternative({})])
    covered = alternative({"a": allowed.filters[0].set_of("a")})
    assert reader(allowed).allow_query([covered]) == (covered,)


@given(strategies.filter_sets(), several)
def test_what_is_handed_over_is_looked_at(allowed: FilterSet, items: list[Notification]) -> None:
    """Answers and records of other users would bypass the permission."""
    permit = reader(allowed)
    assert permit.readable(items) == [each for each in items if allowed.matches(each)]
    assert permit.unreadable(items) == {
        at for at, each in enumerate(items) if not allowed.matches(each)
    }


@given(strategies.filter_sets(), strategies.advertisements(), several)
def test_who_hears_of_an_offer_may_read_some_of_it(
    allowed: FilterSet, offer: Advertisement, items: list[Notification]
) -> None:
    """A user would learn of publications that are forbidden."""
    permit = reader(allowed)
    hears = permit.may_hear(offer)
    assert hears is any(product_meets(each, offer) for each in allowed.filters)
    assert permit.has_narrowed is not hears, "what was kept from him is told once he may"


# --- writing --------------------------------------------------------------------------------------


@given(
    strategies.filter_sets(),
    st.one_of(strategies.advertisements(), strategies.filters()),
    narrows,
    several,
)
def test_what_is_offered_is_allowed(
    allowed: FilterSet, offer: Any, narrows: bool, items: list[Notification]
) -> None:
    """A source would receive queries for items that its user may not publish."""
    try:
        granted = writer(allowed, narrows=narrows).allow_offer(offer)
    except NotPermittedError:
        return
    assert narrows or granted == offer
    assert product_covers(offer, granted)
    for each in items:
        if isinstance(granted, Filter) and granted.matches(each):
            assert allowed.matches(each)
            assert offer.matches(each)


@given(strategies.filter_sets(), strategies.filters())
def test_one_may_offer_what_one_may_publish(allowed: FilterSet, more: Filter) -> None:
    """A source within its permission would be refused."""
    for each in allowed.filters:
        offer = each & more
        if offer.is_empty:
            continue
        try:
            granted = writer(allowed, narrows=False).allow_offer(offer)
        except NotPermittedError:
            assert each & offer != offer, "equality could not be decided"
        else:
            assert granted == offer


publishers = st.sampled_from(["", "desk", "desk/1", "desk7", "other"])
published = st.builds(
    lambda it, publisher, time: it.with_envelope(
        replace(it.envelope, id="i", publisher=publisher, time_us=time, delivery="best-effort")
    ),
    strategies.notifications(),
    publishers,
    st.sampled_from([None, 0, 1_700_000_000_000_000]),
)
written = st.one_of(
    strategies.filter_sets(),
    st.sampled_from(
        [
            FilterSet("@publisher = 'desk'"),
            FilterSet("@publisher prefix 'desk'"),
            FilterSet("@publisher absent"),
            FilterSet("@time any"),
            FilterSet("@time absent or a any"),
            FilterSet("@time >= @2020-01-01T00:00:00Z and a any"),
            FilterSet("@id = 'i' and b absent"),
            EVERYTHING,
            NOTHING,
        ]
    ),
)


@given(written, st.lists(published, max_size=8), st.sampled_from([(), ("desk",), ("*",)]))
def test_what_is_published_is_allowed_and_under_names_of_ones_own(
    allowed: FilterSet, items: list[Notification], mine: tuple[str, ...]
) -> None:
    """A user could publish forbidden notifications, or under another name."""
    permit = writer(allowed, *mine)
    found = refused(permit, items)
    assert found == [
        at
        for at, each in enumerate(items)
        if not all(map(allowed.matches, singles(each))) or not owns(mine, each.envelope.publisher)
    ]
    for at in found:
        error = permit.why_unpublishable(items[at])
        is_name = not owns(mine, items[at].envelope.publisher)
        assert ("may not publish as" in str(error)) is is_name


def test_a_refusal_names_attributes_and_tells_no_values() -> None:
    """Brokers log the reason, and a reader of the log may not see the content."""
    permit = writer(parse_filter_set("price < 5"), "")
    error = permit.why_unpublishable(Notification({"price": 4711, "note": "sealed"}))
    assert "may not publish a notification of note, price: none" in str(error)
    assert not {"4711", "sealed"}.intersection(str(error).split())
    several = permit.why_unpublishable(Notification({"price": (1, 4711)}))
    assert "of several values" in str(several)


@pytest.mark.parametrize(
    ("allowed", "attributes", "is_allowed"),
    [
        ("what = 'quote'", {"what": ["quote", "alert"]}, False),
        ("what = 'quote' or what = 'alert'", {"what": ["quote", "alert"]}, True),
        ("what in ('quote', 'alert')", {"what": ["quote", "alert"], "x": [1, 2]}, True),
        ("a = 1 and b = 1 or a = 2 and b = 2", {"a": [1, 2], "b": [1, 2]}, False),
        ("a = 1 or b = 2", {"a": [1, 2], "b": [1, 2]}, False),
        ("a = 1 or b = 2", {"a": [1, 2], "b": 2}, True),
        ("a prefix 'x' or a = 3", {"a": ["xy", "x", 3]}, True),
        ("a prefix 'x' and not (a = 'xy')", {"a": ["xy", "x"]}, False),
        ("a matches '^x+$' and b absent", {"a": ["xx", "x"]}, True),
    ],
)
def test_of_several_values_each_has_to_be_allowed(
    allowed: str, attributes: dict[str, Any], is_allowed: bool
) -> None:
    """An allowed value would permit other values beside it."""
    permit = writer(FilterSet(allowed), "*")
    item = Notification(attributes)
    assert (refused(permit, [item]) == []) is is_allowed
    if not is_allowed:
        error = permit.why_unpublishable(item)
        assert "of several values it has to be allowed with each" in str(error)
    assert reader(FilterSet(allowed)).readable([item]) == [item], "who may read it reads all of it"


PLAIN = Envelope("i", "desk", 1, 1_700_000_000_000_000)


def refused(permit: Permit, items: Any) -> list[int]:
    """The positions of forbidden publications, after any number of turns."""
    looking = permit.unpublishable(items)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            return [*end.value]


def bundle_of(items: Sequence[Notification]) -> Bundle | None:
    return Bundle.of([bytes(to_msgpack(each)) for each in items])


@needs_native
@given(
    written,
    st.lists(strategies.notifications(values_max=1), min_size=BUNDLE_MIN, max_size=12),
    st.lists(st.sampled_from(["", "desk", "desk/1", "desk7", "other"]), min_size=1, max_size=3),
    st.sampled_from([(), ("desk",), ("*",)]),
    strategies.filter_sets(),
)
def test_bundles_are_looked_at_as_notifications_are(
    allowed: FilterSet,
    items: list[Notification],
    names: list[str],
    mine: tuple[str, ...],
    others: FilterSet,
) -> None:
    """A forbidden notification could be published among others."""
    stamped = [
        each.with_envelope(replace(PLAIN, publisher=names[at % len(names)]))
        for at, each in enumerate(items)
    ]
    bundle = bundle_of(stamped)
    assume(bundle is not None)
    assert bundle is not None
    permit, together = writer(allowed, *mine), PublishFilters()
    refused(Permit(changed(permit.principal, publish=others), together), bundle)
    by_all = Permit(permit.principal, together)
    for part in (slice(None), slice(1, -1)):
        assert refused(permit, bundle[part]) == refused(permit, stamped[part])
        assert refused(by_all, bundle[part]) == refused(permit, stamped[part])


@needs_native
def test_of_users_together_each_is_held_to_filters_of_its_own() -> None:
    """A user could publish notifications of another; or all would be checked at length."""
    together = PublishFilters()
    bundle = bundle_of([Notification({"a": n, "b": "x"}, envelope=PLAIN) for n in range(8)])
    assert bundle is not None
    many = [*(Filter({f"c{n}": n}) for n in range(SHARED_FILTERS_MAX)), Filter({"b": "x"})]
    said: dict[str, bool] = {
        "b prefix 'x' and a < 8": True,
        "a < 4 or a >= 4": True,
        "a < 7": False,
        "b contains 'x'": True,
        "c any": False,
        "b any or aa any": True,
        "aa any or b any and a any": True,
        " or ".join((*(f"c{n} any" for n in range(9)), "a < 8 and b any")): True,
        "b absent or a any": True,
        "@publisher = ''": False,  # The bytes do not show the envelopes.
        "everything": True,
        "b contains 'x' and not (b matches '^y+$')": False,  # Only the model can decide.
    }
    for _ in range(2):
        for text, is_known in said.items():
            assert together.all_match(FilterSet(text), bundle) is is_known, text
    assert together.all_match(FilterSet(many[1:]), bundle)
    assert not together.all_match(FilterSet(many), bundle), "an index is better"
    near = bundle_of([Notification({"a": -(2**53) - 1}, envelope=PLAIN)] * BUNDLE_MIN)
    assert near is not None
    assert not together.all_match(FilterSet(f"a > {-(2**53)}"), near), "it is less"
    once = FilterSet("b contains 'x' and a any")
    assert together.all_match(once, bundle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permits, "CHECK_WORK_MAX", 0)
        assert not together.all_match(once, bundle), "there is no work left to find out"


@needs_native
def test_of_a_bundle_every_publisher_is_looked_at() -> None:
    """Another name in the middle, of the same length, would be overlooked."""
    items = [
        Notification({"a": n}, envelope=replace(PLAIN, publisher=name))
        for n, name in enumerate(["desk", "desk", "task", "desk", "desk/1", "desk"])
    ]
    bundle = bundle_of(items)
    assert bundle is not None
    assert bundle.publishers() == {"desk", "task", "desk/1"}
    assert bundle[3:4].publishers() == {"desk"}
    assert refused(writer(EVERYTHING, "desk"), bundle) == [2]
    assert refused(writer(FilterSet("a != 1"), "desk"), bundle) == [1, 2]
    assert refused(writer(EVERYTHING, "desk"), bundle[3:]) == []


# --- limits ---------------------------------------------------------------------------------------

COSTLY = FilterSet("a matches '[xy]x[xy]{9}$'")
LONG = Notification({"a": "xxyxyyy" * 10_000 + "x" * 11})


def test_what_is_too_much_work_to_look_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A costly request would be granted, or keep a broker busy."""
    cheap = Notification({"a": "x" * 11})
    items = [cheap, LONG, cheap, Notification({"a": "z"})]
    assert refused(writer(COSTLY, "*"), items) == [3]
    monkeypatch.setattr(permits, "CHECK_WORK_MAX", 200)
    assert refused(writer(COSTLY, "*"), items) == [1, 3]
    assert reader(COSTLY).readable(items) == [cheap, cheap]
    monkeypatch.setattr(permits, "READ_CHECKS_MAX", 3)
    assert not reader(COSTLY).readable([LONG, *[cheap] * 50]), "the rest is kept from him"
    turns = sum(1 for _ in writer(COSTLY, "*").unpublishable([cheap] * 5_000))
    assert turns > 10, "the others get their turns meanwhile"


# --- the rest -------------------------------------------------------------------------------------


def test_names_that_are_not_ones_own_are_refused() -> None:
    """A user could read or end the durable subscription of another, or inspect a broker."""
    permit = Permit(Principal("desk", publishers=("desk",), durable=("kept",)))
    permit.check_durable("kept/1")
    permit.check_publisher("desk/1")
    for check, name, words in (
        (permit.check_durable, "kept1", "may not use the durable subscription 'kept1'"),
        (permit.check_publisher, "kept", "may not publish as 'kept'"),
    ):
        with pytest.raises(NotPermittedError, match=words):
            check(name)
    with pytest.raises(NotPermittedError, match="may not inspect"):
        permit.check_inspect()
    Permit(free("desk")).check_inspect()


def test_who_may_do_everything_is_refused_nothing() -> None:
    """A permission would restrict a user with all rights."""
    permit = Permit(changed(free("desk"), may_link=False))
    for wish in (FilterSet("a = 1 or b matches 'x'"), FilterSet([]), Filter({})):
        assert permit.allow_filters(wish) is wish
    assert refused(permit, [Notification({"a": 1})]) == []
    assert permit.readable([LONG]) == [LONG]
    asked = (alternative({}),)
    assert permit.allow_query(asked) == asked
    assert not permit.has_narrowed
