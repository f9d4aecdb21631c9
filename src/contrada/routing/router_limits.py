"""`RouterLimits`: the bounds of the tables of a `Router`.

Router(name="a", limits=RouterLimits(neighbours_max=16))
"""

from dataclasses import dataclass

from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """Limits of a `Router`. Refusals carry the reason `FULL` and are counted."""

    # Links and servers
    neighbours_max: int = 1_024
    """Links of one server. Beyond it: refused, counted."""
    servers_max: int = 1_024
    """Servers with known link states, with this one. Beyond it: unreachable servers are forgotten,
    then the newest link state is refused, counted, and not forwarded; servers may then know
    different links (see docs/architecture.md)."""
    known_links_max: int = 16_384
    """Links in the link states of all other servers; weights of paths grow with its square. Beyond
    it: as of `servers_max`."""
    announced_links_max: int = 1_024
    """Servers and links of one message; its last server may have any number of links. Beyond it:
    the next has the rest."""
    announcements_max: int = 4
    """Unacknowledged messages of link states to a neighbour. Beyond it: further ones wait."""
    cached_sources_max: int = 256
    """Sources with cached next hops. Beyond it: the cache is cleared."""

    # Subscriptions, advertisements and descriptions
    registrations_max: int = 1_000_000
    """Subscriptions, or advertisements, in all. Beyond it: refused, counted; a new link too."""
    filters_per_subscription_max: int = SUBSCRIPTION_FILTERS_MAX
    """Filters of one subscription. Beyond it: refused, counted."""
    filters_max: int = 2_000_000
    """Filters of all subscriptions, once per subscription. Beyond it: as of `registrations_max`."""

    rerouted_per_turn: int = 500
    """Subscriptions, advertisements and descriptions that are routed anew at once after links have
    changed; each takes some tens of microseconds. Beyond it: in later turns."""

    # Notifications
    remembered_max: int = 65_536
    """The fewest notifications recognised as duplicates; at most twice as many. Beyond it: a later
    copy counts as new."""
    cached_next_hops_max: int = 4_096
    """Sets of filters with cached next hops. Beyond it: the cache is cleared."""
    cached_filters_max: int = 64
    """Filters and identities of such a set. Beyond it: it is not cached."""

    # Queries
    questions_max: int = 20_000
    """Open queries of a server. Beyond it: refused, counted."""
    question_sources_max: int = 10_000
    """Sources of local clients that one query reaches. Beyond it: refused, counted."""
    items_granted_max: int = 4_096
    """Items of one query that may wait for a slow asker. Beyond it: further credit is ignored."""
