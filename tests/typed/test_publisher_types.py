"""`Published`: the publisher's type is in marks, and no part of the object."""

from dataclasses import dataclass
from typing import Any, Protocol

import pytest

import contrada as ct
from contrada.errors import InvalidObventError
from contrada.model import Notification
from contrada.typed.publisher_types import Published, published_by


@dataclass
class Quote(ct.Obvent, name="publishers.Quote"):
    price: float


@dataclass
class Desk(ct.Obvent, name="publishers.Desk", earlier=("publishers.Trader",)):
    """An obvent that publishes obvents."""


class Market:
    """Another object."""


class SpotMarket(Market, Desk, name="publishers.SpotMarket"):
    """An object of two classes."""


def by_of(notification: Notification) -> set[str]:
    return {each for each in notification if each.startswith("@is.by(")}


def test_all_classes_of_a_publisher_are_marked() -> None:
    """Subscribers to a supertype of publishers would miss its subtypes."""
    sent = Published(Quote(1.0), by=SpotMarket()).to_notification()
    assert by_of(sent) == {
        f"@is.by({__name__}.Market)",
        "@is.by(publishers.SpotMarket)",
        "@is.by(publishers.Desk)",
        "@is.by(publishers.Trader)",
    }
    kinds: list[type[Any]] = [SpotMarket, Market, Desk]
    for cls in kinds:
        assert published_by(cls).matches(sent)
        assert not published_by(cls).matches(Quote(1.0).to_notification())
    assert published_by(Desk) == ct.Filter({"@is.by(publishers.Trader)": True}), "the oldest name"
    assert not published_by(SpotMarket).matches(Published(Quote(1), by=Desk()).to_notification())


def test_marks_of_publishers_are_dropped() -> None:
    """An object of an unknown type would name its publisher for ever."""
    sent = Published(Quote(1.0), by=Market()).to_notification()
    got = Quote.from_notification(sent)
    assert type(got) is Quote
    assert got == Quote(1.0)
    strange = Notification.with_marks(
        {"price": 1.0, "more": 2}, ["publishers.Quote", "publishers.Unheard", "by(publishers.Desk)"]
    )
    again = Quote.from_notification(strange).to_notification()
    assert dict(again) == {name: value for name, value in strange.items() if "by(" not in name}
    part = Published(Desk(), by=Quote.from_notification(strange)).to_notification()
    assert by_of(part) == {"@is.by(publishers.Quote)"}, "of the class that is known here"


def test_the_published_item_is_unchanged() -> None:
    """A body, the guarantees of its class, or an untyped item would be lost."""

    @dataclass
    class Sure(ct.Certified, name="publishers.Sure"):
        tags: list[str]

    plain, sent = (
        it.to_notification() for it in (Sure(["a"]), Published(Sure(["a"]), by=Market()))
    )
    assert {name: it for name, it in sent.items() if name not in by_of(sent)} == dict(plain)
    assert (sent.body, sent.content_type, sent.envelope) == (
        plain.body,
        plain.content_type,
        plain.envelope,
    )
    assert Published({"a": 1}, by=Market()).to_notification()["a"] == 1
    assert repr(Published(Quote(1.0), by=3)) == "Published(Quote(price=1.0), by=3)"


@pytest.mark.parametrize("cls", [object, ct.Obvent, Protocol, "Market", list[int]])
def test_invalid_types_of_publishers_are_refused(cls: Any) -> None:
    """The filter would match nothing, or everything."""
    with pytest.raises(InvalidObventError, match="expected a class"):
        published_by(cls)


def test_a_publisher_is_an_object_whose_class_has_a_name() -> None:
    """No subscription could name the publisher."""
    with pytest.raises(InvalidObventError, match="give the object"):
        Published(Quote(1.0), by=Market)
    script = type("Script", (), {"__module__": "__main__"})
    with pytest.raises(InvalidObventError, match="name="):
        Published(Quote(1.0), by=script()).to_notification()
    with pytest.raises(InvalidObventError, match="name="):
        published_by(script)
    with pytest.raises(InvalidObventError, match="255 bytes"):
        published_by(type("x" * 250, (), {"__module__": "m"}))
    with pytest.raises(InvalidObventError, match="types of publishers"):
        type("Taken", (ct.Obvent,), {}, name="by(Market)")


def test_a_nonconforming_class_is_an_error_for_any_publisher() -> None:
    """It would count as an unknown class."""

    class Texts(Protocol):
        price: int

    subject = ct.Structural[Texts]()
    sent = Published(Quote(1.0), by=Market()).to_notification()
    with pytest.raises(InvalidObventError, match="does not conform"):
        subject.from_notification(sent)
