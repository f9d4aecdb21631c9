"""The lines of a file, as Spark's text reader cuts them: one by one, or many at once.

A line ends at LF, CR LF or CR; a byte order mark at the start of the file is no part of it.
Bytes that are not UTF-8 stay in the line as lone surrogates, so that one bad line is reported
and the rest of the file is read.
"""

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, Protocol

import numpy as np

from contrada.errors import InputError

LINE_CHARS_MAX: Final = 16 * 2**20
"""Characters of a line, and what is held of it. Beyond it: it is a bad record, and the next line
is read."""

BLOCK_BYTES: Final = 2**20
"""Bytes of a file that are read at once. Beyond it: the next block takes the rest."""

FIRST_BLOCK_BYTES: Final = 2**16
"""Bytes of a file that are read at first, so that the first records are soon told of. Beyond it:
the next block takes the rest, and twice as much."""

PART_BYTES: Final = 16 * 2**20
"""Bytes of a part of a file, without the end of its last line. Beyond it: the next part takes
the rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of a file: where their bytes begin and end, and the lines before them."""

    begin: int = 0
    end: int | None = None
    lines_before: int = 0


WHOLE: Final = Part()


class DataFile(Protocol):
    """What is read: a path, or something like it elsewhere. Its text is what errors call it."""

    @property
    def suffix(self) -> str:
        """The end of its name from the last dot on."""

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Its bytes. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stand one after another: `data`, in which each ends with LF.

    `first` is the number of the first, `ends` says where in `data` the LF of each is. Where some of
    them are rows of several lines, `starts` says how many lines stand before each.
    """

    first: int
    data: bytes
    ends: Any
    starts: Any = None

    @classmethod
    def of(cls, first: int, data: bytes) -> "Block":
        """The block of some whole lines."""
        return cls(first, data, np.flatnonzero(np.frombuffer(data, np.uint8) == _LF))

    def __len__(self) -> int:
        return len(self.ends)

    def behind_first(self) -> "Block":
        """The block without its first line."""
        cut = int(self.ends[0]) + 1
        if self.starts is None:
            return Block(self.first + 1, self.data[cut:], self.ends[1:] - cut)
        return Block(self.first, self.data[cut:], self.ends[1:] - cut, self.starts[1:])

    def cut(self, position: int) -> tuple["Block", "Block"]:
        """The lines before a position, and those from there."""
        at = self.begin(position)
        return (
            Block(self.first, self.data[:at], self.ends[:position]),
            Block(self.first + position, self.data[at:], self.ends[position:] - at),
        )

    def of_rows(self, ends_row: Any) -> "Block":
        """The rows of these lines; `ends_row` says of each line whether it ends one."""
        if ends_row.all():
            return self
        starts = np.append(0, np.flatnonzero(ends_row)[:-1] + 1)
        return Block(self.first, self.data, self.ends[ends_row], starts)

    def number(self, position: int) -> int:
        """The number of the line at a position, of a row its first."""
        return self.first + (position if self.starts is None else int(self.starts[position]))

    def begin(self, position: int) -> int:
        """Where the line at a position begins in `data`."""
        return int(self.ends[position - 1]) + 1 if position else 0

    def line(self, position: int) -> str:
        """The line at a position, as `open_lines` gives it."""
        data = self.data[self.begin(position) : self.ends[position]]
        return data.decode("utf-8", "surrogateescape")


def open_lines(path: DataFile) -> Iterator[str]:
    """The lines of a file without their ends; see `open_blocks`."""
    for block in open_blocks(path):
        yield from map(block.line, range(len(block)))


def open_blocks(path: DataFile, part: Part = WHOLE) -> Iterator[Block]:
    """The lines of a file, or of a part of it, many at once; `.gz` is unpacked on the way.

    Of a line that is too long a block holds the beginning, which shows that it is too long.
    What comes through a pipe is given on as it comes. Raises InputError after all lines that
    could be read, where the file cannot be read or its compressed data is damaged.
    """
    read = [part.lines_before]
    with readable(path, read):
        for data in _whole_lines(path, part):
            block = Block.of(read[0] + 1, data)
            read[0] += len(block)
            yield block


def parts_of(path: DataFile, is_whole: Callable[[bytes], bool] | None = None) -> tuple[Part, ...]:
    """A file cut into parts, so that several can read it. Cost: the file is read once.

    Compressed files, small ones and those with a line that is too long are not cut, nor those with
    lines of which `is_whole` says that they must not be parted.
    """
    parts: list[Part] = []
    begin = lines = 0
    with readable(path, [0]):
        if path.suffix == ".gz":
            return (WHOLE,)
        with path.open("rb") as stream:
            if stream.seek(0, os.SEEK_END) <= PART_BYTES:
                return (WHOLE,)
            stream.seek(0)
            while data := stream.read(PART_BYTES):
                rest = stream.readline(_LINE_BYTES_HELD)
                if len(rest) == _LINE_BYTES_HELD:
                    return (WHOLE,)
                if is_whole is not None and is_whole(data + rest):
                    return (WHOLE,)
                end = begin + len(data) + len(rest)
                parts.append(Part(begin, end, lines))
                begin = end
                is_parted = data.endswith(b"\r") and rest.startswith(b"\n")
                lines += _line_ends(data) + _line_ends(rest) - is_parted
    return tuple(parts)


def _line_ends(data: bytes) -> int:
    """How many lines end: counted by some bytes that the processor's cache holds."""
    held = np.frombuffer(data, np.uint8)
    pieces = (held[at : at + _COUNTED_BYTES] for at in range(0, len(held), _COUNTED_BYTES))
    found = sum(int(np.count_nonzero(piece == _LF)) for piece in pieces)
    if b"\r" in data:
        found += data.count(b"\r") - data.count(b"\r\n")
    return found


class LineCutter:
    """Cuts bytes that come in pieces into whole lines, each ending with LF."""

    def __init__(self, *, is_first: bool = True) -> None:
        """`is_first`: whether a byte order mark can stand before what comes."""
        self._is_first = is_first
        self._rest = b""

    def cut(self, piece: bytes) -> bytes:
        """The lines that end with this piece, maybe none; an empty piece ends the last one."""
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
        self._rest = data[end : end + _LINE_BYTES_HELD] + held
        return data[:end]


@contextmanager
def readable(path: DataFile, read: list[int] | None = None) -> Iterator[None]:
    """Turns what reading raises into InputError; `read` holds how many lines were read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        line = None if read is None else read[0] + 1
        raise InputError(str(path), f"damaged compressed data: {error}", line) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def _whole_lines(path: DataFile, part: Part) -> Iterator[bytes]:
    """Whole lines, each ending with LF."""
    cutter = LineCutter(is_first=not part.begin)
    for piece in _pieces(path, part):
        if data := cutter.cut(piece):
            yield data


def _pieces(path: DataFile, part: Part) -> Iterator[bytes]:
    """The bytes of a file in pieces, and at last an empty one."""
    if path.suffix != ".gz":
        with path.open("rb") as stream:
            if part.begin:
                stream.seek(part.begin)
            left = sys.maxsize if part.end is None else part.end - part.begin
            size = min(FIRST_BLOCK_BYTES, BLOCK_BYTES)
            while piece := stream.read1(min(left, size)):  # type: ignore[attr-defined]
                left -= len(piece)
                size = min(2 * size, BLOCK_BYTES)
                yield piece
    else:
        with path.open("rb") as stream, gzip.GzipFile(fileobj=stream) as packed:
            held: list[bytes] = []
            try:
                while piece := packed.read1(BLOCK_BYTES):
                    held.append(piece)
                    if sum(map(len, held)) >= BLOCK_BYTES:
                        yield b"".join(held)
                        held = []
            except (EOFError, zlib.error, gzip.BadGzipFile):
                yield b"".join(held)  # What stands before the damage can be read.
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
    """A text with what is not UTF-8 in it replaced, so that it can be written."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_LF: Final = 10
_COUNTED_BYTES: Final = 2**18
_MARK: Final = "\ufeff".encode()
_LINE_BYTES_HELD: Final = 4 * (LINE_CHARS_MAX + 1)
