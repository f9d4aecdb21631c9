"""`GroupBridge`: a bridge between a service, such as a broker, and a gossip group.

Notifications that match `to_group` at the service are multicast in the group, and events that match
`to_service` are published at the service, each with its identity. Publisher and id of each are
remembered, so it crosses the bridge once, in either direction. So several bridges between the same
two make no loop.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from contrada.errors import ConnectionFailedError, ContradaError, ServiceClosedError, ServiceError
from contrada.gossip.gossip_messages import event_id
from contrada.gossip.udp.gossip_node import GossipNode
from contrada.model import Notification
from contrada.routing.duplicates import Duplicates
from contrada.service import Service, Subscribable, Subscription
from contrada.service.loop_guards import first_of

_LOG: Final = logging.getLogger(__name__)

TO_GROUP: Final = "to the group"
TO_SERVICE: Final = "to the service"
WENT_OVER: Final = "went over already"


class GroupBridge:
    """Forwards notifications between a service and a group during `run`.

    `counts` has the forwarded ones by direction, repeated ones, and refused ones.
    """

    def __init__(
        self,
        service: Service,
        node: GossipNode,
        *,
        to_group: Subscribable | None = None,
        to_service: Subscribable | None = None,
    ) -> None:
        """Both are open, and remain open. Raises ServiceError where both directions are empty, and
        as `Service.subscribe`.
        """
        if to_group is None and to_service is None:
            raise ServiceError("a bridge needs to_group or to_service")
        self.counts: Counter[str] = Counter()
        self._went_over = Duplicates()
        publish: dict[str, tuple[Subscription[Any], Callable[[Notification], Awaitable[Any]]]] = {}
        if to_group is not None:
            publish[TO_GROUP] = service.subscribe(to_group), node.publish
        if to_service is not None:
            publish[TO_SERVICE] = node.subscribe(to_service), service.publish
        self._ways = publish

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Forwards until one of both ends, or the task is cancelled. Raises
        ConnectionFailedError.

        `opened` is called when the subscriptions are in force.
        """
        async with AsyncExitStack() as stack:
            for subscription, _ in self._ways.values():
                await stack.enter_async_context(subscription)
            opened()
            await first_of(*map(self._carry, self._ways))

    async def _carry(self, way: str) -> None:
        subscription, publish = self._ways[way]
        async for event in subscription:
            if not self._went_over.is_new(*event_id(event)):
                self.counts[WENT_OVER] += 1
                continue
            try:
                await publish(event)
            except (ConnectionFailedError, ServiceClosedError):
                raise
            except ContradaError as error:
                self.counts[f"{way}, refused"] += 1
                facts = {"id": event.envelope.id, "way": way, "reason": error}
                _LOG.warning("%(id)s was not sent %(way)s: %(reason)s", facts)
            else:
                self.counts[way] += 1
