"""`RunningBroker`: a broker on an event loop in a thread of its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from contrada.connections import connect_sync
from contrada.delivery.store import Store
from contrada.net.broker.broker import Broker
from contrada.service.async_resource import AsyncResource
from contrada.service.service_thread import ServiceThread

if TYPE_CHECKING:
    from contrada.service.sync import SyncService


class _OpenedBroker(AsyncResource):
    """A broker, as a `ServiceThread` opens and closes it."""

    def __init__(self, store: str | Path | Store | None) -> None:
        self.broker = Broker(port=0, store=store)
        self.address = ""

    async def open(self) -> None:
        await self.broker.start()
        self.address = self.broker.address

    async def aclose(self) -> None:
        await self.broker.stop()


class RunningBroker:
    """A broker that listens inside `with`, without users, on a free port of 127.0.0.1."""

    def __init__(self, store: str | Path | Store | None = None) -> None:
        """`store` is as in `ct.connect`. Raises StoreError, ServiceError when it starts."""
        self._opened = _OpenedBroker(store)
        self._thread = ServiceThread(self._opened)

    @property
    def address(self) -> str:
        """Its address, for `ct.connect`, `ct.connect_sync` or `contrada sub --broker`."""
        return self._opened.address

    def connect(self, **options: Any) -> "SyncService":
        """A new client of the broker, with the options of `ct.connect_sync`; use it in `with`."""
        return connect_sync(self.address, **options)

    def __enter__(self) -> Self:
        self._thread.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.close()
