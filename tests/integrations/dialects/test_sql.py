"""SQL conditions and filters, compared with SQLite and DuckDB."""

import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, RefusedRuleError
from contrada.integrations.dialects.sql import filters, read_rules, where
from contrada.integrations.dialects.sql.sql_writer import ColumnKind, _text_from
from contrada.model.rule import RefusedRule, Rule

MEMORY_BYTES_MAX = 30_000_000
SECONDS_MAX = 20.0
COLUMNS: Final[dict[str, ColumnKind]] = {"n": "number", "t": "text", "b": "boolean", "u": "time"}
Row = tuple[int | float | None, str | None, bool | None, int | None]

SQLITE: Final = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
SQLITE.execute("PRAGMA case_sensitive_like = ON")
SQLITE.execute("CREATE TABLE r (n, t TEXT, b, u INTEGER)")
DUCKDB: Final = duckdb.connect()
DUCKDB.execute("CREATE TABLE r (n DOUBLE, t VARCHAR, b BOOLEAN, u BIGINT)")


def answers(
    engine: Any, condition: str, parameters: Iterable[object], rows: list[Row]
) -> list[bool]:
    """For which rows a condition is true."""
    engine.execute("DELETE FROM r")
    engine.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", rows)
    found = engine.execute(f"SELECT ({condition}) FROM r", tuple(parameters)).fetchall()
    return [bool(truth) for (truth,) in found]


def notification(row: Row) -> ct.Notification:
    """The row as a notification; NULL is absent."""
    return ct.Notification({k: v for k, v in zip("ntb", row, strict=False) if v is not None})


# --- reading ------------------------------------------------------------------------------------

TEXTS: Final = ("", "a", "b", "ab", "aB", "A", "a%", "a_b", "é", "a'b", "a*b", "\\", "z\U0010ffff")
numbers = st.sampled_from([0, 1, -1, 5, 2.5, -0.0, 1e300, float("inf"), -7])
rows = st.tuples(
    st.none() | numbers,
    st.none() | st.sampled_from(TEXTS),
    st.none() | st.booleans(),
    st.none() | st.integers(-5, 5),
)
constant_numbers = st.sampled_from(["0", "1", "-1", "5", "2.5", "1e2", "NULL", "-.5"])
constant_texts = st.one_of(
    st.just("NULL"), st.sampled_from(TEXTS).map(lambda text: "'" + text.replace("'", "''") + "'")
)
constant_truths = st.sampled_from(["TRUE", "FALSE", "NULL"])
shapes = st.text("aAb%_é", max_size=4).map(lambda shape: f"'{shape}'")
escaped = st.lists(st.sampled_from(["a", "%", "_", "!%", "!_", "!!"]), max_size=4).map("".join)
comparing = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def of_kind(column: str, constants: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions on one column."""
    many = st.lists(constants, min_size=1, max_size=4).map(", ".join)
    negation = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds("{} {} {}".format, st.just(column), comparing, constants),
        st.builds("{} {} {}".format, constants, comparing, st.just(column)),
        st.builds("{} {}BETWEEN {} AND {}".format, st.just(column), negation, constants, constants),
        st.builds("{} {}IN ({})".format, st.just(column), negation, many),
        st.builds("{} IS {}NULL".format, st.just(column), negation),
        st.builds("{} IS {}DISTINCT FROM {}".format, st.just(column), negation, constants),
        st.builds("{} {} {}".format, constants, comparing, constants),
    )


tests = st.one_of(
    of_kind("n", constant_numbers),
    of_kind("t", constant_texts),
    of_kind("b", constant_truths),
    st.sampled_from(["b", "NOT b", "TRUE", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE"]),
    st.builds("t LIKE {}".format, shapes),
    st.builds("t NOT LIKE {}".format, shapes),
    st.builds("t LIKE '{}' ESCAPE '!'".format, escaped),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) IS NOT TRUE".format, inner),
        st.builds("({}) IS FALSE".format, inner),
    ),
    max_leaves=6,
)


@given(conditions, st.lists(rows, min_size=1, max_size=8))
@example("NOT (n = 5)", [(None, None, None, None)])
@example("n NOT IN (1, NULL)", [(2, None, None, None)])
@example("NOT (n > 1 AND t = 'a')", [(None, "b", None, None), (None, "a", None, None)])
def test_conditions_are_true_as_in_databases(condition: str, given_rows: list[Row]) -> None:
    """A condition would hold where SQL's logic of three values does not make it true."""
    found = filters(condition)
    ours = [found.matches(notification(row)) for row in given_rows]
    assert ours == answers(SQLITE, condition, (), given_rows)
    assert ours == answers(DUCKDB, condition, (), given_rows)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("WHERE a = 1;", "a = 1"),
        ("where a.b = 1 -- end", "a.b = 1"),
        ("\"Threat Name\" = 'x' /* (', */", "`Threat Name` = 'x'"),
        ('"a""b".c = 1', '`a"b.c` = 1'),
        ("a = 1", "a = 1"),
        ("a <> 1", "a any but (1, nan) and a <= inf"),
        ("a IS NULL", "a (absent | in (null, nan))"),
        ("a IS NOT NULL", "a any but (null, nan)"),
        ("(a = 1) IS UNKNOWN", "a none of (0) and a (~<= inf)"),
        ("(a = 1) IS NULL", "a (~<= inf)"),
        ("a = X'0aFF'", 'a = x"0aff"'),
        ("a > TIMESTAMP '2026-01-02 03:04:05'", "a > @2026-01-02T03:04:05Z"),
        ("a > TIMESTAMP WITH TIME ZONE '2026-01-02 03:04:05+01'", "a > @2026-01-02T02:04:05Z"),
        ("a = DATE '2026-01-02'", "a = @2026-01-02T00:00:00Z"),
        ("a ILIKE 'aB%'", "a prefix nocase 'ab'"),
        ("a LIKE 'a*?\\%'", r"a prefix 'a*?\\'"),
        ("a = 9223372036854775807", "a = 9223372036854775807"),
        ("5 BETWEEN a AND b", "a <= 5 and b >= 5"),
        ("5 IN (a, b)", "a = 5 or b = 5"),
        ("((a)) = ((1))", "a = 1"),
        ("a IN (1, 'x') AND a IN ('x', 2)", "a = 'x'"),
        ("NOT a IN (1, 'x')", "nothing"),
        ("1 = 1 OR a = 1", "everything"),
        ("a and b", "a = true and b = true"),
    ],
)
def test_forms_of_written_conditions(condition: str, expected: str) -> None:
    """A way of writing a condition would not be read, or as another one."""
    found, wanted = filters(condition), ct.FilterSet(expected)
    assert ct.covers(found, wanted)
    assert ct.covers(wanted, found)


@pytest.mark.parametrize("value", [None, True, 1, "x", float("nan")])
def test_values_of_another_domain_are_unknown(value: ct.Value) -> None:
    """A value that a column of the database could not hold would be equal, or unequal."""
    row = ct.Notification({"a": value})
    for condition in ("a = X'00'", "a <> X'00'", "NOT a = X'00'", "a NOT LIKE 'y'"):
        expected = value == "x" and condition != "a = X'00'"
        assert filters(condition).matches(row) is expected


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("", "not a condition"),
        ("a =", "not a condition"),
        ("a = 1 = 1", "not a condition"),
        ("a = 1 b", "not a condition"),
        ("a = 'x", "not a condition"),
        ("a = b", "a comparison of two columns"),
        ("a BETWEEN b AND 3", "a comparison of two columns"),
        ("(a = 1) = 2", "a condition in the place of a value"),
        ("5", "a value in the place of a condition"),
        ("a + 1 = 2", "arithmetic, or an operator that is not read"),
        ("a = 'x' || 'y'", "arithmetic, or an operator that is not read"),
        ("lower(a) = 'x'", "a function, or a row of values"),
        ("a IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1)", "a subquery"),
        ("a = ?", "a parameter"),
        ("a = :x", "a parameter"),
        ("a = $1", "a parameter"),
        ("a::int = 1", "a cast or a collation"),
        ("CAST(a AS int) = 1", "a function, or a row of values"),
        ("a SIMILAR TO 'x'", "an operator that is not read"),
        ("a LIKE b", "a pattern that is no constant text"),
        ("a LIKE 5", "a pattern that is no constant text"),
        ("a LIKE 'x' ESCAPE ''", "an escape that is not one character"),
        ("a LIKE 'x!y' ESCAPE '!'", "an escape that is not one character"),
        ("a LIKE 'x!' ESCAPE '!'", "an escape that is not one character"),
        ("a = 9223372036854775808", "a number that neither 64 bits nor a double hold"),
        ("a = 1e999", "a number that neither 64 bits nor a double hold"),
        ("a = 1e-999", "a number that neither 64 bits nor a double hold"),
        ("a = 0.1000000000000000000001", "a number that neither 64 bits nor a double hold"),
        ("a = 9223372036854775807.5", "a number that neither 64 bits nor a double hold"),
        ("a = X'0'", "bytes that are not hexadecimal"),
        ("a = DATE 'soon'", "a time that cannot be read"),
        ("a = DATE '2024-01-01 12:00'", "a time that cannot be read"),
        ("a = DATE '2024-W01-1'", "a time that cannot be read"),
        ("a = TIMESTAMP '2024-01-01 12:00:00.1234567'", "a time that cannot be read"),
        ("a = TIMESTAMP '9999-12-31T23:59:59-14:00'", "a time that cannot be read"),
        ("a LIKE '" + "_" * 20_000 + "'", "a pattern that is too large"),
        ("a = \u0663", "not a condition"),
        (f'"{"x" * 256}" = 1', "a column that no attribute can be called"),
    ],
)
def test_unsupported_syntax_is_refused(condition: str, reason: str) -> None:
    """A condition would get another meaning."""
    with pytest.raises(RefusedRuleError) as error:
        filters(condition)
    assert error.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("literal", "number"),
    [
        ("0" * 5_000 + "9223372036854775807", 2**63 - 1),
        ("-0009223372036854775808", -(2**63)),
        ("9007199254740993.0", 2**53 + 1),
        ("9007199254740993e0", 2**53 + 1),
        ("00.5", 0.5),
        ("1e30", 1e30),
    ],
)
def test_numbers_of_many_digits_are_exact(literal: str, number: float) -> None:
    """A condition would compare with another number than is written."""
    [held] = filters(f"a = {literal}").filters
    assert held == ct.Filter({"a": number})


@pytest.mark.parametrize(
    ("step", "filters_max"),
    [
        ("({inner} OR b = {n}) IS NULL", 1),
        ("({inner} OR b{n} = 1) IS NULL", 48),
        ("({inner} AND b{n} = 1) IS NULL", 2),
        ("NOT ({inner} AND b{n} = 1) IS NULL", 48),
        ("(b{n} IS NULL AND {inner}) IS UNKNOWN", 1),
        ("({inner} OR b{n} = 1) IS NOT TRUE", 48),
    ],
)
def test_states_in_one_another_stay_small(step: str, filters_max: int) -> None:
    """Each level would double the size of the one inside it."""
    condition = "a = 1"
    for n in range(48):
        condition = step.format(inner=condition, n=n)
    assert len(filters(condition).filters) <= filters_max


@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        "(" * 100_000 + "a = 1" + ")" * 100_000,
        "NOT " * 100_000 + "a = 1",
        " OR ".join(["a = 1"] * 20_000),
        " AND ".join(f"(a <> {n} OR b <> {n})" for n in range(2_000)),
        "a IN (" + ", ".join(map(str, range(50_000))) + ")",
        "a LIKE '" + "%a" * 10_000 + "'",
        "a LIKE '" + "%_a" * 10_000 + "'",
        "'" * 99_999,
        "a = /*" * 50_000,
        'a = "' * 49_999,
        "-- name: \n" * 50_000 + " " * 50_000,
        "-- x\n" * 100_000,
        "a = 1" + "0" * 500_000,
    ],
)
def test_hostile_conditions_end_soon(condition: str) -> None:
    """A condition would take unbounded time or memory, or raise an unexpected error."""
    start = time.process_time()
    with suppress(ContradaError):
        filters(condition)
    list(read_rules(condition))
    assert time.process_time() - start < SECONDS_MAX


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "condition",
    [
        "a = 1" + " " * 450_000,
        "a = 1 /*" + "x" * 450_000 + "*/",
        "a = 1" + "/**/ -- x\n" * 45_000,
        "a = '" + "x''" * 150_000 + "'",
        'a."' + '""' * 100 + '" = 1 -- ' + "x" * 450_000,
    ],
)
def test_blanks_comments_and_strings_take_little_memory(condition: str) -> None:
    """A regular expression would keep a mark for each character of a condition."""
    filters("a = 1")
    tracemalloc.start()
    filters(condition)
    (rule,) = read_rules(condition)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(rule, Rule)
    assert peak_bytes < MEMORY_BYTES_MAX


def test_places_of_refusals_are_lines_of_the_file() -> None:
    """People would look for the fault in another line."""
    text = "a = 1;\n\n\nb = 2\n  AND c ~ 3; d > 99999999999999999999;\nf(x) = 1"
    refused = [each for each in read_rules(text) if isinstance(each, RefusedRule)]
    assert [each.name for each in refused] == ["line 4", "line 5", "line 6"]
    places = [getattr(each.error, "place", None) for each in refused]
    assert places == ["line 5", "line 5", "line 6"]


def test_the_reason_of_a_refusal_is_not_found_in_strings() -> None:
    """The reason would be about another part than the faulty one."""
    for text in ("n = '(select' AND f(y) = 1", 'n = 1 /* ( select */ AND "exists" = f(y)'):
        with pytest.raises(RefusedRuleError) as error:
            filters(text)
        assert error.value.reason.startswith("a function")
    with pytest.raises(RefusedRuleError) as error:
        filters("n = ';' AND x IN (SELECT y FROM z)")
    assert (error.value.reason, error.value.found) == ("a subquery", "(SELECT y FROM z)")


def test_files_of_conditions_are_read_in_order() -> None:
    """A condition of a file would be lost, or refused together with others."""
    text = "-- name: cheap\nprice < 5;\n\n/* ; */ name = ';' -- ;\n;\nlower(x) = 1;;\n-- end\n"
    first, second, third = read_rules(text)
    assert isinstance(first, Rule)
    assert isinstance(second, Rule)
    assert (first.name, str(first.filters)) == ("cheap", "price < 5")
    assert (second.name, str(second.filters)) == ("line 4", 'name = ";"')
    assert not isinstance(third, Rule)
    assert (third.name, third.reason) == ("line 6", "a function, or a row of values")


def test_a_name_may_follow_the_semicolon() -> None:
    """A name on the line where the condition before ends would be lost."""
    assert [rule.name for rule in read_rules("x = 1;-- name: good\ny = 1")] == ["line 1", "good"]


@pytest.mark.parametrize("text", ["", ";", "-- nothing"])
def test_a_file_without_conditions_is_one_refusal(text: str) -> None:
    """A file without conditions would pass as a valid one."""
    (found,) = read_rules(text)
    assert not isinstance(found, Rule)


# --- writing ------------------------------------------------------------------------------------

few_numbers = st.sampled_from([0, 1, -1, 5, 2.5, 5e-324, 1e300, float("inf"), 2**53])
few_texts = st.text("ab*?[]%_\\é\x7fߨ\uffff\U0010ffff", max_size=3)
times = st.integers(-5, 5).map(lambda us: ct.parse(f"u = @1970-01-01T00:00:00.{us + 5:06}Z"))


def sets_of(constants: st.SearchStrategy[Any]) -> list[st.SearchStrategy[ct.ValueSet]]:
    """One constraint on values of a domain."""
    many = st.lists(constants, min_size=1, max_size=3)
    ordered: tuple[Callable[..., ct.ValueSet], ...] = (
        ct.ops.eq,
        ct.ops.ne,
        ct.ops.lt,
        ct.ops.le,
        ct.ops.gt,
        ct.ops.ge,
    )
    listed = (ct.ops.in_, ct.ops.not_in, ct.ops.any_but, ct.ops.none_of)
    return [
        *(constants.map(build) for build in ordered),
        st.tuples(constants, constants).map(lambda pair: ct.ops.between(*pair)),
        *(many.map(lambda held, build=build: build(*held)) for build in listed),  # type: ignore[misc]
        st.sampled_from([ct.ops.exists(), ct.ops.absent()]),
    ]


bytes_texts = st.one_of(few_texts, st.sampled_from([b"\xff", b"a\xc3", b"\xed\xa0", b"\xf4\x90"]))
shape_texts = st.lists(
    st.sampled_from(["a", "*", "?", r"\*", r"\\", "[", "%", "_", "é"]), max_size=5
).map("".join)
value_sets: dict[str, st.SearchStrategy[ct.ValueSet]] = {
    "n": st.one_of(sets_of(few_numbers)),
    "b": st.one_of(sets_of(st.booleans())),
    "t": st.one_of(
        *sets_of(bytes_texts),
        bytes_texts.map(ct.ops.prefix),
        few_texts.map(ct.ops.suffix),
        few_texts.map(ct.ops.contains),
        shape_texts.map(ct.ops.wildcard),
        few_texts.map(lambda text: ct.ops.suffix(text) & ct.ops.contains("a")),
    ),
}


@st.composite
def filter_sets(draw: st.DrawFn) -> ct.FilterSet:
    """Unions of conjunctions of combinations of constraints."""

    def held(name: str) -> ct.ValueSet:
        first, second = draw(value_sets[name]), draw(value_sets[name])
        return draw(
            st.sampled_from([first, ~first, first & second, first | second, first - second])
        )

    names = st.lists(st.sampled_from("nbt"), max_size=3, unique=True)
    many = draw(st.lists(names, max_size=3))
    return ct.FilterSet([ct.Filter({name: held(name) for name in each}) for each in many])


written_rows = st.tuples(
    st.none() | few_numbers, st.none() | few_texts, st.none() | st.booleans(), st.none()
)


@given(filter_sets(), st.lists(written_rows, min_size=1, max_size=8))
@example(ct.FilterSet("t prefix '\x7f'"), [(None, "\x7fa", None, None), (None, "\x80", None, None)])
@example(ct.FilterSet("t < x'ff' and n != 5"), [(5, "a", None, None), (1, "a", None, None)])
def test_databases_select_the_rows_that_filters_match(
    of: ct.FilterSet, given_rows: list[Row]
) -> None:
    """A filter in SQL would select another row than the filter matches."""
    ours = [of.matches(notification(row)) for row in given_rows]
    for engine in (SQLITE, DUCKDB):
        clause = where(of, COLUMNS, sqlite=engine is SQLITE)
        assert answers(engine, clause.text, clause.parameters, given_rows) == ours, clause


@pytest.mark.parametrize(
    ("of", "text", "parameters"),
    [
        ("n > 5 and t = 'a'", '"n" > ? AND "t" = ?', (5, "a")),
        ("n between 1 and 5", '"n" >= ? AND "n" <= ?', (1, 5)),
        ("n none of (1, 2)", '"n" IS NULL OR "n" NOT IN (?, ?)', (1, 2)),
        ("t suffix '%'", "\"t\" LIKE ? ESCAPE '\\'", (r"%\%",)),
        ("b = true or n exists", '"b" = ? OR "n" IS NOT NULL', (True,)),
        ("u < @1970-01-01T00:00:02Z", '"u" < ?', (2_000_000,)),
        ("n > 5 and t = 5", "1 = 0", ()),
        ("t = nocase 'a'", '"t" IN (?, ?)', ("A", "a")),
        ("everything", "1 = 1", ()),
        ("nothing", "1 = 0", ()),
    ],
)
def test_written_conditions_are_short(of: str, text: str, parameters: tuple[object, ...]) -> None:
    """A condition would be longer than it must be, or its parameters in another order."""
    assert where(ct.FilterSet(of), COLUMNS) == (text, parameters)


def test_columns_may_have_any_name() -> None:
    """A name would end the condition and begin something else."""
    clause = where(ct.Filter({'x" = 1 --': 1}), {'x" = 1 --': "number"})
    assert clause.text == '"x"" = 1 --" = ?'


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        ("z = 1", "an attribute without a column"),
        ("t matches /a+b/", "an operator that SQL has not"),
        ("t contains nocase 'a'", "an operator that SQL has not"),
        ("t cidr '10.0.0.0/8'", "an operator that SQL has not"),
        ('t suffix x"ff"', "bytes that are no text"),
        (r't suffix "\u0000"', "bytes that are no text"),
    ],
)
def test_filters_without_sql_are_refused(of: str, reason: str) -> None:
    """A filter would become a condition that selects other rows."""
    with pytest.raises(RefusedRuleError) as error:
        where(ct.FilterSet(of), COLUMNS)
    assert error.value.reason == reason


@given(st.binary(max_size=4))
@example(b"\xf4\x90")
@example("\U0010ffff".encode() + b"\xff")
@example("\ud7ff".encode() + b"\xff")
def test_the_first_text_behind_bytes(bound: bytes) -> None:
    """A bound that is no text would let a text in that is below, or keep one out that is not."""
    text = _text_from(bound)
    if text is None:
        assert chr(0x10FFFF).encode() < bound
        return
    assert text.encode() >= bound
    for shorter in (text[:-1], text[:-1] + chr(max(0, ord(text[-1]) - 1)) if text else ""):
        with suppress(UnicodeEncodeError):
            assert shorter.encode() < bound or shorter == text
