"""docs/syntax.md: its grammar accepts what the parser accepts, and nothing else."""

import re
from functools import cache
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st
from lark import Lark, UnexpectedInput

import contrada as ct
from tests.strategies import filter_sets, patterns
from tests.words import REPOSITORY

PAGE = (REPOSITORY / "docs" / "syntax.md").read_text("utf-8")
PRODUCTIONS = "\n".join(re.findall(r"^```ebnf\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(
    r"```filters\n(.*?)```", (REPOSITORY / "docs" / "filters.md").read_text("utf-8"), re.DOTALL
)[0]

WHOLE_NAMES = {"every", "everything", "nothing"}
"""Words where a name may be, too: a longer name may begin with one, such as `every.day`."""

IGNORED = "\n%ignore /[ \\t\\r\\n]+/\n%ignore /(?<!\\S)#[^\\n]*/\n"


@cache
def grammars() -> tuple[Lark, Lark]:
    """Returns the grammar of the page, and that of the parser."""
    words = set(re.findall(r'"([a-z]+)"', PRODUCTIONS)) - WHOLE_NAMES
    shown = re.sub(
        r'"([a-z]+)"',
        lambda it: it[0] if it[1] in WHOLE_NAMES else f"_{it[1].upper()}",
        PRODUCTIONS,
    )
    shown += "".join(f"\n_{word.upper()}.3: /\\b{word}\\b/" for word in sorted(words)) + IGNORED
    text = files("contrada.model.syntax").joinpath("text.lark").read_text("utf-8")
    of_page, of_parser = (
        Lark(each, start="statement", parser="lalr", lexer="contextual") for each in (shown, text)
    )
    return of_page, of_parser


def is_accepted(text: str, grammar: Lark) -> bool:
    """Whether a text has the syntax of a grammar."""
    try:
        grammar.parse(text)
    except UnexpectedInput:
        return False
    return True


def assert_same(text: str) -> None:
    """Raises AssertionError where only one of both grammars accepts a text."""
    of_page, of_parser = grammars()
    assert is_accepted(text, of_page) == is_accepted(text, of_parser), text


def test_examples_are_accepted() -> None:
    """The page would refuse texts that the other page shows."""
    for line in (*EXAMPLES.splitlines(), *FURTHER):
        assert is_accepted(line, grammars()[0]), line
        assert_same(line)


@given(st.one_of(filter_sets(), patterns()))
def test_texts_of_filters_are_accepted(of: ct.FilterSet | ct.Pattern) -> None:
    """A reader of the page could not write a filter that Contrada prints."""
    assert is_accepted(str(of), grammars()[0])


PIECES = (
    *("a", "every", "every.day", "everything", "nothing", "not", "and", "or", "(", ")", "&", "|"),
    *("~", "=", "!=", "<", "<=", "prefix", ">*", "in", "nocase", "matches", "/x/i", "between"),
    *("any", "exists", "but", "none", "of", "absent", "cidr", "1", "-1.5e3", "'t'", 'x"00"', ","),
    *("null", "inf", "@2026-11-20", "->", "by", "within", "5", "min", "`a b`", "#", "\n", "1and"),
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), st.sampled_from((" ", "")))
def test_both_grammars_accept_the_same_texts(pieces: list[str], between: str) -> None:
    """The page would allow a text that the parser refuses, or refuse one that it accepts."""
    assert_same(between.join(pieces))


FURTHER = (
    "a (< 5 & (> 1 | = 0) & ~ (= 2 | absent))",
    "not source not cidr '10.0.0.0/8'",
    "a none of (1, null) and b nothing or c not in nocase ('x')",
    "every a any -> `b c` exists but (1) -> everything by d, `e` within 5 min",
    "((a = 1 or b != 2) and not not (c >= 3))",
    "a between inf and -1.5e3 and b *< 'x' and c not matches 'r'",
    "nothing",
)
LINES = st.sampled_from([*EXAMPLES.splitlines(), *FURTHER])


@given(LINES, st.data())
def test_both_grammars_refuse_the_same_faults(line: str, data: st.DataObject) -> None:
    """The page would allow a mistake in a usual filter."""
    words = re.findall(r"\w+|\s+|[^\w\s]+", line)
    at = data.draw(st.integers(0, len(words) - 1))
    change = data.draw(st.sampled_from(("without", "twice", "exchanged")))
    other = data.draw(st.sampled_from(words))
    replaced = {"without": [], "twice": [words[at], words[at]], "exchanged": [other]}[change]
    assert_same("".join([*words[:at], *replaced, *words[at + 1 :]]))
