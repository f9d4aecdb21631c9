"""An orderly stop hands over the queues, within a bounded time."""

import asyncio
import signal
import socket

import pytest

from contrada.connections import connect, connect_sync
from contrada.errors import ConnectionFailedError, ContradaError
from contrada.model import Filter, FilterSet, Notification
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.embedded_broker import EmbeddedBroker
from contrada.net.broker.link import ON_ITS_WAY
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.endpoint import ConnectOptions
from contrada.routing.router_messages import Publish, Subscribe
from contrada.service.dispatch_routes import LINK_DOWN
from contrada.service.subscription_queue import QUEUE_FULL, SubscriptionQueue
from contrada.service.sync import SyncService
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.net.networks import network
from tests.net.processes import serving
from tests.net.test_neighbours import know
from tests.postgres import Server, needs_postgres

COUNT = 3_000

STOP_S_MAX = 10.0
"""Half of the time that the unit for systemd gives a broker to stop."""


PATIENT = BrokerLimits(handover_wait_s=TEST_S_MAX)
"""The handover may take as long as the test: this machine may be slow."""

CREDIT = ClientLimits(credit_bytes=20_000)
"""Little credit: most notifications are queued at the broker."""


@on_loop
async def test_queues_of_clients_are_sent_before_the_end() -> None:
    """Each restart of a broker would lose the queues of its subscribers."""
    async with (
        Broker(port=0, limits=PATIENT) as stopped,
        TcpService(stopped.address, reconnect=False, limits=CREDIT) as subscriber,
        connect(stopped.address) as publisher,
    ):
        events = await subscriber.subscribe("a any")
        await publisher.publish_batch({"a": each} for each in range(COUNT))
        assert stopped.statistics().held_bytes > 0
        stopping = asyncio.create_task(stopped.stop())
        assert [(await anext(events))["a"] for _ in range(COUNT)] == list(range(COUNT))
        await stopping
        assert not stopped.statistics().dropped


@on_loop
@pytest.mark.parametrize("ends", [0, 1])
async def test_queues_of_neighbours_are_sent_before_the_end(ends: int) -> None:
    """Answered publications would be lost with a restarted broker."""
    async with (
        network(2, [(0, 1)], PATIENT) as brokers,
        connect(brokers[0].address) as publisher,
        TcpService(brokers[1].address, limits=CREDIT) as subscriber,
    ):
        events = await subscriber.subscribe("a any")
        await until(lambda: know(brokers, 1))
        await publisher.publish_batch({"a": each} for each in range(COUNT))
        stopping = asyncio.create_task(brokers[ends].stop())
        assert [(await anext(events))["a"] for _ in range(COUNT)] == list(range(COUNT))
        await stopping
        await until(lambda: not len(brokers[1 - ends].neighbours))
        dropped = [each.statistics().dropped for each in brokers]
        assert not [each for each in dropped if each.keys() & {LINK_DOWN, ON_ITS_WAY}]


@on_loop
async def test_a_client_that_does_not_read_is_not_awaited_for_long() -> None:
    """One client could keep a broker from ending; or losses would not be counted."""
    async with (
        Broker(port=0, limits=BrokerLimits(handover_wait_s=0.05)) as stopped,
        TcpService(stopped.address, limits=CREDIT) as sleeper,
        connect(stopped.address) as publisher,
    ):
        await sleeper.subscribe("a any")
        await publisher.publish_batch({"a": each} for each in range(COUNT))
        await stopped.stop()
        lost = stopped.statistics().dropped["connection ended"]
        assert 0 < lost < COUNT


@on_loop
async def test_publications_at_a_stopping_broker_are_unanswered() -> None:
    """A busy publisher could keep a broker from ending, or count lost notifications as
    published.
    """
    async with (
        Broker(port=0) as stopped,
        TcpService(stopped.address, reconnect=False, limits=CREDIT) as subscriber,
        connect(stopped.address, reconnect=False) as publisher,
    ):
        events = await subscriber.subscribe("a any")
        await publisher.publish_batch({"a": each} for each in range(COUNT))
        stopping = asyncio.create_task(stopped.stop())
        await asyncio.sleep(0)
        late = asyncio.create_task(publisher.publish({"a": -1}))
        assert [(await anext(events))["a"] for _ in range(COUNT)] == list(range(COUNT))
        with pytest.raises(ConnectionFailedError, match="the broker stops") as failed:
            await late
        assert failed.value.may_be_published
        await stopping


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_broker_as_it_is() -> None:
    """A person would wait for clients that read nothing."""
    with (
        serving("--port", "0") as (process, address),
        SyncService(TcpService(address, limits=CREDIT)) as sleeper,
        connect_sync(address) as publisher,
        sleeper.subscribe("a any"),
    ):
        publisher.publish_batch({"a": each} for each in range(COUNT))
        process.send_signal(signal.SIGINT)
        while _listens(int(address.rpartition(":")[2])):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(BrokerLimits().handover_wait_s / 2) == 130


@pytest.mark.slow
@pytest.mark.parametrize("is_entered", [False, True])
@on_loop
async def test_a_broker_ends_soon_after_its_start(is_entered: bool) -> None:
    """A thread that works on would hold up the end until the service manager kills it."""
    shapes = ["text contains 'x{}y'", "name suffix '{}'", "n < {}"]
    filters = [Filter(shapes[n % 3].format(n)) for n in range(6_000)]
    with serving("--port", "0") as (process, address):
        async with TcpService(address, reconnect=False) as service:
            opening = asyncio.create_task(service.subscribe(FilterSet(filters)).open())
            if is_entered:
                await opening
                await service.publish({"text": "x1y"})
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, STOP_S_MAX) == 0
        await asyncio.gather(opening, return_exceptions=True)


@pytest.mark.slow
@needs_postgres
@on_loop
async def test_a_database_that_hangs_holds_up_no_end() -> None:
    """The thread that writes would keep the process until the service manager kills it."""
    server = Server()
    try:
        with serving("--port", "0", "--store", server.url()) as (process, address):
            async with TcpService(address, reconnect=False) as service:
                await service.publish({"n": 1}, delivery="certified")
                server.signal(signal.SIGSTOP)
                late = asyncio.create_task(service.publish({"n": 2}, delivery="certified"))
                await service.publish({"n": 3})  # The broker has both once it answers this one.
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 2 * STOP_S_MAX) == 2
                with pytest.raises(ContradaError):
                    await late
            assert process.stderr is not None
            assert "none of them was confirmed" in process.stderr.read()
    finally:
        server.signal(signal.SIGCONT)
        server.remove()


@on_loop
async def test_a_connection_accepted_during_the_stop_is_closed() -> None:
    """Its client would wait for a broker that has gone, and the broker be kept from its end."""
    async with Broker(port=0, limits=PATIENT) as stopped:

        async def reach(protocol: asyncio.Protocol) -> None:
            here, there = socket.socketpair()
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: protocol, sock=here)
            await loop.create_connection(stopped.accept, sock=there)

        address = stopped.address
        stopped.hold(1)  # The queue of a client that does not read.
        stopping = asyncio.create_task(stopped.stop())
        await until(lambda: stopped.is_stopping)
        late = TcpService(address, options=ConnectOptions(reach=reach))
        with pytest.raises(ConnectionFailedError, match="the broker stops"):
            await late.open()
        await until(lambda: not stopped._connections)
        assert not stopping.done()
        stopped.hold(-1)
        await stopping


@on_loop
async def test_a_connection_accepted_in_the_turn_of_the_stop_is_closed() -> None:
    """Its client would wait for a hello, on a socket that nobody closes."""
    stopped = Broker(port=0)
    await stopped.start()
    address = parse_address(stopped.address)
    with socket.create_connection((address.host, address.port)) as late:
        await asyncio.sleep(0)  # In the next turn the loop accepts it, after the stop begins.
        await asyncio.create_task(stopped.stop())
        late.setblocking(False)
        read = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(late, 1000), TEST_S_MAX)
    assert b"the broker stops" in read


@pytest.mark.parametrize("is_embedded", [False, True])
@on_loop
async def test_a_stop_without_time_leaves_no_connection(is_embedded: bool) -> None:
    """Others would send to a vanished broker without a reader."""
    async with network(1, []) as brokers:
        address = brokers[0].address
        wanted = {"name": "desk", "neighbours": (WantedLink(parse_address(address)),)}
        stopped = (
            EmbeddedBroker(Membership(**wanted))  # type: ignore[arg-type]
            if is_embedded
            else Broker(port=0, network=Membership(**wanted))  # type: ignore[arg-type]
        )
        async with connect(address) as publisher, stopped:
            await until(lambda: len(brokers[0].neighbours) == 1)
            here = stopped._server if isinstance(stopped, EmbeddedBroker) else stopped
            here.hold(1)  # The queue of a client that does not read.
            end = stopped.aclose if isinstance(stopped, EmbeddedBroker) else stopped.stop
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(end(), 0.05)
            await until(lambda: not len(brokers[0].neighbours))
            await publisher.publish({"a": 1})


@on_loop
async def test_entries_of_a_wait_that_has_not_begun_are_counted() -> None:
    """Notifications whose wait for a slow reader begins with the end would be lost uncounted."""
    broker = Broker(port=0)
    dispatcher = broker.dispatcher
    client, queue = dispatcher.client(), SubscriptionQueue[Notification](notifications_max=1)
    dispatcher.subscribe(client, Subscribe("1", FilterSet("a any")), queue)
    both = Publish(tuple(Notification({"a": each}) for each in range(2)))
    broker.start_work(dispatcher.wait(dispatcher.publish(client, both, 0), TEST_S_MAX))
    await broker.stop()
    assert broker.statistics().dropped == {QUEUE_FULL: 1}
