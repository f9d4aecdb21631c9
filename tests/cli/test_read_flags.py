"""Attributes on the command line are parsed as in filters, else as text."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contrada.cli.read_flags import attributes_of, literal
from contrada.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12.5", 12.5),
        ("-4", -4),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("true", True),
        ("null", None),
        ("DIS", "DIS"),
        ("", ""),
        ('"12"', "12"),
        ("'it is'", "it is"),
        ('x"00ff"', b"\x00\xff"),
        ("@2026-11-20T09:30:00Z", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("@home", "@home"),
        ("finance/exchanges/stock", "finance/exchanges/stock"),
        ("two words", "two words"),
        ("12 and value = 12", "12 and value = 12"),
        ("1, 1", "1, 1"),
        ("1) or value in (1", "1) or value in (1"),
        ("nocase 'x'", "nocase 'x'"),
        ("'unterminated", "'unterminated"),
    ],
)
def test_values(text: str, value: Any) -> None:
    """A value would be published with another type than its spelling suggests."""
    read = literal(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", ["@2026-11-20", "@2026-11-20T09:30", "@2026-13-20T09:30:00Z"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    """It would be published as a text, which no filter for times matches."""
    with pytest.raises(InputError, match="expected a time as @2026-11-20T09:30:00Z"):
        literal(text)
    assert literal(f"'{text}'") == text


def test_a_repeated_name_has_several_values() -> None:
    """Only the last value would be published."""
    assert attributes_of(["a=1", "b=x=y", "a=z"]) == {"a": [1, "z"], "b": "x=y"}


@pytest.mark.parametrize("argument", ["price", "=5", ""])
def test_what_is_no_pair_is_named(argument: str) -> None:
    """A forgotten `=` would be published as an attribute."""
    with pytest.raises(InputError, match="expected NAME=VALUE"):
        attributes_of([argument])
