"""What `contrada pub` publishes: the notifications of lines, by and by as these come."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from contrada.errors import ContradaError
from contrada.integrations.files import BadRecord, FileLimits, ReadOptions, Record
from contrada.integrations.files.csv_rows import RowJoiner, is_blank
from contrada.integrations.files.lines import Block, LineCutter, readable
from contrada.integrations.files.record import bad_record, record_of
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
            number, line = block.numbered(position)
            if not is_blank(line):
                yield record_of(self._make, self._source, number, line)


class RowRecords:
    """Each row is a record; the first names the columns."""

    def __init__(self, source: str, options: ReadOptions, timed: Timed) -> None:
        self._source = source
        self._timed = timed
        self._joiner = RowJoiner(options)

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """Those of the rows that end in a block."""
        try:
            for block_of_rows in self._joiner.join(block):
                rows = self._joiner.rows
                assert rows is not None, "the header precedes all rows"
                make = _timed(rows.notification, self._timed)
                for position in range(len(block_of_rows)):
                    number, text = block_of_rows.numbered(position)
                    if not rows.is_blank(text):
                        yield record_of(make, self._source, number, text)
        except ContradaError as error:
            yield bad_record(self._source, error, 1)


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
            piece = os.read(stream.fileno(), FileLimits().block_bytes)
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
