"""`Wire`: a `Connection` on an asyncio transport; and `ClientWire`, the client's end."""

import asyncio
import errno
import socket
import ssl
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from contrada.errors import ConnectionFailedError, FrameError, ProtocolError
from contrada.net.wire.address import Address
from contrada.net.wire.connection import (
    BROKER,
    PUBLISHER,
    USUAL_LIVENESS,
    Connection,
    LivenessLimits,
)
from contrada.net.wire.frames import Failure, Frame, Goodbye, Hello
from contrada.net.wire.tls import TLS_FAULT, TLS_WAIT_S, describe_hang_up, describe_tls_error
from contrada.net.wire.tokens import TokenSource
from contrada.net.wire.websocket import dial_websocket


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The transport and the token of a client; `reach` connects the protocol instead of TCP."""

    tls: ssl.SSLContext | None = None
    token: TokenSource = field(default="", repr=False)
    reach: Callable[[asyncio.Protocol], Awaitable[None]] | None = None


TCP: Final = ConnectOptions()

OF_CONNECTION: Final = frozenset((Hello, Failure, Goodbye))
"""Frames about the connection itself; all others are its owner's."""


async def dial(protocol: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None) -> None:
    """Connects a protocol to the broker at an address. Raises OSError.

    Another transport of ordered bytes may replace TCP; at the other side it uses `Broker.accept`.
    It must offer the calls of `Wire` and `ServerConnection`: write, close and abort, pausing of
    reads, the size and limits of its write buffer, and `get_extra_info`.
    """
    if address.path:
        await dial_websocket(protocol, address, tls)
        return
    loop = asyncio.get_running_loop()
    await loop.create_connection(
        lambda: protocol, address.host, address.port, ssl=tls if address.is_tls else None
    )


async def listen(
    protocol: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    backlog: int,
    tls: ssl.SSLContext | None,
    address: str,
) -> asyncio.Server:
    """Listens; raises ConnectionFailedError about `address` if that is not available."""
    try:
        return await asyncio.get_running_loop().create_server(
            protocol,
            host,
            port,
            backlog=backlog,
            ssl=tls,
            ssl_handshake_timeout=TLS_WAIT_S if tls else None,
        )
    except (OSError, OverflowError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else error
        raise ConnectionFailedError(address, f"cannot listen: {reason}") from None


async def stop_listening(server: asyncio.Server) -> None:
    """Closes the listening sockets of a server, after the connections accepted so far began.

    A connection that the loop accepts in the turn of `Server.close` would never be closed: its
    transport refuses to attach to a server without sockets, and nobody gets the error.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()


class Wire(asyncio.Protocol):
    """One end of a connection, called by the event loop."""

    def __init__(
        self, hello: Hello, peer_roles: tuple[str, ...], liveness: LivenessLimits = USUAL_LIVENESS
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(hello, peer_roles, self._loop.time(), liveness)
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The transport, while it is connected."""
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the connection."""
        self._transport = cast(asyncio.Transport, transport)  # The class depends on the event loop.

    def data_received(self, data: bytes) -> None:
        """Receives bytes of the other side."""
        now_s = self._loop.time()
        self._connection.receive(data, now_s)
        self._process(now_s)

    def _process(self, now_s: float) -> None:
        """Handles the received frames at a time of the loop's clock."""
        connection = self._connection
        try:
            while (frame := connection.next()) is not None:
                self._handle(frame)
                if connection.reader.is_empty:  # As mostly: one frame.
                    break
        except FrameError as error:
            self.end(error)
        if connection.outgoing:
            self._write_outgoing()

    def tick(self) -> None:
        """Checks whether the other side is silent. Of a closed connection, drops the last bytes."""
        if self._connection.is_closed:
            self.abort()  # The other side had time to read them.
        try:
            self._connection.tick(self._loop.time())
        except FrameError as error:
            self.end(error)
        self._write_outgoing()

    def abort(self) -> None:
        """Closes at once, without unsent bytes."""
        if self._transport is not None:
            self._transport.abort()

    def _why_lost(self, error: Exception | None) -> str:
        """Returns the reason of the end, as far as this side can tell."""
        if error is not None:
            broke = describe_os_error(error) if isinstance(error, OSError) else str(error)
            return f"the connection broke: {broke}"
        if self._connection.peer is None and self._transport is not None:
            return describe_hang_up(is_tls=self._transport.get_extra_info("sslcontext") is not None)
        return ""

    @abstractmethod
    def _handle(self, frame: Frame) -> None:
        """Handles a frame."""

    def end(self, error: FrameError) -> None:
        """Sends the other side its fault, and closes."""
        if not self._connection.is_closed:
            self._connection.fail(error)
        self._close_transport()

    def _close_transport(self) -> None:
        self._write_outgoing()
        if self._transport is not None:
            self._transport.close()

    def _write_outgoing(self) -> None:
        outgoing, transport = self._connection.outgoing, self._transport
        data = b"".join(outgoing)  # No copy of a lone frame, as of most.
        outgoing.clear()  # First: a transport may call this end while it writes.
        if data and transport is not None and not transport.is_closing():
            transport.write(data)


class ClientWire(Wire):
    """The client's end of a connection. `on_lost` is called once, with the reason."""

    def __init__(
        self,
        hello: Hello,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[str], None],
        *,
        liveness: LivenessLimits = USUAL_LIVENESS,
        tick_s: float = 5.0,
        goodbye_wait_s: float = 5.0,
    ) -> None:
        super().__init__(hello, (BROKER,), liveness)
        self._tick_s, self._goodbye_wait_s = tick_s, goodbye_wait_s
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""
        self._closed = asyncio.Event()
        self._flush_due = False
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        """Done after the broker's hello; fails with ProtocolError without one."""
        self.ended: str | None = None
        """The reason of the end; None before."""
        self.fault = ""
        """The code of the broker's Failure, or TLS_FAULT."""

    @property
    def publisher_prefix(self) -> str:
        """The publisher prefix that the broker assigns; empty without one."""
        name = self.capabilities.get(PUBLISHER)
        return name if isinstance(name, str) else ""

    @property
    def capabilities(self) -> Mapping[str, int | str | bool]:
        """The capabilities of the broker; empty before its hello."""
        hello = self._connection.peer
        return {} if hello is None else hello.capabilities

    def send(self, frame: Frame) -> None:
        """Sends a frame at the end of this turn of the loop; nothing after the end."""
        self._connection.send(frame)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def send_now(self, frame: Frame) -> None:
        """Sends all frames of this turn now."""
        self._connection.send(frame)
        self._write_outgoing()

    async def close(self) -> None:
        """Closes with a Goodbye, and waits for the end. Twice is once."""
        if self._transport is None:
            return
        self._reason = "closed by this side"
        self._connection.close()
        self._close_transport()
        try:
            async with asyncio.timeout(self._goodbye_wait_s):
                await self._closed.wait()
        except TimeoutError:  # The broker does not read its last bytes.
            return
        finally:  # Also when the caller is cancelled.
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the hello."""
        super().connection_made(transport)
        self._connection.greet()
        self._write_outgoing()
        self._timer = self._loop.call_later(self._tick_s, self.tick)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the connection."""
        reason = self._reason or self._why_lost(error) or "the broker closed the connection"
        if isinstance(error, ssl.SSLError):
            self.fault = TLS_FAULT
        self._transport = None
        self._connection.drop_unread()
        if self._timer is not None:
            self._timer.cancel()
        if not self.greeted.done():
            self.greeted.set_exception(ProtocolError(reason))
            self.greeted.exception()  # Retrieved: the caller may have given up already.
        self.ended = reason
        self._closed.set()
        self._on_lost(reason)

    def tick(self) -> None:
        """Checks whether the broker is silent, repeatedly."""
        self._timer = self._loop.call_later(self._tick_s, self.tick)
        super().tick()

    def _handle(self, frame: Frame) -> None:
        if type(frame) not in OF_CONNECTION:
            self._on_frame(frame)
            return
        match frame:
            case Hello():
                if not self.greeted.done():
                    self.greeted.set_result(None)
            case Failure():
                self.fault = frame.code
                self._hang_up(f"the broker reports: {frame.reason}")
            case Goodbye():
                self._hang_up(frame.reason or "the broker said goodbye")

    def end(self, error: FrameError) -> None:
        """Sends the broker its fault, and closes."""
        what = "of another version" if error.code == "version" else "not a broker, or a faulty one"
        self._reason = self._reason or f"{what}: {error}"
        super().end(error)

    def _hang_up(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._close_transport()

    def _flush(self) -> None:
        self._flush_due = False
        self._write_outgoing()


def describe_os_error(error: OSError) -> str:
    """Returns the reason of a failed connection, or why a port cannot be used, as a sentence."""
    if isinstance(error, ssl.SSLError):
        return describe_tls_error(error)
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror})"
    if error.errno == errno.EADDRINUSE:
        return "another program listens there; choose another port, or 0 for a free one"
    # A host with several addresses has one text with all errors.
    refused = str(error).count(f"[Errno {errno.ECONNREFUSED}]")
    if refused and refused == str(error).count("[Errno"):
        return "connection refused: no broker listens there (start one with `contrada serve`)"
    return error.strerror or str(error) or type(error).__name__
