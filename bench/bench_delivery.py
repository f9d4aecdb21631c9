"""Durable delivery: records a second of stores, with an fsync for each group, and of services.

Time is of the clock, since the disk decides it. Each sample has a file of its own. Over TCP a
broker and its publishers each have a process. Streams and servers: notifications a second of the
state machines in one process, without sockets and disks, in time of the processor.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final, TypeAlias

import contrada as ct
from bench.harness import Measurement, figure
from contrada.delivery.access_point import Confirmed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_messages import Ack, Grant, OpenLog, Records
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.streams import Incoming, Outgoing
from contrada.delivery.transit import SendMessage
from contrada.model import Envelope, Notification, from_msgpack, to_msgpack
from contrada.model.syntax import parse_filter_set
from contrada.routing.router_messages import Neighbour
from contrada.service import Service
from contrada.service.stores.sqlite_store import SqliteStore
from contrada.service.stores.store_location import open_store
from contrada.service.stores.table_store import TableStore
from tests.postgres import BINARIES, shared_server

SAMPLES: Final = 5
GROUPS: Final = 100
PUBLISHERS: Final = 100
CERTIFIED: Final = 20_000
RECORDS: Final = [n.to_bytes(2, "big") * 100 for n in range(1_000)]


Opened: TypeAlias = Callable[[], AbstractContextManager[TableStore]]


@contextmanager
def in_file() -> Iterator[TableStore]:
    """A store in a file of its own."""
    with TemporaryDirectory() as folder, closing(SqliteStore(Path(folder) / "store.db")) as store:
        yield store


@contextmanager
def in_schema() -> Iterator[TableStore]:
    """A store in a schema of its own, of a server on this machine, over a Unix socket."""
    with closing(open_store(shared_server().url())) as store:
        yield store


def fill(store: TableStore) -> float:
    """Records a second that are written."""
    begun = perf_counter()
    for number in range(GROUPS):
        store.append("log", RECORDS, number)
        store.sync()
    return GROUPS * len(RECORDS) / (perf_counter() - begun)


def append_to(opened: Opened) -> Measurement:
    """Records a second that are published."""
    samples = []
    for _ in range(SAMPLES):
        with opened() as store:
            samples.append(fill(store))
    return Measurement(samples)


def read_from(opened: Opened) -> Measurement:
    """Records a second that are read."""
    samples = []
    with opened() as store:
        fill(store)
        for _ in range(SAMPLES):
            begun = perf_counter()
            position = 1
            while entries := store.read("log", position, 1_000):
                position = entries[-1].position + 1
            assert position == GROUPS * len(RECORDS) + 1
            samples.append((position - 1) / (perf_counter() - begun))
    return Measurement(samples)


@figure(
    name="delivery/store-append",
    unit="/s",
    workload="records of 200 bytes to the SQLite store, an fsync per 1,000",
    at_least=60_000.0,
    counts="clock",
)
def append() -> Measurement:
    return append_to(in_file)


@figure(
    name="delivery/store-read",
    unit="/s",
    workload="the same read in thousands, each record's sum checked",
    at_least=200_000.0,
    counts="clock",
)
def read() -> Measurement:
    return read_from(in_file)


if BINARIES is not None:

    @figure(
        name="delivery/postgres-append",
        unit="/s",
        workload="records of 200 bytes to the PostgreSQL store, a commit per 1,000",
        at_least=20_000.0,
        counts="clock",
    )
    def append_postgres() -> Measurement:
        return append_to(in_schema)

    @figure(
        name="delivery/postgres-read",
        unit="/s",
        workload="the same read in thousands, each record's sum checked",
        at_least=100_000.0,
        counts="clock",
    )
    def read_postgres() -> Measurement:
        return read_from(in_schema)


BATCH: Final = 100
BATCHES: Final = 1_000


@figure(
    name="delivery/streams",
    unit="/s",
    workload="items in hundreds through a stream, each hundred taken and acknowledged",
    at_least=300_000.0,
)
def streams() -> Measurement:
    samples = []
    items = list(range(BATCH))
    for _ in range(SAMPLES):
        outgoing: Outgoing[int] = Outgoing()
        incoming: Incoming[int] = Incoming()
        begun = process_time()
        for _ in range(BATCHES):
            incoming.take(outgoing.send(items, BATCH))
            outgoing.acknowledge(incoming.taken)
        samples.append(BATCH * BATCHES / (process_time() - begun))
        assert (incoming.taken, outgoing.held) == (BATCH * BATCHES, 0)
    return Measurement(samples)


class Pair:
    """Two servers with a link, and a consumer at the second that acknowledges each record."""

    def __init__(self) -> None:
        self.servers = {name: DeliveryServer(name, incarnation=1) for name in "ab"}
        self.accepted = self.taken = 0
        for name, other in ("ab", "ba"):
            self.do(name, self.servers[name].change_routes({other: other}, 0))
            self.do(name, self.servers[name].link_up(Neighbour(other), 0))
        owner = self.servers["b"]
        self.do("b", owner.create_subscription("s", parse_filter_set("price >= 0"), 0))
        self.do("b", owner.consume("c", OpenLog("s", "c"), 0))
        self.do("b", owner.consume("c", Grant("s", "c", 10 * BATCH), 0))

    def do(self, name: str, effects: Sequence[DeliveryEffect]) -> None:
        """Carries out effects, and the effects that these cause."""
        for effect in effects:
            match effect:
                case SendMessage(to, message):
                    found = self.servers[to.name].receive(Neighbour(name), message, 0)
                    self.do(to.name, found)
                case HandRecords(client, Records(_, _, records)):
                    self.taken += len(records)
                    first, end = records[0].position, records[-1].position + 1
                    server = self.servers[name]
                    self.do(name, server.consume(client, Ack("s", "c", ((first, end),)), 0))
                    self.do(name, server.consume(client, Grant("s", "c", len(records)), 0))
                case Confirmed():
                    self.accepted += 1


@figure(
    name="delivery/server",
    unit="/s",
    workload="reliable notifications in hundreds, from one server to a consumer at another",
    at_least=20_000.0,
)
def server() -> Measurement:
    samples = []
    for _ in range(SAMPLES):
        pair = Pair()
        batches = [_published(number) for number in range(BATCHES // 10)]
        begun = process_time()
        for number, batch in enumerate(batches):
            pair.do("a", pair.servers["a"].publish(number, "p", batch, 0))
        samples.append(len(batches) * BATCH / (process_time() - begun))
        assert (pair.accepted, pair.taken) == (len(batches), len(batches) * BATCH)
    return Measurement(samples)


def _published(batch: int) -> list[Notification]:
    """Notifications as received from a client, with their bytes."""
    made = []
    for number in range(batch * BATCH + 1, (batch + 1) * BATCH + 1):
        envelope = Envelope(
            id=str(number), publisher="p", sequence=number, time_us=number, delivery="reliable"
        )
        notification = Notification({"price": number, "name": "x"}, envelope=envelope)
        came = from_msgpack(to_msgpack(notification))
        assert isinstance(came, Notification)
        made.append(came)
    return made


@asynccontextmanager
async def subscribed() -> AsyncIterator[Service]:
    """A service with a store of its own, and one durable subscription."""
    with TemporaryDirectory() as folder:
        async with ct.connect(store=Path(folder) / "store.db") as service:
            async with service.subscribe("n >= 0", durable="s"):
                pass
            yield service


async def certified(
    batch: int, opened: Callable[[], AbstractAsyncContextManager[Service]] = subscribed
) -> float:
    """Certified publications a second, by many at the same time."""
    async with opened() as service:

        async def publish(first: int) -> None:
            for begin in range(first, CERTIFIED, PUBLISHERS * batch):
                items = [{"n": n, "text": "x" * 100} for n in range(begin, begin + batch)]
                if batch == 1:
                    await service.publish(items[0], delivery="certified")
                else:
                    await service.publish_batch(items, delivery="certified")

        begun = perf_counter()
        await asyncio.gather(*map(publish, range(0, PUBLISHERS * batch, batch)))
        return CERTIFIED / (perf_counter() - begun)


@contextmanager
def broker(store: str = "") -> Iterator[str]:
    """The address of a broker in a process of its own, with a store of its own, else a file."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from contrada.cli import main; main()", "serve"]
        options = ["--port", "0", "--store", store or str(Path(folder) / "store.db")]
        with subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.terminate()


@asynccontextmanager
async def over_tcp(store: str = "") -> AsyncIterator[Service]:
    """A client of such a broker, with one durable subscription that exists for a while.

    A broker loads its kernels in its first second or two, beside its work.
    """
    with broker(store) as address:
        async with ct.connect(address) as service:
            await (await service.subscribe("n >= 0", durable="s")).aclose()
            warm = ({"n": n, "text": "x" * 100} for n in range(2 * CERTIFIED))
            await service.publish_batch(warm, delivery="certified")
            yield service


async def durable() -> float:
    """Records read a second, of earlier certified publications."""
    async with subscribed() as service:
        await service.publish_batch(({"n": n} for n in range(CERTIFIED)), delivery="certified")
        begun = perf_counter()
        async with service.subscribe(durable="s") as events:
            for _ in range(CERTIFIED):
                await anext(events)
        return CERTIFIED / (perf_counter() - begun)


def sampled(run: Callable[[], Coroutine[Any, Any, float]]) -> Measurement:
    """As many samples as of a store, each with a file of its own."""
    return Measurement([asyncio.run(run()) for _ in range(SAMPLES)])


@figure(
    name="delivery/embedded-certified",
    unit="/s",
    workload="certified, by 100 publishers at a time to one durable subscription, fsync per group",
    at_least=2_000.0,
    counts="clock",
)
def embedded_certified() -> Measurement:
    return sampled(partial(certified, 1))


@figure(
    name="delivery/embedded-certified-batch",
    unit="/s",
    workload="the same, each publisher in batches of 100",
    at_least=4_000.0,
    counts="clock",
)
def embedded_certified_batch() -> Measurement:
    return sampled(partial(certified, 100))


@figure(
    name="delivery/tcp-certified",
    unit="/s",
    workload="certified over TCP to a broker in another process, by 100 publishers at a time",
    at_least=1_000.0,
    counts="clock",
)
def tcp_certified() -> Measurement:
    return sampled(partial(certified, 1, over_tcp))


if BINARIES is not None:

    @figure(
        name="delivery/tcp-certified-postgres",
        unit="/s",
        workload="such publications with a store in PostgreSQL on this machine",
        ratio_at_least=0.7,
        counts="clock",
    )
    def tcp_certified_postgres() -> Measurement:
        samples, in_files = [], []
        for _ in range(SAMPLES):
            samples.append(asyncio.run(certified(1, lambda: over_tcp(shared_server().url()))))
            in_files.append(asyncio.run(certified(1, over_tcp)))
        return Measurement(samples, "SQLite", in_files)


@figure(
    name="delivery/tcp-certified-batch",
    unit="/s",
    workload="the same, each publisher in batches of 100",
    at_least=6_000.0,
    counts="clock",
)
def tcp_certified_batch() -> Measurement:
    return sampled(partial(certified, 100, over_tcp))


@figure(
    name="delivery/embedded-durable",
    unit="/s",
    workload="reading them by one reader, each acknowledged when the next is asked for",
    at_least=4_000.0,
    counts="clock",
)
def embedded_durable() -> Measurement:
    return sampled(durable)
