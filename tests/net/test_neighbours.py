"""Networks of brokers deliver like a single one, with any changes of links."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from random import SystemRandom
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from contrada.connections import connect
from contrada.model import Envelope, Filter, FilterSet, Notification, to_msgpack
from contrada.model.algebra.sets import matches
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.link import ON_ITS_WAY
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.frames import Failure, Hello, Hop, Reply
from contrada.net.wire.message_codec import decode_hop, encode_message
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Role,
    Send,
    Subscribe,
)
from contrada.routing.tables import poset
from contrada.service.backoff import BackoffLimits
from contrada.service.dispatch_routes import LINK_DOWN
from contrada.service.service_limits import CoreLimits
from tests.asynchronous import on_loop, until
from tests.net.networks import Links, are_linked, network
from tests.net.requests import publish
from tests.net.soon import SOON
from tests.net.test_broker import RawClient

Attempts: TypeAlias = Callable[[], list[logging.LogRecord]]


PORTS: Final = range(10_000, 20_000)


def free_ports(count: int) -> list[int]:
    """Ports of no other listener, outside the range that the system gives to connections: those of
    others take none of them while a broker is down.
    """
    found: list[socket.socket] = []
    while len(found) < count:
        with suppress(OSError):
            found.append(socket.create_server(("127.0.0.1", SystemRandom().choice(PORTS))))
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


def know(brokers: Sequence[Broker], count: int) -> bool:
    """Whether each broker holds so many filters."""
    return all(each.dispatcher.router.statistics().filters.nodes == count for each in brokers)


def stranger(broker: Broker, **said: Any) -> Hello:
    """Returns the hello of a fitting broker."""
    fitting = {**broker.neighbours.capabilities(), "name": "b", "instance": "another"}
    return Hello("neighbour", "test", {**fitting, "as": "peer", "cost": 1, **said})


def hop(*messages: Any) -> Hop:
    return Hop([encode_message(each) for each in messages])


def greeting() -> Hop:
    """Returns the first messages of a router over a link to broker `a`: they put it in use."""
    effects = Router(name="b").handle(LinkUp(Neighbour("a"), Role.PEER), 0)
    return hop(*(each.message for each in effects if isinstance(each, Send)))


@on_loop
@pytest.mark.parametrize(
    ("links", "options"),
    [
        ([(0, 1), (1, 2)], {}),
        ([(0, 1), (1, 2), (0, 2)], {"general": True, "trees": 1}),
        ([(0, 1), (1, 2), (0, 2)], {"general": True}),
    ],
)
async def test_publications_at_one_broker_reach_another(
    links: Links, options: dict[str, Any]
) -> None:
    """A network would be as many brokers that know nothing of one another."""
    async with network(3, links, **options) as brokers:
        async with (
            connect(brokers[0].address) as publisher,
            connect(brokers[2].address) as subscriber,
            subscriber.subscribe("a > 1") as events,
        ):
            await until(lambda: know(brokers, 1))
            for each in range(4):
                await publisher.publish({"a": each})
            found = [(await anext(events))["a"] for _ in range(2)]
            assert found == [2, 3]
            assert brokers[1].statistics().subscriptions == 0
        await until(lambda: know(brokers, 0))


@on_loop
async def test_parents_and_children_are_linked_over_tcp() -> None:
    """A hierarchy would be a network of peers, and its root see nothing."""
    async with Broker(port=0, network=Membership("root")) as root:
        above = WantedLink(parse_address(root.address), Role.PARENT)
        below = Membership("leaf", neighbours=(above,))
        async with Broker(port=0, network=below) as leaf:
            await until(lambda: len(root.neighbours) == len(leaf.neighbours) == 1)
            assert leaf.dispatcher.router.statistics().filters.nodes == 1, (
                "a parent wants everything"
            )
            async with (
                connect(leaf.address) as low,
                connect(root.address) as high,
                high.subscribe("a = 1") as up,
                low.subscribe("a = 2") as down,
            ):
                await until(lambda: root.dispatcher.router.statistics().filters.nodes == 2)
                await low.publish({"a": 1})
                await high.publish({"a": 2})
                assert (await anext(up))["a"] == 1
                assert (await anext(down))["a"] == 2


@on_loop
async def test_a_neighbour_that_is_away_is_tried_again() -> None:
    """A broker that starts too early, or with a restarted neighbour, would stay alone."""
    (port,) = free_ports(1)
    address = parse_address(f"contrada://127.0.0.1:{port}")
    async with (
        Broker(
            port=0,
            network=Membership("b", neighbours=(WantedLink(address),)),
            limits=BrokerLimits(backoff=SOON),
        ) as stays,
        connect(stays.address) as subscriber,
        subscriber.subscribe("a any") as events,
    ):
        for incarnation in range(3):
            await until(lambda: not len(stays.neighbours))
            async with Broker(address.host, port, network=Membership("a")) as comes:
                await until(partial(know, [stays, comes], 1))
                async with connect(comes.address) as publisher:
                    await publisher.publish({"a": incarnation})
                assert (await anext(events))["a"] == incarnation


@on_loop
async def test_two_brokers_that_dial_each_other_keep_one_link() -> None:
    """Each would refuse the other's connection, and both try again for ever."""
    for _ in range(5):
        ports = free_ports(2)
        wanted = [WantedLink(parse_address(f"contrada://127.0.0.1:{each}")) for each in ports]
        first, second = (
            Broker(
                port=port,
                network=Membership(name, neighbours=(other,)),
                limits=BrokerLimits(backoff=SOON),
            )
            for port, name, other in zip(ports, "ab", wanted[::-1], strict=True)
        )
        async with (
            first,
            second,
            connect(first.address) as one,
            connect(second.address) as other,
            one.subscribe("a any") as events,
        ):
            await until(partial(know, [first, second], 1))
            assert (len(first.neighbours), len(second.neighbours)) == (1, 1)
            await other.publish({"a": 1})
            assert (await anext(events))["a"] == 1


@on_loop
@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (Membership(), Membership("b"), "no name, so it takes no neighbours"),
        (Membership("a"), Membership("a"), "both brokers have the name 'a'"),
        (Membership("a", general=True), Membership("b"), "general is False at 'b' and True at 'a'"),
        (
            Membership("a", strategy=Strategy.ADVERTISEMENTS),
            Membership("b"),
            "strategy is 'subscription forwarding' at 'b' and 'advertisement forwarding' at 'a'",
        ),
        (
            Membership("a", general=True, trees=1),
            Membership("b", general=True, trees=2),
            "trees is 2 at 'b' and 1 at 'a'",
        ),
    ],
)
async def test_a_misfit_is_refused_with_a_reason(
    one: Membership, other: Membership, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two brokers would misunderstand one another, without a hint at the cause."""
    caplog.set_level("INFO", "contrada")
    async with Broker(port=0, network=one) as first:
        wanted = (WantedLink(parse_address(first.address)),)
        async with Broker(port=0, network=replace(other, neighbours=wanted)) as second:
            await until(lambda: said in caplog.text)
            assert not len(first.neighbours)
            assert not len(second.neighbours)


@on_loop
async def test_a_reader_that_sleeps_holds_up_no_other_beyond_a_link() -> None:
    """One reader at the other end of a link would stop all that is published."""
    limits = BrokerLimits(link_publish_wait_s=0.5, link_credit_bytes=20_000)
    credit = ClientLimits(credit_bytes=10_000)
    async with (
        network(2, [(0, 1)], limits) as brokers,
        connect(brokers[0].address) as publisher,
        TcpService(brokers[1].address, limits=credit) as sleeper,
        TcpService(brokers[1].address, limits=credit) as reader,
        sleeper.subscribe("a any"),
        reader.subscribe("a >= 0") as events,
    ):
        await until(lambda: know(brokers[:1], 1))  # One covers both.
        count = 12_000  # More than fits into the queue of the sleeping reader.

        async def publish() -> None:
            await publisher.publish_batch({"a": each, "b": "x" * 100} for each in range(count))

        task = asyncio.create_task(publish())
        found = [(await anext(events))["a"] for _ in range(count)]
        await task
        assert found == list(range(count))
        assert brokers[1].statistics().dropped["queue full"] > 0


@on_loop
async def test_a_mesh_delivers_once_and_routes_around_broken_links() -> None:
    """Redundant links would bring everything twice, or be of no use when one breaks."""
    links = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]
    never = BrokerLimits(backoff=BackoffLimits(first_s=1_000.0, longest_s=1_000.0))
    async with (
        network(4, links, never, general=True, trees=1) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as subscriber,
        subscriber.subscribe("a any") as events,
    ):
        await until(lambda: know(brokers, 1))
        for number, (a, b) in enumerate(links[:2]):
            await publisher.publish({"a": number})
            assert (await anext(events))["a"] == number
            next(each for each in brokers[b].neighbours if each.name == f"b{a}").connection.abort()
            await until(partial(are_linked, brokers, len(links) - number - 1))
            await until(lambda: know(brokers, 1))
        await publisher.publish({"a": 9})
        assert (await anext(events))["a"] == 9


@on_loop
async def test_garbage_of_a_neighbour_ends_its_link_only() -> None:
    """A confused broker would bring down all others."""
    async with network(2, [(0, 1)]) as brokers:
        (it,) = brokers[1].neighbours
        it.connection.send(Hop([msgspec.Raw(b"\xc1")]))
        it.connection.write()
        await until(lambda: brokers[0].refused["malformed"] == 1)
        async with connect(brokers[0].address) as service:
            await service.publish({"a": 1})


@on_loop
@pytest.mark.parametrize("is_decided", [True, False])
async def test_costly_notifications_are_delivered_too(is_decided: bool) -> None:
    """Tried again in parts it would be taken for a duplicate, or not get over the link."""
    limits = BrokerLimits(batch_work_max=2_000)
    if not is_decided:
        limits = BrokerLimits(batch_work_max=1_000, notification_work_max=1_000)
    text = "ab" * (40 if is_decided else 2_000)
    async with (
        network(2, [(0, 1)], limits) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[1].address) as subscriber,
        subscriber.subscribe({"t": matches("(a|b)*a(a|b){9}c{3}d")}) as events,
    ):
        await until(lambda: know(brokers, 1))
        count = 10
        sent = [{"t": text + "c" * (3 - each % 2) + "d", "a": each} for each in range(count)]
        assert await publisher.publish_batch(sent) == count
        assert [(await anext(events))["a"] for _ in range(count // 2)] == [*range(0, count, 2)]
        (it,) = brokers[0].neighbours
        await until(lambda: it.queue.credit == limits.link_credit_bytes)
        decided = brokers[0].statistics().safe_answers.get("holds: NOTIFICATION_WORK_MAX", 0)
        assert is_decided or decided


@on_loop
@pytest.mark.parametrize("ends", [0, 1])
async def test_answered_publications_arrive_or_are_counted_when_a_broker_stops(ends: int) -> None:
    """An orderly end would lose notifications in flight, uncounted."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[1].address) as subscriber,
        subscriber.subscribe("a any") as events,
    ):
        await until(lambda: know(brokers, 1))
        count = 3_000
        await publisher.publish_batch({"a": each} for each in range(count))
        stopping = asyncio.create_task(brokers[ends].stop())
        await until(lambda: not len(brokers[1 - ends].neighbours))
        await stopping
        dropped = [each.statistics().dropped for each in brokers]
        came = brokers[1].statistics().matched
        lost = sum(each.get(LINK_DOWN, 0) for each in dropped)
        assert came + lost <= count <= came + lost + dropped[0].get(ON_ITS_WAY, 0)
        del events


@on_loop
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"cost": 0}, "no cost of a link"),
        ({"as": "parent"}, "chooses its parent itself"),
        ({"name": "n" * 256}, "a name of more than"),
        ({"name": ""}, "has no name: give it one"),
    ],
)
async def test_a_stranger_that_does_not_fit_ends_no_link(said: dict[str, Any], reason: str) -> None:
    """A stranger with a broker's name could cut it off."""
    async with network(2, [(0, 1)]) as brokers:
        (it,) = brokers[0].neighbours
        raw = await RawClient.to(brokers[0], stranger(brokers[0], **{"name": "b1"} | said))
        assert isinstance(await raw.hears(), Hello)
        heard = await raw.hears()
        assert isinstance(heard, Failure)
        assert reason in heard.reason
        assert list(brokers[0].neighbours) == [it]
        await raw.leave()


@on_loop
async def test_a_link_is_withdrawn_before_a_newer_one_begins() -> None:
    """All registrations would be routed anew in one turn, which would hold the broker."""
    limits = CoreLimits(router=RouterLimits(rerouted_per_turn=1))
    filters = FilterSet([Filter({"a": each}) for each in range(50)])
    async with (
        Broker(port=0, network=Membership("a"), core_limits=limits) as broker,
        connect(broker.address) as owner,
        owner.subscribe(filters),
    ):
        router = broker.dispatcher.router
        raw = [await RawClient.to(broker, stranger(broker), greeting())]
        await until(lambda: router.statistics().links_used == 1 and not router.is_rerouting)
        for instance in "xy":  # The second one comes when the first link is withdrawn.
            raw.append(await RawClient.to(broker, stranger(broker, instance=instance)))
            assert isinstance(await raw[-1].hears(), Hello)
            await until(lambda: not router.is_rerouting)
        heard = await raw[1].hears()
        assert isinstance(heard, Failure)
        assert (heard.code, heard.reason) == (
            "busy",
            "'a' withdraws its former link; connect again",
        )
        assert [each.name for each in broker.neighbours] == ["b"]
        for each in raw:
            await each.leave()


@on_loop
async def test_a_wide_filter_is_replaced_soon_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A neighbour would send all that it matches until other subscriptions change."""
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 100)
    filters = FilterSet([Filter({"a": each}) for each in range(30)])
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[1].address) as owner,
        owner.subscribe("a any") as wide,
        owner.subscribe(filters),
    ):
        await until(lambda: know(brokers[:1], 1) and know(brokers[1:], 31))
        await wide.aclose()
        await until(lambda: know(brokers, 30))


@on_loop
async def test_a_broker_that_is_full_makes_its_links() -> None:
    """Its clients would shut it out of its network."""
    async with Broker(port=0, network=Membership("a")) as first:
        wanted = (WantedLink(parse_address(first.address)),)
        full = Broker(
            port=0,
            network=Membership("b", neighbours=wanted),
            limits=BrokerLimits(connections_max=0),
        )
        async with full:
            await until(lambda: len(first.neighbours) == len(full.neighbours) == 1)
            raw = await RawClient.to(full, Hello("client"))
            heard = await raw.hears()
            assert isinstance(heard, Failure)
            await raw.leave()


@on_loop
async def test_duplicate_publications_of_a_client_are_dropped_and_counted() -> None:
    """A client that repeats a request without an answer would get an error."""
    data = to_msgpack(Notification({"a": 1}, envelope=Envelope("p-1")))
    async with Broker(port=0, network=Membership("a")) as broker:
        raw = await RawClient.to(broker, Hello("client"), publish(2, 0, [data]))
        raw.say(publish(3, 0, [data]))
        heard = [await raw.hears() for _ in range(3)]
        assert heard[1:] == [Reply(2), Reply(3)]
        assert broker.statistics().dropped == {"duplicate": 1}
        assert broker.statistics().published == 2
        await raw.leave()


@on_loop
async def test_refusals_of_a_neighbour_are_counted_by_reason() -> None:
    """An operator would not see why a link forwards nothing."""
    publication = Publish((Notification({"a": 1}, envelope=Envelope("p-1")),), 2, "p")
    async with Broker(port=0, network=Membership("a")) as broker:
        raw = await RawClient.to(broker, stranger(broker), hop(publication, publication))
        await until(lambda: broker.statistics().refused == {Reason.WRONG_OWNER: 2})
        assert broker.statistics().published == 0, "what its clients publish"
        await raw.leave()


@on_loop
async def test_a_frame_to_a_neighbour_has_a_limit() -> None:
    """One frame would hold up all others, and be more than a neighbour takes."""
    asked = Subscribe("s", FilterSet([Filter({})]))
    limits = BrokerLimits(link_notifications_max=2)
    async with Broker(port=0, network=Membership("a"), limits=limits) as broker:
        raw = await RawClient.to(broker, stranger(broker), greeting(), hop(asked))
        await until(partial(know, [broker], 1))
        async with connect(broker.address) as service:
            await service.publish_batch({"a": each} for each in range(5))
        found: list[int] = []
        while sum(found) < 5:
            heard = await raw.hears()
            if isinstance(heard, Hop):
                published = [decode_hop(each) for each in heard.messages]
                found.append(sum(len(x.notifications) for x in published if isinstance(x, Publish)))
        assert [each for each in found if each] == [2, 2, 1]
        await raw.leave()


@pytest.mark.slow
@on_loop
async def test_a_neighbour_that_does_not_read_is_ended() -> None:
    """A broker with many messages would fill its memory."""
    limits = BrokerLimits(link_unread_bytes_max=1_000_000)
    async with Broker(port=0, network=Membership("a"), limits=limits) as broker:
        raw = await RawClient.to(broker, stranger(broker), greeting())
        await until(lambda: broker.dispatcher.router.statistics().servers == 2)
        async with connect(broker.address) as service, AsyncExitStack() as stack:
            for number in range(200):
                await stack.enter_async_context(
                    service.subscribe(Filter(f"a = {number}") & Filter({"t": "x" * 100_000}))
                )
                if not len(broker.neighbours):
                    break
            await until(lambda: not len(broker.neighbours))
            assert broker.statistics().refused["overloaded"] == 1
            await service.publish({"a": 1})
        await raw.leave()


@pytest.fixture
def attempts(caplog: pytest.LogCaptureFixture) -> Attempts:
    """Returns the records of the failed attempts to make a link, so far."""
    caplog.set_level("INFO", "contrada.net.broker.neighbours")
    return lambda: [each for each in caplog.records if "tried again" in each.msg]


@on_loop
async def test_links_of_a_moment_are_made_ever_more_rarely(attempts: Attempts) -> None:
    """Two that end one another's links would do nothing else."""
    limits = BrokerLimits(backoff=BackoffLimits(first_s=0.001))
    async with Broker(port=0, network=Membership("a")) as first:
        wanted = (WantedLink(parse_address(first.address)),)
        async with Broker(port=0, network=Membership("b", neighbours=wanted), limits=limits):
            for _ in range(6):
                await until(lambda: len(first.neighbours) == 1)
                (it,) = first.neighbours
                it.connection.abort()
                await until(lambda: not len(first.neighbours))
            waits: list[Any] = [each.args for each in attempts()]
    assert waits[4]["wait_s"] >= 0.008, "the fifth, at least half of what is due"


@on_loop
@pytest.mark.parametrize(("steady_s", "warnings"), [(0.0, 1), (1e9, 0)])
async def test_a_neighbour_that_stays_away_is_one_warning(
    steady_s: float, warnings: int, attempts: Attempts
) -> None:
    """An operator with a wrong address would see an idle broker and no reason, or all attempts, or
    each restart of a neighbour.
    """
    async with Broker(port=0) as gone:
        address = parse_address(gone.address)
    limits = BrokerLimits(backoff=BackoffLimits(first_s=0.001, longest_s=0.01, steady_s=steady_s))
    wanted = (WantedLink(address),)
    async with Broker(port=0, network=Membership("b", neighbours=wanted), limits=limits):
        await until(lambda: len(attempts()) >= 5)
    assert [each.levelname for each in attempts()].count("WARNING") == warnings


@on_loop
async def test_a_link_that_the_other_side_has_made_is_no_warning(attempts: Attempts) -> None:
    """Two brokers that list each other would warn, though they are linked."""
    limits = BrokerLimits(backoff=BackoffLimits(steady_s=0.0))
    async with Broker(port=0, network=Membership("a"), limits=limits) as first:
        wanted = (WantedLink(parse_address(first.address)),)
        other = Membership("b", neighbours=wanted)
        async with Broker(port=0, network=other, limits=limits) as second:
            await until(lambda: len(first.neighbours) == 1)
            first.neighbours.change([WantedLink(parse_address(second.address))])
            await until(lambda: bool(attempts()))
            assert attempts()[0].levelname == "INFO"


@on_loop
async def test_a_restart_of_a_neighbour_that_made_the_link_is_no_warning(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two brokers that list each other, one would warn at each restart of the other."""
    loop, passed_s = asyncio.get_running_loop(), [0.0]
    clock, limits = loop.time, BrokerLimits(backoff=BackoffLimits(first_s=0.0))
    async with Broker(port=0, network=Membership("b"), limits=limits) as first:
        wanted = (WantedLink(parse_address(first.address)),)
        async with Broker(port=0, network=Membership("a", neighbours=wanted)) as second:
            await until(lambda: len(first.neighbours) == 1)
            with monkeypatch.context() as patch:  # Only the new task keeps this clock.
                patch.setattr(loop, "time", lambda: clock() + passed_s[0])
                first.neighbours.change([WantedLink(parse_address(second.address))])
                await until(lambda: bool(attempts()))
            passed_s[0] = 3_600.0
        await until(lambda: len(attempts()) >= 2)
    assert [each.levelname for each in attempts()[:2]] == ["INFO", "INFO"]


@on_loop
async def test_neighbours_are_added_and_removed_while_a_broker_runs() -> None:
    """A network would have to be stopped to be changed, and all its clients with it."""
    brokers = [Broker(port=0, network=Membership(f"b{each}")) for each in range(3)]
    async with (
        brokers[0],
        brokers[1],
        brokers[2],
        connect(brokers[0].address) as publisher,
        connect(brokers[1].address) as one,
        connect(brokers[2].address) as other,
        one.subscribe("a any") as at_one,
        other.subscribe("a > 1") as at_other,
    ):
        first, second = (WantedLink(parse_address(each.address)) for each in brokers[1:])
        brokers[0].neighbours.change([first])
        await until(partial(know, brokers[:1], 1))
        (kept,) = brokers[0].neighbours
        await publisher.publish({"a": 1})
        assert (await anext(at_one))["a"] == 1
        brokers[0].neighbours.change([first, second])
        await until(partial(know, brokers[:1], 2))
        assert kept in brokers[0].neighbours
        brokers[0].neighbours.change([second])
        await until(partial(know, brokers[:1], 1))
        assert not len(brokers[1].neighbours)
        await publisher.publish({"a": 2})
        assert (await anext(at_other))["a"] == 2
        assert brokers[0].neighbours.network.neighbours == (second,)
        (before,) = brokers[2].neighbours
        brokers[0].neighbours.change([replace(second, cost=2)])
        await until(lambda: any(each is not before for each in brokers[2].neighbours))


@on_loop
@pytest.mark.parametrize("options", [{}, {"general": True, "trees": 1}, {"general": True}])
async def test_an_unopened_bundle_crosses_links_like_a_decoded_one(options: dict[str, Any]) -> None:
    """Bundles would be lost, doubled or reordered at a link."""
    links = [(0, 1), (1, 2), (0, 2)] if options else [(0, 1), (1, 2)]
    async with (
        network(3, links, **options) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as subscriber,
        subscriber.subscribe("a >= 0 and b any") as events,
    ):
        await until(lambda: know(brokers, 1))
        plain = [{"a": each, "b": "x"} for each in range(100)]
        others = [Notification({"a": each, "b": [1, 2]}) for each in range(100, 120)]
        again = [Notification(each, envelope=Envelope(f"p-{each['a']}", "p")) for each in plain]
        for batch in (plain, others, [{"a": -1, "b": 0}] * 8, again, again[:50]):
            assert await publisher.publish_batch(batch) == len(batch)
        found = [(await events.next(20))["a"] for _ in range(220)]
        assert found == [*range(120), *range(100)]
        await publisher.publish({"a": 500, "b": 0})
        assert (await events.next(20))["a"] == 500, "and nothing twice"
        assert brokers[0].statistics().dropped["duplicate"] == 50


@pytest.mark.parametrize("is_other_way", [False, True])
@on_loop
async def test_a_neighbour_that_is_wanted_twice_has_one_link_that_stays(is_other_way: bool) -> None:
    """Two links would take one another's place for ever, where both brokers, or two names of one
    address, ask for them.
    """
    limits = BrokerLimits(backoff=BackoffLimits(first_s=0.001, longest_s=0.002))
    async with Broker(port=0, network=Membership("north"), limits=limits) as north:
        address = parse_address(north.address)
        wanted = [WantedLink(address)]
        if not is_other_way:
            wanted.append(WantedLink(replace(address, host="localhost")))
        network_of_south = Membership("south", neighbours=tuple(wanted))
        async with Broker(port=0, network=network_of_south, limits=limits) as south:
            if is_other_way:
                north.neighbours.change([WantedLink(parse_address(south.address))])
            await until(lambda: len(north.neighbours) == len(south.neighbours) == 1)
            connections = 0
            while connections < north.statistics().connections_total:  # Until it is at rest.
                connections = north.statistics().connections_total
                for _ in range(50):  # Many times the wait until it tries again.
                    await asyncio.sleep(0.002)
            assert len(north.neighbours) == len(south.neighbours) == 1
            (link,) = south.neighbours
            link.connection.abort()
            await until(lambda: link not in [*south.neighbours])
            await until(lambda: len(north.neighbours) == len(south.neighbours) == 1)
