"""Runs in arrays give the results of the engine of objects, batch by batch."""

import random
from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError
from contrada.model import Envelope, Filter, Notification, Pattern
from contrada.model.codec import to_msgpack
from contrada.model.domains.values import TEXT
from contrada.patterns.array_runs import FORCED, ArrayRuns, StepIndex, group_name, packed_order
from contrada.patterns.pattern_engine import DUPLICATE, LATE, PatternMatcher
from contrada.patterns.runs import (
    DEFAULT_LIMITS,
    GROUP_FULL,
    PATTERN_FULL,
    TABLE_FULL,
    PatternLimits,
    RunBudget,
)

FILTERS: Final = tuple(
    map(
        Filter,
        ("kind = 'a'", "kind = 'b'", "kind = 'c'", "kind in ('a', 'b')", "level > 1", "level < 3"),
    )
)
HOSTS: Final = (None, 1, 1.0, 2, -0.0, float("nan"), "x", b"x", b"\xff", True, [1, 2], ["x", 1.0])
BY: Final = ((), ("host",), ("host",), ("zone", "host"), ("@publisher",))
Result = Counter[tuple[int, bytes, tuple[bytes, ...]]]


def made_patterns(chance: random.Random) -> list[Pattern]:
    """Patterns of few different filters, so that they are shared and overlap."""
    return [
        Pattern(
            chance.choices(FILTERS, k=chance.choice((2, 2, 3, 3, 4))),
            by=chance.choice(BY),
            within_us=chance.choice((None, 0, 1, 3, 8)),
            every=chance.random() < 0.4,
        )
        for _ in range(chance.choice((1, 1, 2, 5)))
    ]


def made_batches(chance: random.Random) -> list[list[Notification]]:
    """Batches around an advancing time: ties, duplicates, late ones."""
    now_us, batches = chance.choice((0, -5, 10**12)), []
    for _ in range(chance.randint(1, 5)):
        batch: list[Notification] = []
        for _ in range(chance.choice((0, 3, 10, 40))):
            now_us += chance.choice((0, 0, 0, 1, 1, 2))
            if batch and chance.random() < 0.1:
                batch.append(chance.choice(batch))
                continue
            attributes: dict[str, object] = {"kind": chance.choice("abc")}
            attributes["level"] = chance.randrange(4)
            if (host := chance.choice(HOSTS)) is not None:
                attributes["host"] = host
            if chance.random() < 0.9:
                attributes["zone"] = chance.choice(("e", "w", ["e", "w"]))
            envelope = Envelope(
                publisher=chance.choice(("", "p", "q")),
                sequence=chance.choice((0, 0, 1)),
                time_us=now_us - chance.choice((0, 0, 0, 1, 4)),
            )
            batch.append(Notification(attributes, envelope=envelope))
        batches.append(batch)
    return batches


def watermark_of(batches: list[list[Notification]], slack_us: int) -> int:
    """The largest timestamp seen less the slack."""
    times = [each.envelope.at_us for batch in batches for each in batch]
    return max(times, default=0) - slack_us


class Arrays:
    """Runs in arrays, which are written down and taken up again after each batch."""

    def __init__(
        self, patterns: list[Pattern], limits: PatternLimits = DEFAULT_LIMITS, *, again: bool = True
    ) -> None:
        self.patterns, self.limits, self.again = patterns, limits, again
        self.budget = RunBudget(limits)
        self.index = StepIndex(patterns)
        self.runs = ArrayRuns(patterns, packed_order, limits)

    def advance(self, batch: list[Notification], watermark_us: int) -> Result:
        """The results of a batch."""
        found: Result = Counter()
        rows = self.index.rows_of(batch, self.budget)
        for number, each in enumerate(rows):
            is_last = number == len(rows) - 1
            found += self.named(each, watermark_us if is_last else self.runs.watermark_us)
        if self.again:
            saved = self.runs.save()
            self.runs = ArrayRuns(self.patterns, packed_order, self.limits)
            self.runs.restore(saved)
            assert self.runs.save() == saved
        return found

    def named(self, rows, watermark_us: int) -> Result:  # type: ignore[no-untyped-def]
        """The results of rows, by pattern, group and notifications."""
        found = self.runs.advance(rows, watermark_us)
        packed, names = list(found.packed.each()), list(found.group_names.each())
        times = dict(zip(packed, found.times.tolist(), strict=True))
        result: Result = Counter()
        for number, pattern in enumerate(found.patterns.tolist()):
            of = found.rows[found.begins[number] : found.begins[number + 1]].tolist()
            run = tuple(packed[row] for row in of)
            assert [times[each] for each in run] == sorted(times[each] for each in run)
            result[pattern, names[found.groups[number]], run] += 1
        return result


class Objects:
    """The engine of objects, with the watermark after each batch."""

    def __init__(self, patterns: list[Pattern], limits: PatternLimits = DEFAULT_LIMITS) -> None:
        self.patterns = patterns
        self.matcher: PatternMatcher[int] = PatternMatcher(slack_us=None, limits=limits)
        for number, pattern in enumerate(patterns):
            self.matcher.add(number, pattern)

    def advance(self, batch: list[Notification], watermark_us: int) -> Result:
        """The results of a batch."""
        matches = [match for each in batch for match in self.matcher.push(each)]
        matches += self.matcher.advance(watermark_us)
        found: Result = Counter()
        for match in matches:
            keys = tuple(Notification({"a": value}).keys_of("a")[0] for value in match.by)
            name = group_name(self.patterns[match.key].by, keys)
            found[match.key, name, tuple(map(to_msgpack, match.notifications))] += 1
        return found


@given(st.integers(0, 2**32), st.sampled_from((0, 1, 4, 100)))
def test_batches_give_the_results_of_the_engine(seed: int, slack_us: int) -> None:
    """Matches would be others: by ties, duplicates, lateness, spans, groups of any values."""
    chance = random.Random(seed)
    patterns, batches = made_patterns(chance), made_batches(chance)
    arrays, objects = Arrays(patterns), Objects(patterns)
    for number, batch in enumerate(batches):
        watermark_us = watermark_of(batches[: number + 1], slack_us)
        assert arrays.advance(batch, watermark_us) == objects.advance(batch, watermark_us)
    end_us = watermark_of(batches, -1)
    assert arrays.advance([], end_us) == objects.advance([], end_us)
    assert arrays.runs.counts()["pending"] == 0


def stream(times: list[int], attributes: dict[str, object]) -> list[Notification]:
    """Notifications that are alike but for their times."""
    return [
        Notification(attributes, envelope=Envelope(sequence=number, time_us=time_us))
        for number, time_us in enumerate(times)
    ]


EVERY: Final = Pattern("every kind = 'a' -> kind = 'b'")


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_runs_of_a_group_are_bounded_as_the_engine_bounds_them(seed: int, most: int) -> None:
    """A full group would lose other runs than the engine drops, or count them otherwise."""
    chance, limits = random.Random(seed), PatternLimits(runs_per_group_max=most)
    patterns, batches = made_patterns(chance)[:1], made_batches(chance)
    arrays, objects = Arrays(patterns, limits), Objects(patterns, limits)
    for number, batch in enumerate(batches):
        watermark_us = watermark_of(batches[: number + 1], 0)
        assert arrays.advance(batch, watermark_us) == objects.advance(batch, watermark_us)
    dropped = objects.matcher.statistics().dropped
    assert arrays.runs.dropped[GROUP_FULL] == dropped.get(GROUP_FULL, 0)


def test_many_runs_of_a_group_go_through_a_bounded_table() -> None:
    """The table of a group would overflow with many short runs, or lose the newest."""
    arrays = Arrays([EVERY], PatternLimits(runs_per_group_max=4))
    assert not arrays.advance(stream(list(range(50)), {"kind": "a"}), 100)
    assert arrays.runs.dropped[GROUP_FULL] == 46
    assert arrays.runs.counts()["runs"] == 4
    assert sum(arrays.advance(stream([200], {"kind": "b"}), 300).values()) == 4


def test_late_ones_and_duplicates_are_counted() -> None:
    """Notifications would be lost without a count."""
    arrays = Arrays([EVERY])
    assert not arrays.advance(stream([5], {"kind": "a"}) * 2, 10)
    assert not arrays.advance(stream([9], {"kind": "b"}), 10)
    assert arrays.runs.dropped == {DUPLICATE: 1, LATE: 1}


def test_the_buffer_is_bounded() -> None:
    """The queue for the watermark would grow without end."""
    arrays = Arrays([EVERY], PatternLimits(pending_max=3))
    arrays.advance(stream([1, 2, 2, 3, 4, 5], {"kind": "a"}), 0)
    assert arrays.runs.counts()["pending"] == 3
    assert arrays.runs.watermark_us == 3
    assert arrays.runs.dropped == {FORCED: 1}


def test_groups_and_all_runs_are_bounded_after_a_batch() -> None:
    """State would grow with the number of groups; or others than the oldest would be dropped."""
    pattern = Pattern("kind = 'a' -> kind = 'b' by host")
    for limit, reason in (
        (PatternLimits(groups_per_pattern_max=2), PATTERN_FULL),
        (PatternLimits(runs_max=2), TABLE_FULL),
    ):
        arrays = Arrays([pattern], limit)
        batch = [stream([time], {"kind": "a", "host": host})[0] for time, host in enumerate("wxyz")]
        arrays.advance(batch, 10)
        assert arrays.runs.dropped == {reason: 2}
        ends = [stream([20], {"kind": "b", "host": host})[0] for host in "wxyz"]
        groups = {name for _, name, _ in arrays.advance(ends, 30)}
        assert groups == {group_name(("host",), ((TEXT, host),)) for host in (b"y", b"z")}


def test_a_saved_state_is_taken_up_only_by_the_same_patterns() -> None:
    """Runs of one pattern would continue as those of another."""
    saved = Arrays([EVERY]).runs.save()
    with pytest.raises(EncodingError, match="other patterns"):
        ArrayRuns([EVERY, EVERY], packed_order).restore(saved)
    for broken in (b"", saved[:-40], b"x" * 100):
        with pytest.raises(EncodingError, match="no saved state"):
            ArrayRuns([EVERY], packed_order).restore(broken)
