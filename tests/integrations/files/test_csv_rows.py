"""Rows of CSV."""

import pytest

from contrada.errors import InvalidNameError, ParseError
from contrada.integrations.files import BadRecord, CsvRows, ReadOptions, Record
from contrada.integrations.files.csv_rows import read_rows
from contrada.model import Notification
from tests.integrations.files.blocks import blocks_of


def read(*lines: str, options: ReadOptions | None = None) -> list[Record | BadRecord]:
    return list(read_rows(blocks_of(lines), "f.csv", options or ReadOptions()))


def test_cells_become_attributes_and_empty_ones_are_absent() -> None:
    """Else `dep_time absent` would not find the flights that never left."""
    assert read("a,b,c", '1,,"x, ""y"""') == [
        Record("f.csv", 2, Notification({"a": 1, "c": 'x, "y"'}))
    ]


def test_markers_of_no_value() -> None:
    """Else NA would be a text, in one column of numbers."""
    options = ReadOptions(absent=frozenset({"NA"}))
    assert read("a,b", "NA,NB", options=options) == [Record("f.csv", 2, Notification({"b": "NB"}))]


def test_odd_names_and_values() -> None:
    """Else a column could not be called as its owner calls it."""
    assert read('"wind, gust",ünï ,a.b', "1, 2,-0.0") == [
        Record("f.csv", 2, Notification({"wind, gust": 1, "ünï ": " 2", "a.b": 0.0}))
    ]


def test_bad_rows_are_reported_and_the_others_read() -> None:
    """One broken row would cost the file, or go unnoticed."""
    found = read("a,b", "1", "1,2,3", '1,"2', '1,"2"3', "1,\udcff", "", "5,6")
    bad = [each for each in found if isinstance(each, BadRecord)]
    assert [(each.line, each.column) for each in bad] == [(2, 2), (3, 6), (4, 3), (5, 5), (6, 3)]
    assert bad[0].reason == "found 1 cells, expected 2"
    assert str(bad[4].error()) == "f.csv:6:3: found byte 0xff, expected UTF-8"
    assert [each.number for each in found if isinstance(each, Record)] == [8]


def test_a_cell_not_of_its_declared_type_names_its_column() -> None:
    """Else the user would search a row of many cells for the wrong one."""
    (found,) = read("a,b", "1,x", options=ReadOptions(types={"b": "number"}))
    assert isinstance(found, BadRecord)
    assert found.reason == "column 'b': 'x': expected a number of 64 bits"


@pytest.mark.parametrize("text", ["007", "-01.5", "+5"])
def test_an_unusual_number_has_a_hint(text: str) -> None:
    """Else one would wonder why so small a number does not fit into 64 bits."""
    (found,) = read("a", text, options=ReadOptions(types={"a": "number"}))
    assert isinstance(found, BadRecord)
    assert found.reason.endswith("expected a number of 64 bits without `+` or leading zeros")


@pytest.mark.parametrize("header", ["", "  ", "a,a", 'a,"b', "a,@id", "a,,b"])
def test_a_file_without_a_header_is_one_bad_record(header: str) -> None:
    """Else every row would be read under wrong names."""
    (found,) = read(header, "1,2,3")
    assert isinstance(found, BadRecord)
    assert found.line == 1


def test_an_empty_file_is_malformed() -> None:
    """Else a file that was cut to nothing would look like one without rows."""
    (found,) = read()
    assert isinstance(found, BadRecord)
    assert found.reason == "found an empty file, expected a line that names the columns"


def test_an_object_of_json_is_no_header() -> None:
    """Lines of JSON that are taken for CSV would be notifications with odd names."""
    with pytest.raises(ParseError, match="a JSON object, expected the names of the columns"):
        CsvRows('{"a": 1, "b": 2}', ReadOptions())
    with pytest.raises(ParseError, match="a JSON object"):
        CsvRows('{"a":1,"b":2}', ReadOptions())
    assert CsvRows("{a},{b}", ReadOptions()).columns == ("{a}", "{b}")


def test_header_errors_name_the_column() -> None:
    """The one line about the file would not name the faulty column."""
    with pytest.raises(ParseError, match="'a' twice, expected"):
        CsvRows("a,a", ReadOptions())
    with pytest.raises(ParseError, match=r"'a' twice \('a' and 'b'\), expected"):
        CsvRows("a,c,b", ReadOptions(rename={"b": "a"}))
    with pytest.raises(InvalidNameError) as caught:
        CsvRows("a,@id", ReadOptions())
    assert caught.value.name == "@id"
