"""`FilterLexer`: highlights filters, patterns and queries. Pygments finds it as `filters`.

The tokens are those of the grammar, `model/syntax/text.lark`. That grammar's lexer knows from the
context whether a word is a keyword. Here each such word is one: a name that equals a keyword is
usually written in backticks. Text that no pattern matches becomes error tokens.

`TOKENS` is also the source of the TextMate grammar in `editors/`.
"""

from collections.abc import Iterable
from typing import Final

from pygments.lexer import RegexLexer, bygroups
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
)

from contrada.model.algebra.sets import OPERATORS, SYNONYMS
from contrada.model.domains.values import UNITS_US
from contrada.model.languages.atoms import KEYWORDS

CONSTANTS: Final = ("false", "inf", "nan", "null", "true")
"""The keywords that are values."""

OPERATOR_WORDS: Final = tuple(
    sorted(
        KEYWORDS.intersection(word for name in (*OPERATORS, *SYNONYMS) for word in name.split())
        | {"and", "nocase", "or"}
    )
)
"""The keywords that are operators, or parts of them."""

_OTHERS: Final = tuple(sorted(KEYWORDS.difference(CONSTANTS, OPERATOR_WORDS)))


_NOT_LONGER: Final = r"(?![\w.\-/:@$#]*[\w$#])"  # No longer name begins here.
_NAME: Final = r"@?[^\W\d](?:[\w.\-/:@$#]*[\w$#])?"
_NUMBER: Final = r"(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]inf)"
_ESCAPE: Final = r"""\\(?:[nrt\\"']|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_BLANKS: Final = r"[ \t]*"


def _words(words: Iterable[str]) -> str:
    return rf"(?:{'|'.join(words)}){_NOT_LONGER}"


TOKENS: Final = (
    (r"[ \t\r\n]+", (Whitespace,)),
    (r"(?<!\S)#[^\n]*", (Comment.Single,)),
    (
        rf"(within)([ \t]+)({_NUMBER})({_BLANKS})(?:((?:{'|'.join(UNITS_US)})\b)|([^\s#]+))",
        (Keyword, Whitespace, Number, Whitespace, Keyword.Type, Error),
    ),
    (r"""x(?:"(?:[0-9a-fA-F]{2}|\s)*"|'(?:[0-9a-fA-F]{2}|\s)*')""", (Literal,)),
    (r"""x(?:"[^"\n]*"?|'[^'\n]*'?)""", (Error,)),
    (rf"""(?:"(?:[^"\\\n]|{_ESCAPE})*"|'(?:[^'\\\n]|{_ESCAPE})*')""", (String,)),
    (r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""", (Error,)),
    (r"/(?:[^/\\\n]|\\.)*/[a-zA-Z]*", (String.Regex,)),
    (r"`(?:[^`\n]|``)+`", (Name.Variable,)),
    (r"[\"'/`][^\n]*", (Error,)),
    (r"@\d[\dT:.+\-Zz]*", (Literal.Date,)),
    (rf"{_NUMBER}(?![\w.])", (Number,)),
    (r"[+-]?\.?\d[\w.]*", (Error,)),
    (_words(CONSTANTS), (Keyword.Constant,)),
    (_words(OPERATOR_WORDS), (Operator.Word,)),
    (_words(_OTHERS), (Keyword,)),
    (rf"@(?:id|publisher|time|is\.[\w.]*\w){_NOT_LONGER}", (Name.Builtin,)),
    (  # The operator of an extension: a second word, before a value.
        rf"({_NAME})([ \t]+)(?!(?:{'|'.join(sorted(KEYWORDS))})\b)"
        rf"(?!x[\"'])([^\W\d]\w*(?:<=|>=|[<>=~])?)(?={_BLANKS}(?:[\"'@]|x[\"']|[+-]?\.?\d))",
        (Name.Variable, Whitespace, Operator.Word),
    ),
    (_NAME, (Name.Variable,)),
    (r"\$[^\W\d]\w*", (Name.Variable.Magic,)),
    (r"->", (Operator,)),
    (r"==|<>|=<|=>|=~|\|\||!(?!=)", (Error,)),
    (r">\*|\*<|\*|!=|<=|>=|[<>=|~]|&&?", (Operator,)),
    (r"[(),]", (Punctuation,)),
)
"""Patterns in the order in which they are tried, with the kinds of the whole or of its groups."""


class FilterLexer(RegexLexer):  # type: ignore[misc]
    """Tokens of the text syntax of docs/filters.md. Cost: as the text is long."""

    name = "Contrada filters"
    aliases = ("filters", "contrada")
    filenames = ("*.filters",)
    tokens = {  # noqa: RUF012
        "root": [
            (pattern, kinds[0] if len(kinds) == 1 else bygroups(*kinds))
            for pattern, kinds in TOKENS
        ]
    }
