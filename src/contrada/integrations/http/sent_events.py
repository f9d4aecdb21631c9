"""`SentEvents`: an answer of server-sent events, which is written until one side ends it.

The format is that of the HTML Living Standard, §9.2 (server-sent events).
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contrada.errors import ContradaError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import refusal_of
from contrada.integrations.http.metrics import GatewayCounts

QUIET: Final = b": quiet\n\n"
"""A comment, which keeps a connection that proxies would cut."""

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_LOG: Final = logging.getLogger(__name__)


class SentEvents(Response):
    """The answer that writes events until one side ends it; a subclass yields them."""

    def __init__(
        self, opened: AsyncExitStack, counts: GatewayCounts, limits: GatewayLimits
    ) -> None:
        """`opened` holds the resources that the stream closes at its end."""
        self._opened = opened
        self._counts = counts
        self._limits = limits
        self.cut: Callable[[], object] = lambda: None
        """Ends the connection now, and with it the stream."""
        self.ended = asyncio.Event()
        self.status_code = HTTPStatus.OK

    @abstractmethod
    def _pieces(self) -> AsyncIterator[bytes]:
        """Yields the writes. A ContradaError ends the stream with its reason."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes events until the client leaves, the subscription ends, or `cut` is called."""
        self._counts.streams += 1
        self.cut = scope["extensions"][CUT]
        writing = asyncio.ensure_future(self._write(send))
        try:
            async with self._opened:
                try:
                    # The end of the answer is received as a disconnect, too.
                    while (await receive())["type"] != "http.disconnect":
                        pass
                finally:
                    writing.cancel()
                    await asyncio.wait([writing])
        finally:
            self._counts.streams -= 1
            self.ended.set()

    async def _write(self, send: Send) -> None:
        details: dict[str, Any] = {}
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send(send, b"retry: %d\n\n" % self._limits.stream_retry_ms)
            try:
                async for each in self._pieces():
                    await self._send(send, each)
            except ContradaError as error:
                details = end_details(error)
            await self._send(send, sent_event("end", details))
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            self._counts.dropped["too slow"] += 1
            self.cut()
        except Exception:  # noqa: BLE001 - logged, and it ends this stream alone
            self.cut()
            _LOG.exception("a fault of an event stream")

    async def _send(self, send: Send, body: bytes) -> None:
        """Raises TimeoutError for a client that does not read."""
        async with asyncio.timeout(self._limits.stream_wait_s):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def end_details(error: ContradaError) -> dict[str, Any]:
    """Returns why a stream ended, and the status that a new request would get."""
    refusal = refusal_of(error)
    return {"error": refusal.reason, "status": int(refusal.status)}


def sent_event(name: str, details: Mapping[str, Any]) -> bytes:
    """Returns an event with JSON."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(details))
