"""`DurableRoutes`: the best-effort part of the durable subscriptions of a server.

Each is a subscription of the dispatcher as well, with a task that reads best-effort notifications
from its queue and logs them, at the pace of the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from contrada.delivery.backlog import QueueEntry
from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.delivery.durable_state import DurableState
from contrada.delivery.store import StoreChanges
from contrada.errors import ContradaError
from contrada.model import FilterSet, Notification, Selection
from contrada.model.codec import notification_from_msgpack
from contrada.model.languages.work_budget import Unbounded
from contrada.routing.router_messages import Client, Subscribe
from contrada.service.dispatch_routes import Route
from contrada.service.dispatcher import Dispatcher
from contrada.service.subscription_queue import Passed, SubscriptionQueue

KEPT_AT_ONCE: Final = 1_000
"""Best-effort notifications that are logged for a subscription in one step. Beyond it: the next
step follows when they are on the disk."""

LogBestEffort: TypeAlias = Callable[[str, Sequence[Notification]], Awaitable[None]]
"""Logs notifications for a subscription, and returns when they are on the disk."""


class _Keeping(NamedTuple):
    """The route of a durable subscription, its filters, and the task that logs."""

    route: Route[Passed]
    filters: Selection
    task: asyncio.Task[None]


class _BestEffortQueue(SubscriptionQueue[Passed]):
    """A queue that notifications of higher classes do not wake: the delivery server logs those.

    Some may be queued with others, so its reader drops them.
    """

    __slots__ = ()

    def offer_all(self, entries: Sequence[QueueEntry[Passed]]) -> int:
        """As in the base class. The encodings of a bundle are best effort."""
        for each, _, _ in entries:
            if isinstance(each, bytes) or each.envelope.delivery == BEST_EFFORT:
                return super().offer_all(entries)
        return len(entries)


class DurableRoutes:
    """The routes by the name of the subscription."""

    log: LogBestEffort
    """To be set before the first publication."""

    def __init__(self, state: DurableState, dispatcher: Dispatcher, client: Client) -> None:
        """Makes the routes of a state. `client` is the dispatcher's that owns the subscriptions.

        Raises LimitError, UnknownOperatorError, and leaves no route then.
        """
        self.state, self._dispatcher, self._client = state, dispatcher, client
        self._keeping: dict[str, _Keeping] = {}
        try:
            for name in state.logs.names():
                self._refresh(name)
        except ContradaError:
            for each in list(self._keeping):
                self.forget(each)
            raise

    def follow(self, changes: StoreChanges) -> Iterator[None]:
        """Takes over what another process has changed in the store, before a server begins.

        Yields after each subscription. Raises as the constructor, and is to be dropped then.
        """
        for name in self.state.follow(changes):
            self._refresh(name)
            yield

    def subscribe(self, name: str, filters: Selection) -> Route[Passed]:
        """Subscribes to the filters with a queue. Raises as `Dispatcher.subscribe`."""
        limits = self._dispatcher.limits
        queue = _BestEffortQueue(
            notifications_max=limits.queue_notifications_max, bytes_max=limits.queue_bytes_max
        )
        request = Subscribe(name, FilterSet(filters.filters))
        return self._dispatcher.subscribe(self._client, request, queue)

    def keep(self, name: str, filters: Selection, route: Route[Passed]) -> None:
        """Logs from now on what arrives on a route."""
        task = asyncio.create_task(self._keep(name, route.queue))
        self._keeping[name] = _Keeping(route, filters, task)

    def forget(self, name: str) -> None:
        """Ends the route of a subscription, and its queue."""
        keeping = self._keeping.pop(name, None)
        if keeping is not None:
            with Unbounded():
                self._dispatcher.unsubscribe(keeping.route)
            keeping.task.cancel()

    def _refresh(self, name: str) -> None:
        """Makes the route of a subscription of this server, unless it has that already."""
        keeping, terms = self._keeping.get(name), self.state.logs.terms(name)
        if keeping is not None and (terms is None or terms.filters is not keeping.filters):
            self.forget(name)
            keeping = None
        # One for dead letters has no filters.
        if keeping is None and terms and not FilterSet(terms.filters.filters).is_empty:
            self.keep(name, terms.filters, self.subscribe(name, terms.filters))

    def abandon(self) -> None:
        """Ends the tasks, without a look at the queues: the dispatcher is dropped, too."""
        for keeping in self._keeping.values():
            keeping.task.cancel()
        self._keeping.clear()

    async def finish(self) -> None:
        """Logs what is in the queues, and ends. Nothing is to be published any more."""
        for keeping in self._keeping.values():
            keeping.route.queue.finish()
        tasks = [keeping.task for keeping in self._keeping.values()]
        if tasks:
            await asyncio.wait(tasks)
        self._keeping.clear()

    async def _keep(self, name: str, queue: SubscriptionQueue[Passed]) -> None:
        """Logs best-effort notifications until the queue is finished."""
        while True:
            await queue.arrival()
            batch, _ = queue.take_batch(KEPT_AT_ONCE, self._dispatcher.limits.queue_bytes_max)
            if not batch:
                return
            read = (notification_from_msgpack(it) if isinstance(it, bytes) else it for it in batch)
            kept = [each for each in read if each.envelope.delivery == BEST_EFFORT]
            if kept:
                await self.log(name, kept)
