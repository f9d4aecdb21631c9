"""Rules of other dialects as keys: what their filters leave open is decided."""

import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.dialects import cesql, sql
from contrada.dialects.rules import Rule
from contrada.errors import EncodingError, InvalidFilterError
from contrada.model.algebra.notification import Envelope
from contrada.model.languages.atoms import failures
from tests.matching.engines import ENGINES, new_index

RULES = {
    "same": cesql.read("a = b"),
    "more": cesql.read("a > b AND a > 1"),
    "sum": cesql.read("a + b = 3 OR a = 0"),
    "plain": cesql.read("a = 2"),
    "stamped": Rule("s", ct.FilterSet("a >= 0"), "late", lambda n: n.envelope.at_us > 5),
}
ATTRIBUTES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3)


def expected(notification: ct.Notification) -> list[str]:
    return sorted(key for key, rule in RULES.items() if rule.matches(notification))


def rows(batch: tuple[Any, Any]) -> list[list[str]]:
    offsets, keys = batch
    listed = keys.tolist()
    return [sorted(listed[begin:end]) for begin, end in pairwise(offsets)]


@pytest.mark.parametrize("compiled", ENGINES)
@given(st.lists(st.tuples(ATTRIBUTES, st.integers(0, 9)), max_size=6))
def test_rules_are_matched_as_they_say(compiled: Any, given_rows: Any) -> None:
    """A key would match where only its filters do, in one of the ways to ask."""
    index: ct.Index[str] = new_index(compiled)
    for key, rule in RULES.items():
        index.add(key, rule)
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
    each = [keys for keys, count in index.match_runs(stamped) for _ in range(count)]
    assert [*map(sorted, each)] == wanted
    assert rows(index.match_spans(spans, lambda row: stamped[row].envelope)) == wanted
    assert rows(index.match_batch(iter(stamped))) == wanted
    assert rows(index.match_batch(iter(spans))) == unstamped
    assert rows(index.match_batch(pa.array(spans, pa.binary()))) == unstamped
    table = pa.Table.from_pylist(
        [dict(each) for each in bare], pa.schema(dict.fromkeys("abc", pa.int64()))
    )
    assert rows(index.match_batch(table)) == unstamped


@pytest.mark.parametrize("compiled", ENGINES)
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
        ct.Notification.marked({"a": 0}, ["residues.Kind"]),
        ct.Notification.marked({"a": 1.5}, ["residues.Kind"]),
        ct.Notification.marked({"a": 1}, ["residues.Kind"]),
    ]
    before = Counter(failures)
    wanted = [["plain"], ["half", "plain"], ["half", "plain", "typed"]]
    assert [sorted(index.match(each)) for each in given] == wanted
    assert rows(index.match_batch(iter(given))) == wanted
    counted = Counter(failures) - before
    assert counted.pop(half.__qualname__) == 2
    (name,) = counted
    assert (name, counted[name]) == (typed.name, 2)
    assert [typed.matches(each) for each in given] == [False, False, True]


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_residue_goes_with_its_key(compiled: bool) -> None:
    """A key would be decided by what was once asked for."""
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


def test_a_rule_with_a_residue_covers_nothing_for_sure(tmp_path: Path) -> None:
    """A server would take something for covered that the rule does not match."""
    index: ct.Index[str] = ct.Index()
    index.add("same", RULES["same"])
    assert index.covering(ct.Filter("a = 1 and b = 2")) == []
    assert index.covered(ct.Filter("a any and b any")) == ["same"]
    assert index.meeting(ct.Filter("a = 1")) == ["same"]
    with pytest.raises(EncodingError, match="cannot write the index: 1 rules leave a residue"):
        pickle.dumps(index)
    with pytest.raises(EncodingError):
        index.save(tmp_path / "index")
