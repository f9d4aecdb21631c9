"""Reading and writing brokers through `format("contrada")`: rows per second from and to a broker's
disk.

A broker process has a log of notifications of ten attributes. Time is by the clock, with broker,
JVM and workers on the same cores. `noop` drops the rows.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import pyarrow as pa

from bench.harness import Measurement, figure
from bench.java import bench_session
from contrada.model import Envelope, Notification, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.durable_messages import AskRecordBatch
from contrada.service.stores.sqlite_store import SqliteStore
from tests.net.processes import serving

ROWS: Final = 400_000
SAMPLES: Final = 3
PUBLISHED: Final = 100_000
WIDE: Final = (
    "symbol STRING, price DOUBLE, volume BIGINT, open DOUBLE, high DOUBLE, low DOUBLE,"
    " exchange STRING, sector STRING, valid BOOLEAN, day BIGINT"
)


async def _begin(path: Path) -> None:
    async with (
        Broker(port=0, store=path) as broker,
        TcpService(str(broker.address)) as service,
        service.subscribe("volume any", durable="log"),
    ):
        pass


def _record(number: int) -> bytes:
    envelope = Envelope(
        id=f"quotes.{number}",
        publisher="quotes",
        sequence=number,
        time_us=1_700_000_000_000_000 + number,
        delivery="certified",
    )
    attributes = {
        "symbol": ("DIS", "IBM", "NKE")[number % 3],
        "price": 50 + number % 997 / 8,
        "volume": number,
        "open": 50.5,
        "high": 51.5,
        "low": 49.5,
        "exchange": "NYSE",
        "sector": "media",
        "valid": True,
        "day": number % 7,
    }
    return bytes(to_msgpack(Notification(attributes, envelope=envelope)))


@contextmanager
def broker() -> Iterator[str]:
    """A broker whose log has all rows on its disk before it starts."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        asyncio.run(_begin(path))
        with closing(SqliteStore(path)) as store:
            for first in range(1, ROWS + 1, 10_000):
                records = [_record(number) for number in range(first, first + 10_000)]
                store.append("log", records, first)
                store.sync()
        with serving("--port", "0", "--store", str(path)) as (_, address):
            yield address


async def _read(address: str) -> float:
    async with TcpService(address) as service:
        logs = service.delivery()
        log = await logs.log("log")
        begun, at = perf_counter(), log.first
        while at < log.next:
            at = (await logs.record_batch(AskRecordBatch("log", log.number, at, log.next))).next
        return ROWS / (perf_counter() - begun)


def through_spark(schema: str | None) -> Measurement:
    """Rows per second; the peer is one client that only reads the same batches."""
    samples, floor = [], []
    with broker() as address, bench_session() as spark:
        read = spark.read.format("contrada").options(address=address, durable="log", partitions="2")
        frame = read.load() if schema is None else read.schema(schema).load()
        for _ in range(SAMPLES + 1):
            floor.append(asyncio.run(_read(address)))
            begun = perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            samples.append(ROWS / (perf_counter() - begun))
    return Measurement(samples[1:], "one client alone", floor[1:])


@figure(
    name="spark/source-wide",
    unit="/s",
    workload="a broker's log of ten attributes into ten typed columns, two tasks",
    at_least=150_000.0,
    counts="clock",
)
def wide() -> Measurement:
    return through_spark(WIDE)


@figure(
    name="spark/source-whole",
    unit="/s",
    workload="the same as whole notifications with their envelopes",
    at_least=150_000.0,
    counts="clock",
)
def whole() -> Measurement:
    return through_spark(None)


async def _subscribe(address: str) -> None:
    async with TcpService(address) as service, service.subscribe("volume any", durable="log"):
        pass


@figure(
    name="spark/publishing",
    unit="/s",
    workload="certified notifications of ten attributes from one task to a broker's disk, with a"
    " durable subscription",
    at_least=15_000.0,
    counts="clock",
)
def publishing() -> Measurement:
    """Rows per second, with the start of the job."""
    samples = []
    with TemporaryDirectory() as folder, bench_session() as spark:
        table = pa.table({"notification": [_record(number) for number in range(1, PUBLISHED + 1)]})
        frame = spark.createDataFrame(table).coalesce(1).persist()
        for sample in range(SAMPLES + 1):
            store = Path(folder) / f"{sample}.db"
            with serving("--port", "0", "--store", str(store)) as (_, address):
                asyncio.run(_subscribe(address))
                writer = frame.write.format("contrada").mode("append")
                begun = perf_counter()
                writer.options(address=address, delivery="certified").save()
                samples.append(PUBLISHED / (perf_counter() - begun))
    return Measurement(samples[1:])
