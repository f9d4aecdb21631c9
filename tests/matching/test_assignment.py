"""Places of filters, their moves from bad places, and the statistics behind them."""

from random import Random
from typing import Any

import numpy as np
import pytest

import contrada as ct
from contrada.matching.access_predicates import places_of
from contrada.matching.assignment import REASSIGNED_AT_ONCE
from contrada.matching.index_limits import IndexLimits
from tests.matching.engines import COMPILED, arrays_of, generation_of, module, new_index, table


def filters(random: Random, key: int) -> ct.Filter:
    """Filters on a kind and an owner, of which there are ten, and on a value that all but one
    have.
    """
    kind, owner = f"k{random.randrange(10)}", f"o{random.randrange(10)}"
    return ct.Filter({"kind": kind, "owner": owner, "number": ct.ops.none_of(key)})


def looked_at(index: ct.Index[int], notifications: list[dict[str, str]]) -> float:
    """Filters looked at per notification."""
    total = 0
    for notification in notifications:
        index.match(notification)
        total += arrays_of(index)._segment.arrays.counters.looked[0]
    return total / len(notifications)


FILTERS = {False: 300, True: 2_000}
"""How many a test hangs: fewer where kernels are plain Python."""


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_places_follow_the_published_notifications(compiled: bool) -> None:
    """Filters would stay where they were hung before anything was known of notifications."""
    fewest = module("kernels.bucket_lookup", compiled).NOTIFICATIONS_MIN
    limits = IndexLimits(
        fading_after=500 if compiled else fewest,
        seen_min=512 if compiled else fewest,
        looked_min=64 if compiled else 5,
        looked_between=0,
    )
    random = Random(5)
    index: ct.Index[int] = new_index(compiled, limits)
    for key in range(FILTERS[compiled]):
        index.add(key, filters(random, key))
    size = 2 * limits.fading_after
    by_kind = [{"kind": "k1", "owner": f"o{random.randrange(10)}"} for _ in range(2 * size)]
    before = looked_at(index, by_kind[: limits.seen_min])
    looked_at(index, by_kind)
    after = looked_at(index, by_kind[:size])
    assert after < before / 2
    by_owner = [{"kind": each["owner"].replace("o", "k"), "owner": "o1"} for each in by_kind]
    before = looked_at(index, by_owner[:size])
    for _ in range(3):
        looked_at(index, by_owner)
    assert looked_at(index, by_owner[:size]) < before / 2
    index.validate()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_good_places_are_kept(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters would be hung anew again and again for nothing."""
    limits = IndexLimits(
        looked_between=0,
        looked_min=64 if compiled else 10,
        patience_max=4_096 if compiled else 1_024,
    )
    random = Random(6)
    index: ct.Index[int] = new_index(compiled, limits)
    for key in range(FILTERS[compiled]):
        index.add(key, ct.Filter({"kind": f"k{key % 10}", "id": ct.ops.none_of(key)}))
    asked: list[int] = []
    drift = module("assignment", compiled)
    reassign = drift.Assignment.reassign

    def counted(assignment: Any, bucket: int, place: int) -> bool:
        asked.append(place)
        return bool(reassign(assignment, bucket, place))

    monkeypatch.setattr(drift.Assignment, "reassign", counted)
    first = arrays_of(index)._segment
    for _ in range(limits.patience_max):
        index.match({"kind": f"k{random.randrange(10)}", "id": -1})
        assert not index.maintain(8)
    assert arrays_of(index)._segment is first
    assert 0 < len(asked) <= REASSIGNED_AT_ONCE * (limits.patience_max.bit_length() + 1)


def test_statistics_count_after_fading() -> None:
    """Filters would be moved by chance, by statistics of a short time."""
    assert IndexLimits().fading_after >= module("kernels.bucket_lookup").NOTIFICATIONS_MIN


def test_renewal_moves_filters_to_places_that_are_seldom_visited() -> None:
    """The statistics would not change the places of filters."""
    index: ct.Index[int] = new_index(False)
    for key in range(200):
        index.add(key, ct.Filter({"common": key % 100, "rare": key % 50}))
    before = hanging_on(index, "common", 0, 1)
    for number in range(1000):
        index.match({"common": number % 2, "rare": -number})
    index.renew()
    assert hanging_on(index, "common", 0, 1) < before
    assert sorted(index.match({"common": 7, "rare": 7})) == [7, 107]


def hanging_on(index: Any, name: str, *values: int) -> int:
    """How many filters hang on an attribute's values, or on some of them."""
    segment = arrays_of(index)._segment
    attr = segment.compiler.attrs[name]
    places = [
        places_of(segment.arrays.seed[0], attr, ct.ops.eq(value)) for value in values or range(100)
    ]
    hashes = {place.hash for each in places if each for place in each}
    buckets = table(segment.arrays, "buckets")
    return int(buckets["length"][np.isin(buckets["hash"], list(hashes))].sum())


LIMITS = IndexLimits()


class Counted:
    """A `Assignment` of which only the counters matter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, moves: list[bool]) -> None:
        self.segment = generation_of([ct.Filter("a = 1")], False)
        self.arrays = self.segment.arrays
        self.faded = 0
        self.moving: dict[int, int] = {}
        self.moves = moves
        monkeypatch.setattr(self.arrays, "fade", self._fade)

    def _fade(self) -> None:
        self.faded += 1

    def busiest_bucket(self) -> int:
        return 0

    def reassign(self, bucket: int, place: int) -> bool:
        return self.moves.pop(0)


def waits(
    assignment: Counted, turns: int, looked: int, seen: int, limits: IndexLimits = LIMITS
) -> list[int]:
    """The matches until the next attempt, after each of some turns."""
    drift, counters = module("assignment").Drift(limits), assignment.arrays.counters
    counters.looked[0], counters.seen[0] = looked, seen
    found = []
    for _ in range(turns):
        drift.improve(assignment)
        found.append(counters.due[0] - counters.matched[0])
    return found


def test_attempts_become_rarer_while_none_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matching would take twice as long where nothing can be gained; or never try again."""
    limits = IndexLimits(looked_between=0)
    none = Counted(monkeypatch, [False] * 100)
    expected = [min(2**n, limits.patience_max) for n in range(1, 16)]
    assert waits(none, 15, limits.looked_min, limits.seen_min, limits) == expected
    assert none.faded == 0
    some = Counted(monkeypatch, [False] * 6 + [False, True] + [False] * 2)
    assert waits(some, 5, limits.looked_min, limits.seen_min, limits) == [2, 4, 8, 1, 2]


def test_attempts_are_rarer_the_fewer_a_match_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time of short matches would be spent on moves of filters."""
    few = Counted(monkeypatch, [])
    assert waits(few, 1, LIMITS.looked_min - 1, LIMITS.seen_min) == [LIMITS.matches_between]
    assert waits(few, 1, LIMITS.looked_min, LIMITS.seen_min - 1) == [LIMITS.matches_between]
    for looked in (LIMITS.looked_min, 10 * LIMITS.looked_min):
        one = Counted(monkeypatch, [False] * 2)
        assert waits(one, 1, looked, LIMITS.seen_min) == [LIMITS.looked_between // looked]
    old = Counted(monkeypatch, [False] * 2)
    waits(old, 1, LIMITS.looked_min, 2 * LIMITS.fading_after + 1)
    assert old.faded == 1


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_filter_moves_only_where_that_is_worth_it(compiled: Any) -> None:
    """A filter would move back and forth between places that are equally good."""
    segment = generation_of([ct.Filter({"a": 1, "b": 2}), ct.Filter({"a": 5})], compiled)
    arrays, assignment = segment.arrays, segment.assignment
    bucket = arrays.filters.place[0]
    arrays.counters.seen[0] = arrays.attrs.seen[0] = arrays.attrs.seen[1] = 10_000
    arrays.buckets.hits[bucket] = 10
    assert not assignment.reassign(bucket, 0), "few notifications come by"
    hung_on = arrays.buckets.of_attr[bucket]
    other = arrays.place_bucket(4242, 1 - hung_on, 0.5, 0, 0, arrays) >> 2
    assert arrays.buckets.hits[other] == 5_000
    arrays.buckets.hits[bucket] = 9_000
    assert assignment.reassign(bucket, 7), "any number says which"
    assert arrays.filters.place[0] != bucket
    assert assignment.filters_in(bucket) == []
    assert not assignment.reassign(bucket, 0), "a bucket that is empty"
    segment.validate([0, 1])


def told(array: str, field: str, row: Any, value: int) -> Any:
    """Writes a number into the arrays, at the given row."""

    def write(arrays: Any) -> None:
        table(arrays, array)[field][row(arrays)] = value

    return write


@pytest.mark.parametrize(
    "broken",
    [
        told("buckets", "length", lambda arrays: arrays.filters.place[0], 0),
        told("filters", "at", lambda arrays: 0, 1),
        told("filters", "place", lambda arrays: 0, 0),
        told("entries", "here", lambda arrays: arrays.buckets.start[arrays.filters.place[0]], 9),
    ],
)
def test_validate_finds_wrong_places(broken: Any) -> None:
    """`validate` would pass over a filter that no notification finds."""
    segment = generation_of([ct.Filter("a = 1"), ct.Filter("a = 2")], False)
    segment.assignment.validate([0, 1])
    broken(segment.arrays)
    with pytest.raises((AssertionError, IndexError)):
        segment.assignment.validate([0, 1])
