"""The rows of a block of columns visit the buckets that each row would by itself."""

import math
from array import array
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import contrada as ct
from contrada.matching.kernels.schema import KINDS
from contrada.matching.kernels.scratch import EXACT_MAX
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US
from tests.matching.engines import COMPILED, arrays_of, block_index, module, naive

MANY = 40
"""Rows, and more than are matched one by one."""


@pytest.mark.parametrize(
    ("kind", "code", "exact", "odd"),
    [
        ("int64", "q", [-EXACT_MAX, -1, 0, EXACT_MAX], [-EXACT_MAX - 1, EXACT_MAX + 1, 2**62]),
        ("time", "q", [TIME_MIN_US, 0, TIME_MAX_US], [TIME_MIN_US - 1, TIME_MAX_US + 1]),
        ("double", "d", [-math.inf, 0.0, 1e300], [math.nan]),
        ("float", "f", [-math.inf, 0.5], [math.nan]),
        ("uint32", "I", [0, 2**32 - 1], []),
    ],
)
def test_only_cells_without_a_key_of_their_own_are_odd(
    kind: str, code: str, exact: list[Any], odd: list[Any]
) -> None:
    """A row would be matched by another value, or each row be looked at by itself."""
    key_cell = module("kernels.column_visits").key_cell
    cells = array(code, [*exact, *odd])
    column = SimpleNamespace(kind=KINDS[kind], data=cells.buffer_info()[0])
    found = [bool(key_cell(column, row)[1]) for row in range(len(cells))]
    assert found == [False] * len(exact) + [True] * len(odd)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_texts_are_looked_up_in_their_own_column(compiled: bool, kind: Any) -> None:
    """A text would be cut at another row's end, or be found under another attribute."""
    index = block_index(compiled)
    texts = ["", "a", "ab", "abcd", "abcde", "é" * 30]
    for n, text in enumerate(texts):
        index.add(n, ct.Filter({"one": text}))
        index.add(100 + n, ct.Filter({"other": text}))
    drawn = [texts[n % 6] if n % 7 else None for n in range(MANY)]
    table = pa.table({"one": pa.array(["before", *drawn], kind).slice(1), "other": drawn[::-1]})
    offsets, keys = index.match_batch(table)
    for n in range(MANY):
        one, other = drawn[n], drawn[MANY - 1 - n]
        expected = [] if one is None else [texts.index(one)]
        expected += [] if other is None else [100 + texts.index(other)]
        assert sorted(keys[offsets[n] : offsets[n + 1]].tolist()) == expected


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_value_is_looked_up_once_beside_other_places(compiled: bool) -> None:
    """A row would get a key twice, where filters also need the attribute or parts of its text."""
    index = block_index(compiled)
    index.add(1, ct.Filter({"text": "ab"}))
    index.add(2, ct.Filter({"text": ct.ops.ge("a")}))
    index.add(3, ct.Filter({"whole": 1}))
    index.add(4, ct.Filter({"whole": ct.ops.exists()}))
    texts, numbers = ["ab", "b", None] * 20, [1, None, 2] * 20
    offsets, keys = index.match_batch(pa.table({"text": texts, "whole": numbers}))
    found = [keys[offsets[n] : offsets[n + 1]].tolist() for n in range(60)]
    assert [*map(sorted, found)] == [[1, 2, 3, 4], [2], [4]] * 20


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_block_counts_as_its_rows(compiled: bool) -> None:
    """Filters would get places by wrong shares of notifications, or never move."""
    one, other = block_index(compiled), block_index(compiled)
    for index in (one, other):
        for n in range(60):
            index.add(n, ct.Filter({"kind": f"k{n % 4}", "price": ct.ops.gt(n)}))
    table = pa.table(
        {
            "kind": [f"k{n % 5}" for n in range(100)],
            "price": [
                float("nan") if n % 9 == 0 else None if n % 5 == 0 else n for n in range(100)
            ],
        }
    )
    one.match_batch(table)
    for row in table.to_pylist():
        other.match({name: value for name, value in row.items() if value is not None})
    assert one.statistics().notifications == other.statistics().notifications == 100
    counted = [
        (arrays.attrs.seen.tolist(), arrays.buckets.hits.tolist(), arrays.counters.looked[0])
        for arrays in (arrays_of(each)._segment.arrays for each in (one, other))
    ]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_texts_of_other_places_are_compared_by_their_own_hash(compiled: bool) -> None:
    """A row would miss a filter whose guard compares the text, or get one for another text."""
    index = block_index(compiled)
    filters = {n: ct.Filter({"whole": n % 3, "text": "abc"[n // 3]}) for n in range(9)}
    filters[9] = ct.Filter({"text": ct.ops.ge("b")})
    filters[10] = ct.Filter({"other": "x"})
    for key, each in filters.items():
        index.add(key, each)
    columns = {
        "whole": [n % 3 for n in range(60)],
        "text": [[*"abcd", None][n % 5] for n in range(60)],
        "other": [[*"xy"][n % 2] for n in range(60)],
    }
    offsets, keys = index.match_batch(pa.table(columns))
    for n in range(60):
        row = {name: each[n] for name, each in columns.items() if each[n] is not None}
        expected = naive(filters, ct.Notification(row))
        assert sorted(keys[offsets[n] : offsets[n + 1]].tolist()) == expected
