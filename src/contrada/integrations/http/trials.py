"""`Trials`: what the console calculates for its users, one after another, in a thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from contrada.errors import RefusedRequestError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.request_filters import within_work

_TRIER: Final = ThreadPoolExecutor(1, "contrada-trials")

T = TypeVar("T")

_LATER: Final = {"Retry-After": "1"}


class Trials:
    """The users whose trial runs or waits, each with one: nobody delays the others by many."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._users: set[str] = set()

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
        users = self._users
        if user in users:
            reason = f"a trial of {user!r} runs already"
            raise RefusedRequestError(HTTPStatus.TOO_MANY_REQUESTS, reason, headers=_LATER)
        if len(users) >= self._limits.trials_max:
            reason = f"trials of trials_max = {self._limits.trials_max} users wait"
            raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=_LATER)

        users.add(user)
        try:
            return await within_work(work, _TRIER)
        finally:
            users.discard(user)
