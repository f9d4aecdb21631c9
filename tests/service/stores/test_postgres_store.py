"""The store in a schema of PostgreSQL: broken connections, killed servers."""

import asyncio
import importlib
import itertools
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

import contrada as ct
from contrada.delivery.store import LogRecord
from contrada.errors import MissingRequirementError, ServiceError, StoreError
from contrada.service.service_limits import ServiceLimits
from contrada.service.stores import postgres_store
from contrada.service.stores.postgres_store import PostgresStore
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, of
from tests.places import SchemaPlace
from tests.postgres import Server, needs_postgres, shared_server

READ_AHEAD_MAX = ServiceLimits().prefetch_max

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\0"
"""A server's message of a commit, on the wire."""

CUT = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE application_name = 'contrada'"
)


@pytest.fixture
def place() -> SchemaPlace:
    """A new schema of a running server."""
    return SchemaPlace(shared_server().url())


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that may be killed."""
    server = Server()
    yield server
    server.remove()


class Wire:
    """A proxy between a store and its server, which can lose the answer to a commit."""

    def __init__(self, folder: str, to: Path) -> None:
        self.loses_commit = False
        self._open: list[socket.socket] = []
        self._to = str(to / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.5432")
        self._listener.listen()
        self.url = f"postgresql://tests@{quote(folder, safe='')}/postgres"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # It is closed in the end.
            while True:
                near, far = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self._to)
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.loses_commit and COMMITTED in data:
                    self.loses_commit = False
                    break
                target.sendall(data)
        for each in (source, target):
            self._shut(each)

    def _shut(self, wire: socket.socket) -> None:
        with suppress(OSError):  # The other end may have closed first.
            wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes all connections."""
        for each in (self._listener, *self._open):
            self._shut(each)
            each.close()


def held(store: PostgresStore, log: str = "a") -> list[bytes]:
    """The records of a log."""
    entries = store.read(log, 1, 10**6)
    assert all(isinstance(each, LogRecord) for each in entries)
    return [each.data for each in entries if isinstance(each, LogRecord)]


@needs_postgres
def test_a_connection_that_was_cut_is_made_anew(place: SchemaPlace) -> None:
    """A restart of the server would end all durable delivery."""
    store = PostgresStore(place.name)
    store.append("a", [b"1"], 1)
    store.sync()
    store.append("a", [b"2"], 2)
    place.execute(CUT)
    assert held(store) == [b"1", b"2"]
    with pytest.raises(StoreError, match="terminating connection"):
        store.sync()
    store.append("a", [b"3"], 3)
    store.sync()
    store.close()
    store = PostgresStore(place.name)
    assert held(store) == [b"1", b"2", b"3"]
    store.close()


@needs_postgres
def test_a_group_whose_commit_had_no_answer_is_written_once() -> None:
    """A group would be written twice, or never be counted as written."""
    with TemporaryDirectory() as folder, closing(Wire(folder, shared_server().folder)) as wire:
        schema = shared_server().url().partition("?")[2]
        store = PostgresStore(f"{wire.url}?{schema}")
        for number in range(3):
            store.append("a", [b"%d" % number], number)
            wire.loses_commit = True
            with pytest.raises(StoreError, match="server closed the connection"):
                store.sync()
            assert not wire.loses_commit
            store.append("a", [b"then %d" % number], number)
            store.sync()
        store.close()
        store = PostgresStore(f"{wire.url}?{schema}")
        assert held(store) == [b"0", b"then 0", b"1", b"then 1", b"2", b"then 2"]
        store.close()


@pytest.mark.slow
@needs_postgres
def test_who_lost_the_store_to_another_writes_no_more(place: SchemaPlace) -> None:
    """Two processes would use the same positions, each in good faith."""
    first = PostgresStore(place.name)
    first.append("a", [b"mine"], 1)
    place.execute(CUT)
    second = PostgresStore(place.name)
    second.append("a", [b"theirs"], 1)
    second.sync()
    with pytest.raises(StoreError):
        first.sync()
    with pytest.raises(StoreError, match="it is in use"):
        first.sync()
    second.close()
    with pytest.raises(StoreError, match="another process has opened it since"):
        first.sync()
    with pytest.raises(StoreError, match="another process has opened it since"):
        first.close()
    second = PostgresStore(place.name)
    assert held(second) == [b"theirs"]
    second.close()


@needs_postgres
def test_one_lock_more_than_one_writer_cannot_get_by(place: SchemaPlace) -> None:
    """A pooler between may share a session among clients, and so its locks."""
    first = PostgresStore(place.name)
    place.execute("UPDATE contrada_store SET epoch = epoch + 1")
    first.append("a", [b"mine"], 1)
    with pytest.raises(StoreError, match="it has changed meanwhile"):
        first.sync()
    with pytest.raises(StoreError, match="another process has opened it since"):
        first.close()


@on_loop
async def _published_over_a_kill(server: Server, url: str) -> None:
    accepted = [-n for n in range(1, 3 * READ_AHEAD_MAX)]
    got: list[int] = []
    async with ct.connect(store=url) as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        await service.publish_batch(({"n": n} for n in accepted), delivery=CERTIFIED)
        events = await service.subscribe(durable="s", auto_acknowledge=False)

        async def publish(first: int) -> None:
            for n in range(first, 10**6, 20):
                try:
                    await service.publish({"n": n}, delivery=CERTIFIED)
                except StoreError:
                    return  # It may be written yet.
                accepted.append(n)

        async def read() -> None:
            async for each in events:
                got.append(int(str(each.item["n"])))
                if each.position % 10 == 0:
                    with suppress(StoreError):  # The next group that is written has it, too.
                        await events.acknowledge(up_to=each.position)

        reading = asyncio.create_task(read())
        publishing = [asyncio.create_task(publish(first)) for first in range(20)]
        await until(lambda: accepted[-1] > 200 and len(got) > 100)
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*publishing)
        await asyncio.to_thread(server.start)
        for again in itertools.count(10**6):
            with suppress(StoreError):  # Until the connection is there again.
                await service.publish({"n": again}, delivery=CERTIFIED)
                accepted.append(again)
                break
        await until(lambda: len(got) >= of(service).logs["s"].appended)
        await events.aclose()
        await reading
    assert len(got) == len(set(got)), "doubled"
    assert set(accepted) <= set(got), "lost"


@pytest.mark.slow
@needs_postgres
def test_a_server_that_is_killed_loses_nothing_and_doubles_nothing(server: Server) -> None:
    """Accepted publications would be lost; or readers would wait for ever."""
    _published_over_a_kill(server, server.url())


@pytest.mark.slow
@needs_postgres
def test_a_server_that_does_not_write_to_the_disk_is_refused(server: Server) -> None:
    """Certified notifications would be lost with the machine."""
    server.stop()
    server.start(fsync="off")
    with pytest.raises(StoreError, match="fsync off"):
        PostgresStore(server.url())


@needs_postgres
def test_what_is_no_store_is_refused(place: SchemaPlace) -> None:
    """Tables of another program would be changed."""
    schema = place.name.partition("schema=")[2]
    place.execute(f"CREATE SCHEMA {schema}")
    place.execute("CREATE TABLE mine (x INT)")
    with pytest.raises(StoreError, match="no store of version"):
        PostgresStore(place.name)
    place.execute("DROP TABLE mine")
    PostgresStore(place.name).close()  # It is empty.


@needs_postgres
def test_a_store_that_was_not_made_whole_is_made_anew(
    place: SchemaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash during its creation would leave an unusable schema for ever."""
    with monkeypatch.context() as patch:
        patch.setattr(
            postgres_store, "_TABLES", postgres_store._TABLES.replace("TABLE notes", "TABLE logs")
        )
        with pytest.raises(StoreError, match="already exists"):
            PostgresStore(place.name)
    PostgresStore(place.name).close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        # pragma: allowlist nextline secret
        ("postgresql://me:secret@h/db?nonsense=1", 'invalid URI query parameter: "nonsense"'),
        # pragma: allowlist nextline secret
        ("postgresql://me:se%zzcret@h/db", 'invalid percent-encoded token: "…"'),
        # pragma: allowlist nextline secret
        ("postgresql://me:secret@[h/db", "IPv6"),
        # pragma: allowlist nextline secret
        ("postgresql://me:secret@127.0.0.1:1/db", "connection failed"),
        # pragma: allowlist nextline secret
        ("postgresql://me:secret@h/db?schema=", "expected a schema of 1 to 63 bytes"),
        # pragma: allowlist nextline secret
        (f"postgresql://me:secret@h/db?schema={'%C3%A4' * 32}", "expected a schema of 1 to 63"),
    ],
)
def test_a_url_that_leads_nowhere_is_told_without_its_password(url: str, reason: str) -> None:
    """A password would be logged."""
    with pytest.raises(StoreError) as raised:
        PostgresStore(url)
    assert reason in str(raised.value)
    assert str(raised.value).startswith("postgresql://me@")
    assert "cret" not in str(raised.value)


def test_other_urls_are_refused_with_what_is_known() -> None:
    """A file with an odd name would be created."""
    with pytest.raises(ServiceError, match=r"'mysql://…': expected .*, postgresql://") as raised:
        # pragma: allowlist nextline secret
        ct.connect(store="mysql://me:secret@h/db")
    assert "secret" not in str(raised.value)


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the extra would get a trace, and no remedy."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "contrada.service.stores.postgres_store")
    with (
        pytest.raises(MissingRequirementError, match=r"pip install 'contrada\[postgres\]'"),
        ct.connect_sync(store="postgresql://h/db"),
    ):
        pass
    monkeypatch.undo()
    importlib.import_module("contrada.service.stores.postgres_store")
