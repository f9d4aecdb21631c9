"""WebSocket in place of TCP: a transport of asyncio on messages, and a client's way to a broker.

Each message carries any stretch of the bytes, so messages and frames of the protocol do not fit one
another. What stands on it, a `Wire` at both sides, sees what it would see of TCP: bytes in order, a
limit of what is unwritten, reading that pauses, and one end.

    Wire -> write -> unwritten -> Messages.send -> ... -> Messages.receive -> data_received -> Wire

A message is sent when the one before was taken; one is received when the one before was read. So
whoever does not read stops the other side, over all that lies between.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from contrada.net.wire.address import Address

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CARRIED_BYTES_MAX: Final = 2**20
"""Bytes of a message of WebSocket that carries a stretch of a connection. Beyond it: the connection
is ended."""

CARRIED_AT_ONCE_BYTES: Final = 64 * 2**10
"""Bytes of a WebSocket message that this side sends. Beyond it: the rest goes with the next
message."""

CARRIED_AHEAD_MAX: Final = 4
"""WebSocket messages that a client has received and not processed yet. Beyond it: it receives no
more until they are processed."""

CARRIED_CLOSE_WAIT_S: Final = 5.0
"""How long a client waits for the other side to agree that WebSocket is closed. Beyond it: the
connection is cut."""

_WRITE_BUFFER_BYTES: Final = 64 * 2**10
"""As asyncio has it, until somebody says otherwise."""


class Messages(Protocol):
    """What carries messages both ways in order, and is awaited."""

    async def send(self, message: bytes | bytearray) -> None:
        """Returns when there is room for another one. Raises OSError where it is gone."""

    async def receive(self) -> bytes | None:
        """The next one; None when the other side has closed. Raises OSError where it broke."""
        ...

    async def close(self) -> None:
        """Closes in order; what was sent arrives."""

    def cut(self) -> None:
        """Ends it as it is, closed or not."""


class MessageTransport(asyncio.Transport):
    """Carries the bytes of one end of a connection by messages."""

    def __init__(
        self, protocol: asyncio.Protocol, messages: Messages, extra: dict[str, Any]
    ) -> None:
        """`extra` is what `get_extra_info` tells."""
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
        """Tells the end that it is connected, and carries until it is not: then the task is done.

        Whoever cancels the task cuts the connection.
        """
        self._work = asyncio.create_task(self._write()), asyncio.create_task(self._read())
        over = asyncio.create_task(self._end())
        self._protocol.connection_made(self)
        return over

    # --- as a protocol asks for it ------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sent after what was written before, and soon."""
        if self._is_closing:
            return
        self._unwritten += data
        self._to_write.set()
        if len(self._unwritten) > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """What was written and not taken."""
        return len(self._unwritten)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """More than `high` unwritten stops whoever writes, until it is `low`."""
        self._high = _WRITE_BUFFER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Nothing more is received."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Further is received."""
        self._may_read.set()

    def is_closing(self) -> bool:
        """Whether it ends, or has."""
        return self._is_closing

    def close(self) -> None:
        """Ends once all is sent that was written; nothing more is received."""
        self._is_closing = True
        self._to_write.set()
        self._may_read.set()  # The other side's close frame comes behind unread messages.

    def abort(self) -> None:
        """Ends now, whatever is unsent."""
        self._is_closing = True
        for each in self._work:
            each.cancel()

    # --- by messages --------------------------------------------------------------------------

    async def _write(self) -> None:
        while not self._is_closing or self._unwritten:
            await self._to_write.wait()
            self._to_write.clear()
            while stretch := self._unwritten[:CARRIED_AT_ONCE_BYTES]:
                await self._messages.send(stretch)
                del self._unwritten[: len(stretch)]
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
        """Waits until one direction has ended, and ends the other."""
        for each in self._work:
            each.add_done_callback(_fault_of)  # Retrieved, also that of the one that ends last.
        try:
            await asyncio.wait(self._work, return_when=asyncio.FIRST_COMPLETED)
        finally:  # Also where the event loop ends.
            faults = [_fault_of(each) for each in self._work if each.done()]
            fault = next(filter(None, faults), None)
            self.abort()
            self._messages.cut()
            if fault is not None and not isinstance(fault, OSError):
                said = {"message": "a fault of an end of a connection", "exception": fault}
                asyncio.get_running_loop().call_exception_handler(said)
            self._protocol.connection_lost(fault)


def _fault_of(task: "asyncio.Task[None]") -> Exception | None:
    fault = None if task.cancelled() else task.exception()
    return fault if isinstance(fault, Exception) else None


class _DialledMessages:
    """The messages of a connection that this side has made."""

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
    """Connect one end to the broker behind the HTTP port at an address. Raises OSError.

    The environment's proxies are not asked, and no other host is gone to where this one says so.
    """
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    way: dict[str, Any] = {"host": address.host, "port": address.port}  # Said: so no other host.
    if address.is_tls:
        way["ssl"] = tls
    try:
        connection = await connect(
            f"{'wss' if address.is_tls else 'ws'}://{address.place}",
            compression=None,
            proxy=None,
            open_timeout=None,  # Whoever dials bounds that, and asks for signs of life.
            ping_interval=None,
            close_timeout=CARRIED_CLOSE_WAIT_S,
            max_size=CARRIED_BYTES_MAX,
            max_queue=CARRIED_AHEAD_MAX,
            **way,
        )
    except OSError:  # Some of TLS are ValueErrors too.
        raise
    except (WebSocketException, ValueError) as error:
        raise ConnectionError(f"no broker takes WebSocket there: {error}") from None
    of = connection.transport.get_extra_info
    extra = {name: of(name) for name in ("peername", "sockname", "sslcontext", "ssl_object")}
    MessageTransport(protocol, _DialledMessages(connection), extra).start()
