"""`NetworkApi`: the network of the broker, as the user of a token may inspect it.

`NetworkServices` holds the connections of a gateway to the other brokers of the network. A viewer's
token is presented to each broker of the network that the viewer looks at, so the owner of this
broker lists the brokers that may see it: by default those of this host. Links name the addresses,
never a request. A connection never shows this broker's own certificate: the other broker would take
the viewer for this broker.

    oslo.example             this host; :7655 behind it allows one port
    10.2.0.0/16, ::1         addresses of links in these networks; :7655 likewise behind one address
"""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from starlette.responses import Response

from contrada.errors import (
    ContradaError,
    InvalidValueError,
    LimitError,
    NotPermittedError,
    RefusedRequestError,
)
from contrada.integrations.console.network_view import (
    ForestQuestion,
    NetworkQuestion,
    shown_forest,
    shown_network,
)
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import json_answer, refusal_of
from contrada.integrations.http.request_filters import within_work
from contrada.integrations.http.request_slots import RequestSlots, Trials
from contrada.integrations.http.sink_rules import PUBLIC, AllowedPlace, address_in, parse_allowed
from contrada.integrations.http.token_services import TokenService, TokenServices
from contrada.net.client.network_inspection import NetworkInspection, NotificationHop
from contrada.net.client.tcp_service import TcpService, reach_with
from contrada.net.wire.address import Address, is_loopback
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
                lambda token, **_: reach_with(ConnectOptions(self._context, token))(address),
                self._limits,
                lambda *_: None,
            )
        async with pool.use(token, "") as access:
            yield access.service

    def _make_room(self) -> None:
        most = self._limits.network_addresses_max
        for address in [each for each, pool in self._pools.items() if not len(pool)]:
            del self._pools[address]
        if len(self._pools) >= most:
            raise LimitError("network_addresses_max", most)

    async def aclose(self) -> None:
        """Closes all connections."""
        for each in [*self._pools.values()]:
            await each.aclose()


class NetworkApi:
    """Answers the requests of the console's page; of each user one of a kind at a time."""

    def __init__(self, services: NetworkServices, trials: Trials, limits: GatewayLimits) -> None:
        self._services, self._trials, self._limits = services, trials, limits
        self._networks = RequestSlots("looks at the network")
        self._forests = RequestSlots("looks at the forest")

    async def show(self, body: bytes, access: TokenService) -> Response:
        """Answers with all brokers, and with the way of a notification, or why it has none.

        Raises ContradaError.
        """
        question = self._trials.decode(body, NetworkQuestion)
        with self._networks.take(access.user):
            network = self._inspection(access)
            hops: Sequence[NotificationHop] = ()
            fault = ""
            try:
                # Not as a trial: a user has one at a time, and this page asks in two places.
                packed = await within_work(partial(question.packed, access.user))
                await network.explore(packed)
                if packed:
                    hops = await network.follow(packed, question.at or next(iter(network.brokers)))
            except ContradaError as error:
                if not question.record or isinstance(error, RefusedRequestError):
                    raise
                fault = refusal_of(error).reason
                await network.explore()  # The network is there without the notification.
            return json_answer(shown_network(network, hops) | {"fault": fault})

    async def show_forest(self, body: bytes, access: TokenService) -> Response:
        """Answers with a part of the filters of a broker. Raises ContradaError."""
        question = self._trials.decode(body, ForestQuestion)
        with self._forests.take(access.user):
            network = self._inspection(access)
            part = await network.forest(question.broker, question.position)
            return json_answer(await within_work(partial(shown_forest, part, question)))

    def _inspection(self, access: TokenService) -> NetworkInspection:
        reach = partial(self._services.use, access.token)
        is_local = is_loopback(access.service.reconnection.address.host)
        return NetworkInspection(
            access.service, reach, self._limits.network, is_local=is_local, ways=access.ways
        )
