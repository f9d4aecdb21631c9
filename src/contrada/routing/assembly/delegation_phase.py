"""`DelegationPhase`: how far a pattern, or a part of it, is delegated, as each server sees it.

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
    AskWatermark,
    DelegateMessage,
    Demand,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
)


class DelegationPhase(Enum):
    """How far a pattern is delegated."""

    OFFERED = auto()
    DELEGATED = auto()
    HANDED_BACK = auto()
    RETURNING = auto()
    OVER = auto()


Transitions: TypeAlias = Mapping[
    tuple[DelegationPhase, type[Demand | DelegateMessage]], DelegationPhase
]
"""The phase after a message has come."""

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
"""In which phases a delegate holds what comes, and assembles nothing."""
