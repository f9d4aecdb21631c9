"""Filters that hang where many notifications come by are hung elsewhere, a few at a time.

Where a filter hangs is chosen when it is added, by what is known then; and what comes changes. So a
match that had to look at many filters pays for hanging some of them anew, from the bucket that took
it the longest. It is tried again when so much was looked at that it takes a small part of the time
of matching; where it did not help, twice as many matches pass each time. What was seen is halved
now and then, so that old notifications count less and less.

Invariant: matching is exact all the time, and a match pays for `REHUNG_AT_ONCE` filters at most.
"""

from typing import Final

from contrada.matching.generation import Generation
from contrada.matching.tables import LOOKED, MATCHED

LOOKED_MIN: Final = 64
"""Filters looked at by a match, below which nothing is to be gained."""

MATCHES_BETWEEN: Final = 16
"""Matches after one that looked at few, or came early, until another is asked."""

SEEN_MIN: Final = 512
"""Notifications that must be seen before: else what they tell is chance, and those that come first
would pay for most of it."""

LOOKED_BETWEEN: Final = 2**16
"""Filters looked at, about, from one attempt to the next: attempts take a small part of the time of
matching. The fewer a match looks at, the rarer they are."""

REHUNG_AT_ONCE: Final = 2
"""Filters thought of by one match: some tens of microseconds each."""

PATIENCE_MAX: Final = 4_096
"""Matches from one attempt to hang filters elsewhere to the next, while none helps. Beyond it:
attempts become no rarer."""

FADING_AFTER: Final = 8_192
"""Notifications after which what was seen is halved; more where that takes long."""

FADED_EACH: Final = 8
"""Buckets that are faded per notification between, at most."""


class Drift:
    """When to try it next: after the match with the number `due`."""

    def __init__(self) -> None:
        self.due = 0
        self._patience = 1
        self._cursor = 0

    def mend(self, generation: Generation) -> None:
        """To be called after a match that is due; hangs some filters anew if it looked at many."""
        counters = generation.arrays.views["counters"]
        if counters[LOOKED] < LOOKED_MIN or generation.notifications < SEEN_MIN:
            self.due = counters[MATCHED] + MATCHES_BETWEEN
            return
        buckets = generation.arrays.used["buckets"]
        if generation.notifications > max(2 * FADING_AFTER, buckets // FADED_EACH):
            generation.arrays.fade()
        moved = self._rehung(generation)
        self._patience = 1 if moved else min(2 * self._patience, PATIENCE_MAX)
        self.due = counters[MATCHED] + max(self._patience, LOOKED_BETWEEN // counters[LOOKED])

    def _rehung(self, generation: Generation) -> int:
        """How many filters of the bucket that took the longest hang elsewhere now."""
        bucket = generation.hanging.most_looked_through()
        if bucket < 0:
            return 0
        moved = 0
        for _ in range(REHUNG_AT_ONCE):
            moved += generation.hanging.rehang(bucket, self._cursor)
            self._cursor += 1
        return moved
