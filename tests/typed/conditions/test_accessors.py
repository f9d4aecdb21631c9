"""Accessors: their values, and their checks against a class."""

from collections.abc import Callable
from typing import Any

import pytest

from contrada.errors import InvalidObventError
from contrada.typed.conditions import Access, Accessor, Equals, Invoke
from contrada.typed.conditions.accessors import STAGES_MAX, accessor_of
from tests.typed.conditions.quotes import BID, Bid, Place, Stranger, UrgentBid


class Doubled(Accessor):
    """An accessor of one's own."""

    def eval(self, obvent: Any) -> Any:
        return 2 * obvent.price


GOT: list[tuple[Accessor | str, object]] = [
    (Access("price"), 80.0),
    (Access("place.name"), "Zurich"),
    (Invoke("get_price"), 80.0),
    (Invoke("get_place.get_name"), "Zurich"),
    (Invoke("get_place.fee_of", (), (10.0,)), 5.0),
    (Invoke("get_place.fee_of", (), (10.0, "CHF")), -1.0),
    (Invoke([Bid.get_place, Place.get_name]), "Zurich"),
    (Invoke([Bid.get_place, "get_name"]), "Zurich"),
    (Invoke(Access("place"), "get_name"), "Zurich"),
    (Access(Invoke("get_place"), "name"), "Zurich"),
    (Access("place").invoke("get_name").invoke("upper"), "ZURICH"),
    (Invoke("get_place").access("name"), "Zurich"),
    (Invoke(Access("place"), "fee_of", (Access("price"),)), 40.0),
    (Invoke("anything", (Invoke("get_price"), 1)), (80.0, 1)),
    (Access("place").invoke("broken", default=7), 7),
    (Access("other.name", default="nowhere"), "nowhere"),
    (Access(Invoke("lost", default=Place("?")), "name"), "?"),
    (Access(Access("other", default=None), "name", default="short"), "short"),
    ("place.get_name()", "Zurich"),
    ("get_place().name", "Zurich"),
    (Doubled(), 160.0),
    (Doubled().invoke("hex"), (160.0).hex()),
]


@pytest.mark.parametrize(("given", "expected"), GOT, ids=[str(it) for it in range(len(GOT))])
def test_accessors_read_values(given: Accessor | str, expected: object) -> None:
    """A condition, or its compiled form, would compare another value."""
    accessor = accessor_of(given)
    assert accessor.eval(BID) == expected
    accessor.check(Bid)
    assert Equals(accessor, expected).predicate(Bid)(BID)


WRONG: list[tuple[Callable[[], Accessor], str]] = [
    (lambda: Access("prize", cls=Bid), "'conditions|Bid.*prize: there is no field 'prize'"),
    (lambda: Access("place.nam", cls=Bid), "'Place'.*place.nam: there is no field 'nam'"),
    (lambda: Access("get_price", cls=Bid), "'get_price' is a method, and no field"),
    (lambda: Access("other.nam", cls=Bid), "there is no field 'nam'"),
    (lambda: Invoke("get_prize", cls=Bid), r"get_prize\(\): there is no method 'get_prize'"),
    (lambda: Invoke("get_place.nam", cls=Bid), "'Place'.*there is no method 'nam'"),
    (lambda: Invoke("get_price.get_name", cls=Bid), "'float'.*there is no method 'get_name'"),
    (
        lambda: Access(Access("price", default=Place("?")), "fee", cls=Bid),
        "'float'.*no field 'fee'",
    ),
    (lambda: Access(Access("place", default=3), "fee", cls=Bid), "'int'.*there is no field 'fee'"),
    (lambda: Invoke("get_price", (1,), cls=Bid), "too many positional arguments"),
    (lambda: Invoke("above", cls=Bid), "missing a required argument: 'least'"),
    (lambda: Invoke("above", ("x",), cls=Bid), "argument 'least' = 'x': expected float"),
    (lambda: Invoke("above", (None,), cls=Bid), "argument 'least' = None: expected float"),
    (
        lambda: Invoke("above", (Access("company"),), cls=Bid),
        "argument 'least' = str: expected float",
    ),
    (lambda: Invoke(Place.get_name, cls=Bid), "Place.get_name is no method of it"),
    (lambda: Access("market.", cls=Bid), "'' in 'market.' is no name"),
    (lambda: Access("a b"), "'a b' in 'a b' is no name"),
    (lambda: Access("class"), "is no name"),
    (lambda: Access("price", "company"), "join them by dots"),
    (lambda: Access(Access("price")), "names nothing"),
    (lambda: Invoke("get_place.get_name", ()), "a tuple of arguments for each of 2 methods"),
    (lambda: Invoke("above", 3), "expected a tuple of arguments"),
    (lambda: Invoke(Access("place")), "no method of place is named"),
    (lambda: Invoke([]), "no method is named"),
    (lambda: Invoke([3]), "3 is no method"),  # type: ignore[list-item]
    (lambda: Access(".".join(["a"] * (STAGES_MAX + 1))), "STAGES_MAX"),
]


@pytest.mark.parametrize(("make", "reason"), WRONG, ids=[str(it) for it in range(len(WRONG))])
def test_accessors_are_checked(make: Callable[[], Accessor], reason: str) -> None:
    """A misspelt name would silently match nothing, for ever."""
    with pytest.raises(InvalidObventError, match=reason):
        make()


RIGHT = [
    Invoke("unresolved", (BID,)),
    Invoke("above", (3,)),
    Invoke("above", (True,)),
    Invoke("above", (Access("amount"),)),
    Invoke("anything", (1, "x", None)),
    Invoke(Invoke("anything", (1,)), "whatever", (2,)),
    Access("other.name"),
    Access("company").invoke("startswith", ("Tel",)),
]


@pytest.mark.parametrize("accessor", RIGHT, ids=[str(it) for it in range(len(RIGHT))])
def test_valid_and_undeclared_accessors_are_accepted(accessor: Accessor) -> None:
    """A correct or undeclared accessor would be refused."""
    accessor.check(Bid)


def test_a_name_alone_is_structural() -> None:
    """An object of another class with the method would not be evaluated."""
    assert Invoke("get_price").eval(Stranger(3.0)) == 3.0
    with pytest.raises(AttributeError):
        Invoke("get_place").eval(Stranger(3.0))


def test_a_function_is_of_its_class() -> None:
    """A method of the same name of another class would be called, or an overriding one not."""
    by_function = Invoke([Bid.get_price])
    with pytest.raises(TypeError, match="get_price is no method of Stranger"):
        by_function.eval(Stranger(3.0))
    with pytest.raises(TypeError, match="get_price is no method of Stranger"):
        Equals(by_function, 3.0).predicate()(Stranger(3.0))
    urgent = UrgentBid("Telco", 1.0)
    assert Invoke([Bid.get_place, Place.get_name]).eval(urgent) == "elsewhere"


def test_equal_accessors_have_equal_keys() -> None:
    """Equal accessors would not be shared, or different ones would be."""
    pairs = [
        (Access("place.name"), Access(Access("place"), "name")),
        (Invoke("above", (1.0,)), Invoke("above", (1.0,))),
        (Invoke("above", (Access("price"),)), Invoke("above", (Access("price"),))),
    ]
    assert all(one.key == other.key for one, other in pairs)
    different = [
        *(Access("price"), Invoke("price"), Access("price", default=1), Access("price", default=2)),
        *(Invoke("above", (1.0,)), Invoke("above", (1,)), Invoke("above", (True,))),
        *(Invoke("above", (0.0,)), Invoke("above", (-0.0,)), Invoke([Bid.above], (1.0,))),
        *(Invoke("above", ((1,),)), Invoke("above", ((1.0,),)), Invoke("above", (Access("a"),))),
    ]
    assert len({each.key for each in different}) == len(different)
