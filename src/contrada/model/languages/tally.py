"""Counts of what happened, for statistics; several threads may add to one."""

from collections import Counter


class Tally(Counter[str]):
    """How often each of a few named things happened in this process.

    Where the interpreter has one lock no count is lost: `update` changes an entry in one step,
    while `tally[name] += 1` is several, between which another thread may run.
    """

    def add(self, name: str) -> None:
        """Count one."""
        self.update((name,))
