"""Delivery semantics that classes inherit, judged by the notifications that are read, at brokers
too.

Each quality has a judge: a rule about the published and the read notifications. For worlds, with
crashes of servers and broken links, the checkers of `contrada.lab.simulation` judge the same.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import contrada as ct
from contrada.delivery.delivery_messages import DeliveryMessage, Transfer
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.routing.router_messages import Neighbour
from contrada.service import Service
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import QUEUE_FULL
from contrada.typed.handles import Handle
from tests.asynchronous import on_loop, until
from tests.homes import Serve, serve
from tests.net.networks import FIVE, network

QUEUE_NOTIFICATIONS_MAX = ServiceLimits().queue_notifications_max
READ_AHEAD_MAX = ServiceLimits().prefetch_max

pytestmark = pytest.mark.slow

__all__ = ["serve"]

TRIANGLE = ((0, 1), (1, 2), (0, 2))


@dataclass
class Said(ct.Obvent, name="qualities.Said"):
    by: str
    number: int


@dataclass
class Loose(Said, ct.Unreliable, name="qualities.Loose"):
    """At best effort."""


@dataclass
class Sure(Said, ct.Reliable, name="qualities.Sure"):
    """Reliable for its present subscribers."""


@dataclass
class Kept(Said, ct.Certified, name="qualities.Kept"):
    """Certified across restarts."""


@dataclass
class InTurn(Said, ct.FIFOOrder, name="qualities.InTurn"):
    """In the order of its publisher."""


@dataclass
class Caused(Said, ct.CausalOrder, name="qualities.Caused"):
    """In causal order."""


@dataclass
class Ranked(Said, ct.TotalOrder, name="qualities.Ranked"):
    """In total order."""


@dataclass
class Brief(Said, ct.Expiring, name="qualities.Brief"):
    """Valid for a time."""

    ttl_s: float = 60.0


@dataclass
class Urgent(Said, ct.Prioritized, name="qualities.Urgent"):
    """Prioritized."""

    priority: int = 3


# --- judges ---------------------------------------------------------------------------------------


def judge_once(read: Sequence[Said], published: Sequence[Said]) -> None:
    """Nothing is read that was not published, and nothing twice."""
    assert not _counted(read) - _counted(published), "it was not published, or came twice"


def judge_all(read: Sequence[Said], published: Sequence[Said]) -> None:
    """Everything is read, once."""
    judge_once(read, published)
    assert _counted(read) == _counted(published), "something was lost"


def judge_fifo(read: Iterable[Said]) -> None:
    """The notifications of each publisher are read in order."""
    numbers = defaultdict(list)
    for each in read:
        numbers[each.by].append(each.number)
    assert all(found == sorted(found) for found in numbers.values()), dict(numbers)


def judge_total(reads: Sequence[Sequence[Said]]) -> None:
    """All readers have the same order."""
    assert all(one == other for one, other in pairwise(reads))


def _counted(said: Iterable[Said]) -> Counter[tuple[str, int]]:
    return Counter((each.by, each.number) for each in said)


@pytest.mark.parametrize(
    ("judge", "wrong"),
    [
        (judge_once, ([Sure("a", 1)] * 2, [Sure("a", 1)])),
        (judge_once, ([Sure("a", 2)], [Sure("a", 1)])),
        (judge_all, ([Sure("a", 1)], [Sure("a", 1), Sure("a", 2)])),
        (judge_fifo, ([Sure("a", 2), Sure("b", 3), Sure("a", 1)],)),
        (judge_total, ([[Sure("a", 1), Sure("b", 1)], [Sure("b", 1), Sure("a", 1)]],)),
    ],
)
def test_judges_see_what_is_wrong(judge: Any, wrong: tuple[Any, ...]) -> None:
    """Every judge would accept everything."""
    with pytest.raises(AssertionError):
        judge(*wrong)


# --- places ---------------------------------------------------------------------------------------


class Places(list[Service]):
    """Access points of one service, far apart where there are several brokers."""

    def __init__(self, brokers: Sequence[Broker] = ()) -> None:
        super().__init__()
        self.brokers = brokers

    async def known(self, standing: int) -> None:
        """Waits until all servers know so many durable subscriptions."""
        await until(lambda: all(_standing(each) == standing for each in self.brokers))


def _standing(broker: Broker) -> int:
    host = broker.logs.used_host
    return 0 if host is None else host.server.statistics().standing


@pytest.fixture(params=["embedded", "broker", "network"])
def where(request: pytest.FixtureRequest) -> str:
    """The place of a service."""
    found: str = request.param
    return found


@asynccontextmanager
async def places(where: str, count: int) -> AsyncIterator[Places]:
    """So many access points; embedded, all are the same."""
    async with AsyncExitStack() as stack:
        if where == "embedded":
            found = Places()
            found.extend([await stack.enter_async_context(EmbeddedService())] * count)
        else:
            if where == "broker":
                brokers = [await stack.enter_async_context(Broker(port=0))] * 5
            else:
                brokers = await stack.enter_async_context(network(5, FIVE, sequencer="b2"))
            found = Places(brokers)
            for number in range(count):
                service = TcpService(brokers[(0, 3, 4, 1)[number]].address)
                found.append(await stack.enter_async_context(service))
        yield found


async def say(service: Service, cls: type[Said], by: str, count: int) -> list[Said]:
    """Publishes so many notifications of one publisher."""
    said = [cls(by, number) for number in range(count)]
    for each in said:
        await service.publish(each)
    return said


async def read(events: Any, count: int) -> list[Said]:
    """Reads the next so many notifications."""
    return [(await events.next(30)).item for _ in range(count)]


# --- qualities ------------------------------------------------------------------------------------


@on_loop
async def test_what_is_unreliable_comes_once_or_is_counted(where: str) -> None:
    """A notification would be read twice, or be lost uncounted."""
    count = QUEUE_NOTIFICATIONS_MAX + 100
    async with (
        places(where, 1) as (service,),
        service.subscribe(Loose, when_full="drop-newest") as events,
    ):
        said = [Loose("a", number) for number in range(count)]
        await service.publish_batch(said)
        await service.publish(Loose("a", count))
        found: list[Said] = []
        while len(found) + events.statistics().dropped.get(QUEUE_FULL, 0) < count + 1:
            found.append(await events.next(30))
        judge_once(found, [*said, Loose("a", count)])
        judge_fifo(found)
        assert len(found) >= QUEUE_NOTIFICATIONS_MAX


@on_loop
async def test_what_is_reliable_comes_to_who_is_slow(where: str) -> None:
    """A reliable notification would be lost in a full queue."""
    count = 3 * READ_AHEAD_MAX
    got: list[Said] = []
    release = asyncio.Event()

    async def slow(said: Sure) -> None:
        await release.wait()
        got.append(said)

    async with places(where, 2) as found:
        async with Handle(found[1], Sure, slow):
            await found.known(1)
            said = [Sure("a", number) for number in range(count)]
            await found[0].publish_batch(said)
            release.set()
            await until(lambda: len(got) >= count)
        judge_all(got, said)


@on_loop
async def test_what_is_certified_comes_over_restarts(serve: Serve, tmp_path: Path) -> None:
    """A certified notification would be lost with its publisher, its broker, or its subscriber."""
    path = tmp_path / "kept.db"
    got: list[Said] = []
    async with serve(path) as service:
        handle = Handle(service, Kept, got.append)
        await handle.activate("kept")
        said = await say(service, Kept, "first", 5)
        await until(lambda: len(got) == 5)
        await handle.deactivate()
        said += await say(service, Kept, "away", 5)
    async with serve(path) as service:
        handle = Handle(service, Kept, got.append)
        await handle.activate("kept")
        said += await say(service, Kept, "back", 5)
        await until(lambda: len(got) >= len(said))
        await handle.deactivate()
    judge_all(got, said)


@on_loop
async def test_what_has_an_order_of_its_publisher_comes_in_it(where: str) -> None:
    """An answer would be read before its question."""
    got: list[Said] = []

    async def handle(said: InTurn) -> None:
        if said.number % 7 == 0:
            await asyncio.sleep(0)  # Others overtake it, if they can.
        got.append(said)

    async with places(where, 3) as found, Handle(found[2], InTurn, handle):
        await found.known(1)
        said = await asyncio.gather(
            say(found[0], InTurn, "a", 100), say(found[1], InTurn, "b", 100)
        )
        await until(lambda: len(got) >= 200)
        judge_all(got, [*said[0], *said[1]])
        judge_fifo(got)


@on_loop
async def test_what_follows_from_something_comes_after_it(where: str) -> None:
    """A reader of both would see an answer to an unread question."""
    rounds = 20
    got: list[Said] = []
    async with places(where, 3) as found:

        async def answer(said: Caused) -> None:
            if said.by == "asks":
                await found[1].publish(Caused("answers", said.number))

        async with Handle(found[1], Caused, answer), Handle(found[2], Caused, got.append):
            await found.known(2)
            await say(found[0], Caused, "asks", rounds)
            await until(lambda: len(got) >= 2 * rounds)
        seen: set[int] = set()
        for each in got:
            assert each.by == "asks" or each.number in seen
            seen.add(each.number)
        judge_fifo(got)


class Slow:
    """A link that passes its messages on only when it is released."""

    def __init__(self, broker: Broker, source: str) -> None:
        self._receive = broker.logs.receive
        self._source = source
        self._held: list[tuple[Neighbour, DeliveryMessage]] = []
        self._is_open = False
        broker.logs.receive = self.receive  # type: ignore[method-assign]

    def receive(self, neighbour: Neighbour, message: DeliveryMessage) -> None:
        """Holds back the messages of the source."""
        if not self._is_open and isinstance(message, Transfer) and message.source == self._source:
            self._held.append((neighbour, message))
        else:
            self._receive(neighbour, message)

    def let_through(self) -> None:
        """Passes on all messages, held back ones and later ones."""
        self._is_open = True
        for neighbour, message in self._held:
            self._receive(neighbour, message)


@pytest.mark.parametrize("cls", [Caused, InTurn])
@on_loop
async def test_a_cause_is_waited_for_that_comes_late(cls: type[Said]) -> None:
    """An answer on the short way would overtake its question; in other orders it may."""
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(network(3, TRIANGLE, general=True))
        found = Places(brokers)
        for each in brokers:
            found.append(await stack.enter_async_context(TcpService(each.address)))
        asks, answers, reads = found
        near = await stack.enter_async_context(answers.subscribe(cls, reliable=True))
        far = await stack.enter_async_context(reads.subscribe(cls, reliable=True))
        await found.known(2)
        link = Slow(brokers[2], "b0")
        await asks.publish(cls("asks", 1))
        assert (await near.next(30)).item.by == "asks"
        await answers.publish(cls("answers", 1))
        if cls is Caused:
            await until(lambda: _early(brokers[2]) == 1 or far.statistics().queued > 0)
            assert far.statistics().queued == 0
            link.let_through()
            assert [each.by for each in await read(far, 2)] == ["asks", "answers"]
        else:
            assert [each.by for each in await read(far, 1)] == ["answers"]
            link.let_through()
            assert [each.by for each in await read(far, 1)] == ["asks"]


def _early(broker: Broker) -> int:
    host = broker.logs.used_host
    return 0 if host is None else host.server.statistics().early


@on_loop
async def test_what_has_a_total_order_comes_to_all_in_it(where: str) -> None:
    """Two readers of the same notifications would reach two results."""
    reads: list[list[Said]] = [[], [], []]
    async with places(where, 3) as found, AsyncExitStack() as stack:
        for service, got in zip(found, reads, strict=True):
            await stack.enter_async_context(Handle(service, Ranked, got.append))
        await found.known(3)
        said = await asyncio.gather(
            *(say(service, Ranked, by, 30) for service, by in zip(found, "abc", strict=True))
        )
        await until(lambda: all(len(got) >= 90 for got in reads))
        judge_all(reads[0], [*said[0], *said[1], *said[2]])
        judge_total(reads)


@on_loop
async def test_what_is_timely_expires(where: str) -> None:
    """An expired notification would be acted upon."""
    async with places(where, 1) as (service,), service.subscribe(Brief) as events:
        made = Brief("a", 1, ttl_s=0.5).to_notification()
        assert made.envelope.ttl_us == 500_000
        late = made.with_envelope(replace(made.envelope, time_us=5))
        await service.publish(late)
        await service.publish(Brief("a", 2))
        assert await events.next(30) == Brief("a", 2)
        assert events.statistics().queued == 0


@on_loop
async def test_what_is_prioritary_goes_before_what_matters_less(where: str) -> None:
    """A busy reader would read unimportant notifications first."""
    async with places(where, 1) as (service,), service.subscribe(Urgent) as events:
        given = [(1, 3), (2, 9), (3, 0), (4, 9), (5, 3)]
        for number, priority in given:
            await service.publish(Urgent("a", number, priority))
        await until(lambda: events.statistics().queued == len(given))
        assert [(await events.next(30)).number for _ in given] == [2, 4, 1, 5, 3]
