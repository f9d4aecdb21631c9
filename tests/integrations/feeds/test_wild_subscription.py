"""Subscriptions with patterns of names."""

import asyncio

import pytest

from contrada.connections import connect
from contrada.errors import (
    ConnectionFailedError,
    InvalidFilterError,
    LimitError,
    NotPermittedError,
    ServiceError,
)
from contrada.integrations.documents.naming_table import MARK, NamingRecord
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import NamingService
from contrada.integrations.feeds.wild_subscription import WildSubscription
from contrada.model import FilterSet
from contrada.net.broker.broker import Broker
from contrada.routing.router_limits import RouterLimits
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import CoreLimits
from tests.asynchronous import on_loop, until
from tests.net import soon
from tests.net.networks import network


def index(*numbers: int) -> dict[str, tuple[str, str]]:
    """Names of titles of some stories."""
    return {f"s.{n}.title": ("s.title", f"s[{n + 1}].title") for n in numbers}


@on_loop
async def test_names_that_are_given_are_asked_for() -> None:
    """A broker would have to know patterns, or send everything."""
    async with (
        EmbeddedService() as service,
        WildSubscription(service, "`s.*.title` = 'x'", index(0, 1)) as events,
    ):
        assert events.filters == FilterSet("`s.0.title` = 'x' or `s.1.title` = 'x'")
        await service.publish({"s.0.title": "x", "n": 1})
        await service.publish({"s.0.title": "y", "n": 2})
        await service.publish({"s.7.title": "x", "n": 3})
        await service.publish({"s.1.title": ["x", "y"], "n": 4})
        assert [(await anext(events))["n"] for _ in range(2)] == [1, 4]
        await events.learn(["s.7.title"])
        await service.publish({"s.7.title": "x", "n": 5})
        assert (await events.next(5))["n"] == 5
        assert events.known == {"s.0.title", "s.1.title", "s.7.title"}
        assert events.statistics().delivered == 3


@on_loop
async def test_nothing_known_is_nothing_yet() -> None:
    """An early subscriber would be refused, or get everything."""
    async with (
        EmbeddedService() as service,
        WildSubscription(service, "`s.*.title` = 'x' or `t.<0-9>` = 1") as events,
    ):
        for name in ("s.0.title", "s.*.title", "t.<0-9>", "t.1"):
            await service.publish({name: "x"})
        await events.learn(["t.1"])
        await service.publish({"t.1": 1})
        assert (await events.next(5))["t.1"] == 1


@on_loop
async def test_new_names_are_followed_without_a_gap() -> None:
    """Notifications published while names are added would be lost, or delivered twice."""
    async with (
        EmbeddedService() as service,
        NamingService(service) as kept,
        WildSubscription(service, "`s.*.title` = 'x'", names=(names := Names(service))) as events,
    ):
        await names.register("rss", index(0))
        await until(lambda: "s.0.title" in events.known)
        await until(lambda: events.filters == FilterSet("`s.0.title` = 'x'"))

        async def publish() -> None:
            for number in range(200):
                await service.publish({"s.0.title": "x", "n": number})
                await asyncio.sleep(0)

        publishing = asyncio.create_task(publish())
        for number in range(1, 20):
            await names.register("rss", index(number))
        await publishing
        await until(lambda: len(events.known) == 20)
        assert [(await anext(events))["n"] for _ in range(200)] == list(range(200))
        assert len(kept.table) == 20


@on_loop
async def test_over_real_brokers() -> None:
    """Names announced at one broker would be followed only there."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[0].address) as north,
        connect(brokers[1].address) as south,
        NamingService(north, name="north"),
    ):
        await until(lambda: brokers.is_at_rest)
        sender = Names(north)
        await sender.register("rss", index(0))
        async with WildSubscription(south, "`s.*.title` = 'x'", names=Names(south)) as events:
            assert events.known == {"s.0.title"}
            await sender.register("rss", index(1))
            await until(lambda: "s.1.title" in str(events.filters))
            await until(lambda: brokers.is_at_rest)
            await north.publish({"s.1.title": "x"})
            assert (await events.next(10))["s.1.title"] == "x"


@on_loop
async def test_too_many_names_cost_traffic_only() -> None:
    """Beyond a limit notifications would be missed."""
    limits = FeedLimits(names_followed_max=3)
    async with (
        EmbeddedService() as service,
        WildSubscription(
            service, "kind = 1 and `s.*.title` = 'x'", index(0), limits=limits
        ) as events,
    ):
        await events.learn(index(1, 2, 3))
        assert events.filters == FilterSet("kind = 1")
        await service.publish({"s.9.title": "y", "kind": 1})
        await service.publish({"s.9.title": "x", "kind": 1})
        assert (await events.next(5))["s.9.title"] == "x"


@on_loop
async def test_it_is_updated() -> None:
    """A subscriber with a new interest would miss notifications in between."""
    async with (
        EmbeddedService() as service,
        WildSubscription(service, "`s.*.title` = 'x'", index(0, 1)) as events,
    ):
        await events.update("`s.<1-9>.title` = 'y'")
        await service.publish({"s.0.title": "y"})
        await service.publish({"s.1.title": "y"})
        assert "s.1.title" in await events.next(5)
        with pytest.raises(InvalidFilterError):
            await events.update("`s.*` absent")
        assert events.filters == FilterSet("`s.1.title` = 'y'")


@on_loop
async def test_wrong_ones_are_refused_before_anything_is_opened() -> None:
    """A wrong pattern would be found out late, or never."""
    async with EmbeddedService() as service:
        with pytest.raises(InvalidFilterError, match="pattern of names"):
            WildSubscription(service, "`s.*` absent")
        with pytest.raises(ServiceError, match="no naming service"):
            await WildSubscription(service, "`s.*` = 1", names=Names(service, wait_s=0.01)).open()
        assert service.statistics().subscriptions == 0


@on_loop
async def test_wrong_records_are_passed_over() -> None:
    """One stranger would end the subscription."""
    async with (
        EmbeddedService() as service,
        NamingService(service),
        WildSubscription(service, "`s.*.title` = 'x'", names=Names(service)) as events,
    ):
        await service.publish({MARK: "record", "generated": 5})
        await Names(service).register("rss", index(0))
        await until(lambda: events.known == {"s.0.title"})


@on_loop
async def test_it_ends_where_it_cannot_follow() -> None:
    """It would continue without new names, unnoticed."""
    async with Broker(port=0, store="memory:") as broker:
        service = connect(broker.address, reconnect=False)
        async with (
            service,
            NamingService(service),
            WildSubscription(service, "`s.*` = 1", names=Names(service)) as events,
        ):
            await broker.stop()
            with pytest.raises(ConnectionFailedError):
                await anext(events)


@on_loop
async def test_it_ends_where_its_filters_are_refused() -> None:
    """It would continue with the former names, unnoticed."""
    limits = CoreLimits(router=RouterLimits(filters_per_subscription_max=4))
    async with (
        EmbeddedService(limits=limits) as service,
        NamingService(service),
        WildSubscription(service, "`s.*.title` = 'x'", names=Names(service)) as events,
    ):
        await Names(service).register("rss", index(0, 1, 2, 3, 4))
        with pytest.raises(LimitError, match="filters_per_subscription_max"):
            await events.next(5)


@on_loop
async def test_names_announced_while_it_was_away_are_followed() -> None:
    """Their notifications would be missing until a sender announces the names again."""
    broker = Broker(port=0)
    await broker.start()
    port = int(broker.address.rpartition(":")[2])
    async with (
        soon.connect(broker.address) as north,
        soon.connect(broker.address) as south,
        NamingService(north) as naming,
        WildSubscription(south, "`s.*.title` = 'x'", names=Names(south)) as events,
    ):
        await broker.stop()
        record = NamingRecord("rss", "s.7.title", "s.title", "s[8].title", "north", 1)
        naming._take(record.to_notification())
        async with Broker(port=port):
            await until(lambda: "s.7.title" in str(events.filters))
            await north.publish({"s.7.title": "x"})
            assert (await events.next(5))["s.7.title"] == "x"


@on_loop
async def test_it_ends_where_it_may_ask_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask for ever after a change of its user, and continue without new names."""

    async def refuse(_: Names) -> None:
        raise NotPermittedError("queries are not permitted")

    broker = Broker(port=0)
    await broker.start()
    port = int(broker.address.rpartition(":")[2])
    async with (
        soon.connect(broker.address) as service,
        NamingService(service),
        WildSubscription(service, "`s.*` = 1", names=Names(service)) as events,
    ):
        monkeypatch.setattr(Names, "all", refuse)
        await broker.stop()
        async with Broker(port=port):
            with pytest.raises(NotPermittedError):
                await events.next(5)
