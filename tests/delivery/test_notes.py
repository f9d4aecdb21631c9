"""`Notes`: the values of a server's parts survive a crash."""

import pytest

from contrada.delivery.delivery_messages import DurableEntry
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.redelivery import Attempts, load_attempts
from contrada.delivery.store import Notes, unpack
from contrada.model import FilterSet, Notification, to_msgpack
from tests.delivery.network import all_of


def test_notes_are_read_by_kind() -> None:
    """One part of a server would read another's notes."""
    store = MemoryStore()
    notes = Notes(store)
    notes.put("a", "x/y", (1, True))
    notes.put("ab", "", DurableEntry("s", all_of(), is_full=True))
    notes.put("a", "z", (2, False))
    notes.put("a", "z", None)
    store.sync()
    store.crash()
    assert [*Notes(store).of("a", tuple[int, bool])] == [("x/y", (1, True))]
    assert [*Notes(store).of("ab", DurableEntry)] == [
        ("", DurableEntry("s", all_of(), is_full=True))
    ]


def test_without_a_store_there_are_none() -> None:
    """A server without a disk would fail."""
    notes = Notes(None)
    notes.put("a", "x", 1)
    assert [*notes.of("a", int)] == []


def test_a_value_of_another_type_is_refused() -> None:
    """A filter would be taken for a notification."""
    with pytest.raises(TypeError, match="expected FilterSet, found Notification"):
        unpack(FilterSet, to_msgpack(Notification({"i": 1})))


def test_attempts_are_noted_by_32_positions() -> None:
    """A server would read the attempts of other records from the notes of an earlier version."""
    notes = Notes(MemoryStore())
    attempts = Attempts("s", notes)
    for position in (31, 32, 95):
        attempts.add(position, position)
    attempts.delay(32, 7)
    attempts.write()
    rows = {"s/0": ((31, 31, 0),), "s/1": ((0, 32, 7),), "s/2": ((31, 95, 0),)}
    assert dict(notes.of("attempts", tuple[tuple[int, int, int], ...])) == rows
    assert load_attempts(notes) == {"s": [(31, 31, 0), (32, 32, 7), (95, 95, 0)]}
