"""`answer_queue_request`: the requests of a client about queues, with its permissions.

A user lists, peeks, purges, redrives and releases the queues whose names are in `durable`, and
peeks what it may subscribe. With `inspect` it sees the counts of all. Changes are logged with their
user, also in the audit log.
"""

import logging
from collections.abc import Generator
from typing import Any, Final

import msgspec

from contrada.delivery.delivery_messages import CloseLog, ReadLog
from contrada.delivery.owned_queues import source_of
from contrada.delivery.queue_messages import (
    AskQueue,
    AskQueues,
    PeekedEntries,
    PurgeQueue,
    QueueChange,
    QueueRequest,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.net.broker.reader_queue import sendable
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.durable_messages import PublisherHello
from contrada.service.delivery_host import DeliveryHost
from contrada.service.durable_reader import IN_MEMORY
from contrada.service.security.permits import Permit
from contrada.service.security.principals import owns

_LOG: Final = logging.getLogger(__name__)

_EVENTS: Final = {
    CloseLog: "client %(peer)s of %(user)s ended %(subscription)s",
    PurgeQueue: "client %(peer)s of %(user)s purged %(count)d records of %(subscription)s",
    RedriveQueue: "client %(peer)s of %(user)s moved %(count)d dead letters of %(subscription)s",
    ReleaseQueue: "client %(peer)s of %(user)s released %(count)d records of %(subscription)s",
}
_AUDITED: Final = {
    CloseLog: "removed",
    PurgeQueue: "purged",
    RedriveQueue: "redriven",
    ReleaseQueue: "released",
}


def answer_queue_request(
    connection: ServerConnection, host: DeliveryHost, request: QueueRequest
) -> Generator[None, None, Any]:
    """Answers a request in turns. Raises as `LogHost.ask`, and NotPermittedError."""
    permit = connection.permit
    is_seen = isinstance(request, AskQueue) and _sees(permit, request.name)
    if not (is_seen or isinstance(request, AskQueues)):
        check_names(permit, request)
    if isinstance(request, RedriveQueue) and not request.to:
        to = source_of(host.server.logs, request.name)
        request = msgspec.structs.replace(request, to=to)
        check_names(permit, request)
    result = yield from host.answer(request, lambda name: _sees(permit, name))
    if isinstance(result, PeekedEntries):
        sent = tuple(sendable(each, permit) for each in result.entries)
        return PeekedEntries(sent, result.next)
    if isinstance(request, QueueChange):
        log_queue_change(connection, request, result.count)
    return result


def check_names(permit: Permit | None, message: Any) -> None:
    """Raises NotPermittedError for names of other users; names in memory are secret."""
    if permit is None:
        return
    if isinstance(message, PublisherHello):
        permit.check_publisher(message.publisher)
        return
    if not message.name.startswith(f"{IN_MEMORY}-"):
        permit.check_durable(message.name)
    if isinstance(message, ReadLog) and message.retention and message.retention.dead_letter:
        permit.check_durable(message.retention.dead_letter)
    if isinstance(message, RedriveQueue) and message.to:
        permit.check_durable(message.to)


def _sees(permit: Permit | None, name: str) -> bool:
    """Whether a user may see the counts of a queue. Names in memory are secret."""
    if permit is None or owns(permit.principal.durable, name):
        return True
    return permit.principal.may_inspect and not name.startswith(f"{IN_MEMORY}-")


def log_queue_change(
    connection: ServerConnection, change: CloseLog | QueueChange, count: int
) -> None:
    """Logs that a user changed records, or ended a subscription."""
    fields = {"peer": connection.name, "user": connection.user, "count": count}
    _LOG.info(_EVENTS[type(change)], fields | {"subscription": change.name})
    connection.audit(_AUDITED[type(change)], change.name, f"{count} records" if count else "")
