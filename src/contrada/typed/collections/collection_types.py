"""The collection classes: with duplicates or without, each with its promises.

                         WeakBag                    WeakSet          (each *Set* is the *Bag* of its
                            |                                         name without duplicates)
                        StrongBag
          __________________|__________________
         |                  |                  |
      FIFOBag           SortedBag        PersistentBag
         |
     CausalBag

A collection that promises less than its type is allowed, and gets the weaker delivery. To combine
two promises derive from both: `class Registrations(PersistentSet[T], CausalSet[T])`.

Source: EPFL 2503 §4.4, figure 4.7.
"""

from typing import ClassVar, TypeVar

from contrada.service import DurableOptions, Interest
from contrada.typed.collections.collection import Collection
from contrada.typed.collections.collection_handles import durable_subscription
from contrada.typed.collections.collection_space import Arrival, ElementRule, Quality
from contrada.typed.collections.element_reader import Readable

T = TypeVar("T")


class WeakBag(Collection[T]):
    """Best effort: an element may be lost, or be delivered twice when a broker restarts."""

    def subscribed(self, rule: ElementRule[T], options: DurableOptions) -> Readable[T]:
        """An ordinary subscription; for stronger guarantees a durable one, in memory."""
        if Quality.RELIABLE in self.promises:
            return durable_subscription(self.service, rule, {**options, "reliable": True})
        subject: Interest[tuple[Arrival[T], ...]] = rule
        return self.service.subscribe(subject)


class WeakSet(WeakBag[T]):
    """Best effort, and at most once to each consumer, within `recent_max` notifications."""

    is_set: ClassVar[bool] = True


class StrongBag(WeakBag[T], promises=["reliable"]):
    """Each consumer that stays gets all elements, at least once."""


class StrongSet(StrongBag[T], WeakSet[T]):
    """Each consumer that stays gets all elements, once."""


class FIFOBag(StrongBag[T], promises=["fifo"]):
    """Elements of one publisher are delivered in the order in which it added them."""


class FIFOSet(FIFOBag[T], StrongSet[T]):
    """The same, once."""


class CausalBag(FIFOBag[T], promises=["causal"]):
    """An element is delivered after all elements that its publisher had received."""


class CausalSet(CausalBag[T], FIFOSet[T]):
    """The same, once."""


class SortedBag(StrongBag[T], promises=["total"]):
    """All consumers get elements in one order."""


class SortedSet(SortedBag[T], StrongSet[T]):
    """The same, once."""


class PersistentBag(StrongBag[T], promises=["certified"]):
    """It outlives its process, and each named consumer continues at its position."""


class PersistentSet(PersistentBag[T], StrongSet[T]):
    """The same, once; those in process when the consumer crashed are delivered again."""
