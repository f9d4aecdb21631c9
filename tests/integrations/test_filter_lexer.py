"""Highlighted filters: the Pygments lexer and the TextMate grammar, beside the parser's tokens."""

import re
import tomllib
from importlib import import_module, resources
from pathlib import Path
from shutil import copy

import pytest
from lark import Lark
from pygments import token

from contrada.errors import ParseError
from contrada.integrations.filter_lexer import CONSTANTS, OPERATOR_WORDS, FilterLexer
from contrada.model import parse
from contrada.model.languages.atoms import KEYWORDS
from contrada.model.syntax import filter_builder
from tests import textmate_grammar

PAGE = Path(__file__).parents[2] / "docs" / "filters.md"

BLOCK = re.search(r"```filters\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
assert BLOCK is not None
EXAMPLES = [
    *BLOCK[1].splitlines(),
    "gust > 35 -> dep_delay > 120 by origin within 5 min",
    "every a exists -> b.c/d = -1.5e3 within 2 h",
    "source near<= 'x' or (b&&3)",
    "a matches /\\// and b = @2026-11-20T09:30:00+01:00 and c in (+inf, nan, x'')",
]

BAD = {
    "price == 3": "==",
    "price <> 3": "<>",
    "price < 5x": "5x",
    "a = 'open": "'open",
    r"a = '\q' and b = 1": r"'\q'",
    'a = x"0g"': 'x"0g"',
    "a matches /open": "/open",
    "`open = 1": "`open = 1",
    "a = “1”": "“",
    "a = 1; b = 2": ";",
    "a = 1 || b = 2": "||",
    "a > 1 -> b > 1 within 3 parsec": "parsec",
    "a = 1 # note\nb ! 2": "!",
}
"""Texts that no parser reads, and the first piece that is marked."""

GRAMMAR = resources.files("contrada.model.syntax").joinpath("text.lark").read_text("utf-8")
PARSER = Lark(GRAMMAR, start="statement", parser="lalr")

KINDS = {
    **dict.fromkeys(("EQUALITY", "ORDER", "VBAR", "AMPERSAND", "TILDE", "__ANON_0"), "Operator"),
    **dict.fromkeys(("NOT", "IN", "NONE", "BETWEEN", "MATCHES", "NOCASE"), "Operator.Word"),
    **dict.fromkeys(("PRESENT", "ABSENT", "_AND", "_OR", "_BUT", "_OF"), "Operator.Word"),
    **dict.fromkeys(("EVERY", "EVERYTHING", "NO_VALUE", "_BY", "_WITHIN"), "Keyword"),
    **dict.fromkeys(("LPAR", "RPAR", "COMMA"), "Punctuation"),
    "UNIT": "Keyword.Type",
    "NUMBER": "Literal.Number",
    "STRING": "Literal.String",
    "REGEX": "Literal.String.Regex",
    "BYTES": "Literal",
    "TIME": "Literal.Date",
    "WORD": "Keyword.Constant",
    "NAME": "Name.Variable",
    "QUOTED": "Name.Variable",
}
"""The kinds of the grammar's terminals."""


def kind_of(terminal: str, text: str) -> str:
    """The kind of a token of the parser."""
    if terminal in ("TEXTUAL", "OPERATOR"):
        return "Operator.Word" if text[0].isalpha() else "Operator"
    if terminal == "NAME" and re.fullmatch(r"@(id|publisher|time|is\..*)", text):
        return "Name.Builtin"
    return KINDS[terminal]


def highlighted(text: str) -> list[tuple[int, int, str]]:
    """The tokens of the lexer without blanks and comments: place, end and kind."""
    found = FilterLexer().get_tokens_unprocessed(text)
    return [
        (place, place + len(part), str(kind).removeprefix("Token."))
        for place, kind, part in found
        if kind not in (token.Whitespace, token.Comment.Single) and part
    ]


@pytest.mark.parametrize("text", EXAMPLES)
def test_tokens_are_those_of_the_parser(text: str) -> None:
    """A reader would see a keyword in the colour of a name, or valid text marked as wrong."""
    tokens = PARSER.parse_interactive(text).iter_parse()
    expected = [(each.start_pos, each.end_pos, kind_of(each.type, each)) for each in tokens]
    assert highlighted(text) == expected


@pytest.mark.parametrize("text", BAD)
def test_bad_text_is_marked(text: str) -> None:
    """A reader would take a filter for valid that the parser refuses."""
    with pytest.raises(ParseError):
        parse(text)
    errors = [text[start:end] for start, end, kind in highlighted(text) if kind == "Error"]
    assert errors[0] == BAD[text]


def test_keywords_are_the_parsers() -> None:
    """A new keyword would be highlighted as a name."""
    assert set(CONSTANTS) == set(filter_builder._WORDS)
    assert set(CONSTANTS) | set(OPERATOR_WORDS) <= KEYWORDS
    for word in KEYWORDS:
        ((_, _, kind),) = highlighted(word)
        assert kind in ("Keyword", "Keyword.Constant", "Operator.Word")


def test_pygments_finds_the_lexer() -> None:
    """A block of a page that is marked `filters` would be plain text."""
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    module, name = project["entry-points"]["pygments.lexers"]["filters"].split(":")
    lexer = getattr(import_module(module), name)
    assert "filters" in lexer.aliases
    assert "*.filters" in lexer.filenames


def test_the_grammar_of_editors_is_current() -> None:
    """An editor would highlight a former syntax: run `make grammar`."""
    assert textmate_grammar.FILE.read_text("utf-8") == textmate_grammar.text()


@pytest.mark.parametrize("text", [*EXAMPLES, *BAD])
def test_editors_highlight_as_the_lexer_does(text: str, tmp_path: Path) -> None:
    """A pattern would mean something else to the regular expressions of editors."""
    highlight = pytest.importorskip("babi.highlight")
    copy(textmate_grammar.FILE, tmp_path / f"{textmate_grammar.SCOPE}.json")
    compiler = highlight.Grammars(str(tmp_path)).compiler_for_scope(textmate_grammar.SCOPE)
    state, place, found = compiler.root_state, 0, []
    for line in text.splitlines(keepends=True):
        state, regions = highlight.highlight_line(compiler, state, line, place == 0)
        for start, end, scopes in regions:
            if len(scopes) > 1:
                found += [(at, scopes[-1]) for at in range(place + start, place + end)]
        place += len(line)
    assert found == [
        (at, textmate_grammar.scope_of(kind))
        for start, kind, part in FilterLexer().get_tokens_unprocessed(text)
        if kind is not token.Whitespace
        for at in range(start, start + len(part))
    ]
