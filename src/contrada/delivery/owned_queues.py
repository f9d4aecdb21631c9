"""The answers to each `QueueRequest`, from the logs of one server.

Invariant: a step of `redrive` appends records and acknowledges them in one group of the store. So a
crash between two steps, or in one, neither loses nor doubles a record.
"""

from collections.abc import Callable, Generator
from heapq import nlargest, nsmallest
from typing import Any, Final

from contrada.delivery.delivery_messages import LogEntry
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.durable_log import DurableLog
from contrada.delivery.owned_logs import OwnedLogs, append_records
from contrada.delivery.queue_messages import (
    PEEKED_MAX,
    QUEUES_AT_ONCE,
    STEP_BYTES_MAX,
    PeekedEntries,
    PeekQueue,
    PurgeQueue,
    QueuePage,
    QueueState,
    QueueStep,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.delivery.store import LogRecord, Positions
from contrada.errors import CannotPublishError, DeliveryError, StoreError

REDRIVEN_AT_ONCE: Final = 500
"""Records of a step of `RedriveQueue`. Beyond it: the next step moves them."""

PURGED_AT_ONCE: Final = 10_000
"""Positions of a step of `PurgeQueue`. Beyond it: the next step purges them."""


def state_of(logs: OwnedLogs, name: str) -> QueueState:
    """Returns the state of a queue. Raises DeliveryError. Cost: a read of its oldest record."""
    log, stuck = logs.log_of(name), logs.stuck.get(name, "")
    oldest: list[Any] = []
    try:
        oldest = log.store.read(name, log.first_unacknowledged, 1)
    except StoreError as error:
        stuck = stuck or error.reason
    handed = len(log.holders)
    return QueueState(
        name,
        _unacknowledged(log) - handed,
        handed,
        log.requeued.delayed,
        oldest[0].time_us if oldest and isinstance(oldest[0], LogRecord) else 0,
        log.extent.held_bytes,
        logs.readers_of(name),
        log.attempts.highest,
        log.statistics.dead,
        log.statistics.damaged,
        log.retention.dead_letter,
        stuck,
    )


def longest_queues(logs: OwnedLogs, count: int, sees: Callable[[str], bool]) -> list[QueueState]:
    """Returns the queues with most unacknowledged records that `sees` allows. Cost: all logs."""
    names = nlargest(
        count, filter(sees, logs.names()), key=lambda name: _unacknowledged(logs.log_of(name))
    )
    return [state_of(logs, each) for each in names]


def queue_page(
    logs: OwnedLogs, after: str, sees: Callable[[str], bool]
) -> Generator[None, None, QueuePage]:
    """Returns the first queues after a name that `sees` allows, one for each turn. Cost: all names.

    Queues that end meanwhile are left out.
    """
    names = nsmallest(QUEUES_AT_ONCE, (it for it in logs.names() if it > after and sees(it)))
    found: list[QueueState] = []
    for each in names:
        yield  # Each reads its oldest record, which may be large.
        if logs.terms(each) is not None:
            found.append(state_of(logs, each))
    return QueuePage(found, names[-1] if len(names) == QUEUES_AT_ONCE else "")


def peek(server: DeliveryServer, request: PeekQueue) -> Generator[None, None, PeekedEntries]:
    """Returns unacknowledged records, one for each turn. Raises DeliveryError, StoreError."""
    found: list[LogEntry] = []
    at, size, number = request.first, 0, local_number(server, request.name)
    while True:
        local_number(server, request.name, number)  # It may have ended since the last turn.
        log = server.logs.log_of(request.name)
        at = _unacknowledged_from(log, at)
        if at >= log.extent.next:
            return PeekedEntries(tuple(found))
        if len(found) >= min(request.count, PEEKED_MAX):
            break
        (entry,) = log.store.read(request.name, at, 1)
        size += len(entry.data) if isinstance(entry, LogRecord) else 0
        if found and size > STEP_BYTES_MAX:
            break
        found.append(server.logs.to_entry(entry, log.attempts[at]))
        at += 1
        yield
    return PeekedEntries(tuple(found), at)


def purge(
    server: DeliveryServer, request: PurgeQueue, now_us: int
) -> tuple[QueueStep, list[DeliveryEffect]]:
    """Acknowledges the next records. Raises DeliveryError, LimitError, StoreError."""
    log, number, first, before = _begin(server, request)
    end, counted = min(first + PURGED_AT_ONCE, before), log.statistics.acknowledged
    if first < end:
        log.acknowledge([(first, end)])
    step = QueueStep(
        log.statistics.acknowledged - counted, number, end if end < before else 0, before
    )
    return step, server.settle_logs([request.name], now_us)


def redrive(
    server: DeliveryServer, request: RedriveQueue, now_us: int
) -> tuple[QueueStep, list[DeliveryEffect]]:
    """Moves the next dead letters; damaged ones stay.

    Raises DeliveryError, LimitError, StoreError, and CannotPublishError where the subscription has
    no room: without an effect.
    """
    log, number, at, before = _begin(server, request)
    to = request.to or source_of(server.logs, request.name)
    target = server.logs.log_of(to)
    keep, extent = target.retention, target.extent
    if keep.dead_letter != request.name:
        raise DeliveryError(f"{request.name!r} does not have the dead letters of {to!r}")
    moved: list[LogRecord] = []
    size, seen, is_full = 0, 0, False
    while at < before and seen < REDRIVEN_AT_ONCE and size < STEP_BYTES_MAX:
        if at not in log.holders:
            (entry,) = log.store.read(request.name, at, 1)
            if isinstance(entry, LogRecord):
                held = extent.held_bytes + size + len(entry.data)
                if extent.records + len(moved) >= keep.records_max or held > keep.bytes_max:
                    is_full = True
                    break
                moved.append(entry)
                size += len(entry.data)
        seen += 1
        at = _unacknowledged_from(log, at + 1)
    if is_full and not moved:  # Whatever its policy: dropping others would lose records.
        raise CannotPublishError(to, extent.records, extent.held_bytes)
    done = [*Positions((each.position, each.position + 1) for each in moved)]
    if not target.store.has_room(size):
        raise StoreError(f"the store has no room for the dead letters of {to!r}")
    log.acknowledge(done)  # First: it may refuse, and the append may not any more.
    append_records(target, [each.data for each in moved], now_us, server.logs.appended)
    step = QueueStep(len(moved), number, at if at < before else 0, before, to)
    return step, server.settle_logs([request.name, to], now_us)


def release(
    server: DeliveryServer, request: ReleaseQueue, now_us: int
) -> tuple[QueueStep, list[DeliveryEffect]]:
    """Takes all records from the readers of a queue, as their time-out would. Raises DeliveryError.

    Their next attempt waits for the delay of the retention.
    """
    number = local_number(server, request.name)
    count = len(server.logs.log_of(request.name).holders)
    return QueueStep(count, number, 0, 0), server.release_records(request.name, now_us)


def local_number(server: DeliveryServer, name: str, number: int | None = None) -> int:
    """Returns the number of a durable subscription of this server. Raises DeliveryError.

    `number`: the one that the caller knows.
    """
    known = server.find(name)
    if known is None:
        raise DeliveryError(f"there is no durable subscription {name!r}")
    owner, found, _ = known
    if owner != server.name:
        raise DeliveryError(f"{name!r} is at home at the server {owner!r}: connect to that one")
    if number not in (None, found):
        raise DeliveryError(f"{name!r} has ended, and another one has its name")
    return found


def source_of(logs: OwnedLogs, name: str) -> str:
    """Returns the only subscription with its dead letters in another. Raises DeliveryError."""
    found = [it for it in logs.names() if logs.log_of(it).retention.dead_letter == name]
    if len(found) == 1:
        return found[0]
    if not found and name in logs.names() and (dead := logs.log_of(name).retention.dead_letter):
        raise DeliveryError(f"the dead letters of {name!r} are in {dead!r}: redrive that one")
    count, reason = len(found) or "no", ": choose one" if found else ""
    raise DeliveryError(f"{count} subscriptions have their dead letters in {name!r}{reason}")


def _begin(
    server: DeliveryServer, request: PurgeQueue | RedriveQueue
) -> tuple[DurableLog, int, int, int]:
    """Returns the log of a request with its number, and where the step begins and all end."""
    number = local_number(server, request.name, request.number or None)
    log = server.logs.log_of(request.name)
    end = log.extent.next
    first = _unacknowledged_from(log, request.first)
    return log, number, first, min(request.before, end) if request.before > 0 else end


def _unacknowledged(log: DurableLog) -> int:
    first, end = log.extent[:2]
    return end - first - log.done.count_from(first)


def _unacknowledged_from(log: DurableLog, position: int) -> int:
    return log.done.first_without(max(position, log.extent.first))
