"""A client of a broker in the same process: over a pair of sockets, by the same frames.

So all decisions about clients hold for it, too, and it needs none of its own.
"""

import asyncio
import socket
from typing import Any, Final

from contrada.net.broker.broker import Broker
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.client.tcp_service import TcpService
from contrada.net.client.tcp_subscription import CREDIT_BYTES
from contrada.net.wire.address import Address
from contrada.net.wire.endpoint import ConnectOptions

_HERE: Final = Address("localhost", called="this broker")


def local_service(
    broker: Broker,
    token: str = "",
    *,
    peer: str = "",
    credit_bytes: int = CREDIT_BYTES,
    **options: Any,
) -> TcpService:
    """A service of a broker that was started on this event loop; `options` are `TcpService`'s.

    `token` says whose connection it is, as in `connect`, and `peer` for whom it is made, which is
    logged. Of each subscription `credit_bytes` may
    wait here unread. Close it before the broker stops.
    """

    def arrival() -> ServerConnection:
        end = broker.accept()
        end.name = peer or "this process"
        return end

    async def reach(end: asyncio.Protocol) -> None:
        if broker.is_stopping:
            raise ConnectionRefusedError("the broker of this process stops")
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        try:
            await loop.connect_accepted_socket(arrival, there)
        except BaseException:
            here.close()
            there.close()
            raise
        await loop.create_connection(lambda: end, sock=here)

    approach = ConnectOptions(token=token, reach=reach)
    service = TcpService(_HERE, options=approach, **options)
    service.credit_bytes = credit_bytes
    return service
