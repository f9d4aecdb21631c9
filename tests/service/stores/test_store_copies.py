"""Copies of stores: whole, of one moment, and safe to start on."""

import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from contrada.delivery.store import RESTORED_GAP, Damaged, LogRecord
from contrada.errors import ServiceError, StoreError
from contrada.service.stores.store_copies import back_up, look_at, restore
from contrada.service.stores.store_location import open_sound, open_store
from contrada.service.stores.table_store import TableStore
from tests.places import Place, place, store
from tests.service.stores.test_sqlite_store import overwrite_page

__all__ = ["place", "store"]


def test_a_copy_is_taken_while_it_is_in_use_and_restored(
    place: Place, store: TableStore, tmp_path: Path
) -> None:
    """Confirmed notifications would be lost with a disk, or positions be used twice."""
    store.append("a", [b"1", b"2"], 1)
    store.acknowledge("a", [(1, 2)])
    store.note("kind/x", b"y")
    store.sync()
    store.append("a", [b"3"], 1)  # not on the disk yet
    shown = back_up(place.name, tmp_path / "a.copy")
    store.sync()
    (log,) = shown.logs
    assert (log.name, log.first, log.next, log.records, log.acknowledged) == ("a", 1, 3, 2, 1)
    assert shown.notes == {"kind": 1}
    assert shown.place == str(tmp_path / "a.copy")
    with pytest.raises(StoreError, match="not written over"):
        back_up(place.name, tmp_path / "a.copy")
    target = tmp_path / "b[1].db"
    assert restore(tmp_path / "a.copy", target).place == str(target)
    with pytest.raises(StoreError, match="not written over"):
        restore(tmp_path / "a.copy", target)
    assert list(tmp_path.glob(".*")) == [], "nothing is left behind"
    for each in (tmp_path / "a.copy", target):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, "it has what was published in it"
    with closing(open_store(target)) as again:
        assert again.append("a", [b"4"], 2) == 3 + RESTORED_GAP
        assert again.read("a", 1, 10) == [LogRecord(1, 1, b"1"), LogRecord(2, 1, b"2")]
        assert again.acknowledged("a") == [(1, 2), (3, 3 + RESTORED_GAP)]
        assert again.notes()["kind/x"] == b"y"
    assert look_at(target, deep=True).logs[0].records == 3
    assert look_at(target, deep=True).damaged == {}


def test_a_copy_is_restored_where_there_is_no_store(
    place: Place, store: TableStore, tmp_path: Path
) -> None:
    """A store could not move from a file to a database, or be written over."""
    store.append("a", [b"1", b"2"], 1)
    store.sync()
    back_up(place.name, tmp_path / "a.copy")
    with pytest.raises(StoreError, match=r"in use|not written over"):
        restore(tmp_path / "a.copy", place.name)
    empty = f"{place.name}_new"
    restore(tmp_path / "a.copy", empty)
    with closing(open_store(empty)) as again:
        assert [each.position for each in again.read("a", 1, 9)] == [1, 2]
        assert again.append("a", [b"3"], 2) == 3 + RESTORED_GAP
        again.sync()
    assert look_at(empty, deep=True).damaged == {}
    with pytest.raises(StoreError, match="not written over"):
        restore(tmp_path / "a.copy", empty)
    assert list(tmp_path.glob(".*")) == []


def test_what_is_damaged_is_found_and_not_copied(
    place: Place, store: TableStore, tmp_path: Path
) -> None:
    """A copy would be kept that is none, and the last good one be thrown away."""
    store.append("a", [b"%d" % number for number in range(9)], 1)
    store.note("x", b"y")
    store.sync()
    place.execute("UPDATE records SET data = ? WHERE position = 3", b"other")
    place.execute("DELETE FROM records WHERE position IN (5, 6)")
    place.execute("UPDATE notes SET value = ?", b"z")
    found = look_at(place.name, deep=True).damaged
    assert found == {
        "x": "the note has another checksum",
        "a, 3": "its checksum is another",
        "a, 5": "2 records are not there",
    }
    with pytest.raises(StoreError, match="damaged: 'x': the note has another checksum"):
        back_up(place.name, tmp_path / "a.copy")
    assert list(tmp_path.glob("*.copy")) == list(tmp_path.glob(".*")) == []


def test_the_records_of_a_damaged_page_are_named(tmp_path: Path) -> None:
    """A person would learn that a store is damaged, and not what is lost."""
    path = tmp_path / "a.db"
    with closing(open_store(path)) as store:
        for name in ("a", "b"):
            store.append(name, [f"{name}{n:04}".encode() + b"x" * 400 for n in range(1, 31)], 1)
    overwrite_page(path, b"a0020xxx")
    overwrite_page(path, b"b0001xxx")
    with closing(open_store(path)) as store:
        lost = {
            f"{name}, {each.position}"
            for name in ("a", "b")
            for each in store.read(name, 1, 30)
            if isinstance(each, Damaged)
        }
    found = dict(look_at(path, deep=True).damaged)
    assert found.pop(str(path))
    named = set[str]()
    for at, reason in found.items():
        count, _, rest = reason.partition(" ")
        assert rest == "records cannot be read"
        name, _, first = at.partition(", ")
        named |= {f"{name}, {int(first) + n}" for n in range(int(count))}
    assert named == lost
    assert {"a, 20", "b, 1"} <= lost
    with pytest.raises(StoreError, match=r"a\.db: database disk image is malformed"):
        back_up(path, tmp_path / "a.copy")


@pytest.mark.parametrize(("begin", "place"), [(b"kind/0150", "notes"), (b"log-0150", "log-0150")])
def test_heads_and_notes_of_a_damaged_page_are_named(
    begin: bytes, place: str, tmp_path: Path
) -> None:
    """A person would be sent to a check that names nothing, or keep a copy without some logs."""
    path = tmp_path / "a.db"
    with closing(open_store(path)) as store:
        for n in range(300):
            store.append(f"log-{n:04}", [], 1)
            store.note(f"kind/{n:04}", b"x" * 90)
    overwrite_page(path, begin)
    found = look_at(path, deep=True)
    assert {place, str(path)} <= found.damaged.keys()
    lost_logs = {f"log-{n:04}" for n in range(300)} - {each.name for each in found.logs}
    assert lost_logs == {each for each in found.damaged if each.startswith("log-")}
    assert len(lost_logs) < 200 < found.notes["kind"]
    refused = "damaged: .*; contrada store check shows all"
    with pytest.raises(StoreError, match=refused):
        back_up(path, tmp_path / "a.copy")
    with pytest.raises(StoreError, match=refused):
        open_sound(path, lambda store: store)


def test_the_journal_of_a_store_that_was_there_is_not_taken_over(tmp_path: Path) -> None:
    """New records of the old store would overwrite restored ones."""
    with closing(open_store(tmp_path / "other.db")) as other:
        other.append("a", [b"1"], 1)
        other.sync()
    back_up(tmp_path / "other.db", tmp_path / "a.copy")
    old = tmp_path / "old.db"
    with closing(open_store(old)) as crashed:
        crashed.append("b", [b"2"], 1)
        crashed.sync()
        journal = old.with_name("old.db-wal").read_bytes()
    target = tmp_path / "new.db"
    left = tmp_path / "new.db-wal"
    left.write_bytes(journal)
    with pytest.raises(StoreError, match=r"new\.db-wal: a journal"):
        restore(tmp_path / "a.copy", target)
    left.unlink()
    restore(tmp_path / "a.copy", target)
    assert [each.name for each in look_at(target, deep=True).logs] == ["a"]


def test_a_store_is_restored_whole_or_not_at_all_on_a_full_disk(tmp_path: Path) -> None:
    """SQLite closes a file that has no room for its last changes, and the store is malformed."""
    copy = tmp_path / "a.copy"
    with closing(open_store(tmp_path / "a.db")) as store:
        store.append("large", [b"record" * 500_000], 1)
        for number in range(300):
            store.append(f"small {number}", [b"record"], 1)
    back_up(tmp_path / "a.db", copy)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (copy.stat().st_size, before[1]))
    try:
        with pytest.raises(StoreError, match=r"b\.db: its last changes could not be written"):
            restore(copy, tmp_path / "b.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [each for each in tmp_path.iterdir() if "b.db" in each.name]
    restore(copy, tmp_path / "b.db")
    assert look_at(tmp_path / "b.db", deep=True).damaged == {}


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A foreign file would be taken for a backup, or a typing error create a new store."""
    for absent in ("absent.db", "folder/absent.db"):
        with pytest.raises((StoreError, ServiceError), match="there is no"):
            back_up(str(tmp_path / absent), tmp_path / "x.copy")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(StoreError, match="no store of version"):
        restore(other, tmp_path / "new.db")
    other.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        look_at(other, deep=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.db"]
