"""The frames of the wire protocol, and their bytes.

    +------+------+---------+------+-----------------+---------------------------+
    | 0x63 | 0x74 | version | kind | length (32 bit) | payload: msgpack array    |
    +------+------+---------+------+-----------------+---------------------------+

A payload is the fields of its kind in order; a receiver ignores fields that a later version
appends. Notifications and filters travel as the bytes of `model.encoding`, apart from the
hop-by-hop fields around them, so that a broker forwards what the publisher sent, unchanged.

Who sends what: a client Hello, Subscribe, Unsubscribe, Publish, Credit; a broker Hello, Done,
Refused, Deliver; both Ping, Pong, Goodbye, Failure.
"""

import struct
from typing import Any, Final

import msgspec

from contrada.errors import FrameError, LimitError

VERSION: Final = 1
MAGIC: Final = b"ct"
FRAME_BYTES_MAX: Final = 16 * 2**20
"""Bytes of a frame's payload. Beyond it: the peer is told and closed."""

CONTENT_BYTES_MAX: Final = 8 * 2**20
"""Bytes of one notification, or of the filters of one subscription. Beyond it: a LimitError, or it
is refused."""

_HEADER: Final = struct.Struct(">2sBBI")
HEADER_BYTES: Final = _HEADER.size


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The root of all frames."""


class Hello(Frame, frozen=True):
    """The first frame of each side: who speaks, and what it can do."""

    role: str
    software: str = ""
    capabilities: dict[str, int | str | bool] = {}


class Goodbye(Frame, frozen=True):
    """The sender closes in order; nothing follows."""

    reason: str = ""


class Failure(Frame, frozen=True):
    """The other side broke the protocol; the sender closes."""

    code: str
    reason: str


class Ping(Frame, frozen=True):
    """Asks for a Pong with the same token."""

    token: int


class Pong(Frame, frozen=True):
    """The answer to a Ping."""

    token: int


class Subscribe(Frame, frozen=True):
    """Put a subscription in force; `credit` bytes may be delivered before more is granted."""

    request: int
    subscription: int
    filters: bytes
    credit: int


class Unsubscribe(Frame, frozen=True):
    """Take a subscription out; after the answer nothing is delivered for it."""

    request: int
    subscription: int


class Publish(Frame, frozen=True):
    """Notifications in order; the broker may wait `wait_ms` for a reader that reads nothing."""

    request: int
    wait_ms: int
    notifications: list[bytes]


class Done(Frame, frozen=True):
    """A request was carried out; `dropped` pairs or notifications were lost by it."""

    request: int
    dropped: int = 0


class Refused(Frame, frozen=True):
    """A request was not carried out, and nothing of it; the connection stays."""

    request: int
    code: str
    reason: str


class Deliver(Frame, frozen=True):
    """Notifications for a subscription; `dropped` is how many the broker lost for it so far."""

    subscription: int
    dropped: int
    notifications: list[bytes]


class Credit(Frame, frozen=True):
    """So many more bytes may be delivered for a subscription."""

    subscription: int
    credit: int


_KINDS: Final[dict[int, type[Frame]]] = {
    1: Hello,
    2: Goodbye,
    3: Failure,
    4: Ping,
    5: Pong,
    16: Subscribe,
    17: Unsubscribe,
    18: Publish,
    19: Credit,
    32: Done,
    33: Refused,
    34: Deliver,
}
_NUMBERS: Final = {frame_type: number for number, frame_type in _KINDS.items()}
_DECODERS: Final[dict[int, "msgspec.msgpack.Decoder[Any]"]] = {
    number: msgspec.msgpack.Decoder(frame_type) for number, frame_type in _KINDS.items()
}
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises LimitError when they are longer than FRAME_BYTES_MAX."""
    payload = _ENCODER.encode(frame)
    if len(payload) > FRAME_BYTES_MAX:
        raise LimitError("FRAME_BYTES_MAX", FRAME_BYTES_MAX, len(payload))
    return _HEADER.pack(MAGIC, VERSION, _NUMBERS[type(frame)], len(payload)) + payload


def checked_content(data: bytes) -> bytes:
    """The encoding itself when a frame can carry it, also beside others."""
    if len(data) > CONTENT_BYTES_MAX:
        raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, len(data))
    return data


class FrameReader:
    """Cuts a stream of bytes into frames; holds at most one unfinished frame."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete.

        Raises FrameError at the first fault; the reader is of no use afterwards.
        """
        pending = self._pending
        pending += data
        frames: list[Frame] = []
        start = 0
        with memoryview(pending) as view:
            while len(pending) - start >= HEADER_BYTES:
                kind, length = self._header(view[start : start + HEADER_BYTES])
                end = start + HEADER_BYTES + length
                if end > len(pending):
                    break
                frames.append(_decode(kind, view[start + HEADER_BYTES : end]))
                start = end
        del pending[:start]
        return frames

    def _header(self, header: memoryview) -> tuple[int, int]:
        magic, version, kind, length = _HEADER.unpack(header)
        if magic != MAGIC:
            raise FrameError("not contrada", f"the bytes {bytes(header)!r} begin no Contrada frame")
        if version != VERSION:
            raise FrameError("version", f"protocol version {version}; this side speaks {VERSION}")
        if kind not in _KINDS:
            raise FrameError("unknown kind", f"frame kind {kind} is not known")
        if length > self._frame_bytes_max:
            raise FrameError(
                "oversized",
                f"a frame of {length} bytes; at most FRAME_BYTES_MAX = {self._frame_bytes_max}",
            )
        return kind, length


def _decode(kind: int, payload: memoryview) -> Frame:
    try:
        return _DECODERS[kind].decode(payload)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError) as error:
        name = _KINDS[kind].__name__
        raise FrameError("malformed", f"a malformed {name} frame: {error}") from None
