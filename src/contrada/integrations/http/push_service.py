"""`Pushes`: the subscriptions to sinks. Each sends its matching events in order, one at a time.

Where the broker has a store, each is a durable subscription: an event is acknowledged once its sink
has accepted it, so delivery is at least once, also across restarts. The subscriptions are stored in
a file together with their tokens; only the owner of the process may read it. When a user's token is
replaced, the new one is used here as soon as the broker has accepted it. The subscriptions of a
removed user end.

The sink's answer decides: 2xx, the event is delivered; 410, the subscription ends; 408, 425, 429,
5xx or no answer, the event is sent again after `Retry-After` or a growing wait, for `push_s_max`;
any other answer, including 508, the event is dropped, counted.

The status of a subscription is no oracle about hosts that only this broker can reach. It shows the
answers of a sink that has agreed to receive events, and no difference between a name without an
address, a forbidden destination, a closed port and a time-out, not even in time. The log has the
reasons.

Source: CloudEvents Subscriptions API 1.0-wip §3.2.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import msgspec

from contrada import errors
from contrada.delivery.retention import OnFull, Retention
from contrada.file_replacement import replace_file
from contrada.integrations.dialects import cloudevents
from contrada.integrations.feeds.fetcher import retry_after_s
from contrada.integrations.http.event_ingest import binary_headers
from contrada.integrations.http.event_translation import binary_event_of
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.sinks import PUSHED_BY, PushAnswer, Sinks, check_headers, place_of
from contrada.integrations.http.token_services import (
    TokenService,
    TokenServices,
    user_in,
    wait_closed,
)
from contrada.model import Notification
from contrada.net.broker.broker import Broker
from contrada.net.wire.tokens import is_jwt
from contrada.service.backoff import Backoff
from contrada.service.clock import wall_clock_us
from contrada.service.loop_guards import first_of
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.security.secret_files import OWNER_ALONE

_PEER: Final = "sinks"
_AGAIN: Final = (408, 425, 429)
_LOG: Final = logging.getLogger(__name__)

_HTTP: Final = "HTTP"
_NOT_AGREED: Final = "its sink has not agreed to receive events (WebHook-Allowed-Origin)"
_NO_ANSWER: Final = "its sink gives no answer"


class ProtocolSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The HTTP headers and method of pushes."""

    headers: dict[str, str] = {}
    method: str = "POST"


class SubscriptionRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request for a subscription."""

    sink: str
    protocol: str = _HTTP
    protocolsettings: ProtocolSettings | None = None
    source: str | None = None
    types: list[str] | None = None
    filters: list[dict[str, Any]] | None = None
    config: dict[str, Any] | None = None
    id: str = ""

    @classmethod
    def from_json(cls, decoded: Any) -> "SubscriptionRequest":
        """Checks a decoded body. Raises InvalidValueError, RefusedRequestError."""
        try:
            request = msgspec.convert(decoded, cls)
            msgspec.json.encode(request)  # Lone surrogates could not be stored or shown.
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise invalid(error) from None
        if request.id:
            raise errors.InvalidValueError(request.id, "the id of a subscription is made here")
        if request.protocol != _HTTP:
            raise errors.InvalidValueError(request.protocol, f"expected the protocol {_HTTP!r}")
        if (settings := request.protocolsettings) is not None:
            if settings.method != "POST":
                raise errors.InvalidValueError(settings.method, "expected the method 'POST'")
            check_headers(settings.headers)
        return request

    def rule(self) -> Any:
        """Returns the rule that selects its events. Raises RefusedRuleError, LimitError."""
        members = {"filters": self.filters or [], "source": self.source, "types": self.types}
        return cloudevents.read({key: each for key, each in members.items() if each is not None})


class StoredPush(msgspec.Struct, frozen=True):
    """A subscription in the file; `wanted` is its request, `user` its owner."""

    id: str
    token: str
    wanted: dict[str, Any]
    user: str = ""


@dataclass(slots=True)
class PushProgress:
    """The state and counts of a subscription since this process serves it."""

    state: Literal["pushing", "waiting"] = "pushing"
    since_us: int = field(default_factory=wall_clock_us)
    """When it entered this state."""
    delivered: int = 0
    dropped: int = 0
    """Events that the sink refused, or did not accept in time."""
    answer: int = 0
    """The last status that the sink answered; 0 without an answer."""
    error: str = ""
    """The reason of the state `waiting`, or of the last drop."""
    unanswered_us: int = 0
    """When the first push began that the sink has not answered; 0 after an answer."""

    def enter(self, state: Literal["pushing", "waiting"], answer: int = 0, error: str = "") -> None:
        """Enters a state after an answer of the sink, or an error."""
        if state != self.state:
            self.state, self.since_us = state, wall_clock_us()
        self.answer, self.error, self.unanswered_us = answer, error, 0

    def to_json(self, now_us: int, wait_us: int) -> dict[str, Any]:
        """Returns the `status` that its owner sees.

        A push without an answer shows after `wait_us`, the longest wait for one: otherwise the time
        would tell a refused connection from a filtered one.
        """
        state, since_us, answer, error = self.state, self.since_us, self.answer, self.error
        if self.unanswered_us and now_us >= self.unanswered_us + wait_us:
            state, since_us = "waiting", self.unanswered_us + wait_us
            answer, error = 0, _NO_ANSWER
        since = datetime.fromtimestamp(since_us // 1_000_000, UTC)
        shown: dict[str, Any] = {
            "state": state,
            "since": since.isoformat().replace("+00:00", "Z"),
            "delivered": self.delivered,
            "dropped": self.dropped,
        }
        if answer:
            shown["answer"] = answer
        if error:
            shown["error"] = error
        return shown


class Push:
    """One subscription to a sink, and the task that serves it."""

    def __init__(self, stored: StoredPush, owner: str, rule: Any, turns: asyncio.Semaphore) -> None:
        """`turns` bounds the concurrent pushes of its owner, over all of the owner's sinks."""
        self.stored = stored
        self.id, self.sink = stored.id, str(stored.wanted["sink"])
        self.owner = owner
        """The user of its token, also of one that replaces it."""
        self.durable = f"{self.owner}/http-{self.id}"
        """The name of its durable subscription, below that of its owner."""
        self.rule = rule
        self.turns = turns
        self.progress = PushProgress()
        self.task: asyncio.Task[None] | None = None
        self.in_force: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the subscription is in force for the first time, or has failed."""
        self.renewed = asyncio.Event()
        """Set when its token was replaced."""
        self.interval_s: float | None = None
        """Seconds between pushes that its sink allows; None before the sink has agreed."""
        self._next_s = 0.0

    @property
    def headers(self) -> dict[str, str]:
        """The headers that its owner wants in each request."""
        return self.stored.wanted.get("protocolsettings", {}).get("headers", {})  # type: ignore[no-any-return]

    def wait_s(self, now_s: float) -> float:
        """Returns the seconds until the next push at the allowed rate, and reserves its time."""
        begin_s = max(now_s, self._next_s)
        self._next_s = begin_s + (self.interval_s or 0.0)
        return begin_s - now_s

    def renew(self, token: str) -> None:
        """Replaces its token with the new token of its owner."""
        self.stored = msgspec.structs.replace(self.stored, token=token)
        self.renewed.set()

    def to_json(self, limits: GatewayLimits) -> dict[str, Any]:
        """Returns the subscription as its owner sees it."""
        status = self.progress.to_json(wall_clock_us(), round(limits.push_wait_s * 1_000_000))
        return {"id": self.id, **self.stored.wanted, "status": status}


@dataclass(eq=False)
class Pushes:
    """The subscriptions to sinks of a gateway."""

    _accesses: TokenServices
    sinks: Sinks
    _counts: GatewayCounts
    _path: Path | None
    _limits: GatewayLimits
    _is_durable: bool
    _users: Broker | None
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    _pushes: dict[str, Push] = field(default_factory=dict)

    def load(self) -> None:
        """Reads the stored subscriptions. Raises InputError for a damaged file."""
        if self._path is None or not self._path.exists():
            return
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=list[StoredPush])
            for each in found:
                self._add(each, SubscriptionRequest.from_json(each.wanted).rule())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, errors.ContradaError) as error:
            reason = f"no subscriptions to sinks: {error}"
            raise errors.InputError(str(self._path), reason) from None

    def start(self) -> None:
        """Starts to serve all stored subscriptions."""
        for push in self._pushes.values():
            self._serve(push)

    def _add(self, stored: StoredPush, rule: Any) -> Push:
        new = asyncio.Semaphore(self._limits.pushes_at_once_per_user_max)
        owner = stored.user or user_in(stored.token)
        turns = self._turns.setdefault(owner, new)
        push = self._pushes[stored.id] = Push(stored, owner, rule, turns)
        return push

    def of(self, user: str) -> Iterator[Push]:
        """The subscriptions of a user."""
        return (each for each in self._pushes.values() if each.owner == user)

    def one(self, user: str, name: str) -> Push:
        """Returns a subscription of a user. Raises RefusedRequestError."""
        push = self._pushes.get(name)
        if push is None or push.owner != user:
            reason = f"there is no subscription {name!r}"  # The same for that of another user.
            raise errors.RefusedRequestError(HTTPStatus.NOT_FOUND, reason)
        return push

    async def begin(self, access: TokenService, wanted: dict[str, Any], rule: Any) -> Push:
        """Adds a subscription; returns it when it is in force. Raises ContradaError."""
        limits = self._limits
        access.check_push()
        if sum(1 for _ in self.of(access.user)) >= limits.pushes_per_token_max:
            raise errors.LimitError("pushes_per_token_max", limits.pushes_per_token_max)
        if len(self._pushes) >= limits.pushes_max:
            raise errors.LimitError("pushes_max", limits.pushes_max)
        wanted.pop("id", None)
        push = self._add(StoredPush(secrets.token_hex(8), access.token, wanted, access.user), rule)
        self._serve(push)
        try:
            await asyncio.shield(push.in_force)
            self._keep()
        except BaseException as error:
            await self._stop(push)
            self._pushes.pop(push.id, None)
            if push.in_force.done() and push.in_force.exception() is None:
                with contextlib.suppress(errors.ContradaError):
                    await self._forget_log(push, access.token)
            if isinstance(error, errors.NotPermittedError) and push.durable in error.reason:
                reason = f"{error.reason}: for a sink it has to have its own name in `durable`"
                raise errors.RefusedRequestError(HTTPStatus.FORBIDDEN, reason) from None
            raise
        return push

    async def end(self, push: Push, token: str) -> None:
        """Ends a subscription and its log. After a ContradaError the subscription goes on."""
        await self._stop(push)
        try:
            await self._forget_log(push, token)
            self._keep(without=push)
        except BaseException:
            self._serve(push)
            raise
        self._pushes.pop(push.id, None)

    async def _stop(self, push: Push) -> None:
        if push.task is not None:
            push.task.cancel()
            await asyncio.wait([push.task])

    async def _forget_log(self, push: Push, token: str) -> None:
        if self._is_durable:
            async with self._accesses.use(token, _PEER) as access:
                # A client may have ended it by its name.
                with contextlib.suppress(errors.DeliveryError):
                    await access.service.unsubscribe(push.durable)

    def adopt(self, user: str, token: str) -> None:
        """Serves the subscriptions of a user by a token that the broker has accepted just now."""
        older = [each for each in self.of(user) if each.stored.token != token]
        for push in older:
            push.renew(token)
        if older:
            try:
                self._keep()
            except errors.StoreError as error:  # The next request with this token stores it again.
                _LOG.error("%(reason)s", {"reason": error})

    def _keep(self, *, without: Push | None = None) -> None:
        """Replaces the file atomically. Raises StoreError."""
        if self._path is None:
            return
        kept = [each.stored for each in self._pushes.values() if each is not without]
        try:
            replace_file(self._path, [msgspec.json.encode(kept)], OWNER_ALONE)
        except OSError as error:
            reason = f"subscriptions to sinks cannot be written: {error.strerror or error}"
            raise errors.StoreError(reason) from None

    async def aclose(self) -> None:
        """Stops pushing; durable subscriptions keep the unpushed events for the next start."""
        await asyncio.gather(*map(self._stop, self._pushes.values()))
        await self.sinks.aclose()

    # --------------------------------------------------------------------------------- serving

    def _serve(self, push: Push) -> None:
        push.task = asyncio.get_running_loop().create_task(self._run(push))

    async def _run(self, push: Push) -> None:
        """Reads and pushes until the subscription ends; reconnects to an unavailable broker."""
        backoff = Backoff(self._limits.push_backoff)
        while push.id in self._pushes:
            try:
                push.renewed.clear()
                async with self._accesses.use(push.stored.token, _PEER) as access:
                    access.check_push()
                    await first_of(self._read(push, access, backoff), _fail_at_end(access))
            except Exception as error:  # noqa: BLE001 - logged, and the subscription continues
                if not push.in_force.done():
                    push.in_force.set_exception(error)
                    push.in_force.exception()  # Retrieved: nobody awaits that of a stored push.
                is_fault = not isinstance(error, errors.ContradaError)
                _LOG.log(
                    logging.ERROR if is_fault else logging.INFO,
                    "subscription %(subscription)s: %(reason)s",
                    {"subscription": push.id, "reason": error},
                    exc_info=error if is_fault else None,
                )
                reason = "a fault of this broker" if is_fault else errors.shortened(str(error))
                push.progress.enter("waiting", error=reason)
                if getattr(error, "fault", "") == NOT_PERMITTED:
                    if self._ends_with_user(push):
                        return
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._limits.push_refused_s):
                            await push.renewed.wait()
            await asyncio.sleep(backoff.next_s())

    def _ends_with_user(self, push: Push) -> bool:
        """Ends the subscription of a removed user, which nobody else could end; whether it did."""
        if self._users is None or self._users.has_user(push.owner) or is_jwt(push.stored.token):
            return False
        fields = {"subscription": push.id, "user": push.owner}
        _LOG.info("subscription %(subscription)s ends: its user %(user)s was removed", fields)
        self._pushes.pop(push.id, None)
        try:
            self._keep()
            if self._is_durable:
                self._users.end_durable(push.durable)
        except errors.ContradaError as error:
            failed = {"subscription": push.id, "reason": error}
            _LOG.error("subscription %(subscription)s: %(reason)s", failed)
        return True

    async def _read(self, push: Push, access: TokenService, backoff: Backoff) -> None:
        service = access.service
        events: Any
        if self._is_durable:
            retention = Retention(
                records_max=self._limits.push_records_max,
                bytes_max=self._limits.push_record_bytes_max,
                on_full=OnFull.DROP_OLDEST,
            )
            events = service.subscribe(push.rule, durable=push.durable, retention=retention)
        else:
            events = service.subscribe(push.rule, when_full="drop-oldest")
        lost: dict[str, int] = {}
        async with events:
            if not push.in_force.done():
                push.in_force.set_result(None)
            backoff.reset()
            if await self._agrees(push):
                async for each in events:
                    self._counts.add_lost(lost, events.statistics().dropped)
                    # `anext` acknowledges the record before it: by then the sink has it.
                    answer = await self._push(push, each.item if self._is_durable else each)
                    if answer == HTTPStatus.GONE:
                        break
                else:
                    return
        await self._forget_log(push, push.stored.token)
        self._pushes.pop(push.id, None)
        self._keep()

    async def _agrees(self, push: Push) -> bool:
        """Asks the sink once for permission, again until it agrees; False after `push_s_max`."""
        if push.interval_s is not None:
            return True
        if not self.sinks.rules.is_asked(*place_of(push.sink)):
            push.interval_s = 0.0
            push.progress.enter("pushing")
            return True
        push.progress.enter("waiting", error=_NOT_AGREED)
        backoff = Backoff(self._limits.push_backoff)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.push_s_max):
                while True:
                    async with push.turns:
                        answer = await self.sinks.ask(push.sink, push.headers.items())
                    if not answer.reason:
                        push.interval_s = answer.interval_s
                        push.progress.enter("pushing")
                        return True
                    self._log(push, f"its sink has not agreed: {answer.reason}")
                    await asyncio.sleep(self._wait_s(answer, backoff))
        self._log(push, "it ends, since its sink has not agreed")
        return False

    @staticmethod
    def _log(push: Push, reason: str) -> None:
        fields = {"subscription": push.id, "reason": reason}
        _LOG.info("subscription %(subscription)s: %(reason)s", fields)

    async def _push(self, push: Push, notification: Notification) -> int:
        """Sends one event until the sink accepts it or it expires; returns the last status."""
        attributes, body = binary_event_of(notification)
        headers = [
            ("User-Agent", "contrada"),
            *binary_headers(attributes),
            *push.headers.items(),
            (PUSHED_BY, self.sinks.identity),
            ("Content-Length", str(len(body))),
        ]
        backoff = Backoff(self._limits.push_backoff)
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.push_s_max):
                while True:
                    await asyncio.sleep(push.wait_s(clock()))
                    async with push.turns:
                        began_us = wall_clock_us()
                        answer = await self.sinks.push(push.sink, headers, body)
                    if 200 <= answer.status < 300:
                        self._counts.pushed["delivered"] += 1
                        push.progress.delivered += 1
                        push.progress.enter("pushing", answer.status)
                        return answer.status
                    is_refused = 0 < answer.status < 500 and answer.status not in _AGAIN
                    if is_refused or answer.status == HTTPStatus.LOOP_DETECTED:
                        return self._drop(push, answer)
                    self._counts.pushed["tried again"] += 1
                    reason = answer.reason or f"its sink answers {answer.status}"
                    self._log(push, reason)
                    if answer.status:
                        push.progress.enter("waiting", answer.status, reason)
                    else:
                        push.progress.unanswered_us = push.progress.unanswered_us or began_us
                    await asyncio.sleep(self._wait_s(answer, backoff))
        self._counts.pushed["given up"] += 1
        push.progress.dropped += 1
        return 0

    def _wait_s(self, answer: PushAnswer, backoff: Backoff) -> float:
        wanted_s = min(
            retry_after_s(answer.headers.get("retry-after", "")),
            self._limits.push_retry_after_s_max,
        )
        return wanted_s or backoff.next_s()

    def _drop(self, push: Push, answer: PushAnswer) -> int:
        self._counts.pushed["gone" if answer.status == HTTPStatus.GONE else "refused"] += 1
        push.progress.dropped += 1
        reason = f"its sink answers {answer.status}"
        push.progress.enter("pushing", answer.status, reason)
        self._log(push, reason)
        return answer.status


async def _fail_at_end(access: TokenService) -> None:
    """Fails when the broker ends the connection, even in the middle of a push: the user may have
    lost the permission to read the event. Raises ServiceClosedError.
    """
    await wait_closed(access.service)
    raise errors.ServiceClosedError("the broker has ended the connection")
