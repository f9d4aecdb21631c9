"""Queues of durable subscriptions: seen, peeked, purged and redriven, by every service."""

import asyncio
import contextlib
import json
import logging
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.connections import connect
from contrada.delivery.owned_queues import REDRIVEN_AT_ONCE
from contrada.delivery.queue_messages import (
    PEEKED_MAX,
    QUEUES_AT_ONCE,
    STEP_BYTES_MAX,
    AskQueue,
    PeekQueue,
    PurgeQueue,
    QueueRequest,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.errors import CannotPublishError, DeliveryError, InvalidValueError, NotPermittedError
from contrada.net.broker.audit_log import AuditLog
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.service import DurableRecord, Service
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, Serve, host_of, numbers, serve
from tests.net.processes import serving
from tests.net.test_neighbours import free_ports
from tests.net.test_permissions import TOKEN, users

__all__ = ["serve"]

DEAD = ct.Retention(attempts_max=1, dead_letter="desk.dead")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


async def filled(service: Service, name: str, count: int, **options: Any) -> None:
    """A durable subscription with so many records."""
    async with service.subscribe("n any", durable=name, **options):
        pass
    await service.publish_batch(({"n": n} for n in range(count)), delivery=CERTIFIED)


async def bury(service: Service, count: int, source: str = "desk") -> None:
    """So many records of a subscription become dead letters."""
    await filled(service, source, count, retention=DEAD)
    async with service.subscribe(durable=source, auto_acknowledge=False) as events:
        got = [(await events.next(20)).position for _ in range(count)]
        await events.nack(*got)
        await until(lambda: host_of(service).server.logs.statistics()[source].dead == count)


async def left(service: Service, name: str) -> list[int]:
    """The numbers in a queue, by peeking at all pages."""
    found: list[Any] = []
    first = 1
    while first:
        page = await service.queues.peek(name, first=first)
        found += [each["n"] for each in page.records]
        first = page.next
    return found


# --- seen -----------------------------------------------------------------------------------------


@on_loop
async def test_counts_of_a_queue_are_those_of_its_readers(serve: Serve, path: Path) -> None:
    """An operator would not see who is behind, by how much, and since when."""
    async with serve(path) as service:
        await filled(service, "desk", 5, retention=DEAD)
        options: Any = {"auto_acknowledge": False, "prefetch": 2}
        async with service.subscribe(durable="desk", **options) as events:
            first = await events.next(20)
            await until(lambda: host_of(service).server.logs.log_of("desk").attempts.highest == 1)
            state = await service.queues.state("desk")
            assert (state.name, state.readers, state.attempts) == ("desk", 1, 1)
            assert state.unread + state.handed == 5
            assert state.handed >= 1
            assert state.oldest_us == first.time_us
            await events.acknowledge(first.position)
            again = await service.queues.state("desk")
            assert again.unread + again.handed == 4
        assert (await service.queues.state("desk")).dead_letter == "desk.dead"
        for ask in (service.queues.state, service.queues.peek, service.queues.purge):
            with pytest.raises(DeliveryError, match="no durable subscription 'other'"):
                await ask("other")


@on_loop
async def test_a_list_comes_in_pages(path: Path) -> None:
    """With thousands of names an answer would be refused, or lack or repeat some."""
    names = [f"q{number:03}" for number in range(QUEUES_AT_ONCE + 5)]
    async with ct.connect(store=path) as service:
        for each in names:
            await filled(service, each, 0)
        page = await service.queues.states()
        assert [each.name for each in page.queues] == names[:QUEUES_AT_ONCE]
        rest = await service.queues.states(page.next)
        assert [each.name for each in rest.queues] == names[QUEUES_AT_ONCE:]
        assert rest.next == ""


@on_loop
async def test_a_peek_shows_what_a_reader_then_gets(serve: Serve, path: Path) -> None:
    """It would show other records, hand them out, or count attempts that would make them dead."""

    def shown(records: list[DurableRecord[Any]], before: int) -> list[Any]:
        return [(it.position, it.time_us, it.attempt - before, it.item) for it in records]

    async with serve(path) as service:
        await filled(service, "desk", 2 * PEEKED_MAX + 30)
        async with service.subscribe(durable="desk", auto_acknowledge=False) as events:
            got = [await events.next(20) for _ in range(40)]
            await events.acknowledge(*(it.position for it in got[::3]))
            await events.nack(*(it.position for it in got[1::3]))
        peeked: list[DurableRecord[Any]] = []
        first = 1
        while first:
            page = await service.queues.peek("desk", 70, first=first)
            assert len(page.records) <= 70
            peeked += page.records
            first = page.next
        assert await left(service, "desk") == [it["n"] for it in peeked]
        state = await service.queues.state("desk")
        assert (state.unread, state.handed, state.readers) == (len(peeked), 0, 0)
        async with service.subscribe(durable="desk", auto_acknowledge=False) as events:
            read = [await events.next(20) for _ in peeked]
            with pytest.raises(TimeoutError):
                await events.next(0.05)
        read.sort(key=lambda it: it.position)
        assert shown(read, 1) == shown(peeked, 0)
        assert {it.attempt for it in peeked} == {0, 1}


@on_loop
async def test_a_peek_is_bounded(path: Path) -> None:
    """A few requests for large records would hold the loop, or be larger than a frame."""
    size = STEP_BYTES_MAX // 3
    async with ct.connect(store=path) as service:
        async with service.subscribe("n any", durable="desk"):
            pass
        for n, text in enumerate(("x" * size,) * 4 + ("x" * 2 * STEP_BYTES_MAX,)):
            await service.publish({"n": n, "text": text}, delivery=CERTIFIED)
        page = await service.queues.peek("desk")
        assert ([it["n"] for it in page.records], page.next) == ([0, 1], 3)
        page = await service.queues.peek("desk", first=5)
        assert ([it["n"] for it in page.records], page.next) == ([4], 0)
        for count, first in ((0, 1), (1, -1), ("1", 1)):
            with pytest.raises(InvalidValueError):
                await service.queues.peek("desk", count, first=first)  # type: ignore[arg-type]


# --- changed --------------------------------------------------------------------------------------


@on_loop
async def test_dead_letters_go_back_behind_the_records(serve: Serve, path: Path) -> None:
    """They would be lost, come twice, or be dead at once."""
    count, seen = 2 * REDRIVEN_AT_ONCE + 10, list[int]()
    async with serve(path) as service:
        await bury(service, count)
        assert (await service.queues.state("desk.dead")).unread == count
        await service.publish({"n": -1}, delivery=CERTIFIED)
        assert await service.queues.redrive("desk.dead", on_progress=seen.append) == count
        assert seen == [REDRIVEN_AT_ONCE, 2 * REDRIVEN_AT_ONCE, count]
        assert await left(service, "desk.dead") == []
        async with service.subscribe(durable="desk") as events:
            assert await numbers(events, count + 1) == [-1, *range(count)]
        assert await service.queues.redrive("desk.dead") == 0
        host_of(service).server.validate()


@on_loop
async def test_dead_letters_at_a_reader_stay(path: Path) -> None:
    """Somebody who looks at a dead letter would have it handled by another one meanwhile."""
    async with ct.connect(store=path) as service:
        await bury(service, 5)
        options: Any = {"auto_acknowledge": False, "prefetch": 2}
        async with service.subscribe(durable="desk.dead", **options) as events:
            held = await events.next(20)
            moved = await service.queues.redrive("desk.dead")
            assert moved == 5 - len(host_of(service).server.logs.log_of("desk.dead").holders)
            await events.acknowledge(held.position)
        assert await service.queues.redrive("desk.dead") == 5 - moved - 1


@on_loop
async def test_a_full_subscription_gets_what_fits(path: Path) -> None:
    """A policy that drops the oldest would lose records, one that ends the log all of them."""
    for on_full in ct.OnFull:
        name = f"desk-{on_full}"
        kept = ct.Retention(
            records_max=3, on_full=on_full, attempts_max=1, dead_letter=f"{name}.dead"
        )
        async with ct.connect(store=path) as service:
            await filled(service, name, 3, retention=kept)
            async with service.subscribe(durable=name, auto_acknowledge=False) as events:
                await events.nack(*[(await events.next(20)).position for _ in range(3)])
                dead = service.queues
                await until(lambda: host_of(service).server.logs.statistics()[name].dead == 3)  # noqa: B023
            await service.publish({"n": 8}, delivery=CERTIFIED)
            with pytest.raises(CannotPublishError, match="is full"):
                await dead.redrive(f"{name}.dead")
            assert await left(service, name) == [8, 0, 1], on_full
            assert await left(service, f"{name}.dead") == [2]
            await service.unsubscribe(name)


@on_loop
async def test_a_redrive_is_to_a_subscription_of_these_dead_letters(path: Path) -> None:
    """Records of one subscription would come to another one, for which they were never meant."""
    async with ct.connect(store=path) as service:
        await bury(service, 2)
        await filled(service, "other", 0)
        with pytest.raises(DeliveryError, match="does not have the dead letters of 'other'"):
            await service.queues.redrive("desk.dead", to="other")
        with pytest.raises(DeliveryError, match="no subscriptions have their dead letters in"):
            await service.queues.redrive("other")
        with pytest.raises(DeliveryError, match=r"are in 'desk\.dead': redrive that one"):
            await service.queues.redrive("desk")
        await filled(service, "twin", 0, retention=DEAD)
        with pytest.raises(DeliveryError, match="choose one"):
            await service.queues.redrive("desk.dead")
        assert await service.queues.redrive("desk.dead", to="twin") == 2
        assert await left(service, "twin") == [0, 1]


@on_loop
async def test_records_of_a_reader_that_hangs_are_released(serve: Serve, path: Path) -> None:
    """They would wait for it without an end, or count attempts that nobody made."""
    options: Any = {"auto_acknowledge": False, "prefetch": 5}
    async with serve(path) as service:
        await filled(service, "desk", 5)
        hung = service.subscribe(durable="desk", **options)
        async with hung, service.subscribe(durable="desk", **options) as other:
            first, second = [await hung.next(20) for _ in range(2)]
            log = host_of(service).server.logs.log_of("desk")
            await until(lambda: len(log.holders) == 5 and log.attempts[second.position] == 1)
            assert await service.queues.release("desk") == 5
            got = [await other.next(20) for _ in range(5)]
            assert [(it["n"], it.attempt) for it in got] == [(n, 1 + (n < 2)) for n in range(5)]
            await hung.acknowledge(first.position)  # It worked on this one.
            await other.acknowledge(*(it.position for it in got[2:]))
            await other.nack(second.position)
            again = await hung.next(20)
            assert (again.position, again.attempt) == (second.position, 3)
            await hung.acknowledge(again.position)
            await until(lambda: not log.holders)
        assert await service.queues.release("desk") == 0
        assert (await service.queues.state("desk")).unread == 0


@on_loop
async def test_a_reader_that_waits_gets_the_records_that_it_lost(serve: Serve, path: Path) -> None:
    """A reader that had read all of them would wait for ever, also for later records."""
    async with serve(path) as service:
        await filled(service, "desk", 2)
        async with service.subscribe(durable="desk", auto_acknowledge=False) as reader:
            positions = [(await reader.next(20)).position for _ in range(2)]
            waiting = asyncio.create_task(reader.next(20))
            log = host_of(service).server.logs.log_of("desk")
            await until(lambda: log.attempts[positions[1]] == 1)  # The server knows that it read.
            assert await service.queues.release("desk") == 2
            got = [await waiting, await reader.next(20)]
            assert [(it.position, it.attempt) for it in got] == [(it, 2) for it in positions]
        with pytest.raises(DeliveryError, match="no durable subscription 'other'"):
            await service.queues.release("other")


@on_loop
async def test_a_purge_leaves_later_records(serve: Serve, path: Path) -> None:
    """It would take records that were not there when it was confirmed, or miss some."""
    async with serve(path) as service:
        await filled(service, "desk", 30)
        host = host_of(service)
        async with service.subscribe(durable="desk", auto_acknowledge=False) as events:
            await events.next(20)
            step = await host.ask(PurgeQueue("desk", before=11))
            assert (step.count, step.first) == (10, 0)
            assert await service.queues.purge("desk") == 20
            await service.publish({"n": 30}, delivery=CERTIFIED)
            last = None
            while last is None or last["n"] != 30:
                last = await events.next(20)
            await events.acknowledge(last.position)
        assert (await service.queues.state("desk")).unread == 0
        host.server.validate()


@on_loop
async def test_a_step_for_a_subscription_that_has_ended_is_refused(path: Path) -> None:
    """It would purge another subscription, which has got its name since."""
    async with ct.connect(store=path) as service:
        await filled(service, "desk", 3)
        host = host_of(service)
        number = host.server.logs.number_of("desk")
        await service.unsubscribe("desk")
        await filled(service, "desk", 3)
        with pytest.raises(DeliveryError, match="another one has its name"):
            await host.ask(PurgeQueue("desk", number, 1, 3))
        assert (await service.queues.state("desk")).unread == 3


@pytest.mark.slow
@on_loop
async def test_a_killed_redrive_loses_and_doubles_nothing(path: Path) -> None:
    """A broker that is killed in the middle would lose dead letters, or handle them twice."""
    count = 6 * REDRIVEN_AT_ONCE
    async with ct.connect(store=path) as service:
        await bury(service, count)
    options = ("--port", str(*free_ports(1)), "--store", str(path))
    kills = 0
    with contextlib.ExitStack() as stack:
        while True:
            process, address = stack.enter_context(serving(*options))
            async with TcpService(address, reconnect=False) as service:
                moved = asyncio.Event()
                redriving = asyncio.create_task(
                    service.queues.redrive("desk.dead", on_progress=lambda _: moved.set())  # noqa: B023
                )
                await asyncio.wait(
                    [redriving, asyncio.create_task(moved.wait())], return_when="FIRST_COMPLETED"
                )
                if kills == 4:
                    await redriving
                    break
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                await asyncio.gather(redriving, return_exceptions=True)
        async with connect(address) as service:
            assert await left(service, "desk.dead") == []
            found = Counter(await left(service, "desk"))
    assert found == Counter(range(count))
    assert kills == 4


# --- rights ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def with_users(path: Path) -> AsyncIterator[tuple[Service, Service, Service]]:
    """The services of root, who may all; of desk, with queues of its own; of task, who inspects."""
    said = users(
        desk={"subscribe": "k = 1", "durable": ["desk"], "narrow": True},
        task={"inspect": True, "subscribe": True},
    )
    audited = path.with_suffix(".jsonl")
    async with (
        Broker(port=0, users=said, store=path, audit=AuditLog(audited)) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        connect(broker.address, token=TOKEN["desk"]) as desk,
        connect(broker.address, token=TOKEN["task"]) as task,
        root.subscribe("k any", reliable=True),
    ):
        for name, dead in (("kept", ""), ("desk", "kept"), ("desk/own", "desk/own.dead")):
            retention = ct.Retention(dead_letter=dead)
            async with root.subscribe("k any", durable=name, retention=retention):
                pass
        await root.publish_batch(({"k": n % 2} for n in range(6)), delivery=CERTIFIED)
        alien = ct.Retention(dead_letter="desk/lost")
        async with root.subscribe("k any", durable="alien", retention=alien):
            pass
        yield root, desk, task


@on_loop
async def test_a_queue_is_seen_with_the_right(path: Path) -> None:
    """A user could read the queue of another one, or learn of its name."""
    async with with_users(path) as (root, desk, task):

        def names(page: Any) -> list[str]:
            return [each.name for each in page.queues]

        assert len(names(await root.queues.states())) == 7, "one is in memory"
        own = ["desk", "desk/lost", "desk/own", "desk/own.dead"]
        assert names(await desk.queues.states()) == own
        assert names(await task.queues.states()) == ["alien", *own, "kept"]
        (secret,) = {each.name for each in (await root.queues.states()).queues} - {
            *names(await task.queues.states())
        }
        assert secret.startswith("@reliable-")
        shown = [await task.broker_statistics(), await task.inspection()]  # type: ignore[attr-defined]
        assert secret not in repr(shown), "who knows it may end it"
        assert (await task.queues.state("kept")).unread == 6
        assert (await desk.queues.state("desk")).unread == 6
        page = await desk.queues.peek("desk")
        assert [each["k"] for each in page.records] == [1, 1, 1]
        assert {*page.unreadable.values()} == {"not permitted"}


@on_loop
async def test_a_queue_is_changed_with_the_right(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A user could empty or delete the queue of another one."""
    caplog.set_level(logging.INFO, "contrada")
    async with with_users(path) as (root, desk, task):
        hidden: tuple[tuple[Service, QueueRequest], ...] = (
            *((desk, each) for each in (AskQueue("kept"), AskQueue("missing"))),
            *((each, PeekQueue("kept")) for each in (desk, task)),
            *((each, PurgeQueue("kept")) for each in (desk, task)),
            *((each, RedriveQueue("kept")) for each in (desk, task)),
            *((each, ReleaseQueue("kept")) for each in (desk, task)),
            *((each, RedriveQueue("kept", to="desk")) for each in (desk, task)),
            (desk, RedriveQueue("desk/own.dead", to="kept")),
            (desk, RedriveQueue("desk/lost")),  # Those of `alien`.
        )
        for service, request in hidden:
            with pytest.raises(NotPermittedError, match="may not use the durable subscription"):
                await service.delivery().ask(request)  # type: ignore[attr-defined]
        for service in (desk, task):
            with pytest.raises(NotPermittedError):
                await service.unsubscribe("kept")
        assert (await root.queues.state("kept")).unread == 6
        assert await desk.queues.release("desk/own") == 0
        assert await desk.queues.purge("desk/own") == 6
        assert await desk.queues.redrive("desk/own.dead") == 0
        await desk.unsubscribe("desk/own")
        logged = [
            each.getMessage() for each in caplog.records if each.name.endswith("queue_session")
        ]
        assert [each.partition("of ")[2] for each in logged] == [
            "desk released 0 records of desk/own",
            "desk purged 6 records of desk/own",
            "desk moved 0 dead letters of desk/own.dead",
            "desk ended desk/own",
        ]
        lines = map(json.loads, path.with_suffix(".jsonl").read_text("utf-8").splitlines())
        changes = ("released", "purged", "redriven", "removed")
        assert [
            (it["action"], it["user"], it["code"], it.get("reason"))
            for it in lines
            if it["action"] in changes
        ] == [
            ("released", "desk", "desk/own", None),
            ("purged", "desk", "desk/own", "6 records"),
            ("redriven", "desk", "desk/own.dead", None),
            ("removed", "desk", "desk/own", None),
        ]
