"""`GossipLimits`: the bounds of a participant of a gossip group that a user can set."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipLimits:
    """Limits of a `Hpmcast`, and of its `GossipNode`."""

    event_bytes_max: int = 524_288
    """Bytes of the attributes and the body of an event. Beyond it: refused."""
    rumours_max: int = 10_000
    """Events in the buffers of a participant. Beyond it: a new one is delivered, not gossiped;
    counted."""
    buffered_bytes_max: int = 67_108_864
    """Bytes of buffered and kept events. Beyond it: as beyond `rumours_max`, and none is kept."""
    announced_max: int = 10_000
    """Announced events that were not received. Beyond it: the earliest is forgotten."""
    announced_names_max: int = 256
    """Attributes in an announcement; at most 256. Beyond it: the event is sent whole."""
    resends_max: int = 10
    """Attempts to send an event to a delegate of the top that does not acknowledge it. Beyond it:
    the other delegates of its subsystem deliver it."""
    unacknowledged_max: int = 256
    """Unacknowledged events at the delegates of the top. Beyond it: the next is gossiped there."""
    interests_max: int = 10_000
    """Subscriptions of one participant. Beyond it: refused."""
    lost_max: int = 64
    """Lost contacts, which get a digest now and then. Beyond it: the earliest are forgotten."""
    strangers_max: int = 64
    """Unknown contacts in lines, which get a digest in the next round. Beyond it: ignored."""
    voters_max: int = 16
    """Participants whose lines judge the own clock. Beyond it: the oldest vote is dropped."""
    join_redirects_max: int = 256
    """Redirections that a newcomer has not followed. Beyond it: the first are followed."""
    group_join_wait_s: float = 10.0
    """How long a newcomer asks for its place. Beyond it: ConnectionFailedError."""
    addresses_drawn_max: int = 16
    """Random addresses that a newcomer tries. Beyond it: ServiceError."""
    events_in_transit_max: int = 512
    """Events in transit of a publisher. Beyond it: it waits, then ServiceError."""
    leave_wait_s: float = 0.5
    """How long leaving waits for outgoing datagrams. Beyond it: they are dropped."""
    spread_wait_s: float = 30.0
    """How long `GossipNode.spread` waits for events in transit. Beyond it: it returns."""
    places_known_max: int = 65_536
    """Places with parsed addresses. Beyond it: all are parsed again."""
    places_rated_max: int = 4_096
    """Places with rates of their own. Beyond it: the one silent for longest is forgotten."""
    unsent_bytes_max: int = 4 * 2**20
    """Bytes of outgoing datagrams. Beyond it: a message is dropped, counted."""
    incomplete_max: int = 1_024
    """Incomplete messages of all senders. Beyond it: the oldest is dropped, counted."""
    incomplete_of_sender_max: int = 8
    """Incomplete messages of one sender. Beyond it: its oldest is dropped, counted."""
    incomplete_bytes_max: int = 16 * 2**20
    """Bytes of incomplete messages. Beyond it: the oldest message is dropped, counted."""
    incomplete_wait_us: int = 5_000_000
    """Microseconds that a message waits for its pieces. Beyond it: dropped, counted."""
    senders_max: int = 65_536
    """Senders with remembered numbers. Beyond it: new ones are refused, counted, until one is
    silent for `SENDER_SILENT_US`."""
