"""An embedded service that is a server of a network: its links, its name, its beginning and end."""

import asyncio
import random
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import (
    CannotPublishError,
    ConnectionFailedError,
    ContradaError,
    DeliveryError,
    InputError,
    LimitError,
    ServiceClosedError,
    ServiceError,
)
from contrada.model import Filter, FilterSet
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.embedded_broker import EmbeddedBroker
from contrada.net.broker.neighbours import Membership
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.service import ConnectionState, Service
from contrada.service.dispatch_routes import LINK_DOWN
from contrada.service.service_limits import CoreLimits
from contrada.service.stores.sqlite_store import SqliteStore
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.homes import CERTIFIED, MARKER, numbers, rest
from tests.net.networks import network
from tests.net.processes import serving
from tests.net.soon import BROKER_LIMITS, connect
from tests.net.test_durable_stores import publish_all, read_all
from tests.net.test_elsewhere import FORKED, FORKED_BLOCKING
from tests.net.test_neighbours import free_ports, know

NOBODY = "contrada://127.0.0.1:1"
"""Where no broker listens."""


def joined(
    broker: Broker, name: str = "desk", limits: BrokerLimits = BROKER_LIMITS, **options: Any
) -> Service:
    """An embedded service with this neighbour."""
    service = connect(neighbours=[broker.address], name=name, **options)
    return limited(service, limits)


def limited(service: Service, limits: BrokerLimits) -> Service:
    """The service, its broker with these limits."""
    assert isinstance(service, EmbeddedBroker)
    service._server.limits = limits
    return service


# --- opening --------------------------------------------------------------------------------------


def filters_at(service: ct.Service) -> int:
    """The filters in the tables of a service with neighbours."""
    router: Router = service._server.dispatcher.router  # type: ignore[attr-defined]
    return router.statistics().filters.nodes


@on_loop
async def test_subscriptions_of_the_network_are_known_once_it_is_open() -> None:
    """The first publications of a program would be lost silently."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[1].address) as far,
        far.subscribe("a any") as events,
    ):
        await until(lambda: brokers.is_at_rest)
        for each in range(10):
            async with joined(brokers[0], f"s{each}") as service:
                await service.publish({"a": each})
            assert (await events.next(10))["a"] == each


@on_loop
async def test_subscriptions_of_later_turns_are_known_once_it_is_open() -> None:
    """Those of a large network would miss the first publications."""
    limits = CoreLimits(router=RouterLimits(rerouted_per_turn=1))
    filters = FilterSet([Filter({"a": each}) for each in range(50)])
    async with (
        Broker(port=0, network=Membership("a"), core_limits=limits) as broker,
        connect(broker.address) as owner,
        owner.subscribe(filters),
        joined(broker) as service,
    ):
        assert filters_at(service) == 50


@on_loop
async def test_it_opens_again_while_its_former_link_is_withdrawn() -> None:
    """A restarted program would fail, as if no neighbour answered."""
    limits = CoreLimits(router=RouterLimits(rerouted_per_turn=1))
    filters = FilterSet([Filter({"a": each}) for each in range(500)])
    async with (
        Broker(port=0, network=Membership("a"), core_limits=limits) as broker,
        connect(broker.address) as owner,
        owner.subscribe(filters),
    ):
        for _ in range(2):
            async with joined(broker) as service:
                assert filters_at(service) == 500
        assert broker.refused["busy"]


@on_loop
async def test_durable_publications_reach_logs_known_once_it_is_open(tmp_path: Path) -> None:
    """Certified notifications would be lost, since the log is not announced yet."""
    async with (
        Broker(port=0, network=Membership("a"), store=tmp_path / "a.db") as broker,
        connect(broker.address) as owner,
    ):
        async with owner.subscribe("n any", durable="s"):
            pass
        for each in range(5):
            path = tmp_path / f"{each}.db"
            async with joined(broker, f"s{each}", store=path) as service:
                await service.publish({"n": each}, delivery=CERTIFIED)
        assert await rest(owner, "s") == list(range(5))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"name": "s"}, ServiceError, "name: a service without neighbours or a parent"),
        ({"general": True, "trees": 2}, ServiceError, "general, trees: a service without"),
        ({"neighbours": [NOBODY]}, ServiceError, "needs a name in the network; add name="),
        ({"parent": NOBODY}, ServiceError, "needs a name in the network; add name="),
        ({"neighbours": [NOBODY, NOBODY], "name": "s"}, ServiceError, "again, expected one link"),
        (
            {"neighbours": ["contrada://a", "contrada://A:7655"], "name": "s"},
            ServiceError,
            "found 'contrada://a:7655' again, expected one link",
        ),
        ({"neighbours": [NOBODY], "parent": NOBODY, "name": "s"}, ServiceError, "again"),
        ({"neighbours": NOBODY, "name": "s"}, InputError, "neighbours: found 'contrada://.*array"),
        ({"neighbours": ["a:1"], "name": "s"}, ct.errors.AddressError, "a:1"),
        (
            {"neighbours": [{"to": NOBODY, "cost": 0}], "name": "s"},
            InputError,
            r"\[0\].cost: found",
        ),
        ({"neighbours": [NOBODY], "name": "s" * 300}, InputError, "name: found"),
        ({"neighbours": [NOBODY], "name": "s", "trees": 99}, InputError, "trees: found 99"),
        (
            {"neighbours": [NOBODY], "name": "s", "tree": 1},
            ServiceError,
            "connect has no option tree",
        ),
        ({"neighbours": [NOBODY], "name": "s", "reconnect": False}, ServiceError, "for ever"),
        ({"neighbours": [NOBODY], "name": "s", "reconnect_wait_s": 1}, ServiceError, "for ever"),
        ({"address": NOBODY, "name": "s"}, ServiceError, "name is for an embedded service"),
        (
            {"neighbours": [NOBODY], "name": "s", "tls": ssl.create_default_context()},
            ServiceError,
            "tls is for contradas://, and this is contrada://127.0.0.1:1",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_in_words(
    options: dict[str, Any], error: type[ContradaError], said: str
) -> None:
    """A program would be alone, or in another network than it thinks."""
    for make in (ct.connect, ct.connect_sync):
        with pytest.raises(error, match=said):
            make(**options)


@pytest.mark.parametrize(
    ("of", "options", "said"),
    [
        (Membership(), {}, "the other broker has no name: give it one"),
        (Membership("desk"), {}, "both brokers have the name 'desk'"),
        (Membership("a"), {"general": True}, "general is False at 'a' and True at 'desk'"),
        (
            Membership("a", general=True, trees=2),
            {"general": True},
            "trees is 2 at 'a' and 1 at 'desk'",
        ),
        (Membership("a"), {"advertisements": True}, "strategy is 'subscription forwarding' at 'a'"),
        (Membership("a", sequencer="a"), {}, "sequencer is 'a' at 'a' and '' at 'desk'"),
    ],
)
@on_loop
async def test_a_misfit_with_the_network_is_reported_at_once(
    of: Membership, options: dict[str, Any], said: str
) -> None:
    """A program would run without deliveries, and without the reason in its log."""
    told: list[ConnectionState] = []
    async with Broker(port=0, network=of) as broker:
        service = joined(broker, on_connection=told.append, **options)
        with pytest.raises(ConnectionFailedError, match=said) as failed:
            await service.open()
        assert failed.value.address == broker.address
        assert (told[-1].state, service.connection.state) == ("closed", "closed")
        assert said in told[-1].reason
        assert not len(broker.neighbours)
        with pytest.raises(ServiceClosedError):
            await service.open()
        with pytest.raises(ServiceClosedError):
            await service.publish({"a": 1})


@on_loop
async def test_where_no_neighbour_is_there_each_is_named() -> None:
    """A person would look for the fault at the wrong address."""
    others = ["contrada://127.0.0.1:1", "contrada://127.0.0.1:2"]
    with pytest.raises(ConnectionFailedError) as failed:
        await connect(neighbours=others, name="desk").open()
    for each in others:
        assert f"{each}: connection refused" in str(failed.value)
    assert len(asyncio.all_tasks()) == 1


@on_loop
async def test_one_neighbour_is_enough_and_the_other_is_tried_again() -> None:
    """A program could not begin while a part of the network is down."""
    (port,) = free_ports(1)
    late = f"contrada://127.0.0.1:{port}"
    async with (
        Broker(port=0, network=Membership("a")) as first,
        connect(neighbours=[first.address, late], name="desk") as service,
    ):
        assert set(service.statistics().link_sent) == {"a"}
        states = service.connection_states()
        async with Broker(port=port, network=Membership("b")):
            while (state := await anext(states)).state != "connected" or state.address != late:
                pass
            assert set(service.statistics().link_sent) == {"a", "b"}


@on_loop
async def test_a_silent_neighbour_is_not_awaited_for_long() -> None:
    """A program would hang where a broker hangs."""
    at_once, late = BrokerLimits(link_wait_s=0.05), BrokerLimits(link_wait_s=60, join_wait_s=0.05)
    silent = socket.create_server(("127.0.0.1", 0))  # It is connected to, and never looks.
    address = f"contrada://127.0.0.1:{silent.getsockname()[1]}"
    with pytest.raises(ConnectionFailedError, match="no answer within link_wait_s"):
        await limited(connect(neighbours=[address], name="desk"), at_once).open()
    with pytest.raises(ConnectionFailedError, match="sent nothing within join_wait_s"):
        await limited(connect(neighbours=[address], name="desk"), late).open()
    closed, cancelled = (connect(neighbours=[address], name="desk") for _ in range(2))
    opening = [asyncio.create_task(each.open()) for each in (closed, cancelled)]
    await asyncio.sleep(0)
    await closed.aclose()
    with pytest.raises(ServiceClosedError):
        await opening[0]
    opening[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening[1]
    assert cancelled.connection.state == "closed"
    silent.close()


# --- links ----------------------------------------------------------------------------------------


@on_loop
async def test_a_lost_link_is_reported_and_restored() -> None:
    """A program would be cut off when a broker is restarted, and not know it."""
    (port,) = free_ports(1)
    address = f"contrada://127.0.0.1:{port}"
    told: list[ConnectionState] = []
    broker = Broker(port=port, network=Membership("a"))
    await broker.start()
    async with (
        joined(broker, on_connection=told.append) as service,
        service.subscribe("a any") as events,
    ):
        for incarnation in range(3):
            await until(lambda: service.connection.state == "connected")
            async with connect(address) as client, client.subscribe("b any") as theirs:
                await until(partial(know, [broker], 2))
                await client.publish({"a": incarnation})
                assert (await events.next(10))["a"] == incarnation
                await until(lambda: filters_at(service) == 2)
                await service.publish({"b": incarnation})
                assert (await theirs.next(10))["b"] == incarnation
            await broker.stop()
            await until(lambda: service.connection.state == "trying")
            assert service.statistics().link_sent == {}
            await service.publish({"a": -1})
            assert (await events.next(10))["a"] == -1
            broker = Broker(port=port, network=Membership("a"))
            await broker.start()
    await broker.stop()
    states = [each.state for each in told]
    assert states[:3] == ["connected", "lost", "trying"]
    assert states[-1] == "closed"
    lost = next(each for each in told if each.state == "lost")
    assert (lost.address, lost.reason) == (address, "the broker stops")
    tried = next(each for each in told if each.state == "trying")
    assert (tried.address, tried.attempt) == (address, 1)
    assert {each.address for each in told[:-1]} == {address}


@pytest.mark.parametrize("options", [{}, {"general": True}, {"general": True, "trees": 1}])
@on_loop
async def test_it_forwards_between_its_neighbours(options: dict[str, Any]) -> None:
    """It would be a client of two brokers, and no server of the network."""
    of = {"trees": 0} | options
    async with (
        Broker(port=0, network=Membership("a", **options)) as one,
        Broker(port=0, network=Membership("b", **options)) as other,
        connect(one.address) as publisher,
        connect(other.address) as subscriber,
        subscriber.subscribe("a any") as events,
        connect(neighbours=[one.address, other.address], name="desk", **of) as service,
    ):
        await until(lambda: one.dispatcher.router.statistics().filters.nodes == 1)
        await publisher.publish_batch({"a": each} for each in range(500))
        assert [(await events.next(10))["a"] for _ in range(500)] == list(range(500))
        assert service.statistics().link_sent["b"] == 500
        assert service.statistics().subscriptions == 0


@on_loop
async def test_it_may_have_a_parent() -> None:
    """A hierarchy would be closed to it."""
    async with (
        Broker(port=0, network=Membership("root")) as root,
        connect(root.address) as high,
        high.subscribe("a = 1") as up,
        connect(parent=root.address, name="leaf") as low,
        low.subscribe("a = 2") as down,
    ):
        await until(lambda: root.dispatcher.router.statistics().filters.nodes == 2)
        await low.publish({"a": 1})
        await high.publish({"a": 2})
        assert (await up.next(10))["a"] == 1
        assert (await down.next(10))["a"] == 2


@on_loop
async def test_undecoded_notifications_are_readable() -> None:
    """A subscriber would be given bytes in place of notifications."""
    async with (
        Broker(port=0, network=Membership("a")) as broker,
        connect(broker.address) as publisher,
        joined(broker) as service,
        service.subscribe("a >= 0 and b any") as events,
        service.subscribe("a any", where="a < 5") as few,
    ):
        await until(lambda: broker.dispatcher.router.statistics().filters.nodes >= 1)
        await publisher.publish_batch({"a": each, "b": "x"} for each in range(600))
        found = [await events.next(10) for _ in range(600)]
        assert found == [
            ct.Notification({"a": n, "b": "x"}, envelope=found[n].envelope) for n in range(600)
        ]
        assert [(await few.next(10))["a"] for _ in range(5)] == list(range(5))


@on_loop
async def test_matches_undecided_on_the_way_are_decided_here() -> None:
    """A subscriber would get unmatched notifications, since links have bounded work."""
    limits = BrokerLimits(batch_work_max=300, notification_work_max=300)
    hard = "a matches '(a|b)*a(a|b){12}c{3}d'"
    async with (
        Broker(port=0, network=Membership("a"), limits=limits) as broker,
        connect(broker.address) as publisher,
        joined(broker, limits=limits) as service,
        service.subscribe(hard) as events,
        service.subscribe(ct.Pattern(f"every {hard} -> b = 1")) as matches,
        service.subscribe("b any") as last,
    ):
        await until(lambda: know([broker], 2))
        text = "".join(random.Random(1).choices("ab", k=3_000)) + "a" * 13
        for n, end in enumerate(("d", "cccd", "ccd")):
            await publisher.publish({"a": text + end, "n": n})
        await publisher.publish({"b": 1})
        assert (await last.next(60))["b"] == 1
        assert (await events.next(60))["n"] == 1
        found = await matches.next(60)
        assert [each.get("n") for each in found.notifications] == [1, None]
        for each in (events, matches):
            with pytest.raises(TimeoutError):
                await each.next(0.1)
            assert each.statistics().delivered == 1
        assert service.statistics().safe_answers["holds: NOTIFICATION_WORK_MAX"]


@on_loop
async def test_a_notification_too_large_for_a_frame_is_refused_and_the_link_stays() -> None:
    """One large notification would end the link, repeatedly if it is reliable."""
    async with (
        Broker(port=0, network=Membership("a")) as broker,
        connect(broker.address) as client,
        client.subscribe("a any") as events,
        joined(broker) as service,
    ):
        for delivery in (None, "reliable"):
            with pytest.raises(LimitError, match="CONTENT_BYTES_MAX"):
                await service.publish({"a": 1}, body=bytes(CONTENT_BYTES_MAX), delivery=delivery)
        await service.publish({"a": 2}, body=bytes(CONTENT_BYTES_MAX - 500))
        assert (await events.next(10))["a"] == 2
        assert broker.statistics().refused == {}


@on_loop
async def test_publications_the_network_requires_advertised_are_refused() -> None:
    """A publisher would not learn that its notifications are not forwarded."""
    of = Membership("a", strategy=Strategy.ADVERTISEMENTS)
    async with Broker(port=0, network=of) as broker, joined(broker, advertisements=True) as service:
        with pytest.raises(ServiceError, match="not advertised"):
            await service.publish({"a": 1})


@on_loop
async def test_a_durable_publication_without_a_store_gives_help() -> None:
    """A user would get hints about flags of an unused command."""
    async with Broker(port=0, network=Membership("a")) as broker, joined(broker) as service:
        with pytest.raises(CannotPublishError, match=r"connect\(store="):
            await service.publish({"a": 1}, delivery=CERTIFIED)
        with pytest.raises(DeliveryError, match=r"connect\(store="):
            await service.subscribe("a any", durable="s")
        with pytest.raises(CannotPublishError, match="`sequencer=`"):
            await service.publish({"a": 1}, delivery="reliable total:orders")


# --- the end --------------------------------------------------------------------------------------


@on_loop
async def test_closing_delivers_queued_notifications() -> None:
    """The last publications of a program would be lost."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[1].address) as far,
        far.subscribe("a any") as events,
    ):
        await until(lambda: brokers.is_at_rest)
        async with joined(brokers[0]) as service:
            # More than the buffers of sockets hold: some are still queued at the end.
            await service.publish_batch(
                ct.Notification({"a": each}, body=bytes(10_000)) for each in range(2_000)
            )
        assert [(await events.next(60))["a"] for _ in range(2_000)] == list(range(2_000))
        dropped = service.statistics().dropped
        assert dropped == {}
        await until(lambda: len(brokers[0].neighbours) == 1)
        assert brokers[0].statistics().refused == {}


@on_loop
async def test_closing_delivers_durable_publications() -> None:
    """Shipments in memory, which are sent again, would be lost."""
    limits = BrokerLimits(channel_bytes_max=10_000, transfer_bytes_max=1_000)
    async with (
        Broker(port=0, network=Membership("a")) as broker,
        connect(broker.address) as owner,
        owner.subscribe("n any", reliable=True) as events,
    ):
        async with joined(broker, limits=limits) as service:
            batches = [[{"n": n, "x": "x" * 300}] * 20 for n in range(5)]
            published = [service.publish_batch(each, delivery="reliable") for each in batches]
            await asyncio.gather(*published)
        assert sorted(await numbers(events, 100)) == sorted([*range(5)] * 20)
        assert service._server.logs.held_back  # type: ignore[attr-defined]


@on_loop
async def test_closing_waits_for_a_neighbour_that_takes_nothing_only_so_long() -> None:
    """A program could not end, or losses would not be counted."""
    limits = BrokerLimits(handover_wait_s=0.05, stop_wait_s=0.05)
    async with (
        Broker(port=0, network=Membership("a")) as broker,
        connect(broker.address) as client,
        client.subscribe("a any"),
    ):
        service = await joined(broker, limits=limits, publish_wait_s=0)
        (link,) = broker.neighbours
        link.connection._transport.pause_reading()  # type: ignore[union-attr]
        await service.publish_batch({"a": n, "t": "x" * 10_000} for n in range(3_000))
        await service.aclose()
        dropped = service.statistics().dropped
        assert sum(dropped.values()) > 0
        assert LINK_DOWN in dropped
        assert len(asyncio.all_tasks()) < 20


@on_loop
async def test_a_cancelled_end_frees_the_store(tmp_path: Path) -> None:
    """It would stay locked for this process."""
    async with Broker(port=0, network=Membership("a")) as broker:
        service = await joined(broker, store=tmp_path / "s.db")
        await service.subscribe("n any", durable="s")
        publishing = asyncio.create_task(service.publish({"n": 1}, delivery=CERTIFIED))
        closing = asyncio.create_task(service.aclose())
        await asyncio.sleep(0)
        closing.cancel()  # While it waits until the notification is on stable storage.
        with pytest.raises(asyncio.CancelledError):
            await closing
        await publishing
    SqliteStore(tmp_path / "s.db").close()


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_broker_loses_no_durable_publication(tmp_path: Path) -> None:
    """An embedded service would keep its guarantees only without crashes."""
    (port,) = free_ports(1)
    address = f"contrada://127.0.0.1:{port}"
    options = ["--port", str(port), "--name", "a", "--store", str(tmp_path / "a.db")]

    @on_loop
    async def work() -> None:
        with ExitStack() as stack:
            process, _ = stack.enter_context(serving(*options))
            async with (
                connect(address) as client,
                client.subscribe("n any", durable="s", auto_acknowledge=False) as events,
                connect(neighbours=[address], name="d", store=tmp_path / "d.db") as service,
            ):
                accepted, done = list[int](), list[int]()
                stop = asyncio.Event()
                publishing = asyncio.create_task(publish_all(service, accepted, stop))
                reading = asyncio.create_task(read_all(events, done))
                await until(lambda: len(done) > 30)
                process.send_signal(signal.SIGKILL)
                process.wait()
                some = len(accepted) + 20
                await until(lambda: len(accepted) > some)
                stack.enter_context(serving(*options))
                stop.set()
                await publishing
                await until(lambda: len(done) >= len(accepted))
                reading.cancel()
                assert sorted(done) == sorted(accepted)

    work()


def test_code_that_does_not_await_joins_too(tmp_path: Path) -> None:
    """The blocking face would lack a part; or a log at the service be read from there alone."""
    with (
        serving("--port", "0", "--name", "a", folder=tmp_path) as (_, address),
        ct.connect_sync(neighbours=[address], name="d", store=tmp_path / "d.db") as service,
        ct.connect_sync(address) as client,
    ):
        with service.subscribe("n any", durable="s") as events:
            service.publish({"n": 1}, delivery=CERTIFIED)
            assert events.next(timeout_s=10).item["n"] == 1
        while True:  # Until the broker has heard of it.
            client.publish({"n": MARKER}, delivery="reliable")
            with suppress(DeliveryError), client.subscribe(durable="s") as events:
                assert events.next(timeout_s=10).item["n"] == MARKER
                break


PROGRAM = """
import asyncio, itertools, sys
import contrada as ct

async def main(address, store, first):
    async with ct.connect(neighbours=[address], name="d", publisher="d", store=store) as service:
        for n in itertools.count(int(first)):
            await service.publish({"n": n}, delivery="certified")
            print(n, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
@on_loop
async def test_a_program_that_is_killed_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    """Accepted notifications would be lost with it, or doubled."""
    accepted: list[int] = []
    store = tmp_path / "d.db"
    async with (
        Broker(port=0, network=Membership("a"), store=tmp_path / "a.db") as broker,
        connect(broker.address) as client,
        client.subscribe("n any", durable="s") as events,
    ):
        for incarnation in range(3):
            program = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-c",
                    PROGRAM,
                    broker.address,
                    str(store),
                    str(incarnation * 10**6),
                ),
                stdout=asyncio.subprocess.PIPE,
            )
            assert program.stdout is not None
            for _ in range(30):
                accepted.append(int(await program.stdout.readline()))  # noqa: PERF401
            program.kill()
            accepted += [int(line) for line in (await program.stdout.read()).splitlines()]
            await program.wait()
        async with joined(broker, "d", publisher="d", store=store) as service:
            await service.publish({"n": MARKER}, delivery=CERTIFIED)
        done: list[int] = []
        while MARKER not in done or not set(accepted) <= set(done):
            done += await numbers(events, 1)
        assert len(done) == len(set(done))
        assert done == [*sorted(done[:-1]), MARKER], "in their order"


@pytest.mark.slow
def test_a_forked_program_gets_an_error() -> None:
    """Two processes would speak over one link."""
    with serving("--port", "0", "--name", "a", "--store", "memory:") as (_, address):
        for code, old, new in (
            (FORKED, "ct.connect(address)", "ct.connect(neighbours=[address], name='d')"),
            (
                FORKED_BLOCKING,
                "ct.connect_sync(*sys.argv[1:])",
                "ct.connect_sync(neighbours=sys.argv[1:], name='d')",
            ),
        ):
            assert old in code
            command = [sys.executable, "-W", "ignore", "-c", code.replace(old, new), address]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
