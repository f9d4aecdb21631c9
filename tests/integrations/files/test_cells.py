"""The rule that gives a cell its value."""

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as given_text
from hypothesis import strategies as st

from contrada.errors import InputError, InvalidValueError
from contrada.integrations.files import BadRecord, Matcher, ReadOptions, Record, read_file
from contrada.integrations.files.read_options import CONVERTERS, untyped_value
from contrada.integrations.files.record_matcher import MatchedRecord
from contrada.integrations.files.time_formats import WRITTEN, time_value
from contrada.model import Filter, Value

UNTYPED: list[tuple[str, Value]] = [
    ("0", 0),
    ("-12", -12),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9007199254740993", 2**53 + 1),
    ("1.50", 1.5),
    ("-0.0", 0.0),
    ("1e3", 1000.0),
    ("2.5E-3", 0.0025),
    ("true", True),
    ("false", False),
    # other spellings stay texts
    ("9223372036854775808", "9223372036854775808"),
    ("1e999", "1e999"),
    ("007", "007"),
    ("+1", "+1"),
    ("1.", "1."),
    (".5", ".5"),
    ("-", "-"),
    ("1_000", "1_000"),
    ("١", "١"),
    (" 1", " 1"),
    ("True", "True"),
    ("null", "null"),
    ("NaN", "NaN"),
    ("2013-01-01", "2013-01-01"),
]


@pytest.mark.parametrize(("text", "value"), UNTYPED)
def test_untyped(text: str, value: Value) -> None:
    """Else a code like 007 would lose its zeros, or a number would not compare as one."""
    found = untyped_value(text)
    assert (type(found), found) == (type(value), value)


TYPED: list[tuple[str, str, Value]] = [
    ("text", "1E5", "1E5"),
    ("number", "12", 12),
    ("number", "Infinity", math.inf),
    ("number", "-Infinity", -math.inf),
    ("bool", "true", True),
    ("time", "2013-01-01T05:00:00Z", datetime(2013, 1, 1, 5, tzinfo=UTC)),
    ("time", "2013-01-01T05:00:00.25+02:00", datetime(2013, 1, 1, 3, 0, 0, 250000, tzinfo=UTC)),
    ("time", "2000-03-01", datetime(2000, 3, 1, tzinfo=UTC)),
    ("time", "Mon, 25 Jan 2016 01:35:20 -0800", datetime(2016, 1, 25, 9, 35, 20, tzinfo=UTC)),
    ("time", "25 Jan 16 01:35 pst", datetime(2016, 1, 25, 9, 35, tzinfo=UTC)),
    ("time", "1 Jan 2016 01:35:20 -0000 (x)", datetime(2016, 1, 1, 1, 35, 20, tzinfo=UTC)),
    ("time", "25/Jan/2016:01:35:20 -0800", datetime(2016, 1, 25, 9, 35, 20, tzinfo=UTC)),
]


@pytest.mark.parametrize(("kind", "text", "value"), TYPED)
def test_declared_types_win(kind: str, text: str, value: Value) -> None:
    """Else a tail number like 1E5 would become a number against the user's word."""
    found = CONVERTERS[kind](text)
    assert (type(found), found) == (type(value), value)


def test_nan_can_be_declared() -> None:
    """Measurements that are NaN would be texts."""
    found = CONVERTERS["number"]("NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "1.2.3"),
        ("number", "9223372036854775808"),
        ("number", "nan"),
        ("bool", "True"),
        ("time", "2013-01-01T05:00:00"),
        ("time", "2013-02-30"),
        ("time", "0001-01-01T00:00:00+01:00"),
        ("time", "20130101T050000Z"),
        ("time", "yesterday"),
        ("time", "31 Feb 2016 00:00:00 GMT"),
        ("time", "25 Jan 0016 00:00:00 GMT"),
        ("time", "25 Jan 2016 00:00:00"),
        ("time", "25 Jan 2016 00:00:00 X"),
    ],
)
def test_cells_of_another_type_are_refused(kind: str, text: str) -> None:
    """Else a mistyped cell would silently become something else."""
    with pytest.raises(InvalidValueError) as caught:
        CONVERTERS[kind](text)
    assert caught.value.value == text


def test_times_without_a_zone_are_in_the_zone_of_the_source() -> None:
    """Else local times could not be read, or would be taken for UTC."""
    convert = ReadOptions(types={"t": "time"}, zone="Europe/Rome").converter("t")
    assert convert("2013-07-01 05:00") == datetime(2013, 7, 1, 3, tzinfo=UTC)
    assert convert("2013-07-01") == datetime(2013, 6, 30, 22, tzinfo=UTC)
    assert convert("2013-07-01T05:00Z") == datetime(2013, 7, 1, 5, tzinfo=UTC)
    assert convert("2013-10-27T02:30") == datetime(2013, 10, 27, 0, 30, tzinfo=UTC)  # the first
    for text in ("2013-03-31T02:30", "2013-02-30T02:30", "0001-01-01", "x"):
        with pytest.raises(InvalidValueError):
            convert(text)
    with pytest.raises(InputError, match="'Europe/Nowhere', expected a zone"):
        ReadOptions(zone="Europe/Nowhere")


def test_a_pattern_of_times_is_declared(tmp_path: Path) -> None:
    """Logs with other times than ISO 8601 could be neither ordered nor filtered by time."""
    types = {"local": "time:%d.%m.%Y %H:%M", "zoned": "time:%b %d %Y %H:%M %z", "at": "time"}
    options = ReadOptions(types=types, zone="Europe/Rome")
    at = datetime(2016, 1, 25, 9, 35, tzinfo=UTC)
    (tmp_path / "f.csv").write_text(
        "local,zoned,at\n25.01.2016 10:35,Jan 25 2016 01:35 -0800,25 Jan 2016 09:35 GMT\n"
        "25.01.2016,,\n"
    )
    (tmp_path / "f.jsonl").write_text(
        '{"local": "25.01.2016 10:35", "zoned": "Jan 25 2016 01:35 -0800", '
        '"at": "25/Jan/2016:10:35:00"}\n{"local": "25.01.2016"}\n'
    )
    for name, form in (("f.csv", "csv"), ("f.jsonl", "jsonl")):
        good, bad = read_file(tmp_path / name, form, options)
        assert isinstance(good, Record)
        assert isinstance(bad, BadRecord)
        assert dict(good.notification) == dict.fromkeys(types, at)
        assert "'25.01.2016': expected a time as %d.%m.%Y %H:%M" in bad.reason
        asked = Filter("local = @2016-01-25T09:35:00Z and zoned = @2016-01-25T09:35:00Z")
        (found,) = Matcher([asked], options).file(tmp_path / name, form, "f")
        assert [type(each) for each in found.records] == [MatchedRecord, BadRecord]
    with pytest.raises(InvalidValueError, match="a time with a zone"):
        ReadOptions(types=types).converter("local")("25.01.2016 10:35")
    for pattern in ("%Y%", "%Y\udcff", "%Y\0", "%Y %d %d", "%b %d %H:%M", "%a", "%%Y"):
        with pytest.raises(InputError, match=r"'time:.*', expected directives of strptime that"):
            ReadOptions(types={"t": f"time:{pattern}"})
    with pytest.raises(InputError, match="found %Z in 'time:%x %Z', expected %z or no zone"):
        ReadOptions(types={"t": "time:%x %Z"})


@given_text(st.from_regex(WRITTEN, fullmatch=True) | st.text(max_size=30))
def test_texts_are_times_or_refused(text: str) -> None:
    """A text of a log would end the reading of its file."""
    for zone in (None, "Europe/Rome"):
        with suppress(InvalidValueError):
            assert time_value(text, zone=zone).tzinfo is UTC


@pytest.mark.parametrize(
    ("kind", "given", "time_us"),
    [
        ("epoch", "1.5", 1_500_000),
        ("epoch", "1669852800.123456", 1_669_852_800_123_456),
        ("epoch", 1669852800.123456, 1_669_852_800_123_456),
        ("epoch", "-1", -1_000_000),
        ("epoch_ms", 1517875200123, 1_517_875_200_123_000),
        ("epoch_us", "0.4", 0),
    ],
)
def test_times_as_numbers(kind: str, given: Any, time_us: int) -> None:
    """Logs and feeds with numeric times could not stamp their records."""
    assert CONVERTERS[kind](given) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=time_us
    )


@pytest.mark.parametrize("given", ["", "x", "1e400", 1e300, float("nan"), "9999999999999999"])
def test_invalid_times_as_numbers(given: Any) -> None:
    """Else it would end the reading, or be some time."""
    with pytest.raises(InvalidValueError):
        CONVERTERS["epoch"](given)
