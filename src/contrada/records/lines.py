"""The lines of a file, as Spark's text reader cuts them.

A line ends at LF, CR LF or CR; a byte order mark at the start of the file is no part of it.
Bytes that are not UTF-8 stay in the line as lone surrogates, so that one bad line is reported
and the rest of the file is read.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from contrada.errors import InputError

LINE_CHARS_MAX: Final = 16 * 2**20
"""Characters of a line, and what is held of it. Beyond it: it is a bad record, and the next line
is read."""

BYTE_ORDER_MARK: Final = "\ufeff"


def open_lines(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; `.gz` is unpacked on the way.

    Raises InputError where the file cannot be read or its compressed data is damaged.
    """
    number = 0
    try:
        with _open_text(path) as stream:
            for number, line in enumerate(_bounded_lines(stream), start=1):
                yield line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), f"damaged compressed data: {error}", number + 1) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def printable(text: str) -> str:
    """A text with what is not UTF-8 in it replaced, so that it can be written."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="surrogateescape")
    return path.open(encoding="utf-8", errors="surrogateescape")


def _bounded_lines(stream: IO[str]) -> Iterator[str]:
    """Lines; of one that is too long the first part, which shows that it is too long."""
    while line := stream.readline(LINE_CHARS_MAX + 1):
        rest = line
        while not rest.endswith("\n") and len(rest) > LINE_CHARS_MAX:
            rest = stream.readline(LINE_CHARS_MAX + 1)
        yield line.removesuffix("\n")
