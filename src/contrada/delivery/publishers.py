"""`Publishers`: the numbers and routes of a server's publishers above best effort."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from contrada.delivery.causality import Causality
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.inbox import Inbox
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox
from contrada.errors import CannotPublishError
from contrada.model import Notification

FAILED_MAX: Final = 100
"""Failed numbers of one publisher. Beyond it: the lowest are forgotten; a notification with such a
number fails when repeated, since it may or may not have been published."""


SequencerEpoch: TypeAlias = tuple[str, str, int]
"""The route of ordered publications: a sequence, its sequencer, and the epoch of that sequencer."""

LOCAL: Final[SequencerEpoch] = ("", "", 0)
"""The route of notifications that their access point publishes itself."""


class Publisher(msgspec.Struct, array_like=True):
    """The numbers of one publisher, and the routes of its ordered publications.

    `sequence`: the highest accepted number. `failed`: failed numbers; up to `unknown_to` they are
    unknown. `last_route` is that of the last ordered publication. `open_routes` holds each route
    with the sequencer's incarnation and the last publication's place in the stream to it, until all
    publications there are ordered. Later routes carry the earlier publications. `needs_context`:
    not all used one route, so publications carry the context that keeps their order.
    """

    sequence: int = 0
    failed: tuple[int, ...] = ()
    unknown_to: int = 0
    last_route: SequencerEpoch | None = None
    open_routes: tuple[tuple[str, str, int, int, int], ...] = ()
    needs_context: bool = False

    def fresh(self, notifications: Iterable[Notification]) -> list[Notification]:
        """Returns the notifications without duplicates; one without a number never is a duplicate.

        Raises CannotPublishError for a number that failed, or may have failed, before higher ones
        were accepted: its order is lost.
        """
        fresh, numbers = [], set[int]()
        for each in notifications:
            number = each.envelope.sequence
            if not number or (number > self.sequence and number not in numbers):
                fresh.append(each)
                numbers.add(number)
            elif number <= self.sequence and (number in self.failed or number <= self.unknown_to):
                reason = f"number {number} was refused before, and later ones were accepted"
                raise CannotPublishError(
                    "", reason=reason, may_be_published=number <= self.unknown_to
                )
        return fresh

    def accept(self, numbers: Iterable[int]) -> None:
        """Records published numbers."""
        accepted = set(numbers)
        self.sequence = max({self.sequence, *accepted})
        self.failed = tuple([each for each in self.failed if each not in accepted])

    def learn(self, sequence: int, failed: Iterable[int], untold: int) -> None:
        """Merges the state of another server. A number failed only if it failed at both."""
        ours, theirs = set(self.failed), set(failed)
        nowhere = ours & theirs
        nowhere |= {each for each in ours if each > sequence}
        nowhere |= {each for each in theirs if each > self.sequence}
        self.sequence, self.failed = max(self.sequence, sequence), ()
        self.fail(nowhere, untold)

    def fail(self, numbers: Iterable[int], untold: int = 0) -> None:
        """Records failed numbers; up to `unknown_to` they are unknown."""
        failed = sorted({*self.failed, *numbers} - {0})
        forgotten = failed[: max(0, len(failed) - FAILED_MAX)]
        self.failed = tuple(failed[len(forgotten) :])
        self.unknown_to = max([self.unknown_to, untold, *forgotten])


class Publishers:
    """Publishers by name."""

    def __init__(
        self,
        notes: Notes,
        outbox: Outbox,
        inbox: Inbox,
        causality: Causality,
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self._publishers_max = limits.publishers_max
        self._notes = notes
        self._outbox, self._inbox, self._causality = outbox, inbox, causality
        self._publishers = OrderedDict(notes.of("publisher", Publisher))

    def get(self, publisher: str) -> Publisher:
        """Returns a publisher's state; `save` it after a change."""
        return self._publishers.get(publisher) or Publisher()

    def unsettled_sequencer(self, known: Publisher, route: SequencerEpoch) -> str | None:
        """Returns a sequencer with publications that may not be ordered yet.

        The given route does not count: a new publication on it stays behind the earlier ones.
        """
        self._drop_settled_routes(known)
        return next((each[1] for each in known.open_routes if each[:3] != route), None)

    def next_route(self, known: Publisher, back: SequencerEpoch) -> SequencerEpoch | None:
        """Returns the route of a returned notification, behind earlier returned ones.

        None: it may take the present route. While notifications are in flight, no new one takes
        another route. So the first one moves on first, and the others follow it, from one former
        sequencer to the next.
        """
        self._drop_settled_routes(known)
        routes = [each[:3] for each in known.open_routes]
        after = routes[routes.index(back) + 1 :] if back in routes else []
        return after[0] if after else None

    def _drop_settled_routes(self, known: Publisher) -> None:
        """Drops each route with publications that are all ordered.

        A publication is ordered once the sequencer acknowledged it and did not return it. Returns
        are sent before the acknowledgement, and the sequencer's row counts them.
        """
        kept = []
        for each in known.open_routes:
            _, server, _, then, number = each
            incarnation, _, taken = self._outbox.stream_state(server)
            is_open = taken < number or self._inbox.waits_for(self._causality.row_of(server))
            if incarnation == then and is_open:
                kept.append(each)
        known.open_routes = tuple(kept)

    def record_route(self, known: Publisher, route: SequencerEpoch, *, with_context: bool) -> None:
        """Records the route of an ordered publication."""
        known.needs_context, known.last_route = with_context, route
        if route == LOCAL:
            return
        incarnation, last, _ = self._outbox.stream_state(route[1])
        noted = (*route, incarnation, last)
        routes = [noted if each[:3] == route else each for each in known.open_routes]
        known.open_routes = tuple(routes if noted in routes else [*routes, noted])

    def save(self, publisher: str, known: Publisher) -> None:
        """Saves a publisher's state. The oldest state may be dropped."""
        self._publishers.pop(publisher, None)
        self._publishers[publisher] = known
        self._notes.put("publisher", publisher, known)
        if len(self._publishers) > self._publishers_max:
            oldest = next(iter(self._publishers))
            del self._publishers[oldest]
            self._notes.put("publisher", oldest, None)
