"""The lines of files."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from contrada.errors import InputError
from contrada.integrations.files import (
    BadRecord,
    FileLimits,
    ReadOptions,
    lines,
    open_lines,
    read_file,
)
from contrada.integrations.files.record_files import format_of


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    """Else line numbers would not be those of Spark's text reader."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n\nd\x0be\x85\xc2\x85\xe2\x80\xa8f")
    assert list(open_lines(path)) == ["a", "b", "c", "", "d\x0be\udc85\x85\u2028f"]


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", partial(bz2.compress, compresslevel=1)),
        (".xz", lzma.compress),
        (".zst", _zstd),
    ],
)
def test_compressed_and_damaged(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """Else the end of a damaged archive would be lost without a word."""
    whole = pack(b"a\n" + b"".join(b"%d\n" % number for number in range(10_000)))
    path = tmp_path / f"a.csv{suffix}"
    assert format_of(path) == "csv"
    path.write_bytes(whole)
    assert len(list(open_lines(path))) == 10_001
    path.write_bytes(whole[: len(whole) // 2])
    *records, last = read_file(path, "csv", ReadOptions())
    assert isinstance(last, BadRecord)
    assert "damaged compressed data" in last.reason
    # A form of large blocks is lost as a whole, with the header.
    assert last.line == (len(records) + 2 if records or suffix == ".gz" else 1)


@pytest.mark.parametrize("format_name", ["csv", "json", "xml", "syslog"])
@pytest.mark.parametrize(
    ("form", "pack"),
    [
        ("gzip", gzip.compress),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("Zstandard", _zstd),
        ("ZIP", lambda data: b"PK\x03\x04" + data),
    ],
)
def test_compressed_data_by_another_name_is_one_bad_record(
    tmp_path: Path, format_name: str, form: str, pack: Callable[[bytes], bytes]
) -> None:
    """Each line of it would be a bad record, with an odd byte as the reason."""
    path = tmp_path / "a.data"
    path.write_bytes(pack(b"a\n1\n\n\n"))
    (found,) = read_file(path, format_name, ReadOptions(), "standard input")
    assert isinstance(found, BadRecord)
    remedy = "only files that end in .gz, .bz2, .xz, .zst are unpacked"
    assert found.reason == f"found {form} data, expected text; {remedy}"


@pytest.mark.parametrize("block_bytes", [1, 3, 1000])
def test_blocks_and_parts_hold_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """Else a line cut by a block's end, or the number of a line, would be another in a part."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\r\rb\n\n" + b"c\xff\r\n" * 5 + b"\rlong" * 4 + b"\nlast\r")
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    text = path.read_text("utf-8-sig", "surrogateescape").removesuffix("\n")
    expected = list(enumerate(text.split("\n"), start=1))

    def numbered(file: Path, part: lines.Part) -> list[tuple[int, str]]:
        blocks = lines.open_blocks(file, part, FileLimits(block_bytes=block_bytes))
        return [b.numbered(at) for b in blocks for at in range(len(b))]

    assert numbered(path, lines.WHOLE) == numbered(packed, lines.WHOLE) == expected
    for size in range(1, 40):
        monkeypatch.setattr(lines, "PART_BYTES", size)
        parts = lines.parts_of(path)
        assert [each for part in parts for each in numbered(path, part)] == expected


def test_missing_file(tmp_path: Path) -> None:
    """A file that was deleted would end everything with a traceback."""
    with pytest.raises(InputError, match="cannot be read"):
        list(open_lines(tmp_path / "none.csv"))


def test_a_line_too_long_is_bad_and_the_next_is_read(tmp_path: Path) -> None:
    """Else one endless line would take all memory."""
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "x" * 35 + "\n" + "y" * 10 + "\n1")
    first, second, third = read_file(path, "csv", ReadOptions(limits=FileLimits(line_chars_max=10)))
    assert isinstance(first, BadRecord)
    assert first.line == 2
    assert "line_chars_max" in first.reason
    assert not isinstance(second, BadRecord)
    assert second.notification["a"] == "y" * 10
    assert not isinstance(third, BadRecord)
    assert third.number == 4
