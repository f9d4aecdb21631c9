"""`OwnedLogs`: appended as a whole or not at all, shared fairly, and restored after a crash."""

from typing import Any

import pytest

from contrada.delivery.delivery_messages import (
    Ack,
    Closed,
    CloseLog,
    Grant,
    LogEntry,
    Nack,
    OpenLog,
)
from contrada.delivery.durable_state import DurableState
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.retention import OnFull, Retention
from contrada.errors import CannotPublishError, DeliveryError, InvalidValueError, LimitError
from contrada.model import Notification, to_msgpack
from tests.delivery.network import all_of, notice
from tests.delivery.stores import lose

PLENTY = Retention()


def make_logs(store: MemoryStore | None = None, *names: str, **retention: Any) -> OwnedLogs:
    """Returns logs, some durable with a store."""
    of = OwnedLogs(store)
    for name in names:
        of.create(name, all_of(), Retention(**retention), is_durable=store is not None)
    return of


def read(of: OwnedLogs, consumer: str, credit: int, name: str = "s", server: str = "h") -> None:
    """Opens a subscription for a consumer with credit."""
    assert [*of.consume(server, OpenLog(name, consumer, renews=True))] == []
    assert [*of.consume(server, Grant(name, consumer, credit))] == []


def append(of: OwnedLogs, *numbers: int, ids: tuple[int, ...] = (1,)) -> bool:
    """Appends notifications."""
    return of.append([(ids, notice(each, "reliable")) for each in numbers], 5)


def push_all(of: OwnedLogs, away: str = "") -> dict[str, list[int]]:
    """Returns the records for consumers, except at absent servers."""
    found: dict[str, list[int]] = {}
    for (_, consumer), records in of.push(lambda server: server != away, 5):
        for each in records.records:
            assert each.notification is not None
            found.setdefault(consumer, []).append(int(str(each.notification["i"])))
    return found


def test_consumers_take_turns_within_their_credit() -> None:
    """One of several would get all records, and the others wait."""
    of = make_logs(None, "s")
    for consumer, credit in (("x", 5), ("y", 5), ("z", 1)):
        read(of, consumer, credit)
    got: dict[str, list[int]] = {}
    for number in range(6):
        append(of, number)
        for consumer, found in push_all(of).items():
            got.setdefault(consumer, []).extend(found)
    assert got == {"x": [0, 3, 5], "y": [1, 4], "z": [2]}
    append(of, *range(6, 20))
    assert push_all(of) == {"y": [6, 7, 8], "x": [9, 10]}
    assert push_all(of) == {}
    of.validate()


def test_a_consumer_at_a_full_stream_gets_records_later() -> None:
    """Records would be taken from their log and held in memory."""
    of = make_logs(None, "s")
    read(of, "x", 5, server="g")
    append(of, 1)
    assert push_all(of, away="g") == {}
    assert push_all(of) == {"x": [1]}


def test_records_beyond_the_bytes_of_a_step_are_due_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader of large records would hold its server while all of its credit is read."""
    of = make_logs(None, "s", "t")
    size = len(to_msgpack(notice(1, "reliable")))
    monkeypatch.setattr("contrada.delivery.owned_logs.READ_BYTES_MAX", 2 * size)
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 2 * size)
    for consumer, name in (("x", "s"), ("y", "s"), ("z", "t")):
        read(of, consumer, 3, name)
    append(of, *range(5), ids=(1, 2))
    got: dict[str, list[int]] = {}
    sizes: list[int] = []
    void: dict[str, int] = {}
    for _ in range(9):
        sizes.append(0)
        for (_, consumer), records in of.push(lambda _: True, 5):
            sizes[-1] += len(records.records)
            found = [
                int(str(each.notification["i"])) for each in records.records if each.notification
            ]
            got.setdefault(consumer, []).extend(found)
            void[consumer] = records.unused
        if of.due_us is None:
            break
        assert of.due_us == 5
        assert [*of.expire(5)] == []
    assert max(sizes) <= 3, "the last read may exceed it"
    # A consumer that does not say that it has passed them on gets no more, whatever its credit.
    assert {each: len(got[each]) + void[each] for each in got} == {"x": 3, "y": 3, "z": 3}
    assert any(void.values())
    for consumer, name in (("x", "s"), ("y", "s"), ("z", "t")):
        for _ in range(3):
            assert [*of.consume("h", Grant(name, consumer, 1))] == []
            for reader, found in push_all(of).items():
                got[reader] += found
    assert sorted(got["x"] + got["y"]) == [*range(5)]
    assert got["z"] == [*range(5)]
    of.validate()


def test_a_consumer_of_an_earlier_version_keeps_its_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not grant void credit anew, and would wait for ever."""
    of = make_logs(None, "s")
    monkeypatch.setattr("contrada.delivery.owned_logs.READ_BYTES_MAX", 1)
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 1)
    append(of, *range(3))
    for message in (OpenLog("s", "x"), Grant("s", "x", 3)):
        assert [*of.consume("h", message)] == []
    for number in range(3):
        (((_, consumer), records),) = of.push(lambda _: True, 5)
        assert (consumer, len(records.records), records.unused) == ("x", 1, 0), number
        assert [*of.expire(5)] == []


def test_logs_take_turns_if_one_has_more_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of large records that grants credit at once would be served alone."""
    of = make_logs(None, "s", "t")
    monkeypatch.setattr("contrada.delivery.owned_logs.READ_BYTES_MAX", 1)
    monkeypatch.setattr("contrada.delivery.store.READ_BYTES_MAX", 1)
    read(of, "x", 1, "s")
    read(of, "y", 1, "t")
    assert push_all(of) == {}
    append(of, *range(4), ids=(1, 2))
    turns: list[str] = []
    for _ in range(8):
        for (_, consumer), records in of.push(lambda _: True, 5):
            turns.append(consumer)
            credit = len(records.records) + records.unused
            assert [*of.consume("h", Grant(records.name, consumer, credit))] == []
    assert turns == ["x", "y"] * 4


def test_a_large_record_for_one_log_leaves_all_logs_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The publication fails as a whole, but the first log would hold its part."""
    of = make_logs(MemoryStore(), "s", "t")
    small = notice(1, "reliable")
    large = Notification({"i": 2}, body=bytes(300), envelope=small.envelope)
    monkeypatch.setattr("contrada.delivery.store.RECORD_BYTES_MAX", 300)
    with pytest.raises(LimitError, match="RECORD_BYTES_MAX"):
        of.append([((1, 2), small), ((2,), large)], 5)
    assert [of.log_of(name).extent.records for name in "st"] == [0, 0]


def test_all_is_kept_or_nothing() -> None:
    """A retry for one full log would double records in another."""
    store = MemoryStore()
    of = make_logs(store, "s")
    number, _ = of.create("v", all_of(), PLENTY, is_durable=False)
    store.is_full = True
    assert not append(of, 1, ids=(1, number))
    assert append(of, 2, ids=(number, 99))
    store.is_full = False
    assert append(of, 3, ids=(1, number))
    read(of, "x", 9)
    read(of, "y", 9, "v")
    assert push_all(of) == {"x": [3], "y": [2, 3]}
    assert of.memory_store.unsynced == 0, "nothing is remembered for a disk that there is not"
    size = len(to_msgpack(notice(1, "reliable")))
    assert not append(make_logs(MemoryStore(2 * size - 1), "s"), 1, 2)
    assert append(make_logs(MemoryStore(2 * size), "s"), 1, 2)
    assert not append(make_logs(MemoryStore(2 * size - 1), "s", "t"), 1, ids=(1, 2))
    assert append(make_logs(MemoryStore(2 * size), "s", "t"), 1, ids=(1, 2))


def test_durable_logs_survive_and_no_number_is_reused() -> None:
    """A shipment in flight would reach another subscription."""
    store = MemoryStore()
    of = make_logs(store, "s", records_max=1)
    of.create("v", all_of(), PLENTY, is_durable=False)
    assert append(of, 7)
    assert [each for each, entry in of.changes() if entry and entry.is_full] == [1]
    store.sync()
    store.crash()
    of = DurableState("h", store).logs
    assert {each: entry.name for each, entry in of.subscriptions().items()} == {1: "s"}
    assert [each for each, entry in of.changes() if entry and entry.is_full] == [1]
    assert of.create("w", all_of(), PLENTY, is_durable=False)[0] == 3
    read(of, "x", 9)
    assert push_all(of) == {"x": [7]}
    assert [*of.consume("h", CloseLog("s", "y", ends=True))] == []
    assert next(of.changes()) == (1, None)
    assert [*of.end(1)] == [(("h", "x"), Closed("s", "x", "the subscription has ended"))]
    assert of.terms("s") is None
    store.sync()
    assert DurableState("h", store).logs.subscriptions() == {}
    assert "s" not in store.logs()


def test_names_are_checked() -> None:
    """Two would share a log, or one use a log of the server itself."""
    store = MemoryStore()
    of = make_logs(store, "s")
    with pytest.raises(DeliveryError, match="'s' here already"):
        of.create("s", all_of(), PLENTY, is_durable=True)
    with pytest.raises(DeliveryError, match="no store"):
        make_logs(None).create("t", all_of(), PLENTY, is_durable=True)
    for name in ("@spool", "", "\n"):
        with pytest.raises(InvalidValueError):
            of.names_to_create(name, PLENTY, is_durable=True)
    assert of.names_to_create("t", Retention(dead_letter="s"), is_durable=True) == ["t"]
    assert of.names_to_create("t", Retention(dead_letter="d"), is_durable=True) == ["t", "d"]
    of.create("v", all_of(), PLENTY, is_durable=False)
    with pytest.raises(DeliveryError, match="'v' is not durable"):
        of.names_to_create("t", Retention(dead_letter="v"), is_durable=True)
    with pytest.raises(DeliveryError, match="no durable subscription 'z' here"):
        of.number_of("z")


def test_an_invalid_message_closes_a_consumer() -> None:
    """A neighbour's client could make a server raise."""
    of = make_logs(None, "s")
    for message in (
        Grant("s", "x", 1),
        Ack("s", "x", ((1, 2),)),
        Nack("s", "x", (1,)),
        OpenLog("z", "x"),
        OpenLog("s", "x", position=5),
        CloseLog("z", "x", ends=True),
    ):
        ((reader, closed),) = of.consume("h", message)
        assert (reader, type(closed)) == (("h", "x"), Closed), message
    append(of, 1, 2)
    read(of, "x", 9)
    assert push_all(of) == {"x": [1, 2]}
    read(of, "x", 9)  # its server restarted, and opens again
    assert push_all(of) == {"x": [1, 2]}
    nonsense = [(3, 1), (-5, 0), (1, 2)]
    assert [*of.consume("h", Ack("s", "x", tuple(nonsense)))] == []
    of.consume("h", Nack("s", "x", (-1, 99)))
    of.close_all("h")
    read(of, "y", 9)
    assert push_all(of) == {"y": [2]}
    of.validate()


def test_dead_letters_reach_their_subscription() -> None:
    """They would fill an unlimited, unreadable log."""
    of = OwnedLogs(None)
    of.create("s", all_of(), Retention(attempts_max=1, dead_letter="d"), is_durable=False)
    limits = Retention(records_max=2, on_full=OnFull.DROP_OLDEST)
    of.create("d", all_of("i < 0"), limits, is_durable=False)
    read(of, "x", 9)
    read(of, "y", 1, "d")
    append(of, 1, 2, 3, 4)
    assert push_all(of) == {"x": [1, 2, 3, 4]}
    assert [*of.consume("h", Nack("s", "x", (1, 2, 3)))] == []
    assert push_all(of) == {"y": [2]}, "the first found no room"
    assert of.statistics()["s"].dead == 3
    assert of.statistics()["d"].dropped == 1
    [*of.end(2)]
    assert [*of.consume("h", Nack("s", "x", (4,)))] == []
    assert push_all(of) == {}
    of.validate()


def test_dead_letters_need_no_reader_that_takes_records() -> None:
    """While all readers hang, nobody would learn of the records that they hang at."""
    of = OwnedLogs(MemoryStore())
    kept = Retention(attempts_max=1, acknowledge_s=1, backoff_s=99, dead_letter="d")
    of.create("s", all_of(), kept, is_durable=True)
    of.create("d", all_of("i < 0"), PLENTY, is_durable=True)
    read(of, "x", 9)
    read(of, "y", 9, "d")
    append(of, 1, 2)
    assert push_all(of) == {"x": [1, 2]}
    assert [*of.consume("h", Grant("s", "x", 0, 1), 5)] == []
    assert push_all(of) == {}
    assert [message.positions for _, message in of.expire(1_000_005)] == [(2,)]
    assert push_all(of) == {"y": [1]}
    assert of.statistics()["s"].dead == 1
    of.validate()


def test_dead_letters_that_find_no_room_are_lost() -> None:
    """A full disk would stop a server."""
    store = MemoryStore()
    of = OwnedLogs(store)
    limits = Retention(attempts_max=1, dead_letter="d")
    of.create("s", all_of(), limits, is_durable=False)
    of.create("d", all_of("i < 0"), Retention(), is_durable=True)
    read(of, "x", 9)
    append(of, 1, 2)
    push_all(of)
    store.is_full = True
    assert [*of.consume("h", Nack("s", "x", (1,)))] == []
    assert push_all(of) == {}
    assert of.statistics()["s"].dead == 1


def test_dead_letters_that_their_subscription_refuses_are_lost() -> None:
    """A subscription would exceed its room."""
    of = OwnedLogs(None)
    limits = Retention(attempts_max=1, dead_letter="d")
    of.create("s", all_of(), limits, is_durable=False)
    of.create("d", all_of("i < 0"), Retention(records_max=2), is_durable=False)
    read(of, "x", 9)
    append(of, 1, 2, 3)
    push_all(of)
    assert [*of.consume("h", Nack("s", "x", (1, 2, 3)))] == []
    push_all(of)
    found = of.statistics()
    assert (found["s"].dead, found["d"].dropped) == (3, 1)
    extents = [kept.log.extent for kept in of._logs.values()]
    assert [each.next - each.first for each in extents] == [0, 2]


def test_all_before_a_position_are_acknowledged() -> None:
    """A record would be handed out again, or one be lost that nobody has read."""
    of = make_logs(None, "s")
    append(of, 1, 2, 3)
    for before in (-1, 1, 3):
        of.acknowledge("s", before)
    assert of.log_of("s").statistics.acknowledged == 2
    read(of, "x", 9)
    assert push_all(of) == {"x": [3]}


def test_appended_records_are_collected_with_their_positions() -> None:
    """The story of a notification would miss its log, or name another record."""
    of = make_logs(None, "s", records_max=2, on_full=OnFull.DROP_OLDEST)
    of.appended = []
    append(of, 1, 2, 3)
    kept = [to_msgpack(notice(each, "reliable")) for each in (2, 3)]
    assert [each[:3] for each in of.appended] == [
        ("s", at, each) for at, each in enumerate(kept, 1)
    ]


def test_a_lost_record_reaches_its_reader_with_the_reason() -> None:
    """A reader would miss a record without notice."""
    store = MemoryStore()
    of = make_logs(store, "s")
    append(of, 1)
    store.sync()
    lose(store, "s", 1)
    read(of, "x", 9)
    ((_, handed),) = of.push(lambda _: True, 5)
    assert handed.records == (LogEntry(1, 0, None, 1, "it is not there"),)


def test_room_is_asked_for_before() -> None:
    """A publisher would not be refused by a full subscription."""
    of = make_logs(None, "s", records_max=2)
    of.check_room([((1, 99), notice(1, "reliable"))] * 2)
    with pytest.raises(CannotPublishError, match="'s'"):
        of.check_room([((1,), notice(1, "reliable"))] * 3)


@pytest.mark.parametrize("ends", [False, True])
def test_a_subscription_that_has_ended_has_nothing_due(ends: bool) -> None:
    """A server would fail at the time at which the records of an ended one are due again."""
    of = OwnedLogs(MemoryStore())
    of.create("s", all_of(), Retention(acknowledge_s=1), is_durable=True)
    read(of, "x", 9)
    append(of, 1)
    assert push_all(of) == {"x": [1]}
    if ends:
        assert len([*of.end(1)]) == 1
    assert len([*of.expire(1_000_005)]) == (not ends)
