"""Plain filters, read without the parser, are those that the parser reads."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import ContradaError
from contrada.integrations.dialects import sigma
from contrada.model import Filter, FilterSet
from contrada.model.languages.atoms import KEYWORDS
from contrada.model.rule import Rule
from contrada.model.syntax.filter_builder import build
from contrada.model.syntax.plain_parser import (
    _SHORT,
    PLAIN_DEPTH_MAX,
    PLAIN_SET_CHARACTERS_MAX,
    plain_statement,
)
from tests.strategies import filter_sets


def one_of(words: str, *others: str) -> st.SearchStrategy[str]:
    """One of the words of a text, or of a text with spaces in it."""
    return st.sampled_from([*words.split(), *others])


NAMES = one_of(
    "a price a.b-c a- x: _1 $a @id @no @ @1 @is.T @time é `a` 1a", "a" * 256, *sorted(KEYWORDS)
)
OPERATORS = one_of(
    "= != < <= > >= == <> >* * prefix suffix contains in any absent prefix= a= matches &&",
    "= nocase",
    "!=nocase",
    "< nocase",
    "in nocase",
    "not prefix",
    "not\tcontains nocase",
    "not in",
    "not matches",
    "not =",
    "any but",
    "any  but",
    "none of",
    "wildcard",
    "cidr",
    "not cidr",
    "nothing",
    "exists",
)
NUMBERS = one_of(
    "5 -5 +7 007 5. .5 -0 -0.0 1.5e3 1e999 inf -inf nan 5_0 ٣ 5.5.5 --5 0x10 9223372036854775807 "
    f"9223372036854775808 {1:018} {1:019} {'1' * 400} {1:018}.{3:018} {1:019}.5 1.{3:019}"
)
TEXTS = one_of(
    r"""'x' "x" "" 'it"s' "\n" '\x' "é" "open x"41" /x/ @2026-11-20T09:30:00Z ('x')""",
    '"a and b = 1"',
    '"\ud800"',
    '"a\nb"',
    '"\0"',
    f'"{"long " * 20}"',
    r'"\\ \" \t"',
    r'"\u00e9"',
    '"10.0.0.0/8"',
    'x"00ff"',
    "x'0'",
    "/a+b/",
    "/a and b\\/ c/ims",
)
WORDS = one_of("true false null True truely trueand x", "")
SPACES = st.sampled_from([" ", " ", " ", "", "\t", "\r\n", "  ", "\v", "\u00a0"])
JOINTS = one_of("and and or or And or -> , andand &")


LITERALS = NUMBERS | TEXTS | WORDS
LISTS = st.lists(LITERALS, min_size=1, max_size=3).map(lambda each: f"({', '.join(each)})")
PHRASES = st.tuples(OPERATORS, LITERALS | LISTS)
GOOD_PHRASES = one_of(
    "=5 !='x' exists any absent nothing",
    r'not contains nocase "\\x\""',
    "prefix x'00'",
    "in (1, 'x' ,true)",
    "not in nocase('a')",
    "any but (null)",
    "matches /b and c/i",
    "not cidr '10.0.0.0/8'",
)
GROUPS = st.recursive(
    GOOD_PHRASES | one_of("", "= = 1", "5", ")"),
    lambda inner: st.lists(
        st.tuples(one_of("~ ~~", "", ""), inner | GOOD_PHRASES).map("".join), min_size=1, max_size=3
    ).flatmap(lambda parts: one_of("| & ,").map(lambda sign: f"({sign.join(parts)})")),
    max_leaves=6,
).map(lambda text: (text,))


@st.composite
def nearly_plain(draw: st.DrawFn) -> str:
    """Names with sets, joined by `and` and `or`, and texts that only look so."""
    text = ""
    for number in range(draw(st.integers(1, 4))):
        parts = [draw(JOINTS)] if number else []
        parts += [draw(NAMES | one_of("a b")), *draw(PHRASES | GROUPS)]
        for part in parts:
            text += draw(SPACES) + part
    return text + draw(SPACES)


def check(text: str) -> bool:
    """Whether it is read as plain, short or long; if so, the parser reads the same."""
    found, longer = plain_statement(text), plain_statement(text + " " * _SHORT)
    assert (found is None) == (longer is None), text
    if found is None or longer is None:
        return False
    assert [*map(_form, longer.filters)] == [*map(_form, found.filters)], text
    parsed = build(text, "statement")
    assert isinstance(parsed, FilterSet)
    assert [_form(each) for each in found.filters] == [_form(each) for each in parsed.filters], text
    assert [str(each) for each in found.filters] == [str(each) for each in parsed.filters], text
    return True


def _form(of: Filter) -> list[object]:
    """A filter's form, not only its meaning."""
    return [(name, each.line, each.text) for name, each in of.sets.items()]


@given(nearly_plain())
def test_plain_texts_parse_as_by_lark(text: str) -> None:
    """A text would be another filter, or no error, because it was read the fast way."""
    check(text)


@given(filter_sets())
def test_printed_texts_parse_as_by_lark(of: FilterSet) -> None:
    """A file of subscriptions that was written here would mean something else."""
    check(str(of))


@given(st.text(alphabet="ab=<>!'\"1.-+ \tndprefixtrue\\", max_size=24))
def test_no_text_at_all_is_read_otherwise(text: str) -> None:
    """As above, of texts that nobody thought of."""
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "price < 100 and symbol = 'DIS'",
        " a=1 and b>=-2.50\tand\na!='x' and c prefix \"x\" and d = true and e != null ",
        "price >= 1 and price < 2 and price != 1.5",
        f"a = '{'long ' * 20}'",
        "a = 'é' and a-b.c:d = 1",
        "a = 1 or b = 2 and a > 3 and a < 9 or c exists",
        "a = 1\tand b = 2 or a = 1 and\nb = 3 or a = 1",
        "a = 'x or b = 1' or b (= 'y or (' | = ' and ') or a matches /b\\) or c and d/",
        r'a contains nocase "\\x\"" and b not suffix "y" or b in (1, true, "z") and a not in (1)',
        "a (= nocase 'x' | = 5 & ~(prefix 'y' | absent)) and b (~= 1)",
        r"a matches /b and c\/d/i or a not cidr '10.0.0.0/8' and a any but (null, x'00')",
        "a " + "(" * PLAIN_DEPTH_MAX + "= 1" + ")" * PLAIN_DEPTH_MAX,
    ],
)
def test_the_common_form_is_plain(text: str) -> None:
    """The most frequent subscriptions would be parsed slowly."""
    # Before Python 3.11.5 `re` misses some lists and escapes, which are then parsed by lark.
    assert check(text) or sys.version_info < (3, 11, 5)


@pytest.mark.parametrize(
    "text",
    [
        "a < null",
        "a = 1and b = 2",
        "a = 1or b = 2",
        "a prefix 3",
        "a (= 1 | suffix 3)",
        "a = 1 or b in (1, 'x') c",
        "a = '\ud800'",
        "b = 9999999999999999999",
    ],
)
def test_errors_are_those_of_lark(text: str) -> None:
    """A fault would have no place, or none would be found."""
    assert plain_statement(text) is None
    with pytest.raises(ContradaError, match="line 1, column"):
        Filter(text)


def test_a_set_that_is_nested_deeply_is_left_to_the_parser() -> None:
    """The depth of a parse would depend on a stranger's text."""
    nested = "a " + "(" * 100 + "= 1" + ")" * 100
    assert plain_statement(nested) is None
    assert Filter(nested) == Filter("a = 1")


def test_members_share_the_sets_that_they_say_alike() -> None:
    """A rule of many long conditions would take its time, and memory, for each of its members."""
    long = " | ".join(f"= 'text {number}'" for number in range(PLAIN_SET_CHARACTERS_MAX // 10))
    found = plain_statement(f"a ({long}) and b = 1 or a ({long}) and b = 2")
    assert found is not None
    first, second = found.filters
    assert first.sets["a"] is second.sets["a"]
    assert first.sets["b"] != second.sets["b"]


def test_repeated_parts_are_parsed_in_linear_time() -> None:
    """A long text of many constraints on one attribute would take quadratic time."""
    text = " and ".join(f"a != {number}" for number in range(20_000))
    assert isinstance(plain_statement(text), Filter)


@pytest.mark.slow
def test_rules_of_sigma_are_plain(shared_data: Callable[..., Path]) -> None:
    """Large sets of rules would take ten times as long before the first record is matched."""
    path = shared_data("sigma", "sigma_filters.jsonl.gz")
    rules = sigma.read_prepared(gzip.decompress(path.read_bytes()).decode())
    texts = [str(rule.filters) for rule in rules if isinstance(rule, Rule)]
    assert sum(plain_statement(text) is not None for text in texts) >= 0.99 * len(texts)
    assert all(map(check, texts[::50]))
