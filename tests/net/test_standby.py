"""Brokers of one name on one database: one leads, and a standby replaces it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import pytest

import contrada as ct
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_messages import Withdraw
from contrada.delivery.delivery_server import DeliveryServer
from contrada.errors import ContradaError, DeliveryError, StoreError
from contrada.model.syntax import parse_filter_set
from contrada.service.group_committer import GroupCommitter
from contrada.service.stores.lease import StoreLease
from contrada.service.stores.postgres_store import PostgresStore
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.net.processes import contrada, serving
from tests.net.standby_faults import Proxy
from tests.net.standbys import Member, group
from tests.postgres import Server, needs_postgres, shared_server

pytestmark = [pytest.mark.slow, needs_postgres]

LEASE_S = "CONTRADA_LIMITS_BROKER_LEASE_S"

SILENT_END_S_MAX = 60.0
"""From SIGTERM until the end of a broker whose database is silent; waits for clients are 10 s."""

Made: TypeAlias = tuple[PostgresStore, StoreLease, StoreLease]


class Traffic:
    """A publisher of certified numbers, and a durable reader, until `finish`."""

    def __init__(self, addresses: str) -> None:
        self._publisher, self._reader = ct.connect(addresses), ct.connect(addresses)
        self.accepted: list[int] = []
        self.read: list[int] = []
        self._ends = asyncio.Event()

    async def run(self) -> None:
        """Publishes and reads until all accepted numbers after `finish` were read."""
        async with self._publisher, self._reader:
            async with self._reader.subscribe("n any", durable="log"):
                pass
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read())
                await self._publish()
                while not set(self.accepted) <= set(self.read):
                    await asyncio.sleep(0.01)
                reading.cancel()

    async def _publish(self) -> None:
        n = 0
        while not self._ends.is_set():
            try:
                await self._publisher.publish({"n": n}, delivery="certified fifo")
                self.accepted.append(n)
            except ContradaError:  # It may have been written, or not.
                pass
            n += 1

    async def _read(self) -> None:
        async with self._reader.subscribe("n any", durable="log") as events:
            async for each in events:
                self.read.append(int(str(each["n"])))

    async def more(self) -> None:
        """Waits until further numbers were accepted and read."""
        end = len(self.accepted) + 20
        while len(self.accepted) < end or len(self.read) < end:
            await asyncio.sleep(0.01)

    def finish(self) -> None:
        """Publishes no more."""
        self._ends.set()


@contextmanager
def cut(member: Member, how: signal.Signals) -> Iterator[None]:
    """Ends or stops a broker; a stopped one goes on at the end."""
    member.process.send_signal(how)
    yield
    member.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("how", "lease_s"), [(signal.SIGKILL, 3.0), (signal.SIGTERM, 9_999.0), (signal.SIGSTOP, 3.0)]
)
def test_a_standby_takes_over(
    how: signal.Signals, lease_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certified notifications would wait for a person, or after SIGTERM for the end of the lease;
    or two brokers would write one store.
    """
    monkeypatch.setenv(LEASE_S, str(lease_s))
    take_over(how)


@on_loop
async def take_over(how: signal.Signals) -> None:
    """Ends a leader under traffic, and waits for its standby."""
    with group(*2 * [shared_server().url()]) as (addresses, (leader, standby)):
        traffic = Traffic(addresses)
        running = asyncio.create_task(traffic.run())
        await traffic.more()
        standby.process.send_signal(signal.SIGHUP)  # It reads its settings, and stays.
        with cut(leader, how):
            await asyncio.to_thread(standby.led.get, timeout=TEST_S_MAX)
            await traffic.more()
        if how is signal.SIGSTOP:
            await asyncio.to_thread(leader.logs, "leads no more")
            await asyncio.to_thread(leader.logs, "standby: another broker leads")
            assert leader.led.empty()
            await traffic.more()
        traffic.finish()
        await running
    assert traffic.read == sorted(set(traffic.read)), "doubled, or out of order"
    assert set(traffic.accepted) <= set(traffic.read), "lost"


MANY = 20_000
"""Durable subscriptions that a standby knows before it takes over."""


TAKE_OVER_WORK_S_MAX = 1.0
"""Processor time of a take-over that was prepared; else it takes several seconds."""


def work_s(process: "subprocess.Popen[str]") -> float:
    """Returns the processor time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_take_over_does_not_wait_for_many_subscriptions(how: signal.Signals) -> None:
    """A broker with many durable subscriptions would be away for some milliseconds for each."""
    url = shared_server().url()
    with closing(PostgresStore(url)) as store:
        server = DeliveryServer("desk", incarnation=1, store=store)
        for n in range(MANY):
            text = f"user = 'u{n}' and price < {n % 97}"
            server.create_subscription(f"s{n}", parse_filter_set(text), n, is_durable=True)
            if n % 1_000 == 0:
                store.sync()
    with group(url, url) as (_, (leader, standby)):
        standby.logs(f"knows {MANY} durable subscriptions")
        before_s = work_s(standby.process)
        leader.process.send_signal(how)
        standby.led.get(timeout=TEST_S_MAX)
        assert work_s(standby.process) - before_s < TAKE_OVER_WORK_S_MAX


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@on_loop
async def test_a_standby_follows_the_subscriptions_of_its_leader(how: signal.Signals) -> None:
    """A new leader would not know those that were made, changed or ended while it waited."""
    with group(*2 * [shared_server().url()]) as (addresses, (leader, standby)):
        async with ct.connect(addresses) as service:

            async def begin(name: str, filters: str) -> None:
                async with service.subscribe(filters, durable=name):
                    pass

            await begin("old", "n < 5")
            await begin("ended", "n < 6")
            await asyncio.to_thread(standby.logs, "durable subscriptions")
            standby.process.send_signal(signal.SIGHUP)  # It begins again, with its settings now.
            await asyncio.to_thread(standby.logs, "durable subscriptions")
            await begin("changed", "n < 7")
            await service.unsubscribe("ended")
            await service.unsubscribe("changed")
            await begin("changed", "n >= 7")
            for n in (1, 7):
                await service.publish({"n": n}, delivery="certified")
            leader.process.send_signal(how)
            await asyncio.to_thread(standby.led.get, timeout=TEST_S_MAX)
            for delivery in ("certified", "best-effort"):
                for n in (2, 8):
                    await service.publish({"n": n}, delivery=delivery)
            for name, expected in (("old", [1, 2, 2]), ("changed", [7, 8, 8])):
                async with service.subscribe(durable=name) as events:
                    assert [(await anext(events))["n"] for _ in expected] == expected
            with pytest.raises(DeliveryError, match="no durable subscription 'ended'"):
                async with service.subscribe(durable="ended"):
                    pass


@on_loop
async def test_the_links_of_neighbours_follow_the_leader() -> None:
    """A network would be cut off from the new leader, and certified notifications wait."""
    with group(*2 * [shared_server().url()]) as (addresses, (leader, _)):
        neighbours = [word for each in addresses.split(",") for word in ("--neighbour", each)]
        with serving("--name", "far", "--port", "0", *neighbours) as (_, far_address):
            async with (
                ct.connect(addresses) as near,
                ct.connect(far_address) as far,
                near.subscribe("n any", durable="log") as events,
                far.subscribe("m any", reliable=True) as others,
            ):
                for n in (1, 2):
                    async with asyncio.timeout(TEST_S_MAX):
                        await far.publish({"n": n}, delivery="reliable")
                        assert (await anext(events))["n"] == n
                        await near.publish({"m": n}, delivery="certified")
                        assert (await anext(others))["m"] == n
                    leader.process.kill()


@on_loop
async def test_a_leader_without_a_database_stops() -> None:
    """Its clients would talk to a broker that another one has replaced."""
    server = Server()
    try:
        with group(*2 * [server.url()]) as (_, (leader, standby)):
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(leader.logs, "leads no more")
            await asyncio.to_thread(server.start)
            both = [
                asyncio.create_task(asyncio.to_thread(each.led.get, timeout=TEST_S_MAX))
                for each in (leader, standby)
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in (leader, standby):
                each.led.put(0.0)  # Ends the other one's wait.
            await asyncio.gather(*both)
    finally:
        server.remove()


@pytest.mark.parametrize("when", ["before its lease ends", "after its lease ended", "standing by"])
@on_loop
async def test_a_silent_database_does_not_hold_up_the_end(when: str, tmp_path: Path) -> None:
    """A machine would wait for it at each shutdown, or the broker miss the signal and go on."""
    proxy = Proxy(tmp_path, shared_server())
    async with await proxy.open():
        brokers = group(*2 * [proxy.url])
        addresses, members = await asyncio.to_thread(brokers.__enter__)
        try:
            traffic = Traffic(addresses)
            running = asyncio.create_task(traffic.run())
            await traffic.more()
            proxy.cut()
            if when == "after its lease ended":
                await asyncio.to_thread(members[0].logs, "leads no more")
            ended = members[when == "standing by"].process
            ended.terminate()
            assert await asyncio.to_thread(ended.wait, SILENT_END_S_MAX) == 0
            running.cancel()
            await asyncio.wait((running,))
        finally:
            await asyncio.to_thread(brokers.__exit__, None, None, None)


@on_loop
async def test_a_read_of_a_silent_database_ends_with_the_lease(tmp_path: Path) -> None:
    """The event loop would wait for it, and no signal nor the loss of the lease be handled."""
    proxy = Proxy(tmp_path, shared_server())
    async with await proxy.open():
        store = await asyncio.to_thread(PostgresStore, proxy.url + "read")
        store.append("log", [b"record"], 1)
        await asyncio.to_thread(store.sync)
        lease = StoreLease(proxy.url + "read", 1.0)
        await asyncio.to_thread(lease.begin, store)
        proxy.cut()
        with pytest.raises(StoreError):
            await asyncio.to_thread(store.read, "log", 1, 10)
        proxy.mend()
        await asyncio.to_thread(suppressing(store.close))
        await asyncio.to_thread(lease.close)


@on_loop
async def test_the_loss_of_a_database_server_loses_nothing() -> None:
    """Confirmed notifications would be on one disk only, or their broker stand still."""
    primary = Server()
    replica = Server(primary)
    hosts = ",".join(quote(str(each.folder), safe="") for each in (primary, replica))
    url = f"postgresql://tests@{hosts}/postgres?target_session_attrs=read-write"
    try:
        with group(url, url) as (addresses, _):
            traffic = Traffic(addresses)
            running = asyncio.create_task(traffic.run())
            await traffic.more()
            async with ct.connect(addresses) as service:
                replica.signal(signal.SIGSTOP)
                try:
                    with pytest.raises(TimeoutError):  # It is on one disk only.
                        await asyncio.wait_for(service.publish({"k": 1}, delivery="certified"), 0.5)
                finally:
                    replica.signal(signal.SIGCONT)
            await traffic.more()
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(replica.promote)
            await traffic.more()
            traffic.finish()
            await running
    finally:
        primary.remove()
        replica.remove()
    assert traffic.read == sorted(set(traffic.read)), "doubled, or out of order"
    assert set(traffic.accepted) <= set(traffic.read), "lost"


@pytest.fixture
def made() -> Iterator[Made]:
    """A store with a leader's lease, and the lease of a standby that waits for nothing."""
    url = shared_server().url()
    with ExitStack() as stack:
        store, leader, standby = PostgresStore(url), StoreLease(url, 1e9), StoreLease(url, 0.0)
        for each in (store, leader, standby):
            stack.callback(suppressing(each.close))
        leader.begin(store)
        yield store, leader, standby


def suppressing(close: Callable[[], None]) -> Callable[[], None]:
    """Closes a store that another one has replaced."""

    def closed() -> None:
        with suppress(StoreError):
            close()

    return closed


def test_a_lease_that_is_renewed_is_not_claimed(made: Made) -> None:
    """A standby would replace a leader that serves."""
    _, leader, standby = made
    standby._term.seconds = 1e9
    for _ in range(3):
        assert not standby._may_lead()
        assert leader._renew()
    standby._term.seconds = 0.0
    assert standby._may_lead()
    assert not leader._renew()


def test_a_leader_that_was_replaced_reads_and_writes_nothing(made: Made) -> None:
    """Records would be handed out twice, or lost."""
    store, leader, standby = made
    store.append("log", [b"record"], 1)
    store.sync()
    assert standby._may_lead()
    standby._term.seconds = 1e9
    with closing(PostgresStore(store.place)) as other:
        standby.begin(other)
        store.append("log", [b"late"], 2)
        for _ in range(2):
            with pytest.raises(StoreError):
                store.sync()
        leader._term.end()
        with pytest.raises(StoreError, match="its lease has ended"):
            store.read("log", 1, 10)
        assert [each.position for each in other.read("log", 1, 10)] == [1]


def test_a_leader_does_not_renew_the_lease_of_a_store_that_another_broker_opened(
    made: Made,
) -> None:
    """It would serve clients whose records it can never write."""
    store, leader, _ = made
    store.interrupt()
    with closing(PostgresStore(store.place)):
        assert not leader._renew()


@on_loop
async def test_a_leader_that_was_replaced_hands_out_nothing_that_it_read_before(made: Made) -> None:
    """A reader would get a record that another one has acknowledged to the new leader."""
    store, leader, _ = made
    shown = list[object]()
    groups = GroupCommitter(store, shown.append, lambda _: None)
    groups.add([HandRecords("reader", Withdraw("log", "reader", (1,)))])
    leader._term.end()
    await until(lambda: bool(groups.failures))
    groups.close()
    assert not shown


@on_loop
async def test_a_leader_that_was_replaced_answers_nobody(made: Made) -> None:
    """Its clients would give up acknowledgements that the new leader never gets."""
    store, leader, standby = made
    assert standby._may_lead()
    standby._term.seconds = 1e9
    with closing(PostgresStore(store.place)) as other:
        standby.begin(other)
        leader._term.end()
        groups, answers = (
            GroupCommitter(store, lambda _: None, lambda _: None),
            list[StoreError | None](),
        )
        store.append("log", [b"late"], 1)
        groups.add([])
        groups.when_committed(lambda _, failure: answers.append(failure), None)
        await until(lambda: bool(groups.failures))
        groups.close()
    assert not answers


def test_a_leader_without_a_lease_is_not_ended(made: Made) -> None:
    """A standby would end the connections of a broker that does not know of standbys."""
    store, _, standby = made
    store.close()
    with closing(PostgresStore(store.place)) as plain:
        assert not standby._may_lead()
        plain.append("log", [b"record"], 1)
    while not standby._may_lead():  # Its connection has ended, and its lock soon afterwards.
        pass


def test_a_standby_needs_a_database() -> None:
    """Two brokers would each lead on a file of their own."""
    for store in ("events.db", "memory:"):
        run = contrada("serve", "--standby", "--store", store)
        assert run.returncode == 2
        assert "add --store postgresql://" in run.stderr
