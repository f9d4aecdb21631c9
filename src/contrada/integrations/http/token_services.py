"""The connections of a gateway to its broker: one for each token, shared by all its requests.

The broker decides whose a token is, and what that user may do: a token that it refuses has no
service. A connection that nobody has used for a while is closed.

A token is *unproven* until the broker has taken it once. A client that invents many tokens takes
room and time only from other unproven ones.

Invariant: at most GATEWAY_TOKENS_MAX are open or known, and at most GATEWAY_UNPROVEN_MAX besides.
"""

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from contrada.errors import ConnectionFailedError, LimitError, ServiceClosedError
from contrada.net.client.tcp_service import TcpService
from contrada.service.security.principals import NOT_PERMITTED

GATEWAY_TOKENS_MAX: Final = 1_000
"""Tokens whose connections a gateway holds. Beyond it: one that nobody uses is closed for another
one, and where all are used, it is refused."""

GATEWAY_IDLE_S: Final = 60.0
"""Seconds for which a connection that nobody uses is kept. Beyond it: it is closed."""

GATEWAY_UNPROVEN_MAX: Final = 256
"""Tokens that wait to be taken by the broker for the first time. Beyond it: a further one is
refused, 503."""

GATEWAY_OPENING_MAX: Final = 16
"""Connections of these that are being opened at a time: a broker takes its time over a token.
Beyond it: the others wait."""

GATEWAY_KNOWN_MAX: Final = 10_000
"""Tokens that are known to have been right. Beyond it: the one that was shown longest ago is
unproven again."""


class ServiceOfToken(Protocol):
    """Gives the service, not opened yet, of a token; empty is nobody's. `peer` is logged."""

    def __call__(self, token: str, *, peer: str) -> TcpService: ...  # noqa: D102


class CutStream(Protocol):
    """An event stream, as far as others are concerned with it."""

    ended: asyncio.Event

    def cut(self) -> None:
        """End it now."""


class TokenService:
    """The connection of one token."""

    __slots__ = ("idle", "opened", "publishing", "service", "streams", "uses")

    def __init__(self, service: TcpService, opened: "asyncio.Task[None]") -> None:
        self.service = service
        self.opened = opened
        self.uses = 0
        self.idle: asyncio.TimerHandle | None = None
        self.publishing = asyncio.Lock()
        """Held while something is published, so that what is refused is of one request."""
        self.streams: dict[str, set[CutStream]] = {}
        """Those of durable subscriptions, by name."""


async def closed(service: TcpService) -> None:
    """Returns when the connection has ended for good: the broker or this side has closed it."""
    async for state in service.connection_states():
        if state.state == "closed":
            return


class KnownTokens:
    """Those that were right: kept is a keyed digest, from which none can be found."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, None] = {}

    def __contains__(self, token: str) -> bool:
        return self._digest(token) in self._known

    def add(self, token: str) -> None:
        """The broker has taken it."""
        self.discard(token)
        if len(self._known) >= GATEWAY_KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[self._digest(token)] = None

    def discard(self, token: str) -> None:
        """The broker refuses it."""
        self._known.pop(self._digest(token), None)

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")


class TokenServices:
    """All of them."""

    def __init__(self, connect: ServiceOfToken) -> None:
        self._connect = connect
        self._opened: dict[str, TokenService] = {}
        """Also those of known tokens that are being opened."""
        self._unproven: dict[str, TokenService] = {}
        self.known = KnownTokens()
        self.on_taken: Callable[[str], None] = lambda _: None
        """Told of each token with which a connection was opened."""
        self._opening = asyncio.Semaphore(GATEWAY_OPENING_MAX)
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._opened) + len(self._unproven)

    @asynccontextmanager
    async def use(self, token: str, peer: str) -> AsyncIterator[TokenService]:
        """The connection of a token, open while it is used, for `peer`.

        Raises ConnectionFailedError, also where the broker refuses the token, LimitError,
        ServiceClosedError.
        """
        access = self._of(token, peer)
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
                self._rest(token, access)

    def _of(self, token: str, peer: str) -> TokenService:
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
            access = self._opened[token] = TokenService(service, opened)
        else:
            if len(self._unproven) >= GATEWAY_UNPROVEN_MAX:
                raise LimitError("GATEWAY_UNPROVEN_MAX", GATEWAY_UNPROVEN_MAX)
            opened = loop.create_task(self._prove(token, service))
            access = self._unproven[token] = TokenService(service, opened)
        return access

    def _make_room(self, token: str) -> None:
        """Closes the one that nobody uses the longest: they stand in the order of their opening."""
        if token in self._opened or len(self._opened) < GATEWAY_TOKENS_MAX:
            return
        for other, access in self._opened.items():
            if not access.uses:
                self._drop(other, access)
                return
        raise LimitError("GATEWAY_TOKENS_MAX", GATEWAY_TOKENS_MAX)

    async def _open(self, token: str, service: TcpService) -> None:
        try:
            await service.open()
        except ConnectionFailedError as error:
            if error.fault == NOT_PERMITTED:
                self.known.discard(token)
            raise
        self.known.add(token)
        self.on_taken(token)

    async def _prove(self, token: str, service: TcpService) -> None:
        """Opens it when it is its turn; only then it takes the room of others."""
        async with self._opening:
            await self._open(token, service)
        access = self._unproven.get(token)
        if access is None or access.service is not service:
            return  # Nobody waits for it any more.
        self._make_room(token)
        self._opened[token] = self._unproven.pop(token)

    def _rest(self, token: str, access: TokenService) -> None:
        """Nobody uses it for now; one that was not opened, or has ended, is of no more use."""
        loop = asyncio.get_running_loop()
        has_failed = access.opened.done() and (
            access.opened.cancelled() or access.opened.exception() is not None
        )
        is_unproven = self._unproven.get(token) is access
        is_over = access.service.connection.state == "closed" or self._is_closed
        if has_failed or is_unproven or is_over:
            self._drop(token, access)
        else:
            access.idle = loop.call_later(GATEWAY_IDLE_S, self._drop, token, access)

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
        """Closes all: iterations of their subscriptions end after what they hold."""
        self._is_closed = True
        for token, access in [*self._opened.items(), *self._unproven.items()]:
            self._drop(token, access)
        await asyncio.gather(*self._closing)
