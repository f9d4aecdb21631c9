"""Reliable delivery in a network: publications reach logs at other brokers, once."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.delivery_messages import (
    Ack,
    AnnounceOwner,
    Destination,
    Grant,
    Notice,
    ReadLog,
    Shipment,
    Transfer,
)
from contrada.errors import CannotPublishError, DeliveryError
from contrada.net.broker import link as link_module
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.client.durable_client import DurableClient
from contrada.net.wire.address import Address, parse_address
from contrada.net.wire.durable_messages import decode_delivery, decode_log_hop, encode_durable
from contrada.net.wire.frames import Hello, LogDelivery, LogReply, LogRequest
from contrada.service import Service
from contrada.service.service_limits import ServiceLimits
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, MARKER, numbers, records, rest
from tests.net.processes import serving
from tests.net.soon import BROKER_LIMITS, SOON, connect
from tests.net.test_broker import RawClient
from tests.net.test_durable_stores import publish_all, read_all
from tests.net.test_neighbours import free_ports

READ_AHEAD_MAX = ServiceLimits().prefetch_max


class Line:
    """Brokers in a line, each with a store; each makes the link to the one before it."""

    def __init__(
        self, folder: Path, names: str, limits: BrokerLimits = BROKER_LIMITS, **options: Any
    ) -> None:
        self.limits = limits
        self.folder, self.names, self.options = folder, names, options
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.brokers: dict[str, Broker] = {}

    async def start(self, name: str) -> Broker:
        """Starts a broker, for the first time or again."""
        at = self.names.index(name)
        before = [
            WantedLink(Address("127.0.0.1", self.ports[each])) for each in self.names[:at][-1:]
        ]
        of = Membership(name, neighbours=tuple(before), **self.options)
        store = self.folder / f"{name}.db"
        broker = self.brokers[name] = Broker(
            port=self.ports[name], network=of, store=store, limits=self.limits
        )
        await broker.start()
        return broker

    async def stop(self, name: str) -> None:
        """Ends a broker without a notice."""
        broker = self.brokers.pop(name)
        for each in list(broker._connections):
            each.abort()
        await broker.stop()

    def address(self, name: str) -> str:
        return f"contrada://127.0.0.1:{self.ports[name]}"

    def know(self, standing: int) -> bool:
        """Returns whether all know this number of durable subscriptions."""
        return all(
            each.logs.used_host is not None
            and each.logs.used_host.server.statistics().standing == standing
            for each in self.brokers.values()
        )


@asynccontextmanager
async def line(
    folder: Path, names: str, limits: BrokerLimits = BROKER_LIMITS, **options: Any
) -> AsyncIterator[Line]:
    """A line of brokers that runs."""
    found = Line(folder, names, limits, **options)
    for name in names:
        await found.start(name)
    try:
        yield found
    finally:
        for each in list(found.brokers.values()):
            await each.stop()


@on_loop
async def test_durable_publications_reach_a_log_elsewhere_and_are_read_from_any_broker(
    tmp_path: Path,
) -> None:
    """Guarantees would hold at one broker only."""
    async with (
        line(tmp_path, "abc") as net,
        connect(net.address("a")) as publisher,
        connect(net.address("c")) as owner,
    ):
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        await publisher.publish_batch([{"n": n} for n in range(9)], delivery="certified fifo")
        async with owner.subscribe(durable="s") as events:
            assert await numbers(events, 3) == [0, 1, 2]
        async with publisher.subscribe("n any", durable="s") as events:
            got = await records(events, 6)
            assert [each.item["n"] for each in got] == [3, 4, 5, 6, 7, 8]
            assert [each.position for each in got] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(DeliveryError, match="has other filters, n any"):
            await publisher.subscribe("n > 3", durable="s")
        with pytest.raises(DeliveryError, match="is known at its home alone, server 'c'"):
            await publisher.subscribe(durable="s", retention=ct.Retention())
        await publisher.publish({"n": 9})  # Best effort is kept there, too.
        async with publisher.subscribe(durable="s") as events:
            assert await numbers(events, 1) == [9]
        await publisher.unsubscribe("s")
        await until(lambda: net.know(0))
        with pytest.raises(DeliveryError, match="no durable subscription 's'"):
            await publisher.unsubscribe("s")


@on_loop
async def test_a_broker_between_may_be_away(tmp_path: Path) -> None:
    """Shipments in flight over it would be lost, or doubled."""
    async with (
        line(tmp_path, "abc") as net,
        connect(net.address("a")) as publisher,
        connect(net.address("c")) as owner,
        owner.subscribe("n any", durable="s") as events,
    ):
        await until(lambda: net.know(1))
        for first in range(0, 60, 20):
            for n in range(first, first + 10):
                await publisher.publish({"n": n}, delivery="certified fifo")
            await net.stop("b")
            for n in range(first + 10, first + 20):
                await publisher.publish({"n": n}, delivery="certified fifo")
            await net.start("b")
        assert await numbers(events, 60) == list(range(60))
        with pytest.raises(TimeoutError):
            await events.next(0)


@on_loop
async def test_a_remote_reader_continues_after_the_owner_restarts(tmp_path: Path) -> None:
    """It would wait for ever, or have to observe a foreign broker."""
    async with (
        line(tmp_path, "ab") as net,
        connect(net.address("a")) as service,
        connect(net.address("b")) as owner,
    ):
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        async with service.subscribe(durable="s", auto_acknowledge=False) as events:
            await service.publish_batch([{"n": n} for n in range(6)], delivery=CERTIFIED)
            got = await records(events, 3)
            await events.acknowledge(got[0].position)
            logs = net.brokers["b"].logs
            await until(lambda: logs.host.server.statistics().logs["s"].acknowledged == 1)
            await net.stop("b")
            await service.publish({"n": 6}, delivery=CERTIFIED)
            await net.start("b")
            await until(lambda: events.statistics().reconnects == 1)
            await events.acknowledge(up_to=got[2].position)
            found = await numbers(events, 4)
            assert sorted(found) == [3, 4, 5, 6]


@on_loop
async def test_acks_of_a_reader_unaware_of_a_restart_do_not_end_it(tmp_path: Path) -> None:
    """A busy reader would be reset, and then ended."""
    async with line(tmp_path, "ab") as net, connect(net.address("b")) as owner:
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        client = await RawClient.to(net.brokers["a"], Hello("client"))
        read, grant = encode_durable(ReadLog("s", "r")), encode_durable(Grant("s", "r", 10))
        client.say(LogRequest(1, read), LogRequest(0, grant))
        assert [type(await client.hears()) for _ in range(2)] == [Hello, LogReply]
        await net.stop("b")
        await net.start("b")
        heard = await client.hears()
        assert isinstance(heard, LogDelivery)
        assert decode_delivery(heard.message).again  # type: ignore[union-attr]
        done = encode_durable(Ack("s", "r", ((1, 2),)))
        for number in (2, 3):
            client.say(LogRequest(number, done))
            answer = await client.hears()
            assert isinstance(answer, LogReply)
            assert (answer.number, answer.code) == (number, "")
        await client.leave()


@on_loop
async def test_records_in_flight_to_an_earlier_reader_reach_no_other(tmp_path: Path) -> None:
    """A reader after a restart would get records that the owner delivers again."""
    async with line(tmp_path, "ab") as net, connect(net.address("b")) as owner:
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        names: set[str] = set()
        for _ in range(2):
            async with connect(net.address("a")) as service, service.subscribe(durable="s"):
                found = set(net.brokers["a"].logs.host.readers)
                assert len(found) == 1
                assert found.isdisjoint(names)
                names |= found
            await net.stop("a")
            await net.start("a")


@on_loop
async def test_records_that_arrive_while_a_reader_restarts_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were granted before it had begun anew would be missing until it leaves."""
    count = 3 * READ_AHEAD_MAX
    found_all = set(range(count))
    async with (
        line(tmp_path, "ab") as net,
        connect(net.address("a")) as service,
        connect(net.address("b")) as owner,
    ):
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        await owner.publish_batch([{"n": n} for n in range(count)], delivery=CERTIFIED)
        async with service.subscribe(durable="s") as events:
            found = await numbers(events, READ_AHEAD_MAX // 2 - 1)
            await until(lambda: events.statistics().queued == READ_AHEAD_MAX - len(found))
            read_again = DurableClient._reopen

            async def slowly(self: DurableClient, of: Any) -> None:
                await read_again(self, of)
                found.extend(await numbers(events, 10))  # It would grant.
                for _ in range(20):
                    await service.publish({"n": -1}, delivery=CERTIFIED)

            monkeypatch.setattr(DurableClient, "_reopen", slowly)
            await net.stop("b")
            await net.start("b")
            await until(lambda: events.statistics().reconnects == 1)
            while not found_all <= set(found):
                found += await numbers(events, 1)


@on_loop
async def test_readers_and_publishers_move_to_another_broker(tmp_path: Path) -> None:
    """Their state would be lost with the former broker, or doubled."""
    async with line(tmp_path, "abc") as net, connect(net.address("c")) as owner:
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        both = [net.address("a"), net.address("b")]
        async with (
            connect(both, publisher="desk") as service,
            service.subscribe(durable="s") as events,
        ):
            for n in range(5):
                await service.publish({"n": n}, delivery="certified fifo")
            assert await numbers(events, 3) == [0, 1, 2]
            place = parse_address(net.address("a"))
            assert service.connection.address == str(place)
            server, net.brokers["a"]._server = net.brokers["a"]._server, None
            assert server is not None
            server.close()  # It runs on as a neighbour, and takes no clients any more.
            for each in [p for p in net.brokers["a"]._connections if p.who == "client"]:
                each.abort()
            for n in range(5, 10):
                await service.publish({"n": n}, delivery="certified fifo")
            assert service.connection.address == net.address("b")
            found = await numbers(events, 7)
            assert sorted(found) == list(range(3, 10))
            net.brokers["a"]._server = server
        assert await rest(owner, "s") == []
        held = net.brokers["c"].logs.host.server.statistics().logs["s"]
        assert held.appended == 11  # With the marker.


@on_loop
async def test_a_subscription_ended_from_another_broker_requests_nothing_more(
    tmp_path: Path,
) -> None:
    """The former owner would match and hold each ended log for ever."""
    async with line(tmp_path, "ab") as net, connect(net.address("b")) as owner:
        await (await owner.subscribe("n any", durable="s")).aclose()
        await until(lambda: net.know(1))
        async with connect(net.address("a")) as service:
            await service.unsubscribe("s")
        await until(lambda: net.know(0))
        assert net.brokers["b"].statistics().subscriptions == 0
        await until(
            lambda: not net.brokers["a"].dispatcher.router.statistics().subscriptions.entries
        )


@on_loop
async def test_total_order_wants_a_sequencer_that_all_name(tmp_path: Path) -> None:
    """Two brokers would give two orders, and each reader think that its one is total."""
    async with line(tmp_path, "ab") as net, connect(net.address("a")) as service:
        with pytest.raises(CannotPublishError, match="--sequencer"):
            await service.publish({"n": 1}, delivery="certified total:orders")
    async with (
        line(tmp_path / "..", "pq", sequencer="q") as net,
        connect(net.address("p")) as one,
        connect(net.address("q")) as other,
        one.subscribe("n any", durable="at p") as at_p,
        other.subscribe("n any", durable="at q") as at_q,
    ):
        await until(lambda: net.know(2))

        async def publish(service: Service, first: int) -> None:
            for n in range(first, 40, 2):
                await service.publish({"n": n}, delivery="certified total:orders")

        await asyncio.gather(publish(one, 0), publish(other, 1))
        found = await numbers(at_p, 40)
        assert found == await numbers(at_q, 40)
        assert sorted(found) == list(range(40))


@on_loop
async def test_messages_that_find_no_room_on_a_link_are_sent_again(tmp_path: Path) -> None:
    """A slow neighbour would fill the memory; or dropped shipments be lost."""
    limits = BrokerLimits(backoff=SOON, channel_bytes_max=10_000, transfer_bytes_max=1_000)
    async with (
        line(tmp_path, "ab", limits) as net,
        connect(net.address("a")) as publisher,
        connect(net.address("b")) as owner,
        owner.subscribe("n any", durable="s") as events,
    ):
        await until(lambda: net.know(1))
        await asyncio.gather(
            *(
                publisher.publish_batch([{"n": n, "x": "x" * 300}] * 20, delivery=CERTIFIED)
                for n in range(5)
            )
        )
        assert sorted(await numbers(events, 100)) == sorted([*range(5)] * 20)
        assert net.brokers["a"].logs.held_back


def test_a_large_message_is_sent_in_parts() -> None:
    """No frame could hold it; or a part would be lost or reordered."""
    to = (Destination("b", 1, 0, 1),)
    shipments = tuple(
        Shipment(to, Notice(ct.Notification({"n": n}, body=bytes(size))))
        for n, size in enumerate([10, 300, 2_000, 10, 400, 400, 400])
    )
    carry = Transfer("a", 1, 0, shipments)
    parts = list(link_module._split(carry, 1_000))
    found: list[Any] = [decode_log_hop(each) for each in parts]
    assert max(map(len, parts), default=0) > 1_000
    assert all(
        len(data) <= 1_000 or len(part.shipments) == 1
        for data, part in zip(parts, found, strict=True)
    )
    assert [each for part in found for each in part.shipments] == list(shipments)
    news = AnnounceOwner("a", 1, 0, 1, False, ())
    assert [decode_log_hop(each) for each in link_module._split(news, 1_000)] == [news]


@on_loop
async def test_a_neighbour_that_does_not_read_network_state_is_ended(tmp_path: Path) -> None:
    """It would fill the memory of its neighbours, or never know the durable subscriptions."""
    limits = BrokerLimits(backoff=SOON, channel_bytes_max=1_000)
    async with line(tmp_path, "ab", limits) as net, connect(net.address("a")) as service:
        await (await service.subscribe("n any", durable="first")).aclose()
        await until(lambda: net.know(1))
        (link,) = net.brokers["a"].neighbours
        link.connection.pause_writing()
        for n in range(40):
            await (await service.subscribe(f"n = {n}", durable=f"s{n}")).aclose()
        assert net.brokers["a"].statistics().refused["overloaded"] == 1
        await until(lambda: net.know(41))  # The link is made again.


@pytest.mark.slow
def test_kills_of_brokers_between_lose_nothing(tmp_path: Path) -> None:
    """The guarantees of a network of processes would exist on paper only."""
    ports = free_ports(3)
    names = ("a", "b", "c")

    def options(at: int) -> list[str]:
        before = ["--neighbour", f"contrada://127.0.0.1:{ports[at - 1]}"] if at else []
        store = ["--store", str(tmp_path / f"{names[at]}.db")]
        return ["--port", str(ports[at]), "--name", names[at], *store, *before]

    @on_loop
    async def work() -> None:
        with ExitStack() as stack:
            (_, first), (process, _), (_, last) = (
                stack.enter_context(serving(*options(at))) for at in range(3)
            )
            async with (
                connect(first) as publisher,
                connect(last) as owner,
                owner.subscribe("n any", durable="s", auto_acknowledge=False) as events,
            ):
                await publisher.publish({"n": MARKER}, delivery=CERTIFIED)
                while True:  # Until the first broker has heard of it.
                    await publisher.publish({"n": MARKER}, delivery=CERTIFIED)
                    with suppress(TimeoutError):
                        await events.next(0.1)
                        break
                accepted, done = list[int](), list[int]()
                stop = asyncio.Event()
                publishing = asyncio.create_task(publish_all(publisher, accepted, stop))
                reading = asyncio.create_task(read_all(events, done))
                for _ in range(2):
                    goal = len(accepted) + 60
                    await until(lambda: len(accepted) > goal and len(done) > goal // 2)  # noqa: B023
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    some = len(accepted) + 20
                    await until(lambda: len(accepted) > some)  # noqa: B023
                    process, _ = stack.enter_context(serving(*options(1)))
                stop.set()
                await publishing
                await until(lambda: len([n for n in done if n >= 0]) >= len(accepted))
                reading.cancel()
                assert sorted(n for n in done if n >= 0) == sorted(accepted)

    work()


@on_loop
async def test_a_name_that_two_brokers_gave_away_apart_is_reported_and_ended_at_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One `unsubscribe` would leave the other log, which fills and in the end holds publishers."""

    async def create(at: str) -> None:
        async with connect(net.address(at)) as service, service.subscribe("n any", durable="s"):
            pass

    net = Line(tmp_path, "ab")
    await net.start("a")
    await create("a")
    await net.stop("a")
    try:
        await net.start("b")
        await create("b")
        await net.start("a")
        await until(lambda: net.know(2))
        said = [each.getMessage() for each in caplog.records]
        assert sum("was created at a, b before" in each for each in said) == 2, said
        async with connect(net.address("b")) as service:
            await service.unsubscribe("s")
            await until(lambda: net.know(0))
    finally:
        for each in list(net.brokers.values()):
            await each.stop()
