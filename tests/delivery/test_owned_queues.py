"""Steps of requests about queues, and crashes and changes in between."""

from typing import Any

import pytest

from contrada.delivery.delivery_messages import CloseLog
from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.owned_queues import (
    REDRIVEN_AT_ONCE,
    longest_queues,
    peek,
    queue_page,
    redrive,
    state_of,
)
from contrada.delivery.queue_messages import STEP_BYTES_MAX, PeekQueue, RedriveQueue
from contrada.delivery.retention import Retention
from contrada.delivery.store import APART_MAX
from contrada.errors import DeliveryError, StoreError
from contrada.model import FilterSet, Notification

COUNT = 2 * REDRIVEN_AT_ONCE + 1


def restarted(store: MemoryStore) -> DeliveryServer:
    return DeliveryServer("a", incarnation=1, store=store, sequencer="a")


def buried(store: MemoryStore, count: int, text: str = "", **kept: Any) -> DeliveryServer:
    """A server with a subscription `s`, and so many dead letters of it in `dead`."""
    server = restarted(store)
    retention = Retention(attempts_max=1, dead_letter="dead", **kept)
    server.create_subscription("s", FilterSet("n any"), 1, retention, is_durable=True)
    server.append("dead", (Notification({"n": n, "text": text}) for n in range(count)), 2)
    store.sync()
    return server


def unread(server: DeliveryServer) -> dict[str, int]:
    found = longest_queues(server.logs, 2, lambda _: True)
    return {each.name: each.unread for each in found}


def test_a_step_survives_a_crash_whole_or_not_at_all() -> None:
    """A dead letter would be in both queues after a crash, or in none."""
    store = MemoryStore()
    server = buried(store, COUNT)
    kept, moved = COUNT, 0
    for survives in (True, False, True, False, True):
        step, _ = redrive(server, RedriveQueue("dead"), 3)
        if survives:
            store.sync()
            kept, moved = kept - step.count, moved + step.count
        store.crash()
        server = restarted(store)
        server.validate()
        assert unread(server) == {"dead": kept, "s": moved}
    assert (kept, moved) == (0, COUNT)


def test_dead_letters_stay_where_the_store_has_no_room() -> None:
    """They would be acknowledged, and in no queue."""
    store = MemoryStore()
    server = buried(store, 3)
    store.is_full = True
    with pytest.raises(StoreError, match="no room for the dead letters of 's'"):
        redrive(server, RedriveQueue("dead"), 3)
    assert unread(server) == {"dead": 3, "s": 0}
    server.validate()


def test_a_step_is_bounded_in_bytes() -> None:
    """A step of large dead letters would hold the loop, and their memory, too long."""
    server = buried(MemoryStore(), 5, "x" * (STEP_BYTES_MAX // 2))
    step, _ = redrive(server, RedriveQueue("dead"), 3)
    assert (step.count, step.first) == (2, 3)


def test_a_subscription_gets_no_more_bytes_than_it_keeps() -> None:
    """It would keep more than its user was granted, or drop others."""
    server = buried(MemoryStore(), 5, "x" * 1_000, bytes_max=3_500)
    step, _ = redrive(server, RedriveQueue("dead"), 3)
    assert step.count == 3
    assert server.logs.log_of("s").extent.held_bytes <= 3_500


def test_a_queue_that_cannot_be_read_has_a_state() -> None:
    """A list of queues would fail at one with a damaged store, and not say why."""

    class Unreadable(MemoryStore):
        def read(self, log: str, first: int, count: int) -> Any:
            if log == "dead":
                raise StoreError("the disk is gone")
            return super().read(log, first, count)

    server = buried(Unreadable(), 1)
    assert state_of(server.logs, "dead").stuck == "the disk is gone"


def test_dead_letters_between_acknowledged_ones_move() -> None:
    """Acknowledging them would count as too many intervals, though they close the gaps."""
    server = buried(MemoryStore(), 2 * APART_MAX)
    dead = server.logs.log_of("dead")
    dead.acknowledge([(at, at + 1) for at in range(2, 2 * APART_MAX, 2)])
    step, _ = redrive(server, RedriveQueue("dead"), 3)
    assert step.count == REDRIVEN_AT_ONCE
    assert unread(server)["s"] == REDRIVEN_AT_ONCE


def test_a_page_of_queues_leaves_out_those_that_end_meanwhile() -> None:
    """An operator would get an error in place of the list."""
    server = buried(MemoryStore(), 1)
    turns = queue_page(server.logs, "", lambda _: True)
    next(turns)
    server.consume("", CloseLog("s", "", ends=True), 3)
    page = None
    while page is None:
        try:
            next(turns)
        except StopIteration as end:
            page = end.value
    assert [each.name for each in page.queues] == ["dead"]


def test_a_peek_ends_with_its_subscription() -> None:
    """It would go on with the records of another subscription of this name."""
    server = buried(MemoryStore(), 3)
    turns = peek(server, PeekQueue("dead"))
    next(turns)
    server.consume("", CloseLog("dead", "", ends=True), 3)
    server.create_subscription("dead", FilterSet("n any"), 4, Retention(), is_durable=True)
    with pytest.raises(DeliveryError, match="another one has its name"):
        next(turns)
