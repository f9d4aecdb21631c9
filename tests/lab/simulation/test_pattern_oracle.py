"""Patterns in worlds: required matches and no others; broken servers are found."""

from typing import Any

import pytest

from contrada.lab.simulation import simulated_network
from contrada.lab.simulation.script_maker import make_script, weave
from contrada.lab.simulation.script_steps import (
    AddOffer,
    AddPattern,
    AdvanceTime,
    Connect,
    DropOffer,
    DropPattern,
    Kind,
    Move,
    PublishStep,
    Script,
    Step,
)
from contrada.lab.simulation.simulated_line import Faults
from contrada.lab.simulation.simulated_network import SLACK_US
from contrada.lab.simulation.world import run
from contrada.model import Pattern
from contrada.routing.delegation import (
    HandOver,
    ReportMatches,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Client,
    DeliverMatch,
    Effect,
    Event,
    Received,
    Send,
    TimePassed,
)

BROKERS_MAX = 8
KIND = Kind("acyclic", Strategy.ADVERTISEMENTS)
SECOND_US = 1_000_000


@pytest.mark.slow
def test_worlds_demand_most_matches() -> None:
    """Worlds would pass because no match is required."""
    outcomes = [run(weave(make_script(seed, KIND, BROKERS_MAX))) for seed in range(16)]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(outcomes)
    must = sum(outcome.matches_must for outcome in outcomes)
    assert must > 5 * len(outcomes)
    assert must > sum(outcome.matches for outcome in outcomes) / 2


# --- the demands ----------------------------------------------------------------------------------

PUBLISHED_US = 3 * SECOND_US
TOLD_US = PUBLISHED_US + 2 * SLACK_US
TOLD = AdvanceTime(TOLD_US)


def _played(pattern: str, *steps: Step) -> tuple[int, int]:
    """Runs a publisher at one server, and at another a client that finally withdraws its pattern.

    Returns the numbers of required and of delivered matches.
    """
    before: list[Step] = [
        Connect(0, 0, 1, False, 10_000),
        Move(0, "p", 0),
        Move(0, "c", 1),
        AddOffer(0, "p", "offer", "a any"),
        AddPattern(SECOND_US, "c", "pattern", pattern),
    ]
    gone = DropPattern(TOLD_US + SECOND_US, "c", "pattern")
    outcome = run(Script(0, KIND, 2, Faults(), (*before, *steps, gone)))
    assert not outcome.violations
    return outcome.matches_must, outcome.matches


def _said(number: int, at_us: int) -> PublishStep:
    return PublishStep(at_us, "p", f"{number} at {at_us}", {"a": number})


PAIR = _said(1, PUBLISHED_US), _said(2, PUBLISHED_US + 1)


def test_a_match_is_required_after_the_announcement_of_the_time() -> None:
    """A match could be missing unseen, or required before a later time."""
    assert _played("a = 1 -> a = 2", *PAIR, TOLD) == (1, 1)
    assert _played("a = 1 -> a = 2", *PAIR) == (0, 0)


def test_other_changes_do_not_relax_the_requirements() -> None:
    """Matches would be required only without other changes."""
    other = AddOffer(PUBLISHED_US, "p", "another offer", "b any")
    assert _played("a = 1 -> a = 2", PAIR[0], other, PAIR[1], TOLD) == (1, 1)


def test_an_unsure_notification_ends_a_stream() -> None:
    """A server would be blamed for an unsure notification."""
    gone = DropOffer(PUBLISHED_US + 2, "p", "offer")
    assert _played("a = 1 -> a = 2", *PAIR, gone, TOLD)[0] == 0


def test_without_every_a_match_is_demanded_after_a_pause_or_from_the_first_on() -> None:
    """A server would be blamed for a match with an unknown beginning."""
    early = _said(1, SECOND_US + 1)  # It may precede the subscription, or follow it.
    after = early, *PAIR, TOLD
    assert _played("a = 1 -> a = 2", *after)[0] == 0
    assert _played("a = 1 -> a = 2 within 5 s", *after)[0] == 0
    assert _played("a = 1 -> a = 2 within 1 s", *after)[0] == 1
    assert _played("every a = 1 -> a = 2", *after)[0] == 1


# --- faults on purpose ----------------------------------------------------------------------------

LOSES = "loses what delegates report"
LEAVES_OUT = "hands over nothing of what it has"
IS_DEAF = "does not hear of time"
DOUBLES = "delivers matches twice"
REMEMBERS = "delivers matches to who has withdrawn"
FORGETS_SPAN = "takes no notice of the span"
MIXES_GROUPS = "takes no notice of by"
TAKES_EVERY = "begins at every start"
KEEPS = "does not withdraw what is delegated"


class Broken(Router):
    """A router with one fault in patterns."""

    fault = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.delivered: dict[tuple[Client, str], DeliverMatch] = {}

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """As the router, with the fault."""
        if isinstance(event, TimePassed):
            if self.fault == IS_DEAF:
                return []
            if self.fault == REMEMBERS:
                gone = [key for key in self.delivered if not self._assembler.knows(*key)]
                return [self.delivered.pop(key) for key in gone]
        if isinstance(event, Received) and isinstance(asked := event.message, SubscribePattern):
            message = SubscribePattern(asked.identity, self._spoilt(asked.pattern), asked.hops)
            event = Received(event.origin, message)
        return [again for each in super().handle(event, now_us) for again in self._done(each)]

    def _done(self, effect: Effect) -> list[Effect]:
        match effect:
            case DeliverMatch():
                self.delivered[effect.client, effect.match.key] = effect
                return [effect, effect] if self.fault == DOUBLES else [effect]
            case Send(_, UnsubscribePattern()) if self.fault == KEEPS:
                return []
            case Send(to, ReportMatches() as said) if self.fault == LOSES:
                return [Send(to, ReportMatches(said.identity, (), said.watermark_us))]
            case Send(to, HandOver() as said) if self.fault == LEAVES_OUT:
                return [Send(to, HandOver(said.identity, said.watermark_us, ()))]
        return [effect]

    def _spoilt(self, pattern: Pattern) -> Pattern:
        by = () if self.fault == MIXES_GROUPS else pattern.by
        within_us = None if self.fault == FORGETS_SPAN else pattern.within_us
        every = pattern.every or self.fault == TAKES_EVERY
        return Pattern(pattern.filters, by=by, within_us=within_us, every=every)


@pytest.mark.quick_every(4)
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (LOSES, "match lost"),
        (LEAVES_OUT, "match lost"),
        (IS_DEAF, "match lost"),
        (DOUBLES, "match twice"),
        (REMEMBERS, "nobody asks for a match"),
        (FORGETS_SPAN, "no match of a pattern"),
        (MIXES_GROUPS, "no match of a pattern"),
        (TAKES_EVERY, "another match"),
        (KEEPS, "left over"),
    ],
)
def test_a_broken_server_is_found(fault: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds would pass despite faults in patterns."""
    monkeypatch.setattr(simulated_network, "Router", Broken)
    monkeypatch.setattr(Broken, "fault", fault)
    scripts = (weave(make_script(seed, KIND, BROKERS_MAX)) for seed in range(60))
    script = next(each for each in scripts if what in {it.what for it in run(each).violations})
    monkeypatch.undo()
    assert not run(script).violations
