"""`Conversation`: `/ws`, subscriptions and events as JSON messages over one WebSocket.

docs/http.md lists the messages. The answer to a malformed message is an `error`, with an empty id
if the message has none; the WebSocket stays open.
"""

import asyncio
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from contrada import errors
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http.event_ingest import decode_content, notifications_of, publish
from contrada.integrations.http.event_translation import event_of
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import invalid, refusal_of
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_filters import parse_policy, parse_request_subject
from contrada.integrations.http.sent_events import end_details
from contrada.integrations.http.token_services import TokenService, wait_closed
from contrada.model import Notification
from contrada.patterns.runs import Match
from contrada.service import DurableRecord

WEBSOCKET_ID_CHARACTERS_MAX: Final = 128
"""Characters of an id in a WebSocket message. Beyond it: the message is refused."""

_GOING_AWAY: Final = 1001


class _WebSocketMessage(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    id: str = ""


class _WebSocketSubscribe(_WebSocketMessage, tag="subscribe"):
    filter: str | None = None
    dialect: str = ""
    durable: str | None = None
    when_full: str | None = None


class _WebSocketUnsubscribe(_WebSocketMessage, tag="unsubscribe"):
    pass


class _WebSocketPublish(_WebSocketMessage, tag="publish"):
    events: list[Any] = []


class _WebSocketAcknowledge(_WebSocketMessage, tag="ack"):
    position: int = 0


_ClientMessage = (
    _WebSocketSubscribe | _WebSocketUnsubscribe | _WebSocketPublish | _WebSocketAcknowledge
)


class Conversation:
    """One WebSocket, with its subscriptions."""

    def __init__(
        self,
        websocket: WebSocket,
        access: TokenService,
        counts: GatewayCounts,
        limits: GatewayLimits,
    ) -> None:
        self._websocket = websocket
        self._access = access
        self._counts = counts
        self._limits = limits
        self._open: dict[str, Any] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Executes the client's messages until one side ends the conversation."""
        await self._websocket.accept()
        self._counts.websockets += 1
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(wait_closed(self._access.service))
        try:
            await asyncio.wait([listening, ending], return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():  # Streams write their queued events first.
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
        for events in list(self._open.values()):
            with suppress(errors.ContradaError):  # The service may have ended them already.
                await events.__aexit__(None, None, None)
        for each in found:
            if isinstance(each, Exception) and not isinstance(
                each, WebSocketDisconnect | TimeoutError | errors.ContradaError
            ):
                raise each

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
                refusal = refusal_of(error)
                answer = {"type": "error", "id": name, "status": int(refusal.status)}
                answer |= {"error": refusal.reason, **refusal.details}
            await self._send(answer)

    async def _execute(self, message: _ClientMessage, size: int) -> dict[str, Any]:
        done: dict[str, Any] = {"type": "ack", "id": message.id}
        match message:
            case _WebSocketSubscribe():
                await self._subscribe(message)
            case _WebSocketUnsubscribe():
                events = self._events_of(message.id)
                del self._open[message.id]
                self._tasks.pop(message.id).cancel()
                await events.__aexit__(None, None, None)  # It ends only the reading.
            case _WebSocketPublish():
                notifications: list[Notification] = await decode_content(
                    partial(list, notifications_of(message.events, self._limits)), size
                )
                done["published"] = await publish(self._access, notifications)
                self._counts.events += len(notifications)
            case _WebSocketAcknowledge():
                events = self._events_of(message.id)
                if not hasattr(events, "acknowledge"):
                    reason = "this subscription is not durable"
                    raise errors.InvalidValueError(message.position, reason)
                await events.acknowledge(up_to=message.position)
                done["position"] = message.position
        return done

    async def _subscribe(self, message: _WebSocketSubscribe) -> None:
        most = self._limits.websocket_subscriptions_max
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
        options: dict[str, Any] = {"durable": message.durable, "auto_acknowledge": False}
        if message.durable is None:
            options = {"when_full": parse_policy(message.when_full)}
        events: Any = self._access.service.subscribe(subject, **options)
        await events.open()
        self._open[message.id] = events
        writing = asyncio.create_task(self._write(message.id, events))
        writing.add_done_callback(self._cut_on_fault)
        self._tasks[message.id] = writing

    def _cut_on_fault(self, writing: "asyncio.Task[None]") -> None:
        """Ends the conversation after a fault: its client would wait for events in vain."""
        if not writing.cancelled() and writing.exception() is not None:
            self._websocket.scope["extensions"][CUT]()

    def _events_of(self, name: str) -> Any:
        try:
            return self._open[name]
        except KeyError:
            raise errors.InvalidValueError(name, "there is no subscription of this id") from None

    async def _write(self, name: str, events: Any) -> None:
        end: dict[str, Any] = {"type": "end", "id": name}
        lost: dict[str, int] = {}
        try:
            async for found in events:
                event: dict[str, Any] = {"type": "event", "id": name}
                if isinstance(found, DurableRecord):
                    event |= {"position": found.position, "attempt": found.attempt}
                    found = found.item
                if isinstance(found, Match):
                    event["type"], event["events"] = "match", [*map(event_of, found.notifications)]
                else:
                    event["event"] = event_of(found)
                if new := self._counts.add_lost(lost, events.statistics().dropped):
                    await self._send({"type": "dropped", "id": name, "dropped": new})
                self._counts.delivered += 1
                await self._send(event)
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
