"""Copies of stores: `back_up` of a store in use, `look_at` for inspection, and `restore`.

A copy is a store in one SQLite file, of an SQLite or a PostgreSQL store, so a store can move from
one to the other. It shows the store at one moment, and so does an inspection.

Invariant: rows are copied unchanged, with their checksums.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Final

from contrada.delivery.store import Damaged, StoredRow, check_sum, entries_of, renew
from contrada.errors import StoreDamagedError, StoreError
from contrada.service.stores.sqlite_store import SqliteStore, read_sqlite, write_sqlite
from contrada.service.stores.store_location import check_sound, check_store, is_url
from contrada.service.stores.table_store import StoreSpace, TableLog, Tables, readable_rows

_ROWS_AT_ONCE: Final = 1_000  # around a damaged page


@dataclass(frozen=True, slots=True)
class LogShown:
    """A log of a store: its positions, its records and bytes, and how many are acknowledged.

    `time_us` is that of its last record.
    """

    name: str
    first: int
    next: int
    records: int
    held_bytes: int
    acknowledged: int
    time_us: int


@dataclass(frozen=True, slots=True)
class StoreShown:
    """The content of a store: logs, notes counted by kind, its bytes, and damage by place."""

    place: str
    logs: list[LogShown]
    notes: Mapping[str, int]
    space: StoreSpace
    damaged: Mapping[str, str] = field(default_factory=dict)


def back_up(place: str | Path, file: Path) -> StoreShown:
    """Copies the stable content of a store to a file; returns the content of the copy.

    A server may use the store meanwhile. The file appears once it is complete. Raises StoreError,
    also if the file exists, there is no store at the place, or it is damaged.
    """
    _check_absent(file)
    draft = _beside(file)
    try:
        with _tables(place) as tables:
            check_sound(tables.place, tables.unreadable)
            write_sqlite(draft, tables)
        shown = replace(look_at(draft, deep=True), place=str(file))
        check_sound(shown.place, shown.damaged)
        _finish(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    return shown


def restore(file: Path, place: str | Path) -> StoreShown:
    """Creates a store from a copy, and returns its content.

    Its numbers begin far behind those of the copy: see `delivery.store.renew`. After the copy was
    made, no broker may have run on the original store again. Raises StoreError for an existing
    store, or an invalid or damaged file.
    """
    check_store(place)
    check_sound(str(file), look_at(file, deep=True).damaged)
    target = None if is_url(place) else Path(place)
    if target is not None:
        _check_absent(target)
    draft = _beside(target if target is not None else file)
    try:
        with _tables(file) as tables:
            write_sqlite(draft, tables)
        store = SqliteStore(draft)
        try:
            renew(store)
        finally:
            store.close()
        shown = look_at(draft, deep=False)
        if target is not None:
            _finish(draft, target)
            where = str(target)
        else:
            from contrada.service.stores.postgres_store import write_postgres

            with _tables(draft) as tables:
                where = write_postgres(str(place), tables)
    finally:
        for each in draft.parent.glob(f"{escape(draft.name)}*"):
            each.unlink(missing_ok=True)
    return replace(shown, place=where)


def look_at(place: str | Path, *, deep: bool) -> StoreShown:
    """The content of a store, which may be in use; `deep` reads each record, too.

    Cost: its heads and notes, or all of it. Raises StoreError.
    """
    with _tables(place) as tables:
        damaged = dict(tables.unreadable)
        shown_place, space = tables.place, tables.space
        heads: dict[int, TableLog] = {}
        for number, name, head, summed in tables.logs:
            if check_sum(name, head, summed):
                heads[number] = TableLog(name, number)
                heads[number].unpack(head)
            else:
                damaged[str(name)] = "the log's head has another checksum"
        kinds: Counter[str] = Counter()
        for name, value, summed in tables.notes:
            kinds[str(name).partition("/")[0]] += 1
            if not check_sum(name, value, summed):
                damaged[str(name)] = "the note has another checksum"
        if deep:
            damaged |= tables.faults()
            for number, of in heads.items():
                for fault in _faults(of, partial(tables.records, number)):
                    damaged[f"{of.name}, {fault.position}"] = fault.reason
    logs = []
    for of in sorted(heads.values(), key=lambda of: of.name):
        done = sum(end - max(first, of.first) for first, end in of.acknowledged)
        records, size = of.extent.records, of.extent.held_bytes
        done -= of.next - of.first - records
        logs.append(LogShown(of.name, of.first, of.next, records, size, done, of.time_us))
    return StoreShown(shown_place, logs, dict(kinds), space, damaged)


def _faults(of: TableLog, asked: Callable[[int, int], Iterator[StoredRow]]) -> Iterator[Damaged]:
    """The faults of the records of a log, in order; of a gap the first one."""
    due, unreadable = of.first, dict[int, str]()
    for row in chain(_rows(of, asked, unreadable), [None]):
        due, before = of.extent.first_kept(due), of.next if row is None else row[0]
        if before > due:
            fault = "cannot be read" if due in unreadable else "are not there"
            yield Damaged(due, f"{before - due} records {fault}")
        if row is not None:
            entries = entries_of(of, before, before + 1, [row])
            yield from (each for each in entries if isinstance(each, Damaged))
            due = before + 1


def _rows(
    of: TableLog, asked: Callable[[int, int], Iterator[StoredRow]], unreadable: dict[int, str]
) -> Iterator[StoredRow]:
    """The rows of a log, one after the other; around a damaged page as `readable_rows`."""
    first = of.first
    while first < of.next:
        try:
            for row in asked(first, of.next):
                yield row
                first = row[0] + 1
        except StoreDamagedError:
            first = min(of.extent.first_kept(first), of.next - 1)
            end = min(first + _ROWS_AT_ONCE, of.next)
            yield from readable_rows(asked, first, end, unreadable)
            first = end
        else:
            return


@contextmanager
def _tables(place: str | Path) -> Iterator[Tables]:
    check_store(place)
    with ExitStack() as stack:
        if is_url(place):
            from contrada.service.stores.postgres_store import read_postgres

            yield stack.enter_context(read_postgres(str(place)))
        else:
            yield stack.enter_context(read_sqlite(Path(place)))


def _check_absent(path: Path) -> None:
    if path.exists():
        raise StoreError(f"{path}: there is a file already; it is not written over")
    for journal in (path.with_name(path.name + end) for end in ("-wal", "-journal")):
        if journal.exists():  # SQLite would take it for that of the new file, and write it there.
            reason = "a journal of a file that was here is left; move it away, too"
            raise StoreError(f"{journal}: {reason}")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}")


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _finish(draft: Path, file: Path) -> None:
    """Gives a file its name once it is on the disk; raises StoreError if the name exists."""
    if draft.with_name(f"{draft.name}-wal").exists():  # SQLite closes a file without an error.
        raise StoreError(f"{file}: its last changes could not be written; the disk may be full")
    try:
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        os.link(draft, file)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}") from error
