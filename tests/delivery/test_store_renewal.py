"""Restored stores: the copy's contents are neither lost nor doubled, and no number is reused."""

from copy import deepcopy

import pytest

from contrada.delivery.durable_log import OUT_MAX, DurableLog
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.retention import Retention
from contrada.delivery.store import RESTORED_GAP, LogRecord, records_between, renew
from tests.delivery.network import DeliveryNetwork, notice


def restore(net: DeliveryNetwork, name: str, copy: MemoryStore) -> None:
    """Stops a server with its disk, and starts it on a copy."""
    net.crash(name)
    copy = deepcopy(copy)
    renew(copy)
    copy.sync()
    net.stores[name] = copy
    net.start(name)


def copied(net: DeliveryNetwork, name: str) -> MemoryStore:
    """Returns the present disk of a server."""
    store = deepcopy(net.stores[name])
    store.crash()
    return store


def test_positions_given_after_the_copy_are_given_to_nothing_else() -> None:
    """A reader with stored positions would skip new records as processed."""
    net = DeliveryNetwork("a", "", "a", acks=False)
    net.stand("a", "s", is_durable=True)
    for i in range(3):
        net.publish("a", [notice(i, "certified")])
    copy = copied(net, "a")
    for i in range(3, 6):
        net.publish("a", [notice(i, "certified")])
    net.read("a", "x", "s")
    assert net.positions["x"] == [1, 2, 3, 4, 5, 6]
    restore(net, "a", copy)
    net.publish("a", [notice(6, "certified")])
    net.read("a", "y", "s")
    assert net.got["y"] == [0, 1, 2, 6]
    assert net.positions["y"] == [1, 2, 3, 4 + RESTORED_GAP]
    assert net.servers["a"].logs.log_of("s").extent.first_kept(4) == 4 + RESTORED_GAP


def test_an_access_point_on_a_copy_loses_and_doubles_nothing_that_the_copy_held() -> None:
    """A certified notification before a backup would be lost, or doubled."""
    net = DeliveryNetwork("ab", "ab", "ab")
    net.stand("b", "s", is_durable=True)
    net.run()
    net.read("b", "x", "s")
    net.run()
    net.publish("a", [notice(1, "certified fifo", "p", 1)], "p")
    net.run()
    net.cut("a", "b")
    for i in (2, 3):
        net.publish("a", [notice(i, "certified fifo", "p", i)], "p")
    copy = copied(net, "a")  # holds 2 and 3
    net.mend("a", "b")
    net.run()
    net.publish("a", [notice(4, "certified fifo", "p", 4)], "p")
    net.run()
    assert net.got["x"] == [1, 2, 3, 4]
    restore(net, "a", copy)
    net.mend("a", "b")
    net.run(10)
    net.publish("a", [notice(5, "certified fifo", "p", 5)], "p")
    net.run(10)
    assert net.got["x"] == [1, 2, 3, 4, 5], "what the home has it knows, what is new it takes"
    assert net.servers["a"].statistics().held == 0


def test_an_owner_unknown_to_the_copy_takes_new_shipments() -> None:
    """Numbers would restart at an access point without memory of an owner: all would be repeats."""
    net = DeliveryNetwork("ab", "", "ab")
    copy = copied(net, "a")
    net.mend("a", "b")
    net.stand("b", "s", is_durable=True)
    net.run()
    net.read("b", "x", "s")
    net.publish("a", [notice(i, "certified") for i in range(5)])
    net.run()
    restore(net, "a", copy)
    net.mend("a", "b")
    net.run(5)
    net.publish("a", [notice(5, "certified")])
    net.run(5)
    assert net.got["x"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("order", ["", " fifo", " causal"])
def test_an_owner_on_a_copy_takes_held_and_new_shipments(order: str) -> None:
    """Streams to it would stop: it waits for numbers taken before the restore."""
    net = DeliveryNetwork("abc", "ab bc", "abc")
    net.stand("b", "s", is_durable=True)
    net.stand("c", "t", is_durable=True)
    net.run()
    net.publish("a", [notice(1, "certified" + order, "p", 1)], "p")
    net.run()
    copy = copied(net, "b")
    net.publish("a", [notice(2, "certified" + order, "p", 2)], "p")
    net.run()
    net.crash("b")
    net.publish("a", [notice(3, "certified" + order, "p", 3)], "p")  # a holds it
    net.start("b")  # only so that it may die again
    restore(net, "b", copy)
    net.mend("a", "b")
    net.mend("b", "c")
    net.run(20)
    net.publish("a", [notice(4, "certified" + order, "p", 4)], "p")
    net.publish("c", [notice(5, "certified" + order, "q", 1)], "q")
    net.run(20)
    net.read("b", "x", "s")
    net.read("c", "y", "t")
    net.run(5)
    of_p = [each for each in net.got["x"] if each != 5]
    assert of_p == [1, 3, 4], "2 came after the copy: it is gone with the disk"
    assert sorted(net.got["x"]) == [1, 3, 4, 5]
    assert sorted(net.got["y"]) == [1, 2, 3, 4, 5]
    for server in net.servers.values():
        assert server.statistics().held == 0, server.name


def test_subscriptions_begun_after_the_copy_leave_their_numbers_to_none() -> None:
    """Shipments for a lost subscription would reach another one."""
    net = DeliveryNetwork("ab", "ab", "ab")
    net.stand("b", "s", "i < 100", is_durable=True)
    net.run()
    copy = copied(net, "b")
    net.stand("b", "t", "i >= 100", is_durable=True)
    net.run()
    net.cut("a", "b")
    net.publish("a", [notice(100, "certified")])  # for t
    restore(net, "b", copy)
    net.stand("b", "u", "i = 7", is_durable=True)
    net.mend("a", "b")
    net.run(10)
    net.read("b", "x", "u")
    net.run(5)
    assert net.got["x"] == []
    assert [number for number, _, _ in net.servers["b"].logs.subscriptions_since(1, 16)[1]] == [1]
    numbers, found = net.servers["b"].logs.subscriptions_since(2, 16)
    assert [entry.name for _, entry, _ in found] == ["u"]
    assert net.servers["b"].logs.subscriptions_since(numbers.stop, 16)[0] == range(
        numbers.stop, numbers.stop
    )


def left_out() -> DurableLog:
    """Returns a log of three records, many left-out positions, and three records."""
    store = MemoryStore()
    of = DurableLog("s", store, Retention(records_max=6))
    of.append([b"1", b"2", b"3"], 1)
    store.leave_out("s", 10**15)
    of = DurableLog("s", store, Retention(records_max=6))
    of.append([b"4", b"5", b"6"], 2)
    return of


def test_positions_that_are_left_out_cost_nothing() -> None:
    """A log would count as full, or its reader walk over missing records."""
    of = left_out()
    begin = 4 + 10**15
    assert of.retention.is_full(of.extent)
    assert of.available == 6
    of.open("x")
    of.grant("x", 100)
    handed = of.take("x", OUT_MAX)
    assert [each.entry.position for each in handed] == [1, 2, 3, begin, begin + 1, begin + 2]
    assert all(isinstance(each.entry, LogRecord) for each in handed)
    assert of.available == 0
    of.acknowledge([(1, 3)])
    assert of.first_unacknowledged == 3
    of.acknowledge([(3, 4)])
    assert of.first_unacknowledged == begin == of.extent.first
    of.acknowledge([(begin, begin + 3)])
    assert of.seek(position=5) == begin + 3
    assert of.extent.records == 0


def test_a_replay_skips_left_out_positions() -> None:
    """A replay would report each of these positions as damaged, or never end."""
    store = MemoryStore()
    of = DurableLog("s", store, Retention(replay_max=10**16))
    of.append([b"1", b"2"], 1)
    store.leave_out("s", 10**15)
    of.append([b"3"], 2)
    of.open("x")
    of.grant("x", 100)
    assert len(of.take("x")) == 3
    of.acknowledge([(1, 4 + 10**15)])
    of.seek(position=1)
    assert [each.entry for each in of.take("x")] == store.read("s", 1, 2) + store.read(
        "s", 3 + 10**15, 1
    )
    assert of.available == 0


def test_replay_keeps_records_not_positions() -> None:
    """After a restore no replay would be possible until as many records as were left out."""
    store = MemoryStore()
    of = DurableLog("s", store, Retention(replay_max=3))
    for number in range(1, 6):
        of.append([b"%d" % number], 1)
    store.leave_out("s", 10**15)
    of.append([b"6"], 1)
    of.acknowledge([(1, of.extent.next)])
    assert of.extent.first == 4
    assert [each.position for each in store.read("s", 4, 2)] == [4, 5]
    for number in range(7, 9):
        of.append([b"%d" % number], 1)
        of.acknowledge([(1, of.extent.next)])
    assert of.extent.first_kept(of.extent.first) == of.extent.next - 3
    of.append([b"9"], 1)
    of.acknowledge([(1, of.extent.next)])
    assert of.extent.first == of.extent.next - 3


@pytest.mark.parametrize(
    ("read", "position", "count"),
    [
        (3, 4, 0),
        (3, 7, 3),
        (5, 6 + RESTORED_GAP, 0),
        (3, 6 + RESTORED_GAP, 2),
        (3, 6 + 3 * RESTORED_GAP, 2),
        (9, 6 + RESTORED_GAP, 0),
        (0, RESTORED_GAP // 2, RESTORED_GAP // 2 - 1),
        (0, RESTORED_GAP // 2 + 1, 0),
    ],
)
def test_positions_left_out_are_no_loss(read: int, position: int, count: int) -> None:
    """A reader would see a loss of a billion records."""
    assert records_between(read, position) == count


def test_the_oldest_are_dropped_around_left_out_positions() -> None:
    """A full log that drops its oldest would grow without bound."""
    store = MemoryStore()
    keep = Retention(records_max=3, on_full="drop-oldest")  # type: ignore[arg-type]
    of = DurableLog("s", store, keep)
    of.append([b"1", b"2", b"3"], 1)
    store.leave_out("s", 10**15)
    for number in range(4, 20):
        of.append([b"%d" % number], 2)
        assert of.extent.records <= 4
    assert of.extent.records == 3
