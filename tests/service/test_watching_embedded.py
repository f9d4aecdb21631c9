"""Patterns of the embedded service; `test_watching` tests them at every service."""

import asyncio
import time

import pytest

import contrada as ct
from contrada.model.domains.values import Value
from contrada.service.embedded_service import EmbeddedService
from tests.asynchronous import on_loop, until

AB = ct.Pattern("every a exists -> b = 1")


def at(time_us: int, **attributes: Value) -> ct.Notification:
    """A notification with a given time."""
    return ct.Notification(attributes, envelope=ct.Envelope(time_us=time_us))


@on_loop
async def test_a_match_comes_though_the_clock_was_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A match would be delivered an hour late, and its service be busy with waiting."""
    async with EmbeddedService() as service, service.subscribe(AB) as matches:
        await service.publish({"c": 1})
        clock_ns = time.time_ns() - 3_600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: clock_ns)
        await service.publish_batch([{"a": 1}, {"b": 1}])
        assert len((await anext(matches)).notifications) == 2


@on_loop
async def test_what_says_its_own_time_goes_by_that() -> None:
    """Publications with past times would all be late."""
    async with EmbeddedService() as service, service.subscribe(AB) as matches:
        await service.publish_batch([at(1_000, a=1), at(3_000, b=1)])
        await service.publish(at(2_000, a=2))
        assert service.statistics().dropped == {"late": 1}
        assert matches.statistics().queued == 0, "something at the same time may still come first"
        await service.publish(at(4_000, c=1))
        assert (await anext(matches)).notifications[0]["a"] == 1


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("identity", ["", "same"])
@on_loop
async def test_what_has_one_stamp_is_matched_as_by_one_matcher(turn: int, identity: str) -> None:
    """Foreign notifications with the same stamp would be matched in random order."""
    stamp = ct.Envelope(identity, "elsewhere" if identity else "", 0, 1_000)
    given = [ct.Notification({name: 1}, envelope=stamp) for name in "ab"][::turn]
    async with EmbeddedService() as service, service.subscribe(AB) as matches:
        await service.publish_batch([*given, *given] if identity else given)
        await service.aclose()
        matched = [[*each] async for match in matches for each in match.notifications]
        # Without an identity the service numbers them in order of arrival.
        assert matched == ([] if not identity and turn < 0 else [["a"], ["b"]])
        assert service.statistics().dropped == ({"duplicate": 2} if identity else {})


@on_loop
async def test_closing_hands_over_what_waits() -> None:
    """The last match of a stream would be lost."""
    async with EmbeddedService() as service, service.subscribe(AB) as matches:
        await service.publish_batch([at(1_000, a=1), at(2_000, b=1)])
        await service.aclose()
        assert [match.envelope.time_us async for match in matches] == [2_000]


@on_loop
async def test_nothing_comes_after_unsubscribe() -> None:
    """A handler would be called for objects of an ended subscription, or the router keep it."""
    async with EmbeddedService() as service:
        matches = service.subscribe(AB)
        await matches.open()
        await service.publish_batch([{"a": 1}, {"b": 1}])
        await matches.unsubscribe()
        await service.publish_batch([{"a": 1}, {"b": 1}, {"c": 1}])
        assert [match async for match in matches] == []
        held = service.dispatcher.router.statistics()
        assert (held.patterns.patterns, held.filters.nodes) == (0, 0)
        assert service.statistics().subscriptions == 0


@on_loop
async def test_publishers_wait_for_a_slow_reader_of_matches() -> None:
    """A fast publisher would lose matches of a healthy subscriber."""
    async with EmbeddedService() as service:
        matches = service.subscribe(AB)
        matches.queue._bounds = matches.queue._bounds._replace(notifications=4)
        async with matches:
            items = (at(time_us, **{"ab"[time_us % 2]: 1}) for time_us in range(2_000))
            publisher = asyncio.create_task(service.publish_batch(items))
            got: list[int | None] = []
            while len(got) < 999:
                got.append((await anext(matches)).envelope.time_us)
                await asyncio.sleep(0)
            await publisher
            assert got == list(range(1, 1_999, 2))
            assert matches.statistics().dropped == {}


@on_loop
async def test_losses_of_a_dead_reader_are_counted() -> None:
    """Best effort would mean silent, also when the service is closed."""
    async with EmbeddedService(publish_wait_s=0) as service:
        matches = service.subscribe(AB)
        matches.queue._bounds = matches.queue._bounds._replace(notifications=1)
        async with matches:
            await service.publish_batch(at(n, **{"ab"[n % 2]: 1}) for n in range(6))
            assert matches.statistics().dropped == {"queue full": 1}
            await service.aclose()
            assert matches.statistics().dropped == {"queue full": 2}
            assert service.statistics().dropped == {"queue full": 2}


@on_loop
async def test_a_match_that_waits_for_room_is_counted_when_the_service_closes() -> None:
    """A completed match without room would vanish at the end."""
    async with EmbeddedService() as service:
        matches = service.subscribe(AB)
        matches.queue._bounds = matches.queue._bounds._replace(notifications=1)
        async with matches:
            await service.publish_batch([{"a": 1}, {"b": 1}])
            await until(lambda: service.statistics().matched == 1)
            await service.publish_batch([{"a": 1}, {"b": 1}])
            await until(lambda: service.statistics().matched == 2)
            await service.aclose()
            assert matches.statistics().queued == 1
            assert matches.statistics().dropped == {"queue full": 1}


@on_loop
async def test_closing_does_not_wait_for_the_time_of_what_waits() -> None:
    """A service would stay open until the time of a notification."""
    later_us = time.time_ns() // 1000 + 3_600_000_000
    async with EmbeddedService() as service, service.subscribe(AB) as matches:
        await service.publish({"c": 1})
        await service.publish_batch([at(later_us - 1, a=1), at(later_us, b=1)])
        await asyncio.sleep(0)  # Now the clock is waited for.
        await service.aclose()
        assert [match.envelope.time_us async for match in matches] == [later_us]
