"""A segment of the index: shared hashes, failed updates, removal of filters, crowding."""

from enum import Enum
from itertools import pairwise, product
from random import Random
from string import ascii_lowercase
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InvalidFilterError, InvalidNotificationError, LimitError
from contrada.matching import index as index_module
from contrada.matching.assignment import CUT_AT
from contrada.matching.filter_compiler import TEXT_BYTES_MAX, number_key
from contrada.matching.index_arrays import _SEED
from contrada.matching.kernels import scratch
from contrada.matching.kernels.schema import USES_BYTES
from contrada.matching.kernels.scratch import hash_of_part, hash_of_text, point_hash
from contrada.matching.segment import IndexSegment
from contrada.model.algebra import sets
from contrada.model.domains.values import NUMBER
from tests.matching.engines import COMPILED, arrays_of, module, needs_native, new_index, table


def looked_at(index: ct.Index[Any], notification: dict[str, Any]) -> int:
    """How many entries a match looks at."""
    index.match(notification)
    return arrays_of(index)._segment.arrays.counters.looked[0]  # type: ignore[no-any-return]


def number_of_one_hash(hashes: dict[int, Any], attr: int) -> tuple[Any, int]:
    """A value with one of these hashes, and a number of an attribute with a place of that hash."""
    for number in range(2_000_000):
        other = hashes.get(point_hash(_SEED, attr, NUMBER, number_key(number)[0]))
        if other is not None:
            return other, number
    raise AssertionError("no number has one of these hashes")


def of_one_hash() -> tuple[int, int]:
    """A number of the first attribute and one of the second with places of one hash."""
    hashes = {point_hash(_SEED, 0, NUMBER, number_key(n)[0]): n for n in range(30_000)}
    return number_of_one_hash(hashes, 1)


def index_of(compiled: Any, filters: dict[int, str]) -> ct.Index[int]:
    """An index of these filters by their keys, added in this order."""
    index: ct.Index[int] = new_index(compiled)
    for key, text in filters.items():
        index.add(key, ct.Filter(text))
    return index


@pytest.mark.parametrize("compiled", COMPILED)
def test_two_values_of_one_hash_give_a_key_once(compiled: Any) -> None:
    """A filter that hangs at two values would be met twice, by another attribute's value, too."""
    x, y = of_one_hash()
    index = index_of(compiled, {0: "a = -1", 2: "b = -1", 1: f"a in ({x}, -7)"})
    assert index.match({"a": -7, "b": y}) == [1]
    index.add(3, ct.Filter(f"b = {y}"))
    assert sorted(index.match({"a": -7, "b": y})) == [1, 3]
    assert index.match({"a": x}) == [1]
    index.remove(3)
    index.validate()
    assert index.match({"a": x, "b": y}) == [1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_filter_gives_its_key_once_where_two_values_had_one_hash_before(compiled: Any) -> None:
    """A filter of two values would be met twice if its hash was that of two values already."""
    x, y = of_one_hash()
    filters = {0: "a = -1", 2: "b = -1", 3: f"b = {y}", 4: f"a = {x}", 1: f"a in ({x}, -7)"}
    index = index_of(compiled, filters)
    assert sorted(index.match({"a": -7, "b": y})) == [1, 3]
    assert sorted(index.match({"a": x, "b": y})) == [1, 3, 4]


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_only_value_of_an_attribute_is_found_at_the_hash_of_another(compiled: Any) -> None:
    """Its filter would never match: the attribute seemed to have no filters with single values."""
    x, y = of_one_hash()
    index = index_of(compiled, {1: f"a = {x}", 2: f"b = {y}"})
    assert index.match({"b": y}) == [2]
    assert sorted(index.match({"a": x, "b": y})) == [1, 2]
    _, keys = index.match_batch([{"b": y}] * 3)
    assert keys.tolist() == [2] * 3


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_value_with_the_hash_of_a_prefix_gives_a_key_once(compiled: Any) -> None:
    """A filter that hangs at two values would be met twice, once by a text of that prefix."""
    hashes = {}
    for letters in product(ascii_lowercase, repeat=3):
        part = "".join(letters)
        h = hash_of_part(_SEED, part.encode())
        hashes[scratch.place_hash(_SEED, 0, scratch.KIND_PREFIX, h)] = part
    part, y = number_of_one_hash(hashes, 1)
    index = index_of(compiled, {0: f"a prefix '{part}'", 1: f"b in ({y}, -7)"})
    assert sorted(index.match({"a": f"{part}.", "b": -7})) == [0, 1]
    assert sorted(index.match({"b": y})) == [1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_refused_filter_leaves_its_key_as_it_was(compiled: Any) -> None:
    """A key would lose the filter that it had."""
    index: ct.Index[int] = new_index(compiled)
    index.add(1, ct.Filter("a = 1"))
    with pytest.raises(LimitError):
        index.add(1, ct.Filter({"a": "x" * (TEXT_BYTES_MAX + 1)}))
    with pytest.raises(InvalidFilterError, match="a filter is a Filter"):
        index.add(1, 5)  # type: ignore[arg-type]
    assert index.match({"a": 1}) == [1]
    index.validate()


def test_parts_of_a_refused_filter_count_as_unused() -> None:
    """Refused filters would fill the memory."""
    index: ct.Index[int] = ct.Index()
    large, too_large = "y" * 2**20, "x" * (TEXT_BYTES_MAX + 1)
    for number in range(4):
        with pytest.raises(LimitError):
            index.add(1, ct.Filter({"a": f"{number}{large}", "b": too_large}))
        index.maintain()
    assert index.statistics().bytes < 4 * 2**20


@pytest.mark.parametrize("compiled", COMPILED)
def test_names_of_removed_filters_are_dropped_in_the_long_run(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes that nobody asks for any more would pile up."""
    segment = module("segment", compiled)
    monkeypatch.setattr(segment, "UNUSED_BYTES_MIN", segment.UNUSED_BYTES_MIN // 8)
    bytes_each = 4 * 4 + USES_BYTES + 100  # An equality, with its head, and the name.
    count = 3 * segment.UNUSED_BYTES_MIN // bytes_each
    index: ct.Index[int] = new_index(compiled)
    most = 0
    for number in range(count):
        index.add(1, ct.Filter({f"{number:0100}": 1}))
        index.maintain()
        most = max(most, index.statistics().attributes)
    assert count // 4 < most < count // 2


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_ascending_ranges_are_spread_over_the_bins(compiled: Any) -> None:
    """Bins would be cut where the first ranges lie, and all later ones hang in the last."""
    index: ct.Index[int] = new_index(compiled)
    for number in range(4 * CUT_AT[-1]):
        index.add(number, ct.Filter({"x": sets.between(10 * number, 10 * number + 100)}))
        index.maintain()
    while index.maintain(1_000):
        pass
    found = sorted(index.match({"x": 10_005}))
    assert found == [
        number for number in range(2_048) if number * 10 <= 10_005 <= number * 10 + 100
    ]
    assert looked_at(index, {"x": 10_005}) < 4 * CUT_AT[-1] / 10
    index.validate()


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_of_several_places_go_without_a_search(compiled: Any) -> None:
    """An entry that moved would not be found by its filter."""
    index: ct.Index[int] = new_index(compiled)
    random = Random(5)
    kept: dict[int, ct.Filter] = {}
    for number in range(600):
        kept[number] = ct.Filter({"x": sets.in_("all", number % 50, number)})
        index.add(number, kept[number])
        if number % 3 == 2:
            gone = random.choice(list(kept))
            index.remove(gone)
            del kept[gone]
    index.validate()
    for value in ("all", 7, 55, 300):
        expected = sorted(
            key for key, each in kept.items() if each.matches(ct.Notification({"x": value}))
        )
        assert sorted(index.match({"x": value})) == expected


def test_rows_in_doubt_are_matched_alone_and_counted_once() -> None:
    """One large integer would send a whole table row by row, and count all of its rows twice."""
    pa = pytest.importorskip("pyarrow")
    for key in (5, "five"):
        index: ct.Index[Any] = new_index(True)
        index.add(key, ct.Filter("a > 9007199254740993"))
        index.add(8, ct.Filter("b = 1 and t matches /x+y$/"))
        index.add(9, ct.Filter("b = 1"))
        rows = [
            {"a": 9007199254740992 + number % 3, "b": number % 2, "t": "xy" if number % 5 else "y"}
            for number in range(1_000)
        ]
        table = pa.Table.from_pylist(rows).slice(10)
        before = index.statistics().notifications
        offsets, keys = index.match_batch(table)
        assert index.statistics().notifications - before == 990
        for number, row in enumerate(rows[10:]):
            found = keys[offsets[number] : offsets[number + 1]].tolist()
            assert sorted(map(str, found)) == sorted(map(str, index.match(row)))


@pytest.mark.parametrize("compiled", COMPILED)
def test_covered_and_meeting_ask_only_for_filters_of_that_text(
    compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each filter that names a text attribute would be decided by the algebra."""
    index: ct.Index[int] = new_index(compiled)
    for number in range(500):
        index.add(number, ct.Filter({"a": f"text{number % 250}", "b": number}))
    index.add(500, ct.Filter("a prefix 'text7'"))
    asked: list[Any] = []

    def counted(function: Any) -> Any:
        def ask(*arguments: Any) -> Any:
            asked.append(arguments)
            return function(*arguments)

        return ask

    for name in ("covers", "product_meets"):
        monkeypatch.setattr(index_module, name, counted(getattr(index_module, name)))
    assert sorted(index.covered(ct.Filter("a = 'text7'"))) == [7, 257]
    assert sorted(index.meeting(ct.Filter("a = 'text7'"))) == [7, 257, 500]
    assert index.covered(ct.Filter("a = 'nobody'")) == []
    assert len(asked) < 10


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_ordered_ranges_are_moved_once_and_then_lie_well(compiled: Any) -> None:
    """Bins would be cut again as soon as filters are moved, for ever, or be left crowded."""
    count = 5_000 if compiled else 4 * CUT_AT[-1]
    index: ct.Index[int] = new_index(compiled)
    for number in range(count):
        index.add(number, ct.Filter({"x": sets.between(10 * number, 10 * number + 100)}))
    index.renew()
    assert not index.maintain(256)
    steps = range(0, 10 * count, count // 10)
    assert max(looked_at(index, {"x": step}) for step in steps) < count / 10


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_text_leads_to_no_value_of_its_hash(compiled: Any) -> None:
    """A filter that hangs at two values would be met again by another attribute's prefix."""
    prefixes = map("".join, product(ascii_lowercase, "aeiou", "bcdfghjklm", "01234567"))
    of = {
        scratch.place_hash(_SEED, 1, scratch.KIND_PREFIX, hash_of_part(_SEED, each.encode())): each
        for each in prefixes
    }
    prefix, number = number_of_one_hash(of, 0)
    index: ct.Index[int] = new_index(compiled)
    index.add(0, ct.Filter("a = -1"))
    index.add(1, ct.Filter(f"b prefix {'!' * len(prefix)!r}"))
    index.add(2, ct.Filter(f"a in ({number}, -7)"))
    assert index.match({"a": -7, "b": f"{prefix}x"}) == [2]


def test_columns_of_one_name_are_refused() -> None:
    """A repeated attribute would be written behind the end of an array."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[int] = ct.Index()
    index.add(1, ct.Filter("a = 5"))
    columns = pa.Table.from_arrays([pa.array([5, 6])] * 40, names=["a"] * 40)
    with pytest.raises(InvalidNotificationError, match="another column"):
        index.match_batch(columns)


@needs_native
def test_names_that_are_written_alike_are_one_attribute() -> None:
    """The same in a mapping: names that are no texts are passed over, and do no harm."""
    index: ct.Index[int] = new_index(True)
    index.add(1, ct.Filter("a = 5"))
    make: Any = Enum
    names = [make("Name", {"A": "a"})("a") for _ in range(40)]
    assert index.match({"a": 5} | dict.fromkeys(names, 6)) == [1]


@pytest.mark.parametrize(
    ("filter_", "asked"),
    [
        ("x < -9007199254740992", "x < -9007199254740991"),
        ("x < 9223372036854775807", "x < 9223372036854775808.0"),
        ("a ((suffix 'x' & suffix 'y') | (suffix 'z' & suffix 'w'))", "b = 1"),
    ],
)
def test_covered_filters_are_found_at_the_edges(filter_: str, asked: str) -> None:
    """A filter would seem wider than one that covers it, or an empty one be overlooked."""
    index: ct.Index[int] = new_index(False)
    index.add(0, ct.Filter(filter_))
    assert ct.covers(ct.Filter(asked), ct.Filter(filter_))
    assert index.covered(ct.Filter(asked)) == [0]


def test_a_column_that_nobody_asks_for_is_not_looked_at() -> None:
    """A row that is matched by itself would be refused for a value that no filter names."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[int] = new_index(True)
    index.add(1, ct.Filter("a > 5"))
    late = pa.array([0, 2**62], pa.timestamp("us", "UTC"))
    for numbers in ([6, 7], [2**53 + 1, 7]):
        offsets, keys = index.match_batch(pa.table({"a": numbers, "t": late}))
        assert (offsets.tolist(), keys.tolist()) == ([0, 1, 2], [1, 1])


def test_a_key_leaves_a_filter_of_many_without_a_search() -> None:
    """The first key of a filter would be searched for among all of its keys."""
    index: ct.Index[int] = new_index(False)
    for key in range(50):
        index.add(key, ct.FilterSet([ct.Filter("a = 1"), ct.Filter({"b": key})]))
    for key in (0, 49, 25):
        index.remove(key)
        index.validate()
    assert sorted(index.match({"a": 1})) == [key for key in range(50) if key not in (0, 25, 49)]


@pytest.mark.parametrize("compiled", COMPILED)
def test_names_made_to_lie_side_by_side_do_not(compiled: Any) -> None:
    """Each name of a notification would be compared with all of them."""
    names = []
    for number in range(200_000):
        h = scratch.finished(hash_of_text(scratch.FIXED_SEED, b"n%x" % number))
        if h & 1023 < 2:
            names.append(f"n{number:x}")
    index: ct.Index[int] = new_index(compiled)
    for name in names:
        index.add(len(index), ct.Filter({name: 1}))
    taken = table(arrays_of(index)._segment.arrays, "names") != 0
    free = [i for i, each in enumerate(taken.tolist()) if not each]
    assert len(names) > 300
    assert max(b - a for a, b in pairwise(free)) < 40


def test_generations_of_one_index_hash_alike() -> None:
    """The statistics of a place are read from the former segment, by the place's hash."""
    before = IndexSegment()
    before.arrays.seed[0] = 12345
    assert IndexSegment(before).arrays.seed[0] == 12345
