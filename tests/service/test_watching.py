"""Patterns: matches of consecutive notifications, delivered when time has passed them."""

import asyncio

import pytest

import contrada as ct
from contrada.errors import ServiceError, UnsatisfiableFilterError
from contrada.model.domains.values import TIME_MAX_US
from contrada.routing.router import Strategy
from contrada.service import Service
from contrada.service.sync import SyncService
from tests.asynchronous import on_loop
from tests.service.ways import SLACK_US, service_of, way_of

AB = ct.Pattern("every a exists -> b = 1")


@on_loop
async def test_a_match_comes_without_another_notification(name: str) -> None:
    """A subscriber would see a match only when something else is published."""
    async with service_of(name) as service, service.subscribe(AB) as matches:
        await service.publish({"a": 1})
        await service.publish({"c": 1})
        await service.publish({"b": 1}, body=b"body")
        match: ct.Match[ct.Pattern] = await anext(matches)
        assert match.key == AB
        assert match.by == ()
        assert [dict(each.attributes) for each in match.notifications] == [{"a": 1}, {"b": 1}]
        assert match.notifications[1].body == b"body"
        assert match.envelope.publisher
        assert matches.statistics().delivered == 1


@pytest.mark.quick_every(7)
@pytest.mark.parametrize("value", ["JFK", b"\xff", 5, 0.5, True, None])
@on_loop
async def test_the_values_of_a_group_come_whole(name: str, value: object) -> None:
    """A subscriber could not know the group of a match."""
    pattern = ct.Pattern("every a = 1 -> b = 1 by k, l")
    async with service_of(name) as service, service.subscribe(pattern) as matches:
        await service.publish({"a": 1, "k": value, "l": "x"})
        await service.publish({"b": 1, "k": "other", "l": "x"})
        await service.publish({"b": 1, "k": value, "l": "x"})
        match = await matches.next(20)
        assert match.by == (value, "x")
        assert match.notifications[0]["k"] == value


@on_loop
async def test_matches_come_in_order_and_each_once(name: str) -> None:
    """A subscriber would see things happen in another order than they did."""
    async with service_of(name) as service, service.subscribe(AB) as matches:
        for n in range(30):
            await service.publish_batch([{"a": n}, {"b": 1, "n": n}])
        found = [await matches.next(20) for _ in range(30)]
        assert [each.notifications[0]["a"] for each in found] == list(range(30))
        assert [each.notifications[1]["n"] for each in found] == list(range(30))
        with pytest.raises(TimeoutError):
            await matches.next(0.05)


@on_loop
async def test_what_is_advertised_apart_is_put_together(name: str) -> None:
    """With forwarded advertisements, a part would be lost between servers."""
    pattern = ct.Pattern("a exists -> b exists -> c exists within 1 min")
    async with (
        service_of(name, strategy=Strategy.ADVERTISEMENTS) as service,
        service.advertise("a any and b any and c any"),
        service.subscribe(pattern) as matches,
    ):
        for _ in range(2):
            await service.publish_batch([{"a": 1}, {"b": 1}, {"c": 1}])
        for _ in range(2):
            found = await matches.next(20)
            assert [[*each] for each in found.notifications] == [["a"], ["b"], ["c"]]


@on_loop
async def test_nothing_comes_after_unsubscribe(name: str) -> None:
    """A handler would be called for objects of an ended subscription."""
    async with service_of(name) as service:
        matches = service.subscribe(AB)
        await matches.open()
        await service.publish_batch([{"a": 1}, {"b": 1}])
        await matches.unsubscribe()
        await service.publish_batch([{"a": 1}, {"b": 1}, {"c": 1}])
        assert [match async for match in matches] == []


@on_loop
async def test_a_pattern_sees_what_filters_see(name: str) -> None:
    """One subscription of a kind would keep notifications from the other."""
    async with (
        service_of(name) as service,
        service.subscribe("b = 1") as events,
        service.subscribe(AB) as matches,
        service.subscribe(AB) as others,
    ):
        await service.publish_batch([{"a": 1}, {"b": 1}])
        assert (await anext(events))["b"] == 1
        assert (await anext(matches)).notifications == (await anext(others)).notifications


@on_loop
async def test_a_time_far_ahead_stops_no_pattern(name: str) -> None:
    """One publisher with a wrong clock would make all that others publish late, for good."""
    far = ct.Notification({"a": 1}, envelope=ct.Envelope(time_us=TIME_MAX_US))
    async with service_of(name) as service, service.subscribe(AB) as matches:
        async with service.subscribe("a exists") as all_of_them:
            await service.publish(far)
            assert dict((await anext(all_of_them)).attributes) == {"a": 1}
            await service.publish_batch([{"a": 2}, {"b": 1}])
            found = await matches.next(20)
        assert [dict(each.attributes) for each in found.notifications] == [{"a": 2}, {"b": 1}]


@on_loop
async def test_what_is_refused_says_why(name: str) -> None:
    """The error would not explain the remedy."""
    async with service_of(name) as service:
        with pytest.raises(ServiceError, match="where"):
            service.subscribe(AB, "c = 1")  # type: ignore[call-overload]
        empty = ct.Pattern([ct.Filter("a = 1"), ct.Filter("a > 1 and a < 1")])
        with pytest.raises(UnsatisfiableFilterError):
            service.subscribe(empty)
        async with service.subscribe(AB) as matches:
            with pytest.raises(ServiceError, match="other objects"):
                await matches.update("a = 1")
        assert service.statistics().subscriptions == 0


def test_code_that_does_not_await_can_watch(name: str) -> None:
    """The blocking face would lack a part of the service."""

    def blocking(held: Service) -> None:
        with SyncService(held) as service, service.subscribe(AB) as matches:
            service.publish_batch([{"a": 1}, {"b": 1}])
            assert len(matches.next(20).notifications) == 2

    async def run() -> None:
        async with way_of(name, slack_us=SLACK_US) as way:
            await asyncio.to_thread(blocking, way.connect())

    asyncio.run(run())
