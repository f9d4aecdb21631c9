"""Stores in tables on every database: kills, damage, and full disks."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import ClassVar

import pytest

from contrada.delivery.store import Damaged, Extent, LogRecord
from contrada.errors import StoreError, StoreFullError
from contrada.service.stores import table_store
from contrada.service.stores.sqlite_store import SqliteStore
from contrada.service.stores.store_location import open_store
from contrada.service.stores.table_store import TableStore
from tests.delivery.stores import StoreMachine
from tests.places import Place, place, store
from tests.postgres import needs_postgres, shared_server

__all__ = ["place", "store"]


class TableStoreMachine(StoreMachine):
    """A store in tables; it is closed and opened, too."""

    store: TableStore

    def __init__(self) -> None:
        super().__init__()
        self.name = self.new_place()
        self.store = open_store(self.name)

    def new_place(self) -> str:
        """Where no store is yet."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Closes and opens: all must be there."""
        self.store.close()
        self.store = open_store(self.name)
        self.holds_all()
        for log in ("a", "b"):
            self.check_read(log, 1, 99)
        self.store.close()


class SqliteStoreMachine(TableStoreMachine):
    """In a file."""

    def new_place(self) -> str:
        """A file in a folder that is removed in the end."""
        self.folder = TemporaryDirectory()
        return str(Path(self.folder.name) / "store.db")

    def teardown(self) -> None:
        """Also removes the folder."""
        super().teardown()
        self.folder.cleanup()


class PostgresStoreMachine(TableStoreMachine):
    """In a schema."""

    def new_place(self) -> str:
        """A schema of its own."""
        return shared_server().url()


TestSqliteStore = SqliteStoreMachine.TestCase
TestPostgresStore = pytest.mark.slow(needs_postgres(PostgresStoreMachine.TestCase))


WRITER = """
import sys
from contrada.service.stores.store_location import open_store
store = open_store(sys.argv[1])
number = 0
while True:
    first = store.append("a", [b"%d" % (number + n) for n in range(10)], number)
    number += 10
    store.acknowledge("a", [(1, number // 2)])
    store.sync()
    print(number, flush=True)
"""


@pytest.mark.quick_first
def test_what_was_synced_survives_a_kill(place: Place) -> None:
    """Notifications that a broker has acknowledged would be lost in a crash."""
    command = [sys.executable, "-c", WRITER, place.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(next(writer.stdout)) for _ in range(20)]
        writer.kill()
        told += map(int, writer.stdout)
    store = open_store(place.name)
    found = store.read("a", 1, 10**6)
    assert len(found) >= told[-1]
    assert found == [
        LogRecord(at, (at - 1) // 10 * 10, b"%d" % (at - 1)) for at in range(1, len(found) + 1)
    ]
    assert store.acknowledged("a") == [(1, len(found) // 2)]
    store.close()


OPENER = """
import sys
from contrada.errors import StoreError
from contrada.service.stores.store_location import open_store
try:
    open_store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.quick_first
def test_a_store_has_one_process(place: Place, store: TableStore) -> None:
    """Two brokers would give out the same positions."""
    command = [sys.executable, "-c", OPENER, place.name]
    other = subprocess.run(command, capture_output=True, check=True, text=True)
    assert "it is in use, here or by another process; each needs its own" in other.stdout
    with pytest.raises(StoreError, match="it is in use"):
        open_store(place.name)
    store.append("a", [b"x"], 1)
    store.sync()


def test_what_was_damaged_is_found(place: Place) -> None:
    """A damaged record would be delivered."""
    store = open_store(place.name)
    store.append("a", [b"first", b"second", b"third", b"fourth"], 5)
    store.note("n", b"noted")
    store.note("m", b"whole")
    store.append("b", [b"other"], 5)
    store.close()
    place.execute("UPDATE records SET data = ? WHERE log = 1 AND position = 2", b"decond")
    place.execute("UPDATE records SET time_us = 6 WHERE log = 1 AND position = 4")
    place.execute("DELETE FROM records WHERE log = 1 AND position = 3")
    place.execute("UPDATE notes SET value = ? WHERE value = ?", b"moted", b"noted")
    place.execute("UPDATE logs SET head = ? WHERE id = 2", b"\0")
    store = open_store(place.name)
    assert store.read("a", 1, 9) == [
        LogRecord(1, 5, b"first"),
        Damaged(2, "its checksum is another"),
        Damaged(3, "it is not there"),
        Damaged(4, "its checksum is another"),
    ]
    assert store.notes() == {"m": b"whole"}
    assert set(store.damaged) == {"n", "b"}
    with pytest.raises(StoreError, match="'b': the log's head"):
        store.read("b", 1, 9)
    with pytest.raises(StoreError, match="'b'"):
        store.append("b", [b"new"], 6)
    store.close()


def test_a_full_disk_loses_nothing(place: Place) -> None:
    """Unwritten records would be lost, although there is room later."""
    store = open_store(place.name)
    store.append("a", [b"small"], 1)
    store.sync()
    place.fill(store)
    big = [bytes(1_000) for _ in range(100)]
    store.append("a", big, 2)
    store.note("n", b"kept")
    for _ in range(9):
        with pytest.raises(StoreFullError, match="no room is left"):
            store.sync()
    assert len(store._sealed) == 1, "trying again would fill the memory"
    store.append("a", [b"later"], 3)
    lengths = [len(each.data) for each in store.read("a", 1, 200) if isinstance(each, LogRecord)]
    assert lengths == [5, *([1_000] * 100), 5]
    place.make_room(store)
    store.sync()
    store.close()
    store = open_store(place.name)
    assert store.extent("a") == Extent(1, 103, 100_010)
    assert store.notes() == {"n": b"kept"}
    store.close()


def held_up(write: Callable[..., None], begun: Event, go_on: Event) -> Callable[..., None]:
    """A writer that waits first."""

    def waits(*of: object) -> None:
        begun.set()
        assert go_on.wait(30)
        write(*of)

    return waits


def test_one_appends_and_reads_while_it_is_written(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop would wait for the disk; or a record be read twice, or not at all."""
    begun, go_on = Event(), Event()
    store.append("a", [b"1", b"2"], 1)
    monkeypatch.setattr(store, "_write", held_up(store._write, begun, go_on))
    thread = Thread(target=store.sync)
    thread.start()
    assert begun.wait(30)
    assert store.append("a", [b"3"], 1) == 3
    store.truncate("a", 2)
    assert store.read("a", 1, 9) == [LogRecord(2, 1, b"2"), LogRecord(3, 1, b"3")]
    go_on.set()
    thread.join()
    assert store.read("a", 1, 9) == [LogRecord(2, 1, b"2"), LogRecord(3, 1, b"3")]
    store.sync()
    assert store.read("a", 1, 9) == [LogRecord(2, 1, b"2"), LogRecord(3, 1, b"3")]
    assert store.extent("a") == Extent(2, 4, 2)


def test_what_waits_is_bounded(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is too slow would fill the memory."""
    monkeypatch.setattr(table_store, "WAITING_BYTES_MAX", 10)
    store.append("a", [b"12345678"], 1)
    with pytest.raises(StoreFullError, match="waits"):
        store.append("a", [b"123"], 1)
    store.sync()
    assert store.append("a", [b"123"], 1) == 2


def test_what_waits_is_counted_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """An append beside the end of a write would be counted for ever, or never."""

    class Watched(SqliteStore):
        """A store that notes whether its lock is held at each change of the count."""

        changes: ClassVar[list[bool]] = []

        def __setattr__(self, name: str, value: object) -> None:
            if name == "_waiting_bytes" and hasattr(self, "_changing"):
                self.changes.append(self._changing.locked())
            super().__setattr__(name, value)

    store = Watched(tmp_path / "store.db")
    store.append("a", [b"1"], 1)
    store.sync()
    store.close()
    assert store.changes == [True, True]


def test_any_name_may_be_a_name(place: Place, store: TableStore) -> None:
    """A publisher or a subscription would stop the store for ever by how it is called."""
    names = ["ä\n\0☃", "\U0001f600" * 1_024, "x"]
    for each in names:
        store.note(each, each.encode())
    log = "\U0001f600" * 255
    store.append(log, [b"1"], 1)
    store.note("x", None)
    store.close()
    again = open_store(place.name)
    assert again.notes() == {each: each.encode() for each in names[:2]}
    assert again.logs() == [log]
    again.close()


def test_a_store_of_another_version_is_refused(place: Place) -> None:
    """Tables that mean something else would be written to."""
    open_store(place.name).close()
    if place.name.startswith("postgresql:"):
        place.execute("UPDATE contrada_store SET version = 7")
    else:
        place.execute("PRAGMA user_version = 7")
    with pytest.raises(
        StoreError, match="no store of version 1: found version 7, of another release or program"
    ):
        open_store(place.name)
