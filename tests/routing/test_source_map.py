"""`SourceMap`: the sources of a pattern's parts, by advertisements and links."""

import pytest

from contrada.model import Advertisement, Filter
from contrada.routing.assembly.held_patterns import SourceMap
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import (
    Adjacency,
    Client,
    Neighbour,
    NextHop,
    Offer,
    Party,
    Role,
)
from contrada.routing.tables.poset import Poset

C, N, M, UP = Client("c"), Neighbour("n"), Neighbour("m"), Neighbour("up")
A = Filter("kind = 'a'")


def source_map(roles: dict[Neighbour, Role], offers: dict[Party, str]) -> SourceMap:
    """Returns the source map of a server with these links and advertisements."""
    topology = Topology()
    for neighbour, role in roles.items():
        topology.add(Adjacency(neighbour.name, role))
    topology.choose_next_hops()
    offered: Poset[Offer] = Poset(None)
    for party, kind in offers.items():
        offered.add_subscriber(Advertisement(f"kind = '{kind}'"), party, "1")
    return SourceMap(topology, offered)


PEERS = {N: Role.PEER, M: Role.PEER}


@pytest.mark.parametrize(
    ("roles", "offers", "requester", "sources"),
    [
        (PEERS, {}, C, set()),
        (PEERS, {NextHop(N): "a", NextHop(M): "b"}, C, {N}),
        (PEERS, {NextHop(N): "a", NextHop(M): "a"}, C, {N, M}),
        (PEERS, {Client("p"): "a", NextHop(N): "a"}, C, {None, N}),
        (PEERS, {NextHop(N): "a", NextHop(M): "a"}, N, {M}),
        ({N: Role.CHILD}, {NextHop(N): "a"}, N, {N}),
        ({UP: Role.PARENT, N: Role.CHILD}, {NextHop(N): "a"}, N, {UP}),
        ({UP: Role.PARENT}, {Client("p"): "a"}, C, {UP}),
        ({UP: Role.PARENT, N: Role.CHILD}, {NextHop(N): "a", NextHop(UP): "a"}, UP, {N}),
    ],
)
def test_the_sources_of_a_part_are_its_advertisers(
    roles: dict[Neighbour, Role],
    offers: dict[Party, str],
    requester: Client | Neighbour,
    sources: set[Neighbour | None],
) -> None:
    """A part would be delegated to a neighbour that sees only some of it, or collected here in
    vain.
    """
    assert source_map(roles, offers).sources(A, requester) == sources


def test_a_link_that_is_not_used_is_no_source() -> None:
    """A part would be delegated over a link that closes a loop, and never arrive."""
    topology = Topology("x")
    topology.add(Adjacency("up", Role.PARENT))
    topology.choose_next_hops()
    offered: Poset[Offer] = Poset(None)
    offered.add_subscriber(Advertisement("kind = 'a'"), NextHop(UP), "1")
    assert topology.refusal(UP) is not None, "the other end has not named it"
    assert SourceMap(topology, offered).sources(A, C) == frozenset()


@pytest.mark.parametrize("role", [Role.PEER, Role.CHILD])
def test_nor_is_one_to_a_peer_or_a_child(role: Role) -> None:
    """Its advertisements have no effect until its link is used."""
    topology = Topology("x")
    topology.add(Adjacency("n", role))
    topology.choose_next_hops()
    offered: Poset[Offer] = Poset(None)
    offered.add_subscriber(Advertisement("kind = 'a'"), NextHop(N), "1")
    assert topology.refusal(N) is not None
    assert SourceMap(topology, offered).sources(A, C) == frozenset()


def test_without_advertisements_nothing_is_known() -> None:
    """Patterns would be split without information."""
    unknown = SourceMap(Topology(), None)
    assert not unknown.is_known
    assert unknown.sources(A, C) == frozenset()
    assert source_map({}, {}).is_known


@pytest.mark.parametrize(
    ("origin", "requester", "counts"),
    [(N, C, True), (C, N, True), (N, M, True), (M, M, False), (N, N, True)],
)
def test_a_peer_covers_its_own_side(
    origin: Client | Neighbour, requester: Client | Neighbour, counts: bool
) -> None:
    """A match would be found twice, by a peer and by its own neighbour; or a child's be missed."""
    it = source_map({N: Role.CHILD, M: Role.PEER}, {})
    assert it.counts(origin, requester) == counts
