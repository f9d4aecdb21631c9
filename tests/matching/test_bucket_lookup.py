"""Kernels that find buckets, and estimate how many notifications reach a place."""

from bisect import bisect_right
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.kernels.bucket_lookup import GRAMS_AT_ONCE, LENGTHS_MAX, NOTIFICATIONS_MIN
from contrada.matching.kernels.schema import PENDING, PIVOTS, RANGES_KEPT
from contrada.model.algebra import sets
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    COMPILED_INNER,
    arrays_of,
    generation_of,
    inner,
    loaded,
    module,
    new_index,
    table,
)

hashes = st.integers(0, 2**31 - 1) | st.integers(0, 40).map(lambda n: 2**10 * n + 3)
"""Hashes of places; many of which fall to the same slots of a small table."""


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(known=st.lists(hashes, unique=True, max_size=40), others=st.lists(hashes, max_size=10))
def test_a_bucket_is_found_by_its_hash_alone(known: Any, others: Any, compiled: Any) -> None:
    """A place would lead to the bucket of another, or to none after the table has grown."""
    segment = generation_of([ct.Filter({"a": ct.ops.exists()})], compiled)
    arrays, bucket_of = segment.arrays, inner(compiled).bucket_of
    buckets = {h: arrays.place_bucket(h, 0, 0.5, 0, 0, arrays) >> 2 for h in known}
    assert len(set(buckets.values())) == len(known)
    for h in {*known, *others}:
        assert bucket_of(h, arrays.memory) == buckets.get(h, -1)
    assert [arrays.place_bucket(h, 0, 0.5, 0, 0, arrays) >> 2 for h in known] == [*buckets.values()]


ends = st.tuples(st.sampled_from([2, 4, 5, 6]), st.integers(-(2**62), 2**62) | st.integers(-3, 3))


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(cut_by=st.lists(ends, max_size=2 * PIVOTS), asked=st.lists(ends, max_size=20))
def test_a_bin_is_that_between_two_pivots(cut_by: Any, asked: Any, compiled: Any) -> None:
    """A value would reach another bin than the ranges that hold it."""
    arrays = generation_of([], compiled).arrays
    tree = arrays.take("trees", 2) + 1
    arrays.set_pivots(tree, cut_by)
    first = PIVOTS * tree
    pivots = [tuple(each) for each in table(arrays, "pivots")[first:][: arrays.trees.count[tree]]]
    assert pivots == sorted(set(cut_by))[:: max(1, -(-len(set(cut_by)) // PIVOTS))][:PIVOTS]
    for domain, key in [*asked, *cut_by]:
        expected = bisect_right(pivots, (domain, key))
        assert inner(compiled).bin_of(tree, domain, key, arrays.memory) == expected
        assert arrays.bin_at(tree, (domain, key)) == expected


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(
    filters=st.lists(strategies.filters(), min_size=1, max_size=12),
    notification=strategies.notifications(),
)
def test_matching_filters_are_at_reached_places(
    filters: Any, notification: Any, compiled: Any
) -> None:
    """A filter would be at a place that a matching notification does not reach."""
    segment = generation_of(filters, compiled)
    arrays = segment.arrays
    loaded(segment, notification.span, compiled)
    inner(compiled).seek(arrays.memory)
    listed = (table(arrays, "bucket_list")[: arrays.counters.buckets[0]] >> 1).tolist()
    assert len(set(listed)) == len(listed), "a bucket is looked through twice"
    for slot, each in enumerate(filters):
        if each.matches(notification):
            (number,) = segment.numbers(slot)
            places = segment._chains.values(arrays.filters.place[number])
            assert not set(listed).isdisjoint(places)


@pytest.mark.parametrize("compiled", COMPILED)
def test_buckets_are_skipped_without_an_attribute_that_all_their_filters_need(
    compiled: Any,
) -> None:
    """Each notification would be compared with every filter that needs an attribute it lacks; or a
    filter would be missed that does not need it.
    """
    index = new_index(compiled)
    rare = {n: f"common >= {n} and rare < {n + 40}" for n in range(100)}
    for n, text in rare.items():
        index.add(n, text)
    counters = index._engine._segment.arrays.counters
    assert index.match({"common": 50}) == []
    assert counters.looked[0] == 0
    assert sorted(index.match({"common": 50, "rare": 30})) == [*range(51)]
    assert sorted(index.match({"common": 50, "rare": [30, 45]})) == [*range(51)]
    assert index.match({"common": 50, "rare": []}) == []
    for text in ("common > 40", "common > 40 and rare absent"):
        index.add("common", text)
        assert index.match({"common": 50}) == ["common"]
        index.remove("common")
        assert index.match({"common": 50}) == []
    for n in rare:
        index.remove(n)
    index.add("alone", "common between 40 and 60 and other = 1")
    assert index.match({"common": 50, "other": 1}) == ["alone"]


@pytest.mark.parametrize("compiled", COMPILED_INNER)
def test_ranges_are_above_the_bins_of_their_values(compiled: Any) -> None:
    """A range would be at nodes that a value inside it does not reach."""
    bounds = [(low, low + width) for low in range(0, 64, 4) for width in (0, 1, 9, 30, 64)]
    segment = generation_of([ct.Filter({"x": ct.ops.between(*each)}) for each in bounds], compiled)
    arrays = segment.arrays
    assert arrays.attrs.tree[0] >= 0
    for value in (*range(-1, 130), 2**53 + 1):
        loaded(segment, ct.Notification({"x": value}).span, compiled)
        inner(compiled).seek(arrays.memory)
        listed = {each >> 1 for each in table(arrays, "bucket_list")[: arrays.counters.buckets[0]]}
        for number, (low, high) in enumerate(bounds):
            places = set(segment._chains.values(arrays.filters.place[number]))
            assert low > value or value > high or places & listed, (low, high, value)


@pytest.mark.parametrize("compiled", COMPILED_INNER)
def test_asking_memory_ahead_does_no_harm(compiled: Any) -> None:
    """A row beyond an array's end, which nobody reads, would end the process."""
    memory = generation_of([ct.Filter("a = 1")], compiled).arrays.memory
    for row in (0, -1, 10**6, -(10**6), 2**40):
        assert inner(compiled).prefetched(row, memory) == row


# --- how often ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("count", [1, 30, 1_000, 20_000])
def test_a_sketch_counts_distinct_constants(count: int, compiled: bool) -> None:
    """Places would be chosen by how often constants are asked for, or by a wrong count."""
    index: ct.Index[int] = new_index(compiled)
    arrays = arrays_of(index)._segment.arrays
    row, random, note = (
        arrays.new_sketch(),
        Random(count),
        module("kernels.bucket_lookup", compiled).count,
    )
    constants = [random.getrandbits(31) for _ in range(count)]
    for constant in constants:
        note(row, constant, arrays.memory)
    once = arrays.distinct_count(row)
    for constant in constants:
        note(row, constant, arrays.memory)
    assert arrays.distinct_count(row) == once
    assert 0.7 * count <= once <= 1.3 * count


@pytest.mark.parametrize("compiled", COMPILED)
def test_shares_come_from_enough_statistics(compiled: Any) -> None:
    """The first few notifications would decide where filters hang; or none ever."""
    seeking = module("kernels.bucket_lookup", compiled)
    segment = generation_of([ct.Filter("a = 1"), ct.Filter("b any")], compiled)
    arrays, h = segment.arrays, 12345
    bucket = arrays.place_bucket(h, 0, 0.25, 0, 0, arrays) >> 2
    arrays.counters.seen[0] = arrays.attrs.seen[0] = NOTIFICATIONS_MIN - 1
    arrays.buckets.hits[bucket] = 9
    assert seeking.presence_of(0, arrays.memory) == 0.5
    assert seeking.share(h, 0, 0.25, arrays.memory) == 0.25
    arrays.counters.seen[0], arrays.attrs.seen[0] = 999, NOTIFICATIONS_MIN
    assert seeking.presence_of(0, arrays.memory) == (NOTIFICATIONS_MIN + 1) / 1_000
    assert seeking.share(h, 0, 0.25, arrays.memory) == 10 / (NOTIFICATIONS_MIN + 1)
    assert seeking.share(h + 1, 0, 0.25, arrays.memory) == 0.25, "nobody looked at that place"


@pytest.mark.parametrize("compiled", COMPILED)
def test_every_range_is_as_likely_to_be_remembered(compiled: Any) -> None:
    """The sample that bins are cut by would have only the first ranges, or the last."""
    arrays = generation_of([ct.Filter("a = 1")], compiled).arrays
    keep_range = module("kernels.bucket_lookup", compiled).keep_range
    arrays.attrs.due[0] = 1_000
    for number in range(16 * RANGES_KEPT):
        arrays.give_room(0)
        is_due = keep_range(0, 4, number, 5, number + 1, arrays.filters.begin[0], arrays.memory)
        assert is_due == (number + 1 >= 1_000)
        if number == RANGES_KEPT - 1:
            assert arrays.ends_of(0)[:RANGES_KEPT] == [(4, each) for each in range(RANGES_KEPT)]
    kept = arrays.ends_of(0)
    assert kept[RANGES_KEPT:] == [(5, low + 1) for _, low in kept[:RANGES_KEPT]]
    eighths = Counter(low // (2 * RANGES_KEPT) for _, low in kept[:RANGES_KEPT])
    assert sorted(eighths) == list(range(8))
    assert all(RANGES_KEPT / 16 < each < RANGES_KEPT / 5 for each in eighths.values()), eighths


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("text", "answer", "ranges"),
    [
        ("x = 1", -1, 0),
        ("x > 5", -2, 1),
        ("x > @2026-01-01T00:00:00Z", -2, 1),
        ("x >= 'a' and x < 'bb'", -3, 0),
        ("x contains 'a'", -3, 0),
        ("x > 5 and y contains 'a'", -4, 1),
    ],
)
def test_only_ranges_of_numbers_and_times_are_counted_at_once(
    text: str, answer: int, ranges: int, compiled: Any
) -> None:
    """Ranges would be counted twice, or those that Python looks at be forgotten."""
    segment = generation_of([ct.Filter(text)], compiled)
    arrays = segment.arrays
    arrays.attrs.ranges[0], arrays.attrs.due[0] = 0, 1
    note_ranges = module("kernels.bucket_lookup", compiled).note_ranges
    assert note_ranges(0, arrays.memory) == answer
    assert arrays.attrs.ranges[0] == ranges


@pytest.mark.parametrize("compiled", COMPILED)
def test_no_range_is_counted_before_there_is_room_for_all(compiled: Any) -> None:
    """A range would be written down behind the end of an array, or counted once more."""
    segment = generation_of([ct.Filter("x > 5 and y > 5")], compiled)
    arrays = segment.arrays
    note_ranges = module("kernels.bucket_lookup", compiled).note_ranges
    while (attr := note_ranges(0, arrays.memory)) < 0:
        pass
    assert attr == 0
    assert arrays.attrs.ranges[0] == arrays.attrs.ranges[1] == arrays.attrs.room[0]


@pytest.mark.parametrize("compiled", COMPILED)
def test_ranges_of_removed_filters_are_forgotten(compiled: Any) -> None:
    """Bins would be cut for ranges that were removed long ago."""
    count = 2 * RANGES_KEPT
    segment = generation_of([ct.Filter(f"x > {n}") for n in range(count)], compiled)
    arrays = segment.arrays
    for slot in range(0, count, 2):
        segment.remove(slot)
        segment.add(slot, (ct.Filter("y = 1"),), segment.compiler.programs((ct.Filter("y = 1"),)))
    ends = arrays.ends_of(0)
    assert ends == arrays.ends_of(0)
    lows = [key for domain, key in ends if domain == 4]
    odd = {arrays.words_of(segment.numbers(slot)[0])[1] for slot in range(1, count, 2)}
    assert odd.issuperset(lows[: len(lows) // 2])
    assert arrays.attrs.kept[0] * 2 == len(ends)
    assert 200 < arrays.attrs.kept[0] < 312, "half of them"
    assert arrays.attrs.ranges[0] == count * arrays.attrs.kept[0] // RANGES_KEPT
    for slot in range(1, count, 2):
        segment.remove(slot)
    assert arrays.ends_of(0) == []
    assert arrays.attrs.ranges[0] == 0
    segment.add(1, (ct.Filter("x > 5"),), segment.compiler.programs((ct.Filter("x > 5"),)))
    assert len(arrays.ends_of(0)) == 2


# --- parts of texts -----------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", COMPILED)
def test_more_places_than_are_looked_up_at_once(compiled: Any) -> None:
    """Of a long text, or of many values, places beyond the room for them would be forgotten."""
    index: ct.Index[str] = new_index(compiled)
    filters: dict[str, ct.Filter] = {}
    for size in (3, 4):
        for number in range(2**size):
            part = f"{number:0{size}b}"
            filters[f"has {part}"] = ct.Filter({"text": sets.contains(part)})
    for length in range(1, LENGTHS_MAX + 2):
        filters[f"begins {length}"] = ct.Filter({"name": sets.prefix("x" * length)})
        filters[f"ends {length}"] = ct.Filter({"name": sets.suffix("x" * length, nocase=True)})
    for key, each in filters.items():
        index.add(key, each)
    chance = Random(5)
    long = "".join(chance.choice("01") for _ in range(3 * PENDING))
    assert len(index.match({"text": long})) == 2**3 + 2**4
    names = ["x" * length + str(number) for number in range(60) for length in range(1, 6)]
    assert len(index.match({"name": [*names, long + "X" * 30]})) == 5 + LENGTHS_MAX + 1
    index.validate()


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_substring_is_found_at_any_position(compiled: Any) -> None:
    """Where one run of bytes that is asked for ends and the next begins, it would be missed."""
    index: ct.Index[str] = new_index(compiled)
    for part in ("a", "ab", "abc", "abcd", "abcde"):
        index.add(part, ct.Filter({"text": sets.contains(part)}))
    for before in range(GRAMS_AT_ONCE - 8, GRAMS_AT_ONCE + 8):
        assert len(index.match({"text": "." * before + "abcde" + "." * GRAMS_AT_ONCE})) == 5


def test_a_text_asks_for_the_parts_that_filters_name_alone() -> None:
    """Each prefix of each text would be looked up; or one that a filter names would not be."""
    named = {"prefix": (2, 5, LENGTHS_MAX, LENGTHS_MAX + 3), "suffix": (1, 3, LENGTHS_MAX - 1)}
    filters = [
        ct.Filter({"text": part("x" * length, nocase=nocase)})
        for part, lengths in zip((sets.prefix, sets.suffix), named.values(), strict=True)
        for length in lengths
        for nocase in (False, True)
    ]
    segment = generation_of(filters, compiled=False)
    arrays, lookup = segment.arrays, module("kernels.bucket_lookup")
    for length in (0, 1, 2, 3, 4, 5, LENGTHS_MAX - 1, LENGTHS_MAX, LENGTHS_MAX + 9):
        loaded(segment, ct.Notification({"text": "x" * length}).span, compiled=False)
        for case in (0, 1):
            arrays.counters.asked[0] = 0
            lookup.ask_by_text(0, case, arrays.values.start[0], length, arrays)
            expected = sum(
                part <= length
                for lengths in named.values()
                for part in {min(each, LENGTHS_MAX) for each in lengths}
            )
            assert arrays.counters.asked[0] == expected, (length, case)
