"""Connections to a broker, of clients and of neighbours, that come to its HTTP port by WebSocket.

    WebSocketRoute(PATH_DEFAULT, CarriedArrivals(broker).arrive)

The broker meets them as it meets those over TCP, and bounds them alike: their number, the time for
a hello, signs of life, and what waits for one that does not read. Programs come here, not pages: a
browser says whose page it shows (`Origin`), and is refused, so that no page that a person visits
speaks to a broker of theirs.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from contrada.net.wire.websocket import CARRIED_BYTES_MAX, MessageTransport

CARRIED_LINGER_S: Final = 5.0
"""How long a WebSocket whose work is done may take what was written to it. Beyond it: it is cut."""

_IN_ORDER: Final = (1000, 1001, 1005)
"""With which codes who has come goes, where nothing is wrong."""

_POLICY: Final = 1008
_TOO_BIG: Final = 1009
_NO_BYTES: Final = 1003


class WebSocketConnection(Protocol):
    """A broker's side of a connection: a protocol of asyncio that can say goodbye."""

    def close(self, reason: str) -> None:
        """Says goodbye, and closes."""
        ...


class ArrivalHost(Protocol):
    """What is needed of a broker."""

    def accept(self) -> Any:
        """Its side of a connection that is being made to it."""
        ...


class _ArrivedMessages:
    """The messages of a connection that was made to this side."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, message: bytes | bytearray) -> None:
        if not self._is_open:
            raise ConnectionError("WebSocket was closed")
        try:
            await self._websocket.send({"type": "websocket.send", "bytes": message})
        except WebSocketDisconnect as error:
            raise ConnectionError(f"WebSocket was ended with code {error.code}") from None

    async def receive(self) -> bytes | None:
        said = await self._websocket.receive()
        if said["type"] == "websocket.disconnect":
            code = said.get("code", _IN_ORDER[0])
            if code in _IN_ORDER:
                return None
            reason = said.get("reason") or "it said no reason"
            raise ConnectionError(f"WebSocket was ended with code {code}: {reason}")
        message: bytes | None = said.get("bytes")
        if message is None:
            raise await self._refused(_NO_BYTES, "it sent text, expected bytes")
        if len(message) > CARRIED_BYTES_MAX:
            limit = f"CARRIED_BYTES_MAX = {CARRIED_BYTES_MAX}"
            raise await self._refused(_TOO_BIG, f"a message of {len(message)} bytes, and {limit}")
        return message

    async def close(self) -> None:
        if self._is_open:
            with suppress(WebSocketDisconnect):  # The other side may have closed meanwhile.
                await self._websocket.close()

    def cut(self) -> None:
        """Nothing: that is done where the endpoint ends, by `LingeringWebSocket`."""

    @property
    def _is_open(self) -> bool:
        return self._websocket.application_state is WebSocketState.CONNECTED

    async def _refused(self, code: int, reason: str) -> ConnectionError:
        await self._websocket.close(code, reason)
        return ConnectionError(reason)


class CarriedArrivals:
    """Brings whoever comes by WebSocket to a broker of this event loop.

    The server of its endpoint `arrive` has to take `LingeringWebSocket` for its `ws`, and
    CARRIED_BYTES_MAX, or more, for `ws_max_size`.
    """

    def __init__(self, broker: ArrivalHost) -> None:
        self._broker = broker
        self._carried: set[WebSocketConnection] = set()

    async def arrive(self, websocket: WebSocket) -> None:
        """One has come; returns when it is gone."""
        if "origin" in websocket.headers:
            await websocket.close(_POLICY)  # Before it is accepted: 403.
            return
        await websocket.accept()
        peername = tuple(websocket.client) if websocket.client else None
        is_tls = websocket.scope.get("scheme") == "wss"
        extra = {"peername": peername, "ssl_object": websocket if is_tls else None}
        peer = self._broker.accept()
        self._carried.add(peer)
        try:
            transport = MessageTransport(
                peer, _ArrivedMessages(websocket), {**extra, "websocket": websocket}
            )
            await transport.start()
        finally:
            self._carried.discard(peer)

    def close(self, reason: str) -> None:
        """Says goodbye to all connections that came by WebSocket."""
        for each in list(self._carried):
            each.close(reason)


class LingeringWebSocket(WebSocketsSansIOProtocol):
    """The protocol, but a client that does not read its last bytes is cut once its work is done.

    Else its socket would stay as long as the other side likes, uncounted by any limit of
    connections.
    """

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        """What answered it has ended."""
        super().on_task_complete(task)
        self.loop.call_later(CARRIED_LINGER_S, self.transport.abort)
