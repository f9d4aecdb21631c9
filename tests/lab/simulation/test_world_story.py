"""Violations of worlds tell the story of the notification and the subscription concerned."""

from collections.abc import Iterable
from typing import Any

import pytest

from contrada.delivery.owned_logs import OwnedLogs
from contrada.lab.simulation.oracle import Violation
from contrada.lab.simulation.script_maker import make_script
from contrada.lab.simulation.script_steps import Kind
from contrada.lab.simulation.world import do, network_of, run, story_in_world
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import Client, Effect, Publish, Received, Send, Subscribe
from contrada.service.story import StoryStep

SEEDS = range(10)


def first_violation(kind: Kind, brokers: int, what: str) -> Violation:
    """The first violation of a rule in some worlds."""
    outcomes = (run(make_script(seed, kind, brokers)) for seed in SEEDS)
    return next(each for outcome in outcomes for each in outcome.violations if each.what == what)


def _is_forwarded(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Publish)


def test_a_lost_notification_has_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for the fault would have to replay the world by hand."""
    publish = Router.publish

    def forgetful(router: Router, *event: Any) -> list[Effect]:
        return [each for each in publish(router, *event) if not _is_forwarded(each)]

    monkeypatch.setattr(Router, "publish", forgetful)
    lost = first_violation(Kind("acyclic", Strategy.SUBSCRIPTIONS), 6, "lost")
    assert len(lost.identities) == 2
    told = str(lost).splitlines()
    assert told[0] == f"lost: {lost.case}"
    assert any("  subscribed from c" in line for line in told)
    assert any("  published from c" in line for line in told)
    assert any("  forwarded to " in line and " as " in line for line in told), "under another name"


def test_a_broker_is_searched_for_the_names_that_it_knows() -> None:
    """A story would have subscriptions of others, whose numbers at another broker are the same."""
    script = make_script(1, Kind("acyclic", Strategy.SUBSCRIPTIONS), 6)
    network = network_of(script)
    for step in script.steps:
        network.schedule.run(step.at_us)
        do(network, step)
    asked = [
        f"{each.event.origin.name}/{each.event.message.identity}"
        for each in network.history.handled
        if isinstance(each.event, Received)
        and isinstance(each.event.origin, Client)
        and isinstance(each.event.message, Subscribe)
    ]
    stories = [story_in_world(network, [name]) for name in asked]
    assert any(each.name for story in stories for each in story.transitions), "forwarded"
    assert [each.identity for each in stories] == asked
    for name, story in zip(asked, stories, strict=True):
        origins = {it.origin for it in story.transitions if it.step == StoryStep.SUBSCRIBED}
        assert origins == {name.partition("/")[0]}


def test_a_lost_record_has_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a broken guarantee nothing would be known but the name of the notification."""
    append, turns = OwnedLogs.append, iter(range(10**6))

    def forgetful(logs: OwnedLogs, arrivals: Iterable[Any], time_us: int) -> bool:
        return append(logs, () if next(turns) % 3 == 0 else arrivals, time_us)

    monkeypatch.setattr(OwnedLogs, "append", forgetful)
    lost = first_violation(Kind("acyclic", Strategy.SUBSCRIPTIONS, reliable=True), 4, "lost")
    assert "  published from c" in lost.story
    assert "  accepted" in lost.story
