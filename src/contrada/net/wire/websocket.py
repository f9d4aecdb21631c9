"""`MessageTransport`: an asyncio transport over WebSocket messages, and the dial of a client.

A message carries any piece of the byte stream, so messages and frames are not aligned. The
protocols at both sides see the same as with TCP: ordered bytes, a limited write buffer, pausable
reads, and one end.

    Wire -> write -> unwritten -> Messages.send -> ... -> Messages.receive -> data_received -> Wire

A message is sent after the one before was accepted; one is received after the one before was read.
So a side that does not read stops the other side.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from contrada.net.wire.address import Address

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CARRIED_BYTES_MAX: Final = 2**20
"""Bytes of a WebSocket message. Beyond it: the connection is ended."""

CARRIED_AT_ONCE_BYTES: Final = 64 * 2**10
"""Bytes of a WebSocket message that this side sends. Beyond it: the next message has the rest."""

CARRIED_AHEAD_MAX: Final = 4
"""Received WebSocket messages that a client has not processed. Beyond it: it receives no more until
they are processed."""

CARRIED_CLOSE_WAIT_S: Final = 5.0
"""How long a client waits for the close of WebSocket. Beyond it: the connection is cut."""

_WRITE_BUFFER_BYTES: Final = 64 * 2**10
"""The default of asyncio."""


class Messages(Protocol):
    """A channel of ordered messages in both directions."""

    async def send(self, message: bytes | bytearray) -> None:
        """Sends a message when there is room. Raises OSError after a loss."""

    async def receive(self) -> bytes | None:
        """Returns the next message; None after the close. Raises OSError after a loss."""
        ...

    async def close(self) -> None:
        """Closes after the sent messages."""

    def cut(self) -> None:
        """Ends it at once."""


class MessageTransport(asyncio.Transport):
    """The transport of one end of a connection."""

    def __init__(
        self, protocol: asyncio.Protocol, messages: Messages, extra: dict[str, Any]
    ) -> None:
        """`extra` has the values of `get_extra_info`."""
        super().__init__(extra)
        self._protocol = protocol
        self._messages = messages
        self._unwritten = bytearray()
        self._high, self._low = _WRITE_BUFFER_BYTES, _WRITE_BUFFER_BYTES // 4
        self._is_full = False
        self._is_closing = False
        self._to_write = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._work: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> "asyncio.Task[None]":
        """Connects the protocol. The task ends with the connection; cancelling it cuts it."""
        self._work = asyncio.create_task(self._write()), asyncio.create_task(self._read())
        over = asyncio.create_task(self._end())
        self._protocol.connection_made(self)
        return over

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes to the write buffer."""
        if self._is_closing:
            return
        self._unwritten += data
        self._to_write.set()
        if len(self._unwritten) > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """The bytes in the write buffer."""
        return len(self._unwritten)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the sizes at which writing pauses and resumes."""
        self._high = _WRITE_BUFFER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Pauses receiving."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Resumes receiving."""
        self._may_read.set()

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._is_closing

    def close(self) -> None:
        """Closes after the write buffer is sent; receives nothing more."""
        self._is_closing = True
        self._to_write.set()
        self._may_read.set()  # The close frame of the other side follows unread messages.

    def abort(self) -> None:
        """Ends at once, without unsent bytes."""
        self._is_closing = True
        for each in self._work:
            each.cancel()

    # --- by messages --------------------------------------------------------------------------

    async def _write(self) -> None:
        while not self._is_closing or self._unwritten:
            await self._to_write.wait()
            self._to_write.clear()
            while piece := self._unwritten[:CARRIED_AT_ONCE_BYTES]:
                await self._messages.send(piece)
                del self._unwritten[: len(piece)]
                if self._is_full and len(self._unwritten) <= self._low:
                    self._is_full = False
                    self._protocol.resume_writing()
        await self._messages.close()

    async def _read(self) -> None:
        while (message := await self._messages.receive()) is not None:
            await self._may_read.wait()
            if not self._is_closing:
                self._protocol.data_received(message)

    async def _end(self) -> None:
        """Waits for the end of one direction, and ends the other."""
        for each in self._work:
            # Retrieves the exception, also of the direction that ends last.
            each.add_done_callback(_fault_of)
        try:
            await asyncio.wait(self._work, return_when=asyncio.FIRST_COMPLETED)
        finally:  # Also at the end of the event loop.
            faults = [_fault_of(each) for each in self._work if each.done()]
            fault = next(filter(None, faults), None)
            self.abort()
            self._messages.cut()
            if fault is not None and not isinstance(fault, OSError):
                context = {"message": "a fault of an end of a connection", "exception": fault}
                asyncio.get_running_loop().call_exception_handler(context)
            self._protocol.connection_lost(fault)


def _fault_of(task: "asyncio.Task[None]") -> Exception | None:
    fault = None if task.cancelled() else task.exception()
    return fault if isinstance(fault, Exception) else None


class _DialledMessages:
    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection

    async def send(self, message: bytes | bytearray) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(message)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from None

    async def receive(self) -> bytes | None:
        from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

        try:
            message = await self._connection.recv()
        except ConnectionClosedOK:
            return None
        except ConnectionClosedError as error:
            raise ConnectionError(str(error)) from None
        if isinstance(message, str):
            raise ConnectionError("the other side sent text, expected bytes")
        return message

    async def close(self) -> None:
        await self._connection.close()

    def cut(self) -> None:
        self._connection.transport.abort()


async def dial_websocket(
    protocol: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None
) -> None:
    """Connects to a broker behind an HTTP port, ignoring proxies. Raises OSError."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    # Explicit, so redirects to other hosts fail.
    way: dict[str, Any] = {"host": address.host, "port": address.port}
    if address.is_tls:
        way["ssl"] = tls
    try:
        connection = await connect(
            f"{'wss' if address.is_tls else 'ws'}://{address.place}",
            compression=None,
            proxy=None,
            open_timeout=None,  # The caller bounds the time; the protocol has its own pings.
            ping_interval=None,
            close_timeout=CARRIED_CLOSE_WAIT_S,
            max_size=CARRIED_BYTES_MAX,
            max_queue=CARRIED_AHEAD_MAX,
            **way,
        )
    except OSError:  # Some TLS errors are ValueErrors, too.
        raise
    except (WebSocketException, ValueError) as error:
        raise ConnectionError(f"no broker takes WebSocket there: {error}") from None
    of = connection.transport.get_extra_info
    extra = {name: of(name) for name in ("peername", "sockname", "sslcontext", "ssl_object")}
    MessageTransport(protocol, _DialledMessages(connection), extra).start()
