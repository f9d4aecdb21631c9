"""`LeaseTerm`: what one process knows of the lease of its store, by its own clock.

The leader counts renewals. A standby may claim a lease whose count it has seen unchanged for the
time of the lease. So clocks are never compared; only their rates have to agree, to `DRIFT`.

Invariant: a leader that reads only within its term has ended before a standby claims its lease. No
write depends on a clock: the store refuses those of a process that another one has replaced.
"""

from math import inf
from typing import Final

RELEASED: Final = -1
"""The count of a leader that has ended in order."""

RENEWALS: Final = 4
"""Attempts to renew a lease within its time. Beyond it: the broker ends its connections."""

DRIFT: Final = 0.9
"""Share of the time of a lease after which its leader stops: clocks may run at other rates."""

LOOK_S: Final = 0.2
"""Seconds between two looks of a standby at the lease. Beyond it: it takes over that much later."""


class LeaseTerm:
    """The term of one process as leader, or its wait for one. `now_s` never goes back."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: see `BrokerLimits.lease_s`."""
        self.seconds = seconds
        self._seen: tuple[str, int] | None = None
        self._seen_s = 0.0
        self._until_s = -inf

    def may_claim(self, found: tuple[str, int], now_s: float) -> bool:
        """Whether a standby may claim the lease that it found: a holder and a count of renewals."""
        if found != self._seen:
            self._seen, self._seen_s = found, now_s
        return found[1] == RELEASED or now_s - self._seen_s >= self.seconds

    def renew(self, asked_s: float) -> None:
        """Begins the term anew from the moment at which the renewal was asked for."""
        self._until_s = asked_s + DRIFT * self.seconds

    def end(self) -> None:
        """Ends the term: another process leads."""
        self._until_s = -inf

    def rest_s(self, now_s: float) -> float:
        """Returns the seconds that are left; none are after the end."""
        return max(0.0, self._until_s - now_s)
