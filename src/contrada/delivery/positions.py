"""`Positions`: a set of positions in a log, as few intervals."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
"""Positions from the first to before the second."""


class Positions:
    """A set of positions that grows. Invariant: intervals are in order, none empty, none touch.

    Cost: adding costs a search and, in the middle, moving the intervals behind.
    """

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in intervals:
            self.add(first, end)

    def add(self, first: int, end: int) -> int:
        """Adds the positions from one to before another. Returns the number of new ones."""
        if end <= first:
            return 0
        low = bisect_left(self._ends, first)  # the first interval that touches, or lies behind
        high = bisect_right(self._firsts, end)  # behind the last one that touches
        there = sum(self._ends[low:high]) - sum(self._firsts[low:high])
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]
        return end - first - there

    def forget(self, before: int) -> None:
        """Removes the positions before one."""
        removed = bisect_right(self._ends, before)
        del self._firsts[:removed], self._ends[:removed]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], before)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._firsts, position) - 1
        return at >= 0 and position < self._ends[at]

    def __iter__(self) -> Iterator[Interval]:
        return iter(zip(self._firsts, self._ends, strict=True))

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._firsts)

    def first_without(self, position: int) -> int:
        """Returns the lowest position from this one on that is not in the set."""
        at = bisect_right(self._firsts, position) - 1
        return self._ends[at] if at >= 0 and position < self._ends[at] else position
