"""A network that is inspected broker by broker, and the way of a notification through it, compared
with real publications.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from contrada.connections import connect
from contrada.errors import InvalidValueError
from contrada.model import Envelope, Notification
from contrada.net.broker.broker import Broker
from contrada.net.broker.inspector import FOREST_MAX
from contrada.net.broker.neighbours import _announced
from contrada.net.client.client_limits import NetworkLimits
from contrada.net.client.network_inspection import NetworkInspection, Reach
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import Address
from contrada.net.wire.inspection import HeldLink, HeldText, Inspection
from contrada.net.wire.payload_codec import encode_content
from contrada.routing.interest_forwarder import Strategy
from tests.asynchronous import on_loop, until
from tests.net.networks import Network, network
from tests.net.test_link_permissions import QUOTE, two

LINE = ((0, 1), (1, 2))
FILTERS = ("price < 100", "symbol = 'IBM'", "price < 10")
BARRIER = {"barrier": 1}
TRIED = ({"price": 5}, {"price": 50}, {"symbol": "IBM"}, {"price": 500, "symbol": "IBM"}, {"a": 1})


def reach(address: Address) -> TcpService:
    return TcpService(address, reconnect=False)


@asynccontextmanager
async def inspecting(
    address: str, reaching: Reach = reach, **limits: Any
) -> AsyncIterator[NetworkInspection]:
    async with TcpService(address, reconnect=False) as start:
        yield NetworkInspection(start, reaching, NetworkLimits(**limits), is_local=True)


def packed(item: dict[str, Any]) -> bytes:
    envelope = Envelope(id="test", publisher="somebody", time_us=1)
    return encode_content(Notification(item, envelope=envelope))


async def told(broker: Broker, item: dict[str, Any]) -> tuple[set[str], set[str], dict[str, str]]:
    """Returns the brokers that the item would reach, those of these that deliver it, and the
    reasons of others with subscriptions.
    """
    async with inspecting(broker.address) as seen:
        await seen.explore(packed(item))
        hops = await seen.follow(packed(item), broker.dispatcher.router.name)
    routed = [each for each in hops if each.held and not each.reason]
    delivering = {each.broker for each in routed if each.held and each.held.counts["delivering"]}
    return {each.broker for each in routed}, delivering, seen.missed(hops)


async def published(
    brokers: Network, publish: Any, item: dict[str, Any], readers: dict[str, Any]
) -> tuple[set[str], set[str]]:
    """Publishes an item. Returns the brokers that it reached, and those whose client got it."""

    def seen() -> dict[str, int]:
        routers = [each.dispatcher.router for each in brokers]
        return {each.name: each.statistics().received.get("Publish", 0) for each in routers}

    before = seen()
    await publish(item)
    await publish(BARRIER)  # It follows the item over each link, to all.
    got = {name: await until_barrier(events) for name, events in readers.items()}
    now = seen()
    return {name for name in now if now[name] == before[name] + 2}, {n for n in got if got[n]}


async def until_barrier(events: Any) -> list[Any]:
    got: list[Any] = []
    while "barrier" not in (event := await events.next(20)):
        got.append(event)
    return got


@pytest.mark.parametrize("strategy", [Strategy.SUBSCRIPTIONS, Strategy.ADVERTISEMENTS])
@pytest.mark.parametrize("options", [{}, {"general": True, "trees": 1}, {"general": True}])
@on_loop
async def test_the_told_way_is_the_real_one(strategy: Strategy, options: dict[str, Any]) -> None:
    """An operator would look for a fault where there is none, or not find it."""
    links = (*LINE, (0, 2)) if options else LINE
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(network(3, links, strategy=strategy, **options))
        services = [await stack.enter_async_context(connect(each.address)) for each in brokers]
        if strategy is Strategy.ADVERTISEMENTS:
            for each in services:
                await each.advertise("price any and symbol any and a any and barrier any")
        readers = {}
        for broker, service, text in zip(brokers, services, FILTERS, strict=True):
            events = service.subscribe(f"({text}) or barrier any")
            readers[broker.dispatcher.router.name] = await stack.enter_async_context(events)
        await until(lambda: brokers.is_at_rest)
        for broker, service in zip(brokers, services, strict=True):
            for item in TRIED:
                *foretold, missed = await told(broker, item)
                real = await published(brokers, service.publish, item, readers)
                assert (*foretold,) == real, (broker.address, item)
                assert missed == {}


@on_loop
async def test_a_missing_advertisement_is_named_where_it_is_missing() -> None:
    """An operator would search the subscriber's broker, though its publisher advertises nothing."""
    async with (
        network(3, LINE, strategy=Strategy.ADVERTISEMENTS) as brokers,
        connect(brokers[0].address) as publisher,
        connect(brokers[2].address) as reader,
        inspecting(brokers[0].address) as seen,
    ):
        await publisher.advertise("price any")
        async with reader.subscribe("symbol any"), reader.subscribe("price any"):
            await until(lambda: brokers.is_at_rest)
            item = packed({"symbol": "IBM"})
            await seen.explore(item)
            (hop,) = hops = await seen.follow(item, "b0")
            assert hop.reason == "not advertised by its publisher"
            why = (
                "b2 has not forwarded its subscription to b1: no advertisement from there meets it"
            )
            assert seen.missed(hops) == {"b2": why}
            assert await told(brokers[0], {"price": 1}) == ({"b0", "b1", "b2"}, {"b2"}, {})


@on_loop
async def test_missing_rights_are_named_at_both_ends_of_a_link() -> None:
    """An operator would not see that the user of the other broker lacks a right."""
    async with two(Strategy.SUBSCRIPTIONS, publish=QUOTE, subscribe=QUOTE) as (main, oslo, *both):
        here, there = both
        quote, alert = packed({"what": "quote"}), packed({"what": "alert"})
        async with here.subscribe("what any"), there.subscribe("what any"):
            tables = [each.dispatcher.router.statistics for each in (main, oslo)]
            # Of both one filter, of a client and of the neighbour.
            await until(lambda: all(each().subscriptions.entries == 2 for each in tables))
            async with inspecting(main.address) as seen:
                await seen.explore(quote)
                assert [it.broker for it in await seen.follow(quote, "main")] == ["main", "oslo"]
                await seen.explore(alert)
                (hop,) = hops = await seen.follow(alert, "main")
                why = "'oslo', the user of this neighbour, may not read it"
                assert hop.steps[0].reason == why
                assert seen.missed(hops)["oslo"] == f"main does not forward it to oslo: {why}"
                first, second = await seen.follow(alert, "oslo")
                assert (first.broker, second.broker) == ("oslo", "main")
                assert second.reason.startswith("'oslo' may not publish a notification of what")


@on_loop
async def test_brokers_are_found_by_both_ends_of_links_and_bounds_are_reported() -> None:
    """Half of a network would be missing without a word, or one dead broker stop the rest."""
    async with network(4, (*LINE, (2, 3))) as brokers:
        for each in (0, 3):  # The first dialled nobody, the last was dialled by nobody.
            async with inspecting(brokers[each].address) as seen:
                await seen.explore()
                assert sorted(seen.brokers) == ["b0", "b1", "b2", "b3"]
                assert all(it.held and it.statistics["connections"] for it in seen.brokers.values())

        async with inspecting(brokers[0].address, network_brokers_max=2) as seen:
            await seen.explore()
            assert (sorted(seen.brokers), seen.left_out) == (["b0", "b1"], 1)

        @asynccontextmanager
        async def silent(address: Address) -> AsyncIterator[TcpService]:
            await asyncio.Event().wait()
            yield reach(address)

        for limit in ("broker_answer_s", "network_answer_s"):
            async with inspecting(brokers[0].address, silent, **{limit: 0.01}) as seen:
                await seen.explore()
                assert limit in seen.brokers["b1"].reason
                assert "b2" not in seen.brokers
                hops = await seen.follow(packed({"price": 1}), "b1")
                assert "not known further" in hops[0].reason


@on_loop
async def test_an_address_comes_from_a_link_and_stays_on_its_host() -> None:
    """A broker elsewhere could have the gateway call services that only its own host reaches."""
    async with network(2, ((0, 1),)) as brokers, TcpService(brokers[0].address) as start:
        there = NetworkInspection(start, reach, is_local=False)
        await there.explore()
        assert there.brokers["b1"].reason == (
            f"{brokers[1].address} is an address on the host of 'b0'"
        )
        here = NetworkInspection(start, reach, is_local=True)
        link = (await start.inspection()).links[0]
        start.inspection = lambda *_, **__: answer(link)  # type: ignore[method-assign]

        async def answer(link: HeldLink) -> Inspection:
            named = [structs.replace(link, name="b9"), structs.replace(link, name="c", address="x")]
            return Inspection("b0", {}, named, {}, [], [])

        await here.explore()
        assert "has the name 'b1'" in here.brokers["b9"].reason
        assert "contrada://host" in here.brokers["c"].reason


def test_a_broker_that_listens_at_all_addresses_is_reached_where_it_calls_from() -> None:
    """Its neighbours would name an address that leads to themselves."""

    class Ended:
        def __init__(self, *peer: object) -> None:
            self.transport = self
            self.get_extra_info = lambda _: peer or None

    for told_address, peer, address in (
        ("contrada://0.0.0.0:7655", ("10.0.0.7", 999), "contrada://10.0.0.7:7655"),
        ("contradas://[::]:1", ("fe80::7", 9, 0, 0), "contradas://[fe80::7]:1"),
        ("contradas://oslo.example:7", ("10.0.0.7", 9), "contradas://oslo.example:7"),
        ("contrada://127.0.0.1:7655", ("127.0.0.1", 9), "contrada://127.0.0.1:7655"),
        ("contrada://127.0.0.1:7655", ("10.0.0.7", 9), ""),
        ("contrada://0.0.0.0:7655", (), ""),
        ("http://x", ("10.0.0.7", 9), ""),
        (None, ("10.0.0.7", 9), ""),
    ):
        assert _announced(told_address, Ended(*peer)) == address  # type: ignore[arg-type]


@on_loop
async def test_a_forest_is_read_in_parts() -> None:
    """A broker with many filters would send all of them at once, or leave some out."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(network(2, ((0, 1),)))
        client = await stack.enter_async_context(connect(brokers[0].address))
        texts = [f"a < {n}" for n in range(250)], [f"b = {n}" for n in range(205)]
        for text in (*texts[0], *texts[1]):
            await stack.enter_async_context(client.subscribe(text))
        await until(lambda: brokers.is_at_rest)
        seen = await stack.enter_async_context(inspecting(brokers[0].address))
        await seen.explore()
        (link,) = seen.brokers["b0"].held.links  # type: ignore[union-attr]
        assert (link.wanted, link.sent) == (455, 206)
        roots = await parts_of(seen, "b1", -1)
        assert sorted(each.text for each in roots) == sorted(["a < 249", *texts[1]])
        found = [each for each in roots if each.below]
        for each in found:
            found += await parts_of(seen, "b1", each.number) if each.below else []
        assert sorted(each.text for each in found) == sorted(texts[0])
        assert len(await parts_of(seen, "", -1)) == 455
        with pytest.raises(InvalidValueError, match="no broker of this network"):
            await seen.forest("elsewhere", ("", "", -1, 0))


async def parts_of(seen: NetworkInspection, neighbour: str, above: int) -> list[HeldText]:
    found: list[HeldText] = []
    number = 0
    while number >= 0:
        part = await seen.forest("b0", (neighbour, "", above, number))
        assert len(part.filters) <= FOREST_MAX
        found += part.filters
        number = part.following
    return found
