"""`Together`: several obvents as one notification, its filters, its parts, and damage."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import contrada as ct
from contrada.errors import InvalidObventError, LimitError
from contrada.typed.collections import Together
from contrada.typed.collections.collection_space import CollectionSpace
from contrada.typed.collections.together import TOGETHER_BODY, TOGETHER_MAX, is_together


@dataclass
class Base(ct.Obvent, name="together.Base"):
    number: int = 0


@dataclass
class Left(Base, name="together.Left"):
    """One type."""


@dataclass
class Right(Base, name="together.Right"):
    """Another type."""


@dataclass
class Sure(Base, ct.Reliable, name="together.Sure"):
    """A reliable one."""


def carrier(*parts: Base) -> ct.Notification:
    return Together(tuple(it.to_notification() for it in parts)).to_notification()


def space(cls: type[Base]) -> CollectionSpace[Base]:
    return CollectionSpace(cls)


def numbers(cls: type[Base], where: Any, found: ct.Notification) -> list[int]:
    """The elements that a consumer of a type gets from a notification."""
    rule = space(cls).rule(where)
    if not rule.matches(found):
        return []
    return [each.obvent.number for each in rule.from_notification(found)]


def test_parts_are_restored() -> None:
    """Parts would be changed on the way."""
    parts = [Left(1), Right(2)]
    found = Together.from_notification(carrier(*parts))
    assert [Base.from_notification(it) for it in found.parts] == parts
    assert Together.to_filters().matches(carrier(*parts))


def test_types_see_their_parts_only() -> None:
    """A consumer would get parts of other types."""
    both = carrier(Left(1), Right(2), Left(3))
    assert numbers(Base, None, both) == [1, 2, 3]
    assert numbers(Left, None, both) == [1, 3]
    assert numbers(Sure, None, both) == []


def test_filters_apply_to_each_part() -> None:
    """One part would match because of another, or a part be missed."""
    both = carrier(Left(1), Left(5))
    for where in ("number > 3", lambda it: it.number > 3, lambda it: len("x" * it.number) > 3):
        assert numbers(Left, where, both) == [5]
    assert numbers(Left, "number != 5", both) == [1]
    assert numbers(Left, "number > 7", both) == []


def test_servers_decide_by_type() -> None:
    """All joint notifications would be sent to all subscribers."""
    rule = space(Right).rule(None)
    assert not rule.filters.matches(carrier(Left(1)))
    assert rule.filters.matches(carrier(Left(1), Right(2)))


def test_servers_decide_by_subject() -> None:
    """Joint notifications of one room would be sent to all rooms."""
    chat: CollectionSpace[Base] = CollectionSpace(Left, "/Chat/a")
    trade: CollectionSpace[Base] = CollectionSpace(Left, "/Trade")
    parts = (chat.notification_of(Left(1), ""), trade.notification_of(Left(2), ""))
    both = Together(parts).to_notification()
    first = Together(parts[:1]).to_notification()
    assert [each.rule(None).filters.matches(first) for each in (chat, trade)] == [True, False]
    for each, number in ((chat, 1), (trade, 2)):
        assert each.rule(None).matches(both)
        assert [it.obvent for it in each.rule(None).from_notification(both)] == [Left(number)]


def test_no_type_takes_the_whole_for_a_part() -> None:
    """A subscriber to a class would get a notification that is none of its objects."""
    assert not Base.to_filters().matches(carrier(Left(1)))


def test_parts_have_the_same_guarantees() -> None:
    """A reliable part would be delivered at best effort."""
    with pytest.raises(InvalidObventError, match="need the same guarantees"):
        carrier(Left(1), Sure(2))
    assert carrier(Sure(1), Sure(2)).envelope.delivery == "reliable"


def test_it_is_bounded() -> None:
    """One notification could have any number of parts."""
    with pytest.raises(InvalidObventError, match="nothing"):
        carrier()
    with pytest.raises(LimitError, match="TOGETHER_MAX"):
        carrier(*[Left(1)] * (TOGETHER_MAX + 1))


def forged(body: bytes) -> ct.Notification:
    attributes = dict(carrier(Left(1)).attributes)
    return ct.Notification.from_attributes(attributes, body, TOGETHER_BODY, ct.Envelope())


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        msgspec.msgpack.encode([b"no msgpack"]),
        msgspec.msgpack.encode([ct.to_msgpack(ct.Filter("a = 1"))]),
        msgspec.msgpack.encode([ct.to_msgpack(carrier(Left(1)))]),
        msgspec.msgpack.encode([ct.to_msgpack(Left(1).to_notification())] * (TOGETHER_MAX + 1)),
    ],
)
def test_a_damaged_body_is_an_error(body: bytes) -> None:
    """It would be skipped, or end its reader."""
    found = forged(body)
    rule = space(Left).rule("number = 1")
    assert rule.matches(found)
    with pytest.raises(InvalidObventError):
        rule.from_notification(found)


def test_a_mark_alone_is_no_joint_notification() -> None:
    """A mark would make another program's notification unreadable."""
    found = ct.Notification.from_attributes(
        dict(carrier(Left(1)).attributes), b"", "", ct.Envelope()
    )
    assert not is_together(found)
    assert numbers(Left, None, found) == []
