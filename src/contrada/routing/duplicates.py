"""`Duplicates`: which notifications, or questions, have come already.

While paths change, a notification may come twice, or go round. Two notifications are the same when
they have the same publisher and identity. So each server takes a notification once, by whatever
path it comes.

Source: PODC 2000 §4 (general peer-to-peer: avoiding cycles).
"""

from contrada.routing.router_limits import RouterLimits


class Duplicates:
    """The notifications that have come last. Invariant: two sets, neither beyond the limit."""

    def __init__(self, limits: RouterLimits = RouterLimits()) -> None:
        self._remembered_max = limits.remembered_max
        self._recent: set[tuple[str, str]] = set()
        self._earlier: set[tuple[str, str]] = set()

    def is_new(self, sender: str, identity: str) -> bool:
        """Whether this has not come yet; from now on it has."""
        key = (sender, identity)
        if key in self._recent or key in self._earlier:
            return False
        if len(self._recent) >= self._remembered_max:
            self._earlier, self._recent = self._recent, set()
        self._recent.add(key)
        return True

    def knows(self, sender: str, identity: str) -> bool:
        """Whether this has come, as far as is remembered."""
        key = (sender, identity)
        return key in self._recent or key in self._earlier

    def __len__(self) -> int:
        return len(self._recent) + len(self._earlier)
