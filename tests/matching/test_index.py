"""The index against plain evaluation of every filter, in plain Python and compiled."""

import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import contrada as ct
from contrada.errors import EncodingError, InvalidNotificationError, LimitError
from contrada.matching.kernels import jit
from contrada.matching.kernels.schema import EPOCHS_MAX
from contrada.matching.placing import places_of
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    ENGINES,
    arrays_of,
    loaded_index,
    module,
    naive,
    needs_numba,
    new_index,
)


@pytest.mark.parametrize("compiled", ENGINES)
@given(
    subscriptions=st.lists(strategies.filters() | strategies.filter_sets(), max_size=12),
    notifications=st.lists(strategies.notifications(), min_size=1, max_size=4),
)
def test_matches_as_every_filter_says(
    compiled: Any, subscriptions: Any, notifications: Any
) -> None:
    """Some operator, domain or several values would be matched otherwise than by the filter."""
    index: ct.Index[Any] = new_index(compiled)
    by_key = dict(enumerate(subscriptions))
    for key, subscription in by_key.items():
        index.add(key, subscription)
    index.validate()
    for notification in notifications:
        assert sorted(index.match(notification)) == naive(by_key, notification)


class Upkeep(RuleBasedStateMachine):
    """Adding, replacing, removing and renewing, in any order."""

    compiled: bool | None = False

    def __init__(self) -> None:
        super().__init__()
        self.index: ct.Index[int] = new_index(self.compiled)
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
    def begin_renewal(self) -> None:
        if not self.index.statistics().renewing:
            self.index.begin_renewal()

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


class CompiledUpkeep(Upkeep):
    """The same on compiled kernels."""

    compiled = True


class PlainUpkeep(Upkeep):
    """The same on the plain engine."""

    compiled = None


TestUpkeep = Upkeep.TestCase
TestUpkeep.__doc__ = "An update would lose a filter, or leave one behind."
TestPlainUpkeep = PlainUpkeep.TestCase
TestPlainUpkeep.__doc__ = "An update would lose a filter of the plain engine."
TestCompiledUpkeep = needs_numba(CompiledUpkeep.TestCase)
TestCompiledUpkeep.__doc__ = "An update would lose a filter on compiled kernels."


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_thousand_filters_on_one_attribute_make_a_tree(compiled: Any) -> None:
    """Ranges would be lost when an attribute gets a tree, or new pivots."""
    index: ct.Index[Any] = new_index(compiled)
    by_key = {i: ct.Filter({"x": ct.between(i % 97, i % 97 + i % 13)}) for i in range(1200)}
    by_key |= {-i: ct.Filter({"x": ct.gt(i)}) for i in range(1, 200)}
    by_key |= {10_000 + i: ct.Filter({"x": ct.lt(f"t{i}") & ct.ge("t1")}) for i in range(200)}
    for key, each in by_key.items():
        index.add(key, each)
    index.validate()
    for value in (-1, 0, 1, 12.5, 50, 96, 109, 10**6, math.nan, math.inf, "t15", "t", b"\xff"):
        notification = ct.Notification({"x": value})
        assert sorted(index.match(notification)) == naive(by_key, notification)


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_mapping_is_matched_as_a_notification(compiled: Any) -> None:
    """A plain dict would need other types, or be matched differently."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a = 1 and b contains 'x' and t > @2026-01-01T00:00:00Z"))
    time = datetime(2026, 2, 1, tzinfo=UTC)
    assert index.match({"a": [0, 1.0], "b": ["ax", "q"], "t": time}) == ["k"]
    assert index.match({"a": 2**70 - 2**70 + 1, "b": "x", "t": time, "z": None}) == ["k"]
    wrong: Any = object()
    with pytest.raises(InvalidNotificationError) as raised:
        index.match({"a": wrong})
    assert raised.value.name == "a"
    with pytest.raises(InvalidNotificationError):
        index.match({"a": 2**64 - 1})


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_mapping_has_no_marks_and_no_envelope(compiled: Any) -> None:
    """Whoever hands in a dict could pass for another publisher, or for an obvent."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("mark", ct.Filter("@is.Quote = true"))
    index.add("publisher", ct.Filter("@publisher = 'x'"))
    index.add("large", ct.Filter({"a": ct.gt(2**60)}))
    assert index.match({"@is.Quote": True, "@publisher": "x", "@version": "1"}) == []
    assert index.match({"a": 2**60 + 1, "@is.Quote": True, "@timestamp": "t"}) == ["large"]


@pytest.mark.parametrize("compiled", ENGINES)
def test_long_texts_and_many_values_make_the_scratch_grow(compiled: Any) -> None:
    """A notification larger than any before would be matched in part."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("end", ct.Filter({"x": ct.suffix("Z", nocase=True)}))
    index.add("few", ct.Filter({"y": 999}))
    for number in range(300):
        index.add(number, ct.Filter({"y": ct.ge(0)}))
    found = index.match({"x": "a" * 100_000 + "z", "y": list(range(1000))})
    assert sorted(map(str, found)) == sorted(["end", "few", *map(str, range(300))])


@pytest.mark.parametrize("compiled", COMPILED)
def test_stamps_start_anew_when_their_numbers_run_out(compiled: Any) -> None:
    """After two thousand million notifications old stamps would look new."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter({"a": 1}))
    assert index.match({"a": 1}) == ["k"]
    arrays_of(index)._generation.arrays.counters.epoch[0] = EPOCHS_MAX
    assert index.match({"b": 1}) == []
    assert index.match({"a": 1}) == ["k"]


def test_a_key_comes_once_and_equal_filters_are_stored_once() -> None:
    """A key would come for each of its filters, or equal filters would be matched twice."""
    index: ct.Index[Any] = new_index(False)
    index.add("one", ct.FilterSet("a = 1 or b = 2"))
    index.add("two", ct.Filter("a = 1"))
    assert sorted(index.match({"a": 1, "b": 2})) == ["one", "two"]
    assert index.statistics().filters == 2
    index.remove("one")
    assert index.match({"a": 1, "b": 2}) == ["two"]
    assert index.statistics().filters == 1


def test_an_operator_nobody_registered_meets_everything() -> None:
    """A filter in transit would be dropped because an operator is unknown here."""
    from contrada.model.languages.atoms import Atom
    from contrada.model.languages.language import Literal

    unknown = ct.ValueSet((), Literal(Atom("frob", b"x"), True))
    index: ct.Index[Any] = new_index(False)
    index.add("k", ct.Filter({"a": unknown, "b": 1}))
    assert index.match({"a": "text", "b": 1}) == ["k"]
    assert index.match({"a": "text", "b": 2}) == []


def test_renewal_frees_what_is_unused() -> None:
    """Words of removed filters would stay for ever."""
    index: ct.Index[Any] = new_index(False)
    for key in range(3000):
        index.add(key, ct.Filter({"a": key, "b": ct.gt(key)}))
    for key in range(2990):
        index.remove(key)
    before = index.statistics().bytes
    index.renew()
    index.validate()
    assert index.statistics().bytes < before / 5
    assert index.match({"a": 2995, "b": 5000}) == [2995]


def test_everything_works_without_numba() -> None:
    """Where nothing can be compiled there would be no answer."""
    code = (
        "import contrada as ct; i = ct.Index(compiled=True); i.add(1, ct.Filter('a > 1'));"
        "print(i.match({'a': 2}), i.statistics().is_compiled)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, jit.PURE_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[1]", "False"]


def test_kernels_that_are_loaded_are_used_from_the_first_filter_on() -> None:
    """Where much is subscribed and little published, all of it would be entered slowly."""
    if not jit.compiled():
        pytest.skip("numba is not installed")
    for compiled in (None, False):
        index: ct.Index[int] = ct.Index(compiled=compiled)
        index.add(1, ct.Filter("a > 1"))
        assert index.statistics().is_compiled is (compiled is None)
        index.add(2, ct.Filter("a > 1 and b = 'x'"))
        index.validate()
        assert sorted(index.match({"a": 2, "b": "x"})) == [1, 2]


def test_a_filter_that_is_refused_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant beyond the limit would leave half of a filter set, or an empty key."""
    monkeypatch.setattr(module("compiling"), "TEXT_BYTES_MAX", 10)
    index: ct.Index[Any] = new_index(False)
    with pytest.raises(LimitError):
        index.add("k", ct.FilterSet("b = 1 or c = 'longer than ten'"))
    assert "k" not in index
    assert index.match({"b": 1}) == []
    index.validate()


@pytest.mark.parametrize("compiled", ENGINES[:2])
@given(
    members=st.lists(strategies.filters() | strategies.filter_sets(), max_size=8),
    asked=strategies.filters(),
    advertised=strategies.advertisements(),
)
def test_relations_are_those_of_the_algebra(
    compiled: Any,
    members: list[ct.Filter | ct.FilterSet],
    asked: ct.Filter,
    advertised: ct.Advertisement,
) -> None:
    """The index would find other coverers, covered or meeting filters than the algebra."""
    index: ct.Index[int] = new_index(compiled)
    for key, member in enumerate(members):
        index.add(key, member)
    keyed = list(enumerate(members))
    assert sorted(index.covering(asked)) == [k for k, each in keyed if ct.covers(each, asked)]
    assert sorted(index.covered(asked)) == [k for k, each in keyed if ct.covers(asked, each)]
    for other in (asked, advertised, ct.Query(dict(asked.sets))):
        assert sorted(index.meeting(other)) == [k for k, each in keyed if ct.meets(each, other)]


def test_a_batch_is_matched_row_by_row() -> None:
    """Keys of one row of a batch would be taken for those of another."""
    index: ct.Index[str] = new_index(False)
    index.add("low", ct.Filter("x < 5"))
    index.add("any", ct.Filter("x any"))
    offsets, keys = index.match_batch([{"x": 9}, {}, {"x": 1}])
    assert offsets.tolist() == [0, 1, 1, 3]
    assert keys[0] == "any"
    assert sorted(keys[1:]) == ["any", "low"]


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_table_is_matched_as_its_rows(compiled: Any) -> None:
    """Columns would be matched otherwise than the same values in notifications."""
    pa = pytest.importorskip("pyarrow")
    time = datetime(2026, 2, 1, tzinfo=UTC)
    columns = {
        "n": pa.array([1, None, 3, -7], pa.int32()),
        "d": pa.array([-0.0, math.nan, None, math.inf]),
        "t": pa.array(["a", "", None, "ẞb"]),
        "l": pa.array([b"\xff", None, b"", b"ab"], pa.large_binary()),
        "b": pa.array([True, False, None, True]),
        "w": pa.array([time, None, time, None], pa.timestamp("us", tz="UTC")),
        "unasked": pa.array([[1], [2], None, []]),
    }
    texts = ["n >= 1", "n < 0 and t suffix nocase 'SSB'", "d = 0", "d = nan", "d > 3", "t = ''"]
    texts += ["t contains nocase 'ß'", "l = x'ff'", "l absent", "b = true", "w any", "n absent"]
    texts += ["t prefix 'a' and n != 2", "b = false or w > @2026-01-01T00:00:00Z"]
    index: ct.Index[int] = new_index(compiled)
    for key, text in enumerate(texts):
        index.add(key, ct.FilterSet(text))
    for table in (pa.table(columns), pa.table(columns).slice(1, 2)):
        offsets, keys = index.match_batch(table)
        rows = [{n: v for n, v in row.items() if v is not None} for row in table.to_pylist()]
        for i, row in enumerate(rows):
            assert sorted(keys[offsets[i] : offsets[i + 1]]) == sorted(index.match(row))
    wide = pa.table({"n": pa.array([2**53 + 1, 5]), "t": pa.array([["a", "b"], ["a"]])})
    offsets, keys = index.match_batch(wide)
    assert sorted(keys[: offsets[1]]) == sorted(index.match({"n": 2**53 + 1, "t": ["a", "b"]}))


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


def test_renewal_moves_filters_to_places_that_are_seldom_visited() -> None:
    """What notifications were seen would not change where filters hang."""
    index: ct.Index[int] = new_index(False)
    for key in range(200):
        index.add(key, ct.Filter({"common": key % 100, "rare": key % 50}))
    before = hanging_on(index, "common", 0, 1)
    for number in range(1000):
        index.match({"common": number % 2, "rare": -number})
    index.renew()
    assert hanging_on(index, "common", 0, 1) < before
    assert sorted(index.match({"common": 7, "rare": 7})) == [7, 107]


def hanging_on(index: Any, name: str, *values: int) -> int:
    """How many filters hang on an attribute's values, or on some of them."""
    generation = arrays_of(index)._generation
    attr = generation.compiler.attrs[name]
    places = [places_of(attr, ct.eq(value)) for value in values or range(100)]
    hashes = {place.hash for each in places if each for place in each}
    buckets = generation.arrays.of["buckets"]
    return int(buckets["length"][np.isin(buckets["hash"], list(hashes))].sum())


@pytest.mark.parametrize("compiled", ENGINES)
@given(
    subscriptions=st.lists(strategies.filters() | strategies.filter_sets(), max_size=10),
    more=strategies.filters(),
    notification=strategies.notifications(),
)
def test_a_saved_index_is_the_same(
    compiled: Any,
    subscriptions: list[Any],
    more: ct.Filter,
    notification: ct.Notification,
) -> None:
    """A filter, a key or an operator would be lost in the file, or updates be impossible."""
    index: ct.Index[Any] = new_index(compiled)
    keys: list[Any] = [None, 1, "x", b"y", 2.5, ("a", 1), ("b", ("c",)), "t", 8, 9]
    by_key = dict(zip(keys, subscriptions, strict=False))
    for key, subscription in by_key.items():
        index.add(key, subscription)
    index.remove("x")
    by_key.pop("x", None)
    with TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = loaded_index(Path(folder) / "index", compiled)
        other = loaded_index(Path(folder) / "index", compiled)
        loaded.validate()
        other.add("more", more)
        other.remove(1)
        other.validate()
        for each, of in ((loaded, by_key), (other, by_key | {"more": more})):
            expected = {key for key, one in of.items() if one.matches(notification)}
            expected -= {1} if each is other else set()
            found = each.match(notification)
            assert set(found) == expected
            assert len(found) == len(expected)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """A file that is no index would crash, or be taken for an empty one."""
    index: ct.Index[Any] = new_index(False)
    index.add("k", ct.Filter("a = 1 and b contains 'x'"))
    path = tmp_path / "index"
    index.save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"x" * 100, whole[:40], whole[:-200], whole[:16] + b"\xc1" + whole[17:]):
        path.write_bytes(damaged)
        with pytest.raises(EncodingError):
            ct.Index.load(path)
    with pytest.raises(FileNotFoundError):
        ct.Index.load(tmp_path / "missing")
    index.add(object(), ct.Filter("a = 1"))
    with pytest.raises(EncodingError, match="keys must be"):
        index.save(path)


def test_a_key_that_comes_and_goes_leaves_nothing_in_the_long_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index whose subscribers come and go would grow for ever."""
    monkeypatch.setattr(module("generation"), "UNUSED_BYTES_MIN", 4_000)
    index: ct.Index[str] = new_index(False)
    index.add("stays", ct.Filter("a = 1"))
    sizes = []
    for number in range(4000):
        index.add("equal", ct.Filter("a = 1"))
        index.add("other", ct.Filter({"b": number}))
        index.remove("equal")
        index.remove("other")
        index.maintain(8)
        sizes.append(index.statistics().bytes)
    index.validate()
    assert max(sizes[2000:]) <= max(sizes[:2000])
    assert index.match({"a": 1, "b": 3999}) == ["stays"]


@pytest.mark.parametrize("compiled", COMPILED)
def test_names_that_no_filter_asks_for_are_dropped_by_renewal(compiled: Any) -> None:
    """Subscriptions with ever new names would fill the memory."""
    index: ct.Index[str] = new_index(compiled)
    index.add("stays", ct.Filter("a = 1 and last contains 'x'"))
    for round_ in range(3):
        for number in range(200):
            index.add("k", ct.Filter({f"name {round_} {number}": 1, "a": 2}))
        index.renew()
        index.validate()
        assert index.statistics().attributes == 3
    index.begin_renewal()
    index.add("new", ct.Filter("a = 1 and fresh = 2"))
    index.add("k", ct.Filter("fresh = 2 and fresher = 3"))
    index.renew()
    index.validate()
    assert sorted(index.match({"a": 1, "last": "xy", "fresh": 2, "fresher": 3})) == [
        "k",
        "new",
        "stays",
    ]


def test_integer_keys_are_keys_like_others() -> None:
    """A key would be lost when the first key comes that is no integer, or taken for another."""
    index: ct.Index[Any] = new_index(False)
    for key in range(100):
        index.add(key * 7919, ct.Filter({"a": key % 3}))
    for key in range(0, 100, 2):
        index.remove(key * 7919)
    index.validate()
    assert len(index) == 50
    assert 7919 in index
    assert 7919.0 in index
    assert 0 not in index
    assert "7919" not in index
    assert 2**70 not in index
    before = index.match({"a": 1})
    others: tuple[Any, ...] = ("text", 2**64, True, 2.5, (1, "x"))
    for other in others:
        index.add(other, ct.Filter({"a": 1}))
        index.validate()
    assert sorted(map(str, index.match({"a": 1}))) == sorted(map(str, [*before, *others]))
    thirds = [key * 7919 for key in range(100) if key % 2 and key % 3 == 0]
    assert sorted(index.match({"a": 0})) == thirds


@pytest.mark.parametrize("compiled", COMPILED)
def test_many_keys_of_one_filter_come_and_go(compiled: Any) -> None:
    """A key would be lost, or stay, among those that share a filter."""
    index: ct.Index[int] = new_index(compiled)
    random = Random(3)
    there: set[int] = set()
    for step in range(600):
        key = random.randrange(200)
        if step % 3 == 2:
            index.remove(key)
            there.discard(key)
        else:
            index.add(key, ct.Filter("a = 1"))
            there.add(key)
    index.validate()
    assert sorted(index.match({"a": 1})) == sorted(there)
    for key in sorted(there):
        index.remove(key)
    index.validate()
    assert index.statistics().filters == 0


@needs_numba
@pytest.mark.parametrize(
    "kind",
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "double"],
)
def test_every_type_of_number_is_read_from_its_column(kind: str) -> None:
    """A number of some width would be read as another one."""
    pa = pytest.importorskip("pyarrow")
    values: list[int | None] = [0, 1, 100, None, 127]
    values += [] if kind[0] == "u" else [-1, -128]
    values += [2**31 - 1] if kind in ("int32", "int64", "uint32", "uint64", "double") else []
    values += [2**53 + 1, 2**62] if kind in ("int64", "uint64") else []
    index: ct.Index[int] = new_index(True)
    for key, constant in enumerate(each for each in values if each is not None):
        index.add(key, ct.Filter({"x": ct.ge(constant)}))
        index.add(100 + key, ct.Filter({"x": constant}))
    table = pa.table({"x": pa.array(values, getattr(pa, kind.replace("double", "float64"))())})
    offsets, keys = index.match_batch(table)
    for row, value in enumerate(values):
        expected = [] if value is None else index.match({"x": value})
        assert sorted(keys[offsets[row] : offsets[row + 1]]) == sorted(expected)


@pytest.mark.parametrize("compiled", COMPILED)
def test_expressions_hang_where_what_they_imply_is_found(compiled: Any) -> None:
    """Every notification would be checked against all expressions and wildcards, or lose some."""
    index: ct.Index[int] = new_index(compiled)
    by_key: dict[int, ct.Filter] = {}
    for key in range(300):
        word = f"tool{key:03}"
        by_key[3 * key] = ct.Filter({"x": ct.matches(f"{word}(\\.exe)?$")})
        by_key[3 * key + 1] = ct.Filter({"x": ct.wildcard(f"*{word}*z?", nocase=True)})
        by_key[3 * key + 2] = ct.Filter({"x": ct.matches(f"(?i)a+{word}")})
    for key, each in by_key.items():
        index.add(key, each)
    assert index.statistics().everywhere == 0
    for text in ("tool007.exe", "TOOL007 zz", "Aatool120", "AaTOOL120 ZZ", "tool", "\u017ftool300"):
        notification = ct.Notification({"x": text})
        assert sorted(index.match(notification)) == naive(by_key, notification)
        assert index.statistics().candidates < 20


@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("a in (null, false)", {"a": [None, False]}),
        ("a in (1, 2, 'x')", {"a": [1, "x", 2]}),
        ("a (prefix 'ab' | suffix 'yz' | contains 'mn')", {"a": "abmnyz"}),
        ("a in nocase ('x', 'Y')", {"a": ["X", "y"]}),
        ("a (< 5 | > 9)", {"a": [1, 12, 2**60 + 1]}),
    ],
)
def test_a_filter_that_is_met_at_several_places_comes_once(
    compiled: Any, text: str, attributes: dict[str, Any]
) -> None:
    """A key would come twice, because two values, or two parts of one, lead to its filter."""
    index: ct.Index[Any] = new_index(compiled)
    for key in range(80):
        index.add(key, ct.Filter({"a": ct.between(key, key + 40)}))
    index.add("k", ct.Filter(text))
    found = index.match(attributes)
    assert found.count("k") == 1
    assert len(found) == len(set(found))


@needs_numba
def test_rows_that_the_model_must_confirm_are_matched_by_rows() -> None:
    """A column's large integer would put out what is no key."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[Any] = new_index(True)
    index.add(8, ct.Filter("a > 5"))
    index.add(9, ct.Filter("b = 1"))
    table = pa.table({"a": [2**53 + 1, 6], "b": [1, 1]})
    for each in (table, table.to_batches()[0]):
        offsets, keys = index.match_batch(each)
        assert offsets.tolist() == [0, 2, 4]
        assert sorted(keys[:2]) == sorted(keys[2:]) == [8, 9]


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_set_does_not_decide_about_a_number_between_doubles(compiled: Any) -> None:
    """An integer past 2^53 would match because a double beside it does."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a (>= 9223372036854777856.0 | < -1e300)"))
    assert index.match({"a": 2**63 - 1}) == []
    assert index.match({"a": 1e300}) == ["k"]


@pytest.mark.parametrize("compiled", ENGINES)
def test_an_empty_list_of_values_is_absent(compiled: Any) -> None:
    """What an attribute was in the notification before would still count."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("b = 1 and a != 5"))
    assert index.match({"b": 1, "a": 7}) == ["k"]
    assert index.match({"b": 1, "a": []}) == []


@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize("name", [3, 10**12, -(10**9), 1.5, b"a", None, True])
def test_a_name_that_is_no_text_is_passed_over(compiled: Any, name: Any) -> None:
    """Records with numbered columns would end the process, or match as others."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a = 5"))
    assert index.match({name: 5}) == []
    assert index.match({name: 1, "a": 5}) == ["k"]


@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize(
    "value",
    [datetime(2020, 1, 1), Decimal("2.5"), date(2020, 1, 1), UUID(int=2)],  # noqa: DTZ001
)
def test_a_value_of_another_type_is_refused(compiled: Any, value: Any) -> None:
    """A date would be taken for text."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.FilterSet("a prefix '2' or a prefix '0'"))
    for given_ in (value, [value], ["x", value]):
        with pytest.raises(InvalidNotificationError):
            index.match({"a": given_})
    assert index.match({"b": value}) == []


def test_a_key_that_cannot_be_one_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    """A refused key would leave a slot that is nobody's; a loaded index would know keys twice."""
    index: ct.Index[Any] = new_index(False)
    wrong: Any = [1]
    index.add(1, ct.Filter("a = 1"))
    with pytest.raises(TypeError):
        index.add(wrong, ct.Filter("a = 1"))
    index.validate()
    index.add(2, ct.Filter("a = 1"))
    index.add("s", ct.Filter("a = 1"))
    index.remove(1)
    index.save(tmp_path / "index")
    loaded = loaded_index(tmp_path / "index", False)
    loaded.validate()
    assert 0 not in loaded
    loaded.add(0, ct.Filter("a = 1"))
    loaded.add(4, ct.Filter("a = 1"))
    loaded.validate()
    assert sorted(map(str, loaded.match({"a": 1}))) == ["0", "2", "4", "s"]


def test_a_notification_is_counted_once() -> None:
    """Figures would count how often an array grew."""
    index: ct.Index[int] = new_index(False)
    for key in range(300):
        index.add(key, ct.Filter({"a": ct.ge(0), "b": ct.none_of(key)}))
    assert len(index.match({"a": 1})) == 300
    assert index.statistics().notifications == 1


def test_system_names_are_known_after_a_renewal() -> None:
    """A filter on the envelope would lose notifications after another's name was dropped."""
    index: ct.Index[int] = new_index(False)
    index.add(0, ct.Filter("a = 1"))
    index.add(1, ct.Filter("@publisher = 'x'"))
    index.remove(1)
    index.renew()
    index.add(2, ct.Filter("@id = ''"))
    assert sorted(index.match({"a": 1})) == [0, 2]


def test_a_set_that_is_everything_asks_for_nothing() -> None:
    """A covered filter would be missed because a set does not look like everything."""
    index: ct.Index[str] = new_index(False)
    index.add("any", ct.Filter({}))
    index.add("one", ct.Filter("b = 1"))
    whole = ct.Filter({"a": ~(ct.eq("aB") & ~ct.wildcard("a*b", nocase=True))})
    assert ct.covers(whole, ct.Filter({}))
    assert sorted(index.covered(whole)) == ["any", "one"]


@needs_numba
def test_a_column_with_a_time_that_none_can_have_is_refused() -> None:
    """One row would end a batch with an error that says nothing of Contrada, or of the column."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[int] = new_index(True)
    index.add(1, ct.Filter("t any"))
    far = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidNotificationError) as raised:
        index.match_batch(pa.table({"x": [1, 2], "t": far}))
    assert raised.value.name == "t"


@pytest.mark.parametrize("compiled", ENGINES)
def test_numbers_between_doubles_are_different_filters(compiled: Any) -> None:
    """Identifiers of 64 bits that share a double would be one filter."""
    index: ct.Index[int] = new_index(compiled)
    base = 2**60
    by_key = {key: ct.Filter({"a": base + key}) for key in range(5)}
    by_key |= {10 + key: ct.Filter({"a": ct.lt(2**53 + key - 2)}) for key in range(5)}
    by_key |= {20: ct.Filter({"a": ct.ge(2**53)}), 21: ct.Filter({"a": ct.ge(2**53 - 1)})}
    for key, each in by_key.items():
        index.add(key, each)
    index.renew()
    index.validate()
    for value in (*range(base - 1, base + 6), *range(2**53 - 3, 2**53 + 4)):
        notification = ct.Notification({"a": value})
        assert sorted(index.match(notification)) == naive(by_key, notification)
    index.remove(1)
    assert sorted(index.match({"a": base + 2})) == [2, 20, 21]


@pytest.mark.parametrize(
    "constant", [lambda n: f"{n}" * 20_000, lambda n: [n + i / 8 for i in range(2_000)]]
)
def test_constants_of_filters_that_are_gone_are_cleared(constant: Any) -> None:
    """Long texts, and sets, of one subscription that changes would fill the memory."""
    index: ct.Index[str] = new_index(False)
    sizes = []
    for number in range(300):
        index.add("k", ct.Filter({"a": constant(number)}))
        index.maintain(8)
        sizes.append(index.statistics().bytes)
    index.validate()
    assert max(sizes[150:]) <= 1.5 * max(sizes[:150])
    assert max(sizes) < 8_000_000


@pytest.mark.parametrize("compiled", ENGINES)
def test_an_exact_filter_is_not_taken_for_a_wider_one(compiled: Any) -> None:
    """A filter would be held equal to one whose integers let more pass, in a reused place."""
    index: ct.Index[int] = new_index(compiled)
    index.add(1, ct.Filter({"a": ct.ge(2**53 - 1)}))
    index.remove(1)
    index.add(2, ct.Filter({"a": ct.ge(2**53)}))
    index.add(1, ct.Filter({"a": ct.ge(2**53 - 1)}))
    index.validate()
    assert index.match({"a": 2**53 - 1}) == [1]
    assert sorted(index.match({"a": 2**53})) == [1, 2]
