"""Turns: how long one connection may occupy a server's loop with its requests.

A request that takes no longer than a turn is free; other connections have their turns in between.
Longer requests count against the connection, as water in a leaky bucket: it may use some time at
once, then it rests until its share of the time has made up for that. No request is refused for it.
Of publications only the turns are counted: their cost is mostly caused by the subscriptions of
others.
"""

from typing import Final

TURN_S: Final = 0.02
"""Seconds that one connection works in a row. Beyond it: the others get a turn."""

SHARE: Final = 0.25
"""Of the time, what one connection may use for what takes longer than a turn."""

REQUEST_WORK_MAX: Final = 100_000
"""Steps to read a request, or one of its filters, and to carry it out, of about a microsecond each
(see `model.languages.work_budget`). Beyond it: it is refused, the connection stays."""

AT_ONCE_S: Final = 0.25
"""Seconds of its share that a connection may use at once. Beyond it: it rests."""

REST_S_MAX: Final = 5.0
"""Seconds that a connection rests at a time. Beyond it: it goes on, and rests again later."""


class FairScheduler:
    """The turns of one connection. The time is the loop's, in seconds."""

    def __init__(self, now_s: float) -> None:
        self._began_s = self._seen_s = now_s
        self._over_s = 0.0

    def begin(self, now_s: float) -> None:
        """A turn begins."""
        self._began_s = now_s

    def rest_s(self, now_s: float) -> float | None:
        """How long to rest when the turn ends now; None where it may go on."""
        took_s = now_s - self._began_s
        if took_s < TURN_S:
            return None
        self._over_s -= min((now_s - self._seen_s) * SHARE, self._over_s)
        self._over_s += took_s - TURN_S
        self._began_s = self._seen_s = now_s
        return min(max(self._over_s - AT_ONCE_S, 0.0) / SHARE, REST_S_MAX)
