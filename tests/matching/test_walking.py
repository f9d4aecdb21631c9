"""Kernels that walk over lines of JSON: what they take is JSON, and stands where they say."""

import json

import numpy as np
import pytest

from contrada.matching.kernels import walking

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
}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_end_where_json_ends_them(text: str) -> None:
    """A number beyond 64 bits, or none at all, would be taken for one."""
    data = np.frombuffer(f"{text},\n".encode(), dtype=np.uint8)
    assert walking.past_number(data, 0) == NUMBERS[text]


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
    '{"a":tru}': None,
    '{"a":"\\n"}': None,
    '{"a":{"b":1}}': None,
    '{"a":[1]}': None,
    '{"a":': None,
    '{"a': None,
    '{"d":1}': None,
    "": None,
    '{"a":"é"}': {"a": '"é"'},
}


def test_lines_are_taken_as_json_takes_them() -> None:
    """A line would be read that is no object, or another value be found than stands there."""
    data = np.frombuffer("".join(f"{each}\n" for each in LINES).encode(), dtype=np.uint8)
    ends = np.flatnonzero(data == 10)
    table = np.full(64, -1, dtype=np.int64)
    names = b"abcd"
    known = (table, np.arange(5), np.frombuffer(names, dtype=np.uint8))
    column_of = np.array([0, 1, walking.NOT_KEPT, walking.REFUSED])
    seen, state = np.full(4, -1, dtype=np.int64), np.zeros(4, dtype=np.int64)
    spans = tuple(np.full((2, len(ends)), -1, dtype=np.int64) for _ in range(2))
    is_doubtful = np.zeros(len(ends), dtype=bool)
    line = 0
    while (
        line := walking.scan(data, ends, line, known, column_of, seen, spans, is_doubtful, state)
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


def test_nothing_is_read_beyond_the_end_of_a_block() -> None:
    """A value that is cut off at the end would be looked for in other memory."""
    past_word = getattr(walking.past_word, "py_func", walking.past_word)
    assert past_word(np.frombuffer(b"\n", dtype=np.uint8), 0) == -1
    assert past_word(np.frombuffer(b"t\n", dtype=np.uint8), 0) == -1
