"""Arguments of bindings to headers exchanges of RabbitMQ, as JSON, to filter sets.

A notification is a message: its headers by their names. `x-match` is `all` (the default), `any`,
`all-with-x` or `any-with-x`; only the last two look at headers that begin with `x-`. An argument
without a value (null) asks for the header's presence. Numbers compare by value.

Source: RabbitMQ documentation, "Exchanges", headers exchange; its definitions file.
"""

from collections.abc import Iterator
from functools import partial
from math import isfinite
from typing import Any, Final

from contrada.errors import ContradaError, RefusedRuleError
from contrada.integrations.dialects.json_text import decode_rule, json_lines
from contrada.model.algebra import sets
from contrada.model.algebra.expression import And, Member, Or
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import PRESENT
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_name

__all__ = ["filters", "read", "read_rules"]

DIALECT: Final = "rabbitmq"

MATCH: Final = "x-match"
PREDECLARED: Final = "amq.headers"
"""The headers exchange of every virtual host, which no definitions declare."""

NO_ARGUMENTS: Final = "arguments are an object"
NO_BINDINGS: Final = "no binding of a headers exchange"
HOW: Final = "x-match is all, any, all-with-x or any-with-x"
VALUE: Final = "a value that is no text, number or truth value"
NAME: Final = "a header that no attribute can be called"


def read(arguments: str | bytes | dict[str, Any], name: str = "") -> Rule:
    """Returns the rule of a binding's arguments. Raises RefusedRuleError with one of the reasons
    above and the header, and LimitError.
    """
    content = decode_rule(DIALECT, arguments)
    if not isinstance(content, dict):
        raise RefusedRuleError(DIALECT, NO_ARGUMENTS, content)
    how = content.get(MATCH, "all")
    if how not in ("all", "any", "all-with-x", "any-with-x"):
        raise RefusedRuleError(DIALECT, HOW, how, MATCH)
    parts = tuple(
        _header(header, value)
        for header, value in content.items()
        if header != MATCH and (how.endswith("-with-x") or not header.startswith("x-"))
    )
    return Rule(name, filter_set(And(parts) if how.startswith("all") else Or(parts)))


def filters(arguments: str | bytes | dict[str, Any]) -> FilterSet:
    """Returns the filters of a binding. Raises as `read`."""
    return read(arguments).exact_filters(DIALECT)


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file: one object of arguments, an array or lines of these, or
    definitions, of which the bindings of headers exchanges have the names of their destinations.
    """
    lines = json_lines(text)
    for number, line in lines.items():
        yield read_or_refuse(f"line {number}", partial(read, line, f"line {number}"))
    if lines:
        return
    try:
        content = decode_rule(DIALECT, text)
        found = list(_bindings(content))
    except ContradaError as error:
        yield RefusedRule("", error)
        return
    if not found:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_BINDINGS))
    for name, arguments in found:
        yield read_or_refuse(name, partial(read, arguments, name))


def _bindings(content: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(content, list):
        yield from ((str(number), each) for number, each in enumerate(content, start=1))
        return
    if not isinstance(content, dict) or not isinstance(content.get("bindings"), list):
        yield "", content
        return
    exchanges = {
        (str(each.get("vhost")), str(each.get("name")))
        for each in _objects(content.get("exchanges"))
        if each.get("type") == "headers"
    }
    for each in _objects(content["bindings"]):
        exchange = str(each.get("vhost")), str(each.get("source"))
        if exchange in exchanges or exchange[1] == PREDECLARED:
            yield str(each.get("destination", "")), each.get("arguments", {})


def _objects(content: Any) -> list[dict[str, Any]]:
    found = content if isinstance(content, list) else []
    return [each for each in found if isinstance(each, dict)]


def _header(name: str, value: Any) -> Member:
    require_name(DIALECT, NAME, name)
    if value is None:
        return Member(name, PRESENT)
    try:
        if isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
            return Member(name, sets.eq(value))
    except ContradaError:  # more than 64 bits, or no text
        pass
    raise RefusedRuleError(DIALECT, VALUE, value, name)
