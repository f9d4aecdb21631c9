"""`Publishers`: what a server knows of those who publish there more than at best effort."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from contrada.delivery.causality import Causality
from contrada.delivery.inbox import Inbox
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox
from contrada.errors import CannotPublishError
from contrada.model import Notification

PUBLISHERS_MAX: Final = 100_000
"""Publishers whose last number is known. Beyond it: who published longest ago is forgotten;
duplicates of its last publications would be taken for new, and what has an order and goes by
another way than these may come before them."""


FAILED_MAX: Final = 100
"""Numbers of one publisher that failed and are known. Beyond it: the lowest are forgotten; what has
no higher number and comes again fails, since it may have been published or not."""


SequencerEpoch: TypeAlias = tuple[str, str, int]
"""A sequence, its sequencer, and the epoch in which it is that."""

HERE: Final[SequencerEpoch] = ("", "", 0)
"""The way of what is published by its access point itself."""


class Publisher(msgspec.Struct, array_like=True):
    """The highest number accepted, those that failed, and by which ways went what has an order.

    `way` is that of the last. `ways` has for each of them the sequencer's life and the place of the
    last in the stream to it, until all that went there has its place in the sequence; what went by
    a later one of them came before. `carries`: it does not all go one way, so it carries the
    context that keeps its order.
    """

    sequence: int = 0
    failed: tuple[int, ...] = ()
    untold: int = 0
    way: SequencerEpoch | None = None
    ways: tuple[tuple[str, str, int, int, int], ...] = ()
    carries: bool = False

    def fresh(self, notifications: Iterable[Notification]) -> list[Notification]:
        """What is no duplicate; what has no number never is one.

        Raises CannotPublishError for what failed before others that were accepted: it cannot come
        before them any more; or may have, as far as is known.
        """
        fresh, numbers = [], set[int]()
        for each in notifications:
            number = each.envelope.sequence
            if not number or (number > self.sequence and number not in numbers):
                fresh.append(each)
                numbers.add(number)
            elif number <= self.sequence and (number in self.failed or number <= self.untold):
                reason = f"number {number} was refused before, and later ones were accepted"
                raise CannotPublishError("", reason=reason, may_be_published=number <= self.untold)
        return fresh

    def accept(self, numbers: Iterable[int]) -> None:
        """These were published."""
        accepted = set(numbers)
        self.sequence = max({self.sequence, *accepted})
        self.failed = tuple([each for each in self.failed if each not in accepted])

    def learn(self, sequence: int, failed: Iterable[int], untold: int) -> None:
        """What another server knows: what failed at one of them may be published by the other."""
        ours, theirs = set(self.failed), set(failed)
        nowhere = ours & theirs
        nowhere |= {each for each in ours if each > sequence}
        nowhere |= {each for each in theirs if each > self.sequence}
        self.sequence, self.failed = max(self.sequence, sequence), ()
        self.fail(nowhere, untold)

    def fail(self, numbers: Iterable[int], untold: int = 0) -> None:
        """These were not published; up to a number it is not known which were."""
        failed = sorted({*self.failed, *numbers} - {0})
        forgotten = failed[: max(0, len(failed) - FAILED_MAX)]
        self.failed = tuple(failed[len(forgotten) :])
        self.untold = max([self.untold, untold, *forgotten])


@dataclass(slots=True)
class Visit:
    """A publisher has come; `number` tells its visits from one another.

    `lives`: servers whose record of this publisher is still unknown, with each server's life.
    `asked`: for each of these servers, the life in which it was asked, and the question's place in
    the stream to it.
    """

    number: int
    lives: dict[str, int]
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)


class Publishers:
    """Publishers by name."""

    def __init__(self, notes: Notes, outbox: Outbox, inbox: Inbox, causality: Causality) -> None:
        self._notes = notes
        self._outbox, self._inbox, self._causality = outbox, inbox, causality
        self._publishers = OrderedDict(notes.of("publisher", Publisher))

    def known(self, publisher: str) -> Publisher:
        """What is known of a publisher; to be changed, and then remembered."""
        return self._publishers.get(publisher) or Publisher()

    def on_their_way(self, known: Publisher, way: SequencerEpoch) -> str | None:
        """A sequencer at which what has an order may have no place in its sequence yet.

        But by this way: what goes there stays behind it.
        """
        self._close_ways(known)
        return next((each[1] for each in known.ways if each[:3] != way), None)

    def following(self, known: Publisher, back: SequencerEpoch) -> SequencerEpoch | None:
        """Where what comes back by a way must go, to stay behind what came back before it.

        None where it may go to the sequencer that there is now. As long as something is on its way
        nothing new goes by another one. So what was first goes on first, and the rest goes after
        it, from one former sequencer to the next.
        """
        self._close_ways(known)
        ways = [each[:3] for each in known.ways]
        after = ways[ways.index(back) + 1 :] if back in ways else []
        return after[0] if after else None

    def _close_ways(self, known: Publisher) -> None:
        """Forgets the ways by which all that went there has its place.

        An item has its place once the sequencer acknowledged it and did not return it. Returns are
        sent before the acknowledgement, and the sequencer's row counts them.
        """
        kept = []
        for each in known.ways:
            _, server, _, then, number = each
            life, _, taken = self._outbox.sent(server)
            is_open = taken < number or self._inbox.waits_for(self._causality.row_of(server))
            if life == then and is_open:
                kept.append(each)
        known.ways = tuple(kept)

    def note_way(self, known: Publisher, way: SequencerEpoch, *, carries: bool) -> None:
        """Something that has an order went by this way."""
        known.carries, known.way = carries, way
        if way == HERE:
            return
        life, last, _ = self._outbox.sent(way[1])
        noted = (*way, life, last)
        ways = [noted if each[:3] == way else each for each in known.ways]
        known.ways = tuple(ways if noted in ways else [*ways, noted])

    def remember(self, publisher: str, known: Publisher) -> None:
        """Something of a publisher has changed. Who was remembered longest ago may be forgotten."""
        self._publishers.pop(publisher, None)
        self._publishers[publisher] = known
        self._notes.put("publisher", publisher, known)
        if len(self._publishers) > PUBLISHERS_MAX:
            oldest = next(iter(self._publishers))
            del self._publishers[oldest]
            self._notes.put("publisher", oldest, None)
