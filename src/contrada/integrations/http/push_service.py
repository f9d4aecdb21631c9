"""Subscriptions to sinks: each reads its matching events, and sends them one by one, in order.

Where the broker has a store they ride on durable subscriptions: an event is acknowledged once its
sink has it, so it comes at least once, also after a restart. They are kept in a file, with the
tokens by which they read; nobody but the owner of the process may read that. A token that has taken
the place of another takes it here too, once the broker has taken it; what is of a user who is gone
ends.

The sink's answer decides: 2xx, the sink has the event; 410, the subscription ends; 408, 425, 429,
5xx or no answer, the event is sent again, after the time of `Retry-After` or growing waits, for
PUSH_S_MAX; any other answer, 508 too, the event is dropped, counted.
"""

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Coroutine, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from contrada.delivery.durable_log import OnFull, Retention
from contrada.errors import (
    ContradaError,
    DeliveryError,
    InputError,
    LimitError,
    NotPermittedError,
    RefusedRequestError,
    ServiceClosedError,
    shortened,
)
from contrada.integrations.feeds.fetcher import retry_after_s
from contrada.integrations.http.cloudevents_http import binary_headers
from contrada.integrations.http.event_translation import binary_event_of
from contrada.integrations.http.gateway_counts import GatewayCounts
from contrada.integrations.http.push_subscription import Push, StoredPush, owner_of
from contrada.integrations.http.sinks import PUSHED_BY, PushAnswer, Sinks, host_header
from contrada.integrations.http.subscription_request import wanted_of
from contrada.integrations.http.token_services import TokenService, TokenServices, closed
from contrada.model import Notification
from contrada.service.backoff import Backoff
from contrada.service.security.principals import NOT_PERMITTED

PUSHES_PER_TOKEN_MAX: Final = 100
"""Subscriptions to sinks of one token. Beyond it: a further one is refused."""

PUSHES_MAX: Final = 5_000
"""Subscriptions to sinks of a gateway. Beyond it: a further one is refused."""

PUSHES_AT_ONCE_PER_USER_MAX: Final = 20
"""Events of one user that are on their way to sinks, each over a connection of its own. Beyond it:
the next one waits."""

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
"""Seconds until a subscription is served again whose token the broker refuses, where its owner
shows no other one before. Beyond it: it is."""

_PEER: Final = "sinks"
_AGAIN: Final = (408, 425, 429)
_RETENTION: Final = Retention(
    records_max=PUSH_RECORDS_MAX, bytes_max=PUSH_RECORD_BYTES_MAX, on_full=OnFull.DROP_OLDEST
)
_LOG: Final = logging.getLogger(__name__)


class UserHost(Protocol):
    """What is needed of a broker about users who are gone."""

    def has_user(self, name: str) -> bool:
        """Whether there is one of this name; of a broker that asks nobody who he is, always."""
        ...

    def end_durable(self, name: str) -> None:
        """Ends a durable subscription with its log, where there is one. Raises ContradaError."""
        ...


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
        users: UserHost | None = None,
    ) -> None:
        self.sinks = sinks
        self._users = users
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        accesses.on_taken = self._adopt
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
            found = msgspec.json.decode(self._path.read_bytes(), type=list[StoredPush])
            for each in found:
                self._pushes[each.id] = self._made(each, wanted_of(each.wanted).rule())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, ContradaError) as error:
            raise InputError(str(self._path), f"no subscriptions to sinks: {error}") from None

    def start(self) -> None:
        """Serves all that are kept."""
        for push in self._pushes.values():
            self._serve(push)

    def _made(self, kept: StoredPush, rule: Any) -> Push:
        turns = self._turns.setdefault(
            owner_of(kept.token), asyncio.Semaphore(PUSHES_AT_ONCE_PER_USER_MAX)
        )
        return Push(kept, rule, turns)

    def of(self, token: str) -> Iterator[Push]:
        """Those of the one whose token this is: the broker has checked it."""
        owner = owner_of(token)
        return (each for each in self._pushes.values() if each.owner == owner)

    def one(self, token: str, name: str) -> Push:
        """One of these. Raises RefusedRequestError; whether another has it is not told."""
        push = self._pushes.get(name)
        if push is None or push.owner != owner_of(token):
            raise RefusedRequestError(HTTPStatus.NOT_FOUND, f"there is no subscription {name!r}")
        return push

    async def begin(self, token: str, wanted: dict[str, Any], rule: Any) -> Push:
        """One more, in force. Raises ContradaError."""
        if sum(1 for _ in self.of(token)) >= PUSHES_PER_TOKEN_MAX:
            raise LimitError("PUSHES_PER_TOKEN_MAX", PUSHES_PER_TOKEN_MAX)
        if len(self._pushes) >= PUSHES_MAX:
            raise LimitError("PUSHES_MAX", PUSHES_MAX)
        wanted.pop("id", None)
        push = self._made(StoredPush(secrets.token_hex(8), token, wanted), rule)
        self._pushes[push.id] = push
        self._serve(push)
        try:
            await asyncio.shield(push.in_force)
            self._keep()
        except BaseException as error:
            await self._stop(push)
            self._pushes.pop(push.id, None)
            if push.in_force.done() and push.in_force.exception() is None:
                with contextlib.suppress(ContradaError):
                    await self._forget_log(push, token)
            if isinstance(error, NotPermittedError) and push.durable in error.reason:
                reason = f"{error.reason}: for a sink it has to have its own name in `durable`"
                raise RefusedRequestError(HTTPStatus.FORBIDDEN, reason) from None
            raise
        return push

    async def end(self, push: Push, token: str) -> None:
        """Ends a subscription: nothing more is pushed, and its log is deleted.

        `token` is what its owner shows now. Raises ContradaError: then it goes on.
        """
        await self._stop(push)
        try:
            await self._forget_log(push, token)
        except BaseException:
            self._serve(push)
            raise
        self._pushes.pop(push.id, None)
        self._keep()

    async def _stop(self, push: Push) -> None:
        if push.task is not None:
            push.task.cancel()
            await asyncio.wait([push.task])

    async def _forget_log(self, push: Push, token: str) -> None:
        if self._is_durable:
            async with self._accesses.use(token, _PEER) as access:
                with contextlib.suppress(DeliveryError):  # It was ended by its name.
                    await access.service.unsubscribe(push.durable)

    def _adopt(self, token: str) -> None:
        """The broker has taken this token: it is that of its user now."""
        older = [each for each in self.of(token) if each.kept.token != token]
        for push in older:
            push.renew(token)
        if older:
            try:
                self._keep()
            except InputError as error:  # It is shown, and kept, again.
                _LOG.error("%(reason)s", {"reason": error})

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
                push.renewed.clear()
                async with self._accesses.use(push.kept.token, _PEER) as access:
                    await _while_open(access, self._read(push, access, backoff))
            except Exception as error:  # noqa: BLE001 - of a fault nobody else would hear
                if not push.in_force.done():
                    push.in_force.set_exception(error)
                    push.in_force.exception()  # Seen: of those that were kept nobody waits.
                self._tell_failed(push, error)
                if getattr(error, "fault", "") == NOT_PERMITTED:
                    if self._ends_with_user(push):
                        return
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PUSH_REFUSED_S):
                            await push.renewed.wait()
            await asyncio.sleep(backoff.next_s())

    def _tell_failed(self, push: Push, error: Exception) -> None:
        is_fault = not isinstance(error, ContradaError)
        said = {"subscription": push.id, "reason": error}
        level = logging.ERROR if is_fault else logging.INFO
        text = "subscription %(subscription)s: %(reason)s"
        _LOG.log(level, text, said, exc_info=error if is_fault else None)
        told = "a fault of this broker" if is_fault else shortened(str(error))
        push.progress.waiting(told)

    def _ends_with_user(self, push: Push) -> bool:
        """Ends it where its user is gone: there is nobody else who could."""
        if self._users is None or self._users.has_user(push.owner):
            return False
        said = {"subscription": push.id, "user": push.owner}
        _LOG.info("subscription %(subscription)s ends: its user %(user)s is gone", said)
        self._pushes.pop(push.id, None)
        try:
            self._keep()
            if self._is_durable:
                self._users.end_durable(push.durable)
        except ContradaError as error:
            failed = {"subscription": push.id, "reason": error}
            _LOG.error("subscription %(subscription)s: %(reason)s", failed)
        return True

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
        await self._forget_log(push, push.kept.token)
        self._pushes.pop(push.id, None)
        self._keep()

    async def _push(self, push: Push, notification: Notification) -> int:
        """Brings one event to its sink, or gives it up; the last status."""
        attributes, body = binary_event_of(notification)
        own = push.kept.wanted.get("protocolsettings", {}).get("headers", {})
        headers = [*binary_headers(attributes), *own.items()]
        headers = [("Host", host_header(push.sink)), ("User-Agent", "contrada"), *headers]
        headers += [(PUSHED_BY, self.sinks.identity), ("Content-Length", str(len(body)))]
        backoff = Backoff()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PUSH_S_MAX):
                while True:
                    async with push.turns:
                        answer = await self.sinks.push(push.sink, headers, body)
                    if 200 <= answer.status < 300:
                        self._counts.pushed["delivered"] += 1
                        push.progress.delivered += 1
                        push.progress.pushing(answer.status)
                        return answer.status
                    if _is_final(answer.status):
                        return self._refused(push, answer)
                    self._counts.pushed["tried again"] += 1
                    reason = answer.reason or f"its sink answers {answer.status}"
                    said = {"subscription": push.id, "reason": reason}
                    _LOG.info("subscription %(subscription)s: %(reason)s", said)
                    push.progress.waiting(reason, answer.status)
                    await asyncio.sleep(_wait_s(answer, backoff))
        self._counts.pushed["given up"] += 1
        push.progress.dropped += 1
        return 0

    def _refused(self, push: Push, answer: PushAnswer) -> int:
        self._counts.pushed["gone" if answer.status == HTTPStatus.GONE else "refused"] += 1
        push.progress.dropped += 1
        push.progress.pushing(answer.status, f"its sink answers {answer.status}")
        said = {"subscription": push.id, "status": answer.status}
        _LOG.info("subscription %(subscription)s: its sink answers %(status)d", said)
        return answer.status


async def _while_open(access: TokenService, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, which ends in the middle of a push where the broker ends the connection.

    The user may have lost the right to read what is just being pushed. Raises ServiceClosedError.
    """
    working = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(closed(access.service))
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServiceClosedError("the broker has ended the connection")
        working.result()
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


def _is_final(status: int) -> bool:
    """Whether it would be answered the same another time."""
    is_refused = 0 < status < 500 and status not in _AGAIN
    return is_refused or status == HTTPStatus.LOOP_DETECTED


def _wait_s(answer: PushAnswer, backoff: Backoff) -> float:
    """How long until a sink is tried again."""
    said_s = retry_after_s(answer.retry_after)
    return min(said_s, PUSH_RETRY_AFTER_S_MAX) if said_s else backoff.next_s()
