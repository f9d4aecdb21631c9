"""Record batches: many records of a log by position, as columns.

Nothing is handed out: the reader may read a batch repeatedly, until it acknowledges all records
before a position. A record costs only its read and check in the store; no object is made of it.
"""

import sys
from array import array
from collections.abc import Generator
from typing import Final

from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.durable_log import DurableLog
from contrada.delivery.owned_queues import local_number
from contrada.delivery.store import LogRecord, StoredRecord
from contrada.errors import DeliveryError, InvalidValueError
from contrada.model import FilterSet
from contrada.model.codec import notification_from_msgpack
from contrada.net.wire.durable_messages import AskLog, AskRecordBatch, LogState, RecordBatch
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED

_READ_AT_ONCE: Final = 1_000
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


def log_state(server: DeliveryServer, request: AskLog) -> LogState:
    """Returns the state of a log. Raises as `local_number`, StoreError."""
    number = local_number(server, request.name)
    terms = server.logs.terms(request.name)
    assert terms is not None, "it is at home here"
    filters = FilterSet(terms.filters.filters)
    log, time_us = server.logs.log_of(request.name), request.time_us
    at = 0 if time_us is None else log.store.position_at(request.name, time_us)
    positions = log.extent.first, log.first_unacknowledged, log.extent.next, at
    return LogState(filters, server.name, number, *positions)


def read_record_batch(
    server: DeliveryServer, request: AskRecordBatch, bytes_max: int, permit: Permit | None = None
) -> Generator[None, None, RecordBatch]:
    """Returns a batch of at most `bytes_max`; other connections may have a turn at each `yield`.

    Records that the permit excludes are reported as damaged. Raises as `local_number`,
    InvalidValueError, StoreError.
    """
    if not 0 < request.first < request.end:
        raise InvalidValueError((request.first, request.end), "expected positions from 1 on")
    positions, times, lengths = array("q"), array("q"), array("I")
    found, damaged = list[bytes](), list[tuple[int, str]]()
    at, size, count = request.first, 0, 1
    while at < request.end and size < bytes_max:
        local_number(server, request.name, request.number)  # It may have ended since the last turn.
        log = server.logs.log_of(request.name)
        count = min(count, request.end - at, log.extent.next - at)
        if count <= 0:
            break
        entries = _entries(log, at, count)
        for each in entries:
            if each.position in log.done and not request.is_again:
                continue
            if not isinstance(each, LogRecord):
                damaged.append((each.position, each.reason))
            elif len(each.data) > CONTENT_BYTES_MAX:
                damaged.append((each.position, f"it has {len(each.data)} bytes"))
            elif permit and not permit.readable((notification_from_msgpack(each.data),)):
                damaged.append((each.position, NOT_PERMITTED))
            else:
                positions.append(each.position)
                times.append(each.time_us)
                lengths.append(len(each.data))
                found.append(each.data)
                size += len(each.data)
        at = entries[-1].position + 1 if entries else at + count
        at = min(log.extent.first_kept(at), request.end)
        # The mean length so far bounds the next read, to one turn and the rest of the batch.
        mean = max(1, size // max(1, len(found)))
        count = max(1, min(_READ_AT_ONCE, (bytes_max - size) // mean))
        yield
    columns = _little_endian(positions), _little_endian(times), _little_endian(lengths)
    return RecordBatch(at, *columns, b"".join(found), tuple(damaged))


def _entries(log: DurableLog, first: int, count: int) -> list[StoredRecord]:
    """Returns entries from a position on. Raises DeliveryError for dropped ones, StoreError."""
    if first < log.extent.first:
        gone = f"records before position {log.extent.first} were acknowledged or dropped"
        raise DeliveryError(f"{log.name!r}: {gone}, so reading cannot begin at {first}")
    return log.store.read(log.name, first, count)


def _little_endian(column: "array[int]") -> bytes:
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column.tobytes()
