"""The TextMate grammar of filters, generated from the tokens of the Pygments lexer.

python -m tests.textmate_grammar
"""

import json
from pathlib import Path
from typing import Any, Final

from pygments import token

from contrada.integrations.filter_lexer import TOKENS

FILE: Final = Path(__file__).resolve().parents[1] / "editors" / "contrada.tmLanguage.json"

SCOPE: Final = "source.contrada"

SCOPES: Final = {
    token.Comment.Single: "comment.line.number-sign",
    token.Error: "invalid.illegal",
    token.Keyword: "keyword.control",
    token.Keyword.Constant: "constant.language",
    token.Keyword.Type: "keyword.other.unit",
    token.Literal: "string.quoted.other.bytes",
    token.Literal.Date: "constant.other.time",
    token.Name.Builtin: "variable.language",
    token.Name.Variable: "variable.other",
    token.Name.Variable.Magic: "variable.parameter",
    token.Number: "constant.numeric",
    token.Operator: "keyword.operator",
    token.Operator.Word: "keyword.operator.word",
    token.Punctuation: "punctuation",
    token.String: "string.quoted",
    token.String.Regex: "string.regexp",
}
"""The scopes of editors' themes, by kind of token; white space has none."""


def grammar() -> dict[str, Any]:
    """Returns the grammar: the same patterns in the same order."""
    rules = [_rule(*each) for each in TOKENS if each[1] != (token.Whitespace,)]
    # An editor skips text that no rule begins with; the lexer marks it.
    rules.append({"match": r"\S", "name": scope_of(token.Error)})
    return {
        "name": "Contrada filters",
        "scopeName": SCOPE,
        "fileTypes": ["filters"],
        "patterns": rules,
    }


def _rule(pattern: str, kinds: tuple[Any, ...]) -> dict[str, Any]:
    if len(kinds) == 1:
        return {"match": pattern, "name": scope_of(kinds[0])}
    numbered = enumerate(kinds, 1)
    captures = {str(at): {"name": scope_of(kind)} for at, kind in numbered if kind in SCOPES}
    return {"match": pattern, "captures": captures}


def scope_of(kind: Any) -> str:
    """Returns the scope of a kind of token."""
    return f"{SCOPES[kind]}.contrada"


def text() -> str:
    """Returns the content of the file."""
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
