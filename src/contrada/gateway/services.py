"""The connections of a gateway to its broker: one for each token, shared by all who show it.

Who a token belongs to, and what it may do, the broker says: a token that it refuses has no service.
A connection that nobody has used for a while is closed.

Invariant: at most GATEWAY_TOKENS_MAX are open, or being opened.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

from contrada.errors import LimitError, ServiceClosedError
from contrada.net import TcpService

GATEWAY_TOKENS_MAX: Final = 1_000
"""Tokens whose connections a gateway holds. Beyond it: one that nobody uses is closed for another
one, and where all are used, it is refused."""

GATEWAY_IDLE_S: Final = 60.0
"""Seconds for which a connection that nobody uses is kept. Beyond it: it is closed."""

GATEWAY_OPENING_MAX: Final = 16
"""Connections that are being opened at a time: a broker takes its time over a token. Beyond it: the
others wait."""

ServiceOfToken: TypeAlias = Callable[[str], TcpService]
"""Gives the service, not opened yet, of a token; empty is nobody's."""


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


class TokenServices:
    """All of them."""

    def __init__(self, connect: ServiceOfToken) -> None:
        self._connect = connect
        self._accesses: dict[str, TokenService] = {}
        self._opening = asyncio.Semaphore(GATEWAY_OPENING_MAX)
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._accesses)

    @asynccontextmanager
    async def use(self, token: str) -> AsyncIterator[TokenService]:
        """The connection of a token, open while it is used.

        Raises ConnectionFailedError, also where the broker refuses the token, LimitError,
        ServiceClosedError.
        """
        access = self._of(token)
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

    def _of(self, token: str) -> TokenService:
        if self._is_closed:
            raise ServiceClosedError("the gateway stops")
        access = self._accesses.get(token)
        if access is not None and access.service.connection.state != "closed":
            return access
        if access is None and len(self._accesses) >= GATEWAY_TOKENS_MAX:
            self._make_room()
        service = self._connect(token)
        opened = asyncio.get_running_loop().create_task(self._open(service))
        access = self._accesses[token] = TokenService(service, opened)
        return access

    def _make_room(self) -> None:
        """Closes the one that nobody uses the longest: they stand in the order of their opening."""
        for token, access in self._accesses.items():
            if not access.uses:
                self._drop(token, access)
                return
        raise LimitError("GATEWAY_TOKENS_MAX", GATEWAY_TOKENS_MAX)

    async def _open(self, service: TcpService) -> None:
        async with self._opening:
            await service.open()

    def _rest(self, token: str, access: TokenService) -> None:
        """Nobody uses it for now; one that was not opened, or has ended, is of no more use."""
        loop = asyncio.get_running_loop()
        has_failed = access.opened.done() and (
            access.opened.cancelled() or access.opened.exception() is not None
        )
        if has_failed or access.service.connection.state == "closed" or self._is_closed:
            self._drop(token, access)
        else:
            access.idle = loop.call_later(GATEWAY_IDLE_S, self._drop, token, access)

    def _drop(self, token: str, access: TokenService) -> None:
        if self._accesses.get(token) is access:
            del self._accesses[token]
        if access.idle is not None:
            access.idle.cancel()
        task = asyncio.get_running_loop().create_task(self._close(access))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, access: TokenService) -> None:
        access.opened.cancel()
        await asyncio.wait([access.opened])
        await access.service.aclose()

    async def aclose(self) -> None:
        """Closes all: iterations of their subscriptions end after what they hold."""
        self._is_closed = True
        for token, access in list(self._accesses.items()):
            self._drop(token, access)
        await asyncio.gather(*self._closing)
