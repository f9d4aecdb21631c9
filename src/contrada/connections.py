"""`connect` and `connect_sync`: the functions that make every kind of service.

The modules of brokers are imported only where there is an address or a neighbour.

async with connect() as service: ...                          # in this process
async with connect("contrada://127.0.0.1:7655") as service: ...   # a broker
async with connect(neighbours=["contrada://127.0.0.1:7655"], name="desk") as service: ...   # both
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack

from contrada.errors import ServiceError
from contrada.service.interface import ConnectionState, Service
from contrada.service.requests import check_options
from contrada.service.subscription_queue import PUBLISH_WAIT_S

if TYPE_CHECKING:  # An embedded service needs none of these.
    import ssl

    from contrada.delivery.store import Store
    from contrada.limits import Limits
    from contrada.net.broker.neighbours import NetworkOptions
    from contrada.net.wire.tokens import TokenSource
    from contrada.service.security.signatures import Signer
    from contrada.service.sync import SyncService

P = ParamSpec("P")


def connect(
    address: str | Sequence[str] | None = None,
    *,
    publisher: "str | Signer | None" = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    store: "str | Path | Store | None" = None,
    reconnect: bool = True,
    reconnect_wait_s: float | None = None,
    on_connection: Callable[[ConnectionState], object] | None = None,
    tls: "ssl.SSLContext | None" = None,
    token: "TokenSource" = "",
    limits: "Limits | None" = None,
    **network: "Unpack[NetworkOptions]",
) -> Service:
    """A service; use it inside `async with`.

    Without an address the service is embedded in this process. With one it is a client of the
    broker there. Of several addresses, "contrada://a:7655,b:7655" or a list, the first that answers
    is used. With `neighbours=["contrada://a:7655"], name="desk"` an embedded service is a server of
    a network of brokers, see `NetworkOptions`; opening it fails where no neighbour can be reached.

    - `publisher`: name of this access point in envelopes, random by default. A `Signer` has the
      name and signs.
    - `publish_wait_s`: bound of a publisher's wait for a full queue; 0 drops at once.
    - `store`: file or `postgresql://user@host/database?schema=name` with the durable logs of an
      embedded service; created if missing.
    - `reconnect`, `reconnect_wait_s`: whether, and for how many seconds (None: for ever), a client
      restores a lost connection. Afterwards its subscriptions raise ConnectionFailedError.
    - `on_connection`: called on the service's event loop with each `ConnectionState`.
    - `tls`: context for "contradas://a:7655"; the default trusts the authorities of this system,
      `ssl.create_default_context(cafile="authority.pem")` one of your own.
    - `limits`: bounds of queues, tables and time-outs; the defaults are in docs/limits.md.
    - `token`: "NAME.SECRET" of `contrada user add`, or a JWT, identifies the user to the broker; a
      function returns the present one for each connection.

    Raises AddressError, InputError, ServiceError.
    """
    is_bounded = not reconnect or reconnect_wait_s is not None
    _check(address, network, is_bounded, has_store=store is not None, is_known=bool(tls or token))
    own: dict[str, Any] = {"publisher": publisher, "publish_wait_s": publish_wait_s}
    own["on_connection"] = on_connection
    if address is not None:
        from contrada.net.client.tcp_service import TcpService
        from contrada.net.wire.endpoint import ConnectOptions

        again: dict[str, Any] = {"reconnect": reconnect, "reconnect_wait_s": reconnect_wait_s}
        if limits is not None:
            again |= _drop_none(limits=limits.client, service_limits=limits.service)
        return TcpService(address, options=ConnectOptions(tls, token), **again, **own)
    if network:
        from contrada.net.broker.embedded_broker import EmbeddedBroker
        from contrada.net.broker.neighbours import membership_of

        membership = replace(membership_of(network), token=token)
        if limits is not None:
            own |= _drop_none(limits=limits.broker, core_limits=limits)
        return EmbeddedBroker(membership, store=store, tls=tls, **own)
    from contrada.service.embedded_service import EmbeddedService

    return EmbeddedService(store=store, limits=limits, **own)


def _drop_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check(
    address: object, network: "NetworkOptions", is_bounded: bool, *, has_store: bool, is_known: bool
) -> None:
    """Refuses unknown options, and those of another kind of service. Raises ServiceError."""
    if network:
        from contrada.net.broker.neighbours import NetworkOptions

        own = (name for name in signature(connect).parameters if name != "network")
        check_options("connect", network, (*own, *NetworkOptions.__annotations__))
    if address is not None:
        if network:
            reason = "is for an embedded service, not for one at an address"
            raise ServiceError(f"{', '.join(network)} {reason}")
        if has_store:
            raise ServiceError("a store belongs to an embedded service, not to one at an address")
    elif network and is_bounded:
        raise ServiceError("links to neighbours are restored for ever: leave `reconnect` out")
    elif is_known and not network:
        raise ServiceError("tls and token are for a service at an address, not for an embedded one")


def _sync(make: Callable[P, Service]) -> "Callable[P, SyncService]":
    """The function with the parameters of `make` that gives its service as a `SyncService`."""

    def connect_sync(*args: P.args, **options: P.kwargs) -> "SyncService":
        """The service of `connect` for code without `await`; see `SyncService`."""
        from contrada.service.sync import SyncService

        return SyncService(make(*args, **options))

    connect_sync.__signature__ = signature(make)  # type: ignore[attr-defined]
    return connect_sync


connect_sync = _sync(connect)
