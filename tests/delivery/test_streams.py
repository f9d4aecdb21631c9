"""`Outgoing` and `Incoming`: each item once and in order, despite losses and crashes."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.streams import Incoming, NumberedRun, Outgoing
from contrada.errors import ProtocolError


class StreamMachine(RuleBasedStateMachine):
    """Two ends, runs in flight in any order, and a sender that crashes and keeps some items."""

    def __init__(self) -> None:
        super().__init__()
        self.outgoing: Outgoing[int] = Outgoing()
        self.incoming: Incoming[int] = Incoming()
        self.wire: list[NumberedRun[int]] = []
        self.answers: list[int] = []
        self.sent = 0
        self.numbers: dict[int, int] = {}
        self.lost: set[int] = set()
        self.taken: list[int] = []
        self.spooled: set[int] = set()

    @rule(count=st.integers(0, 4), spools=st.booleans())
    def send(self, count: int, spools: bool) -> None:
        """Sends some; spooled items survive a crash."""
        items = list(range(self.sent, self.sent + count))
        self.sent += count
        run = self.outgoing.send(items, 10 * count)
        for number, item in enumerate(items, run.first):
            assert number not in self.numbers.values(), "a number was given twice"
            self.numbers[item] = number
        self.spooled |= set(items) if spools else set()
        self.wire.append(run)

    @precondition(lambda self: self.wire)
    @rule(at=st.integers(0, 20), stays=st.booleans())
    def arrive(self, at: int, stays: bool) -> None:
        """Delivers one run, perhaps repeatedly."""
        run = self.wire[at % len(self.wire)]
        self.taken += self.incoming.take(run)
        if not stays:
            self.wire.remove(run)

    @precondition(lambda self: self.wire)
    @rule(at=st.integers(0, 20))
    def lose(self, at: int) -> None:
        """Loses one run."""
        self.wire.pop(at % len(self.wire))

    @rule(count=st.integers(1, 3))
    def again(self, count: int) -> None:
        """Resends untaken items."""
        self.wire += self.outgoing.again(count)

    @rule()
    def answer(self) -> None:
        """The other end acknowledges."""
        self.answers.append(self.incoming.taken)

    @precondition(lambda self: self.answers)
    @rule(at=st.integers(0, 20))
    def learn(self, at: int) -> None:
        """Delivers an acknowledgement, in any order."""
        self.outgoing.acknowledge(self.answers.pop(at % len(self.answers)))

    @rule()
    def crash(self) -> None:
        """The sender restarts with its spooled items, and new numbers."""
        held = [*self.outgoing.rest()]
        self.lost |= {each for each in held if each not in self.spooled}
        self.wire.clear()
        self.outgoing = Outgoing(self.outgoing.next + 5)
        for item in held:
            if item in self.spooled:
                self.outgoing.restore(self.numbers[item], item, 10)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Taken items are in order, each once; others are held or were lost in a crash."""
        assert self.taken == sorted(set(self.taken))
        rest = [*self.outgoing.rest()]
        assert rest == sorted(rest)
        assert set(self.taken) | set(rest) | self.lost == set(range(self.sent))
        assert self.outgoing.held == len(rest)
        assert self.outgoing.held_bytes >= 10 * len(rest)
        assert rest or self.outgoing.held_bytes == 0

    def teardown(self) -> None:
        """Finally all items are taken that were not lost."""
        for run in self.outgoing.again(1_000):
            self.taken += self.incoming.take(run)
        assert set(self.taken) >= set(range(self.sent)) - self.lost
        self.outgoing.acknowledge(self.incoming.taken)
        assert self.outgoing.held == self.outgoing.held_bytes == 0


TestStream = StreamMachine.TestCase


def test_each_is_taken_once() -> None:
    """A resent notification would be doubled."""
    outgoing: Outgoing[str] = Outgoing()
    incoming: Incoming[str] = Incoming()
    assert incoming.take(outgoing.send("abc", 3)) == "abc"
    outgoing.acknowledge(1)
    again = list(outgoing.again(9))
    assert again == [NumberedRun(1, 2, "bc")]
    assert incoming.take(again[0]) == ""
    assert incoming.take(NumberedRun(4, 5, "e")) == ""
    assert incoming.take(outgoing.send("d", 1)) == "d"
    assert (outgoing.resent, incoming.repeated) == (2, 2)


def test_an_impossible_acknowledgement_is_refused() -> None:
    """An end that lost its memory would seem to be ahead."""
    outgoing: Outgoing[str] = Outgoing()
    outgoing.send("abc", 3)
    for taken in (4, -1):
        with pytest.raises(ProtocolError, match=f"{taken} was taken of a stream"):
            outgoing.acknowledge(taken)
    assert outgoing.acknowledge(2) == ["a", "b"]
    assert outgoing.acknowledge(1) == [], "an old answer takes nothing back"
    assert list(outgoing.rest()) == ["c"]


def test_held_items_are_bounded() -> None:
    """An absent owner would fill the memory."""
    outgoing: Outgoing[str] = Outgoing(limits=DeliveryLimits(held_max=3, held_bytes_max=100))
    outgoing.send("ab", 2)
    assert outgoing.has_room()
    outgoing.send("c", 1)
    assert not outgoing.has_room()
    outgoing.acknowledge(1)
    assert outgoing.has_room()
    outgoing.acknowledge(3)
    outgoing.send("d", 99)
    assert outgoing.has_room()
    outgoing.acknowledge(4)
    outgoing.send("e", 100)
    assert not outgoing.has_room()
    outgoing.acknowledge(5)
    assert outgoing.has_room()
    assert outgoing.held_bytes == 0


def test_nothing_is_sent_as_behind_an_item_that_there_never_was() -> None:
    """After a crash the other end would wait for it forever."""
    outgoing, incoming = Outgoing[str](6), Incoming[str]()
    outgoing.send([], 0)
    assert incoming.take(outgoing.send(["a"], 10)) == ["a"]


def test_items_of_a_stream_that_began_late_are_whole_after_it_reopens() -> None:
    """After a crash the first item would be lost, or the last one get the number of the first."""
    outgoing = Outgoing[str](6)
    outgoing.send("abc", 3)
    outgoing.reopen()
    assert [*outgoing.untaken()] == [NumberedRun(0, 6, "abc")]
    outgoing.acknowledge(7)
    outgoing.reopen()
    assert [*outgoing.untaken()] == [NumberedRun(0, 8, "c")]
