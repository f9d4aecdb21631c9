"""`Topology`: the links of a server, and the next hops of subscriptions, advertisements,
notifications.

Each link has a role, and three rules on roles give every architecture of the paper:

| message | to a parent | to a peer | to a child |
|---|---|---|---|
| subscriptions | yes | yes; with advertisement forwarding those that meet its advertisements | no |
| advertisements | yes | yes | no |
| notifications | all | by its subscriptions | by its subscriptions |

No message returns over its only link of arrival. A parent sees all notifications and returns those
that match. Towards its peers, a server presents its parent as a party that subscribes to everything
and may publish everything. So a hierarchy consists of parents and children alone, an acyclic
network of peers alone, and in a hybrid any peer may be the root of a hierarchy or the child of
another network.

In a general topology the links between peers are a *mesh*, with cycles. A registration enters the
mesh at a server, its *owner*, and spreads along the tree of shortest paths from there (see
`shortest_paths`), a notification along that of its *source*. So the registrations of each owner
have next hops of their own, and only those with the same next hops cover each other. A server owns
the registrations of its clients, children and parent. With many servers, these trees cost many
messages and much memory. So a mesh may have a few *shared* trees instead (see `SharedTree`):
subscriptions follow each of them, a server's notifications and advertisements the one that its name
selects. Then covering works as in an acyclic network, and paths are longer.

Named servers exchange link states (see `link_states`). A link is used if both ends name it and,
outside of a mesh, it closes no loop. No notification is sent over an unused link, those that arrive
are refused, and registrations that arrive are held without effect, so that the link may be used
later. In a mesh they are accepted: duplicates are recognised. A server without a name uses all its
links, and these must not close a cycle: only the hop count stops a message that loops.

After the last change was noticed, every server has the link states within L delays (3 L if more
than `announcements_max` servers have news), L being the links of the longest path. Its
subscriptions or advertisements are in place after L more, and with advertisement forwarding
subscriptions after another L. A restarted server takes two delays more.

Source: PODC 2000 §4 (hierarchical client/server, acyclic and general peer-to-peer, hybrids).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final

from contrada.routing.links.link_states import COST_MAX, LinkStates
from contrada.routing.links.shortest_paths import (
    Weights,
    distances,
    downstream_neighbours,
    first_hops,
    subtree_next_hops,
    tree_of,
    weights_of,
)
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    LABEL_CHARS_MAX,
    Adjacency,
    AnnounceLinks,
    Client,
    LinkState,
    LinkUp,
    Neighbour,
    NextHop,
    Origin,
    Party,
    Reason,
    RefusedError,
    Role,
    Send,
    check_label,
    check_limit,
)

HOPS_MAX: Final = 255
"""Links that a notification crosses. Beyond it: refused, counted."""

TREES_MAX: Final = 8
"""Trees that all servers of a mesh share. Beyond it: InvalidValueError."""

_NOWHERE: Final[frozenset[NextHop]] = frozenset()


class Topology:
    """The links of one server. Invariant: at most one of them leads to a parent."""

    def __init__(
        self,
        name: str = "",
        *,
        general: bool = False,
        trees: int = 0,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        self.name = name
        self._limits = limits
        self._is_general = general
        self.shared = trees
        """The shared trees of a mesh, instead of one tree for each server."""
        self._own_tree = [tree_of(name, trees)] if trees else []
        self.adjacencies: dict[Neighbour, Adjacency] = {}
        self._states = (
            LinkStates(name, general=general, trees=trees, limits=limits) if name else None
        )
        self._unsent: dict[Neighbour, dict[str, LinkState]] = {}
        self._unacknowledged: dict[Neighbour, int] = {}  # messages sent, not yet acknowledged
        self._refusals: dict[Neighbour, Reason] = {}
        self._plain: frozenset[NextHop] = frozenset()
        self._up: frozenset[NextHop] = frozenset()
        self._below: Mapping[str, frozenset[str]] = {}
        self._trees: Mapping[str, frozenset[NextHop]] = {}
        self._mesh: Weights = {}
        self._tree_next_hops: dict[str, frozenset[NextHop]] = {}
        self._chosen_version = (0, 0)
        self._routes: Mapping[str, str] = {}
        self._routes_version = 0

    # --- links --------------------------------------------------------------------------------

    def check(self, link: Adjacency) -> None:
        """Refuses an invalid link."""
        if Neighbour(link.name) in self.adjacencies:
            raise RefusedError(Reason.KNOWN_NEIGHBOUR)
        if link.role is Role.PARENT and self.parent is not None:
            raise RefusedError(Reason.SECOND_PARENT)
        check_limit(self._limits, "neighbours_max", len(self.adjacencies) + 1)
        if self._states is None:
            return
        if link.name == self.name:
            raise RefusedError(Reason.OWN_NAME)
        check_label(link.name)
        if not (link.name and 1 <= link.cost <= COST_MAX):
            raise RefusedError(Reason.WRONG_LINK_STATE)

    def add(self, link: Adjacency) -> list[Send]:
        """Adds a link that `check` accepted. Returns the link states to send."""
        neighbour = Neighbour(link.name)
        self.adjacencies[neighbour] = link
        if self._states is None:
            return []
        self._states.announce(self.adjacencies.values())
        self._unsent[neighbour], self._unacknowledged[neighbour] = {}, 0
        own = [self._states.own]
        return self._flood(own, but=neighbour) + self._announce(neighbour, self._states)

    def remove(self, neighbour: Neighbour) -> list[Send]:
        """Removes a link. Returns the link states to send."""
        del self.adjacencies[neighbour]
        if self._states is None:
            return []
        del self._unsent[neighbour], self._unacknowledged[neighbour]
        return self._flood([self._states.announce(self.adjacencies.values())])

    def learn(
        self, origin: Neighbour, states: Iterable[LinkState]
    ) -> tuple[list[Send], list[RefusedError]]:
        """Takes link states of a neighbour. Returns messages and refusals. Raises RefusedError.

        They are to be acknowledged.
        """
        if self._states is None:
            raise RefusedError(Reason.WRONG_LINK_STATE)
        passed_on: list[LinkState] = []
        replies: list[LinkState] = []
        refused: list[RefusedError] = []
        unsent = self._unsent[origin]
        for state in states:
            try:
                self._states.check(state)
            except RefusedError as refusal:
                refused.append(refusal)
                continue
            if unsent.get(state.origin) == state:
                del unsent[state.origin]  # The neighbour knows its own news.
            news = self._states.learn(state)
            if news is state:
                passed_on.append(news)
            elif news is not None:
                replies.append(news)
        return self._flood(passed_on, but=origin) + self._flood(replies), refused

    def continue_announcing(self, neighbour: Neighbour) -> list[Send]:
        """Returns the next link states for one that acknowledged some. Raises RefusedError."""
        if not self._unacknowledged.get(neighbour):
            raise RefusedError(Reason.WRONG_LINK_STATE)
        self._unacknowledged[neighbour] -= 1
        return self._announce(neighbour, ())

    def _flood(self, states: Collection[LinkState], but: Neighbour | None = None) -> list[Send]:
        return [
            sent
            for each in self.adjacencies
            if each != but
            for sent in self._announce(each, states)
        ]

    def _announce(self, neighbour: Neighbour, states: Iterable[LinkState]) -> list[Send]:
        """Sends the newest link states, or keeps them while too many are unacknowledged."""
        assert self._states is not None, "a server without a name has no link states"
        unsent = self._unsent[neighbour]
        unsent.update({state.origin: state for state in states})
        if len(unsent) > self._limits.servers_max:  # Some were forgotten since.
            for origin in [each for each in unsent if each not in self._states]:
                del unsent[origin]
        if not unsent or self._unacknowledged[neighbour] >= self._limits.announcements_max:
            return []
        sent: list[LinkState] = []
        size = 0
        for state in unsent.values():
            sent.append(state)
            size += 1 + len(state.links)
            if size >= self._limits.announced_links_max:
                break
        for state in sent:
            del unsent[state.origin]
        self._unacknowledged[neighbour] += 1
        return [Send(neighbour, AnnounceLinks((*sent,)))]

    def role(self, neighbour: Neighbour) -> Role | None:
        """The role of a neighbour; None without a link."""
        link = self.adjacencies.get(neighbour)
        return None if link is None else link.role

    @property
    def parent(self) -> Neighbour | None:
        """The parent of this server, or None."""
        parents = (each for each, link in self.adjacencies.items() if link.role is Role.PARENT)
        return next(parents, None)

    def link_up(self, neighbour: Neighbour) -> LinkUp:
        """The event that reported a link."""
        link = self.adjacencies[neighbour]
        return LinkUp(neighbour, link.role, link.cost)

    def refusal(self, neighbour: Neighbour) -> Reason | None:
        """Why a link is not used; None if it is."""
        return self._refusals.get(neighbour)

    def links(self) -> list[tuple[Adjacency, Reason | None]]:
        """Returns the links by name, each with the reason for its disuse, or None."""
        return [(link, self.refusal(each)) for each, link in sorted(self.adjacencies.items())]

    @property
    def looped(self) -> Set[Neighbour]:
        """The links that are not used because they close a loop."""
        return {each for each, why in self._refusals.items() if why is Reason.LOOP}

    # --- next hops ----------------------------------------------------------------------------

    @property
    def _version(self) -> tuple[int, int]:
        """The versions of the links and link states on which the next hops depend."""
        return 0 if self._states is None else self._states.changes, len(self.adjacencies)

    @property
    def has_changed(self) -> bool:
        """Whether links have changed since the next hops were chosen."""
        return self._chosen_version != self._version

    def choose_next_hops(self) -> Set[str] | None:
        """Chooses the next hops anew. Returns the owners with other ones; None means all."""
        self._chosen_version = self._version
        before, plain, up = self._trees, self._plain, self._up
        if self._states is not None:
            self._choose_links(self._states)
        used = [each for each in self.adjacencies if each not in self._refusals]
        self._plain = frozenset(NextHop(each) for each in used if not self.is_in_mesh(each))
        self._up = frozenset(
            next_hop for next_hop in self._plain if self.role(next_hop.neighbour) is not Role.CHILD
        )
        self._tree_next_hops.clear()
        if up != self._up:
            return None
        owners = before.keys() | self._trees.keys()
        changed = {owner for owner in owners if before.get(owner) != self._trees.get(owner)}
        # Subscriptions of this server use all shared trees.
        is_moved = plain != self._plain or (self.shared and changed)
        return changed | {self.name} if is_moved else changed

    def _choose_links(self, states: LinkStates) -> None:
        """Chooses the used links, and the next hops of each tree of a mesh."""
        graph = states.graph
        used = graph.used
        self._refusals = {}
        for neighbour in self.adjacencies:
            edge = graph.edge(self.name, neighbour.name)
            if edge is None:
                self._refusals[neighbour] = Reason.UNCONFIRMED
            elif edge not in used:
                self._refusals[neighbour] = Reason.LOOP
        if self.shared:
            self._trees = {
                tree.label: frozenset(
                    NextHop(Neighbour(name), tree.label) for name in tree.neighbours_of(self.name)
                )
                for tree in graph.trees
            }
        elif self._is_general:
            self._mesh = weights_of(edge for edge in used if edge.role is Role.PEER)
            before, self._below = self._below, downstream_neighbours(self._mesh, self.name)
            self._trees = {
                owner: self._trees[owner]
                # The same set where nothing changed, which is quick to compare.
                if before.get(owner) == below
                else frozenset(NextHop(Neighbour(name), owner) for name in below)
                for owner, below in self._below.items()
            }

    def is_in_mesh(self, neighbour: Neighbour) -> bool:
        """Whether messages over a link carry the label of an owner."""
        return self._is_general and self.role(neighbour) is Role.PEER

    def check_owner(self, owner: str) -> None:
        """Refuses the label of an owner over a mesh link, if it is unknown or this server."""
        if self.shared:
            if owner not in self._trees:
                raise RefusedError(Reason.WRONG_OWNER)
        else:
            self.check_source(owner)

    def check_source(self, source: str) -> None:
        """Refuses the label of a source over a mesh link, if it is empty or a loop."""
        if not 0 < len(source) <= LABEL_CHARS_MAX:
            raise RefusedError(Reason.WRONG_OWNER)
        if source == self.name and not self.shared:
            raise RefusedError(Reason.LOOP)

    def owner_of(self, party: Party) -> str:
        """The owner of a party's registrations."""
        if isinstance(party, Client):
            return self.name
        return party.owner or self.name

    def is_active(self, party: Party) -> bool:
        """Whether a party's registrations have an effect: its link is used, or in a mesh."""
        return isinstance(party, Client) or bool(party.owner) or not self.refusal(party.neighbour)

    def next_hops(self, parties: Collection[Party]) -> Set[NextHop]:
        """Returns the next hops of subscriptions: not to children, nor to the only party.

        Source: PODC 2000 §4: neighbours less those on no spanning tree of a subscriber.
        """
        return self._select_next_hops(parties, self._trees)

    def next_hops_of_offers(self, parties: Collection[Party]) -> Set[NextHop]:
        """As `next_hops`, for advertisements: only the tree that local notifications follow."""
        return self._select_next_hops(parties, self._own_tree)

    def _select_next_hops(self, parties: Collection[Party], own: Collection[str]) -> Set[NextHop]:
        """Returns next hops; `own` are the shared trees for local registrations."""
        if self._refusals:
            parties = [each for each in parties if self.is_active(each)]
        if not parties:
            return _NOWHERE
        up = self._up.difference(parties) if len(parties) == 1 else self._up
        if not self._is_general:
            return up
        if not self.shared:
            owners = {self.owner_of(each) for each in parties}
            return up.union(*(self._trees.get(owner, _NOWHERE) for owner in owners))
        found = set(up)
        for label, tree in self._trees.items():
            along = []
            for each in parties:
                owner = each.owner if isinstance(each, NextHop) else ""
                if owner == label or (not owner and label in own):
                    along.append(each)
            if along:
                found |= tree.difference(along) if len(along) == 1 else tree
        return found

    def tree_next_hops(self, source: str) -> frozenset[NextHop]:
        """Returns the next hops on the tree of a source, and children and a parent.

        A shared tree includes the way back. Otherwise a neighbour is included only for the owners
        that the tree reaches through this server, so a notification takes only shortest paths.
        Cost: one lookup; after links have changed, the paths from the source.
        """
        found = self._tree_next_hops.get(source)
        if found is None:
            if len(self._tree_next_hops) >= self._limits.cached_sources_max:
                self._tree_next_hops.clear()
            mesh: Iterable[NextHop]
            if self.shared:
                mesh = self._trees.get(tree_of(source, self.shared), ())
            else:
                steps = subtree_next_hops(self._mesh, source, self.name) if self._mesh else {}
                mesh = (NextHop(Neighbour(name), owner) for owner, name in steps.items())
            found = self._tree_next_hops[source] = self._plain.union(mesh)
        return found

    def next_neighbours(
        self, origin: Origin, source: str, wanting: Iterable[NextHop] | None
    ) -> list[Neighbour]:
        """Returns the neighbours for a notification with these next hops; None for all."""
        next_hops = self.tree_next_hops(source or self.name)
        if wanting is not None:
            next_hops = next_hops.intersection(wanting)
        neighbours = {next_hop.neighbour for next_hop in next_hops}
        if isinstance(origin, Neighbour):
            neighbours.discard(origin)
        return sorted(neighbours)

    def source_over(self, neighbour: Neighbour, source: str) -> str:
        """The source label for a message over this link: the entry to the mesh, or empty."""
        return source or self.name if self.is_in_mesh(neighbour) else ""

    def routes(self) -> Mapping[str, str]:
        """Returns the next server to each reachable one. Cost: all links, after a change."""
        if self._states is None:
            return {}
        if self._routes_version != self._states.changes:
            self._routes_version = self._states.changes
            weights = weights_of(self._states.graph.used)
            self._routes = first_hops(weights, distances(weights, self.name), self.name)
        return self._routes

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self.adjacencies)

    def __len__(self) -> int:
        return len(self.adjacencies)

    def __contains__(self, neighbour: object) -> bool:
        return neighbour in self.adjacencies

    @property
    def used(self) -> int:
        """The number of used links."""
        used = {each for each in self.adjacencies if each not in self._refusals}
        if self.shared:
            mesh = {next_hop.neighbour for tree in self._trees.values() for next_hop in tree}
            used = {each for each in used if each in mesh or not self.is_in_mesh(each)}
        return len(used)

    @property
    def servers(self) -> int:
        """The number of known servers, this one included, if link states are exchanged."""
        return 0 if self._states is None else len(self._states)

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all link states."""
        parents = [each for each, link in self.adjacencies.items() if link.role is Role.PARENT]
        assert len(parents) <= 1, "two parents"
        refused = self._refusals.keys()
        assert refused <= self.adjacencies.keys(), "a link is refused that is not there"
        if self._states is None:
            return
        self._states.validate()
        announced = {Neighbour(link.name): link for link in self._states.own.links}
        assert announced == self.adjacencies, "the announced links differ"
        mesh = {next_hop.neighbour for next_hops in self._trees.values() for next_hop in next_hops}
        assert all(self.is_in_mesh(each) for each in mesh), "a tree continues outside the mesh"
