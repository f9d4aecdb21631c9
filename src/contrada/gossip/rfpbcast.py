"""`Rfpbcast`: probabilistic broadcast, filtered by who receives.

All know all; an event goes to anybody, whatever is wanted, and is handed over where it is. As many
rounds as are expected for all.

Source: EPFL 2503 §6.2.1, figure 6.1.
"""

from collections.abc import Callable

from contrada.gossip.hpmcast import anybody
from contrada.gossip.pmcast import Pmcast
from contrada.gossip.views import KnownContact
from contrada.model import Notification


class Rfpbcast(Pmcast):
    """A participant of rfpbcast. Raises InvalidValueError where there is more than one level."""

    def _counts(self, level: int, event: Notification) -> Callable[[KnownContact], bool]:
        return anybody
