"""`http_port`: an HTTP port with the WebSocket endpoint of a broker, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from contrada.integrations.http import GatewayLimits
from contrada.integrations.http.http_port import HttpPort
from contrada.integrations.http.websocket_links import CarriedArrivals
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import PATH_DEFAULT
from contrada.net.wire.tls import Tls
from contrada.net.wire.websocket import CARRIED_BYTES_MAX

HOST = "127.0.0.1"


@dataclass
class Port:
    """A listening port."""

    number: int
    server: HttpPort
    scheme: str

    @property
    def address(self) -> str:
        """The address for clients of Contrada."""
        return f"{self.scheme}://{HOST}:{self.number}{PATH_DEFAULT}"

    @property
    def url(self) -> str:
        """The address for other WebSocket clients."""
        return f"ws://{HOST}:{self.number}{PATH_DEFAULT}"


@asynccontextmanager
async def http_port(
    broker: Broker, port: int = 0, tls: Tls | None = None, **limits: float
) -> AsyncIterator[Port]:
    """Serves the HTTP port of a broker on this event loop."""
    app = Starlette(routes=[WebSocketRoute(PATH_DEFAULT, CarriedArrivals(broker).arrive)])
    given: Any = {"websocket_message_bytes_max": 2 * CARRIED_BYTES_MAX, **limits}
    context = tls.server_context(lambda _: None) if tls else None
    server = HttpPort(app, HOST, port, context, limits=GatewayLimits(**given))
    await server.start()
    try:
        number = int(server.address.rpartition(":")[2])
        yield Port(number, server, "contrada+wss" if tls else "contrada+ws")
    finally:
        await server.stop()
