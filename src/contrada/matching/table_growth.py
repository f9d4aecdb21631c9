"""`TableGrowth`: a hash table of rows that grows in slices, a few rows with each update.

A table of a million entries takes a tenth of a second to be filled, for which no update should
wait. So the larger table is filled beside the smaller one, which is half full then, and takes its
place when all rows are in it, long before the smaller one is three quarters full. Look-ups use the
smaller one until then, alone.

Invariant: the larger table has the rows before `filled`; new rows have higher numbers, and a lower
one that is used again must be `put` there, too.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import Layout

ROWS_AT_ONCE: Final = 512
"""Rows that an update enters into a larger table: some tens of microseconds."""

Fill: TypeAlias = Callable[[int, int, Any], None]
"""Enters the rows from one number to before another into a table."""


class TableGrowth:
    """The larger table of one that grows, if there is one."""

    __slots__ = ("filled", "larger")

    def __init__(self) -> None:
        self.larger: Rows | None = None
        self.filled = 0

    def grown(self, table: Rows, entries: int, live: int, rows: int, fill: Fill) -> Rows:
        """Returns the table with room for one more than `entries`: the larger one if it is filled.

        `live` is the number of entries that a larger table will have, of so many rows.
        """
        if self.larger is None:
            if 2 * (entries + 1) <= table.size:
                return table
            self.larger, self.filled = empty_table(table.layout, live + 1), 0
        is_urgent = 4 * (entries + 1) > 3 * len(table)
        end = rows if is_urgent else min(rows, self.filled + ROWS_AT_ONCE)
        fill(self.filled, end, self.larger.numbers)
        self.filled = end
        if end < rows:
            return table
        larger, self.larger = self.larger, None
        return larger

    def put(self, row: int, fill: Fill) -> None:
        """Enters a row that is used again into a larger table, unless that will get it."""
        if self.larger is not None and row < self.filled:
            fill(row, row + 1, self.larger.numbers)


def empty_table(layout: Layout, count: int) -> Rows:
    """Returns an empty hash table with twice the room for this many entries, at least."""
    return Rows.zeros(layout, 1 << max(4, (2 * count).bit_length()))
