"""`Tally`: counts of events, for statistics; several threads may add to one."""

from collections import Counter


class Tally(Counter[str]):
    """Counts of a few named events in this process.

    An interpreter with one lock loses no count: `update` changes an entry in one step, while
    `tally[name] += 1` takes several, between which another thread may run.
    """

    def add(self, name: str) -> None:
        """Counts one event."""
        self.update((name,))
