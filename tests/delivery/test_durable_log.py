"""`DurableLog`: no record is lost, and no acknowledged one is handed out."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.durable_log import DurableLog, HandedRecord
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.redelivery import Attempts, load_attempts
from contrada.delivery.retention import OnFull, Retention
from contrada.delivery.store import Damaged, Extent, LogRecord, Notes, StoredRecord
from contrada.errors import CannotPublishError, DeliveryError, InvalidValueError
from tests.delivery.stores import AwayStore, flip

CONSUMERS = ("x", "y")


def subscription(
    limits: DeliveryLimits = DeliveryLimits(), **retention: Any
) -> tuple[DurableLog, MemoryStore]:
    """Returns an empty log with its store."""
    store = MemoryStore()
    return DurableLog("s", store, Retention(**retention), limits), store


def restarted(store: MemoryStore, **retention: Any) -> DurableLog:
    """Returns the log of a store, with the attempts that survived."""
    notes = Notes(store)
    attempts = Attempts("s", notes, load_attempts(notes).get("s", ()))
    return DurableLog("s", store, Retention(**retention), attempts=attempts)


def append(of: DurableLog, *records: str, time_us: int = 1) -> None:
    """Appends records."""
    packed = [each.encode() for each in records]
    of.check_room(packed)
    of.append(packed, time_us)


def take_records(of: DurableLog, consumer: str = "x", credit: int = 100) -> list[str]:
    """Returns a consumer's records, each with its attempt; a damaged record as its position."""
    of.grant(consumer, credit)
    handed = of.take(consumer)
    return [
        f"{each.entry.data.decode()} {each.attempt}"
        if isinstance(each.entry, LogRecord)
        else f"lost {each.entry.position}"
        for each in handed
    ]


def test_a_failed_read_is_repeated() -> None:
    """A restart of the database would take records from readers."""
    store = AwayStore()
    of = DurableLog("s", store, Retention(records_max=3, on_full=OnFull.DROP_OLDEST))
    of.open("x")
    append(of, "a", "b", "c")
    assert take_records(of) == ["a 1", "b 1", "c 1"]
    of.nack("x", [1])
    store.is_away = True
    assert (take_records(of), of.why_stuck) == ([], "the connection is broken")
    of.acknowledge([(2, 4)])
    append(of, "d", "e")
    of.validate()
    store.is_away = False
    assert (take_records(of), of.why_stuck) == (["a 2", "d 1", "e 1"], "")
    of.acknowledge([(1, 2)])
    assert of.extent.first == 4
    append(of, "f", "g")
    assert (of.statistics.unread, of.statistics.dropped) == (2, 1)
    of.validate()


class DurableMachine(RuleBasedStateMachine):
    """A comparison with the set of unacknowledged records, with crashes that lose unsynced
    changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.of = restarted(self.store, replay_max=2)
        self.pending: set[int] = set()
        self.synced: tuple[set[int], int] = set(), 0
        self.next = 1
        self.has: dict[str, set[int]] = {}
        self.had: dict[str, set[int]] = {}  # of consumers that have left
        self.now_us = 1
        self.attempts: dict[int, int] = {}

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        """Appends some."""
        append(self.of, *(str(self.next + n) for n in range(count)))
        self.pending |= set(range(self.next, self.next + count))
        self.next += count

    @rule(consumer=st.sampled_from(CONSUMERS))
    def open(self, consumer: str) -> None:
        """Opens a consumer, which has the records from before it left or the log was restarted."""
        if consumer in self.has:
            with pytest.raises(DeliveryError, match="already"):
                self.of.open(consumer)
            return
        wanted = self.had.pop(consumer, set()) & self.pending.difference(*self.has.values())
        self.of.open(consumer, wanted, self.now_us)
        held = self.of._consumers[consumer].held
        if self.of._cursor >= self.of._replays_to:
            assert held == wanted
        assert held <= wanted, "a replay hands them out again"
        self.has[consumer] = held

    @precondition(lambda self: self.has)
    @rule(credit=st.integers(0, 5), data=st.data())
    def take(self, credit: int, data: Any) -> None:
        """Takes records within a consumer's credit."""
        consumer = data.draw(st.sampled_from(sorted(self.has)))
        self.of.grant(consumer, credit)
        free = self.pending.difference(*self.has.values())
        self.of.expire(self.now_us)
        taken = self.of.take(consumer, now_us=self.now_us)
        handed = [each for each in taken if each.entry.position in self.pending]
        self.of.attempts.write()
        for each in handed:
            before = self.attempts.get(each.entry.position, 0)
            assert before <= each.attempt, "attempts are forgotten"
            self.attempts[each.entry.position] = each.attempt
        positions = [each.entry.position for each in handed]
        assert all(isinstance(each.entry, LogRecord) for each in handed)
        assert [each.entry.data for each in handed] == [b"%d" % at for at in positions]  # type: ignore[union-attr]
        assert len(set(positions)) == len(positions)
        assert free.issuperset(positions), "another consumer has it"
        self.has[consumer].update(positions)

    @precondition(lambda self: any(self.has.values()))
    @rule(data=st.data(), upto=st.booleans())
    def acknowledge(self, data: Any, upto: bool) -> None:
        """Acknowledges one record, or all up to it."""
        held = sorted(set().union(*self.has.values()))
        position = data.draw(st.sampled_from(held))
        first = 1 if upto else position
        self.of.acknowledge([(first, position + 1)])
        done = set(range(first, position + 1))
        self.pending -= done
        for each in self.has.values():
            each -= done

    @precondition(lambda self: self.has)
    @rule(data=st.data(), leaves=st.booleans())
    def nack(self, data: Any, leaves: bool) -> None:
        """Nacks a record, or closes a consumer."""
        consumer = data.draw(st.sampled_from(sorted(self.has)))
        if leaves:
            self.of.close(consumer, now_us=self.now_us)
            self.had[consumer] = self.has.pop(consumer)
        elif self.has[consumer]:
            position = data.draw(st.sampled_from(sorted(self.has[consumer])))
            delay_us = data.draw(st.none() | st.integers(0, 5))
            self.of.nack(consumer, [position], self.now_us, delay_us)
            self.has[consumer].discard(position)

    @rule(later_us=st.integers(1, 5))
    def wait(self, later_us: int) -> None:
        """Lets time pass."""
        self.now_us += later_us

    @precondition(lambda self: not any(self.has.values()))
    @rule(back=st.integers(0, 5))
    def replay(self, back: int) -> None:
        """Replays the log."""
        at = self.of.seek(max(1, self.of._cursor - back))
        assert at >= self.of.extent.first

    @rule()
    def sync(self) -> None:
        """Syncs the store."""
        self.of.attempts.write()
        self.store.sync()
        self.synced = set(self.pending), self.next

    @rule(survived=st.integers(0, 3))
    def crash(self, survived: int) -> None:
        """Restarts with the disk."""
        self.store.crash(survived)
        self.of = restarted(self.store, replay_max=2)
        self.had |= self.has
        self.has.clear()
        self.attempts = {
            at: count for at, count, _ in load_attempts(Notes(self.store)).get("s", ())
        }
        extent = self.of.extent
        assert extent.next >= self.synced[1], "what was synced is lost"
        done = {at for a, b in self.store.acknowledged("s") for at in range(a, b)}
        kept = set(range(extent.first, extent.next)) - done
        assert kept.issuperset(at for at in self.synced[0] & self.pending), (
            "what nobody acknowledged is lost"
        )
        self.pending, self.next = kept, extent.next
        self.store.sync()
        self.synced = set(kept), self.next

    @invariant()
    def holds(self) -> None:
        """The invariant of the subscription."""
        self.of.validate()

    def teardown(self) -> None:
        """Finally a consumer gets all remaining records."""
        for each in list(self.has):
            self.of.close(each)
        self.of.open("last")
        got: Counter[int] = Counter()
        self.of.grant("last", 1_000)
        self.of.expire(self.now_us + 5)
        while batch := self.of.take("last", now_us=self.now_us + 5):
            got.update(each.entry.position for each in batch)
        assert self.pending.issubset(got)
        assert not self.pending or max(got[at] for at in self.pending) == 1


TestDurable = DurableMachine.TestCase


def test_earlier_records_reach_a_new_client() -> None:
    """A client would miss publications during its absence."""
    of, store = subscription()
    append(of, "a", "b")
    store.sync()
    store.crash()
    of = DurableLog("s", store, Retention())
    of.open("x")
    assert take_records(of, credit=1) == ["a 1"]
    assert take_records(of) == ["b 1"]
    of.acknowledge([(1, 3)])
    assert of.extent == Extent(3, 3, 0)


def test_each_record_goes_to_one_of_n_and_returns() -> None:
    """Two consumers would get one record; or a lost one's records be lost."""
    of, _ = subscription()
    of.open("x")
    of.open("y")
    append(of, *"abcd")
    assert take_records(of, "x", 2) == ["a 1", "b 1"]
    assert take_records(of, "y", 9) == ["c 1", "d 1"]
    of.acknowledge([(2, 3)])
    of.close("x")
    assert take_records(of, "y") == ["a 2"]
    of.nack("y", [3, 99])
    assert take_records(of, "y") == ["c 2"]
    assert (of.statistics.handed, of.statistics.again) == (6, 2)
    of.close("y", seen=[3, 99])
    of.open("y")
    assert take_records(of, "y") == ["a 2", "c 3", "d 1"]


def test_only_what_a_lost_reader_may_have_read_is_an_attempt() -> None:
    """Prefetched records that nobody saw would become dead letters; or a record that kills its
    readers would be handed out for ever.
    """
    of, _ = subscription(attempts_max=2)
    append(of, *"abcd")
    for attempt in (1, 2):
        of.open("x")
        assert take_records(of) == [f"a {attempt}", "b 1", "c 1", "d 1"]
        of.close("x")
    of.open("x")
    assert take_records(of, credit=2) == ["b 1", "c 1"]
    assert of.statistics.dead == 1
    of.acknowledge([(2, 3)])
    of.close("x")
    of.open("x")
    assert take_records(of) == ["c 2", "d 1"], "after the acknowledgement it was the first"
    of.close("x", seen=[])
    of.open("x")
    assert take_records(of) == ["c 2", "d 1"], "it read none"
    of.grant("x", 0, read=2)
    of.acknowledge([(3, 4)])
    of.close("x")
    of.open("x")
    assert take_records(of) == ["d 2"], "it told that it read both"
    of.validate()


def test_a_reader_that_comes_back_keeps_what_it_has() -> None:
    """Each lost connection would count as an attempt of the records that the reader still has."""
    of, _ = subscription()
    append(of, *"abcd")
    of.open("x")
    assert take_records(of, credit=3) == ["a 1", "b 1", "c 1"]
    of.close("x")
    of.open("y")
    assert take_records(of, "y", credit=1) == ["a 2"]
    of.open("x", holds=[1, 2, 9])
    assert take_records(of) == ["c 1", "d 1"]
    of.validate()
    of.close("x", seen=[2])
    assert take_records(of, "y") == ["b 2", "c 1", "d 1"]
    of.acknowledge([(1, 5)])
    of.validate()


def test_a_count_of_an_earlier_opening_reads_nothing() -> None:
    """A repeated message would count records as read that are on their way."""
    of, _ = subscription()
    append(of, *"ab")
    of.open("x")
    of.grant("x", 1, read=7)
    assert take_records(of, credit=1) == ["a 1", "b 1"]
    of.close("x")
    of.open("x")
    assert take_records(of) == ["a 2", "b 1"]


S = 1_000_000


def take_at(of: DurableLog, now_us: int, consumer: str = "x", credit: int = 100) -> list[str]:
    """Returns a consumer's records at a time, each with its attempt."""
    of.expire(now_us)
    of.grant(consumer, credit, now_us=now_us)
    handed = of.take(consumer, now_us=now_us)
    return [f"{each.entry.data.decode()} {each.attempt}" for each in handed]  # type: ignore[union-attr]


def test_returned_records_wait() -> None:
    """The attempts of a record would be used up while what it needs is away for a moment."""
    of, _ = subscription(backoff_s=1, backoff_s_max=3)
    append(of, "a", "b")
    of.open("x")
    now_us = 10 * S
    for attempt, wait_s in ((1, 1), (2, 2), (3, 3), (4, 3)):
        assert f"a {attempt}" in take_at(of, now_us)
        of.nack("x", [1], now_us)
        assert of.due_us == now_us + wait_s * S
        assert take_at(of, now_us + wait_s * S - 1) == []
        now_us += wait_s * S
        of.validate()
    assert take_at(of, now_us) == ["a 5"]
    of.nack("x", [1], now_us, delay_us=0)
    assert take_at(of, now_us) == ["a 6"]
    of.nack("x", [1], now_us, delay_us=9 * S)
    of.acknowledge([(1, 2)])
    assert take_at(of, now_us + 9 * S) == []
    of.validate()
    of.close("x", now_us=now_us)
    of.open("x")
    assert take_at(of, now_us) == [], "it may have killed its reader"
    assert take_at(of, now_us + S) == ["b 2"]


def test_a_reader_that_hangs_loses_its_records() -> None:
    """A reader that hangs, connected, would keep its records from all others."""
    of, _ = subscription(acknowledge_s=2)
    append(of, *"abcd")
    of.open("x", now_us=0)
    assert take_at(of, 0, credit=3) == ["a 1", "b 1", "c 1"]
    of.grant("x", 0, read=1, now_us=S)
    assert of.due_us == 3 * S
    assert of.expire(3 * S - 1) == {}
    assert of.expire(3 * S) == {"x": (2, 3)}
    of.validate()
    of.open("y", now_us=3 * S)
    assert take_at(of, 3 * S, "y") == ["a 2", "b 1", "c 1", "d 1"]
    assert not of.can_take("x"), "it hangs"
    of.nack("y", [1, 2], 3 * S)
    of.acknowledge([(3, 5)])
    assert take_at(of, 3 * S, "x") == ["a 3", "b 2"], "it reads again"
    assert of.statistics.overdue == 3
    of.validate()


def test_a_reader_that_works_keeps_its_records() -> None:
    """Long work would be done twice."""
    of, _ = subscription(acknowledge_s=2)
    append(of, *"abc")
    of.open("x", now_us=0)
    assert take_at(of, 0) == ["a 1", "b 1", "c 1"]
    of.grant("x", 0, read=2, now_us=S)
    of.extend("x", [2], 2 * S)
    assert of.expire(3 * S) == {}
    assert take_at(of, 3 * S) == ["a 2"], "it worked on the other one"
    of.extend("x", (), 5 * S - 1)
    assert of.expire(7 * S - 2) == {}
    of.acknowledge([(1, 4)])
    assert of.expire(99 * S) == {}
    assert of.due_us is None
    of.validate()


def test_what_a_silent_reader_prefetched_is_no_attempt() -> None:
    """A connected reader that does not read would kill records that it never got."""
    of, _ = subscription(acknowledge_s=1, attempts_max=1)
    append(of, "a")
    of.open("x", now_us=0)
    for now_s in range(5):
        assert take_at(of, now_s * S) == ["a 1"]
        assert of.expire((now_s + 1) * S) == {"x": (1,)}
    assert of.statistics.dead == 0


def test_it_is_read_again_from_a_position_or_a_time() -> None:
    """A replay would omit acknowledged records, or later ones."""
    of, _ = subscription(replay_max=3)
    of.open("x")
    for time_us, record in enumerate("abcde", 10):
        append(of, record, time_us=time_us)
    assert len(take_records(of)) == 5
    with pytest.raises(DeliveryError, match=r"its readers have 5 records .* try again once"):
        of.seek(1)
    of.acknowledge([(1, 6)])
    assert of.extent.first == 3
    assert of.seek(1) == 3
    assert take_records(of) == ["c 1", "d 1", "e 1"]
    assert of.seek(time_us=14) == 5
    append(of, "f", time_us=15)
    assert take_records(of) == ["e 1", "f 1"]
    of.acknowledge([(6, 7)])
    assert of.seek(time_us=99) == 7
    assert take_records(of) == []
    of.close("x")
    of.open("x")
    append(of, "g", "h")
    assert take_records(of, credit=1) == ["g 1"]
    of.nack("x", [7])
    assert of.seek(8) == 8
    assert take_records(of) == ["g 2", "h 1"], "what is to come again is not skipped"
    of.acknowledge([(7, 9)])
    for wrong in (0, 10, None):
        with pytest.raises(InvalidValueError, match="from 1 to 9"):
            of.seek(wrong)


def test_a_full_log_follows_its_policy() -> None:
    """A log would grow without bound, or a publisher get a wrong confirmation."""
    of, _ = subscription(records_max=3)
    append(of, *"abc")
    with pytest.raises(CannotPublishError, match="'s' is full: it keeps 3 records, 3 bytes"):
        append(of, "d")
    assert of.extent == Extent(1, 4, 3)
    of, _ = subscription(bytes_max=5, on_full=OnFull.DROP_OLDEST)
    of.open("x")
    append(of, "aa", "b")
    assert take_records(of, credit=1) == ["aa 1"]
    append(of, "cc", "d")
    assert of.extent == Extent(2, 5, 4)
    assert of.statistics.dropped == 1
    append(of, "eee")
    assert take_records(of) == ["d 1", "eee 1"]
    assert of.statistics.dropped == 3
    of.validate()
    with pytest.raises(CannotPublishError):
        append(of, "ffffff")
    of.append([b"ffffff", b"g"], 1)  # its publisher did not know the limit
    assert of.extent == Extent(4, 7, 5)
    assert of.statistics.dropped == 4
    of.append([*map(bytes, [[n] for n in range(9)])], 1)
    assert of.extent == Extent(7, 12, 5)
    assert of.statistics.dropped == 11
    of, _ = subscription(bytes_max=5, on_full=OnFull.DROP_OLDEST)
    append(of, "aa", "bbb")
    append(of, "cc")
    assert of.extent == Extent(2, 4, 5), "no more records are dropped than needed"
    of, store = subscription(records_max=1, on_full=OnFull.END)
    append(of, "a")
    append(of, "b")
    assert of.has_ended
    assert store.logs() == []
    with pytest.raises(DeliveryError, match="has ended"):
        of.open("x")


def test_records_with_many_attempts_become_dead_letters() -> None:
    """One unusable record would block all others forever."""
    of, _ = subscription(attempts_max=2, dead_letter="dead")
    of.open("x")
    append(of, "a", "b", time_us=7)
    for attempt in (1, 2):
        assert take_records(of) == [f"a {attempt}", *(["b 1"] if attempt == 1 else [])]
        of.nack("x", [1])
    assert take_records(of) == []
    assert of.buried == [b"a"]
    assert of.statistics.dead == 1
    assert of.extent.first == 2
    with pytest.raises(InvalidValueError, match="its own dead letter"):
        subscription(dead_letter="s")
    with pytest.raises(InvalidValueError, match="dead_letter: expected a name"):
        subscription(dead_letter=3)


def test_a_damaged_record_is_reported_and_blocks_nothing() -> None:
    """A consumer would wait for it forever, or not notice the gap."""
    of, store = subscription()
    append(of, *"abc")
    store.sync()
    flip(store, "s", 2, 0)
    of.open("x")
    of.grant("x", 9)
    assert of.take("x") == [
        HandedRecord(LogRecord(1, 1, b"a"), 1),
        HandedRecord(Damaged(2, "its checksum is another"), 1),
        HandedRecord(LogRecord(3, 1, b"c"), 1),
    ]
    of.acknowledge([(1, 2), (3, 4)])
    assert of.extent.first == 4
    assert of.statistics.damaged == 1


def test_damaged_records_make_room_with_all_others() -> None:
    """The server would search without an end for the bytes that a damaged record had."""
    of, store = subscription(bytes_max=5, on_full=OnFull.DROP_OLDEST)
    append(of, "aa", "bb")
    store.sync()
    flip(store, "s", 1, 0)
    append(of, "ccccc")
    assert (of.extent, of.statistics.dropped) == (Extent(3, 4, 5), 2)
    of.validate()


def test_attempts_and_delays_survive_a_restart() -> None:
    """A record that kills the process of its log would be handed out for ever as a first attempt;
    and a delay end with the process.
    """
    store = MemoryStore()
    of = restarted(store, attempts_max=2)
    append(of, *"abc")
    for attempt in (1, 2):
        of.open("x")
        assert take_records(of)[0] == f"a {attempt}"
        of.attempts.write()
        store.sync()
        store.crash()
        of = restarted(store, attempts_max=2)
    of.open("x")
    assert take_records(of) == ["b 1", "c 1"]
    assert of.buried == [b"a"]
    of.nack("x", [2], 5 * S, delay_us=5 * S)
    of.attempts.write()
    store.sync()
    store.crash()
    of = restarted(store, attempts_max=2)
    of.open("x")
    assert take_at(of, 9 * S) == ["c 2"], "a delayed one holds up none behind it"
    assert of.due_us == 10 * S
    assert take_at(of, 10 * S) == ["b 2"]
    of.acknowledge([(2, 4)])
    of.attempts.write()
    assert store.notes() == {}
    of.validate()
    of.end()
    assert store.notes() == {}


def test_a_clock_before_1970_delays_no_record() -> None:
    """A broker whose clock was never set would requeue its records without an end."""
    of, _ = subscription()
    of.open("x", now_us=-5)
    append(of, "a")
    assert take_at(of, -5) == ["a 1"]


def test_a_reader_keeps_what_it_has_over_a_restart_of_the_log() -> None:
    """Its nack would change nothing: the delay and the attempt of the record would be lost. And the
    records that it works on would go to others.
    """
    store = MemoryStore()
    terms = {"backoff_s": 2, "acknowledge_s": 9}
    of = restarted(store, **terms)
    append(of, *"abcdef")
    of.acknowledge([(1, 2)])
    store.sync()
    store.crash()
    of = restarted(store, **terms)
    of.open("x", holds=[1, 2, 4, 5], now_us=S)
    of.validate()
    of.open("y", now_us=S)
    assert take_at(of, S, "y") == ["c 1", "f 1"], "the others are those of x"
    of.nack("x", [4], 2 * S, delay_us=5 * S)
    of.nack("x", [5], 2 * S)
    of.extend("x", [2], 8 * S)
    assert of.due_us == 4 * S
    assert take_at(of, 4 * S, "y") == ["e 2"]
    assert take_at(of, 7 * S, "y") == ["d 2"]
    of.expire(15 * S)
    assert of._consumers["x"].held == {2}
    of.acknowledge([(1, 7)])
    of.validate()


def test_a_reader_that_comes_back_wrongly_costs_little() -> None:
    """One message would requeue the whole log."""
    store = MemoryStore()
    of = restarted(store)
    append(of, *"abcdef")
    of = DurableLog("s", store, Retention(), DeliveryLimits(records_unacknowledged_max=2))
    of.open("x", holds=[5, 99])
    of.validate()
    assert of._cursor == 3
    assert take_records(of) == ["a 1", "b 1"]


def test_a_reader_continues_behind_the_records_that_it_has() -> None:
    """A reader from a position would end with each connection or restart, if it has records."""
    of, store = subscription(replay_max=9)
    append(of, *"abcd")
    for again in (of, DurableLog(of.name, store, of.retention)):
        again.open("x")
        assert again.seek(1) == 1
        assert take_records(again) == ["a 1", "b 1", "c 1", "d 1"]
        again.close("x", seen=[])
    for again in (of, DurableLog(of.name, store, of.retention)):
        again.open("x", holds=[1, 2])
        with pytest.raises(DeliveryError, match="have 1 records"):
            again.seek(2)
        assert again.seek(3) == 3
        assert take_records(again) == ["c 1", "d 1"]
        again.validate()
        again.close("x", seen=[])


def test_future_positions_cannot_be_acknowledged() -> None:
    """A record would be lost that no consumer has seen."""
    of, _ = subscription()
    append(of, *"ab")
    of.open("x")
    assert take_records(of, credit=1) == ["a 1"]
    with pytest.raises(InvalidValueError, match="before 3, which are there"):
        of.acknowledge([(1, 4)])
    assert of.extent.first == 1


class CountingStore(MemoryStore):
    """A store that counts the records that are read."""

    read_records = 0

    def read(self, log: str, first: int, count: int) -> list[StoredRecord]:
        """Counts records."""
        found = super().read(log, first, count)
        self.read_records += len(found)
        return found


def test_a_full_log_reads_about_the_records_that_it_drops() -> None:
    """Each publication to a full subscription read a thousand records of it."""
    store = CountingStore()
    of = DurableLog("s", store, Retention(records_max=2_000, on_full=OnFull.DROP_OLDEST))
    append(of, *map(str, range(2_000)))
    for each in range(10):
        append(of, f"new {each}")
    assert store.read_records <= 20
    assert of.statistics.dropped == 10
    assert (of.extent.first, of.extent.records) == (11, 2_000)
    of = DurableLog("t", store, Retention(bytes_max=1_000, on_full=OnFull.DROP_OLDEST))
    append(of, *["x"] * 1_000)
    store.read_records = 0
    append(of, "x" * 300)
    assert of.statistics.dropped == 300
    assert store.read_records <= 600


class CountedAttempts(Attempts):
    """Attempts that count the passes over all of them."""

    passes = 0

    def __iter__(self) -> Iterator[int]:
        """Counts a pass."""
        self.passes += 1
        return super().__iter__()


def test_one_message_passes_once_over_the_records_of_readers() -> None:
    """10,000 intervals that name the same positions held a server for seconds."""
    attempts = CountedAttempts()
    of = DurableLog("s", MemoryStore(), Retention(), attempts=attempts)
    append(of, *map(str, range(299)))
    of.open("x")
    take_records(of, credit=50)
    of.acknowledge([(60, 300)] * 100)
    of.acknowledge([(each, each + 3) for each in range(1, 99, 4)])
    assert attempts.passes <= 2
    of.validate()
    assert sorted(of.holders) == [4 * each for each in range(1, 13)]


def test_earlier_records_are_acknowledged_after_a_restart() -> None:
    """A record processed during the restart would be handed out again."""
    of, store = subscription()
    append(of, *"abc")
    of.open("x")
    assert take_records(of) == ["a 1", "b 1", "c 1"]
    again = DurableLog(of.name, store, of.retention)
    again.acknowledge([(1, 2), (3, 4)])
    again.validate()
    again.open("x")
    assert take_records(again) == ["b 1"]


def test_it_is_read_again_right_after_a_restart() -> None:
    """A reader that lost its state together with its server could not replay the log."""
    of, store = subscription(replay_max=9)
    append(of, *"abcd")
    of.open("x")
    assert take_records(of) == ["a 1", "b 1", "c 1", "d 1"]
    of.acknowledge([(1, 4)])
    again = DurableLog(of.name, store, of.retention)
    again.validate()
    again.open("x")
    assert again.seek(position=2) == 2
    assert take_records(again) == ["b 1", "c 1", "d 1"]
    again.validate()


def test_consumers_and_their_records_are_bounded() -> None:
    """Consumers that never acknowledge would fill the memory."""
    of, _ = subscription(limits=DeliveryLimits(consumers_max=1, records_unacknowledged_max=2))
    append(of, *"abc")
    of.open("x")
    with pytest.raises(DeliveryError, match="consumers_max = 1"):
        of.open("y")
    assert take_records(of) == ["a 1", "b 1"]
    assert take_records(of) == []
    of.acknowledge([(1, 2)])
    assert take_records(of) == ["c 1"]
    append(of, "d")
    of.nack("x", [2, 3])
    assert take_records(of) == ["b 2", "c 2"], "no more than it may have, also of what comes again"
