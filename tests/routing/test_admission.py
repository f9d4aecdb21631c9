"""`Admission`: permitted messages by version, link, owner, hops and lengths of names."""

import pytest

from contrada.model import Filter, Notification, Pattern, Query
from contrada.routing.admission import Admission
from contrada.routing.delegation import HandBack, SubscribePattern
from contrada.routing.links.topology import HOPS_MAX, Topology
from contrada.routing.router_messages import (
    Adjacency,
    Advertise,
    AnnounceLinks,
    Ask,
    Client,
    LinkState,
    Neighbour,
    Origin,
    Publish,
    Reason,
    Role,
    StateMessage,
    Subscribe,
    Unsubscribe,
)
from contrada.routing.tables.next_hop_cache import ITSELF
from tests.routing.refused import reason_of
from tests.routing.test_query_router import ask

C, PEER, UP, CHILD = Client("c"), Neighbour("peer"), Neighbour("up"), Neighbour("child")
SOME, LONG = Filter("a > 0"), "i" * 256
AB = Pattern("a = 1 -> b = 1")


def admission(name: str = "", *, general: bool = False) -> Admission:
    """The admission of a server with a peer, a parent and a child."""
    topology = Topology(name, general=general)
    for neighbour, role in ((PEER, Role.PEER), (UP, Role.PARENT), (CHILD, Role.CHILD)):
        topology.add(Adjacency(neighbour.name, role))
    topology.choose_next_hops()
    return Admission(name, topology)


@pytest.mark.parametrize(
    ("origin", "message", "reason"),
    [
        (C, Subscribe("1", SOME), None),
        (PEER, Subscribe("1", SOME), None),
        (CHILD, Advertise("1", SOME), None),
        (C, Subscribe("1", SOME, version=2), Reason.VERSION),
        (Neighbour("other"), Subscribe("1", SOME), Reason.UNKNOWN_NEIGHBOUR),
        (ITSELF, Subscribe("1", SOME), Reason.UNKNOWN_CLIENT),
        (UP, Subscribe("1", SOME), Reason.NOT_DUE),
        (UP, Advertise("1", SOME), Reason.NOT_DUE),
        (UP, SubscribePattern("1", AB), None),
        (UP, AnnounceLinks((LinkState("up", 1, ()),)), None),
        (C, Subscribe("1", SOME, owner="x"), Reason.WRONG_OWNER),
        (PEER, Subscribe("1", SOME, owner="x"), Reason.WRONG_OWNER),
        (C, Unsubscribe(LONG), Reason.TOO_LONG),
        (PEER, HandBack(LONG), Reason.TOO_LONG),
        (C, Unsubscribe("i" * 255), None),
    ],
)
def test_a_request_needs_a_permitted_origin(
    origin: Origin, message: StateMessage, reason: Reason | None
) -> None:
    """A stranger could change tables, or one server impersonate another."""
    assert reason_of(admission().check, origin, message) is reason


@pytest.mark.parametrize(
    ("origin", "owner", "reason"),
    [
        (PEER, "x", None),
        (PEER, "", Reason.WRONG_OWNER),
        (PEER, LONG, Reason.WRONG_OWNER),
        (PEER, "me", Reason.LOOP),
        (CHILD, "x", Reason.WRONG_OWNER),
        (CHILD, "", None),
        (C, "", None),
    ],
)
def test_a_mesh_names_owners(origin: Origin, owner: str, reason: Reason | None) -> None:
    """A message of one owner's tree would follow another's, or loop."""
    it = admission("me", general=True)
    assert reason_of(it.check, origin, Subscribe("1", SOME, owner=owner)) is reason


@pytest.mark.parametrize(
    ("hops", "reason"),
    [(-1, Reason.TOO_MANY_HOPS), (0, None), (HOPS_MAX - 1, None), (HOPS_MAX, Reason.TOO_MANY_HOPS)],
)
def test_looping_notifications_end(hops: int, reason: Reason | None) -> None:
    """A notification would loop forever over links in a ring."""
    it = admission()
    assert reason_of(it.check_forwarded, PEER, Publish((Notification({}),), hops)) is reason
    assert reason_of(it.check_query, PEER, ask(Query("a = 1"), "1", hops=hops)) is reason


def test_notifications_over_an_unused_link_are_refused() -> None:
    """A notification would arrive twice; in a mesh it must be recognised and accepted."""
    for general, reasons in ((False, [Reason.UNCONFIRMED] * 2), (True, [None, Reason.UNCONFIRMED])):
        it = admission("me", general=general)
        source = "x" if general else ""
        found = [
            reason_of(it.check_forwarded, PEER, Publish((Notification({}),), source=source)),
            reason_of(it.check_forwarded, CHILD, Publish((Notification({}),))),
        ]
        assert found == reasons


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (ask(Query("a = 1"), "1"), None),
        (ask(Query("a = 1"), "1", version=2), Reason.VERSION),
        (ask(Query("a = 1"), "1", asker=LONG), Reason.TOO_LONG),
        (ask(Query("a = 1"), LONG), Reason.TOO_LONG),
        (ask(Query("a < 1 and a > 2"), "1"), Reason.UNSATISFIABLE),
        (ask(Query("a = 1"), "1", source="x"), Reason.WRONG_OWNER),
    ],
)
def test_an_empty_query_is_refused(question: Ask, reason: Reason | None) -> None:
    """Every server would receive a query without an answer."""
    assert reason_of(admission().check_query, C, question) is reason


def test_named_servers_accept_each_message_once() -> None:
    """Copies would be delivered; or a query would suppress a notification."""
    it = admission("me")
    assert reason_of(it.check_duplicate, Publish, "p", "1") is None
    assert reason_of(it.check_duplicate, Publish, "p", "1") is Reason.DUPLICATE
    assert reason_of(it.check_duplicate, Ask, "p", "1") is None
    assert reason_of(it.check_duplicate, Publish, "p", "") is Reason.NO_IDENTITY
    unnamed = admission()
    assert [reason_of(unnamed.check_duplicate, Publish, "p", "") for _ in "ab"] == [None, None]
