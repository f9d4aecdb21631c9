"""`CoveringIndex` finds all covering and covered products, and few others."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.model import Advertisement, Filter, Product, ValueSet
from contrada.model.algebra.product import example_of, product_covers
from contrada.model.domains.line import EMPTY
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.routing.tables.covering_index import FilterCoveringIndex, OfferCoveringIndex
from tests import strategies

POOL = [
    Filter({}),
    *map(
        Filter,
        (
            "a any",
            "a > 0",
            "a > 0 and a < 9",
            "a = 3",
            "a = 3 and b = 'x'",
            "a = 3 and b prefix 'x'",
            "b suffix 'x'",
            "b suffix 'xx'",
            "b = 'xx'",
            "a (absent | < 5)",
            "a absent",
            "a (absent | = 3) and b any",
            "a any but (3)",
            "@publisher = 'p'",
            "@publisher = 'p' and a = 3",
            "@is.T = true",
            "@is.T = true and a in (3, 4)",
        ),
    ),
]

OFFERS = [
    *map(
        Advertisement,
        (
            "a any",
            "a any and b any",
            "a = 3",
            "a = 3 and a = 4",
            "a < 9 and b = 'x'",
            "b prefix 'x'",
            "b = 'xx'",
            "@publisher = 'p' and a = 3",
            "@publisher = 'p'",
        ),
    ),
    Filter({}),
    Filter("a any"),
    Filter("a = 3"),
]


def covering_of(front: Any, held: Mapping[int, Product], product: Product) -> list[int]:
    """Returns the products that cover a product."""
    found = front.covering(product, example_of(product.sides))
    assert found == sorted(set(found))
    return [number for number in found if product_covers(held[number], product)]


def covered_by(front: Any, held: Mapping[int, Product], product: Product) -> list[int]:
    """Returns the products that a product covers."""
    found = front.covered(product)
    assert found == sorted(set(found))
    return [number for number in found if product_covers(product, held[number])]


def compare_all(front: Any, products: list[Product]) -> None:
    """Compares every pair of products, also after removals."""
    for number, product in enumerate(products):
        front.add(number, product, example_of(product.sides))
    front.validate()
    held = dict(enumerate(products))
    for gone in (None, *range(0, len(products), 3)):
        if gone is not None:
            del held[gone]
            front.remove(gone)
            front.validate()
        for product in products:
            above = [n for n, each in held.items() if product_covers(each, product)]
            below = [n for n, each in held.items() if product_covers(product, each)]
            assert covering_of(front, held, product) == above, str(product)
            assert covered_by(front, held, product) == below, str(product)


@pytest.mark.parametrize(
    ("make", "products"),
    [(FilterCoveringIndex, POOL), (OfferCoveringIndex, OFFERS)],
    ids=["filters", "offers"],
)
def test_it_answers_as_asking_each_would(make: Callable[[], Any], products: list[Product]) -> None:
    """A covered filter would be sent, or, worse, an uncovered one held back."""
    compare_all(make(), products)


@given(st.lists(strategies.filters(), min_size=2, max_size=12, unique=True))
def test_any_filters(filters: list[Filter]) -> None:
    """A kind of set would be filed under the wrong key."""
    front = FilterCoveringIndex()
    usable = [each for each in filters if not each.is_empty]
    for number, each in enumerate(usable):
        front.add(number, each, example_of(each.sides))
    front.validate()
    held = dict(enumerate(usable))
    for each in usable:
        if all(side.text is None for side in each.sides.values()):
            below = [n for n, other in held.items() if product_covers(each, other)]
            found = covered_by(front, held, each)
            assert [n for n in below if example_of(held[n].sides) is not None] == found
            above = [n for n, other in held.items() if product_covers(other, each)]
            assert example_of(each.sides) is None or covering_of(front, held, each) == above


def test_few_are_looked_at() -> None:
    """With many filters each new one would be compared with all."""
    front = FilterCoveringIndex()
    filters = [Filter(f"a = {a} and b >= {b} and c any") for a in range(30) for b in range(30)]
    for number, each in enumerate(filters):
        front.add(number, each, example_of(each.sides))
    for each in filters:
        assert 1 <= len(front.covering(each, example_of(each.sides))) <= 30
        assert 1 <= len(front.covered(each)) <= 30
    assert front.covered(Filter("a = 30")) == front.covered(Filter("d any")) == []


@pytest.mark.parametrize("common", ["a any", "a = 1", "@publisher = 'p'"])
def test_few_advertisements_are_looked_at(common: str) -> None:
    """With many advertisements of the same attributes each new one would be compared with all."""
    front = OfferCoveringIndex()
    offers = [Advertisement(f"{common} and b = {n} and c = {n % 7}") for n in range(60)]
    for number, each in enumerate(offers):
        front.add(number, each, example_of(each.sides))
    front.validate()
    held = dict(enumerate(offers))
    for number, each in held.items():
        assert covered_by(front, held, each) == [number]
        assert len(front.covered(each)) <= 9, "its own, and those filed by c"
    assert front.covered(Advertisement("b = 60 and d any")) == []
    wide = Advertisement(f"{common} and b < 30 and c any")
    assert covered_by(front, held, wide) == [*range(30)]


def test_an_unknown_operator_covers_nothing() -> None:
    """A filter with an unknown operator would hold others back, or be held back."""
    unknown = ValueSet(EMPTY, Literal(Atom("elsewhere", b"x"), positive=True))
    strange = Filter.of_sets({"a": unknown})
    front = FilterCoveringIndex()
    held = {0: strange, 1: Filter("a any")}
    for number, each in held.items():
        front.add(number, each, example_of(each.sides))
    assert covering_of(front, held, strange) == []
    assert covered_by(front, held, Filter("a any")) == [1]
    assert covered_by(front, held, strange) == []
    front.remove(0)
    front.validate()
