"""The transport over messages behaves like a socket."""

import asyncio
from typing import Any

import pytest

from contrada.errors import AddressError, MissingRequirementError
from contrada.net.wire import address
from contrada.net.wire.address import Address, parse_address, parse_addresses, shown_addresses
from contrada.net.wire.websocket import CARRIED_AT_ONCE_BYTES, MessageTransport
from tests.asynchronous import on_loop


class Line:
    """Messages that the test takes and gives."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(0)
        self.sent: list[bytes] = []
        self.given: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.ends: list[str] = []

    async def send(self, message: bytes | bytearray) -> None:
        await self.room.acquire()
        self.sent.append(bytes(message))

    async def receive(self) -> bytes | None:
        given = await self.given.get()
        if isinstance(given, Exception):
            raise given
        return given

    async def close(self) -> None:
        while not self.given.empty():  # The other side agrees behind all that it has sent.
            await asyncio.sleep(0)
        self.ends.append("closed")

    def cut(self) -> None:
        self.ends.append("cut")


class Noting(asyncio.Protocol):
    """A protocol that notes its callbacks."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def data_received(self, data: bytes) -> None:
        if data == b"fault":
            raise ZeroDivisionError
        self.told.append(data)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def begun() -> tuple[Line, Noting, MessageTransport, "asyncio.Task[None]"]:
    line, end = Line(), Noting()
    transport = MessageTransport(end, line, {"peername": "there"})
    return line, end, transport, transport.start()


@on_loop
async def test_writes_wait_for_room() -> None:
    """Unsent bytes for a slow reader would pile up, or count as read."""
    line, end, transport, over = begun()
    transport.set_write_buffer_limits(high=100, low=20)
    transport.write(b"a" * 90)
    await turns()
    assert not end.told
    assert transport.get_write_buffer_size() == 90
    transport.write(b"b" * CARRIED_AT_ONCE_BYTES)
    assert end.told == ["pause"]
    line.room.release()
    await turns()
    assert end.told == ["pause"]
    transport.close()
    transport.write(b"late")
    for _ in range(2):
        line.room.release()
        await turns()
    assert line.sent == [b"a" * 90, b"b" * CARRIED_AT_ONCE_BYTES]
    await over
    assert end.told == ["pause", "resume", None]
    assert line.ends == ["closed", "cut"]


@on_loop
async def test_nothing_is_read_while_reading_pauses() -> None:
    """A broker that has no turn left for one would take all that it sends."""
    line, end, transport, over = begun()
    transport.pause_reading()
    for each in (b"a", b"b"):
        line.given.put_nowait(each)
    await turns()
    assert not end.told
    assert line.given.qsize() == 1
    transport.resume_reading()
    await turns()
    assert end.told == [b"a", b"b"]
    transport.pause_reading()
    for _ in range(3):
        line.given.put_nowait(b"late")
    transport.close()
    async with asyncio.timeout(5):
        await over
    assert end.told == [b"a", b"b", None]


@pytest.mark.parametrize("fault", [None, ConnectionError("broke")])
@on_loop
async def test_the_end_of_the_connection_is_reported_once(fault: Exception | None) -> None:
    """A client would wait for a lost peer, or not learn the reason."""
    line, end, transport, over = begun()
    transport.write(b"unsent")
    line.given.put_nowait(fault)
    await over
    assert end.told == [fault]
    assert transport.is_closing()
    assert line.ends == ["cut"]


@on_loop
async def test_aborting_and_cancelling_end_at_once() -> None:
    """A blocked write would keep the connection."""
    for stop in (lambda t, _: t.abort(), lambda _, over: over.cancel()):
        line, end, transport, over = begun()
        transport.write(b"unsent")
        await turns()
        stop(transport, over)
        await asyncio.wait([over])
        assert end.told == [None]
        assert (line.sent, line.ends) == ([], ["cut"])


@on_loop
async def test_a_fault_of_the_end_is_reported_and_ends_it() -> None:
    """A fault of the broker would leave a connection that nobody serves, and no trace."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said))
    line, end, _, over = begun()
    line.given.put_nowait(b"fault")
    await over
    assert isinstance(end.told[0], ZeroDivisionError)
    assert [each["exception"] for each in reported] == end.told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contrada+ws://desk", Address("desk", 80, path="/contrada")),
        ("contrada+ws://[::1]:9000/", Address("::1", 9000, path="/contrada")),
        ("contrada+wss://desk/a/b", Address("desk", 443, is_tls=True, path="/a/b")),
    ],
)
def test_addresses_of_websocket_are_read(text: str, expected: Address) -> None:
    """A client would connect elsewhere, or by another way."""
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


def test_equivalent_transports_are_interchangeable() -> None:
    """A client without TCP would have no alternative."""
    found = parse_addresses("contrada+ws://a,b:81/c,contrada://d,e")
    assert [str(each) for each in found] == [
        "contrada+ws://a:80/contrada",
        "contrada+ws://b:81/c",
        "contrada://d:7655",
        "contrada+ws://e:80/contrada",
    ]
    assert parse_addresses(shown_addresses(found)) == found


@pytest.mark.parametrize("end", ["?a=1", "#b", "/ä", "/a b", ":0", ":", "/a,b c"])
def test_invalid_websocket_addresses_are_refused(end: str) -> None:
    """It would end in a strange error of a library."""
    with pytest.raises(AddressError):
        parse_address(f"contrada+ws://desk{end}")


def test_a_missing_library_gives_installation_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link would be tried for ever, with an error of an import."""
    monkeypatch.setattr(address, "find_spec", lambda _: None)
    with pytest.raises(MissingRequirementError, match=r"pip install 'contrada\[http\]'"):
        parse_address("contrada+ws://desk")
    assert parse_address("contrada://desk") == Address("desk")
