"""`EmbeddedBroker`: an embedded service that is a server of a network of brokers.

It uses the dispatcher of its `Server`, which has links like a broker: its own publications and
subscriptions are routed like those of a broker's clients. It has no address, so it makes all its
links itself. Patterns use its clock and the slack of the network.

Source: PODC 2000 §2, §4 (a client's access point is a server like any other).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contrada.delivery.store import Store
from contrada.errors import ConnectionFailedError, ServiceClosedError, ServiceError, StoreError
from contrada.model import Filter, Notification
from contrada.model.codec import notification_to_read
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.ingress_queue import UndecidedNotification
from contrada.net.broker.neighbours import Membership, Server
from contrada.net.wire.address import SCHEME_TLS, shown_addresses
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, encode_content
from contrada.patterns import Match
from contrada.service import ConnectionState, ServiceStatistics, subscription_queue
from contrada.service.delivery_host import NO_STORE
from contrada.service.embedded_service import EmbeddedService, EmbeddedSubscription, LocalQueue
from contrada.service.security.signatures import Signer
from contrada.service.service_limits import CoreLimits

if TYPE_CHECKING:
    from contrada.service.delivery_host import DeliveryHost

_FITS_BYTES: Final = CONTENT_BYTES_MAX // 2
"""A notification of fewer bytes fits into a frame with any envelope."""


class EmbeddedBroker(EmbeddedService):
    """An embedded service with neighbours."""

    def __init__(
        self,
        network: Membership,
        *,
        publisher: str | Signer | None = None,
        publish_wait_s: float = subscription_queue.PUBLISH_WAIT_S,
        store: str | Path | Store | None = None,
        on_connection: Callable[[ConnectionState], object] | None = None,
        tls: ssl.SSLContext | None = None,
        limits: BrokerLimits = BrokerLimits(),
        core_limits: CoreLimits | None = None,
    ) -> None:
        """`network` needs a name and neighbours. Raises InvalidValueError, ServiceError."""
        self._addresses = [each.address for each in network.neighbours]
        if tls is not None and not any(each.is_tls for each in self._addresses):
            reason = f"tls is for {SCHEME_TLS}://, and this is {shown_addresses(self._addresses)}"
            raise ServiceError(reason)
        self._server = Server(
            network,
            store,
            client_context=tls,
            limits=limits,
            core_limits=core_limits,
            no_store=NO_STORE,
            tell=self._tell,
        )
        super().__init__(
            publisher=publisher,
            publish_wait_s=publish_wait_s,
            store=store,
            on_connection=on_connection,
            dispatcher=self._server.dispatcher,
            limits=core_limits,
        )
        self._stamped = self._fitting
        self._opening = asyncio.Lock()
        self._links: dict[str, ConnectionState] = {}
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Starts; returns when all links were tried. Raises ConnectionFailedError, StoreError."""
        async with self._opening:
            is_first = self._state == "new"
            await super().open()
            if is_first:
                try:
                    await self._join()
                except BaseException as error:
                    if isinstance(error, ConnectionFailedError):
                        self._states.change(ConnectionState("closed", error.address, error.reason))
                    await self.aclose()
                    raise

    def _begin(self) -> None:
        self._server.begin()

    async def _join(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._server.limits.join_wait_s):
                while self._state == "open" and len(self._links) < len(self._addresses):
                    self._changed.clear()
                    await self._changed.wait()
        if self._state != "open":
            raise ServiceClosedError("the service was closed while it was opened")
        if not any(each.state == "connected" for each in self._links.values()):
            shown = shown_addresses(self._addresses)
            reasons = {address: each.reason for address, each in self._links.items()}
            late = f"it sent nothing within join_wait_s = {self._server.limits.join_wait_s:g} s"
            why = [(str(each), reasons.get(str(each)) or late) for each in self._addresses]
            if len(why) == 1:
                raise ConnectionFailedError(*why[0])
            every = "; ".join(f"{address}: {reason}" for address, reason in why)
            raise ConnectionFailedError(shown, f"no neighbour answers: {every}")

    def _tell(self, state: ConnectionState) -> None:
        self._links[state.address] = state
        self._states.change(state)
        self._changed.set()

    async def _end_all(self) -> None:
        self._changed.set()
        for subscription in list(self.subscriptions):
            subscription.end()
        self._offers.end()
        host = self._opened_host()
        try:
            if host is not None:
                host.end_readers()
                with suppress(StoreError):  # Closing the server raises it.
                    await host.committed()
            await self._server.disconnect_all()
        finally:  # Also when the caller is cancelled.
            self._timekeeper.cancel()
            await self._timekeeper.ended()
            await self._server.close()

    def _make_host(self) -> "DeliveryHost":
        return self._server.logs.host

    def _opened_host(self) -> "DeliveryHost | None":
        return self._server.logs.used_host

    async def _publish_promised(self, run: Sequence[Notification]) -> Sequence[Notification]:
        self._server.logs.check(run[0].envelope.delivery)
        return await super()._publish_promised(run)

    def name_of_request(self) -> str:
        return f"{self._server.instance}-{super().name_of_request()}"

    def _fitting(self, notifications: Iterable[Notification], now_us: int) -> list[Notification]:
        """Returns the stamped notifications. Raises LimitError where no frame can hold one."""
        stamped = self._stamp.stamped(notifications, now_us)
        for each in stamped:
            if subscription_queue.size_of(each) > _FITS_BYTES:
                encode_content(each)
        return stamped

    def _keep_time(self, due_us: int) -> None:
        self._timekeeper.wake(due_us)

    def queue_of(
        self, subscription: EmbeddedSubscription[Any], settings: subscription_queue.QueueSettings
    ) -> subscription_queue.SubscriptionQueue[Any]:
        return _DecidingQueue(self, subscription, settings)

    def statistics(self) -> ServiceStatistics:
        found = super().statistics()
        sent, waiting = self._server.links()
        return replace(found, link_sent=sent, link_waiting=waiting)


class _DecidingQueue(LocalQueue):
    """The queue of a subscription that decodes and decides the notifications of links."""

    __slots__ = ("_subscription",)

    def __init__(
        self,
        service: EmbeddedBroker,
        subscription: EmbeddedSubscription[Any],
        settings: subscription_queue.QueueSettings,
    ) -> None:
        super().__init__(service.now_us, settings, subscription.cut_off, service.service_limits)
        self._subscription = subscription

    def take(self) -> tuple[Any, int] | None:
        """Returns the first matching entry, and its size."""
        while (taken := super().take()) is not None:
            item, size = taken
            if type(item) is bytes:
                return notification_to_read(item), size
            if self._is_asked(item):
                return item, size
        return None

    def _is_asked(self, item: Notification | Match[Any]) -> bool:
        """Returns whether an item matches; decides it where the router could not afford to."""
        if isinstance(item, Notification):
            return type(item.packed) is not UndecidedNotification or self._subscription.is_asked(
                item
            )
        pattern, found = self._subscription.pattern, item.notifications
        assert pattern is not None, "only patterns have matches"
        return all(type(each.packed) is not UndecidedNotification for each in found) or all(
            map(Filter.matches, pattern.filters, found)
        )
