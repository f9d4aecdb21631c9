"""`CollectionLimits`: the memory of a collection and its consumers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionLimits:
    """Limits of a `Collection`."""

    recent_max: int = 10_000
    """Identities of notifications that a consumer of a set remembers. Beyond it: the oldest are
    forgotten, and their duplicates are delivered."""

    stack_max: int = 1_000
    """Elements among which a consumer with `last_first` takes the newest. Beyond it: later ones
    wait in the queue."""

    arrivals_max: int = 1_000
    """Elements with a known arrival. Beyond it: the arrival of the oldest is forgotten."""
