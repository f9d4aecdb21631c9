"""`replay`: publishes an archive of stamped notifications again, with its own timing.

Spark sorts by time, and the driver fetches one sorted partition after the other. One service
publishes, since several cannot keep an order. A late notification, because reading or publishing
took longer, is published at once, and none is left out.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from contrada.errors import ContradaError, InputError
from contrada.integrations.spark.transforms.frames import NOTIFICATION, arrow_schema
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model import Envelope, Notification
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import time_us_of
from contrada.service import Service

REPLAY_BATCH: Final = 500
"""Notifications of a replay in one batch. Beyond it: the next batch has the rest."""

SECOND_US: Final = 1_000_000

ReplayProgress: TypeAlias = Callable[[int, int], None]
"""Called after each batch with the published count, and the last time in microseconds."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The counts of published notifications, and of unreadable ones or those without a time."""

    published: int
    bad: int


async def replay(
    frame: DataFrame,
    service: Service,
    *,
    speed: float = 1.0,
    since: datetime | None = None,
    until: datetime | None = None,
    delivery: str | None = None,
    anew: bool = False,
    told: ReplayProgress | None = None,
) -> Replayed:
    """Publishes a frame of packed notifications in the order and at the distances of their times.

    `speed` is the time-lapse factor: 60 makes a minute a second, infinity does not wait. `since`
    (inclusive) and `until` (exclusive) bound the times. Equal times are ordered by publisher and
    number. `delivery` is a class of delivery for all; by default each has its own. Envelopes are
    kept, so known notifications are not delivered again; with `anew` they are stamped with the
    present time and the name of this client. Cancelling the task ends it within a batch. Raises
    InputError for a frame that is not packed, a speed that is not positive and times without a
    zone, and the errors of the service with a note of the published count. Memory: two partitions.
    """
    first_us, last_us = _bound(since, -math.inf), _bound(until, math.inf)
    if not speed > 0:
        raise InputError("speed", f"found {speed!r}, expected a positive number")
    if dict(frame.dtypes).get(NOTIFICATION) != "binary":
        reason = "expected a binary column of packed notifications; see to_notifications"
        raise InputError(f"column {NOTIFICATION!r}", reason)
    rows = await asyncio.to_thread(_sorted_rows, frame, first_us, last_us)
    loop = asyncio.get_running_loop()
    run = _Replay(service, Pace(speed, loop.time), delivery, anew, told)
    try:
        while some := await asyncio.to_thread(lambda: list(islice(rows, REPLAY_BATCH))):
            await run.publish(some, asyncio.sleep)
    except ContradaError as error:
        error.add_note(f"{run.published} notifications were published")
        raise
    return Replayed(run.published, run.bad)


class Pace:
    """The schedule of notifications, by a clock in seconds."""

    def __init__(self, speed: float, now: Callable[[], float]) -> None:
        self._speed = speed
        self._now = now
        self._begin: tuple[int, float] | None = None

    def wait_s(self, time_us: int) -> float:
        """Returns the seconds until a time is due, at most 0 if it is, as the first one."""
        if math.isinf(self._speed):
            return 0.0
        if self._begin is None:
            self._begin = time_us, self._now()
        first_us, began = self._begin
        return began + (time_us - first_us) / SECOND_US / self._speed - self._now()


@dataclass(slots=True)
class _Replay:
    service: Service
    pace: Pace
    delivery: str | None
    anew: bool
    told: ReplayProgress | None
    published: int = 0
    bad: int = 0

    async def publish(
        self, rows: list[tuple[int | None, bytes]], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Publishes rows when they are due; rows due at the same time in one call."""
        due: list[Notification] = []
        last_us = 0
        for time_us, packed in rows:
            if time_us is None:
                self.bad += 1
                continue
            wait_s = self.pace.wait_s(time_us)
            if wait_s > 0:
                await self._send(due, last_us)
                due = []
                # Publishing has taken time, too.
                await sleep(max(0.0, self.pace.wait_s(time_us)))
            due.append(self._restamp(notification_from_msgpack(packed)))
            last_us = time_us
        await self._send(due, last_us)

    def _restamp(self, of: Notification) -> Notification:
        if not self.anew:
            return of
        old = of.envelope
        return of.with_envelope(
            Envelope(ttl_us=old.ttl_us, priority=old.priority, delivery=old.delivery)
        )

    async def _send(self, due: list[Notification], last_us: int) -> None:
        if due:
            self.published += await self.service.publish_batch(due, delivery=self.delivery)
            if self.told is not None:
                self.told(self.published, last_us)


def _bound(at: datetime | None, otherwise: float) -> float:
    try:
        return otherwise if at is None else time_us_of(at)
    except ContradaError as error:
        raise InputError("a bound of the times", str(error)) from None


_TIMED: Final = "time_us bigint, publisher string, sequence bigint, notification binary"


def _sorted_rows(
    frame: DataFrame, first_us: float, last_us: float
) -> Iterator[tuple[int | None, bytes]]:
    """Yields times and notifications in order; bad ones are last, without a time."""
    work = for_worker(partial(_add_times, first_us, last_us))
    timed = frame.select(NOTIFICATION).mapInArrow(work, _TIMED)
    order = [timed[name].asc_nulls_last() for name in timed.columns]
    rows = timed.orderBy(*order).select("time_us", NOTIFICATION)
    return ((row[0], bytes(row[1] or b"")) for row in rows.toLocalIterator(prefetchPartitions=True))


def _add_times(
    first_us: float, last_us: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields packed notifications within the bounds, with their sort keys."""
    schema = arrow_schema(_TIMED)
    for batch in batches:
        rows = [_row(packed) for packed in batch.column(0).to_pylist()]
        rows = [row for row in rows if row[0] is None or first_us <= row[0] < last_us]
        columns = zip(*rows, strict=True) if rows else ([],) * len(schema)
        yield pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _row(packed: bytes | None) -> tuple[Any, ...]:
    try:
        envelope = notification_from_msgpack(packed or b"").envelope
    except ContradaError:
        return None, None, None, packed
    return envelope.time_us, envelope.publisher, envelope.sequence, packed
