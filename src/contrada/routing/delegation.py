"""What servers say to one another about patterns.

A server may have a neighbour assemble a *sub-pattern*, consecutive parts of a pattern that all come
over the link to it. What is said over a link arrives in order, also beside notifications:

    the one that asks                     the delegate
    SubscribePattern       ─────────►     begins to gather what the parts match
                           ◄─────────     AcceptPattern: what was sent before this is the asker's
    HandOver(what it has)  ─────────►     begins to assemble
                           ◄─────────     ReportMatches(matches, watermark, what waits for time),
                                          also without matches
    AskWatermark(time)     ─────────►     learns of the time; answers by a report when it is there
                           ◄─────────     HandBack: its tables are full
    RecallPattern          ─────────►     stops
                           ◄─────────     ReturnPattern(what it has): what is sent after this is
                                          the asker's
    UnsubscribePattern     ─────────►     forgets it

So at every moment each notification is taken in at one of the two servers, or at both, where its
identity shows the duplicate. None is missed when a split changes.

Source: PODC 2000 §4 (patterns are assembled upstream).
"""

from typing import Final, TypeAlias

import msgspec

from contrada.model import Pattern
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Piece

VERSION: Final = 1
"""The version of all messages. A router refuses any other."""


class RouterMessage(msgspec.Struct, frozen=True, array_like=True):
    """The root of what servers and clients say; it travels as its fields in order, tag first."""


class SubscribePattern(RouterMessage, frozen=True, tag="subscribe pattern"):
    """The sender wants the matches of a pattern. A server delegates it so to a neighbour.

    `hops` counts how often it, or what it is a part of, was delegated: while servers know different
    things of a network, it could go round.
    """

    identity: str
    pattern: Pattern
    hops: int = 0
    version: int = VERSION


class UnsubscribePattern(RouterMessage, frozen=True, tag="unsubscribe pattern"):
    """The sender withdraws the pattern of this identity."""

    identity: str
    version: int = VERSION


class HandOver(RouterMessage, frozen=True, tag="hand over"):
    """What the sender has gathered of a sub-pattern. All below the watermark is in it."""

    identity: str
    watermark_us: int
    pieces: tuple[Piece, ...]
    version: int = VERSION


class AskWatermark(RouterMessage, frozen=True, tag="ask watermark"):
    """The sender has learned of this timestamp, and waits for the delegate's watermark."""

    identity: str
    time_us: int
    version: int = VERSION


class RecallPattern(RouterMessage, frozen=True, tag="recall pattern"):
    """The sender will assemble a sub-pattern itself, and wants what the delegate has of it."""

    identity: str
    version: int = VERSION


class AcceptPattern(RouterMessage, frozen=True, tag="accept pattern"):
    """The sender gathers what the parts of a sub-pattern match, from now on."""

    identity: str
    version: int = VERSION


class ReportMatches(RouterMessage, frozen=True, tag="report matches"):
    """Matches of a sub-pattern, each start with its earliest completion, in order.

    Nothing that is complete below the watermark will come after this. `waits_us` is the earliest
    time of what the sender holds until it learns of a later one; None where there is nothing.
    """

    identity: str
    matches: tuple[Match[str], ...]
    watermark_us: int
    waits_us: int | None = None
    version: int = VERSION


class HandBack(RouterMessage, frozen=True, tag="hand back"):
    """The sender's tables are full: it wants a sub-pattern to be recalled."""

    identity: str
    version: int = VERSION


class ReturnPattern(RouterMessage, frozen=True, tag="return pattern"):
    """What the sender has of a sub-pattern that was recalled; it has forgotten it."""

    identity: str
    watermark_us: int
    pieces: tuple[Piece, ...]
    version: int = VERSION


Demand: TypeAlias = SubscribePattern | UnsubscribePattern | HandOver | AskWatermark | RecallPattern
"""What a server says to a delegate."""

DelegateMessage: TypeAlias = AcceptPattern | ReportMatches | HandBack | ReturnPattern
"""What a delegate says."""

PatternMessage: TypeAlias = Demand | DelegateMessage
