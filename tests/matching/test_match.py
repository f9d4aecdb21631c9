"""Kernels that match: guards, chains of keys, repeated keys, many candidates at once."""

from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.kernels.match import ENTRIES_AT_ONCE
from contrada.matching.kernels.schema import (
    DECIDED_ALONE,
    GUARD_ATTR,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    NEED_OUT,
    OK,
    PENDING,
    UNREADABLE,
)
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    COMPILED_INNER,
    arrays_of,
    generation_of,
    inner,
    loaded,
    loaded_index,
    module,
    new_index,
    table,
)

MAY_PASS = 1


def guards_of(segment: Any, number: int) -> list[list[tuple[int, int, int]]]:
    """The guards of each entry of a filter."""
    arrays, assignment = segment.arrays, segment.assignment
    place, at = arrays.filters.place[number], arrays.filters.at[number]
    entries = arrays.entries
    found = []
    for bucket, which in assignment._chains.places(place, at):
        i = arrays.buckets.start[bucket] + which
        assert entries.filter[i] == number
        first = entries.guard[i], entries.low[i], entries.high[i]
        found.append([first, (entries.second[i], entries.second_low[i], entries.second_high[i])])
    return found


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(of=strategies.filters(strategies.value_sets(2)), notification=strategies.notifications())
def test_guards_never_reject_passing_values(of: Any, notification: Any, compiled: Any) -> None:
    """A filter would be missed, or match by its guards alone although it must not."""
    segment = generation_of([of], compiled)
    arrays, guard_passes = segment.arrays, inner(compiled).guard_passes
    assert loaded(segment, notification.span, compiled) == OK
    matches, is_exact = of.matches(notification), not arrays.counters.inexact[0]
    for guards in guards_of(segment, 0):
        answers = [guard_passes(*guard, arrays.memory) for guard in guards]
        if matches:
            assert all(each & MAY_PASS and each >> 1 for each in answers)
        may = all(each & MAY_PASS for each in answers)
        sure = all(each >> 1 == 2 for each in answers)
        if guards[0][0] & DECIDED_ALONE and is_exact and may and sure:
            assert matches


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x between 1 and 9", 5, 2),
        ("x between 1 and 9", 10**6, 0),
        ("x between 1 and 9", 9.00000001, 1),
        ("x between 1 and 9", 1, 1),
        ("x between 1 and 9", [0.5, 20], 1),
        ("x = 1", 1, 1),  # half a key is not all of it
        ("x = 'abc'", "abc", 1),
        ("x = 'abc'", "abd", 0),
        ("x != 5", 6, 2),
        ("x != 5", 5, 1),
        ("x != 5", "text", 0),
        ("x != 5", float("nan"), 1),
        ("x matches /a+b/", "ab", 1),
        ("x != 'a'", "b", 2),
        ("x contains 'a'", "bab", 2),
        ("x contains 'a'", "bbb", 0),
        ("x between 1 and 9", (), 0),
        ("x != 5", (), 0),
        ("x > 'a'", "b", 1),
        ("x > 'a'", ["b", "c"], 1),
        ("x > 'a'", 5, 0),
        ("x > 'a'", (), 0),
    ],
)
def test_a_guard_tells_all_that_32_bits_can(
    text: str, value: Any, expected: int, compiled: Any
) -> None:
    """Most candidates would be looked up in their programs; answers would stay right."""
    segment = generation_of([ct.Filter(text)], compiled)
    arrays = segment.arrays
    segment.assignment.unassign(0)
    assert arrays.hang(0, 0, -1, by_value=False, alone=True) == 0
    at = arrays.buckets.start[0]
    loaded(segment, ct.Notification({"x": value}).span, compiled)
    guard = arrays.entries.guard[at], arrays.entries.low[at], arrays.entries.high[at]
    answer = inner(compiled).guard_passes(*guard, arrays.memory)
    assert (answer >> 1 if answer & MAY_PASS else 0) == expected
    assert arrays.entries.second[at] >> GUARD_KIND_SHIFT == GUARD_NONE


@pytest.mark.parametrize("compiled", COMPILED)
def test_guards_of_absent_attributes_reject(compiled: bool, tmp_path: Path) -> None:
    """Filters would be looked up in vain, if their attribute was in an earlier notification only,
    or in none of this process.
    """
    index = new_index(compiled)
    for number in range(40):
        index.add(number, ct.Filter(f"a = 1 and n{number} between -1 and 1"))
    index.save(tmp_path / "index")
    for each in (index, loaded_index(tmp_path / "index", compiled)):
        engine = arrays_of(each)
        cases: Any = (({}, []), ({"n3": 0, "n5": 0.5}, [3, 5]), ({}, []))
        for notification, found in cases:
            assert sorted(each.match({"a": 1, **notification})) == found
            assert engine._segment.arrays.counters.looked[0] == 40
            assert engine._segment.arrays.counters.candidates[0] == len(found)


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_guard_of_the_rarer_attribute_is_first(compiled: bool) -> None:
    """Most candidates would be rejected by the second guard only."""
    segment = generation_of([ct.Filter(f"b > {n}") for n in range(3)], compiled)
    attrs, arrays = segment.compiler.attrs, segment.arrays
    for number, seen, expected in ((3, 0, ["c", "b"]), (4, 9, ["b", "c"])):
        arrays.attrs.seen[attrs.get("c", 0)] = seen  # Notifications count, too.
        members = (ct.Filter(f"a = 1 and b > {number} and c > 1"),)
        segment.add(number, members, segment.compiler.programs(members))
        (guards,) = guards_of(segment, number)
        assert [guard & GUARD_ATTR for guard, _, _ in guards] == [attrs[name] for name in expected]


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(chains=st.lists(st.integers(2, 6), max_size=12))
def test_chains_are_followed_to_their_ends(chains: Any, compiled: Any) -> None:
    """Of filters with several keys, some would get nothing, or another filter's notifications."""
    segment = generation_of([], compiled)
    arrays, numbers = segment.arrays, iter(range(1_000))
    listed = []
    for end, length in enumerate(chains):
        head = module("index_arrays").EMPTY
        for _ in range(length):
            head, _row = segment._chains.put(next(numbers), head)
        listed.append(list(segment._chains.values(head)))
        arrays.out[len(arrays.out) - 1 - end] = -2 - head
    assert inner(compiled).follow_chains(len(chains), arrays.memory) == OK
    found = table(arrays, "out")[: arrays.counters.out[0]].tolist()
    turns = range(max(chains, default=0))
    assert found == [each[turn] for turn in turns for each in in_turn(listed, turn)]


def in_turn(listed: list[list[int]], turn: int) -> list[list[int]]:
    return [each for each in listed if turn < len(each)]


@pytest.mark.parametrize("compiled", COMPILED_INNER)
def test_chains_for_which_there_is_no_room_wait_for_it(compiled: Any) -> None:
    """Keys would be written over the chains that are still to be followed."""
    segment = generation_of([], compiled)
    arrays, head = segment.arrays, module("index_arrays").EMPTY
    for number in range(len(arrays.out) + 5):
        head, _row = segment._chains.put(number, head)
    arrays.out[len(arrays.out) - 1] = -2 - head
    assert inner(compiled).follow_chains(1, arrays.memory) == NEED_OUT


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(out=st.lists(st.integers(-3, 7), max_size=20))
def test_a_slot_is_left_once(out: Any, compiled: Any) -> None:
    """A key would be repeated; or a filter that the model must confirm be taken for a key."""
    segment = generation_of([ct.Filter({"a": n}) for n in range(8)], compiled)
    arrays = segment.arrays
    loaded(segment, b"\x80", compiled)
    table(arrays, "out")[: len(out)] = out
    left = inner(compiled).drop_repeated(len(out), arrays.memory)
    slots = list(dict.fromkeys(each for each in out if each >= 0))
    found = table(arrays, "out")[:left].tolist()
    assert [each for each in found if each >= 0] == slots
    assert [each for each in found if each < 0] == [each for each in out if each < 0]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "count", [PENDING - ENTRIES_AT_ONCE, PENDING, PENDING + 1, 2 * PENDING + 3]
)
def test_more_candidates_than_are_written_down_at_a_time(count: int, compiled: Any) -> None:
    """Candidates of a long bucket beyond the room would be lost, or repeated."""
    index: ct.Index[int] = new_index(compiled)
    for key in range(count):
        index.add(
            key, ct.Filter({"a": ct.ops.exists(), "b": ct.ops.none_of(key), "c": ct.ops.gt(-key)})
        )
    assert sorted(index.match({"a": 1, "b": -1, "c": 1})) == list(range(count))
    assert sorted(index.match({"a": 1, "b": 5, "c": 1})) == [k for k in range(count) if k != 5]


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_answer_has_its_next_step(compiled: Any) -> None:
    """Slots would be taken for keys, drift never be mended, or a span without sense pass."""
    index: ct.Index[Any] = new_index(compiled)
    for key in range(3):
        index.add(key, ct.Filter("a = 1"))
    match = module("kernels.match", compiled).match
    arrays = arrays_of(index)._segment.arrays
    arrays.counters.due[0] = 3
    span = ct.Notification({"a": 1}).span
    assert [match(span, arrays.memory) for _ in range(3)] == [4 * 3, 4 * 3, 4 * 3 + 2]
    assert match(b"\x80", arrays.memory) == 2
    arrays.counters.due[0] = 100
    index.add("no integer", ct.Filter("a = 1"))
    assert match(span, arrays.memory) == 4 * 4 + 1
    odd = match(b"\x01", arrays.memory)
    assert odd < 0
    assert odd >> 2 == UNREADABLE
    assert arrays.counters.matched[0] == 5


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 2), True), ((2, 1, 1), True), ((2, 3), False), ((3, 1), False), ((5, 2**60 + 1), False)],
)
def test_each_notification_must_match_one_of_some_filters(
    values: tuple[int, ...], expected: bool, compiled: Any
) -> None:
    """A publisher would be permitted all by one notification, or nothing that it may publish."""
    segment = generation_of([ct.Filter(f"a {each}") for each in ("= 1", "= 2", "> 4")], compiled)
    numbers = array("q", [0, 1, 2] if 5 in values else [0, 1])
    spans = module("packed", compiled).spans_of([ct.Notification({"a": n}).span for n in values])
    assert segment.arrays.all_hold(spans.address, spans.starts, numbers, 10**6) is expected
