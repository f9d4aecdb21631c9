"""SQL filters of Azure Service Bus to filter sets.

A notification is a message: a user's property is the attribute of its name (`user.x` is `x`), a
system property the attribute `sys.` with its name. `EXISTS (x)` holds for every value, also null.
All else means what it means in SQL.

Source: Azure Service Bus documentation, "Subscription Rule SQL Filter Syntax".
"""

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
    parse_as,
    refusal,
)
from contrada.model.algebra.filter import FilterSet
from contrada.model.algebra.value_set import PRESENT
from contrada.model.rule import RefusedRule, Rule

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "servicebus"


@v_args(inline=True)
class _ServiceBusReader(MessageFilterReader):
    def exists(self, column: ColumnReference) -> Truth:
        return kleene.certain(kleene.member(column.name, PRESENT))

    def between(self, *found: Any) -> Truth:
        raise refusal(SYNTAX, "BETWEEN")

    def column(self, token: Token) -> ColumnReference:
        scope, dot, name = token.partition(".") if not token.startswith('"') else ("", "", "")
        if dot and (scope.lower() not in ("sys", "user") or "." in name.split('"')[0]):
            raise refusal(NAME, str(token))
        if scope.lower() == "user" and dot:
            return super().column(Token("COLUMN", name))
        return super().column(Token("COLUMN", f"sys.{name}") if dot else token)


def read(text: str, name: str = "", first_line: int = 1) -> Rule:
    """Returns the rule of a filter that begins on a line. Raises as `sql.filters`."""
    return Rule(name, parse_as(DIALECT, text, first_line, _ServiceBusReader))


def filters(text: str) -> FilterSet:
    """Returns the filters of a SQL filter. Raises as `read`."""
    return read(text).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the filters of a file, one a line; see `dialect_grammar.read_lines`."""
    return read_lines(text, read)
