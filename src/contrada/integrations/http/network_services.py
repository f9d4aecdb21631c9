"""`NetworkServices`: the connections of a gateway to the other brokers of its network.

A viewer's token is presented to each broker of the network that the viewer looks at, so the owner
of this broker lists the brokers that may see it: by default those of this host. Links name the
addresses, never a request. A connection never shows this broker's own certificate: the other broker
would take the viewer for this broker.

    oslo.example             this host; :7655 behind it allows one port
    10.2.0.0/16, ::1         addresses of links in these networks; :7655 likewise behind one address
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from contrada.errors import InvalidValueError, LimitError, NotPermittedError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.sink_rules import PUBLIC, AllowedPlace, address_in, parse_allowed
from contrada.integrations.http.token_services import TokenServices
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import Address
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls


@dataclass(frozen=True, slots=True)
class BrokerRules:
    """The brokers that may see tokens of viewers. Raises InvalidValueError for a bad entry."""

    allowed: tuple[str, ...] = ("127.0.0.0/8", "::1")
    _allowed: tuple[AllowedPlace, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if PUBLIC in self.allowed:
            raise InvalidValueError(PUBLIC, "expected hosts or networks of brokers")
        object.__setattr__(self, "_allowed", tuple(map(parse_allowed, self.allowed)))

    def check(self, address: Address) -> None:
        """Raises NotPermittedError for another broker. Names are compared as links have them."""
        host = address.host.lower().removesuffix(".")
        if not any(it.has_host(host, address.port, address_in(host)) for it in self._allowed):
            raise NotPermittedError(f"{address}: http.brokers does not list {host!r}")


class NetworkServices:
    """The open connections by address and token."""

    def __init__(self, rules: BrokerRules, limits: GatewayLimits, tls: Tls | None) -> None:
        self._rules, self._limits = rules, limits
        self._pools: dict[Address, TokenServices] = {}
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            self.renew(tls)

    def renew(self, tls: Tls) -> None:
        """Reads the authorities again for new connections. Raises InputError."""
        self._context = Tls(authority=tls.authority, crl=tls.crl).client_context()

    @asynccontextmanager
    async def use(self, token: str, address: Address) -> AsyncIterator[TcpService]:
        """Opens, or shares, the connection of a token to a broker. Raises ContradaError."""
        self._rules.check(address)
        pool = self._pools.get(address)
        if pool is None:
            self._make_room()
            pool = self._pools[address] = TokenServices(
                lambda token, **_: self._service(token, address), self._limits, lambda *_: None
            )
        async with pool.use(token, "") as access:
            yield access.service

    def _make_room(self) -> None:
        most = self._limits.network_addresses_max
        for address in [each for each, pool in self._pools.items() if not len(pool)]:
            del self._pools[address]
        if len(self._pools) >= most:
            raise LimitError("network_addresses_max", most)

    def _service(self, token: str, address: Address) -> TcpService:
        tls = self._context if address.is_tls else None
        options = ConnectOptions(tls=tls, token=token)
        return TcpService(address, reconnect=False, options=options)

    async def aclose(self) -> None:
        """Closes all connections."""
        for each in [*self._pools.values()]:
            await each.aclose()
