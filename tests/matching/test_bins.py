"""Bins of ranges that are cut anew while filters are added, removed, matched and saved."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import contrada as ct
from contrada.model.algebra import sets
from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import Work
from tests.matching.engines import COMPILED, arrays_of, loaded_index, module, naive, new_index

COUNT: Final = 300
CHANCE: Final = Random(11)
ORDER: Final = CHANCE.sample(range(COUNT), COUNT)
TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
PLANES: Final = [chr(code) for code in (0x20, 0x7F, 0x7FF, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF)]


def time(number: int) -> datetime:
    """A time for each number, in order."""
    return TIME + timedelta(hours=number)


def text(number: int) -> str:
    """A text for each number, in order but for its last letter; of all planes of Unicode."""
    return f"{chr(0x100 + 0x2D00 * (number // 4))}{PLANES[number % len(PLANES)]}"


def other(number: int) -> ct.ValueSet:
    """Ranges of all domains, other sets, and values that are no ranges."""
    return (
        sets.between(-inf, number),
        sets.gt(number),
        sets.between(time(number), time(number + 9)),
        sets.between(text(number), text(number + 40)),
        sets.none_of(number, nan),
        sets.eq(number),
        sets.matches(f"^{number}.*[xy]$"),
        sets.exists(),
        sets.ge(2**53 + number),
    )[number % 9]


KINDS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "ascending": lambda n: {"x": sets.between(n, n + 5)},
    "descending": lambda n: {"x": sets.between(-n, 5 - n), "y": sets.gt(0)},
    "random": lambda n: {"x": sets.between(ORDER[n], ORDER[n] + 5)},
    "equal": lambda n: {"x": sets.between(1, 5), "y": sets.none_of(n)},
    "times": lambda n: {"x": sets.between(time(n), time(n + 5))},
    "texts": lambda n: {"x": sets.between(text(n), text(n + 3))},
    "halves": lambda n: {"x": sets.lt(n) if n % 2 else sets.ge(n), "y": sets.lt(-n)},
    "others": lambda n: {"x": other(n)},
    "pooled": lambda n: {a: sets.between(n, n + 90) for a in "wxyz"},
}
"""Filters in order: their sets of attributes by their number."""

VALUES: Final = (
    *(-290, -1, 0, 3, 33, 33.5, 150, 299, 301, 2**53 + 33, 2**60 + 1, inf, -inf, nan, None, True),
    *(time(3), time(152), text(7), text(200), PLANES[-1], "", "150 x"),
    *([3, 33], [150, text(7), nan]),
)
NOTIFICATIONS: Final = [
    {"x": value, "w": 150, "y": second, "z": 150} for value in VALUES for second in (-33, 150)
] + [{"y": 3}, {}]


@pytest.fixture(params=COMPILED)
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether kernels are compiled; few ranges suffice to cut bins."""
    of: bool = request.param
    assignment = module("assignment", of)
    monkeypatch.setattr(assignment, "CUT_AT", (8, 32))
    monkeypatch.setattr(assignment, "CROWDED_STEP", 1)
    return of


def moving(index: ct.Index[Any]) -> dict[int, int]:
    """The attributes of which filters are moved."""
    return arrays_of(index)._segment.assignment.moving


def check(index: ct.Index[int], kept: dict[int, ct.Filter], given: Iterable[Any]) -> None:
    """Compares matches, one by one and together, with an evaluation of each filter."""
    listed = list(given)
    offsets, keys = index.match_batch(listed)
    for row, each in enumerate(listed):
        expected = naive(kept, ct.Notification(each))
        assert sorted(index.match(each)) == expected, each
        assert sorted(keys[offsets[row] : offsets[row + 1]].tolist()) == expected, each
    index.validate()


@pytest.mark.parametrize("kind", KINDS)
def test_matches_are_exact_while_filters_move(kind: str, compiled: bool, tmp_path: Path) -> None:
    """A filter would be found in none of two trees, or twice."""
    index: ct.Index[int] = new_index(compiled)
    kept: dict[int, ct.Filter] = {}
    cut, given = 0, iter(NOTIFICATIONS * COUNT)
    for number in range(COUNT if compiled else COUNT // 2):
        was_moving = bool(moving(index))
        kept[number] = ct.Filter(KINDS[kind](number))
        index.add(number, kept[number])
        cut += bool(moving(index)) and not was_moving
        if moving(index) and number % 3 == 0:
            gone = CHANCE.choice(list(kept))
            index.remove(gone)
            del kept[gone]
        if moving(index) or number % 16 == 0:
            check(index, kept, [next(given)])
        if moving(index) and number % 64 < 8:  # As a saved index, which moves the rest.
            index.save(tmp_path / "index")
            index = loaded_index(tmp_path / "index", compiled)
            assert moving(index)
    assert cut >= 2
    while index.maintain(3):
        check(index, kept, [next(given)])
    assert not moving(index)
    check(index, kept, NOTIFICATIONS)


@pytest.mark.parametrize("kind", ["ascending", "descending", "random", "times", "texts", "pooled"])
def test_ranges_in_order_are_spread_over_the_bins(kind: str, compiled: bool) -> None:
    """All later ranges would be in the last bin, and each match would check half of them."""
    index: ct.Index[int] = new_index(compiled)
    first = arrays_of(index)._segment
    for number in range(COUNT):
        index.add(number, ct.Filter(KINDS[kind](number)))
    while index.maintain():
        pass
    is_renewed = arrays_of(index)._segment is not first
    assert is_renewed == (kind == "pooled"), "only for a pool all filters are moved"
    looked = []
    for number in range(0, COUNT, 10):
        values = {"times": time(number), "texts": text(number), "descending": -number}
        index.match({"x": values.get(kind, number), "y": 1, "w": 0, "z": 0})
        looked.append(index.statistics().candidates)
    # The bins are those of the first 256, so only the others may share one.
    assert sum(looked) / len(looked) < COUNT / 6


def test_matches_move_what_updates_have_left(compiled: bool) -> None:
    """An index that is filled, and then only asked, would keep its filters in the former bins."""
    index: ct.Index[int] = new_index(compiled)
    filters = {n: ct.Filter({"x": sets.between(n, n + 2)}) for n in range(64)}
    for number, each in filters.items():
        index.add(number, each)
    assert moving(index)
    for _ in range(80):
        assert sorted(index.match({"x": 33})) == [31, 32, 33]
    assert not moving(index)
    index.validate()


def test_filters_at_presence_are_considered_in_parts(compiled: bool) -> None:
    """The filter with which an attribute gets bins would wait for thousands of others."""
    index: ct.Index[int] = new_index(compiled)
    kept = {n: ct.Filter({"x": sets.matches(f"[^a]{n}|[^b]$")}) for n in range(100)}
    for number, each in kept.items():
        index.add(number, each)
    for number in range(100, 108):
        kept[number] = ct.Filter({"x": sets.between(number, number + 2)})
        index.add(number, kept[number])
    assert max(moving(index).values()) > 90
    for number in (3, 99, 103, 107, 50):
        del kept[number]
        index.remove(number)
        check(index, kept, [{"x": 104}, {"x": "55 x"}])
    while index.maintain(3):
        check(index, kept, [{"x": 104}, {"x": "55 x"}])
    index.match({"x": 400})
    assert index.statistics().candidates < 100


def test_filters_that_are_added_together_are_moved_later(compiled: bool) -> None:
    """Of many filters that crowd the bins, those before them would all be moved at once."""
    index: ct.Index[int] = new_index(compiled)
    kept: dict[int, ct.Filter] = {}
    for first, end in ((0, 50), (50, 90), (90, 300)):
        some = {n: ct.Filter({"x": sets.between(n, n + 1)}) for n in range(first, end)}
        index.add_encoded(list(some), [to_msgpack(each) for each in some.values()])
        kept |= some
        check(index, kept, [{"x": n} for n in (0, 33, 60, 89, 90, 200, 300)])
    while index.maintain(1):
        check(index, kept, [{"x": 33}])


def test_bins_that_are_due_while_filters_move_are_judged_afterwards(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bins would be cut where filters are already, or ranges that come faster be in one bin."""
    monkeypatch.setattr(module("array_engine", compiled), "UNITS_PER_UPDATE", 0)
    index: ct.Index[int] = new_index(compiled)
    kept = {n: ct.Filter({"x": sets.between(n, n + 1)}) for n in range(300)}
    for number, each in kept.items():
        index.add(number, each)
    assert moving(index)
    check(index, kept, [{"x": number} for number in (3, 40, 100, 299)])
    while index.maintain(64):
        pass
    check(index, kept, [{"x": number} for number in (3, 40, 100, 299)])
    arrays = arrays_of(index)._segment.arrays
    ends = arrays.ends_of(0)
    assert len({arrays.bin_at(arrays.attrs.tree[0], end) for end in ends}) > 40


@pytest.mark.parametrize("update", ["match", "match_batch", "remove", "renew"])
def test_no_budget_of_a_request_stops_a_move(
    update: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter would be in no place for ever: it is removed from one before the next is chosen."""
    monkeypatch.setattr(module("array_engine", compiled), "UNITS_PER_UPDATE", 1)
    index: ct.Index[int] = new_index(compiled)
    kept = {
        n: ct.Filter(
            {"x": sets.contains(f"{n}{'é' * 300}", nocase=True) | sets.matches("[^a][^b]")}
        )
        for n in range(20)
    }
    kept |= {n: ct.Filter({"x": sets.between(n, n + 2)}) for n in range(100, 108)}
    for number, each in kept.items():
        index.add(number, each)
    assert moving(index)
    if update == "renew":
        index.begin_renewal()
    with Work("BUDGET", 5):  # Less than to choose the place of one of the long texts.
        for _ in range(80):
            if update == "match_batch":
                index.match_batch([{"x": 1}])
            elif update == "remove":
                index.remove(107)
                index.add(107, kept[107])
            else:
                index.match({"x": 1})
    check(index, kept, [{"x": 104}, {"x": f"7{'é' * 300}"}, {"x": "b"}])


def test_filters_that_are_added_together_move_as_many_others(compiled: bool) -> None:
    """Calls that add many filters would leave a crowded tree as it is."""
    index: ct.Index[int] = new_index(compiled)
    kept = {n: ct.Filter({"x": sets.between(n, n + 1)}) for n in range(96)}
    for some in (range(40), range(40, 64), range(64, 96)):
        index.add_encoded(list(some), [to_msgpack(kept[each]) for each in some])
    assert not moving(index)
    check(index, kept, [{"x": 33}])


def test_bins_follow_ranges_that_slide(compiled: bool) -> None:
    """All filters that are there would be in the last bin: those before them were removed."""
    index: ct.Index[int] = new_index(compiled)
    kept: dict[int, ct.Filter] = {}
    looked = []
    for number in range(COUNT):
        kept[number] = ct.Filter({"x": sets.between(number, number + 2)})
        index.add(number, kept[number])
        if number >= 100:
            index.remove(number - 100)
            del kept[number - 100]
            index.match({"x": number - 30})
            looked.append(arrays_of(index)._segment.arrays.counters.looked[0])
    assert sum(looked) / len(looked) < 100 / 4
    check(index, kept, [{"x": number} for number in range(COUNT - 110, COUNT + 10, 10)])


def test_bins_are_looked_at_after_many_more_ranges(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each update of a full attribute would sort the ends of its ranges."""
    index: ct.Index[int] = new_index(compiled)
    segment = arrays_of(index)._segment
    asked = 0
    ends_of = segment.arrays.ends_of

    def counted(attr: int) -> Any:
        nonlocal asked
        asked += 1
        return ends_of(attr)

    monkeypatch.setattr(segment.arrays, "ends_of", counted)
    for live in (7, 8, 31, 32, 33, 63, 64, 65, 100):
        asked = 0
        for number in range(200):
            index.remove(number % live)
            index.add(number % live, ct.Filter({"x": sets.between(ORDER[number], 400)}))
        assert asked <= 8 + 500 // live, live
