"""`MemoryStore`: a store in memory with simulated failures.

As a disk, it may lose unsynced changes, and be full. Simulated worlds use it, and brokers whose
data need not survive.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final, TypeAlias, TypeVar

from contrada.delivery import store as stored
from contrada.errors import StoreFullError

T = TypeVar("T")

MEMORY_BYTES_MAX: Final = 2**30
"""Bytes of the records of a store in memory. Beyond it: StoreFullError."""

_DiskStep: TypeAlias = "Callable[[_Disk], object]"


class _MemoryLog:
    """A log's head, and its records by position, each with its checksum."""

    def __init__(self, name: str) -> None:
        self.head = stored.LogHead(name)
        self.records: dict[int, stored.StoredRow] = {}
        self.before: dict[int, int] = {}  # bytes of all records before each


class _Disk:
    """Logs and notes. Each method is one atomic step."""

    def __init__(self) -> None:
        self.logs: dict[str, _MemoryLog] = {}
        self.notes: dict[str, bytes] = {}
        self.held_bytes = 0

    def append(self, name: str, records: Sequence[bytes], time_us: int) -> int:
        log = self.logs.get(name) or self.logs.setdefault(name, _MemoryLog(name))
        first, total = log.head.next, log.head.total
        for row, before in log.head.append(records, time_us):
            log.records[row[0]] = row
            log.before[row[0]] = before
        self.held_bytes += log.head.total - total
        return first

    def truncate(self, name: str, before: int) -> None:
        log = self.logs[name]
        extent = log.head.extent
        truncated = log.before.get(extent.first_kept(before), log.head.total)
        # By position: an iteration would first pass over the places of all deleted entries.
        at = extent.first_kept(extent.first)
        while at < before:
            log.records.pop(at, None)
            del log.before[at]
            at = extent.first_kept(at + 1)
        self.held_bytes -= truncated - log.head.truncated
        log.head.truncate(before, truncated)

    def drop(self, name: str) -> None:
        log = self.logs.pop(name, None)
        self.held_bytes -= 0 if log is None else log.head.extent.held_bytes

    def note(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.notes.pop(name, None)
        else:
            self.notes[name] = value


class MemoryStore:
    """See `Store`, also for the methods. `is_full` and `crash` are the failures."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX, *, survives: bool = True) -> None:
        """`survives`: synced changes survive `crash`, as on a disk."""
        self.is_full = False
        self._bytes_max, self._survives = bytes_max, survives
        self._stable = _Disk()
        self._current = _Disk()
        self._group: list[_DiskStep] = []
        self._sealed: deque[tuple[int, list[_DiskStep]]] = deque()
        self._seals = 0

    def append(self, log: str, records: Sequence[bytes], time_us: int) -> int:
        stored.check_log_name(log)
        stored.check_records(records)
        if not self.has_room(sum(map(len, records))):
            raise StoreFullError("the store in memory is full")
        records = tuple(records)
        return self._apply(lambda disk: disk.append(log, records, time_us))

    def read(self, log: str, first: int, count: int) -> list[stored.StoredRecord]:
        of = self._current.logs.get(log)
        if of is None:
            return []
        first = max(first, of.head.first)
        end = min(first + count, of.head.next)
        if of.head.extent.held_bytes > stored.READ_BYTES_MAX:
            befores = ((at, of.before[at]) for at in range(first, end) if at in of.before)
            end = stored.end_of_read(befores, end)
        found = (of.records[at] for at in range(first, end) if at in of.records)
        return stored.entries_of(of.head, first, end, found)

    def acknowledge(self, log: str, intervals: Iterable[tuple[int, int]]) -> None:
        if log in self._current.logs:
            listed = tuple(intervals)
            self._apply(lambda disk: disk.logs[log].head.acknowledge(listed))

    def acknowledged(self, log: str) -> list[tuple[int, int]]:
        of = self._current.logs.get(log)
        return [] if of is None else list(of.head.acknowledged)

    def leave_out(self, log: str, count: int) -> None:
        if log in self._current.logs:
            self._apply(lambda disk: disk.logs[log].head.leave_out(count))

    def position_at(self, log: str, time_us: int) -> int:
        of = self._current.logs.get(log)
        if of is None:
            return 1
        later = (at for at, record in of.records.items() if record[1] >= time_us)
        return min(later, default=of.head.next)

    def truncate(self, log: str, before: int) -> None:
        of = self._current.logs.get(log)
        if of is not None and before > of.head.first:
            before = min(before, of.head.next)
            self._apply(lambda disk: disk.truncate(log, before))

    def drop(self, log: str) -> None:
        self._apply(lambda disk: disk.drop(log))

    def extent(self, log: str) -> stored.Extent | None:
        of = self._current.logs.get(log)
        return None if of is None else of.head.extent

    def logs(self) -> list[str]:
        return list(self._current.logs)

    def note(self, name: str, value: bytes | None) -> None:
        stored.check_note_name(name)
        self._apply(lambda disk: disk.note(name, value))

    def notes(self) -> Mapping[str, bytes]:
        return self._current.notes

    def has_room(self, size: int) -> bool:
        return not self.is_full and self._current.held_bytes + size <= self._bytes_max

    def seal(self) -> Callable[[], None]:
        """See `Store.seal`. Groups lost in a crash are not written after it."""
        self._seals += 1
        number = self._seals
        self._sealed.append((number, self._group))
        self._group = []

        def bring() -> None:
            while self._sealed and self._sealed[0][0] <= number:
                for step in self._sealed.popleft()[1]:
                    step(self._stable)

        return bring

    def sync(self) -> None:
        self.seal()()

    def _apply(self, step: Callable[[_Disk], T]) -> T:
        result = step(self._current)
        if self._survives:
            self._group.append(step)
        return result

    # --- failures -----------------------------------------------------------------------------

    def open_disk_of(self, other: "MemoryStore") -> stored.StoreChanges:
        """Opens the disk of another store, with its synced changes, as another process does.

        Again, to follow it: returns what has changed since.
        """
        before = self._current
        self._stable = other._stable
        self._current = now = deepcopy(self._stable)
        names = {*before.logs, *now.logs}
        logs = [each for each in names if _state(before, each) != _state(now, each)]
        notes = {*before.notes.items()} ^ {*now.notes.items()}
        return stored.StoreChanges(sorted(logs), sorted({name for name, _ in notes}))

    @property
    def unsynced(self) -> int:
        """The groups that are not on the disk, including the open one."""
        return len(self._sealed) + bool(self._group)

    def crash(self, survived: int = 0) -> None:
        """Restores the synced state, and the first few groups since."""
        for group in [*(group for _, group in self._sealed), self._group][:survived]:
            for step in group:
                step(self._stable)
        self._sealed.clear()
        self._group = []
        self._current = deepcopy(self._stable)


def _state(disk: _Disk, name: str) -> tuple[object, ...] | None:
    """What the head of a log holds; None without the log."""
    if (log := disk.logs.get(name)) is None:
        return None
    head = log.head
    return head.extent, head.time_us, head.total, head.truncated, list(head.acknowledged)
