"""`Consumers`: the clients of a server that read durable subscriptions of any owner.

A consumer's messages travel to the owner of its subscription, and its records back, in the streams
between the two servers.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from typing import NamedTuple

from contrada.delivery.access_point import AccessPoint
from contrada.delivery.delivery_messages import (
    Closed,
    CloseLog,
    Consuming,
    ForReader,
    OpenLog,
    Records,
)
from contrada.delivery.durable_table import DurableTable
from contrada.delivery.owned_logs import ConsumerKey, OwnedLogs
from contrada.errors import CannotPublishError


class HandRecords(NamedTuple):
    """Hand records, or the end of its reading, to a client of this server."""

    client: str
    message: ForReader


class Consumers:
    """The consumers at a server `name` or of its logs; `outgoing` is for its clients."""

    def __init__(
        self, name: str, table: DurableTable, logs: OwnedLogs, access: AccessPoint
    ) -> None:
        self.name = name
        self.outgoing: list[HandRecords] = []
        self._table, self._logs, self._access = table, logs, access
        self._owners: dict[ConsumerKey, str] = {}  # of the readings of clients here

    def consume(self, client: str, message: Consuming, now_us: int) -> None:
        """Handles a message of a client here; an error closes the consumer."""
        reader = message.name, client
        found = self._table.owner_of(message.name)
        owner = self._owners.get(reader) or (found and found[0])
        if not owner:
            self._close(reader, "there is no such durable subscription")
        elif isinstance(message, OpenLog) and reader in self._owners:
            self._close(reader, f"{client!r} reads {message.name!r} already")
            self._send(owner, CloseLog(message.name, client), now_us)
        elif not isinstance(message, OpenLog | CloseLog) and reader not in self._owners:
            self._close(reader, f"{client!r} does not read {message.name!r}")
        else:
            reads = self._owners.pop(reader, None) is not None
            ends = isinstance(message, CloseLog) and message.ends
            owners = sorted({owner, *self._table.owners_of(message.name)}) if ends else [owner]
            try:
                if not (reads and isinstance(message, CloseLog)):
                    for each in owners:
                        self._access.check_room(each)
            except CannotPublishError as error:
                self._close(reader, str(error))
                if reads:  # Even without room: its records would never be handed out again.
                    self._send(owner, CloseLog(message.name, client), now_us)
                return
            if not isinstance(message, CloseLog):
                self._owners[reader] = owner
            for each in owners:
                self._send(each, message, now_us)

    def _close(self, reader: ConsumerKey, reason: str, *, again: bool = False) -> None:
        self._owners.pop(reader, None)
        name, client = reader
        self.outgoing.append(HandRecords(client, Closed(name, client, reason, again)))

    def _send(self, owner: str, message: Consuming, now_us: int) -> None:
        if owner == self.name:
            self.serve(owner, message, now_us)
        else:
            self._access.send(owner, message, now_us)

    def serve(self, server: str, message: Consuming, now_us: int) -> None:
        """Handles a consumer's message to a subscription of this server."""
        for reader, closed in self._logs.consume(server, message, now_us):
            self.deliver(reader, closed, now_us)

    def deliver(self, reader: ConsumerKey, message: ForReader, now_us: int) -> None:
        """Sends a message from a log here to its consumer."""
        server, client = reader
        if server != self.name:
            self._access.send(server, message, now_us, self._access.known_context())
            return
        if isinstance(message, Closed):
            self._owners.pop((message.name, client), None)
        self.outgoing.append(HandRecords(client, message))

    def receive(self, owner: str, message: ForReader, now_us: int) -> None:
        """Takes a message of another owner for a client here."""
        reader = message.name, message.consumer
        if self._owners.get(reader) == owner:
            if isinstance(message, Closed):
                del self._owners[reader]
            self.outgoing.append(HandRecords(message.consumer, message))
        elif isinstance(message, Records):
            # The owner restarted: this consumer is unknown there now, or other consumers may have
            # the records.
            self._access.send(owner, CloseLog(message.name, message.consumer), now_us)

    def close_server(self, owner: str, reason: str, now_us: int, *, again: bool = False) -> None:
        """Closes all readings between this server and one that has restarted."""
        self._logs.close_all(owner, now_us)
        for reader in [each for each, where in self._owners.items() if where == owner]:
            self._close(reader, reason, again=again)

    def close_all(self, reason: str, now_us: int) -> list[HandRecords]:
        """Closes the readings of all clients here; records of logs here are requeued.

        Returns the messages for the clients, which wait for no change of the store.
        """
        self._logs.close_all(self.name, now_us)
        for reader in [*self._owners]:
            self._close(reader, reason)
        closed, self.outgoing = self.outgoing, []
        return closed

    def has_room(self, server: str) -> bool:
        """Whether the stream to a server has room for records."""
        try:
            self._access.check_room(server)
        except CannotPublishError:
            return False
        return True
