"""`DeliveryClass`: the delivery guarantee of a notification, as named in its envelope.

The words are best-effort, or reliable or certified, then fifo or causal, then total:NAME, as in
`certified causal total:trades`. docs/delivery.md has the guarantee of each.

Source: EPFL 2503 §5.2.2 (delivery and transmission semantics of obvents, and their precedence).
"""

from functools import lru_cache
from typing import Final, NamedTuple

from contrada.errors import InvalidValueError

BEST_EFFORT: Final = "best-effort"
"""The default class."""

_RELIABLE: Final = ("reliable", "certified")
_CLASSES: Final = (BEST_EFFORT, *_RELIABLE)
_ORDERS: Final = ("fifo", "causal")
_TOTAL: Final = "total:"


class DeliveryClass(NamedTuple):
    """A guarantee. `sequence` is the name of the total order, or empty."""

    is_reliable: bool = False
    is_certified: bool = False
    is_fifo: bool = False
    is_causal: bool = False
    sequence: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether it guarantees an order."""
        return self.is_fifo or bool(self.sequence)


@lru_cache(maxsize=4_096)
def delivery_class(text: str) -> DeliveryClass:
    """Parses the text of a class. Raises InvalidValueError, with the expected form."""
    word, *words = text.split(" ")
    order = words.pop(0) if words and words[0] in _ORDERS else ""
    sequence = words.pop(0).removeprefix(_TOTAL) if words and words[0].startswith(_TOTAL) else ""
    is_reliable = word in _RELIABLE
    found = DeliveryClass(
        is_reliable, word == "certified", bool(order), order == "causal", sequence
    )
    if word not in _CLASSES or words or text.endswith(_TOTAL):
        expected = "expected best-effort, or reliable or certified, then fifo or causal"
        raise InvalidValueError(text, f"{expected} or nothing, then total:NAME or nothing")
    if found.is_ordered and not is_reliable:
        raise InvalidValueError(text, "an order needs reliable or certified before it")
    return found
