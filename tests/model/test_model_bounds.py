"""The limits of the model at their ends: as many are allowed, and one more is refused."""

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import pytest

from contrada import parse
from contrada.errors import ContradaError
from contrada.model import Envelope, Filter, Notification, Pattern
from contrada.model.algebra.attributes import ATTRIBUTES_MAX, VALUES_MAX, check_span
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX, as_json, flatten_mapping
from contrada.model.algebra.pattern import PATTERN_PARTS_MAX
from contrada.model.algebra.product import ENVELOPE_TEXT_BYTES_MAX
from contrada.model.algebra.sets import matches, of_operator
from contrada.model.domains.values import (
    INT_MAX,
    INT_MIN,
    NAME_BYTES_MAX,
    NUMBER,
    check_name,
    key_of,
    plain_number,
)
from contrada.model.extensions.filter_values import FILTER_BYTES_MAX
from contrada.model.extensions.terms import TERM_BYTES_MAX, TERM_DEPTH_MAX
from contrada.model.languages.automaton import STATES_MAX, search_automaton
from contrada.model.languages.regex_syntax import (
    GROUPS_NESTED_MAX,
    PATTERN_CHARACTERS_MAX,
    REPEATED_MAX,
)
from contrada.model.syntax.filter_builder import CONDITIONS_NESTED_MAX
from contrada.model.syntax.parser import TEXT_CHARACTERS_MAX


def attributes(count: int) -> dict[str, int]:
    return {f"a{number}": number for number in range(count)}


def nested(depth: int) -> dict[str, object]:
    """A mapping in mappings, so many levels in all."""
    return reduce(lambda inner, _: {"a": inner}, range(depth), {})


BOUNDS: Final[dict[str, tuple[int, Callable[[int], object]]]] = {
    "attributes": (ATTRIBUTES_MAX, lambda count: Notification(attributes(count))),
    "attributes of a span": (
        ATTRIBUTES_MAX,
        lambda count: check_span(b"\xde" + count.to_bytes(2, "big") + packed(attributes(count))),
    ),
    "values": (VALUES_MAX, lambda count: Notification({"a": [*range(count)]})),
    "a name": (NAME_BYTES_MAX, lambda size: check_name("n" * size)),
    "a name in a filter": (NAME_BYTES_MAX, lambda size: parse(f"{'n' * size} = 1")),
    "an identity": (ENVELOPE_TEXT_BYTES_MAX, lambda size: Envelope("i" * size)),
    "a publisher": (ENVELOPE_TEXT_BYTES_MAX, lambda size: Envelope("i", "p" * size)),
    "a long name of a publisher": (
        ENVELOPE_TEXT_BYTES_MAX - 2,
        lambda size: Envelope("i", "ä" + "p" * size),
    ),
    "a sequence number": (INT_MAX, lambda number: Envelope("i", "p", number)),
    "parts of a pattern": (
        PATTERN_PARTS_MAX,
        lambda count: Pattern([Filter({"a": number}) for number in range(count)]),
    ),
    "a time within": (
        INT_MAX,
        lambda span_us: Pattern([Filter("a = 1"), Filter("a = 2")], within_us=span_us),
    ),
    "levels of an object": (OBJECT_DEPTH_MAX, lambda depth: flatten_mapping(nested(depth - 1))),
    "levels of JSON": (OBJECT_DEPTH_MAX, lambda depth: as_json(nested(depth))),
    "an integer": (INT_MAX, key_of),
    "an integer in a filter": (INT_MAX, lambda number: parse(f"a = {number}")),
    "microseconds in a pattern": (INT_MAX, lambda n: parse(f"a = 1 -> a = 2 within {n} us")),
    "levels of a condition": (
        CONDITIONS_NESTED_MAX,
        lambda depth: parse("(" * depth + "a = 1" + ")" * depth),
    ),
    "characters of a text": (
        TEXT_CHARACTERS_MAX,
        lambda size: parse("a = 1" + " " * (size - len("a = 1"))),
    ),
    "characters of an expression": (
        PATTERN_CHARACTERS_MAX,
        lambda size: matches(f"[{'x' * (size - 2)}]"),
    ),
    "repeated parts": (REPEATED_MAX, lambda count: matches(f"x{{{count}}}")),
    "levels of groups": (GROUPS_NESTED_MAX, lambda depth: matches("(" * depth + "x" + ")" * depth)),
    "a filter as a value": (
        FILTER_BYTES_MAX,
        lambda size: of_operator("&&", ["a = 1".ljust(size)]),
    ),
    "a term": (TERM_BYTES_MAX, lambda size: of_operator("unifies", ["t" * size])),
    "levels of a term": (
        TERM_DEPTH_MAX,
        lambda depth: of_operator("unifies", ["f(" * (depth - 1) + "x" + ")" * (depth - 1)]),
    ),
    "states": (STATES_MAX - 1, lambda size: search_automaton(b"x" * size, anything_after=True)),
}


def packed(of: dict[str, int]) -> bytes:
    """The encoded attributes without their header."""
    return b"".join(Notification({name: of[name]}).span[1:] for name in of)


@pytest.mark.parametrize("case", BOUNDS)
def test_a_limit_is_allowed_and_one_more_is_refused(case: str) -> None:
    """What the page of limits allows would be refused, or more be taken than it says."""
    largest, take = BOUNDS[case]
    take(largest)
    with pytest.raises(ContradaError):
        take(largest + 1)


def test_the_least_of_each_is_allowed() -> None:
    """A publisher's first number, or the least integer, would be refused."""
    for envelope in (Envelope("i", "p", 0), Envelope("i", "p", 1)):
        assert Notification({"a": INT_MIN}, envelope=envelope).envelope == envelope
    assert Pattern([Filter("a = 1"), Filter("a = 2")], within_us=0).within_us == 0
    assert parse(f"a = {INT_MIN}") == Filter({"a": INT_MIN})
    with pytest.raises(ContradaError):
        parse(f"a = {INT_MIN - 1}")
    with pytest.raises(ContradaError):
        check_name("")


@pytest.mark.parametrize("end", [INT_MIN, INT_MAX])
def test_integers_end_where_doubles_go_on(end: int) -> None:
    """A number at an end would be a double, which other integers equal."""
    beyond = -1 if end < 0 else 1
    assert key_of(end) == (NUMBER, end)
    with pytest.raises(ContradaError):
        key_of(end + beyond)
    decimal: Any = Decimal(end)
    assert key_of(decimal) == (NUMBER, end)
    assert type(key_of(decimal)[1]) is int
    with pytest.raises(ContradaError):
        key_of(decimal + beyond)
    assert type(plain_number(float(INT_MIN))) is int
    assert type(plain_number(2.0**63)) is float
