"""`http_port`: an HTTP port with the WebSocket endpoint of a broker, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from contrada.integrations.http.websocket_links import CarriedArrivals, LingeringWebSocket
from contrada.net.broker.broker import Broker
from contrada.net.wire.address import PATH_DEFAULT
from contrada.net.wire.tls import Tls
from contrada.net.wire.websocket import CARRIED_BYTES_MAX

HOST = "127.0.0.1"


@dataclass
class Port:
    """A listening uvicorn server."""

    number: int
    server: uvicorn.Server
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
async def http_port(broker: Broker, port: int = 0, tls: Tls | None = None) -> AsyncIterator[Port]:
    """Serves the HTTP port of a broker on this event loop."""
    routes = [WebSocketRoute(PATH_DEFAULT, CarriedArrivals(broker).arrive)]
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=routes),
            HOST,
            port,
            ws=LingeringWebSocket,
            ws_max_size=2 * CARRIED_BYTES_MAX,
            log_level="error",
            lifespan="off",
            ssl_certfile=tls.certificate if tls else None,
        )
    )
    serving = asyncio.create_task(server._serve())  # Without its handlers of signals.
    while not server.started:
        await asyncio.sleep(0.001)
    number = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Port(number, server, "contrada+wss" if tls else "contrada+ws")
    finally:
        server.should_exit = server.force_exit = True
        await serving
