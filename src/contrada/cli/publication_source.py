"""What `contrada pub` publishes: the notifications of lines, by and by as these come."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from contrada.errors import ContradaError, ParseError
from contrada.integrations.files import BadRecord, CsvRows, ReadOptions, Record
from contrada.integrations.files.csv_rows import is_blank, is_blank_row, is_header
from contrada.integrations.files.lines import BLOCK_BYTES, Block, LineCutter, readable
from contrada.integrations.files.record import bad_record, record_of
from contrada.integrations.files.row_joiner import RowJoiner
from contrada.model import Notification

Make: TypeAlias = Callable[[str], Notification]
"""What makes the notification of a line."""


Timed: TypeAlias = Callable[[Notification], Notification] | None
"""What gives a notification its time to live and priority, where it is to have them."""


def _timed(make: Make, timed: Timed) -> Make:
    return make if timed is None else lambda text: timed(make(text))


class RecordingSource(Protocol):
    """Makes records of the lines of one source, block by block."""

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """The records that are known with this block; None says that no more comes."""
        ...


class LineRecords:
    """Each line is a record."""

    def __init__(self, source: str, make: Make, timed: Timed) -> None:
        self._source = source
        self._make = _timed(make, timed)

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """Those of the lines of a block; blank lines are none."""
        if block is None:
            return
        for position in range(len(block)):
            line = block.line(position)
            if not is_blank(line):
                yield record_of(self._make, self._source, block.first + position, line)


class RowRecords:
    """Each row is a record; the first names the columns."""

    def __init__(self, source: str, reading: ReadOptions, timed: Timed) -> None:
        self._source = source
        self._reading = reading
        self._timed = timed
        self._joiner = RowJoiner(reading.quote, self._is_row)
        self._rows: CsvRows | None = None

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """Those of the rows that end in a block."""
        try:
            for rows in self._joiner.join(block):
                for position in range(len(rows)):
                    text = rows.line(position)
                    if self._rows is None:
                        self._rows = CsvRows(text, self._reading)
                        self._make = _timed(self._rows.notification, self._timed)
                    elif not is_blank_row(text, self._reading):
                        yield record_of(self._make, self._source, rows.number(position), text)
            if block is None and self._rows is None:
                raise ParseError(1, 1, "an empty file", "a line that names the columns")
        except ContradaError as error:
            yield bad_record(self._source, error, 1)

    def _is_row(self, text: str) -> bool:
        return is_header(text, self._reading) if self._rows is None else self._rows.is_row(text)


def size_of_stream(stream: IO[bytes]) -> int | None:
    """The bytes of a regular file; None of a stream, whose end is unknown."""
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


async def arriving(stream: IO[bytes]) -> AsyncIterator[Block]:
    """The lines of a pipe, terminal or file, as they come."""
    cutter = LineCutter()
    number = 1
    piece = b"?"
    while piece:
        await _until_readable(stream)
        with readable(Path("standard input")):
            piece = os.read(stream.fileno(), BLOCK_BYTES)
        block = Block.of(number, cutter.cut(piece))
        number += len(block)
        yield block


async def _until_readable(stream: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        loop.remove_reader(stream.fileno())
        ready.set_result(None)

    try:
        loop.add_reader(stream.fileno(), tell)
    except PermissionError:
        return  # A file is readable always.
    try:
        await ready
    finally:
        loop.remove_reader(stream.fileno())
