"""`Export` and `Proxy`: remote services called over the network of the events, with leases.

An export lasts as long as its lease. Each call renews the lease, so does each open proxy, and
`renew`. So a holder of a reference that crashes keeps nothing alive. A call is answered once at
most. A call without an answer may have been executed.

Source: EPFL 2503 §4.6.3, figure 4.23.
"""

import asyncio
import contextlib
import inspect
import itertools
import logging
import secrets
from typing import Any, Final, Generic, Self, TypeVar, cast

from contrada.errors import (
    ContradaError,
    InvalidNotificationError,
    InvalidObventError,
    LimitError,
    RemoteCallError,
    ServiceError,
)
from contrada.model.domains.values import is_number
from contrada.service import Service
from contrada.typed.remote_calls import (
    RENEWAL,
    Reference,
    RemoteAnswer,
    RemoteCall,
    RemoteInterface,
)

S = TypeVar("S")

LEASE_S: Final = 60.0
"""Default seconds of a lease after its last renewal."""

CALL_WAIT_S: Final = 10.0
"""Seconds that a call waits by default. Beyond it: RemoteCallError; it may have been executed."""

CALLS_UNDER_WAY_MAX: Final = 256
"""Concurrent calls of one export. Beyond it: further calls wait."""

_RENEW_LEAST_S: Final = 0.05

_LOG: Final = logging.getLogger("contrada.service")


class Export(Generic[S]):
    """An object that can be called remotely while it is open and its lease lasts."""

    def __init__(
        self, service: Service, target: S, interface: type[Any], *, lease_s: float = LEASE_S
    ) -> None:
        """Raises ServiceError for an invalid time, InvalidObventError for an invalid interface."""
        self._service = service
        self._target = target
        self._interface = RemoteInterface(interface)
        self._lease_s = _seconds("lease_s", lease_s)
        self.reference: Reference[S] = Reference(secrets.token_urlsafe(16))
        self._runner: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expired = asyncio.Event()

    async def __aenter__(self) -> Reference[S]:
        await self.open()
        return self.reference

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> Self:
        """Accepts calls from now on. Raises the errors of `Subscription.open`."""
        self._calls = self._service.subscribe(RemoteCall, {"target": self.reference.address})
        await self._calls.open()
        self._runner = asyncio.get_running_loop().create_task(self._run())
        self.renew()
        return self

    @property
    def is_open(self) -> bool:
        """Whether it accepts calls."""
        return self._runner is not None and not self._expired.is_set()

    def renew(self) -> None:
        """Renews the lease."""
        if self._expiry is not None:
            self._expiry.cancel()
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(self._lease_s, self._end)

    async def expired(self) -> None:
        """Returns when the lease is over, or the export was closed."""
        await self._expired.wait()

    async def aclose(self) -> None:
        """Accepts no more calls. Idempotent."""
        self._end()
        if self._runner is not None:
            await asyncio.wait([self._runner])
            await self._withdraw()

    def _end(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if self._runner is not None:
            self._runner.cancel()
        self._expired.set()

    async def _run(self) -> None:
        try:
            await self._calls.handle(self._answer, concurrency=CALLS_UNDER_WAY_MAX)
        finally:
            await self._withdraw()

    async def _withdraw(self) -> None:
        """Ends the subscription; a task cancelled before its start runs no `finally`."""
        with contextlib.suppress(ServiceError):
            await self._calls.unsubscribe()

    async def _answer(self, call: RemoteCall) -> None:
        self.renew()
        answer = RemoteAnswer(call.caller, call.number)
        try:
            answer.value = await self._invoke(call) if call.method != RENEWAL else self._lease_s
        except (Exception, asyncio.CancelledError) as error:  # sent to the caller
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # The export ends.
            answer.error = f"{type(error).__name__}: {error}"
        with contextlib.suppress(ServiceError):  # The caller's wait is bounded.
            try:
                await self._service.publish(answer)
            except (InvalidNotificationError, InvalidObventError, LimitError) as error:
                reason = f"its answer cannot be sent: {type(error).__name__}"
                await self._service.publish(RemoteAnswer(call.caller, call.number, None, reason))

    async def _invoke(self, call: RemoteCall) -> Any:
        method = self._interface.methods.get(call.method)
        if method is None:
            raise RemoteCallError(f"{self._interface.name} has no method {call.method!r}")
        given = method.read_arguments(call.arguments)
        found = getattr(self._target, call.method)(*given.args, **given.kwargs)
        if inspect.isawaitable(found):
            found = await found
        return method.write_value(found)


class Proxy(Generic[S]):
    """A local representative of a remote service, used inside `async with`.

    `async with` returns an object with the methods of the interface, each to be awaited. The proxy
    renews the lease while it is open. A call raises RemoteCallError with the text of the method's
    error; it also does if no answer arrives in time, if the proxy is closed, or the service is.
    """

    def __init__(
        self,
        service: Service,
        reference: Reference[S],
        interface: type[Any],
        *,
        wait_s: float = CALL_WAIT_S,
        renew_s: float = LEASE_S / 3,
    ) -> None:
        """Raises ServiceError for an invalid time, InvalidObventError for an invalid interface."""
        self._service = service
        self._reference = reference
        self._interface = RemoteInterface(interface)
        self._wait_s = _seconds("wait_s", wait_s)
        self._renew_s = _seconds("renew_s", renew_s)
        self._caller = secrets.token_urlsafe(16)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[RemoteAnswer | None]] = {}
        self._is_read = False  # whether answers are received
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> S:
        self._answers = self._service.subscribe(RemoteAnswer, {"caller": self._caller})
        await self._answers.open()
        self._is_read = True
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._renew())]
        return cast(S, _Stub(self, self._interface))

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        self._end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(ServiceError):
            await self._answers.unsubscribe()

    async def call(self, method: str, *given: Any, **named: Any) -> Any:
        """Calls a method. Raises RemoteCallError, TypeError, and as `publish`."""
        described = self._interface.methods[method]
        answer = await self._request(method, described.write_arguments(*given, **named))
        if answer.error is not None:
            raise RemoteCallError(f"{self._interface.name}.{method}: {answer.error}")
        return described.read_value(answer.value)

    async def _request(self, method: str, arguments: list[Any]) -> RemoteAnswer:
        what = f"{self._interface.name}.{method}" if method else self._interface.name
        if not self._is_read:
            raise RemoteCallError(f"{what}: call it inside the proxy's own `async with`")
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        call = RemoteCall(self._reference.address, self._caller, number, method, arguments)
        try:
            await self._service.publish(call)
            async with asyncio.timeout(self._wait_s):
                answer: RemoteAnswer | None = await waiting
        except TimeoutError:
            reason = f"{what}: no answer in {self._wait_s:g} s; its lease may be over"
            raise RemoteCallError(reason) from None
        finally:
            del self._waiting[number]
        if answer is None:
            raise RemoteCallError(f"{what}: no more answers arrive; it may have been executed")
        return answer

    async def _read(self) -> None:
        try:
            async for answer in self._answers:
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            self._end()

    def _end(self) -> None:
        """Ends all waiting calls: no more answers arrive."""
        self._is_read = False
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    async def _renew(self) -> None:
        """Renews the lease while the proxy is open; the answer contains the length of the lease."""
        wait_s = self._renew_s
        while self._is_read:
            try:
                lease_s = (await self._request(RENEWAL, [])).value
                if isinstance(lease_s, float) and lease_s > 0:
                    wait_s = min(self._renew_s, max(lease_s / 3, _RENEW_LEAST_S))
            except ContradaError as error:
                _LOG.warning(
                    "%(subject)s: the lease was not renewed: %(reason)s",
                    {"subject": self._interface.name, "reason": error},
                )
            await asyncio.sleep(wait_s)


class _Stub:
    """The methods of an interface, each a call."""

    def __init__(self, proxy: Proxy[Any], interface: RemoteInterface) -> None:
        self._proxy = proxy
        self._interface = interface

    def __getattr__(self, name: str) -> Any:
        if name not in self._interface.methods:
            raise AttributeError(f"{self._interface.name} has no method {name!r}")

        async def method(*given: Any, **named: Any) -> Any:
            return await self._proxy.call(name, *given, **named)

        return method


def _seconds(name: str, given: object) -> float:
    if not is_number(given) or not 0 < given < 1e9:
        raise ServiceError(f"{name} = {given!r}: expected seconds above 0")
    return float(given)
