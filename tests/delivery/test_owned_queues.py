"""Steps of requests about queues, and crashes and changes in between."""

from collections.abc import Generator
from typing import Any, TypeVar, cast

import pytest

from contrada.delivery.delivery_messages import CloseLog
from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.durable_log import DurableLog
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.owned_queues import (
    REDRIVEN_AT_ONCE,
    local_number,
    longest_queues,
    peek,
    purge,
    queue_page,
    redrive,
    release,
    state_of,
)
from contrada.delivery.queue_messages import (
    PEEKED_MAX,
    QUEUES_AT_ONCE,
    STEP_BYTES_MAX,
    PeekedEntries,
    PeekQueue,
    PurgeQueue,
    QueueStep,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.delivery.retention import Retention
from contrada.delivery.store import APART_MAX
from contrada.errors import CannotPublishError, DeliveryError, StoreError
from contrada.model import FilterSet, Notification

T = TypeVar("T")
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


def result_of(turns: Generator[None, None, T]) -> T:
    """Returns the result of a request after all its turns."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return cast("T", end.value)


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
    server.append("s", [Notification({"n": 9, "text": "x" * 1_000})], 2)
    step, _ = redrive(server, RedriveQueue("dead"), 3)
    assert step.count == 2
    assert server.logs.log_of("s").extent.held_bytes <= 3_500


def test_an_overfull_subscription_gets_no_dead_letters() -> None:
    """It has all that was accepted before the news that it is full. Dead letters would follow."""
    server = buried(MemoryStore(), 1, records_max=1)
    server.logs.log_of("s").append([b"first", b"second"], 2)
    with pytest.raises(CannotPublishError):
        redrive(server, RedriveQueue("dead"), 3)
    assert unread(server) == {"s": 2, "dead": 1}


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
    assert [each.name for each in result_of(turns).queues] == ["dead"]


def test_a_full_page_names_the_next_one() -> None:
    """The list would end after a hundred queues, or repeat the last of them."""
    server = restarted(MemoryStore())
    names = [f"q{number:03}" for number in range(QUEUES_AT_ONCE + 1)]
    for each in names:
        server.create_subscription(each, FilterSet("n any"), 1, Retention(), is_durable=True)
    page = result_of(queue_page(server.logs, "", lambda _: True))
    assert ([each.name for each in page.queues], page.next) == (names[:-1], names[-2])
    rest = result_of(queue_page(server.logs, page.next, lambda _: True))
    assert ([each.name for each in rest.queues], rest.next) == (names[-1:], "")


def positions(peeked: PeekedEntries) -> tuple[list[int], int]:
    return [each.position for each in peeked.entries], peeked.next


def test_a_peek_shows_the_unacknowledged_records_in_pages() -> None:
    """An operator would miss records, or see acknowledged ones."""
    server = buried(MemoryStore(), PEEKED_MAX + 3)
    server.logs.log_of("dead").acknowledge([(2, 4)])
    peeked = result_of(peek(server, PeekQueue("dead", 0, 2)))
    assert positions(peeked) == ([1, 4], 5)
    assert positions(result_of(peek(server, PeekQueue("dead", 5, 10**6)))) == (
        [*range(5, PEEKED_MAX + 4)],
        0,
    )
    server.append("dead", (Notification({"n": n}) for n in range(6)), 3)
    most = result_of(peek(server, PeekQueue("dead", 5, 10**6)))
    assert positions(most) == ([*range(5, PEEKED_MAX + 5)], PEEKED_MAX + 5)
    large = buried(MemoryStore(), 3, "x" * (STEP_BYTES_MAX // 2))
    assert positions(result_of(peek(large, PeekQueue("dead")))) == ([1], 2)


def test_a_purge_is_one_of_the_records_that_were_there() -> None:
    """Records that arrive meanwhile would be acknowledged unseen, or acknowledged ones counted."""
    server = buried(MemoryStore(), 5)
    log = server.logs.log_of("dead")
    number = purge(server, PurgeQueue("dead", first=6), 3)[0].number
    log.acknowledge([(2, 3)])
    step, _ = purge(server, PurgeQueue("dead", number, 2, 4), 3)
    assert step == QueueStep(1, number, 0, 4)
    assert positions(result_of(peek(server, PeekQueue("dead")))) == ([1, 4, 5], 0)
    assert purge(server, PurgeQueue("dead"), 3)[0] == QueueStep(3, number, 0, 6)
    with pytest.raises(DeliveryError, match="another one has its name"):
        purge(server, PurgeQueue("dead", number + 1), 3)
    with pytest.raises(DeliveryError, match="no durable subscription 'none'"):
        purge(server, PurgeQueue("none"), 3)


def test_dead_letters_move_to_their_own_subscription() -> None:
    """They would be delivered to a reader of other records, or lost in a full subscription."""
    server = buried(MemoryStore(), 3, records_max=1)
    with pytest.raises(DeliveryError, match="'dead' does not have the dead letters of 'dead'"):
        redrive(server, RedriveQueue("dead", to="dead"), 3)
    with pytest.raises(DeliveryError, match="dead letters of 's' are in 'dead': redrive that one"):
        redrive(server, RedriveQueue("s"), 3)
    assert redrive(server, RedriveQueue("dead"), 3)[0].count == 1
    with pytest.raises(CannotPublishError, match="'s' is full"):
        redrive(server, RedriveQueue("dead"), 3)
    other = Retention(attempts_max=1, dead_letter="dead")
    server.create_subscription("other", FilterSet("n any"), 4, other, is_durable=True)
    with pytest.raises(DeliveryError, match="2 subscriptions have their dead letters in 'dead'"):
        redrive(server, RedriveQueue("dead"), 3)
    with pytest.raises(DeliveryError, match="dead letters of 'other' are in 'dead'"):
        redrive(server, RedriveQueue("other"), 3)
    step, _ = redrive(server, RedriveQueue("dead", to="other"), 3)
    assert (step.count, step.first, step.to) == (2, 0, "other")


def read_some(server: DeliveryServer, count: int) -> DurableLog:
    """Returns the log of dead letters, some of which are at a reader."""
    log = server.logs.log_of("dead")
    log.open("x")
    log.grant("x", count)
    log.take("x")
    return log


def test_dead_letters_at_a_reader_stay() -> None:
    """A record would be in two queues, and acknowledged in one of them only."""
    server = buried(MemoryStore(), 3)
    log = read_some(server, 1)
    step, _ = redrive(server, RedriveQueue("dead"), 5)
    assert (step.count, unread(server)["s"], [*log.holders]) == (2, 2, [1])


def test_a_release_takes_the_records_from_readers_without_a_time_out() -> None:
    """A reader that hangs would have them for ever."""
    server = buried(MemoryStore(), 3)
    log = read_some(server, 2)
    step, _ = release(server, ReleaseQueue("dead"), 5)
    assert step == QueueStep(2, local_number(server, "dead"), first=0, before=0)
    assert ([*log.holders], log.available) == ([], 3)


def test_a_peek_ends_with_its_subscription() -> None:
    """It would go on with the records of another subscription of this name."""
    server = buried(MemoryStore(), 3)
    turns = peek(server, PeekQueue("dead"))
    next(turns)
    server.consume("", CloseLog("dead", "", ends=True), 3)
    server.create_subscription("dead", FilterSet("n any"), 4, Retention(), is_durable=True)
    with pytest.raises(DeliveryError, match="another one has its name"):
        next(turns)
