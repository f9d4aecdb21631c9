"""`connect`: one way to every service.

async with connect() as service: ...                          # in this process
async with connect("contrada://127.0.0.1:7655") as service: ...   # a broker
async with connect(neighbours=["contrada://127.0.0.1:7655"], name="desk") as service: ...   # both
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from contrada.delivery.store import Store
from contrada.errors import ServiceError
from contrada.net.broker.embedded_broker import EmbeddedBroker
from contrada.net.broker.network_settings import NetworkOptions, membership_of
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions
from contrada.service import ConnectionState, Service
from contrada.service.embedded_service import EmbeddedService
from contrada.service.security.signatures import Signer
from contrada.service.subscription_queue import PUBLISH_WAIT_S
from contrada.service.sync import SyncService


def connect(
    address: str | Sequence[str] | None = None,
    *,
    publisher: str | Signer | None = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    store: str | Path | Store | None = None,
    reconnect: bool = True,
    reconnect_wait_s: float | None = None,
    on_connection: Callable[[ConnectionState], object] | None = None,
    tls: ssl.SSLContext | None = None,
    token: str = "",
    **network: Unpack[NetworkOptions],
) -> Service:
    """A service, to be used inside `async with`.

    Without an address it is embedded in this process; with one it is the broker there. Of several
    addresses, as "contrada://a:7655,b:7655" or as a list, the first that answers is taken.
    `publisher` names this access point in the envelopes of what it publishes (a random name
    where none is given); a `Signer` says the name and signs what goes out under it.
    `publish_wait_s` bounds how long publishing waits for a subscriber
    that has stopped reading; 0 never waits. `store` is the file in which an embedded service keeps
    what is durable or certified, or `postgresql://user@host/database?schema=name`; it is made where
    there is none, and opened and closed with the service.

    A connection that was there and is lost is made anew, for at most `reconnect_wait_s` (None: for
    ever), or not at all without `reconnect`; then all subscriptions end with
    ConnectionFailedError. `on_connection` is called on the service's event loop with each
    `ConnectionState`, see `Service.connection_states`; it should be short.

    Over TLS, "contradas://a:7655", the broker's certificate has to be for this host, and of
    somebody whom `tls` trusts: `ssl.create_default_context(cafile="authority.pem")`. Without `tls`
    that is whom the system trusts. `token`, "NAME.SECRET", tells the broker whose connection it is;
    `contrada user add` makes one.

    With `neighbours=["contrada://a:7655"], name="desk"` an embedded service is a server of a
    network of brokers; see `NetworkOptions`. Opening the service fails where it can link to none of
    them.

    Raises AddressError, InputError, ServiceError.
    """
    is_bounded = not reconnect or reconnect_wait_s is not None
    _check(address, network, is_bounded, has_store=store is not None, is_known=bool(tls or token))
    own: dict[str, Any] = {
        "publisher": publisher,
        "publish_wait_s": publish_wait_s,
        "on_connection": on_connection,
    }
    if address is not None:
        again: dict[str, Any] = {"reconnect": reconnect, "reconnect_wait_s": reconnect_wait_s}
        return TcpService(address, options=ConnectOptions(tls, token), **again, **own)
    if network:
        membership = replace(membership_of(network), token=token)
        return EmbeddedBroker(membership, store=store, tls=tls, **own)
    return EmbeddedService(store=store, **own)


def _check(
    address: object, network: NetworkOptions, is_bounded: bool, *, has_store: bool, is_known: bool
) -> None:
    """Refuses options of one kind of service for another. Raises ServiceError."""
    if address is not None:
        if network:
            reason = "is for an embedded service, not for one at an address"
            raise ServiceError(f"{', '.join(network)} {reason}")
        if has_store:
            raise ServiceError("a store belongs to an embedded service, not to one at an address")
    elif network and is_bounded:
        raise ServiceError("a link to a neighbour is made again for ever: say no `reconnect`")
    elif is_known and not network:
        raise ServiceError("tls and token are for a service at an address, not for an embedded one")


def connect_sync(
    address: str | Sequence[str] | None = None,
    *,
    publisher: str | Signer | None = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    store: str | Path | Store | None = None,
    reconnect: bool = True,
    reconnect_wait_s: float | None = None,
    on_connection: Callable[[ConnectionState], object] | None = None,
    tls: ssl.SSLContext | None = None,
    token: str = "",
    **network: Unpack[NetworkOptions],
) -> SyncService:
    """The same for code that does not await, to be used inside `with`; see `connect`."""
    return SyncService(
        connect(
            address,
            publisher=publisher,
            publish_wait_s=publish_wait_s,
            store=store,
            reconnect=reconnect,
            reconnect_wait_s=reconnect_wait_s,
            on_connection=on_connection,
            tls=tls,
            token=token,
            **network,
        )
    )
