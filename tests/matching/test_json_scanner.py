"""Kernels that scan lines of JSON: the values are valid JSON, at their positions."""

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from contrada.matching.kernels import json_scanner

BEHIND = "\n" * 8

NUMBERS = {
    "0": 1,
    "-0": 2,
    "-12": 3,
    "1.50": 4,
    "1e9": 3,
    "1E-12": 5,
    "1" * 18: 18,
    "1" * 19: -1,
    "01": -1,
    "-": -1,
    "1.": -1,
    "1e": -1,
    "1e100": -1,
    "+1": -1,
    ".5": -1,
    "0." + "1" * 80: -1,
    "1.5": 3,
    "-0.5": 4,
    "00.5": -1,
    "01.5": -1,
    "1.5e3": 5,
    "1.5e": -1,
    "1.5E100": -1,
    "1..5": -1,
    "12.345": 6,
    "123.456": 7,
    "1234.567": 8,
    ".25": -1,
    "1.-5": -1,
}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_end_where_json_ends_them(text: str) -> None:
    """A number beyond 64 bits, or none at all, would be taken for one."""
    data = f"{text},\n{BEHIND}".encode()
    assert json_scanner.past_number(data, 0) == NUMBERS[text]


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-0", "17", "-999999999999999999", "0.0", "-0.0", "1.5", "-12.25", "0.1", "2013.0"),
        *("1e5", "1E-5", "1e+22", "1e22", "1.5e-7", "9007199254740992.0", "9007199254740991e22"),
        *("123456.789e-16", "0.0001", "4503599627370497.5", "1e-22", "72057594037927933e0"),
    ],
)
def test_numbers_are_the_nearest(text: str) -> None:
    """A double would be the next one to the written number, or lose its sign."""
    data = f"{text},{BEHIND}".encode()
    kind, bits = json_scanner.number_of(data, 0, len(text))
    number = json.loads(text)
    assert (
        kind
        in {int: (json_scanner.INT,), float: (json_scanner.FLOAT, json_scanner.HARD)}[type(number)]
    )
    if kind == json_scanner.FLOAT:
        assert np.int64(bits).view(np.float64).tobytes() == np.float64(number).tobytes()
    if kind == json_scanner.INT:
        assert bits == number


@pytest.mark.parametrize(
    "text", ["9007199254740993.0", "1e23", "3e-23", "0." + "1" * 18, f"0.{1:018}"]
)
def test_hard_numbers_are_left_to_others(text: str) -> None:
    """They would be rounded twice."""
    data = f"{text},{BEHIND}".encode()
    assert json_scanner.number_of(data, 0, len(text))[0] == json_scanner.HARD


@pytest.mark.parametrize("text", ["900719925474099.1", "3e22", "3e-22", "-0.1", "1234567.25E+2"])
def test_numbers_within_the_bounds_are_read(text: str) -> None:
    """Most lines of a file would be left to the slow reader."""
    data = f"{text},{BEHIND}".encode()
    kind, bits = json_scanner.number_of(data, 0, len(text))
    assert kind == json_scanner.FLOAT
    assert np.int64(bits).view(np.float64) == float(text)


@pytest.mark.parametrize("size", range(20))
@pytest.mark.parametrize("sign", ['"', "\\", "\x1f", "\n"])
def test_texts_end_where_a_sign_does(size: int, sign: str) -> None:
    """A quote, a backslash or a control character would be passed over among eight bytes."""
    around = "!#[]~\x7fé "
    text = (around * 3).encode()[:size]
    data = text + sign.encode() + b'"\\\n' * 8 + BEHIND.encode()
    assert json_scanner.past_text(data, 0) == (size + 1 if sign == '"' else -1)


@pytest.mark.parametrize("size", range(20))
def test_digits_end_before_another_byte(size: int) -> None:
    """A sign that is near the digits would be one."""
    for sign in range(256):
        if not ord("0") <= sign <= ord("9"):
            data = (b"0123456789" * 2)[:size]
            held = data + bytes([sign]) + b"5" * 8 + BEHIND.encode()
            assert json_scanner.past_digits(held, 0) == size


LINES = {
    '{"a":1,"b":"x"}': {"a": "1", "b": '"x"'},
    ' {"a":1}': None,
    '{ "a" : true , "c" : null }\t': {"a": "true"},
    "{}": {},
    '{"b":false}': {"b": "false"},
    '{"a":1,"a":2}': None,
    '{"c":1,"c":2}': None,
    '{"a":1}x': None,
    '{"a":1,}': None,
    '{"a" 1}': None,
    '{"b":1{"a":1}': None,
    '{"b":1,{"a":1}': None,
    ',"a":1}': None,
    '{"a":1,"b":2} {"a":1}': None,
    '{"a":tru}': None,
    '{"a":"\\n"}': None,
    '{"a":{"b":1}}': None,
    '{"a":[1]}': None,
    '{"a":': None,
    '{"a': None,
    '{"d":1}': None,
    "": None,
    '{"a":"é"}': {"a": '"é"'},
    f'{{"c"{" " * 300}:1}}': {},
    f'{{"b"{" " * 300}:1}}': {"b": "1"},
    f'{{"b"{" " * 52}:2}}': {"b": "2"},
    f'{{"b"{" " * 51}:2}}': {"b": "2"},
}


def test_lines_are_taken_as_json_takes_them() -> None:
    """A line would be read that is no object, or a wrong value be found."""
    data = np.frombuffer(("".join(f"{each}\n" for each in LINES) + BEHIND).encode(), dtype=np.uint8)
    ends = np.flatnonzero(data == 10)[: len(LINES)]
    table = np.full(64, -1, dtype=np.int64)
    names = b"abcd"
    known = (table, np.arange(5), names + bytes(8))
    leads = (
        np.zeros(5 * json_scanner.LEAD_BYTES, dtype=np.uint8),
        np.zeros(5, dtype=np.int64),
        np.full(5, 4, dtype=np.int64),
    )
    column_of = np.array([0, 1, json_scanner.NOT_KEPT, json_scanner.REFUSED])
    seen, state = np.full(4, -1, dtype=np.int64), np.zeros(4, dtype=np.int64)
    spans = tuple(np.full((2, len(ends)), -1, dtype=np.int64) for _ in range(2))
    is_doubtful = np.zeros(len(ends), dtype=bool)
    scan: Any = json_scanner.scan
    line = 0
    while (
        line := scan(data, ends, line, *known, *leads, column_of, seen, *spans, is_doubtful, state)
    ) < len(ends):
        begin, end, place, _ = state.tolist()
        table[place] = names.index(data[begin:end].tobytes())
    for row, (text, values) in enumerate(LINES.items()):
        assert is_doubtful[row] == (values is None), text
        if values is not None:
            found = {
                name: data[spans[0][column, row] : spans[1][column, row]].tobytes().decode()
                for column, name in enumerate("ab")
                if spans[0][column, row] >= 0
            }
            assert found == values
            held = json.loads(text)
            assert {name: json.loads(each) for name, each in found.items()} == {
                name: held[name] for name in found
            }


@pytest.mark.parametrize("text", ["", "t", "tr", "nul", "f", "fals"])
def test_words_end_in_their_lines(text: str) -> None:
    """The beginning of the next line would be read as the rest of a word."""
    rest = next(each[len(text) :] for each in ("true", "null", "false") if each.startswith(text))
    data = f"{text}\n{rest}{BEHIND}".encode()
    assert json_scanner.past_word(data, 0) == -1


@pytest.mark.parametrize("word", ["true", "false", "null"])
def test_a_word_with_another_byte_is_none(word: str) -> None:
    """A line that is no JSON would be matched as if it had the word."""
    assert json_scanner.past_word(f"{word}{BEHIND}".encode(), 0) == len(word)
    for place, byte in product(range(len(word)), range(256)):
        data = bytearray(f"{word}{BEHIND}".encode())
        if data[place] != byte:
            data[place] = byte
            assert json_scanner.past_word(bytes(data), 0) == -1


VALUES = {
    '"x"': (json_scanner.TEXT, 0),
    "null": (json_scanner.OTHER, 0),
    "true": (json_scanner.BOOL, 1),
    "false": (json_scanner.BOOL, 0),
    "-12": (json_scanner.INT, -12),
    "1.5": (json_scanner.FLOAT, 0x3FF8000000000000),
    "1e99": (json_scanner.HARD, 0),
}


def test_values_have_their_kinds() -> None:
    """A truth value would be a null; or a column of numbers be written as one with missing ones."""
    data = np.frombuffer(("\n".join(VALUES) + BEHIND).encode(), dtype=np.uint8)
    ends = np.cumsum([len(each) + 1 for each in VALUES]) - 1
    begins, lasts = np.append(ends - [*map(len, VALUES)], -1), np.append(ends, -1)
    kinds, values = np.empty(len(begins), dtype=np.uint8), np.empty(len(begins), dtype=np.int64)
    for row, (kind, bits) in enumerate([*VALUES.values(), (json_scanner.NONE, 0)]):
        alone = slice(row, row + 1)
        of_one = (each[alone] for each in (begins, lasts, kinds, values))
        assert json_scanner.values_of(data, *of_one) == 1 << kind
        assert (kinds[row], values[row]) == (kind, bits)
    assert json_scanner.values_of(data, begins, lasts, kinds, values) == 0b1111111
