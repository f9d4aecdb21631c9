"""The connection of a client: made once at first, and made anew whenever it was lost.

    open --> connected --lost--> trying (the next address, after a wait) --> connected ...
                                    '--given up--> closed

Invariants:
- only the failure of the first connection is raised to its opener; later ones are told to all that
wait;
  a message goes to the present connection, or nowhere. A caller that needs a connection awaits
  `ready` first, and nobody waits for an answer to a message that went nowhere;
  the connection is `is_up` when its owner has put in force on it what was in force before, so that
  no later message overtakes that;
- closing waits for no peer longer than GOODBYE_WAIT_S, and for no attempt.
"""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from contrada.errors import ConnectionFailedError, ProtocolError, ServiceClosedError, ServiceError
from contrada.net.client.client_limits import ClientLimits
from contrada.net.wire.address import SCHEME_TLS, Address, shown_addresses
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.endpoint import ClientWire, ConnectOptions, describe_os_error, dial
from contrada.net.wire.frames import Frame, Hello
from contrada.net.wire.tls import TLS_FAULT, Tls
from contrada.service import ConnectionState
from contrada.service.backoff import STEADY_S, Backoff
from contrada.service.connection_states import ConnectionStates
from contrada.service.loop_guards import check_loop

_LOG: Final = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """Whose connection it is."""

    def received(self, frame: Frame) -> None:
        """A frame has come."""

    def on_lost(self, unanswered: ServiceError, unsent: ServiceError) -> None:
        """Nothing that was asked is answered any more: what was sent, and what was not yet."""

    async def resume(self) -> None:
        """Put in force anew what was in force. Raises ConnectionFailedError."""

    def on_given_up(self, failure: ServiceError) -> None:
        """The connection is gone, and no other will be made."""


class Reconnection:
    """The connection of a client to the broker at one of several addresses."""

    def __init__(
        self,
        addresses: Sequence[Address],
        owner: ConnectionOwner,
        states: ConnectionStates,
        give_up_after_s: float | None,
        options: ConnectOptions,
        on_welcome: Callable[[str], None] = lambda _: None,
        limits: ClientLimits = ClientLimits(),
    ) -> None:
        """`on_welcome` is called with the name below which a broker lets publish, or nothing.

        `give_up_after_s` bounds how long a lost connection is tried anew; None does not.

        Without TLS in `options`, whom the system trusts is trusted. Raises ServiceError.
        """
        has_tls = any(each.is_tls for each in addresses)
        tls = options.tls
        if tls is not None and not has_tls:
            reason = f"tls is for {SCHEME_TLS}://, and this is {shown_addresses(addresses)}"
            raise ServiceError(reason)
        open_way = next((each for each in addresses if not each.is_private), None)
        if options.token and open_way is not None and options.reach is None:
            raise ServiceError(f"a token goes over TLS (contradas://) only, and this is {open_way}")
        if has_tls and tls is None:
            options = replace(options, tls=Tls().client_context())
        self._options, self._limits = options, limits
        self.address = addresses[0]
        """The address of the present connection, or of the last one."""
        self.is_up = False
        self._addresses = addresses
        self._owner = owner
        self._on_welcome = on_welcome
        self._states = states
        self._give_up_after_s = give_up_after_s
        self._backoff = Backoff()
        self._wire: ClientWire | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._work: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._up_since_s = 0.0
        self._failure: ServiceError | None = None

    async def open(self) -> None:
        """Connect; twice is once. Raises ConnectionFailedError, ServiceClosedError."""
        async with self._opening:
            if isinstance(self._failure, ServiceClosedError):
                raise ServiceClosedError("this service is closed; connect anew")
            if self._loop is not None:
                self.check()
                return
            self._loop = asyncio.get_running_loop()
            self._work = self._loop.create_task(self._connect_first())
            try:
                await self._work
            except BaseException as error:
                self._loop = None
                self._drop()
                task = asyncio.current_task()
                is_cancelled = task is not None and task.cancelling() > 0
                if self._failure is not None and not is_cancelled:
                    raise self._failure from error  # It was closed meanwhile.
                raise

    async def aclose(self) -> None:
        """Say goodbye, and close whatever is there or under way."""
        self._fail(ServiceClosedError("the service is closed"))
        try:
            if self._wire is not None:
                await self._wire.close()
            if self._work is not None and not self._work.done():
                await asyncio.wait([self._work])
        finally:
            self._states.tell(ConnectionState("closed", str(self.address)))

    def check_loop(self) -> None:
        """Raise ServiceError where it was opened on another event loop."""
        if self._loop is not None:
            check_loop(self._loop)

    def check(self) -> None:
        """Raise unless it is open, and this is its event loop."""
        if self._failure is not None:
            raise self._failure
        if self._loop is None:
            raise ServiceError("use the service inside `async with`")
        check_loop(self._loop)

    async def ready(self) -> None:
        """Return when it is up. Raises ConnectionFailedError where that takes too long."""
        self.check()
        try:
            async with asyncio.timeout(self._limits.disconnected_wait_s):
                while not self.is_up:
                    self._changed.clear()
                    await self._changed.wait()
                    self.check()
        except TimeoutError:
            wait_s = self._limits.disconnected_wait_s
            reason = f"not connected again within {wait_s:g} s, so nothing was sent"
            if self._states.current.reason:
                reason = f"{reason} ({self._states.current.reason})"
            raise ConnectionFailedError(shown_addresses(self._addresses), reason) from None

    @property
    def is_there(self) -> bool:
        """Whether what is sent now goes to a broker, up or not."""
        return self._wire is not None

    def check_there(self) -> None:
        """Raise ConnectionFailedError where no connection is there."""
        if self._wire is None:
            reason = "the connection is lost, so nothing was sent"
            raise self._failure or ConnectionFailedError(str(self.address), reason)

    def ask(self, frame: Frame) -> None:
        """Send a frame that is to be answered. Raises ConnectionFailedError: nobody would answer.

        It may be lost since `ready` returned, where the loop has turned meanwhile.
        """
        self.check_there()
        self.send(frame)

    def send(self, frame: Frame) -> None:
        """Send a frame where a connection is there."""
        if self._wire is not None:
            self._wire.send(frame)

    def send_now(self, frame: Frame) -> None:
        """Send a frame without waiting for the end of this turn, where a connection is there."""
        if self._wire is not None:
            self._wire.send_now(frame)

    # ----------------------------------------------------------------------------- attempts

    async def _connect_first(self) -> None:
        failures = []
        for address in self._addresses:
            try:
                self._wire = wire = await self._connect(address)
                self._set_up(wire)
            except ConnectionFailedError as error:
                failures.append(error)
            else:
                return
        if len(failures) == 1:
            raise failures[0]
        every = "; ".join(map(str, failures))
        raise ConnectionFailedError(shown_addresses(self._addresses), f"none answers: {every}")

    async def _connect(self, address: Address) -> ClientWire:
        """A connection on which the broker has said hello. Raises ConnectionFailedError."""
        hello = Hello(CLIENT, "contrada", {}, self._options.token)
        wire = ClientWire(
            hello,
            self._owner.received,
            lambda why: self._on_lost(wire, why),
            liveness=self._limits.liveness,
            tick_s=self._limits.client_tick_s,
            goodbye_wait_s=self._limits.goodbye_wait_s,
        )
        reach = self._options.reach
        try:
            async with asyncio.timeout(self._limits.connect_wait_s):
                await (reach(wire) if reach else dial(wire, address, self._options.tls))
                await wire.greeted
            if wire.ended is not None:
                raise ProtocolError(wire.ended)
        except TimeoutError:
            wire.abort()
            reason = f"no answer from a broker within {self._limits.connect_wait_s:g} s"
            raise ConnectionFailedError(str(address), reason) from None
        except OSError as error:
            fault = TLS_FAULT if isinstance(error, ssl.SSLError) else ""
            raise ConnectionFailedError(
                str(address), describe_os_error(error), fault=fault
            ) from None
        except ProtocolError as error:
            raise ConnectionFailedError(str(address), str(error), fault=wire.fault) from None
        except BaseException:
            wire.abort()
            raise
        self.address = address
        self._on_welcome(wire.told)
        return wire

    def _set_up(self, wire: ClientWire) -> None:
        if wire.ended is not None:  # Since its last answer, so that nobody was told.
            raise ConnectionFailedError(str(self.address), wire.ended)
        self._up_since_s = asyncio.get_running_loop().time()
        self.is_up = True
        self._changed.set()
        self._states.tell(ConnectionState("connected", str(self.address)))

    def _on_lost(self, wire: ClientWire, reason: str) -> None:
        """A connection has ended, by us or not; one that was given up already does not count."""
        if wire is not self._wire:
            return
        self._wire = None
        was_up, self.is_up = self.is_up, False
        if self._failure is not None:  # It is being closed.
            self._owner.on_lost(self._failure, self._failure)
            return
        address = str(self.address)
        unsent = ConnectionFailedError(address, reason)
        unknown = "what was published and not answered may have come there, or not"
        self._owner.on_lost(
            ConnectionFailedError(address, f"{reason}; {unknown}", may_be_published=True), unsent
        )
        if not was_up:
            return  # The task that takes up what was in force learns it, and goes on.
        self._states.tell(ConnectionState("lost", address, reason))
        loop = asyncio.get_running_loop()
        if self._give_up_after_s == 0:
            self._give_up(unsent)
            return
        if loop.time() - self._up_since_s >= STEADY_S:
            self._backoff.reset()
        self._work = loop.create_task(self._connect_again(reason))

    async def _connect_again(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._give_up_after_s):
                await self._try(reason)
        except TimeoutError:
            found = self._states.current.reason
            tried = f"not connected again within {self._give_up_after_s:g} s: {found}"
            self._give_up(ConnectionFailedError(shown_addresses(self._addresses), tried))
        except Exception as error:  # noqa: BLE001 - else all would wait for ever
            _LOG.exception("a fault of this client while it connects again")
            reason = f"a fault of this client ({type(error).__name__})"
            self._give_up(ConnectionFailedError(str(self.address), reason))

    async def _try(self, reason: str) -> None:
        """Try one address after the other, with a wait before each round, until one is up."""
        place = self._addresses.index(self.address) + 1
        for attempt in itertools.count():
            address = self._addresses[(place + attempt) % len(self._addresses)]
            is_round = attempt % len(self._addresses) == 0
            wait_s = self._backoff.next_s() if is_round else 0.0
            self._states.tell(ConnectionState("trying", str(address), reason, attempt + 1, wait_s))
            await asyncio.sleep(wait_s)
            try:
                self._wire = wire = await self._connect(address)
                await self._owner.resume()
                self._set_up(wire)
            except ConnectionFailedError as error:
                reason = error.reason
            else:
                return

    def _give_up(self, failure: ConnectionFailedError) -> None:
        self._drop()
        self._fail(failure)
        self._owner.on_lost(failure, failure)
        self._owner.on_given_up(failure)
        self._states.tell(ConnectionState("closed", failure.address, failure.reason))

    def _drop(self) -> None:
        """Cut what is there, without a word to anybody."""
        wire, self._wire = self._wire, None
        self.is_up = False
        if wire is not None:
            wire.abort()

    def _fail(self, failure: ServiceError) -> None:
        """No more attempts are made, and all that wait are told."""
        self._failure = failure
        self.is_up = False
        self._changed.set()
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
