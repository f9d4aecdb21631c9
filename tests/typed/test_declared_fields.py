"""Declared fields of obvent classes: with aliases, unset, generic, or made by the constructor."""

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field, make_dataclass
from typing import Annotated, Any, Generic, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from contrada import connect_sync
from contrada.errors import InvalidObventError, LimitError
from contrada.model import Envelope, Filter, Notification
from contrada.typed import Alias, Obvent, obvent
from contrada.typed.object_parts import OBVENT_BODY
from contrada.typed.shapes import shape_of
from tests.typed.made_classes import made_class
from tests.typed.test_obvent_codec import IN_MODULE, without


@dataclass
class Place(Obvent, name="declared.Place"):
    town: Annotated[str, Alias("city")]


@dataclass
class Visit(Obvent, name="declared.Visit"):
    place: Annotated[Place, Alias("site")]
    length_h: Annotated[int | None, Alias("hours")] = None


VISITS: list[dict[str, Any]] = [
    {name: "Zug", **hours}
    for name in ("place.town", "place.city", "site.town", "site.city")
    for hours in ({}, {"length_h": 2, "hours": 5}, {"hours": 5}, {"length_h": None, "hours": 5})
]


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("place.town = 'Zug'", lambda visit: visit.place.town == "Zug"),
        ("length_h > 3", lambda visit: visit.length_h is not None and visit.length_h > 3),
        ("length_h <= 3", lambda visit: visit.length_h is not None and visit.length_h <= 3),
        ("length_h (absent | = null)", lambda visit: visit.length_h is None),
        ("place.town != 'Zug'", lambda visit: visit.place.town != "Zug"),
    ],
)
def test_a_filter_finds_a_field_under_each_of_its_names(
    where: str, holds: Callable[[Visit], bool]
) -> None:
    """Objects of an older class would be missed, or found by a value that is not read."""
    narrowed = Visit.check_where(Filter(where))
    for attributes in VISITS:
        given = Notification.with_marks(attributes, marks=["declared.Visit"])
        assert narrowed.matches(given) is holds(Visit.from_notification(given)), attributes


def test_filters_on_very_many_fields_with_aliases_are_refused() -> None:
    """A short filter would become more filters than memory holds."""
    names = [f"f{number}" for number in range(40)]
    fields = [(name, Annotated[int, Alias(f"old_{name}")]) for name in names]
    kind: Any = make_dataclass("Wide", fields, bases=(Obvent,), namespace=IN_MODULE)
    with pytest.raises(LimitError, match="CONJUNCTIONS_MAX"):
        kind.check_where(Filter(dict.fromkeys(names, 1)))


def test_a_predicate_on_a_field_with_an_alias_is_a_subscription() -> None:
    """It would be refused, since its filters name the alias."""
    with (
        connect_sync() as service,
        service.subscribe(Visit, lambda visit: (visit.length_h or 0) > 3) as visits,
    ):
        for hours in ({"length_h": 4}, {"hours": 3}, {"hours": 5}):
            attributes: dict[str, Any] = {"site.city": "Bar", **hours}
            service.publish(Notification.with_marks(attributes, marks=["declared.Visit"]))
        assert [visits.next(10).length_h for _ in range(2)] == [4, 5]


def test_classes_that_cannot_be_restored_are_refused() -> None:
    """Subscribers would get no object, or less than was published."""
    with pytest.raises(InvalidObventError, match="wants 'rate'"):

        @dataclass
        class Initial(Obvent, name="declared.Initial"):
            price: float
            rate: InitVar[float]

    with pytest.raises(InvalidObventError, match="would be lost"):

        class Extra(Obvent, pydantic.BaseModel, name="declared.Extra"):
            model_config = pydantic.ConfigDict(extra="allow")


def test_what_is_refused_is_refused_at_the_definition() -> None:
    """A program would run until it first publishes such an object."""
    with pytest.raises(InvalidObventError, match=r"'handler' is .*Callable"):

        class Handled(Obvent, name="declared.Handled"):
            handler: Callable[[], None]

    with pytest.raises(InvalidObventError, match="taken by Obvent"):

        class Taken(Obvent, name="declared.Taken"):
            lift: int  # type: ignore[assignment]

    with pytest.raises(InvalidObventError, match=r"'found' is .*, found Pattern"):

        @obvent(name="declared.Searched")
        class Searched(msgspec.Struct):
            found: "re.Pattern[str] | int"

    class Later(Obvent, name="declared.Later"):
        other: "DefinedLater"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidObventError, match="DefinedLater"):
        Later().to_notification()


@dataclass
class Counted(Obvent, name="declared.Counted"):
    first: int
    factor: InitVar[int] = 2
    product: int = field(init=False)
    parts: list[int] = field(init=False, default_factory=list)

    def __post_init__(self, factor: int) -> None:
        self.product = self.first * factor
        self.parts.append(self.product)


@attrs.frozen
class Hashed(Obvent, name="declared.Hashed"):
    text: str
    _length: int = attrs.field(init=False, default=0)


@pytest.mark.parametrize("sent", [Counted(2, factor=5), Hashed("a")])
def test_fields_that_the_constructor_does_not_take_are_restored(sent: Obvent) -> None:
    """The class would be refused, or the constructor's value replace the published one."""
    got = type(sent).from_notification(sent.to_notification())
    assert got == sent


def test_fields_by_keyword_alone_are_fields() -> None:
    """The mark of a dataclass before them would be refused as a field of its own."""

    @dataclass
    class Keyword(Obvent, name="declared.Keyword"):
        first: int
        _: KW_ONLY
        second: int = 2

    sent = Keyword(1, second=3)
    assert Keyword.from_notification(sent.to_notification()) == sent


def test_a_field_that_the_constructor_does_not_take_may_be_absent() -> None:
    """Objects of an older class would not be read."""
    assert Counted.from_notification(without(Counted(2).to_notification(), "product")).product == 4


@obvent(name="declared.Partial")
class Partial(msgspec.Struct):
    number: int | msgspec.UnsetType = msgspec.UNSET
    place: Place | msgspec.UnsetType | None = msgspec.UNSET
    items: list[int] | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    "sent",
    [Partial(), Partial(1), Partial(place=None), Partial(items=[]), Partial(2, Place("Zug"), [1])],
)
def test_what_is_unset_is_absent(sent: Any) -> None:
    """It would be refused, or received as null."""
    notification = sent.to_notification()
    names = {name.partition(".")[0] for name in notification if not name.startswith("@")}
    held = {each for each in sent.__struct_fields__ if getattr(sent, each) is not msgspec.UNSET}
    assert names == held - {"items"}
    assert Partial.from_notification(notification) == sent  # type: ignore[attr-defined]


def test_another_default_than_unset_is_refused() -> None:
    """An unset field would be received with this default, or the first publication refused."""
    odd = msgspec.defstruct("Odd", [("a", int | msgspec.UnsetType, 5)])
    with pytest.raises(InvalidObventError, match="has to be its default"):
        obvent(name="declared.Odd")(odd)
    with pytest.raises(InvalidObventError, match="has to be its default"):
        shape_of(msgspec.defstruct("Odd", [("a", int | msgspec.UnsetType, 5)]))


T = TypeVar("T")


class Cat(pydantic.BaseModel):
    name: str


class ModelBox(pydantic.BaseModel, Generic[T]):
    content: T


@dataclass
class Box(Generic[T]):
    content: T
    label: Annotated[str, Alias("title")] = ""


@dataclass
class Crate(Box[int], Obvent, name="fields.Crate"):
    weight: float = 0.0


@attrs.define
class AttrsBox(Generic[T]):
    content: T


class StructBox(msgspec.Struct, Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (ModelBox[Cat], ModelBox[Cat](content=Cat(name="a"))),
        (ModelBox[Cat | Place], ModelBox[Cat | Place](content=Place("Zug"))),
        (list[ModelBox[Cat]], [ModelBox[Cat](content=Cat(name="a"))]),
        (Box[Cat], Box(Cat(name="a"))),
        (Box[Place | Cat], Box(Cat(name="a"), "x")),
        (Box[Box[Place]] | None, Box(Box(Place("Zug")))),
        (dict[str, Box[Place]], {"a": Box(Place("Zug"))}),
        (Box[int], Crate(5, weight=2.5)),
        (AttrsBox[Cat], AttrsBox(Cat(name="a"))),
        (StructBox[Cat], StructBox(Cat(name="a"))),
        (Box[list[Cat]], Box([Cat(name="a")])),
    ],
)
def test_generic_classes_hold_objects_of_classes(annotation: Any, value: Any) -> None:
    """They would be refused, or their content be read as maps."""
    kind = made_class("Held", {"box": annotation}, IN_MODULE)
    got = kind.from_notification(kind(value).to_notification())
    assert got == kind(value)
    assert type(got.box) is type(value)


class Message(Obvent, pydantic.BaseModel, Generic[T], name="fields.Message"):
    content: T


class NumberMessage(Message[int], name="fields.NumberMessage"):
    pass


def test_generic_events_are_published() -> None:
    """An event class with arguments would have no name that another process knows."""
    for sent in (
        Message[int](content=3),
        NumberMessage(content=4),
        Message[Cat](content=Cat(name="a")),
    ):
        assert Message.from_notification(sent.to_notification()) == sent
    assert "@is.fields.Message[int]" in NumberMessage(content=4).to_notification()
    assert Message[int].to_filters().matches(NumberMessage(content=4).to_notification())
    assert not Message[int].to_filters().matches(Message[str](content="a").to_notification())


def test_content_of_another_class_is_refused() -> None:
    """A subscriber would get an object that the annotation excludes."""
    kind: Any = make_dataclass("Full", [("box", Box[int])], bases=(Obvent,), namespace=IN_MODULE)
    with pytest.raises(InvalidObventError, match="content = 'x': expected int"):
        kind(Box("x")).to_notification()


@dataclass
class Tour(Obvent, name="declared.Tour"):
    stops: list[Place] = field(default_factory=list)


@pytest.mark.parametrize("mark", [[1], {"a": 1}, 1, None, "elsewhere.Place", "declared.Tour"])
def test_a_nested_object_with_an_odd_mark_is_of_the_declared_class(mark: Any) -> None:
    """A stranger's event would be refused, or changed when it is published again."""
    body = {"stops": [{"": {}, "town": "Zug", "@is": mark}]}
    packed, marks = msgspec.msgpack.encode(body), {"@is.declared.Tour": True}
    given = Notification.from_attributes(marks, packed, OBVENT_BODY, Envelope())
    tour = Tour.from_notification(given)
    assert (tour.stops[0].town, isinstance(tour.stops[0], Place)) == ("Zug", True)
    assert msgspec.msgpack.decode(tour.to_notification().body) == body
