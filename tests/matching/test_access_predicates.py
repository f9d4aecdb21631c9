"""Index keys of sets, and the places of filters before and after anything was published."""

import math
import sys
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.access_predicates import (
    ATTR_COST,
    COST_MIN,
    KINDS,
    POOLS_MAX,
    RANGES_MIN,
    ROWS,
    WORDS_FIRST,
    IndexKey,
    prefix_of,
    traits_of,
)
from contrada.matching.assignment import REASSIGNED_AT_ONCE
from contrada.matching.filter_compiler import CompiledConstraint, constraints_of
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels.schema import OP_POINT, OP_RANGE, POOL_ATTRS, WORD_BITS
from contrada.matching.segment import UNUSED_BYTES_MIN
from contrada.model.algebra import sets
from contrada.model.domains import line
from contrada.model.domains.values import TEXT, Key, key_of
from contrada.model.languages.casefold import fold
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    arrays_of,
    generation_of,
    module,
    naive,
    new_index,
    table,
)


def index_of(
    filters: Iterable[ct.Filter], compiled: bool, limits: IndexLimits = IndexLimits()
) -> ct.Index[int]:
    index: ct.Index[int] = new_index(compiled, limits)
    for key, each in enumerate(filters):
        index.add(key, each)
    return index


def counted(index: ct.Index[int], counter: str, notifications: list[dict[str, Any]]) -> float:
    """The mean of a counter over matches."""
    total = 0
    for notification in notifications:
        index.match(notification)
        total += int(table(arrays_of(index)._segment.arrays, "counters")[counter][0])
    return total / len(notifications)


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_are_assigned_to_the_attribute_of_many_values(compiled: bool) -> None:
    """The attribute that got the first filters would get all of them, in its four buckets."""
    filters = (ct.Filter({"kind": f"k{n % 4}", "owner": f"o{n}"}) for n in range(2_000))
    index = index_of(filters, compiled)
    asked = [{"kind": f"k{n % 4}", "owner": f"o{n}"} for n in range(100, 130)]
    assert counted(index, "looked", asked) < 40
    assert all(index.match(each) == [100 + n] for n, each in enumerate(asked))
    index.validate()


@pytest.mark.quick_every(3)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("part", [sets.prefix, sets.suffix, sets.contains])
def test_filters_are_assigned_to_parts_of_texts_that_are_many(part: Any, compiled: bool) -> None:
    """An equality of thirty values would always seem rarer than three letters."""
    filters = (ct.Filter({"kind": f"k{n % 30}", "path": part(f"{n:03}")}) for n in range(1_000))
    index = index_of(filters, compiled)
    asked = [{"kind": f"k{n % 30}", "path": f"{n:03}"} for n in range(500, 520)]
    assert counted(index, "looked", asked) < 20


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_narrow_range_counts_at_any_place(compiled: bool) -> None:
    """Ranges would count only where filters hang by them, which then none would begin to do."""
    low = Random(3).sample(range(2_000), 2_000)
    filters = (ct.Filter({"kind": f"k{n % 4}", "price": sets.between(n, n + 1)}) for n in low)
    index = index_of(filters, compiled)
    asked = [{"kind": f"k{n % 4}", "price": n} for n in range(1_500, 1_520)]
    assert counted(index, "looked", asked) < 400


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_renewal_does_not_make_it_worse(compiled: bool) -> None:
    """A pool made anew would cut its bins by the ends of its first filter alone."""
    random = Random(7)
    names = [f"name{n}" for n in range(5)]
    filters = [
        ct.Filter({name: sets.between(low := random.random() / 2, low + 0.5) for name in names})
        for _ in range(500)
    ]
    index = index_of(filters, compiled)
    asked = [{name: random.random() for name in names} for _ in range(300)]
    before = counted(index, "candidates", asked)
    index.renew()
    index.validate()
    assert counted(index, "candidates", asked) <= 1.2 * before


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_updates_tidy_up_by_themselves(compiled: bool) -> None:
    """Memory of removed filters would be kept without calls of `maintain`."""
    index: ct.Index[int] = new_index(compiled)
    large = "x" * (UNUSED_BYTES_MIN // 256)
    for key in range(1_000):
        index.add(key % 8, ct.Filter({"a": f"{large}{key}"}))
    assert index.statistics().bytes < 3 * UNUSED_BYTES_MIN
    assert index.match({"a": f"{large}999"}) == [999 % 8]
    index.validate()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_answers_stay_exact_while_filters_are_reassigned(compiled: bool) -> None:
    """A filter on its way to another place would be missed, or be found twice."""
    random = Random(11)

    def made() -> ct.Filter:
        low = random.randrange(50)
        return ct.Filter(
            {
                "kind": sets.in_("k0", f"k{random.randint(1, 4)}"),
                "path": sets.prefix(random.choice("abcdef")),
                "price": sets.between(low, low + 50),
            }
        )

    filters = [made() for _ in range(600)]
    index = index_of(filters, compiled, limits=IndexLimits(looked_between=0))
    places = table(arrays_of(index)._segment.arrays, "filters")["place"][:600].copy()
    asked: list[dict[str, Any]] = [
        {"kind": f"k{random.randrange(8)}", "path": "ax", "price": random.randrange(100)}
        for _ in range(40)
    ]
    expected = [
        [key for key, each in enumerate(filters) if each.matches(ct.Notification(given))]
        for given in asked
    ]
    for turn in range(600 // REASSIGNED_AT_ONCE * 4):
        at = turn % len(asked)
        assert sorted(index.match(asked[at])) == expected[at]
    assert (table(arrays_of(index)._segment.arrays, "filters")["place"][:600] != places).any(), (
        "nothing was moved"
    )
    index.validate()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_the_only_filter_of_a_bucket_is_reassigned(compiled: bool) -> None:
    """A bucket that its last filter has left would be asked for one more."""
    limits = IndexLimits(looked_between=0, seen_min=512 if compiled else 64)
    names = [f"a{n}" for n in range(80)]
    index = index_of((ct.Filter({name: 1, "kind": "k"}) for name in names), compiled, limits)
    asked = dict.fromkeys(names, 1) | {"kind": "other"}
    before = counted(index, "looked", [asked])
    assert before == len(names)
    assert counted(index, "looked", [asked] * (800 if compiled else 400)) < before
    assert counted(index, "looked", [asked]) < 70
    assert index.match(asked | {"kind": "k"}) != []
    index.validate()


# --- pools ---------------------------------------------------------------------------------------

NAMES = "abcdef"


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_of_many_wide_ranges_are_pooled(compiled: Any) -> None:
    """A filter's bit would be lost, or a removed filter would be found, in a pool."""
    random = Random(7)
    index: ct.Index[int] = new_index(compiled)
    by_key: dict[int, ct.Filter] = {}

    def change(key: int) -> None:
        low = {name: random.randrange(10) for name in random.sample("abcdefghij", 6)}
        sets = {name: ct.ops.between(at, at + 8) for name, at in low.items()}
        by_key[key] = ct.Filter(sets | ({"k": ct.ops.prefix("x")} if key % 3 == 0 else {}))
        index.add(key, by_key[key])

    for step in range(900):
        change(step if step < 600 else random.randrange(600))
        if step % 10 == 9:
            gone = random.randrange(600)
            index.remove(gone)
            by_key.pop(gone, None)
        if step == 700:
            index.begin_renewal()
        index.maintain(5)
    index.validate()
    assert index.statistics().pooled > 200
    odd = [[1, 9], "text", 2**60 + 1, math.nan, None, 5.5]
    for _ in range(100):
        values: dict[str, Any] = {name: random.randrange(18) for name in "abcdefghijk"}
        values |= {random.choice("abcdefghijk"): random.choice(odd), "k": random.choice(["x", 1])}
        values.pop(random.choice("abcdefghij"))
        notification = ct.Notification(values)
        assert sorted(index.match(notification)) == naive(by_key, notification)


def boxed(lows: dict[str, int]) -> ct.Filter:
    return ct.Filter({name: ct.ops.between(low, low + 8) for name, low in lows.items()})


boxes = st.dictionaries(
    st.sampled_from(NAMES), st.integers(0, 9), min_size=RANGES_MIN, max_size=len(NAMES)
).map(boxed)
odd = st.sampled_from([[1, 9], "text", 2**60 + 1, math.nan, None, 5.5, []])
given_values = st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 18) | odd)


def pooled(filters: list[ct.Filter], compiled: bool) -> Any:
    """A segment with all filters in a pool, even if it would choose otherwise."""
    segment = generation_of(filters, compiled)
    for number, each in enumerate(filters):
        segment.assignment.unassign(number)
        words = segment.arrays.words_of(number)
        place = segment.assignment.pools.add(number, constraints_of(words), ends_of)
        assert place is not None, each
        its = segment.arrays.filters
        its.place[number], its.at[number] = place[1], -1 - place[0]
    return segment


def ends_of(attr: int) -> list[tuple[int, int]]:
    """Ends of ranges, by which a pool cuts bins."""
    key = module("filter_compiler").number_key
    return [(4, key(each)[0]) for each in range(attr % 3, 20, 2)]


def found(segment: Any, notification: ct.Notification, compiled: bool) -> list[int]:
    """The slots that match."""
    arrays, match = segment.arrays, module("kernels.match", compiled).match
    while (answer := match(notification.span, arrays.memory)) < 0:
        arrays.grow_for(answer >> 2)
    out = table(arrays, "out")[: answer >> 2].tolist()
    return sorted({segment.arrays.filters.key[-1 - each] if each < 0 else each for each in out})


@pytest.mark.parametrize("compiled", COMPILED)
@given(
    filters=st.lists(boxes, unique=True, max_size=12),
    gone=st.sets(st.integers(0, 11)),
    values=st.lists(given_values, min_size=1, max_size=3),
)
def test_a_pool_leaves_every_filter_that_matches(
    filters: Any, gone: Any, values: Any, compiled: Any
) -> None:
    """A filter's bit would be missing in a row that its notifications lead to."""
    segment = pooled(filters, compiled)
    for number in gone & set(range(len(filters))):
        segment.remove(number)
    left = {n: each for n, each in enumerate(filters) if n not in gone}
    assert sorted(n for n, _, _ in segment.assignment.pools.filters()) == list(left)
    for each in values:
        notification = ct.Notification(each)
        matching = found(segment, notification, compiled)
        if segment.arrays.counters.doubted[0]:
            assert set(matching) >= set(naive(left, notification))
        else:
            assert matching == naive(left, notification)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("count", [WORD_BITS, WORD_BITS + 1, WORDS_FIRST * WORD_BITS + 1])
def test_a_pool_grows_by_words(count: int, compiled: Any) -> None:
    """The filters of one word would be found twice, or those of the next be lost."""
    filters = [boxed(dict.fromkeys(NAMES[:4], n % 300) | {"f": n}) for n in range(count)]
    segment = pooled(filters, compiled)
    for at in (5, count - 3, count + 7):
        given_ = ct.Notification(dict.fromkeys(NAMES[:4], at % 300) | {"f": at})
        assert found(segment, given_, compiled) == naive(dict(enumerate(filters)), given_)
    segment.assignment.validate(list(range(count)))


@pytest.mark.parametrize("compiled", COMPILED)
def test_pools_have_rows_of_their_own(compiled: Any) -> None:
    """The filters of one pool would be looked up in the rows of another."""
    first = [f"n{n}" for n in range(POOL_ATTRS)]
    second = [f"n{n}" for n in range(POOL_ATTRS, POOL_ATTRS + 5)]
    filters = [boxed(dict.fromkeys(first[low:], 9)) for low in range(4)]
    filters += [boxed({name: low + n for n, name in enumerate(second)}) for low in range(5)]
    segment = pooled(filters, compiled)
    assert {pool for _, pool, _ in segment.assignment.pools.filters()} == {0, 1}
    for low in range(16):
        values = dict.fromkeys(first, 17 - low) | {name: low + n for n, name in enumerate(second)}
        for absent in ("", first[0], second[2]):
            of = ct.Notification({name: values[name] for name in values if name != absent})
            assert found(segment, of, compiled) == naive(dict(enumerate(filters)), of)
    segment.assignment.validate(list(range(len(filters))))


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_bit_is_used_again(compiled: Any) -> None:
    """A pool would grow with each added and removed filter; or an old filter's rows remain."""
    filters = [boxed(dict.fromkeys(NAMES, n)) for n in range(10)]
    segment = pooled(filters, compiled)
    pools, arrays = segment.assignment.pools, segment.arrays
    pools.remove(0, 4)
    assert pools.add(4, constraints_of(arrays.words_of(9)), ends_of) == (0, 4)
    assert arrays.pools.used[0] == 10
    for i in range(len(NAMES)):
        begin, words = arrays.pool_attrs.begin[i], arrays.pools.words[0]
        column = table(arrays, "bits")[begin : begin + ROWS * words : words]
        assert ((column >> 4 & 1) == (column >> 9 & 1)).all(), "it asks for what filter 9 does"
        assert not (column >> 9 & 1).all(), "it is not in every bin"


def constraints(count: int, first: int = 0, op: int = OP_RANGE) -> list[CompiledConstraint]:
    return [CompiledConstraint(first + n, op, 4, (0, 1)) for n in range(count)]


def test_only_many_ranges_that_are_often_visited_are_pooled() -> None:
    """Filters that hang well elsewhere would be asked of every notification."""
    pools = generation_of([], False).assignment.pools
    assert any(pools.admit(constraints(RANGES_MIN), 1.0) for _ in range(8))
    assert pools.admit(constraints(RANGES_MIN), COST_MIN)
    assert not pools.admit(constraints(RANGES_MIN), COST_MIN / 2)
    assert not pools.admit(constraints(RANGES_MIN - 1), 1.0)
    points = constraints(3, RANGES_MIN - 1, OP_POINT)
    assert not pools.admit(constraints(RANGES_MIN - 1) + points, 1.0)


def test_a_pool_begins_when_its_filters_pay_for_its_attributes() -> None:
    """A few filters of many attributes would have pools that cost more than the filters."""
    pools = generation_of([], False).assignment.pools
    cost = 2 * ATTR_COST * RANGES_MIN / 8
    first = [pools.admit(constraints(RANGES_MIN), cost) for _ in range(8)]
    assert first == [False] * 3 + [True] * 5
    more = [pools.admit(constraints(RANGES_MIN, RANGES_MIN), cost) for _ in range(8)]
    assert all(more), "there is enough for twice as many attributes"
    assert not pools.admit(constraints(POOL_ATTRS), 1.0), "not for so many more"
    assert not any(pools.admit(constraints(POOL_ATTRS + 1, 99), 1.0) for _ in range(99))
    assert len(pools._planned) == 1, "no pool takes so many, so none is planned"
    apart = [pools.admit(constraints(POOL_ATTRS, POOL_ATTRS * n), 1.0) for n in range(1, 40)]
    assert not any(apart)
    assert len(pools._planned) == POOLS_MAX


def test_pools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notification would be asked of ever more pools, or of more attributes than there is
    room for.
    """
    monkeypatch.setattr(module("access_predicates"), "POOLS_MAX", 2)
    pools = generation_of([], False).assignment.pools

    def pool_of(of: list[CompiledConstraint]) -> int | None:
        place = pools.add(0, of, ends_of)
        return None if place is None else place[0]

    assert pool_of(constraints(POOL_ATTRS)) == 0
    assert pool_of(constraints(4, 10)) == 0, "its attributes are all there"
    assert pool_of(constraints(4, POOL_ATTRS - 3)) == 1, "one attribute too many"
    assert pool_of(constraints(4, 3 * POOL_ATTRS)) == 1
    assert pool_of(constraints(POOL_ATTRS, 4 * POOL_ATTRS)) is None


def has(key: Key, index_key: IndexKey) -> bool:
    """Whether a value has a trait."""
    if index_key.kind == "is":
        return bool(key == index_key.of)
    if key[0] != TEXT:
        return False
    assert isinstance(key[1], bytes)
    text = fold(key[1]) if index_key.nocase else key[1]
    found = {
        "=": text == index_key.of,
        "prefix": text.startswith(index_key.of),
        "suffix": text.endswith(index_key.of),
        "contains": index_key.of in text,
    }
    return bool(found[index_key.kind])


@given(
    of=strategies.value_sets(3),
    values=st.lists(strategies.pooled_values, min_size=1, max_size=8),
    most=st.integers(0, 8),
)
def test_every_value_of_a_set_has_one_of_its_traits(of: Any, values: Any, most: int) -> None:
    """A filter would be at a place that some matching value does not reach."""
    index_keys = traits_of(of, most)
    if index_keys is not None:
        assert len(index_keys) <= most
        assert {each.kind for each in index_keys} <= {"is", *KINDS}
        for key in map(key_of, values):
            assert not of.holds(key) or any(has(key, each) for each in index_keys)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a = 1", ["is"]),
        ("a in (1, 'x', null)", ["is", "is", "is"]),
        ("a in (1, 2, 3, 4)", None),
        ("a prefix 'x'", ["prefix"]),
        ("a = nocase 'x'", ["="]),
        ("a (suffix 'x' | contains 'y' | = 5)", ["is", "contains", "suffix"]),
        ("a (suffix 'x' & contains 'abcd')", ["contains"]),
        ("a wildcard 'ab*'", ["prefix"]),
        ("a > 1", None),
        ("a any", None),
        ("a != 'x'", None),
        ("a (suffix 'x' | > 'y')", None),
    ],
)
def test_the_traits_of_a_set(text: str, kinds: Any) -> None:
    """A filter would be filed by presence although its values have something in common."""
    index_keys = traits_of(ct.Filter(text).sets["a"], 3)
    assert (index_keys if index_keys is None else sorted(each.kind for each in index_keys)) == (
        kinds if kinds is None else sorted(kinds)
    )


@given(st.binary(min_size=1, max_size=3))
def test_a_prefix_is_known_by_its_interval(prefix: Any) -> None:
    """An interval that is no prefix would be filed as one, or a prefix as an interval."""
    start, *end = line.starting_with(prefix)
    assert prefix_of(start, end[0] if end else None) == prefix
    assert prefix_of(start, (TEXT, prefix + b"\xff\xff\xff\xff")) is None
    assert prefix_of((TEXT,), None) is None


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (ct.ops.ge(math.inf), math.inf),
        (ct.ops.lt(-sys.float_info.max), -math.inf),
        (ct.ops.gt(sys.float_info.max), math.inf),
    ],
)
def test_a_bound_that_leaves_one_number_is_that_number(of: ct.ValueSet, value: float) -> None:
    """A filter of one value would be checked at every notification with its attribute."""
    assert traits_of(of, 1) == (IndexKey("is", False, key_of(value)),)


@pytest.mark.parametrize(
    "of", [ct.ops.ge(0), ct.ops.lt(2**62), ct.ops.gt(-1e300), ct.ops.between(0, 1)]
)
def test_many_numbers_have_no_traits(of: ct.ValueSet) -> None:
    """A filter would be filed under some of its values, and be missed at the others."""
    assert traits_of(of, 16) is None
