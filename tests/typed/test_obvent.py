"""Obvents become notifications with type marks, and are restored as objects."""

from contextlib import suppress
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import pytest

import contrada as ct
from contrada.errors import InvalidNotificationError, InvalidObventError
from contrada.model import Envelope, Filter, Notification, mark_name
from contrada.model.domains.values import INT_MAX
from contrada.model.native import NATIVE
from contrada.service.envelope_factory import EnvelopeFactory, of_one
from contrada.typed import Expiring, Obvent, type_name_of
from contrada.typed.type_names import NAMES
from tests.asynchronous import on_loop
from tests.typed.made_classes import Unresolved, made_class


@dataclass
class StockObvent(Obvent, name="thesis.StockObvent"):
    company: str


@dataclass(frozen=True, slots=True)
class Tick(Obvent, name="Tick"):
    at: datetime
    note: bytes | None = None
    KIND: ClassVar[str] = "tick"


@dataclass
class StockQuote(StockObvent, name="thesis.StockQuote"):
    price: float
    amount: int = 1


@dataclass
class StockRequest(StockObvent, name="thesis.StockRequest"):
    pass


@dataclass
class MarketPrice(StockRequest, name="thesis.MarketPrice"):
    urgent: bool = False


QUOTE = StockQuote("Telco Mobiles", 80.0, 10)


def test_the_class_and_all_ancestors_are_marked() -> None:
    """Subscribers to a supertype would miss subtypes."""
    notification = QUOTE.to_notification()
    assert dict(notification.attributes) == {
        "company": "Telco Mobiles",
        "price": 80.0,
        "amount": 10,
        mark_name("thesis.StockQuote"): True,
        mark_name("thesis.StockObvent"): True,
    }


@dataclass
class Urgent(Obvent, name="Urgent"):
    until: int = 0


@dataclass
class UrgentQuote(Urgent, StockQuote, name="UrgentQuote"):
    """Two unrelated ancestors."""


@dataclass
class UrgentRequest(MarketPrice, StockQuote, name="UrgentRequest"):
    """Two ancestors with a common one: a diamond."""


@pytest.mark.parametrize(
    ("sent", "marks", "ancestors"),
    [
        (
            UrgentQuote("Telco", 80.0, until=7),
            {"UrgentQuote", "Urgent", "thesis.StockQuote", "thesis.StockObvent"},
            (UrgentQuote, Urgent, StockQuote, StockObvent),
        ),
        (
            UrgentRequest("Telco", 80.0, urgent=True),
            {
                *("UrgentRequest", "thesis.MarketPrice", "thesis.StockRequest"),
                *("thesis.StockQuote", "thesis.StockObvent"),
            },
            (UrgentRequest, MarketPrice, StockRequest, StockQuote, StockObvent),
        ),
    ],
)
def test_several_supertypes(sent: Obvent, marks: set[str], ancestors: list[type[Obvent]]) -> None:
    """A subscriber to one of several supertypes would miss the subtype, or half of it."""
    notification = sent.to_notification()
    assert {name for name in notification if name[0] == "@"} == set(map(mark_name, marks))
    for ancestor in ancestors:
        assert ancestor.to_filters().matches(notification)
        assert ancestor.to_filters().covers(type(sent).to_filters())
        assert ancestor.from_notification(notification) == sent
        assert type(ancestor.from_notification(notification)) is type(sent)
    assert not Tick.to_filters().matches(notification)


def test_covering_of_types_falls_out_of_the_algebra() -> None:
    """Routing would have to know about types."""
    assert StockObvent.to_filters().covers(StockQuote.to_filters())
    assert not StockQuote.to_filters().covers(StockObvent.to_filters())
    assert not StockRequest.to_filters().covers(StockQuote.to_filters())
    narrowed = StockQuote.to_filters() & Filter("price < 100")
    assert StockObvent.to_filters().covers(narrowed)


@pytest.mark.parametrize(
    "obvent",
    [
        QUOTE,
        StockQuote("x", 5),
        MarketPrice("y", True),
        Tick(datetime(2013, 1, 1, tzinfo=UTC)),
        Tick(datetime(2013, 1, 1, tzinfo=UTC), b"text"),
        Tick(datetime(2013, 1, 1, tzinfo=UTC), b"\xff"),
    ],
)
def test_objects_are_restored(obvent: Obvent) -> None:
    """A field or the class would be lost on the way."""
    back = type(obvent).from_notification(obvent.to_notification())
    assert back == obvent
    assert type(back) is type(obvent)


def test_a_subscriber_to_a_supertype_gets_the_subtype() -> None:
    """The subtype's fields would be lost."""
    assert StockObvent.from_notification(QUOTE.to_notification()) == QUOTE


def test_an_unknown_subtype_is_the_nearest_known_class() -> None:
    """A subscriber would need every publisher's classes."""
    marks = ["Elsewhere.Special", "thesis.StockQuote", "thesis.StockObvent"]
    notification = Notification.with_marks({"company": "x", "price": 1, "extra": 2}, marks=marks)
    got = StockObvent.from_notification(notification)
    assert isinstance(got, StockQuote)
    assert (got.company, got.price) == ("x", 1.0)
    assert dict(got.to_notification()) == {**notification, "amount": 1}, "it is published on whole"


def test_numbers_have_the_type_of_their_field() -> None:
    """`5` and `5.0` are one value in the model; a float field would hold an int."""
    marks = ["thesis.StockQuote", "thesis.StockObvent"]
    notification = Notification.with_marks({"company": "x", "price": 5, "amount": 2.0}, marks=marks)
    got = StockQuote.from_notification(notification)
    assert isinstance(got.price, float)
    assert isinstance(got.amount, int)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"company": "x"}, "'price' is absent"),
        ({"company": "x", "price": "dear"}, "expected float"),
        ({"company": "x", "price": True}, "expected float"),
        ({"company": "x", "price": [1.0, 2.0]}, "expected float"),
        ({"company": "x", "price": 1.0, "amount": 1.5}, "expected int"),
        ({"company": b"\xff", "price": 1.0}, "expected str"),
    ],
)
def test_other_notifications_are_refused(attributes: dict[str, Any], reason: str) -> None:
    """A handler would get an object of another type."""
    notification = Notification.with_marks(
        attributes, marks=["thesis.StockQuote", "thesis.StockObvent"]
    )
    with pytest.raises(InvalidObventError, match=reason):
        StockQuote.from_notification(notification)


def test_another_type_is_refused() -> None:
    """Any notification with the attributes would be an object of the class."""
    with pytest.raises(InvalidObventError, match="not of this type"):
        StockRequest.from_notification(QUOTE.to_notification())


@pytest.mark.parametrize("price", ["dear", None, True])
def test_a_value_of_another_type_is_not_published(price: Any) -> None:
    """Subscribers would get values that their class does not allow."""
    with pytest.raises(InvalidObventError, match="price"):
        StockQuote("x", price).to_notification()


def test_names_are_given_or_module_qualified() -> None:
    """Two processes would have different names for a type."""

    class Plain(Obvent):
        pass

    assert type_name_of(Plain) == f"{__name__}.{Plain.__qualname__}"
    assert type_name_of(StockQuote) == "thesis.StockQuote"
    assert type_name_of(Tick) == "Tick", "slots=True makes the class anew"


def test_main_needs_a_name() -> None:
    """The name of a script's class means nothing to another process."""
    with pytest.raises(InvalidObventError, match="name="):
        type("Script", (Obvent,), {"__module__": "__main__"})
    named = type("Script", (Obvent,), {"__module__": "__main__"}, name="Script")
    assert type_name_of(named) == "Script"


def test_a_name_belongs_to_one_class() -> None:
    """A notification would become an object of another class."""
    with pytest.raises(InvalidObventError, match="has this name already"):
        type("Other", (Obvent,), {}, name="thesis.StockQuote")


def test_the_name_of_joint_notifications_is_reserved() -> None:
    """Objects of the class would count as joint notifications, and reach no collection."""
    with pytest.raises(InvalidObventError, match="published as one"):
        type("Several", (Obvent,), {}, name="Together")


@pytest.mark.parametrize("name", ["", "x" * 255, "new\nline"])
def test_names_are_names_of_attributes(name: str) -> None:
    """A type mark could not be an attribute."""
    with pytest.raises(InvalidObventError):
        type("Badly", (Obvent,), {}, name=name)


def test_unsupported_fields_are_refused() -> None:
    """A field would be lost, or fail only at publication."""

    class Undecorated(StockObvent):
        price: float

    with pytest.raises(InvalidObventError, match="not decorated @dataclass"):
        Undecorated.to_filters()


@dataclass
class Base(Obvent, name="thesis.Base"):
    price: float | None
    amount: int
    owner: StockObvent
    tags: Any = None


@dataclass
class Narrow(Base, name="thesis.Narrow"):
    price: float
    owner: StockQuote
    tags: str = ""


@pytest.mark.parametrize(
    ("name", "annotation", "said"),
    [
        ("price", str | float, r"field 'price' is str \| float, and Base .* float \| None"),
        ("price", int, "only narrow"),
        ("amount", bool, "only narrow"),
        ("amount", int | None, "only narrow"),
        ("owner", Urgent, "only narrow"),
        ("owner", Any, "only narrow"),
    ],
)
def test_a_subtype_that_widens_a_field_is_refused(name: str, annotation: Any, said: str) -> None:
    """Filters lifted for its ancestor would miss objects that the predicate accepts."""
    with pytest.raises(InvalidObventError, match=said):
        made_class("Wider", {name: annotation}, {NAMES: ("W",)}, Base)


@dataclass
class Flat(Obvent, name="thesis.Flat"):
    price: int


def test_a_subtype_of_two_types_that_widens_a_field_is_refused() -> None:
    """Filters lifted for one ancestor would miss objects that the predicate accepts."""
    both: Any = make_dataclass(
        "Both", [], bases=(Base, Flat), namespace={NAMES: ("B",), "__module__": __name__}
    )
    with pytest.raises(InvalidObventError, match="only narrow"):
        both.to_filters()


def test_a_subtype_may_narrow_a_field() -> None:
    """A subtype could not be more precise than its ancestors."""
    sent = Narrow(1.0, 2, QUOTE, "x")
    assert Base.from_notification(sent.to_notification()) == sent


def three(quote: StockQuote, envelope: Envelope, more: int) -> bool:
    return True


def keyed(quote: StockQuote, *, limit: int) -> bool:
    return quote.price < limit


class Asking:
    """A class with predicates as methods."""

    def cheap(self, quote: StockQuote) -> bool:
        return quote.price < 100

    def seen(self, quote: StockQuote, envelope: Envelope) -> bool:
        return quote.price < 100


@pytest.mark.parametrize(
    "predicate", [lambda: True, three, keyed, Asking().seen, partial(three, more=1)]
)
def test_a_predicate_that_cannot_be_called_is_refused(predicate: Any) -> None:
    """Each call would raise: its subscriber would silently get nothing."""
    with pytest.raises(InvalidObventError, match="is called with an object"):
        StockQuote.lift(predicate)


@pytest.mark.parametrize(
    "predicate",
    [
        lambda *given: given[0].price < 100,
        lambda quote=QUOTE: quote.price < 100,
        lambda quote, limit=100: quote.price < limit,
        lambda quote, envelope: quote.price < 100,
        Asking().cheap,
        partial(lambda quote, limit: quote.price < limit, limit=100),
        attrgetter("price"),
        Unresolved(),
    ],
)
def test_any_callable_is_a_predicate(predicate: Any) -> None:
    """Predicates of other forms would be refused."""
    rule = StockQuote.lift(predicate)
    notification = QUOTE.to_notification()
    assert rule.filters.matches(notification)
    assert rule.residue_holds is None or rule.residue_holds(notification)


def test_the_first_error_of_a_predicate_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelled field would look as if nothing was published."""

    def misspelled(quote: Any) -> bool:
        return bool(quote.prise > 5)

    rule = StockQuote.lift(misspelled)
    assert [rule.matches(QUOTE.to_notification()) for _ in range(2)] == [False, False]
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("StockQuote: no match: the predicate ")
    reason = "'StockQuote' object has no attribute 'prise'"
    assert line.endswith(f"raised AttributeError({reason!r})")


def test_an_object_of_the_root_is_not_published() -> None:
    """It would have no mark, so not even subscribers of the root would get it."""
    with pytest.raises(InvalidObventError, match="root of all obvents"):
        Obvent().to_notification()


class Rounded(StockQuote, name="Rounded"):
    """A class with a notification of its own."""

    def to_notification(self) -> Notification:
        return Obvent.to_notification(Rounded(self.company, float(round(self.price)), 1))


@dataclass
class Brief(Expiring, name="Brief"):
    """A class with a time to live."""

    ttl_s: float = 5.0


@pytest.mark.parametrize(
    ("item", "is_plain"),
    [
        (QUOTE, True),
        (UrgentQuote("Telco", 1.0, 2, 3), True),
        (Narrow(1.0, 2, QUOTE, "x"), False),
        (Tick(datetime(2026, 11, 20, tzinfo=UTC)), False),
        (StockQuote("Telco", 5), False),
        (StockQuote("Telco", 80.0, INT_MAX + 1), False),
        (Rounded("Telco", 80.4), False),
        (Brief(), False),
    ],
)
def test_plain_objects_are_stamped_as_their_notifications(item: Any, is_plain: bool) -> None:
    """Subscribers would read other objects of the publications that skip a notification."""
    stamp = EnvelopeFactory("desk")
    with suppress(InvalidNotificationError):
        item.to_notification()  # So that its names are known.
    stamped = of_one(item, stamp.stamp_dicts)
    assert bool(stamped) == (is_plain and NATIVE is not None)
    for found in stamped:
        (expected,) = EnvelopeFactory("desk").stamped([item.to_notification()], 5)
        assert found.span == expected.span
        assert found.envelope.delivery == expected.envelope.delivery
        assert (found.body, found.content_type) == (b"", "")
        assert type(item).from_notification(found) == item


@on_loop
async def test_a_notification_of_its_own_is_published() -> None:
    """A class that changes its notification would be published without the change."""
    async with ct.connect() as service, service.subscribe(StockQuote) as quotes:
        for _ in range(3):
            await service.publish(Rounded("Telco", 80.4))
            assert (await anext(quotes)).price == 80


@on_loop
async def test_a_subclass_of_no_name_is_published_by_its_own_notification() -> None:
    """A class that is no obvent class would be refused, although it makes its notifications."""

    @ct.obvent(name="Measured")
    @dataclass
    class Measured:
        value: int = 1

    class Doubled(Measured):
        def to_notification(self) -> Notification:
            return Notification({"value": 2 * self.value})

    async with ct.connect() as service, service.subscribe("value = 2") as found:
        await service.publish(Doubled())
        assert (await anext(found))["value"] == 2


def test_a_later_notification_of_its_own_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that replaces the method once objects were published would have no effect."""
    stamp = EnvelopeFactory("desk")
    QUOTE.to_notification()
    assert bool(of_one(QUOTE, stamp.stamp_dicts)) == (NATIVE is not None)
    monkeypatch.setattr(StockQuote, "to_notification", lambda _: Notification({"price": 0.0}))
    assert of_one(QUOTE, stamp.stamp_dicts) == []


def test_an_object_is_of_the_subclass_that_has_its_name_since() -> None:
    """A subscription to the class that was replaced would get objects without the new fields."""
    earlier = made_class("Grown", {"a": int}, {"__module__": __name__})
    notification = earlier(1).to_notification()
    assert type(earlier.from_notification(notification)) is earlier
    later = made_class("Grown", {"b": int}, {"__module__": __name__, "b": 7}, earlier)
    assert earlier.from_notification(notification) == later(1, 7)


def test_a_field_with_an_invalid_name_is_refused_each_time() -> None:
    """The second object would be published, and each broker would refuse it."""
    made = made_class("Long", {"x" * 300: int}, {"__module__": __name__})
    for number in range(3):
        with pytest.raises(InvalidNotificationError, match="name"):
            made(number).to_notification()
