"""`BaseService`: the methods that the embedded service and the client of a broker share.

They hand queries to the service's `QueryClient`, advertisements to its `OfferBoard`, durable
subscriptions to a `DurableReader`, and obvents of a class with a dissemination to the one
registered under its name. Modules that few programs need are loaded at first use.

Source: EPFL 2503 §5.2.2 (a class of obvents says how these are transmitted), §6.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from contrada.errors import ServiceError
from contrada.model import Envelope, Notification, Pattern
from contrada.service.connection_states import ConnectionStates
from contrada.service.interface import ConnectionState, Disseminates, Service, Subscription
from contrada.service.loop_guards import queue_settings_of
from contrada.service.offers import FollowedOffers, HeldOffering, OfferBoard
from contrada.service.query_interface import (
    QUESTION_WAIT_S,
    Advertisements,
    Answers,
    Computed,
    ComputeOptions,
    Description,
    Offering,
    QueryOptions,
    Replier,
    SourceLike,
    SourceOffer,
)
from contrada.service.queues import Queues
from contrada.service.requests import check_options, dissemination_of, notification_of, offer_of
from contrada.service.service_limits import ServiceLimits
from contrada.service.subjects import DurableOptions, Item, Offered, QueueOptions, Subscribable
from contrada.service.subscription_queue import USUAL_QUEUE, QueueSettings

if TYPE_CHECKING:
    from contrada.service.delivery_host import LogHost
    from contrada.service.query.query_client import QueryClient

DISSEMINATIONS_MAX: Final = 64
"""Disseminations that are registered with a service. Beyond it: ServiceError."""


_DURABLE_OPTIONS: Final = frozenset(DurableOptions.__annotations__)
_SUBSCRIBE_OPTIONS: Final = (*QueueOptions.__annotations__, *DurableOptions.__annotations__)


class BaseService(Service):
    """A service with queries, advertisements, durable subscriptions and disseminations."""

    now_us: Callable[[], int]
    _states: ConnectionStates
    _offers: OfferBoard

    def __init__(self, service_limits: ServiceLimits) -> None:
        self.service_limits = service_limits
        self._disseminations: dict[str, Disseminates] = {}

    @abstractmethod
    def _query_client(self) -> "QueryClient":
        """The engine of this service's queries and sources, made at first use."""

    @abstractmethod
    def _new_subscription(
        self, subject: Any, where: Any, queue: QueueSettings
    ) -> Subscription[Any]:
        """A subscription at this service alone. Raises as `subscribe`."""

    @abstractmethod
    def delivery(self) -> "LogHost":
        """The host of durable logs, made at first use. Raises unless the service is open."""

    @abstractmethod
    def name_of_request(self) -> str:
        """A new name for a subscription or a reader, unique in the network."""

    # --- queries and advertisements -----------------------------------------------------------

    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> SourceOffer:
        return self._query_client().responder.offer(description, source, name=name)

    def query(self, subject: Any, where: Any = None, **options: Any) -> Any:
        check_options("query", options, QueryOptions.__annotations__)
        return self._query_client().query(subject, where, **options)

    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        **options: Any,
    ) -> Answers[dict[str, Any]]:
        check_options("compute", options, ComputeOptions.__annotations__)
        return self._query_client().compute(aggregates, subject, where, **options)

    async def request(
        self, item: Mapping[str, Any], *, timeout_s: float = QUESTION_WAIT_S
    ) -> Notification:
        from contrada.service.query.request_reply import send_request

        return await send_request(self, item, timeout_s)

    def reply(self, subject: Subscribable, function: Replier, *, name: str = "") -> SourceOffer:
        from contrada.service.query.request_reply import RequestSource

        source = RequestSource(subject, function, self._query_client().responder.run)
        return self.offer(source.filters.filters, source, name=name)

    def advertise(self, offered: Offered) -> Offering:
        return HeldOffering(self._offers, offer_of(offered))

    def advertisements(self) -> Advertisements:
        return FollowedOffers(self._offers)

    # --- subscriptions ------------------------------------------------------------------------

    def subscribe(self, subject: Any = None, where: Any = None, **options: Any) -> Any:
        queue = USUAL_QUEUE
        if options:
            check_options("subscribe", options, _SUBSCRIBE_OPTIONS)
            queue = queue_settings_of(options)
        chosen: str | None = None  # the dissemination that a class of obvents chose
        if isinstance(subject, type) and hasattr(subject, "chosen_dissemination"):
            chosen = getattr(subject, "dissemination", None)
        durable = {name: options[name] for name in options if name in _DURABLE_OPTIONS}
        if durable:
            if chosen is not None:
                reason = f"has the dissemination {chosen!r}, which keeps no log for readers"
                raise ServiceError(f"{subject.__qualname__} {reason}: subscribe without options")
            from contrada.service.durable_reader import durable_reader_of

            return durable_reader_of(self, subject, where, queue, durable)
        if chosen is not None:
            self._dissemination(chosen)
        if not self._disseminations or isinstance(subject, Pattern):
            return self._new_subscription(subject, where, queue)
        from contrada.service.merged_subscription import merged_subscription

        ways = self._disseminations.values()
        return merged_subscription(ways, subject, where, queue, self._new_subscription)

    @property
    def queues(self) -> Queues:
        """The queues of durable subscriptions here; see `Service.queues`."""
        return Queues(self.delivery)

    # --- disseminations -----------------------------------------------------------------------

    def register_dissemination(self, name: str, dissemination: Disseminates) -> None:
        if not name:
            raise ServiceError(f"name = {name!r}: expected the name of a dissemination")
        if name in self._disseminations:
            raise ServiceError(f"the dissemination {name!r} is registered already")
        count = len(self._disseminations)
        if count >= DISSEMINATIONS_MAX:
            raise ServiceError(f"{count} disseminations are registered, and no more can be")
        self._disseminations[name] = dissemination

    def _dissemination(self, name: str) -> Disseminates:
        found = self._disseminations.get(name)
        if found is None:
            raise ServiceError(
                f"the dissemination {name!r} is not registered with this service: "
                f"service.register_dissemination({name!r}, node)"
            )
        return found

    async def _publish_elsewhere(
        self, name: str, notification: Notification, delivery: str | None
    ) -> Envelope:
        """Publishes on a dissemination. Raises ServiceError, also for a class above best effort."""
        if delivery is not None:
            reason = f"the dissemination {name!r} publishes at best effort only"
            raise ServiceError(f"delivery = {delivery!r}: {reason}")
        return await self._dissemination(name).publish(notification)

    # --- the connection -----------------------------------------------------------------------

    @property
    def connection(self) -> ConnectionState:
        return self._states.current

    def connection_states(self) -> AsyncIterator[ConnectionState]:
        return self._states.follow()


class BatchSorter:
    """Makes notifications of the items of a batch; publishes obvents with a dissemination there.

    All other items keep their order.
    """

    def __init__(
        self,
        publish: Callable[[str, Notification, str | None], Any],
        make: Callable[[Item], Any] = notification_of,
    ) -> None:
        self._publish, self._make = publish, make
        self._elsewhere: dict[int, str] = {}

    def made(self, item: Item) -> Any:
        """What is made of an item. Raises as `notification_of`."""
        name = None if type(item) is dict else dissemination_of(item)  # A dict as mostly.
        if name is None:
            return self._make(item)
        notification = notification_of(item)
        self._elsewhere[id(notification)] = name
        return notification

    async def own(self, batch: Sequence[Any], delivery: str | None) -> Sequence[Any]:
        """Those of a batch that are the service's own; the others are published."""
        if not self._elsewhere:
            return batch
        rest = []
        for each in batch:
            name = self._elsewhere.pop(id(each), None)
            if name is None:
                rest.append(each)
            else:
                await self._publish(name, each, delivery)
        return rest
