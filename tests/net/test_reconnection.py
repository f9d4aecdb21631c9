"""Clients that stay connected: to a restarted broker, or to the next one."""

import asyncio
import contextlib
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import contrada as ct
from contrada.connections import connect_sync
from contrada.errors import ConnectionFailedError, ServiceClosedError, ServiceError
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire import message_codec
from contrada.net.wire.address import parse_address
from contrada.net.wire.connection import LivenessLimits
from contrada.net.wire.frames import Hello, Request, encode
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.service import ConnectionState, Service, Subscription
from contrada.service.subscription_queue import ENTRY_BYTES
from tests.asynchronous import on_loop, until
from tests.net.conftest import CONTRADA
from tests.net.soon import SOON, connect

UNCONNECTABLE = "contrada://127.0.0.1:1"


def started(port: int = 0) -> "subprocess.Popen[str]":
    """A broker in a process of its own; it has printed its address when it listens."""
    return subprocess.Popen(
        [*CONTRADA, "serve", "--port", str(port), "--store", "memory:"],
        stdout=subprocess.PIPE,
        text=True,
    )


def address_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextlib.contextmanager
def ending(*processes: "subprocess.Popen[str]") -> Iterator[None]:
    """Kills the processes at the end."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def cut(broker: Broker) -> None:
    """End a broker as a crash of its machine does: its clients get no goodbye."""
    for each in list(broker._connections):
        each.abort()
    await broker.stop()


def lose(service: Service) -> None:
    """Loses a connection; its client learns that in the next turn, after earlier callbacks."""
    wire = service.reconnection._wire  # type: ignore[attr-defined]
    assert wire is not None
    wire.abort()


async def begun(address: str, store: Path | None = None) -> Broker:
    """Starts a new broker at the address of a former one."""
    place = parse_address(address)
    broker = Broker(place.host, place.port, store=store)
    await broker.start()
    return broker


async def reached(states: AsyncIterator[ConnectionState], state: str) -> ConnectionState:
    """The next state of that name."""
    async for each in states:
        if each.state == state:
            return each
    raise AssertionError(f"it was never {state}")


def accepted_of(peer: ServerConnection) -> IngressQueue[int]:
    """Returns the pending publications of a client at a broker."""
    assert isinstance(peer._handler, ClientSession)
    return peer._handler._ingress


async def numbers(events: Subscription[ct.Notification], count: int) -> list[object]:
    return [(await events.next(20))["n"] for _ in range(count)]


@pytest.mark.slow
@on_loop
async def test_a_restarted_broker_serves_again() -> None:
    """One crash would end every subscriber of it."""
    first = started()
    with ending(first):
        address = address_of(first)
        told: list[ConnectionState] = []
        async with connect(address, on_connection=told.append) as service:
            states = service.connection_states()
            low, every = service.subscribe("n < 10"), service.subscribe("n any")
            async with low, every:
                reading = asyncio.create_task(numbers(every, 2))
                await service.publish({"n": 1})
                assert await numbers(low, 1) == [1]
                await until(lambda: every.statistics().delivered == 1)
                first.send_signal(signal.SIGKILL)
                lost = await reached(states, "lost")
                assert lost.address == address
                assert lost.reason
                second = started(parse_address(address).port)
                with ending(second):
                    assert address_of(second) == address
                    back = await reached(states, "connected")
                    assert back.address == address
                    async with connect(address) as other:
                        await other.publish_batch([{"n": 2}, {"n": 20}])
                    assert await reading == [1, 2], "the iteration goes on"
                    assert await numbers(every, 1) == [20]
                    assert await numbers(low, 1) == [2]
                    assert low.statistics().reconnects == every.statistics().reconnects == 1
                    await low.unsubscribe()
                    await service.publish({"n": 3})
                    assert await numbers(every, 1) == [3]
                    await service.aclose()
    assert [each.state for each in told if each.state != "trying"] == [
        *("connected", "lost", "connected", "closed")
    ]
    tries = [each for each in told if each.state == "trying"]
    assert [each.attempt for each in tries] == list(range(1, len(tries) + 1))
    assert all(each.address == address and each.reason for each in tries)


@on_loop
async def test_a_broker_that_stops_in_order_is_waited_for() -> None:
    """A broker could not be renewed without its clients."""
    broker = Broker(port=0)
    await broker.start()
    address = broker.address
    async with connect(address) as service, service.subscribe("n any") as events:
        states = service.connection_states()
        waits = []
        for number in range(3):
            await broker.stop()
            assert (await reached(states, "lost")).reason == "the broker stops"
            waits.append((await reached(states, "trying")).wait_s)
            broker = await begun(address)
            await reached(states, "connected")
            await service.publish({"n": number})
            assert await numbers(events, 1) == [number]
        assert events.statistics().reconnects == 3
        # A connection that does not last is tried anew less and less often.
        assert waits[0] <= 0.001 < waits[2]
        await broker.stop()


@on_loop
async def test_the_next_address_is_tried_where_one_is_away() -> None:
    """A second broker would be of no use."""
    async with Broker(port=0) as one, Broker(port=0) as other:
        further = [each.address.removeprefix("contrada://") for each in (one, other)]
        async with (
            connect(",".join([UNCONNECTABLE, *further])) as service,
            service.subscribe("n any") as events,
        ):
            assert service.connection.address == one.address
            states = service.connection_states()
            await cut(one)
            await reached(states, "lost")
            assert (await reached(states, "trying")).address == other.address
            assert (await reached(states, "connected")).address == other.address
            await service.publish({"n": 1})
            assert await numbers(events, 1) == [1]


class Speaking(asyncio.Protocol):
    """A server's end that sends bytes and listens until the end of the other side."""

    def __init__(self, said: bytes, present: set[asyncio.Protocol]) -> None:
        self._said = said
        self._present = present

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._present.add(self)
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._said)

    def connection_lost(self, error: Exception | None) -> None:
        self._present.discard(self)


@contextlib.asynccontextmanager
async def speaking(said: bytes) -> AsyncIterator[str]:
    """The address of a server that is no broker of ours."""
    present: set[asyncio.Protocol] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Speaking(said, present), "127.0.0.1", 0)
    async with server:
        yield f"contrada://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await until(lambda: not present)


@on_loop
async def test_the_first_connection_fails_in_words() -> None:
    """A user with a mistyped address, or without a broker, would look for another cause."""
    limits = ClientLimits(connect_wait_s=0.2)
    newer = bytearray(encode(Hello("broker")))
    newer[2] += 1
    async with (
        speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web,
        speaking(bytes(newer)) as new,
        speaking(b"") as mute,
    ):
        said = {
            "contrada://[fe80::1%nosuch]": "the host is not known",
            UNCONNECTABLE: "connection refused: no broker listens there",
            "contrada://localhost:1": "connection refused: no broker listens there",
            web: "not a broker",
            new: "of another version: protocol version",
            mute: "no answer from a broker within 0.2 s",
        }
        for address, reason in said.items():
            with pytest.raises(ConnectionFailedError, match=reason) as failed:
                await TcpService(address, limits=limits).open()
            assert failed.value.address == str(parse_address(address))
        with pytest.raises(ConnectionFailedError, match="none answers: ") as failed:
            await TcpService(list(said), limits=limits).open()
    for address, reason in said.items():
        assert f"{parse_address(address)}: {reason}" in str(failed.value)


@on_loop
async def test_unanswered_publications_are_not_sent_twice() -> None:
    """A publisher would count published notifications as lost, or publish them twice."""

    async def stuck(_: IngressQueue[int]) -> None:
        await asyncio.Event().wait()

    limits = BrokerLimits(handover_wait_s=0.01)
    async with Broker(port=0, limits=limits) as broker, connect(broker.address) as service:
        states = service.connection_states()
        frames = ClientLimits().publish_frames_max + 1
        with (
            mock.patch.object(IngressQueue, "_publish_now", return_value=False),
            mock.patch.object(IngressQueue, "_work", stuck),
        ):
            items = [{"n": n} for n in range(frames * ClientLimits().publish_notifications_max)]
            each = [asyncio.create_task(service.publish(item)) for item in items]
            batch = asyncio.create_task(service.publish_batch(items))
            (its_end,) = broker._connections
            await until(
                lambda: len(accepted_of(its_end)._waiting) == ClientLimits().publish_frames_max
            )
            its_end.abort()
            await reached(states, "lost")
        failures = await asyncio.gather(*each, return_exceptions=True)
        with pytest.raises(ConnectionFailedError) as failed:
            await batch
        assert failed.value.published == 0
        may_be = [f.may_be_published for f in failures if isinstance(f, ConnectionFailedError)]
        sent = ClientLimits().publish_frames_max * ClientLimits().publish_notifications_max
        assert may_be == [True] * sent + [False] * (len(items) - sent)
        assert "may have arrived, or not" in str(failures[0])
        await reached(states, "connected")
        await service.publish({"n": 1})
        assert broker.statistics().published == 1
        assert service.statistics().published == 1


@on_loop
async def test_publications_during_an_outage_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each publisher would have to notice, wait and try again itself; or wait for ever."""
    broker = Broker(port=0)
    await broker.start()
    address = broker.address
    async with connect(address) as service, service.subscribe("n any") as events:
        states = service.connection_states()
        await cut(broker)
        await reached(states, "lost")
        waiting = [asyncio.create_task(service.publish({"n": n})) for n in range(3)]
        batch = asyncio.create_task(service.publish_batch([{"n": 3}, {"n": 4}]))
        opening = asyncio.create_task(service.subscribe("n > 100").open())
        await reached(states, "trying")
        broker = await begun(address)
        await asyncio.gather(*waiting, batch, opening)
        assert await numbers(events, 5) == list(range(5))
        await cut(broker)
        await reached(states, "lost")
        assert isinstance(service, TcpService)
        service.reconnection.limits = ClientLimits(disconnected_wait_s=0.01)
        for asking in (
            lambda: service.publish({"n": 1}),
            lambda: service.publish_batch([{"n": 1}]),
            lambda: service.subscribe("n any").open(),
        ):
            with pytest.raises(
                ConnectionFailedError, match=r"within 0\.01 s, so nothing was sent"
            ) as e:
                await asking()
            assert not e.value.may_be_published


@on_loop
async def test_ending_never_waits_for_a_broker_that_is_away() -> None:
    """A program could not end because its broker has."""
    broker = Broker(port=0)
    await broker.start()
    async with connect(broker.address) as service:
        events, others = service.subscribe("n any"), service.subscribe("n any")
        await events.open()
        await others.open()
        states = service.connection_states()
        await cut(broker)
        await reached(states, "trying")
        async with asyncio.timeout(5):
            await events.unsubscribe()
            publishing = asyncio.create_task(service.publish({"n": 1}))
            await asyncio.sleep(0)
            await service.aclose()
        with pytest.raises(ServiceClosedError):
            await publishing
        assert [each async for each in others] == []
        assert (await reached(states, "closed")).reason == ""
        assert asyncio.all_tasks() == {asyncio.current_task()}


@on_loop
async def test_a_hung_broker_does_not_delay_closing() -> None:
    """Closing would wait for a broker that does nothing any more."""
    limits = ClientLimits(goodbye_wait_s=0.05)
    process = started()
    with ending(process):
        address = address_of(process)
        service = TcpService(address, limits=limits)
        await service.open()
        events = await service.subscribe("n any")
        process.send_signal(signal.SIGSTOP)
        body = bytes(6_000_000)  # More than fits into the buffers of a connection.
        publishing = [asyncio.create_task(service.publish({"n": n}, body=body)) for n in range(2)]
        await asyncio.sleep(0)
        await events.unsubscribe()
        await service.aclose()
        for each in publishing:
            with pytest.raises(ServiceClosedError):
                await each
        service = TcpService(
            address, limits=limits
        )  # The system accepts the connection; nobody sends a hello.
        opening = asyncio.create_task(service.open())
        await asyncio.sleep(0)
        await service.aclose()
        with pytest.raises(ServiceClosedError):
            await opening
        assert service.connection.state == "closed"


@on_loop
async def test_a_hung_broker_is_left() -> None:
    """Unread bytes would bind a client to it, though the next broker is available."""
    limits = ClientLimits(liveness=LivenessLimits(silent_s_max=0.3), client_tick_s=0.05)
    process = started()
    with ending(process):
        async with (
            Broker(port=0) as other,
            TcpService([address_of(process), other.address], limits=limits) as service,
        ):
            states = service.connection_states()
            process.send_signal(signal.SIGSTOP)
            body = bytes(6_000_000)  # More than fits into the buffers of a connection.
            publishing = [asyncio.create_task(service.publish({"n": n}, body=body)) for n in (1, 2)]
            assert "nothing heard for" in (await reached(states, "lost")).reason
            for each in publishing:
                with pytest.raises(ConnectionFailedError, match="may have arrived, or not"):
                    await each
            assert (await reached(states, "connected")).address == other.address


@on_loop
async def test_connection_callbacks_may_use_the_service() -> None:
    """A program that publishes on "connected" would be too early."""
    begun: list[asyncio.Task[ct.Envelope]] = []

    def on_connection(state: ConnectionState) -> None:
        if state.state == "connected":
            begun.append(asyncio.create_task(service.publish({"n": 1})))

    async with Broker(port=0) as broker:
        service = connect(broker.address, on_connection=on_connection)
        async with service:
            await begun[0]
            (its_end,) = broker._connections
            its_end.abort()
            await until(lambda: len(begun) == 2)
            await begun[1]
        with pytest.raises(ServiceError, match="reconnect_wait_s = -1"):
            connect(broker.address, reconnect_wait_s=-1)


@on_loop
async def test_closing_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection would stay open behind the program."""
    process = started()
    with ending(process):
        service = await connect(address_of(process))
        process.send_signal(signal.SIGSTOP)
        body = bytes(6_000_000)
        publishing = [asyncio.create_task(service.publish({"n": n}, body=body)) for n in range(2)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(service.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for each in publishing:
            with pytest.raises(ServiceClosedError):
                await each
        assert service.connection.state == "closed"


@pytest.mark.parametrize("options", [{"reconnect": False}, {"reconnect_wait_s": 0.02}])
@on_loop
async def test_giving_up_is_reported_everywhere(options: dict[str, Any]) -> None:
    """Subscribers would wait for ever for a broker that is not restarted."""
    broker = Broker(port=0)
    await broker.start()
    async with connect(broker.address, **options) as service:
        events = await service.subscribe("n any")
        states = service.connection_states()
        await service.publish({"n": 1})
        await until(lambda: events.statistics().queued == 1)
        await broker.stop()
        assert await numbers(events, 1) == [1]
        with pytest.raises(ConnectionFailedError):
            await anext(events)
        closed = await reached(states, "closed")
        assert ("within 0.02 s" in closed.reason) == ("reconnect_wait_s" in options)
        with pytest.raises(StopAsyncIteration):
            await anext(states)
        with pytest.raises(ConnectionFailedError):
            await service.publish({"n": 1})
        with pytest.raises(ConnectionFailedError):
            await service.open()


@on_loop
async def test_a_subscription_refused_on_resumption_ends_alone() -> None:
    """One subscription that the next broker does not take would cost all others."""
    async with (
        Broker(port=0) as one,
        Broker(port=0, limits=BrokerLimits(subscriptions_per_client_max=1)) as other,
        connect([one.address, other.address]) as service,
    ):
        first, second = await service.subscribe("n any"), await service.subscribe("n any")
        states = service.connection_states()
        await cut(one)
        await reached(states, "lost")
        await reached(states, "connected")
        with pytest.raises(ServiceError, match=r"refused: .*subscriptions_per_client_max"):
            await second.next(20)
        await service.publish({"n": 1})
        assert await numbers(first, 1) == [1]
        assert service.statistics().subscriptions == 1


@on_loop
async def test_a_connection_lost_again_while_it_is_taken_up_is_made_again() -> None:
    """An unstable broker would leave its clients connected without subscriptions."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        events = await service.subscribe("n any")
        states = service.connection_states()

        def closing(peer: ServerConnection) -> None:
            peer.close("not yet")

        ends = iter([ServerConnection.abort, closing])
        subscribe = ClientSession._subscribe_each

        def failing(self: ClientSession, requests: list[Request]) -> bool:
            end = next(ends, None)
            if end is None:
                return subscribe(self, requests)
            end(self.connection)
            return True

        with mock.patch.object(ClientSession, "_subscribe_each", failing):
            (its_end,) = broker._connections
            its_end.abort()
            await reached(states, "lost")
            tries = 0
            async for state in states:
                if state.state == "connected":
                    break
                tries += 1
        assert tries == 3
        await service.publish({"n": 1})
        assert await numbers(events, 1) == [1]
        assert broker.statistics().subscriptions == 1


@on_loop
async def test_unread_notifications_use_credit() -> None:
    """A restarted broker would get more credit than the reader has room for."""
    many = ClientLimits().credit_bytes // ENTRY_BYTES
    async with Broker(port=0) as broker, TcpService(broker.address, publish_wait_s=0) as service:
        events = await service.subscribe("n any")
        states = service.connection_states()
        held = 0
        for _ in range(3):
            await service.publish_batch({"n": n} for n in range(many))
            (its_end,) = broker._connections
            await until(lambda ends=its_end: not ends._ready)  # type: ignore[misc]
            await service.broker_statistics()  # By its answer all that was sent is here.
            queued = events.statistics().queued
            assert held in (0, queued)
            held = queued
            its_end.abort()
            await reached(states, "lost")
            await reached(states, "connected")
        assert events.statistics().reconnects == 3
        assert await numbers(events, held) == list(range(held))
        await service.publish_batch({"n": n} for n in range(many // 2))
        assert await numbers(events, many // 2) == list(range(many // 2))
        assert events.statistics().reconnects == 3
        assert events.statistics().dropped == {}


@on_loop
async def test_unread_notifications_beyond_credit_get_no_new_credit() -> None:
    """A large notification would let a broker send more than there is room for, a little later."""
    large, less = bytes(CONTENT_BYTES_MAX - 1_000), bytes(ClientLimits().credit_bytes // 5)
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        events = await service.subscribe("n any")
        states = service.connection_states()
        for n in range(4):
            await service.publish({"n": n}, body=less)
        await service.publish({"n": 4}, body=large)
        await until(lambda: events.statistics().queued == 5)
        (its_end,) = broker._connections
        its_end.abort()
        await reached(states, "lost")
        await reached(states, "connected")
        assert await numbers(events, 5) == list(range(5))
        for n in range(4 + len(large) // len(less)):
            await service.publish({"n": n}, body=less)
        await service.publish({"n": -1}, body=large)
        await service.broker_statistics()
        assert await numbers(events, n + 2) == [*range(n + 1), -1]
        assert events.statistics().reconnects == 1


@on_loop
async def test_unsubscribing_while_it_is_taken_up_leaves_nothing_behind() -> None:
    """The broker would fill a queue without a reader."""
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        events = [await service.subscribe("n any") for _ in range(5)]
        states = service.connection_states()
        (its_end,) = broker._connections
        its_end.abort()
        await reached(states, "lost")
        while not service.reconnection.is_there:
            await asyncio.sleep(0)
        await asyncio.gather(*(each.unsubscribe() for each in events[:3]))
        await service.broker_statistics()
        assert broker.statistics().subscriptions == 2
        await service.publish({"n": 1})
        assert await numbers(events[4], 1) == [1]


def ending_updates(times: int) -> Any:
    """So many updates end with the connection, before the broker has looked at them."""
    left, update = iter(range(times)), ClientSession._update

    def ending(self: ClientSession, *arguments: Any) -> object:
        if next(left, None) is None:
            return update(self, *arguments)
        self.connection.abort()
        return iter(())

    return mock.patch.object(ClientSession, "_update", ending)


@pytest.mark.parametrize("times", [1, 2])
@on_loop
async def test_an_update_outlives_its_connection(times: int) -> None:
    """A subscriber would keep its former filter, or wait for ever."""
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        events = await service.subscribe("n < 5")
        with ending_updates(times):
            await events.update("n > 5")
        await service.publish_batch([{"n": 1}, {"n": 9}])
        assert await numbers(events, 1) == [9]
        assert broker.statistics().subscriptions == 1
        assert broker.dispatcher.router.statistics().filters.nodes == 1
        assert events.statistics().reconnects == 1
        await events.update("n < 5")
        await events.update("n > 5")
        await service.publish_batch([{"n": 1}, {"n": 10}])
        assert await numbers(events, 1) == [10]


@on_loop
async def test_a_late_refusal_of_an_update_keeps_the_earlier_filters() -> None:
    """The next broker may not take it: the subscription would end, or ask for nothing."""
    new = ct.FilterSet("n > 5 or m > 5")
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        events, other = await service.subscribe("n < 5"), await service.subscribe("n any")
        with (
            ending_updates(1),
            mock.patch.object(message_codec, "SUBSCRIPTION_FILTERS_MAX", 1),
            pytest.raises(ServiceError, match="SUBSCRIPTION_FILTERS_MAX"),
        ):
            await events.update(new)
        await service.publish_batch([{"n": 9}, {"n": 1}])
        assert await numbers(events, 1) == [1]
        assert await numbers(other, 2) == [9, 1]
        await events.update(new)
        await service.publish_batch([{"n": 1}, {"n": 9}])
        assert await numbers(events, 1) == [9]


@on_loop
async def test_ending_does_not_wait_for_an_update() -> None:
    """A leaving subscriber would wait for a lost broker."""
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        events = await service.subscribe("n < 5")
        await cut(broker)
        update = asyncio.create_task(events.update("n > 5"))
        await until(lambda: service.connection.state == "trying")
        await events.unsubscribe()
        with pytest.raises(ServiceClosedError):
            await update


@pytest.mark.slow
def test_blocking_code_stays_connected() -> None:
    """Only code that awaits would outlive its broker."""
    first = started()
    with ending(first):
        address = address_of(first)
        with connect_sync(address) as service, service.subscribe("n any") as events:
            states = service.connection_states(timeout_s=20)
            assert service.connection.state == "connected"
            first.kill()
            assert "lost" in (each.state for each in states)
            second = started(parse_address(address).port)
            with ending(second):
                assert "connected" in (each.state for each in states)
                service.publish({"n": 1})
                assert events.next(20)["n"] == 1
                assert events.statistics().reconnects == 1


async def _one_world(seed: int) -> None:
    """Restarts brokers at one address, while one client subscribes and publishes.

    Each subscription gets its notifications in order, once, and all of those published
    meanwhile.
    """
    chance = random.Random(seed)
    first = Broker(port=0)
    await first.start()
    address = first.address
    broker: Broker | None = first
    async with connect(address) as service:
        states = service.connection_states()
        await reached(states, "connected")
        standing: dict[Subscription[ct.Notification], list[int]] = {}
        number = 0
        for _ in range(60):
            deeds = ("publish", "publish", "publish", "end", "subscribe", "leave", "update")
            deed = chance.choice(deeds)
            if deed == "end" and broker is not None:
                await chance.choice((cut, Broker.stop))(broker)
                broker = None
                assert (await reached(states, "lost")).address == address
            elif deed == "publish" and broker is not None:
                number += 1
                await service.publish({"n": number})
                for events, expected in standing.items():
                    expected.append(number)
                    assert await numbers(events, 1) == expected[-1:]
            elif deed == "subscribe" and broker is not None:
                standing[await service.subscribe("n any")] = []
            elif deed == "update" and standing and broker is not None:
                await chance.choice(list(standing)).update(f"n > {-chance.randrange(2, 99)}")
            elif deed == "leave" and standing:
                events = chance.choice(list(standing))
                del standing[events]
                await events.unsubscribe()
            elif broker is None:
                broker = await begun(address)
                await reached(states, "connected")
                assert broker.statistics().subscriptions == len(standing)
        if broker is None:
            broker = await begun(address)
        await service.publish({"n": -1})
        assert [await numbers(events, 1) for events in standing] == [[-1]] * len(standing)
    await broker.stop()


@pytest.mark.parametrize("seed", range(10))
@on_loop
async def test_nothing_is_duplicated_or_missed_under_churn(seed: int) -> None:
    """An order of events that nobody has thought of would confuse a client."""
    await _one_world(seed)


@pytest.mark.quick_every(4)
@pytest.mark.parametrize("seed", range(8))
@on_loop
async def test_connections_that_break_at_any_moment_confuse_nobody(seed: int) -> None:
    """An operation during a loss would hang, or be done twice."""
    chance = random.Random(seed)
    unsure: set[int] = set()
    refused: set[int] = set()

    async def some_turns() -> None:
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)

    async def is_published(n: int) -> bool:
        try:
            await service.publish({"n": n, "by": n % 3})
        except ConnectionFailedError as error:
            (unsure if error.may_be_published else refused).add(n)
            return False
        return True

    async def publish(first: int) -> None:
        for n in range(first, 300, 3):
            await is_published(n)

    async def come_and_go() -> None:
        for _ in range(30):
            with contextlib.suppress(ConnectionFailedError):
                async with service.subscribe("n any"):
                    await some_turns()

    soon = ClientLimits(backoff=SOON)
    async with Broker(port=0) as broker, TcpService(broker.address, limits=soon) as service:
        got: dict[object, list[Any]] = {n: [] for n in range(3)}
        async with service.subscribe("n any") as events:

            async def update() -> None:
                for n in range(30):
                    with contextlib.suppress(ConnectionFailedError):
                        await events.update(f"n >= {-n}")
                    await some_turns()

            reading = asyncio.create_task(
                events.handle(lambda found: got[found["by"]].append(found["n"]))
            )
            working = [asyncio.create_task(publish(n)) for n in range(3)]
            working += [asyncio.create_task(come_and_go()), asyncio.create_task(update())]
            while not all(each.done() for each in working):
                await some_turns()
                for each in list(broker._connections):
                    each.abort()
            await asyncio.gather(*working)
            # Refused publications were never sent; new ones arrive.
            assert refused.isdisjoint(n for some in got.values() for n in some)
            last = 300
            while not await is_published(last):  # The last connection may have ended just now.
                last += 3
            await until(lambda: got[0][-1:] == [last])
            assert all(some == sorted(set(some)) for some in got.values()), "in order, and once"
            tried = 300 + (last - 300) // 3 + 1
            assert service.statistics().published + len(unsure) + len(refused) == tried
            assert service.statistics().subscriptions == 1
            await until(lambda: broker.statistics().subscriptions == 1)
            assert events.statistics().reconnects > 0
        await reading
