"""`Readers`: clients that read their notifications at once, or when they resume reading.

While a client is paused, its notifications wait in its `Backlog`, as in a `SubscriptionQueue`;
otherwise each is read at once. All reads are recorded, for `timeliness` to judge.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from contrada.delivery.backlog import Backlog, transmission_of
from contrada.lab.simulation.schedule import Schedule
from contrada.model import Envelope

ReaderEventKind: TypeAlias = Literal["given", "reads", "pauses", "resumes", "gone"]
"""The events of a client that reads."""


@dataclass(frozen=True, slots=True)
class ReaderEvent:
    """A client receives or reads a notification, pauses or resumes, or is removed."""

    what: ReaderEventKind
    at_us: int
    client: str
    id: str = ""


class Readers:
    """The clients of a network, as readers."""

    def __init__(self, schedule: Schedule) -> None:
        self.noted: list[ReaderEvent] = []
        self._schedule = schedule
        self._backlogs: dict[str, Backlog[str]] = {}  # of paused clients

    def give(self, client: str, envelope: Envelope) -> None:
        """Hands a notification to a client."""
        self._note("given", client, envelope.id)
        backlog = self._backlogs.get(client)
        if backlog is None:
            self._note("reads", client, envelope.id)
        else:
            backlog.append((envelope.id, 1, transmission_of(envelope)))

    def pause(self, client: str) -> None:
        """Pauses a client. Idempotent."""
        if client not in self._backlogs:
            self._backlogs[client] = Backlog()
            self._note("pauses", client)

    def resume(self, client: str) -> None:
        """Resumes a client, waiting notifications first. Idempotent."""
        backlog = self._backlogs.pop(client, None)
        if backlog is not None:
            self._note("resumes", client)
            backlog.expire(self._schedule.now_us)
            while backlog:
                self._note("reads", client, backlog.popleft()[0])

    def resume_all(self) -> None:
        """Resumes all clients."""
        for client in list(self._backlogs):
            self.resume(client)

    def forget(self, client: str) -> None:
        """Removes a client with its waiting notifications."""
        self._backlogs.pop(client, None)
        self._note("gone", client)

    def _note(self, what: ReaderEventKind, client: str, id_: str = "") -> None:
        self.noted.append(ReaderEvent(what, self._schedule.now_us, client, id_))
