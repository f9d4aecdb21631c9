"""`Phase`: how far a pattern, or a part of it, is delegated, as each of the two servers sees it.

    who asks: a segment                     the delegate: the pattern that it was asked for

    OFFERED      gathers and assembles      OFFERED       gathers
    DELEGATED    waits for reports          DELEGATED     assembles
                                            HANDED_BACK   assembles, and wants to be rid of it
    RETURNING    gathers                    RETURNING     gathers, until it has all to return

A client's pattern is delegated to its server from the beginning. What does not stand in the tables
does not fit, and changes nothing.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from contrada.routing.delegation import (
    AcceptPattern,
    Answer,
    AskWatermark,
    Demand,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
)


class Phase(Enum):
    """How far a pattern is delegated."""

    OFFERED = auto()
    DELEGATED = auto()
    HANDED_BACK = auto()
    RETURNING = auto()
    OVER = auto()


Transitions: TypeAlias = Mapping[tuple[Phase, type[Demand | Answer]], Phase]
"""The phase after a message has come."""

AT_DELEGATE: Final[Transitions] = {
    (Phase.OFFERED, HandOver): Phase.DELEGATED,
    (Phase.DELEGATED, AskWatermark): Phase.DELEGATED,
    (Phase.DELEGATED, RecallPattern): Phase.RETURNING,
    (Phase.HANDED_BACK, AskWatermark): Phase.HANDED_BACK,
    (Phase.HANDED_BACK, RecallPattern): Phase.RETURNING,
    (Phase.RETURNING, AskWatermark): Phase.RETURNING,
}

AT_ASKER: Final[Transitions] = {
    (Phase.OFFERED, AcceptPattern): Phase.DELEGATED,
    (Phase.OFFERED, HandBack): Phase.OVER,
    (Phase.DELEGATED, ReportMatches): Phase.DELEGATED,
    (Phase.DELEGATED, HandBack): Phase.RETURNING,
    (Phase.RETURNING, ReportMatches): Phase.RETURNING,
    (Phase.RETURNING, HandBack): Phase.RETURNING,
    (Phase.RETURNING, ReturnPattern): Phase.OVER,
}

GATHERING: Final = frozenset({Phase.OFFERED, Phase.RETURNING})
"""In which phases a delegate holds what comes, and assembles nothing."""
