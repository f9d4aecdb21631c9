"""The listening side: uvicorn's protocol of HTTP, with bounds of its own around it.

uvicorn bounds neither how long the head of a request may take, nor how large it is, nor how many
connections there are, nor what stands around a body, nor how many requests wait for an answer. Here
each head has to come within HEAD_WAIT_S, counted from the connection, or from the end of the answer
before it, whatever drips in meanwhile; what has the wrong size is answered and closed. How long a
body may take its reader bounds.
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
from contrada.integrations.http.websocket_links import LingeringWebSocket
from contrada.net.wire.tls import TLS_WAIT_S

HTTP_CONNECTIONS_MAX: Final = 10_000
"""Connections of an HTTP port. Beyond it: one more is answered 503, and closed."""

HTTP_BACKLOG: Final = 1_024
"""Connections to an HTTP port that came and are not taken yet. Beyond it: the system of whoever
comes tries again after a second or more."""

HEAD_WAIT_S: Final = 20.0
"""How long the head of a request may take, or a connection do nothing between two requests. Beyond
it: it is closed."""

HEAD_BYTES_MAX: Final = 32 * 1024
"""Bytes of the head of a request: its line and headers. Beyond it: 431, and it is closed."""

HEADERS_MAX: Final = 100
"""Headers of a request. Beyond it: 431, and it is closed."""

FRAMING_BYTES_MAX: Final = 32 * 1024
"""Bytes of chunk heads and trailers of a request, besides 8 for each byte of its body. Beyond it:
400, and it is closed."""

PIPELINED_MAX: Final = 16
"""Requests of a connection that wait for the answer to one before them. Beyond it: it is closed."""

SENT_BYTES_MAX: Final = 128 * 1024
"""Bytes that the system holds for a client which does not take them. Beyond it: who writes to it
waits."""

WEBSOCKET_MESSAGE_BYTES_MAX: Final = 2**20
"""Bytes of a message of a WebSocket. Beyond it: it is closed with code 1009."""

WEBSOCKET_PARTS_MAX: Final = 1_024
"""Frames of a message of a WebSocket. Beyond it: it is cut."""

PING_S: Final = 20.0
"""How often a WebSocket is asked whether it is alive, and how long it may take to say so. Beyond
it: it is closed."""

HTTP_STOP_WAIT_S: Final = 5.0
"""How long stopping an HTTP port waits for answers that are under way. Beyond it: they are cut."""

UNTAKEN_WAIT_S: Final = 90.0
"""How long answers wait for a client that does not take them, or one that was told that its
connection closes. Beyond it: it is cut."""

CUT: Final = "contrada.cut"
"""The extension of a scope that cuts its connection, whatever is unsent."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: 0\r\n\r\n"
)
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)

_FRAMING_PER_BYTE: Final = 8
"""A chunk of one byte has five around it; a few more for zeros before its size."""

_BAD_UPGRADE: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _TooLargeError(Exception):
    """Raised through the parser, which hands it on as its own error."""


class _TooManyError(Exception):
    """Likewise."""


class _WrongHostError(Exception):
    """Likewise: RFC 9112 §3.2 wants 400 where it is not said once for which host a request is."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._untaken_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        """Of what the parser has given of a head."""
        self._unparsed_bytes = 0
        """Of the pieces in which a head came that goes on."""
        self._framing_bytes = 0
        self._is_in_head = False
        self._is_in_message = False
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the one that came last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Connected: the head of a request is to come."""
        super().connection_made(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES_MAX // 2)
        if len(self.connections) > HTTP_CONNECTIONS_MAX:
            transport.write(_FULL)
            self._close()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._forget_head()
        self._forget_untaken()
        super().connection_lost(exc)
        self._disconnect()

    def pause_writing(self) -> None:
        """The client does not take what is written."""
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        """It has taken it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._forget_untaken()

    def timeout_keep_alive_handler(self) -> None:
        """No further request has come in time."""
        self._close()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self.transport.is_closing():
            return
        was_in_body = self._is_in_message and not self._is_in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._unparsed_bytes += len(data)
        elif was_in_body and self._is_in_message:
            self._framing_bytes += len(data)  # `on_body` has taken from it what is none.
        if self._is_head_too_large() or self._framing_bytes > FRAMING_BYTES_MAX:
            self.send_400_response("")

    def _is_head_too_large(self) -> bool:
        size = max(self._head_bytes, self._unparsed_bytes)
        return size > HEAD_BYTES_MAX or len(self.headers or ()) > HEADERS_MAX

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is answered, and the connection closed.

        Not where the answer to another request, or a part of this one's, would stand before it:
        this answer would be taken for that one.
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
        """A request begins."""
        super().on_message_begin()
        self.scope["extensions"] = {CUT: self.transport.abort}  # type: ignore[dict-item]
        self._head_bytes = self._unparsed_bytes = self._framing_bytes = 0
        self._is_in_head = self._is_in_message = True

    def on_url(self, url: bytes) -> None:
        """A part of the line of a request."""
        self._head_bytes += len(url)
        if self._is_head_too_large():
            raise _TooLargeError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header more."""
        if not self._is_in_head:  # A trailer: nothing here means anything by one.
            return
        self._head_bytes += len(name) + len(value)
        super().on_header(name, value)
        if self._is_head_too_large():
            raise _TooLargeError

    def on_headers_complete(self) -> None:
        """The head has come: how much follows is bounded by whoever reads it."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise _WrongHostError
        self._is_in_head = False
        self._forget_head()
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED_MAX:
            raise _TooManyError

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        # Chunks of one byte have more framing than content: that much is no attack.
        self._framing_bytes -= (1 + _FRAMING_PER_BYTE) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has come."""
        self._is_in_message = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request is answered; its body, should it go on coming, is not waited for."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif not self.cycle.response_complete:
            return  # Another one has come meanwhile.
        elif self._is_in_message and not self._is_in_head:
            self._close()
        else:
            self._expect_head()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """It is the turn of a request to be answered."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        """The connection is a WebSocket's from now on."""
        self._forget_head()
        self._forget_untaken()
        super().handle_websocket_upgrade()

    def _close(self) -> None:
        """Closes the connection once its last bytes are read, and cuts it if they are not."""
        self.transport.close()
        self._disconnect()
        self._expect_taken()

    def _disconnect(self) -> None:
        """Nothing more is written: who answers is told, also where other requests have come since.

        uvicorn tells the one that came last alone.
        """
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _expect_taken(self) -> None:
        if self._untaken_timer is None:
            self._untaken_timer = self.loop.call_later(UNTAKEN_WAIT_S, self.transport.abort)

    def _forget_untaken(self) -> None:
        if self._untaken_timer is not None:
            self._untaken_timer.cancel()
            self._untaken_timer = None

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WAIT_S, self.timeout_keep_alive_handler)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class BoundedWebSocket(LingeringWebSocket):
    """One connection that has become a WebSocket."""

    _cut: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes; first the whole head of its request, which may be none that asks for it."""
        super().data_received(data)
        if not (self.handshake_initiated or self.transport.is_closing()):
            self.transport.write(_BAD_UPGRADE)
            self.transport.close()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        """What answered it has ended: it is cut if the client does not take the rest."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._cut = self.loop.call_later(UNTAKEN_WAIT_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        super().connection_lost(exc)
        if self._cut is not None:
            self._cut.cancel()

    async def run_asgi(self) -> None:
        """Runs the application, which may cut the connection."""
        extensions: dict[str, Any] = cast(Any, self.scope)["extensions"]
        extensions[CUT] = self.transport.abort
        await super().run_asgi()

    async def send(self, message: Any) -> None:
        """Sends what the application says.

        A refusal ends the handshake, too: uvicorn would log that the application did not end it.
        """
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """A further part of a message; uvicorn bounds their bytes, and not how many are empty."""
        if len(self.frames) >= WEBSOCKET_PARTS_MAX:
            self.transport.abort()
            return
        super().handle_cont(event)


class HttpPort:
    """An application of ASGI on one address."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Port 0 takes a free one."""
        self._host = host
        self._wanted = port
        self._tls = tls
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # Not what strangers send.
        self._config = Config(
            app,
            http=BoundedProtocol,
            ws=BoundedWebSocket,
            ws_max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            timeout_keep_alive=ceil(HEAD_WAIT_S),
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen. Raises ConnectionFailedError when the address cannot be had."""
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
            wanted = self._address(self._wanted)
            raise ConnectionFailedError(wanted, f"cannot listen: {reason}") from None
        self._tick()

    def _tick(self) -> None:
        """Keeps the date of answers, once a second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._ticker = asyncio.get_running_loop().call_later(1.0, self._tick)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._state.connections)

    @property
    def address(self) -> str:
        """Where it listens, as `http://host:port`."""
        port = self._server.sockets[0].getsockname()[1] if self._server else self._wanted
        return self._address(port)

    def _address(self, port: int) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{port}"

    def close(self) -> None:
        """Take no further connections, and no further requests of those that are there."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            if isinstance(connection, BoundedProtocol):  # WebSockets end when all was told.
                connection.shutdown()

    async def stop(self) -> None:
        """Wait for what is being answered, a bounded time, and cut the rest."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.close()
        if tasks := list(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=HTTP_STOP_WAIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()
        await asyncio.sleep(0)
        for connection in list(self._state.connections):  # Those that take nothing.
            connection.transport.abort()
