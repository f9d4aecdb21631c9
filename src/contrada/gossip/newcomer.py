"""`Newcomer`: whom a newcomer asks for its place in a group.

Source: EPFL 2503 §6.4.2 (joining).
"""

from collections.abc import Sequence
from typing import Final

JOIN_WAIT_ROUNDS: Final = 3
"""Rounds after which a newcomer asks the next that it knows of."""

JOIN_REDIRECTS_MAX: Final = 256
"""Contacts that a newcomer was pointed to and has not asked yet. Beyond it: the first are asked."""


class Newcomer:
    """Whom a newcomer asks: the nearer participants that it was pointed to, then its given places
    in turn.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._next: list[str] = []
        self._wait = 0
        self._places = list(places)
        self._turn = 0

    def point_to(self, places: Sequence[str]) -> None:
        """These are nearer, and are asked in the next round."""
        self._next = [*places, *self._next][:JOIN_REDIRECTS_MAX]
        self._wait = 0

    def is_due(self) -> bool:
        """A round passes: whether somebody is to be asked in it."""
        self._wait -= 1
        return self._wait < 0 and bool(self._places)

    def whom(self) -> str:
        """The place of who is asked now."""
        self._wait = JOIN_WAIT_ROUNDS
        if self._next:
            return self._next.pop(0)
        self._turn += 1
        return self._places[(self._turn - 1) % len(self._places)]
