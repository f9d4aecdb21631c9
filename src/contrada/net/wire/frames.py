"""The frames of the wire protocol, and their bytes.

    +------+------+---------+------+-----------------+---------------------------+
    | 0x63 | 0x74 | version | kind | length (32 bit) | payload: msgpack array    |
    +------+------+---------+------+-----------------+---------------------------+

A payload is the fields of its kind in order; a receiver ignores fields that a later version
appends. What is asked for is a message of `routing.router_messages`, in a Request; what belongs to
one hop stands in the frame beside it. Notifications and filters travel in it as the bytes of
`model.codec`, so that a broker forwards what the publisher sent, unchanged. docs/protocol.md tells
all of it to other languages.

Who sends what: a client Hello, Request, Credit, AboutQuestions, StatisticsRequest, InspectRequest,
LogRequest; a broker Hello, Reply, Delivery, MatchDelivery, Offers, QuestionDelivery,
AboutQuestions, StatisticsReply, InspectReply, LogReply, LogDelivery to it, and Hop, HopPart,
HopCredit, LogHop to a neighbour; all Ping, Pong, Goodbye, Failure.
"""

import struct
from typing import Any, Final

import msgspec

from contrada.errors import FrameError, LimitError
from contrada.net.wire.inspection import FilterPage, Inspection, Position
from contrada.net.wire.payload_codec import PackedMatch

VERSION: Final = 2
MAGIC: Final = b"ct"
FRAME_BYTES_MAX: Final = 16 * 2**20
"""Bytes of a frame's payload. Beyond it: the peer is told and closed."""

HELLO_BYTES_MAX: Final = 2**16
"""Bytes of the first frame, a Hello. Beyond it: the peer is told and closed."""

_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake of TLS begin."""

_HEADER: Final = struct.Struct(">2sBBI")
HEADER_BYTES: Final = _HEADER.size


_NOTHING: Final = msgspec.Raw(b"\xc0")


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The root of all frames."""


class Hello(Frame, frozen=True):
    """The first frame of each side: who speaks and what it can do; a token shows whose it is."""

    role: str
    software: str = ""
    capabilities: dict[str, int | str | bool] = {}
    token: str = ""


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


class Request(Frame, frozen=True):
    """A message to the broker; it is answered by a Reply with its number.

    `credit` bytes may be delivered for a subscription before more is granted, and `when_full` says
    what becomes of what finds no room; nothing is `block`. Of what is published the broker may wait
    `wait_ms` for a reader that reads nothing.
    """

    number: int
    message: msgspec.Raw
    credit: int = 0
    wait_ms: int = 0
    when_full: str = ""


class StatisticsRequest(Frame, frozen=True):
    """Asks a broker what it did so far."""

    number: int


class StatisticsReply(Frame, frozen=True):
    """The answer: the fields of `BrokerStatistics` by name."""

    number: int
    statistics: dict[str, int | dict[str, int]]


class InspectRequest(Frame, frozen=True):
    """Asks a broker what it holds, and where a notification would go, if there is one.

    With `page_from` for a page of what its clients ask for instead, see
    `net.wire.subscription_pages`. It is answered by an InspectReply with its number, or, where it
    is refused, by a Reply.
    """

    number: int
    notification: bytes = b""
    page_from: Position | None = None


class InspectReply(Frame, frozen=True):
    """The answer: what it holds, the first of each; or a page alone, and of that only the name."""

    number: int
    held: Inspection
    page: FilterPage | None = None


class Reply(Frame, frozen=True):
    """A request was carried out, or with a code nothing of it: the connection stays.

    `dropped` pairs or notifications were lost by it; where a subscription ends, `expired` had no
    time left. Of what was published those at the positions `refused` may not be; the rest was.
    """

    number: int
    dropped: int = 0
    code: str = ""
    reason: str = ""
    expired: int = 0
    refused: list[int] = []


class Delivery(Frame, frozen=True):
    """Notifications for a subscription; so far `dropped` found no room there, `expired` no time.

    Where they are undecided the broker could not afford to decide whether all of them match.
    """

    subscription: str
    dropped: int
    notifications: list[bytes]
    is_undecided: bool = False
    expired: int = 0


class MatchDelivery(Frame, frozen=True):
    """Matches of a pattern, as `Delivery` is of notifications.

    Where one is undecided the broker could not afford to decide whether all of them match.
    """

    subscription: str
    dropped: int
    matches: list[PackedMatch]
    is_undecided: bool = False
    expired: int = 0


class Credit(Frame, frozen=True):
    """So many more bytes may be delivered for a subscription."""

    subscription: str
    credit: int


class CutOff(Frame, frozen=True):
    """A subscription has ended, since it was to end when it does not keep up.

    In all `dropped` found no room there, `expired` no time.
    """

    subscription: str
    dropped: int
    expired: int = 0


class Offers(Frame, frozen=True):
    """Advertisements, each with whether it is on offer now or no longer, in order.

    What is on offer when a client begins to follow comes before the answer to its request.
    """

    changes: list[tuple[bytes, bool]]


class QuestionDelivery(Frame, frozen=True):
    """A question to these of a client's sources: an `Ask`."""

    sources: list[str]
    message: msgspec.Raw


class AboutQuestions(Frame, frozen=True):
    """Messages about questions, in order: `Answer`, `More` and `Cancel`. The frame is not answered.

    A client sends it about its own questions and about those that its sources answer; its broker
    does the same.
    """

    messages: list[msgspec.Raw]


class Hop(Frame, frozen=True):
    """Messages from a broker to a neighbour of it, in order."""

    messages: list[msgspec.Raw]


class HopPart(Frame, frozen=True):
    """A part of a message to a neighbour that is too long for one frame; the last one says so."""

    data: bytes
    is_last: bool


class HopCredit(Frame, frozen=True):
    """So many notifications were worked off; as many bytes may be sent over the link."""

    credit: int
    count: int = 0


class LogRequest(Frame, frozen=True):
    """A client asks for something that is promised; see `net.wire.durable_messages`.

    It is answered by a LogReply with its number, once what was asked for is done and on stable
    storage; one of number 0 is not answered. `wait_ms` is as in a Request.
    """

    number: int
    message: msgspec.Raw
    wait_ms: int = 0


class LogReply(Frame, frozen=True):
    """The answer to a LogRequest; with a code it was refused, for what `about` says."""

    number: int
    result: msgspec.Raw = _NOTHING
    code: str = ""
    reason: str = ""
    about: dict[str, int | str | bool] = {}


class LogDelivery(Frame, frozen=True):
    """Records for a reader, or why it gets no more."""

    message: msgspec.Raw


class LogHop(Frame, frozen=True):
    """What a broker says to a neighbour so that delivery can be promised, in order."""

    messages: list[msgspec.Raw]


_KINDS: Final[dict[int, type[Frame]]] = {
    1: Hello,
    2: Goodbye,
    3: Failure,
    4: Ping,
    5: Pong,
    16: Request,
    17: Credit,
    18: StatisticsRequest,
    19: Hop,
    20: HopCredit,
    21: HopPart,
    22: InspectRequest,
    23: AboutQuestions,
    24: LogRequest,
    25: LogHop,
    32: Reply,
    33: Delivery,
    34: StatisticsReply,
    35: Offers,
    36: MatchDelivery,
    37: InspectReply,
    38: CutOff,
    39: QuestionDelivery,
    40: LogReply,
    41: LogDelivery,
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


# --- streams ----------------------------------------------------------------------------------


class FrameReader:
    """Cuts a stream of bytes into frames, one when asked for it; holds what was not asked for."""

    def __init__(self, *, expects_hello: bool = False) -> None:
        self._pending = bytearray()
        self.expects_hello = expects_hello
        """Whether only something short may come."""
        self.given_bytes = 0
        """The bytes of the frame that was given last."""

    def __len__(self) -> int:
        """The bytes that it holds."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        self._pending += data

    def next(self) -> Frame | None:
        """The next frame; None until all of it has come.

        Raises FrameError at the first fault; the reader is of no use afterwards.
        """
        pending = self._pending
        if len(pending) < HEADER_BYTES:
            return None
        kind, length = self._header(pending)
        end = HEADER_BYTES + length
        if len(pending) < end:
            return None
        with memoryview(pending) as view:
            # Bytes of their own: what is left raw in a frame refers to them.
            payload = bytes(view[HEADER_BYTES:end])
        del pending[:end]  # Cheap: what is left stays where it is.
        self.given_bytes = end
        return _decode(kind, payload)

    def _header(self, pending: bytearray) -> tuple[int, int]:
        magic, version, kind, length = _HEADER.unpack_from(pending)
        if magic != MAGIC:
            begin = bytes(pending[:HEADER_BYTES])
            hint = "; it speaks TLS, as with contradas://" if begin[:2] in _TLS else ""
            reason = f"the bytes {begin!r} begin no Contrada frame{hint}"
            raise FrameError("not contrada", reason)
        if version != VERSION:
            raise FrameError("version", f"protocol version {version}; this side speaks {VERSION}")
        if kind not in _KINDS:
            raise FrameError("unknown kind", f"frame kind {kind} is not known")
        if length > (HELLO_BYTES_MAX if self.expects_hello else FRAME_BYTES_MAX):
            most = f"at most {'HELLO' if self.expects_hello else 'FRAME'}_BYTES_MAX"
            raise FrameError("oversized", f"a frame of {length} bytes; {most}")
        return kind, length


def _decode(kind: int, payload: bytes) -> Frame:
    try:
        return _DECODERS[kind].decode(payload)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = _KINDS[kind].__name__
        raise FrameError("malformed", f"a malformed {name} frame: {error}") from None
