"""`Queues`: the queues of durable subscriptions, to be listed, looked at and changed.

`delivery.owned_queues` bounds each step; purging and redriving take as many as needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from contrada.delivery.queue_messages import (
    PEEKED_MAX,
    AskQueue,
    AskQueues,
    PeekedEntries,
    PeekQueue,
    PurgeQueue,
    QueuePage,
    QueueRequest,
    QueueState,
    QueueStep,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.errors import InvalidValueError
from contrada.model import Notification
from contrada.service.subjects import DurableRecord


class QueueHost(Protocol):
    """The owner of the queues: the server in this process, or a broker."""

    async def ask(self, request: QueueRequest) -> Any:
        """Answers a request. Raises DeliveryError for a name that it does not own."""


@dataclass(frozen=True, slots=True)
class Peek:
    """Unacknowledged records of a queue, in the order of their positions.

    The `attempt` of a record counts the readers that got it so far. `unreadable` has the reason for
    each position whose record is damaged, or may not be read. `next` is the position of the next
    record, or 0 at the end.
    """

    records: tuple[DurableRecord[Notification], ...]
    unreadable: Mapping[int, str]
    next: int = 0


class Queues:
    """The queues of the durable subscriptions that this service, or the client's broker, owns.

        state = await service.queues.state("orders")
        if state.dead:
            await service.queues.redrive(state.dead_letter)

    At a broker with users, a user sees and changes the queues with names of their own (`durable`);
    with `inspect` they see the counts of all. `Service.unsubscribe` removes a queue.

    All methods raise DeliveryError for a name that does not exist here, NotPermittedError,
    StoreError, ConnectionFailedError.
    """

    def __init__(self, host: Callable[[], QueueHost]) -> None:
        self._host = host

    async def states(self, after: str = "") -> QueuePage:
        """Returns up to QUEUES_AT_ONCE queues, in the order of their names.

        `after` is the `next` of the page before.
        """
        page: QueuePage = await self._host().ask(AskQueues(after))
        return page

    async def state(self, name: str) -> QueueState:
        """Returns the counts of a queue."""
        state: QueueState = await self._host().ask(AskQueue(name))
        return state

    async def peek(self, name: str, count: int = PEEKED_MAX, *, first: int = 0) -> Peek:
        """Returns up to `count` records from the position `first` on.

        Nothing is handed out, and no attempt counts. Fewer records, at least one, are returned
        beyond PEEKED_MAX or STEP_BYTES_MAX.
        """
        if type(count) is not int or count < 1 or type(first) is not int or first < 0:
            expected = "expected a count from 1 on, and a position from 0 on"
            raise InvalidValueError((count, first), expected)
        found: PeekedEntries = await self._host().ask(
            PeekQueue(name, first, min(count, PEEKED_MAX))
        )
        records: list[DurableRecord[Notification]] = []
        unreadable: dict[int, str] = {}
        for each in found.entries:
            if each.notification is None:
                unreadable[each.position] = each.reason
            else:
                said = each.notification, each.position, each.time_us, each.attempt
                records.append(DurableRecord(*said))
        return Peek(tuple(records), unreadable, found.next)

    async def redrive(
        self, name: str, *, to: str = "", on_progress: Callable[[int], object] | None = None
    ) -> int:
        """Moves dead letters back to their subscription. Returns their number.

        `name` is that of the dead letters, and `to` the subscription, where several have their dead
        letters there. Records that a reader of the dead letters has, and damaged ones, stay.
        `on_progress` gets the number so far after each step.

        Each step survives whole or not at all: after an error, a repetition moves the rest. Raises
        CannotPublishError where the subscription has no room.
        """
        return await self._repeat(RedriveQueue(name, to=to), on_progress)

    async def purge(self, name: str, *, on_progress: Callable[[int], object] | None = None) -> int:
        """Acknowledges the records that are in a queue now, also those of readers.

        Returns their number. `on_progress` gets it after each step.
        """
        return await self._repeat(PurgeQueue(name), on_progress)

    async def release(self, name: str) -> int:
        """Takes the unacknowledged records of a queue from its readers. Returns their number.

        They are handed out again, to any reader, after the delay of the retention: as after an
        acknowledgement time-out. So the records of a reader that hangs are free again. A reader
        that works on one of them may still acknowledge it; until then another reader may get it.
        """
        step: QueueStep = await self._host().ask(ReleaseQueue(name))
        return step.count

    async def _repeat(
        self, request: PurgeQueue | RedriveQueue, on_progress: Callable[[int], object] | None
    ) -> int:
        count, given = 0, dict[str, Any]()
        while True:
            step: QueueStep = await self._host().ask(msgspec.structs.replace(request, **given))
            count += step.count
            if on_progress is not None:
                on_progress(count)
            if not step.first:
                return count
            given = {"number": step.number, "first": step.first, "before": step.before}
            if isinstance(request, RedriveQueue):
                given["to"] = step.to
