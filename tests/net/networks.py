"""Networks of brokers in this process, and when they are at rest."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from contrada.model import Filter
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.routing.router_messages import (
    Ask,
    Client,
    Effect,
    Event,
    Neighbour,
    Origin,
    Publish,
    Received,
    Send,
)
from contrada.service.dispatcher import Dispatcher
from contrada.service.service_limits import CoreLimits
from tests.asynchronous import until

Links = Sequence[tuple[int, int]]

FIVE: Final = ((0, 1), (1, 2), (2, 3), (1, 4))
"""The links of five brokers: the first and the fourth have two others between them."""


class Network(list[Broker]):
    """Brokers, and the number of messages in flight between them."""

    def __init__(self) -> None:
        super().__init__()
        self._on_its_way = 0

    def join(self, broker: Broker) -> None:
        """One more, which has no links yet."""
        self.watch(broker.dispatcher)
        self.append(broker)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Counts the messages of a server, which has no links yet."""
        router = dispatcher.router
        handle, publish, subscribe = router.handle, router.publish, router.subscribe_each

        def count_sent(effects: list[Effect]) -> None:
            told = [each.message for each in effects if isinstance(each, Send)]
            # At once: another thread may look.
            self._on_its_way += sum(not isinstance(each, Publish | Ask) for each in told)

        def counted(event: Event, now_us: int) -> list[Effect]:
            effects = handle(event, now_us)
            message = event.message if isinstance(event, Received) else None
            if not isinstance(message, Publish):  # That is counted below.
                count_sent(effects)
            if isinstance(event, Received) and isinstance(event.origin, Neighbour):
                self._on_its_way -= not isinstance(message, Publish | Ask)
            return effects

        def counted_publication(origin: Origin, message: Publish, now_us: int) -> list[Effect]:
            effects = publish(origin, message, now_us)
            count_sent(effects)
            return effects

        def counted_subscriptions(
            client: Client, filters: Mapping[str, Filter]
        ) -> list[Effect] | None:
            effects = subscribe(client, filters)
            count_sent(effects or [])
            return effects

        setattr(router, "subscribe_each", counted_subscriptions)  # noqa: B010
        setattr(router, "handle", counted)  # noqa: B010 - a method is no variable
        setattr(router, "publish", counted_publication)  # noqa: B010

    @property
    def is_at_rest(self) -> bool:
        """Whether all subscriptions are known everywhere, without regard to publications.

        Only valid if no link was lost.
        """
        return self._on_its_way == 0


@asynccontextmanager
async def network(
    count: int,
    links: Links,
    limits: BrokerLimits = BrokerLimits(),
    core_limits: CoreLimits | None = None,
    **options: Any,
) -> AsyncIterator[Network]:
    """Brokers with links; of each pair the second makes the link. All links are up."""
    async with AsyncExitStack() as stack:
        brokers = Network()
        for number in range(count):
            wanted = tuple(
                WantedLink(parse_address(brokers[a].address)) for a, b in links if b == number
            )
            brokers.join(
                Broker(
                    port=0,
                    network=Membership(f"b{number}", neighbours=wanted, **options),
                    limits=limits,
                    core_limits=core_limits,
                )
            )
            await stack.enter_async_context(brokers[-1])
        await until(lambda: are_linked(brokers, len(links)))
        yield brokers


def are_linked(brokers: Sequence[Broker], count: int) -> bool:
    """Whether there are so many links, and all know them."""
    return sum(len(each.neighbours) for each in brokers) == 2 * count and all(
        each.dispatcher.router.statistics().servers == len(brokers) for each in brokers
    )
