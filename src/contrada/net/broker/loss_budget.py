"""`LossBudget`: the deliveries that the full queues of one user may drop.

A dropped delivery costs a broker some microseconds for nobody. With thousands of subscriptions that
a user does not read, each publication would cost milliseconds; so who lets a broker drop too many
loses the full ones.
"""

from collections.abc import Callable
from typing import Final

LOSS_BURST_S: Final = 10.0
"""Seconds of `losses_per_s_max` that may be dropped at once. Beyond it: subscriptions are ended."""


class LossBudget:
    """A leaky bucket of dropped deliveries."""

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        """`per_s`: see `BrokerLimits.losses_per_s_max`."""
        self._per_s, self._clock = per_s, clock
        self._held, self._at_s = 0.0, clock()

    def charge(self) -> bool:
        """Charges a delivery that a full queue drops. Returns whether it was one too many."""
        now_s = self._clock()
        self._held = max(0.0, self._held - (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._held >= LOSS_BURST_S * self._per_s:
            return True
        self._held += 1
        return False
