"""Kernels of updates: equal filters, buckets and their entries, guards, tables of keys."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import contrada as ct
from contrada.matching.kernels.schema import (
    DECIDED_ALONE,
    DECIDED_HERE,
    DOMAIN_SHIFT,
    GONE,
    GUARD_HASH,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    GUARD_OTHER,
    GUARD_RANGE,
    GUARD_SET,
    KEY_HERE,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_SHIFT,
    VERIFY,
)
from contrada.model.algebra import sets
from tests.matching.engines import (
    COMPILED,
    COMPILED_INNER,
    generation_of,
    inner,
    module,
    needs_native,
    table,
)

# --- equal filters ------------------------------------------------------------------------------

words = st.sampled_from([0, 1, -1, 2**32, 2**32 + 1, -(2**63), 2**63 - 1])
constraints = st.one_of(
    st.tuples(st.sampled_from([OP_POINT << OP_SHIFT, OP_SET << OP_SHIFT | 7]), words),
    st.tuples(st.just(OP_RANGE << OP_SHIFT | 2 << DOMAIN_SHIFT), words, words),
)
programs = st.lists(
    st.tuples(st.lists(constraints, max_size=3).map(lambda of: sum(of, ())), st.booleans()),
    max_size=20,
)


@pytest.mark.parametrize("compiled", COMPILED)
@given(entered=programs, gone=st.sets(st.integers(0, 19)))
def test_equal_programs_are_one_filter_and_no_others(
    entered: Any, gone: Any, compiled: Any
) -> None:
    """Filters would be matched as if they were others, or be stored again for each key."""
    segment = generation_of([], compiled)
    arrays = segment.arrays
    known: dict[tuple[int, ...], int] = {}
    for program, is_wider in entered:
        number, is_new = segment._entered(list(program), is_wider=is_wider)
        assert arrays.words_of(number) == list(program)
        assert is_new is (is_wider or program not in known)
        if is_wider:  # as `_filter_number` does
            arrays.program[arrays.filters.begin[number]] |= module("kernels.schema").WIDER
        else:
            assert known.setdefault(program, number) == number
    for program, number in list(known.items()):
        if number in gone:
            arrays.program[arrays.filters.begin[number]] |= GONE
            del known[program]
    arrays.used["equal"] = len(arrays.equal) // 2
    arrays.reserve_equal(0)
    for program, _ in entered:
        number, is_new = segment._entered(list(program), is_wider=False)
        assert is_new is (program not in known)
        assert number == known.setdefault(program, number)


# --- buckets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", COMPILED)
@given(operand=st.integers(-(2**63), 2**63 - 1), other=st.integers(-(2**63), 2**63 - 1))
def test_a_bucket_of_two_places_is_nobodys(operand: Any, other: Any, compiled: Any) -> None:
    """A value would lead to the filters of another that has its hash, or not to its own."""
    arrays = generation_of([ct.Filter("a = 1 and b = 1")], compiled).arrays

    def placed(attr: int, domain: int, value: int) -> int:
        return arrays.place_bucket(777, attr, 0.5, domain, value, arrays) & 3  # type: ignore[no-any-return]

    assert [placed(0, 4, operand), placed(0, 4, operand)] == [1, 1]
    if other != operand:
        assert placed(0, 4, other) == 2
        assert [placed(0, 4, operand), placed(0, 4, other)] == [2, 2]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("second", [(1, 4, 5), (0, 5, 5), (0, 0, 0)])
def test_another_attribute_or_domain_is_another_place(second: Any, compiled: Any) -> None:
    """A number would lead to the filters of the time of the same microseconds."""
    arrays = generation_of([ct.Filter("a = 1 and b = 1")], compiled).arrays
    bucket = arrays.place_bucket(777, 0, 0.5, 4, 5, arrays) >> 2
    attr, domain, operand = second
    assert arrays.place_bucket(777, attr, 0.5, domain, operand, arrays) == 4 * bucket + 2


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_new_bucket_begins_as_if_it_had_been_visited(compiled: Any) -> None:
    """A new bucket would look unvisited, and attract all filters."""
    arrays = generation_of([ct.Filter("a = 1")], compiled).arrays
    arrays.attrs.seen[0] = 1_000
    bucket = arrays.place_bucket(777, 0, 0.25, 4, 5, arrays) >> 2
    assert arrays.buckets.hits[bucket] == 250


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_bucket_has_room_for_the_next_power_of_two(compiled: Any) -> None:
    """Small buckets, which are most, would have twice the memory; or full ones move each time."""
    arrays = generation_of([ct.Filter({"a": ct.ops.ge(n)}) for n in range(40)], compiled).arrays
    bucket = arrays.take_buckets(1)
    for number in range(40):
        arrays.hang(bucket, number, -1, by_value=False, alone=True)
        assert arrays.buckets.length[bucket] == number + 1
        assert arrays.buckets.capacity[bucket] == 1 << number.bit_length()


BUCKETS = 4


class Entries(RuleBasedStateMachine):
    """Filters are added to buckets, one or several, and removed, in any order."""

    compiled = False

    def __init__(self) -> None:
        super().__init__()
        filters = [ct.Filter({"a": ct.ops.ge(n)}) for n in range(24)]
        self.segment = generation_of(filters, self.compiled)
        self.arrays, self.chains = self.segment.arrays, self.segment._chains
        for number in range(24):
            self.segment.assignment.unassign(number)
        self.first = self.arrays.take_buckets(BUCKETS)
        self.assignment: dict[int, list[int]] = {self.first + n: [] for n in range(BUCKETS)}

    @rule(number=st.integers(0, 23), into=st.sets(st.integers(0, BUCKETS - 1), min_size=1))
    def hang(self, number: Any, into: Any) -> None:
        if any(number in each for each in self.assignment.values()):
            return
        places = []
        for bucket in sorted(self.first + each for each in into):
            at = self.arrays.hang(bucket, number, -1, by_value=False, alone=len(into) == 1)
            assert at == len(self.assignment[bucket])
            places.append((bucket, at))
            self.assignment[bucket].append(number)
        filters = self.arrays.filters
        filters.place[number], filters.at[number] = self.chains.of_places(places), places[0][1]

    @rule(number=st.integers(0, 23))
    def unhang(self, number: Any) -> None:
        if any(number in each for each in self.assignment.values()):
            self.segment.assignment.unassign(number)
        for each in self.assignment.values():
            if number in each:
                each[each.index(number)] = each[-1]
                each.pop()

    @invariant()
    def every_filter_is_at_its_entry(self) -> None:
        arrays = self.arrays
        for bucket, expected in self.assignment.items():
            assert self.segment.assignment.filters_in(bucket) == expected
        for number in {number for each in self.assignment.values() for number in each}:
            place, at = arrays.filters.place[number], arrays.filters.at[number]
            for bucket, which in self.chains.places(place, at):
                assert self.assignment[bucket][which] == number

    @invariant()
    def no_two_rooms_overlap(self) -> None:
        arrays = self.arrays
        rooms = [
            (arrays.buckets.start[each], arrays.buckets.capacity[each])
            for each in range(arrays.used["buckets"])
        ]
        for power, begin in enumerate(table(arrays, "rooms").tolist()):
            while begin > 0:
                rooms.append((begin - 1, 2**power))
                begin = arrays.entries.filter[begin - 1]
        taken = sorted((start, start + size) for start, size in rooms if size)
        assert all(end <= start for (_, end), (start, _) in pairwise(taken)), taken
        assert sum(end - start for start, end in taken) == arrays.used["entries"]


class CompiledEntries(Entries):
    """The same on compiled kernels."""

    compiled = True


TestEntries = Entries.TestCase
TestEntries.__doc__ = "An entry would be lost, or be written over that of another bucket."
TestCompiledEntries = needs_native(CompiledEntries.TestCase)
TestCompiledEntries.__doc__ = "The same on compiled kernels."


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_filter_that_is_not_at_an_entry_stays(compiled: Any) -> None:
    """Another filter would be taken out of its bucket."""
    segment = generation_of([ct.Filter("a = 1"), ct.Filter("a = 2")], compiled)
    arrays = segment.arrays
    unhang = module("kernels.update", compiled).unhang
    bucket = arrays.filters.place[0]
    assert not unhang(bucket, 1, 0, arrays.memory)
    assert not unhang(bucket, 0, 1, arrays.memory)
    assert unhang(bucket, 0, 0, arrays.memory)


# --- guards -------------------------------------------------------------------------------------

DECIDED = DECIDED_HERE | DECIDED_ALONE | KEY_HERE
POINT, TEXT, RANGE, SET, OTHER = "a = 1", "b = 'x'", "c > 5", "d contains 'x'", "e != 5"
OPAQUE = "f matches /x+y$/"


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("constraints", "hung", "by_value", "guards", "decided"),
    [
        ((POINT,), "a", True, "", DECIDED_HERE | KEY_HERE),
        ((POINT,), "a", False, "a", DECIDED_ALONE | KEY_HERE),
        ((POINT, RANGE), "a", True, "c", DECIDED_HERE | KEY_HERE),
        ((POINT, RANGE, OTHER), "a", True, "ce", DECIDED_HERE | KEY_HERE),
        ((POINT, RANGE, OTHER), "a", False, "ce", 0),
        ((RANGE, POINT), "c", False, "ac", DECIDED_ALONE | KEY_HERE),
        ((POINT, TEXT), "a", True, "b", DECIDED_HERE),
        ((POINT, SET), "a", True, "d", DECIDED_HERE),
        ((POINT, OPAQUE), "a", True, "f", 0),
        ((SET, RANGE, TEXT, POINT), "", False, "ab", 0),
        ((SET, RANGE, TEXT), "b", True, "cd", DECIDED_HERE),
    ],
)
def test_the_most_selective_constraints_are_guards(
    constraints: Any, hung: str, by_value: bool, guards: str, decided: int, compiled: Any
) -> None:
    """Candidates would be looked up in their programs; or matches be decided by half a filter."""
    of = ct.Filter(" and ".join(constraints))
    segment = generation_of([of], compiled)
    arrays, attrs = segment.arrays, segment.compiler.attrs
    segment.assignment.unassign(0)
    arrays.hang(0, 0, attrs.get(hung, -1), by_value=by_value, alone=True)
    its = table(arrays, "entries")[arrays.buckets.start[0]]
    kinds = {"a": GUARD_RANGE, "b": GUARD_HASH, "c": GUARD_RANGE, "e": GUARD_OTHER}
    for guard, low, name in zip(
        (its["guard"], its["second"]), (its["low"], its["second_low"]), (*guards, "", ""),
        strict=False,
    ):  # fmt: skip
        kind = int(guard) >> GUARD_KIND_SHIFT & 7
        assert kind == (kinds.get(name, GUARD_SET) if name else GUARD_NONE)
        if kind == GUARD_SET:
            assert arrays.sets_by_row.attr[low] == attrs[name]
        elif name:
            assert guard & 0x3FFFFF == attrs[name]
    assert its["guard"] & DECIDED == decided
    here = arrays.filters.key if decided & KEY_HERE else arrays.filters.begin
    assert its["here"] == here[0]
    assert (arrays.program[arrays.filters.begin[0]] & VERIFY > 0) is (OPAQUE in constraints)


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_filter_of_several_places_shows_no_key(compiled: Any) -> None:
    """A change of its keys would update only one of its entries."""
    segment = generation_of([ct.Filter({"a": sets.in_(1, 2)})], compiled)
    for bucket, at in segment._chains.places(segment.arrays.filters.place[0], 0):
        entry = table(segment.arrays, "entries")[segment.arrays.buckets.start[bucket] + at]
        assert not entry["guard"] & KEY_HERE


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_filter_is_assigned_to_a_value_only_if_settled(compiled: Any) -> None:
    """A filter would be written behind the end of an array, or into another value's bucket."""
    segment = generation_of([ct.Filter("a = 1 and b > 5"), ct.Filter("b > 5")], compiled)
    arrays = segment.arrays
    of = arrays.memory, arrays.memory

    def hang_at_value(number: int, entries: int, buckets: int) -> tuple[int, int]:
        updating = module("kernels.update", compiled)
        entries, buckets, _cheapest = updating.hang_at_value(number, entries, buckets, *of)
        return entries, buckets

    segment.assignment.unassign(0)
    used = arrays.used["entries"], arrays.used["buckets"]
    assert hang_at_value(1, *used) == (-1, -1), "a range is no value"
    assert hang_at_value(0, len(arrays.entries), used[1]) == (-1, -1)
    assert hang_at_value(0, used[0], len(arrays.buckets)) == (-1, -1)
    bucket = arrays.filters.place[0]
    assert bucket == module("index_arrays").EMPTY
    _entries, buckets = hang_at_value(0, *used)
    assert buckets == used[1], "its bucket was there"
    bucket = arrays.filters.place[0]
    segment.assignment.unassign(0)
    arrays.buckets.of_domain[bucket] = 0  # since another place has its hash
    assert hang_at_value(0, *used) == (-1, -1)


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(names=st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=20))
def test_names_are_entered_once(names: Any, compiled: Any) -> None:
    """An attribute with a freed row would still be found; or one be entered twice."""
    segment = generation_of([ct.Filter({name: 1}) for name in names], compiled)
    arrays = segment.arrays
    freed = names[::3]
    for name in freed:
        arrays.attrs.name[segment.compiler.attrs[name]] = 0
    table(arrays, "names")[:] = 0
    updating = module("kernels.update", compiled)
    updating.enter_names(0, arrays.used["attrs"], arrays.memory)
    assert np.count_nonzero(table(arrays, "names")) == len(names) - len(freed)
    for name in names:
        found = inner(compiled).attr_of(name.encode(), arrays.memory)
        assert found == (-1 if name in freed else segment.compiler.attrs[name])
