"""A batch in columns is matched in blocks, with the answers of each row by itself."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.kernels import schema
from contrada.model.languages.atoms import Operator, registry
from tests.matching.engines import COMPILED, arrays_of, block_index, module, naive, new_index

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = ["", "a", "ab", "Ab", "abc", "straße", "STRASSE", "xyz" * 9]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [0, 1, 2, 3, -5, 2**53, 2**53 + 1, -(2**60) - 1, None]),
    "small": (pa.int16(), [*range(12), None]),
    "price": (pa.float64(), [0.0, -0.0, 0.1, 1.5, 2.25, float("inf"), float("nan"), -3.0, None]),
    "ratio": (pa.float32(), [0.0, 0.1, 1.0, 2.0, None]),
    "size": (pa.float64(), [n / 7 for n in range(40)]),
    "flag": (pa.bool_(), [True, False, None]),
    "time": (pa.timestamp("us", "UTC"), [*(BEGIN + timedelta(hours=n) for n in range(5)), None]),
    "text": (pa.string(), [*TEXTS, None]),
    "name": (pa.large_string(), [f"n{n}" for n in range(9)]),
    "none": (pa.int64(), [None]),
}
"""Columns, each with a type and its values: odd ones are few, so that most rows are in blocks."""

WHERE_FEW = {"whole": 6, "price": 7}
"""The columns with the number of values behind which the odd ones are."""


def constraint(chance: random.Random, name: str) -> Any:
    """A set of values of an attribute, now and then of another's type."""
    other = chance.choice([*VALUES]) if chance.random() < 0.1 else name
    some = [each for each in VALUES[other][1] if each is not None] or [1]
    one, two = chance.choice(some), chance.choice(some)
    ops = ct.ops
    made = [lambda: ops.eq(one), lambda: ops.ne(one), lambda: ops.in_(one, two)]
    if not isinstance(one, bool) and "nan" not in (str(one), str(two)):
        low, high = sorted((one, two))
        made += [lambda: ops.lt(high), lambda: ops.ge(low), lambda: ops.between(low, high)] * 2
    if isinstance(one, str):
        made += [lambda: ops.prefix(one[:2]), lambda: ops.suffix(one[-1:])]
        made += [lambda: ops.contains(one[1:3]), lambda: ops.eq(one, nocase=True)]
    if chance.random() < 0.05:
        return chance.choice([ops.absent, ops.exists])()
    return chance.choice(made)()


def subscription(chance: random.Random) -> Any:
    """A filter, or a few of which a row may match several."""
    names = chance.sample([*VALUES], chance.choice((1, 1, 2, 2, 2, 3)))
    made = ct.Filter({name: constraint(chance, name) for name in names})
    return made if chance.random() < 0.9 else ct.FilterSet([made, subscription(chance)])


def column(chance: random.Random, name: str, rows: int) -> pa.Array:
    """A column of random values, which begins inside of its memory."""
    kind, values = VALUES[name]
    few = values[: WHERE_FEW.get(name, len(values))]
    drawn = [chance.choice(values if chance.random() < 0.05 else few) for _ in range(rows + 3)]
    return pa.array(drawn, kind).slice(3)


def keys_of_rows(found: tuple[Any, Any]) -> list[list[Any]]:
    """The sorted keys of each row."""
    offsets, keys = found
    listed = keys.tolist()
    return [sorted(listed[begin:end]) for begin, end in pairwise(offsets.tolist())]


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows as attributes."""
    for row in table.to_pylist():
        yield {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("seed", range(8))
def test_a_block_gives_the_answers_of_its_rows(compiled: bool, seed: int) -> None:
    """A subscriber would miss rows, or get another's: by a wrong group, guard, type or NULL."""
    chance = random.Random(seed)
    asked = {
        n if seed % 4 else f"key {n}": subscription(chance) for n in range(chance.choice((9, 160)))
    }
    if seed % 2:
        asked |= {-1 - n: each for n, each in enumerate(list(asked.values())[:5])}
        asked = {str(key) if seed % 4 == 0 else key: each for key, each in asked.items()}
    index = block_index(compiled)
    for key, each in asked.items():
        index.add(key, each)
    names = chance.sample([*VALUES], 8)
    for rows in (16, 17, 70):
        table = pa.table({name: column(chance, name, rows) for name in names})
        expected = [naive(asked, ct.Notification(row)) for row in rows_of(table)]
        for size in (schema.BLOCK_ROWS, 20):
            arrays_of(index)._segment.arrays.block_rows_max = size
            assert keys_of_rows(index.match_batch(table)) == expected


@pytest.mark.parametrize("compiled", COMPILED)
def test_odd_values_are_matched_by_themselves(compiled: bool) -> None:
    """A whole number would match as the double beside it, and NaN as a number."""
    index = block_index(compiled)
    asked = {
        1: ct.Filter({"kind": "k", "whole": ct.ops.gt(2**53)}),
        2: ct.Filter({"kind": "k", "whole": 2**53 + 1}),
        3: ct.Filter({"whole": 2**53 + 1}),
        4: ct.Filter({"kind": "k", "price": ct.ops.ne(1.0)}),
        5: ct.Filter({"kind": "k", "price": ct.ops.ge(-1.0)}),
        6: ct.Filter({"price": float("nan")}),
    }
    for key, each in asked.items():
        index.add(key, each)
    whole = [2**53, 2**53 + 1, 2**53 + 2, 3] * 9
    prices = [1.0, 2.0, float("nan")] * 12
    table = pa.table({"kind": ["k"] * 36, "whole": whole, "price": prices})
    expected = [naive(asked, ct.Notification(row)) for row in rows_of(table)]
    assert keys_of_rows(index.match_batch(table)) == expected


@pytest.mark.parametrize("compiled", COMPILED)
def test_equal_filters_give_all_their_keys(compiled: bool) -> None:
    """The number of a chain of keys would be a key."""
    index = block_index(compiled)
    for n in range(9):
        index.add(n, ct.Filter({"kind": "k", "price": ct.ops.gt(5 * (n // 3))}))
    prices = [float(n % 7) for n in range(40)]
    found = keys_of_rows(index.match_batch(pa.table({"kind": ["k"] * 40, "price": prices})))
    assert found == [[n for n in range(9) if price > 5 * (n // 3)] for price in prices]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_bucket_of_many_rows_and_entries_is_checked_in_parts(compiled: bool) -> None:
    """Rows behind the first lanes, or entries behind the first ones, would be left out."""
    index, count = block_index(compiled), schema.PENDING + 50
    for n in range(count):
        index.add(n, ct.Filter({"kind": "k", "price": ct.ops.gt(count - n)}))
    prices = [float(n % 7) for n in range(schema.LANES + 8)]
    table = pa.table({"kind": ["k"] * len(prices), "price": prices})
    last = [[n for n in range(count) if count - n < price] for price in prices]
    assert keys_of_rows(index.match_batch(table)) == last


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("filters", "values", "together"), [(500, 4, True), (1_000, 200, False), (500, 500, True)]
)
def test_rows_are_matched_together_if_they_share_entries_or_have_few(
    compiled: bool, filters: int, values: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share no entries take longer together; rows of one entry take longer alone."""
    index = new_index(compiled)
    monkeypatch.setattr(arrays_of(index), "match", None)  # which is for rows that need the model
    for n in range(filters):
        index.add(n, ct.Filter({"kind": n % values, "price": ct.ops.gt(n)}))
    kinds = [n % values for n in range(200)]
    table = pa.table({"kind": kinds, "price": [250.0] * 200})
    found = keys_of_rows(index.match_batch(table))
    assert found == [[n for n in range(250) if n % values == kind] for kind in kinds]
    assert (arrays_of(index)._segment.arrays.counters.block_end[0] > 0) == together


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_block_with_too_many_matches_is_halved(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a block would grow with the matches of thousands of rows."""
    index = block_index(compiled)
    for n in range(40):
        index.add(n, ct.Filter({"kind": "k", "price": ct.ops.gt(n)}))
    monkeypatch.setattr(module("kernels.schema", compiled), "BLOCK_MATCHES", 128)
    monkeypatch.setattr(module("index_arrays", compiled), "COPIED_BYTES_MAX", 0)
    table = pa.table({"kind": ["k"] * 500, "price": [99.0] * 500})
    offsets, keys = index.match_batch(table)
    arrays = arrays_of(index)._segment.arrays
    assert np.diff(offsets).tolist() == [40] * 500
    assert keys.reshape(500, 40).tolist() == [keys[:40].tolist()] * 500
    assert arrays.counters.block_max[0] < 32
    assert arrays.block_rows_max == schema.BLOCK_ROWS
    assert len(arrays.outcomes) <= 2_048


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_block_whose_rows_reach_too_many_buckets_is_halved(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gigabytes would be held for long texts in which filters look for many parts."""
    index = block_index(compiled)
    parts = [f"{n:04}" for n in range(40)]
    for n, part in enumerate(parts):
        index.add(n, ct.Filter({"text": ct.ops.contains(part)}))
    monkeypatch.setattr(module("kernels.schema", compiled), "BLOCK_MATCHES", 1024)
    monkeypatch.setattr(module("index_arrays", compiled), "COPIED_BYTES_MAX", 0)
    offsets, keys = index.match_batch(pa.table({"text": [" ".join(parts)] * 500}))
    arrays = arrays_of(index)._segment.arrays
    assert np.diff(offsets).tolist() == [40] * 500
    assert sorted(keys[:40].tolist()) == list(range(40))
    assert arrays.counters.block_max[0] < 32
    assert arrays.block_rows_max == schema.BLOCK_ROWS
    assert len(arrays.visits) <= 2_048


class Calling(Operator):
    """An operator that calls a function of a test, and accepts nothing."""

    name = "calls"

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def apply(self, value: bytes, constant: bytes) -> bool:
        self._function()
        return False


def asked_within(compiled: bool) -> ct.Index[Any]:
    """An index with filters of prices, and one whose operator is applied to texts."""
    index = block_index(compiled)
    for n in range(40):
        index.add(n, ct.Filter({"kind": "k", "price": ct.ops.gt(n)}))
    index.add(99, ct.Filter('kind = "k" and text calls "a"'))
    return index


def table_of(prices: list[float], now: int) -> pa.Table:
    """Rows with prices, of which one has a text."""
    texts = ["now" if row == now else None for row in range(len(prices))]
    return pa.table({"kind": ["k"] * len(prices), "price": prices, "text": texts})


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_batch_within_a_batch_leaves_its_block(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would get the keys of another table, where an operator matches one itself."""
    prices, others = [float(n % 41) for n in range(60)], [3.0] * 400
    inner: list[list[list[int]]] = []

    def match() -> None:
        other = pa.table({"kind": ["k"] * len(others), "price": others})
        inner.append(keys_of_rows(index.match_batch(other)))

    monkeypatch.setattr(registry, "_operators", dict(registry._operators))
    registry.register(Calling(match))
    index = asked_within(compiled)
    found = keys_of_rows(index.match_batch(table_of(prices, 20)))
    assert found == [[n for n in range(40) if price > n] for price in prices]
    assert inner == [[[0, 1, 2]] * len(others)]


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_update_within_a_batch_counts_for_its_later_rows(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would get keys that were removed, or filters be read where they no longer are."""
    prices = [50.0] * 60

    def update() -> None:
        for n in range(1, 40):
            index.remove(n)
        index.add(7, ct.Filter({"price": ct.ops.lt(99)}))

    monkeypatch.setattr(registry, "_operators", dict(registry._operators))
    registry.register(Calling(update))
    index = asked_within(compiled)
    found = keys_of_rows(index.match_batch(table_of(prices, 20)))
    assert found[:20] == [list(range(40))] * 20
    assert found[21:] == [[0, 7]] * 39


@pytest.mark.parametrize("compiled", COMPILED)
@given(keys=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9), max_size=40)))
def test_the_keys_of_each_row_are_sorted(compiled: Any, keys: Any) -> None:
    """Keys would be in another order than their subscriptions, or of another row."""
    offsets = np.cumsum([0, *map(len, keys)], dtype=np.int64)
    joined = np.array([each for row in keys for each in row], dtype=np.int64)
    room = np.empty(40, dtype=np.int64)
    module("kernels.batch_match", compiled).sort_rows(offsets, joined, room)
    assert joined.tolist() == [each for row in keys for each in sorted(row)]
