"""`BrokerLogs`: the durable subscriptions of a broker, and its part in reliable delivery.

It hosts the `DeliveryServer` as the embedded service does, with a store or in memory. A
`DurableSession` serves the requests of a client, and a `ReliableLinkChannel` carries the messages
of a neighbour.

A subscription in memory outlives the connection of its last reader by `reader_wait_s`, so that the
reader finds it again after a reconnect.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from contrada.delivery.delivery_class import delivery_class
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import DeliveryMessage
from contrada.delivery.owned_logs import Since
from contrada.delivery.owned_queues import longest_queues, queue_page
from contrada.delivery.queue_messages import QueueState
from contrada.delivery.store import Store
from contrada.errors import CannotPublishError, DeliveryError, StoreError
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.user_usage import UserUsage
from contrada.routing.router_messages import Neighbour
from contrada.service.delivery_host import DeliveryHost
from contrada.service.dispatcher import Dispatcher
from contrada.service.durable_reader import IN_MEMORY
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.loop_guards import in_daemon
from contrada.service.stores.store_location import open_sound, use_sound
from contrada.service.stores.table_store import TableStore

if TYPE_CHECKING:
    from contrada.service.store_follower import StoreFollower

ALONE: Final = "broker"
"""The name of a nameless broker in its store."""

_NO_SEQUENCER: Final = (
    "no broker of this network is named to give the order of sequences; name one, the same at all, "
    "by --sequencer, or `sequencer=`"
)


SendToNeighbour: TypeAlias = Callable[[DeliveryMessage], None]
YieldReader: TypeAlias = Callable[[str], None]
"""Gives up a reader, by its label, that is on another connection now."""


class BrokerLogs:
    """The delivery state of one broker, in use from `open` to `aclose`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        name: str,
        sequencer: str,
        store: str | Path | Store | None,
        no_store: str,
        limits: BrokerLimits = BrokerLimits(),
        delivery_limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        """`store`: a location, opened and closed here, or an open store; else see `no_store`."""
        self._dispatcher = dispatcher
        self._name, self._sequencer, self._place = name, sequencer, store
        self._no_store, self._limits = no_store, limits
        self._delivery_limits = delivery_limits
        self.client = dispatcher.client()
        self._clock = EnvelopeFactory(None).now_us
        self.used_host: DeliveryHost | None = None
        """The delivery host, once it was used."""
        self._follower: StoreFollower | None = None
        self._expiry: dict[str, tuple[asyncio.TimerHandle, UserUsage | None]] = {}
        self._publishers: dict[str, tuple[str, object]] = {}
        """The access point and the connection of each publisher name."""
        self._readers: dict[str, YieldReader] = {}
        self._channels: dict[Neighbour, SendToNeighbour] = {}
        self._unsynchronized: dict[Neighbour, None] = {}
        self._progress = asyncio.Event()
        self.held_back = 0
        """Messages to neighbours that were dropped for lack of room, and are sent again."""

    async def follow(self) -> None:
        """Follows a store in PostgreSQL that another process writes, before `open`.

        Raises StoreError, and may be called again; and as a server at its start.
        """
        if self._follower is None:
            from contrada.service.store_follower import StoreFollower  # Its library is an extra.

            assert isinstance(self._place, str), "it is a URL"
            self._follower = StoreFollower(
                *(self._name or ALONE, self._place, self._dispatcher, self.client),
                self._delivery_limits,
            )
        await self._follower.follow()

    def open(self) -> None:
        """Opens an existing store; a file is made at first use. Raises StoreError, ServiceError."""
        place = self._place
        is_url = isinstance(place, str) and "://" in place
        if not isinstance(place, str | Path | None) or is_url or (place and Path(place).exists()):
            self._make_host()

    def _make_host(self) -> DeliveryHost:
        follower = self._follower

        def made(store: Store | None) -> DeliveryHost:
            return DeliveryHost(
                self._name or ALONE,
                store,
                self._clock,
                self._dispatcher,
                self.client,
                sequencer=self._sequencer,
                no_store=self._no_store,
                tell=self._send,
                wait_for_network=self.wait_for_network,
                limits=self._delivery_limits,
                routes=None if follower is None else follower.routes,
            )

        place = self._place
        if follower is not None:
            host = use_sound(follower.open(), made)
        else:
            host = open_sound(place, made) if isinstance(place, str | Path) else made(place)
        self.used_host, self._follower = host, None
        for neighbour in self._channels:
            host.link_up(neighbour)
        host.change_routes(self._dispatcher.router.routes())
        return host

    @property
    def host(self) -> DeliveryHost:
        """The delivery host, made at first use. Raises StoreError."""
        return self.used_host or self._make_host()

    async def aclose(self) -> None:
        """Writes pending records, and closes the store. Raises StoreError.

        Also after `store_wait_s`: no pending record was confirmed.
        """
        for timer, _ in self._expiry.values():
            timer.cancel()
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        host, self.used_host = self.used_host, None
        if host is None:
            return
        wait_s = self._limits.store_wait_s
        try:
            async with asyncio.timeout(wait_s) as limit:
                try:
                    await host.aclose()
                finally:
                    if isinstance(self._place, str | Path) and not limit.expired():
                        await in_daemon(host.store.close)  # type: ignore[union-attr]
        except TimeoutError:
            late = f"the store did not take the last records within store_wait_s = {wait_s:g}"
            raise StoreError(f"{late}; none of them was confirmed") from None

    def counts(self) -> dict[str, int]:
        """Returns the counts of durable delivery by name."""
        if self.used_host is None:
            return {}
        found = self.used_host.server.statistics()
        counts = {each.name: getattr(found, each.name) for each in fields(found)}
        del counts["logs"]
        store = self.used_host.store
        faults = len(store.faults) if isinstance(store, TableStore) else 0
        return counts | {"held back": self.held_back, "store faults": faults}

    def queues(self, count: int) -> list[QueueState]:
        """Returns the queues of this broker with most unacknowledged records.

        Without those in memory, whose names are secret: who knows one may read and end it.
        """
        host = self.used_host
        return [] if host is None else longest_queues(host.server.logs, count, _is_shown)

    def first_queues(self) -> Generator[None, None, tuple[int, list[QueueState]]]:
        """Returns the number of queues but those in memory, and the first by name, in turns."""
        if self.used_host is None:
            return 0, []
        logs = self.used_host.server.logs
        named = {*filter(_is_shown, logs.names())}
        page = yield from queue_page(logs, "", named.__contains__)
        return len(named), page.queues

    def store_counts(self) -> dict[str, int]:
        """Returns the bytes of the store by name, where it tells them. Cost: `TableStore.space`."""
        store = None if self.used_host is None else self.used_host.store
        space = store.space if isinstance(store, TableStore) else None
        if space is None:
            return {}
        counts = {
            "used bytes": space.used_bytes,
            "free bytes": space.free_bytes,
            "disk free bytes": space.disk_free_bytes,
        }
        return {name: size for name, size in counts.items() if size is not None}

    def store_failures(self) -> dict[str, int]:
        """Returns the failed writes of the store since the last success, by reason."""
        return {} if self.used_host is None else dict(self.used_host.groups.failures)

    def stuck_logs(self, count: int) -> dict[str, int]:
        """Returns the first logs that cannot be read, each with the reason."""
        stuck = {} if self.used_host is None else self.used_host.server.logs.stuck
        return {f"{name!r}: {stuck[name]}": 1 for name in islice(stuck, count)}

    def standing_since(self, number: int, count: int) -> Since:
        """Returns the durable subscriptions of a range of numbers; see `OwnedLogs.since`."""
        if self.used_host is None:
            return range(0), iter(())
        return self.used_host.server.logs.subscriptions_since(number, count)

    def check(self, delivery: str) -> None:
        """Raises CannotPublishError for a delivery class that this broker cannot provide."""
        if delivery_class(delivery).sequence and self._name and not self._sequencer:
            raise CannotPublishError("", reason=f"{delivery!r}: {_NO_SEQUENCER}")

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, send: SendToNeighbour) -> None:
        """Adds the link to a neighbour, which the router knows already."""
        self._channels[neighbour] = send
        self._unsynchronized[neighbour] = None
        if self.used_host is not None:
            self.used_host.link_up(neighbour)
        self.update_routes()

    def link_down(self, neighbour: Neighbour, send: SendToNeighbour) -> None:
        """Removes a link. Twice is once."""
        if self._channels.get(neighbour) == send:
            del self._channels[neighbour]
            self.synchronized(neighbour)
            if self.used_host is not None:
                self.used_host.link_down(neighbour)
            self.update_routes()

    def synchronized(self, neighbour: Neighbour) -> None:
        """A neighbour has announced its durable subscriptions, or is gone."""
        self._unsynchronized.pop(neighbour, None)
        self._progress.set()

    async def wait_for_network(self) -> None:
        """Waits once for the durable subscriptions of new neighbours. Raises StoreError."""
        assert self.host is not None, (
            "a host announces this server, so neighbours announce themselves"
        )
        try:
            async with asyncio.timeout(self._limits.announcement_wait_s):
                while self._unsynchronized:
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            self._unsynchronized.clear()

    @property
    def due(self) -> int:
        """Shipments that other servers have not acknowledged, though there is a route to them."""
        return 0 if self.used_host is None else self.used_host.server.unacknowledged

    def update_routes(self) -> None:
        """Takes over the present routes of the router."""
        if self.used_host is not None:
            self.used_host.change_routes(self._dispatcher.router.routes())

    def receive(self, neighbour: Neighbour, message: DeliveryMessage) -> None:
        """Handles a neighbour's message. Raises StoreError where the store cannot be opened."""
        self.host.receive(neighbour, message)

    def _send(self, to: Neighbour, message: DeliveryMessage) -> None:
        send = self._channels.get(to)
        if send is not None:
            send(message)

    # --- publishers ---------------------------------------------------------------------------

    def admit(self, publisher: str, instance: str, connection: object) -> None:
        """Registers a publisher. Raises DeliveryError: two would assign the same numbers."""
        user = self._publishers.get(publisher)
        if user is not None and user[0] != instance:
            other = f"another access point that is connected publishes as {publisher!r}"
            raise DeliveryError(f"{other}; take another name")
        if user is None and len(self._publishers) >= self._limits.connected_publishers_max:
            most = self._limits.connected_publishers_max
            raise DeliveryError(f"connected_publishers_max = {most} publishers are connected")
        self._publishers[publisher] = instance, connection

    def dismiss(self, publisher: str, connection: object) -> None:
        """Unregisters a publisher name of a connection that has ended."""
        user = self._publishers.get(publisher)
        if user is not None and user[1] is connection:
            del self._publishers[publisher]

    # --- readers ------------------------------------------------------------------------------

    def claim(self, label: str, give_up: YieldReader) -> None:
        """Registers a reader on this connection; its records on another one are delivered again."""
        before = self._readers.get(label)
        if before is not None and before != give_up:
            before(label)
        self._readers[label] = give_up

    def disclaim(self, label: str, give_up: YieldReader) -> None:
        """Unregisters a reader of this connection."""
        if self._readers.get(label) == give_up:
            del self._readers[label]

    # --- subscriptions in memory --------------------------------------------------------------

    def start_expiry(self, name: str, usage: UserUsage | None = None) -> None:
        """Starts the time-out of a subscription in memory after its reader was cut off.

        It counts for its user until it ends, or is read again.
        """
        if self.used_host is not None:
            loop = asyncio.get_running_loop()
            self.cancel_expiry(name)
            timer = loop.call_later(self._limits.reader_wait_s, self._expire, name)
            self._expiry[name] = timer, usage
            if usage is not None:
                usage.unread.add(name)

    def cancel_expiry(self, name: str) -> None:
        """Stops this time-out."""
        timer, usage = self._expiry.pop(name, (None, None))
        if timer is not None:
            timer.cancel()
        if usage is not None:
            usage.unread.discard(name)

    def _expire(self, name: str) -> None:
        usage = self._expiry[name][1]
        self.cancel_expiry(name)
        host = self.used_host
        if host is None or host.server.logs.terms(name) is None:
            return
        if host.server.logs.readers_of(name):  # Its reader is a client of another broker.
            self.start_expiry(name, usage)
        else:
            host.end(name)


def _is_shown(name: str) -> bool:
    return not name.startswith(f"{IN_MEMORY}-")
