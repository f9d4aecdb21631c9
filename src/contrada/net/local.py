"""A client of a broker in the same process: over a pair of sockets, by the same frames.

So all decisions about clients hold for it, too, and it needs none of its own.
"""

import asyncio
import socket
from typing import Any

from contrada.net.address import Address
from contrada.net.broker import Broker
from contrada.net.client import TcpService
from contrada.net.subscription import CREDIT_BYTES
from contrada.net.wire import Approach


def local_service(
    broker: Broker, token: str = "", *, credit_bytes: int = CREDIT_BYTES, **options: Any
) -> TcpService:
    """A service of a broker that was started on this event loop; `options` are `TcpService`'s.

    `token` says whose connection it is, as in `connect`. Of each subscription `credit_bytes` may
    wait here unread. Close it before the broker stops.
    """

    async def reach(end: asyncio.Protocol) -> None:
        if broker.is_stopping:
            raise ConnectionRefusedError("the broker of this process stops")
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        try:
            await loop.connect_accepted_socket(broker.arrival, there)
        except BaseException:
            here.close()
            there.close()
            raise
        await loop.create_connection(lambda: end, sock=here)

    approach = Approach(token=token, reach=reach)
    service = TcpService(str(Address("localhost")), approach=approach, **options)
    service.credit_bytes = credit_bytes
    return service
