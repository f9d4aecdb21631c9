"""What brokers and clients say about patterns, as it travels: types say what may stand there."""

from typing import Final, TypeAlias

from contrada.model import Notification
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.net.wire.payload_codec import (
    PackedMatch,
    decode_match,
    decode_values,
    encode_content,
    encode_match,
    encode_values,
    pattern_from,
)
from contrada.patterns.pattern_assembly import Piece
from contrada.patterns.runs import PatternLimits
from contrada.routing.delegation import (
    AcceptPattern,
    AskWatermark,
    HandBack,
    HandOver,
    PatternMessage,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    RouterMessage,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router_messages import VERSION

PATTERN_SLACK_US: Final = 1_000_000
"""How much later than a larger timestamp a notification may come to a broker and take part in
patterns, in microseconds; a match is handed over that much later. Beyond it: it takes part in none,
counted; it is delivered as any other."""

AHEAD_PER_SLACK: Final = 2
"""A timestamp may be ahead of a broker's clock by the slack, divided by this. Beyond it: it takes
part in no pattern, counted."""

BROKER_PATTERN_LIMITS: Final = PatternLimits(
    pending_max=20_000,
    runs_per_group_max=1_024,
    groups_per_pattern_max=10_000,
    runs_max=100_000,
    combinations_max=64,
    notification_bytes_max=64 * 1024,
)
"""What a broker holds for patterns. Beyond it: as for `PatternLimits`."""

_PackedPiece: TypeAlias = tuple[int, bytes | None, bytes]


class PackedPattern(RouterMessage, frozen=True, tag="subscribe pattern"):
    """A `SubscribePattern` as it travels."""

    identity: str
    pattern: bytes
    hops: int = 0
    version: int = VERSION

    def unpacked(self) -> SubscribePattern:
        """The message. Raises EncodingError, LimitError, FrameError."""
        return SubscribePattern(self.identity, pattern_from(self.pattern), self.hops, self.version)


class _PackedHandOver(RouterMessage, frozen=True, tag="hand over"):
    """A `HandOver` as it travels."""

    identity: str
    watermark_us: int
    pieces: list[_PackedPiece]
    version: int = VERSION

    def unpacked(self) -> HandOver:
        """The message. Raises EncodingError."""
        pieces = tuple(map(_piece_from, self.pieces))
        return HandOver(self.identity, self.watermark_us, pieces, self.version)


class _PackedReturn(RouterMessage, frozen=True, tag="return pattern"):
    """A `ReturnPattern` as it travels."""

    identity: str
    watermark_us: int
    pieces: list[_PackedPiece]
    version: int = VERSION

    def unpacked(self) -> ReturnPattern:
        """The message. Raises EncodingError."""
        pieces = tuple(map(_piece_from, self.pieces))
        return ReturnPattern(self.identity, self.watermark_us, pieces, self.version)


class _PackedReport(RouterMessage, frozen=True, tag="report matches"):
    """A `ReportMatches` as it travels."""

    identity: str
    matches: list[PackedMatch]
    watermark_us: int
    waits_us: int | None = None
    version: int = VERSION

    def unpacked(self) -> ReportMatches:
        """The message. Raises EncodingError, LimitError."""
        matches = tuple(decode_match(self.identity, each) for each in self.matches)
        return ReportMatches(self.identity, matches, self.watermark_us, self.waits_us, self.version)


PackedPatternMessage: TypeAlias = PackedPattern | _PackedHandOver | _PackedReturn | _PackedReport

PATTERN_MESSAGES: Final = (
    PackedPatternMessage
    | UnsubscribePattern
    | AskWatermark
    | RecallPattern
    | AcceptPattern
    | HandBack
)
"""What a broker may say to a neighbour of patterns."""


def packed_pattern_message(message: PatternMessage) -> RouterMessage:
    """A message about a pattern as it travels. Raises LimitError for content that is too large."""
    match message:
        case SubscribePattern(identity, pattern, hops, version):
            return PackedPattern(identity, encode_content(pattern), hops, version)
        case HandOver(identity, watermark_us, pieces, version):
            return _PackedHandOver(identity, watermark_us, [*map(_packed_piece, pieces)], version)
        case ReturnPattern(identity, watermark_us, pieces, version):
            return _PackedReturn(identity, watermark_us, [*map(_packed_piece, pieces)], version)
        case ReportMatches(identity, matches, watermark_us, waits_us, version):
            packed = [*map(encode_match, matches)]
            return _PackedReport(identity, packed, watermark_us, waits_us, version)
    return message


def _packed_piece(piece: Piece) -> _PackedPiece:
    by = None if piece.by is None else encode_values(piece.by)
    return piece.place, by, bytes(to_msgpack(piece.notification))


def _piece_from(packed: _PackedPiece) -> Piece:
    place, by, data = packed
    notification: Notification = notification_from_msgpack(data)
    return Piece(place, None if by is None else decode_values(by), notification)
