"""The move from the plain engine to the arrays, during updates and matches."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import contrada as ct
from contrada.errors import LimitError
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels import jit
from tests import strategies
from tests.matching.engines import load_kernels, module, naive, needs_numba


class GoingOver(RuleBasedStateMachine):
    """Updates, matching and pieces of filling, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.index: ct.Index[int] = ct.Index(compiled=False)
        self.by_key: dict[int, Any] = {}

    @rule(key=st.integers(0, 9), of=strategies.filters() | strategies.filter_sets())
    def add(self, key: Any, of: Any) -> None:
        self.index.add(key, of)
        self.by_key[key] = of

    @rule(key=st.integers(0, 9))
    def remove(self, key: Any) -> None:
        self.index.remove(key)
        self.by_key.pop(key, None)

    @rule()
    def begin(self) -> None:
        if self.index._arrays is None:
            self.index._begin_arrays(module("array_engine").ArrayEngine())

    @rule(units=st.integers(1, 5))
    def maintain(self, units: Any) -> None:
        self.index.maintain(units)

    @rule(notification=strategies.notifications())
    def match(self, notification: Any) -> None:
        assert sorted(self.index.match(notification)) == naive(self.by_key, notification)

    @invariant()
    def is_valid(self) -> None:
        self.index.validate()
        assert len(self.index) == len(self.by_key)


TestGoingOver = GoingOver.TestCase
TestGoingOver.__doc__ = "A filter would be lost, or stay, between the two engines."


def filled(index: ct.Index[int], count: int) -> None:
    """Adds so many filters."""
    for key in range(count):
        index.add(key, ct.Filter({"a": key % 7, "b": ct.ops.ge(key)}))


def test_the_arrays_take_over_when_they_hold_everything() -> None:
    """Filling would never end, would be done at once, or the plain engine be kept."""
    index: ct.Index[int] = ct.Index(compiled=False)
    filled(index, 1_000)
    index._begin_arrays(module("array_engine").ArrayEngine())
    assert index.statistics().renewing
    turns = 0
    while index.maintain(10):
        assert sorted(index.match({"a": 3, "b": 20})) == [3, 10, 17]
        turns += 1
    assert 100 <= turns <= 250
    assert type(index._engine).__name__ == "ArrayEngine"
    assert index._left is None
    assert not index.statistics().renewing
    index.validate()


def test_refused_filters_keep_the_plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter would be lost, or matching end, because the arrays have no room for it."""
    monkeypatch.setattr(module("filter_compiler"), "TEXT_BYTES_MAX", 10)
    index: ct.Index[int] = ct.Index(compiled=False)
    filled(index, 20)
    index._begin_arrays(module("array_engine").ArrayEngine())
    with pytest.raises(LimitError):
        index.add(99, ct.Filter("c = 'longer than ten'"))
    assert 99 not in index
    index._arrays = None
    index.add(99, ct.Filter("c = 'longer than ten'"))
    index._begin_arrays(module("array_engine").ArrayEngine())
    while index.maintain(3):
        assert index.match({"c": "longer than ten"}) == [99]
    assert sorted(index.match({"a": 3, "b": 20, "c": "longer than ten"})) == [3, 10, 17, 99]
    assert not index.statistics().renewing
    index.validate()


def test_kernels_are_loaded_once_when_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be loaded for a few notifications, or again with each one."""
    calls: list[int] = []
    monkeypatch.setattr(jit, "_state", {})
    monkeypatch.setattr(jit, "is_cached", lambda: True)
    limits = IndexLimits(work_plain_max=200, work_between=10)
    index: ct.Index[int] = ct.Index(load=lambda: calls.append(1), limits=limits)
    filled(index, 5)
    for _ in range(10):
        index.match({"b": 3})
    assert calls == []
    for _ in range(100):
        index.match({"a": 1, "b": 3})
    assert calls == [1]
    assert not index.statistics().is_compiled


@needs_numba
@pytest.mark.parametrize("count", [50, 1_000])
def test_a_service_moves_in_parts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """All filters would be entered between two notifications of a service."""
    load_kernels()
    state = dict(jit._state)
    monkeypatch.setattr(jit, "_state", {})
    index: ct.Index[int] = ct.Index(load=lambda: None)
    filled(index, count)
    monkeypatch.setattr(jit, "_state", state)
    index.match({"a": 3, "b": 20})
    assert index.statistics().is_compiled is (count == 50)
    while index.maintain():
        assert sorted(index.match({"a": 3, "b": 20})) == [3, 10, 17]
    assert index.statistics().is_compiled


def test_a_plain_index_is_saved_and_loaded_without_arrays(tmp_path: Path) -> None:
    """Where Numba is missing, an index could not be kept."""
    index: ct.Index[int] = ct.Index(compiled=False)
    filled(index, 30)
    index.save(tmp_path / "index")
    assert not index.statistics().is_compiled
    loaded = ct.Index.load(tmp_path / "index", compiled=False)
    assert loaded.statistics().bytes == 0
    assert sorted(loaded.match({"a": 3, "b": 20})) == [3, 10, 17]
    loaded.validate()
