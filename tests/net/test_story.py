"""Stories over brokers: the history of notifications, subscriptions and logs, and its gaps."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contrada.connections import connect, connect_sync
from contrada.delivery.retention import Retention
from contrada.errors import NotPermittedError
from contrada.model import Envelope, Notification
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.address import parse_address
from contrada.net.wire.tokens import new_token
from contrada.service.service_limits import CoreLimits, ServiceLimits
from contrada.service.story import Story, StoryStep
from tests.asynchronous import on_loop, until
from tests.commands import here
from tests.net.networks import are_linked, network
from tests.net.processes import serving

LINE = ((0, 1), (1, 2))
REMEMBERING = CoreLimits(service=ServiceLimits(transitions_max=1_000))
TOKEN, RECORD = new_token("desk")
ROOT_TOKEN, ROOT_RECORD = new_token("root")


def steps(story: Story) -> list[tuple[str, str, str]]:
    """The broker, the step and the other side of each transition."""
    return [(each.broker, each.step, each.to or each.origin) for each in story.transitions]


@asynccontextmanager
async def line_of_three(place: Path) -> AsyncIterator[Sequence[Broker]]:
    """Three brokers in a line, the last one with a store."""
    brokers: list[Broker] = []
    async with asyncio.TaskGroup():
        for number in range(3):
            wanted = tuple(WantedLink(parse_address(each.address)) for each in brokers[-1:])
            store = place / "x.db" if number == 2 else None
            brokers.append(
                Broker(
                    port=0,
                    network=Membership(f"b{number}", neighbours=wanted),
                    store=store,
                    core_limits=REMEMBERING,
                )
            )
            await brokers[-1].start()
        await until(lambda: are_linked(brokers, 2))
        try:
            yield brokers
        finally:
            for each in reversed(brokers):
                await each.stop()


@on_loop
async def test_a_notification_is_followed_through_all_brokers() -> None:
    """An operator could not tell where a notification got lost, or would see it out of order."""
    async with (
        network(3, LINE, core_limits=REMEMBERING) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as reader,
        reader.subscribe("price < 100") as events,
    ):
        await until(lambda: brokers.is_at_rest)
        lost = await publisher.publish({"price": 500})
        sent = await publisher.publish({"price": 5})
        await events.next(20)
        client = next(iter(brokers[2].clients()))
        expected = [
            ("b0", "forwarded", "b1"),
            ("b1", "arrived", "b0"),
            ("b1", "forwarded", "b2"),
            ("b2", "arrived", "b1"),
            ("b2", "queued", f"{client}/{events.identity}"),  # type: ignore[attr-defined]
        ]
        for service in (publisher, reader):  # Any broker can be asked.
            story = await service.story(sent.id)
            assert steps(story)[1:] == expected
            assert story.transitions[0].step == StoryStep.PUBLISHED
            assert not story.notes()
        alone = await reader.story(lost.id)
        assert [each.step for each in alone.transitions] == ["published", "matches nothing"]
        assert (await reader.story("unknown")).transitions == []


@on_loop
async def test_a_subscription_is_followed_under_its_other_names() -> None:
    """A neighbour knows a filter by another identity: its part of the story would be missing."""
    async with (
        network(3, LINE, core_limits=REMEMBERING) as brokers,
        connect(brokers[0].address) as other,
        connect(brokers[2].address) as reader,
    ):
        async with reader.subscribe("price < 100") as wide, reader.subscribe("price < 10") as one:
            await until(lambda: brokers.is_at_rest)
            client = next(iter(brokers[2].clients()))
            names = [f"{client}/{each.identity}" for each in (wide, one)]  # type: ignore[attr-defined]
            found = await other.story(names[0])
            assert steps(found) == [
                ("b2", "subscribed", client),
                ("b2", "forwarded", "b1"),
                ("b1", "arrived", "b2"),
                ("b1", "forwarded", "b0"),
                ("b0", "arrived", "b1"),
            ]
            covered = await other.story(names[1])
            assert steps(covered) == [("b2", "subscribed", client), ("b2", "covered", "b1")]
            assert "price < 100" in covered.transitions[1].detail
        await until(lambda: brokers.is_at_rest)
        ended = [each for each in steps(await other.story(names[0])) if each[1] == "withdrawn"]
        assert ended == [
            ("b2", "withdrawn", client),
            ("b2", "withdrawn", "b1"),
            ("b1", "withdrawn", "b2"),
            ("b1", "withdrawn", "b0"),
            ("b0", "withdrawn", "b1"),
        ]


@on_loop
async def test_a_record_is_followed_to_its_log_and_its_dead_letter(tmp_path: Path) -> None:
    """The attempts of a record, and its end as a dead letter, could not be told apart from loss."""
    kept = Retention(attempts_max=2, dead_letter="orders.dead")
    async with (
        line_of_three(tmp_path) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as reader,
        reader.subscribe("a = 1", durable="orders", retention=kept) as orders,
    ):
        await until(lambda: "orders" in brokers[0].logs.host.server.subscriptions())
        sent = await publisher.publish({"a": 1}, delivery="reliable")
        for _ in range(2):
            await orders.nack((await orders.next(20)).position)
        story = await publisher.story(sent.id)
        assert [each for each in steps(story) if each[0] != "b1"] == [
            ("b0", "published", sent.publisher),
            ("b0", "forwarded", "b1"),
            ("b0", "accepted", ""),
            ("b0", "published", *brokers[0].clients()),
            ("b0", "forwarded", "b1"),
            ("b2", "arrived", "b1"),
            ("b2", "logged", "orders"),
            ("b2", "handed out", reader_of(story)),
            ("b2", "arrived", "b1"),
            ("b2", "queued", f"{brokers[2].logs.client.name}/orders"),
            ("b2", "returned", "orders"),
            ("b2", "handed out", reader_of(story)),
            ("b2", "returned", "orders"),
            ("b2", "dead letter", "orders.dead"),
        ]
        again = await publisher.publish({"a": 1}, delivery="reliable")
        await orders.acknowledge((await orders.next(20)).position)
        assert steps(await reader.story(again.id))[-1] == ("b2", "acknowledged", "orders")
        seen = [each.step for each in (await publisher.story("orders")).transitions]
        assert {"subscribed", "opened", "credit", "handed out", "returned", "acknowledged"} <= {
            *seen
        }
        assert await reader.queues.redrive("orders.dead") == 1
        assert steps(await reader.story(sent.id)).count(("b2", "logged", "orders")) == 2


def reader_of(story: Story) -> str:
    """The reader that was handed the record."""
    return next(each.to for each in story.transitions if each.step == StoryStep.HANDED)


@on_loop
async def test_losses_and_refusals_have_their_reason() -> None:
    """A subscriber would look for a missing right or a lost notification at the wrong end."""
    desk = UserSettings(token=RECORD, publish="a < 5", subscribe="a any")
    root = UserSettings(token=ROOT_RECORD, publish="a any", subscribe="a any", inspect=True)
    users = Users.of("here", {"desk": desk, "root": root})
    async with (
        Broker(port=0, users=users, core_limits=REMEMBERING) as broker,
        connect(broker.address, token=TOKEN, reconnect=False) as service,
        connect(broker.address, token=ROOT_TOKEN, reconnect=False) as operator,
    ):
        with pytest.raises(NotPermittedError):
            await service.story("anything")
        envelope = Envelope(id="forbidden")
        with pytest.raises(NotPermittedError):
            await service.publish(Notification({"a": 9}, envelope=envelope))
        (refused,) = (await operator.story("forbidden")).transitions
        assert refused.step == StoryStep.REFUSED
        assert "may not publish" in refused.detail
        async with operator.subscribe("a = 1"):
            (session,) = (it for it in broker._sessions.values() if it.subscriptions)
            (queue,) = session._queues.values()
            queue.credit = 0  # The subscriber does not read.
            sent = await service.publish({"a": 1})
        dropped = (await operator.story(sent.id)).transitions[-1]
        assert (dropped.step, dropped.detail) == (StoryStep.DROPPED, "unsubscribed")


@on_loop
async def test_what_is_missing_is_named() -> None:
    """A story with gaps would look like a whole one."""
    small = CoreLimits(service=ServiceLimits(transitions_max=2))
    async with network(1, (), core_limits=small) as (broker,), connect(broker.address) as service:
        first = await service.publish({"a": 1})
        last = [await service.publish({"a": number}) for number in range(3)][-1]
        assert (await service.story(first.id)).transitions == []
        story = await service.story(last.id)
        assert len(story.transitions) == 2
        assert [*story.since_us] == ["b0"]
        assert "overwritten" in story.notes()[0]
    async with network(1, ()) as (broker,), connect(broker.address) as service:
        sent = await service.publish({"a": 1})
        assert "transitions_max" in (await service.story(sent.id)).missing["b0"]


@on_loop
async def test_a_broker_that_does_not_answer_is_named() -> None:
    """A story would end at a broker as if the notification had ended there."""
    async with (
        network(2, LINE[:1], core_limits=REMEMBERING) as brokers,
        connect(brokers[0].address) as service,
    ):
        sent = await service.publish({"a": 1})
        link = next(iter(brokers[0].neighbours))
        link.address = "contrada://127.0.0.1:1"
        story = await service.story(sent.id)
        assert [*story.missing] == ["b1"]
        assert "127.0.0.1:1" in story.missing["b1"]
        assert len(story.transitions) == 2
    async with network(2, LINE[:1], core_limits=REMEMBERING) as brokers:
        options: Any = {"reconnect": False}
        async with (
            connect(brokers[0].address, **options) as service,
            connect(brokers[1].address, **options) as reader,
            reader.subscribe("a = 1") as events,
        ):
            await until(lambda: brokers.is_at_rest)
            sent = await service.publish({"a": 1})
            await events.next(20)
            await brokers[1].stop()
            await until(lambda: not len(brokers[0].neighbours))
            story = await service.story(sent.id)
            assert [each.step for each in story.transitions] == ["published", "forwarded"]
            assert "no known link" in story.missing["b1"]


@pytest.mark.slow
def test_the_command_shows_a_story_and_its_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator could not ask, or would not learn what to do about an unknown identity."""
    monkeypatch.setenv("CONTRADA_LIMITS_SERVICE_TRANSITIONS_MAX", "100")
    with serving("--port", "0") as (_, address), connect_sync(address) as service:
        sent = service.publish({"price": 5})
        run = here("story", sent.id, address)
        assert (run.returncode, run.stderr) == (0, "")
        assert "published" in run.stdout
        assert "matches nothing" in run.stdout
        told = json.loads(here("story", sent.id, address, "--json").stdout)
        assert [each["step"] for each in told["transitions"]] == ["published", "matches nothing"]
        run = here("story", "unknown", address)
        assert (run.returncode, run.stdout) == (3, "")
        assert "nothing is known of 'unknown'" in run.stderr
        assert "transitions_max" in run.stderr


def test_a_story_is_read_from_logs(tmp_path: Path) -> None:
    """After a restart of the broker nothing could be found."""
    log = tmp_path / "oslo.log"
    line: dict[str, Any] = {"time": "2026-03-01T09:30:00.125031Z", "event": "x {id}"}
    lines = [line | {"id": each, "message": f"refused {each}"} for each in ("one", "two")]
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    told = json.loads(here("story", "two", "--log", str(log), "--json").stdout)
    (found,) = told["transitions"]
    assert (found["number"], found["detail"]) == (2, "refused two")
    assert here("story", "three", "--log", str(log)).returncode == 3
    log.write_text(json.dumps(line | {"id": "four", "message": "of \x1b[31mred\x9b2J\nß"}) + "\n")
    shown = here("story", "four", "--log", str(log)).stdout
    assert r"of \x1b[31mred\x9b2J" in shown, "no client controls the terminal"
    assert "\x1b" not in shown
    log.write_text("no JSON\n")
    run = here("story", "two", "--log", str(log))
    assert (run.returncode, run.stdout) == (2, "")
    assert "line 1: expected a JSON object with `time`" in run.stderr
