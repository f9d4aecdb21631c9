"""Durable traffic over lost connections, and with killed brokers that restart."""

import asyncio
import contextlib
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

import contrada as ct
from contrada.errors import ConnectionFailedError, DeliveryError, ServiceClosedError, StoreError
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.durable_session import DurableSession
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.durable_client import DurableClient
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.frames import Frame, LogReply, Reply
from contrada.service.clock import wall_clock_us
from contrada.service.service_limits import ServiceLimits
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, numbers, records, rest
from tests.net.processes import WAIT_S
from tests.net.soon import connect
from tests.net.test_reconnection import lose
from tests.net.test_watching_commands import findings
from tests.service.stores.test_sqlite_store import PAGE_BYTES, overwrite_page

READ_AHEAD_MAX = ServiceLimits().prefetch_max

KILLS = 3
"""How often a broker is killed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


def cut(broker: Broker) -> None:
    """Cuts the connections of a broker, without a word."""
    for each in list(broker._connections):
        each.abort()


async def begun(address: str, store: Path | None) -> Broker:
    """Starts a new broker at the address of a former one."""
    place = parse_address(address)
    broker = Broker(place.host, place.port, store=store)
    await broker.start()
    return broker


@contextlib.asynccontextmanager
async def cutting(broker: Broker, times: int) -> AsyncIterator[asyncio.Task[None]]:
    """Cuts the connections so often meanwhile, each time when something was published since."""

    async def work() -> None:
        for _ in range(times):
            seen = broker.logs.host.server.statistics()
            kept = sum(each.appended for each in seen.logs.values())
            await until(
                lambda kept=kept: (  # type: ignore[misc]
                    sum(e.appended for e in broker.logs.host.server.statistics().logs.values())
                    > kept
                )
            )
            cut(broker)

    task = asyncio.create_task(work())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


# --- connections ----------------------------------------------------------------------------------


@on_loop
async def test_publications_over_cut_connections_arrive_once(path: Path) -> None:
    """Publications in flight would be lost, or published twice."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address, publisher="desk") as service,
    ):
        await (await service.subscribe("n any", durable="s")).aclose()
        async with cutting(broker, 5) as cuts:

            async def publish(first: int) -> None:
                for n in range(first, 400, 8):
                    await service.publish({"n": n}, delivery="certified fifo")
                    await asyncio.sleep(0)

            await asyncio.gather(*map(publish, range(8)))
            more = 400
            while not cuts.done():
                await service.publish({"n": more}, delivery=CERTIFIED)
                more += 1
        assert sorted(await rest(service, "s")) == list(range(more))


@on_loop
async def test_a_reader_continues_at_its_position(path: Path) -> None:
    """It would miss records in flight; or get records again that it holds or has acknowledged."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("n any", durable="s", auto_acknowledge=False) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(20)], delivery=CERTIFIED)
        got = await records(events, 5)
        await events.acknowledge(got[0].position)
        await until(lambda: events.statistics().queued == 15)
        cut(broker)
        await events.acknowledge(got[1].position)
        await until(lambda: events.statistics().reconnects == 1)
        found = await records(events, 15)
        assert [(each.item["n"], each.attempt) for each in found] == [(n, 1) for n in range(5, 20)]
        assert events.statistics().reconnects == 1
        await events.acknowledge(got[2].position, up_to=found[-1].position)
        await events.aclose()
        assert await rest(service, "s") == []


@on_loop
async def test_a_damaged_page_ends_no_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log would end at the damage, silently, and later records be confirmed that nobody gets."""
    count, text = 200, "x" * 200
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        batch = [{"n": n, "text": f"{n:04}{text}"} for n in range(count)]
        await service.publish_batch(batch, delivery=CERTIFIED)
    overwrite_page(path, b"0100xxx")
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await service.publish({"n": count}, delivery=CERTIFIED)
        async with service.subscribe(durable="s") as events:
            got = list[int]()
            while count not in got:
                got += await numbers(events, 1)
            lost = events.statistics().dropped["damaged"]
        assert len(got) + lost == count + 1
        assert 0 < lost < 50
        assert got == sorted(got)
        assert 100 not in got
        delivery = broker.statistics().delivery
        assert (delivery["damaged"], delivery["stuck"]) == (lost, 0)
        assert delivery["store faults"] > 0
        status, found = await asyncio.to_thread(findings, broker.address)
        told = [each["found"] for each in found if each["level"] == "fault"]
        assert (status, told[-1]) == (1, f"durable delivery: {lost} damaged")
        assert await rest(service, "s") == []
    assert f"the store {path} is damaged: s, " in caplog.text


@on_loop
async def test_a_store_that_cannot_be_written_confirms_nothing(path: Path) -> None:
    """A publisher would think that a notification is kept that no reader will get. And readers
    would wait for ever.
    """
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        await service.publish_batch([{"n": n} for n in range(999)], delivery=CERTIFIED)
    with closing(sqlite3.connect(path)) as db:
        asked = "SELECT rootpage FROM sqlite_schema WHERE name = 'records'"
        (page,) = db.execute(asked).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)
    stack = contextlib.AsyncExitStack()
    broker = await stack.enter_async_context(Broker(port=0, store=path))
    async with connect(broker.address) as service:
        events = await service.subscribe(durable="s")
        with pytest.raises(StoreError, match="malformed"):
            await service.publish({"n": 999}, delivery=CERTIFIED)
        await until(lambda: broker.statistics().delivery["store faults"] > 0)
        with pytest.raises(DeliveryError, match="'s': its store is damaged, and takes no ack"):
            await numbers(events, 1_000)
        with pytest.raises(StoreError, match="malformed"):
            await service.subscribe(durable="s")
    with pytest.raises(StoreError, match="malformed"):
        await stack.aclose()


@on_loop
async def test_statistics_show_the_queues_of_durable_subscriptions(path: Path) -> None:
    """Thousands of unread records would be seen by nobody until the disk is full."""
    keeps = ct.Retention(attempts_max=1, dead_letter="dead")
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await (await service.subscribe("n any", durable="s", retention=keeps)).aclose()
        await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
        found = broker.statistics()
        assert found.queue_unread == {"s": 9, "dead": 0}
        assert (found.queue_readers["s"], found.queue_handed["s"]) == (0, 0)
        assert 0 < found.queue_oldest_us["s"] <= found.now_us
        status, told = await asyncio.to_thread(findings, broker.address)
        assert status == 0
        assert "9 unread without a reader: s" in [each["found"] for each in told]
        async with service.subscribe(durable="s", auto_acknowledge=False) as events:
            (first,) = await records(events, 1)
            await events.nack(first.position)
            await until(lambda: broker.statistics().queue_dead["s"] == 1)
            found = broker.statistics()
            assert found.queue_unread == {"s": 0, "dead": 1}
            assert found.queue_handed["s"] == 8
            assert (found.queue_readers["s"], found.queue_attempts["s"]) == (1, 1)


KILLED_READER = """
import os
import contrada as ct
with ct.connect_sync(%r) as service, service.subscribe(durable="s") as events:
    for record in events:
        if record["n"] == 1:
            os.kill(os.getpid(), 9)
"""


@on_loop
async def test_records_that_a_killed_reader_never_saw_are_no_attempts(path: Path) -> None:
    """One record that kills its readers would take all records with it that they prefetched."""
    keeps = ct.Retention(attempts_max=2, dead_letter="dead")
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await (await service.subscribe("n any", durable="s", retention=keeps)).aclose()
        await service.publish_batch([{"n": n} for n in range(1, 6)], delivery=CERTIFIED)
        for _ in range(keeps.attempts_max):
            code = KILLED_READER % broker.address
            killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
            assert await killed.wait() == -signal.SIGKILL
            await until(lambda: not broker.logs.host.server.logs.readers_of("s"))
        async with service.subscribe(durable="s") as events:
            left = await records(events, 4)
        assert [(each["n"], each.attempt) for each in left] == [(n, 1) for n in range(2, 6)]
        async with service.subscribe(durable="dead") as dead:
            assert await numbers(dead, 1) == [1]


@on_loop
async def test_lost_connections_are_no_attempts(path: Path) -> None:
    """A record that a reader works on would become a dead letter while connections are lost."""
    keeps = ct.Retention(attempts_max=1)
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("n any", durable="s", retention=keeps, auto_acknowledge=False) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
        got = await records(events, 2)
        for times in range(1, 4):
            cut(broker)
            await until(lambda times=times: events.statistics().reconnects == times)  # type: ignore[misc]
            await until(lambda: events.statistics().queued == 1)
        await events.acknowledge(*(each.position for each in got))
        (last,) = await records(events, 1)
        assert (last["n"], last.attempt) == (2, 1)
        assert broker.logs.host.server.logs.statistics()["s"].dead == 0


@on_loop
async def test_a_reader_tells_which_records_it_holds(path: Path) -> None:
    """Records of a batch would count as read by nobody, if their reader is killed."""
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        reading = service.subscribe("n any", durable="s", auto_acknowledge=False)
        async with reading as events:
            await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
            await records(events, 4)
            (of,) = broker.logs.host.server.logs.log_of("s")._consumers.values()
            await until(lambda: len(of.read) == 4)
            assert len(of) == 9


@on_loop
async def test_singly_acknowledged_records_are_not_delivered_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record acknowledged during another acknowledgement would be delivered again."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("n any", durable="s", auto_acknowledge=False) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(5)], delivery=CERTIFIED)
        got = await records(events, 3)
        with monkeypatch.context() as patch:
            patch.setattr(DurableSession, "_answer", lambda *_: None)
            waiting = [asyncio.create_task(events.acknowledge(e.position)) for e in got]
            peers = list(broker._connections)
            logs_of = next(iter(peers))._handler._durable  # type: ignore[union-attr]
            await until(lambda: logs_of._unanswered > 0)
        cut(broker)
        await asyncio.gather(*waiting)
        assert await numbers(events, 2) == [3, 4]


@on_loop
async def test_acknowledgements_during_an_outage_stay(path: Path) -> None:
    """Acknowledged records would be delivered again after a restart."""
    broker = Broker(port=0, store=path)
    await broker.start()
    address = broker.address
    async with connect(address) as service:
        async with service.subscribe("n any", durable="s") as events:
            await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
            assert await numbers(events, 4) == [0, 1, 2, 3]
            cut(broker)
            await broker.stop()
            reading = asyncio.create_task(numbers(events, 5))  # It has 4 in hand, and wants more.
            broker = await begun(address, path)
            assert await reading == [4, 5, 6, 7, 8]
        assert await rest(service, "s") == []
    await broker.stop()


@on_loop
async def test_prefetched_records_are_not_given_during_an_outage(path: Path) -> None:
    """Other readers of the name may have them by then: they would be processed twice."""
    broker = Broker(port=0, store=path)
    await broker.start()
    address = broker.address
    async with connect(address) as service, service.subscribe("n any", durable="s") as events:
        await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
        assert await numbers(events, 1) == [0]
        await until(lambda: events.statistics().queued == 8)
        cut(broker)
        await broker.stop()
        await until(lambda: service.connection.state == "trying")
        with pytest.raises(TimeoutError):
            await events.next(0)
        broker = await begun(address, path)
        assert await numbers(events, 8) == [*range(1, 9)]
    await broker.stop()


@on_loop
async def test_a_nack_during_an_outage_keeps_its_delay(path: Path) -> None:
    """A restarted broker would answer it and hand the record out at once, as a first attempt. And
    a reader from a position would end.
    """
    broker = Broker(port=0, store=path)
    await broker.start()
    address, wait_s = broker.address, 60.0
    async with connect(address) as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        await service.publish_batch([{"n": n} for n in range(5)], delivery=CERTIFIED)
        reading = service.subscribe(durable="s", from_position=1, auto_acknowledge=False)
        async with reading as events:
            got = await records(events, 3)
            cut(broker)
            await broker.stop()
            returning = asyncio.create_task(events.nack(got[1].position, delay_s=wait_s))
            broker = await begun(address, path)
            await returning
            assert await numbers(events, 2) == [3, 4]
            log = broker.logs.host.server.logs.log_of("s")
            left_s = (log.attempts.due_us(2) - wall_clock_us()) / 1e6
            assert wait_s / 2 < left_s <= wait_s
            assert log.attempts[2] == 1
            assert {1, 3} <= log._consumers.popitem()[1].held
    await broker.stop()


@on_loop
async def test_a_replay_continues_at_its_position(path: Path) -> None:
    """A second reader would miss unread records."""
    count = 2 * READ_AHEAD_MAX
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        keeps = ct.Retention(replay_max=count)
        async with service.subscribe("n any", durable="s", retention=keeps) as events:
            await service.publish_batch([{"n": n} for n in range(count)], delivery=CERTIFIED)
            await numbers(events, count)
        async with service.subscribe(durable="s", from_position=1) as events:
            assert await numbers(events, 10) == list(range(10))
            cut(broker)
            assert await numbers(events, count - 10) == list(range(10, count))


@on_loop
async def test_one_in_memory_outlives_its_connection_for_a_while() -> None:
    """Reliable notifications would be lost with a connection; or unread ones be kept for ever."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        events = await service.subscribe("n any", reliable=True)
        async with connect(broker.address) as other:
            cut(broker)
            await other.publish_batch([{"n": n} for n in range(9)], delivery="reliable")
            assert await numbers(events, 9) == list(range(9))
            broker.logs._limits = BrokerLimits(reader_wait_s=0)
            reader = connect(broker.address, reconnect=False)
            await reader.open()
            await reader.subscribe("n any", reliable=True)
            server = broker.logs.host.server
            assert server.statistics().standing == 2
            await events.aclose()
            cut(broker)
            await until(lambda: server.statistics().standing == 0)


@on_loop
async def test_a_subscription_lost_with_the_memory_of_its_broker_is_reported() -> None:
    """A reader would continue as if nothing had been lost."""
    broker = Broker(port=0)
    await broker.start()
    address = broker.address
    async with connect(address) as service:
        events = await service.subscribe("n any", reliable=True)
        await broker.stop()
        broker = await begun(address, None)
        with pytest.raises(DeliveryError, match="no durable subscription '@reliable"):
            await events.next(20)
    await broker.stop()


@on_loop
async def test_another_one_of_the_same_name_is_not_taken_for_it(path: Path) -> None:
    """A reader's acknowledgements would apply to another subscription."""
    broker = Broker(port=0, store=path)
    await broker.start()
    address = broker.address
    async with connect(address) as service:
        events = await service.subscribe("n any", durable="s")
        await broker.stop()
        async with ct.connect(store=path) as meanwhile:
            await meanwhile.unsubscribe("s")
            await meanwhile.subscribe("n > 5", durable="s")
        broker = await begun(address, path)
        with pytest.raises(DeliveryError, match="another one has its name"):
            await events.next(20)
    await broker.stop()


@on_loop
async def test_unanswered_publications_at_the_end_are_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher would wait for ever, or not know that it may be published."""
    broker = Broker(port=0, store=path)
    await broker.start()
    async with connect(broker.address, reconnect_wait_s=0.05) as service:
        await service.publish({"n": 0}, delivery=CERTIFIED)
        events = await service.subscribe("n < 0", durable="s")
        monkeypatch.setattr(DurableSession, "_answer", lambda *_: None)
        publishing = asyncio.create_task(service.publish({"n": 1}, delivery=CERTIFIED))
        waiting = asyncio.create_task(events.next())
        logs_of = service.delivery()  # type: ignore[attr-defined]
        await until(lambda: bool(logs_of._requests))
        await broker.stop()
        for task in (publishing, waiting):
            with pytest.raises(ConnectionFailedError, match="not connected again within"):
                await task
        with pytest.raises(ConnectionFailedError):
            await service.publish({"n": 2}, delivery=CERTIFIED)


@on_loop
async def test_a_reader_ends_with_its_service(path: Path) -> None:
    """An iteration would wait for ever, or fail where it only ends."""
    async with Broker(port=0, store=path) as broker:
        service = await connect(broker.address)
        events = await service.subscribe("n any", durable="s")
        reading = asyncio.create_task(anext(aiter(events), None))
        await asyncio.sleep(0)
        await service.aclose()
        assert await reading is None
        with pytest.raises(ServiceClosedError):
            await events.acknowledge(1)
        with pytest.raises(ServiceClosedError):
            await service.subscribe("n any", durable="s")


@on_loop
async def test_a_reader_leaves_a_connection_that_is_dead_and_does_not_show_it(path: Path) -> None:
    """Its records would be delivered again only when the broker misses a sign of life."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("n any", durable="s") as events,
    ):
        await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
        await until(lambda: events.statistics().queued == 9)
        wire = service.reconnection._wire  # type: ignore[attr-defined]
        (peer,) = broker._connections
        service.reconnection._on_lost(wire, "a cable was pulled")  # type: ignore[attr-defined]
        await until(lambda: events.statistics().reconnects == 1)
        assert await numbers(events, 9) == list(range(9))
        assert peer in broker._connections
        wire.abort()
        assert broker.statistics().delivery["standing"] == 1


@on_loop
async def test_a_publication_started_as_the_connection_is_lost_is_answered(path: Path) -> None:
    """It would wait for ever for the answer to a hello that was never sent."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address, publisher="desk") as service,
        asyncio.timeout(WAIT_S),
    ):
        publishing = asyncio.create_task(service.publish({"n": 1}, delivery=CERTIFIED))
        lose(service)
        assert (await publishing).publisher == "desk"


@on_loop
async def test_a_connection_that_is_lost_as_readers_are_taken_up_is_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would wait for ever for a broker that was never asked, and never connect again."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("n any", durable="s") as events,
        asyncio.timeout(WAIT_S),
    ):
        taking_up = DurableClient.resume

        async def losing(of: DurableClient) -> None:
            monkeypatch.setattr(DurableClient, "resume", taking_up)
            lose(service)
            await taking_up(of)

        monkeypatch.setattr(DurableClient, "resume", losing)
        cut(broker)
        await service.publish({"n": 1}, delivery=CERTIFIED)
        assert (await events.next(WAIT_S)).item["n"] == 1


@on_loop
async def test_acknowledgements_wait_until_readers_are_resumed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection lost at the end of its restoration would count as up: requests would be sent too
    early.
    """
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as service,
        service.subscribe("m any"),
        service.subscribe("n any", durable="s", auto_acknowledge=False) as events,
        asyncio.timeout(WAIT_S),
    ):
        await service.publish({"n": 1}, delivery=CERTIFIED)
        (got,) = await records(events, 1)
        assert isinstance(service, TcpService)
        received = service.on_frame
        acknowledging: list[asyncio.Task[None]] = []
        lost: list[Frame] = []

        def losing(frame: Frame) -> None:
            if isinstance(frame, LogReply) and not lost:
                lost.append(frame)
                lose(service)
            received(frame)
            if isinstance(frame, Reply) and lost and not acknowledging:
                acknowledging.append(asyncio.create_task(events.acknowledge(got.position)))

        monkeypatch.setattr(service, "on_frame", losing)
        cut(broker)
        await until(lambda: bool(acknowledging))
        await acknowledging[0]
        await events.aclose()
        assert await rest(service, "s") == []


@on_loop
async def test_two_do_not_publish_under_one_name(path: Path) -> None:
    """Both would give out the same numbers, and one be taken for duplicates of the other."""
    async with Broker(port=0, store=path) as broker:
        async with (
            connect(broker.address, publisher="desk") as one,
            connect(broker.address, publisher="desk") as other,
        ):
            await one.publish({"n": 1}, delivery=CERTIFIED)
            with pytest.raises(DeliveryError, match="publishes as 'desk'; take another name"):
                await other.publish({"n": 2}, delivery=CERTIFIED)
            await other.publish({"n": 2})
            await one.aclose()
            await until(lambda: len(broker._connections) == 1)
            await other.publish({"n": 3}, delivery=CERTIFIED)
        await until(lambda: not broker.logs._publishers)


@on_loop
async def test_a_name_taken_meanwhile_is_reported_to_its_publisher_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledged records of a reader of the same client would be delivered again."""
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address, publisher="desk") as service,
        service.subscribe("n any", durable="s", auto_acknowledge=False) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(5)], delivery=CERTIFIED)
        got = await records(events, 3)
        with monkeypatch.context() as patch:
            patch.setattr(DurableSession, "_handle_message", lambda *_: None)
            patch.setattr(DurableSession, "_publish", lambda *_: iter(()))
            publishing = asyncio.create_task(service.publish({"n": 9}, delivery=CERTIFIED))
            waiting = asyncio.create_task(events.acknowledge(got[0].position))
            (peer,) = broker._connections
            logs_of = peer._handler._durable  # type: ignore[union-attr]
            await until(lambda: logs_of._unanswered >= 2)  # A note of what was handed may follow.
            cut(broker)
            await until(lambda: not broker.logs._publishers)
        broker.logs.admit("desk", "another", object())
        with pytest.raises(DeliveryError, match="publishes as 'desk'"):
            await publishing
        await waiting
        assert await numbers(events, 2) == [3, 4]


@on_loop
async def test_a_cancelled_wait_makes_no_room(path: Path) -> None:
    """A publisher with short time-outs would fill the memory, and be cut off by the broker."""
    limits = ClientLimits(durable_publications_max=3)
    async with (
        Broker(port=0, store=path) as broker,
        TcpService(broker.address, limits=limits) as service,
    ):
        await service.publish({"n": 0}, delivery=CERTIFIED)
        logs_of = service.delivery()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DurableSession, "_answer", lambda *_: None)
            for n in range(9):
                task = asyncio.create_task(service.publish({"n": n}, delivery=CERTIFIED))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert len(logs_of._requests) == 3
        cut(broker)
        await service.publish({"n": 9}, delivery=CERTIFIED)
        assert not logs_of._requests


@on_loop
async def test_a_wait_for_room_ends_with_the_service(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher whose turn came after the last connection would wait for ever."""
    monkeypatch.setattr(DurableSession, "_answer_publications", lambda *_: None)
    broker = Broker(port=0, store=path)
    await broker.start()
    limits = ClientLimits(durable_publications_max=1)
    async with TcpService(broker.address, reconnect_wait_s=0.05, limits=limits) as service:
        publications = (service.publish({"n": n}, delivery=CERTIFIED) for n in range(3))
        publishing = [asyncio.create_task(each) for each in publications]
        await until(lambda: service.delivery()._open == 1)
        await broker.stop()
        for task in publishing:
            with pytest.raises(ConnectionFailedError, match="not connected again within"):
                await asyncio.wait_for(task, WAIT_S)


@on_loop
async def test_records_acknowledged_before_leaving_are_not_delivered_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost while a reader leaves would have its last work done again."""
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        events = await service.subscribe("n any", durable="s", auto_acknowledge=False)
        await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
        got = await records(events, 2)
        with monkeypatch.context() as patch:
            patch.setattr(DurableSession, "_handle_message", lambda *_: None)
            waiting = asyncio.create_task(events.acknowledge(got[0].position))
            leaving = asyncio.create_task(events.aclose())
            (peer,) = broker._connections
            logs_of = peer._handler._durable  # type: ignore[union-attr]
            await until(lambda: logs_of._unanswered >= 2)  # A note of what was handed may follow.
            cut(broker)
        await asyncio.gather(waiting, leaving)
        assert await rest(service, "s") == [1, 2]
        assert not service.delivery()._readers  # type: ignore[attr-defined]


@on_loop
async def test_a_reader_ends_while_its_broker_is_away(path: Path) -> None:
    """Leaving would wait for as long as the broker is away."""
    broker = Broker(port=0, store=path)
    await broker.start()
    async with connect(broker.address) as service:
        async with service.subscribe("n any", durable="s", auto_acknowledge=False) as events:
            await service.publish({"n": 0}, delivery=CERTIFIED)
            (got,) = await records(events, 1)
            waiting = asyncio.create_task(events.acknowledge(got.position))
            await broker.stop()
            await until(lambda: service.connection.state == "trying")
        assert not waiting.done()
        waiting.cancel()
