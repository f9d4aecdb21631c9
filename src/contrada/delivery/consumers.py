"""`Consumers`: the clients of a server that read standing subscriptions, wherever their logs are.

A consumer's messages go to the home of its subscription, and its records come from there. Both
travel in the streams between the two servers, so a consumer may be a client of any server. Where
this server is the home itself, nothing travels.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from typing import NamedTuple

from contrada.delivery.access_point import AccessPoint
from contrada.delivery.delivery_messages import Closed, CloseLog, Consuming, OpenLog, Records
from contrada.delivery.durable_table import DurableTable
from contrada.delivery.owned_logs import ConsumerKey, OwnedLogs
from contrada.errors import CannotPublishError


class HandRecords(NamedTuple):
    """Hand records to a client of this server, or tell it that it gets no more."""

    client: str
    message: Records | Closed


class Consumers:
    """Who reads at a server `name` or from there; `gives` is what its clients are to get."""

    def __init__(
        self, name: str, table: DurableTable, logs: OwnedLogs, access: AccessPoint
    ) -> None:
        self.name = name
        self.outgoing: list[HandRecords] = []
        self._table, self._logs, self._access = table, logs, access
        self._owners: dict[
            ConsumerKey, str
        ] = {}  # where clients here read; by subscription and client

    def consume(self, client: str, message: Consuming, now_us: int) -> None:
        """A client here says something as a consumer; what cannot be done closes it."""
        reader = message.name, client
        found = self._table.owner_of(message.name)
        owner = self._owners.get(reader) or (found and found[0])
        if not owner:
            self._close(reader, "there is no such standing subscription")
        elif isinstance(message, OpenLog) and reader in self._owners:
            self._close(reader, f"{client!r} reads {message.name!r} already")
            self._send(owner, CloseLog(message.name, client), now_us)
        elif not isinstance(message, OpenLog | CloseLog) and reader not in self._owners:
            self._close(reader, f"{client!r} does not read {message.name!r}")
        else:
            reads = self._owners.pop(reader, None) is not None
            try:
                if not (reads and isinstance(message, CloseLog)):
                    self._access.check_room(owner)
            except CannotPublishError as error:
                self._close(reader, str(error))
                if reads:  # One more for each that reads; what it has would never come again.
                    self._send(owner, CloseLog(message.name, client), now_us)
                return
            if not isinstance(message, CloseLog):
                self._owners[reader] = owner
            self._send(owner, message, now_us)

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
        """A client of a server says something of a subscription that is at home here."""
        for reader, closed in self._logs.consume(server, message):
            self.deliver(reader, closed, now_us)

    def deliver(self, reader: ConsumerKey, message: Records | Closed, now_us: int) -> None:
        """Hands something from a log here to a consumer, wherever it is."""
        server, client = reader
        if server != self.name:
            self._access.send(server, message, now_us, self._access.known_context())
            return
        if isinstance(message, Closed):
            self._owners.pop((message.name, client), None)
        self.outgoing.append(HandRecords(client, message))

    def receive(self, owner: str, message: Records | Closed, now_us: int) -> None:
        """Something has come for a client here that reads elsewhere."""
        reader = message.name, message.consumer
        if self._owners.get(reader) == owner:
            if isinstance(message, Closed):
                del self._owners[reader]
            self.outgoing.append(HandRecords(message.consumer, message))
        elif isinstance(message, Records):
            # The home restarted: this consumer is unknown there now, or other consumers may have
            # the records.
            self._access.send(owner, CloseLog(message.name, message.consumer), now_us)

    def close_server(self, owner: str, reason: str, *, again: bool = False) -> None:
        """A server knows its clients no longer, nor who read there from here."""
        self._logs.close_all(owner)
        for reader in [each for each, where in self._owners.items() if where == owner]:
            self._close(reader, reason, again=again)

    def has_room(self, server: str) -> bool:
        """Whether records for the consumers at a server may be sent there."""
        try:
            self._access.check_room(server)
        except CannotPublishError:
            return False
        return True
