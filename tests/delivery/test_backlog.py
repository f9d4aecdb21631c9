"""`Backlog`: the order of removal, by priority and age, and expiry."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.delivery.backlog import Backlog, QueueEntry, Transmission, transmission_of
from contrada.model import Envelope

URGENT = Transmission(9)
HURRIED = Transmission(7)
IDLE = Transmission(0)


def remove_all(backlog: Backlog[str]) -> list[str]:
    """Returns the removed entries, in order."""
    return [backlog.popleft()[0] for _ in range(len(backlog))]


def test_urgent_entries_leave_first_and_equals_in_order() -> None:
    """An alarm would wait behind small talk, or events be reordered."""
    backlog = Backlog([("a", 1, None), ("b", 1, IDLE), ("c", 1, URGENT)])
    backlog.extend([("d", 1, None), ("e", 1, URGENT), ("f", 1, Transmission(4, 10))])
    assert remove_all(backlog) == ["c", "e", "a", "d", "f", "b"]


def test_the_newest_of_the_lowest_is_dropped() -> None:
    """The oldest, or most urgent, entry would be dropped for lack of room."""
    backlog = Backlog([("a", 1, IDLE), ("b", 2, IDLE), ("c", 4, None), ("d", 8, URGENT)])
    assert [backlog.size_below(each) for each in (0, 1, 4, 5, 9, 10)] == [0, 3, 3, 7, 7, 15]
    assert [backlog.pop()[0] for _ in range(4)] == ["b", "a", "c", "d"]
    assert backlog.size_below(10) == 0


def test_entries_expire_at_their_end() -> None:
    """A reader would get an expired entry, or miss a valid one."""
    backlog = Backlog([("a", 1, Transmission(4, 10)), ("b", 1, None), ("c", 1, HURRIED)])
    assert backlog.expire(9) == []
    assert backlog.expire(10) == [("a", 1, Transmission(4, 10))]
    assert remove_all(backlog) == ["c", "b"]


@pytest.mark.parametrize("take", [Backlog.popleft, Backlog.pop])
def test_nothing_waits_where_all_has_left(take: object) -> None:
    """An empty backlog would return an entry, or differ from a deque."""
    assert callable(take)
    with pytest.raises(IndexError):
        take(Backlog())
    with pytest.raises(IndexError):
        deque[int]().popleft()


def test_removed_entries_are_forgotten() -> None:
    """Removed entries with long times to live would fill the memory."""
    backlog: Backlog[int] = Backlog([(-1, 1, None)])
    for number in range(10_000):
        backlog.append((number, 1, Transmission(9, 10**15 + number)))
        backlog.popleft()
    assert len(backlog._expiring) < 200
    assert backlog.expire(2 * 10**15) == []


@pytest.mark.parametrize(("left", "expected"), [(533, 1_002), (534, 1_002 - 534)])
def test_entries_are_looked_through_when_most_have_left(
    left: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry with a time to live would cost a pass over all, or those that left would pile up.

    Up to twice as many as are there, and 64, are in the heap.
    """
    looks: list[object] = []
    is_queued = Backlog._is_queued

    def looked(self: Backlog[int], entry: tuple[int, int, int]) -> bool:
        looks.append(entry)
        return is_queued(self, entry)

    monkeypatch.setattr(Backlog, "_is_queued", looked)
    backlog = Backlog((n, 1, Transmission(9, 10**15)) for n in range(1_001))
    for _ in range(left):
        backlog.popleft()
    assert looks == []
    backlog.append((1_001, 1, Transmission(9, 10**15)))
    assert len(backlog._expiring) == expected
    assert len(looks) == (0 if expected == 1_002 else 1_002)


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        (Envelope(time_us=5), None),
        (Envelope(time_us=5, ttl_us=7), Transmission(4, 12)),
        (Envelope(time_us=5, priority=0), Transmission(0, None)),
        (Envelope(time_us=-5, ttl_us=0, priority=9), Transmission(9, -5)),
        (Envelope(time_us=0, ttl_us=3), Transmission(4, 3)),
        (Envelope(ttl_us=7), None),
        (Envelope(time_us=5, ttl_us=7, priority=9, delivery="reliable"), None),
        (Envelope(time_us=5, ttl_us=7, priority=9, delivery="certified causal total:a"), None),
    ],
)
def test_best_effort_alone_expires_and_has_a_priority(
    envelope: Envelope, expected: Transmission | None
) -> None:
    """A reliable notification would be dropped, or overtake an ordered one."""
    assert transmission_of(envelope) == expected


class Plain:
    """The definition: a list, looked through at every step."""

    def __init__(self) -> None:
        self.held: list[QueueEntry[int]] = []

    def rank(self, entry: QueueEntry[int]) -> int:
        return (entry[2] or Transmission()).priority

    def popleft(self) -> QueueEntry[int]:
        found = max(self.held, key=self.rank)  # The first of the greatest.
        self.held.remove(found)
        return found

    def pop(self) -> QueueEntry[int]:
        found = min(reversed(self.held), key=self.rank)
        self.held.remove(found)
        return found

    def expire(self, now_us: int) -> list[QueueEntry[int]]:
        ends = {each: (each[2] or Transmission()).expires_us for each in self.held}
        late = [each for each, end in ends.items() if end is not None and end <= now_us]
        self.held = [each for each in self.held if each not in late]
        return late

    def size_below(self, priority: int) -> int:
        return sum(each[1] for each in self.held if self.rank(each) < priority)


TRANSMISSIONS = st.none() | st.builds(
    Transmission, st.integers(0, 9), st.none() | st.integers(0, 30)
)
STEPS = st.lists(
    st.tuples(st.just("append"), TRANSMISSIONS)
    | st.tuples(st.just("expire"), st.integers(0, 30))
    | st.tuples(st.just("size_below"), st.integers(0, 10))
    | st.tuples(st.sampled_from(["popleft", "pop"]), st.none()),
    max_size=60,
)


@given(STEPS)
def test_it_is_the_definition(steps: list[tuple[str, object]]) -> None:
    """Some sequence of steps would lose an entry, keep an expired one, or break the order."""
    backlog: Backlog[int] = Backlog()
    plain = Plain()
    for number, (name, argument) in enumerate(steps):
        if name == "append":
            assert argument is None or isinstance(argument, Transmission)
            entry = (number, 1 + number % 3, argument)
            backlog.append(entry)
            plain.held.append(entry)
        elif name in ("popleft", "pop"):
            if plain.held:
                assert getattr(backlog, name)() == getattr(plain, name)()
        else:
            got, expected = getattr(backlog, name)(argument), getattr(plain, name)(argument)
            assert got == expected if name == "size_below" else sorted(got) == sorted(expected)
        assert len(backlog) == len(plain.held)
    assert all_of(backlog) == [plain.popleft() for _ in range(len(plain.held))]


def all_of(backlog: Backlog[int]) -> list[QueueEntry[int]]:
    """Removes and returns all entries, in order."""
    return [backlog.popleft() for _ in range(len(backlog))]
