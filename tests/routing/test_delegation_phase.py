"""`DelegationPhase`: both ends follow the same phases, and reject other messages."""

from collections.abc import Sequence
from typing import Final

import pytest

from contrada.routing.delegation import (
    AT_ASKER,
    AT_DELEGATE,
    GATHERING,
    AcceptPattern,
    AskWatermark,
    DelegateMessage,
    DelegationPhase,
    Demand,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    Transitions,
    UnsubscribePattern,
)

DEMANDS: Final = {HandOver, AskWatermark, RecallPattern}
ANSWERS: Final = {AcceptPattern, ReportMatches, HandBack, ReturnPattern}


def test_each_end_hears_only_the_other() -> None:
    """A server would react to messages of its own side."""
    assert {message for _, message in AT_DELEGATE} == DEMANDS
    assert {message for _, message in AT_ASKER} == ANSWERS
    beginning_and_end = {SubscribePattern, UnsubscribePattern}
    assert not beginning_and_end & (DEMANDS | ANSWERS), "these fit in every phase"


OFFERED, DELEGATED, RETURNING = (
    DelegationPhase.OFFERED,
    DelegationPhase.DELEGATED,
    DelegationPhase.RETURNING,
)


@pytest.mark.parametrize(
    ("messages", "phases"),
    [
        ([HandOver, RecallPattern], [DELEGATED, RETURNING]),
        ([HandOver, AskWatermark, AskWatermark], [DELEGATED, DELEGATED, DELEGATED]),
        ([HandOver, RecallPattern, AskWatermark], [DELEGATED, RETURNING, RETURNING]),
        ([AskWatermark], [None]),
        ([RecallPattern], [None]),
        ([HandOver, HandOver], [DELEGATED, None]),
        ([HandOver, RecallPattern, RecallPattern], [DELEGATED, RETURNING, None]),
    ],
)
def test_a_delegate_rejects_unfitting_messages(
    messages: list[type[Demand]], phases: list[DelegationPhase | None]
) -> None:
    """A delegate would assemble without a hand-over, or return unknown pieces."""
    assert walk(AT_DELEGATE, messages) == phases


@pytest.mark.parametrize(
    ("messages", "phases"),
    [
        ([AcceptPattern, ReportMatches, HandBack], [DELEGATED, DELEGATED, RETURNING]),
        ([AcceptPattern, HandBack, ReportMatches], [DELEGATED, RETURNING, RETURNING]),
        ([AcceptPattern, HandBack, HandBack], [DELEGATED, RETURNING, RETURNING]),
        ([AcceptPattern, HandBack, ReturnPattern], [DELEGATED, RETURNING, DelegationPhase.OVER]),
        ([HandBack], [DelegationPhase.OVER]),
        ([ReportMatches], [None]),
        ([ReturnPattern], [None]),
        ([AcceptPattern, AcceptPattern], [DELEGATED, None]),
        ([AcceptPattern, ReturnPattern], [DELEGATED, None]),
        ([HandBack, AcceptPattern], [DelegationPhase.OVER, None]),
    ],
)
def test_an_asker_rejects_unfitting_messages(
    messages: list[type[DelegateMessage]], phases: list[DelegationPhase | None]
) -> None:
    """Matches would be accepted from a delegate without pieces, or pieces without a recall."""
    assert walk(AT_ASKER, messages) == phases


def walk(
    table: Transitions, messages: Sequence[type[Demand | DelegateMessage]]
) -> list[DelegationPhase | None]:
    """Returns the phases after messages, from the first offer on; None after an invalid one."""
    phase: DelegationPhase | None = OFFERED
    found = []
    for message in messages:
        assert phase is not None
        phase = table.get((phase, message))
        found.append(phase)
    return found


def test_a_pattern_is_assembled_until_its_recall() -> None:
    """A full delegate would stop, and its pieces be lost."""
    for message in (AskWatermark, RecallPattern):
        full, before = DelegationPhase.HANDED_BACK, DelegationPhase.DELEGATED
        after, otherwise = AT_DELEGATE[full, message], AT_DELEGATE[before, message]
        assert after is (full if message is AskWatermark else otherwise)
    assert DelegationPhase.HANDED_BACK not in GATHERING


def test_every_phase_is_left_and_the_end_is_not() -> None:
    """A segment would stay in a hand-shake forever, or return after its end."""
    for table in (AT_ASKER, AT_DELEGATE):
        assert all(phase is not DelegationPhase.OVER for phase, _ in table)
    steps = [*AT_ASKER.items(), *AT_DELEGATE.items()]
    left = {before for (before, _), after in steps if after is not before}
    assert left == {
        DelegationPhase.OFFERED,
        DelegationPhase.DELEGATED,
        DelegationPhase.HANDED_BACK,
        DelegationPhase.RETURNING,
    }
    assert frozenset({DelegationPhase.OFFERED, DelegationPhase.RETURNING}) == GATHERING
