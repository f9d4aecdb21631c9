"""`GroupBridge`: between a service, such as a broker, and a group that gossips.

What matches `to_group` at the service is multicast in the group, what matches `to_service` in the
group is published at the service, each under the identity that it has. What came over the bridge,
in either direction, never comes over it again: it is known by its publisher and its identity. Where
several bridges join the same two, each carries an event once, so it ends there, too.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from contrada.errors import (
    CannotPublishError,
    ConnectionFailedError,
    ServiceClosedError,
    ServiceError,
)
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
    """Carries what it is told to between a service and a group, while `run` does.

    `counts` says how many went each way, which had gone over before, and which were refused.
    """

    def __init__(
        self,
        service: Service,
        node: GossipNode,
        *,
        to_group: Subscribable | None = None,
        to_service: Subscribable | None = None,
    ) -> None:
        """Both are open, and stay their owner's. Raises ServiceError where nothing is to go over,
        and as `Service.subscribe` for what cannot be subscribed.
        """
        if to_group is None and to_service is None:
            raise ServiceError("a bridge carries something: say what goes to the group, or from it")
        self.counts: Counter[str] = Counter()
        self._went_over = Duplicates()
        publish: dict[str, tuple[Subscription[Any], Callable[[Notification], Awaitable[Any]]]] = {}
        if to_group is not None:
            publish[TO_GROUP] = service.subscribe(to_group), node.publish
        if to_service is not None:
            publish[TO_SERVICE] = node.subscribe(to_service), service.publish
        self._ways = publish

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Carry until one of both ends, or this is cancelled; `opened` is called when all is in
        force. Raises ConnectionFailedError.
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
            except (ServiceError, CannotPublishError) as error:
                self.counts[f"{way}, refused"] += 1
                _LOG.warning(
                    "%(id)s does not go %(way)s: %(reason)s",
                    {"id": event.envelope.id, "way": way, "reason": error},
                )
            else:
                self.counts[way] += 1
