"""`Publishers`: what a server knows of those who publish there more than at best effort."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from contrada.delivery.causality import Causality
from contrada.delivery.inbox import Inbox
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox
from contrada.errors import CannotPublishError
from contrada.model import Notification

PUBLISHERS_MAX: Final = 100_000
"""Publishers whose last number is known. Beyond it: who published longest ago is forgotten, and
duplicates of its last publications would be taken for new."""


FAILED_MAX: Final = 100
"""Numbers of one publisher that failed and are known. Beyond it: the lowest are forgotten; what has
no higher number and comes again fails, since it may have been published or not."""


class Publisher(msgspec.Struct, array_like=True):
    """The highest number accepted, those that failed, and by which ways went what has an order.

    `way` is that of the last: its sequence and sequencer, or nothing where it went from here.
    `ways` has for each sequence the sequencer, its life, and the place of the last in the stream to
    it, until all has its place in the sequence. `carries`: it does not all go one way, so it
    carries the context that keeps its order.
    """

    sequence: int = 0
    failed: tuple[int, ...] = ()
    untold: int = 0
    way: tuple[str, str] = ("", "")
    ways: dict[str, tuple[str, int, int]] = {}
    carries: bool = False

    def fresh(self, notifications: Iterable[Notification]) -> list[Notification]:
        """What is no duplicate; what has no number never is one.

        Raises CannotPublishError for what failed before others that were accepted: it cannot come
        before them any more; or may have, as far as is known.
        """
        fresh, accepted = [], self.sequence
        for each in notifications:
            number = each.envelope.sequence
            if not number or number > accepted:
                fresh.append(each)
                accepted = max(accepted, number)
            elif number in self.failed or number <= self.untold:
                reason = f"number {number} was refused before, and later ones were accepted"
                raise CannotPublishError("", reason=reason, may_be_published=number <= self.untold)
        return fresh

    def accept(self, numbers: Iterable[int]) -> None:
        """These were published."""
        accepted = set(numbers)
        self.sequence = max({self.sequence, *accepted})
        self.failed = tuple([each for each in self.failed if each not in accepted])

    def fail(self, numbers: Iterable[int], untold: int = 0) -> None:
        """These were not published; up to a number it is not known which were."""
        failed = sorted({*self.failed, *numbers} - {0})
        forgotten = failed[: max(0, len(failed) - FAILED_MAX)]
        self.failed = tuple(failed[len(forgotten) :])
        self.untold = max([self.untold, untold, *forgotten])


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
