"""Rows of CSV that take several lines: cells with line breaks, between quotes.

A line with an odd number of quotes opens a row that the next such line can end (RFC 4180, rule 6).
It does where both, with what stands between them, are a row: quoted as it must be, with a cell for
each column, within the limits. Otherwise the first line is a row of its own, a bad one, and reading
goes on behind it. So a quote that somebody forgot costs one line.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np

from contrada.integrations.files.lines import LINE_CHARS_MAX, Block, LineCutter

ROW_LINES_MAX: Final = 1_000
"""Lines of a row of CSV. Beyond it: its first line is a bad record, and the next lines are rows."""

IsRow = Callable[[str], bool]


def joined_lines(lines: Iterable[str], quote: str, is_row: IsRow) -> Iterator[tuple[int, str]]:
    """The rows among lines, each with the number of its first line."""
    held: list[str] = []
    number = 0
    for number, line in enumerate(lines, start=1):
        is_odd = bool(quote) and line.count(quote) % 2 == 1
        if not held and not is_odd:
            yield number, line
            continue
        held.append(line)
        first = number - len(held) + 1
        if is_odd and len(held) > 1:
            if _is_joined_row("\n".join(held), is_row):
                yield first, "\n".join(held)
                held = []
            else:
                yield from enumerate(held[:-1], start=first)
                held = [line]
        elif len(held) == ROW_LINES_MAX:
            yield from enumerate(held, start=first)
            held = []
    yield from enumerate(held, start=number - len(held) + 1)


def joined_blocks(blocks: Iterable[Block], quote: str, is_row: IsRow) -> Iterator[Block]:
    """The same for lines that come many at once; what opens a row waits for the next block.

    The first row, of which the others' columns are known, is given before these are looked at.
    """
    joiner = RowJoiner(quote, is_row)
    for block in chain(blocks, (None,)):
        yield from joiner.join(block)


class RowJoiner:
    """As `joined_blocks`, for blocks that come by and by."""

    def __init__(self, quote: str, is_row: IsRow) -> None:
        self._sign = quote.encode()
        self._is_row = is_row
        self._held: Block | None = None
        self._has_begun = False

    def join(self, block: Block | None) -> Iterator[Block]:
        """The rows that are known with this block; None ends those that are held."""
        sign, held = self._sign, self._held
        if block is None:
            if held is not None:
                yield held
            return
        if held is None and not (sign and sign in block.data):
            self._has_begun = True
            yield block
            return
        whole = block if held is None else Block.of(held.first, held.data + block.data)
        if not self._has_begun:
            size = _lines_of_first(whole, sign, self._is_row)
            if size is None:
                self._held = whole
                return
            self._has_begun = True
            first, whole = whole.cut(size)
            yield first.of_rows(np.arange(size) == size - 1)
        rows, self._held = _joined(whole, sign, self._is_row)
        if len(rows):
            yield rows


def has_open_quote(data: bytes, quote: str) -> bool:
    """Whether one of these whole lines has an odd number of quotes."""
    sign = quote.encode()
    if not sign or sign not in data:
        return False
    lines = LineCutter()
    return bool(len(_odd_lines(Block.of(1, lines.cut(data) + lines.cut(b"")), sign)))


def _is_joined_row(text: str, is_row: IsRow) -> bool:
    return len(text) <= LINE_CHARS_MAX and is_row(text)


def _lines_of_first(block: Block, sign: bytes, is_row: IsRow) -> int | None:
    """How many lines the first row takes, None where that is seen in the next block."""
    odd = _odd_lines(block, sign)[:2].tolist()
    if not odd or odd[0] > 0:
        return 1
    if len(odd) == 1:
        return None if len(block) < ROW_LINES_MAX else 1
    return odd[1] + 1 if _joins(block, 0, odd[1], is_row) else 1


def _joins(block: Block, first: int, last: int, is_row: IsRow) -> bool:
    """Whether the lines from one to another are a row."""
    if last - first >= ROW_LINES_MAX:
        return False
    text = block.data[block.begin(first) : block.ends[last]]
    return _is_joined_row(text.decode("utf-8", "surrogateescape"), is_row)


def _odd_lines(block: Block, sign: bytes) -> Any:
    """The positions of the lines with an odd number of quotes."""
    places = np.flatnonzero(np.frombuffer(block.data, np.uint8) == sign[0])
    counts = np.bincount(np.searchsorted(block.ends, places), minlength=len(block))
    return np.flatnonzero(counts & 1)


def _joined(block: Block, sign: bytes, is_row: IsRow) -> tuple[Block, Block | None]:
    """A block of the rows among some lines, and the lines that may begin a row that goes on."""
    odd = _odd_lines(block, sign).tolist()
    ends_row = np.ones(len(block), dtype=bool)
    at = 0
    while at + 1 < len(odd):
        first, last = odd[at : at + 2]
        if _joins(block, first, last, is_row):
            ends_row[first:last] = False
            at += 1
        at += 1
    if at < len(odd) and len(block) - odd[at] < ROW_LINES_MAX:
        rows, held = block.cut(odd[at])
        return rows.of_rows(ends_row[: odd[at]]), held
    return block.of_rows(ends_row), None
