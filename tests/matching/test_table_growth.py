"""Hash tables that grow in slices: nothing is lost, and no update pays for all rows."""

from typing import Any

import pytest

import contrada as ct
from contrada.matching import table_growth
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import Layout
from contrada.matching.table_growth import TableGrowth
from tests.matching.engines import COMPILED, arrays_of, module, new_index


def test_a_larger_table_is_filled_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update would wait until a million rows are entered anew; or a row be left out."""
    monkeypatch.setattr(table_growth, "ROWS_AT_ONCE", 3)
    growth, table, rows = TableGrowth(), Rows.zeros(Layout("i"), 32), 16
    filled: list[tuple[int, ...]] = []

    def fill(*some: Any) -> None:
        filled.append(some[:2])

    while (found := growth.grown(table, rows, rows, rows, fill)) is table:
        growth.put(1, fill)
        growth.put(growth.filled, lambda *_: pytest.fail("the next slice has it"))
        rows += 1
    again = [some for some in filled if some == (1, 2)]
    slices = [some for some in filled if some != (1, 2)]
    assert len(found) == 64
    assert len(again) == len(slices) - 1
    assert max(end - first for first, end in slices) == 3
    assert [n for some in slices for n in range(*some)] == list(range(rows))
    assert growth.larger is None


def test_a_table_is_never_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up of an unknown entry would never end where many rows are added at once."""
    monkeypatch.setattr(table_growth, "ROWS_AT_ONCE", 1)
    growth, table = TableGrowth(), Rows.zeros(Layout("i"), 16)
    assert growth.grown(table, 8, 8, 8, lambda *_: None) is table
    assert len(growth.grown(table, 12, 12, 12, lambda *_: None)) == 32


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_index_is_whole_while_its_tables_grow(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, equal filters, texts or buckets of some moment would be lost for ever."""
    monkeypatch.setattr(module("table_growth", compiled), "ROWS_AT_ONCE", 2)
    index, held = new_index(compiled), dict[int, int]()
    for step in range(150 if compiled else 60):
        key = (step * 7) % 90
        held[key] = step % 70
        index.add(key, ct.Filter({"a": f"text {held[key]}", "b": held[key]}))
        if step % 5 == 4:
            gone = next(iter(held))
            del held[gone]
            index.remove(gone)
        if step % 9 == 0:
            encoding = ct.to_msgpack(ct.Filter({"a": f"x{step}"}))
            index.add_encoded([1_000 + step], [encoding])
        for number in set(held.values()):
            expected = sorted(key for key, of in held.items() if of == number)
            assert sorted(index.match({"a": f"text {number}", "b": number})) == expected
        assert arrays_of(index)._segment.compiler.known_text(b"none of these") == -1
    index.validate()
    assert set(index) >= set(held)
