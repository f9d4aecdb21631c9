"""Subscriptions to sinks: each reads its matching events, and sends them one by one, in order.

Where the broker has a store they ride on durable subscriptions: an event is acknowledged once its
sink has it, so it comes at least once, also after a restart. They are kept in a file, with the
tokens by which they read; nobody but the owner of the process may read that.

The sink's answer decides: 2xx, the sink has the event; 410, the subscription ends; 408, 425, 429,
5xx or no answer, the event is sent again, after the time of `Retry-After` or growing waits, for
PUSH_S_MAX; any other answer, the event is dropped, counted.
"""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec

from contrada.delivery.durable import OnFull, Retention
from contrada.errors import (
    ContradaError,
    InputError,
    LimitError,
    RefusedRequestError,
)
from contrada.feeds.fetching import retry_after_s
from contrada.gateway.binding import binary_headers
from contrada.gateway.counting import GatewayCounts
from contrada.gateway.events import binary_event_of
from contrada.gateway.services import TokenService, TokenServices
from contrada.gateway.sinks import PushAnswer, Sinks, host_header
from contrada.gateway.wanted import wanted_of
from contrada.model import Notification
from contrada.net.frames import NOT_PERMITTED
from contrada.net.tokens import name_in
from contrada.runtime.backoff import Backoff

PUSHES_PER_TOKEN_MAX: Final = 100
"""Subscriptions to sinks of one token. Beyond it: a further one is refused."""

PUSHES_MAX: Final = 5_000
"""Subscriptions to sinks of a gateway. Beyond it: a further one is refused."""

PUSH_S_MAX: Final = 24 * 3_600.0
"""Seconds for which one event is tried to be pushed. Beyond it: it is dropped, counted."""

PUSH_RECORDS_MAX: Final = 100_000
"""Events that a durable subscription keeps for a sink that does not take them. Beyond it: the
oldest are dropped, counted."""

PUSH_RECORD_BYTES_MAX: Final = 256 * 2**20
"""Bytes of these. Beyond it: the oldest are dropped, counted."""

PUSH_RETRY_AFTER_S_MAX: Final = 3_600.0
"""Seconds of a sink's `Retry-After`. Beyond it: it is tried again then."""

PUSH_REFUSED_S: Final = 60.0
"""Seconds until a subscription is served again whose token the broker refuses. Beyond it: it is."""

_AGAIN: Final = (408, 425, 429)
_RETENTION: Final = Retention(
    records_max=PUSH_RECORDS_MAX, bytes_max=PUSH_RECORD_BYTES_MAX, on_full=OnFull.DROP_OLDEST
)
_LOG: Final = logging.getLogger(__name__)


class KeptPush(msgspec.Struct, frozen=True):
    """A subscription as it is kept."""

    id: str
    token: str
    wanted: dict[str, Any]


class Push:
    """One subscription to a sink, and the task that serves it."""

    def __init__(self, kept: KeptPush, rule: Any) -> None:
        self.kept = kept
        self.rule = rule
        self.task: asyncio.Task[None] | None = None
        self.in_force: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is in force for the first time, or has failed to be."""

    @property
    def id(self) -> str:
        """By what it is called."""
        return self.kept.id

    @property
    def sink(self) -> str:
        """Where it goes."""
        return str(self.kept.wanted["sink"])

    @property
    def durable(self) -> str:
        """The name of its durable subscription, below its owner's."""
        owner = name_in(self.kept.token)
        return f"{owner}/http-{self.id}" if owner else f"http-{self.id}"

    def shown(self) -> dict[str, Any]:
        """As its owner sees it."""
        return {"id": self.id, **self.kept.wanted}


class Pushes:
    """All of them."""

    def __init__(
        self,
        accesses: TokenServices,
        sinks: Sinks,
        counts: GatewayCounts,
        path: Path | None,
        *,
        is_durable: bool,
    ) -> None:
        self.sinks = sinks
        self._accesses = accesses
        self._counts = counts
        self._path = path
        self._is_durable = is_durable
        self._pushes: dict[str, Push] = {}

    def load(self) -> None:
        """Reads what is kept. Raises InputError where the file is damaged."""
        if self._path is None or not self._path.exists():
            return
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=list[KeptPush])
            for each in found:
                self._pushes[each.id] = Push(each, wanted_of(each.wanted).rule())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, ContradaError) as error:
            raise InputError(str(self._path), f"no subscriptions to sinks: {error}") from None

    def start(self) -> None:
        """Serves all that are kept."""
        for push in self._pushes.values():
            self._serve(push)

    def of(self, token: str) -> Iterator[Push]:
        """Those of the one whose token this is: the broker has checked it."""
        owner = name_in(token)
        return (each for each in self._pushes.values() if name_in(each.kept.token) == owner)

    def one(self, token: str, name: str) -> Push:
        """One of these. Raises RefusedRequestError; whether another has it is not told."""
        push = self._pushes.get(name)
        if push is None or name_in(push.kept.token) != name_in(token):
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, f"there is no subscription {name!r}")
        return push

    async def begin(self, token: str, wanted: dict[str, Any], rule: Any) -> Push:
        """One more, in force. Raises ContradaError."""
        if sum(1 for _ in self.of(token)) >= PUSHES_PER_TOKEN_MAX:
            raise LimitError("PUSHES_PER_TOKEN_MAX", PUSHES_PER_TOKEN_MAX)
        if len(self._pushes) >= PUSHES_MAX:
            raise LimitError("PUSHES_MAX", PUSHES_MAX)
        wanted.pop("id", None)
        push = Push(KeptPush(secrets.token_hex(8), token, wanted), rule)
        self._pushes[push.id] = push
        self._serve(push)
        try:
            await asyncio.shield(push.in_force)
            self._keep()
        except BaseException:
            await self._stop(push)
            raise
        return push

    async def end(self, push: Push) -> None:
        """Ends a subscription: nothing more is pushed, and its log is deleted.

        Raises ContradaError.
        """
        await self._stop(push)
        self._keep()
        await self._forget_log(push)

    async def _stop(self, push: Push) -> None:
        self._pushes.pop(push.id, None)
        if push.task is not None and push.task is not asyncio.current_task():
            push.task.cancel()
            await asyncio.wait([push.task])

    async def _forget_log(self, push: Push) -> None:
        if self._is_durable:
            async with self._accesses.use(push.kept.token) as access:
                await access.service.unsubscribe(push.durable)

    def _keep(self) -> None:
        """Writes all to the file, as a whole or not at all. Raises InputError."""
        if self._path is None:
            return
        packed = msgspec.json.encode([each.kept for each in self._pushes.values()])
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(packed)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise InputError(str(self._path), error.strerror or str(error)) from None

    async def aclose(self) -> None:
        """Pushes nothing more; what was not pushed is pushed when it is served again."""
        for push in self._pushes.values():
            if push.task is not None:
                push.task.cancel()
        tasks = [each.task for each in self._pushes.values() if each.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.sinks.aclose()

    # --------------------------------------------------------------------------------- serving

    def _serve(self, push: Push) -> None:
        push.task = asyncio.get_running_loop().create_task(self._run(push))

    async def _run(self, push: Push) -> None:
        """Reads and pushes until it ends; a broker that is away is tried again."""
        backoff = Backoff()
        while push.id in self._pushes:
            try:
                async with self._accesses.use(push.kept.token) as access:
                    await self._read(push, access, backoff)
            except Exception as error:  # noqa: BLE001 - of a fault nobody else would hear
                if not push.in_force.done():
                    push.in_force.set_exception(error)
                    push.in_force.exception()  # Seen: of those that were kept nobody waits.
                said = {"subscription": push.id, "reason": error}
                is_fault = not isinstance(error, ContradaError)
                level = logging.ERROR if is_fault else logging.INFO
                text = "subscription %(subscription)s: %(reason)s"
                _LOG.log(level, text, said, exc_info=error if is_fault else None)
                if getattr(error, "fault", "") == NOT_PERMITTED:
                    await asyncio.sleep(PUSH_REFUSED_S)
            await asyncio.sleep(backoff.next_s())

    async def _read(self, push: Push, access: TokenService, backoff: Backoff) -> None:
        service = access.service
        events: Any
        if self._is_durable:
            events = service.subscribe(push.rule, durable=push.durable, retention=_RETENTION)
        else:
            events = service.subscribe(push.rule, when_full="drop-oldest")
        lost: dict[str, int] = {}
        async with events:
            if not push.in_force.done():
                push.in_force.set_result(None)
            backoff.reset()
            async for each in events:
                self._counts.lost(lost, events.statistics().dropped)
                # A kept one is acknowledged when the next is asked for: when the sink has it.
                answer = await self._push(push, each.item if self._is_durable else each)
                if answer == HTTPStatus.GONE:
                    break
            else:
                return
        self._pushes.pop(push.id, None)
        self._keep()
        await self._forget_log(push)

    async def _push(self, push: Push, notification: Notification) -> int:
        """Brings one event to its sink, or gives it up; the last status."""
        attributes, body = binary_event_of(notification)
        own = push.kept.wanted.get("protocolsettings", {}).get("headers", {})
        headers = [*binary_headers(attributes), *own.items()]
        headers = [("Host", host_header(push.sink)), ("User-Agent", "contrada"), *headers]
        headers.append(("Content-Length", str(len(body))))
        backoff = Backoff()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PUSH_S_MAX):
                while True:
                    answer = await self.sinks.push(push.sink, headers, body)
                    if 200 <= answer.status < 300:
                        self._counts.pushed["delivered"] += 1
                        return answer.status
                    if answer.status and answer.status < 500 and answer.status not in _AGAIN:
                        return self._refused(push, answer)
                    self._counts.pushed["tried again"] += 1
                    said = {"subscription": push.id, "reason": answer.reason or answer.status}
                    _LOG.info("subscription %(subscription)s: %(reason)s", said)
                    await asyncio.sleep(_wait_s(answer, backoff))
        self._counts.pushed["given up"] += 1
        return 0

    def _refused(self, push: Push, answer: PushAnswer) -> int:
        self._counts.pushed["gone" if answer.status == HTTPStatus.GONE else "refused"] += 1
        said = {"subscription": push.id, "code": answer.status}
        _LOG.info("subscription %(subscription)s: its sink answers %(code)d", said)
        return answer.status


def _wait_s(answer: PushAnswer, backoff: Backoff) -> float:
    """How long until a sink is tried again."""
    said_s = retry_after_s(answer.retry_after)
    return min(said_s, PUSH_RETRY_AFTER_S_MAX) if said_s else backoff.next_s()
