"""Buffers of events, and redirections of newcomers, are bounded; excess is counted."""

from contrada.gossip.event_dissemination import (
    KEPT_ROUNDS,
    Announcements,
    HeldRumour,
    RumourBuffers,
)
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.group_policy import convergence_rounds, silence_rounds, spread_rounds
from contrada.gossip.membership import JOIN_WAIT_ROUNDS, Newcomer
from contrada.gossip.parameters import Parameters
from contrada.model import Envelope, Notification


def held(number: int, level: int = 1) -> HeldRumour:
    event = Notification({}, envelope=Envelope(id=f"{number}", publisher="p"))
    return HeldRumour(event, 1.0, 0, level)


def test_buffers_are_bounded() -> None:
    """An endless publisher would fill the memory of all."""
    buffers = RumourBuffers(2, GossipLimits(rumours_max=3))
    assert [buffers.add(held(n, 1 + n % 2)) for n in range(5)] == [True, True, True, False, False]
    assert len(buffers) == 3
    buffers.validate()
    for each in buffers.at(1):
        buffers.end(each)
    assert [each.level for each in buffers] == [2]
    for n in range(5):
        buffers.keep(held(n), 0)
    assert [buffers.find(("p", f"{n}")) is not None for n in range(5)] == [True] * 3 + [False] * 2
    buffers.forget(KEPT_ROUNDS)
    assert [buffers.find(("p", f"{n}")) is not None for n in range(3)] == [False, True, False]


def test_bytes_of_events_are_bounded() -> None:
    """A few large events would fill the memory that many small ones may."""

    def large(number: int) -> HeldRumour:
        envelope = Envelope(id=f"{number}", publisher="p")
        return HeldRumour(Notification({}, body=bytes(9), envelope=envelope), 1.0, 0, 1)

    buffers = RumourBuffers(1, GossipLimits(buffered_bytes_max=25))
    first, second = large(1), large(2)
    assert [buffers.add(each) for each in (first, second, large(3))] == [True, True, False]
    buffers.end(first)
    buffers.keep(first, 0)
    assert not buffers.add(large(3))
    buffers.end(second)
    buffers.keep(second, 0)
    buffers.keep(second, 0)
    buffers.keep(large(4), 0)
    assert buffers.find(("p", "4")) is None
    buffers.validate()
    buffers.forget(KEPT_ROUNDS)
    buffers.validate()
    assert buffers.add(large(3))
    buffers.clear()
    buffers.validate()


def test_announcements_are_requested_once_in_a_round() -> None:
    """An event would be fetched from each announcer; or never again after a loss."""
    asked = Announcements(GossipLimits(announced_max=2))
    assert [asked.is_due(("p", "1"), n) for n in (1, 1, 2)] == [True, False, True]
    asked.remove(("p", "1"))
    assert asked.is_due(("p", "1"), 2)
    for number in range(9):
        assert asked.is_due(("p", f"{number}"), 3)
    assert asked.is_due(("p", "0"), 3), "the earliest was forgotten"
    assert not asked.is_due(("p", "8"), 3)


def test_a_newcomer_requests_from_nearer_ones_first_and_waits() -> None:
    """It would ask in vain for ever, all at once, or those that are far before those near."""
    newcomer = Newcomer(["a", "b"], redirects_max=2)
    assert newcomer.is_due()
    assert newcomer.next_place() == "a"
    assert [newcomer.is_due() for _ in range(JOIN_WAIT_ROUNDS)] == [False] * JOIN_WAIT_ROUNDS
    assert newcomer.is_due()
    assert newcomer.next_place() == "b"
    newcomer.point_to(["x", "y", "z"])
    assert newcomer.is_due()
    assert [newcomer.next_place() for _ in range(4)] == ["x", "y", "a", "b"]


def test_the_stated_rounds_grow_with_losses() -> None:
    """Views would count as right sooner the more is lost, or the larger a group is."""
    plain = Parameters(levels=3, branching=7, redundancy=2, fanout=2)
    worse = [
        Parameters(levels=3, branching=7, redundancy=2, fanout=2, loss=0.2),
        Parameters(levels=4, branching=7, redundancy=2, fanout=2),
        Parameters(levels=3, branching=70, redundancy=2, fanout=2),
        Parameters(levels=3, branching=7, redundancy=2, fanout=1),
    ]
    for rounds in (spread_rounds, convergence_rounds):
        assert all(rounds(plain) < rounds(each) for each in worse)
    assert convergence_rounds(plain) == 79
    assert convergence_rounds(worse[0]) == 104
    silences = [silence_rounds(plain, level) for level in (1, 2, 3)]
    assert silences == sorted(silences)
