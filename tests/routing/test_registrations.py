"""`Registrations`: exactly the entries of an identity are returned."""

from contrada.errors import LimitError
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Client, Neighbour, NextHop, Reason
from contrada.routing.tables.interest_table import Registrations, RegistrationStatistics
from tests.routing.refused import refused


def test_entries_are_kept_by_origin_and_identity() -> None:
    """One client could withdraw another one's subscription, or a neighbour's of its name."""
    registrations: Registrations[str] = Registrations()
    registrations.add(Client("a"), "1", "of the client")
    registrations.add(NextHop(Neighbour("a")), "1", "of the neighbour")
    registrations.add(Client("b"), "1", "of another client")
    assert registrations.get(NextHop(Neighbour("a")), "1") == "of the neighbour"
    assert registrations.remove(Client("a"), "1") == "of the client"
    assert registrations.get(NextHop(Neighbour("a")), "1") == "of the neighbour"
    assert registrations.statistics() == RegistrationStatistics(parties=2, entries=2)
    registrations.validate()


def test_the_unknown_is_not_there() -> None:
    """A second withdrawal would go unnoticed."""
    registrations: Registrations[str] = Registrations()
    registrations.add(Client("a"), "1", "x")
    assert registrations.remove(Client("a"), "2") is None
    assert registrations.remove(Client("b"), "1") is None
    assert registrations.remove(Client("a"), "1") == "x"
    assert registrations.remove(Client("a"), "1") is None
    assert len(registrations) == 0
    assert Client("a") not in registrations
    registrations.validate()


def test_all_of_an_origin_are_removed_together() -> None:
    """A disconnected client would still be served."""
    registrations: Registrations[str] = Registrations()
    for identity in "123":
        registrations.add(Client("a"), identity, identity)
    registrations.add(Client("b"), "1", "stays")
    assert registrations.remove_all(Client("a")) == {"1": "1", "2": "2", "3": "3"}
    assert registrations.remove_all(Client("a")) == {}
    assert list(registrations) == [(Client("b"), "1", "stays")]
    registrations.validate()


def test_full_registrations_take_no_more() -> None:
    """A stranger could fill the memory of a server."""
    registrations: Registrations[int] = Registrations(RouterLimits(registrations_max=2))
    registrations.add(Client("a"), "1", 1)
    registrations.add(Client("a"), "2", 2)
    refusal = refused(registrations.check_room)
    assert refusal is not None
    assert isinstance(refusal.error, LimitError)
    assert (refusal.reason, refusal.error.limit) == (Reason.FULL, "registrations_max")
    assert len(registrations) == 2
    registrations.validate()


def test_next_hops_are_found_by_their_neighbour() -> None:
    """The registrations of some owner would remain after their link is down."""
    registrations: Registrations[str] = Registrations()
    link = Neighbour("a")
    next_hop = registrations.next_hop(link, "h")
    registrations.add(next_hop, "1", "x")
    registrations.add(NextHop(link), "1", "y")
    registrations.add(NextHop(Neighbour("b"), "h"), "1", "z")
    assert set(registrations.next_hops(link)) == {NextHop(link), NextHop(link, "h")}
    assert registrations.next_hop(link, "h") is next_hop
    registrations.remove(next_hop, "1")
    registrations.remove_all(NextHop(link))
    assert not registrations.next_hops(link)
    registrations.validate()
