"""`LinkStates`: the newest state wins, from any sender, and invalid ones are refused."""

import pytest

from contrada.routing.links.link_states import NUMBER_MAX, RENEWALS_MAX, LinkStates
from contrada.routing.links.shortest_paths import ConfirmedLink
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Adjacency, LinkState, Reason, Role
from tests.routing.refused import reason_of


def peer(*names: str) -> tuple[Adjacency, ...]:
    """Links to peers."""
    return tuple(Adjacency(name, Role.PEER) for name in names)


def test_a_newer_state_is_passed_on_and_an_older_is_not() -> None:
    """A state would loop forever, or an old one be believed."""
    states = LinkStates("a")
    first, second = LinkState("b", 1, peer("a")), LinkState("b", 2, peer("c"))
    assert states.learn(second) is second
    assert states.learn(second) is None
    assert states.learn(first) is None
    assert states.learn(LinkState("b", 3, ())) is not None
    states.validate()


def test_a_link_counts_when_both_ends_name_it_alike() -> None:
    """Messages would be sent to an end that does not know the link, or knows another role."""
    states = LinkStates("a")
    states.announce(
        [Adjacency("b", Role.PEER, 2), Adjacency("c", Role.PARENT), Adjacency("d", Role.PARENT)]
    )
    assert not list(states.graph)
    states.learn(LinkState("b", 1, (Adjacency("a", Role.PEER, 3),)))
    states.learn(LinkState("c", 1, (Adjacency("a", Role.CHILD),)))
    states.learn(LinkState("d", 1, (Adjacency("a", Role.PEER),)))
    assert set(states.graph) == {
        ConfirmedLink("a", "b", Role.PEER, 3),
        ConfirmedLink("a", "c", Role.PARENT, 1),
    }
    assert states.graph.edge("c", "a") == ConfirmedLink("a", "c", Role.PARENT, 1)
    assert states.graph.edge("a", "d") is None
    changes = states.changes
    states.learn(LinkState("b", 2, ()))
    assert set(states.graph) == {ConfirmedLink("a", "c", Role.PARENT, 1)}
    assert states.changes == changes + 1
    states.learn(LinkState("e", 1, peer("x")))
    assert states.changes == changes + 1
    states.validate()


@pytest.mark.parametrize(("here", "there"), [(2, 3), (3, 2)])
def test_a_link_has_the_cost_of_its_dearer_end(here: int, there: int) -> None:
    """Each end would use its own cost, and they would choose different shortest paths."""
    for name, other, costs in (("a", "b", (here, there)), ("b", "a", (there, here))):
        states = LinkStates(name)
        states.announce([Adjacency(other, Role.PEER, costs[0])])
        states.learn(LinkState(other, 1, (Adjacency(name, Role.PEER, costs[1]),)))
        assert [edge.cost for edge in states.graph] == [3]
        states.validate()


def test_after_a_restart_a_server_continues_from_its_old_number() -> None:
    """Its new links would count as older than its old ones."""
    states = LinkStates("a")
    states.announce(peer("b"))
    assert states.learn(LinkState("a", 9, peer("c"))) == LinkState("a", 10, peer("b"))
    assert states.learn(LinkState("a", 9, peer("c"))) is None
    assert states.announce(()) == LinkState("a", 11, ())


def test_two_states_of_one_number_are_decided_alike() -> None:
    """After a restart one half of the network would keep the old state forever."""
    old, new = LinkState("b", 2, peer("x")), LinkState("b", 2, peer("y"))
    for one, other in ((old, new), (new, old)):
        states = LinkStates("a")
        states.learn(one)
        states.learn(other)
        assert new in list(states)
    own = LinkStates("b")
    own.announce(())
    own.announce(peer("x"))
    assert own.learn(new) == LinkState("b", 3, peer("x"))


def test_two_servers_of_one_name_do_not_outbid_each_other_for_ever() -> None:
    """They would flood the network until one of them stops."""
    one, other = LinkStates("a"), LinkStates("a")
    one.announce(peer("b"))
    said: LinkState | None = other.announce(peer("c"))
    bids = 0
    while said is not None:
        one, other = other, one
        if reason_of(other.check, said) is not None:
            assert reason_of(other.check, said) is Reason.NAME_IN_USE
            assert reason_of(other.check, LinkState("a", 0, ())) is None
            break
        said = other.learn(said)
        bids += 1
    assert RENEWALS_MAX <= bids <= 2 * RENEWALS_MAX + 2
    other.announce(peer("d"))
    assert reason_of(other.check, LinkState("a", 10**6, ())) is None


@pytest.mark.parametrize("number", [NUMBER_MAX // 2, NUMBER_MAX - 1])
def test_a_number_that_leaves_no_room_is_not_outbid(number: int) -> None:
    """A server would exceed the largest number, and be cut off for good."""
    states = LinkStates("a")
    states.announce(peer("b"))
    assert reason_of(states.check, LinkState("a", number, ())) is Reason.NAME_IN_USE
    assert reason_of(states.check, LinkState("a", NUMBER_MAX // 2 - 1, ())) is None
    states.learn(LinkState("a", NUMBER_MAX // 2 - 1, ()))
    states.announce(peer("c"))
    states.validate()


def test_unreachable_servers_are_dropped_first() -> None:
    """The table would grow without bound, or existing servers be forgotten."""
    states = LinkStates("a", limits=RouterLimits(servers_max=3))
    states.announce(peer("b"))
    for state in (LinkState("b", 1, peer("a")), LinkState("x", 1, peer("y"))):
        assert reason_of(states.check, state) is None
        states.learn(state)
    states.learn(LinkState("b", 2, peer("a", "c")))
    third = LinkState("c", 1, peer("b"))
    assert reason_of(states.check, third) is None
    states.learn(third)
    assert {state.origin for state in states} == {"a", "b", "c"}
    assert reason_of(states.check, LinkState("d", 1, peer("c"))) is Reason.FULL
    assert reason_of(states.check, LinkState("c", 2, peer("d"))) is None
    states.validate()


def test_a_new_neighbour_receives_link_states_in_order_of_reachability() -> None:
    """Without room, soon reachable servers would be forgotten."""
    limits = RouterLimits(servers_max=5)
    old = LinkStates("b", limits=limits)
    old.learn(LinkState("d", 1, peer("c")))
    old.learn(LinkState("c", 1, peer("b", "d")))
    old.announce(peer("a", "c"))
    new = LinkStates("a", limits=limits)
    new.learn(LinkState("x", 1, ()))
    new.learn(LinkState("y", 1, ()))
    new.announce(peer("b"))
    for state in old:
        assert reason_of(new.check, state) is None
        new.learn(state)
    assert {state.origin for state in new} == {"a", "b", "c", "d"}


def test_links_that_are_known_are_bounded() -> None:
    """A neighbour that reports a full mesh would fill the memory."""
    states = LinkStates("a", limits=RouterLimits(known_links_max=4))
    states.announce(peer("b", "c", "d", "e", "f"))
    for state in (
        LinkState("b", 1, peer("a", "c")),
        LinkState("x", 1, peer("y")),
        LinkState("y", 1, peer("x")),
        LinkState("b", 2, peer("a", "c", "d")),
        LinkState("c", 1, peer("a")),
    ):
        assert reason_of(states.check, state) is None
        states.learn(state)
    assert {state.origin for state in states} == {"a", "b", "c"}
    assert reason_of(states.check, LinkState("c", 2, peer("a", "b"))) is Reason.FULL
    assert reason_of(states.check, LinkState("b", 3, peer("a"))) is None
    assert reason_of(states.check, LinkState("c", 0, peer("a", "b"))) is None, (
        "it is old, and takes no room"
    )
    states.validate()


@pytest.mark.parametrize(
    "state",
    [
        LinkState("", 1, ()),
        LinkState("b" * 256, 1, ()),
        LinkState("b", -1, ()),
        LinkState("b", NUMBER_MAX, ()),
        LinkState("b", 1, peer("b")),
        LinkState("b", 1, peer("")),
        LinkState("b", 1, peer("c" * 256)),
        LinkState("b", 1, peer("d", "c")),
        LinkState("b", 1, (Adjacency("c", Role.PEER), Adjacency("c", Role.CHILD))),
        LinkState("b", 1, (Adjacency("c", Role.PEER, 0),)),
        LinkState("b", 1, (Adjacency("c", Role.PEER, 10**9),)),
        LinkState("b", 1, peer(*(f"{n:05}" for n in range(1_025)))),
    ],
)
def test_nonsense_is_refused(state: LinkState) -> None:
    """A faulty server could make others compute forever, or lose their paths."""
    states = LinkStates("a")
    assert reason_of(states.check, state) is Reason.WRONG_LINK_STATE
    states.validate()
