"""Arguments of callers become notifications and filters, or one clear error."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from contrada.errors import (
    InvalidNotificationError,
    LimitError,
    ParseError,
    ServiceError,
    UnsatisfiableFilterError,
)
from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.expression import CONJUNCTIONS_MAX
from contrada.model.algebra.sets import lt
from contrada.service import filters_of, notification_of, offer_of, reader_of, with_transmission
from contrada.typed import Obvent


class Cheap:
    """A user's object with filters and its own reader."""

    def to_filters(self) -> Filter:
        return Filter({"price": lt(10)})

    def from_notification(self, notification: Notification) -> object:
        return notification["price"]


@dataclass
class Tick(Obvent, name="requests.Tick"):
    price: float


class Sale:
    """A user's object that can be published."""

    def to_notification(self) -> Notification:
        return Notification({"price": 5})


@pytest.mark.parametrize(
    ("subject", "where", "expected"),
    [
        ("price < 10", None, Filter("price < 10")),
        ({"price": lt(10)}, None, Filter("price < 10")),
        (Filter("price < 10"), None, Filter("price < 10")),
        (Cheap(), None, Filter("price < 10")),
        (Cheap(), "price > 5", Filter("price < 10 and price > 5")),
        ("a = 1 or b = 1", "c = 1", FilterSet("a = 1 and c = 1 or b = 1 and c = 1")),
        ("a = 1", "b = 1 or c = 1", FilterSet("a = 1 and b = 1 or a = 1 and c = 1")),
    ],
)
def test_subjects_become_filters(subject: Any, where: Any, expected: object) -> None:
    """A form of a subject would be read as another one."""
    assert filters_of(subject, where) == expected


@pytest.mark.parametrize("subject", ["price < 1 and price > 2", FilterSet([])])
def test_what_cannot_match_is_refused(subject: Any) -> None:
    """A subscriber would wait for ever for an impossible notification."""
    with pytest.raises(UnsatisfiableFilterError):
        filters_of(subject)


def test_where_can_make_it_unsatisfiable() -> None:
    """The narrowing would be ignored."""
    with pytest.raises(UnsatisfiableFilterError):
        filters_of(Cheap(), "price > 20")


def test_narrowing_is_bounded() -> None:
    """Two texts of a caller could need millions of filters."""
    count = CONJUNCTIONS_MAX // 100
    many = FilterSet([Filter({"a": number, "b": number}) for number in range(count + 1)])
    more = FilterSet([Filter({"c": number, "d": number}) for number in range(100)])
    with pytest.raises(LimitError, match="CONJUNCTIONS_MAX"):
        filters_of(many, more)
    assert len(filters_of(FilterSet(many.filters[:count]), more).filters) == CONJUNCTIONS_MAX


def test_patterns_are_not_offered() -> None:
    """A pattern would be taken for a filter, or fail deep inside."""
    with pytest.raises(ServiceError, match=r"Pattern\(text\), and not updated"):
        filters_of("a = 1 -> b = 1")


@pytest.mark.parametrize("subjects", [["a = 1", "b = 2"], ("a = 1",), {"a = 1"}])
def test_several_filters_are_a_filter_set(subjects: Any) -> None:
    """The error would not explain how to subscribe either."""
    with pytest.raises(ServiceError, match=r"several filters are one FilterSet\(\[…\]\)"):
        filters_of(subjects)


@pytest.mark.parametrize("subject", [3, None, object, Sale()])
def test_other_things_cannot_be_subscribed(subject: Any) -> None:
    """The error would not list the valid subjects."""
    with pytest.raises(ServiceError, match="cannot subscribe to"):
        filters_of(subject)


def test_an_event_and_its_class_are_not_mistaken_for_each_other() -> None:
    """An object would subscribe to all objects of its class, and a class that is published would
    be told to become a class of events.
    """
    with pytest.raises(ServiceError, match=r"object of type Tick: .*; give its class"):
        filters_of(Tick(1.0))
    with pytest.raises(ServiceError, match=r"the class Tick: .*; publish objects of it"):
        notification_of(Tick)  # type: ignore[arg-type]


def test_a_wrong_text_is_a_parse_error() -> None:
    """The place of the fault would be lost."""
    with pytest.raises(ParseError) as caught:
        filters_of("price <")
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("offered", "offer"),
    [
        ("a = 1 and a = 2", Advertisement("a = 1 and a = 2")),
        ({"a": 1}, Advertisement({"a": 1})),
        (Advertisement({"a": 1}), Advertisement({"a": 1})),
        (Filter("a = 1"), Filter("a = 1")),
        (FilterSet("a = 1"), Filter("a = 1")),
        (Cheap(), Filter("price < 10")),
    ],
)
def test_what_is_offered_becomes_an_offer(offered: Any, offer: object) -> None:
    """A form of an advertisement would be read as another one."""
    assert offer_of(offered) == offer


@pytest.mark.parametrize(
    "offered", [3, object, FilterSet("a = 1 or b = 1"), Pattern("a = 1 -> b = 1")]
)
def test_other_things_cannot_be_advertised(offered: Any) -> None:
    """The error would not list the valid forms."""
    with pytest.raises(ServiceError, match="cannot advertise"):
        offer_of(offered)


def test_items_become_notifications() -> None:
    """A form of an item would be read as another one."""
    assert notification_of({"price": 5}, b"x", "text/plain").body == b"x"
    assert notification_of(Sale()) == Notification({"price": 5})


@pytest.mark.parametrize("item", [3, "price = 5", Sale, Cheap()])
def test_other_things_cannot_be_published(item: Any) -> None:
    """The error would not list the valid items."""
    with pytest.raises(ServiceError, match="cannot publish"):
        notification_of(item)


@dataclass
class Undecorated:
    price: float


class Struct(msgspec.Struct, rename="camel"):
    unit_price: float


class Model(pydantic.BaseModel):
    unit_price: float


@attrs.frozen
class WithAttrs:
    unit_price: object


@dataclass
class Side:
    inner: object
    parts: object = ()


@pytest.mark.parametrize(
    ("item", "mapping"),
    [
        (Undecorated(5.0), {"price": 5.0}),
        (Struct(5.0), {"unit_price": 5.0}),
        (Model(unit_price=5.0), {"unit_price": 5.0}),
        (WithAttrs(Struct(5.0)), {"unit_price": {"unit_price": 5.0}}),
        (
            Side(Side({"a": Undecorated(1.0)}), [1, 2]),
            {"inner.inner.a.price": 1.0, "parts": [1, 2]},
        ),
        (Side(None, [Undecorated(1.0)]), {"inner": None, "parts": [{"price": 1.0}]}),
    ],
)
def test_an_undecorated_object_is_the_mapping_of_its_fields(item: Any, mapping: Any) -> None:
    """A newcomer's dataclass would need a decorator that no type checker can require."""
    assert notification_of(item) == notification_of(mapping)
    assert notification_of(item).body == notification_of(mapping).body
    assert notification_of(Undecorated(5.0), b"x", "text/plain").body == b"x"


def test_what_only_an_obvent_can_hold_is_refused_with_advice() -> None:
    """A newcomer would not find the decorator that their dataclass needs."""
    with pytest.raises(InvalidNotificationError) as refused:
        notification_of(Side(date(2026, 11, 27)))
    assert '@ct.obvent(name="Side")' in refused.value.__notes__[0]
    itself = Side(None)
    itself.inner = itself
    with pytest.raises(LimitError):
        notification_of(itself)


def test_a_subscription_to_an_undecorated_class_is_refused_with_advice() -> None:
    """Nothing would arrive: its objects are published without a type."""
    cls: Any = Undecorated
    with pytest.raises(ServiceError, match=r'decorate it: @ct\.obvent\(name="Undecorated"\)'):
        filters_of(cls)


def test_a_body_goes_with_a_mapping_only() -> None:
    """A body given twice would silently lose one of them."""
    with pytest.raises(ServiceError, match="mapping"):
        notification_of(Notification({"price": 5}), b"x")


def test_readers_belong_to_those_who_offer_one() -> None:
    """Subscribers of plain filters would get other objects than notifications."""
    assert reader_of("price < 1") is None
    assert reader_of(Filter("price < 1")) is None
    reader = reader_of(Cheap())
    assert reader is not None
    assert reader(Notification({"price": 5})) == 5


def test_a_time_to_live_and_a_priority_go_into_the_envelope() -> None:
    """Time to live and priority of a publisher would be lost."""
    envelope = Envelope(ttl_us=7, priority=2, delivery="reliable")
    kept = Notification({"a": 1}, envelope=envelope)
    assert with_transmission(kept, None, 9).envelope == replace(envelope, priority=9)
    assert with_transmission(kept, 2.5, None).envelope == replace(envelope, ttl_us=2_500_000)
    assert with_transmission(kept, 1e-9, 0).envelope == replace(envelope, ttl_us=1, priority=0)
    assert kept.envelope == envelope


@pytest.mark.parametrize(
    ("ttl_s", "priority", "said"),
    [
        (0, None, "ttl_s = 0: expected seconds above 0, at most 1000000000"),
        (-1, None, "ttl_s = -1: expected seconds above 0"),
        (float("nan"), None, "ttl_s = nan: expected seconds"),
        (float("inf"), None, "ttl_s = inf: expected seconds"),
        ("5", None, "ttl_s = '5': expected seconds"),
        (True, None, "ttl_s = True: expected seconds"),
        (None, 10, r"priority = 10: expected 0 \(lowest\) to 9"),
        (None, -1, "priority = -1: expected 0"),
        (None, 4.0, r"priority = 4\.0: expected 0"),
        (None, True, "priority = True: expected 0"),
    ],
)
def test_what_is_no_time_to_live_or_priority_is_refused(
    ttl_s: Any, priority: Any, said: str
) -> None:
    """A typing error would drop everything at once, or be ignored."""
    with pytest.raises(ServiceError, match=said):
        with_transmission(Notification({"a": 1}), ttl_s, priority)
