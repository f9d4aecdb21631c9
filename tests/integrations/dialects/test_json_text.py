"""JSON as the dialects read it."""

from typing import Any

import pytest

from contrada.errors import EncodingError, LimitError
from contrada.integrations.dialects.json_text import (
    Inexact,
    check_depth,
    decode_json,
    exact_number,
    is_exact,
    json_lines,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 1.5, "x", null, true]}', {"a": [1, 1.5, "x", None, True]}),
        (b'"\xc3\xa9"', "é"),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0.1", 0.1),
        ("1e-400", 0.0),
        ("0.1000000000000000055511151231257827", 0.1),
    ],
)
def test_json_is_its_value(text: str | bytes, value: Any) -> None:
    """A rule or an event would be read as another one."""
    assert decode_json(text) == value


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "-Infinity", "1e400", '{"a": 1, "a": 2}', b'"\xff"', "1" * 5_000]
)
def test_invalid_or_ambiguous_json_is_refused(text: str | bytes) -> None:
    """One of several readings would be taken in silence."""
    with pytest.raises(EncodingError):
        decode_json(text)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("0.1", True),
        ("1.50", True),
        ("3.018e2", True),
        ("0.1000000000000000055511151231257827", False),
        ("1e-400", False),
        ("1e-99999999999999999999", False),
        ("1e400", False),
        ("9" * 500, False),
    ],
)
def test_inexact_numbers_are_marked(text: str, held: bool) -> None:
    """A bound would be another number than was written."""
    if held:
        assert decode_json(text, exact=True) == float(text)
        return
    assert decode_json(f"[{text}]", exact=True) == [Inexact(text)]
    assert repr(Inexact(text)) == text


@pytest.mark.parametrize(
    ("literal", "number"),
    [
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("1e20", 1e20),
        ("9007199254740993.0", 2**53 + 1),
        ("5.", 5),
        (".5", 0.5),
        ("0.10000000000000000001", None),
        ("1e-400", None),
        ("1e400", None),
        ("1e99999999999999999999", None),
    ],
)
def test_a_literal_is_a_number_that_can_be_held_or_none(literal: str, number: float | None) -> None:
    """A condition would compare with another number than is written."""
    found = exact_number(literal)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    ("number", "exact"),
    [(0, True), (2**53, True), (2**53 + 1, False), (10**20, True), (10**400, False), (0.1, True)],
)
def test_inexact_integers_are_recognized(number: float, exact: bool) -> None:
    """A rule would compare with another number than was written."""
    assert is_exact(number) is exact


def test_deep_and_long_texts_are_refused() -> None:
    """A text of some kilobytes could end the process."""
    for text in ("[" * 100_000, " " * 16_000_001):
        with pytest.raises(LimitError):
            decode_json(text)
    check_depth(100)
    with pytest.raises(LimitError):
        check_depth(101)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("{}\n\n[1]\n", {1: "{}", 3: "[1]"}),
        ("{}\r\n{}\r[]", {1: "{}", 2: "{}", 3: "[]"}),
        ('"\u2028\x85"\n{}', {1: '"\u2028\x85"', 2: "{}"}),
        ("{\n{}", {1: "{", 2: "{}"}),
        ("{}\n{", {1: "{}", 2: "{"}),
        ('{\n"a":\n1\n}', {}),
        ("[\n{},\n{}\n]", {}),
        ("{}", {}),
        ("", {}),
    ],
)
def test_json_lines_differ_from_json_over_several_lines(text: str, lines: dict[int, str]) -> None:
    """One broken rule over many lines would be as many broken rules, and one with a line separator
    in a text would be two.
    """
    assert json_lines(text) == lines
