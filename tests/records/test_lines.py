"""The lines of files."""

import gzip
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.records import BadRecord, Reading, lines, open_lines, read_file


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    """Else line numbers would not be those of Spark's text reader."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n\nd\x0be\x85\xc2\x85\xe2\x80\xa8f")
    assert list(open_lines(path)) == ["a", "b", "c", "", "d\x0be\udc85\x85\u2028f"]


def test_compressed_and_damaged(tmp_path: Path) -> None:
    """Else the end of a damaged archive would be lost without a word."""
    whole = gzip.compress(b"a\n" + b"".join(b"%d\n" % number for number in range(10_000)))
    path = tmp_path / "a.csv.gz"
    path.write_bytes(whole)
    assert len(list(open_lines(path))) == 10_001
    path.write_bytes(whole[: len(whole) // 2])
    *records, last = read_file(path, "csv", Reading())
    assert isinstance(last, BadRecord)
    assert "damaged compressed data" in last.reason
    assert last.line == len(records) + 2


def test_missing_file(tmp_path: Path) -> None:
    """Else a file that went away would end everything with a traceback."""
    with pytest.raises(InputError, match="cannot be read"):
        list(open_lines(tmp_path / "none.csv"))


def test_a_line_too_long_is_bad_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one endless line would take all memory."""
    monkeypatch.setattr(lines, "LINE_CHARS_MAX", 10)
    monkeypatch.setattr("contrada.records.record.LINE_CHARS_MAX", 10)
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "x" * 35 + "\n" + "y" * 10 + "\n1")
    first, second, third = read_file(path, "csv", Reading())
    assert isinstance(first, BadRecord)
    assert first.line == 2
    assert "LINE_CHARS_MAX" in first.reason
    assert not isinstance(second, BadRecord)
    assert second.notification["a"] == "y" * 10
    assert not isinstance(third, BadRecord)
    assert third.number == 4
