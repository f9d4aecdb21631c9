"""One pattern with parts from several sides, and the state that is handed over."""

import random

import pytest
from msgspec.structs import replace

from contrada.model import Envelope, Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US, key_of
from contrada.patterns.pattern_assembly import GATHERED_FULL, Assembly, Piece
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.reorder_buffer import order_of
from contrada.patterns.runs import PatternLimits, RunBudget
from tests.patterns.streams import pattern, places_of, stream, text_of
from tests.patterns.test_runs import defined, stream_of

Found = list[tuple[int, ...]]


def assembly(it: Pattern, **limits: int) -> Assembly:
    """An assembly with a budget of its own."""
    return Assembly(it, RunBudget(PatternLimits(**limits)))


def hold(to: Assembly, notification: Notification) -> None:
    """Adds a notification at each place with a matching filter."""
    for place in places_of(to.pattern, notification):
        to.hold(place, (notification,))


def advanced(it: Assembly, watermark_us: int) -> Found:
    """The matches up to a watermark, the invariants checked."""
    found = [text_of(run) for _, run in it.advance(watermark_us)]
    it.validate()
    return found


def test_order_is_made_up_to_the_watermark() -> None:
    """Unordered notifications would be assembled as they arrive, or too early."""
    for seed in range(150):
        chance = random.Random(seed)
        it = assembly(pattern(chance))
        notifications = stream(chance, 25)
        slack_us = chance.randint(0, 5)
        arriving = sorted(
            notifications, key=lambda each: order_of(each)[0] + chance.randint(0, slack_us)
        )
        found: Found = []
        for notification in arriving:
            hold(it, notification)
            watermark_us = notification.envelope.at_us - slack_us
            new = advanced(it, watermark_us)
            assert all(notifications[run[-1]].envelope.at_us < it.watermark_us for run in new)
            found += new
        found += advanced(it, 1_000)
        assert sorted(found) == sorted(run for _, run in defined(it.pattern, notifications))


def test_equal_stamps_are_assembled_as_by_one_matcher() -> None:
    """A network would match otherwise than one server."""
    count = 0
    for seed in range(150):
        chance = random.Random(seed)
        it = assembly(pattern(chance))
        stamp = Envelope(publisher="p")
        notifications = [
            each.with_envelope(replace(stamp, time_us=each.envelope.at_us // 3))
            for each in stream(chance, 25)
        ]
        notifications += chance.sample(notifications, 5)
        chance.shuffle(notifications)
        matcher: PatternMatcher[int] = PatternMatcher(slack_us=None)
        matcher.add(0, it.pattern)
        for notification in notifications:
            hold(it, notification)
            matcher.push(notification)
        should = sorted(tuple(map(order_of, each.notifications)) for each in matcher.flush())
        assert sorted(tuple(map(order_of, run)) for _, run in it.advance(1_000)) == should
        count += len(should)
    assert count > 150, "the streams must hold matches"


def test_a_part_is_handed_over_and_back() -> None:
    """A match would be lost or doubled where a part changes hands in the middle of a stream."""
    count = 0
    for seed in range(200):
        chance = random.Random(seed)
        asker = assembly(pattern(chance, parts=chance.randint(3, 5)))
        it = asker.pattern
        first = chance.randrange(len(it.filters) - 1)
        end = chance.randint(first + 2, len(it.filters))
        part = Pattern(it.filters[first:end], by=it.by, within_us=it.within_us, every=True)
        delegate = assembly(part)
        notifications = stream(chance, 36)
        away = range(chance.randrange(18), chance.randrange(18, 36))
        found: Found = []
        for number, notification in enumerate(notifications):
            if number == away.start:
                delegate.begin(asker.watermark_us, asker.take_out(first, end))
            if number == away.stop:
                asker.take_apart(first, end)
                asker.hold_pieces(first, delegate.take_out(0, end - first))
                assert (len(delegate), delegate.validate()) == (0, 0), "the delegate keeps nothing"
            for place in places_of(it, notification):
                if not (number in away and first <= place < end):
                    asker.hold(place, (notification,))
            watermark_us = notification.envelope.at_us - 2
            if number in away:
                hold(delegate, notification)
                for by, run in delegate.advance(watermark_us):
                    asker.hold(first, run, tuple(map(key_of, by)))
            found += [
                text_of(run)
                for _, run in asker.advance(watermark_us, has_all_starts=number not in away)
            ]
            asker.validate()
        found += advanced(asker, 1_000)
        should = sorted(run for _, run in defined(it, notifications))
        assert sorted(found) == should, f"seed {seed}: {it}, {first} to {end}, away {away}"
        count += len(should)
    assert count > 150, "the streams must hold matches"


def test_a_new_assembly_omits_the_matches_of_the_old() -> None:
    """A match would be found twice: by the old and by the new assembly."""
    a0, b1, a2, b3 = stream_of("abab")
    it = assembly(Pattern("kind = 'a' -> kind = 'b'"))
    it.gathers = True
    for notification in (a0, b1, a2, b3):
        hold(it, notification)
    it.gathers = False
    it.begin(a2.envelope.at_us, [Piece(0, None, a0)])
    assert it.is_late(a2.envelope.at_us - 1)
    assert not it.is_late(a2.envelope.at_us)
    assert advanced(it, 100) == [text_of((a0, b3))]


@pytest.mark.parametrize("gathers", [True, False])
def test_too_much_is_dropped_or_forces_the_watermark(gathers: bool) -> None:
    """Memory would have no bound, or more be lost than need."""
    a0, a1, b2 = stream_of("aab")
    budget = RunBudget(PatternLimits(pending_max=2))
    it = Assembly(Pattern("kind = 'a' -> kind = 'b'"), budget)
    it.gathers = gathers
    for notification in (a0, b2, a1):
        hold(it, notification)
    assert it.waiting.forced == 1
    if gathers:
        assert budget.dropped == {GATHERED_FULL: 1}
        assert [each.notification for each in it.take_out(0, 2)] == [a0, a1]
        assert it.watermark_us == TIME_MIN_US
    else:
        assert it.watermark_us == a0.envelope.at_us + 1
        assert advanced(it, 100) == [text_of((a0, b2))]


def test_pieces_say_for_which_group_they_are_needed() -> None:
    """A notification in two groups would open a run in both where only one has it."""
    [a0] = stream_of("a")
    both = Notification({"kind": "a", "host": [1, 2]}, envelope=a0.envelope)
    it = assembly(Pattern("kind = 'a' -> kind = 'b' by host"))
    it.hold(0, (both,))
    assert it.take_out(0, 2) == (Piece(0, None, both),)
    it.hold(0, (both,))
    assert it.advance(100) == []
    pieces = it.take_out(0, 1)
    assert pieces == (), "runs that wait at the second place are not of the first"
    pieces = it.take_out(0, 2)
    assert pieces == (Piece(0, (1,), both), Piece(0, (2,), both))
    other = assembly(it.pattern)
    other.hold_pieces(0, pieces[:1])
    other.advance(100)
    assert [each.by for each in other.take_out(0, 2)] == [(1,)]
    other.hold_pieces(0, pieces)
    other.clear()
    assert (len(other), other.validate()) == (0, 0)
