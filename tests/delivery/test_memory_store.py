"""`MemoryStore`, and its simulated failures."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.store import APART_MAX, Damaged, Extent, LogRecord
from contrada.errors import InvalidValueError, LimitError, StoreFullError
from tests.delivery.stores import StoreMachine, flip, lose, tear


class MemoryStoreMachine(StoreMachine):
    """The store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()


TestMemoryStore = MemoryStoreMachine.TestCase


@given(st.integers(0, 6))
def test_a_crash_takes_an_end(survived: int) -> None:
    """A synced change would be lost, or a later change survive an earlier one."""
    store = MemoryStore()
    store.append("a", [b"0"], 1)
    store.sync()
    for number in range(1, 6):
        store.append("a", [b"%d" % number], 1)
        store.seal()
    assert store.unsynced == 5
    store.crash(survived)
    left = [b"%d" % number for number in range(1 + min(survived, 5))]
    assert store.read("a", 1, 9) == [LogRecord(at, 1, data) for at, data in enumerate(left, 1)]
    store.crash()
    assert len(store.read("a", 1, 9)) == len(left), "what survived is on stable storage"


@pytest.mark.parametrize("survived", [0, 1])
def test_a_group_survives_whole_or_not_at_all(survived: int) -> None:
    """A notification would be in the log, but not counted as taken, or vice versa."""
    store = MemoryStore()
    store.append("a", [b"one"], 1)
    store.note("taken", b"1")
    store.crash(survived)
    assert (len(store.read("a", 1, 9)), len(store.notes())) == (survived, survived)


def test_a_read_ends_after_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large records would fill the memory, and hold the loop of a server."""
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 5)
    store = MemoryStore()
    store.append("a", [b"one", b"two", b"three", b"4"], 1)
    store.acknowledge("a", [(1, 2)])
    store.truncate("a", 2)
    parts = [[each.position for each in store.read("a", first, 9)] for first in (0, 3, 4, 5)]
    assert parts == [[2, 3], [3], [4], []]
    assert [each.position for each in store.read("a", 2, 1)] == [2]


def test_the_last_records_are_dropped_as_fast_as_the_first() -> None:
    """Each acknowledgement passed over the places of all records that were dropped before."""
    store, count = MemoryStore(survives=False), 60_000
    store.append("a", [b"record"] * count, 1)

    def seconds(first: int) -> float:
        begun_s = time.process_time()
        for before in range(first, first + 3_000):
            store.truncate("a", before + 1)
        return time.process_time() - begun_s

    early_s = seconds(1)
    store.truncate("a", count - 3_000)
    assert seconds(count - 3_000) < 4 * early_s
    assert store.extent("a") == Extent(count, count + 1, 6)


def test_writes_after_a_crash_are_lost() -> None:
    """A write lost in the crash would reappear."""
    store = MemoryStore()
    store.append("a", [b"one"], 1)
    late = store.seal()
    store.crash()
    late()
    store.crash()
    assert store.read("a", 1, 9) == []


def test_a_volatile_store_holds_no_history() -> None:
    """The steps of a store without syncs would fill the memory."""
    store = MemoryStore(survives=False)
    store.append("a", [b"one"], 1)
    store.truncate("a", 2)
    assert store.unsynced == 0
    assert store.extent("a") == Extent(2, 2, 0)


def test_damaged_records_are_reported_and_not_served() -> None:
    """A changed record would be delivered."""
    store = MemoryStore()
    store.append("a", [b"one", b"two", b"three", b"four"], 7)
    store.sync()
    flip(store, "a", 1, 0)
    tear(store, "a", 2, 1)
    lose(store, "a", 4)
    assert store.read("a", 1, 9) == [
        Damaged(1, "its checksum is another"),
        Damaged(2, "its checksum is another"),
        LogRecord(3, 7, b"three"),
        Damaged(4, "it is not there"),
    ]
    store.truncate("a", 5)
    assert store.extent("a") == Extent(5, 5, 0)
    assert store.append("a", [b"five"], 8) == 5


def test_a_full_store_takes_nothing() -> None:
    """Half of the records would be appended."""
    store = MemoryStore(bytes_max=10)
    store.append("a", [b"12345"], 1)
    with pytest.raises(StoreFullError):
        store.append("a", [b"123", b"456"], 1)
    assert store.extent("a") == Extent(1, 2, 5)
    store.truncate("a", 2)
    store.append("a", [b"123", b"456"], 1)
    store.truncate("a", 3)
    with pytest.raises(StoreFullError):
        store.append("a", [b"12345678"], 1)
    store.append("a", [b"1234567"], 1)
    store.is_full = True
    with pytest.raises(StoreFullError):
        store.append("a", [b""], 1)


def test_limits_are_named() -> None:
    """A log with many gaps would fill the memory; an odd name be no key of a database."""
    store = MemoryStore()
    with pytest.raises(InvalidValueError, match="printable"):
        store.append("a\n", [b""], 1)
    store.append("a", [b""] * (2 * APART_MAX + 2), 1)
    store.acknowledge("a", [(at, at + 1) for at in range(1, 2 * APART_MAX, 2)])
    with pytest.raises(LimitError, match="APART_MAX"):
        store.acknowledge("a", [(2 * APART_MAX + 1, 2 * APART_MAX + 2)])
    store.acknowledge("a", [(1, 2)])  # No more than before.
    store.acknowledge("a", [(2, 3)])
    assert len(store.acknowledged("a")) == APART_MAX - 1
