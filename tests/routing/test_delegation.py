"""Messages about patterns: distinct by kind and direction, equal by content."""

from typing import Any, get_args

import pytest

from contrada.model import Envelope, Notification, Pattern
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Piece
from contrada.routing.delegation import (
    VERSION,
    AskWatermark,
    DelegateMessage,
    Demand,
    HandOver,
    PatternMessage,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
)

AB = Pattern("a = 1 -> b = 1")
A = Notification({"a": 1}, envelope=Envelope(id="a"))


def test_every_message_has_one_direction() -> None:
    """A server could not distinguish a request from an answer."""
    demands, answers = set(get_args(Demand)), set(get_args(DelegateMessage))
    assert not demands & answers
    assert demands | answers == set(get_args(PatternMessage))


@pytest.mark.parametrize("kind", get_args(PatternMessage))
def test_every_message_names_its_pattern_first_and_its_version_last(kind: Any) -> None:
    """The checks of identity and version would read other fields."""
    names = kind.__struct_fields__
    assert (names[0], names[-1]) == ("identity", "version")
    assert kind.__struct_defaults__[-1] == VERSION
    assert kind.__struct_config__.frozen


def test_messages_are_values() -> None:
    """A message would change in flight, or equal ones differ."""
    piece = Piece(0, None, A)
    assert HandOver("1", 5, (piece,)) == HandOver("1", 5, (Piece(0, None, A),))
    there: Demand | DelegateMessage = ReturnPattern("1", 5, (piece,))
    assert there != HandOver("1", 5, (piece,))
    assert AskWatermark("1", 5) != AskWatermark("1", 6)
    assert SubscribePattern("1", AB) == SubscribePattern("1", Pattern("a = 1 -> b = 1"), hops=0)
    report = ReportMatches("1", (Match("1", (), (A,)),), 7)
    assert report.waits_us is None
    with pytest.raises(AttributeError):
        report.watermark_us = 8  # type: ignore[misc]
