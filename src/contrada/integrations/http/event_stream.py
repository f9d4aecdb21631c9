"""`EventStream`: `GET /subscribe`, a subscription as server-sent events.

Each event is a CloudEvent in the JSON format. On a durable subscription its `id` is the position in
the log, and `Last-Event-ID` resumes after that position. Losses are reported as an event `dropped`.

A slow reader has at most STREAM_CREDIT_BYTES here and a queue at the broker; then `when_full`
decides. A client that does not read for `stream_wait_s` is cut.

The format is that of the HTML Living Standard, §9.2 (server-sent events).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contrada import errors
from contrada.delivery.retention import Retention
from contrada.delivery.store_renewal import records_between
from contrada.integrations.http.event_translation import event_json
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import refusal_of
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_filters import parse_policy, parse_request_filter
from contrada.integrations.http.token_services import TokenService
from contrada.model.rule import Rule
from contrada.service import DurableRecord

_POSITION_DIGITS_MAX: Final = 18
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_PARAMETERS: Final = frozenset(("filter", "dialect", "durable", "when_full", "access_token"))
_QUIET: Final = b": quiet\n\n"
_LOG: Final = logging.getLogger(__name__)


class EventStream(Response):
    """The answer that writes events until one side ends it."""

    def __init__(
        self, events: Any, opened: AsyncExitStack, counts: GatewayCounts, limits: GatewayLimits
    ) -> None:
        """`opened` holds the resources that the stream closes at its end."""
        self._events = events
        self._opened = opened
        self._counts = counts
        self._limits = limits
        self._lost: dict[str, int] = {}
        self.cut: Callable[[], object] = lambda: None
        """Ends the connection now, and with it the stream."""
        self.durable: str | None = None
        """The name of a durable subscription."""
        self.position: int | None = None
        """The position after which a durable subscription resumes."""
        self.has_residue = False
        """Whether the rule rejects some notifications that its filters match."""
        self.ended = asyncio.Event()
        self.background = None
        self.status_code = HTTPStatus.OK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes events until the client leaves, the subscription ends, or `cut` is called."""
        self._counts.streams += 1
        self.cut = scope["extensions"][CUT]
        writing = asyncio.ensure_future(self._write(send))
        try:
            # The end of the answer is received as a disconnect, too.
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            self._counts.streams -= 1
            writing.cancel()
            try:
                await asyncio.wait([writing])
            finally:
                await self._opened.aclose()
                self.ended.set()

    async def _write(self, send: Send) -> None:
        details: dict[str, str] = {}
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send(send, b"retry: %d\n\n" % self._limits.stream_retry_ms)
            try:
                async for each in self._pieces():
                    await self._send(send, each)
            except errors.ContradaError as error:
                details = {"error": refusal_of(error).reason}
            await self._send(send, _event("end", details))
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

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yields the writes: queued events, a report of lost ones, or a comment in silence."""
        events = self._events
        while True:
            try:
                async with asyncio.timeout(self._limits.stream_quiet_s):
                    found = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield self._report_losses() or _QUIET
                continue
            pieces, size = [self._encode(found)], 0
            while events.statistics().queued and size < self._limits.stream_write_bytes:
                pieces.append(self._encode(await anext(events)))
                size += len(pieces[-1])
            yield self._report_losses() + b"".join(pieces)

    def _encode(self, found: Any) -> bytes:
        self._counts.delivered += 1
        if not isinstance(found, DurableRecord):
            return b"data: %b\n\n" % event_json(found)
        gap, position = b"", found.position
        if self.position is not None and (count := records_between(self.position, position)):
            # Records after `Last-Event-ID` were deleted.
            reason = "not kept, at most" if self.has_residue else "not kept"
            self._counts.dropped[reason] += count
            gap = _event("dropped", {reason: count})
        self.position = None
        return b"%bid: %d\ndata: %b\n\n" % (gap, position, event_json(found.item))

    def _report_losses(self) -> bytes:
        new = self._counts.add_lost(self._lost, self._events.statistics().dropped)
        return _event("dropped", new) if new else b""


def _event(name: str, details: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(details))


async def open_stream(
    request: Request,
    access: TokenService,
    opened: AsyncExitStack,
    counts: GatewayCounts,
    limits: GatewayLimits,
) -> EventStream:
    """Subscribes for a request; returns the stream, in force. Raises ContradaError."""
    headers, query = request.headers, request.query_params
    # A body would be read as long as the stream.
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        reason = "found a body, expected none: the parameters of a stream are in the address"
        close = {"Connection": "close"}
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, headers=close)
    if strange := sorted({*query} - _PARAMETERS):
        reason = f"no parameter; there are {', '.join(sorted(_PARAMETERS))}"
        raise errors.InvalidValueError(errors.shortened(strange[0], 40), reason)
    if twice := [name for name in query if len(query.getlist(name)) > 1]:
        raise errors.InvalidValueError(twice[0], "the parameter is there twice")
    text, durable = query.get("filter"), query.get("durable")
    if text is None and durable is None:
        reason = "expected ?filter=price > 3, ?filter=everything, or ?durable=NAME"
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
    subject = None
    if text is not None:
        subject = await parse_request_filter(text, query.get("dialect", ""), limits)
    options: dict[str, Any] = {"durable": durable}
    after = None
    if durable is None:
        options = {"when_full": parse_policy(query.get("when_full"))}
    elif (after := _last_event_of(request)) is not None:
        # A broken connection may still look alive here, and two streams would share the events.
        for other in list(access.streams):
            if other.durable == durable:
                other.cut()
                await other.ended.wait()
        options["from_position"] = after + 1
    elif subject is not None:
        options["retention"] = Retention(replay_max=limits.stream_replay_max)
    events = access.service.subscribe(subject, **options)
    stream = EventStream(events, opened, counts, limits)
    stream.durable, stream.position = durable, after
    stream.has_residue = isinstance(subject, Rule) and subject.residue_holds is not None
    try:
        await opened.enter_async_context(events)
    except errors.DeliveryError as error:
        if after is None:
            raise
        reason = f"Last-Event-ID: found {str(after)!r}, {error}"
        raise errors.RefusedRequestError(HTTPStatus.CONFLICT, errors.shortened(reason)) from None
    access.streams.add(stream)
    opened.callback(access.streams.discard, stream)
    return stream


def _last_event_of(request: Request) -> int | None:
    """Returns the position after which a client resumes. Raises RefusedRequestError."""
    given = request.headers.get("last-event-id")
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > _POSITION_DIGITS_MAX:
        found = f"Last-Event-ID: found {errors.shortened(given, 40)!r}"
        reason = f"{found}, expected a position: the id of an event"
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
    return int(given)
