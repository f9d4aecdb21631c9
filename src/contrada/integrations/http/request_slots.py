"""`RequestSlots`: the requests of one kind that a gateway handles at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from math import inf
from typing import Final

from contrada.errors import RefusedRequestError

_LATER: Final = {"Retry-After": "1"}


class RequestSlots:
    """At most `per_user` of each user, so that nobody delays the others by many, and `in_all`."""

    def __init__(self, kind: str, *, per_user: float = 1, in_all: float = inf) -> None:
        """`kind` names the requests in refusals, with their limit if that can be set."""
        self._kind, self._per_user, self._in_all = kind, per_user, in_all
        self._running: Counter[str] = Counter()

    @contextmanager
    def take(self, user: str) -> Iterator[None]:
        """Holds a slot of a user. Raises RefusedRequestError, with the time to ask again."""
        running = self._running
        if running[user] >= self._per_user:
            reason = f"{self._kind}: {user!r} has {running[user]} already"
            raise RefusedRequestError(HTTPStatus.TOO_MANY_REQUESTS, reason, headers=_LATER)
        if (count := running.total()) >= self._in_all:
            reason = f"{self._kind}: there are {count} already"
            raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=_LATER)
        running[user] += 1
        try:
            yield
        finally:
            running[user] -= 1
            if not running[user]:
                del running[user]
