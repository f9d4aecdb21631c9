"""Prometheus's queries against a direct evaluation that knows nothing of filters."""

import math
import operator
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, RefusedRuleError
from contrada.integrations.dialects.prometheus import filters, read_rules
from contrada.model.rule import Rule
from tests.matching import rules_prometheus

SECONDS_MAX = 20.0
Row = Mapping[str, Any]

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Comparison(NamedTuple):
    """A comparison as drawn."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    how: str
    number: str
    in_front: bool
    chained: tuple[tuple[str, str], ...]

    def text(self) -> str:
        labels = ", ".join(f'{name}{how}"{text}"' for name, how, text in self.matchers)
        selector = f"{self.metric}{{{labels}}}" if labels else self.metric
        chain = "".join(f" {how} {number}" for how, number in self.chained)
        if self.in_front:
            return f"{self.number} {MIRRORED[self.how]} {selector}{chain}"
        return f"{selector} {self.how} {self.number}{chain}"

    def holds(self, metrics: Row, labels: Row) -> bool:
        value = metrics.get(self.metric)
        if value is None or not all(accepts(each, labels) for each in self.matchers):
            return False
        compared = ((self.how, self.number), *self.chained)
        return all(COMPARISONS[how](float(value), float(number)) for how, number in compared)


class Joined(NamedTuple):
    """Two queries and the word between them."""

    word: str
    first: "Query"
    second: "Query"

    def text(self) -> str:
        return f"({self.first.text()} {self.word} {self.second.text()})"

    def holds(self, metrics: Row, labels: Row) -> bool:
        first, second = self.first.holds(metrics, labels), self.second.holds(metrics, labels)
        return {"and": first and second, "or": first or second, "unless": first and not second}[
            self.word
        ]


Query = Comparison | Joined


def accepts(matcher: tuple[str, str, str], labels: Row) -> bool:
    """By Python's own regular expressions; an absent label is the empty text."""
    name, how, text = matcher
    given = labels.get(name) or ""
    found = re.fullmatch(text, given, re.DOTALL) is not None if "~" in how else given == text
    return found is (how in ("=", "=~"))


patterns = st.sampled_from(
    [
        *("a|b", ".*", ".+", "a.*", ".*a", ".*a.*", "a.+", "(a|)b?", "[ab]+", "", "(?i:A)b"),
        *("a.b|.*c.*", "^(a.*|b)", "^a$", "(.*|a)b", "a(b|.*)", "^(.*|)$", "(^|a)b", "a(?s:.)*"),
    ]
)
label_names = st.sampled_from("xyz")
label_texts = st.text("abc\n", max_size=3)
matchers = st.one_of(
    st.tuples(
        st.sampled_from("xyz"), st.sampled_from(["=", "!="]), st.sampled_from(["", "a", "ab"])
    ),
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["=~", "!~"]), patterns),
)
numbers = st.sampled_from(["0", "5", "-1", "2.5", "1e3", "NaN", "+Inf", "-inf", "9007199254740993"])
comparing = st.sampled_from([*COMPARISONS])


def queries(metrics: list[str]) -> st.SearchStrategy[Query]:
    comparisons = st.builds(
        Comparison,
        st.sampled_from(metrics),
        st.lists(matchers, max_size=3).map(tuple),
        comparing,
        numbers,
        st.booleans(),
        st.lists(st.tuples(comparing, numbers), max_size=1).map(tuple),
    )
    return st.recursive(
        comparisons,
        lambda inner: st.builds(Joined, st.sampled_from(["and", "or", "unless"]), inner, inner),
        max_leaves=4,
    )


labels_of = st.dictionaries(st.sampled_from("xyz"), label_texts, max_size=3)
values = st.one_of(
    st.sampled_from([0, 5, 5.0, -1, 2.5, 1000, math.nan, math.inf, -math.inf, 2**53]), st.floats()
)
rows = st.dictionaries(st.sampled_from(["up", "a:b"]), values, max_size=2)


@given(queries(["up", "a:b"]), st.lists(st.tuples(rows, labels_of), min_size=1, max_size=6))
@example(Comparison("up", (("x", "!=", "a"),), "!=", "NaN", False, ()), [({"up": 1}, {})])
def test_rows_are_matched_where_the_query_has_a_result(
    query: Query, given_rows: list[tuple[Row, Row]]
) -> None:
    """A filter set would match where the query has no result, or the other way round."""
    found = filters(query.text(), rows=True)
    for metrics, labels in given_rows:
        expected = query.holds(metrics, labels)
        assert found.matches(ct.Notification({**metrics, **labels})) is expected


@given(
    queries(["up"]), st.lists(st.tuples(values, labels_of), min_size=1, max_size=6), st.booleans()
)
def test_samples_are_matched_where_the_query_has_a_result(
    query: Query, samples: list[tuple[float, Row]], named: bool
) -> None:
    """A sample would be matched that the query does not select, or the other way round."""
    found = filters(query.text())
    for value, labels in samples:
        name = "up" if named else "down"
        sample = ct.Notification({"__name__": name, "value": value, **labels})
        assert found.matches(sample) is (named and query.holds({"up": value}, labels))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up == 0", "__name__ = 'up' and value = 0"),
        ("( up ) == 0 # down", "__name__ = 'up' and value = 0"),
        ("0 == up", "__name__ = 'up' and value = 0"),
        ("5 < up <= 10", "__name__ = 'up' and value > 5 and value <= 10"),
        ("up{} > 0x10", "__name__ = 'up' and value > 16"),
        ("up > 1_000", "__name__ = 'up' and value > 1000"),
        ("up > - 5", "__name__ = 'up' and value > -5"),
        ("up > 1h30m", "__name__ = 'up' and value > 5400"),
        ("up > 1s500ms", "__name__ = 'up' and value > 1.5"),
        ("up > (1 + 2) * 3 - -1", "__name__ = 'up' and value > 10"),
        ("2 * 1024 ^ 3 <= up", "__name__ = 'up' and value >= 2147483648"),
        ("up > -2 ^ 2", "__name__ = 'up' and value > -4"),
        ("up > 2 ^ 3 ^ 2", "__name__ = 'up' and value > 512"),
        ("up > 7 % -4", "__name__ = 'up' and value > 3"),
        ("up == 7 % 0", "nothing"),
        ("up > 1 / 0", "nothing"),
        ("up == (-8) ^ 0.5", "nothing"),
        ("up >= 10 ^ 400", "__name__ = 'up' and value = inf"),
        ("up{job=~'a|b',} > 1", "__name__ = 'up' and value > 1 and job in ('a', 'b')"),
        ("up{job=~'a.*'} > 1", "__name__ = 'up' and value > 1 and job prefix 'a'"),
        ("up{job=~'.*a.*'} > 1", "__name__ = 'up' and value > 1 and job contains 'a'"),
        ("up{job=~'.+'} > 1", "__name__ = 'up' and value > 1 and job > ''"),
        ("up{job=''} > 1", "__name__ = 'up' and value > 1 and job (= '' | absent)"),
        ("up{job!=''} > 1", "__name__ = 'up' and value > 1 and job none of ('') and job any"),
        ('{"a.b", "l.x"=`\\d`} > 1', "__name__ = 'a.b' and value > 1 and `l.x` = '\\\\d'"),
        ('{__name__="up"} > 1', "__name__ = 'up' and value > 1"),
        ('{__name__=~"a|b"} > 1', "__name__ in ('a', 'b') and value > 1"),
        (
            r'up{on="\x41\101\u0041\U00000041\n"} > 1',
            "__name__ = 'up' and value > 1 and on = 'AAAA\\n'",
        ),
        ("up > 5 and up < 9", "__name__ = 'up' and value > 5 and value < 9"),
        ("up > 5 AND up < 9 or up == 0", "__name__ = 'up' and value (> 5 & < 9 | = 0)"),
        ("up == NaN", "nothing"),
        ("up < 9 unless up == 5 and up > 1", "__name__ = 'up' and value (< 9 & > 1 & != 5)"),
        ("up > 0x_1f", "__name__ = 'up' and value > 31"),
        ("up > 1_0.5e3", "__name__ = 'up' and value > 10500"),
        ("and_then > 1", "__name__ = 'and_then' and value > 1"),
    ],
)
def test_forms_of_written_conditions(query: str, expected: str) -> None:
    """A way of writing a query would not be read, or as another one."""
    found, wanted = filters(query), ct.FilterSet(expected)
    assert ct.covers(found, wanted)
    assert ct.covers(wanted, found)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "not a comparison of metrics with numbers"),
        ("up", "a metric that is compared with nothing"),
        ("5 > 3", "not a comparison of metrics with numbers"),
        ("sum(up) > 5", "a function or an aggregation"),
        ("sum by (job) (up) > 5", "a function or an aggregation"),
        ("rate(x[5m]) > 5", "a function or an aggregation"),
        ("up[5m] > 5", "a range of time"),
        ("up offset 5m > 5", "another time"),
        ("up @ 5 > 5", "another time"),
        ("up + 1 > 5", "arithmetic"),
        ("up > 5 * down", "arithmetic"),
        ("up > bool 5", "a comparison whose result is 0 or 1"),
        ("up > on(job) down", "matching by labels"),
        ("up > 5 unless on(job) down > 5", "matching by labels"),
        ("up > down", "a comparison of two metrics"),
        ("up > 5 and down < 5", "several metrics in one condition"),
        ('{job=~".*"} > 5', "no label that must not be empty"),
        ("{} > 5", "no label that must not be empty"),
        ('up{__name__="down"} > 5', "a metric named twice"),
        ('up{value="5"} > 5', "a label that no attribute can be called"),
        (r'up{job=~"(a)\\1"} > 5', "a regular expression that is not linear"),
        (r'up{job="\xff"} > 5', "a string that is no text"),
        (r'up{job="\q"} > 5', "a string that is no text"),
        ("up > 010", "a number in an unusual form"),
        ("up == 0_17", "a number in an unusual form"),
        ("up == 0x_", "a number in an unusual form"),
        ("up == 1_e5", "a number in an unusual form"),
        ("up > 1e999", "a number in an unusual form"),
        ("up > 1" + "0" * 50_000, "a number in an unusual form"),
        ("up == \u0663", "not a comparison of metrics with numbers"),
        ("up > {{ threshold }}", "a comparison of two metrics"),
        ("up > 5m1h", "a number in an unusual form"),
        ("up > 5m5m", "a number in an unusual form"),
        ("up > 9999999999y", "a number in an unusual form"),
        ("100 - (down * 2) > 5", "arithmetic"),
        ('up{job="a} > 5', "not a comparison of metrics with numbers"),
    ],
)
def test_conditions_beyond_one_sample_are_refused(query: str, reason: str) -> None:
    """A query that needs several samples would be read as one that does not."""
    with pytest.raises(RefusedRuleError) as error:
        filters(query)
    assert error.value.reason == reason


@pytest.mark.parametrize("query", ['{__name__=~"a|b"} > 5', '{job="x"} > 5', 'up{up="x"} > 1'])
def test_rows_need_names_of_metrics(query: str) -> None:
    """A row would be asked for a metric that the query does not name."""
    with pytest.raises(RefusedRuleError):
        filters(query, rows=True)


@pytest.mark.quick_first
@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.parametrize(
    "query",
    [
        "(" * 100_000 + "up > 5" + ")" * 100_000,
        "(" * 200 + "up > 5" + ")" * 200,
        " or ".join(["up > 5"] * 10_000),
        " unless ".join([f'(up{{x!="{n}"}} > {n} or up{{y="{n}"}} < 5)' for n in range(500)]),
        " and ".join(f'up{{a{n}="x"}} > {n}' for n in range(2_000)),
        " unless ".join(f'up{{a{n}="x"}} > {n}' for n in range(2_000)),
        'up{x=~"' + "(a*)*" * 1_000 + 'b"} > 5',
        "up > " + "9" * 50_000,
        "up > 0x" + "f" * 50_000,
        '"' * 9_999,
        'up{x="' + '\\"' * 45_000,
        "up{" + ",".join(f'a=~"a{{{300 + n}}}.{{500}}c"' for n in range(300)) + "} > 1",
    ],
)
def test_hostile_queries_end_soon(query: str) -> None:
    """A query would take time or memory without bound, or raise something that nobody catches."""
    start = time.process_time()
    with suppress(ContradaError):
        filters(query)
    assert time.process_time() - start < SECONDS_MAX


FILE: Final = """
groups:
- name: example
  rules:
  - alert: Down
    expr: up{job="a"} == 0
    for: 5m
    labels: {severity: page}
  - record: job:x:sum
    expr: sum(x)
  - alert: Number
    expr: 5
"""


def test_files_of_rules_are_read_in_order() -> None:
    """A rule of a file would be lost, or refused together with others."""
    first, second, third = read_rules(FILE)
    assert isinstance(first, Rule)
    assert first.about == {"level": "page"}
    assert (first.name, str(first.filters)) == (
        "Down",
        '__name__ = "up" and job = "a" and value = 0',
    )
    assert [second.name, third.name] == ["job:x:sum", "Number"]
    assert not isinstance(second, Rule)
    assert not isinstance(third, Rule)
    assert [second.reason, third.reason] == [
        "a function or an aggregation",
        "a rule that is no text",
    ]


@pytest.mark.parametrize("text", ["", "a: [", "groups: []", "up > 5", "a: &a [*a]"])
def test_a_file_without_rules_is_one_refusal(text: str) -> None:
    """A file that cannot be read would pass as one without rules."""
    (found,) = read_rules(text)
    assert not isinstance(found, Rule)


@pytest.mark.shared_data
def test_alerts_are_read_as_their_naive_reading(shared_data: Callable[..., Path]) -> None:
    """Alerts from the world would be refused, or mean something else than to a naive reader."""
    path = shared_data("rules_other", "prometheus_rules.yml")
    found = list(read_rules(path.read_text("utf-8"), rows=True))
    counts = Counter(isinstance(each, Rule) for each in found)
    assert counts == {True: 357, False: 798}
    read = 0
    for query in rules_prometheus.queries(path):
        naive = rules_prometheus.parsed(query)
        if naive is not None:
            wanted = rules_prometheus.filter_of(naive, {each.metric: each.metric for each in naive})
            ours = filters(query, rows=True)
            assert ct.covers(wanted, ours), query
            # `.+` matches UTF-8 here, and any bytes in the naive reader.
            assert ct.covers(ours, wanted) is (".+" not in query), query
            read += 1
    assert read == 347
