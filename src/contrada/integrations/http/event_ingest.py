"""`POST /events`: CloudEvents of one request, published.

What is malformed refuses its whole request, with the index of the first such event. What may not be
published is told by index, and costs the others nothing. The answer is 202 with how many were
published, when the broker has them.
"""

import asyncio
from http import HTTPStatus
from itertools import islice
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from contrada.errors import LimitError, RefusedRequestError
from contrada.integrations.http.cloudevents_http import notifications_in
from contrada.integrations.http.http_responses import json_answer
from contrada.integrations.http.request_publisher import publish
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification

HTTP_BODY_BYTES_MAX: Final = 4 * 2**20
"""Bytes of the body of a request. Beyond it: 413, and nothing of it is published."""

HTTP_BODIES_BYTES_MAX: Final = 64 * 2**20
"""Bytes of the bodies of all requests that are being read or published. Beyond it: 503, until there
is room."""

BODY_WAIT_S: Final = 30.0
"""How long the body of a request may take to come. Beyond it: 408, and it is closed."""

EVENTS_PER_TURN: Final = 128
"""Events of a request that are made notifications in one go. Beyond it: others have a turn."""


class Bodies:
    """What the bodies of requests hold."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.reading = asyncio.Lock()
        """Held while a body is decoded: what it becomes is many times as large."""

    async def read(self, request: Request) -> bytes:
        """The body of a request; give it back with `release`. Raises RefusedRequestError."""
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > HTTP_BODY_BYTES_MAX:
            raise _too_large(int(declared))
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                async for part in request.stream():
                    self.held_bytes += len(part)
                    size += len(part)
                    parts.append(part)
                    if size > HTTP_BODY_BYTES_MAX:
                        raise _too_large(size)
                    if self.held_bytes > HTTP_BODIES_BYTES_MAX:
                        raise LimitError("HTTP_BODIES_BYTES_MAX", HTTP_BODIES_BYTES_MAX)
        except BaseException as error:
            self.held_bytes -= size
            if isinstance(error, TimeoutError):
                reason = f"the body did not come within {BODY_WAIT_S:g} s"
                closing = {"Connection": "close"}
                raise RefusedRequestError(
                    HTTPStatus.REQUEST_TIMEOUT, reason, headers=closing
                ) from None
            if isinstance(error, ClientDisconnect):
                reason = "the client has left"
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason) from None
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release(self, body: bytes) -> None:
        """A body is done with."""
        self.held_bytes -= len(body)


def _too_large(size: int) -> RefusedRequestError:
    limit = LimitError("HTTP_BODY_BYTES_MAX", HTTP_BODY_BYTES_MAX, size)
    return RefusedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(limit), headers={"Connection": "close"}
    )


async def ingest(request: Request, access: TokenService, bodies: Bodies) -> tuple[int, Response]:
    """Publishes the events of a request; how many, and the answer. Raises ContradaError."""
    body = await bodies.read(request)
    try:
        made: list[Notification] = []
        async with bodies.reading:
            events = notifications_in(request.headers, body)
            while some := list(islice(events, EVENTS_PER_TURN)):
                made += some
                if len(some) == EVENTS_PER_TURN:
                    await asyncio.sleep(0)
        published = await publish(access, made)
    finally:
        bodies.release(body)
    return published, json_answer({"published": published}, HTTPStatus.ACCEPTED)
