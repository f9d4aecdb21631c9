"""`IngressQueue`: the publications of a client or neighbour, processed in order.

A publication is answered when all its notifications are in the queues of their subscribers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from contrada.errors import ContradaError, FrameError, LimitError
from contrada.matching.packed import Bundle
from contrada.model.algebra.notification import store_packed
from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import Work
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.fair_scheduler import TURN_S
from contrada.net.broker.user_usage import UserUsage
from contrada.routing.router_messages import Origin, Publish
from contrada.service import trace_spans
from contrada.service.clock import wall_clock_us
from contrada.service.dispatch_routes import Pending, Turn
from contrada.service.dispatcher import Dispatcher
from contrada.service.subscription_queue import PUBLISH_WAIT_S_MAX, size_of_all
from contrada.service.timekeeper import ReaderWaits

NOTIFICATIONS_PER_TURN: Final = 256
"""Published notifications that are matched at once. Beyond it: other connections get a turn."""

FEWER: Final = 8
"""Divisor of the batch size after a batch was too much work."""

_LOG: Final = logging.getLogger(__name__)

N = TypeVar("N")


class UndecidedNotification(bytes):
    """An encoded notification for which the router left some subscriptions undecided."""


class IngressHost(Protocol):
    """The services of a broker for an ingress queue."""

    dispatcher: Dispatcher
    limits: BrokerLimits

    def start_work(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Starts a task for a client; it survives the connection."""
        ...

    def hold(self, size: int) -> None:
        """Adds held bytes, or removes them if negative."""


class IngressQueue(Generic[N]):
    """The pending publications of one client or neighbour."""

    def __init__(
        self,
        origin: Origin,
        broker: IngressHost,
        *,
        frames_max: int | None = None,
        answer: Callable[[N, int | ContradaError], None],
        end: Callable[[FrameError], None],
        usage: UserUsage | None = None,
    ) -> None:
        """`answer` gets the dropped pairs or the refusal; `end` a fault of this broker.

        Publications wait for the rates in the quotas of `usage`.
        """
        self._dispatcher = broker.dispatcher
        self._origin = origin
        self._limits = broker.limits
        self._frames_max = frames_max or self._limits.publishes_pending_max
        self._broker = broker
        self._answer = answer
        self._end = end
        self._usage = usage
        self._waiting: deque[tuple[N, int, Publish, int]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.waits = ReaderWaits(broker.dispatcher)
        """The waits for readers of full queues."""
        self.held_bytes = 0
        """Bytes of the pending publications."""
        self._is_cheap = True
        """Whether the last bundle was little work."""

    def add(self, number: N, wait_ms: int, message: Publish, size: int = 0) -> None:
        """Adds a publication; its size is counted here if it is not given.

        Raises FrameError where a client publishes too far ahead.
        """
        if len(self._waiting) >= self._frames_max:
            reason = f"more than {self._frames_max} unanswered"
            raise FrameError("too many publishes", reason)
        size = size or size_of_all(message.notifications)
        if type(message.notifications) is Bundle:
            size += message.notifications.joined_bytes
        if self.held_bytes + size > (most := self._limits.pending_bytes_max):
            reason = f"more than pending_bytes_max = {most} bytes unanswered"
            raise FrameError("too many publishes", reason)
        # Without a call where users have no quotas.
        is_free = self._worker is None and (self._usage is None or not self._usage.has_rate)
        if is_free and self._publish_now(number, wait_ms, message, size):
            return
        self._hold(size)
        # Without the request, which holds all of its frame.
        self._waiting.append((number, wait_ms, message, size))
        if self._worker is None:
            self._start(self._work())

    @property
    def has_rate(self) -> bool:
        """Whether publications may wait for a rate in the user's quotas."""
        return self._usage is not None and self._usage.has_rate

    def forget(self) -> int:
        """Drops the queue. Returns the number of notifications."""
        count = 0
        while self._waiting:
            _, _, message, size = self._waiting.popleft()
            count += len(message.notifications)
            self._hold(-size)
        return count

    def when_idle(self, act: Callable[[], None]) -> None:
        """Calls a function when the queue is empty, now if it is."""
        if self._worker is None:
            act()
        else:
            self._worker.add_done_callback(lambda _: act())

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self._broker.hold(size)

    def _publish_now(self, number: N, wait_ms: int, message: Publish, size: int) -> bool:
        """Processes few notifications, or a bundle, within a turn, without a task.

        Returns whether it did. After a bundle that was too much work the next ones have a task,
        until one of them was little work: a match that is discarded is lost time.
        """
        whole = message.notifications
        is_bundle = type(whole) is Bundle and self._is_cheap
        most = self._limits.immediate_notifications_max
        if len(whole) > (NOTIFICATIONS_PER_TURN if is_bundle else most):
            return False
        pending: Sequence[Pending[Any] | Turn] = ()
        error: ContradaError | None
        try:
            with Work("FEW_WORK_MAX", self._limits.immediate_work_max, is_strict=True):
                pending, error = self._take(message, wall_clock_us())
        except ContradaError as fault:
            if isinstance(fault, LimitError) and fault.limit == "FEW_WORK_MAX":
                self._is_cheap = not is_bundle
                return False
            error = fault
        except Exception as fault:  # noqa: BLE001 - as where a task does it
            self._fail(fault)
            return True
        if pending:
            self._hold(size)
            self._start(self._work_after(number, pending, _seconds(wait_ms), error, size))
        else:
            self._answer(number, error or 0)
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._worker = self._broker.start_work(work)
        self._worker.add_done_callback(self._on_worker_done)

    async def _work_after(
        self,
        number: N,
        pending: Sequence[Pending[Any] | Turn],
        wait_s: float,
        error: ContradaError | None,
        size: int,
    ) -> None:
        """Waits for room for the pending notifications, then works as `_work`."""
        dropped = await self.waits.wait(pending, wait_s)
        self._hold(-size)
        self._answer(number, error or dropped)
        await self._work()

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        while self._waiting:
            number, wait_ms, message, size = self._waiting.popleft()
            answer: int | ContradaError
            try:
                if self._usage is not None and (
                    wait_s := self._usage.charge(len(message.notifications), size)
                ):
                    await asyncio.sleep(wait_s)
                answer = await self._publish(_seconds(wait_ms), message)
            except ContradaError as error:
                answer = error
            self._hold(-size)
            self._answer(number, answer)
            if clock() - began_s > TURN_S:
                await asyncio.sleep(0)
                began_s = clock()
        self._worker = None  # Set here, not in the callback: frames may arrive before it runs.

    async def _publish(self, wait_s: float, message: Publish) -> int:
        now_us = wall_clock_us()
        dropped = done = 0
        error: ContradaError | None = None
        size = NOTIFICATIONS_PER_TURN
        is_decided = True
        whole = message.notifications
        while done < len(whole):
            batch = whole[done : done + size]
            part = message if batch is whole else replace(message, notifications=batch)
            work = Work("NOTIFICATION_WORK_MAX", self._limits.notification_work_max)
            if is_decided:  # Raises, with nothing done, where that is too much work.
                work = Work("BATCH_WORK_MAX", self._limits.batch_work_max, is_strict=True)
            try:
                with work:
                    pending, refused = self._take(part, now_us)
                    self._is_cheap = work.maximum - work.left <= self._limits.immediate_work_max
            except LimitError as too_much:
                if too_much.limit != "BATCH_WORK_MAX":
                    raise
                if isinstance(whole, Bundle):  # Only a single one can be marked as undecided.
                    message = replace(message, notifications=tuple(whole))
                    whole = message.notifications
                size = max(len(batch) // FEWER, 1)
                if len(batch) == 1:
                    is_decided = False
                    it = whole[done]
                    store_packed(it, UndecidedNotification(to_msgpack(it)))
                await asyncio.sleep(0)
                continue
            done += len(batch)
            is_decided = True
            if pending:
                dropped += await self.waits.wait(pending, wait_s)
            error = error or refused
            if done < len(whole):
                await asyncio.sleep(0)
        if error is not None:
            raise error
        return dropped

    def _take(
        self, message: Publish, now_us: int
    ) -> tuple[Sequence[Pending[Any] | Turn], ContradaError | None]:
        later: list[Turn] = []
        if not trace_spans.is_on:
            pending, error = self._dispatcher.take(self._origin, message, now_us, later)
            return [*pending, *later] if later else pending, error
        node, origin = self._dispatcher.router.name, self._origin.name
        with trace_spans.trace_acceptance(node, origin, message.notifications):
            pending, error = self._dispatcher.take(self._origin, message, now_us, later)
        return [*pending, *later], error

    def _on_worker_done(self, task: "asyncio.Task[None]") -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fail(fault)
        if self._worker is task:  # The worker failed, so nothing processes the rest.
            self._waiting.clear()
            self._hold(-self.held_bytes)

    def _fail(self, fault: BaseException) -> None:
        self._end(internal_failure(fault))


def internal_failure(fault: BaseException) -> FrameError:
    """Logs a fault of this broker, and returns the error that ends the connection."""
    _LOG.error("a fault of this broker while it worked for a client", exc_info=fault)
    return FrameError("internal", f"a fault of this broker ({type(fault).__name__})")


def _seconds(wait_ms: int) -> float:
    return min(max(wait_ms, 0) / 1000, PUBLISH_WAIT_S_MAX)
