"""`HttpPort`: a listening socket with uvicorn's HTTP protocol and additional bounds.

uvicorn bounds neither the time of a request's head, nor the number of connections, nor the time
for a client to read. A `BoundedConnection` stands between the socket and uvicorn's protocol and
knows both sides: the bytes that arrive, and the requests that the application begins and ends. Each
head must be complete within `head_wait_s` after the connection was made or the answer before it was
sent, even if bytes keep arriving (slow loris). The time of a body is bounded by its reader.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from email.utils import formatdate
from math import ceil
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.server import ServerState

from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.net.wire.endpoint import listen, stop_listening

HTTP_BACKLOG: Final = 1_024
"""Connections in the backlog of the socket. Beyond it: the client's system tries again."""

CUT: Final = "contrada.cut"
"""The extension of a scope that cuts its connection and discards unsent bytes."""

_CONNECTION: Final = "contrada.connection"
"""The key of a scope's state for its `BoundedConnection`."""

_REFUSED: Final = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL: Final = _REFUSED % b"503 Service Unavailable\r\nretry-after: 5"
_TOO_LARGE: Final = _REFUSED % b"431 Request Header Fields Too Large"
_BAD_REQUEST: Final = _REFUSED % b"400 Bad Request"
_LATE: Final = _REFUSED % b"408 Request Timeout"

_HEAD: Final = "head"
_UNSENT: Final = "unsent"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class BoundedConnection(asyncio.Protocol):
    """One connection: passes its bytes to a protocol of uvicorn, within limits."""

    def __init__(self, port: "HttpPort") -> None:
        self._port = port
        self._limits = port.limits
        self._protocol: Any = None
        """uvicorn's protocol, of WebSocket after an upgrade; None for a refused connection."""
        self._is_websocket = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """The time for the next head, and for the client to read its answers."""
        self._requests = 0
        """Requests that the application answers: one, or two while the first one ends."""
        self._is_ending = False
        """Whether it is closed after the running request."""
        self.message_bytes = 0
        """Received bytes of an incomplete WebSocket message."""
        self._bytes_behind: int | None = None
        """Received bytes since uvicorn stopped reading; None while it reads."""
        self._is_reading_due = False
        """Whether uvicorn reads again, while too many bytes of further requests are unread."""
        self._has_begun = False
        self._is_in_head = False
        """Whether bytes of a head have arrived that is not complete."""
        self.has_begun_answer = False
        """Whether a part of the answer to the running request is sent."""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the time for the first head."""
        self._transport = cast(asyncio.Transport, transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.sent_bytes_max // 2)
        if self._port.connections >= self._limits.http_connections_max:
            self.refuse(_FULL)
            return
        self._port.held.add(self)
        self._protocol = self._port.protocol_of(self)
        self._protocol.connection_made(cast(asyncio.Transport, _WatchedTransport(self, transport)))
        self._start(_HEAD, self._limits.head_wait_s, self._end_late_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and the running request."""
        self.lost.set()
        self._stop(_HEAD, _UNSENT)
        self._port.held.discard(self)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Passes bytes to uvicorn, until a WebSocket message is too large."""
        if self._protocol is None or self._transport.is_closing():
            return
        if not self._has_begun:
            self._has_begun = True
            # h11 would wait for the rest of the line: of a client of TLS, or of the broker's port.
            if not (data[:1].isupper() or data[:1] in b"\r\n"):
                self.refuse(_BAD_REQUEST)
                return
        self._is_in_head = not self._requests
        if self._bytes_behind is not None:
            self._bytes_behind += len(data)
            if self._bytes_behind > self._limits.head_bytes_max:
                self._transport.pause_reading()
        try:
            self._protocol.data_received(data)
        except h11.LocalProtocolError:  # A malformed body behind the begin of the answer.
            self._transport.abort()
            return
        # uvicorn bounds no number of empty frames; it keeps those of an incomplete message. Without
        # one, these bytes are pings and pongs, which a quiet client sends for as long as it lives.
        if self._is_websocket and self._protocol.frames:
            self.message_bytes += len(data)
            if self.message_bytes > 2 * self._limits.websocket_message_bytes_max:
                self._transport.abort()

    def eof_received(self) -> bool | None:
        """Ends the connection, after the answer to a whole request that has not begun.

        A client that sends no more may wait for that answer. The client of a stream, which never
        ends, has left. TLS knows no connection that is open in one direction.
        """
        is_one_way = self._is_websocket or self._transport.get_extra_info("sslcontext")
        if is_one_way or self.has_begun_answer or not self._requests:
            return None
        if self._protocol.cycle.more_body:  # It is cut off.
            return None
        self._is_ending = True
        return True

    def pause_writing(self) -> None:
        """Starts the time for the client to read; the pongs to further pings would pile up."""
        self._start(_UNSENT, self._limits.unsent_wait_s, self.cut)
        if self._is_websocket:
            self._transport.pause_reading()
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Stops the time for the client to read."""
        if not self._transport.is_closing():
            self._stop(_UNSENT)
            if self._is_websocket:
                self._transport.resume_reading()
        if self._protocol is not None:
            self._protocol.resume_writing()

    def pause_reading(self) -> None:
        """Stops reading behind some more bytes: the end of a connection is only seen by reading."""
        self._bytes_behind = 0
        self._is_reading_due = False

    def resume_reading(self) -> None:
        """Reads again, as soon as few bytes of pipelined requests are unread."""
        # uvicorn resumes reading after each answer, and h11 holds any number of further requests.
        unread = 0 if self._is_websocket else len(self._protocol.conn.trailing_data[0])
        self._is_reading_due = unread > self._limits.head_bytes_max
        if not self._is_reading_due:
            self._bytes_behind = None
            self._transport.resume_reading()

    def change_protocol(self, protocol: asyncio.Protocol) -> None:
        """Passes all further bytes to the WebSocket protocol."""
        self._protocol, self._is_websocket = protocol, True
        # Behind the first step of the application, which a malformed upgrade does not reach.
        asyncio.get_running_loop().call_soon(self._check_upgrade)

    def _check_upgrade(self) -> None:
        if not (self._requests or self._transport.is_closing()):
            self.refuse(_BAD_REQUEST)

    def refuse(self, answer: bytes) -> None:
        """Sends an answer instead of that of the application, and closes the connection."""
        self._transport.write(answer)
        self.close()

    def begin_request(self) -> None:
        """Stops the time for the head."""
        self._requests += 1
        self._is_in_head = self.has_begun_answer = False
        self._stop(_HEAD)
        # The unread bytes may have been the begin of this request, whose rest uvicorn waits for.
        if self._is_reading_due:
            self.resume_reading()

    def end_request(self) -> None:
        """Starts the time for the next head."""
        self._requests -= 1
        if not self._requests and not self._is_websocket and not self.lost.is_set():
            self._start(_HEAD, self._limits.head_wait_s, self._end_late_head)
            if self._is_ending:
                self.close()

    def _end_late_head(self) -> None:
        """Closes the connection, with the reason if a part of the head is there."""
        if self._is_in_head:
            self.refuse(_LATE)
        else:
            self.close()

    def end(self) -> None:
        """Closes the connection after the running request."""
        self._is_ending = True
        if not self._requests:
            self.close()

    def close(self) -> None:
        """Closes the connection after its last bytes, and cuts a client that does not read them."""
        self._transport.close()
        if not self.lost.is_set():
            self._start(_UNSENT, self._limits.unsent_wait_s, self.cut)

    def cut(self) -> None:
        """Closes the connection now."""
        self._transport.abort()

    def _start(self, timer: str, wait_s: float, act: Callable[[], object]) -> None:
        """Starts a timer, unless it runs already or has ended."""
        if timer not in self._timers:
            self._timers[timer] = asyncio.get_running_loop().call_later(wait_s, act)

    def _stop(self, *timers: str) -> None:
        for each in timers:
            if (handle := self._timers.pop(each, None)) is not None:
                handle.cancel()


class _WatchedTransport:
    """The transport of a connection, which learns what uvicorn's protocol does with it."""

    def __init__(self, connection: BoundedConnection, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.close = connection.close
        self.pause_reading = connection.pause_reading
        self.resume_reading = connection.resume_reading
        self.set_protocol = connection.change_protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _BoundedRequest:
    """A request of the application, or a WebSocket: the ASGI callables with its bounds."""

    def __init__(
        self, connection: BoundedConnection, scope: Message, receive: Receive, send: Send
    ) -> None:
        self._connection = connection
        self._receive, self._send = receive, send
        names = {name for name, _ in scope["headers"]}
        self._has_unread_body = bool(names & {b"content-length", b"transfer-encoding"})
        self.is_refused_websocket = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            self._has_unread_body = False
        elif message["type"] == "websocket.receive":
            self._connection.message_bytes = 0
        return message

    async def send(self, message: Message) -> None:
        """Sends a message; an unread body ends the connection, since it could drip for ever."""
        if message["type"] == "http.response.start" and self._has_unread_body:
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        elif message["type"] == "websocket.http.response.start":
            self.is_refused_websocket = True
        await self._send(message)
        self._connection.has_begun_answer = True


class HttpPort:
    """An ASGI application on one address."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        limits: GatewayLimits = GatewayLimits(),
    ) -> None:
        """Port 0 takes a free one."""
        self._host = host
        self._wanted = port
        self._tls = tls
        # Malformed requests of strangers would fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self.limits = limits
        self._app = app
        self._config = Config(
            self._run,
            interface="asgi3",
            http="h11",
            h11_max_incomplete_event_size=limits.head_bytes_max,
            ws="websockets-sansio",
            ws_max_size=limits.websocket_message_bytes_max,
            ws_ping_interval=limits.ping_s,
            ws_ping_timeout=limits.ping_s,
            ws_per_message_deflate=False,
            timeout_keep_alive=ceil(limits.head_wait_s),
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._state = ServerState()
        self.held: set[BoundedConnection] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listens. Raises ConnectionFailedError if the address is not available."""
        self._config.load()
        self._server = await listen(
            lambda: BoundedConnection(self),
            self._host,
            self._wanted,
            backlog=HTTP_BACKLOG,
            tls=self._tls,
            address=self.address,
        )
        self._tick()

    def _tick(self) -> None:
        """Updates the `Date` header of answers once a second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._ticker = asyncio.get_running_loop().call_later(1.0, self._tick)

    def protocol_of(self, connection: BoundedConnection) -> Any:
        """Returns uvicorn's protocol for a connection, whose requests lead to it."""
        state = {_CONNECTION: connection}
        made: Any = self._config.http_protocol_class
        return made(config=self._config, server_state=self._state, app_state=state)

    async def _run(self, scope: Message, receive: Receive, send: Send) -> None:
        """Runs the application for a request or a WebSocket, with the bounds of its head."""
        connection: BoundedConnection = scope["state"].pop(_CONNECTION)
        scope.setdefault("extensions", {})[CUT] = connection.cut
        connection.begin_request()
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._running.add(task)
        try:
            if answer := self._refusal_of(scope):
                connection.refuse(answer)
                await connection.lost.wait()  # uvicorn would log a missing answer.
                return
            request = _BoundedRequest(connection, scope, receive, send)
            await self._app(scope, request.receive, request.send)
            if request.is_refused_websocket:
                await connection.lost.wait()  # uvicorn would log an incomplete handshake.
        finally:
            self._running.discard(task)
            connection.end_request()

    def _refusal_of(self, scope: Message) -> bytes:
        """Returns the answer to a bad head, or nothing. h11 bounds only heads in several pieces."""
        headers = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        size += len(scope["raw_path"]) + len(scope["query_string"])
        if size > self.limits.head_bytes_max or len(headers) > self.limits.headers_max:
            return _TOO_LARGE
        return b"" if scope["http_version"] in {"1.0", "1.1"} else _BAD_REQUEST

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self.held)

    @property
    def address(self) -> str:
        """The address of the port, as `http://host:port`."""
        port = self._server.sockets[0].getsockname()[1] if self._server else self._wanted
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{port}"

    async def close(self) -> None:
        """Refuses further connections, and further requests on open ones."""
        if self._server is not None:
            await stop_listening(self._server)
        for connection in list(self.held):
            connection.end()

    async def stop(self) -> None:
        """Waits a bounded time for running requests and for clients to read their answers; then
        cancels the former, and cuts the latter.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self.limits.http_stop_wait_s
        if self._ticker is not None:
            self._ticker.cancel()
        await self.close()
        if tasks := list(self._running):
            _, late = await asyncio.wait(tasks, timeout=end_s - loop.time())
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self.held):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                for connection in list(self.held):
                    await connection.lost.wait()
        for connection in list(self.held):  # Clients that do not read.
            connection.cut()
