"""`local_service`: a client of a broker in the same process, over a socket pair.

The client speaks the same frames as a remote one, so the broker's checks hold for it, too.
"""

import asyncio
import socket
from functools import partial
from typing import Any, Final, Protocol

from contrada.net.broker.broker import Broker
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import Address
from contrada.net.wire.endpoint import ConnectOptions

STREAM_CREDIT_BYTES: Final = 64 * 1024
"""Bytes of events of one subscription that a gateway holds unwritten. Beyond it: the broker keeps
the rest."""

_HERE: Final = Address("localhost", called="this broker")


class ServiceOfToken(Protocol):
    """Returns the service, not opened yet, of a token; the broker logs `peer`."""

    def __call__(self, token: str, *, peer: str) -> TcpService: ...  # noqa: D102


def local_services(broker: Broker) -> ServiceOfToken:
    """Returns the services of a broker in this process, a connection of its own for each token. A
    connection that the broker ends, since its user was removed, does not reconnect by itself.
    """
    return partial(local_service, broker, credit_bytes=STREAM_CREDIT_BYTES, reconnect=False)


def local_service(
    broker: Broker,
    token: str = "",
    *,
    peer: str = "",
    credit_bytes: int = ClientLimits().credit_bytes,
    **options: Any,
) -> TcpService:
    """Returns a service of a broker that was started on this event loop. `token` authenticates, as
    in `connect`; the broker logs `peer`. At most `credit_bytes` of each subscription are unread
    here. `options` are those of `TcpService`. Close the service before the broker stops.
    """

    def accept() -> ServerConnection:
        end = broker.accept()
        end.name = peer or "this process"
        return end

    async def reach(end: asyncio.Protocol) -> None:
        if broker.is_stopping:
            raise ConnectionRefusedError("the broker of this process stops")
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        try:
            await loop.connect_accepted_socket(accept, there)
        except BaseException:
            here.close()
            there.close()
            raise
        await loop.create_connection(lambda: end, sock=here)

    approach = ConnectOptions(token=token, reach=reach)
    limits = ClientLimits(credit_bytes=credit_bytes)
    return TcpService(_HERE, options=approach, limits=limits, **options)
