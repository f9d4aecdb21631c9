"""CESQL against its specification, and its translation against a plain evaluation."""

import json
import pickle
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import LimitError, ParseError, RefusedRuleError
from contrada.integrations.dialects import cesql
from contrada.integrations.dialects.cesql.cesql_casts import integer_texts
from contrada.model.rule import RefusedRule, Rule
from tests.integrations.dialects import cesql_naive as naive
from tests.strategies import more

CONFORMANCE = Path(__file__).parents[2] / "conformance" / "dialects" / "cesql.jsonl"
ROWS = {
    f"{number}: {row['source']}": row
    for number, row in enumerate(map(json.loads, CONFORMANCE.read_text("utf-8").splitlines()), 1)
}


def outcome_of(expression: str, event: ct.Notification) -> tuple[Any, str | None]:
    """The value and the kind of the error; None and "parse" where the text is none."""
    try:
        value, fault = cesql.evaluate(cesql.parse(expression), event)
    except ParseError:
        return None, "parse"
    return value, fault.kind if fault else None


@pytest.mark.parametrize("place", ROWS)
def test_the_interpreter_is_the_specification(place: str) -> None:
    """Expressions would mean something else here than in other engines."""
    row = ROWS[place]
    found = outcome_of(row["expression"], ct.Notification(row["attributes"]))
    assert (repr(found[0]), found[1]) == (repr(row.get("value")), row["error"])
    assert ("why" in row) is ("said" in row)


@pytest.mark.parametrize("place", [p for p, row in ROWS.items() if row["error"] != "parse"])
def test_an_event_passes_where_the_value_is_true_without_an_error(place: str) -> None:
    """A rule would match events for which its expression is false, an error, or no Boolean."""
    row = ROWS[place]
    event = ct.Notification(row["attributes"])
    expression = cesql.parse(row["expression"])
    passes = row["value"] is True and row["error"] is None
    assert cesql.holds(expression, event) is passes
    if row["error"] != "missingFunction":
        assert cesql.read(row["expression"]).matches(event) is passes


def expected_of(tree: naive.Tree, event: dict[str, Any]) -> tuple[Any, str | None]:
    try:
        return naive.value_of(tree, event), None
    except naive.WrongError as error:
        return None, str(error)


def passes(tree: naive.Tree, event: dict[str, Any]) -> bool:
    value, error = expected_of(tree, event)
    return value is True and error is None


@more(4)
@given(naive.trees, naive.events)
def test_the_interpreter_agrees_with_a_plain_evaluation(
    tree: naive.Tree, event: dict[str, Any]
) -> None:
    """Nested casts and errors, which no row of the specification has, would be wrong."""
    value, error = outcome_of(naive.text_of(tree), ct.Notification(event))
    expected, kind = expected_of(tree, event)
    assert error == kind
    if error is None:
        assert repr(value) == repr(expected)


@pytest.mark.slow
@more(4)
@given(st.one_of(naive.trees, naive.conditions), st.lists(naive.events, min_size=1, max_size=8))
def test_filters_and_residue_are_the_expression(
    tree: naive.Tree, events: list[dict[str, Any]]
) -> None:
    """Translated rules would match other events than their expressions."""
    rule = cesql.read(naive.text_of(tree))
    for event in events:
        assert rule.matches(ct.Notification(event)) is passes(tree, event)


A = ("name", "a")
COMPARISONS: dict[str, list[naive.Tree]] = {
    **{
        operator: [
            tree
            for literal in naive.LITERALS
            for tree in ((operator, A, literal), (operator, literal, A))
        ]
        for operator in ("=", "!=", "<", "<=", ">", ">=")
    },
    "LIKE": [("LIKE", A, pattern) for pattern in naive.PATTERNS],
    "NOT LIKE": [("NOT LIKE", A, pattern) for pattern in naive.PATTERNS],
    "IN": [("IN", A, one, two) for one in naive.LITERALS for two in (5, "ab", True)],
    "NOT IN": [("NOT IN", A, one, two) for one in (5, "ab", True) for two in naive.LITERALS],
    "casts": [
        (outer, (inner, A), literal)
        for outer in ("=", "<", "AND")
        for inner in ("INT", "BOOL", "STRING", "IS_INT", "IS_BOOL", "NOT", "minus", "LENGTH")
        for literal in (5, "5", True, "true", -1, 0)
    ],
    "in turn": [
        (outer, ("+", (inner, A, True), 1), 2)
        for outer in ("=", "<=")
        for inner in ("AND", "OR", "XOR", "=", "+", "CONCAT")
    ],
}


@pytest.mark.quick_every(4)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_sets_are_the_comparisons_for_each_value(kind: str) -> None:
    """A set would hold a value that does not compare so, or lack one that does."""
    for tree in COMPARISONS[kind]:
        rule = cesql.read(naive.text_of(tree))
        for event in ({}, *({"a": value} for value in naive.POOL)):
            assert rule.matches(ct.Notification(event)) is passes(tree, event), (tree, event)


@more(2)
@given(
    st.one_of(naive.trees, naive.conditions),
    st.dictionaries(st.sampled_from(naive.NAMES), st.lists(naive.VALUES, min_size=1, max_size=3)),
)
def test_of_several_values_one_each_must_do(
    tree: naive.Tree, several: dict[str, list[Any]]
) -> None:
    """Filters could match by one value of an attribute, and the residue hold by another."""
    each = (dict(zip(several, chosen, strict=True)) for chosen in product(*several.values()))
    expected = any(passes(tree, event) for event in each)
    assert cesql.read(naive.text_of(tree)).matches(ct.Notification(several)) is expected


@pytest.mark.parametrize(("wanted", "matches"), [("xz", True), ("yz", False)])
def test_the_same_value_must_do_for_filters_and_residue(wanted: str, matches: bool) -> None:
    """With several values, a rule would match that holds for no single one, or never match."""
    rule = cesql.read(f"a = 'x' AND CONCAT(a, b) = '{wanted}'")
    assert rule.matches(ct.Notification({"a": ["x", "y"], "b": "z"})) is matches


@given(st.one_of(naive.trees, naive.conditions))
def test_the_text_of_an_expression_is_read_as_itself(tree: naive.Tree) -> None:
    """A residue that is shown would mean something else than the one that is evaluated."""
    expression = cesql.parse(naive.text_of(tree))
    assert cesql.parse(str(expression)) == expression


SETS = {
    "subject = 'x'": "subject = 'x'",
    "subject != 'x'": "subject any but ('x')",
    "NOT (subject != 'x')": "subject = 'x'",
    "subject = 'true'": "subject in ('true', true)",
    "subject = '5'": "subject in ('5', 5)",
    "subject = '05'": "subject = '05'",
    "subject = '2018-04-26T12:48:09Z'": "subject"
    " in ('2018-04-26T12:48:09Z', @2018-04-26T12:48:09Z)",
    "subject = '2018-04-26T14:48:09+02:00'": "subject = '2018-04-26T14:48:09+02:00'",
    "STRING(subject) = CONCAT('x', 'y')": "subject = 'xy'",
    "source LIKE 'https://%'": "source prefix 'https://'",
    "type LIKE '%.error'": "type suffix '.error'",
    "type LIKE '%error%'": "type contains 'error'",
    "type LIKE 'a%b_c%d'": "type wildcard 'a*b?c*d'",
    "type LIKE 'a\\%'": "type = 'a%'",
    "type LIKE '%'": "type any",
    "type LIKE '__%e'": "type (wildcard '??*e' | in (true, false))",
    "EXISTS a AND NOT EXISTS b": "a any and b absent",
    "a IN ('x', 'y', 'z')": "a in ('x', 'y', 'z')",
    "a NOT IN ('x')": "a (!= 'x' | in (null, nan) | <= @9999-12-31T23:59:59.999999Z)",
    "1 + 1 = 2 AND a = 'x'": "a = 'x'",
    "1 / 0 = 1 OR a = 'x'": "nothing",
    "a = 'x' OR a = 'y'": "a in ('x', 'y')",
    "a = 'x' OR b = 'y'": "a = 'x' or a any and b = 'y'",
    "NOT (a = 'x' AND b = 'y')": "a any but ('x') or a any and b any but ('y')",
    "(a = 'x') = TRUE": "a = 'x'",
    "FALSE = (a = 'x')": "a any but ('x')",
    "a": "a = true",
    "a AND TRUE": "a ((!= 0 & <= inf) | in (true, 'true') | matches /\\A(?i:true)\\z/)",
    "5": "nothing",
    "'true'": "nothing",
    "TRUE": "everything",
}


@pytest.mark.parametrize("expression", SETS)
def test_a_set_leaves_no_residue(expression: str) -> None:
    """Simple expressions would be asked event by event instead of through the index."""
    rule = cesql.read(expression)
    assert (rule.filters, rule.residue) == (ct.FilterSet(SETS[expression]), "")


RESIDUES = {
    "hop < ttl": "hop < ttl",
    "a + 1 = 2 AND b = 'x'": "(a + 1) = 2",
    "b = 'x' AND (EXISTS c AND hop < ttl)": "hop < ttl",
    "NOT (hop < ttl OR b = 'x')": "NOT (hop < ttl)",
    "LENGTH(a) AND b": "BOOL(LENGTH(a))",
    "LENGTH(a) AND UPPER(b)": "LENGTH(a) AND UPPER(b)",
    "a LIKE '12%' AND b = 'x'": "a LIKE '12%'",
    "a IN (b, 'x')": "a IN (b, 'x')",
    "FALSE AND hop < ttl": "",
    "a = 'x' AND a = 'y' AND hop < ttl": "",
}


@pytest.mark.parametrize("expression", RESIDUES)
def test_the_residue_has_only_conditions_that_are_no_set(expression: str) -> None:
    """A whole expression would be evaluated for the sake of one part."""
    assert cesql.read(expression).residue == RESIDUES[expression]


def test_filters_ask_that_attributes_of_the_residue_are_there_and_can_be_cast() -> None:
    """Events that can only be errors would be handed to the interpreter."""
    filters = cesql.read("d XOR (a + INT(b) = LENGTH(c)) XOR e = f").filters
    event: dict[str, Any] = {"a": "-1", "b": 5, "c": "", "d": "TRUE", "e": "x", "f": "y"}
    assert filters.matches(ct.Notification(event))
    for name, value in (("a", "x"), ("b", "5.0"), ("d", "yes")):
        assert not filters.matches(ct.Notification(event | {name: value}))
    for name in event:
        absent = {each: value for each, value in event.items() if each != name}
        assert not filters.matches(ct.Notification(absent))


def test_texts_of_integers_are_those_that_cast() -> None:
    """Text would match an order of Integers that it does not cast into, or not match one."""
    ends = [0, 1, -1, 9, 10, 99, 100, 109, 999, 1000, 12345, 2**31 - 1, -(2**31), -10, -105]
    for low, high in ((low, high) for low in ends for high in ends if low <= high):
        texts = integer_texts(low, high)
        for number in {low, high, low - 1, high + 1, (low + high) // 2, -low, 0}:
            sign = "-" if number < 0 else "+"
            for text in (str(number), f"{sign}00{abs(number)}"):
                assert texts.contains(text) is (low <= number <= high), (low, high, text)
        assert texts.contains("-00") is (low <= 0 <= high)
        for odd in ("", "-", "+", "5 ", "٥", "0x1", "1.0", "+-1", b"1\xff"):
            assert not texts.contains(odd)


def test_only_ascii_letters_are_lowered_to_true_and_false() -> None:
    """A text that casts to a Boolean would be missing in the sets of spellings."""
    odd = [c for c in map(chr, range(128, sys.maxunicode + 1)) if set(c.lower()) & set("truefals")]
    assert odd == []


WRONG = {
    "": (1, 1, "the end of the text", "a value"),
    "a = ": (1, 5, "the end of the text", "a value"),
    "a = 'x": (1, 5, "an unfinished text: 'x", "a value"),
    "a\n  = = 1": (2, 5, "'='", "a value"),
    "(a": (1, 3, "the end of the text", ")"),
    "a b": (1, 3, "'b'", "an operator or the end of the text"),
    "a ? b": (1, 3, "'?'", "an operator or , or )"),
    "a IN ()": (1, 7, "')'", "a value"),
    "a LIKE b": (1, 8, "'b'", "a text in quotes"),
    "EXISTS TRUE": (1, 8, "'TRUE'", "an attribute"),
    "99999999999": (1, 1, "'99999999999'", "an integer of 32 bits, -2147483648 to 2147483647"),
    "a = '\udcff'": (1, 6, "'\\udcff'", "text; a lone surrogate is none"),
    "ſ = 1": (1, 1, "'ſ'", "a value"),
    "a LI\u212aE 'x'": (1, 3, "'LI'", "an operator or the end of the text"),
    "a LIKE '" + "_" * 20_000 + "'": (
        1,
        8,
        repr("'" + "_" * 39),
        "a shorter pattern, this one has more than MACHINE_STATES_MAX = 10000 allows",
    ),
    "a" * 256: (1, 1, repr("a" * 40), "a name of at most 255 characters"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_syntax_error_has_its_place_and_reason(text: str) -> None:
    """Users could not find the fault in their expressions."""
    with pytest.raises(ParseError) as raised:
        cesql.parse(text)
    error = raised.value
    found = (error.line, error.column, error.found, error.expected)
    assert found == WRONG[text]
    with pytest.raises(RefusedRuleError) as refused:
        cesql.read(text)
    assert refused.value.reason == "not in the syntax"
    assert refused.value.place == f"line {error.line}, column {error.column}"


def test_a_function_that_there_is_not_is_refused() -> None:
    """A rule of another engine's own functions would silently never match."""
    with pytest.raises(RefusedRuleError) as refused:
        cesql.read("a = 'x' OR NOSUCH(b, 1)")
    assert (refused.value.reason, refused.value.found) == (
        "no such function",
        "NOSUCH of 2 arguments",
    )


@pytest.mark.parametrize(
    ("literal", "number"), [("0" * 5_000, 0), ("0" * 5_000 + "7", 7), ("-" + "0" * 5_000 + "7", -7)]
)
def test_leading_zeros_of_an_integer_are_ignored(literal: str, number: int) -> None:
    """An expression with many zeros would raise an unexpected error, and end the reading of its
    file.
    """
    assert cesql.parse(f"a = {literal}") == cesql.parse(f"a = {number}")


def test_a_file_has_an_expression_a_line() -> None:
    """Rules of a file would be lost, run together, or have no name."""
    rules = list(cesql.read_rules("# of ours\n\na = 'x\u2028'\r\n  b =\nEXISTS c"))
    assert [rule.name for rule in rules] == ["line 3", "line 4", "line 5"]
    assert [type(rule) for rule in rules] == [Rule, RefusedRule, Rule]
    assert rules[1].reason == "not in the syntax"  # type: ignore[union-attr]
    assert isinstance(rules[1], RefusedRule)
    assert getattr(rules[1].error, "place", "") == "line 4, column 6"


def test_a_rule_can_go_to_another_process() -> None:
    """Spark's tasks could not be given rules with a residue."""
    rule = pickle.loads(pickle.dumps(cesql.read("hop < ttl")))
    assert rule.matches(ct.Notification({"hop": 1, "ttl": 2}))
    assert not rule.matches(ct.Notification({"hop": 2, "ttl": 2}))


def test_texts_do_not_grow_without_bound() -> None:
    """A small expression over a large attribute could fill the memory."""
    joined = f"LENGTH(CONCAT({', '.join('a' * 40)})) > 0"
    event = ct.Notification({"a": "x" * 1_000_000})
    assert outcome_of(joined, event) == (False, "functionEvaluation")
    assert not cesql.read(joined).matches(event)


def test_too_many_choices_of_values_are_an_error() -> None:
    """An event of many values could hold up a matcher, or be answered at random."""
    event = ct.Notification({name: list(range(150)) for name in "ab"})
    assert cesql.holds(cesql.parse("a < b"), event)
    with pytest.raises(LimitError):
        cesql.holds(cesql.parse("a < b AND b < a"), event)


def nested(depth: int) -> str:
    return "a = 'x' OR (" * depth + "b" + ")" * depth


def chain(operator: str, *comparisons: str, length: int = 1_000) -> str:
    parts = (comparisons[n % len(comparisons)].format(n=n) for n in range(length))
    return f" {operator} ".join(parts)


TOO_MUCH = {
    "long": ("a = 'x' OR " * 10_000 + "b", "CESQL_CHARACTERS_MAX"),
    "deep": (nested(1_000), "CESQL_DEPTH_MAX"),
    "deep in parentheses": ("(" * 40_000 + "NOT " * 200 + "a" + ")" * 40_000, "CESQL_DEPTH_MAX"),
    "many negations": ("NOT " * 20_000 + "a", "CESQL_DEPTH_MAX"),
    "many signs": ("-" * 50_000 + "1", "CESQL_DEPTH_MAX"),
    "patterns in turn": (
        "".join(f"a LIKE '%{n}%' {'AND' if n % 2 else 'OR'} (" for n in range(60)) + "a" + ")" * 60,
        "NESTING_MAX",
    ),
    "many likes": ("a" + " LIKE '%'" * 1_000, "CESQL_DEPTH_MAX"),
}


@pytest.mark.quick_first
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", TOO_MUCH)
def test_too_much_is_refused(kind: str) -> None:
    """A hostile expression could end the process, or hold it up."""
    text, limit = TOO_MUCH[kind]
    with pytest.raises(LimitError) as raised:
        cesql.read(text)
    assert raised.value.limit == limit


HOSTILE = {
    "exclusive attributes": (chain("XOR", "a{n}=1", length=5_000), 1, True),
    "substrings": (chain("OR", "a LIKE '%{n}%'", length=4_000), 1, True),
    "single characters": (chain("OR", f"a LIKE '{'_' * 900}x{{n}}'", length=90), 1, False),
    "values of one attribute": (chain("OR", "a = 'v{n}'"), 1, False),
    "values of two attributes": (chain("OR", "a = 'v{n}'", "b = 'v{n}'"), 3, False),
    "many attributes": (chain("OR", "a{n} = 'v'"), 1_000, True),
    "numbers": (chain("OR", "a < {n}", length=300), 1, False),
    "patterns": (chain("AND", "a NOT LIKE '%x{n}%y'"), 1, False),
    "exclusive": (chain("XOR", "a = '{n}'", "b = '{n}'", "c LIKE '%x{n}%'"), 1, True),
    "few exclusive": (chain("XOR", "a{n} = 'x'", length=10), 512, False),
    "choices": (chain("AND", "(a{n} = 'x' OR b{n} = 'y')"), 512, True),
    "a long list": (f"a IN ({', '.join(f'{n}' for n in range(15_000))})", 1, False),
    "as deep as can be": (nested(98), 2, False),
    "in turn": (" AND ".join(f"a{n} = 'x' OR b{n} = 'y'" for n in range(45)), None, True),
    "a long pattern": (f"a LIKE '{'%a' * 30_000}'", 1, False),
}


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", HOSTILE)
def test_large_expressions_are_bounded(kind: str) -> None:
    """A small text could become more filters, or take longer, than a broker can bear."""
    text, filters, has_residue = HOSTILE[kind]
    rule = cesql.read(text)
    assert filters is None or len(rule.filters) == filters
    assert (rule.residue != "") is has_residue
    event = ct.Notification({"a": "v1"})
    assert rule.matches(event) is cesql.holds(cesql.parse(text), event)
