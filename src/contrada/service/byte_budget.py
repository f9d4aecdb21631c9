"""`Budget`: a bound of the bytes in all queues of one owner.

A queue without room here waits as for room of its own, see `SubscriptionQueue`. When there is ample
room again, all waiting queues are woken.

Invariant: `held_bytes` is the sum over the queues, and at most `bytes_max`.
"""

from collections.abc import Callable, Hashable


class Budget:
    """A bound that several queues share; not for several threads."""

    def __init__(self, bytes_max: int, on_change: Callable[[int], None] | None = None) -> None:
        """`on_change` is called with each change of the held bytes."""
        self.held_bytes = 0
        self._bytes_max, self._on_change = bytes_max, on_change
        self._hindered: dict[Hashable, Callable[[], None]] = {}

    def admits(self, size: int, queue: Hashable, relieve: Callable[[], None]) -> bool:
        """Whether there is room now; if not, `relieve` is called once there is ample room."""
        if self.held_bytes + size <= self._bytes_max:
            return True
        self._hindered[queue] = relieve
        return False

    def change(self, size: int) -> None:
        """Adds bytes to the sum, or subtracts them if negative."""
        self.held_bytes += size
        if self._on_change is not None:
            self._on_change(size)
        # As in a queue: publishers wake for an eighth of the room, not for each single entry.
        if size < 0 and self._hindered and self.held_bytes * 8 <= self._bytes_max * 7:
            hindered, self._hindered = self._hindered, {}
            for relieve in hindered.values():
                relieve()
