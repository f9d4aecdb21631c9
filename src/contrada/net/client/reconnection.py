"""`Reconnection`: the connection of a client, made again after each loss.

    open --> connected --lost--> trying (the next address, after a wait) --> connected ...
                                    '--given up--> closed

Invariants: only the failure of the first connection is raised by `open`. A message is sent on the
present connection, or not at all: a caller awaits `ready` first. The connection is `is_up` when its
owner has restored its subscriptions, so that no later message overtakes them. Closing waits for the
broker at most `goodbye_wait_s`, and for no attempt. While a caller or the owner needs the
connection, at most `retry_s_max` passes between two rounds of attempts.
"""

import asyncio
import itertools
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    ProtocolError,
    ServiceClosedError,
    ServiceError,
)
from contrada.net.client.client_limits import SEVERAL_LIVENESS, ClientLimits
from contrada.net.wire.address import SCHEME_TLS, Address, shown_addresses
from contrada.net.wire.connection import CLIENT, USUAL_LIVENESS
from contrada.net.wire.endpoint import ClientWire, ConnectOptions, describe_os_error, dial
from contrada.net.wire.frames import Frame, Hello, Reply, Request
from contrada.net.wire.tls import TLS_FAULT, Tls
from contrada.net.wire.tokens import present_token
from contrada.service import ConnectionState
from contrada.service.backoff import Backoff, jitter
from contrada.service.connection_states import ConnectionStates
from contrada.service.loop_guards import check_loop

_LOG: Final = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """The owner of a connection."""

    def on_frame(self, frame: Frame) -> None:
        """Handles a frame."""

    def on_lost(self, unanswered: ServiceError, unsent: ServiceError) -> None:
        """Fails all open requests: those that were sent, and those that were not."""

    async def resume(self) -> None:
        """Restores the state on a new connection. Raises ConnectionFailedError."""

    def on_given_up(self, failure: ServiceError) -> None:
        """Ends: there will be no other connection."""

    @property
    def needs_connection(self) -> bool:
        """Whether a reader or an unanswered request waits for a connection."""
        ...


class Reconnection:
    """The connection of a client to a broker at one of several addresses."""

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
        """`on_welcome` gets the publisher prefix that the broker assigns, or an empty name.

        `give_up_after_s` bounds the attempts to reconnect; None does not. Without TLS in `options`,
        the system authorities are trusted. Raises ServiceError.
        """
        has_tls = any(each.is_tls for each in addresses)
        tls = options.tls
        if tls is not None and not has_tls:
            reason = f"tls is for {SCHEME_TLS}://, and this is {shown_addresses(addresses)}"
            raise ServiceError(reason)
        open_way = next((each for each in addresses if not each.is_private), None)
        if options.token and open_way is not None and options.reach is None:
            raise ServiceError(
                f"a token is sent over TLS (contradas://) only, and this is {open_way}"
            )
        if has_tls and tls is None:
            options = replace(options, tls=Tls().client_context())
        if len(addresses) > 1 and limits.liveness is USUAL_LIVENESS:
            tick_s = min(limits.client_tick_s, SEVERAL_LIVENESS.ping_after_s / 2)
            limits = replace(limits, liveness=SEVERAL_LIVENESS, client_tick_s=tick_s)
        self.options, self.limits = options, limits
        self.address = addresses[0]
        """The address of the present or last connection."""
        self.is_up = False
        self._addresses = addresses
        self._owner = owner
        self._on_welcome = on_welcome
        self.capabilities: Mapping[str, int | str | bool] = {}
        """The capabilities of the broker at the last connection."""
        self._states = states
        self._give_up_after_s = give_up_after_s
        self._backoff = Backoff(limits.backoff)
        self._wire: ClientWire | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._work: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._needed = asyncio.Event()
        self._callers = 0  # in `ready`
        self._up_since_s = 0.0
        self._failure: ServiceError | None = None
        self._numbered = 0
        self._requests: dict[int, asyncio.Future[Any]] = {}

    async def open(self) -> None:
        """Connects. Twice is once. Raises ConnectionFailedError, ServiceClosedError."""
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
        """Says goodbye, and closes the connection or the attempt."""
        self._fail(ServiceClosedError("the service is closed"))
        try:
            if self._wire is not None:
                await self._wire.close()
            if self._work is not None and not self._work.done():
                await asyncio.wait([self._work])
        finally:
            self._states.change(ConnectionState("closed", str(self.address)))

    def check_loop(self) -> None:
        """Raises ServiceError on another event loop than the one of `open`."""
        if self._loop is not None:
            check_loop(self._loop)

    def check(self) -> None:
        """Raises unless it is open, and this is its event loop."""
        if self._failure is not None:
            raise self._failure.copy()
        if self._loop is None:
            raise ServiceError("use the service inside `async with`")
        check_loop(self._loop)

    async def ready(self) -> None:
        """Waits until it is up. Raises ConnectionFailedError after `disconnected_wait_s`."""
        self.check()
        if self.is_up:
            return
        self._callers += 1
        self.hurry()
        try:
            async with asyncio.timeout(self.limits.disconnected_wait_s):
                while not self.is_up:
                    self._changed.clear()
                    await self._changed.wait()
                    self.check()
        except TimeoutError:
            wait_s = self.limits.disconnected_wait_s
            reason = f"not connected again within {wait_s:g} s, so nothing was sent"
            if self._states.current.reason:
                reason = f"{reason} ({self._states.current.reason})"
            raise ConnectionFailedError(shown_addresses(self._addresses), reason) from None
        finally:
            self._callers -= 1

    def hurry(self) -> None:
        """Ends the wait for the next attempt, unless the last one was just now."""
        self._needed.set()

    @property
    def is_there(self) -> bool:
        """Whether there is a connection, up or not."""
        return self._wire is not None

    def check_there(self) -> None:
        """Raises ConnectionFailedError without a connection."""
        if self._wire is None:
            self.check()
            reason = "the connection is lost, so nothing was sent"
            raise ConnectionFailedError(str(self.address), reason)

    def ask(self, frame: Frame) -> None:
        """Sends a request, if it was not lost since `ready`. Raises ConnectionFailedError."""
        self.check_there()
        self.send(frame)

    def send(self, frame: Frame) -> None:
        """Sends a frame, if there is a connection."""
        if self._wire is not None:
            self._wire.send(frame)

    def send_now(self, frame: Frame) -> None:
        """Sends a frame in this moment, not at the end of the turn, if there is a connection."""
        if self._wire is not None:
            self._wire.send_now(frame)

    # ----------------------------------------------------------------------------- requests

    def call(self, asking: Callable[[int], Frame]) -> asyncio.Future[Any]:
        """Sends a frame with an even number of its own. Returns its answer. Raises as `ask`."""
        self._numbered += 2
        self.ask(asking(self._numbered))
        answer = self._requests[self._numbered] = asyncio.get_running_loop().create_future()
        return answer

    def request(
        self, message: msgspec.Raw, credit: int = 0, when_full: str = ""
    ) -> asyncio.Future[Reply]:
        """Sends a request to the broker. Raises as `ask`."""
        return self.call(lambda number: Request(number, message, credit, when_full=when_full))

    def request_unanswered(self, message: msgspec.Raw) -> None:
        """Sends a request without an answer, if there is a connection."""
        self.send(Request(0, message))

    async def request_in_time(self, message: msgspec.Raw) -> Reply | None:
        """Sends a withdrawal. Returns None without a connection, or if the broker is slow."""
        if self._wire is None:
            return None
        try:
            async with asyncio.timeout(self.limits.goodbye_wait_s):
                return await self.request(message)
        except (ServiceError, TimeoutError):
            return None

    def answer(self, number: int, frame: Frame, error: ServiceError | None = None) -> None:
        """Resolves a request."""
        answer = self._requests.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(frame) if error is None else answer.set_exception(error)

    def _lose(self, unanswered: ServiceError, unsent: ServiceError) -> None:
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(unsent.copy())
                answer.exception()  # Retrieved: of many, only the first is awaited.
        self._requests.clear()
        self._owner.on_lost(unanswered, unsent)

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
        """Returns a connection with the broker's hello. Raises ConnectionFailedError."""
        try:
            token = present_token(self.options.token)
        except ContradaError as error:  # A file may be replaced just now.
            raise ConnectionFailedError(str(address), str(error)) from None
        hello = Hello(CLIENT, "contrada", {}, token)
        wire = ClientWire(
            hello,
            self._owner.on_frame,
            lambda why: self._on_lost(wire, why),
            liveness=self.limits.liveness,
            tick_s=self.limits.client_tick_s,
            goodbye_wait_s=self.limits.goodbye_wait_s,
        )
        reach = self.options.reach
        try:
            async with asyncio.timeout(self.limits.connect_wait_s):
                await (reach(wire) if reach else dial(wire, address, self.options.tls))
                await wire.greeted
            if wire.ended is not None:
                raise ProtocolError(wire.ended)
        except TimeoutError:
            wire.abort()
            reason = f"no answer from a broker within {self.limits.connect_wait_s:g} s"
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
        self.address, self.capabilities = address, wire.capabilities
        self._on_welcome(wire.publisher_prefix)
        return wire

    def _set_up(self, wire: ClientWire) -> None:
        if wire.ended is not None:  # Lost after its last answer, so no request has failed.
            raise ConnectionFailedError(str(self.address), wire.ended)
        self._up_since_s = asyncio.get_running_loop().time()
        self.is_up = True
        self._changed.set()
        self._states.change(ConnectionState("connected", str(self.address)))

    def _on_lost(self, wire: ClientWire, reason: str) -> None:
        """Handles the end of a connection; ignores one that was already dropped."""
        if wire is not self._wire:
            return
        self._wire = None
        was_up, self.is_up = self.is_up, False
        if self._failure is not None:  # It is being closed.
            self._lose(self._failure, self._failure)
            return
        address = str(self.address)
        unsent = ConnectionFailedError(address, reason)
        unknown = "unanswered publications may have arrived, or not"
        unanswered = f"{reason}; {unknown}"
        self._lose(ConnectionFailedError(address, unanswered, may_be_published=True), unsent)
        if not was_up:
            return  # The task in `resume` gets the error, and continues.
        self._states.change(ConnectionState("lost", address, reason))
        loop = asyncio.get_running_loop()
        if self._give_up_after_s == 0:
            self._give_up(unsent)
            return
        if loop.time() - self._up_since_s >= self.limits.backoff.steady_s:
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
        """Tries the addresses in turn, with a wait before each round, until one is up."""
        place = self._addresses.index(self.address) + 1
        for attempt in itertools.count():
            address = self._addresses[(place + attempt) % len(self._addresses)]
            is_round = attempt % len(self._addresses) == 0
            wait_s = self._backoff.next_s() if is_round else 0.0
            # With jitter, as the whole wait: many clients may need their connections.
            soon_s = min(wait_s, self.limits.retry_s_max * jitter())
            if self._callers or self._owner.needs_connection:
                wait_s = soon_s
            self._needed.clear()
            self._states.change(
                ConnectionState("trying", str(address), reason, attempt + 1, wait_s)
            )
            await asyncio.sleep(soon_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s - soon_s):
                    await self._needed.wait()
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
        self._lose(failure, failure)
        self._owner.on_given_up(failure)
        self._states.change(ConnectionState("closed", failure.address, failure.reason))

    def _drop(self) -> None:
        """Cuts the connection without a report."""
        wire, self._wire = self._wire, None
        self.is_up = False
        if wire is not None:
            wire.abort()

    def _fail(self, failure: ServiceError) -> None:
        """Ends all attempts, and wakes all waiting callers."""
        self._failure = failure
        self.is_up = False
        self._changed.set()
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()
