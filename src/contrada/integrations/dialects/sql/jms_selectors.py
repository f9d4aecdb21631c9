"""Message selectors of JMS to filter sets.

A notification is a message: its properties, and the headers that selectors may name, by their
names. Only values of one kind compare, text and truth values only by `=` and `<>`. A comparison of
a property with another kind is false, also `<>`, so its NOT is true; one with NULL is unknown.

Source: Jakarta Messaging 3.1, 3.8.1 (message selector).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from lark import Token, v_args

from contrada.integrations.dialects import kleene
from contrada.integrations.dialects.dialect_grammar import read_lines
from contrada.integrations.dialects.kleene import Truth
from contrada.integrations.dialects.sql.sql_reader import (
    NAME,
    SYNTAX,
    ColumnReference,
    MessageFilterReader,
    SqlLiteral,
    lies_in,
    operand_of,
    parse_as,
    refusal,
)
from contrada.model.algebra import sets
from contrada.model.algebra.filter import FilterSet
from contrada.model.algebra.value_set import ABSENT, ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import is_number, key_of
from contrada.model.rule import RefusedRule, Rule

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "jms"

HEADER: Final = "a header that selectors cannot name"
ORDER: Final = "an order of other values than numbers"
OCTAL: Final = "an integer that begins with 0, which is octal"
STRINGS: Final = "IN with other values than strings"

_HEADERS: Final = frozenset(
    f"JMS{each}"
    for each in ("DeliveryMode", "Priority", "MessageID", "Timestamp", "CorrelationID", "Type")
)


@v_args(inline=True)
class _SelectorReader(MessageFilterReader):
    nulls = ABSENT | sets.eq(None)  # NaN is a number.

    def others(self, accepted: ValueSet, domain: ValueSet) -> ValueSet:
        return ~self.nulls - accepted

    def compare(self, first: Any, how: str, second: Any) -> Truth:
        values = [each.value for each in (first, second) if isinstance(each, SqlLiteral)]
        unordered = [value for value in values if not is_number(value)]
        if how != "=" and unordered:
            raise refusal(ORDER, unordered[0])
        return super().compare(first, how, second)

    def compared(self, first: Any, how: Token, second: Any) -> Truth:
        if how == "!=":
            raise refusal(SYNTAX, str(how))
        if how != "<>":
            return self.compare(first, how, second)
        if not isinstance(second, SqlLiteral):
            first, second = second, first
        self.compare(first, "=", second)  # Refuses other operands.
        domain = ValueSet(line.domain(key_of(second.value)[0]))
        unequal = domain - sets.eq(second.value)
        return lies_in(operand_of(first), unequal, self.others(unequal, domain))

    def not_between(self, value: Any, low: Any, high: Any) -> Truth:
        return kleene.disjunction((self.compare(value, "<", low), self.compare(value, ">", high)))

    def among(self, value: Any, *others: Any) -> Truth:
        texts = [getattr(each, "value", None) for each in others]
        if not isinstance(value, ColumnReference) or not all(
            isinstance(each, str) for each in texts
        ):
            raise refusal(STRINGS, texts)
        return super().among(value, *others)

    def column(self, token: Token) -> ColumnReference:
        if not _IDENTIFIER.fullmatch(token):
            raise refusal(NAME, str(token))
        if token.startswith("JMS") and not (
            token in _HEADERS or token.startswith(("JMSX", "JMS_"))
        ):
            raise refusal(HEADER, str(token))
        return super().column(token)

    def word(self, token: Token) -> SqlLiteral:
        if token.lower() == "null":
            raise refusal(SYNTAX, str(token))
        return super().word(token)

    def number(self, token: Token) -> SqlLiteral:
        if _OCTAL.match(token):
            raise refusal(OCTAL, str(token))
        return super().number(token)


_OCTAL: Final = re.compile(r"[+-]?\s*0[0-9]+\Z")
_IDENTIFIER: Final = re.compile(r"[^\W\d][\w$]*")


def read(text: str, name: str = "", first_line: int = 1) -> Rule:
    """Returns the rule of a selector that begins on a line. Raises as `sql.filters`."""
    return Rule(name, parse_as(DIALECT, text, first_line, _SelectorReader))


def filters(text: str) -> FilterSet:
    """Returns the filters of a selector. Raises as `read`."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the selectors of a file, one a line; see `dialect_grammar.read_lines`."""
    return read_lines(text, read)
