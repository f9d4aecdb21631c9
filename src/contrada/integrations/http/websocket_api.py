"""`Conversation`: `/ws`, subscriptions and events as JSON messages over one WebSocket.

docs/http.md lists the messages. Each request has one answer, in the order of the requests. The
answer to a malformed message is an `error`, with an empty id if the message has none; the WebSocket
stays open.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from contrada import errors
from contrada.delivery.durable_log import OUT_MAX
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http.event_ingest import decode_content, notifications_of, publish
from contrada.integrations.http.event_translation import event_of, notification_json
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import (
    SUBPROTOCOL,
    answer_of,
    error_members,
    invalid,
    refusal_of,
)
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_filters import parse_policy, parse_request_subject
from contrada.integrations.http.sent_events import end_details
from contrada.integrations.http.token_services import TokenService, wait_closed
from contrada.model import Notification
from contrada.model.codec import notification_of_decoded
from contrada.patterns.runs import Match
from contrada.service import DurableRecord

WEBSOCKET_ID_CHARACTERS_MAX: Final = 128
"""Characters of an id in a WebSocket message. Beyond it: the message is refused."""

PREFETCH_MAX: Final = OUT_MAX
"""Largest `prefetch` of a subscription. Beyond it: the request is refused."""

_GOING_AWAY: Final = 1001
_POLICY_VIOLATION: Final = 1008


class _WebSocketMessage(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    id: str = ""


class _WebSocketSubscribe(_WebSocketMessage, tag="subscribe"):
    filter: str | None = None
    dialect: str = ""
    durable: str | None = None
    when_full: str | None = None
    form: Literal["event", "notification"] = "event"
    prefetch: int | None = None


class _WebSocketUnsubscribe(_WebSocketMessage, tag="unsubscribe"):
    pass


class _WebSocketPublish(_WebSocketMessage, tag="publish"):
    events: list[Any] = []
    notifications: list[Any] = []


class _WebSocketAcknowledge(_WebSocketMessage, tag="ack"):
    position: int = 0
    positions: list[int] = []


class _WebSocketNack(_WebSocketMessage, tag="nack"):
    positions: list[int] = []
    delay_s: float | None = None


class _WebSocketExtend(_WebSocketMessage, tag="extend"):
    positions: list[int] = []


_ClientMessage = (
    _WebSocketSubscribe
    | _WebSocketUnsubscribe
    | _WebSocketPublish
    | _WebSocketAcknowledge
    | _WebSocketNack
    | _WebSocketExtend
)


class _OpenSubscription:
    """A subscription of a WebSocket, with the records that its client has not settled."""

    def __init__(self, events: Any, form: str, prefetch: int | None) -> None:
        self.events = events
        self.shown = event_of if form == "event" else _notification_of
        self._prefetch = prefetch
        self._unsettled: set[int] = set()
        self.has_room = asyncio.Event()
        """Clear while `prefetch` records are neither acknowledged nor returned."""
        self.has_room.set()

    def hold(self, position: int) -> None:
        """Counts a record before it is written."""
        if self._prefetch is None:
            return
        self._unsettled.add(position)
        if len(self._unsettled) >= self._prefetch:
            self.has_room.clear()

    def settle(self, positions: Collection[int], up_to: int | None = None) -> None:
        """Forgets records, also where the broker refuses: the next one reports why."""
        self._unsettled.difference_update(positions)
        if up_to is not None:
            self._unsettled = {each for each in self._unsettled if each > up_to}
        if self._prefetch is None or len(self._unsettled) < self._prefetch:
            self.has_room.set()

    def hold_no_more(self) -> None:
        """Lets the rest be written: the subscription ends, and its client may settle nothing."""
        self._prefetch = None
        self.has_room.set()


def _notification_of(of: Notification) -> msgspec.Raw:
    return msgspec.Raw(notification_json(of))


@dataclass(eq=False)
class Conversation:
    """One WebSocket, with its subscriptions."""

    _websocket: WebSocket
    _access: TokenService
    _counts: GatewayCounts
    _limits: GatewayLimits
    _open: dict[str, _OpenSubscription] = field(default_factory=dict)
    _tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    async def run(self) -> None:
        """Executes the client's messages until one side ends the conversation."""
        await _accept(self._websocket)
        self._counts.websockets += 1
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(wait_closed(self._access.service))
        try:
            await asyncio.wait([listening, ending], return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():  # Streams write their queued events first.
                for each in self._open.values():
                    each.hold_no_more()
                await asyncio.wait(self._tasks.values()) if self._tasks else None
                with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                    async with asyncio.timeout(self._limits.stream_wait_s):
                        await self._websocket.close(_GOING_AWAY)
        finally:
            self._counts.websockets -= 1
            await self._end([listening, ending])

    async def _end(self, tasks: list["asyncio.Task[None]"]) -> None:
        every = [*tasks, *self._tasks.values()]
        for task in every:
            task.cancel()
        found = await asyncio.gather(*every, return_exceptions=True)
        for each in list(self._open.values()):
            with suppress(errors.ContradaError):  # The service may have ended them already.
                await each.events.__aexit__(None, None, None)
        for fault in found:
            if isinstance(fault, Exception) and not isinstance(
                fault, WebSocketDisconnect | TimeoutError | errors.ContradaError
            ):
                raise fault

    async def _listen(self) -> None:
        while True:
            received = await self._websocket.receive()
            if received["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(received.get("code", _GOING_AWAY))
            text, name = received.get("text"), ""
            try:
                try:
                    given = received["bytes"] if text is None else text
                    decoded = await decode_content(partial(decode_json, given), len(given))
                    name = _id_of(decoded)
                    message: _ClientMessage = msgspec.convert(decoded, type=_ClientMessage)
                except (errors.EncodingError, UnicodeEncodeError, msgspec.ValidationError) as error:
                    raise invalid(error) from None
                answer = await self._execute(message, len(given))
            except errors.ContradaError as error:
                answer = _error_message(name, error)
            await self._send(answer)

    async def _execute(self, message: _ClientMessage, size: int) -> dict[str, Any]:
        done: dict[str, Any] = {"type": "ack", "id": message.id}
        match message:
            case _WebSocketSubscribe():
                await self._subscribe(message)
            case _WebSocketUnsubscribe():
                events = self._subscription(message.id).events
                del self._open[message.id]
                self._tasks.pop(message.id).cancel()
                await events.__aexit__(None, None, None)  # It ends only the reading.
            case _WebSocketPublish():
                done["published"] = await self._publish(message, size)
            case _WebSocketAcknowledge():
                found, given = self._durable(message.id, message.positions), message.positions
                up_to = None if given and not message.position else message.position
                found.settle(given, up_to)
                await found.events.acknowledge(*given, up_to=up_to)
                if up_to is not None:
                    done["position"] = up_to
            case _WebSocketNack():
                found = self._durable(message.id, message.positions)
                found.settle(message.positions)
                await found.events.nack(*message.positions, delay_s=message.delay_s)
            case _WebSocketExtend():
                found = self._durable(message.id, message.positions)
                await found.events.extend(*message.positions)
        return done

    async def _publish(self, message: _WebSocketPublish, size: int) -> int:
        if message.events and message.notifications:
            reason = "expected events or notifications, found both"
            raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
        decode = partial(notifications_of, message.events, self._limits)
        if message.notifications:
            decode = partial(
                notifications_of, message.notifications, self._limits, notification_of_decoded
            )
        notifications: list[Notification] = await decode_content(lambda: list(decode()), size)
        published = await publish(self._access, notifications)
        self._counts.events += published
        return published

    async def _subscribe(self, message: _WebSocketSubscribe) -> None:
        most = self._limits.websocket_subscriptions_max
        if message.id in self._open or len(self._open) >= most:
            await self._forget_ended()
        if message.id in self._open:
            raise errors.InvalidValueError(message.id, "a subscription of this id is in force")
        if len(self._open) >= most:
            raise errors.LimitError("websocket_subscriptions_max", most)
        if message.filter is None and message.durable is None:
            reason = "expected a filter, or the name of a durable subscription"
            raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
        subject = None
        if message.filter is not None:
            subject = await parse_request_subject(message.filter, message.dialect, self._limits)
        events: Any = self._access.service.subscribe(subject, **_options_of(message))
        await events.open()
        found = self._open[message.id] = _OpenSubscription(events, message.form, message.prefetch)
        writing = asyncio.create_task(self._write(message.id, found))
        writing.add_done_callback(self._cut_on_fault)
        self._tasks[message.id] = writing

    async def _forget_ended(self) -> None:
        """Forgets subscriptions whose end was written. Until then a late `unsubscribe` is no error,
        as its client may not have read the end yet.
        """
        ended = [name for name, of in self._tasks.items() if of.done() and not of.exception()]
        for name in ended:
            del self._tasks[name]
            await self._open.pop(name).events.__aexit__(None, None, None)

    def _cut_on_fault(self, writing: "asyncio.Task[None]") -> None:
        """Ends the conversation after a fault: its client would wait for events in vain."""
        if not writing.cancelled() and writing.exception() is not None:
            self._websocket.scope["extensions"][CUT]()

    def _subscription(self, name: str) -> _OpenSubscription:
        try:
            return self._open[name]
        except KeyError:
            raise errors.InvalidValueError(name, "there is no subscription of this id") from None

    def _durable(self, name: str, positions: Collection[int]) -> _OpenSubscription:
        found = self._subscription(name)
        if not hasattr(found.events, "acknowledge"):
            reason = "this subscription is not durable: it has no records"
            raise errors.InvalidValueError(name, reason)
        if len(positions) > PREFETCH_MAX:
            raise errors.LimitError("PREFETCH_MAX", PREFETCH_MAX, len(positions))
        return found

    async def _write(self, name: str, of: _OpenSubscription) -> None:
        end: dict[str, Any] = {"type": "end", "id": name}
        lost: dict[str, int] = {}
        try:
            async for found in of.events:
                event: dict[str, Any] = {"type": "event", "id": name}
                if isinstance(found, DurableRecord):
                    event |= {"position": found.position, "attempt": found.attempt}
                    of.hold(found.position)
                    found = found.item
                if isinstance(found, Match):
                    event["type"], event["events"] = "match", [*map(of.shown, found.notifications)]
                else:
                    event["event"] = of.shown(found)
                if new := self._counts.add_lost(lost, of.events.statistics().dropped):
                    await self._send({"type": "dropped", "id": name, "dropped": new})
                self._counts.delivered += 1
                await self._send(event)
                await of.has_room.wait()
        except errors.ContradaError as error:
            end |= end_details(error)
        await self._send(end)

    async def _send(self, message: dict[str, Any]) -> None:
        """Cuts a client that does not read, and raises TimeoutError."""
        try:
            async with asyncio.timeout(self._limits.stream_wait_s):
                await self._websocket.send_text(msgspec.json.encode(message).decode())
        except TimeoutError:
            self._counts.dropped["too slow"] += 1
            self._websocket.scope["extensions"][CUT]()
            raise


def _error_message(name: str, error: errors.ContradaError) -> dict[str, Any]:
    status = int(refusal_of(error).status)
    return {"type": "error", "id": name, "status": status, **error_members(error)}


def _id_of(decoded: Any) -> str:
    """Returns the id of a message, or an empty one. Raises LimitError, UnicodeEncodeError."""
    name = decoded.get("id") if isinstance(decoded, dict) else None
    if not isinstance(name, str):
        return ""
    most = WEBSOCKET_ID_CHARACTERS_MAX
    if len(name) > most:
        raise errors.LimitError("WEBSOCKET_ID_CHARACTERS_MAX", most, len(name))
    name.encode()
    return name


def _options_of(message: _WebSocketSubscribe) -> dict[str, Any]:
    """Returns the options of the service. Raises InvalidValueError."""
    prefetch = message.prefetch
    if message.durable is None:
        if prefetch is not None:
            reason = "prefetch: expected a durable subscription, since others have no records"
            raise errors.InvalidValueError(prefetch, reason)
        return {"when_full": parse_policy(message.when_full)}
    if message.when_full is not None:
        reason = "when_full: expected a subscription that is not durable, since that loses nothing"
        raise errors.InvalidValueError(message.when_full, reason)
    options: dict[str, Any] = {"durable": message.durable, "auto_acknowledge": False}
    if prefetch is not None:
        if not 1 <= prefetch <= PREFETCH_MAX:
            raise errors.InvalidValueError(prefetch, f"prefetch: expected 1 to {PREFETCH_MAX}")
        options["prefetch"] = prefetch
    return options


async def refuse(websocket: WebSocket, error: errors.ContradaError) -> None:
    """Refuses a WebSocket with the reason.

    A browser hides the answer to a refused handshake from its page, which could not tell a wrong
    token from a broker that is away. A client with SUBPROTOCOL gets an `error` message instead.
    """
    if SUBPROTOCOL not in websocket.scope["subprotocols"]:
        await websocket.send_denial_response(answer_of(error))
        return
    with suppress(RuntimeError, WebSocketDisconnect):  # The client may have left.
        await _accept(websocket)
        await websocket.send_text(msgspec.json.encode(_error_message("", error)).decode())
        await websocket.close(_POLICY_VIOLATION)


async def _accept(websocket: WebSocket) -> None:
    offered = websocket.scope["subprotocols"]
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
