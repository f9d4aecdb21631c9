"""`CarriedArrivals`: connections of clients and neighbours to a broker over WebSocket.

    WebSocketRoute(PATH_DEFAULT, CarriedArrivals(broker).arrive)

The broker handles them like TCP connections, within the same bounds: their number, the time for a
hello, heartbeats, and the send queue. Browsers are refused by their `Origin` header, so that no web
page can connect to the broker on its visitor's machine.
"""

from contextlib import suppress
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from contrada.net.broker.broker import Broker
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.websocket import CARRIED_BYTES_MAX, MessageTransport

_IN_ORDER: Final = (1000, 1001, 1005)
"""Codes of a close without an error."""

_POLICY: Final = 1008
_TOO_BIG: Final = 1009
_NO_BYTES: Final = 1003


class _ArrivedMessages:
    """The messages of an accepted WebSocket."""

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
        received = await self._websocket.receive()
        if received["type"] == "websocket.disconnect":
            code = received.get("code", _IN_ORDER[0])
            if code in _IN_ORDER:
                return None
            reason = received.get("reason") or "no reason was sent"
            raise ConnectionError(f"WebSocket was ended with code {code}: {reason}")
        message: bytes | None = received.get("bytes")
        if message is None:
            raise await self._refuse(_NO_BYTES, "it sent text, expected bytes")
        if len(message) > CARRIED_BYTES_MAX:
            limit = f"CARRIED_BYTES_MAX = {CARRIED_BYTES_MAX}"
            raise await self._refuse(_TOO_BIG, f"a message of {len(message)} bytes, and {limit}")
        return message

    async def close(self) -> None:
        if self._is_open:
            with suppress(WebSocketDisconnect):  # The other side may have closed meanwhile.
                await self._websocket.close()

    def cut(self) -> None:
        """Does nothing: the port closes the connection when the endpoint ends."""

    @property
    def _is_open(self) -> bool:
        return self._websocket.application_state is WebSocketState.CONNECTED

    async def _refuse(self, code: int, reason: str) -> ConnectionError:
        await self._websocket.close(code, reason)
        return ConnectionError(reason)


class CarriedArrivals:
    """The endpoint that connects WebSockets to a broker of this event loop.

    Its `HttpPort` needs a `websocket_message_bytes_max` of CARRIED_BYTES_MAX or more.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._carried: set[ServerConnection] = set()

    async def arrive(self, websocket: WebSocket) -> None:
        """Serves one WebSocket until it is closed."""
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
        """Sends the reason to all connections over WebSocket, and closes them."""
        for each in list(self._carried):
            each.close(reason)
