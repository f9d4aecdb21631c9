"""Comparisons of all filters of an index with a box: those that may meet it, or lie in it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.model import Product
from contrada.model.algebra import sets
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.routing.tables.covering_index import indexed
from tests import strategies
from tests.matching.engines import COMPILED, arrays_of, generation_of, module, new_index

SETS = strategies.constraints | strategies.interval_sets() | strategies.value_sets(3)
NAMES = st.sampled_from(["a", "b", "@publisher", "@time"])
PRODUCTS = strategies.filters(SETS, NAMES) | strategies.advertisements(SETS, NAMES)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def index_of(filters: list[ct.Filter], compiled: bool) -> ct.Index[int]:
    """An index of the filters by their numbers, which tests each however few they are."""
    index: ct.Index[int] = new_index(compiled)
    for number, each in enumerate(filters):
        index.add(number, each)
    return index


def all_tested(compiled: bool) -> Any:
    """A block in which few filters are tested as many are."""
    return mock.patch.object(module("array_engine", compiled), "FEW_KEYS", -1)


@pytest.mark.parametrize("compiled", COMPILED)
@given(products=st.lists(PRODUCTS, max_size=8), asked=PRODUCTS)
def test_no_filter_that_meets_a_box_is_left_out(
    products: list[Product], asked: Product, compiled: bool
) -> None:
    """A subscription would not be forwarded, or a source not be asked."""
    filters = [indexed(each) for each in products]
    index = index_of(filters, compiled)
    of = indexed(asked)
    with all_tested(compiled):
        meeting = [n for n, each in enumerate(filters) if ct.meets(each, asked)]
        assert sorted(index.meeting(asked)) == meeting
        assert set(index.may_meet(asked)).issuperset(meeting)
        covered = [n for n, each in enumerate(filters) if ct.covers(of, each)]
        assert sorted(index.covered(of)) == covered


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "value",
    [
        lambda n: f"text{n}",
        lambda n: "\0" * n,
        lambda n: bytes((200, n)),
        lambda n: n,
        lambda n: n / 8,
        lambda n: BEGIN + timedelta(days=n),
    ],
)
def test_values_that_differ_exclude_one_another(value: Any, compiled: bool) -> None:
    """A subscription would be compared with each advertisement, a query with each source."""
    filters = [ct.Filter({"a": value(n), "b": n}) for n in range(20)]
    offers = [indexed(ct.Advertisement({"a": value(n), "b": n})) for n in range(20)]
    several = [ct.Filter({"a": sets.in_(value(n), value(n + 20), True)}) for n in range(20)]
    by_filter, by_offer = ct.Filter({"a": value(7)}), ct.Advertisement({"a": value(7), "b": 7})
    for held in (filters, offers, several):
        assert index_of(held, compiled).may_meet(by_filter) == [7]
    assert index_of(filters, compiled).may_meet(by_offer) == [7]
    assert index_of(several, compiled).may_meet(by_offer) == [7]
    assert len(index_of(offers, compiled).may_meet(by_offer)) == 20, "all may lack both"


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("ends", [(-12, -4), (-8, 3), (4, 12)])
def test_a_range_beyond_an_end_is_in_no_box(ends: tuple[int, int], compiled: bool) -> None:
    """A new subscription would be compared with each that it meets, or miss one that it covers."""
    filters = [ct.Filter({"a": sets.between(n, n + 1)}) for n in range(-20, 20)]
    wider = ct.Filter({"a": sets.between(*ends)})
    covered = [n for n, each in enumerate(filters) if ct.covers(wider, each)]
    assert arrays_of(index_of(filters, compiled)).near(wider, inside=True) == covered


@pytest.mark.parametrize("compiled", COMPILED)
def test_what_no_single_value_or_interval_excludes_is_left_to_the_algebra(compiled: bool) -> None:
    """A filter of texts between others, or with an operator, would be taken for one of a value."""
    odd = [
        sets.between("a", "c"),
        sets.between("a", "a\0"),
        sets.ge("a"),
        sets.prefix("b"),
        sets.contains("b") | sets.eq("x"),
        sets.ne("x"),
        sets.in_("a", "b"),
        sets.between("a", "b") | sets.absent(),
        sets.gt(1) | sets.eq("b"),
    ]
    others = [sets.eq("x"), sets.in_("x", "y"), sets.absent(), sets.in_(1, None)]
    filters = [ct.Filter({"a": each}) for each in [*odd, *others * 4]]
    index = index_of(filters, compiled)
    for asked in (ct.Filter({"a": "b"}), ct.Filter({"a": "never seen"})):
        met = [n for n, each in enumerate(filters) if ct.meets(each, asked)]
        assert sorted(index.meeting(asked)) == met
        assert set(index.may_meet(asked)) <= set(range(len(odd)))


def test_an_unregistered_operator_meets_values_of_any_domain() -> None:
    """A filter in transit would be dropped because an operator is unknown here."""
    unknown = ct.ValueSet(sets.absent().line, Literal(Atom("frob", b"x"), True))
    index = index_of([ct.Filter({"a": unknown, "b": n}) for n in range(20)], False)
    assert index.meeting(ct.Filter("a = 1 and b = 3")) == [3]
    assert index.meeting(ct.Advertisement("b = 3 and c any")) == [3]


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_advertisement_excludes_filters_of_attributes_that_it_lacks(compiled: bool) -> None:
    """Each advertisement of a neighbour would be compared with all subscriptions."""
    sets_of_b = [sets.in_(1, "x"), sets.in_(1, "x") | sets.absent(), sets.eq(1), sets.exists()]
    filters = [ct.Filter({"b": each}) for each in sets_of_b]
    filters += [ct.Filter({"b": n}) for n in range(20)]
    index = index_of(filters, compiled)
    assert index.may_meet(ct.Advertisement("a any")) == [1]
    assert index.may_meet(ct.Advertisement("a any and b = 'x'")) == [0, 1, 3]


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_advertisement_lacks_no_attribute_of_the_envelope(compiled: bool) -> None:
    """A subscription to a publisher would not be forwarded when an advertisement arrives."""
    filters = [ct.Filter({"@publisher": f"p{n}", "a": 1}) for n in range(20)]
    index = index_of(filters, compiled)
    assert sorted(index.meeting(ct.Advertisement("a any"))) == [*range(20)]
    assert index.meeting(ct.Advertisement("a any and @publisher = 'p7'")) == [7]
    assert index.meeting(ct.Advertisement("b any")) == []


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_that_touch_a_box_are_listed_in_parts(compiled: Any) -> None:
    """Filters beyond the room would be forgotten, or repeated."""
    segment = generation_of([ct.Filter({"a": n % 5, "b": n}) for n in range(40)], compiled)
    arrays = segment.arrays
    key = module("filter_compiler").number_key(3)[0]
    box: Any = np.array([segment.compiler.attrs["a"], 4, key, key, 0], dtype=np.int64)
    found, listed, first = np.zeros(4, dtype=np.int64), [], 0
    touching = module("kernels.box_overlap", compiled).touching
    while first < arrays.used["filters"]:
        count = touching(box, False, False, first, found, arrays.used["filters"], arrays.memory)
        assert count <= 3
        listed += found[:count].tolist()
        first = int(found[-1])
    assert listed == [n for n in range(40) if n % 5 == 3]
