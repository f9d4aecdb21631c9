"""Constructors of all stores, and a state machine that compares one with plain lists."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.store import LogRecord, Store, StoredRecord
from contrada.errors import StoreError

LOGS = ("a", "b")


def flip(store: MemoryStore, log: str, position: int, at: int) -> None:
    """Changes a byte of a record, as a disk may."""
    for disk in (store._stable, store._current):
        _, time_us, data, summed = disk.logs[log].records[position]
        changed = bytes([*data[:at], data[at] ^ 0x55, *data[at + 1 :]])
        disk.logs[log].records[position] = position, time_us, changed, summed


def tear(store: MemoryStore, log: str, position: int, length: int) -> None:
    """Truncates a record to so many bytes, as in a crash during its write."""
    for disk in (store._stable, store._current):
        _, time_us, data, summed = disk.logs[log].records[position]
        disk.logs[log].records[position] = position, time_us, data[:length], summed


def lose(store: MemoryStore, log: str, position: int) -> None:
    """Removes a record."""
    for disk in (store._stable, store._current):
        del disk.logs[log].records[position]


class AwayStore(MemoryStore):
    """A store with unreadable records while it is away; appended ones wait."""

    is_away = False

    def read(self, log: str, first: int, count: int) -> list[StoredRecord]:
        """Reads, or raises StoreError."""
        self._be_there()
        return super().read(log, first, count)

    def truncate(self, log: str, before: int) -> None:
        """Truncates, or raises StoreError."""
        self._be_there()
        super().truncate(log, before)

    def _be_there(self) -> None:
        if self.is_away:
            raise StoreError("the connection is broken")


class StoreMachine(RuleBasedStateMachine):
    """A store contains all appended records that were not dropped, synced or not."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, dict[int, tuple[int, bytes]]] = {}
        self.next: dict[str, int] = {}
        self.done: dict[str, set[int]] = {}
        self.noted: dict[str, bytes] = {}

    @rule(
        log=st.sampled_from(LOGS),
        records=st.lists(st.binary(max_size=20), max_size=4),
        time=st.integers(0, 30),
    )
    def append(self, log: str, records: list[bytes], time: int) -> None:
        """Appends to a log."""
        held = self.logs.setdefault(log, {})
        self.done.setdefault(log, set())
        first = self.next.setdefault(log, 1)
        self.times = getattr(self, "times", {})
        self.times[log] = time = max(time, self.times.get(log, 0))
        assert self.store.append(log, records, time) == first
        for position, data in enumerate(records, first):
            held[position] = time, data
        self.next[log] = first + len(records)

    @rule(log=st.sampled_from(LOGS), first=st.integers(1, 30), count=st.integers(0, 6))
    def acknowledge(self, log: str, first: int, count: int) -> None:
        """Acknowledges some."""
        self.store.acknowledge(log, [(first, first + count)])
        if log in self.logs:
            wanted = range(first, min(first + count, self.next[log]))
            self.done[log] |= {at for at in wanted if at >= self.first(log)}

    @rule(log=st.sampled_from(LOGS), count=st.integers(1, 5))
    def leave_out(self, log: str, count: int) -> None:
        """Leaves out some positions."""
        self.store.leave_out(log, count)
        if log in self.logs:
            first = self.next[log]
            self.next[log] = first + count
            self.done[log] |= {*range(first, first + count)}

    @rule(log=st.sampled_from(LOGS), before=st.integers(1, 30))
    def truncate(self, log: str, before: int) -> None:
        """Drops the records before a position."""
        self.store.truncate(log, before)
        if log in self.logs:
            before = min(before, self.next[log])
            self.logs[log] = {at: of for at, of in self.logs[log].items() if at >= before}
            self.lowest = getattr(self, "lowest", {})
            self.lowest[log] = max(before, self.first(log))
            self.done[log] = {at for at in self.done[log] if at >= before}

    @rule(log=st.sampled_from(LOGS))
    def drop(self, log: str) -> None:
        """Drops a log."""
        self.store.drop(log)
        for each in (self.logs, self.next, self.done):
            each.pop(log, None)
        for name in ("times", "lowest"):
            getattr(self, name, {}).pop(log, None)

    @rule(name=st.sampled_from(LOGS), value=st.none() | st.binary(max_size=5))
    def note(self, name: str, value: bytes | None) -> None:
        """Sets a note."""
        self.store.note(name, value)
        if value is None:
            self.noted.pop(name, None)
        else:
            self.noted[name] = value

    @rule()
    def sync(self) -> None:
        """Brings all to stable storage."""
        self.store.sync()

    @rule(log=st.sampled_from(LOGS), time=st.integers(0, 31))
    def position_at(self, log: str, time: int) -> None:
        """Looks for a time."""
        later = [at for at, (each, _) in self.logs.get(log, {}).items() if each >= time]
        expected = min(later, default=self.next.get(log, 1))
        assert self.store.position_at(log, time) == expected

    @rule(log=st.sampled_from(LOGS), first=st.integers(0, 30), count=st.integers(0, 40))
    def read(self, log: str, first: int, count: int) -> None:
        """Reads a part."""
        self.check_read(log, first, count)

    def first(self, log: str) -> int:
        """The first position that is kept."""
        return int(getattr(self, "lowest", {}).get(log, 1))

    def check_read(self, log: str, first: int, count: int) -> None:
        """Asserts that a part of a log reads as it should."""
        first = max(first, self.first(log))
        held = self.logs.get(log, {})
        end = min(first + count, self.next.get(log, 1))
        found = (at for at in range(first, end) if at in held)
        expected: list[Any] = [LogRecord(at, *held[at]) for at in found]
        assert self.store.read(log, first, count) == expected

    @invariant()
    def holds_all(self) -> None:
        """The state without the records agrees, too."""
        assert set(self.store.logs()) == set(self.logs)
        assert self.store.extent("c") is None
        for log, held in self.logs.items():
            size = sum(len(data) for _, data in held.values())
            extent = self.store.extent(log)
            assert extent is not None
            assert extent[:3] == (self.first(log), self.next[log], size)
            assert extent.records == len(held)
            for at in range(self.first(log), self.next[log]):
                following = [each for each in held if each >= at]
                assert extent.first_kept(at) == min(following, default=self.next[log])
            done = [at for a, b in self.store.acknowledged(log) for at in range(a, b)]
            assert done == sorted(self.done[log])
        assert dict(self.store.notes()) == self.noted
