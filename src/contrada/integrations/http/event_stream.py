"""`GET /subscribe`: what matches, as server-sent events.

Each event is a CloudEvent in its JSON format. On a durable subscription its `id` is the position in
the log; `Last-Event-ID` reads again from the next one. What was lost is told as an event `dropped`.

A reader that is slow has at most STREAM_CREDIT_BYTES here and a queue at the broker; then
`when_full` decides. One that takes nothing for STREAM_WAIT_S is cut.

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

from contrada.delivery.durable_log import Retention
from contrada.delivery.store_renewal import records_between
from contrada.errors import (
    ContradaError,
    DeliveryError,
    InvalidValueError,
    RefusedRequestError,
    shortened,
)
from contrada.integrations.http.event_translation import event_json
from contrada.integrations.http.gateway_counts import GatewayCounts
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import refusal_of
from contrada.integrations.http.request_filters import asked_for, checked_policy
from contrada.integrations.http.token_services import TokenService
from contrada.model.rule import Rule
from contrada.service import DurableRecord, WhenFull

STREAM_CREDIT_BYTES: Final = 64 * 1024
"""Bytes of events that a stream has here and has not written. Beyond it: the broker keeps the
rest."""

STREAM_REPLAY_MAX: Final = 10_000
"""Events of a durable subscription that were written to a stream, and are kept to be read again:
more than can be on their way. Beyond it: the oldest is gone, and told as dropped to whoever asks
for it."""

STREAM_QUIET_S: Final = 15.0
"""Seconds without an event after which a comment is written, so that nobody takes the stream for
dead. Beyond it: a comment comes."""

STREAM_WAIT_S: Final = 60.0
"""How long a stream waits for a client that takes nothing. Beyond it: the stream is cut."""

STREAM_WRITE_BYTES: Final = 32 * 1024
"""Bytes after which events that wait are written. Beyond it: the next write takes the rest."""

WHEN_FULL_DEFAULT: Final[WhenFull] = "drop-oldest"
"""Nobody waits for a browser."""

RETRY_MS: Final = 2_000
"""After so long a browser connects again; it is told so."""

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
    """The answer that goes on until one side ends it."""

    def __init__(self, events: Any, opened: AsyncExitStack, counts: GatewayCounts) -> None:
        self._events = events
        self._opened = opened
        self._counts = counts
        self._lost: dict[str, int] = {}
        self._cut: Callable[[], None] | None = None
        self.position: int | None = None
        """After which it is read again, on a durable subscription."""
        self.has_residue = False
        """Whether what its filters match and is not asked for is passed over."""
        self.ended = asyncio.Event()
        self.background = None
        self.status_code = HTTPStatus.OK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write what comes until the client is gone, the subscription ends, or somebody cuts it."""
        self._counts.streams += 1
        self._cut = scope["extensions"][CUT]
        writing = asyncio.ensure_future(self._write(send))
        try:
            # When the last of the answer was written, that is told here too.
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

    def cut(self) -> None:
        """The connection ends now, and with it the stream."""
        if self._cut is not None:
            self._cut()

    async def _write(self, send: Send) -> None:
        told: dict[str, str] = {}
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send(send, b"retry: %d\n\n" % RETRY_MS)
            try:
                async for each in self._pieces():
                    await self._send(send, each)
            except ContradaError as error:
                told = {"error": refusal_of(error).reason}
            await self._send(send, _event("end", told))
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            self._counts.dropped["too slow"] += 1
            self.cut()
        except Exception:  # noqa: BLE001 - told, and it ends this stream alone
            self.cut()
            _LOG.exception("a fault of an event stream")

    async def _send(self, send: Send, body: bytes) -> None:
        """Raises TimeoutError where the client takes nothing."""
        async with asyncio.timeout(STREAM_WAIT_S):
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The pieces that are written: waiting events, a report of lost ones, or a comment in
        silence.
        """
        events = self._events
        while True:
            try:
                async with asyncio.timeout(STREAM_QUIET_S):
                    found = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield self._dropped() or _QUIET
                continue
            pieces, size = [self._shown(found)], 0
            while events.statistics().queued and size < STREAM_WRITE_BYTES:
                pieces.append(self._shown(await anext(events)))
                size += len(pieces[-1])
            yield self._dropped() + b"".join(pieces)

    def _shown(self, found: Any) -> bytes:
        self._counts.delivered += 1
        if not isinstance(found, DurableRecord):
            return b"data: %b\n\n" % event_json(found)
        gap, position = b"", found.position
        if self.position is not None:
            gap = self._gap(records_between(self.position, position))
            self.position = None
        return b"%bid: %d\ndata: %b\n\n" % (gap, position, event_json(found.item))

    def _gap(self, count: int) -> bytes:
        """What is not kept any more of what was asked for again."""
        if count == 0:
            return b""
        reason = "not kept, at most" if self.has_residue else "not kept"
        self._counts.dropped[reason] += count
        return _event("dropped", {reason: count})

    def _dropped(self) -> bytes:
        new = self._counts.lost(self._lost, self._events.statistics().dropped)
        return _event("dropped", new) if new else b""


def _event(name: str, told: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(told))


async def open_stream(
    request: Request, access: TokenService, opened: AsyncExitStack, counts: GatewayCounts
) -> EventStream:
    """The stream that a request asks for, in force. Raises ContradaError."""
    _check_bodiless(request)
    asked = request.query_params
    if strange := sorted({*asked} - _PARAMETERS):
        known = ", ".join(sorted(_PARAMETERS))
        raise InvalidValueError(shortened(strange[0], 40), f"no parameter; there are {known}")
    if twice := [name for name in asked if len(asked.getlist(name)) > 1]:
        raise InvalidValueError(twice[0], "the parameter is there twice")
    text, durable = asked.get("filter"), asked.get("durable")
    if text is None and durable is None:
        reason = "say what to ask for: ?filter=price > 3, or everything; or ?durable=NAME"
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
    subject = None if text is None else await asked_for(text, asked.get("dialect", ""))
    if durable is None:
        when_full = checked_policy(asked.get("when_full"), WHEN_FULL_DEFAULT)
        events = access.service.subscribe(subject, when_full=when_full)
        stream = EventStream(events, opened, counts)
        await opened.enter_async_context(events)
        return stream
    after = _last_event_of(request)
    options: dict[str, Any] = {"durable": durable}
    if after is not None:
        # A connection that broke may still be thought to be there: two would share what comes.
        for other in list(access.streams.get(durable, ())):
            other.cut()
            await other.ended.wait()
        options["from_position"] = after + 1
    elif subject is not None:
        options["retention"] = Retention(replay_max=STREAM_REPLAY_MAX)
    events = access.service.subscribe(subject, **options)
    stream = EventStream(events, opened, counts)
    stream.position = after
    stream.has_residue = isinstance(subject, Rule) and subject.residue_holds is not None
    try:
        await opened.enter_async_context(events)
    except DeliveryError as error:
        if after is None:
            raise
        reason = f"Last-Event-ID: found {str(after)!r}, {error}"
        raise RefusedRequestError(HTTPStatus.CONFLICT, shortened(reason)) from None
    _register(access, durable, stream, opened)
    return stream


def _check_bodiless(request: Request) -> None:
    """A body would be read as long as the stream goes on. Raises RefusedRequestError."""
    headers = request.headers
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        reason = "found a body, expected none: what a stream is to hold stands in the address"
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, headers={"Connection": "close"})


def _register(
    access: TokenService, durable: str, stream: EventStream, opened: AsyncExitStack
) -> None:
    streams = access.streams.setdefault(durable, set())
    streams.add(stream)

    def forget() -> None:
        streams.discard(stream)
        if not streams and access.streams.get(durable) is streams:
            del access.streams[durable]

    opened.callback(forget)


def _last_event_of(request: Request) -> int | None:
    """The position after which a client goes on. Raises RefusedRequestError."""
    given = request.headers.get("last-event-id")
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > _POSITION_DIGITS_MAX:
        found = f"Last-Event-ID: found {shortened(given, 40)!r}"
        reason = f"{found}, expected a position: the id of an event"
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
    return int(given)
