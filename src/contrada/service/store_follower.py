"""`StoreFollower`: what a standby knows of the store that its leader writes.

While it waits, it reads what the leader has changed: the durable subscriptions are known then, and
their indexes built. So what remains at its start is what changed since the last look. It writes
nothing.
"""

import asyncio
import logging
from typing import Final

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.durable_state import DurableState
from contrada.model.languages.work_budget import Uncollected
from contrada.routing.router_messages import Client
from contrada.service.dispatcher import Dispatcher
from contrada.service.durable_routes import DurableRoutes
from contrada.service.loop_guards import in_daemon
from contrada.service.stores.postgres_store import PostgresStore

CHANGES_PER_TURN: Final = 50
"""Changed subscriptions that a standby takes over in one turn of its event loop. Beyond it: in the
next one."""

PAUSE_FACTOR: Final = 2
"""A look at the store is followed by a pause of so many times its duration, which bounds the load
of the database. Larger: more is left for the start."""

_LOG: Final = logging.getLogger(__name__)


class StoreFollower:
    """A store that is followed, its durable subscriptions and their routes; for one event loop."""

    def __init__(
        self, name: str, url: str, dispatcher: Dispatcher, client: Client, limits: DeliveryLimits
    ) -> None:
        """`client`: see `DurableRoutes`. Raises StoreError for an invalid URL."""
        self._store = PostgresStore(url, opens=False)
        self.routes = DurableRoutes(DurableState(name, self._store, limits), dispatcher, client)
        self._due_s = 0.0

    async def follow(self) -> None:
        """Takes over what has changed, unless the last look was just now.

        Raises StoreError, and may be called again; otherwise as `DurableRoutes.follow`.
        """
        clock = asyncio.get_running_loop().time
        if (begun_s := clock()) < self._due_s:
            return
        changes = await in_daemon(self._store.follow)
        for number, _ in enumerate(self.routes.follow(changes), 1):
            if number % CHANGES_PER_TURN == 0:
                await asyncio.sleep(0)
        if not self._due_s:
            count = len(self.routes.state.table)
            _LOG.warning("standby: knows %(count)d durable subscriptions", {"count": count})
        self._due_s = clock() + PAUSE_FACTOR * (clock() - begun_s)

    def open(self) -> PostgresStore:
        """Opens the store to write, and takes over the last changes. Raises as `follow`."""
        changes = self._store.open()
        try:
            with Uncollected():
                for _ in self.routes.follow(changes):
                    pass
        except BaseException:
            self._store.close()
            raise
        return self._store

    def close(self) -> None:
        """Ends the waiting of a standby that does not start."""
        self.routes.abandon()
        self._store.close()
