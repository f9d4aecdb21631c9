"""`POST /events`: publishes the CloudEvents of a request.

A malformed event refuses its whole request, with the index of the first such event. An event that
the user may not publish does not affect the others: its index is reported. The answer is 202 with
the number of published events, once the broker has them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import islice
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from contrada.errors import ContradaError, LimitError, NotPermittedError, RefusedRequestError
from contrada.integrations.http.cloudevents_http import notifications_in
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import json_answer
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification
from contrada.net.client.client_limits import ClientLimits

EVENTS_PER_TURN: Final = 128
"""Events that are decoded without a pause. Beyond it: other tasks run before the next ones."""

REFUSED_INDICES_MAX: Final = 100
"""Indices of refused events in an answer. Beyond it: further ones are left out."""

_ENVELOPE_BYTES: Final = 800
"""Upper bound of an encoded envelope and the framing around it."""

_CLIENT: Final = ClientLimits()


class RequestBodies:
    """The bodies of all running requests, bounded together."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self.held_bytes = 0
        self.decoding = asyncio.Lock()
        """Held while a body is decoded, since its notifications are many times as large."""

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yields the body of a request, which counts until the end. Raises ContradaError."""
        declared, limits = request.headers.get("content-length", "0"), self._limits
        if declared.isdigit():
            self._check_size(int(declared))
        parts: list[bytes] = []
        size = 0
        try:
            try:
                async with asyncio.timeout(limits.body_wait_s):
                    async for part in request.stream():
                        self.held_bytes += len(part)
                        size += len(part)
                        parts.append(part)
                        self._check_size(size)
                        if self.held_bytes > limits.http_bodies_bytes_max:
                            raise LimitError("http_bodies_bytes_max", limits.http_bodies_bytes_max)
            except TimeoutError:
                raise RefusedRequestError(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"the body did not come within {limits.body_wait_s:g} s",
                    headers={"Connection": "close"},
                ) from None
            except ClientDisconnect:
                reason = "the client has left"
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason) from None
            yield parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self.held_bytes -= size

    def _check_size(self, size: int) -> None:
        most = self._limits.http_body_bytes_max
        if size > most:
            raise RefusedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                str(LimitError("http_body_bytes_max", most, size)),
                headers={"Connection": "close"},
            )

    async def ingest(self, request: Request, access: TokenService) -> tuple[int, Response]:
        """Publishes the events of a request; returns their number and the answer."""
        async with self.read(request) as body:
            notifications: list[Notification] = []
            async with self.decoding:
                decoded = notifications_in(request.headers, body, self._limits)
                while some := list(islice(decoded, EVENTS_PER_TURN)):
                    notifications += some
                    if len(some) == EVENTS_PER_TURN:
                        await asyncio.sleep(0)
            published = await publish(access, notifications)
        return published, json_answer({"published": published}, HTTPStatus.ACCEPTED)


async def publish(access: TokenService, notifications: Sequence[Notification]) -> int:
    """Publishes the events of one request in order; returns their number. Raises
    RefusedRequestError with the indices of events that the user may not publish, after all others
    are published; ContradaError with `published`, the number of events published before it.
    """
    refused: list[int] = []
    done, reason = 0, ""
    async with access.publishing:
        try:
            for frame in _frames(notifications):
                try:
                    await access.service.publish_batch(frame)
                except NotPermittedError as error:
                    reason = reason or error.reason
                    refused += (done + at for at in error.refused or range(len(frame)))
                done += len(frame)
        except ContradaError as error:
            error.published = done - len(refused)
            raise
    if refused:
        raise RefusedRequestError(
            HTTPStatus.FORBIDDEN,
            reason,
            published=done - len(refused),
            refused=refused[:REFUSED_INDICES_MAX],
        )
    return done


def _frames(notifications: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
    """Splits notifications into portions that the client sends in one frame each. The broker
    refuses by frame, so a frame must hold events of one request only.
    """
    begin = size = 0
    for at, each in enumerate(notifications):
        if at - begin >= _CLIENT.publish_notifications_max or size >= _CLIENT.publish_bytes_max:
            yield notifications[begin:at]
            begin, size = at, 0
        size += len(each.span) + len(each.body) + len(each.content_type) + _ENVELOPE_BYTES
    if begin < len(notifications):
        yield notifications[begin:]
