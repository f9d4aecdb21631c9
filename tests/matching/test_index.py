"""The index against plain evaluation of every filter and rule, in plain Python and compiled."""

import math
import os
import pickle
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import contrada as ct
from contrada.errors import EncodingError, InvalidFilterError, InvalidNotificationError, LimitError
from contrada.integrations.dialects import cesql, sql
from contrada.matching import array_engine
from contrada.model.algebra.notification import Envelope
from contrada.model.codec import to_msgpack
from contrada.model.languages.atoms import failures
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE
from contrada.model.rule import Rule
from tests import strategies
from tests.matching.engines import COMPILED, module, naive, needs_native, new_index


@pytest.mark.parametrize("compiled", COMPILED)
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

    compiled = False

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


TestUpkeep = Upkeep.TestCase
TestUpkeep.__doc__ = "An update would lose a filter, or leave one behind."
TestCompiledUpkeep = needs_native(CompiledUpkeep.TestCase)
TestCompiledUpkeep.__doc__ = "An update would lose a filter on compiled kernels."


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_thousand_filters_on_one_attribute_make_a_tree(compiled: Any) -> None:
    """Ranges would be lost when an attribute gets a tree, or new pivots."""
    index: ct.Index[Any] = new_index(compiled)
    by_key = {i: ct.Filter({"x": ct.ops.between(i % 97, i % 97 + i % 13)}) for i in range(1200)}
    by_key |= {-i: ct.Filter({"x": ct.ops.gt(i)}) for i in range(1, 200)}
    by_key |= {
        10_000 + i: ct.Filter({"x": ct.ops.lt(f"t{i}") & ct.ops.ge("t1")}) for i in range(200)
    }
    for key, each in by_key.items():
        index.add(key, each)
    index.validate()
    for value in (-1, 0, 1, 12.5, 50, 96, 109, 10**6, math.nan, math.inf, "t15", "t", b"\xff"):
        notification = ct.Notification({"x": value})
        assert sorted(index.match(notification)) == naive(by_key, notification)


@pytest.mark.parametrize("compiled", COMPILED)
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


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_nested_mapping_is_matched_as_a_notification(compiled: Any) -> None:
    """A subscription to a nested attribute would miss the dicts that hold it."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a.b = 1"))
    index.add("absent", ct.Filter("a.b absent"))
    for nested in (
        *({"a": {"b": 1}}, {"a": {"b": [0, 1], "c": 2}}, {"a.b": 1, "a": 5}),
        *({"a": {"b": 1}, "a.b": 2}, {"x": 1, "a": MappingProxyType({"b": 1})}),
    ):
        assert index.match(nested) == ["k"], nested
        assert index.match(ct.Notification(nested)) == ["k"], nested
    assert index.match({"a": {"c": 1}, "b": 1}) == ["absent"]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_mapping_has_no_marks_and_no_envelope(compiled: Any) -> None:
    """A program that passes a dict could pass for another publisher, or for an obvent."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("mark", ct.Filter("@is.Quote = true"))
    index.add("publisher", ct.Filter("@publisher = 'x'"))
    index.add("large", ct.Filter({"a": ct.ops.gt(2**60)}))
    index.add("own", ct.Filter("@version = '1'"))
    assert index.match({"@is.Quote": True, "@publisher": "x", "@version": 1}) == []
    assert index.match({"@is.Quote": True, "@version": "1"}) == ["own"]
    assert index.match(ct.Notification({"@version": "1"})) == ["own"]
    assert index.match({"a": 2**60 + 1, "@is.Quote": True, "@timestamp": "t"}) == ["large"]


def test_keys_are_distinct_and_equal_filters_are_stored_once() -> None:
    """A key would be repeated for each of its filters, or equal filters be matched twice."""
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


def test_everything_works_without_the_compiled_module() -> None:
    """Where nothing can be compiled there would be no answer."""
    code = (
        "import contrada as ct; i = ct.Index(); i.add(1, ct.Filter('a > 1'));"
        "print(i.match({'a': 2}), i.statistics().is_compiled)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, INTERPRETED_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[1]", "False"]


def test_a_filter_that_is_refused_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant beyond the limit would leave half of a filter set, or an empty key."""
    monkeypatch.setattr(module("filter_compiler"), "TEXT_BYTES_MAX", 10)
    index: ct.Index[Any] = new_index(False)
    with pytest.raises(LimitError):
        index.add("k", ct.FilterSet("b = 1 or c = 'longer than ten'"))
    assert "k" not in index
    assert index.match({"b": 1}) == []
    index.validate()


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("given", ["a text", None, 3, [1]])
def test_invalid_notifications_are_refused_with_a_reason(compiled: Any, given: Any) -> None:
    """An error about an attribute of Python's would not name the expected argument."""
    index: ct.Index[int] = new_index(compiled)
    index.add(1, "a > 1")
    for call in (index.match, lambda each: index.match_batch([each])):
        with pytest.raises(InvalidNotificationError, match=r"^found .*: expected a mapping"):
            call(given)


WITH_ENVELOPE = strategies.few_names | st.sampled_from(["@publisher", "@time"])


@pytest.mark.parametrize("compiled", COMPILED[:2])
@example([ct.Filter("@publisher = 'a'")], ct.Filter("a = 8"), ct.Advertisement({"a": 8}))
@given(
    members=st.lists(
        strategies.filters(named=WITH_ENVELOPE) | strategies.filter_sets(), max_size=8
    ),
    asked=strategies.filters(named=WITH_ENVELOPE),
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_engine, "FEW_KEYS", 0)
        assert sorted(index.covered(asked)) == [k for k, each in keyed if ct.covers(asked, each)]
        items = {name: each for name, each in asked.sets.items() if name[0] != "@"}
        for other in (asked, advertised, ct.Query(items)):
            met = [k for k, each in keyed if ct.meets(each, other)]
            assert sorted(index.meeting(other)) == met


def test_a_batch_is_matched_row_by_row() -> None:
    """Keys of one row of a batch would be taken for those of another."""
    index: ct.Index[str] = new_index(False)
    index.add("low", ct.Filter("x < 5"))
    index.add("any", ct.Filter("x any"))
    offsets, keys = index.match_batch([{"x": 9}, {}, {"x": 1}])
    assert offsets.tolist() == [0, 1, 1, 3]
    assert keys[0] == "any"
    assert sorted(keys[1:]) == ["any", "low"]


@pytest.mark.parametrize("compiled", COMPILED)
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


@pytest.mark.slow
def test_a_short_lived_key_leaves_nothing_in_the_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index with many short subscriptions would grow forever."""
    monkeypatch.setattr(module("segment"), "UNUSED_BYTES_MIN", 4_000)
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
def test_many_keys_of_one_filter_are_added_and_removed(compiled: Any) -> None:
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


@needs_native
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
        index.add(key, ct.Filter({"x": ct.ops.ge(constant)}))
        index.add(100 + key, ct.Filter({"x": constant}))
    table = pa.table({"x": pa.array(values, getattr(pa, kind.replace("double", "float64"))())})
    offsets, keys = index.match_batch(table)
    for row, value in enumerate(values):
        expected = [] if value is None else index.match({"x": value})
        assert sorted(keys[offsets[row] : offsets[row + 1]]) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_expressions_are_assigned_by_their_implied_texts(compiled: Any) -> None:
    """Every notification would be checked against all expressions and wildcards, or lose some."""
    index: ct.Index[int] = new_index(compiled)
    by_key: dict[int, ct.Filter] = {}
    for key in range(300):
        word = f"tool{key:03}"
        by_key[3 * key] = ct.Filter({"x": ct.ops.matches(f"{word}(\\.exe)?$")})
        by_key[3 * key + 1] = ct.Filter({"x": ct.ops.wildcard(f"*{word}*z?", nocase=True)})
        by_key[3 * key + 2] = ct.Filter({"x": ct.ops.matches(f"(?i)a+{word}")})
    for key, each in by_key.items():
        index.add(key, each)
    assert index.statistics().everywhere == 0
    for text in ("tool007.exe", "TOOL007 zz", "Aatool120", "AaTOOL120 ZZ", "tool", "\u017ftool300"):
        notification = ct.Notification({"x": text})
        assert sorted(index.match(notification)) == naive(by_key, notification)
        assert index.statistics().candidates < 20


@pytest.mark.parametrize("compiled", COMPILED)
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
def test_a_filter_of_several_places_is_found_once(
    compiled: Any, text: str, attributes: dict[str, Any]
) -> None:
    """A key would be repeated, because two values, or two parts of one, lead to its filter."""
    index: ct.Index[Any] = new_index(compiled)
    for key in range(80):
        index.add(key, ct.Filter({"a": ct.ops.between(key, key + 40)}))
    index.add("k", ct.Filter(text))
    found = index.match(attributes)
    assert found.count("k") == 1
    assert len(found) == len(set(found))


@needs_native
def test_rows_that_the_model_must_confirm_are_matched_by_rows() -> None:
    """A column's large integer would give an invalid key."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[Any] = new_index(True)
    index.add(8, ct.Filter("a > 5"))
    index.add(9, ct.Filter("b = 1"))
    table = pa.table({"a": [2**53 + 1, 6], "b": [1, 1]})
    for each in (table, table.to_batches()[0]):
        offsets, keys = index.match_batch(each)
        assert offsets.tolist() == [0, 2, 4]
        assert sorted(keys[:2]) == sorted(keys[2:]) == [8, 9]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_set_does_not_decide_about_a_number_between_doubles(compiled: Any) -> None:
    """An integer past 2^53 would match because a double beside it does."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a (>= 9223372036854777856.0 | < -1e300)"))
    assert index.match({"a": 2**63 - 1}) == []
    assert index.match({"a": 1e300}) == ["k"]


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_empty_list_of_values_is_absent(compiled: Any) -> None:
    """The values of the notification before would still count."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("b = 1 and a != 5"))
    assert index.match({"b": 1, "a": 7}) == ["k"]
    assert index.match({"b": 1, "a": []}) == []


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("name", [3, 10**12, -(10**9), 1.5, b"a", None, True])
def test_a_name_that_is_no_text_is_passed_over(compiled: Any, name: Any) -> None:
    """Records with numbered columns would end the process, or match as others."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.Filter("a = 5"))
    assert index.match({name: 5}) == []
    assert index.match({name: 1, "a": 5}) == ["k"]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "value",
    [datetime(2020, 1, 1), Fraction(5, 2), date(2020, 1, 1), timedelta(2)],  # noqa: DTZ001
)
def test_a_value_of_another_type_is_refused(compiled: Any, value: Any) -> None:
    """A date would be taken for text."""
    index: ct.Index[Any] = new_index(compiled)
    index.add("k", ct.FilterSet("a prefix '2' or a prefix '0'"))
    for given_ in (value, [value], ["x", value]):
        with pytest.raises(InvalidNotificationError):
            index.match({"a": given_})
    assert index.match({"b": value}) == []


def test_a_set_that_is_everything_asks_for_nothing() -> None:
    """A covered filter would be missed because a set does not look like everything."""
    index: ct.Index[str] = new_index(False)
    index.add("any", ct.Filter({}))
    index.add("one", ct.Filter("b = 1"))
    whole = ct.Filter({"a": ~(ct.ops.eq("aB") & ~ct.ops.wildcard("a*b", nocase=True))})
    assert ct.covers(whole, ct.Filter({}))
    assert sorted(index.covered(whole)) == ["any", "one"]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "text", [r"a matches /x\by/", r"b = 1 and a matches /x$y/", "a not set>= ''", "a suffix 'x'"]
)
def test_a_filter_that_an_operator_leaves_empty_is_covered(compiled: Any, text: str) -> None:
    """An unsatisfiable filter would not be covered, because only its operator knows."""
    keyed = {"it": ct.Filter(text), "other": ct.Filter("a matches /x/"), "one": ct.Filter("c = 1")}
    index = new_index(compiled)
    for key, each in keyed.items():
        index.add(key, each)
    asked = ct.Filter("c = 1")
    expected = sorted(key for key, each in keyed.items() if ct.covers(asked, each))
    assert sorted(index.covered(asked)) == expected
    assert sorted(index.covered(asked)) == expected
    index.add("it", keyed["other"])
    assert index.covered(asked) == ["one"]


@needs_native
def test_a_column_with_a_time_that_none_can_have_is_refused() -> None:
    """One row would end a batch with an error that names neither Contrada nor the column."""
    pa = pytest.importorskip("pyarrow")
    index: ct.Index[int] = new_index(True)
    index.add(1, ct.Filter("t any"))
    far = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidNotificationError) as raised:
        index.match_batch(pa.table({"x": [1, 2], "t": far}))
    assert raised.value.name == "t"


def test_an_index_is_a_mapping_to_look_at() -> None:
    """A person could not see its contents, or move it to another process."""
    index: ct.Index[str] = ct.Index()
    held = {"one": ct.Filter("a = 1"), "two": ct.FilterSet("a = 2 or b contains 'x'")}
    for key, subscription in held.items():
        index.add(key, subscription)
    assert dict(index) == dict(index.items()) == held
    assert sorted(index.keys()) == sorted(index) == ["one", "two"]
    assert (index["one"], index.get("three")) == (held["one"], None)
    with pytest.raises(KeyError):
        index["three"]
    assert repr(index) == "<Index of 2 keys>"
    assert index.statistics().keys == 2
    assert index.statistics().is_compiled is (NATIVE is not None)
    again = pickle.loads(pickle.dumps(index))
    assert dict(again) == held
    assert again.match({"a": 1}) == ["one"]
    assert again != index
    index.clear()
    assert (len(index), index.match({"a": 1})) == (0, [])
    index.validate()


# --- residues of rules ---------------------------------------------------------------------------

RULES = {
    "same": cesql.read("a = b"),
    "more": cesql.read("a > b AND a > 1"),
    "sum": cesql.read("a + b = 3 OR a = 0"),
    "plain": cesql.read("a = 2"),
    "stamped": Rule("s", ct.FilterSet("a >= 0"), "late", lambda n: n.envelope.at_us > 5),
}
ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)


def expected(notification: ct.Notification) -> list[str]:
    return sorted(key for key, each in RULES.items() if each.matches(notification))


def rows_in(batch: tuple[Any, Any]) -> list[list[str]]:
    offsets, keys = batch
    listed = keys.tolist()
    return [sorted(listed[begin:end]) for begin, end in pairwise(offsets)]


@pytest.mark.parametrize("compiled", COMPILED)
@given(st.lists(st.tuples(ATTRIBUTES, st.integers(0, 9)), max_size=6))
def test_rules_are_matched_as_they_say(compiled: Any, given_rows: Any) -> None:
    """A key would match where only its filters do, in one of the ways to ask."""
    index: ct.Index[str] = new_index(compiled)
    for key, each in RULES.items():
        index.add(key, each)
    stamped = [
        ct.Notification(attributes, envelope=Envelope("i", "p", 1, time_us))
        for attributes, time_us in given_rows
    ]
    bare = [ct.Notification(attributes) for attributes, _ in given_rows]
    spans = [each.span for each in stamped]
    wanted, unstamped = [*map(expected, stamped)], [*map(expected, bare)]
    assert [sorted(index.match(each)) for each in stamped] == wanted
    assert [sorted(index.match(dict(each))) for each in bare] == unstamped
    assert [sorted(index.match_span(each.span, each.envelope)) for each in stamped] == wanted
    runs = [keys for keys, count in index.match_runs(stamped) for _ in range(count)]
    assert [*map(sorted, runs)] == wanted
    assert rows_in(index.match_spans(spans, lambda row: stamped[row].envelope)) == wanted
    assert rows_in(index.match_batch(iter(stamped))) == wanted
    assert rows_in(index.match_batch(iter(spans))) == unstamped
    assert rows_in(index.match_batch(pa.array(spans, pa.binary()))) == unstamped
    table = pa.Table.from_pylist(
        [dict(each) for each in bare], pa.schema(dict.fromkeys("abc", pa.int64()))
    )
    assert rows_in(index.match_batch(table)) == unstamped


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_residue_that_raises_says_no_and_is_counted(compiled: bool) -> None:
    """One type that cannot read a notification would keep it from all other keys."""

    def half(notification: ct.Notification) -> bool:
        return 1 / notification["a"] > 0.4  # type: ignore[operator]

    class Kind(ct.Obvent, name="residues.Kind"):
        a: int

    typed = Kind.lift(lambda it: it.a % 2 == 1)
    index: ct.Index[str] = new_index(compiled)
    index.add("half", Rule("half", ct.FilterSet("a >= 0"), "half", half))
    index.add("plain", "a >= 0")
    index.add("typed", typed)
    given = [
        ct.Notification.with_marks({"a": 0}, ["residues.Kind"]),
        ct.Notification.with_marks({"a": 1.5}, ["residues.Kind"]),
        ct.Notification.with_marks({"a": 1}, ["residues.Kind"]),
    ]
    before = Counter(failures)
    wanted = [["plain"], ["half", "plain"], ["half", "plain", "typed"]]
    assert [sorted(index.match(each)) for each in given] == wanted
    assert rows_in(index.match_batch(iter(given))) == wanted
    counted = Counter(failures) - before
    assert counted.pop(half.__qualname__) == 2
    (name,) = counted
    assert (name, counted[name]) == (typed.name, 2)
    assert [typed.matches(each) for each in given] == [False, False, True]


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_residue_is_removed_with_its_key(compiled: bool) -> None:
    """A key would be decided by its former filter."""
    index: ct.Index[str] = new_index(compiled)
    index.add("k", RULES["same"])
    assert index.match({"a": 1, "b": 2}) == []
    index.add("k", RULES["same"].filters)
    assert index.match({"a": 1, "b": 2}) == ["k"]
    index.add("k", RULES["same"])
    index.remove("k")
    index.add("k", sql.read("a = 1"))
    assert index.match({"a": 1, "b": 2}) == ["k"]
    index.add("k", "a = 1")
    index.add("m", {"a": 2})
    assert index.match({"a": 1}) == ["k"]
    assert index.match({"a": 2}) == ["m"]
    for wrong in (5, None, RULES):
        with pytest.raises(InvalidFilterError):
            index.add("k", wrong)  # type: ignore[arg-type]
    index.add("k", RULES["same"])
    encoding = to_msgpack(ct.Filter("a = 1"))
    index.add_encoded(iter(["k"]), [encoding])
    assert index.match({"a": 1, "b": 2}) == ["k"]
    with pytest.raises(ValueError, match="2 keys for 1 filters"):
        index.add_encoded(["k", "m"], [encoding])


def test_a_rule_with_a_residue_covers_nothing_for_sure(tmp_path: Path) -> None:
    """A server would take something for covered that the rule does not match."""
    index: ct.Index[str] = ct.Index()
    index.add("same", RULES["same"])
    assert index.covering(ct.Filter("a = 1 and b = 2")) == []
    assert index.covered(ct.Filter("a any and b any")) == ["same"]
    assert index.meeting(ct.Filter("a = 1")) == ["same"]
    with pytest.raises(EncodingError, match="cannot write the index: 1 rules have a residue"):
        pickle.dumps(index)
    with pytest.raises(EncodingError):
        index.save(tmp_path / "index")
