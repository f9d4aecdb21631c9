"""`Readers`: clients that read their notifications at once, or when they resume reading.

While a client is paused, its notifications wait in its `Backlog`, as in a `SubscriptionQueue`;
otherwise each is read at once. All reads are recorded.

`check_reads` has the rules of reading: never late, nothing skipped, and a backlog by priority.
*Late*: a best-effort notification is read after its time to live. *Out of turn*: it is read while
another one waits that has a higher priority, or the same and arrived before. *Unread*: it waited
when its client resumed, was still valid, and was not read. The checks use the records alone, by
slow and plain rules of their own: neither the router's expiry nor `Backlog` is used.

Source: EPFL 2503 §5.2.2 (timely and prioritary obvents).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from contrada.delivery.backlog import Backlog, transmission_of
from contrada.delivery.delivery_class import delivery_class
from contrada.lab.simulation.schedule import Schedule
from contrada.model import Envelope
from contrada.model.algebra.notification import PRIORITY_DEFAULT

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


# --- the rules of reading -------------------------------------------------------------------------


def end_us(envelope: Envelope) -> float:
    """Returns the time from which a published notification is too late to be read."""
    if envelope.ttl_us is None or _is_reliable(envelope):
        return inf
    assert envelope.time_us is not None, "it was published"
    return envelope.time_us + envelope.ttl_us


def _is_reliable(envelope: Envelope) -> bool:
    return delivery_class(envelope.delivery).is_reliable


class _ClientBacklog:
    """The waiting notifications of a client, in order of arrival, and the readable ones."""

    def __init__(self) -> None:
        self.waiting: dict[str, Envelope] = {}
        self.readable: set[str] = set()
        self.is_reading = True

    def unread(self) -> list[str]:
        """Returns the readable notifications that were not read, at a pause."""
        return [each for each in self.waiting if each in self.readable]

    def resume(self, now_us: int) -> None:
        """Resumes reading: valid notifications become readable."""
        self.is_reading = True
        self.readable = {each for each, of in self.waiting.items() if now_us < end_us(of)}

    def read(self, id_: str, now_us: int) -> str | None:
        """Reads one. Returns the violated rule, in a few words, or None."""
        if id_ not in self.waiting:
            return "not given"
        good = {each: of for each, of in self.waiting.items() if now_us < end_us(of)}
        del self.waiting[id_]
        if id_ not in good:
            return "late"
        ranks = {
            each: PRIORITY_DEFAULT if _is_reliable(of) else of.priority for each, of in good.items()
        }
        first = max(ranks, key=ranks.__getitem__)  # The oldest of the highest.
        return None if first == id_ else "out of turn"


def check_reads(
    noted: Iterable[ReaderEvent], envelopes: Mapping[str, Envelope]
) -> Iterator[tuple[str, str]]:
    """Yields the violations of the reading rules: the rule in a word, and the case."""
    clients: defaultdict[str, _ClientBacklog] = defaultdict(_ClientBacklog)
    for reading in noted:
        client = clients[reading.client]
        fault = None
        match reading.what:
            case "given":
                envelope = envelopes[reading.id]
                client.waiting[reading.id] = envelope
                if client.is_reading and reading.at_us < end_us(envelope):
                    client.readable.add(reading.id)
            case "reads":
                fault = client.read(reading.id, reading.at_us)
            case "resumes":
                client.resume(reading.at_us)
            case "pauses" | "gone":
                fault = "unread" if client.unread() else None
                clients[reading.client] = following = _ClientBacklog()
                if reading.what == "pauses":
                    following.is_reading = False
        if fault is not None:
            yield fault, f"{reading}"
    for name, client in clients.items():
        if unread := client.unread():
            yield "unread", f"{unread} by {name} at the end"
