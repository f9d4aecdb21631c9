"""The store in one SQLite file: what survives a kill, what is damaged, what is full."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest

from contrada.delivery.store import Damaged, LogRecord
from contrada.errors import StoreError, StoreFullError
from contrada.runtime import sqlite, tables
from contrada.runtime.sqlite import SqliteStore
from tests.delivery.stores import StoreMachine


class SqliteStoreMachine(StoreMachine):
    """The store in a file; it is closed and opened, too."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store: SqliteStore = self.opened()

    def opened(self) -> SqliteStore:
        """The store of the file."""
        return SqliteStore(Path(self.folder.name) / "store.db")

    def teardown(self) -> None:
        """Closes and opens: all must be there. Then the file goes."""
        self.store.close()
        self.store = self.opened()
        self.holds_all()
        for log in ("a", "b"):
            self.check_read(log, 1, 99)
        self.store.close()
        self.folder.cleanup()


TestSqliteStore = SqliteStoreMachine.TestCase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


WRITER = """
import sys
from contrada.runtime.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
number = 0
while True:
    first = store.append("a", [b"%d" % (number + n) for n in range(10)], number)
    number += 10
    store.acknowledge("a", [(1, number // 2)])
    store.sync()
    print(number, flush=True)
"""


def test_what_was_synced_survives_a_kill(path: Path) -> None:
    """What a broker has acknowledged would be lost when it dies."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [int(next(writer.stdout)) for _ in range(20)]
        writer.kill()
        told += map(int, writer.stdout)
    store = SqliteStore(path)
    found = store.read("a", 1, 10**6)
    assert len(found) >= told[-1]
    assert found == [
        LogRecord(at, (at - 1) // 10 * 10, b"%d" % (at - 1)) for at in range(1, len(found) + 1)
    ]
    assert store.acknowledged("a") == [(1, len(found) // 2)]
    store.close()


def test_a_store_has_one_process(path: Path, store: SqliteStore) -> None:
    """Two brokers would give out the same positions."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(StoreError, match="it is in use"):
            SqliteStore(name)
    store.append("a", [b"x"], 1)
    store.sync()


def test_changed_bytes_are_found(path: Path) -> None:
    """A damaged record would be delivered."""
    store = SqliteStore(path)
    store.append("a", [b"first" * 9, b"second" * 9, b"third" * 9], 5)
    store.note("n", b"noted" * 9)
    store.append("b", [b"other"], 5)
    store.close()
    whole = path.read_bytes()
    assert whole.count(b"second" * 9) == 1
    assert whole.count(b"noted" * 9) == 1
    path.write_bytes(whole.replace(b"second" * 9, b"decond" * 9).replace(b"noted", b"moted"))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE logs SET head = x'00' WHERE name = 'b'")
        db.execute("DELETE FROM records WHERE log = 1 AND position = 3")
    db.close()
    store = SqliteStore(path)
    assert store.read("a", 1, 9) == [
        LogRecord(1, 5, b"first" * 9),
        Damaged(2, "its checksum is another"),
        Damaged(3, "it is not there"),
    ]
    assert "n" not in store.notes()
    assert set(store.damaged) == {"n", "b"}
    with pytest.raises(StoreError, match="'b': the log's head"):
        store.read("b", 1, 9)
    with pytest.raises(StoreError, match="'b'"):
        store.append("b", [b"new"], 6)
    store.close()


def test_a_full_disk_loses_nothing(path: Path, store: SqliteStore) -> None:
    """What waits would be lost, although it can be written once there is room."""
    store.append("a", [b"small"], 1)
    store.sync()
    store._db.execute("PRAGMA max_page_count = 20")
    big = [bytes(1_000) for _ in range(100)]
    store.append("a", big, 2)
    store.note("n", b"kept")
    with pytest.raises(StoreFullError, match="no room is left"):
        store.sync()
    store.append("a", [b"later"], 3)
    assert [len(each.data) for each in store.read("a", 1, 200) if isinstance(each, LogRecord)] == [
        *(5, *([1_000] * 100), 5)
    ]
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.sync()
    store.close()
    store.__init__(path)  # type: ignore[misc]
    assert store.extent("a") == (1, 103, 100_010)
    assert store.notes() == {"n": b"kept"}


def test_one_appends_and_reads_while_it_is_written(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop would wait for the disk; or a record be read twice, or not at all."""
    begun, go_on = Event(), Event()
    write = SqliteStore._write

    def held_up(self: SqliteStore, *of: object) -> None:
        begun.set()
        assert go_on.wait(30)
        write(self, *of)  # type: ignore[arg-type]

    store.append("a", [b"1", b"2"], 1)
    monkeypatch.setattr(SqliteStore, "_write", held_up)
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
    assert store.extent("a") == (2, 4, 2)


def test_what_waits_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is too slow would fill the memory."""
    monkeypatch.setattr(tables, "WAITING_BYTES_MAX", 10)
    store.append("a", [b"12345678"], 1)
    with pytest.raises(StoreFullError, match="waits"):
        store.append("a", [b"123"], 1)
    store.sync()
    assert store.append("a", [b"123"], 1) == 2


def test_a_backup_is_taken_while_it_is_in_use(path: Path, store: SqliteStore) -> None:
    """A copy of the file would lack what is in the journal beside it."""
    store.append("a", [b"1", b"2"], 1)
    store.sync()
    store.append("a", [b"3"], 1)
    store.backup(path.with_name("copy.db"))
    with pytest.raises(StoreError, match="exists"):
        store.backup(path.with_name("copy.db"))
    copy = SqliteStore(path.with_name("copy.db"))
    assert [each.position for each in copy.read("a", 1, 9)] == [1, 2]
    copy.close()


def test_what_is_no_store_is_refused(path: Path) -> None:
    """Somebody's file would be written over."""
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(path)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no store of version"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_every_name_is_that_of_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SQLite keeps in memory under this name would be taken for kept."""
    monkeypatch.chdir(path.parent)
    for _ in range(2):
        store = SqliteStore(":memory:")
        store.append("a", [b"x"], 1)
        store.close()
    assert path.with_name(":memory:").exists()
    with pytest.raises(StoreError, match="unable to open"):
        SqliteStore("")


def test_a_store_that_was_not_made_whole_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash while it is made would leave a file that is no store for ever."""
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "_SCHEMA", sqlite._SCHEMA.replace("TABLE notes", "TABLE logs"))
        with pytest.raises(StoreError, match="logs already exists"):
            SqliteStore(path)
    SqliteStore(path).close()


def test_trying_again_costs_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full for a day would fill the memory."""
    store = SqliteStore(path)
    store.append("a", [b"x"], 1)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_write", _fail)
        for _ in range(9):
            with pytest.raises(StoreError):
                store.sync()
    assert len(store._sealed) == 1
    store.close()


def _fail(*_: object) -> None:
    raise StoreError("full")
