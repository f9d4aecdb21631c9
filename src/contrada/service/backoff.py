"""`Backoff`: growing waits between attempts, with jitter."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffLimits:
    """Waits between attempts."""

    first_s: float = 0.1
    """Seconds before the first retry. Beyond it: each wait is twice as long."""
    longest_s: float = 30.0
    """Seconds between two attempts. Beyond it: the waits do not grow."""
    steady_s: float = 10.0
    """Seconds after which a connection is good, and after which an absent neighbour is a warning.
    Beyond it: the loss of the connection begins the waits anew.
    """


USUAL_BACKOFF: Final = BackoffLimits()


def jitter(chance: Callable[[], float] = random.random) -> float:
    """A random factor from a half to one; `chance` gives numbers from 0 to 1."""
    return (1 + chance()) / 2


class Backoff:
    """Growing waits with jitter, so that clients of a lost broker do not all return at once."""

    def __init__(
        self, limits: BackoffLimits = USUAL_BACKOFF, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance` gives numbers from 0 to 1."""
        self._limits, self._chance = limits, chance
        self._most_s = limits.first_s

    def next_s(self) -> float:
        """Seconds until the next attempt: at random between half and all of the present wait."""
        most_s = min(self._most_s, self._limits.longest_s)
        self._most_s = 2 * most_s
        return most_s * jitter(self._chance)

    def reset(self) -> None:
        """Begins anew after a success."""
        self._most_s = self._limits.first_s
