"""The plain engine: places of filters, candidates, and that no match is lost."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import InvalidFilterError
from contrada.matching import index_keys, plain_engine
from contrada.matching.plain_engine import PlainEngine
from contrada.model.domains.values import NUMBER
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal, every
from tests.matching.engines import naive

CONSTRAINTS = [
    ("x = 5", 5, 6),
    ("x in (5, 'a', true)", True, False),
    ("x = null", None, 0),
    ("x between 5 and 9", 7.5, 9.5),
    ("x > 5", 6, 5),
    ("x <= 5", 5, 6),
    ("x != 5", 6, 5),
    ("x > @2026-01-01T00:00:00Z", datetime(2027, 1, 1, tzinfo=UTC), 7),
    ("x prefix 'abc'", "abcd", "abd"),
    ("x prefix nocase 'abc'", "ABCD", "ABD"),
    ("x suffix 'xyz'", "-xyz", "xyz-"),
    ("x suffix nocase 'xyz'", "-XYZ", "XYZ-"),
    ("x contains 'needle'", "a needle b", "a needl"),
    ("x contains nocase 'needle'", "a NEEDLE b", "a NEEDL"),
    ("x = nocase 'straße'", "STRAßE", "strasse"),
    ("x >= 'b' and x < 'd'", "c", "d"),
    ("x matches '^ab+c$'", "abbc", "ac"),
    ("x any", "whatever", ()),
    ("x absent", (), 1),
    ("x ((>= 1 & <= 2) | (>= 2.2 & <= 3.2))", 2.7, 2.1),
    ("x (prefix 'ab' | (contains 'ab' & suffix 'c'))", "-abc", "-abd"),
    ("x (< 3 | > 7 | absent)", 8, 5),
]


@pytest.mark.parametrize(("text", "met", "missed"), CONSTRAINTS)
def test_every_kind_of_constraint_is_found(text: Any, met: Any, missed: Any) -> None:
    """A filter would be at a place that a matching notification does not reach."""
    index: ct.Index[Any] = ct.Index(compiled=False)
    index.add("asked", ct.FilterSet(text))
    for i in range(50):
        index.add(i, ct.Filter({"x": f"filler {i}"}))
    index.validate()
    for several in (met, [met, "filler"] if not isinstance(met, tuple) else met):
        assert index.match({"x": several}) == ["asked"]
        assert index.match(ct.Notification({"x": several})) == ["asked"]
    assert index.match({"x": missed}) == []
    if not isinstance(missed, tuple):
        assert index.match({"x": [missed, datetime(1999, 1, 1, tzinfo=UTC)]}) == []
    index.remove("asked")
    assert index.match({"x": met}) == []
    index.validate()


numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.integers(-50, 50)
times = st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1))  # noqa: DTZ001


@given(ends=st.lists(st.tuples(numbers, numbers), max_size=8), more=st.lists(numbers, max_size=4))
def test_intervals_are_found_by_their_cells(ends: Any, more: Any) -> None:
    """A number at the edge of a cell, or far beyond the doubles' integers, would be lost."""
    by_key = {}
    index: ct.Index[int] = ct.Index(compiled=False)
    for key, (a, b) in enumerate(ends):
        by_key[key] = ct.Filter({"x": ct.ops.between(min(a, b), max(a, b))})
        index.add(key, by_key[key])
    index.validate()
    for value in [each for pair in ends for each in pair] + more:
        notification = ct.Notification({"x": value})
        assert sorted(index.match(notification)) == naive(by_key, notification)


@given(ends=st.lists(st.tuples(times, st.integers(0, 10**9)), max_size=6))
def test_times_are_found_by_their_cells(ends: Any) -> None:
    """A time at the edge of a cell would be lost."""
    by_key, index = {}, ct.Index[int](compiled=False)
    for key, (start, more_us) in enumerate(ends):
        end = min(start, datetime(9998, 1, 1, tzinfo=UTC)) + timedelta(microseconds=more_us)
        by_key[key] = ct.Filter({"x": ct.ops.between(min(start, end), end)})
        index.add(key, by_key[key])
    for start, _ in ends:
        notification = ct.Notification({"x": start})
        assert sorted(index.match(notification)) == naive(by_key, notification)


words = st.text(alphabet="aAbBßéİ", max_size=9)


@given(
    asked=st.lists(st.tuples(st.sampled_from("spcesn"), words, st.booleans()), max_size=10),
    texts=st.lists(words, min_size=1, max_size=4),
)
def test_texts_are_found_by_their_parts(asked: Any, texts: Any) -> None:
    """A beginning, an end or some bytes of a text would be looked up in another form."""
    made: dict[str, Any] = {
        "s": ct.ops.suffix,
        "p": ct.ops.prefix,
        "c": ct.ops.contains,
        "e": lambda text, nocase: (
            ct.ops.contains(text, nocase=nocase) & ct.ops.suffix("b", nocase=True)
        ),
        "n": lambda text, nocase: (
            ct.ops.contains(text, nocase=nocase) | ct.ops.eq(text) | ct.ops.lt(3)
        ),
    }
    by_key, index = {}, ct.Index[int](compiled=False)
    for key, (kind, text, nocase) in enumerate(asked):
        by_key[key] = ct.Filter({"x": made[kind](text, nocase=nocase)})
        index.add(key, by_key[key])
    index.validate()
    notification = ct.Notification({"x": texts})
    assert sorted(index.match(notification)) == naive(by_key, notification)


@pytest.mark.parametrize(
    ("constraint", "value"),
    [
        (lambda i: ct.ops.eq(i), 7),
        (lambda i: ct.ops.between(i, i + 0.5), 7.2),
        (lambda i: ct.ops.gt(i), 2),
        (lambda i: ct.ops.lt(i), 998),
        (lambda i: ct.ops.prefix(f"{i:04}-"), "0007-x"),
        (lambda i: ct.ops.suffix(f"-{i:04}"), "x-0007"),
        (lambda i: ct.ops.contains(f"<{i:04}>"), "x<0007>y"),
        (lambda i: ct.ops.contains(f"a{i:04}", nocase=True), "xA0007y"),
    ],
)
def test_few_filters_are_checked(constraint: Any, value: Any) -> None:
    """Every notification would be checked against all filters on an attribute."""
    index: ct.Index[int] = ct.Index(compiled=False)
    for i in range(1_000):
        index.add(i, ct.Filter({"x": constraint(i)}))
    found = index.match({"x": value})
    assert found
    assert index.statistics().candidates <= 20


def test_filters_are_filed_where_few_are() -> None:
    """Filters of two equalities would all be filed under the few values of one attribute."""
    index: ct.Index[int] = ct.Index(compiled=False)
    for i in range(1_000):
        index.add(i, ct.Filter({"few": i % 4, "many": i}))
    index.match({"few": 1, "many": 5})
    assert index.statistics().candidates <= 5


def test_filters_are_indexed_at_rare_places() -> None:
    """A filter would be filed under an attribute that every notification has."""
    index: ct.Index[int] = ct.Index(compiled=False)
    index.add(0, ct.Filter({"common": 0}))
    index.add(1, ct.Filter({"rare": 0}))
    for i in range(100):
        index.match({"common": i + 5})
    for i in range(2, 40):
        index.add(i, ct.Filter({"common": 1, "rare": 1}))
    index.match({"common": 1})
    assert index.statistics().candidates == 0


def test_filters_are_filed_where_they_are_found_cheaply() -> None:
    """A filter would be checked at every number, and not where a value leads to it."""
    engine: PlainEngine[int] = PlainEngine()
    for i in range(40):
        engine.add(i, (ct.Filter({"a": ct.ops.gt(i)}),))
    engine.add(40, (ct.Filter({"a": ct.ops.gt(9), "b": ct.ops.in_(*range(16))}),))
    engine.add(41, (ct.Filter({"c": ct.ops.gt(9), "d": ct.ops.in_(1, 2)}),))
    engine.add(42, (ct.Filter({"e": ct.ops.ne(9), "f": ct.ops.gt(9)}),))
    filed = {key: engine._files[name] for key, name in ((40, "b"), (41, "d"), (42, "f"))}
    assert {key: engine._entries[key].file for key in filed} == filed  # type: ignore[union-attr]


def test_long_texts_are_not_looked_up_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of megabytes would hold up everybody; or a filter would be lost."""
    monkeypatch.setattr(plain_engine, "PARTS_LOOKED_UP_MAX", 20)
    index: ct.Index[str] = ct.Index(compiled=False)
    for name in ("a", "b"):
        index.add(name, {name: ct.ops.contains("needle")})
    for row, candidates in (
        ({"a": "x" * 20}, 0),
        ({"a": "x" * 21}, 1),
        ({"a": "x" * 10, "b": "x" * 10}, 0),
        ({"a": "x" * 10, "b": "x" * 11}, 1),
        ({"a": ["x" * 10, "y" * 11]}, 1),
    ):
        assert index.match(row) == []
        assert index.statistics().candidates == candidates
    assert sorted(index.match({"a": "x" * 20 + "needle", "b": "needle" * 9})) == ["a", "b"]


def test_an_unknown_operator_accepts_texts_only() -> None:
    """A forwarded filter would be dropped, or match against its other constraints."""
    unknown = Literal(Atom("frob", b"x"), True)
    index: ct.Index[str] = ct.Index(compiled=False)
    index.add("k", ct.Filter({"a": ct.ValueSet((), unknown), "b": 1}))
    both = every((unknown, Literal(Atom("suffix", b"z"), True)))
    index.add("both", ct.Filter({"a": ct.ValueSet((), both)}))
    assert index.match({"a": "text", "b": 1}) == ["k"]
    assert sorted(index.match({"a": "fizz", "b": 1})) == ["both", "k"]
    assert index.match({"a": "text", "b": 2}) == []
    assert index.match({"a": 7, "b": 1}) == []
    assert index.match({"b": 1}) == []


def test_a_refused_update_changes_nothing() -> None:
    """A key would lose its filter, or keep half of another."""
    index: ct.Index[Any] = ct.Index(compiled=False)
    index.add("k", ct.Filter("a = 1"))
    wrong: Any = [("k", 5, InvalidFilterError), ([], ct.Filter("a = 2"), TypeError)]
    for key, subscription, error in wrong:
        with pytest.raises(error):
            index.add(key, subscription)
    assert index.match({"a": 1}) == ["k"]
    assert index.match({"a": 2}) == []
    index.validate()


def test_removed_filters_leave_nothing() -> None:
    """Short subscriptions would fill the memory."""
    engine: PlainEngine[int] = PlainEngine()
    texts = [text for text, _, _ in CONSTRAINTS if "or" not in text]
    for key, text in enumerate(texts):
        engine.add(key, (ct.Filter(text), ct.Filter(f"@id = 'i' and y{key} = 1")))
    assert list(engine.envelope) == ["@id"]
    engine.validate()
    engine.add(len(texts), (ct.Filter("x = 5"),))
    for key in range(len(texts)):
        engine.remove(key)
    engine.validate()
    assert [*engine._files["x"].tables] == [NUMBER]
    engine.remove(len(texts))
    assert not engine._files
    assert not engine._always
    assert not engine._entries
    assert engine._several == 0
    assert list(engine.envelope) == []


def test_validate_finds_misplaced_entries() -> None:
    """A test that validates would hold nothing."""
    engine: PlainEngine[str] = PlainEngine()
    engine.add("lost", (ct.Filter("x = 5"),))
    (entry,) = engine._files["x"].tables.pop(NUMBER).values()
    with pytest.raises(AssertionError, match=r"misfiled, of .'lost'"):
        engine.validate()
    engine._files["x"].put(entry)
    engine.validate()
    engine._files["x"].asked += 1
    with pytest.raises(AssertionError, match="asked for by no filter"):
        engine.validate()


def test_members_share_the_places_of_sets_that_they_share() -> None:
    """A rule of a hundred filters would be looked through a hundred times for where to file it."""
    engine: PlainEngine[int] = PlainEngine()
    shared = ct.ops.contains("needle")
    members = tuple(ct.Filter({"a": shared, "b": ct.ops.gt(number)}) for number in range(3))
    engine.add(1, members)
    engine.validate()
    places = {id(entry.places) for entry in engine._entries[1]}  # type: ignore[union-attr]
    assert len(places) == 1


def test_filters_of_one_value_share_their_places() -> None:
    """A crowd that asks for one name would hold its place as often."""
    engine: PlainEngine[int] = PlainEngine()
    for number in range(3):
        engine.add(number, (ct.Filter({"a": "x", "b": ct.ops.gt(number)}),))
    engine.validate()
    places = {id(entry.places) for entry in engine._entries.values()}  # type: ignore[union-attr]
    assert len(places) == 1
    for number in (1, 0, 2):
        engine.remove(number)
        engine.validate()


def test_a_filter_of_many_values_is_filed_by_presence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of ten thousand values would be filed ten thousand times, or lost."""
    monkeypatch.setattr(index_keys, "PLAIN_PLACES_MAX", 3)
    index: ct.Index[str] = ct.Index(compiled=False)
    index.add("few", ct.Filter({"a": ct.ops.in_(1, 2, 3)}))
    index.add("many", ct.Filter({"a": ct.ops.in_(1, 2, 3, 4)}))
    assert index.statistics().buckets == 3
    assert sorted(index.match({"a": 3})) == ["few", "many"]
    assert index.match({"a": 4}) == ["many"]


def test_matching_needs_no_arrays() -> None:
    """Importing, and matching a little, would wait for numpy's arrays and for Numba."""
    code = (
        "import sys, contrada as ct; i = ct.Index(compiled=False); i.add(1, ct.Filter('a > 1'));"
        "arrays = 'contrada.matching.index_arrays' in sys.modules;"
        "print(i.match({'a': 2}), 'numba' in sys.modules, arrays)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[1]", "False", "False"]
