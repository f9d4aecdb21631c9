"""`Residues`: what the filters of some keys leave open, asked of what the filters match.

A rule of another dialect may ask for more than filters can. The index finds it by its filters,
which cover it, and its residue then decides, on the whole notification. One that raises says no;
see `says_yes`.
"""

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any, Generic, TypeVar

from contrada.dialects.rules import says_yes
from contrada.matching.spans import Given
from contrada.model import Envelope, Notification
from contrada.model.algebra.notification import UNSTAMPED, of_parts
from contrada.model.domains.values import is_system_name

K = TypeVar("K", bound=Hashable)


class Residues(Generic[K]):
    """By key, what decides. A key without one is decided by its filters."""

    def __init__(self) -> None:
        self.of: dict[K, Callable[[Notification], bool]] = {}
        """Looked at before each match: mostly empty."""

    def put(self, key: K, holds: Callable[[Notification], bool] | None) -> None:
        """Gives a key its residue, or none."""
        if holds is None:
            self.of.pop(key, None)
        else:
            self.of[key] = holds

    def decided(
        self, keys: list[K], given: Given | bytes, envelope: Envelope = UNSTAMPED
    ) -> list[K]:
        """Those of the keys whose residue holds, too."""
        of = self.of
        if of.keys().isdisjoint(keys):
            return keys
        notification = whole(given, envelope)
        return [key for key in keys if key not in of or says_yes(of[key], notification)]

    def decided_each(
        self, offsets: Any, keys: Any, notification_of: Callable[[int], Notification]
    ) -> tuple[Any, Any]:
        """As `decided`, of several notifications: those keys and their offsets are kept."""
        import numpy as np

        of, listed, bounds = self.of, keys.tolist(), offsets.tolist()
        kept = np.ones(len(listed), dtype=bool)
        for row, (begin, end) in enumerate(pairwise(bounds)):
            asked = [place for place in range(begin, end) if listed[place] in of]
            if asked:
                notification = notification_of(row)
                for place in asked:
                    kept[place] = says_yes(of[listed[place]], notification)
        before = np.concatenate((np.zeros(1, dtype=offsets.dtype), np.cumsum(kept)))
        return before[offsets].astype(offsets.dtype), keys[kept]


def whole(given: Given | bytes, envelope: Envelope = UNSTAMPED) -> Notification:
    """The notification that is given, with all its attributes.

    Raises InvalidNotificationError where some attribute of a mapping is none.
    """
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        return of_parts(given, b"", "", envelope)
    return Notification({name: each for name, each in given.items() if not is_system_name(name)})
