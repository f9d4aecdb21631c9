"""Whether filters hang where few notifications come by now, or did when they were added.

Before notifications were seen, places are chosen by what the filters ask for; and what comes
changes.
So from time to time a sample of the filters is asked how often their places are visited, and how
often the best places would be. Where that is much less, the generation is worth renewing. What was
seen is halved then, so that old notifications count less and less.
"""

from typing import Final

from contrada.matching.generation import Generation

NOTIFICATIONS_BETWEEN: Final = 8_192
"""Notifications from one sample to the next."""

SAMPLED: Final = 256
"""Filters asked in a sample."""

FILTERS_MIN: Final = 1_024
"""Fewer filters are not worth it."""

WORTH: Final = 1.5
"""A renewal must promise that so many times fewer filters are looked at."""

GAINED: Final = 0.75
"""A renewal that leaves more than this share of the visits gained nothing; the next sample comes
after twice as many notifications then."""

PATIENCE_MAX: Final = 1_024
"""How many times rarer samples become while renewal gains nothing. Beyond it: they become no
rarer."""


VISITS_MIN: Final = 32.0
"""Filters looked at per notification, below which nothing is to be gained."""


class Drift:
    """A sample that is taken piece by piece."""

    def __init__(self) -> None:
        self._next_at = NOTIFICATIONS_BETWEEN
        self._asked = 0
        self._now = self._best = 0.0
        self._hoped = 0.0  # the visits before the last renewal, where its gain is not known yet
        self._patience = 1

    def begin(self, generation: Generation) -> None:
        """Waits for the next sample, of this generation."""
        self._asked, self._now, self._best = 0, 0.0, 0.0
        self._next_at = generation.notifications + NOTIFICATIONS_BETWEEN * self._patience

    def is_worth_renewing(self, generation: Generation, units: int) -> bool:
        """Goes on with the sample by so many filters; whether it is whole and promises enough."""
        filters = generation.arrays.used["filters"]
        if generation.notifications < self._next_at or filters < FILTERS_MIN:
            return False
        step = filters / SAMPLED
        for _ in range(min(units, SAMPLED - self._asked)):
            now, best = generation.visits(int(self._asked * step))
            self._now += now
            self._best += best
            self._asked += 1
        if self._asked < SAMPLED:
            return False
        now, best = self._now * step, self._best * step
        if self._hoped:
            gained = now <= GAINED * self._hoped
            self._patience = 1 if gained else min(2 * self._patience, PATIENCE_MAX)
        is_worth = now >= VISITS_MIN and now >= WORTH * best
        self._hoped = now if is_worth else 0.0
        generation.arrays.fade()
        self.begin(generation)
        return is_worth
