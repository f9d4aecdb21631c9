"""Lines of a file, cut as Spark's text reader cuts them: single, or as a `Block` of many.

`FileLimits` bounds the readers of one source; it is part of its `ReadOptions`.

A line ends at LF, CR LF or CR; a byte order mark at the start of the file is no part of it.
Bytes that are not UTF-8 stay in the line as lone surrogates, so one bad line is reported and the
rest of the file is read.
"""

import bz2
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, Protocol

import numpy as np

from contrada.errors import InputError, LimitError, MissingRequirementError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits of the readers of files."""

    line_chars_max: int = 16 * 2**20
    """Characters of a line or row. Beyond it: a bad record; the next line is read."""

    row_lines_max: int = 1_000
    """Lines of a CSV row. Beyond it: the first is a bad record, the next ones are rows."""

    columns_max: int = 10_000
    """Columns of a CSV file. Beyond it: the file is one bad record."""

    document_bytes_max: int = 64 * 2**20
    """Bytes of a document, unpacked. Beyond it: the document is a bad record."""

    block_bytes: int = 2**20
    """Bytes read from a file at once. Beyond it: the next block has the rest."""

    bulk_after_bytes: int = 2**19
    """Bytes read line by line, while pyarrow is imported. Beyond it: batches are read."""

    fallback_share_max: float = 0.1
    """Share of a block's JSON lines that the kernel leaves to the plain reader. Beyond it: msgspec
    reads the block."""

    packed_records_max: int = 4_096
    """Matched lines that are packed together. Beyond it: the next are packed separately."""

    packed_bytes_max: int = 4 * 2**20
    """Bytes of these lines. Beyond it: the next are packed separately."""

    keys_at_once: int = 2**19
    """Matches of the lines that are matched at once, if some lines of the block are typical. Beyond
    it: the next portion has the rest."""


PACKED: Final = (".gz", ".bz2", ".xz", ".zst")
"""The suffixes of compressed files."""

_FORMS: Final = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"PK\x03\x04": "ZIP",
}
"""Compressed data by its first bytes, with which no text begins."""

FIRST_BLOCK_BYTES: Final = 2**16
"""Bytes of a file's first block, so that the first records appear soon. Beyond it: the next block
takes the rest, and twice as much."""

PART_BYTES: Final = 16 * 2**20
"""Bytes of a part of a file, with whole lines. Beyond it: the next part takes the rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of a file: the range of their bytes, and the number of lines before them."""

    begin: int = 0
    end: int | None = None
    lines_before: int = 0


WHOLE: Final = Part()


class DataFile(Protocol):
    """A file to read: a path, or an object like one. Errors show it as text."""

    @property
    def suffix(self) -> str:
        """The end of its name from the last dot on."""

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Returns its bytes. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines, or rows of several lines. Each line in `data` ends with LF. `ends` has the
    position in `data` of the LF that ends each line or row, `first` is the number of the first
    line. In a block of rows of several lines `starts` has the number of lines before each row.
    """

    first: int
    data: bytes
    ends: Any
    starts: Any = None

    @classmethod
    def of(cls, first: int, data: bytes) -> "Block":
        """Returns the block of some whole lines."""
        return cls(first, data, np.flatnonzero(np.frombuffer(data, np.uint8) == _LF))

    def __len__(self) -> int:
        return len(self.ends)

    def cut(self, position: int) -> tuple["Block", "Block"]:
        """Returns the lines before a position, and the others."""
        at = int(self.ends[position - 1]) + 1 if position else 0
        return (
            Block(self.first, self.data[:at], self.ends[:position]),
            Block(self.first + position, self.data[at:], self.ends[position:] - at),
        )

    def of_rows(self, ends_row: Any) -> "Block":
        """Returns the rows of these lines; `ends_row` is true for the last line of each row."""
        if ends_row.all():
            return self
        starts = np.append(0, np.flatnonzero(ends_row)[:-1] + 1)
        return Block(self.first, self.data, self.ends[ends_row], starts)

    def numbered(self, position: int) -> tuple[int, str]:
        """Returns the number and the text of a line; of a row, the number of its first line."""
        begin = int(self.ends[position - 1]) + 1 if position else 0
        before = position if self.starts is None else int(self.starts[position])
        line = self.data[begin : self.ends[position]].decode("utf-8", "surrogateescape")
        return self.first + before, line

    def text(self, first: int, last: int) -> str:
        """Returns the lines from one position to another, joined by LF."""
        begin = int(self.ends[first - 1]) + 1 if first else 0
        return self.data[begin : self.ends[last]].decode("utf-8", "surrogateescape")


def open_lines(path: DataFile) -> Iterator[str]:
    """Yields the lines of a file without their ends. Raises as `open_blocks`."""
    for block in open_blocks(path):
        yield from (block.text(at, at) for at in range(len(block)))


def open_blocks(
    path: DataFile, part: Part = WHOLE, limits: FileLimits = FileLimits()
) -> Iterator[Block]:
    """Yields the lines of a file, or of a part of it, in blocks; decompresses `PACKED` ones. Of a
    line that is too long, only the beginning. Bytes from a pipe are yielded as they arrive. Raises
    InputError, after all readable lines, for an unreadable file and damaged compressed data, and
    as `check_text`.
    """
    read = [part.lines_before]
    cutter = LineCutter(is_first=not part.begin, limits=limits)
    with readable(path, read):
        for piece in _pieces(path, part, limits.block_bytes):
            if data := cutter.cut(piece):
                if not read[0]:
                    check_text(path, data)
                block = Block.of(read[0] + 1, data)
                read[0] += len(block)
                yield block


def parts_of(path: DataFile, is_whole: Callable[[bytes], bool] | None = None) -> tuple[Part, ...]:
    """Returns parts of a file that several tasks can read. Cost: the file is read once. Compressed
    and small files are not split, nor files with a line that is too long, nor those with lines for
    which `is_whole` is true.
    """
    parts: list[Part] = []
    begin = lines = 0
    with readable(path, [0]):
        if path.suffix in PACKED:
            return (WHOLE,)
        with path.open("rb") as stream:
            if stream.seek(0, os.SEEK_END) <= PART_BYTES:
                return (WHOLE,)
            stream.seek(0)
            while data := stream.read(PART_BYTES):
                rest = stream.readline(_LINE_BYTES_HELD)
                if len(rest) == _LINE_BYTES_HELD or (is_whole and is_whole(data + rest)):
                    return (WHOLE,)
                end = begin + len(data) + len(rest)
                parts.append(Part(begin, end, lines))
                begin = end
                is_split = data.endswith(b"\r") and rest.startswith(b"\n")
                lines += _line_ends(data) + _line_ends(rest) - is_split
    return tuple(parts)


def _line_ends(data: bytes) -> int:
    """Returns the number of line ends; counts in pieces that the processor's cache holds."""
    held = np.frombuffer(data, np.uint8)
    pieces = (held[at : at + _COUNTED_BYTES] for at in range(0, len(held), _COUNTED_BYTES))
    found = sum(int(np.count_nonzero(piece == _LF)) for piece in pieces)
    if b"\r" in data:
        found += data.count(b"\r") - data.count(b"\r\n")
    return found


class LineCutter:
    """Cuts bytes that arrive in pieces into whole lines, each ending with LF."""

    def __init__(self, *, is_first: bool = True, limits: FileLimits = FileLimits()) -> None:
        """`is_first`: whether a byte order mark can precede the first piece."""
        self._is_first = is_first
        self._bytes_held = 4 * (limits.line_chars_max + 1)
        self._rest = b""

    def cut(self, piece: bytes) -> bytes:
        """Returns the lines that end with this piece; an empty piece ends the last line."""
        data = self._rest + piece
        if self._is_first and piece and len(data) < len(_MARK):
            self._rest = data
            return b""
        if self._is_first:
            data, self._is_first = data.removeprefix(_MARK), False
        # A CR at the end may be half of the end of its line, unless nothing follows.
        held = b"\r" if piece and data.endswith(b"\r") else b""
        data = data.removesuffix(held)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not piece and data and not data.endswith(b"\n"):
            data += b"\n"
        end = data.rfind(b"\n") + 1
        self._rest = data[end : end + self._bytes_held] + held
        return data[:end]


def check_text(path: DataFile, beginning: bytes) -> None:
    """Raises InputError for the beginning of compressed data: each line would be a bad record."""
    for mark, form in _FORMS.items():
        if beginning.startswith(mark):
            unpacked_ones = f"only files that end in {', '.join(PACKED)} are unpacked"
            raise InputError(str(path), f"found {form} data, expected text; {unpacked_ones}")


@contextmanager
def readable(path: DataFile, read: list[int] | None = None) -> Iterator[None]:
    """Turns errors of a file into InputError; `read` holds the number of lines that were read."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
        line = None if read is None else read[0] + 1
        raise InputError(str(path), f"damaged compressed data: {error}", line) from None


@contextmanager
def unpacked(path: DataFile) -> Iterator[Any]:
    """Opens a file, decompressed if its suffix is `PACKED`.

    Raises InputError, and MissingRequirementError for `.zst` without pyarrow.
    """
    with readable(path), path.open("rb") as stream:
        yield _unpacking(stream, path.suffix)


def open_document(path: DataFile, limits: FileLimits = FileLimits()) -> bytes:
    """Returns the unpacked bytes of a document. Raises InputError and LimitError."""
    with unpacked(path) as stream:
        data: bytes = stream.read(limits.document_bytes_max + 1)
    if len(data) > limits.document_bytes_max:
        raise LimitError("document_bytes_max", limits.document_bytes_max)
    check_text(path, data)
    return data


def unpacked_name(name: str) -> str:
    """Returns the name of a file without a suffix of compression."""
    return name[: name.rindex(".")] if name.endswith(PACKED) else name


def _unpacking(stream: BinaryIO, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stream)
    if suffix == ".bz2":
        return bz2.BZ2File(stream)
    if suffix == ".xz":
        return lzma.LZMAFile(stream)
    if suffix != ".zst":
        return stream
    try:
        import pyarrow
    except ImportError:
        raise MissingRequirementError("pyarrow", "pip install 'contrada[files]'") from None
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, "r"), "zstd")


def _pieces(path: DataFile, part: Part, block_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of a file in pieces, and at last an empty one."""
    if path.suffix not in PACKED:
        with path.open("rb") as stream:
            if part.begin:
                stream.seek(part.begin)
            left = sys.maxsize if part.end is None else part.end - part.begin
            size = min(FIRST_BLOCK_BYTES, block_bytes)
            while piece := stream.read1(min(left, size)):  # type: ignore[attr-defined]
                left -= len(piece)
                size = min(2 * size, block_bytes)
                yield piece
    else:
        with path.open("rb") as stream:
            packed = _unpacking(stream, path.suffix)
            held: list[bytes] = []
            try:
                while piece := packed.read1(block_bytes):
                    held.append(piece)
                    if sum(map(len, held)) >= block_bytes:
                        yield b"".join(held)
                        held = []
            except (EOFError, zlib.error, lzma.LZMAError, OSError):
                yield b"".join(held)  # The bytes before the damage can be read.
                raise
            if held:
                yield b"".join(held)
    yield b""


def is_utf_8(data: bytes) -> bool:
    """Whether all bytes are UTF-8."""
    try:
        return data.isascii() or data.decode() is not None
    except UnicodeDecodeError:
        return False


def printable(text: str) -> str:
    """Returns a text that can be written: bytes that are not UTF-8 are replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_LF: Final = 10
_COUNTED_BYTES: Final = 2**18
_MARK: Final = "\ufeff".encode()
_LINE_BYTES_HELD: Final = 4 * (FileLimits().line_chars_max + 1)
