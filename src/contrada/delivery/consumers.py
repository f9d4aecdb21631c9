"""`Consumers`: the clients of a server that read standing subscriptions, wherever their logs are.

What a consumer says goes to the home of the subscription, what it gets comes from there; both in
the streams between the two servers, so a consumer may be a client of any server. Where the home is
this server they are at one place.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from typing import NamedTuple

from contrada.delivery.access import AccessPoint
from contrada.delivery.logs import Logs, Reader
from contrada.delivery.messages import Closed, CloseLog, Consuming, OpenLog, Records
from contrada.delivery.standing import StandingTable


class Give(NamedTuple):
    """Hand records to a client of this server, or tell it that it gets no more."""

    client: str
    said: Records | Closed


class Consumers:
    """Who reads at a server `name`, here or elsewhere; `gives` is what they are to get."""

    def __init__(self, name: str, table: StandingTable, logs: Logs, access: AccessPoint) -> None:
        self.name = name
        self.gives: list[Give] = []
        self._table, self._logs, self._access = table, logs, access
        self._readers: dict[str, dict[Reader, None]] = {}  # clients here, by the home they read at

    def consume(self, client: str, said: Consuming, now_us: int) -> None:
        """A client here says something as a consumer; what cannot be done closes it."""
        reader = said.name, client
        found = self._table.home_of(said.name)
        home = next((each for each, readers in self._readers.items() if reader in readers), None)
        home = found[0] if home is None and found is not None else home
        if home is None:
            reason = "there is no such standing subscription"
            self.gives.append(Give(client, Closed(said.name, client, reason)))
            return
        if isinstance(said, OpenLog):
            self._readers.setdefault(home, {})[reader] = None
        elif isinstance(said, CloseLog):
            self._readers.get(home, {}).pop(reader, None)
        if home == self.name:
            self.serve(self.name, said, now_us)
        else:
            self._access.send(home, said, now_us)

    def serve(self, server: str, said: Consuming, now_us: int) -> None:
        """A client of a server says something of a subscription that is at home here."""
        for reader, closed in self._logs.consume(server, said):
            self.give(reader, closed, now_us)

    def give(self, reader: Reader, said: Records | Closed, now_us: int) -> None:
        """Hands something from a log here to a consumer, wherever it is."""
        server, client = reader
        if server != self.name:
            self._access.send(server, said, now_us, self._access.known_context())
            return
        if isinstance(said, Closed):
            self._readers.get(self.name, {}).pop((said.name, client), None)
        self.gives.append(Give(client, said))

    def given(self, home: str, said: Records | Closed, now_us: int) -> None:
        """Something has come for a client here that reads elsewhere.

        Where there is no such reader any longer, as after one of the servers has restarted, the
        home is told, so that the records come again.
        """
        readers = self._readers.get(home, {})
        if (said.name, said.consumer) in readers:
            if isinstance(said, Closed):
                del readers[said.name, said.consumer]
            self.gives.append(Give(said.consumer, said))
        elif isinstance(said, Records):
            self._access.send(home, CloseLog(said.name, said.consumer), now_us)

    def restarted(self, home: str) -> None:
        """A server knows its clients no longer, nor who read there from here."""
        self._logs.close_all(home)
        for name, client in self._readers.pop(home, ()):
            self.gives.append(Give(client, Closed(name, client, f"server {home!r} has restarted")))
