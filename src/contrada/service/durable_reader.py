"""`DurableReader`: a reader of a durable subscription whose log is here or at a broker.

It prefetches records within a credit that it renews as they are read. Acknowledgements are
collected, and sent once in each turn of the event loop.

Invariant: the reader holds each record that it gave to its caller until that is acknowledged or
returned by `nack`. It holds unreadable records, too, and acknowledges them with the next later
readable one, so that they block no log. See `DurableSubscription`.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Final, Protocol, TypeVar, Unpack

from contrada.delivery import delivery_messages as messages
from contrada.delivery.durable_log import OUT_MAX
from contrada.delivery.retention import Retention
from contrada.delivery.store import Positions
from contrada.errors import (
    ContradaError,
    DeliveryError,
    InvalidValueError,
    ServiceClosedError,
    ServiceError,
    StoreError,
)
from contrada.model import Filter, FilterSet, Notification, Pattern
from contrada.model.domains.values import time_us_of
from contrada.service.callbacks import handle_all, tell_error
from contrada.service.delivery_host import LogHost
from contrada.service.interface import DurableSubscription, SubscriptionStatistics
from contrada.service.loop_guards import check_loop, next_of
from contrada.service.queued_subscription import why_dropped
from contrada.service.requests import filters_of, narrowing_of, residue_of
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.security.signatures import durable_reader_of_subject
from contrada.service.service_limits import ServiceLimits
from contrada.service.subjects import DurableOptions, DurableRecord, Handler, OnError
from contrada.service.subscription_queue import EXPIRED, USUAL_QUEUE, QueueSettings

DAMAGED: Final = "damaged"
"""Reason of a drop: the record on the disk is changed or missing."""

_LOG: Final = logging.getLogger(__name__)
TOLD_S: Final = 0.05
"""Seconds within which the owner of a log learns which records a reader holds that holds several.
Until then a lost reader counts as having read the first of them."""

IN_MEMORY: Final = "@reliable"
"""Prefix of the names of subscriptions in memory."""

_KINDS: Final[Mapping[str, tuple[Any, str]]] = {
    "durable": (str, "a name"),
    "retention": (Retention, "a Retention"),
    "from_position": (int, "a position"),
    "from_time": (datetime | int, "a time with a zone, or UTC microseconds since 1970"),
}

T = TypeVar("T")


class ReaderHost(Protocol):
    """The service of a reader."""

    now_us: Callable[[], int]
    service_limits: ServiceLimits

    def delivery(self) -> LogHost:
        """The owner of the logs. Raises unless the service is open."""
        ...

    def name_of_request(self) -> str:
        """A unique name."""
        ...


class DurableReader(DurableSubscription[T]):
    """See `DurableSubscription`."""

    def __init__(
        self,
        service: ReaderHost,
        filters: Filter | FilterSet | None,
        reader: Callable[[Any], T] | None,
        residue: Callable[[Notification], bool] | None = None,
        **options: Unpack[DurableOptions],
    ) -> None:
        """Raises ServiceError for options that exclude each other."""
        self._service, self._filters = service, filters
        self._reader, self._residue = reader, residue
        # None is the same as an absent option.
        given: dict[str, Any] = {name: it for name, it in options.items() if it is not None}
        for name, (kind, words) in _KINDS.items():
            if name in given and not isinstance(given[name], kind):
                raise ServiceError(f"{name} = {given[name]!r}: expected {words}")
        self._options, self._is_durable = given, "durable" in given
        if self._is_durable == bool(given.get("reliable")):
            raise ServiceError("a durable subscription has either durable='name' or reliable=True")
        if not self._is_durable and filters is None:
            raise ServiceError("a subscription in memory needs filters")
        if "from_position" in given and "from_time" in given:
            raise ServiceError("read from_position or from_time, not from both")
        self._prefetch: int = given.get("prefetch", service.service_limits.prefetch_max)
        self._name: str = given.get("durable", "")
        self._client = ""
        self._host: LogHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_ended = False
        self._failure: ContradaError | None = None
        self._arrived = asyncio.Event()
        self._ahead: deque[messages.LogEntry] = deque()
        self._read = self._prefetch  # since credit was granted
        self._taken = self._told = 0  # of the records since it was opened, the host knows those
        self._telling: asyncio.TimerHandle | None = None
        self.newest = 0
        """The highest position that was given to the caller."""
        self._has: dict[int, None] = {}
        self._still_has: set[int] = set()  # those that a new connection sends again
        self._last: int | None = None  # to be acknowledged when the next one is asked for
        self._is_repeated = False  # whether others were given the last record before
        self._is_late = False  # whether records were taken from it since it read
        self._is_handling = False
        self._failed = 0
        self._unreadable: list[int] = []  # a heap of the positions of unreadable records
        self._done: list[int] = []
        self._is_flush_due = False
        self._delivered = self._reconnects = 0
        self._dropped: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The name of the subscription; one in memory gets it when it is opened."""
        return self._name

    @property
    def filters(self) -> Filter | FilterSet:
        if self._filters is None:
            raise ServiceError(f"open {self._name!r} first: its filters were not given")
        return self._filters

    # --- in force -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Begins to read the subscription, and creates it if it does not exist.

        A second call does nothing. Raises DeliveryError where it has other filters, there is no
        store, or it cannot be read from that position; StoreError, LimitError, ServiceError,
        ServiceClosedError.
        """
        if self._has_ended:
            raise ServiceClosedError("this reader is closed; subscribe anew")
        if self._host is not None:
            return
        time, retention = self._options.get("from_time"), self._options.get("retention")
        time_us = time_us_of(time) if isinstance(time, datetime) else time
        begin = self._options.get("from_position"), time_us
        self._host = host = self._service.delivery()
        self._client = self._service.name_of_request()
        self._loop = asyncio.get_running_loop()
        if not self._is_durable:
            self._name = f"{IN_MEMORY}-{self._client}"
        wanted = messages.ReadLog(
            self._name, self._client, self._filters, retention, self._is_durable, *begin
        )
        try:
            standing = await host.read(self, wanted)
            if self._failure is not None:
                raise self._failure.copy()
        except BaseException:
            self.end()
            raise
        if self._has_ended:
            raise ServiceClosedError("it was closed while it was opened")
        if self._filters is None:
            self._filters = standing
        self._renew()

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self._acknowledge_last()
        await self.aclose()

    async def aclose(self) -> None:
        host = self._host
        if host is None or self._has_ended:
            self._has_ended = True
            return
        self.end()
        await host.closed(self._client)

    def end(self, failure: ContradaError | None = None) -> None:
        """Sends the last acknowledgements and stops reading; iteration ends, or fails."""
        host = self._host
        if host is None or self._has_ended:
            return
        self._failure = self._failure or failure
        self._flush()
        self._has_ended = True
        if self._telling is not None:
            self._telling.cancel()
        ends, seen = not self._is_durable, tuple(self._has)
        host.leave(messages.CloseLog(self._name, self._client, ends, seen))
        self._ahead.clear()
        self._arrived.set()

    def forget_prefetched(self) -> None:
        """Drops records that the caller was not given: others may get them now. They come again."""
        self._ahead.clear()

    def restart(self) -> None:
        """Reads the log on another connection.

        Prefetched records are delivered again; the caller keeps those that it was given.
        """
        self._reconnects += 1
        self._ahead.clear()
        self._still_has.update(self._has)
        self._read, self._taken, self._told = self._prefetch, 0, 0
        self._renew()

    @property
    def holds(self) -> tuple[int, ...]:
        """The positions that the caller has and did not acknowledge or return."""
        return tuple(self._has)

    # --- reading ------------------------------------------------------------------------------

    def receive(self, said: messages.ForReader) -> None:
        """Receives records, or loses prefetched ones, or learns the end of the subscription."""
        if isinstance(said, messages.Closed):
            self._failure = DeliveryError(f"{self._name!r}: {said.reason}")
            self._ahead.clear()
        elif isinstance(said, messages.Withdraw):
            gone, before = {*said.positions}, len(self._ahead)
            self._ahead = deque(each for each in self._ahead if each.position not in gone)
            self._taken += before - len(self._ahead)
            self._read += before - len(self._ahead)
            self._is_late = True
        else:
            self._ahead.extend(said.records)
            self._read += said.unused
        self._arrived.set()

    async def __anext__(self) -> DurableRecord[T]:
        while True:
            if self._failure is not None:
                raise self._failure.copy()
            if self._has_ended:
                raise StopAsyncIteration
            if self._host is None:
                raise ServiceError("iterate a subscription inside its own `async with`")
            self._acknowledge_last()
            if self._is_late:
                self._is_late = False
                self._grant(self._host)
            if self._is_repeated:
                await self._settle_repeated(self._host)
                continue  # It may have ended meanwhile.
            while self._ahead:
                found = self._took(self._ahead.popleft())
                if found is not None:
                    return found
            check_loop(self._loop)
            self._arrived.clear()
            self._flush()
            self._renew()
            await self._arrived.wait()

    async def _settle_repeated(self, host: LogHost) -> None:
        """Waits until the acknowledgement of a repeated record is on the disk.

        If the next record kills this process, the attempt counts for that one and not again for the
        last. A store that is away delays that only: the acknowledgement is tried again.
        """
        self._is_repeated = False
        self._flush()
        with suppress(StoreError):
            await host.committed(self._client)

    async def next(self, timeout_s: float | None = None) -> DurableRecord[T]:
        return await next_of(self, timeout_s)

    def _took(self, record: messages.LogEntry) -> DurableRecord[T] | None:
        """The record for the caller, or None if it is skipped."""
        self._read += 1
        self._taken += 1
        self._renew()
        position, item = record.position, record.notification
        if position in self._still_has:
            self._still_has.discard(position)
            return None
        if item is None:
            reason = NOT_PERMITTED if record.reason == NOT_PERMITTED else DAMAGED
            self._dropped[reason] += 1
            fields = {"subscription": self._name, "position": position, "reason": record.reason}
            _LOG.warning(
                "%(subscription)s: record %(position)d is not delivered: %(reason)s", fields
            )
            return None
        self.newest = max(self.newest, position)
        self._has[position] = None
        expires_us = item.envelope.expires_us
        if expires_us is not None and expires_us <= self._service.now_us():
            self._dropped[EXPIRED] += 1
            self._settle((position,))
            return None
        made: Any = item
        try:
            if self._residue is not None and not self._residue(item):
                self._acknowledge((position,))  # It was not asked for.
                return None
            if self._reader is not None:
                made = self._reader(item)
        except Exception as error:  # noqa: BLE001 - the subscriber's own code
            self._note_unreadable(position, error)
            return None
        if self._options.get("auto_acknowledge", True):
            self._last = None if self._is_handling else position
            self._is_repeated = record.attempt > 1
        if self._telling is None and self._loop is not None:
            self._telling = self._loop.call_later(TOLD_S, self._tell)
        self._delivered += 1
        return DurableRecord(made, position, record.time_us, record.attempt)

    def _note_unreadable(self, position: int, error: Exception) -> None:
        reason = why_dropped(error)
        self._dropped[reason] += 1
        level = logging.WARNING if self._dropped[reason] == 1 else logging.DEBUG
        fields = {"subscription": self._name, "position": position, "reason": error}
        _LOG.log(level, "%(subscription)s: record %(position)d is unreadable: %(reason)r", fields)
        heappush(self._unreadable, position)
        if len(self._unreadable) > self._service.service_limits.unreadable_max:
            self._settle((heappop(self._unreadable),))

    def statistics(self) -> SubscriptionStatistics:
        return SubscriptionStatistics(
            self._delivered,
            len(self._ahead),
            dict(self._dropped),
            self._failed,
            reconnects=self._reconnects,
        )

    # --- acknowledging ------------------------------------------------------------------------

    async def acknowledge(self, *positions: int, up_to: int | None = None) -> None:
        host = self._require_open(*positions, *(() if up_to is None else (up_to,)))
        before = [each for each in self._has if up_to is not None and each <= up_to]
        self._acknowledge([*positions, *before])
        self._flush()
        await host.committed(self._client)

    async def nack(self, *positions: int, delay_s: float | None = None) -> None:
        host = self._require_open(*positions)
        self._return(host, positions, None if delay_s is None else delay_us_of(delay_s))
        await host.committed(self._client)

    def _return(self, host: LogHost, positions: Iterable[int], delay_us: int | None = None) -> None:
        """Returns those of these records that the caller has."""
        returned = tuple(each for each in positions if each in self._has)
        for each in returned:
            del self._has[each]
        self._still_has.difference_update(returned)
        host.consume(self._client, messages.Nack(self._name, self._client, returned, delay_us))

    async def extend(self, *positions: int) -> None:
        host = self._require_open(*positions)
        held = tuple(each for each in positions or self._has if each in self._has)
        if held:
            host.consume(self._client, messages.Extend(self._name, self._client, held[:OUT_MAX]))

    async def handle(
        self,
        function: Handler[DurableRecord[T]],
        *,
        concurrency: int = 1,
        on_error: OnError[DurableRecord[T]] | None = None,
    ) -> None:
        async def failed(error: Exception, record: DurableRecord[T]) -> None:
            self._failed += 1
            fields = {"subscription": self._name, "position": record.position, "reason": error}
            _LOG.warning("a handler of %(subscription)s, %(position)d: %(reason)r", fields)
            if on_error is not None:
                await tell_error(on_error, error, record, self._name)
            if self._host is not None and not self._has_ended and self._failure is None:
                self._return(self._host, (record.position,))

        def finished(record: DurableRecord[T]) -> None:
            if self._options.get("auto_acknowledge", True):
                self._acknowledge((record.position,))

        # A record that others were given before is handled alone: it may have killed them.
        self._is_handling = True
        try:
            await handle_all(
                self, function, concurrency, failed, finished, lambda each: each.attempt > 1
            )
        finally:
            self._is_handling = False

    def _require_open(self, *positions: Any) -> LogHost:
        if self._failure is not None:
            raise self._failure.copy()
        if self._has_ended:
            again = "its unacknowledged records are delivered again"
            raise ServiceClosedError(f"this reader is closed; {again}")
        if self._host is None:
            raise ServiceError("use a subscription inside its own `async with`")
        for each in positions:
            if not isinstance(each, int) or not 0 < each <= self.newest:
                reason = f"expected a position that this reader got, up to {self.newest}"
                raise InvalidValueError(each, reason)
        check_loop(self._loop)
        return self._host

    def _acknowledge_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            self._acknowledge((last,))

    def _acknowledge(self, positions: Sequence[int]) -> None:
        """Acknowledges positions, with the unreadable records before the highest of them."""
        last, earlier = max(positions, default=0), []
        while self._unreadable and self._unreadable[0] < last:
            earlier.append(heappop(self._unreadable))
        self._settle((*positions, *earlier))

    def _settle(self, positions: Iterable[int]) -> None:
        for each in positions:
            if each in self._has:
                del self._has[each]
                self._done.append(each)
        if self._done and not self._is_flush_due and self._loop is not None:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._host is not None and self._done and not self._has_ended:
            done, self._done = self._done, []
            if self._failure is None:
                # A set of positions, as few intervals.
                intervals = tuple(Positions((each, each + 1) for each in sorted(done)))
                said = messages.Ack(self._name, self._client, intervals)
                self._host.consume(self._client, said)

    def _renew(self) -> None:
        """Renews the credit when half of it is used."""
        if self._host is not None and 2 * self._read >= self._prefetch and self._failure is None:
            self._grant(self._host)

    def _tell(self) -> None:
        """Tells the host which records were read, if no message has done that since."""
        self._telling = None
        has_news = self._has and self._told < self._taken and not self._has_ended
        if self._host is not None and has_news and self._failure is None:
            self._grant(self._host)

    def _grant(self, host: LogHost) -> None:
        credit, self._read, self._told = self._read, 0, self._taken
        host.consume(self._client, messages.Grant(self._name, self._client, credit, self._taken))


def delay_us_of(delay_s: float) -> int:
    """A delay in microseconds. Raises InvalidValueError."""
    most_s = messages.DELAY_US_MAX // 1_000_000
    if type(delay_s) not in (int, float) or not 0 <= delay_s <= most_s:
        raise InvalidValueError(delay_s, f"delay_s: expected seconds from 0 to {most_s}")
    return int(delay_s * 1_000_000)


def durable_reader_of(
    service: ReaderHost, subject: Any, where: Any, queue: QueueSettings, options: dict[str, Any]
) -> DurableSubscription[Any]:
    """The reader for the durable options of `Service.subscribe`; raises as it does."""
    if queue != USUAL_QUEUE:
        taken = "`when_full`, `queue_max` and `queue_bytes`"
        raise ServiceError(f"a durable subscription has a log and no queue: leave out {taken}")
    if isinstance(subject, Pattern):
        raise ServiceError("a durable subscription takes filters, not a pattern")
    if subject is None and where is not None:
        raise ServiceError("`where` narrows a subject: give the subject, too")
    where = narrowing_of(subject, where)
    filters = None if subject is None else filters_of(subject, where)
    residue = residue_of(subject, where)
    return DurableReader(service, filters, durable_reader_of_subject(subject), residue, **options)
