"""A client written from docs/protocol.md alone, with nothing but the standard library.

It shows the effort for another language: it subscribes with one comparison, publishes, accepts
deliveries within its credit, answers pings and sends a Goodbye. It blocks, for one thread.
"""

import math
import secrets
import socket
import struct
import time
from collections import deque
from typing import Any, Self

CLIENT, HELLO, GOODBYE, FAILURE, PING, PONG = "client", 1, 2, 3, 4, 5
REQUEST, CREDIT, REPLY, DELIVERY = 16, 17, 32, 33
NUMBER = 4
ENTRY_BYTES = 512


# --- msgpack ----------------------------------------------------------------------------------


def pack(value: Any) -> bytes:
    """A value in msgpack, mostly in its long forms."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return struct.pack(">Bq", 0xD3, value)
        case float():
            return struct.pack(">Bd", 0xCB, value)
        case bytes():
            return struct.pack(">BI", 0xC6, len(value)) + value
        case str():
            data = value.encode()
            return struct.pack(">BI", 0xDB, len(data)) + data
        case list():
            return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
        case dict():
            pairs = b"".join(pack(name) + pack(each) for name, each in value.items())
            return struct.pack(">BI", 0xDF, len(value)) + pairs
    raise TypeError(f"{value!r} has no place in msgpack here")


SIZED = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
SIZED |= {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
SHORT = ((0x80, 0x8F, "map"), (0x90, 0x9F, "list"), (0xA0, 0xBF, "text"))


class Unpacking:
    """Bytes of msgpack, read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> Any:
        """The next number of this form."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        """The next value; of the types that this client is sent."""
        first = self.number(">B")
        if first <= 0x7F or first >= 0xE0:
            return first if first <= 0x7F else first - 0x100
        for low, high, kind in SHORT:
            if low <= first <= high:
                return self.sized(kind, first - low)
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in NUMBERS:
            return self.number(NUMBERS[first])
        kinds = {0xC: "bytes", 0xD: "text" if first <= 0xDB else "list" if first <= 0xDD else "map"}
        return self.sized(kinds[first >> 4], self.number(SIZED[first]))

    def sized(self, kind: str, size: int) -> Any:
        """Returns the encoded length of bytes, or of parts."""
        if kind == "list":
            return [self.value() for _ in range(size)]
        if kind == "map":
            return {self.value(): self.value() for _ in range(size)}
        return self.take(size).decode() if kind == "text" else self.take(size)


# --- content ----------------------------------------------------------------------------------


def comparison(name: str, operator: str, number: float) -> bytes:
    """A filter of one comparison of a number below 2 to the 53."""
    before, after = [NUMBER, number], [NUMBER, math.nextafter(number, math.inf)]
    begin, end = [NUMBER], [NUMBER + 1]
    cuts = {
        "<": [begin, before],
        "<=": [begin, after],
        "=": [before, after],
        ">=": [before, end],
        ">": [after, end],
    }[operator]
    return pack([1, "filter", {name: [cuts, None]}])


# --- the connection ---------------------------------------------------------------------------


class ForeignClient:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=10)
        self.publisher, self.published, self.requests = secrets.token_hex(8), 0, 0
        self.replies: dict[int, list[Any]] = {}
        self.delivered: deque[tuple[str, bytes]] = deque()
        self.pongs: list[int] = []
        self.send(HELLO, [CLIENT, "foreign 1", {}])
        kind, hello = self.receive()
        if kind != HELLO:
            raise ConnectionError(f"no hello, but {hello}")
        self.broker = hello

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, kind: int, fields: list[Any]) -> None:
        """One frame."""
        payload = pack(fields)
        self.socket.sendall(struct.pack(">2sBBI", b"ct", 2, kind, len(payload)) + payload)

    def receive(self) -> tuple[int, Any]:
        """The next frame: its kind and its fields."""
        magic, version, kind, length = struct.unpack(">2sBBI", self.read(8))
        if (magic, version) != (b"ct", 2):
            raise ConnectionError(f"another protocol: {magic!r}, version {version}")
        return kind, Unpacking(self.read(length)).value()

    def read(self, size: int) -> bytes:
        """So many bytes from the socket."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def take_frame(self) -> None:
        """Waits for a frame, and handles it."""
        kind, fields = self.receive()
        if kind == PING:
            self.send(PONG, [fields[0]])
        elif kind == PONG:
            self.pongs.append(fields[0])
        elif kind == REPLY:
            self.replies[fields[0]] = fields
        elif kind == DELIVERY:  # Of comparisons a broker is never undecided.
            self.delivered += [(fields[0], each) for each in fields[2]]
        elif kind in (GOODBYE, FAILURE):
            raise ConnectionError(": ".join(fields))

    def request(self, message: list[Any], credit: int = 0, wait_ms: int = 0) -> list[Any]:
        """Asks for something; the answer. Raises ValueError where it is refused."""
        self.requests += 1
        number = self.requests
        self.send(REQUEST, [number, message, credit, wait_ms])
        while number not in self.replies:
            self.take_frame()
        reply = self.replies.pop(number)
        if reply[2]:
            raise ValueError(f"{reply[2]}: {reply[3]}")
        return reply

    def subscribe(self, identity: str, filters: bytes, credit: int) -> None:
        """Adds a subscription, or replaces its filters."""
        self.request(["subscribe", identity, filters], credit)

    def publish(self, attributes: dict[str, Any]) -> int:
        """Publishes one notification; how many subscriptions had no room for it."""
        self.published += 1
        id_, now_us = f"{self.publisher}.{self.published}", time.time_ns() // 1000
        envelope = [id_, self.publisher, self.published, now_us, None, 4, "best-effort"]
        content = pack([1, "notification", [attributes, envelope, b"", ""]])
        dropped: int = self.request(["publish", [content]], wait_ms=5_000)[1]
        return dropped

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next notification: for which subscription, and its attributes. Grants as much."""
        while not self.delivered:
            self.take_frame()
        identity, data = self.delivered.popleft()
        self.send(CREDIT, [identity, ENTRY_BYTES + len(data)])
        _, _, (attributes, *_) = Unpacking(data).value()
        return identity, attributes

    def ping(self, token: int) -> None:
        """Sends a Ping, and waits for its Pong."""
        self.send(PING, [token])
        while token not in self.pongs:
            self.take_frame()

    def goodbye(self) -> None:
        """Sends a Goodbye, and waits until the broker has closed."""
        self.send(GOODBYE, ["done"])
        while self.socket.recv(4096):
            pass
