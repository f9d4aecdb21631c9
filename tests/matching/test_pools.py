"""Pools: filters of many wide ranges, matched by bitmaps."""

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.compiling import CompiledConstraint, constraints_of
from contrada.matching.kernels.schema import OP_POINT, OP_RANGE, POOL_ATTRS, WORD_BITS
from contrada.matching.pools import COST_MIN, RANGES_MIN, WORDS_FIRST
from tests.matching.engines import COMPILED, generation_of, module, naive, new_index

NAMES = "abcdef"


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_of_many_wide_ranges_are_pooled(compiled: Any) -> None:
    """A filter's bit would be lost, or one that is gone would be found, in a pool."""
    random = Random(7)
    index: ct.Index[int] = new_index(compiled)
    by_key: dict[int, ct.Filter] = {}

    def change(key: int) -> None:
        low = {name: random.randrange(10) for name in random.sample("abcdefghij", 6)}
        sets = {name: ct.between(at, at + 8) for name, at in low.items()}
        by_key[key] = ct.Filter(sets | ({"k": ct.prefix("x")} if key % 3 == 0 else {}))
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
    return ct.Filter({name: ct.between(low, low + 8) for name, low in lows.items()})


boxes = st.dictionaries(
    st.sampled_from(NAMES), st.integers(0, 9), min_size=RANGES_MIN, max_size=len(NAMES)
).map(boxed)
odd = st.sampled_from([[1, 9], "text", 2**60 + 1, math.nan, None, 5.5, []])
given_values = st.dictionaries(st.sampled_from(NAMES), st.integers(-1, 18) | odd)


def pooled(filters: list[ct.Filter], compiled: bool) -> Any:
    """A generation whose filters are all in a pool, whatever it would choose."""
    generation = generation_of(filters, compiled)
    for number, each in enumerate(filters):
        generation.hanging.unhang(number)
        words = generation.arrays.words_of(number)
        place = generation.hanging.pools.add(number, constraints_of(words), ends_of)
        assert place is not None, each
        its = generation.arrays.filters
        its.place[number], its.at[number] = place[1], -1 - place[0]
    return generation


def ends_of(attr: int) -> list[tuple[int, int]]:
    """Ends of ranges, by which a pool cuts bins."""
    key = module("compiling").number_key
    return [(4, key(each)[0]) for each in range(0, 20, 2)]


def found(generation: Any, notification: ct.Notification, compiled: bool) -> list[int]:
    """The slots that match."""
    arrays, match = generation.arrays, module("kernels.checking", compiled).match
    while (answer := match(notification.span, arrays.memory)) < 0:
        arrays.grow_for(answer >> 2)
    out = arrays.of["out"][: answer >> 2].tolist()
    return sorted({generation.arrays.filters.key[-1 - each] if each < 0 else each for each in out})


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
    generation = pooled(filters, compiled)
    for number in gone & set(range(len(filters))):
        generation.remove(number)
    left = {n: each for n, each in enumerate(filters) if n not in gone}
    assert sorted(n for n, _, _ in generation.hanging.pools.filters()) == list(left)
    for each in values:
        notification = ct.Notification(each)
        matching = found(generation, notification, compiled)
        if generation.arrays.counters.doubted[0]:
            assert set(matching) >= set(naive(left, notification))
        else:
            assert matching == naive(left, notification)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("count", [WORD_BITS, WORD_BITS + 1, WORDS_FIRST * WORD_BITS + 1])
def test_a_pool_grows_by_words(count: int, compiled: Any) -> None:
    """The filters of one word would be found twice, or those of the next be lost."""
    filters = [boxed(dict.fromkeys(NAMES[:4], n % 300) | {"f": n}) for n in range(count)]
    generation = pooled(filters, compiled)
    for at in (5, count - 3, count + 7):
        given_ = ct.Notification(dict.fromkeys(NAMES[:4], at % 300) | {"f": at})
        assert found(generation, given_, compiled) == naive(dict(enumerate(filters)), given_)
    generation.hanging.validate(list(range(count)))


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_bit_is_used_again(compiled: Any) -> None:
    """A pool would grow with each filter that comes and goes; or an old filter's rows remain."""
    filters = [boxed(dict.fromkeys(NAMES, n)) for n in range(10)]
    generation = pooled(filters, compiled)
    pools, arrays = generation.hanging.pools, generation.arrays
    pools.remove(0, 4)
    assert pools.add(4, constraints_of(arrays.words_of(9)), ends_of) == (0, 4)
    assert arrays.pools.used[0] == 10
    for i in range(len(NAMES)):
        column = pools._rows(0, i)[:, 0]
        assert ((column >> 4 & 1) == (column >> 9 & 1)).all(), "it asks for what filter 9 does"
        assert not (column >> 9 & 1).all(), "it is not in every bin"


def constraints(count: int, first: int = 0, op: int = OP_RANGE) -> list[CompiledConstraint]:
    return [CompiledConstraint(first + n, op, 4, (0, 1)) for n in range(count)]


def test_only_many_ranges_that_are_often_visited_are_pooled() -> None:
    """Filters that hang well elsewhere would be asked of every notification."""
    pools = generation_of([], False).hanging.pools
    assert pools.suits(constraints(RANGES_MIN), COST_MIN)
    assert not pools.suits(constraints(RANGES_MIN), COST_MIN / 2)
    assert not pools.suits(constraints(RANGES_MIN - 1), 1.0)
    points = constraints(3, RANGES_MIN - 1, OP_POINT)
    assert not pools.suits(constraints(RANGES_MIN - 1) + points, 1.0)


def test_pools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each notification would be asked of ever more pools, or of more attributes than there is
    room for.
    """
    monkeypatch.setattr(module("pools"), "POOLS_MAX", 2)
    pools = generation_of([], False).hanging.pools

    def pool_of(of: list[CompiledConstraint]) -> int | None:
        place = pools.add(0, of, ends_of)
        return None if place is None else place[0]

    assert pool_of(constraints(POOL_ATTRS + 1)) is None
    assert pool_of(constraints(POOL_ATTRS)) == 0
    assert pool_of(constraints(4, 10)) == 0, "its attributes are all there"
    assert pool_of(constraints(4, POOL_ATTRS - 3)) == 1, "one attribute too many"
    assert pool_of(constraints(4, 3 * POOL_ATTRS)) == 1
    assert pool_of(constraints(POOL_ATTRS, 4 * POOL_ATTRS)) is None
