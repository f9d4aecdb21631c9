"""The input of `contrada pub`: the notifications of lines, read as they are written."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

from contrada.cli.read_flags import SoughtNames
from contrada.errors import ContradaError
from contrada.integrations.files import BadRecord, FileLimits, ReadOptions, Record
from contrada.integrations.files.csv_rows import RowJoiner, is_blank
from contrada.integrations.files.lines import Block, LineCutter, check_text, readable
from contrada.integrations.files.record import Make, bad_record, record_of


class LineRecords(SoughtNames):
    """Each line is a record."""

    def __init__(self, source: str, make: Make, options: ReadOptions) -> None:
        """`make` reads a line with the options."""
        super().__init__(options)
        self._source, self._make = source, make

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """Returns the lines of a block, without blank ones; None is the end of the input."""
        if block is None:
            return
        for position in range(len(block)):
            number, line = block.numbered(position)
            if is_blank(line):
                continue
            yield self.noted(record_of(self._make, self._source, number, line))


class RowRecords(SoughtNames):
    """Each row is a record; the first names the columns."""

    def __init__(self, source: str, options: ReadOptions) -> None:
        super().__init__(options)
        self._source = source
        self._joiner = RowJoiner(options)

    def records(self, block: Block | None) -> Iterator[Record | BadRecord]:
        """Returns the rows that end in a block, or with None at the end of the input."""
        try:
            joined, rows = self._joiner.join(block), self._joiner.rows
            if not joined:
                return
            assert rows is not None, "the header precedes all rows"
            self.note([name for name in rows.columns if name])
            for position in range(len(joined)):
                number, text = joined.numbered(position)
                if not rows.is_blank(text):
                    yield record_of(rows.notification, self._source, number, text)
        except ContradaError as error:
            yield bad_record(self._source, error, 1)


def size_of_stream(stream: IO[bytes]) -> int | None:
    """Returns the bytes of a regular file, or None for a stream of unknown length."""
    found = os.fstat(stream.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


async def arriving(stream: IO[bytes]) -> AsyncIterator[Block]:
    """Yields the lines of a pipe, terminal or file, as they are written. Raises InputError."""
    cutter, source = LineCutter(), Path("standard input")
    number = 1
    piece = b"?"
    while piece:
        await _until_readable(stream)
        with readable(source):
            piece = os.read(stream.fileno(), FileLimits().block_bytes)
        block = Block.of(number, cutter.cut(piece))
        if number == 1:
            check_text(source, block.data)
        number += len(block)
        yield block


async def _until_readable(stream: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def notify() -> None:
        loop.remove_reader(stream.fileno())
        ready.set_result(None)

    try:
        loop.add_reader(stream.fileno(), notify)
    except PermissionError:
        return  # A file is readable always.
    try:
        await ready
    finally:
        loop.remove_reader(stream.fileno())
