"""Refusals of invalid input: each by its own error, with the place and the values."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from contrada.errors import (
    InvalidFilterError,
    InvalidNotificationError,
    InvalidValueError,
    LimitError,
    ParseError,
    UnknownOperatorError,
)
from contrada.model import (
    Constraint,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    ValueSet,
    parse,
)
from contrada.model.algebra import sets
from contrada.model.languages.language import NESTING_MAX

SYNTAX = [  # text, line, column, a part of the found text, a part of the expected text
    ("", 1, 1, "the end", "a name"),
    ("a", 1, 2, "the end", "an operator"),
    ("a = ", 1, 5, "the end", "a value"),
    ("a ~~ 1", 1, 3, "'~'", "an operator"),
    ("a < 3 and", 1, 10, "the end", "a name"),
    ("price > 1and b = 2", 1, 10, "'and'", "a blank is needed before a word"),
    ("a = 1 andb = 2", 1, 7, "'andb'", "`and`"),
    ("a = 1or b = 2", 1, 6, "'or'", "a blank is needed before a word"),
    ("a = 1 orb = 2", 1, 7, "'orb'", "`or`"),
    ("a between 1and 2", 1, 12, "'and'", "a blank is needed before a word"),
    ("a between 1 and2", 1, 13, "'and2'", "`and`"),
    ("a any butx (1)", 1, 7, "'butx'", "`but`"),
    ("a none ofx (1)", 1, 8, "'ofx'", "`of`"),
    ("a < 1 -> a > 1 bysymbol", 1, 16, "'bysymbol'", "`by`"),
    ("a < 1 -> a > 1by symbol", 1, 15, "'by'", "a blank is needed before a word"),
    ("a < 1 -> a > 1 within2 h", 1, 16, "'within2'", "`within`"),
    ("a < 3 or", 1, 9, "the end", "a name"),
    ("a = 1\nand b ! 2", 2, 7, "'!'", "an operator"),
    ('a = "x', 1, 5, 'unterminated text: "x', "a value"),
    ("a = 1 and\n  b = 'x", 2, 7, "unterminated text: 'x", "a value"),
    (f'a = "{"x" * 40}', 1, 5, f'unterminated text: "{"x" * 29}', "a value"),
    ("`a = 1", 1, 1, "unterminated text: `a", "a name"),
    ("`a\x01` = 1", 1, 1, "a\\x01", "control characters"),
    ("`" + "x" * 256 + "` = 1", 1, 1, "x", "255 bytes"),
    ("1a = 2", 1, 1, "'1'", "a name"),
    ("(a = 1", 1, 7, "the end", "`or` or `)`"),
    ("a = 1)", 1, 6, "')'", "the end"),
    ("a = 1 and not", 1, 14, "the end", "`not`"),
    ("a (= 1", 1, 7, "the end", ")"),
    ("a (= 1 | )", 1, 10, "')'", "an operator"),
    ("a = 9223372036854775808", 1, 5, "9223372036854775808", "64 bits"),
    ("a = -9223372036854775809", 1, 5, "-9223372036854775809", "64 bits"),
    ("a = " + "9" * 5_000, 1, 5, "999", "64 bits"),
    ("a = 1e999", 1, 5, "1e999", "doubles"),
    ("a in ()", 1, 7, "')'", "a value"),
    ("a not in ()", 1, 11, "')'", "a value"),
    ("a any but ()", 1, 12, "')'", "a value"),
    ("a none of ()", 1, 12, "')'", "a value"),
    ("a in nocase ()", 1, 14, "')'", "a value"),
    ('a = x"0g"', 1, 5, '0g"', "hexadecimal"),
    ('a = x"0"', 1, 5, '0"', "hexadecimal"),
    ("a = @2020-13-01T00:00:00Z", 1, 5, "2020-13", "a time"),
    ("a = @2020-01-01T00:00:00", 1, 5, "2020-01", "a time"),
    ('a = "\\q"', 1, 5, "\\q", "\\n"),
    ('a = "\\ud800"', 1, 5, "a lone surrogate", "text"),
    ('a = "\ud800"', 1, 5, "a lone surrogate", "text"),
    ('a = "\\U00110000"', 1, 5, "U00110000", "\\n"),
    ('a frobs "x"', 1, 3, "frobs", "suffix"),
    ('a not frobs "x"', 1, 7, "frobs", "suffix"),
    ("a = 1 -> ", 1, 10, "the end", "a name"),
    ("a = 1 within 5 min", 1, 7, "'within'", "->"),
    ("a = 1 -> b = 2 or c = 3", 1, 16, "'or'", "->"),
    ("a = 1 -> b = 2 within 5 parsecs", 1, 25, "parsecs", "min"),
    ("a = 1 -> b = 2 within -5 s", 1, 23, "-5", "whole microseconds"),
    ("a = 1 -> b = 2 within 0.1 us", 1, 23, "0.1", "whole microseconds"),
    ("a = 1 -> b = 2 within 99999999999999999999 d", 1, 23, "9999", "whole microseconds"),
    ("a = 1 -> b = 2 within 1e1000000 s", 1, 23, "1e1000000", "whole microseconds"),
    ("a = 1 & b = 2", 1, 7, "'&'", "the end, `and`, `or` or `->`"),
]


@pytest.mark.parametrize("row", SYNTAX, ids=lambda row: repr(row[0][:30]))
def test_syntax_errors_say_the_place(row: tuple[str, int, int, str, str]) -> None:
    """A person would not find the mistake."""
    text, line, column, found, expected = row
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert found in caught.value.found
    assert expected in caught.value.expected
    assert f"line {line}, column {column}" in str(caught.value)


MEANING = [  # text, operator, constants, a part of the reason
    ("a < nan", "<", (math.nan,), "NaN"),
    ("a between nan and 1", "between", (math.nan,), "NaN"),
    ("a < null", "<", (None,), "null"),
    ('a between 1 and "b"', "between", (1, "b"), "one domain"),
    ("a between false and 1", "between", (False, 1), "one domain"),
    ("a prefix 3", "prefix", (3,), "text"),
    ("a contains null", "contains", (None,), "text"),
    ("a = nocase 3", "= nocase", (3,), "text"),
    ('a contains nocase x"ff"', "contains nocase", (b"\xff",), "UTF-8"),
    ('a in nocase ("x", 3)', "= nocase", (3,), "text"),
    ("a = @0001-01-01T00:00:00+10:00", "=", None, "years 1 to 9999"),
]


@pytest.mark.parametrize("row", MEANING, ids=lambda row: repr(row[0]))
def test_constants_that_make_no_sense(row: tuple[str, str, Any, str]) -> None:
    """An answer would be given to a question without meaning."""
    text, operator, constants, reason = row
    with pytest.raises(InvalidFilterError) as caught:
        parse(text)
    assert caught.value.operator == operator
    assert constants is None or str(caught.value.constants) == str(constants)
    assert reason in caught.value.reason
    assert "line 1, column 3" in str(caught.value)


ANY = sets.exists()
CALLS: list[tuple[str, Callable[[], object], type[Exception], dict[str, object]]] = [
    ("NaN bound", lambda: sets.lt(math.nan), InvalidFilterError, {"operator": "<"}),
    ("null bound", lambda: sets.ge(None), InvalidFilterError, {"constants": (None,)}),
    ("mixed ends", lambda: sets.between(1, "b"), InvalidFilterError, {"constants": (1, "b")}),
    ("no values", sets.in_, InvalidFilterError, {"operator": "in", "constants": ()}),
    ("no values left", sets.none_of, InvalidFilterError, {"operator": "none of"}),
    ("65 bits", lambda: sets.eq(2**63), InvalidFilterError, {"constants": (2**63,)}),
    ("surrogate", lambda: sets.eq("\ud800"), InvalidFilterError, {"constants": ("\ud800",)}),
    ("a list", lambda: sets.eq([1]), InvalidFilterError, {"operator": "="}),  # type: ignore[arg-type]
    ("no text", lambda: sets.prefix(3), InvalidFilterError, {"constants": (3,)}),  # type: ignore[arg-type]
    ("unknown", lambda: sets.extension("frobs", "x"), UnknownOperatorError, {"operator": "frobs"}),
    ("unknown φ", lambda: Constraint("a", "frobs", 1), UnknownOperatorError, {}),
    ("φ's constants", lambda: Constraint("a", "<"), InvalidFilterError, {"name": "a"}),
    ("φ's bound", lambda: Constraint("a", "<", math.nan), InvalidFilterError, {"name": "a"}),
    ("filter's value", lambda: Filter({"a": 2**64}), InvalidFilterError, {"name": "a"}),
    ("filter's list", lambda: Filter({"a": []}), InvalidFilterError, {"name": "a"}),
    ("no filter", lambda: FilterSet([1]), InvalidFilterError, {"constants": (1,)}),  # type: ignore[list-item]
    ("short pattern", lambda: Pattern([Filter({})]), InvalidFilterError, {"operator": "->"}),
    ("no pattern", lambda: Pattern(3), InvalidFilterError, {"operator": "->"}),  # type: ignore[arg-type]
    (
        "pattern's time",
        lambda: Pattern([Filter({})] * 2, within_us=-1),
        InvalidFilterError,
        {"operator": "within", "constants": (-1,)},
    ),
    (
        "pattern's names",
        lambda: Pattern([Filter({})] * 2, by=("",)),
        InvalidFilterError,
        {"operator": "by"},
    ),
    ("a set's value", lambda: ANY.contains(2**63), InvalidValueError, {"value": 2**63}),
    ("no zone", lambda: Notification({"t": datetime(2020, 1, 1)}), InvalidNotificationError, {}),  # noqa: DTZ001
    (
        "before year 1",
        lambda: Notification({"t": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=10)))}),
        InvalidNotificationError,
        {"name": "t"},
    ),
    (
        "65 bits in a notification",
        lambda: Notification({"a": [1, 2**63]}),
        InvalidNotificationError,
        {"name": "a", "value": [1, 2**63]},
    ),
    (
        "surrogate in a notification",
        lambda: Notification({"a": "\ud800"}),
        InvalidNotificationError,
        {"name": "a", "value": "\ud800"},
    ),
    ("empty name", lambda: Notification({"": 1}), InvalidNotificationError, {"name": ""}),
    ("long name", lambda: Notification({"é" * 128: 1}), InvalidNotificationError, {"value": 1}),
    ("control", lambda: Notification({"a\n": 1}), InvalidNotificationError, {"name": "a\n"}),
    ("mark", lambda: Notification({"@is.X": True}), InvalidNotificationError, {"name": "@is.X"}),
    ("priority", lambda: Envelope(priority=10), InvalidNotificationError, {"value": 10}),
]


@pytest.mark.parametrize(
    "cuts",
    [
        *(((4, 5), (4, 3)), ((4, 5), (4, 5)), ((4, True),), ((7,),), ((4.0,),), ((6, "a"),)),
        *([(4,)], (4,), ((),), ((6, b""),), ((5, 2**62),), ((4, math.nan),), None, "< 3"),
    ],
)
def test_cuts_that_are_none_make_no_set(cuts: Any) -> None:
    """A set would silently hold wrong values."""
    with pytest.raises(InvalidFilterError) as caught:
        ValueSet(cuts)
    assert (caught.value.operator, caught.value.constants) == ("cuts", (cuts,))


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_bad_calls_carry_their_values(
    row: tuple[str, Callable[[], object], type[Exception], dict[str, object]],
) -> None:
    """A program could not find the fault, or would get an answer."""
    _, call, kind, attributes = row
    with pytest.raises(kind) as caught:
        call()
    assert {name: getattr(caught.value, name) for name in attributes} == attributes


def nested(levels: int) -> ValueSet:
    """A set with an expression of this many alternations."""
    held = sets.contains("a")
    for level in range(levels):
        other = sets.suffix(f"{level}")
        held = held & other if level % 2 else held | other
    return held


def test_sets_nested_too_deeply_are_refused() -> None:
    """A deep set would overflow the stack of a decision."""
    deep = nested(NESTING_MAX)
    assert ValueSet.parse(str(deep)) == deep
    with pytest.raises(LimitError) as caught:
        nested(NESTING_MAX + 1)
    assert caught.value.limit == "NESTING_MAX"


@pytest.mark.parametrize(
    "text",
    [
        *("a < 1 and a > 2", "a nothing", "a > 1.0 and a < 1.0000000000000002"),
        *("a between 2 and 1", "a absent and a any", "@time absent"),
        "a prefix 'x' and a suffix 'y' and a = 'xz'",
    ],
)
def test_an_unsatisfiable_filter_knows_it(text: str) -> None:
    """A subscription that can never match would be kept."""
    f = Filter(text)
    assert f.is_empty
    assert Filter("b = 1").covers(f)
    assert f == Filter({"c": ValueSet.parse("nothing")})
    assert hash(f) == hash(Filter({"c": ValueSet.parse("nothing")}))


@pytest.mark.parametrize("select", [Filter("a = 1"), FilterSet("a = 1 or b = 1"), Notification])
def test_a_value_that_is_no_notification_is_named_with_the_expectation(select: Any) -> None:
    """The error would be about an attribute without a name."""
    take = getattr(select, "matches", select)
    with pytest.raises(InvalidNotificationError, match="found 5: expected a mapping of attribute"):
        take(5)
