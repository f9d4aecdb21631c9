"""Which format a file has."""

from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.integrations.files import BadRecord, ReadOptions, check_name_of, format_of, read_file


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.JSONL", "jsonl"),
        ("a.json.gz", "json"),
        ("a.ndjson", "jsonl"),
        ("a.geojson", "json"),
        ("a.tsv.gz", "tsv"),
        ("a.b.xml", "xml"),
        ("us.atom", "xml"),
    ],
)
def test_by_suffix(name: str, format_name: str) -> None:
    """The user would have to repeat the format in the name."""
    assert format_of(Path(name)) == format_name


def test_unknown_suffix() -> None:
    """Else a file would be read as something that it is not."""
    with pytest.raises(InputError, match=r"'.txt', expected one of .csv"):
        format_of(Path("a.txt"))
    with pytest.raises(InputError, match=r"'\.GZ'"):
        format_of(Path("a.csv.GZ"))  # Only lower-case suffixes are unpacked.


@pytest.mark.parametrize("format_name", ["csv", "json", "xml"])
def test_a_file_that_cannot_be_read_is_one_bad_record(tmp_path: Path, format_name: str) -> None:
    """Else one missing file would cost all others."""
    (found,) = read_file(tmp_path / "none", format_name, ReadOptions(), "shown")
    assert isinstance(found, BadRecord)
    assert "cannot be read" in found.reason


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    """Else the first match in such a file would end it all with a fault of encoding."""
    check_name_of(Path("übrig.csv"))
    with pytest.raises(InputError, match="the name of the file is not UTF-8"):
        check_name_of(Path("a\udcff.csv"))
