"""`Publishers`: what a server knows of those who publish there more than at best effort."""

from collections import OrderedDict
from typing import Final

import msgspec

from contrada.delivery.causality import Causality
from contrada.delivery.inbox import Inbox
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox

PUBLISHERS_MAX: Final = 100_000
"""Publishers whose last number is known. Beyond it: who published longest ago is forgotten, and
duplicates of its last publications would be taken for new."""


class Publisher(msgspec.Struct, array_like=True):
    """The highest number accepted, and by which ways went what has an order.

    `way` is that of the last: its sequence and sequencer, or nothing where it went from here.
    `ways` has for each sequence the sequencer, its life, and the place of the last in the stream to
    it, until all has its place in the sequence. `carries`: it does not all go one way, so it
    carries the context that keeps its order.
    """

    sequence: int = 0
    way: tuple[str, str] = ("", "")
    ways: dict[str, tuple[str, int, int]] = {}
    carries: bool = False


class Publishers:
    """Publishers by name."""

    def __init__(self, notes: Notes, outbox: Outbox, inbox: Inbox, causality: Causality) -> None:
        self._notes = notes
        self._outbox, self._inbox, self._causality = outbox, inbox, causality
        self._publishers = OrderedDict(notes.of("publisher", Publisher))

    def known(self, publisher: str) -> Publisher:
        """What is known of a publisher; to be changed, and then remembered."""
        return self._publishers.get(publisher) or Publisher()

    def on_their_way(self, known: Publisher, *but: tuple[str, str]) -> str | None:
        """A sequencer at which what has an order may have no place in its sequence yet.

        But by these ways. It has one when the sequencer has taken it, unless that returned it. What
        it returns it has sent before it says what it has taken, and its row says so.
        """
        for sequence, (server, then, number) in list(known.ways.items()):
            life, _, taken = self._outbox.sent(server)
            is_open = taken < number or self._inbox.waits_for(self._causality.row_of(server))
            if life != then or not is_open:
                del known.ways[sequence]
            elif (sequence, server) not in but:
                return server
        return None

    def note_way(self, known: Publisher, way: tuple[str, str], *, carries: bool) -> None:
        """The last that has an order went by this way: its sequence and sequencer, or nothing."""
        known.carries, known.way = carries, way
        sequence, server = way
        if server:
            life, last, _ = self._outbox.sent(server)
            known.ways = {**known.ways, sequence: (server, life, last)}

    def remember(self, publisher: str, known: Publisher) -> None:
        """Something of a publisher has changed. Who was remembered longest ago may be forgotten."""
        self._publishers.pop(publisher, None)
        self._publishers[publisher] = known
        self._notes.put("publisher", publisher, known)
        if len(self._publishers) > PUBLISHERS_MAX:
            oldest = next(iter(self._publishers))
            del self._publishers[oldest]
            self._notes.put("publisher", oldest, None)
