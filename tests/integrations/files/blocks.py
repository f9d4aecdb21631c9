"""Blocks of lines for the readers of files."""

from collections.abc import Iterable, Iterator

from contrada.integrations.files.lines import Block


def blocks_of(lines: Iterable[str]) -> Iterator[Block]:
    """Yields each line, given without its end, as a block."""
    for number, line in enumerate(lines, start=1):
        yield Block.of(number, line.encode("utf-8", "surrogateescape") + b"\n")
