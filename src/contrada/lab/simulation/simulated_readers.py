"""`Readers`: clients that read their notifications at once, or when they resume reading.

While a client does not read, its notifications wait in its `Backlog`, as in an outlet; while it
reads, each is read at once. All reads are noted, for `timeliness` to judge.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from contrada.delivery.backlog import Backlog, transmission_of
from contrada.lab.simulation.schedule import Schedule
from contrada.model import Envelope

Did: TypeAlias = Literal["given", "reads", "pauses", "resumes", "gone"]
"""What happens to a client that reads."""


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """A client is given a notification or reads it, stops or begins to read, or is gone."""

    what: Did
    at_us: int
    client: str
    id: str = ""


class Readers:
    """The clients of a network, as far as they read."""

    def __init__(self, schedule: Schedule) -> None:
        self.noted: list[ReaderEvent] = []
        self._schedule = schedule
        self._backlogs: dict[str, Backlog[str]] = {}  # of those that do not read

    def give(self, client: str, envelope: Envelope) -> None:
        """A client is given a notification."""
        self._note("given", client, envelope.id)
        backlog = self._backlogs.get(client)
        if backlog is None:
            self._note("reads", client, envelope.id)
        else:
            backlog.append((envelope.id, 1, transmission_of(envelope)))

    def pause(self, client: str) -> None:
        """A client reads no more. Twice is once."""
        if client not in self._backlogs:
            self._backlogs[client] = Backlog()
            self._note("pauses", client)

    def resume(self, client: str) -> None:
        """A client reads again, what waits first. Twice is once."""
        backlog = self._backlogs.pop(client, None)
        if backlog is not None:
            self._note("resumes", client)
            backlog.expire(self._schedule.now_us)
            while backlog:
                self._note("reads", client, backlog.popleft()[0])

    def resume_all(self) -> None:
        """All read again."""
        for client in list(self._backlogs):
            self.resume(client)

    def forget(self, client: str) -> None:
        """A client is gone, and what waited for it."""
        self._backlogs.pop(client, None)
        self._note("gone", client)

    def _note(self, what: Did, client: str, id_: str = "") -> None:
        self.noted.append(ReaderEvent(what, self._schedule.now_us, client, id_))
