"""Worlds with times to live, priorities and pauses: they pass, and faults are found."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contrada.delivery.backlog import Backlog, QueueEntry
from contrada.lab.simulation.script_maker import add_deadlines, make_script
from contrada.lab.simulation.script_steps import (
    AddFilter,
    Kind,
    Move,
    Pause,
    PublishStep,
    Resume,
    Script,
    from_text,
    to_text,
)
from contrada.lab.simulation.simulated_line import Faults
from contrada.lab.simulation.simulated_readers import ReaderEvent, check_reads
from contrada.lab.simulation.world import do, network_of, run
from contrada.lab.simulation.worlds import shrink
from contrada.model import Envelope, Notification
from contrada.routing import notification_forwarder
from contrada.routing.router import Strategy

KIND = Kind("acyclic", Strategy.SUBSCRIPTIONS)
BROKERS_MAX = 8
SEEDS = range(20)


def first_of_all(backlog: Backlog[Any]) -> QueueEntry[Any]:
    """Removes the oldest, ignoring priorities."""
    levels = backlog._levels
    number, priority = min((next(iter(levels[each].entries)), each) for each in levels)
    return backlog._remove(priority, number)


def drop_timed(backlog: Backlog[Any], now_us: int) -> list[QueueEntry[Any]]:
    """Drops all entries with a time to live."""
    return [backlog._remove(*due[1:]) for due in backlog._expiring if backlog._is_queued(due)]


def drop_all_timed(given: Sequence[Notification], now_us: int) -> Sequence[Notification]:
    """Drops all notifications with a time to live."""
    return tuple(each for each in given if each.envelope.ttl_us is None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "name", "instead", "what"),
    [
        (notification_forwarder, "_drop_expired", lambda given, now_us: given, "late"),
        (Backlog, "expire", lambda *_: [], "late"),
        (notification_forwarder, "_drop_expired", drop_all_timed, "lost"),
        (Backlog, "expire", drop_timed, "unread"),
        (Backlog, "popleft", Backlog.pop, "out of turn"),
        (Backlog, "popleft", first_of_all, "out of turn"),
    ],
    ids=[
        "routers never look at the time",
        "a backlog never does",
        "routers drop all that has a time to live",
        "a backlog does",
        "a backlog leaves the wrong way round",
        "a backlog has no priorities",
    ],
)
def test_a_fault_is_found_with_a_short_script(
    broken: Any, name: str, instead: Callable[..., Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worlds would pass with expired reads, or waiting urgent notifications."""
    monkeypatch.setattr(broken, name, instead)
    script = next(
        script
        for script in (make_script(seed, KIND, BROKERS_MAX) for seed in SEEDS)
        if what in {each.what for each in run(script).violations[:1]}
    )
    short = shrink(script)
    assert what in {each.what for each in run(short).violations}
    assert len(short.steps) <= 9, to_text(short)
    monkeypatch.undo()
    assert not run(from_text(to_text(short), "text")).violations


@pytest.mark.slow
def test_made_worlds_have_deadlines_and_pauses() -> None:
    """All would pass without deadlines, or because nothing ever waited."""
    scripts = [make_script(seed, KIND, BROKERS_MAX) for seed in SEEDS]
    hasty = [any(isinstance(step, Pause) for step in script.steps) for script in scripts]
    assert 5 <= sum(hasty) <= 15
    expired = waited = 0
    for script in scripts:
        assert run(script).violations == []
        network = run_steps(script)
        network.readers.resume_all()
        expired += sum(each.statistics().expired for each in network.routers if each)
        noted = network.readers.noted
        waited += sum(
            one.what == "reads" and before.what in ("reads", "resumes")
            for before, one in itertools.pairwise(noted)
        )
    assert expired > 10
    assert waited > 30


def run_steps(script: Script) -> Any:
    """The network of a script after its steps."""
    network = network_of(script)
    for step in script.steps:
        network.schedule.run(step.at_us)
        do(network, step)
    network.schedule.run()
    return network


def test_a_resumed_client_reads_valid_notifications_by_priority() -> None:
    """The steps would have no effect, or old scripts another meaning."""
    steps = (
        Move(0, "c", 0),
        AddFilter(1, "c", "s", "a any"),
        Pause(2, "c"),
        PublishStep(3, "c", "low", {"a": 1}, None, 0),
        PublishStep(4, "c", "over", {"a": 1}, 5, 9),
        PublishStep(5, "c", "plain", {"a": 1}),
        PublishStep(6, "c", "good", {"a": 1}, 5, 9),
        PublishStep(7, "c", "again", {"a": 1}, 5),
        Resume(10, "c"),
        PublishStep(11, "c", "after", {"a": 1}, 0),
        PublishStep(12, "c", "last", {"a": 1}),
    )
    script = Script(1, Kind("central", Strategy.SUBSCRIPTIONS), 1, Faults(), steps)
    assert run(script).violations == []
    noted = run_steps(script).readers.noted
    assert [each.id for each in noted if each.what == "reads"] == [
        *("good", "plain", "again", "low", "last")
    ]
    assert from_text(to_text(script), "text") == script
    old = to_text(script).replace(',"ttl_us":null,"priority":4,"delivery":"best-effort"', "")
    assert '"id":"last","values":{"a":1}}' in old
    assert from_text(old, "text") == script


ENVELOPES = {
    "plain": Envelope(time_us=0),
    "next": Envelope(time_us=1),
    "low": Envelope(time_us=0, priority=0),
    "high": Envelope(time_us=0, priority=9),
    "short": Envelope(time_us=0, ttl_us=5),
    "sure": Envelope(time_us=0, ttl_us=5, priority=9, delivery="reliable"),
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("given plain, reads plain", []),
        ("given plain, reads next", ["not given", "unread"]),
        ("given plain", ["unread"]),
        ("given plain, pauses", ["unread"]),
        ("given plain, gone", ["unread"]),
        ("pauses, given plain, gone, given next, reads next", []),
        ("pauses, given plain", []),
        ("pauses, given plain, resumes", ["unread"]),
        ("pauses, given plain, given next, resumes, reads plain, reads next", []),
        ("pauses, given plain, given next, resumes, reads next, reads plain", ["out of turn"]),
        ("pauses, given plain, given high, resumes, reads plain, reads high", ["out of turn"]),
        ("pauses, given low, given plain, resumes, reads plain, reads low", []),
        ("pauses, given plain, given sure, resumes, reads plain, reads sure", []),
        ("pauses, given plain, given sure, resumes, reads sure, reads plain", ["out of turn"]),
        ("pauses, given short 3, resumes 4, reads short 4", []),
        ("pauses, given short 3, resumes 4", ["unread"]),
        ("pauses, given short 3, resumes 5", []),
        ("given short 5, reads short 5", ["late"]),
        ("given short 5", []),
        ("given sure 9, reads sure 9", []),
        ("pauses, given short 3, given low 3, resumes 4, reads low 4", ["out of turn", "unread"]),
    ],
)
def test_reads_are_judged(said: str, expected: list[str]) -> None:
    """A fault of reading would pass, or a correct read be reported."""
    noted = []
    for words in said.split(", "):
        what, *rest = words.split()
        at_us = int(rest.pop()) if rest and rest[-1].isdigit() else 1
        noted.append(ReaderEvent(what, at_us, "c", *rest))  # type: ignore[arg-type]
    assert [what for what, _ in check_reads(noted, ENVELOPES)] == expected


def test_haste_leaves_the_rest_of_a_script_alone() -> None:
    """Deadlines would change the rest of a world."""
    for seed in range(6):
        script = make_script(seed, KIND, BROKERS_MAX)
        plain = [
            PublishStep(step.at_us, step.client, step.id, step.values)
            if isinstance(step, PublishStep)
            else step
            for step in script.steps
            if not isinstance(step, Pause | Resume)
        ]
        again = add_deadlines(script.with_steps(plain))
        assert again == script
