"""`DelegationPhase`: the progress of a delegation, as each of the two servers sees it.

    asker: a segment                        delegate: the pattern that it was asked for

    OFFERED      collects and assembles     OFFERED       collects
    DELEGATED    waits for reports          DELEGATED     assembles
                                            HANDED_BACK   assembles, and waits for the recall
    RETURNING    collects                   RETURNING     collects, until it has all to return

A client's pattern is delegated to its server from the beginning. A message without an entry in the
tables does not fit, and changes nothing.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from contrada.routing import delegation


class DelegationPhase(Enum):
    """The progress of a delegation."""

    OFFERED = auto()
    DELEGATED = auto()
    HANDED_BACK = auto()
    RETURNING = auto()
    OVER = auto()


Transitions: TypeAlias = Mapping[
    tuple[DelegationPhase, type[delegation.Demand | delegation.DelegateMessage]], DelegationPhase
]
"""The phase after a message."""

AT_DELEGATE: Final[Transitions] = {
    (DelegationPhase.OFFERED, delegation.HandOver): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, delegation.AskWatermark): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, delegation.RecallPattern): DelegationPhase.RETURNING,
    (DelegationPhase.HANDED_BACK, delegation.AskWatermark): DelegationPhase.HANDED_BACK,
    (DelegationPhase.HANDED_BACK, delegation.RecallPattern): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, delegation.AskWatermark): DelegationPhase.RETURNING,
}

AT_ASKER: Final[Transitions] = {
    (DelegationPhase.OFFERED, delegation.AcceptPattern): DelegationPhase.DELEGATED,
    (DelegationPhase.OFFERED, delegation.HandBack): DelegationPhase.OVER,
    (DelegationPhase.DELEGATED, delegation.ReportMatches): DelegationPhase.DELEGATED,
    (DelegationPhase.DELEGATED, delegation.HandBack): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, delegation.ReportMatches): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, delegation.HandBack): DelegationPhase.RETURNING,
    (DelegationPhase.RETURNING, delegation.ReturnPattern): DelegationPhase.OVER,
}

GATHERING: Final = frozenset({DelegationPhase.OFFERED, DelegationPhase.RETURNING})
"""The phases in which a delegate collects, and assembles nothing."""
