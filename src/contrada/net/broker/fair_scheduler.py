"""`FairScheduler`: the share of a connection in the time of a server's event loop.

A request shorter than a turn is free; other connections have their turns in between. The time of
longer requests fills a leaky bucket: when it is full, the connection rests until its share of the
time has drained it. No request is refused. Of publications only the turns count, since their cost
is mostly caused by the subscriptions of others.
"""

from typing import Final

from contrada.model.languages.work_budget import Work

TURN_S: Final = 0.02
"""Seconds that one connection works in a row. Beyond it: other connections get a turn."""

SHARE: Final = 0.25
"""Share of the time that a connection may use beyond its turns."""

REQUEST_WORK_MAX: Final = 100_000
"""Steps of about a microsecond to decode and carry out a request, or one of its filters (see
`model.languages.work_budget`). Beyond it: the request is refused."""

AT_ONCE_S: Final = 0.25
"""Seconds of its share that a connection may use at once. Beyond it: it rests."""

REST_S_MAX: Final = 5.0
"""Seconds of one rest. Beyond it: the connection goes on, and rests again later."""


def request_work(*, is_strict: bool = False) -> Work:
    """Returns the budget of a request, or of a part of it."""
    return Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX, is_strict=is_strict)


class FairScheduler:
    """The turns of one connection, in seconds of the loop's clock."""

    def __init__(self, now_s: float) -> None:
        self._seen_s = now_s
        self._over_s = 0.0

    def rest_s(self, began_s: float, now_s: float) -> float | None:
        """Returns the seconds of rest when a turn ends now; None where it may continue."""
        took_s = now_s - began_s
        if took_s < TURN_S:
            return None
        self._over_s -= min((now_s - self._seen_s) * SHARE, self._over_s)
        self._over_s += took_s - TURN_S
        self._seen_s = now_s
        return min(max(self._over_s - AT_ONCE_S, 0.0) / SHARE, REST_S_MAX)
