"""`Backoff`: growing waits between attempts, with jitter."""

import random
from collections.abc import Callable
from typing import Final

BACKOFF_FIRST_S: Final = 0.1
"""Seconds before the first retry; each further wait is twice as long."""

BACKOFF_S_MAX: Final = 30.0
"""Seconds between two attempts. Beyond it: the waits do not grow."""


STEADY_S: Final = 10.0
"""Seconds after which a connection counts as good. Beyond it: its loss begins the waits anew.
"""


def jitter(chance: Callable[[], float] = random.random) -> float:
    """A random factor from a half to one; `chance` gives numbers from 0 to 1."""
    return (1 + chance()) / 2


class Backoff:
    """Growing waits with jitter, so that clients of a lost broker do not all return at once."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        """`chance` gives numbers from 0 to 1."""
        self._chance = chance
        self._most_s = BACKOFF_FIRST_S

    def next_s(self) -> float:
        """Seconds until the next attempt: at random between half and all of the present wait."""
        most_s = min(self._most_s, BACKOFF_S_MAX)
        self._most_s = 2 * most_s
        return most_s * jitter(self._chance)

    def reset(self) -> None:
        """Begins anew after a success."""
        self._most_s = BACKOFF_FIRST_S
