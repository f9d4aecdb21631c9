"""A gateway and its broker in the event loop of the test, and HTTP clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from contrada.integrations.http import Gateway, SinkRules, local_services
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.token_services import local_service
from contrada.net.broker.broker import Broker
from contrada.net.broker.jwt_verifier import JwtSettings
from contrada.net.broker.neighbours import Membership
from contrada.net.broker.users import Users
from contrada.net.client.tcp_service import TcpService
from tests.net.soon import SOON

LOCAL = SinkRules(allowed=("127.0.0.0/8",), unasked=("127.0.0.0/8",))
"""Sinks in the test's process, which do not know the web-hook handshake."""


class Served(NamedTuple):
    """A broker, its gateway, an HTTP client and a client of the broker."""

    broker: Broker
    gateway: Gateway
    http: httpx.AsyncClient
    service: TcpService


def event(number: int = 0, **given: Any) -> dict[str, Any]:
    """Returns a CloudEvent in the JSON format."""
    plain = {
        "specversion": "1.0",
        "id": f"e{number}",
        "source": "/shop",
        "type": "com.example.order",
        "datacontenttype": "application/json",
        "data": {"n": number, "symbol": "DIS"},
    }
    return {**plain, **given}


@asynccontextmanager
async def serving(
    store: Path | None = None,
    users: Users | None = None,
    token: str = "",
    jwt: JwtSettings | None = None,
    network: Membership | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serves a broker and its gateway within the context; the broker's client shows `token`.

    Failed pushes are retried at once.
    """
    options.setdefault("limits", GatewayLimits(push_backoff=SOON))
    async with (
        Broker(port=0, store=store, users=users, jwt=jwt, network=network) as broker,
        Gateway(local_services(broker), port=0, users=broker, **options) as gateway,
        httpx.AsyncClient(base_url=gateway.address, timeout=30) as client,
        local_service(broker, token) as service,
    ):
        yield Served(broker, gateway, client, service)


class Lines:
    """The events of an event stream, as `(id, name, data)`."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, str, str]:
        """Returns the next event; comments are skipped."""
        told: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(": ")
                    told[name] = value
                elif told.keys() - {"retry"}:
                    return told.get("id", ""), told.get("event", ""), told["data"]
        raise EOFError
