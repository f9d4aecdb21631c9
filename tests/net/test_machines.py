"""Clients and a broker in any order of steps, against a model of required and allowed
deliveries.

The model of a subscription is the list of notifications in flight to its reader, each required or
not. One is required as long as its connection stays. After a lost connection or broker some of
those in flight may arrive, once and in order. Reads are compared with that; durable records are
always required.

`CONTRADA_MACHINES=500` has so many runs, not just a few (`make machines`).
"""

import asyncio
import itertools
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import contrada as ct
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.service import Advertisements, DurableSubscription, Offering, Subscription
from tests.asynchronous import until
from tests.net.churn import reset
from tests.net.memory import tables
from tests.net.soon import SOON
from tests.net.test_reconnection import begun, cut, reached

RUNS: Final = int(os.environ.get("CONTRADA_MACHINES", "15"))
STEPS: Final = 60
STEP_S_MAX: Final = 5.0
"""Seconds in which anything must happen that is to happen."""

CLIENTS: Final = 3
KINDS: Final = 6
CREDIT: Final = 1_000
"""Bytes of credit: some notifications, so that readers that sleep hold it back."""

CALM: Final = 8
"""Steps between two losses: with too many losses nothing would be required."""

LOG: Final = "kept"
R = TypeVar("R")

kinds = st.frozensets(st.integers(0, KINDS - 1), min_size=1, max_size=3)
clients = st.integers(0, CLIENTS - 1)


@dataclass(frozen=True)
class Coming:
    """One notification that is on its way to a reader."""

    n: int
    kind: int
    must: bool = True


@dataclass
class Reading:
    """A subscription, its kinds, and its notifications in flight, in order."""

    events: Subscription[ct.Notification]
    owner: int
    kinds: frozenset[int]
    coming: list[Coming] = field(default_factory=list)

    def read(self, n: int) -> None:
        """Removes a read notification. AssertionError if it was not allowed, or another was
        required.
        """
        places = [
            at for at, each in enumerate(self.coming) if each.n == n and each.kind in self.kinds
        ]
        assert places, f"{n} came twice, out of order, or to whom it is not for; {self.coming}"
        missed = [each for each in self.coming[: places[0]] if each.must]
        assert not missed, f"{n} came, and before it did not {missed}"
        del self.coming[: places[0] + 1]

    def lose(self) -> None:
        """Marks all in flight as not required."""
        self.coming = [replace(each, must=False) for each in self.coming]

    @property
    def waits(self) -> bool:
        """Returns whether one is required."""
        return any(each.must for each in self.coming)


def filter_of(kinds: frozenset[int]) -> ct.Filter:
    return ct.Filter(f"kind in ({', '.join(map(str, sorted(kinds)))})")


# A sleeping reader has no credit, so waiting longer would hand over nothing more.
LIMITS = BrokerLimits(handover_wait_s=0.2)


class Machine(RuleBasedStateMachine):
    """A broker, three reconnecting clients, and their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.store: Path | None = None
        self.services: list[TcpService] = []
        self.readings: list[Reading] = []
        self.offers: dict[Offering, tuple[int, int]] = {}
        self.following: Advertisements | None = None
        self.log: DurableSubscription[ct.Notification] | None = None
        self.kept: list[int] = []
        self.numbers = itertools.count()
        self.calm = 0

    def run(self, doing: Coroutine[Any, Any, R]) -> R:
        """Does something, within a bounded time."""
        self.calm += 1
        return self.loop.run_until_complete(asyncio.wait_for(doing, STEP_S_MAX))

    @initialize(has_store=st.booleans())
    def begin(self, has_store: bool) -> None:
        """A broker, its store a file or memory, and clients."""
        self.store = Path(self.folder.name) / "store.db" if has_store else None
        self.run(self._begin())

    async def _begin(self) -> None:
        self.broker = Broker(port=0, store=self.store, limits=LIMITS)
        await self.broker.start()
        for _ in range(CLIENTS):
            service = TcpService(
                self.broker.address, limits=ClientLimits(credit_bytes=CREDIT, backoff=SOON)
            )
            await service.open()
            self.services.append(service)

    # --- subscriptions ------------------------------------------------------------------------

    @precondition(lambda self: len(self.readings) < 5)
    @rule(client=clients, kinds=kinds)
    def subscribe(self, client: int, kinds: frozenset[int]) -> None:
        """Adds a subscription; it gets later publications."""
        events = self.services[client].subscribe(filter_of(kinds))
        self.run(events.open())
        self.readings.append(Reading(events, client, kinds))

    @precondition(lambda self: self.readings)
    @rule(at=st.integers(0, 4), kinds=kinds)
    def update(self, at: int, kinds: frozenset[int]) -> None:
        """Replaces its filter: of those in flight only matches remain."""
        reading = self.readings[at % len(self.readings)]
        self.run(reading.events.update(filter_of(kinds)))
        reading.kinds = kinds
        # Notifications outside its filters may arrive, if it widens them before it reads.
        reading.coming = [
            replace(each, must=each.must and each.kind in kinds) for each in reading.coming
        ]

    @precondition(lambda self: self.readings)
    @rule(at=st.integers(0, 4))
    def unsubscribe(self, at: int) -> None:
        """Removes it, with its notifications in flight."""
        self.run(self.readings.pop(at % len(self.readings)).events.unsubscribe())

    @precondition(lambda self: self.readings)
    @rule(at=st.integers(0, 4), count=st.integers(1, 200))
    def read(self, at: int, count: int) -> None:
        """A reader that slept reads so many, and grants credit by that."""
        reading = self.readings[at % len(self.readings)]
        self.run(self._read(reading, count))

    async def _read(self, reading: Reading, count: int) -> None:
        while count and reading.waits:
            number: Any = (await anext(reading.events))["n"]
            reading.read(number)
            count -= 1

    # --- publishing ---------------------------------------------------------------------------

    @rule(client=clients, kind=st.integers(0, KINDS - 1))
    def publish(self, client: int, kind: int) -> None:
        """One notification; it is in all queues when that returns."""
        n = next(self.numbers)
        self.run(self.services[client].publish({"n": n, "kind": kind}))
        self._is_coming([Coming(n, kind)])

    @rule(client=clients, kinds=st.lists(st.integers(0, KINDS - 1), min_size=2, max_size=60))
    def publish_batch(self, client: int, kinds: list[int]) -> None:
        """Many at once, more than the credit of a reader that sleeps."""
        coming = [Coming(next(self.numbers), kind) for kind in kinds]
        items = [{"n": each.n, "kind": each.kind} for each in coming]
        assert self.run(self.services[client].publish_batch(items)) == len(items)
        self._is_coming(coming)

    def _is_coming(self, coming: list[Coming]) -> None:
        for reading in self.readings:
            reading.coming += [each for each in coming if each.kind in reading.kinds]

    # --- durable subscriptions ----------------------------------------------------------------

    @precondition(lambda self: self.store and self.log is None)
    @rule(client=clients)
    def read_log(self, client: int) -> None:
        """A durable subscription begins, or is read on."""
        self.log = self.services[client].subscribe("log = true", durable=LOG)
        self.run(self.log.open())

    @precondition(lambda self: self.log)
    @rule(client=clients)
    def publish_certified(self, client: int) -> None:
        """It is on the disk when that returns."""
        n = next(self.numbers)
        self.run(self.services[client].publish({"n": n, "log": True}, delivery="certified"))
        self.kept.append(n)

    @precondition(lambda self: self.log and self.kept)
    @rule()
    def acknowledge(self) -> None:
        """All kept records are delivered, also earlier lost ones, and never again."""
        self.run(self._acknowledge())

    async def _acknowledge(self) -> None:
        assert self.log is not None
        left, last = set(self.kept), 0
        while left:
            kept = await anext(self.log)
            assert kept.item["n"] in self.kept, "it was acknowledged, and came again"
            left.discard(kept.item["n"])
            last = kept.position
        await self.log.acknowledge(up_to=last)
        self.kept.clear()

    # --- advertisements -----------------------------------------------------------------------

    @precondition(lambda self: len(self.offers) < 4)
    @rule(client=clients, kind=st.integers(0, KINDS - 1))
    def advertise(self, client: int, kind: int) -> None:
        """Something is on offer."""
        offer = self.services[client].advertise(ct.Advertisement(f"kind = {kind}"))
        self.run(offer.open())
        self.offers[offer] = client, kind

    @precondition(lambda self: self.offers)
    @rule()
    def unadvertise(self) -> None:
        """It is no longer."""
        offer = next(iter(self.offers))
        del self.offers[offer]
        self.run(offer.unadvertise())

    @precondition(lambda self: self.following is None)
    @rule(client=clients)
    def follow(self, client: int) -> None:
        """A client wants to know all that is on offer."""
        self.following = self.services[client].advertisements()
        self.run(self.following.open())

    @precondition(lambda self: self.following)
    @rule()
    def is_told(self) -> None:
        """A follower has the present offers, and no others."""
        wanted = {ct.Advertisement(f"kind = {kind}") for _, kind in self.offers.values()}
        following = self.following
        assert following is not None
        self.run(until(lambda: set(following.current) == wanted))

    # --- losses -------------------------------------------------------------------------------

    @precondition(lambda self: self.calm > CALM)
    @rule(client=clients, other=clients, kind=st.integers(0, KINDS - 1))
    def drop(self, client: int, other: int, kind: int) -> None:
        """A connection is reset, something is published, and the client is there again."""
        self.run(self._drop(client, other, kind))
        self.calm = 0

    async def _drop(self, client: int, other: int, kind: int) -> None:
        states = self.services[client].connection_states()
        await reached(states, "connected")
        reset(self.services[client])
        await reached(states, "lost")
        lost = [each for each in self.readings if each.owner == client]
        for each in lost:
            each.lose()
        if other != client:
            n = next(self.numbers)
            await self.services[other].publish({"n": n, "kind": kind})
            self._is_coming([Coming(n, kind)])
            for each in lost:
                each.lose()
        await self._are_back()

    @precondition(lambda self: self.calm > CALM)
    @rule(hands_over=st.booleans())
    def restart(self, hands_over: bool) -> None:
        """The broker ends, in order or not, and another one begins on its store."""
        self.run(self._restart(hands_over))
        self.calm = 0

    async def _restart(self, hands_over: bool) -> None:
        if hands_over and not any(each.waits for each in self.readings):
            await self.broker.stop()
        else:
            await cut(self.broker)
        for each in self.readings:
            each.lose()
        place = parse_address(self.services[0].connection.address or self._address)
        if self.store is None:
            self.broker = await begun(str(place))
        else:
            self.broker = Broker(place.host, place.port, store=self.store, limits=LIMITS)
            await self.broker.start()
        await self._are_back()

    async def _are_back(self) -> None:
        """All clients are connected to the broker that is there, and nobody else is."""
        await until(
            lambda: (
                all(each.connection.state == "connected" for each in self.services)
                and len(self.broker._connections) == CLIENTS
                and tables(self.broker)["routes"] == len(self.readings)
            )
        )

    # --- always -------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_by_the_way(self) -> None:
        """No reader is slow enough for anything to be dropped, and the broker finds no fault."""
        if self.services:
            self._address = self.broker.address
            assert not self.broker.refused["internal"]
            full = self.broker.statistics().dropped.get("queue full", 0)
            assert not full

    def teardown(self) -> None:
        """Reads all required deliveries; then the tables are empty."""
        try:
            if self.services:
                self.run(self._end())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            self.folder.cleanup()

    async def _end(self) -> None:
        for kind in range(KINDS):  # Nothing arrives after it, also no second copy.
            last = Coming(next(self.numbers), kind)
            await self.services[0].publish({"n": last.n, "kind": kind})
            self._is_coming([last])
        for each in self.readings:
            while each.waits:
                await self._read(each, 1)
        if self.log is not None and self.kept:
            await self._acknowledge()
        for service in self.services:
            await service.aclose()
        await until(lambda: not tables(self.broker)["clients of the exchange"] - 1)
        left = tables(self.broker)
        assert {name: size for name, size in left.items() if size and name not in LASTING} == {}
        await self.broker.stop()


LASTING: Final = {"clients of the exchange", "tasks", "work"}
"""The tasks of a broker itself; these tests have their own count."""

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=RUNS, stateful_step_count=STEPS)
