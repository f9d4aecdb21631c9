"""`Publishers` and `PublisherPasts`: a server's publishers above best effort.

`Publishers` has their numbers and routes. A publisher that moves names its earlier servers. Until
each of them has reported the publisher's last number, its publications wait here: they might be
duplicates, or overtake earlier ones.

    publisher ==> connect, with its earlier servers ==> AskPast to each
                                                    <== Past: known. All known: it may publish

Invariant: a publisher without unreported servers has no session.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import AskPast, Past
from contrada.delivery.durable_table import DurableTable
from contrada.delivery.inbox import Inbox
from contrada.delivery.orders import Causality
from contrada.delivery.outbox import Outbox
from contrada.delivery.store import Notes
from contrada.errors import CannotPublishError, LimitError
from contrada.model import Notification

FAILED_MAX: Final = 100
"""Failed numbers of one publisher. Beyond it: the lowest are forgotten; a notification with such a
number fails when repeated, since it may or may not have been published."""

ASK_AGAIN_US: Final = 1_000_000
"""Microseconds after which an unanswered `AskPast` is repeated."""

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


@dataclass(slots=True)
class PublisherSession:
    """One connection of a publisher to this server.

    `number` distinguishes its connections. `incarnations`: servers that have not reported yet, each
    with its incarnation. `asked`: for each of them, the incarnation that was asked, and the place
    of the question in the stream to it.
    """

    number: int
    incarnations: dict[str, int]
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)


class PublisherPasts:
    """The open sessions. `send` sends a question; `recheck` is called when a past is known."""

    def __init__(
        self,
        name: str,
        table: DurableTable,
        outbox: Outbox,
        publishers: Publishers,
        send: Callable[[str, AskPast, int], None],
        recheck: Callable[[], None],
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self.due_us = 0
        self._name = name
        self._table, self._outbox, self._publishers = table, outbox, publishers
        self._send, self._recheck = send, recheck
        self._waiting_max = limits.waiting_max
        self._sessions: dict[str, PublisherSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, publisher: object) -> bool:
        """Whether a publisher's past is still unknown."""
        return publisher in self._sessions

    def await_past(self, publisher: str, past: Mapping[str, int], now_us: int) -> None:
        """Opens a session of a publisher. `past`: its servers, each with its incarnation.

        Raises LimitError.
        """
        if publisher not in self._sessions and len(self) >= self._waiting_max:
            raise LimitError("waiting_max", self._waiting_max, len(self) + 1)
        others = {server: number for server, number in past.items() if server != self._name}
        if others:
            self._sessions[publisher] = PublisherSession(now_us, others)
            self._ask(publisher, now_us)

    def forget(self, server: str, incarnation: int) -> None:
        """Ends the wait for earlier incarnations of a server: their memory is lost."""
        for publisher, session in list(self._sessions.items()):
            if session.incarnations.get(server, incarnation) < incarnation:
                self.learn(publisher, server)

    def learn(self, publisher: str, server: str, past: Past | None = None) -> None:
        """Takes a server's report of a publisher; None: its memory is lost.

        A report for an earlier session is ignored: the publisher was there again since.
        """
        session = self._sessions.get(publisher)
        is_late = past is not None and session is not None and past.visit != session.number
        if session is None or server not in session.incarnations or is_late:
            return
        del session.incarnations[server]
        if not session.incarnations:
            del self._sessions[publisher]
        known = self._publishers.get(publisher)
        if past is not None:
            known.learn(past.sequence, past.failed, past.unknown_to)
        # Its publications there took another route, and may still be in flight.
        known.needs_context = True
        self._publishers.save(publisher, known)
        self._recheck()

    def ask_again(self, publishers: Iterable[str], now_us: int) -> None:
        """Repeats the questions about publishers, at intervals."""
        if now_us < self.due_us:
            return
        self.due_us = now_us + ASK_AGAIN_US
        for publisher in dict.fromkeys(publishers):
            self._ask(publisher, now_us)

    def _ask(self, publisher: str, now_us: int) -> None:
        """Asks the unreported servers, except while a question is in flight."""
        session = self._sessions.get(publisher)
        if session is None:
            return
        for server, incarnation in list(session.incarnations.items()):
            owner = self._table.owners.get(server)
            now, _, taken = self._outbox.stream_state(server)
            if owner is not None and incarnation < owner.incarnation:
                self.learn(publisher, server)
            elif owner is not None and session.asked.get(server, (0, 0)) <= (now, taken):
                self._send(server, AskPast(publisher, session.number), now_us)
                session.asked[server] = self._outbox.stream_state(server)[:2]
