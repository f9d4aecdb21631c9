"""`DeliveryLimits`: the bounds of the queues and tables of a `DeliveryServer`.

DeliveryServer("a", incarnation=1, limits=DeliveryLimits(waiting_max=100))
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    """Limits of a `DeliveryServer`."""

    # Publications
    waiting_max: int = 10_000
    """Publications that wait at a server. Beyond it: CannotPublishError."""
    wait_us: int = 5_000_000
    """Microseconds that a publication waits for its sequencer or its publisher's past. Beyond it:
    CannotPublishError; nothing is published."""
    publishers_max: int = 100_000
    """Publishers with a known last number. Beyond it: the one that published longest ago is
    forgotten: duplicates of its last publications count as new, and its ordered ones may overtake
    earlier ones on another route."""

    # Streams between servers
    held_max: int = 100_000
    """Unacknowledged shipments of one stream. Beyond it: CannotPublishError to publishers of
    notifications for it."""
    held_bytes_max: int = 64 * 2**20
    """Bytes of these shipments. Beyond it: the same."""
    resend_max: int = 1_000
    """Shipments of one stream that are sent again together. Beyond it: the rest follows the next
    acknowledgement."""
    early_max: int = 1_000
    """Shipments of one source that arrived out of order, and as many that wait for causal
    predecessors or room. Beyond it: dropped, counted, and sent again later. One message may exceed
    it."""

    # Servers and subscriptions
    owners_max: int = 1_024
    """Servers of a network that own durable subscriptions. Beyond it: a new one is left out,
    counted."""
    durable_subscriptions_max: int = 100_000
    """Durable subscriptions of a network. Beyond it: LimitError to subscribers here; others are
    left out, counted, and get best effort from here."""
    sequences_max: int = 10_000
    """Sequences with another sequencer than the first. Beyond it: LimitError for a hand-over by
    this server; others are not learned, counted, and the first sequencer is used."""
    consumers_max: int = 1_000
    """Consumers of a durable subscription. Beyond it: DeliveryError."""
    records_unacknowledged_max: int = 10_000
    """Unacknowledged records of one consumer. Beyond it: it gets no more."""
