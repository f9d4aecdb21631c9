"""Following a store in PostgreSQL: nothing is missed, and nothing is written."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from urllib.parse import quote

import psycopg
import pytest

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import CloseLog
from contrada.delivery.delivery_server import DeliveryServer
from contrada.errors import StoreError
from contrada.model import FilterSet
from contrada.service.dispatcher import Dispatcher
from contrada.service.store_follower import StoreFollower
from contrada.service.stores.postgres_store import PostgresStore, open_connection, url_parts
from tests.asynchronous import on_loop
from tests.delivery.network import all_of
from tests.postgres import Server, needs_postgres, shared_server

pytestmark = needs_postgres


class Pair:
    """A store that one process writes, and another one follows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.follower = PostgresStore(url, opens=False)
        assert self.follower.follow() == ((), ()), "there is no store yet"
        self.leader = PostgresStore(url)

    def write(self, **logs: int) -> None:
        """Appends a record to each log, or drops those with 0."""
        for name, data in logs.items():
            self.leader.append(name, [b"%d" % data], 1) if data else self.leader.drop(name)
            self.leader.note(f"n/{name}", b"%d" % data if data else None)
        self.leader.sync()

    def look(self) -> set[str]:
        """Returns the logs that have changed, whose notes have, too."""
        changes = self.follower.follow()
        assert {*changes.notes} == {f"n/{name}" for name in changes.logs}
        return {*changes.logs}

    def close(self) -> None:
        """Closes both."""
        for each in (self.follower, self.leader):
            with suppress(StoreError):  # Another one has opened it since.
                each.close()

    def execute(self, statement: str) -> psycopg.Connection:
        """Begins a transaction of a third process with a statement."""
        conninfo, schema, _ = url_parts(self.url)
        db = open_connection(conninfo, schema)
        db.autocommit = False
        db.execute(statement.encode())
        return db


def content_of(store: PostgresStore) -> tuple[dict[str, bytes], dict[str, tuple[int, bytes]]]:
    """All notes, and the number and head of each log."""
    return dict(store.notes()), {n: (of.number, of.packed()) for n, of in store._logs.items()}


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A new store and its follower."""
    with ExitStack() as stack:
        pair = Pair(shared_server().url())
        stack.callback(pair.close)
        yield pair


def test_each_look_returns_what_has_changed_since(pair: Pair) -> None:
    """A subscription that was made, changed or ended meanwhile would be missed."""
    pair.write(a=1, b=2, c=3)
    assert pair.look() == {"a", "b", "c"}
    assert pair.look() == set()
    pair.write(b=4, d=5)
    pair.write(c=0, d=6)
    assert pair.look() == {"b", "c", "d"}
    pair.write(a=0)
    pair.write(a=7)
    assert pair.look() == {"a"}, "it is another log of this name"
    pair.write(a=0, b=0, d=0, e=1)
    pair.write(f=1)
    pair.leader.interrupt()
    assert {*pair.follower.open().logs} == {"a", "b", "d", "e", "f"}
    pair.follower.append("g", [b"x"], 2)
    pair.follower.sync()
    pair.follower.close()
    with closing(PostgresStore(pair.url)) as anew:
        assert content_of(anew) == content_of(pair.follower)


def test_a_follower_writes_nothing(pair: Pair) -> None:
    """Two processes would write one store."""
    pair.write(a=1)
    pair.look()
    before = pair.leader.epoch
    with pytest.raises(StoreError, match="it is not open"):
        pair.follower.append("b", [b"1"], 1)
    assert pair.follower._follower is not None
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        pair.follower._follower.execute("UPDATE contrada_store SET epoch = epoch + 1")
    pair.follower.close()
    pair.write(a=2)
    assert pair.leader.epoch == before


def test_a_change_that_is_not_committed_is_seen_when_it_is(pair: Pair) -> None:
    """One that began before a look and ended after it would never be seen."""
    pair.write(a=1, b=1)
    pair.look()
    slow = pair.execute("UPDATE notes SET value = '9', sum = 0 WHERE name = 'n/a'")
    pair.write(b=2)
    assert pair.look() == {"b"}
    slow.commit()
    slow.close()
    pair.write(b=3)
    assert {*pair.follower.follow().logs} == {"b"}
    assert "n/a" in pair.follower.damaged, "it was read, and has no sound checksum"


def test_a_leader_that_is_killed_in_the_middle_of_a_change_has_changed_nothing(pair: Pair) -> None:
    """The new leader would have one half of a change, or the next changes not."""
    pair.write(a=1, b=1)
    pair.look()
    killed = pair.execute("DELETE FROM logs WHERE name = 'a'")
    killed.execute("UPDATE contrada_store SET written = written + 1")
    assert pair.look() == set()
    killed.close()
    assert pair.look() == set()
    pair.leader.interrupt()
    changes = pair.follower.open()
    assert changes == ([], [])
    assert set(pair.follower.logs()) == {"a", "b"}


def test_damaged_rows_are_known_until_they_are_sound() -> None:
    """A standby would serve them, or refuse a store that was repaired."""
    with ExitStack() as stack:
        pair = Pair(shared_server().url())
        stack.callback(pair.close)
        pair.write(a=1, b=1)
        pair.look()
        for statement, damaged in (
            ("UPDATE notes SET sum = sum + 1 WHERE name = 'n/a'", {"n/a"}),
            ("UPDATE notes SET sum = sum - 1 WHERE name = 'n/a'", set()),
            ("UPDATE logs SET sum = sum + 1 WHERE name = 'b'", {"b"}),
            ("DELETE FROM logs WHERE name = 'b'", set()),
        ):
            with pair.execute(statement):
                pass
            pair.write(c=1)
            pair.follower.follow()
            assert pair.follower.damaged.keys() == damaged
        assert set(pair.follower.logs()) == {"a", "c"}


@pytest.mark.slow
def test_a_follower_whose_server_restarts_reads_all_again() -> None:
    """Numbers of transactions of one server would be compared with those of another."""
    server = Server()
    with ExitStack() as stack:
        stack.callback(server.remove)
        pair = Pair(server.url())
        stack.callback(pair.close)
        pair.write(a=1, b=1, c=1)
        pair.look()
        server.kill()
        with pytest.raises(StoreError):
            pair.follower.follow()
        server.start()
        with pytest.raises(StoreError):
            pair.write(b=2)
        pair.write(c=0)
        assert pair.look() == {"b", "c"}
        server.kill()
        server.start()
        assert pair.follower.open() == ([], [])
        assert set(pair.follower.logs()) == {"a", "b"}


@pytest.mark.slow
def test_a_follower_that_meets_another_server_reads_all_again() -> None:
    """After a promotion, rows whose transactions were lost would be known for ever."""
    before, now = Server(), Server()
    with ExitStack() as stack:
        for server in (before, now):
            stack.callback(server.remove)
        hosts = ",".join(quote(str(each.folder), safe="") for each in (before, now))
        pair = Pair(f"postgresql://tests@{hosts}/postgres")
        stack.callback(pair.close)
        pair.write(a=1, b=1)
        pair.look()
        for _ in range(200):  # So that none of the other server's transactions is newer.
            pair.execute("SELECT txid_current()").close()
        before.kill()
        with closing(PostgresStore(pair.url)) as other:
            other.append("a", [b"1"], 1)
            other.append("c", [b"1"], 1)
            other.sync()
            with pytest.raises(StoreError):
                pair.follower.follow()
            assert {*pair.follower.follow().logs} == {"b", "c"}


def names_of(follower: StoreFollower) -> list[str]:
    """The subscriptions whose best-effort notifications it takes, when it leads."""
    return sorted(follower.routes._keeping)


@on_loop
async def test_subscriptions_and_their_routes_follow_the_leader() -> None:
    """A take-over would find its own work undone, or deliver to a subscription that has ended."""
    url, dispatcher = shared_server().url(), Dispatcher()
    follower = StoreFollower("a", url, dispatcher, dispatcher.client(), DeliveryLimits())
    store = await asyncio.to_thread(PostgresStore, url)
    leader = DeliveryServer("a", incarnation=1, store=store)

    def create(name: str, filters: FilterSet) -> None:
        leader.create_subscription(name, filters, 5, is_durable=True)

    async def look() -> list[str]:
        store.sync()
        follower._due_s = -1.0
        await follower.follow()
        return names_of(follower)

    try:
        create("s", all_of("i > 1"))
        create("t", all_of("i > 2"))
        create("dead", FilterSet(()))
        assert await look() == ["s", "t"]
        kept = follower.routes._keeping["s"]
        leader.acknowledge("s", 1, 5)
        await look()
        assert follower.routes._keeping["s"] is kept, "its log alone has changed"
        leader.consume("", CloseLog("t", "", ends=True), 5)
        assert await look() == ["s"]
        leader.consume("", CloseLog("s", "", ends=True), 5)
        create("s", all_of("i > 3"))
        create("v", all_of("i > 4"))
        store.close()
        opened = follower.open()
        assert names_of(follower) == ["s", "v"]
        assert follower.routes._keeping["s"].filters == all_of("i > 3")
        assert dispatcher.statistics().subscriptions == 2
        opened.close()
    finally:
        follower.close()
