"""Kernels that split lines of CSV: positions and values of cells agree with plain Python."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import ContradaError
from contrada.integrations.files.read_options import untyped_value
from contrada.integrations.files.time_formats import time_value
from contrada.matching.kernels import csv_scanner, json_scanner

BEHIND = b"\n" * 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parted(
    text: str,
    places: list[int],
    *,
    quote: str = '"',
    absent: tuple[str, ...] = (),
    ends: Any = None,
) -> tuple[list[Any], list[list[str | None]]]:
    """Which lines are doubtful, and the cells of each column of the others."""
    data = np.frombuffer(bytearray(text.encode() + BEHIND), dtype=np.uint8)
    ends = np.flatnonzero(data[: -len(BEHIND)] == 10) if ends is None else ends
    columns = max(max(places) + 1, 1)
    spans = tuple(np.full((columns, len(ends)), -1, dtype=np.int64) for _ in range(2))
    is_doubtful = np.zeros(len(ends), dtype=bool)
    starts = np.cumsum([0, *map(len, absent)])
    texts = np.frombuffer("".join(absent).encode() + BEHIND, dtype=np.uint8)
    signs = (ord(","), ord(quote) if quote else csv_scanner.NO_QUOTE)
    scan: Any = csv_scanner.part
    scan(data, ends, *signs, np.array(places), starts, texts, *spans, is_doubtful)
    cells = [
        [
            None if begin < 0 else data[begin:last].tobytes().decode()
            for begin, last in zip(*(each[:, row].tolist() for each in spans), strict=True)
        ]
        for row in range(len(ends))
    ]
    return is_doubtful.tolist(), cells


LINES: dict[str, list[str | None] | None] = {
    "1,2,3": ["1", "3"],
    ",,": [None, None],
    "a": None,
    "a,b": None,
    "a,": None,
    ",": None,
    "a,b,c,d": None,
    "a,b,c,": None,
    '"a",b,"c"': ["a", "c"],
    '"a,x",b,"c"': ["a,x", "c"],
    '"",b,""': [None, None],
    '"a""x",b,c': ['a"x', "c"],
    '"""",b,"""a"""': ['"', '"a"'],
    '"a"""" longer than eight "",",b,"c"""': ['a"" longer than eight ",', 'c"'],
    '"a"",b,c': None,
    'a,b,"c""': None,
    '"a"" ",b,"c" "d"': None,
    '""",",,': ['",', None],
    'a"",b,c': None,
    '"a"x,b,c': None,
    'a"x,b,c': None,
    '"a,b,c': None,
    'a,b,"': None,
    'a,b,"c': None,
    'a,b,c"': None,
    " a,b, ": [" a", " "],
    "NA,b,NAN": [None, "NAN"],
    '"NA",b,N': [None, "N"],
    "longer than eight,b,é": ["longer than eight", "é"],
    "a,longer than eight bytes,c": ["a", "c"],
}


def test_cells_are_between_signs() -> None:
    """A cell would be another than the plain reader's, or a ragged row be whole."""
    fallback, cells = parted(
        "".join(f"{each}\n" for each in LINES), [0, json_scanner.NOT_KEPT, 1], absent=("NA", "none")
    )
    for line, is_doubtful, found in zip(LINES, fallback, cells, strict=True):
        assert is_doubtful == (LINES[line] is None), line
        assert is_doubtful or found == LINES[line]


def test_rows_may_have_several_lines() -> None:
    """A cell would end at a line break within it, or a row at the break of an earlier line."""
    rows = [
        '"a\nb",b,"c\n\n"',
        '"\n""",b,c',
        "a,b,c",
        "a,b\nc,d",
        "a,b,c\n",
        "a,b,c\nd",
        '"a\n,b,c',
    ]
    ends = np.cumsum([len(each) + 1 for each in rows]) - 1
    fallback, cells = parted(
        "".join(f"{each}\n" for each in rows), [0, json_scanner.NOT_KEPT, 1], ends=ends
    )
    assert fallback == [False] * 3 + [True] * 4
    assert cells[:3] == [["a\nb", "c\n\n"], ['\n"', "c"], ["a", "c"]]


@pytest.mark.parametrize("size", range(20))
def test_cells_of_each_length_end(size: int) -> None:
    """A sign would be passed over among eight bytes, or a byte that is near it be one."""
    for near in "+-!#\x0b\t":
        text = (near * 20)[:size]
        fallback, cells = parted(f'{text},"{text}"\n', [0, 1])
        assert (fallback, cells) == ([False], [[text or None] * 2])
        assert parted(f'{text}",{text}\n', [0, 1])[0] == [True]
        assert parted(f'{text}",{text}\n', [0, 1], quote="") == (
            [False],
            [[f'{text}"', text or None]],
        )


def test_lines_that_are_empty_or_doubtful_are_passed_over() -> None:
    """An empty line would be a ragged row, and damaged bytes a cell."""
    assert parted("\na\n\n", [0]) == ([False] * 3, [[None], ["a"], [None]])
    assert parted("\n", [0, 1]) == ([False], [[None, None]])
    assert parted('"a\n\n', [0])[0] == [True, False]
    data = np.frombuffer(b"a\n" + BEHIND, dtype=np.uint8)
    spans = tuple(np.full((1, 1), -1, dtype=np.int64) for _ in range(2))
    absent = (np.zeros(1, dtype=np.int64), np.frombuffer(BEHIND, dtype=np.uint8))
    is_doubtful = np.ones(1, dtype=bool)
    scan: Any = csv_scanner.part
    scan(data, np.array([1]), 44, 34, np.array([0]), *absent, *spans, is_doubtful)
    assert spans[0].item() == -1
    assert is_doubtful.all()


def test_cells_that_are_to_be_numbers_are() -> None:
    """A row would be good although its number is none."""
    cells = ["1", "-0.5e3", "", "NA", "-99", "x", "1x", "NaN", "01", "9" * 19, '"1"', '"x"', "NAN"]
    fallback, _ = parted(
        "".join(f"{each},a\n" for each in cells), [csv_scanner.CHECKED, 0], absent=("NA", "-99")
    )
    assert fallback == [False] * 5 + [True] * 5 + [False] + [True] * 2


CELLS = st.one_of(
    st.text(st.sampled_from("0123456789-+.eE"), min_size=1, max_size=8),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.sampled_from(["true", "false", "truex", "tru", "t", "x", "é", " 5", "٣", "NaN", "-"]),
)


@example(["truex", "true", "tru", "falsey", "false", "null", "5x", "5.", "NaN", "05"], True)
@example(["true", "5"], False)
@given(st.lists(CELLS, min_size=1, max_size=5), st.booleans())
def test_cells_follow_their_rule(cells: list[str], has_words: bool) -> None:
    """A text would be a number, or one number another."""
    data = np.frombuffer("".join(f"{each}," for each in cells).encode() + BEHIND, dtype=np.uint8)
    lasts = np.flatnonzero(data == ord(","))
    begins = np.append(0, lasts[:-1] + 1)
    kinds, values = np.empty(len(cells), np.uint8), np.empty(len(cells), np.int64)
    found = csv_scanner.cells_of(data, begins, lasts, has_words, kinds, values)
    assert found == sum({1 << kind for kind in kinds.tolist()})
    for cell, kind, bits in zip(cells, kinds.tolist(), values, strict=True):
        value = untyped_value(cell)
        if kind == json_scanner.INT:
            assert type(value) is int
            assert value == bits
        elif kind == json_scanner.FLOAT:
            assert type(value) is float
            assert bits.tobytes() == np.float64(value).tobytes()
        elif kind == json_scanner.HARD:
            assert type(value) is float
        elif kind == json_scanner.BOOL:
            assert has_words
            assert value is bool(bits)
        elif kind == json_scanner.TEXT:
            assert has_words
            assert value == cell
        else:
            assert kind == json_scanner.OTHER
            assert not has_words or cell[0] in "-0123456789"


TIMES = st.one_of(
    st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    st.datetimes().map(lambda time: f"{time.date()} {time:%H:%M}Z"),
    st.datetimes().map(lambda time: f"{time:%H:%M}"),
    st.dates().map(str),
    st.tuples(
        *(st.integers(0, most) for most in (9999, 13, 32, 25, 61, 61)), st.text("059", max_size=7)
    ).map(lambda t: "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{}Z".format(*t)),
    st.tuples(
        st.sampled_from(["2013-06-01T05:00:00.25Z", "2000-02-29 23:59Z", "1900-02-29", "2013-06"]),
        st.integers(0, 23),
        st.sampled_from(["", "0", "9", "-", ":", "T", "Z", "+", "é", " "]),
        st.integers(0, 2),
    ).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + t[3] :]),
)


ODD_TIMES = [
    *(f"{year}-02-29" for year in ("1900", "2000", "2001", "2004", "0000", "0004")),
    *(f"2013-{month:02}-31" for month in range(14)),
    *("2013-01-00", "2013-01-32", "2013x01-01", "2013-01x01", "2013-01-01x", "2013-06-00T05:00Z"),
    *(
        f"2013-06-01T{time}"
        for time in (
            *("24:00Z", "23:59Z", "23:60Z", "23:59:59Z", "23:59:60Z", "05:00", "05:00:00", "0500Z"),
            *("05-00Z", "05x00:00Z", "05:00x00Z", "05:00:0Z", "05:00:00x5Z", "05:00:00.Z", "05:Z"),
            *("05:00:00.1Z", "05:00:00.123456Z", "05:00:00.1234567Z", "05:00:00.12+0Z", "5:00Z"),
            *("05:00:00z", "05:00:00+02:00", "05:00:00.5-0130", "05:00:00Z ", "05:00:001"),
        )
    ),
]


def test_odd_times_follow_their_rule() -> None:
    """A day that no calendar has would be the next one, or a sign another."""
    for text in ODD_TIMES:
        for has_zone in (True, False):
            check_time(text, has_zone, 0)


@given(TIMES, st.booleans(), st.integers(0, 1))
def test_times_follow_their_rule(text: str, has_zone: bool, quote_bytes: int) -> None:
    """A time would be another, or a day that no year has."""
    check_time(text, has_zone, quote_bytes)


def check_time(text: str, has_zone: bool, quote_bytes: int) -> None:
    quote = '"' * quote_bytes
    held = f",{quote}{text}{quote}".encode()
    data = np.frombuffer(held + BEHIND, dtype=np.uint8)
    values = np.empty(1, np.int64)
    zone = "Europe/Rome" if has_zone else None
    span = np.array([1]), np.array([len(held)])
    if json_scanner.times_of(data, *span, quote_bytes, has_zone, values):
        expected = time_value(text, zone=zone)
        assert EPOCH + timedelta(microseconds=values.item()) == expected
    else:  # Plain cells are read here.
        try:
            time_value(text, zone=zone)
        except ContradaError:
            return
        assert not text.endswith("Z")
        assert has_zone or len(text) > 10


def test_other_values_than_texts_are_no_times() -> None:
    """A number of JSON, or a missing value, would be a time."""
    data = np.frombuffer(b" 2013-06-01 " + BEHIND, dtype=np.uint8)
    values = np.empty(1, np.int64)
    assert not json_scanner.times_of(data, np.array([0]), np.array([12]), 1, False, values)
    assert json_scanner.times_of(data, np.array([1]), np.array([11]), 0, False, values)
    assert json_scanner.times_of(data, np.array([-1]), np.array([-1]), 1, False, values)
