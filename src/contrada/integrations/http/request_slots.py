"""`RequestSlots`: the requests of one kind that a gateway handles at a time; `Trials`."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from math import inf
from typing import Final, TypeVar

import msgspec

from contrada.errors import RefusedRequestError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.request_filters import within_work

_LATER: Final = {"Retry-After": "1"}
_TRIER: Final = ThreadPoolExecutor(1, "contrada-trials")

T = TypeVar("T")


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


class Trials:
    """What the console calculates for its users, one after another; one trial of each user."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._slots = RequestSlots("trials (trials_max)", in_all=limits.trials_max)

    def decode(self, body: bytes, kind: type[T]) -> T:
        """Returns the object of a body. Raises RefusedRequestError."""
        most = self._limits.trial_bytes_max
        if len(body) > most:
            reason = f"{len(body)} bytes, more than trial_bytes_max = {most}"
            raise RefusedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise invalid(error) from None

    async def run(self, work: Callable[[], T], user: str) -> T:
        """Returns the result of work in a thread. Raises RefusedRequestError, LimitError."""
        with self._slots.take(user):
            return await within_work(work, _TRIER)
