"""`TokenServices`: the connections of a gateway to its broker, one for each token.

The broker authenticates a token and decides its user's permissions. A refused token has no service.
A connection that is unused for a while is closed. `local_service` is a client of a broker in the
same process, over a socket pair: it speaks the same frames as a remote one, so the broker's checks
hold for it, too.

A token is *unproven* until the broker has accepted it once. A client that invents many tokens
exhausts only the slots of unproven tokens.

Invariant: at most `gateway_tokens_max` connections belong to known tokens, and at most
`gateway_unproven_max` to unproven ones.
"""

import asyncio
import hmac
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

from contrada.errors import ConnectionFailedError, LimitError, NotPermittedError, ServiceClosedError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.net.broker.broker import Broker
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.users import ANONYMOUS
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import Address
from contrada.net.wire.connection import SINKS, USER
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tokens import name_in
from contrada.service.security.principals import NOT_PERMITTED

STREAM_CREDIT_BYTES: Final = 64 * 1024
"""Unwritten bytes of one subscription in a gateway. Beyond it: the broker keeps the rest."""

_HERE: Final = Address("localhost", called="this broker")


class ServiceOfToken(Protocol):
    """Returns the service, not opened yet, of a token; the broker logs `peer`."""

    def __call__(self, token: str, *, peer: str) -> TcpService: ...


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


class TokenService:
    """The connection of one token."""

    __slots__ = ("idle", "opened", "publishing", "service", "streams", "token", "uses", "ways")

    def __init__(self, token: str, service: TcpService, opened: "asyncio.Task[None]") -> None:
        self.token = token
        self.service = service
        self.opened = opened
        self.uses = 0
        self.idle: asyncio.TimerHandle | None = None
        self.publishing = asyncio.Lock()
        """Held during a publication, so that refused indices belong to one request."""
        self.streams: set[Any] = set()
        """Each open `EventStream` of a durable subscription."""
        self.ways: dict[str, Address | None] = {}
        """The addresses of the brokers that its last look at the network has found."""

    @property
    def user(self) -> str:
        """The name of its user; a broker without users believes the token."""
        return _user_of(self.service, self.token)

    def check_push(self) -> None:
        """Raises NotPermittedError if its user may not have subscriptions to sinks."""
        capabilities = self.service.reconnection.capabilities
        if USER in capabilities and not capabilities.get(SINKS):
            reason = "may not have subscriptions to sinks; users with `sinks` may"
            raise NotPermittedError(f"{self.user!r} {reason}")


def user_in(token: str) -> str:
    """Returns the user that a token names; `anonymous` for the empty token."""
    return name_in(token) or ANONYMOUS


def _user_of(service: TcpService, token: str) -> str:
    return str(service.reconnection.capabilities.get(USER) or user_in(token))


async def wait_closed(service: TcpService) -> None:
    """Returns when the connection has ended for good, closed by the broker or by this side."""
    async for state in service.connection_states():
        if state.state == "closed":
            return


class KnownTokens:
    """The tokens that the broker has accepted, as keyed digests that reveal no token."""

    def __init__(self, known_max: int) -> None:
        self._known_max = known_max
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, None] = {}

    def __contains__(self, token: str) -> bool:
        return self._digest(token) in self._known

    def add(self, token: str) -> None:
        """Records that the broker has accepted a token."""
        self.discard(token)
        if len(self._known) >= self._known_max:
            del self._known[next(iter(self._known))]
        self._known[self._digest(token)] = None

    def discard(self, token: str) -> None:
        """Forgets a token that the broker refuses."""
        self._known.pop(self._digest(token), None)

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")


class TokenServices:
    """The open connections of all tokens, shared by requests."""

    def __init__(
        self,
        connect: ServiceOfToken,
        limits: GatewayLimits,
        on_accepted: Callable[[str, str], None],
    ) -> None:
        """`on_accepted` is called with the user and each token that the broker has accepted."""
        self._connect = connect
        self._limits = limits
        self._on_accepted = on_accepted
        self._opened: dict[str, TokenService] = {}
        """Connections of known tokens, including those that are being opened."""
        self._unproven: dict[str, TokenService] = {}
        self.known = KnownTokens(limits.gateway_known_max)
        self._opening = asyncio.Semaphore(limits.gateway_opening_max)
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._opened) + len(self._unproven)

    @asynccontextmanager
    async def use(self, token: str, peer: str) -> AsyncIterator[TokenService]:
        """Opens, or shares, the connection of a token for a context. Raises ConnectionFailedError,
        also where the broker refuses the token, LimitError, ServiceClosedError.
        """
        access = self._access(token, peer)
        access.uses += 1
        if access.idle is not None:
            access.idle.cancel()
            access.idle = None
        try:
            await asyncio.shield(access.opened)
            yield access
        finally:
            access.uses -= 1
            if not access.uses:
                self._release(token, access)

    def _access(self, token: str, peer: str) -> TokenService:
        if self._is_closed:
            raise ServiceClosedError("the gateway stops")
        access = self._opened.get(token) or self._unproven.get(token)
        if access is not None and access.service.connection.state != "closed":
            return access
        service = self._connect(token, peer=peer)
        loop = asyncio.get_running_loop()
        if token in self.known:
            self._make_room(token)
            opened = loop.create_task(self._open(token, service))
            access = self._opened[token] = TokenService(token, service, opened)
        else:
            most = self._limits.gateway_unproven_max
            if len(self._unproven) >= most:
                raise LimitError("gateway_unproven_max", most)
            opened = loop.create_task(self._prove(token, service))
            access = self._unproven[token] = TokenService(token, service, opened)
        return access

    def _make_room(self, token: str) -> None:
        """Closes the unused connection that was opened first. Raises LimitError without one."""
        most = self._limits.gateway_tokens_max
        if token in self._opened or len(self._opened) < most:
            return
        for other, access in self._opened.items():
            if not access.uses:
                self._drop(other, access)
                return
        raise LimitError("gateway_tokens_max", most)

    async def _open(self, token: str, service: TcpService) -> None:
        try:
            await service.open()
        except ConnectionFailedError as error:
            if error.fault == NOT_PERMITTED:
                self.known.discard(token)
            raise
        self.known.add(token)
        self._on_accepted(_user_of(service, token), token)

    async def _prove(self, token: str, service: TcpService) -> None:
        """Opens an unproven connection in its turn; only then it counts among the known ones."""
        async with self._opening:
            await self._open(token, service)
        access = self._unproven.get(token)
        if access is None or access.service is not service:
            return  # Its requests have left.
        self._make_room(token)
        self._opened[token] = self._unproven.pop(token)

    def _release(self, token: str, access: TokenService) -> None:
        """Starts the idle timer of a good connection, and closes a failed or ended one."""
        loop = asyncio.get_running_loop()
        has_failed = access.opened.done() and (
            access.opened.cancelled() or access.opened.exception() is not None
        )
        is_unproven = self._unproven.get(token) is access
        is_over = access.service.connection.state == "closed" or self._is_closed
        if has_failed or is_unproven or is_over:
            self._drop(token, access)
        else:
            access.idle = loop.call_later(self._limits.gateway_idle_s, self._drop, token, access)

    def _drop(self, token: str, access: TokenService) -> None:
        for accesses in (self._opened, self._unproven):
            if accesses.get(token) is access:
                del accesses[token]
        if access.idle is not None:
            access.idle.cancel()
        task = asyncio.get_running_loop().create_task(self._close(access))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, access: TokenService) -> None:
        access.opened.cancel()
        await asyncio.gather(access.opened, return_exceptions=True)
        await access.service.aclose()

    async def aclose(self) -> None:
        """Closes all connections; iterations of their subscriptions end after their queues."""
        self._is_closed = True
        for token, access in [*self._opened.items(), *self._unproven.items()]:
            self._drop(token, access)
        await asyncio.gather(*self._closing)
