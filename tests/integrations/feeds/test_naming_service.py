"""Naming services, embedded and over real brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from contrada.connections import connect
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import ConnectionFailedError, QuotaError, ServiceError, StoreError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.naming_table import MARK, NamingRecord
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import NamingService
from contrada.model import Notification
from contrada.net.broker.broker import Broker
from contrada.service.embedded_service import EmbeddedService
from contrada.service.stores.sqlite_store import SqliteStore
from tests.asynchronous import on_loop, until
from tests.net import soon
from tests.net.networks import network

TITLE = "backslash.story.title"
NAMES = {f"{TITLE}~{number}": (TITLE, f"backslash.story[{number}].title") for number in range(2, 5)}


def said(who: str, time_us: int, original: str = TITLE) -> Notification:
    """The notification of a record."""
    record = NamingRecord("rss", f"{TITLE}~2", original, "p", who, time_us)
    return record.to_notification()


@on_loop
async def test_both_ways() -> None:
    """A generated name could not be resolved."""
    async with EmbeddedService(publisher="desk") as service, NamingService(service) as kept:
        names = Names(service)
        assert await names.register("rss", NAMES) == 3
        found = await names.originals("rss", NAMES)
        assert found[f"{TITLE}~3"].position == "backslash.story[3].title"
        assert found[f"{TITLE}~3"].who == "desk"
        assert [each.generated for each in await names.generated("rss", TITLE)] == list(NAMES)
        assert await names.generated("rss", "other") == []
        assert await names.originals("feed") == {}
        assert kept.statistics().records == 3


@on_loop
async def test_names_are_registered_once_and_queried_once() -> None:
    """Each notification would cost a question, and each document all of its names again."""
    now = [0.0]
    async with EmbeddedService() as service, NamingService(service) as kept:
        names = Names(service, ttl_s=10, now_s=lambda: now[0])
        assert await names.register("rss", NAMES) == 3
        assert await names.register("rss", NAMES) == 0
        for _ in range(5):
            await names.originals("rss", NAMES)
        assert names.asked == 1
        now[0] = 11.0
        await names.originals("rss", NAMES)
        assert names.asked == 2
        assert await names.register("rss", NAMES) == 3
        await until(lambda: kept.statistics().heard == 6)
        assert kept.statistics().conflicts == 0


@on_loop
async def test_an_unknown_name_is_queried_for_a_while() -> None:
    """A name that a naming service has not received yet would be unknown, or be queried forever."""
    limits = FeedLimits(names_settle_s=0.05, names_query_again_s=0.001)
    async with EmbeddedService() as service, NamingService(service):
        names = Names(service, limits=limits)
        assert await names.originals("rss", ["x~2"]) == {}
        asked = names.asked
        assert asked > 1
        assert await names.originals("rss", ["x~2"]) == {}
        assert names.asked == asked
        await names.register("rss", {"y~2": ("y", "y[2]")})
        assert list(await names.originals("rss", ["y~2"])) == ["y~2"]


@on_loop
async def test_without_a_naming_service_it_raises_an_error() -> None:
    """It would wait for ever, or answer that nothing is known."""
    async with EmbeddedService() as service:
        names = Names(service, wait_s=0.05)
        with pytest.raises(ServiceError, match=r"no naming service has answered within 0\.05 s"):
            await names.originals("rss")
        asked = names.asked
        with pytest.raises(ServiceError, match="no naming service"):
            await names.originals("rss")
        assert names.asked == asked  # For a while nobody is asked.
    for options in ({"ttl_s": 0}, {"wait_s": -1.0}):
        with pytest.raises(ServiceError, match="expected seconds"):
            Names(service, **options)


@on_loop
async def test_strangers_are_counted_and_do_no_harm() -> None:
    """One wrong notification would end the service for all."""
    async with EmbeddedService() as service, NamingService(service) as kept:
        await service.publish({MARK: "record", "kind": 5})
        await service.publish({MARK: "record", "kind": "k" * 5_000})
        await service.publish(said("north", 7))
        await service.publish(said("south", 5, "other"))
        await service.publish(said("south", 9, "third"))
        await until(lambda: kept.statistics().heard == 5)
        told = kept.statistics()
        assert (told.invalid, told.conflicts, told.records) == (2, 2, 1)
        assert kept.table.get("rss", f"{TITLE}~2") == NamingRecord(
            "rss", f"{TITLE}~2", "other", "p", "south", 5
        )


@on_loop
async def test_its_table_is_bounded() -> None:
    """Invented names would fill its memory silently."""
    limits = DocumentLimits(kind_names_max=2)
    async with EmbeddedService() as service, NamingService(service, table_limits=limits) as kept:
        await Names(service).register("rss", NAMES)
        await until(lambda: kept.statistics().refused == 1)
        assert kept.statistics().records == 2


@on_loop
async def test_records_outlive_it(tmp_path: Path) -> None:
    """After a restart all names were forgotten."""
    place = tmp_path / "names.db"
    async with EmbeddedService() as service:
        async with NamingService(service, place) as first:
            await Names(service).register("rss", NAMES)
            await until(lambda: len(first.table) == 3)
        async with NamingService(service, place) as again:
            assert len(again.table) == 3
            await service.publish(said("early", 1, "other"))
            await until(lambda: again.statistics().heard == 1)
        async with NamingService(service, str(place)) as third:
            found = third.table.get("rss", f"{TITLE}~2")
            assert found is not None
            assert found.original == "other"
    store = SqliteStore(place)
    store.note("naming x", b"\xc1")
    store.close()
    async with EmbeddedService() as service:
        with pytest.raises(StoreError, match="no naming record"):
            await NamingService(service, place).open()


@on_loop
async def test_a_store_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk would end the service, or lose names in silence, until others are registered."""
    groups: list[int] = []

    class Full(MemoryStore):
        def seal(self) -> Callable[[], None]:
            groups.append(len(self.notes()))
            if len(groups) <= 2:
                raise StoreError("full")
            return super().seal()

    async with EmbeddedService() as service, NamingService(service, Full()) as kept:
        await Names(service).register("rss", NAMES)
        await until(lambda: len(groups) == 3)
        assert kept.statistics().unwritten == 2
    assert caplog.text.count("cannot be written down yet: full") == 1


@on_loop
async def test_two_at_two_brokers_replicate() -> None:
    """Names would be known at one broker only."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[0].address) as north,
        connect(brokers[1].address) as south,
        NamingService(north, name="north") as one,
        NamingService(south, name="south") as other,
    ):
        await until(lambda: brokers.is_at_rest)
        await Names(north).register("rss", NAMES)
        await until(lambda: len(one.table) == len(other.table) == 3)
        assert one.table == other.table
        # Both have a record of one name; in any order, the earlier record wins.
        await asyncio.gather(
            north.publish(said("north", 9, "late")), south.publish(said("south", 4, "early"))
        )
        await until(lambda: one.statistics().heard == other.statistics().heard == 5)
        assert one.table == other.table
        found = other.table.get("rss", f"{TITLE}~2")
        assert found is not None
        assert found.original == "early"


@on_loop
async def test_missed_records_are_fetched(tmp_path: Path) -> None:
    """A naming service that was away would answer otherwise than the others for ever."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[0].address, publisher="n") as north,
        connect(brokers[1].address, publisher="s") as south,
        NamingService(north, tmp_path / "north.db", name="north") as one,
    ):
        async with NamingService(south, tmp_path / "south.db", name="south") as other:
            await until(lambda: brokers.is_at_rest)
            await south.publish(said("s", 3))
            await until(lambda: len(one.table) == len(other.table) == 1)
        # South is away: north hears of more. Then north is away, and south hears of another one.
        await until(lambda: brokers.is_at_rest)
        await Names(north).register("rss", NAMES)
        await until(lambda: len(one.table) == 3)
        async with NamingService(south, tmp_path / "south.db", name="south") as other:
            assert other.table == one.table
            assert other.statistics().told == 0
            await one.aclose()
            await until(lambda: brokers.is_at_rest)
            await Names(south).register("feed", {"feed.entry~2": ("feed.entry", "feed.entry[2]")})
            await until(lambda: len(other.table) == 4)
            async with NamingService(north, tmp_path / "north.db", name="north") as again:
                assert again.table == other.table


@on_loop
async def test_it_publishes_records_that_others_lack(tmp_path: Path) -> None:
    """Two that were never there at one time would not share their records."""
    async with EmbeddedService() as service:
        async with NamingService(service, tmp_path / "old.db", name="old") as old:
            await Names(service).register("rss", NAMES)
            await until(lambda: len(old.table) == 3)
        async with NamingService(service, name="new") as new:
            assert len(new.table) == 0
            async with NamingService(service, tmp_path / "old.db", name="old") as old:
                assert old.statistics().told == 3
                await until(lambda: len(new.table) == 3)
                assert new.table == old.table


@on_loop
async def test_it_publishes_nothing_again_for_a_full_one() -> None:
    """All that a full one lacks would be published each few minutes, and refused each time."""
    async with EmbeddedService() as service, NamingService(service, name="one") as one:
        await Names(service).register("rss", NAMES)
        await until(lambda: len(one.table) == 3)
        for room, told in ((2, 1), (1, 3)):  # The second one is new, and lacks two.
            limits = DocumentLimits(kind_names_max=room)
            async with NamingService(service, name="full", table_limits=limits) as full:
                for _ in range(3):
                    await one.catch_up()
                    assert one.statistics().told == told
                assert len(full.table) == room


@on_loop
async def test_a_lost_connection_is_made_up_for() -> None:
    """Records published while a broker was away would be missing until much later."""
    broker = Broker(port=0, store="memory:")
    await broker.start()
    port = int(broker.address.rpartition(":")[2])
    async with (
        soon.connect(broker.address) as north,
        soon.connect(broker.address) as south,
        NamingService(north, name="north") as one,
        NamingService(south, name="south") as other,
    ):
        await broker.stop()
        one._take(said("north", 5))
        async with Broker(port=port, store="memory:"):
            await until(lambda: len(other.table) == 1)
            assert one.table == other.table


@on_loop
async def test_a_rate_of_its_user_only_delays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A naming service that has many records for others would end."""
    calls = list[int]()

    async def catch_up(_: NamingService) -> None:
        calls.append(len(calls))
        if len(calls) in (2, 3):
            raise QuotaError("a publication would wait 37 s", 7)

    monkeypatch.setattr(NamingService, "catch_up", catch_up)
    limits = FeedLimits(catch_up_s=0.001)
    async with EmbeddedService() as service, NamingService(service, limits=limits) as naming:
        await until(lambda: len(calls) > 4)
        assert not any(each.done() for each in naming._tasks)


@on_loop
async def test_waiting_for_its_end_raises_the_error() -> None:
    """A command would wait forever after its broker ended."""
    async with Broker(port=0, store="memory:") as broker:
        service = connect(broker.address, reconnect=False)
        async with service, NamingService(service) as kept:
            await broker.stop()
            with pytest.raises(ConnectionFailedError):
                await kept.ended()
