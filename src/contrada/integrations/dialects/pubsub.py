"""Filters of Google Cloud Pub/Sub subscriptions to filter sets.

A notification is a message: its attributes, whose values are texts. `!=` also holds for a message
without the attribute.

Source: Google Cloud Pub/Sub documentation, "Filter messages from a subscription".
"""

from collections.abc import Iterator
from functools import cache
from typing import Final

from lark import Lark, Token, v_args

from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import dialect_grammar
from contrada.model.algebra import sets
from contrada.model.algebra.expression import Formula, Member, negation
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import PRESENT
from contrada.model.rule import RefusedRule, Rule, require_name

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "pubsub"

NOT_A_FILTER: Final = "not a filter of attributes"
KEY: Final = "a key that no attribute can be called"
STRING: Final = "a string that is no text"


@v_args(inline=True)
class _FilterReader(dialect_grammar.FormulaReader):
    def present(self, key: str) -> Formula:
        return Member(key, PRESENT)

    def compared(self, key: str, how: Token, value: Token) -> Formula:
        equal = Member(key, sets.eq(_text(value)))
        return equal if how == "=" else negation(equal)

    def prefix(self, key: str, value: Token) -> Formula:
        return Member(key, sets.prefix(_text(value)))

    def key(self, token: Token) -> str:
        name = _text(token) if token.type == "STRING" else str(token)
        return require_name(DIALECT, KEY, name, _place(token))


def _text(token: Token) -> str:
    try:
        return dialect_grammar.unescape(token[1:-1])
    except ValueError:  # also of its encoding
        raise RefusedRuleError(DIALECT, STRING, str(token), _place(token)) from None


def _place(token: Token) -> str:
    return f"line {token.line}, column {token.column}"


@cache
def _parser() -> Lark:
    return dialect_grammar.parser_of(__file__, "pubsub.lark", _FilterReader())


def read(text: str, name: str = "", first_line: int = 1) -> Rule:
    """Returns the rule of a filter that begins on a line of a file.

    Cost: linear, plus the filters (see `model.algebra.filter.filter_set`). Raises RefusedRuleError
    with one of the reasons above, and LimitError.
    """
    parser = _parser()
    found = dialect_grammar.parse_condition(DIALECT, parser, text, NOT_A_FILTER, first_line)
    return Rule(name, filter_set(found))


def filters(text: str) -> FilterSet:
    """Returns the filters of a filter. Raises as `read`."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the filters of a file, one a line; see `dialect_grammar.read_lines`."""
    return dialect_grammar.read_lines(text, read)
