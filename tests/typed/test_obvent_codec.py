"""`ObventCodec`: objects of all kinds of classes travel by value, and are restored."""

import copy
import enum
import gc
import re
import typing
import weakref
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidObventError
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.typed import Alias, Obvent, obvent
from contrada.typed.object_parts import OBVENT_BODY
from contrada.typed.obvent_schema import schema_of
from contrada.typed.predicates import lift
from contrada.typed.remote_calls import Reference
from contrada.typed.shapes import shape_of
from tests.typed.made_classes import made_class

IN_MODULE = {"__module__": __name__}


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(enum.Enum):
    """Values of several kinds: encoded by name."""

    DARK = (0, 0)
    LIGHT = 1


@dataclass
class Address:
    city: str
    floor: int | None = None


@dataclass
class Party(Obvent, name="carry.Party"):
    name: str
    address: Address | None = None


@dataclass
class Bank(Party, name="carry.Bank"):
    licence: str = ""


class Leg(NamedTuple):
    symbol: str
    share: float


@dataclass
class Trade(Obvent, name="carry.Trade"):
    """A field of each kind."""

    side: Side
    price: Decimal
    day: date
    at: datetime
    lasts: timedelta
    party: Party
    id: UUID
    level: Level = Level.LOW
    shade: Shade = Shade.DARK
    note: bytes | None = None
    legs: list[Leg] = field(default_factory=list)
    parties: tuple[Party, ...] = ()
    shares: dict[Side, float] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    either: int | date | list[int] = 0
    anything: Any = None


@attrs.define
class OfAttrs(Obvent, name="carry.OfAttrs"):
    price: float
    _hidden: int = 3


class OfPydantic(Obvent, pydantic.BaseModel, name="carry.OfPydantic"):
    price: float = pydantic.Field(alias="Price")
    parties: list[str] = []


@obvent(name="carry.OfStruct")
class OfStruct(msgspec.Struct, frozen=True):
    price: float
    note: str | None = None


@obvent(name="carry.OfStructs")
class OfStructs(Obvent, msgspec.Struct):
    price: float


class Plain(Obvent, name="carry.Plain"):
    price: float
    note: str = "none"

    def __init__(self, price: float) -> None:
        self.price = price
        self.made = True  # No field: it stays here.


TRADE = Trade(
    Side.SELL,
    Decimal("0.10000000000000000001"),
    date(2026, 11, 22),
    datetime(2026, 11, 22, 9, 30, tzinfo=UTC),
    timedelta(days=1, microseconds=1),
    Bank("Hill", Address("Basel"), licence="x"),
    UUID(int=7),
)
FULL = copy.copy(TRADE)
FULL.legs = [Leg("A", 0.5), Leg("B", 0.5)]
FULL.parties = (Party("a"), Bank("b", Address("Zug", 3), licence="y"))
FULL.shares = {Side.BUY: 1.0}
FULL.tags = {"x", "y"}
FULL.either = date(2026, 1, 1)
FULL.anything = {"deep": [1, {"er": None}]}
FULL.shade, FULL.level, FULL.note = Shade.LIGHT, Level.HIGH, b"\xff"


def over_the_wire(sent: Any) -> Any:
    notification = sent.to_notification()
    read = Notification.from_attributes(
        dict(notification), notification.body, notification.content_type, notification.envelope
    )
    return type(sent).from_notification(read)


@pytest.mark.parametrize("sent", [TRADE, FULL, OfAttrs(1.0), OfAttrs(2.0, 5)])
def test_objects_are_restored(sent: Any) -> None:
    """A field would be lost, or have another value."""
    assert over_the_wire(sent) == sent
    assert over_the_wire(sent) is not sent


@pytest.mark.parametrize(
    "sent", [OfPydantic(Price=1.5, parties=["a"]), OfStruct(1.0), OfStruct(2.0, "x"), OfStructs(3)]
)
def test_models_and_structs_are_obvents(sent: Any) -> None:
    """Existing classes would have to be written again."""
    back = over_the_wire(sent)
    assert back == sent
    assert type(back) is type(sent)


def test_a_plain_class_is_filled() -> None:
    """A class with an `__init__` of its own could not be published."""
    back = over_the_wire(Plain(2.0))
    assert (back.price, back.note) == (2.0, "none")
    assert not hasattr(back, "made"), "its own __init__ is not called"


def test_scalars_are_attributes_that_filters_see() -> None:
    """A broker could not filter by an object's fields."""
    notification = FULL.to_notification()
    seen = {name: it for name, it in notification.items() if not name.startswith("@")}
    assert seen == {
        "side": "sell",
        "price": 0.1,
        "day": "2026-11-22",
        "at": datetime(2026, 11, 22, 9, 30, tzinfo=UTC),
        "lasts": 86_400_000_001,
        "party.@is": "carry.Bank",
        "party.name": "Hill",
        "party.address.city": "Basel",
        "party.address.floor": None,
        "party.licence": "x",
        "id": str(UUID(int=7)),
        "level": 2,
        "shade": "LIGHT",
        "note": b"\xff",
    }
    Trade.check_where(Filter({"party.address.city": "Basel"}))
    with pytest.raises(InvalidObventError, match="is in the body"):
        Trade.check_where(Filter({"tags": "x"}))
    with pytest.raises(InvalidObventError, match="no field"):
        Trade.check_where(Filter({"side.deeper": "x"}))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("price < '9'", "'price' that no object has: its type is Decimal"),
        ("price != '9'", "'price'"),
        ("side = 'BUY'", "'side' that no object has: its type is Side"),
        ("level = 3", "'level'"),
        ("note = 1 and price < 9", "'note' that no object has: its type is bytes | None"),
        ("price = '9' or price = true", "'price'"),
        ("party.name = 3", None),
        ("party = 3", None),
        ("price < '9' or price < 9", None),
        ("price (< '9' | absent)", None),
        ("price = nan and side = 'buy' and shade = 'DARK' and level in (2, 3)", None),
        ("note = null or note = 'x'", None),
        ("lasts > 3600 and day > '2026' and id prefix '00' and at < @2026-11-22T00:00:00Z", None),
        ("@publisher = 'x'", None),
    ],
)
def test_a_filter_for_values_of_another_type_is_refused(where: str, expected: str | None) -> None:
    """A subscriber with a number in quotes would wait for ever."""
    if expected is None:
        assert Trade.check_where(FilterSet(where)) == FilterSet(where)
        return
    with pytest.raises(InvalidObventError, match=re.escape(f"values of {expected}")):
        Trade.check_where(FilterSet(where))


@dataclass
class Exchanged(Obvent, name="carry.Exchanged"):
    old: list[str]
    new: Annotated[int, Alias("old")] = 0


def test_a_filter_on_the_name_that_a_field_had_is_not_of_another_field() -> None:
    """It would end in a KeyError, or be refused for the type of the field that has the name now."""
    where = FilterSet("old = 1")
    assert Exchanged.check_where(where) == where


class Unannotated(Obvent, name="carry.Unannotated"):
    def __init__(self, price: float) -> None:
        self.price = price


class ByKeyword(Obvent, name="carry.ByKeyword"):
    def __init__(self, *, price: float) -> None:
        self.price = price


class WithoutFields(Obvent, name="carry.WithoutFields"):
    def __init__(self, price: float = 0.0, *more: Any, **options: Any) -> None:
        self.price = price


class Base(Obvent, ABC, name="carry.Base"):
    def __init__(self, price: float) -> None:
        self.price = price

    @abstractmethod
    def fee(self) -> float: ...


def test_a_constructor_whose_values_would_be_lost_is_refused() -> None:
    """An object without annotated fields would arrive empty."""
    for sent in (Unannotated(3.0), ByKeyword(price=3.0)):
        with pytest.raises(InvalidObventError, match="wants values, and no field is annotated"):
            sent.to_notification()
    assert WithoutFields(3.0).to_notification() == Notification.with_marks(
        {}, ["carry.WithoutFields"]
    )
    assert shape_of(Base).fields == ()  # Only its subclasses have objects.


@dataclass
class Buying(Obvent, name="carry.Buying"):
    market: Reference[Party]
    other: Reference[Party] | None = None
    several: list[Reference[Party]] = field(default_factory=list)


def test_an_object_of_a_generic_class_is_attributes() -> None:
    """Nobody could filter by the service of a reference."""
    sent = Buying(Reference("a"), None, [Reference("b")])
    notification = sent.to_notification()
    assert notification["market.address"] == "a"
    assert notification["other"] is None
    assert Buying.from_notification(notification) == sent
    Buying.check_where(Filter({"market.address": "a"}))
    lifted = lift(shape_of(Buying), lambda it: it.market.address == "a")
    assert lifted.is_exact
    assert lifted.filters == Filter({"market.address": "a"})
    body = schema_of(Buying)["properties"]["market"]
    assert body == {"$ref": "#/$defs/Reference"}


Held = typing.TypeVar("Held")


@dataclass
class Box(typing.Generic[Held]):
    held: list[Held]


@dataclass
class Boxes(Obvent, name="carry.Boxes"):
    numbers: Box[int]
    texts: Box[str]


def test_fields_that_depend_on_an_argument_are_in_the_body() -> None:
    """A value would be read as another type than was declared, or any type be accepted."""
    sent = Boxes(Box([1]), Box(["a"]))
    assert over_the_wire(sent) == sent
    wrong: Any = Box(["a"])
    with pytest.raises(InvalidObventError, match="held = "):
        Boxes(wrong, Box(["a"])).to_notification()


def test_attributes_alone_need_no_body() -> None:
    """Each notification would be longer than necessary."""
    assert not Party("a").to_notification().body
    assert Trade(**{**vars(TRADE), "price": Decimal(1)}).to_notification().body


def test_clones_are_deep() -> None:
    """A change by one subscriber would be visible to another."""
    notification = FULL.to_notification()
    one, other = (Trade.from_notification(notification) for _ in range(2))
    one.legs.append(Leg("C", 0.0))
    one.party.name = "changed"
    one.parties[0].name = "changed"
    assert other == FULL


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"side": "sell"}, "side = 'sell': expected Side"),
        ({"day": datetime(2026, 1, 1, tzinfo=UTC)}, "day = .*expected date"),
        ({"lasts": timedelta.max}, "lasts = .*64 bits"),
        ({"party": Address("x")}, "party = .*expected Party"),
        ({"legs": [("A", 1.0)]}, "legs"),
        ({"tags": {1}}, "tags"),
        ({"either": "x"}, "either = 'x'"),
        ({"anything": object()}, "anything"),
        ({"anything": {"a": Decimal(1)}}, "anything"),
        ({"price": Decimal("sNaN")}, "price"),
    ],
)
def test_values_of_other_types_are_refused(change: dict[str, Any], said: str) -> None:
    """They would be restored as other values, or not at all."""
    with pytest.raises(InvalidObventError, match=said):
        Trade(**{**vars(TRADE), **change}).to_notification()


def test_cycles_are_refused() -> None:
    """Publishing would not end."""
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(InvalidObventError, match="OBVENT_NESTING_MAX"):
        Trade(**{**vars(TRADE), "anything": deep}).to_notification()


@dataclass
class Node(Obvent, name="carry.Node"):
    value: int
    next: "Node | None" = None


def test_recursive_classes_are_supported() -> None:
    """A linked list could not be published."""
    chain = Node(1, Node(2, Node(3)))
    assert over_the_wire(chain) == chain
    assert chain.to_notification()["next.next.value"] == 3
    chain.next = chain
    with pytest.raises(InvalidObventError, match="OBVENT_NESTING_MAX"):
        chain.to_notification()


def without(notification: Notification, *names: str, marks: tuple[str, ...] = ()) -> Notification:
    kept = {name: it for name, it in notification.items() if name not in names}
    return Notification.from_attributes(
        {**kept, **dict.fromkeys(marks, True)},
        notification.body,
        notification.content_type,
        notification.envelope,
    )


def test_unknown_parts_are_published_again() -> None:
    """A forwarding program would drop parts that only others know."""
    sent = FULL.to_notification()
    strange = without(sent, "party.@is", "party.licence", marks=("@is.elsewhere.Swap",))
    strange = Notification.from_attributes(
        {**strange, "currency": "CHF", "party.rating": 5, "party.@is": "elsewhere.Fund"},
        strange.body,
        strange.content_type,
        strange.envelope,
    )
    got = Trade.from_notification(strange)
    assert isinstance(got, Trade)
    assert isinstance(got.party, Party)
    assert (got.side, got.party.name) == (Side.SELL, "Hill")
    got.side = Side.BUY
    again = got.to_notification()
    assert dict(again) == {**strange, "side": "buy"}
    assert again.body == strange.body


class Pair(NamedTuple):
    left: Any
    right: Any = float("nan")


@dataclass
class Loose(Obvent, name="carry.Loose"):
    either: list[int] | list[str] = field(default_factory=list)
    several: Sequence[str] = ()
    times: list[datetime] = field(default_factory=list)
    pair: Pair = field(default_factory=lambda: Pair(1))
    anything: Any = None


@dataclass
class Venue(Obvent, name="carry.Venue"):
    place: str | Address | None
    number: int | Party = 0


@pytest.mark.parametrize("place", ["Zug", Address("Zug"), None])
@pytest.mark.parametrize("number", [7, Party("a")])
def test_a_field_may_hold_a_value_or_an_object(place: Any, number: Any) -> None:
    """The values would be refused as none of the types that the field declares."""
    venue = Venue(place, number)
    assert Venue.from_notification(venue.to_notification()) == venue
    with pytest.raises(InvalidObventError, match="place = 5: expected str"):
        Venue(5).to_notification()  # type: ignore[arg-type]


def test_alternatives_of_one_name_are_distinguished() -> None:
    """A value would be read as the other alternative, or not at all."""
    for either in ([1, 2], ["a"], []):
        got = Loose.from_notification(Loose(either).to_notification())
        assert got.either == either


@pytest.mark.parametrize(
    "change",
    [
        {"either": [1, "a"]},
        {"several": "abc"},
        {"several": (it for it in "abc")},
        {"times": [datetime(2024, 1, 1)]},  # noqa: DTZ001 - it has no zone
        {"pair": Pair((1, 2))},
        {"pair": Pair(b"a")},
        {"anything": 2**70},
        {"anything": ["\ud800"]},
    ],
)
def test_values_that_change_on_the_wire_are_refused(change: dict[str, Any]) -> None:
    """The publisher would not learn that readers get another value, or none."""
    with pytest.raises(InvalidObventError, match=f"{next(iter(change))} = "):
        Loose(**change).to_notification()


@pytest.mark.parametrize("kind", [Counter, Counter[str], defaultdict[str, int]])
def test_maps_that_are_not_made_of_pairs_are_refused(kind: Any) -> None:
    """Pairs would be counted as items, and the map never be read."""
    with pytest.raises(InvalidObventError, match="declare a dict"):
        made_class("Counting", {"counts": kind}, IN_MODULE)


@dataclass
class Deal(Obvent, name="carry.Deal"):
    buyer: Party | None = None
    others: list[Party] = field(default_factory=list)


def test_unknown_parts_move_with_their_object() -> None:
    """They would stay with the enclosing object, and change its type elsewhere."""
    fund = {
        "buyer.name": "Hill",
        "buyer.address": None,
        "buyer.rating": 5,
        "buyer.@is": "elsewhere.Fund",
    }
    strange = Notification.from_attributes({**fund, "@is.carry.Deal": True}, b"", "", Envelope())
    got = Deal.from_notification(strange)
    fund_itself = got.buyer
    assert fund_itself is not None
    got.buyer = Party("Dale")
    assert dict(got.to_notification()) == dict(Deal(Party("Dale")).to_notification())
    got.buyer = None
    assert dict(got.to_notification()) == dict(Deal().to_notification())
    assert dict(Deal(fund_itself).to_notification()) == dict(strange)
    again = Deal.from_notification(Deal(others=[fund_itself]).to_notification())
    assert dict(Deal(again.others[0]).to_notification()) == dict(strange)
    assert dict(fund_itself.to_notification()) == {
        "name": "Hill",
        "rating": 5,
        "address": None,
        "@is.carry.Party": True,
        "@is.elsewhere.Fund": True,
    }
    alone = Party.from_notification(fund_itself.to_notification())
    assert dict(Deal(alone).to_notification()) == dict(strange)


@dataclass
class Deals(Obvent, name="carry.Deals"):
    banks: list[Party]


def test_an_extended_subtype_keeps_its_type() -> None:
    """An added field would cost objects in a list their type."""
    sent = Deals([Bank("Hill", licence="L")]).to_notification()
    body = msgspec.msgpack.decode(sent.body)
    body["banks"][0]["added"] = 1
    strange = Notification.from_attributes(
        sent.attributes, msgspec.msgpack.encode(body), sent.content_type, sent.envelope
    )
    again = Deals.from_notification(strange).to_notification()
    assert msgspec.msgpack.decode(again.body) == body


def test_a_field_that_was_added_has_its_default() -> None:
    """Publishers with an older class would not be read."""
    old = without(Party("a").to_notification(), "address")
    assert Party.from_notification(old) == Party("a")


@dataclass
class Renamed(Obvent, name="carry.New", earlier=("carry.Oldest", "carry.Old")):
    cost: Annotated[float, Alias("price")]


def test_a_class_that_was_renamed_is_known_by_all_its_names() -> None:
    """Publishers and subscribers would have to change at once."""
    notification = Renamed(1.0).to_notification()
    marks = {name for name in notification if name.startswith("@is.")}
    assert marks == {"@is.carry.New", "@is.carry.Old", "@is.carry.Oldest"}
    old = Notification.with_marks({"price": 2.0}, marks=["carry.Oldest"])
    assert Renamed.to_filters().matches(old)
    assert Renamed.from_notification(old) == Renamed(2.0)


@dataclass
class Moved(Obvent, name="carry.Moved"):
    payer: Annotated[Party | None, Alias("buyer")] = None
    tags: Annotated[list[int], Alias("labels"), Alias("words")] = field(default_factory=list)
    cost: Annotated[Decimal, Alias("price")] = Decimal(0)


@dataclass
class Before(Obvent, name="carry.Before"):
    buyer: Party | None
    words: list[int]
    price: Decimal


PRECISE = Decimal("0.10000000000000000001")


@pytest.mark.parametrize("buyer", [None, Party("a"), Bank("b", Address("Zug"), licence="y")])
def test_a_field_of_any_kind_is_read_by_the_name_it_had(buyer: Party | None) -> None:
    """It would have its default, and the published value be lost."""
    old = Before(buyer, [1], PRECISE).to_notification()
    as_moved = without(old, "@is.carry.Before", marks=("@is.carry.Moved",))
    got = Moved.from_notification(as_moved)
    assert got == Moved(buyer, [1], PRECISE)
    assert type(got) is Moved, "nothing is left of it"
    assert got.to_notification() == Moved(buyer, [1], PRECISE).to_notification()


def test_the_name_of_a_field_precedes_its_aliases() -> None:
    """A value under the old name would replace the one under the new name."""
    both = without(Moved(Party("new"), [2], PRECISE).to_notification())
    body = {**msgspec.msgpack.decode(both.body), "words": [1], "price": "2.5"}
    old = {"buyer.name": "old", "buyer.address": None, "price": 2.5}
    got = Moved.from_notification(
        Notification.from_attributes(
            {**both, **old}, msgspec.msgpack.encode(body), both.content_type, both.envelope
        )
    )
    assert (got.payer, got.tags, got.cost) == (Party("new"), [2], PRECISE)
    again = got.to_notification()
    assert dict(again) == {**both, **old}
    assert msgspec.msgpack.decode(again.body) == body
    plain = Notification.with_marks(
        {"cost": 1, "price": 2.5},
        ["carry.Moved"],
        body=msgspec.msgpack.encode({"price": "2.5"}),
        content_type=both.content_type,
    )
    assert Moved.from_notification(plain).cost == 1, "its digits stand under its own name"


def test_a_renamed_object_is_left_to_the_predicate() -> None:
    """A filter on its present path would miss objects under the former one."""
    lifted = lift(shape_of(Moved), lambda it: it.cost > 1 and it.payer.name == "a")
    assert not lifted.is_exact
    assert "has aliases" in lifted.explain()
    assert not any("payer" in name for each in lifted.filters.filters for name in each.sets)


class Shape(Obvent, ABC, name="carry.Shape"):
    @abstractmethod
    def area(self) -> float: ...


@dataclass
class Square(Shape, name="carry.Square"):
    side: float

    def area(self) -> float:
        return self.side**2


def test_abstract_classes_are_subscribed() -> None:
    """Only leaves of a hierarchy could be subscribed."""
    assert Shape.to_filters().covers(Square.to_filters())
    got = Shape.from_notification(Square(2.0).to_notification())
    assert got.area() == 4
    strange = Shape.from_notification(
        Notification.with_marks({"r": 1.0}, marks=["Disc", "carry.Shape"])
    )
    with pytest.raises(NotImplementedError, match="class is not known"):
        strange.area()
    assert dict(strange.to_notification()) == {"r": 1.0, "@is.Disc": True, "@is.carry.Shape": True}


def test_a_later_class_is_found() -> None:
    """Objects once received as an ancestor would always be."""
    notification = Notification.with_marks({"name": "x", "extra": 1}, ["carry.Late", "carry.Party"])
    assert type(Party.from_notification(notification)).__name__ == "Party…"

    @dataclass
    class Late(Party, name="carry.Late"):
        extra: int = 0

    assert Party.from_notification(notification) == Late("x", extra=1)


@dataclass
class Sampler(Obvent, name="carry.Sampler"):
    number: float | int | None
    whole: int
    text: str
    flag: bool
    many: list[float | None]
    keyed: dict[int, str]


@given(
    st.builds(
        Sampler,
        number=st.none() | st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1),
        whole=st.integers(-(2**63), 2**63 - 1),
        text=st.text(),
        flag=st.booleans(),
        many=st.lists(st.none() | st.floats(allow_nan=False), max_size=4),
        keyed=st.dictionaries(st.integers(-9, 9), st.text(max_size=3), max_size=3),
    )
)
def test_extreme_values_are_restored(sent: Sampler) -> None:
    """A value at the end of its range would be another one."""
    back = over_the_wire(sent)
    assert back == sent
    assert type(back.number) is type(sent.number)


@dataclass
class Spell(Obvent, name="carry.Spell"):
    day: date
    pauses: list[timedelta] = field(default_factory=list)


class Keyed(Obvent, name="carry.Keyed"):
    price: float

    def __init_subclass__(cls, *, key: str, **options: Any) -> None:
        super().__init_subclass__(**options)


@pytest.mark.parametrize(
    ("cls", "changes", "body"),
    [
        (Spell, {}, b"\x81\xa1x\xa1\xff"),  # A text that is no UTF-8.
        (Spell, {}, msgspec.msgpack.encode({"pauses": [1e300]})),
        # Their texts have another order than their dates, so filters would find others.
        (Spell, {"day": "20200102"}, b""),
        (Spell, {"day": "2020-W01-1"}, b""),
        # An unknown subtype of a class of which no anonymous one can be made.
        (Keyed, {"price": 1.0, "@is.elsewhere.Keyed": True}, b""),
    ],
)
def test_no_published_object_raises_another_error(
    cls: Any, changes: dict[str, Any], body: bytes
) -> None:
    """A stranger's notification would end the programs that read it."""
    name = cls.__obvent_names__[0]
    attributes = {"day": "2020-01-02", f"@is.{name}": True, **changes}
    sent = Notification.from_attributes(attributes, body, OBVENT_BODY if body else "", Envelope())
    with pytest.raises(InvalidObventError, match=name):
        cls.from_notification(sent)


def test_hints_stay_typed() -> None:
    """A decorator would hide the class from type checkers."""
    assert typing.get_type_hints(OfStruct)["price"] is float


@attrs.frozen
class Frozen(Obvent, name="carry.Frozen"):
    price: float


@dataclass(frozen=True, slots=True)
class Slotted(Obvent, name="carry.Slotted"):
    price: float


@pytest.mark.parametrize("cls", [Frozen, Slotted, OfPydantic, OfStruct, OfStructs, Plain])
def test_unknown_subtypes_of_all_kinds_of_classes_are_kept_whole(cls: type[Any]) -> None:
    """Frozen and slotted classes would lose parts that others know."""
    names = [name.removeprefix("@is.") for name in cls.to_filters().sets]
    sent = Notification.with_marks({"price": 1.0, "more": "x"}, marks=[*names, "elsewhere.Sub"])
    got = cls.from_notification(sent)
    assert isinstance(got, cls)
    assert type(got) is not cls
    assert got.price == 1.0
    again = dict(got.to_notification())
    assert {name: again[name] for name in sent} == dict(sent)
    assert type(type(got).from_notification(got.to_notification())) is type(got)


def test_an_unusable_class_does_no_harm() -> None:
    """One such subclass in a program would stop the subscribers of its ancestors."""

    class Broken(Party, name="carry.Broken"):
        undecorated: int

    fresh = Notification.with_marks({"name": "a", "x": 1}, ["carry.Party"])
    assert Party.from_notification(fresh).name == "a"
    with pytest.raises(InvalidObventError, match="not decorated"):
        Party.from_notification(
            Notification.with_marks({"name": "a"}, ["carry.Party", "carry.Broken"])
        )


def test_a_false_mark_is_dropped() -> None:
    """The object would become one of a type that it never had."""
    sent = Party("a").to_notification()
    strange = Notification.from_attributes({**sent, "@is.Evil": False}, b"", "", sent.envelope)
    assert dict(Party.from_notification(strange).to_notification()) == dict(sent)


@obvent(name="carry.Root")
class Root(pydantic.RootModel[dict[str, int]]):
    """A model whose only field has no name of its own."""


def test_root_models_are_restored() -> None:
    """The value would count as a map of fields."""
    sent: Any = Root({"a": 1})
    cls: Any = Root
    assert cls.from_notification(sent.to_notification()) == sent


def test_unused_classes_are_forgotten() -> None:
    """A program that makes classes of received schemas would keep all of them."""

    def used() -> weakref.ref[type[Any]]:
        made: Any = make_dataclass(
            "Passing",
            [("party", Party), ("price", float)],
            bases=(Obvent,),
            namespace={"__obvent_names__": ("carry.Passing",)},
        )
        made.from_notification(made(Party("a"), 1.0).to_notification())
        return weakref.ref(made)

    held = used()
    gc.collect()
    assert held() is None
