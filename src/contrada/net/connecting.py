"""`connect`: one way to every service.

async with connect() as service: ...                          # in this process
async with connect("contrada://127.0.0.1:7655") as service: ...   # a broker
"""

from pathlib import Path

from contrada.delivery.store import Store
from contrada.errors import ServiceError
from contrada.net.client import TcpService
from contrada.runtime import BlockingService, EmbeddedService
from contrada.runtime.outlet import PUBLISH_WAIT_S
from contrada.service import Service


def connect(
    address: str | None = None,
    *,
    publisher: str | None = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    store: str | Path | Store | None = None,
) -> Service:
    """A service, to be used inside `async with`.

    Without an address it is embedded in this process; with one it is the broker there.
    `publisher` names this access point in the envelopes of what it publishes (a random name
    where none is given). `publish_wait_s` bounds how long publishing waits for a subscriber
    that has stopped reading; 0 never waits. `store` is the file in which an embedded service keeps
    what is durable or certified, or `postgresql://user@host/database?schema=name`; it is made where
    there is none, and opened and closed with the service. Raises AddressError, ServiceError.
    """
    if address is None:
        return EmbeddedService(publisher=publisher, publish_wait_s=publish_wait_s, store=store)
    if store is not None:
        raise ServiceError("a store belongs to an embedded service, not to one at an address")
    return TcpService(address, publisher=publisher, publish_wait_s=publish_wait_s)


def connect_sync(
    address: str | None = None,
    *,
    publisher: str | None = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    store: str | Path | Store | None = None,
) -> BlockingService:
    """The same for code that does not await, to be used inside `with`; see `connect`."""
    return BlockingService(
        connect(address, publisher=publisher, publish_wait_s=publish_wait_s, store=store)
    )
