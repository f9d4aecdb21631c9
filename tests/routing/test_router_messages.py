"""Messages: comparable values with one version, of every kind of event."""

from typing import get_args

import msgspec
import pytest

from contrada.errors import LimitError
from contrada.model import Filter, Notification, Query
from contrada.routing import delegation
from contrada.routing.router_messages import (
    VERSION,
    Adjacency,
    AnnounceLinks,
    Client,
    LinkState,
    LinkUp,
    Message,
    Neighbour,
    NextHop,
    Publish,
    Reason,
    Refused,
    Role,
    Subscribe,
)
from tests.routing.test_query_router import ask


def test_all_messages_have_the_same_version() -> None:
    """A server would refuse some messages of its own version."""
    assert VERSION == delegation.VERSION
    for kind in get_args(Message):
        assert kind.__match_args__[-1] == "version", kind
    assert (
        Publish((Notification({}),)).version == Subscribe("1", Filter("a = 1")).version == VERSION
    )
    assert delegation.HandBack("1").version == AnnounceLinks(()).version == VERSION


def test_a_client_is_no_neighbour_of_that_name() -> None:
    """A client's registrations would count as a server's, or vice versa."""
    assert len({Client("a"), Neighbour("a"), NextHop(Neighbour("a"))}) == 3


def test_next_hops_are_ordered_by_neighbour_then_owner() -> None:
    """Two runs of one network would send in different orders."""
    a, b = Neighbour("a"), Neighbour("b")
    next_hops = [NextHop(b), NextHop(a, "y"), NextHop(a, "x"), NextHop(a)]
    assert sorted(next_hops) == [NextHop(a), NextHop(a, "x"), NextHop(a, "y"), NextHop(b)]


def test_of_two_link_states_the_greater_links_win() -> None:
    """Servers would choose different ones of two states with one number."""
    near, far = Adjacency("a", Role.PEER, 1), Adjacency("a", Role.PEER, 2)
    assert near < far < Adjacency("b", Role.CHILD)
    assert LinkState("x", 1, (near,)).links < LinkState("x", 1, (far,)).links


def test_sent_messages_are_immutable() -> None:
    """A change of a message would affect all links that it crosses."""
    for message in (Publish((Notification({}),)), ask(Query("a = 1"))):
        with pytest.raises(AttributeError):
            message.hops = 3  # type: ignore[misc]
    assert msgspec.structs.replace(Publish((Notification({}),)), hops=1).hops == 1


def test_refusals_are_equal_whatever_their_error() -> None:
    """Comparing a refusal would require its error."""
    event = LinkUp(Neighbour("a"), Role.PEER)
    plain, told = Refused(event, Reason.FULL), Refused(event, Reason.FULL, LimitError("X", 1))
    assert plain == told
    assert told.error is not None


def test_reasons_are_distinct() -> None:
    """Counters of different reasons would be merged."""
    assert len({str(reason) for reason in Reason}) == len(Reason)
    assert all(str(reason) for reason in Reason)
