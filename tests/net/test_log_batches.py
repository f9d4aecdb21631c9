"""Logs read many records at once, by position."""

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import contrada as ct
from contrada.errors import DeliveryError, InvalidValueError, LimitError
from contrada.model import from_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.durable_messages import AskRecordBatch, RecordBatch
from tests.asynchronous import on_loop


@asynccontextmanager
async def connected(
    folder: Path, limits: BrokerLimits = BrokerLimits()
) -> AsyncIterator[TcpService]:
    """A client of a broker with a store."""
    async with (
        Broker(port=0, store=folder / "store.db", limits=limits) as broker,
        TcpService(str(broker.address)) as service,
    ):
        yield service


async def filled(service: TcpService, count: int) -> None:
    async with service.subscribe("n any", durable="log"):
        pass
    await service.publish_batch(({"n": n} for n in range(count)), delivery="certified")


def values(batch: RecordBatch) -> list[object]:
    """Returns the values in a record batch, cut by its lengths."""
    found, at = list[object](), 0
    for length in array("I", batch.lengths):
        notification = from_msgpack(batch.data[at : at + length])
        assert isinstance(notification, ct.Notification)
        found.append(notification["n"])
        at += length
    assert at == len(batch.data)
    return found


@on_loop
async def test_a_batch_has_the_records_of_a_reader(tmp_path: Path) -> None:
    """Rows would be missing, doubled, or cut at the wrong byte."""
    async with connected(tmp_path, BrokerLimits(record_batch_bytes_max=2_000)) as service:
        await filled(service, 100)
        logs = service.delivery()
        log = await logs.log("log")
        assert (log.first, log.undone, log.next) == (1, 1, 101)
        found, positions, at = list[object](), array("q"), log.first
        while at < log.next:
            batch = await logs.record_batch(AskRecordBatch("log", log.number, at, log.next))
            assert len(batch.data) < 4_000
            found += values(batch)
            positions += array("q", batch.positions)
            at = batch.next
        assert found == [*range(100)]
        assert [*positions] == [*range(1, 101)]


@on_loop
async def test_a_batch_continues_behind_a_read_that_ended_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large records behind small ones would be missing."""
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 3_000)
    async with connected(tmp_path) as service:
        await filled(service, 3)
        large = ({"n": n, "text": "x" * 2_000} for n in range(3, 9))
        await service.publish_batch(large, delivery="certified")
        logs = service.delivery()
        number = (await logs.log("log")).number
        batch = await logs.record_batch(AskRecordBatch("log", number, 1, 10))
        assert (values(batch), batch.next) == ([*range(9)], 10)


@on_loop
async def test_acknowledged_records_are_omitted_or_deleted(tmp_path: Path) -> None:
    """Work that is done would be done again, or a gap be read in silence."""
    async with connected(tmp_path) as service:
        await filled(service, 10)
        logs = service.delivery()
        number = (await logs.log("log")).number
        async with service.subscribe(durable="log", auto_acknowledge=False) as events:
            kept = [await anext(events) for _ in range(5)]
            await events.acknowledge(kept[-1].position)
        assert values(await logs.record_batch(AskRecordBatch("log", number, 1, 11))) == [
            *range(4),
            *range(5, 10),
        ]
        again = await logs.record_batch(AskRecordBatch("log", number, 1, 11, is_again=True))
        assert values(again) == [*range(10)]
        await logs.acknowledge("log", number, 4)
        assert (await logs.log("log")).undone == 4
        with pytest.raises(DeliveryError, match="cannot begin at 3"):
            await logs.record_batch(AskRecordBatch("log", number, 3, 11))
        async with service.subscribe(durable="log") as events:
            assert (await anext(events)).item["n"] == 3


@on_loop
async def test_a_position_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Positions of one log would be taken for those of another."""
    async with connected(tmp_path) as service:
        await filled(service, 1)
        logs = service.delivery()
        number = (await logs.log("log")).number
        with pytest.raises(DeliveryError, match="no durable subscription 'other'"):
            await logs.log("other")
        with pytest.raises(DeliveryError, match="another one has its name"):
            await logs.record_batch(AskRecordBatch("log", number + 1, 1, 2))
        with pytest.raises(DeliveryError, match="another one has its name"):
            await logs.acknowledge("log", number + 1, 2)
        with pytest.raises(InvalidValueError):
            await logs.record_batch(AskRecordBatch("log", number, 2, 2))
        with pytest.raises(InvalidValueError, match="which are there"):
            await logs.acknowledge("log", number, 3)


@on_loop
async def test_batches_awaiting_answers_are_bounded(tmp_path: Path) -> None:
    """One client could have a broker hold gigabytes."""
    async with connected(tmp_path) as service:
        await filled(service, 10)
        logs = service.delivery()
        log = await logs.log("log")
        said = AskRecordBatch("log", log.number, 1, log.next)
        asked = [logs.record_batch(said) for _ in range(10 * BrokerLimits().record_batches_max)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert any(isinstance(each, LimitError) for each in found)
        for each in found:
            if isinstance(each, RecordBatch):
                assert values(each) == [*range(10)]
            else:
                assert isinstance(each, LimitError)
                assert each.limit == "record_batches_max"
        assert values(await logs.record_batch(said)) == [*range(10)]
