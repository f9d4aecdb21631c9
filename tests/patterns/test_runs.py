"""The table of runs: the definition, fed singly or by chains, within its limits."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from contrada.errors import InvalidValueError
from contrada.model import Notification, Pattern
from contrada.patterns import runs as module
from contrada.patterns.runs import (
    Group,
    PatternLimits,
    Run,
    RunBudget,
    Runs,
    SharedFilter,
    groups_of,
)
from tests.patterns.pattern_definition import groups_of as defined_groups
from tests.patterns.pattern_definition import matches_of
from tests.patterns.streams import pattern, places_of, stream, text_of

Found = list[tuple[Group, tuple[int, ...]]]


def defined(it: Pattern, notifications: Sequence[Notification]) -> Found:
    """The matches by the definition, by group."""
    found = []
    for group in sorted({each for n in notifications for each in defined_groups(n, it)}):
        members = [n for n in notifications if group in defined_groups(n, it)]
        found += [(group, text_of(run)) for run in matches_of(members, it)]
    return sorted(found)


def fed_singly(it: Pattern, notifications: Sequence[Notification], table: Runs) -> Found:
    """The matches of a table that gets each notification with its places, for each group."""
    found = []
    for notification in notifications:
        places = places_of(it, notification)
        for group in groups_of(notification, it.by, table._budget) if places else ():
            matches = table.take(group, places, (notification,))
            found += [(group, text_of(match)) for match in matches]
        table.validate()
    return sorted(found)


@pytest.mark.parametrize("shared", [True, False], ids=["one buffer", "several sides"])
def test_it_is_the_definition(shared: bool) -> None:
    """A match would be missed or invented."""
    count = 0
    for seed in range(200):
        chance = random.Random(seed)
        it = pattern(chance)
        notifications = stream(chance, 30)
        filters = [SharedFilter(part, n) for n, part in enumerate(it.filters)] if shared else []
        budget = RunBudget(PatternLimits())
        table = Runs(it, budget, filters=filters)
        should = defined(it, notifications)
        assert fed_singly(it, notifications, table) == should, f"seed {seed}: {it}"
        assert table.validate() == budget.held
        table.clear()
        assert (budget.held, len(table)) == (0, 0)
        assert not any(each.starts or each.waiting for each in filters), "somebody waits still"
        count += len(should)
    assert count > 200, "the streams must hold matches"


def test_chains_are_as_good_as_single_notifications() -> None:
    """A match would hang on which server has assembled a part of it."""
    count = 0
    for seed in range(300):
        chance = random.Random(seed)
        it = pattern(chance, parts=chance.randint(3, 5))
        first = chance.randrange(len(it.filters) - 1)
        end = chance.randint(first + 2, len(it.filters))
        notifications = stream(chance, 30)
        part = Pattern(it.filters[first:end], by=it.by, within_us=it.within_us, every=True)
        budget = RunBudget(PatternLimits())
        delegate, table = Runs(part, budget), Runs(it, budget)
        found: Found = []
        for notification in notifications:
            alone: Run = (notification,)
            arrived = [(place, alone) for place in places_of(it, notification)]
            for group in groups_of(notification, it.by, budget):
                reported = [
                    (first, chain)
                    for place in places_of(part, notification)
                    for chain in delegate.take(group, (place,), alone)
                ]
                singles = [each for each in arrived if not first <= each[0] < end]
                for place, chain in sorted(reported + singles, key=lambda each: -each[0]):
                    matches = table.take(group, (place,), chain)
                    found += [(group, text_of(match)) for match in matches]
            table.validate()
        should = defined(it, notifications)
        assert sorted(found) == should, f"seed {seed}: {it}, places {first} to {end}"
        count += len(should)
    assert count > 200, "the streams must hold matches"


def test_runs_rolled_back_can_be_taken_again() -> None:
    """A pattern that changes hands would lose its runs, or find matches twice."""
    for seed in range(200):
        chance = random.Random(seed)
        it = pattern(chance)
        notifications = stream(chance, 30)
        budget = RunBudget(PatternLimits())
        table = Runs(it, budget)
        half = chance.randrange(30)
        found = fed_singly(it, notifications[:half], table)
        first = chance.randrange(len(it.filters))
        pieces = {
            (place, group, text_of((n,))): (place, group, n)
            for place, group, n in table.roll_back(first, len(it.filters))
        }
        assert table.validate() == budget.held
        for place, group, notification in sorted(
            pieces.values(), key=lambda each: (*text_of((each[2],)), -each[0])
        ):
            assert not table.take(group, (place,), (notification,)), "a match was found twice"
        found += fed_singly(it, notifications[half:], table)
        assert sorted(found) == defined(it, notifications), f"seed {seed}: {it} at {half}"


def test_duplicates_count_once() -> None:
    """A notification would match with itself during a hand-over."""
    it = Pattern("every kind = 'a' -> kind = 'a'")
    a0, a1 = stream_of("aa")
    table = Runs(it, RunBudget(PatternLimits()))
    assert table.take((), (1, 0), (a0,)) == ()
    assert table.take((), (1, 0), (a0,)) == ()
    assert table.validate() == 1
    assert list(table.take((), (1, 0), (a1,))) == [(a0, a1)]
    assert table.take((), (1, 0), (a1,)) == ()
    assert table.validate() == 1


def stream_of(kinds: str) -> list[Notification]:
    """Notifications of these kinds, one after another."""
    chance = random.Random(0)
    made = stream(chance, len(kinds))
    return [
        Notification({"kind": kind, "host": 1}, envelope=each.envelope)
        for kind, each in zip(kinds, made, strict=True)
    ]


def test_a_start_before_the_end_of_a_match_is_void() -> None:
    """Matches of one run at a time would overlap, where a delegate reports a start late."""
    it = Pattern("kind = 'a' -> kind = 'b' -> kind = 'c'")
    a0, a1, b2, c3, b4, c5 = stream_of("aabcbc")
    table = Runs(it, RunBudget(PatternLimits()))
    assert table.take((), (0,), (a0,)) == ()
    assert table.take((), (1,), (b2,)) == ()
    assert list(table.take((), (2,), (c3,))) == [(a0, b2, c3)]
    assert table.take((), (0,), (a1, b4)) == ()
    assert table.take((), (2,), (c5,)) == (), "it began before the match had ended"
    table.forget_ends(c3.envelope.at_us + 1)
    assert table.take((), (0,), (a1, b4, c5)) == ((a1, b4, c5),), "nothing is remembered any more"


def test_a_forgotten_end_voids_possibly_earlier_starts() -> None:
    """A table of ends without bound, or a match that overlaps with one before."""
    it = Pattern("kind = 'a' -> kind = 'b' by host")
    budget = RunBudget(PatternLimits(groups_per_pattern_max=1))
    table = Runs(it, budget)
    a0, b1, a2, b3 = stream_of("abab")
    one, two = groups_of(a0, ("host",), budget)[0], ((), ())
    assert table.take(one, (0,), (a0, b1)) == ((a0, b1),)
    assert table.take(two, (0,), (a2, b3)) == ((a2, b3),)  # type: ignore[arg-type]
    assert table.take(one, (0,), (a2, b3)) == ((a2, b3),), "it begins after what is forgotten"
    assert table.take(two, (0,), (a0, b1)) == ()  # type: ignore[arg-type]
    assert budget.dropped == {module.ENDS_FULL: 1}


@pytest.mark.parametrize(
    ("limits", "reason", "starts"),
    [
        (PatternLimits(runs_per_group_max=2), module.GROUP_FULL, "aaa"),
        (PatternLimits(groups_per_pattern_max=1), module.PATTERN_FULL, "ax"),
        (PatternLimits(runs_max=2), module.TABLE_FULL, "aaa"),
    ],
)
def test_a_full_table_drops_the_oldest_or_refuses_the_newest(
    limits: PatternLimits, reason: str, starts: str
) -> None:
    """Memory would have no bound, or a delegate lose runs that its requester relies on."""
    it = Pattern("every kind = 'a' -> kind = 'b' by host")
    for refuses in (False, True):
        budget = RunBudget(limits)
        table = Runs(it, budget, refuses=refuses)
        notifications = stream_of("a" * len(starts))
        groups = [groups_of(notifications[0], ("host",), budget)[0], ((9, 9),)]
        for kind, notification in zip(starts, notifications, strict=True):
            table.take(groups[kind == "x"], (0,), (notification,))
        assert budget.dropped == Counter({module.REFUSED if refuses else reason: 1})
        assert table.full == refuses
        stages = [each for group in table._groups.values() for each in group.values()]
        kept = [run[0] for runs in stages for run in runs]
        assert kept == (notifications[:-1] if refuses else notifications[1:])


def test_time_frees_whole_groups() -> None:
    """Groups that are never touched again would fill the memory, or be freed too early."""
    it = Pattern("kind = 'a' -> kind = 'b' within 5 us")
    budget = RunBudget(PatternLimits())
    table = Runs(it, budget)
    a0, a1 = stream_of("aa")
    table.take((), (0,), (a0,))
    table.take((), (0,), (a1,))
    last_us = a1.envelope.at_us + 5
    assert table.deadline_us == last_us
    table.expire(last_us)
    assert budget.held == 2
    table.expire(last_us + 1)
    assert (budget.held, len(table)) == (0, 0)
    empty = table.deadline_us
    assert empty is None


def test_groups_are_every_combination_up_to_the_limit() -> None:
    """A notification would miss a group, or one with many values stop the matcher."""
    both = Notification({"host": [1, 2], "zone": ["e", "w"]})
    budget = RunBudget(PatternLimits(combinations_max=3))
    assert groups_of(both, (), budget) == [()]
    assert groups_of(both, ("host", "no"), budget) == []
    assert len(groups_of(both, ("host", "zone"), budget)) == 3
    assert budget.dropped == {module.COMBINATIONS: 1}
    full = RunBudget(PatternLimits())
    by = ("host", "zone")
    assert groups_of(both, by, full) == defined_groups(
        both, Pattern("a = 1 -> b = 1 by host, zone")
    )


def test_limits_are_numbers_from_one() -> None:
    """A table of no room would lose everything in silence."""
    with pytest.raises(InvalidValueError):
        PatternLimits(runs_per_group_max=0)
    with pytest.raises(InvalidValueError):
        PatternLimits(pending_max=True)
