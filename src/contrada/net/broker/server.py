"""`Server`: one server of a network: its dispatcher, connections and links.

A `Broker` also listens and has clients. An embedded service with neighbours has a `Server` that
makes links and accepts none.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final

from contrada.delivery.store import Store
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.neighbours import Membership, Neighbours
from contrada.net.broker.server_connection import (
    ConnectionHandler,
    ConnectionHost,
    ServerConnection,
)
from contrada.net.wire.connection import BROKER
from contrada.net.wire.frames import Hello
from contrada.service import ConnectionState
from contrada.service.dispatcher import Dispatcher
from contrada.service.service_limits import CoreLimits
from contrada.service.stores.store_location import check_store

_HANDOVER_LOOK_S: Final = 0.01


class Server(ConnectionHost):
    """The common part of brokers and embedded servers."""

    def __init__(
        self,
        network: Membership,
        store: str | Path | Store | None,
        *,
        limits: BrokerLimits = BrokerLimits(),
        core_limits: CoreLimits | None = None,
        client_context: ssl.SSLContext | None = None,
        no_store: str,
        tell: Callable[[ConnectionState], object] = lambda _: None,
    ) -> None:
        """`client_context` is the TLS context of outgoing links; by default, the system
        authorities.

        `no_store` is the hint of errors about a missing store. `tell` gets the state of each
        outgoing link. Raises InvalidValueError, InputError, and ServiceError for an invalid store.
        """
        core = core_limits or CoreLimits()
        dispatcher = Dispatcher(network.router(core), core.service)
        check_store(store)
        logs = BrokerLogs(
            *(dispatcher, network.name, network.sequencer, store, no_store, limits), core.delivery
        )
        super().__init__(dispatcher, logs, limits)
        self.neighbours = Neighbours(self, network, client_context, tell)
        self.hello = Hello(BROKER, "contrada", self.neighbours.capabilities())
        self._ticker: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Makes links, and starts to check connections."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        self.neighbours.change(self.neighbours.network.neighbours)

    async def disconnect_all(self) -> None:
        """Hands over the queues, within a bounded time, and closes all connections."""
        self.is_stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        try:
            await self.neighbours.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hand_over(), self.limits.handover_wait_s)
            for connection in list(self._connections):
                connection.close("the broker stops")
            with contextlib.suppress(TimeoutError):  # Connections that do not read are aborted.
                await asyncio.wait_for(self._empty.wait(), self.limits.stop_wait_s)
        finally:  # Also when the caller is cancelled.
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    async def _hand_over(self) -> None:
        """Waits until no bytes are held and neighbours have processed all notifications."""
        while (
            self._held_bytes or self.logs.due or any(it.queue.in_flight for it in self.neighbours)
        ):
            await asyncio.sleep(_HANDOVER_LOOK_S)

    async def close(self) -> None:
        """Ends all tasks, and closes the store. Raises StoreError for unwritten records."""
        for task in self._work:
            task.cancel()  # All connections are closed, so nothing can be delivered.
        await asyncio.gather(*self._work, return_exceptions=True)
        await self.logs.aclose()

    def links(self, most: int | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the sent and the queued notifications by link, of the first links by name."""
        links = sorted(self.neighbours, key=attrgetter("name"))[:most]
        sent = {each.name: each.queue.sent for each in links}
        return sent, {each.name: len(each.queue) for each in links}

    def handler_for(self, connection: ServerConnection, hello: Hello) -> ConnectionHandler:
        """Returns the handler of a connection. Raises FrameError where it is refused."""
        return self.neighbours.handler_for(connection, hello)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.limits.broker_tick_s)
            for connection in list(self._connections):
                self.check_alive(connection)

    def check_alive(self, connection: ServerConnection) -> None:
        """Ends a connection that is silent."""
        connection.tick()
