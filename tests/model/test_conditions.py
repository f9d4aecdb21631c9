"""Parentheses, `not` and comments of the text syntax, and hints in its errors."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.cli.read_flags import literal
from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.model.syntax.filter_builder import CONDITIONS_NESTED_MAX

POINTS = [
    {name: value for name, value in zip("abc", values, strict=True) if value is not None}
    for values in product((None, 1, 2, "x"), repeat=3)
]
HELD: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a = 1": lambda n: n.get("a") == 1,
    "b < 2": lambda n: n.get("b") == 1,
    "b absent": lambda n: "b" not in n,
    "c contains 'x'": lambda n: n.get("c") == "x",
    "c (= 1 | absent)": lambda n: n.get("c", 1) == 1,
    "a not in (1)": lambda n: n.get("a") == 2,
}


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        parts.map(lambda each: f"({' or '.join(each)})"),
        parts.map(lambda each: f"({' and '.join(each)})"),
        inner.map(lambda each: f"not ({each})"),
        inner.map(lambda each: f"not {each}"),
    )


conditions = st.recursive(st.sampled_from(sorted(HELD)), joined, max_leaves=6)


@given(conditions)
def test_a_condition_holds_where_python_says(text: str) -> None:
    """A subscription would match excluded notifications, or miss wanted ones."""
    code = text
    for number, constraint in enumerate(sorted(HELD)):
        code = code.replace(constraint, f"held[{number}]")
    found = ct.parse(text)
    assert isinstance(found, ct.Filter | ct.FilterSet)
    for point in POINTS:
        held = [HELD[constraint](point) for constraint in sorted(HELD)]
        assert found.matches(point) is bool(eval(code, {"held": held})), (text, point)
    again = ct.parse(str(found))
    assert isinstance(again, ct.Filter | ct.FilterSet)
    assert ct.equal(again, found)
    assert ct.FilterSet(str(found)) == ct.FilterSet(text)


WRITTEN = [
    ("(a = 1)", "a = 1"),
    ("((a = 1 and b = 2))", "a = 1 and b = 2"),
    ("not (a = 1)", "a none of (1)"),
    ("not not a = 1", "a = 1"),
    ("(a = 1 or a = 2) and b = 1", "a in (1, 2) and b = 1"),
    ("(a = 1 or b = 2) and c = 3", "a = 1 and c = 3 or b = 2 and c = 3"),
    ("not (a = 1 and b = 2)", "a none of (1) or b none of (2)"),
    ("not (a = 1 or b absent)", "a none of (1) and b any"),
    ("not a = 1 and b = 2", "a none of (1) and b = 2"),
    ("a (= 1 | > 5) and (b = 1)", "a (> 5 | = 1) and b = 1"),
    ("not (everything)", "nothing"),
    ("(everything)", "everything"),
    ("not (@publisher = 'x')", '@publisher != "x"'),
    ("a = 1 or a = 2", "a = 1 or a = 2"),
    ("a = 1 # b = 2", "a = 1"),
    ("# a\n a = 1 # b = 2\n#\n and c = '# x'#y\n# ", 'a = 1 and c = "# x"'),
    ("a# = 1 and #b = 2\n b#c = 3", "a# = 1 and b#c = 3"),
]


@pytest.mark.parametrize(("text", "written"), WRITTEN)
def test_parsed_conditions_are_printed_shortly(text: str, written: str) -> None:
    """A person could not see the meaning of their condition."""
    text = text.replace("'#y", "' #y")
    assert str(ct.parse(text)) == written
    assert str(ct.FilterSet(text)) == written


def test_one_filter_and_several_are_distinguished() -> None:
    """A pattern, or a filter, would silently have only a part of the written conditions."""
    assert isinstance(ct.parse("(a = 1 or a = 2)"), ct.Filter)
    assert ct.Filter("not (a = 1 or b = 2)") == ct.Filter("a none of (1) and b none of (2)")
    with pytest.raises(ParseError, match="expected one filter"):
        ct.Filter("not (a = 1 and b = 2)")
    assert ct.Pattern("(a = 1) -> not b = 1").filters[1] == ct.Filter("b none of (1)")
    with pytest.raises(InvalidFilterError, match="each part of a pattern is one filter"):
        ct.Pattern("(a = 1 or b = 2) -> c = 1")
    with pytest.raises(ParseError):
        ct.Advertisement("(a = 1)")
    with pytest.raises(ParseError):
        ct.Advertisement("not a = 1")


@pytest.mark.parametrize(
    "around",
    [
        ("(", "a = 1", ")"),
        ("not ", "a = 1", ""),
        ("not (b = 1 and ", "a = 1", ")"),
        ("(b = 1) and (", "a = 1", ")"),
        ("a (", "= 1", ")"),
        ("a (~", "= 1", ")"),
    ],
)
def test_nesting_is_bounded(around: tuple[str, str, str]) -> None:
    """A text of brackets would end the process, or keep the parser for seconds."""
    before, inside, after = around
    before, again = (before[:2], before[2:]) if before[0] == "a" else ("", before)
    limit = CONDITIONS_NESTED_MAX // (2 if again in ("not (b = 1 and ", "(~") else 1)
    assert ct.FilterSet(before + again * limit + inside + after * limit).filters
    for levels in (limit + 1, 20_000):
        for end in (inside + after * levels, "", "$"):
            with pytest.raises(LimitError, match="CONDITIONS_NESTED_MAX"):
                ct.parse(before + again * levels + end)


def test_sequences_are_not_nested() -> None:
    """Long texts would be refused as deep ones, and lists and texts with parentheses in them."""
    many = 2 * CONDITIONS_NESTED_MAX
    text = " or ".join(["not not (a = 1 or not b not in (1, 2) and c (~~(= '((')))"] * many)
    assert ct.FilterSet(text) == ct.FilterSet("(a = 1 or not b not in (1, 2) and c = '((')")
    written = ct.parse(f"a = '{'(' * many}' or (b = 'x') # {'(' * many}")
    assert isinstance(written, ct.FilterSet)
    for closing in (")", "a = 1)"):
        with pytest.raises(ParseError):
            ct.parse(closing)


def test_alternatives_are_bounded() -> None:
    """A line of text could ask for a million filters."""
    with pytest.raises(LimitError, match="CONJUNCTIONS_MAX"):
        ct.parse(" and ".join(f"(a{n} = 1 and c = 1 or b{n} = 2)" for n in range(16)))


TOPICS = ("a.*", "a.>", "a.*.b", "*.b", "a/+/b/#", "a/#", "+/b", "a.b.>", "a/*")
HINTS = [
    ("a like 'x%'", "`wildcard 'a*b?'`"),
    ("a LIKE 'x%'", "`wildcard 'a*b?'`"),
    ("a == 5", "equality is one `=`"),
    ("a === 5", "equality is one `=`"),
    ("a <> 5", "write `!=`"),
    ("a => 5", "write `>=`"),
    ("a =< 5", "write `<=`"),
    ("a = 1 AND b = 2", "words are written small: `and`"),
    ("a = 1 OR b = 2", "words are written small: `or`"),
    ("a IN (1, 2)", "words are written small: `in`"),
    ("a NOT IN (1)", "words are written small: `not`"),
    ("NOT (a = 1)", "words are written small: `not`"),
    ("a BETWEEN 1 AND 2", "words are written small: `between`"),
    ("a EXISTS", "words are written small: `exists`"),
    ("a IS NULL", "`absent` where there is none"),
    ("a is null", "`absent` where there is none"),
    ("5 < a", "the attribute is written first, as in `a > 5`"),
    ("'x' = a", "the attribute is written first, as in `a = 'x'`"),
    ("1 < a < 5", "write `a > 1 and a < 5`"),
    ("a > 1 < 5", "two comparisons are joined by `and`"),
    ("a = 1 && b = 2", "write `and`"),
    ("a = 1 || b = 2", "write `or`"),
    ("!(a = 1)", "write `not (…)`"),
    ("a = 1;", "one filter has no end sign"),
    ("symbol = DIS", "a text is written in quotes: 'DIS'"),
    ("symbol in (DIS, IBM)", "a text is written in quotes: 'DIS'"),
    ("symbol prefix D", "a text is written in quotes: 'D'"),
    ("a = True", "write `true`"),
    ("a = None", "write `null`"),
    ("a startswith 'x'", "write `prefix`"),
    ("price not between 1 and 2", "write `not (a between 1 and 2)`"),
    (
        "name = 'O''Hare'",
        "a quote in a text needs a backslash before it, or the other quotes around",
    ),
    (
        "name = 'O'Hare'",
        "a quote in a text needs a backslash before it, or the other quotes around",
    ),
    ("a = 2026-11-20", "a time has a time of day and a zone, as @2026-11-20T09:30:00Z"),
    ("a = 2026/11/20", "a time has a time of day and a zone, as @2026-11-20T09:30:00Z"),
    ("a = @2026-11-20T09:30:00", "a time with a time of day and a zone, as @2026-11-20T09:30:00Z"),
    ("a = @2026-11-20", "a time with a time of day and a zone, as @2026-11-20T09:30:00Z"),
    ("exists a", "the attribute is written first, as in `a exists`"),
    ("absent(a) and b = 1", "the attribute is written first, as in `a absent`"),
    ("not exists a", "the attribute is written first, as in `a exists`"),
    ("a not exists", "write `a absent`"),
    ("a not any 5", "write `a absent`"),
    ("a not absent", "write `a exists`"),
    ("a not null and b = 1", "write `a != null` or `a exists`"),
    ("a is null", "write `= null` for the value null, `absent` where there is none, or `exists`"),
    ("a is not null", "for the value null, `absent` where there is none, or `exists`"),
    ("a in [1,2]", "a list is written in ( )"),
    ("a in 1, 2", "a list is written in ( )"),
    ("a = [1,2]", "one of several values is `in (…)`"),
    ("a in ()", "a list has at least one value"),
    ("a none of ( )", "a list has at least one value"),
    ("a = 1# c", "a comment needs a blank before `#`"),
    ("lower(a) = 'x'", "there are no functions; `nocase` disregards case, as in `a = nocase 'x'`"),
    ("a = 1 and len(b) > 3", "there are no functions"),
    ("substr(a, 1) = 'x'", "there are no functions"),
    ("a = upper(b)", "there are no functions"),
    ("lower('A') = 'a'", "there are no functions"),
    ("0 < a < 6", "write `a > 0 and a < 6`"),
    ("0 < a.b <= 6", "write `a.b > 0 and a.b <= 6`"),
    ("a = 0x10", "a number is written plainly, as 1000 or 1e3; a text is written in quotes"),
    ("a = 1_000", "a number is written plainly, as 1000 or 1e3; a text is written in quotes"),
    ("a = 1,000", "a number is written plainly, as 1000 or 1e3; a text is written in quotes"),
    ("a = 10.0.0.1", "a number is written plainly, as 1000 or 1e3; a text is written in quotes"),
    *((each, "a topic is an attribute, as in `topic prefix 'a/'`") for each in TOPICS),
    *((each, "`everything` matches all") for each in ("*", ">", "#", " true", "True", "1")),
    ("a eq 5", "write `=`"),
    ("a ne 5", "write `!=`"),
    ("a gte 5", "write `>=`"),
    ("a: 5", "equality is `=`"),
    ("a := 5", "equality is `=`"),
    ("a ≤ 5", "write `<=`"),
    ("a ≥ 5", "write `>=`"),
    ("a ≠ 5", "write `!=`"),
    ("a = 1 → b = 2", "write `->`"),
    ("a = 1 -> b = 2 within 5 s by c", "`by` is written before `within`"),
    ("a ~ 'x'", "write `matches /…/`"),
    ("a = “x”", "a text is written in ' or \""),
    ("a = ‘x’", "a text is written in ' or \""),
    (
        "'x' in a",
        "the attribute is written first, as in `a contains 'x'`; one of several is `a = 'x'`",
    ),
    ("a = 1 -- c", "a comment begins with `#`"),
    ("a = 1 // c", "a comment begins with `#`"),
    ("a = 1 /* c */", "a comment begins with `#`"),
    ("Threat Name = 'x'", "a name with blanks is written in backticks: `Threat Name`"),
    ("b = 1 and Threat Name != 'x'", "a name with blanks is written in backticks: `Threat Name`"),
    ("a in (1..5)", "a range is `between 1 and 5`"),
    ("a + b > 3", "there is no arithmetic"),
    ("a = 3 * 4", "there is no arithmetic"),
    ("a > 3 - 4", "there is no arithmetic"),
]


@pytest.mark.parametrize(("text", "hint"), HINTS)
def test_habits_of_other_languages_get_a_hint(text: str, hint: str) -> None:
    """A newcomer would have to find the page on the syntax first."""
    with pytest.raises(ParseError) as caught:
        ct.parse(text)
    assert caught.value.expected.endswith(hint) or hint in caught.value.expected


@pytest.mark.parametrize(
    "text",
    [
        *("a =", "a = 1 b = 2", "a ! 2", "not", "a not = 5", "= 5", "", "a = 'OR' b"),
        *("not(a)", "a = 1)", "a 5", "a1:", "a prefix = 'x'", "a = 1 'x'", "truer", "11", "a /"),
    ],
)
def test_other_faults_get_no_hint(text: str) -> None:
    """A hint that has nothing to do with the fault would lead astray."""
    with pytest.raises(ParseError) as caught:
        ct.parse(text)
    assert ";" not in caught.value.expected


def test_expected_tokens_are_valid() -> None:
    """A person would try each of the message's suggestions in vain."""
    with pytest.raises(ParseError) as caught:
        ct.parse("a = 1; b = 2")
    assert caught.value.expected.startswith("the end, `and`, `or` or `->`; ")


def test_a_literal_holds_no_comment() -> None:
    """A text with a sign of number would be cut on the command line."""
    for text in ("5 # y", "5 #", "# 5", "5\n# y", "true #\n"):
        assert literal(text) == text
    assert literal("'a # b'") == "a # b"
