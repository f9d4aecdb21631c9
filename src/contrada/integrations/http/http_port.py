"""`HttpPort`: a listening socket with uvicorn's HTTP protocol and additional bounds.

uvicorn bounds neither the time nor the size of the head of a request, nor the number of
connections, nor the framing of a body, nor the number of pipelined requests. Here each head must be
complete within `head_wait_s` after the connection was made or the answer before it was sent, even
if bytes keep arriving (slow loris). An oversized request is answered, and the connection closed.
The time of a body is bounded by its reader.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from math import ceil
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from websockets.frames import Frame

from contrada.errors import ConnectionFailedError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.websocket_links import LingeringWebSocket
from contrada.net.wire.tls import TLS_WAIT_S

HTTP_BACKLOG: Final = 1_024
"""Connections in the backlog of the socket. Beyond it: the client's system tries again."""

CUT: Final = "contrada.cut"
"""The extension of a scope that cuts its connection and discards unsent bytes."""

_REFUSED: Final = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL: Final = _REFUSED % b"503 Service Unavailable\r\nretry-after: 5"
_TOO_LARGE: Final = _REFUSED % b"431 Request Header Fields Too Large"
_BAD_UPGRADE: Final = _REFUSED % b"400 Bad Request"

_FRAMING_PER_BYTE: Final = 8
"""A chunk of one byte has five bytes of framing; some more allow leading zeros in its size."""

_HEAD: Final = "head"
_UNSENT: Final = "unsent"


class _RefusedHeadError(Exception):
    """Raised through the parser, which turns it into its own error."""


class BoundedConfig(Config):
    """uvicorn's configuration, with the limits for its protocols."""

    limits: GatewayLimits


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    config: BoundedConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = self.config.limits
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """The time for the next head, and for the client to read its answers."""
        self._head_bytes = 0
        """Parsed bytes of the current head."""
        self._unparsed_bytes = 0
        """Received bytes of an incomplete head."""
        self._framing_bytes = 0
        self._is_in_head = False
        self._is_in_message = False
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last received one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time for the first head."""
        super().connection_made(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.sent_bytes_max // 2)
        if len(self.connections) > self._limits.http_connections_max:
            transport.write(_FULL)
            self._close()
        self._start(_HEAD, self._limits.head_wait_s, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers and the running request."""
        self._stop(_HEAD, _UNSENT)
        super().connection_lost(exc)
        self._disconnect()

    def pause_writing(self) -> None:
        """Starts the time for the client to read."""
        super().pause_writing()
        self._start(_UNSENT, self._limits.unsent_wait_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stops the time for the client to read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop(_UNSENT)

    def data_received(self, data: bytes) -> None:
        """Parses bytes of requests, and checks the bounds of head and framing."""
        if self.transport.is_closing():
            return
        was_in_body = self._is_in_message and not self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._unparsed_bytes += len(data)
        elif was_in_body and self._is_in_message:
            self._framing_bytes += len(data)  # `on_body` has subtracted the content.
        if self._is_head_too_large() or self._framing_bytes > self._limits.framing_bytes_max:
            self.send_400_response("")

    def _is_head_too_large(self) -> bool:
        limits = self._limits
        size = max(self._head_bytes, self._unparsed_bytes)
        return size > limits.head_bytes_max or len(self.headers or ()) > limits.headers_max

    def send_400_response(self, msg: str) -> None:
        """Answers a malformed request, and closes the connection. Without an answer, if the answer
        to an earlier request, or a part of this one's, is incomplete: the client would take this
        answer for the rest of that one.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            is_next = True
        else:
            is_own = self._is_in_message and not self._is_in_head
            is_next = is_own and cycle is self._running and not cycle.response_started
        if is_next and self._is_head_too_large():
            self.transport.write(_TOO_LARGE)
        elif is_next:
            super().send_400_response(msg)
        self._close()

    def on_message_begin(self) -> None:
        """Resets the counts of bytes at the begin of a request."""
        super().on_message_begin()
        self.scope["extensions"] = {CUT: self.transport.abort}  # type: ignore[dict-item]
        self._head_bytes = self._unparsed_bytes = self._framing_bytes = 0
        self._is_in_head = self._is_in_message = True

    def on_url(self, url: bytes) -> None:
        """Counts a part of the request line."""
        self._head_bytes += len(url)
        if self._is_head_too_large():
            raise _RefusedHeadError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a header."""
        if not self._is_in_head:  # Trailers have no meaning here.
            return
        self._head_bytes += len(name) + len(value)
        super().on_header(name, value)
        if self._is_head_too_large():
            raise _RefusedHeadError

    def on_headers_complete(self) -> None:
        """Checks a complete head, and stops its timer; the reader bounds the body."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise _RefusedHeadError  # RFC 9112 §3.2 requires 400 without exactly one `Host`.
        self._is_in_head = False
        self._stop(_HEAD)
        super().on_headers_complete()
        if len(self.pipeline) > self._limits.pipelined_max:
            raise _RefusedHeadError

    def on_body(self, body: bytes) -> None:
        """Subtracts the content of a body and its usual framing from the framing bytes."""
        # Chunks of one byte have more framing than content, and are no attack.
        self._framing_bytes -= (1 + _FRAMING_PER_BYTE) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Records the end of a request."""
        self._is_in_message = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Starts the time for the next head, or closes before the rest of an unread body."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif not self.cycle.response_complete:
            return  # A pipelined request is next.
        elif self._is_in_message and not self._is_in_head:
            self._close()
        else:
            self._start(_HEAD, self._limits.head_wait_s, self.timeout_keep_alive_handler)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        """Hands the connection to the WebSocket protocol."""
        self._stop(_HEAD, _UNSENT)
        super().handle_websocket_upgrade()

    def _close(self) -> None:
        """Closes the connection after its last bytes, and cuts a client that does not read them."""
        self.transport.close()
        self._disconnect()
        self._start(_UNSENT, self._limits.unsent_wait_s, self.transport.abort)

    timeout_keep_alive_handler = _close  # The next head is late.

    def _disconnect(self) -> None:
        """Signals the disconnect to the running request; uvicorn signals only the last received."""
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _start(self, timer: str, wait_s: float, act: Callable[[], object]) -> None:
        """Starts a timer, unless it runs already or has ended."""
        if timer not in self._timers:
            self._timers[timer] = self.loop.call_later(wait_s, act)

    def _stop(self, *timers: str) -> None:
        for each in timers:
            if (handle := self._timers.pop(each, None)) is not None:
                handle.cancel()


class BoundedWebSocket(LingeringWebSocket):
    """A connection that was upgraded to WebSocket."""

    config: BoundedConfig

    @property
    def linger_s(self) -> float:  # type: ignore[override]
        """Seconds for a client to read its last bytes."""
        return min(LingeringWebSocket.linger_s, self.config.limits.unsent_wait_s)

    def data_received(self, data: bytes) -> None:
        """Parses bytes; first the whole head of the upgrade, which may be malformed."""
        super().data_received(data)
        if not (self.handshake_initiated or self.transport.is_closing()):
            self.transport.write(_BAD_UPGRADE)
            self.transport.close()

    async def run_asgi(self) -> None:
        """Runs the application, with the extension that cuts the connection."""
        extensions: dict[str, Any] = cast(Any, self.scope)["extensions"]
        extensions[CUT] = self.transport.abort
        await super().run_asgi()

    async def send(self, message: Any) -> None:
        """Sends a message. A refusal completes the handshake: else uvicorn would log an error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """Bounds the frames of a message: uvicorn bounds only bytes, and empty frames have none."""
        if len(self.frames) >= self.config.limits.websocket_parts_max:
            self.transport.abort()
            return
        super().handle_cont(event)


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
        self._limits = limits
        self._config = BoundedConfig(
            app,
            http=BoundedProtocol,
            ws=BoundedWebSocket,
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
        self._config.limits = limits
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listens. Raises ConnectionFailedError if the address is not available."""
        loop = asyncio.get_running_loop()
        self._config.load()
        try:
            self._server = await loop.create_server(
                lambda: cast(asyncio.Protocol, BoundedProtocol(self._config, self._state, {})),
                self._host,
                self._wanted,
                backlog=HTTP_BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_WAIT_S if self._tls else None,
            )
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConnectionFailedError(self.address, f"cannot listen: {reason}") from None
        self._tick()

    def _tick(self) -> None:
        """Updates the `Date` header of answers once a second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._ticker = asyncio.get_running_loop().call_later(1.0, self._tick)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._state.connections)

    @property
    def address(self) -> str:
        """The address of the port, as `http://host:port`."""
        port = self._server.sockets[0].getsockname()[1] if self._server else self._wanted
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{port}"

    def close(self) -> None:
        """Refuses further connections, and further requests on open ones."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            if isinstance(connection, BoundedProtocol):  # WebSockets end after their queued events.
                connection.shutdown()

    async def stop(self) -> None:
        """Waits a bounded time for running requests, then cancels the rest."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.close()
        if tasks := list(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=self._limits.http_stop_wait_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()
        await asyncio.sleep(0)
        for connection in list(self._state.connections):  # Clients that do not read.
            connection.transport.abort()
