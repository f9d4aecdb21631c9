"""`Topology`: permitted links, used links, and next hops."""

import pytest

from contrada.routing.links.link_states import COST_MAX
from contrada.routing.links.topology import Topology
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Adjacency,
    AnnounceLinks,
    Client,
    LinkState,
    LinkUp,
    Neighbour,
    NextHop,
    Reason,
    Role,
    Send,
)
from tests.routing.refused import reason_of

C = Client("c")
UP, CHILD, A, B = (Neighbour(name) for name in ("up", "child", "a", "b"))


def topology(
    name: str = "",
    *,
    general: bool = False,
    trees: int = 0,
    limits: RouterLimits = RouterLimits(),
    **roles: Role,
) -> Topology:
    """A topology with these links, chosen."""
    it = Topology(name, general=general, trees=trees, limits=limits)
    for neighbour, role in roles.items():
        it.add(Adjacency(neighbour, role))
    it.choose_next_hops()
    it.validate()
    return it


def ring(trees: int = 0, limits: RouterLimits = RouterLimits()) -> Topology:
    """Server a of a mesh of three, of which it knows all links."""
    it = topology("a", general=True, trees=trees, limits=limits, b=Role.PEER, c=Role.PEER)
    for one, other in (("b", "c"), ("c", "b")):
        links = (Adjacency("a", Role.PEER), Adjacency(other, Role.PEER))
        it.learn(Neighbour(one), [LinkState(one, 1, links)])
    it.choose_next_hops()
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
    """An impossible link would be announced, or a correct one be missed."""
    it = topology(name, a=Role.PEER, up=Role.PARENT)
    assert reason_of(it.check, link) is reason
    assert len(it) == 2, "to check adds nothing"


def test_links_are_bounded() -> None:
    """Strangers could fill the memory of a server with links."""
    it = topology(limits=RouterLimits(neighbours_max=1), a=Role.PEER)
    assert reason_of(it.check, Adjacency("b", Role.PEER)) is Reason.FULL


def test_subscriptions_go_to_a_parent_and_peers_only() -> None:
    """A subscription would be sent where nothing matches, or back to its sender."""
    it = topology(up=Role.PARENT, child=Role.CHILD, a=Role.PEER, b=Role.PEER)
    everywhere = {NextHop(UP), NextHop(A), NextHop(B)}
    assert it.next_hops([]) == set()
    assert it.next_hops([C]) == everywhere
    assert it.next_hops([NextHop(CHILD)]) == everywhere
    assert it.next_hops([NextHop(A)]) == everywhere - {NextHop(A)}
    assert it.next_hops([NextHop(A), NextHop(B)]) == everywhere, (
        "each asks for what comes from the other"
    )
    assert it.tree_next_hops("") == everywhere | {NextHop(CHILD)}
    assert it.parent == UP
    assert (it.role(CHILD), it.role(Neighbour("x"))) == (Role.CHILD, None)
    assert it.link_up(A) == LinkUp(A, Role.PEER)


def test_a_removed_link_is_forgotten() -> None:
    """Messages would be sent to a lost neighbour."""
    it = topology(a=Role.PEER, b=Role.PEER)
    assert it.remove(A) == []
    due = [it.has_changed]
    it.choose_next_hops()
    due.append(it.has_changed)
    assert due == [True, False]
    assert it.next_hops([C]) == {NextHop(B)}
    assert A not in it
    assert list(it) == [B]


def link_states_of(sends: list[Send]) -> dict[Neighbour, list[LinkState]]:
    """Returns the link states for each neighbour. Each is sent once."""
    found = {each.to: each.message for each in sends if isinstance(each.message, AnnounceLinks)}
    assert len(found) == sum(isinstance(each.message, AnnounceLinks) for each in sends)
    return {to: [*message.states] for to, message in found.items()}


def settled_server(name: str, *names: str, limits: RouterLimits = RouterLimits()) -> Topology:
    """Returns a server with peers that have acknowledged everything."""
    it = topology(name, limits=limits)
    for each in names:
        it.add(Adjacency(each, Role.PEER))
    it.choose_next_hops()
    for each in names:
        while reason_of(it.continue_announcing, Neighbour(each)) is None:
            pass
    return it


def test_a_link_state_is_flooded_except_to_its_sender() -> None:
    """A state would bounce forever, or not reach all."""
    it = settled_server("me", "a", "b")
    state = LinkState("far", 1, ())
    sends, refused = it.learn(A, [state])
    assert link_states_of(sends) == {B: [state]}
    assert not refused
    assert it.learn(B, [state]) == ([], []), "it is known"
    sends = it.add(Adjacency("new", Role.PEER))
    assert state in link_states_of(sends)[Neighbour("new")], "a new neighbour is told everything"
    it.validate()
    nameless = topology(a=Role.PEER)
    assert reason_of(nameless.learn, A, [state]) is Reason.WRONG_LINK_STATE


def test_waiting_link_states_travel_together() -> None:
    """A starting network would be flooded with each state of each server."""
    it = settled_server("me", "a", "b", limits=RouterLimits(announcements_max=1))
    first, *more = (LinkState(each, 1, ()) for each in "xyz")
    newer = LinkState("y", 2, ())
    assert link_states_of(it.learn(A, [first])[0]) == {B: [first]}
    for state in (*more, newer):
        assert link_states_of(it.learn(A, [state])[0]) == {}, "b has not taken in what it was told"
    assert link_states_of(it.continue_announcing(B)) == {B: [newer, more[1]]}
    assert link_states_of(it.continue_announcing(B)) == {}
    assert reason_of(it.continue_announcing, B) is Reason.WRONG_LINK_STATE
    assert link_states_of(it.learn(A, [LinkState("z", 2, ())])[0]) != {}


def test_waiting_link_states_are_bounded() -> None:
    """A neighbour that invents servers would fill the queue of a silent one."""
    it = settled_server("me", "a", "b", limits=RouterLimits(announcements_max=1, servers_max=5))
    for number in range(20):
        it.learn(A, [LinkState(f"x{number}", 1, ())])
        assert len(it._unsent[B]) <= 5


def test_link_states_are_not_returned_to_their_sender() -> None:
    """States that two neighbours exchange would travel twice."""
    it = settled_server("me", "a", "b", limits=RouterLimits(announcements_max=1))
    states = [LinkState(each, 1, ()) for each in "xy"]
    it.learn(A, states[:1])
    it.learn(A, states[1:])
    it.learn(B, states[1:])
    assert link_states_of(it.continue_announcing(B)) == {}


def test_invalid_states_of_a_message_are_refused_singly() -> None:
    """One faulty server would cut off others with states in the same message."""
    it = settled_server("me", "a", "b")
    good, bad = LinkState("x", 1, ()), LinkState("y", -1, ())
    sends, refused = it.learn(A, [bad, good])
    assert link_states_of(sends) == {B: [good]}
    assert [each.reason for each in refused] == [Reason.WRONG_LINK_STATE]


def test_a_message_of_link_states_is_bounded() -> None:
    """The states of a large network would not fit into a frame."""
    it = settled_server("me", "a", limits=RouterLimits(announced_links_max=4))
    states = [LinkState(f"x{each}", 1, ()) for each in range(9)]
    it.learn(A, states)
    parts = [link_states_of(it.add(Adjacency("b", Role.PEER)))[B]]
    while more := link_states_of(it.continue_announcing(B)):
        parts.append(more[B])
    assert {len(part) for part in parts} <= {2, 3, 4}
    assert [each for part in parts for each in part if each in states] == states


def test_a_link_is_used_once_both_ends_have_named_it() -> None:
    """A notification would be sent over a link unknown to the other end."""
    it = topology("me", a=Role.PEER)
    assert it.refusal(A) is Reason.UNCONFIRMED
    assert not it.is_active(NextHop(A))
    assert it.next_hops([C]) == set()
    it.learn(A, [LinkState("a", 1, (Adjacency("me", Role.PEER),))])
    assert it.has_changed
    assert it.choose_next_hops() is None, "all goes other ways now"
    assert it.refusal(A) is None
    assert it.is_active(NextHop(A))
    assert it.next_hops([C]) == {NextHop(A)}
    assert (len(it), it.used, it.servers) == (1, 1, 2)
    assert it.routes() == {"a": "a"}


def test_of_a_loop_one_link_is_left_out() -> None:
    """A notification would loop."""
    it = topology("me", a=Role.PEER, b=Role.PEER)
    for one, other in (("a", "b"), ("b", "a")):
        links = (Adjacency(other, Role.PEER), Adjacency("me", Role.PEER))
        it.learn(Neighbour(one), [LinkState(one, 1, links)])
    it.choose_next_hops()
    assert it.looped == {B}, "the links come in the order of their ends"
    assert it.next_hops([C]) == {NextHop(A)}
    assert it.tree_next_hops("") == {NextHop(A)}


def test_routes_lead_to_all_reachable_servers_also_after_a_change() -> None:
    """Shipments would be sent to a server that is no longer the next one, or not at all."""
    it = ring()
    assert it.routes() == {"b": "b", "c": "c"}
    it.remove(Neighbour("c"))
    assert it.routes() == {"b": "b", "c": "b"}
    assert topology(a=Role.PEER).routes() == {}


def test_in_a_mesh_each_owner_has_its_tree() -> None:
    """A registration of one owner would follow another's tree, or a detour."""
    it = ring()
    b, c = Neighbour("b"), Neighbour("c")
    assert it.looped == set(), "a mesh may have cycles"
    assert it.is_in_mesh(b)
    assert it.owner_of(C) == "a"
    assert it.owner_of(NextHop(b, "b")) == "b"
    assert it.next_hops([C]) == {NextHop(b, "a"), NextHop(c, "a")}
    assert it.next_hops([NextHop(b, "b")]) == set(), "c hears of it from b"
    assert it.tree_next_hops("a") == {NextHop(b, "b"), NextHop(c, "c")}
    assert it.tree_next_hops("b") == set(), "c has it from b"


def test_local_subscriptions_follow_all_shared_trees() -> None:
    """A publication along one tree would miss subscribers, or arrive twice."""
    it = ring(trees=2)
    b, c = Neighbour("b"), Neighbour("c")
    near = {
        label: {next_hop.neighbour for next_hop in it.next_hops([C]) if next_hop.owner == label}
        for label in "01"
    }
    assert all(near.values())
    for label, neighbours in near.items():
        for each in (b, c):
            others = {NextHop(other, label) for other in neighbours - {each}}
            assert it.next_hops([NextHop(each, label)]) == others
        assert it.next_hops([NextHop(b, label), NextHop(c, label)]) == {
            NextHop(each, label) for each in neighbours
        }
    offered = it.next_hops_of_offers([C])
    assert {next_hop.owner for next_hop in offered} == {
        next_hop.owner for next_hop in it.tree_next_hops("a")
    }, "what is offered goes where it will be published"
    assert len({next_hop.owner for next_hop in offered}) == 1


def test_notifications_of_a_source_follow_one_shared_tree() -> None:
    """A notification would follow both trees, or loop between them."""
    it = ring(trees=2)
    labels = {
        source: {next_hop.owner for next_hop in it.tree_next_hops(source)} for source in "abcdefgh"
    }
    assert all(len(each) == 1 for each in labels.values())
    assert set().union(*labels.values()) == {"0", "1"}
    assert topology("a", general=True, trees=1).tree_next_hops("a") == set(), (
        "there are no links yet"
    )
    alone = ring(trees=1)
    assert alone.tree_next_hops("a") == alone.tree_next_hops("b") == alone.next_hops([C])
    assert alone.used <= len(alone)


def test_a_return_along_a_shared_tree_is_no_fault() -> None:
    """A returning notification during changes would be blamed on its neighbour."""
    assert reason_of(ring().check_source, "a") is Reason.LOOP
    assert reason_of(ring(trees=1).check_source, "a") is None
    assert reason_of(ring(trees=1).check_source, "") is Reason.WRONG_OWNER


def test_few_sources_are_kept_in_mind() -> None:
    """Memory would grow with every source that a notification names."""
    it = ring(limits=RouterLimits(cached_sources_max=2))
    for source in ("a", "b", "c", "a", "x"):
        assert it.tree_next_hops(source) == ring().tree_next_hops(source)
        assert len(it._tree_next_hops) <= 2
