"""Types by structure, tuples, and sequences of types, in every service."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import pytest

import contrada as ct
from contrada.errors import InvalidObventError
from contrada.model import Notification
from contrada.typed import ObventPattern, Structural, Tuple, structural_types
from contrada.typed.obvent_codec import ObventCodec
from contrada.typed.type_names import conforming_classes
from tests.asynchronous import on_loop
from tests.service.ways import service_of


class Priced(Protocol):
    price: float


class Named(Priced, Protocol):
    @property
    def company(self) -> str: ...

    def dear(self) -> bool: ...


@dataclass
class Offer(ct.Obvent, name="structure.Offer"):
    company: str
    price: float
    legs: list[int] = field(default_factory=list)

    def dear(self) -> bool:
        return self.price > 100


@dataclass
class Whole(ct.Obvent, name="structure.Whole"):
    price: int


@dataclass
class Other(ct.Obvent, name="structure.Other"):
    price: str
    company: str = "x"


@dataclass
class Request(ct.Obvent, name="structure.Request"):
    company: str
    most: float


@on_loop
async def test_what_has_the_members_conforms(name: str) -> None:
    """Vendors would have to agree on basic types."""
    async with (
        service_of(name) as service,
        service.subscribe(Structural[Priced](), lambda it: it.price < 100) as priced,
        service.subscribe(Structural[Named](), lambda it: it.dear()) as named,
    ):
        for each in (
            Offer("a", 1.0, [1]),
            Other("cheap"),
            Whole(5),
            {"price": 7.5, "more": 1},
            Offer("b", 200.0),
            {"price": 1.0, "company": "plain"},
        ):
            await service.publish(each)
        assert await priced.next(5) == Offer("a", 1.0, [1])
        whole: Any = await priced.next(5)
        assert whole == Whole(5)
        assert (await priced.next(5)).price == 7.5, "of no class: it has the members all the same"
        assert (await priced.next(5)).price == 1.0
        assert await named.next(5) == Offer("b", 200.0)
        assert not named.statistics().dropped, "what has no such method is passed over"


class Counted(Protocol):
    price: int


def test_a_known_class_that_does_not_conform_is_not_taken_for_none() -> None:
    """Its object would be made of any notification with the attributes, if the values fit."""
    subject = Structural[Counted]()
    with pytest.raises(InvalidObventError, match=r"structure.Offer does not conform"):
        subject.from_notification(Offer("a", 80.0).to_notification())
    assert subject.from_notification(Whole(5).to_notification()) == Whole(5)
    more = Notification.with_marks({"price": 7}, ["structure.Unheard", "structure.Request"])
    assert subject.from_notification(more).price == 7, "its own class is not known"


def test_a_class_that_comes_later_conforms() -> None:
    """Objects that were once read as a record would be one for ever."""
    subject = Structural[Counted]()
    notification = Notification.with_marks({"price": 7}, ["structure.Late"])
    assert not isinstance(subject.from_notification(notification), ct.Obvent)

    @dataclass
    class Late(ct.Obvent, name="structure.Late"):
        price: int

    assert subject.from_notification(notification) == Late(7)


def test_who_conforms_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notification would cost a look at all members of all classes that it may be of."""
    asked: list[tuple[str, ...]] = []

    def counted(marks: Any) -> list[type[Any]]:
        asked.append(tuple(marks))
        return conforming_classes(marks)

    monkeypatch.setattr(structural_types, "conforming_classes", counted)
    monkeypatch.setattr(structural_types, "STRUCTURES_MAX", 2)
    subject = Structural[Counted]()
    whole, offer = Whole(5).to_notification(), Offer("a", 80.0).to_notification()
    strange = Notification({"price": 1})
    for _ in range(3):
        assert subject.from_notification(whole) == Whole(5)
        with pytest.raises(InvalidObventError, match="does not conform"):
            subject.from_notification(offer)
    assert len(asked) == 2
    assert subject.from_notification(strange).price == 1
    assert subject.from_notification(whole) == Whole(5), "there was no room to remember it"
    assert len(asked) == 4


def test_how_a_tuple_is_published_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tuple would cost a reading of its types."""
    made: list[str] = []

    class CountingCodec(ObventCodec):
        def __init__(self, shape: Any, type_name: str) -> None:
            made.append(type_name)
            super().__init__(shape, type_name)

    monkeypatch.setattr(structural_types, "ObventCodec", CountingCodec)
    for values in ((b"once", True, 1.5), (b"twice", False, 2.5), (b"thrice", True, 1)):
        sent = Tuple(*values).to_notification()
        assert tuple(sent[str(place)] for place in range(3)) == values
    assert made == ["tuple", "tuple"]


@on_loop
async def test_tuples_are_published_by_structure(name: str) -> None:
    """A class would be needed for a single use."""
    async with (
        service_of(name) as service,
        service.subscribe(Structural[tuple[str, float, int]](), lambda t: t[1] < 100) as tuples,
        service.subscribe("`0` = 'Telco'") as untyped,
    ):
        for each in (
            Tuple("Telco", 200.0, 1),
            Tuple("Telco", 80.0),
            Tuple("Telco", "dear", 1),
            Tuple("Telco", 80, 1, 2),
            Tuple("Telco", 80.0, 12373),
        ):
            await service.publish(each)
        assert await tuples.next(5) == ("Telco", 80.0, 12373)
        assert (await untyped.next(5))["1"] == 200.0


@on_loop
async def test_a_tuple_carries_what_is_no_attribute(name: str) -> None:
    """Only scalars could be published by structure."""
    subject = Structural[tuple[str, list[int], Offer]]()
    async with service_of(name) as service, service.subscribe(subject) as tuples:
        await service.publish(Tuple("x", [1, 2], Offer("a", 1.0, [3])))
        assert await tuples.next(5) == ("x", [1, 2], Offer("a", 1.0, [3]))


@on_loop
async def test_sequences_of_types_give_objects(name: str) -> None:
    """A program that correlates obvents would have to convert notifications itself."""
    bought = ObventPattern(
        Request, (Offer, lambda offer: offer.price < 100), by="company", within=timedelta(hours=1)
    )
    async with service_of(name) as service, service.subscribe(bought) as matches:
        for each in (Request("a", 90), Offer("b", 1), Offer("a", 200), Offer("a", 80)):
            await service.publish(each)
        await service.publish({"later": True})
        match = await matches.next(15)
        request, offer = match.obvents
        assert (request, offer) == (Request("a", 90), Offer("a", 80))
        assert match.by == ("a",)
        assert request.most == 90


@pytest.mark.parametrize(
    ("parts", "by", "said"),
    [
        ((Request, (Offer, lambda offer: len(offer.legs) > 1)), (), "exactly one filter: .*len"),
        ((Request, (Offer, lambda o: o.price < 1 or o.company == "a")), (), "one filter"),
        ((Request, Offer), "price", "Request.*'price'"),
        ((Request, Offer), "legs", "no such field"),
        ((Request, "price > 1"), (), "type of obvents"),
    ],
)
def test_what_the_network_cannot_match_is_refused(parts: Any, by: Any, said: str) -> None:
    """A match would be missed, or be delivered against a predicate."""
    with pytest.raises(InvalidObventError, match=f"(?s){said}"):
        ObventPattern(*parts, by=by)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (Structural(), "a type argument is missing"),
        (Structural[int](), "expected a Protocol"),
        (Structural[tuple[int, ...]](), "types of 1 to"),
    ],
)
def test_what_has_no_structure_is_refused(subject: Structural[Any], said: str) -> None:
    """It would match everything, or nothing."""
    with pytest.raises(InvalidObventError, match=said):
        subject.to_filters()
    with pytest.raises(InvalidObventError, match="TUPLE_VALUES_MAX"):
        Tuple()


def test_covering_is_by_members() -> None:
    """A protocol that asks for more would not be covered by one that asks for less."""

    class Both(Protocol):
        price: float
        company: str

    assert Structural[Priced]().to_filters().covers(Structural[Both]().to_filters())
    assert not Structural[Both]().to_filters().covers(Structural[Priced]().to_filters())
    with pytest.raises(InvalidObventError, match="no field"):
        Structural[Priced]().check_where(ct.Filter("company any"))
