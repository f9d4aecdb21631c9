"""A front finds what covers a product and what it covers, as asking each would."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.model import Advertisement, Filter, Product, ValueSet
from contrada.model.atoms import Atom
from contrada.model.language import Literal
from contrada.model.line import EMPTY
from contrada.model.product import product_covers
from contrada.routing.front import FilterFront, OfferFront, example_of
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


def asked_of(front: Any, products: list[Product]) -> None:
    """Every product asked against every other, also after some have gone."""
    for number, product in enumerate(products):
        front.add(number, product, example_of(product))
    front.validate()
    held = dict(enumerate(products))
    for gone in (None, *range(0, len(products), 3)):
        if gone is not None:
            del held[gone]
            front.remove(gone)
            front.validate()
        for product in products:
            covering = [n for n, each in held.items() if product_covers(each, product)]
            covered = [n for n, each in held.items() if product_covers(product, each)]
            assert front.covering(product, example_of(product)) == covering, str(product)
            assert front.covered(product) == covered, str(product)


@pytest.mark.parametrize(
    ("make", "products"), [(FilterFront, POOL), (OfferFront, OFFERS)], ids=["filters", "offers"]
)
def test_it_answers_as_asking_each_would(make: Callable[[], Any], products: list[Product]) -> None:
    """What is covered would be sent, or, worse, what is not covered would be kept back."""
    asked_of(make(), products)


@given(st.lists(strategies.filters(), min_size=2, max_size=12, unique=True))
def test_any_filters(filters: list[Filter]) -> None:
    """A kind of set would be filed where nobody looks for it, or found where it is not."""
    front = FilterFront()
    usable = [each for each in filters if not each.is_empty]
    for number, each in enumerate(usable):
        front.add(number, each, example_of(each))
    front.validate()
    for each in usable:
        found = front.covered(each)
        assert all(product_covers(each, usable[number]) for number in found)
        plain = all(side.text is None for side in each.sides.values())
        if plain:
            covered = [n for n, other in enumerate(usable) if product_covers(each, other)]
            assert [n for n in covered if example_of(usable[n]) is not None] == found
        covering = front.covering(each, example_of(each))
        assert all(product_covers(usable[number], each) for number in covering)


def test_an_unknown_operator_covers_nothing() -> None:
    """A filter that cannot be understood here would keep others back, or be kept back."""
    unknown = ValueSet(EMPTY, Literal(Atom("elsewhere", b"x"), positive=True))
    strange = Filter.of_sets({"a": unknown})
    front = FilterFront()
    front.add(0, strange, example_of(strange))
    front.add(1, Filter("a any"), example_of(Filter("a any")))
    assert front.covering(strange, example_of(strange)) == []
    assert front.covered(Filter("a any")) == [1]
    assert front.covered(strange) == []
    front.remove(0)
    front.validate()
