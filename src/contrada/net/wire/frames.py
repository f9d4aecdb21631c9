"""The frames of the wire protocol, and their bytes.

    +------+------+---------+------+-----------------+---------------------------+
    | 0x63 | 0x74 | version | kind | length (32 bit) | payload: msgpack array    |
    +------+------+---------+------+-----------------+---------------------------+

A payload has the fields of its kind in order; a receiver ignores fields that a later version
appends. A Request carries a message of `routing.router_messages`; values for one hop are fields of
the frame. Notifications and filters are the bytes of `model.codec`, so a broker forwards the bytes
of the publisher unchanged. docs/protocol.md describes all of it for other languages.

A client sends Hello, Request, Credit, AboutQuestions, StatisticsRequest, InspectRequest and
LogRequest. A broker sends it Hello, Reply, Delivery, MatchDelivery, Offers, QuestionDelivery,
AboutQuestions, StatisticsReply, InspectReply, LogReply and LogDelivery, and a neighbour Hop,
HopPart, HopCredit and LogHop. All send Ping, Pong, Goodbye and Failure.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from contrada.errors import FrameError, LimitError
from contrada.model import Notification
from contrada.model.codec import few_reader
from contrada.net.wire.inspection import (
    FilterPage,
    ForestPosition,
    Inspection,
    LinkArrival,
    Position,
    StoryNames,
)
from contrada.net.wire.payload_codec import PackedMatch

VERSION: Final = 2
MAGIC: Final = b"ct"
FRAME_BYTES_MAX: Final = 16 * 2**20
"""Bytes of a frame's payload. Beyond it: the peer gets a Failure, and is closed."""

HELLO_BYTES_MAX: Final = 2**16
"""Bytes of the first frame, a Hello. Beyond it: the peer gets a Failure, and is closed."""

_TLS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake."""

_HEADER: Final = struct.Struct(">2sBBI")
_HEAD_AND_LENGTH: Final = struct.Struct(">4sI")
HEADER_BYTES: Final = _HEADER.size
_KIND_AT: Final = 3
_LENGTH_BYTES: Final = 4


_NOTHING: Final = msgspec.Raw(b"\xc0")


class Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The root of all frames."""


F = TypeVar("F", bound=Frame)


class Hello(Frame, frozen=True):
    """The first frame of each side: role, capabilities, and a token that identifies the user."""

    role: str
    software: str = ""
    capabilities: dict[str, int | str | bool] = {}
    token: str = ""


class Goodbye(Frame, frozen=True):
    """Closes in order; nothing follows."""

    reason: str = ""


class Failure(Frame, frozen=True):
    """Closes after a fault of the other side."""

    code: str
    reason: str


class Ping(Frame, frozen=True):
    """Asks for a Pong with the same token."""

    token: int


class Pong(Frame, frozen=True):
    """Answers a Ping."""

    token: int


class Request(Frame, frozen=True):
    """A message to the broker, answered by a Reply with its number.

    `credit` is the first credit of a subscription, and `when_full` its policy for a full queue, by
    default `block`. A publication may wait `wait_ms` for slow readers.
    """

    number: int
    message: msgspec.Raw
    credit: int = 0
    wait_ms: int = 0
    when_full: str = ""


class FewPublished(Frame, frozen=True):
    """A `Request` that publishes few plain notifications, which are read in one pass with it.

    Its kind is that of a Request, of `size` bytes with its header; a broker reads it from a user
    with all rights, and none is sent.
    """

    number: int
    wait_ms: int
    notifications: tuple[Notification, ...]
    size: int


class StatisticsRequest(Frame, frozen=True):
    """Asks for the statistics of a broker."""

    number: int


class StatisticsReply(Frame, frozen=True):
    """The answer: the fields of `BrokerStatistics` by name."""

    number: int
    statistics: dict[str, int | dict[str, int]]


class InspectRequest(Frame, frozen=True):
    """Asks for the state of a broker, and for the route of a notification.

    The notification is a client's, or one of `arrival`. With `page_from` it asks for a page of
    exported filters, see `net.broker.inspector`, with `forest_from` for a part of the forest of
    filters, with `story` for the transitions of a notification, subscription or log with one of
    these names. It is answered by an InspectReply with its number, or by a Reply that refuses it.
    """

    number: int
    notification: bytes = b""
    page_from: Position | None = None
    arrival: LinkArrival | None = None
    forest_from: ForestPosition | None = None
    story: StoryNames = ()


class InspectReply(Frame, frozen=True):
    """The answer: an inspection; or a page, with an inspection that has only the name."""

    number: int
    held: Inspection
    page: FilterPage | None = None


class Reply(Frame, frozen=True):
    """Answers a request; with a code it was refused, and the connection stays.

    `dropped` counts lost pairs or notifications; at the end of a subscription, `expired` counts
    expired ones. Of a publication, the notifications at the positions `refused` were not permitted;
    one beyond a rate may succeed after `retry_in_s`.
    """

    number: int
    dropped: int = 0
    code: str = ""
    reason: str = ""
    expired: int = 0
    refused: list[int] = []
    retry_in_s: int = 0


class Delivery(Frame, frozen=True):
    """Notifications for a subscription, with its total of `dropped` and `expired` ones.

    If undecided, the broker could not afford to decide whether all of them match.
    """

    subscription: str
    dropped: int
    notifications: list[bytes]
    is_undecided: bool = False
    expired: int = 0


class MatchDelivery(Frame, frozen=True):
    """Matches of a pattern, as `Delivery` has notifications.

    If undecided, the broker could not afford to decide whether all of them match.
    """

    subscription: str
    dropped: int
    matches: list[PackedMatch]
    is_undecided: bool = False
    expired: int = 0


class Credit(Frame, frozen=True):
    """Adds bytes of credit to a subscription."""

    subscription: str
    credit: int


class CutOff(Frame, frozen=True):
    """Ends a subscription of the policy `disconnect` that does not keep up, or for a `reason`.

    `dropped` and `expired` are totals.
    """

    subscription: str
    dropped: int
    expired: int = 0
    reason: str = ""


class Offers(Frame, frozen=True):
    """Advertisements, each with whether it is on offer now or no longer, in order.

    The first ones after `Follow` precede the answer to its request.
    """

    changes: list[tuple[bytes, bool]]


class QuestionDelivery(Frame, frozen=True):
    """An `Ask` for these sources of a client."""

    sources: list[str]
    message: msgspec.Raw


class AboutQuestions(Frame, frozen=True):
    """Messages about queries, in order: `Answer`, `More` and `Cancel`. The frame has no answer.

    They are about the client's own queries, and about those that its sources answer.
    """

    messages: list[msgspec.Raw]


class Hop(Frame, frozen=True):
    """Messages from a broker to a neighbour, in order."""

    messages: list[msgspec.Raw]


class HopPart(Frame, frozen=True):
    """A part of a message to a neighbour that is too long for one frame."""

    data: bytes
    is_last: bool


class HopCredit(Frame, frozen=True):
    """Returns the credit of processed notifications."""

    credit: int
    count: int = 0


class LogRequest(Frame, frozen=True):
    """A durable request; see `net.wire.durable_messages`.

    It is answered by a LogReply with its number once its effects are on stable storage; number 0
    has no answer. `wait_ms` is as in a Request.
    """

    number: int
    message: msgspec.Raw
    wait_ms: int = 0


class LogReply(Frame, frozen=True):
    """Answers a LogRequest; with a code it was refused, and `about` has attributes of the error."""

    number: int
    result: msgspec.Raw = _NOTHING
    code: str = ""
    reason: str = ""
    about: dict[str, int | str | bool] = {}


class LogDelivery(Frame, frozen=True):
    """Records for a reader, or its close."""

    message: msgspec.Raw


class LogHop(Frame, frozen=True):
    """Delivery messages from a broker to a neighbour, in order."""

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
_HEADS: Final = {
    frame_type: MAGIC + bytes((VERSION, number)) for number, frame_type in _KINDS.items()
}
"""The header of each kind, without the length."""

_DECODERS: Final[dict[bytes, "msgspec.msgpack.Decoder[Any]"]] = {
    head: msgspec.msgpack.Decoder(frame_type) for frame_type, head in _HEADS.items()
}
"""By the header without the length: so one look-up checks all of it."""
_DELIVERY_DECODER: Final = _DECODERS[_HEADS[Delivery]]
_VIEWED_BYTES_MIN: Final = 4096
"""Bytes of a Delivery that is decoded where it is. Fewer are copied in less time, and other frames
always: parts of them would keep all that was received with them."""

read_few: Final = few_reader(_HEADS[Request])
"""Reads a frame at a place of a stream as the fields of `FewPublished`; None for another."""

_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """Returns the bytes of a frame. Raises LimitError beyond FRAME_BYTES_MAX."""
    payload = _ENCODER.encode(frame)
    size = len(payload)
    if size > FRAME_BYTES_MAX:
        raise LimitError("FRAME_BYTES_MAX", FRAME_BYTES_MAX, size)
    return _HEADS[type(frame)] + size.to_bytes(_LENGTH_BYTES) + payload


# --- streams ----------------------------------------------------------------------------------

_NONE_BEHIND: Final = b"", 0


class FrameReader:
    """Cuts a stream of bytes into frames, one for each call of `next`."""

    def __init__(self, *, expects_hello: bool = False) -> None:
        self._data: bytes | bytearray = b""
        self._at = 0
        self._behind = _NONE_BEHIND
        """Bytes that follow these, and the place of the next frame in them."""
        self.is_empty = True
        """Whether all received bytes were returned."""
        self.expects_hello = expects_hello
        """Whether only a short first frame is allowed."""
        self.reads_few = False
        """Whether requests to publish few plain notifications are returned as `FewPublished`."""
        self.given_bytes = 0
        """The bytes of the last frame."""

    def __len__(self) -> int:
        """The unread bytes."""
        return len(self._data) - self._at + len(self._behind[0]) - self._behind[1]

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if self.is_empty:  # The usual case: whole frames, and none is copied.
            self._data, self.is_empty = data, not data
            return
        if isinstance(self._data, bytes):
            rest = memoryview(self._data)[self._at :]
            head = b"".join((rest[:HEADER_BYTES], data[: max(HEADER_BYTES - len(rest), 0)]))
            missing = HEADER_BYTES + int.from_bytes(head[-_LENGTH_BYTES:]) - len(rest)
            if len(head) == HEADER_BYTES and 0 < missing <= len(data):
                # As mostly it ends the first frame; the others need no copy.
                self._data, self._at = b"".join((rest, memoryview(data)[:missing])), 0
                if missing < len(data):
                    self._behind = data, missing
                return
            self._data = bytearray(rest) + memoryview(self._behind[0])[self._behind[1] :]
            self._behind = _NONE_BEHIND
        else:
            del self._data[: self._at]  # Cheap: the rest is not moved.
        self._data += data
        self._at = 0

    def next(self) -> Frame | None:
        """Returns the next frame; None until it is complete.

        Raises FrameError at the first fault; the reader is unusable afterwards.
        """
        data, at, frame = self._data, self._at, None
        if self.reads_few and read_few is not None and (few := read_few(data, at)) is not None:
            frame, end = FewPublished(*few), at + few[3]
        else:
            begin = at + HEADER_BYTES
            if len(data) < begin:
                return None
            head, length = _HEAD_AND_LENGTH.unpack_from(data, at)
            decoder = _DECODERS.get(head)
            if decoder is None or length > FRAME_BYTES_MAX or self.expects_hello:
                self._check_header()
            assert decoder is not None, "the header is valid"
            end = begin + length
            if len(data) < end:
                return None
            if isinstance(data, bytearray):  # It has a whole frame, so it does not grow now.
                self._data = bytes(data)
                return self.next()
            is_copied = length < _VIEWED_BYTES_MIN or decoder is not _DELIVERY_DECODER
            try:
                frame = decoder.decode(
                    data[begin:end] if is_copied else memoryview(data)[begin:end]
                )
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                name = _KINDS[data[at + _KIND_AT]].__name__
                raise FrameError("malformed", f"a malformed {name} frame: {error}") from None
        self.given_bytes, self._at = end - at, end
        if end == len(data):
            (self._data, self._at), self._behind = self._behind, _NONE_BEHIND
            self.is_empty = not self._data
        return frame

    def next_of(
        self, frame_type: type[F], is_wanted: Callable[[F], bool] | None = None
    ) -> F | None:
        """Returns the next frame if it is complete, valid, of this class and wanted, together with
        the last one: `given_bytes` are those of both. Else None: `next` returns it, or raises its
        fault.
        """
        data, at, behind, given = self._data, self._at, self._behind, self.given_bytes
        if len(self) < HEADER_BYTES or _KINDS.get(data[at + _KIND_AT]) is not frame_type:
            return None
        try:
            frame = self.next()
        except FrameError:
            frame = None
        if type(frame) is not frame_type or not (is_wanted is None or is_wanted(frame)):
            self._data, self._at, self._behind = data, at, behind
            self.given_bytes, self.is_empty = given, False
            return None
        self.given_bytes += given
        return frame

    def _check_header(self) -> None:
        """Raises FrameError for an invalid header of the next frame."""
        begin = bytes(self._data[self._at : self._at + HEADER_BYTES])
        magic, version, kind, length = _HEADER.unpack(begin)
        if magic != MAGIC:
            hint = "; it speaks TLS, as with contradas://" if magic in _TLS else ""
            reason = f"the bytes {begin!r} begin no Contrada frame{hint}"
            raise FrameError("not contrada", reason)
        if version != VERSION:
            raise FrameError("version", f"protocol version {version}; this side speaks {VERSION}")
        if kind not in _KINDS:
            raise FrameError("unknown kind", f"frame kind {kind} is not known")
        name, most = "FRAME_BYTES_MAX", FRAME_BYTES_MAX
        if self.expects_hello:
            name, most = "HELLO_BYTES_MAX", HELLO_BYTES_MAX
        if length > most:
            raise FrameError("oversized", f"a frame of {length} bytes; at most {name}")
