"""Sessions: each item once and in order, whatever becomes of the connections."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contrada.delivery import session
from contrada.delivery.session import Incoming, Numbered, Outgoing
from contrada.errors import ProtocolError


class SessionMachine(RuleBasedStateMachine):
    """Two ends, and a connection that keeps order, breaks, and is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.outgoing: Outgoing[int] = Outgoing()
        self.incoming: Incoming[int] = Incoming()
        self.wire: list[Numbered[int]] | None = []
        self.answers: list[int] = []
        self.sent = 0
        self.taken: list[int] = []
        self.done_with: list[int] = []  # of earlier sessions

    @rule(count=st.integers(0, 4))
    def send(self, count: int) -> None:
        """Sends some, be there a connection or not."""
        items = list(range(self.sent, self.sent + count))
        self.sent += count
        numbered = self.outgoing.send(items, 10 * count)
        if self.wire is not None:
            self.wire.append(numbered)

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        """The first on the wire comes."""
        assert self.wire is not None
        self.taken += self.incoming.take(self.wire.pop(0))

    @precondition(lambda self: self.wire is not None)
    @rule()
    def answer(self) -> None:
        """The other end says what it has taken."""
        self.answers.append(self.incoming.taken)

    @precondition(lambda self: self.answers)
    @rule()
    def learn(self) -> None:
        """That arrives."""
        self.outgoing.acknowledge(self.answers.pop(0))

    @rule()
    def breaks(self) -> None:
        """The connection breaks; what is on its way is lost."""
        self.wire = None
        self.answers.clear()

    @precondition(lambda self: self.wire is None)
    @rule()
    def resume(self) -> None:
        """There is a connection again."""
        self.wire = list(self.outgoing.resume(self.incoming.taken))

    @precondition(lambda self: self.wire is None)
    @rule()
    def succeed(self) -> None:
        """The other end lost the session: a successor begins with what was not taken."""
        rest = list(self.outgoing.rest())
        self.outgoing, self.incoming = Outgoing(), Incoming()
        self.wire = [self.outgoing.send(rest, 10 * len(rest))]

    @invariant()
    def nothing_is_lost(self) -> None:
        """What was taken is in order, and what was not taken is held."""
        assert sorted(set(self.taken)) == list(range(max(self.taken, default=-1) + 1))
        rest = list(self.outgoing.rest())
        assert rest == list(range(self.sent - len(rest), self.sent))
        assert not rest or rest[0] <= len(set(self.taken))
        assert self.outgoing.held == len(rest)
        assert self.outgoing.held_bytes >= 10 * len(rest)
        assert rest or self.outgoing.held_bytes == 0

    def teardown(self) -> None:
        """In the end all is taken; in one session each once."""
        for numbered in self.outgoing.resume(self.incoming.taken):
            self.taken += self.incoming.take(numbered)
        assert set(self.taken) == set(range(self.sent))
        self.outgoing.acknowledge(self.incoming.taken)
        assert self.outgoing.held == 0


TestSession = SessionMachine.TestCase


def test_each_is_taken_once() -> None:
    """A notification would come twice when a connection is made anew."""
    outgoing: Outgoing[str] = Outgoing()
    incoming: Incoming[str] = Incoming()
    lost = outgoing.send("abc", 3)
    assert incoming.take(lost) == "abc"
    again = list(outgoing.resume(1))
    assert again == [Numbered(2, "bc")]
    assert incoming.take(again[0]) == ""
    assert incoming.take(outgoing.send("d", 1)) == "d"
    assert (outgoing.resent, incoming.repeated) == (2, 2)


def test_what_cannot_be_is_refused() -> None:
    """An end that lost its session would be taken for one that is behind."""
    outgoing: Outgoing[str] = Outgoing()
    outgoing.send("abc", 3)
    with pytest.raises(ProtocolError, match="4 items were taken of 3"):
        outgoing.acknowledge(4)
    with pytest.raises(ProtocolError, match="-1 items"):
        outgoing.acknowledge(-1)
    outgoing.acknowledge(2)
    outgoing.acknowledge(1)
    assert outgoing.held == 1, "an old answer takes nothing back"
    assert list(outgoing.rest()) == ["c"]
    with pytest.raises(ProtocolError, match="had 2 items taken, and now 1"):
        list(outgoing.resume(1))
    with pytest.raises(ProtocolError, match="item 3 came where 1 was due"):
        Incoming[str]().take(Numbered(3, "c"))


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not come back would fill the memory."""
    monkeypatch.setattr(session, "HELD_MAX", 3)
    monkeypatch.setattr(session, "HELD_BYTES_MAX", 100)
    outgoing: Outgoing[str] = Outgoing()
    outgoing.send("ab", 2)
    assert outgoing.has_room()
    outgoing.send("c", 1)
    assert not outgoing.has_room()
    outgoing.acknowledge(1)
    assert outgoing.has_room()
    outgoing.send("d", 100)
    assert not outgoing.has_room()
    outgoing.acknowledge(4)
    assert outgoing.has_room()
    assert outgoing.held_bytes == 0
