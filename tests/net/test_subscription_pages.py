"""The export of all client filters, in pages."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from contrada.errors import FrameError, ServiceError
from contrada.model import Filter, FilterSet, Pattern, from_msgpack, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.reconnection import Reconnection
from contrada.net.client.tcp_service import TcpService, read_subscriptions
from contrada.net.wire.frames import FrameReader, InspectReply, InspectRequest, encode
from contrada.net.wire.inspection import FilterPage, HeldFilters, Inspection, Position
from tests.asynchronous import on_loop
from tests.net.networks import network
from tests.net.requests import frames_in

MANY = [Filter(f"n = {n} and s = 'x{n}'") for n in range(3_000)]


def texts(held: list[HeldFilters]) -> Counter[tuple[str, str]]:
    """Returns the number of exports of each filter by name."""
    return Counter((name, str(from_msgpack(each))) for name, some in held for each in some)


def as_told(filters: list[Filter], name: str = "") -> Counter[tuple[str, str]]:
    """These filters, each once."""
    return Counter((name, str(each)) for each in filters)


async def page_from(service: TcpService, begin: Position) -> FilterPage:
    """One page."""
    page = (await service.reconnection.call(partial(InspectRequest, page_from=begin))).page
    return cast("FilterPage", page)


@on_loop
async def test_all_subscriptions_of_clients_are_listed_once(tmp_path: Path) -> None:
    """A pipeline would match less than the broker does, or more."""
    limits = BrokerLimits(page_filters_max=100)
    long = Filter("t in (" + ", ".join(f"'{n}'" for n in range(2_000)) + ")")
    both, either = Filter("a = 1"), FilterSet(["b = 1", "c = 1"])
    async with (
        Broker(port=0, store=tmp_path / "store.db", limits=limits) as broker,
        TcpService(broker.address) as service,
        TcpService(broker.address) as other,
        service.subscribe(FilterSet(MANY)),
        other.subscribe(FilterSet([both, MANY[7]])),
        service.subscribe(long),
        service.subscribe(either, durable="either"),
        service.subscribe(both, durable="both"),
        service.subscribe("d = 1", reliable=True),
        service.subscribe(Pattern([Filter("p = 1"), Filter("p = 2")], within_us=10**6)),
    ):
        held = await read_subscriptions(service)
        assert await read_subscriptions(other) == held
    expected = as_told([*MANY, both, long, Filter("d = 1")])
    expected += as_told([*either.filters], "either") + as_told([both], "both")
    assert texts(held) == expected
    assert {name for name, _ in held} == {"", "either", "both"}
    assert len([each for each in held if each[0] == "either"]) == 1, "it is told as one"


@on_loop
async def test_subscriptions_of_neighbours_are_not_listed() -> None:
    """Two brokers of a network would be taken to have the subscriptions of all."""
    async with (
        network(2, [(0, 1)]) as (north, south),
        TcpService(north.address) as here,
        TcpService(south.address) as there,
        here.subscribe("a = 1"),
        there.subscribe("a > 0"),
    ):
        assert texts(await read_subscriptions(here)) == as_told([Filter("a = 1")])
        assert texts(await read_subscriptions(there)) == as_told([Filter("a > 0")])


@on_loop
async def test_a_lasting_subscription_is_listed_once_while_others_change(tmp_path: Path) -> None:
    """A filter would be missed, or doubled, while clients are at work."""
    limits = BrokerLimits(page_filters_max=10)
    async with AsyncExitStack() as stack:
        store = tmp_path / "store.db"
        broker = await stack.enter_async_context(Broker(port=0, store=store, limits=limits))
        service = await stack.enter_async_context(TcpService(broker.address))
        coming = []
        for n, each in enumerate(MANY[:90]):
            options: dict[str, Any] = {"durable": f"d{n}"} if n % 3 == 2 else {}
            subscription = service.subscribe(each, **options)
            await subscription.__aenter__()
            if n % 3 == 1:
                coming.append(subscription)
            else:
                stack.push_async_exit(subscription)
        told: list[HeldFilters] = []
        begin: Position | None = (0, 0)
        places = 0
        while begin is not None:
            page = await page_from(service, begin)
            told, begin = told + page.held, page.following
            places += 1
            if coming:
                await coming.pop(places % len(coming)).__aexit__(None, None, None)
            if places < 10:
                late: dict[str, Any] = {"durable": f"late {places}"} if places % 2 else {}
                await stack.enter_async_context(service.subscribe(MANY[100 + places], **late))
        assert places > 9
    found = texts(told)
    stood = as_told([each for n, each in enumerate(MANY[:90]) if n % 3 == 0])
    for n in range(2, 90, 3):
        stood += as_told([MANY[n]], f"d{n}")
    assert {each: found[each] for each in stood} == dict(stood)


@on_loop
async def test_a_page_is_bounded() -> None:
    """One export would delay a broker's loop, and so all its clients."""
    size = len(to_msgpack(MANY[0]))
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        async with service.subscribe(FilterSet(MANY)):
            page = await page_from(service, (0, 0))
            assert len(page.held) == broker.limits.page_filters_max
            broker.limits = BrokerLimits(page_bytes_max=4 * size)
            page = await page_from(service, (0, 0))
            assert len(page.held) == 4
        broker.limits = BrokerLimits(page_numbers_max=1_000)
        async with service.subscribe("a = 1"):
            empty = await page_from(service, (0, 0))
            assert empty == FilterPage([], (0, 1_000)), "the numbers of those that have gone"
            assert texts(await read_subscriptions(service)) == as_told([Filter("a = 1")])
        beyond = await page_from(service, (2**63, 2**63))
        assert beyond == FilterPage([], None)


def test_a_page_cannot_begin_before_the_first() -> None:
    """Odd places would be looked at as if they were numbers."""
    reader = FrameReader()
    reader.feed(encode(InspectRequest(1, page_from=(0, -1))))
    with pytest.raises(FrameError, match="malformed InspectRequest"):
        frames_in(reader)


@pytest.mark.parametrize(
    ("page", "reason"),
    [(None, "is of an earlier version"), (FilterPage([], (0, 0)), r"\(0, 0\) follows")],
)
@on_loop
async def test_a_broker_that_tells_no_pages_is_refused(
    page: FilterPage | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline would match nothing, or ask for ever."""

    def answered(_: Reconnection, asking: Callable[[int], object]) -> asyncio.Future[InspectReply]:
        answer: asyncio.Future[InspectReply] = asyncio.get_running_loop().create_future()
        assert isinstance(asking(1), InspectRequest)
        answer.set_result(InspectReply(1, Inspection("", {}, [], {}, [], []), page))
        return answer

    monkeypatch.setattr(Reconnection, "call", answered)
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        with pytest.raises(ServiceError, match=reason):
            await read_subscriptions(service)
