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
from contrada.integrations.http.request_slots import RequestSlots

_TRIER: Final = ThreadPoolExecutor(1, "contrada-trials")

T = TypeVar("T")


class Trials:
    """The trials that run or wait, one of each user."""

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
