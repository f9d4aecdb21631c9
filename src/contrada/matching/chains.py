"""Chains of small numbers in `Store.links`: the keys of a filter, the places where it hangs.

A *head* says all: -1 is no number; a number from 0 on is itself, alone; below -1 it is -2 - row,
the row of the first of several. Rows are linked both ways, so that one is taken out without a
search, and used again.
"""

from collections.abc import Iterator
from typing import Final

from contrada.matching.arrays import Arrays
from contrada.matching.tables import BEFORE, NEXT, VALUE

EMPTY: Final = -1
NO_ROW: Final = -1


class Chains:
    """All chains of a generation."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.free_rows: list[int] = []

    def values(self, head: int) -> Iterator[int]:
        """The numbers of a chain."""
        if head >= 0:
            yield head
            return
        row = -2 - head
        links = self._arrays.views["links"]
        while row >= 0:
            yield links[row, VALUE]
            row = links[row, NEXT]

    def of_places(self, places: list[tuple[int, int]]) -> int:
        """The head of a chain of buckets; a row also says which entry of its bucket it is.

        It stands in place of the row before, which such a chain does not need: it goes as a whole.
        """
        if len(places) == 1:
            return places[0][0]
        head = EMPTY
        for bucket, at in places:
            row = self._row()
            links = self._arrays.views["links"]
            links[row, VALUE], links[row, BEFORE], links[row, NEXT] = bucket, at, -2 - head
            head = -2 - row
        return head

    def places(self, head: int, at: int) -> Iterator[tuple[int, int]]:
        """The buckets of a chain of places, each with its entry; of a single one that is `at`."""
        if head >= 0:
            yield head, at
            return
        row = -2 - head
        links = self._arrays.views["links"]
        while row >= 0:
            yield links[row, VALUE], links[row, BEFORE]
            row = links[row, NEXT]

    def put(self, value: int, head: int) -> tuple[int, int]:
        """The head of a chain with one more number, and its row; NO_ROW where it is alone.

        One that was alone gets a row, too: the one after.
        """
        if head == EMPTY:
            return value, NO_ROW
        if head >= 0:
            head = self._before(head, EMPTY)
        head = self._before(value, head)
        return head, -2 - head

    def take(self, value: int, row: int, head: int) -> int:
        """The head of a chain without a number, which stands in this row."""
        if head >= 0:
            assert head == value, f"{value} is not in its chain"
            return EMPTY
        links = self._arrays.views["links"]
        assert links[row, VALUE] == value, f"{value} is not in its row"
        after, before = links[row, NEXT], links[row, BEFORE]
        self.free_rows.append(row)
        if after >= 0:
            links[after, BEFORE] = before
        if before < 0:
            return EMPTY if after < 0 else -2 - after
        links[before, NEXT] = after
        return head

    def drop(self, head: int) -> None:
        """Frees a whole chain."""
        row = -2 - head
        while row >= 0:
            self.free_rows.append(row)
            row = self._arrays.views["links"][row, NEXT]

    def _before(self, value: int, head: int) -> int:
        """The head of a chain with one more row before its first."""
        row = self._row()
        links = self._arrays.views["links"]
        links[row, VALUE], links[row, BEFORE] = value, NO_ROW
        links[row, NEXT] = -2 - head if head < EMPTY else NO_ROW
        if head < EMPTY:
            links[-2 - head, BEFORE] = row
        return -2 - row

    def _row(self) -> int:
        return self.free_rows.pop() if self.free_rows else self._arrays.take("links")
