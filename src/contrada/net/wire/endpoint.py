"""A `Connection` on an asyncio transport: what both ends have in common, and a client's end."""

import asyncio
import errno
import socket
import ssl
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, cast

from contrada.errors import FrameError, ProtocolError
from contrada.net.wire.address import Address
from contrada.net.wire.connection import (
    BROKER,
    PUBLISHER,
    USUAL_LIVENESS,
    Connection,
    LivenessLimits,
    Phase,
)
from contrada.net.wire.frames import Failure, Frame, Goodbye, Hello
from contrada.net.wire.tls import TLS_FAULT, describe_hang_up, describe_tls_error
from contrada.net.wire.websocket import dial_websocket


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How a client connects to its broker, and shows who it is.

    `tls` is for addresses over TLS; `token` shows the user. `reach`, if given, connects the
    protocol instead of TCP.
    """

    tls: ssl.SSLContext | None = None
    token: str = field(default="", repr=False)
    reach: Callable[[asyncio.Protocol], Awaitable[None]] | None = None


TCP: Final = ConnectOptions()


async def dial(protocol: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None) -> None:
    """Connect one end to the broker at an address. Raises OSError.

    Whatever carries bytes both ways in order may stand here in place of TCP, for other schemes of
    addresses; at the other side it meets `Broker.arrival`. A transport has to offer what `Wire` and
    `ServerConnection` ask of it: write, close and abort, reading that pauses, how much is unwritten
    and the limits of that, and `get_extra_info`.
    """
    if address.path:
        await dial_websocket(protocol, address, tls)
        return
    loop = asyncio.get_running_loop()
    await loop.create_connection(
        lambda: protocol, address.host, address.port, ssl=tls if address.is_tls else None
    )


class Wire(asyncio.Protocol):
    """One end of a connection; the event loop calls it."""

    def __init__(
        self, hello: Hello, peer_roles: tuple[str, ...], liveness: LivenessLimits = USUAL_LIVENESS
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(hello, peer_roles, self._loop.time(), liveness)
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """What carries it; only while it is connected."""
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)  # Of whatever loop.

    def data_received(self, data: bytes) -> None:
        """Bytes from the other side."""
        self._connection.receive(data, self._loop.time())
        self._process()

    def _process(self) -> None:
        """Do what has come."""
        try:
            while (frame := self._connection.next()) is not None:
                self._handle(frame)
        except FrameError as error:
            self._end(error)
        self._write_outgoing()

    def tick(self) -> None:
        """Look whether the other side is still alive."""
        try:
            self._connection.tick(self._loop.time())
        except FrameError as error:
            self._end(error)
        self._write_outgoing()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def _why_lost(self, error: Exception | None) -> str:
        """Why the connection has ended, where this side knows or can guess."""
        if error is not None:
            broke = describe_os_error(error) if isinstance(error, OSError) else str(error)
            return f"the connection broke: {broke}"
        if self._connection.peer is None and self._transport is not None:
            return describe_hang_up(is_tls=self._transport.get_extra_info("sslcontext") is not None)
        return ""

    @abstractmethod
    def _handle(self, frame: Frame) -> None:
        """Do what a frame asks for."""

    def _end(self, error: FrameError) -> None:
        """Send the other side the error that it made, and close."""
        if self._connection.state is not Phase.CLOSED:
            self._connection.fail(error)
        self._close_transport()

    def _close_transport(self) -> None:
        self._write_outgoing()
        if self._transport is not None:
            self._transport.close()

    def _write_outgoing(self) -> None:
        data = self._connection.outgoing()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class ClientWire(Wire):
    """Sends frames to a broker and hands on the ones that come back.

    `on_lost` is called once, with the reason, when the connection has ended.
    """

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
        """Done when the broker has said hello; fails with ProtocolError when it will not."""
        self.ended: str | None = None
        """Why it has ended; None while it has not."""
        self.fault = ""
        """By which name the broker has ended it, or TLS_FAULT."""

    @property
    def told(self) -> str:
        """Below which name the broker says that this side may publish; empty where it does not."""
        hello = self._connection.peer
        name = None if hello is None else hello.capabilities.get(PUBLISHER)
        return name if isinstance(name, str) else ""

    def send(self, frame: Frame) -> None:
        """Send a frame at the end of this turn of the loop; nothing once it has ended."""
        self._connection.send(frame)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._write_outgoing)

    def send_now(self, frame: Frame) -> None:
        """Send a frame, and all that waits for the end of this turn, now."""
        self._connection.send(frame)
        super()._write_outgoing()

    async def close(self) -> None:
        """Say goodbye, close, and wait until it is closed. Twice is once."""
        if self._transport is None:
            return
        self._reason = "closed by this side"
        self._connection.close()
        self._close_transport()
        try:
            async with asyncio.timeout(self._goodbye_wait_s):
                await self._closed.wait()
        except TimeoutError:  # It does not read its last bytes.
            return
        finally:  # Also where whoever closes is cancelled.
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected; say hello."""
        super().connection_made(transport)
        self._connection.greet()
        self._write_outgoing()
        self._timer = self._loop.call_later(self._tick_s, self.tick)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, in order or not."""
        reason = self._reason or self._why_lost(error) or "the broker closed the connection"
        if isinstance(error, ssl.SSLError):
            self.fault = TLS_FAULT
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.greeted.done():
            self.greeted.set_exception(ProtocolError(reason))
            self.greeted.exception()  # Seen: whoever connects may have given up already.
        self.ended = reason
        self._closed.set()
        self._on_lost(reason)

    def tick(self) -> None:
        """Look whether the broker is still alive, and again after a while."""
        self._timer = self._loop.call_later(self._tick_s, self.tick)
        if self._connection.state is Phase.CLOSED:
            self.abort()  # The broker had its time to take what was written to it.
        super().tick()

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Hello():
                if not self.greeted.done():
                    self.greeted.set_result(None)
            case Failure():
                self.fault = frame.code
                self._hang_up(f"the broker reports: {frame.reason}")
            case Goodbye():
                self._hang_up(frame.reason or "the broker said goodbye")
            case _:
                self._on_frame(frame)

    def _end(self, error: FrameError) -> None:
        what = "of another version" if error.code == "version" else "not a broker, or a faulty one"
        self._reason = self._reason or f"{what}: {error}"
        super()._end(error)

    def _hang_up(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._close_transport()

    def _write_outgoing(self) -> None:
        self._flush_due = False
        super()._write_outgoing()


def describe_os_error(error: OSError) -> str:
    """Why there is no connection, for a person."""
    if isinstance(error, ssl.SSLError):
        return describe_tls_error(error)
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror})"
    # Of a host with several addresses the errors come together, as text.
    refused = str(error).count(f"[Errno {errno.ECONNREFUSED}]")
    if refused and refused == str(error).count("[Errno"):
        return "connection refused: no broker listens there (start one with `contrada serve`)"
    return error.strerror or str(error) or type(error).__name__
