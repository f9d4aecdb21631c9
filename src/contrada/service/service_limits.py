"""`ServiceLimits`: the bounds of a service's queues, readers and queries that a user can set.

`CoreLimits` adds those of the layers below, for every process that routes notifications.
"""

from dataclasses import dataclass, field

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.patterns.runs import PatternLimits
from contrada.routing.router_limits import RouterLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """Limits of a service, and of the dispatcher of a broker."""

    # Subscriptions
    deliveries_per_turn: int = 4_096
    """Pairs of a notification and a subscription that are queued in one go, of a broker's clients
    and neighbours. Beyond it: other tasks get a turn. A pair costs one to three microseconds."""
    subscriptions_max: int = 1_000_000
    """Subscriptions of a dispatcher. Beyond it: LimitError."""
    queue_notifications_max: int = 10_000
    """Entries of a subscription's queue. Beyond it: its `when_full` decides."""
    queue_bytes_max: int = 64 * 2**20
    """Bytes of a subscription's queue. Beyond it: its `when_full` decides."""

    # Readers of durable subscriptions
    prefetch_max: int = 256
    """Records that a reader holds before they are read. Beyond it: they stay in the log."""
    unreadable_max: int = 1_000
    """Unreadable records of a reader that precede no readable one. Beyond it: the earliest is
    acknowledged."""

    # Queries
    query_window: int = 512
    """Answers to a query that are not read. Beyond it: the sources wait."""
    collated_max: int = 100_000
    """Answers held to sort them, or to find duplicates. Beyond it: LimitError."""
    sources_max: int = 1_000
    """Sources of a service. Beyond it: LimitError."""
    descriptions_max: int = 1_000
    """Descriptions of one source. Beyond it: LimitError."""
    queries_answered_max: int = 1_000
    """Queries that the sources of a service answer at the same time. Beyond it: reported as failed.
    """
    source_threads_max: int = 16
    """Threads on which the sources of a service are iterated. Beyond it: sources wait."""

    # Stories
    transitions_max: int = 0
    """Events that a service or a broker remembers for stories. Beyond it: the oldest are
    overwritten. 0, the default, remembers none: each publication costs some 10% more time."""
    transition_bytes_max: int = 16 * 2**20
    """Bytes of these events. Beyond it: the oldest are overwritten."""

    # Services without `await`
    thread_wait_s: float = 10.0
    """Seconds that closing waits for the tasks of the event loop, and then for its thread. Beyond
    it: ServiceError; they are left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLimits:
    """Limits of an embedded service, by section."""

    service: ServiceLimits = field(default_factory=ServiceLimits)
    router: RouterLimits = field(default_factory=RouterLimits)
    delivery: DeliveryLimits = field(default_factory=DeliveryLimits)
    patterns: PatternLimits | None = None
    """Limits of patterns; None: the defaults, which are lower at a broker."""
