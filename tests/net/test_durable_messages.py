"""Reliable and certified delivery, and durable subscriptions, of every service."""

import asyncio
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import (
    CannotPublishError,
    DeliveryError,
    InvalidValueError,
    ServiceClosedError,
    ServiceError,
    StoreFullError,
)
from contrada.service import DurableRecord, DurableSubscription, Service
from contrada.service.service_limits import ServiceLimits
from contrada.service.stores.sqlite_store import SqliteStore
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, Serve, host_of, numbers, of, records, rest, serve

READ_AHEAD_MAX = ServiceLimits().prefetch_max

__all__ = ["serve"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


async def fail_over(service: Service, name: str, number: int) -> list[DurableRecord[Any]]:
    """Reads up to a number, and fails on it; returns the numbers."""
    found: list[DurableRecord[Any]] = []
    try:
        async with service.subscribe(durable=name) as events:
            async for each in events:
                found.append(each)
                if each.item["n"] == number:
                    raise ZeroDivisionError
    except ZeroDivisionError:
        return found
    raise AssertionError("the error was swallowed")


# --- durable subscriptions ------------------------------------------------------------------------


@on_loop
async def test_a_durable_subscription_keeps_notifications_without_a_reader(
    serve: Serve, path: Path
) -> None:
    """A subscriber that is away for a night would miss the notifications."""
    async with serve(path) as service:
        await service.publish({"n": 0}, delivery=CERTIFIED)
        async with service.subscribe("n any", durable="all"):
            pass
        await service.publish({"n": 1}, delivery=CERTIFIED)
        assert await service.publish_batch([{"n": 2}, {"m": 2}], delivery="reliable") == 2
    async with serve(str(path)) as service:
        await service.publish({"n": 3}, delivery="certified causal total:orders")
        async with service.subscribe(durable="all") as events:
            assert str(events.filters) == "n any"
            got = await records(events, 3)
        assert [each.item["n"] for each in got] == [1, 2, 3]
        assert [each.position for each in got] == [1, 2, 3]
        assert {each.attempt for each in got} == {1}
        assert all(each.time_us >= each.item.envelope.time_us for each in got)
        assert await rest(service, "all") == []
        assert of(service).logs["all"].acknowledged == 4


@on_loop
async def test_best_effort_is_kept_too_and_nothing_twice(serve: Serve, path: Path) -> None:
    """Best-effort notifications would be missing in the log; or reliable ones doubled."""
    async with serve(path) as service:
        async with (
            service.subscribe("n any") as ordinary,
            service.subscribe("n any", durable="all") as events,
        ):
            await service.publish_batch(
                ct.Notification({"n": n}, envelope=ct.Envelope(delivery=delivery))
                for n, delivery in enumerate(["best-effort", CERTIFIED, "reliable fifo"] * 50)
            )
            assert [(await ordinary.next(20))["n"] for _ in range(150)] == list(range(150))
            assert sorted(await numbers(events, 150)) == list(range(150))
        assert await rest(service, "all") == []
        assert service.statistics().dropped == {}


@on_loop
async def test_expired_records_are_not_read(serve: Serve, path: Path) -> None:
    """An alarm of last night would be acted upon; or be delivered to each reader."""
    async with serve(path) as service:
        await service.subscribe("n any", durable="s")
        await service.publish({"n": 0}, ttl_s=60)
        await until(lambda: of(service).logs["s"].appended == 1)
        await service.publish({"n": 1}, ttl_s=60, delivery=CERTIFIED)
    async with serve(path) as service:
        now_us = service.now_us  # type: ignore[attr-defined]
        service.now_us = lambda: now_us() + 60_000_000  # type: ignore[attr-defined]
        async with service.subscribe(durable="s", auto_acknowledge=False) as events:
            assert await numbers(events, 1) == [1]
            assert events.statistics().dropped == {"expired": 1}
        assert of(service).logs["s"].acknowledged == 1


@pytest.mark.quick_every(4)
@pytest.mark.parametrize("store", [True, False])
@on_loop
async def test_each_subscription_gets_its_matches(
    serve: Serve, store: bool, tmp_path: Path
) -> None:
    """The delivery server would match differently than the router, or a log have unmatched
    records.
    """
    chance = random.Random(7)
    filters = ["a = 1", "a > 2 or b = 2", "a any and b != 1", "b between 1 and 3"]
    items = [
        {"n": n} | {name: chance.randrange(5) for name in "ab" if chance.random() < 0.8}
        for n in range(300)
    ]
    classes = ["best-effort", "reliable", "reliable causal total:s"] + [CERTIFIED] * store
    async with serve(tmp_path / "s.db" if store else None) as service:
        found = [
            await service.subscribe(each, durable=each)
            if store
            else await service.subscribe(each, reliable=True)
            for each in filters
        ]
        for item in items:
            await service.publish(item, delivery=chance.choice(classes))
        for asked, events in zip(filters, found, strict=True):
            matched = [each["n"] for each in items if ct.FilterSet(asked).matches(each)]
            assert sorted(await numbers(events, len(matched))) == matched
            with pytest.raises(TimeoutError):
                await events.next(0)


@on_loop
async def test_filters_of_a_durable_subscription_are_fixed(serve: Serve, path: Path) -> None:
    """A reader would get something else than it asks for, or a log be cut where nobody wants it."""
    async with serve(path) as service:
        with pytest.raises(DeliveryError, match="no durable subscription 's'; give its filters"):
            await service.subscribe(durable="s")
        keeps = ct.Retention(records_max=9)
        await (await service.subscribe("n > 1 and n > 2", durable="s", retention=keeps)).aclose()
        await service.subscribe("n > 2 or n between 5 and 7", durable="s", retention=keeps)
        with pytest.raises(DeliveryError, match="other filters, n > 2"):
            await service.subscribe("n > 3", durable="s")
        with pytest.raises(DeliveryError, match="another retention, Retention"):
            await service.subscribe(durable="s", retention=ct.Retention())
        await service.unsubscribe("s")
        with pytest.raises(DeliveryError, match="no durable subscription 's'"):
            await service.unsubscribe("s")
        await service.subscribe("n > 3", durable="s")
    async with serve(path) as service:
        assert str((await service.subscribe(durable="s")).filters) == "n > 3"


@on_loop
async def test_an_ended_one_keeps_nothing(serve: Serve, path: Path) -> None:
    """Its log would fill the disk, or its reader wait for ever."""
    async with serve(path) as service:
        events = await service.subscribe("n any", durable="s")
        waiting = asyncio.create_task(events.next())
        await asyncio.sleep(0)
        await service.unsubscribe("s")
        with pytest.raises(DeliveryError, match="'s': the subscription has ended"):
            await waiting
        await service.publish({"n": 1})
        await service.publish({"n": 1}, delivery=CERTIFIED)
        assert of(service).standing == 0
        assert service.statistics().subscriptions == 0
        await events.aclose()
    with closing(SqliteStore(path)) as store:
        assert "s" not in store.logs()


# --- acknowledging --------------------------------------------------------------------------------


@on_loop
async def test_unacknowledged_records_are_delivered_again(serve: Serve, path: Path) -> None:
    """A reader that dies over a notification would have lost it."""
    async with serve(path) as service:
        async with service.subscribe("n any", durable="s", auto_acknowledge=False) as events:
            await service.publish_batch([{"n": n} for n in range(9)], delivery=CERTIFIED)
            got = await records(events, 6)
            await events.acknowledge(got[1].position)
            await events.acknowledge(up_to=got[3].position)
            await events.acknowledge(got[1].position)  # Twice is once.
            for position in (7, 0, "x"):
                with pytest.raises(InvalidValueError, match="up to 6"):
                    await events.acknowledge(position)  # type: ignore[arg-type]
            await events.nack(got[4].position)
            # The last three and the one that was given back were on their way to the reader.
            again = await records(events, 4)
            assert sorted((each.item["n"], each.attempt) for each in again) == [
                *((4, 2), (6, 1), (7, 1), (8, 1))
            ]
        async with service.subscribe(durable="s") as events:
            assert sorted(await numbers(events, 5)) == [4, 5, 6, 7, 8]
        assert await rest(service, "s") == []
        assert not host_of(service).readers


@on_loop
async def test_asking_for_the_next_acknowledges_the_last(serve: Serve, path: Path) -> None:
    """A processed notification would be processed twice; or a failed one never again."""
    async with serve(path) as service:
        await service.subscribe("n any", durable="s")
        await service.publish_batch([{"n": n} for n in range(5)], delivery=CERTIFIED)
    async with serve(path) as service:
        assert len(await fail_over(service, "s", 2)) == 3
    async with serve(path) as service:
        async with service.subscribe(durable="s") as events:
            async for each in events:
                if each.item["n"] == 3:
                    break
        assert await rest(service, "s") == [4]


@on_loop
async def test_closing_ends_a_reader_before_its_last_is_acknowledged(
    serve: Serve, path: Path
) -> None:
    """The notification in progress at the close would be lost."""
    async with serve(path) as service:
        async with service.subscribe("n any", durable="s") as events:
            await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
            got = []
            async for each in events:
                got.append(each.item["n"])
                if len(got) == 2:
                    await service.aclose()
        assert got == [0, 1]
        with pytest.raises(ServiceClosedError):
            await events.acknowledge(1)
    async with serve(path) as service:
        assert await rest(service, "s") == [1, 2]


@on_loop
async def test_several_share_one(serve: Serve, path: Path) -> None:
    """A notification would be worked on twice, or by nobody."""
    count = 3 * READ_AHEAD_MAX
    async with (
        serve(path) as service,
        service.subscribe("n any", durable="s") as one,
        service.subscribe(durable="s") as other,
    ):
        await service.publish_batch(({"n": n} for n in range(count)), delivery=CERTIFIED)
        found: dict[str, list[int]] = {"one": [], "other": []}

        async def read(who: str, events: DurableSubscription[Any]) -> None:
            async for each in events:
                found[who].append(each.item["n"])

        readers = [asyncio.create_task(read("one", one)), asyncio.create_task(read("other", other))]
        await until(lambda: sum(map(len, found.values())) == count)
        assert sorted(found["one"] + found["other"]) == list(range(count))
        assert found["one"]
        assert found["other"]
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)


@on_loop
async def test_it_is_read_again_from_a_position_or_a_time(serve: Serve, path: Path) -> None:
    """A reader without its own state could not rebuild it."""
    async with serve(path) as service:
        keeps = ct.Retention(replay_max=100)
        async with service.subscribe("n any", durable="s", retention=keeps) as events:
            for n in range(6):
                await service.publish({"n": n}, delivery=CERTIFIED)
            got = await records(events, 6)
        async with service.subscribe(durable="s", from_position=3) as events:
            assert await numbers(events, 4) == [2, 3, 4, 5]
        for time in (got[4].time_us, datetime.fromtimestamp(got[4].time_us / 1e6, UTC)):
            async with service.subscribe(durable="s", from_time=time) as events:
                assert await numbers(events, 2) == [4, 5]
        with pytest.raises(DeliveryError, match="expected a position from 1 to 7"):
            await service.subscribe(durable="s", from_position=8)
        with pytest.raises(InvalidValueError, match="zone"):
            await service.subscribe(durable="s", from_time=datetime(2026, 1, 1))  # noqa: DTZ001
        assert await rest(service, "s") == []


@on_loop
async def test_records_delivered_too_often_become_dead_letters(serve: Serve, path: Path) -> None:
    """A notification that always fails would be delivered for ever; or an unread one be given
    up.
    """
    async with serve(path) as service:
        keeps = ct.Retention(attempts_max=2, dead_letter="dead")  # Which begins with it.
        await service.subscribe("n any", durable="s", retention=keeps)
        await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
    async with serve(path) as service:
        for attempt in (1, 2):
            (each,) = await fail_over(service, "s", 0)
            assert each.attempt == attempt
        assert await rest(service, "s") == [1, 2]
        async with service.subscribe(durable="dead") as dead:
            assert await numbers(dead, 1) == [0]


@on_loop
async def test_nothing_dies_unread(serve: Serve, path: Path) -> None:
    """A cancelled wait would count as a failed attempt."""
    async with serve(path) as service:
        await service.publish({"n": 0}, delivery=CERTIFIED)
        keeps = ct.Retention(attempts_max=1)

        async def given_up() -> None:
            async with service.subscribe("n any", durable="s", retention=keeps) as events:
                with pytest.raises(TimeoutError):
                    await events.next(0)
                if not of(service).logs["s"].appended:
                    await service.publish({"n": 1}, delivery=CERTIFIED)
                await until(lambda: events.statistics().queued == 1)

        for _ in range(3):
            await given_up()
        async with service.subscribe(durable="s") as events:
            (kept,) = await records(events, 1)
            assert (kept.item["n"], kept.attempt) == (1, 1)


# --- redelivery -----------------------------------------------------------------------------------


@on_loop
async def test_a_returned_record_waits_as_long_as_is_said(serve: Serve, path: Path) -> None:
    """All attempts of a record would be used up in a moment."""
    keeps = ct.Retention(attempts_max=3, backoff_s=0.05)
    now_s = asyncio.get_running_loop().time
    async with (
        serve(path) as service,
        service.subscribe("n any", durable="s", retention=keeps, auto_acknowledge=False) as events,
    ):
        await service.publish({"n": 0}, delivery=CERTIFIED)
        position = (await events.next(20)).position
        for attempt, delay_s, wait_s in ((2, None, 0.05), (3, 0.2, 0.2)):
            before_s = now_s()
            await events.nack(position, delay_s=delay_s)
            assert (await events.next(20)).attempt == attempt
            assert now_s() - before_s >= wait_s
        await events.nack(position, delay_s=0)
        await until(lambda: of(service).logs["s"].dead == 1)
        for wrong in (-1, "x", float("nan"), 1e12):
            with pytest.raises(InvalidValueError, match="delay_s: expected seconds"):
                await events.nack(position, delay_s=wrong)  # type: ignore[arg-type]


@on_loop
async def test_a_reader_that_hangs_loses_its_record_to_another(serve: Serve, path: Path) -> None:
    """A reader that hangs, connected, would keep its records for ever."""
    keeps = ct.Retention(acknowledge_s=0.3)
    async with (
        serve(path) as service,
        service.subscribe("n any", durable="s", retention=keeps) as hanging,
    ):
        await service.publish_batch([{"n": n} for n in range(4)], delivery=CERTIFIED)
        held = await hanging.next(20)
        await until(lambda: hanging.statistics().queued == 3)
        async with service.subscribe(durable="s") as other:
            got = await records(other, 4)
            assert sorted((each["n"], each.attempt) for each in got) == [
                *((0, 2), (1, 1), (2, 1), (3, 1))
            ]
        await until(lambda: hanging.statistics().queued == 0)
        await service.publish({"n": 4}, delivery=CERTIFIED)
        assert held["n"] == 0
        assert await numbers(hanging, 1) == [4], "it reads again"


@on_loop
async def test_long_work_is_extended(serve: Serve, path: Path) -> None:
    """A record of which the work takes long would be given to another reader, too."""
    keeps = ct.Retention(acknowledge_s=0.5)
    async with (
        serve(path) as service,
        service.subscribe("n any", durable="s", retention=keeps, auto_acknowledge=False) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(2)], delivery=CERTIFIED)
        left, long = await records(events, 2)
        for _ in range(12):
            await events.extend(long.position)
            await asyncio.sleep(0.1)
        (again,) = await records(events, 1)
        assert (again.position, again.attempt) == (left.position, 2)
        assert events.statistics().queued == 0
        assert of(service).logs["s"].overdue == 1


@on_loop
async def test_records_are_handled(serve: Serve, path: Path) -> None:
    """A handler would lose a record on which it failed, or one process all records in turn."""
    keeps = ct.Retention(attempts_max=2, dead_letter="dead")
    done, running, most, failed = list[int](), set[int](), 0, list[int]()
    async with serve(path) as service:

        async def work(record: DurableRecord[ct.Notification]) -> None:
            nonlocal most
            number = int(record.number("n"))
            running.add(number)
            most = max(most, len(running))
            assert record.attempt == 1 or running == {number}, "it may have killed its reader"
            await asyncio.sleep(0)
            running.discard(number)
            if number == 3:
                raise ZeroDivisionError
            done.append(number)

        def on_error(error: Exception, record: DurableRecord[Any]) -> None:
            assert isinstance(error, ZeroDivisionError)
            failed.append(int(record.number("n")))

        async with service.subscribe("n any", durable="s", retention=keeps) as events:
            await service.publish_batch([{"n": n} for n in range(20)], delivery=CERTIFIED)
            handling = asyncio.create_task(events.handle(work, concurrency=4, on_error=on_error))
            await until(lambda: len(done) == 19 and of(service).logs["s"].dead == 1)
            assert events.statistics().failed == 2
        await handling
        assert (sorted(done), failed) == (sorted({*range(20)} - {3}), [3, 3])
        assert most == 4
        assert await rest(service, "s") == []
        async with service.subscribe(durable="dead") as dead:
            assert await numbers(dead, 1) == [3]


# --- publishing -----------------------------------------------------------------------------------


@on_loop
async def test_a_full_subscription_refuses_publishers(serve: Serve, path: Path) -> None:
    """A publisher would think that something is kept which is not."""
    async with serve(path) as service:
        keeps = ct.Retention(records_max=3)
        async with (
            service.subscribe("n any") as ordinary,
            service.subscribe("n any", durable="s", retention=keeps) as events,
        ):
            await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
            with pytest.raises(CannotPublishError, match="'s' is full") as found:
                await service.publish({"n": 3}, delivery=CERTIFIED)
            assert found.value.subscription == "s"
            with pytest.raises(CannotPublishError) as of_batch:
                await service.publish_batch([{"m": 1}, {"n": 9}], delivery=CERTIFIED)
            assert of_batch.value.published == 0
            await service.publish({"m": 1}, delivery=CERTIFIED)
            await service.publish({"n": 4})
            await until(lambda: of(service).logs["s"].dropped == 1)
            assert await numbers(events, 3) == [0, 1, 2]
            await events.acknowledge(3)
            await service.publish({"n": 5}, delivery=CERTIFIED)
            assert await numbers(events, 1) == [5]
            assert [(await ordinary.next(20))["n"] for _ in range(5)] == [0, 1, 2, 4, 5]
        assert of(service).failed == 2


@on_loop
async def test_a_duplicate_is_published_no_second_time(serve: Serve, path: Path) -> None:
    """A publisher that is not sure, and publishes again, would double it."""

    def numbered(*sequences: int) -> list[ct.Notification]:
        return [
            ct.Notification({"n": each}, envelope=ct.Envelope(publisher="sensor-7", sequence=each))
            for each in sequences
        ]

    async with serve(path) as service:
        await service.subscribe("n any", durable="s")
        async with service.subscribe("n any") as ordinary:
            await service.publish_batch(numbered(1, 2), delivery=CERTIFIED)
            await service.publish_batch(numbered(1, 2, 3, 3, 2), delivery=CERTIFIED)
            assert [(await ordinary.next(20))["n"] for _ in range(3)] == [1, 2, 3]
            with pytest.raises(TimeoutError):
                await ordinary.next(0)
        assert of(service).duplicates == 4
    async with serve(path) as service:
        (last,) = numbered(3)
        stamped = await service.publish(last, delivery=CERTIFIED)
        assert (stamped.publisher, stamped.sequence, stamped.id) == ("sensor-7", 3, "sensor-7.3")
        assert of(service).duplicates == 1
        other = ct.Notification({"n": 4}, envelope=ct.Envelope(publisher="sensor-8", sequence=3))
        await service.publish_batch([last, other, {"n": 5}], delivery=CERTIFIED)
        assert of(service).duplicates == 2
        assert await rest(service, "s") == [1, 2, 3, 4, 5]


@on_loop
async def test_a_publisher_continues_after_a_restart(serve: Serve, path: Path) -> None:
    """The first that it publishes would be taken for duplicates, and be lost."""
    for n in range(3):
        async with serve(path, publisher="desk") as service:
            async with service.subscribe("n any", durable="s"):
                await service.publish({"n": n}, delivery=CERTIFIED)
                own = ct.Envelope(publisher="desk", sequence=100 * (n + 1))
                await service.publish(ct.Notification({"n": n}, envelope=own), delivery="reliable")
                await service.publish({"n": n}, delivery=CERTIFIED)
            assert of(service).duplicates == 0
    async with serve(path) as service:
        assert await rest(service, "s") == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@on_loop
async def test_invalid_requests_are_refused(serve: Serve, path: Path) -> None:
    """It would be published at best effort, or not kept, without an error."""
    rule = ct.Pattern("n > 1 -> n > 2 within 1 s")
    async with serve(path) as service:
        with pytest.raises(InvalidValueError, match="'certifed': expected best-effort, or"):
            await service.publish({"n": 1}, delivery="certifed")
        wrong = ct.Notification({"n": 1}, envelope=ct.Envelope(delivery="reliable total"))
        with pytest.raises(InvalidValueError, match="reliable total"):
            await service.publish(wrong)
        await service.publish(wrong, delivery="best-effort")
        for words in (7, ["certified"]):
            with pytest.raises(ServiceError, match="expected words, for example"):
                await service.publish({"n": 1}, delivery=words)  # type: ignore[arg-type]
        with pytest.raises(ServiceError, match="not a pattern"):
            service.subscribe(rule, durable="s")  # type: ignore[call-overload]
        wrong_ones: list[tuple[dict[str, Any], str]] = [
            ({"durable": "s", "reliable": True}, "either"),
            ({"retention": ct.Retention()}, "either"),
            ({"reliable": True}, "needs filters"),
            ({"durable": 7}, "durable = 7: expected a name"),
            ({"durable": None, "from_position": 1}, "either"),
            ({"durable": "s", "retention": 3}, "retention = 3: expected a Retention"),
            ({"durable": "s", "from_position": "1"}, "from_position = '1': expected a position"),
            ({"durable": "s", "from_time": "2026"}, "from_time = '2026': expected a time"),
            ({"durable": "s", "form_position": 1}, "form_position"),
            ({"durable": "s", "from_position": 1, "from_time": 1}, "not from both"),
        ]
        for options, said in wrong_ones:
            with pytest.raises(ServiceError, match=said):
                service.subscribe(**options)
        for name in ("", "@spool", "a\nb"):
            with pytest.raises(InvalidValueError):
                await service.subscribe("n any", durable=name)
        with pytest.raises(DeliveryError, match="'s': 2: it begins only now"):
            await service.subscribe("n any", durable="s", from_position=2)
        assert of(service).standing == 0


# --- the store ------------------------------------------------------------------------------------


@on_loop
async def test_a_damaged_record_is_counted_and_never_served(serve: Serve, path: Path) -> None:
    """Other content than the published one would be processed."""
    async with serve(path) as service:
        await service.subscribe("n any", durable="s")
        await service.publish_batch([{"n": n} for n in range(3)], delivery=CERTIFIED)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET data = x'00' WHERE position = 2")
    async with serve(path) as service, service.subscribe(durable="s") as events:
        assert await numbers(events, 2) == [0, 2]
        assert events.statistics().dropped == {"damaged": 1}


@on_loop
async def test_a_full_disk_is_reported_and_accepted_records_are_kept(
    serve: Serve, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A publisher would rely on the disk; or earlier records be lost."""
    async with serve(path) as service:
        reader = service.subscribe("n any", durable="s")
        async with reader as events:
            await service.publish({"n": 0}, delivery=CERTIFIED)
            db = host_of(service).store._db  # type: ignore[union-attr]
            db.execute("PRAGMA max_page_count = 20")
            big = ct.Notification({"n": 1}, body=bytes(200_000))
            with pytest.raises(StoreFullError, match="no room is left"):
                await service.publish(big, delivery=CERTIFIED)
            assert await numbers(events, 1) == [0]
            with pytest.raises(TimeoutError):
                await events.next(0.2)
            db.execute("PRAGMA max_page_count = 1000000")
            assert await numbers(events, 1) == [1]  # The store tried it again.
            await service.publish({"n": 2}, delivery=CERTIFIED)
            assert await numbers(events, 1) == [2]
    assert caplog.text.count("cannot be written yet") == 1


@on_loop
async def test_publications_in_progress_at_closing_are_accepted(serve: Serve, path: Path) -> None:
    """A publisher would wait for ever, or lose accepted notifications."""
    async with serve(path) as service:
        await service.subscribe("n any", durable="s")
        published = [service.publish({"n": n}, delivery=CERTIFIED) for n in range(9)]
        *_, closed = await asyncio.gather(*published, service.aclose())
        assert closed is None
    async with serve(path) as service:
        assert await rest(service, "s") == list(range(9))
