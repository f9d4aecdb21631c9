"""`Duplicates`: the recent notifications, or queries, of a server.

While paths change, a notification may arrive twice, or loop. Two notifications are the same if they
have the same publisher and identity. Each server accepts one copy, whatever its path.

Source: PODC 2000 §4 (general peer-to-peer: avoiding cycles).
"""

from contrada.routing.router_limits import RouterLimits


class Duplicates:
    """The most recent identities. Invariant: two sets, neither larger than the limit."""

    def __init__(self, limits: RouterLimits = RouterLimits()) -> None:
        self._remembered_max = limits.remembered_max
        self._recent: set[tuple[str, str]] = set()
        self._earlier: set[tuple[str, str]] = set()

    def is_new(self, sender: str, identity: str) -> bool:
        """Whether this is the first copy; records it."""
        key = (sender, identity)
        if key in self._recent or key in self._earlier:
            return False
        if len(self._recent) >= self._remembered_max:
            self._earlier, self._recent = self._recent, set()
        self._recent.add(key)
        return True

    def knows(self, sender: str, identity: str) -> bool:
        """Whether a copy is remembered."""
        key = (sender, identity)
        return key in self._recent or key in self._earlier
