"""How long to wait before something that failed is tried again."""

import random
from collections.abc import Callable
from typing import Final

BACKOFF_FIRST_S: Final = 0.1
"""Seconds before what has failed is tried again for the first time; each further wait is twice as
long."""

BACKOFF_S_MAX: Final = 30.0
"""Seconds between two attempts. Beyond it: they follow one another at this distance."""


STEADY_S: Final = 10.0
"""Seconds after which a connection has proved good, so that its loss is no further failure of the
attempt that made it. Beyond it: the waits between attempts begin anew."""


class Backoff:
    """Growing waits with jitter, so that clients of a lost broker do not all return at once."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        """`chance` gives numbers from 0 to 1."""
        self._chance = chance
        self._most_s = BACKOFF_FIRST_S

    def next_s(self) -> float:
        """Seconds until the next attempt: at random between half and all of the wait due."""
        most_s = min(self._most_s, BACKOFF_S_MAX)
        self._most_s = 2 * most_s
        return most_s * (1 + self._chance()) / 2

    def reset(self) -> None:
        """It has succeeded: the waits begin anew."""
        self._most_s = BACKOFF_FIRST_S
