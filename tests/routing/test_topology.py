"""A server's links: which may be added, which are used, and where what is asked for goes."""

import pytest

from contrada.routing.links import topology as module
from contrada.routing.links.link_states import COST_MAX
from contrada.routing.links.topology import Topology
from contrada.routing.messages import (
    Adjacency,
    Client,
    LinkState,
    LinkUp,
    Neighbour,
    Reason,
    Role,
    Send,
    Way,
)
from tests.routing.refused import reason_of

C = Client("c")
UP, CHILD, A, B = (Neighbour(name) for name in ("up", "child", "a", "b"))


def topology(name: str = "", *, general: bool = False, **roles: Role) -> Topology:
    """A topology with these links, chosen."""
    it = Topology(name, general=general)
    for neighbour, role in roles.items():
        it.add(Adjacency(neighbour, role))
    it.choose_ways()
    it.validate()
    return it


def ring() -> Topology:
    """Server a of a mesh of three; all links but that between b and c are confirmed to it."""
    it = topology("a", general=True, b=Role.PEER, c=Role.PEER)
    for one, other in (("b", "c"), ("c", "b")):
        links = (Adjacency("a", Role.PEER), Adjacency(other, Role.PEER))
        it.learn(Neighbour(one), LinkState(one, 1, links))
    it.choose_ways()
    it.validate()
    return it


@pytest.mark.parametrize(
    ("name", "link", "reason"),
    [
        ("", Adjacency("new", Role.PEER), None),
        ("me", Adjacency("new", Role.PEER), None),
        ("", Adjacency("a", Role.PEER), Reason.KNOWN_NEIGHBOUR),
        ("", Adjacency("new", Role.PARENT), Reason.SECOND_PARENT),
        ("me", Adjacency("me", Role.PEER), Reason.OWN_NAME),
        ("", Adjacency("", Role.PEER), None),
        ("me", Adjacency("", Role.PEER), Reason.WRONG_LINK_STATE),
        ("me", Adjacency("i" * 256, Role.PEER), Reason.TOO_LONG),
        ("me", Adjacency("new", Role.PEER, 0), Reason.WRONG_LINK_STATE),
        ("me", Adjacency("new", Role.PEER, COST_MAX + 1), Reason.WRONG_LINK_STATE),
        ("me", Adjacency("new", Role.PEER, COST_MAX), None),
    ],
)
def test_a_link_fits_or_is_refused(name: str, link: Adjacency, reason: Reason | None) -> None:
    """Others would be told of a link that no server can have, or not hear of a good one."""
    it = topology(name, a=Role.PEER, up=Role.PARENT)
    assert reason_of(it.check, link) is reason
    assert len(it) == 2, "to check adds nothing"


def test_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers could fill the memory of a server with links."""
    monkeypatch.setattr(module, "NEIGHBOURS_MAX", 1)
    assert reason_of(topology(a=Role.PEER).check, Adjacency("b", Role.PEER)) is Reason.FULL


def test_what_is_asked_for_goes_up_and_to_peers_not_down_nor_back() -> None:
    """A subscription would go where nothing can come from, or come back to who asked."""
    it = topology(up=Role.PARENT, child=Role.CHILD, a=Role.PEER, b=Role.PEER)
    everywhere = {Way(UP), Way(A), Way(B)}
    assert it.ways([]) == set()
    assert it.ways([C]) == everywhere
    assert it.ways([Way(CHILD)]) == everywhere
    assert it.ways([Way(A)]) == everywhere - {Way(A)}
    assert it.ways([Way(A), Way(B)]) == everywhere, "each asks for what comes from the other"
    assert it.onward("") == everywhere | {Way(CHILD)}
    assert it.parent == UP
    assert (it.role(CHILD), it.role(Neighbour("x"))) == (Role.CHILD, None)
    assert it.link_up(A) == LinkUp(A, Role.PEER)


def test_a_link_goes_and_is_forgotten() -> None:
    """Something would be sent to who is gone."""
    it = topology(a=Role.PEER, b=Role.PEER)
    assert it.remove(A) == []
    due = [it.is_due]
    it.choose_ways()
    due.append(it.is_due)
    assert due == [True, False]
    assert it.ways([C]) == {Way(B)}
    assert A not in it
    assert list(it) == [B]


def test_a_link_state_goes_to_all_but_its_bearer() -> None:
    """A state would go back and forth for ever, or not reach all."""
    it = topology("me", a=Role.PEER, b=Role.PEER)
    state = LinkState("far", 1, ())
    assert it.learn(A, state) == [Send(B, state)]
    assert it.learn(B, state) == [], "it is known"
    told = it.add(Adjacency("new", Role.PEER))
    new = [each.message for each in told if each.to == Neighbour("new")]
    assert state in new, "a new neighbour is told everything"
    nameless = topology(a=Role.PEER)
    assert reason_of(nameless.learn, A, state) is Reason.WRONG_LINK_STATE


def test_a_link_is_used_once_both_ends_have_named_it() -> None:
    """A notification would go over a link that the other end does not know."""
    it = topology("me", a=Role.PEER)
    assert it.refusal(A) is Reason.UNCONFIRMED
    assert not it.is_active(Way(A))
    assert it.ways([C]) == set()
    it.learn(A, LinkState("a", 1, (Adjacency("me", Role.PEER),)))
    assert it.is_due
    assert it.choose_ways() is None, "all goes other ways now"
    assert it.refusal(A) is None
    assert it.is_active(Way(A))
    assert it.ways([C]) == {Way(A)}
    assert (len(it), it.used, it.servers) == (1, 1, 2)


def test_of_a_loop_one_link_is_left_out() -> None:
    """A notification would go round."""
    it = topology("me", a=Role.PEER, b=Role.PEER)
    for one, other in (("a", "b"), ("b", "a")):
        links = (Adjacency(other, Role.PEER), Adjacency("me", Role.PEER))
        it.learn(Neighbour(one), LinkState(one, 1, links))
    it.choose_ways()
    assert it.looped == {B}, "the links come in the order of their ends"
    assert it.ways([C]) == {Way(A)}
    assert it.onward("") == {Way(A)}


def test_in_a_mesh_each_home_has_its_tree() -> None:
    """What is for one home would go another's way, or over a way that is not the shortest."""
    it = ring()
    b, c = Neighbour("b"), Neighbour("c")
    assert it.looped == set(), "a mesh may have cycles"
    assert it.is_in_mesh(b)
    assert it.home_of(C) == "a"
    assert it.home_of(Way(b, "b")) == "b"
    assert it.ways([C]) == {Way(b, "a"), Way(c, "a")}
    assert it.ways([Way(b, "b")]) == set(), "c hears of it from b"
    assert it.onward("a") == {Way(b, "b"), Way(c, "c")}
    assert it.onward("b") == set(), "c has it from b"


def test_few_sources_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory would grow with every source that a notification names."""
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    it = ring()
    for source in ("a", "b", "c", "a", "x"):
        assert it.onward(source) == ring().onward(source)
        assert len(it._onward) <= 2
