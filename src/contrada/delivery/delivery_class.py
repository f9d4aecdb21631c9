"""`DeliveryClass`: what is promised of a notification, as its envelope says it.

    best-effort                 it comes, or it does not; once at most
    reliable                    it comes to every subscription that asked for that, once
    certified                   so it does although servers crash, if they come back with their disk
    reliable fifo               and in the order in which its publisher published
    reliable causal             and after all that its publisher knew of; FIFO is part of it
    certified causal total:NAME and all subscriptions get what is in the sequence NAME in one order

The words stand in this order; orders need `reliable` or `certified`. What is reliable comes however
late, so a time to live counts for best effort only; what has an order, or goes through a log, which
has one, keeps it, so a priority counts for best effort only.

Source: EPFL 2503 §5.2.2 (delivery and transmission semantics of obvents, and which of them wins).
"""

from functools import lru_cache
from typing import Final, NamedTuple

from contrada.errors import InvalidValueError

BEST_EFFORT: Final = "best-effort"
"""What is promised where nothing else is said."""

_CLASSES: Final = (BEST_EFFORT, "reliable", "certified")
_ORDERS: Final = ("fifo", "causal")
_TOTAL: Final = "total:"


class DeliveryClass(NamedTuple):
    """What is promised. `sequence` is the name of the total order, or empty."""

    is_reliable: bool = False
    is_certified: bool = False
    is_fifo: bool = False
    is_causal: bool = False
    sequence: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether it has an order."""
        return self.is_fifo or bool(self.sequence)


@lru_cache(maxsize=4_096)
def delivery_class(text: str) -> DeliveryClass:
    """What a text promises. Raises InvalidValueError, which says what may stand there."""
    promise, *words = text.split(" ")
    order = words.pop(0) if words and words[0] in _ORDERS else ""
    sequence = words.pop(0).removeprefix(_TOTAL) if words and words[0].startswith(_TOTAL) else ""
    is_reliable = promise in _CLASSES and promise != BEST_EFFORT
    found = DeliveryClass(
        is_reliable, promise == "certified", bool(order), order == "causal", sequence
    )
    if promise not in _CLASSES or words or text.endswith(_TOTAL):
        expected = "expected best-effort, or reliable or certified, then fifo or causal"
        raise InvalidValueError(text, f"{expected} or nothing, then total:NAME or nothing")
    if found.is_ordered and not is_reliable:
        raise InvalidValueError(text, "an order needs reliable or certified before it")
    return found
