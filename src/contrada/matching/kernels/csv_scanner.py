"""Kernels that read lines of CSV: cells between delimiters, with or without quotes around them.

They find the positions of cells, and cells that are plainly numbers, truth values or texts by the
rules of `contrada.integrations.files.read_options`. A row is a line, or several if cells contain
line breaks. Fallback rows are those with other quotes than around whole cells or doubled within
these, and those of too few or too many cells.

As in `json_scanner`, each row ends with LF, and eight more bytes can be read behind the last one.
"""

from contrada.matching.kernels import json_scanner
from contrada.matching.kernels.memory import (
    are_same,
    array_entry,
    first_marked,
    kernel,
    sign_marks,
    without_first,
)
from contrada.matching.kernels.schema import Bytes, Flags, Grid, Ints, Marks

NO_QUOTE = -1

CHECKED = -2
"""In place of a column: of cells that must be numbers, or empty."""


@kernel
def next_sign(
    data: Bytes, base: int, marks: Marks, sign: int, other: int
) -> tuple[int, int, Marks]:
    """The position of the next of two signs, or of LF; and the eight bytes there, with the marks
    behind it.
    """
    while marks == 0:
        base += 8
        marks = sign_marks(data, base, sign, other)
    return base + first_marked(marks), base, without_first(marks)


@kernel
def is_absent(data: Bytes, begin: int, end: int, starts: Ints, texts: Bytes) -> bool:
    """Whether a cell has no value: it is empty, or one of these texts."""
    if begin == end:
        return True
    for row in range(len(starts) - 1):
        first, size = starts[row], end - begin
        if starts[row + 1] - first == size and are_same(data, begin, texts, first, size):
            return True
    return False


@kernel
def moved(data: Bytes, at: int, begin: int, end: int) -> int:
    """Moves bytes to a position before them, or theirs; returns the end of them there."""
    if at != begin:
        for place in range(begin, end):
            data[at + place - begin] = data[place]
    return at + end - begin


@kernel
def past_quoted(
    data: Bytes, begin: int, row_end: int, sign: int, quote: int, base: int, marks: Marks
) -> tuple[int, int, int, Marks]:
    """The end of the text in a cell behind its first quote, and the position behind the last one;
    then as `next_sign`. Doubled quotes become one, in place: bytes behind them move. Without them
    nothing is written.

    Without a last quote in the row, or with a text behind it, the position is that of the row's
    beginning or end, where no cell ends.
    """
    end = begin
    last, base, marks = next_sign(data, base, marks, sign, quote)
    while last < row_end:
        if data[last] == quote:
            after, base, marks = next_sign(data, base, marks, sign, quote)
            if after != last + 1:
                return end, begin - 1, base, marks
            if data[after] != quote:
                end = moved(data, end, begin, last)
                if end != last:
                    data[end] = quote  # Readers of cells stop there.
                return end, after, base, marks
            end = moved(data, end, begin, after)
            begin = after + 1
        last, base, marks = next_sign(data, base, marks, sign, quote)
    return end, begin - 1, base, marks


@kernel
def note_cells(
    data: Bytes,
    line: int,
    ends: Ints,
    sign: int,
    quote: int,
    places: Ints,
    starts: Ints,
    texts: Bytes,
    begins: Grid,
    lasts: Grid,
) -> bool:
    """Stores the cells of a row; False for a fallback row."""
    other, end = sign if quote == NO_QUOTE else quote, ends[line]
    base = at = ends[line - 1] + 1 if line else 0
    marks = sign_marks(data, base, sign, other)
    for cell in range(len(places)):
        begin = at
        last, base, marks = next_sign(data, base, marks, sign, other)
        after = last
        if last == at and data[at] == quote:
            begin = at + 1
            last, base, marks = next_sign(data, base, marks, sign, quote)
            while data[last] == sign:
                last, base, marks = next_sign(data, base, marks, sign, quote)
            if data[last] == quote:
                after, base, marks = next_sign(data, base, marks, sign, quote)
            if after != last + 1 or data[after] == quote:
                marks = sign_marks(data, begin, sign, quote)
                last, after, base, marks = past_quoted(data, begin, end, sign, quote, begin, marks)
        if after != end if cell == len(places) - 1 else data[after] != sign:
            return False
        place = places[cell]
        if place >= 0:
            if not is_absent(data, begin, last, starts, texts):
                begins[place, line] = begin
                lasts[place, line] = last
        elif place == CHECKED and json_scanner.past_number(data, begin) != last:
            if not is_absent(data, begin, last, starts, texts):
                return False
        at = after + 1
    return True


@array_entry
def part(
    data: Bytes,
    ends: Ints,
    sign: int,
    quote: int,
    places: Ints,
    absent_starts: Ints,
    absent: Bytes,
    begins: Grid,
    lasts: Grid,
    is_doubtful: Flags,
) -> None:
    """Stores the positions of the cells of columns in lines with a value, and marks fallback rows.

    `sign` is the delimiter, `quote` the quote or NO_QUOTE; `places` has the column of each cell.
    Lines that are marked already and empty ones are skipped.
    """
    for line in range(len(ends)):
        begin = ends[line - 1] + 1 if line else 0
        if not is_doubtful[line] and begin < ends[line]:
            is_doubtful[line] = not note_cells(
                data, line, ends, sign, quote, places, absent_starts, absent, begins, lasts
            )


@array_entry
def cells_of(
    data: Bytes, begins: Ints, lasts: Ints, has_words: bool, kinds: Bytes, values: Ints
) -> int:
    """The kinds and values of cells, as `json_scanner.values_of`: OTHER if only a cell's rule can
    decide.

    `has_words`: whether there are also truth values and texts.
    """
    found = 0
    for row in range(len(begins)):
        begin, end, kind, bits = begins[row], lasts[row], json_scanner.NONE, 0
        if begin >= 0:
            first = data[begin]
            kind = json_scanner.OTHER
            if first == json_scanner.MINUS or json_scanner.ZERO <= first <= json_scanner.NINE:
                if json_scanner.past_number(data, begin) == end:
                    kind, bits = json_scanner.number_of(data, begin, end)
            elif has_words:
                kind = json_scanner.TEXT
                if (first == 0x74 or first == 0x66) and json_scanner.past_word(data, begin) == end:
                    kind, bits = json_scanner.BOOL, 1 if first == 0x74 else 0
        kinds[row], values[row] = kind, bits
        found |= 1 << kind
    return found
