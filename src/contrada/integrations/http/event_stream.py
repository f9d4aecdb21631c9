"""`EventStream`: `GET /subscribe`, a subscription as server-sent events.

Each event is a CloudEvent in the JSON format, or with `form=notification` a line that
`Notification.from_json` reads; a match of a pattern is a list of them. On a durable subscription
its `id` is the position in the log, and `Last-Event-ID` resumes after that position. Losses are
reported as an event `dropped`.

A slow reader has at most STREAM_CREDIT_BYTES here and a queue at the broker; then `when_full`
decides. A client that does not read for `stream_wait_s` is cut.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request

from contrada import errors
from contrada.delivery.retention import Retention
from contrada.delivery.store import records_between
from contrada.integrations.http.event_translation import event_json, notification_json
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import parameters_of
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_filters import parse_policy, parse_request_subject
from contrada.integrations.http.sent_events import QUIET, SentEvents, sent_event
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification
from contrada.model.rule import Rule
from contrada.patterns.runs import Match
from contrada.service import DurableRecord
from contrada.service.queued_subscription import QueuedSubscription

_POSITION_DIGITS_MAX: Final = 18
_PARAMETERS: Final = ("filter", "dialect", "durable", "when_full", "form", "acknowledge")
_FORMS: Final[dict[str, Callable[[Notification], bytes]]] = {
    "event": event_json,
    "notification": notification_json,
}
_ACKNOWLEDGE: Final = ("auto", "manual")


class EventStream(SentEvents):
    """The answer that writes the events of a subscription."""

    def __init__(
        self, events: Any, opened: AsyncExitStack, counts: GatewayCounts, limits: GatewayLimits
    ) -> None:
        super().__init__(opened, counts, limits)
        self.events = events
        self._lost: dict[str, int] = {}
        self.write_item: Callable[[Notification], bytes] = event_json
        """Encodes a notification."""
        self.durable: str | None = None
        """The name of a durable subscription."""
        self.position: int | None = None
        """The position after which a durable subscription resumes."""
        self.has_residue = False
        """Whether the rule rejects some notifications that its filters match."""
        self.is_manual = False
        """Whether the client acknowledges the records."""

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Queued events, a report of lost ones, or a comment in silence."""
        events = self.events
        while True:
            try:
                async with asyncio.timeout(self._limits.stream_quiet_s):
                    found = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield self._report_losses() or QUIET
                continue
            pieces, size = [self._encode(found)], 0
            most = self._limits.stream_write_bytes
            if isinstance(events, QueuedSubscription):
                # Three times as fast as one by one.
                pieces += map(self._encode, events.take_queued(most // len(pieces[0])))
            else:
                # A residue may reject all that is queued: the next one could be long in coming.
                left = 0 if self.has_residue else events.statistics().queued
                while left and size < most:
                    pieces.append(self._encode(await anext(events)))
                    size += len(pieces[-1])
                    left -= 1
            yield self._report_losses() + b"".join(pieces)

    def _encode(self, found: Any) -> bytes:
        self._counts.delivered += 1
        if isinstance(found, Match):
            return b"data: [%b]\n\n" % b",".join(map(self.write_item, found.notifications))
        if not isinstance(found, DurableRecord):
            return b"data: %b\n\n" % self.write_item(found)
        gap, position = b"", found.position
        if self.position is not None and (count := records_between(self.position, position)):
            # Records after `Last-Event-ID` were deleted.
            reason = "not kept, at most" if self.has_residue else "not kept"
            self._counts.dropped[reason] += count
            gap = sent_event("dropped", {reason: count})
        self.position = None
        return b"%bid: %d\ndata: %b\n\n" % (gap, position, self.write_item(found.item))

    def _report_losses(self) -> bytes:
        new = self._counts.add_lost(self._lost, self.events.statistics().dropped)
        return sent_event("dropped", new) if new else b""


async def open_stream(
    request: Request,
    access: TokenService,
    opened: AsyncExitStack,
    counts: GatewayCounts,
    limits: GatewayLimits,
) -> EventStream:
    """Subscribes for a request; returns the stream, in force. Raises ContradaError."""
    headers = request.headers
    # A body would be read as long as the stream.
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        reason = "found a body, expected none: the parameters of a stream are in the address"
        close = {"Connection": "close"}
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, headers=close)
    query = parameters_of(request, _PARAMETERS)
    text, durable = query.get("filter"), query.get("durable")
    if text is None and durable is None:
        reason = "expected ?filter=price > 3, ?filter=everything, or ?durable=NAME"
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
    subject = None
    if text is not None:
        subject = await parse_request_subject(text, query.get("dialect", ""), limits)
    form = _choice_of(query, "form", tuple(_FORMS))
    is_manual = _choice_of(query, "acknowledge", _ACKNOWLEDGE) == "manual"
    options: dict[str, Any] = {"durable": durable, "auto_acknowledge": not is_manual}
    after = None
    if durable is None:
        if is_manual:
            reason = "expected ?durable=NAME: other subscriptions have no records"
            raise errors.InvalidValueError("acknowledge", reason)
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
    stream.write_item, stream.is_manual = _FORMS[form], is_manual
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


def _choice_of(query: Mapping[str, str], name: str, known: Collection[str]) -> str:
    """Returns a parameter, by default the first known value. Raises InvalidValueError."""
    found = query.get(name, next(iter(known)))
    if found not in known:
        raise errors.InvalidValueError(found, f"{name}: expected one of {', '.join(known)}")
    return found


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
