"""`Server`: one server of a network: its exchange, its connections and links, and what it holds.

A `Broker` is one that listens and has clients. An embedded service with neighbours has one, which
makes links and takes none.
"""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from contrada.delivery.store import Store
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.neighbours import Membership, Neighbours
from contrada.net.broker.server_connection import (
    ConnectionHandler,
    DeliveryRounds,
    ServerConnection,
)
from contrada.net.wire.connection import BROKER
from contrada.net.wire.frames import Hello
from contrada.net.wire.tls import Tls
from contrada.service import ConnectionState
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.security.permits import PublishFilters
from contrada.service.security.principals import ANYBODY, Principal
from contrada.service.stores.store_location import check_store

_HANDOVER_LOOK_S: Final = 0.01


class Server:
    """The part of a server that all have, whoever its clients are. A `LinkHost` of its links."""

    def __init__(
        self,
        network: Membership,
        store: str | Path | Store | None,
        *,
        limits: BrokerLimits = BrokerLimits(),
        client_context: ssl.SSLContext | None = None,
        no_store: str,
        tell: Callable[[ConnectionState], object] = lambda _: None,
    ) -> None:
        """`client_context` is for links over TLS. Without it, the system authorities are
        trusted. `no_store` says in errors how to have a store. `tell` is called with the state of
        each link that this side makes. Raises InvalidValueError, InputError, ServiceError for what
        is no store.
        """
        self.network = network
        self.limits = limits
        self.instance = EnvelopeFactory(None).publisher
        self.is_stopping = False
        self.is_open = True
        self.rounds = DeliveryRounds()
        self.publish_filters = PublishFilters()
        self.dropped: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.dispatcher = Dispatcher(network.router())
        check_store(store)
        self.logs = BrokerLogs(
            self.dispatcher, network.name, network.sequencer, store, no_store, limits
        )
        self.neighbours = Neighbours(self, tell)
        self.hello = Hello(BROKER, "contrada", self.neighbours.capabilities())
        self._client_context = client_context
        self._held_bytes = 0
        self._relief_due = False
        self._ticker: asyncio.Task[None] | None = None
        self._connections: set[ServerConnection] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def begin(self) -> None:
        """Make links, and look after connections."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        self.neighbours.start()

    async def disconnect_all(self) -> None:
        """Hand over what is queued, within a bounded time, say goodbye to all, and be alone."""
        self.is_stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        try:
            await self.neighbours.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hand_over(), self.limits.handover_wait_s)
            for connection in list(self._connections):
                connection.close("the broker stops")
            with contextlib.suppress(TimeoutError):  # Those that do not read are aborted.
                await asyncio.wait_for(self._empty.wait(), self.limits.stop_wait_s)
        finally:  # Also where whoever stops it is cancelled.
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    async def _hand_over(self) -> None:
        """Wait until nothing is held, and neighbours have worked off all that was sent to them."""
        while self._held_bytes or self.logs.due or any(each.in_flight for each in self.neighbours):
            await asyncio.sleep(_HANDOVER_LOOK_S)

    async def close(self) -> None:
        """End all work, and close the store.

        Raises StoreError where promised notifications could not be written to the disk.
        """
        for task in self._work:
            task.cancel()  # Nobody is left to deliver to.
        await asyncio.gather(*self._work, return_exceptions=True)
        await self.logs.aclose()

    @property
    def client_context(self) -> ssl.SSLContext:
        """For links that it makes over TLS."""
        if self._client_context is None:
            self._client_context = (
                Tls().client_context()
            )  # Here, since it takes some hundredths of a second.
        return self._client_context

    def links(self, most: int | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """How many notifications went over each link, and wait for it; of the first by name."""
        links = sorted(self.neighbours, key=attrgetter("name"))[:most]
        return {each.name: each.sent for each in links}, {each.name: each.waiting for each in links}

    # --- what its connections need ------------------------------------------------------------

    def admit(self, connection: ServerConnection) -> bool:
        """A connection was made; False when there are too many."""
        self._connections.add(connection)
        self._empty.clear()
        return True

    def identify(
        self, connection: ServerConnection, hello: Hello
    ) -> Principal | Awaitable[Principal]:
        """Whose connection it is. Raises FrameError, or what is awaited does."""
        return ANYBODY

    def handler_for(self, connection: ServerConnection, hello: Hello) -> ConnectionHandler:
        """The handler of the other side's messages.

        Raises FrameError where that side is refused.
        """
        return self.neighbours.handler_for(connection, hello)

    def forget(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def start_work(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do something for a client, also when its connection ends meanwhile; `close` ends it."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def hold(self, size: int) -> None:
        """So many bytes more are held for a client; less where it is negative."""
        self._held_bytes += size
        if self._held_bytes > self.limits.broker_bytes_max and not self._relief_due:
            self._relief_due = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief_due = False
        for connection in sorted(self._connections, key=lambda each: each.held_bytes, reverse=True):
            if self._held_bytes <= self.limits.broker_bytes_max or not connection.held_bytes:
                return
            connection.evict()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.limits.broker_tick_s)
            for connection in list(self._connections):
                self.check_alive(connection)

    def check_alive(self, connection: ServerConnection) -> None:
        """Checks whether a connected peer is still alive."""
        connection.tick()
