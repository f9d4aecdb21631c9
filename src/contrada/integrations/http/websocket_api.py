"""`/ws`: subscriptions and events in messages of JSON, over one WebSocket.

What a client says, each an object with a `type`:

    {"type": "subscribe", "id": "s1", "filter": "price > 3"}
        and maybe "dialect", "durable", "when_full"
    {"type": "unsubscribe", "id": "s1"}
    {"type": "publish", "id": "p1", "events": [{…CloudEvent…}]}
    {"type": "ack", "id": "s1", "position": 17}         of a durable subscription: all up to there

What it is told:

    {"type": "ack", "id": "s1"}                         done; of what is published with "published"
    {"type": "event", "id": "s1", "event": {…}}         with "position" on a durable subscription
    {"type": "dropped", "id": "s1", "dropped": {"queue full": 3}}
    {"type": "error", "id": "p1", "status": 403, "error": "…"}
    {"type": "end", "id": "s1"}                         no more comes of it

A message that is none gets an `error`, with an empty id where it has none, and the WebSocket goes
on.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from contrada.errors import (
    ContradaError,
    EncodingError,
    InvalidValueError,
    LimitError,
    RefusedRequestError,
)
from contrada.integrations.dialects.json_text import decoded
from contrada.integrations.http.cloudevents_http import notifications_of
from contrada.integrations.http.event_stream import STREAM_WAIT_S, WHEN_FULL_DEFAULT
from contrada.integrations.http.event_translation import event_of
from contrada.integrations.http.gateway_counts import GatewayCounts
from contrada.integrations.http.http_port import CUT
from contrada.integrations.http.http_responses import invalid, refusal_of
from contrada.integrations.http.request_filters import asked_for, checked_policy
from contrada.integrations.http.request_publisher import publish
from contrada.integrations.http.token_services import TokenService, closed
from contrada.service import DurableRecord

WEBSOCKET_SUBSCRIPTIONS_MAX: Final = 100
"""Subscriptions of one WebSocket. Beyond it: a further one is refused."""

WEBSOCKET_ID_CHARACTERS_MAX: Final = 128
"""Characters of an id in a message of a WebSocket. Beyond it: the message is refused."""

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


_Said = _WebSocketSubscribe | _WebSocketUnsubscribe | _WebSocketPublish | _WebSocketAcknowledge


class Conversation:
    """One WebSocket."""

    def __init__(self, websocket: WebSocket, access: TokenService, counts: GatewayCounts) -> None:
        self._websocket = websocket
        self._access = access
        self._counts = counts
        self._open: dict[str, Any] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Carry out the client's messages until one side ends the conversation."""
        await self._websocket.accept()
        self._counts.websockets += 1
        listening = asyncio.create_task(self._listen())
        ending = asyncio.create_task(closed(self._access.service))
        try:
            await asyncio.wait([listening, ending], return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():  # Streams have told what they held.
                await asyncio.wait(self._tasks.values()) if self._tasks else None
                with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                    async with asyncio.timeout(STREAM_WAIT_S):
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
            with suppress(ContradaError):  # The service has ended, and they with it.
                await events.close()
        for each in found:
            if isinstance(each, Exception) and not isinstance(
                each, WebSocketDisconnect | TimeoutError | ContradaError
            ):
                raise each

    async def _listen(self) -> None:
        while True:
            text = await self._received()
            name = ""
            try:
                given = _decoded(text)
                name = _id_in(given)
                told = await self._do(_read(given))
            except ContradaError as error:
                refusal = refusal_of(error)
                told = {
                    "type": "error",
                    "id": name,
                    "status": int(refusal.status),
                    "error": refusal.reason,
                    **refusal.details,
                }
            await self._tell(told)

    async def _received(self) -> str | bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", _GOING_AWAY))
        text: str | bytes | None = message.get("text")
        return message["bytes"] if text is None else text

    async def _do(self, said: _Said) -> dict[str, Any]:
        done: dict[str, Any] = {"type": "ack", "id": said.id}
        match said:
            case _WebSocketSubscribe():
                await self._subscribe(said)
            case _WebSocketUnsubscribe():
                await self._unsubscribe(said.id)
            case _WebSocketPublish():
                made = list(notifications_of(said.events))
                done["published"] = await publish(self._access, made)
                self._counts.events += len(made)
            case _WebSocketAcknowledge():
                await self._of(said.id).acknowledge(said.position)
                done["position"] = said.position
        return done

    async def _subscribe(self, said: _WebSocketSubscribe) -> None:
        if said.id in self._open:
            raise InvalidValueError(said.id, "a subscription of this id is in force")
        if len(self._open) >= WEBSOCKET_SUBSCRIPTIONS_MAX:
            raise LimitError("WEBSOCKET_SUBSCRIPTIONS_MAX", WEBSOCKET_SUBSCRIPTIONS_MAX)
        if said.filter is None and said.durable is None:
            reason = "say a filter, or the name of a durable subscription"
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason)
        subject = None if said.filter is None else await asked_for(said.filter, said.dialect)
        if said.durable is None:
            when_full = checked_policy(said.when_full, WHEN_FULL_DEFAULT)
            events: Any = self._access.service.subscribe(subject, when_full=when_full)
        else:
            events = self._access.service.subscribe(
                subject, durable=said.durable, auto_acknowledge=False
            )
        await events.open()
        self._open[said.id] = stream = _Stream(events)
        writing = asyncio.create_task(self._write(said.id, stream))
        writing.add_done_callback(self._end_of)
        self._tasks[said.id] = writing

    def _end_of(self, writing: "asyncio.Task[None]") -> None:
        """A fault ends the conversation: its client would else wait for what never comes."""
        if not writing.cancelled() and writing.exception() is not None:
            self._websocket.scope["extensions"][CUT]()

    async def _unsubscribe(self, name: str) -> None:
        stream = self._of(name)
        del self._open[name]
        self._tasks.pop(name).cancel()
        await stream.close()

    def _of(self, name: str) -> "_Stream":
        try:
            return self._open[name]  # type: ignore[no-any-return]
        except KeyError:
            raise InvalidValueError(name, "there is no subscription of this id") from None

    async def _write(self, name: str, stream: "_Stream") -> None:
        """Tells what comes of one subscription, until it ends."""
        told: dict[str, Any] = {"type": "end", "id": name}
        lost: dict[str, int] = {}
        try:
            async for found in stream.events:
                event: dict[str, Any] = {"type": "event", "id": name}
                if isinstance(found, DurableRecord):
                    event |= {"position": found.position, "event": event_of(found.item)}
                else:
                    event["event"] = event_of(found)
                if new := self._counts.lost(lost, stream.events.statistics().dropped):
                    await self._tell({"type": "dropped", "id": name, "dropped": new})
                self._counts.delivered += 1
                await self._tell(event)
        except ContradaError as error:
            told["error"] = refusal_of(error).reason
        await self._tell(told)

    async def _tell(self, told: dict[str, Any]) -> None:
        """Raises TimeoutError where the client takes nothing: then it is cut."""
        try:
            async with asyncio.timeout(STREAM_WAIT_S):
                await self._websocket.send_text(msgspec.json.encode(told).decode())
        except TimeoutError:
            self._counts.dropped["too slow"] += 1
            self._websocket.scope["extensions"][CUT]()
            raise


class _Stream:
    """A subscription of a WebSocket."""

    def __init__(self, events: Any) -> None:
        self.events = events

    async def acknowledge(self, position: int) -> None:
        if not hasattr(self.events, "acknowledge"):
            raise InvalidValueError(position, "this subscription is not durable")
        await self.events.acknowledge(up_to=position)

    async def close(self) -> None:
        """Ends it; a durable one stands on."""
        await self.events.__aexit__(None, None, None)


def _decoded(text: str | bytes) -> Any:
    """The JSON of a message. Raises RefusedRequestError, LimitError."""
    try:
        return decoded(text)
    except EncodingError as error:
        raise invalid(error) from None


def _id_in(given: Any) -> str:
    """The id of a message, which is told with each answer, also where the rest of it is wrong.

    Empty where it has none. Raises RefusedRequestError, LimitError.
    """
    name = given.get("id") if isinstance(given, dict) else None
    if not isinstance(name, str):
        return ""
    if len(name) > WEBSOCKET_ID_CHARACTERS_MAX:
        raise LimitError("WEBSOCKET_ID_CHARACTERS_MAX", WEBSOCKET_ID_CHARACTERS_MAX, len(name))
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise invalid(error) from None
    return name


def _read(given: Any) -> _Said:
    """What a client says. Raises RefusedRequestError."""
    try:
        said: _Said = msgspec.convert(given, type=_Said)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    return said
