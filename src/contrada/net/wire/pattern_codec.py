"""The wire forms of messages about patterns, and the time and space that brokers give patterns."""

from typing import Final, TypeAlias

from contrada.model import Pattern
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.net.wire.payload_codec import (
    ContentField,
    PackedMatch,
    WireForm,
    content_from,
    decode_match,
    decode_values,
    encode_content,
    encode_match,
    encode_values,
)
from contrada.patterns.pattern_assembly import Piece
from contrada.patterns.runs import PatternLimits
from contrada.routing.delegation import (
    AcceptPattern,
    AskWatermark,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    UnsubscribePattern,
)

PATTERN_SLACK_US: Final = 1_000_000
"""How much later than a larger timestamp a notification may arrive and still take part in patterns,
in microseconds; matches are delivered that much later. Beyond it: it takes part in none,
counted."""

AHEAD_PER_SLACK: Final = 2
"""Divisor of the slack: a timestamp may be that far ahead of a broker's clock. Beyond it: the
notification takes part in no pattern, counted."""

BROKER_PATTERN_LIMITS: Final = PatternLimits(
    pending_max=20_000,
    runs_per_group_max=1_024,
    groups_per_pattern_max=10_000,
    turn_work_max=10_000,
    client_work_max=1_000_000,
    runs_max=100_000,
    combinations_max=64,
    notification_bytes_max=64 * 1024,
)
"""Bounds of the pattern state of a broker. Beyond it: as for `PatternLimits`."""

_WirePiece: TypeAlias = tuple[int, bytes | None, bytes]


def _piece_to_wire(piece: Piece) -> _WirePiece:
    by = None if piece.by is None else encode_values(piece.by)
    return piece.place, by, bytes(to_msgpack(piece.notification))


def _piece_from_wire(data: _WirePiece) -> Piece:
    place, by, notification = data
    values = None if by is None else decode_values(by)
    return Piece(place, values, notification_from_msgpack(notification))


_PIECES: Final = ContentField(
    list[_WirePiece],
    lambda pieces: [*map(_piece_to_wire, pieces)],
    lambda data, _: tuple(map(_piece_from_wire, data)),
)
_MATCHES: Final = ContentField(
    list[PackedMatch],
    lambda matches: [*map(encode_match, matches)],
    lambda data, message: tuple(decode_match(message.identity, each) for each in data),
)

PATTERN_SUBSCRIPTION: Final = WireForm(
    SubscribePattern,
    pattern=ContentField(bytes, encode_content, lambda data, _: content_from(data, Pattern)),
)

PATTERN_FORMS: Final = (
    PATTERN_SUBSCRIPTION,
    WireForm(HandOver, pieces=_PIECES),
    WireForm(ReturnPattern, pieces=_PIECES),
    WireForm(ReportMatches, matches=_MATCHES),
)
"""The messages about patterns with content; they raise EncodingError, LimitError, FrameError."""

PLAIN_PATTERN_MESSAGES: Final = (
    UnsubscribePattern,
    AskWatermark,
    RecallPattern,
    AcceptPattern,
    HandBack,
)
"""The messages about patterns that are encoded as they are."""
