"""The store in one SQLite file, and its permissions; `test_store_location` tests all stores."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contrada.delivery.store import Damaged, LogRecord
from contrada.errors import StoreError
from contrada.service.stores import sqlite_store
from contrada.service.stores.sqlite_store import SqliteStore

PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A process without a mask for new files."""
    before = os.umask(0o022)
    yield tmp_path / "store.db"
    os.umask(before)


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def test_only_its_owner_reads_a_store(path: Path, store: SqliteStore) -> None:
    """Every user of the machine could read publications, under the usual umask."""
    store.append("a", [b"secret"], 1)
    store.sync()
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert {f"store.db{end}" for end in ("", "-wal", "-shm", ".lock")} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_store_that_was_there_keeps_its_mode(path: Path) -> None:
    """A user with permission to read it, for a backup, would be locked out."""
    path.touch(0o640)
    path.chmod(0o640)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_leads_to_the_same_store(path: Path, store: SqliteStore) -> None:
    """Two brokers would give out the same positions."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    with pytest.raises(StoreError, match="it is in use"):
        SqliteStore(link)


def test_records_that_are_dropped_in_their_group_are_not_written(
    path: Path, store: SqliteStore
) -> None:
    """Each certified notification would be written twice; or records beside it would be lost."""
    statements: list[str] = []
    store._db.set_trace_callback(statements.append)
    for group in range(1, 3):
        first = store.append("spool", [b"in flight"] * 70, group)
        store.append("log", [b"kept"] * 70, group)
        store.truncate("spool", first + 69)
        assert [each.position for each in store.read("spool", 1, 9)] == [first + 69]
        store.sync()
        assert [each.position for each in store.read("spool", 1, 9)] == [first + 69]
        assert len(store.read("log", 1, 1_000)) == 70 * group
    assert sum(each.lower().count(b"in flight".hex()) for each in statements) == 2
    store.close()
    with closing(SqliteStore(path)) as again:
        assert again.read("spool", 1, 9) == [LogRecord(140, 2, b"in flight")]
        assert len(again.read("log", 1, 1_000)) == 140


def test_a_read_ends_after_its_bytes(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many large records would fill the memory, and hold the loop of a server."""
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 7)
    records = [b"1234", b"1234", b"", b"123456789", b"1", b"12", b"1234", b"1234"]
    for number, each in enumerate(records):
        store.append("a", [each], 1)
        if number == 4:
            store.sync()  # The others are not written yet.
    at, parts = 1, []
    while found := store.read("a", at, 99):
        assert not [each for each in found if isinstance(each, Damaged)]
        parts.append([each.position for each in found])
        at = found[-1].position + 1
    assert parts == [[1, 2], [3, 4], [5, 6, 7], [8]]


def test_a_read_looks_at_few_more_records_than_it_returns(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the reads of a reader with much credit would look at the whole log."""
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 3_000)
    store.append("a", [b"12345"] * 5_000, 1)
    store.sync()
    seen: list[int] = []
    asked = store._asked

    def counted(*arguments: Any) -> list[Any]:
        rows = asked(*arguments)
        seen.append(len(rows))
        return rows

    monkeypatch.setattr(store, "_asked", counted)
    assert len(store.read("a", 1, 5_000)) == 600
    assert sum(seen) < 3 * 600
    assert len(store.read("a", 4_801, 5_000)) == 200


def test_changed_bytes_are_found(path: Path) -> None:
    """A damaged record would be delivered."""
    store = SqliteStore(path)
    store.append("a", [b"first" * 9, b"second" * 9], 5)
    store.note("n", b"noted" * 9)
    store.close()
    whole = path.read_bytes()
    assert whole.count(b"second" * 9) == 1
    assert whole.count(b"noted" * 9) == 1
    path.write_bytes(whole.replace(b"second" * 9, b"decond" * 9).replace(b"noted", b"moted"))
    store = SqliteStore(path)
    assert store.read("a", 1, 9) == [
        LogRecord(1, 5, b"first" * 9),
        Damaged(2, "its checksum is another"),
    ]
    assert set(store.damaged) == {"n"}
    store.close()


def test_a_name_that_is_no_text_is_found(path: Path) -> None:
    """A changed byte would end the start, and every check, with a fault of a library."""
    with closing(SqliteStore(path)) as store:
        store.append("a", [b"x"], 5)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE logs SET name = CAST(x'FF61' AS TEXT)")
    with closing(SqliteStore(path)) as store:
        assert store.damaged == {"\ufffda": "the log's head has another checksum"}


def test_a_damaged_log_keeps_its_mark(path: Path) -> None:
    """A sound note of the same name would hide that the log cannot be read."""
    with closing(SqliteStore(path)) as store:
        store.append("a/1", [b"x"], 5)
        store.note("a/1", b"sound")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE logs SET sum = sum + 1")
    with closing(SqliteStore(path)) as store:
        assert store.damaged == {"a/1": "the log's head has another checksum"}


def test_an_emptied_file_with_changes_beside_it_is_refused(path: Path, store: SqliteStore) -> None:
    """A broker would begin a new store, and SQLite delete the last changes of the old one."""
    store.append("a", [b"x"], 5)
    store.sync()
    killed = path.with_name("killed.db")
    changes = path.with_name("killed.db-wal")
    changes.write_bytes(path.with_name("store.db-wal").read_bytes())
    killed.touch()
    with pytest.raises(StoreError, match=r"killed\.db: it is empty, but killed\.db-wal has "):
        SqliteStore(killed)
    assert changes.stat().st_size > 0
    changes.unlink()
    SqliteStore(killed).close()


def test_free_pages_return_to_the_disk_in_small_steps(path: Path) -> None:
    """A store would keep the size of its longest backlog for ever."""
    with closing(SqliteStore(path)) as store:
        for number in range(1, 201):
            store.append("a", [bytes(50_000)] * 4, number)
            store.sync()
        assert store.space is not None
        full = store.space.used_bytes
        assert full > 40_000_000
        store.acknowledge("a", [(1, 801)])
        store.truncate("a", 801)
        store.sync()
        before = store.space.used_bytes + store.space.free_bytes
        assert before > full - (sqlite_store.RETURNED_PAGES + 1) * 4096
        while before > sqlite_store.FREE_PAGES_MAX * 4096 + store.space.used_bytes:
            store.note("n", b"%d" % before)
            store.sync()
            left = store.space.used_bytes + store.space.free_bytes
            assert 0 < before - left <= (sqlite_store.RETURNED_PAGES + 1) * 4096
            before = left
        assert store.space.used_bytes < 1_000_000
    assert path.stat().st_size == before
    assert before < full / 8


def overwrite_page(path: Path, begin: bytes) -> None:
    """Overwrites the page of a closed store with these bytes, as a failing disk may."""
    whole = path.read_bytes()
    first = whole.index(begin) // PAGE_BYTES * PAGE_BYTES
    path.write_bytes(whole[:first] + b"\xa5" * PAGE_BYTES + whole[first + PAGE_BYTES :])


def test_a_damaged_page_takes_its_records_alone(path: Path) -> None:
    """A log would end there, silently; or the store write nothing more, of any log."""
    store = SqliteStore(path)
    store.append("a", [b"%04d" % n + b"x" * 400 for n in range(1, 41)], 5)
    store.append("b", [b"y" * 400] * 10, 5)
    store.close()
    overwrite_page(path, b"0020xxx")
    store = SqliteStore(path)
    entries = store.read("a", 1, 99)
    assert [each.position for each in entries] == [*range(1, 41)]
    lost = [each for each in entries if isinstance(each, Damaged)]
    assert 0 < len(lost) < 20
    assert 20 in [each.position for each in lost]
    assert all("malformed" in each.reason for each in lost)
    assert store.position_at("a", 6) == 41
    store.append("a", [b"new"], 6)
    store.acknowledge("a", [(1, 41)])
    store.truncate("a", lost[0].position + 1)
    store.truncate("a", 41)
    store.sync()
    extent = store.extent("a")
    assert extent is not None
    assert (extent.first, extent.held_bytes) == (41, 3)
    store.append("b", [b"more"], 7)
    store.drop("a")
    store.close()
    places = {each.partition(",")[0] for each in store.faults}
    assert {"a", "acknowledged records that cannot be deleted"} <= places
    assert "a write" not in places, "all was written"
    again = SqliteStore(path)
    assert [each.position for each in again.read("b", 1, 99)] == [*range(1, 12)]
    assert again.logs() == ["@damaged-1", "b"]
    again.close()


def test_a_time_is_sought_in_a_log_without_a_readable_record(path: Path) -> None:
    """A reader from a time would end with a fault of this program."""
    store = SqliteStore(path)
    store.append("a", [b"x"] * 2_000, 5)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        asked = "SELECT rootpage FROM sqlite_schema WHERE name = 'records'"
        (page,) = db.execute(asked).fetchone()
    overwrite_page(path, path.read_bytes()[(page - 1) * PAGE_BYTES : page * PAGE_BYTES])
    store = SqliteStore(path)
    assert store.position_at("a", 5) == 1
    assert all(isinstance(each, Damaged) for each in store.read("a", 1, 9))
    store.close()


def test_all_pages_are_checked_when_a_file_is_opened(path: Path) -> None:
    """A damaged store would be noticed when its records are read, perhaps months later."""
    store = SqliteStore(path)
    store.append("a", [b"%04d" % n + b"x" * 400 for n in range(1, 41)], 5)
    store.close()
    assert store.faults == {}
    overwrite_page(path, b"0020xxx")
    store = SqliteStore(path)
    store._checking.join()
    assert [*store.faults] == [str(path)]
    store.close()


def test_what_is_no_store_is_refused(path: Path) -> None:
    """A foreign file would be overwritten."""
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        SqliteStore(path)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no store of version 1: found another database"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_every_name_is_that_of_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database in memory would be taken for a stable store."""
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
        patch.setattr(
            sqlite_store, "_SCHEMA", sqlite_store._SCHEMA.replace("TABLE notes", "TABLE logs")
        )
        with pytest.raises(StoreError, match="logs already exists"):
            SqliteStore(path)
    SqliteStore(path).close()


def test_positions_that_are_left_out_among_records_that_wait_are_no_records(tmp_path: Path) -> None:
    """A record would be read, found or given up under the position of another."""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.append("a", [b"one"], 1)
        store.leave_out("a", 2)
        store.append("a", [b"four"], 4)
        assert store.read("a", 2, 2) == []
        assert [each.position for each in store.read("a", 1, 9)] == [1, 4]
        assert store.position_at("a", 2) == 4
        store.truncate("a", 3)
        extent = store.extent("a")
        assert extent is not None
        assert extent[:3] == (3, 5, len(b"four"))
