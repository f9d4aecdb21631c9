"""`arriving`: the lines of standard input, read as they are written."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from contrada.integrations.files import FileLimits
from contrada.integrations.files.lines import Block, LineCutter, check_text, readable


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
