"""`check_reads`: the rules of reading: never late, nothing skipped, and a backlog by priority.

*Late*: a best-effort notification is read after its time to live. *Out of turn*: it is read while
another one waits that has a higher priority, or the same and arrived before. *Unread*: it waited
when its client resumed, was still valid, and was not read. The checks use the records alone, by
slow and plain rules of their own: neither the router's expiry nor `Backlog` is used.

Source: EPFL 2503 §5.2.2 (timely and prioritary obvents).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from contrada.delivery.delivery_class import delivery_class
from contrada.lab.simulation.simulated_readers import ReaderEvent
from contrada.model import Envelope
from contrada.model.algebra.notification import PRIORITY_DEFAULT


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
