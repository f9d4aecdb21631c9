"""Messages between servers about delegated patterns, and the phases of a delegation.

A server may delegate a *sub-pattern* to a neighbour: consecutive parts of a pattern whose
notifications all arrive over the link to it. A link keeps the order of messages and notifications:

    asker                                 delegate
    SubscribePattern       ─────────►     collects notifications for the parts
                           ◄─────────     AcceptPattern: earlier ones belong to the asker
    HandOver(pieces)       ─────────►     begins to assemble
                           ◄─────────     ReportMatches(matches, watermark, time of the oldest
                                          waiting piece), also without matches
    AskWatermark(time)     ─────────►     learns the time; reports once its watermark reaches it
                           ◄─────────     HandBack: its tables are full
    RecallPattern          ─────────►     stops
                           ◄─────────     ReturnPattern(pieces): later ones belong to the asker
    UnsubscribePattern     ─────────►     forgets it

So at every moment each notification is collected at one of the two servers, or at both, where its
identity shows the duplicate. None is missed when a split changes.

Source: PODC 2000 §4 (patterns are assembled upstream).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

import msgspec

from contrada.model import Pattern
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Piece

VERSION: Final = 1
"""The version of all messages. A router refuses any other."""


class RouterMessage(msgspec.Struct, frozen=True, array_like=True):
    """The base of all messages; it is encoded as its fields in order, tag first."""


class _PatternNotice(RouterMessage, frozen=True):
    """A message that has only the identity of a pattern."""

    identity: str
    version: int = VERSION


class SubscribePattern(RouterMessage, frozen=True, tag="subscribe pattern"):
    """A subscription to a pattern, or its delegation; `hops` counts delegations, against loops."""

    identity: str
    pattern: Pattern
    hops: int = 0
    version: int = VERSION


class UnsubscribePattern(_PatternNotice, frozen=True, tag="unsubscribe pattern"):
    """The sender withdraws the pattern of this identity."""


class HandOver(RouterMessage, frozen=True, tag="hand over"):
    """The collected pieces of a sub-pattern, complete below the watermark."""

    identity: str
    watermark_us: int
    pieces: tuple[Piece, ...]
    version: int = VERSION


class AskWatermark(RouterMessage, frozen=True, tag="ask watermark"):
    """The sender has learned this timestamp, and waits for the delegate's watermark."""

    identity: str
    time_us: int
    version: int = VERSION


class RecallPattern(_PatternNotice, frozen=True, tag="recall pattern"):
    """The sender assembles a sub-pattern itself again, and asks for its pieces."""


class AcceptPattern(_PatternNotice, frozen=True, tag="accept pattern"):
    """The sender collects notifications for a sub-pattern from now on."""


class ReportMatches(RouterMessage, frozen=True, tag="report matches"):
    """Matches of a sub-pattern, each start with its earliest completion, in order.

    Later reports hold nothing that is complete below the watermark. `waits_us` is the earliest time
    of the pieces that wait for a later timestamp; None without any.
    """

    identity: str
    matches: tuple[Match[str], ...]
    watermark_us: int
    waits_us: int | None = None
    version: int = VERSION


class HandBack(_PatternNotice, frozen=True, tag="hand back"):
    """The sender's tables are full: it asks for a recall."""


class ReturnPattern(RouterMessage, frozen=True, tag="return pattern"):
    """The pieces of a recalled sub-pattern, which the sender has forgotten."""

    identity: str
    watermark_us: int
    pieces: tuple[Piece, ...]
    version: int = VERSION


Demand: TypeAlias = SubscribePattern | UnsubscribePattern | HandOver | AskWatermark | RecallPattern
"""Messages to a delegate."""

DelegateMessage: TypeAlias = AcceptPattern | ReportMatches | HandBack | ReturnPattern
"""Messages from a delegate."""

PatternMessage: TypeAlias = Demand | DelegateMessage


class DelegationPhase(Enum):
    """The progress of a delegation, as each of the two servers sees it.

    asker: a segment                        delegate: the pattern that it was asked for

    OFFERED      collects and assembles     OFFERED       collects
    DELEGATED    waits for reports          DELEGATED     assembles
                                            HANDED_BACK   assembles, and waits for the recall
    RETURNING    collects                   RETURNING     collects, until it has all to return

    A client's pattern is delegated to its server from the beginning. A message without an entry in
    the tables below does not fit, and changes nothing.
    """

    OFFERED = auto()
    DELEGATED = auto()
    HANDED_BACK = auto()
    RETURNING = auto()
    OVER = auto()


Transitions: TypeAlias = Mapping[
    tuple[DelegationPhase, type[Demand | DelegateMessage]], DelegationPhase
]
"""The phase after a message."""

AT_DELEGATE: Final[Transitions] = {
    (DelegationPhase.OFFERED, HandOver): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, AskWatermark): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, RecallPattern): DelegationPhase.RETURNING,
    (DelegationPhase.HANDED_BACK, AskWatermark): DelegationPhase.HANDED_BACK,
    (DelegationPhase.HANDED_BACK, RecallPattern): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, AskWatermark): DelegationPhase.RETURNING,
}

AT_ASKER: Final[Transitions] = {
    (DelegationPhase.OFFERED, AcceptPattern): DelegationPhase.DELEGATED,
    (DelegationPhase.OFFERED, HandBack): DelegationPhase.OVER,
    (DelegationPhase.DELEGATED, ReportMatches): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, HandBack): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, ReportMatches): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, HandBack): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, ReturnPattern): DelegationPhase.OVER,
}

GATHERING: Final = frozenset({DelegationPhase.OFFERED, DelegationPhase.RETURNING})
"""The phases in which a delegate collects, and assembles nothing."""
