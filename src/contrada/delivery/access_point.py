"""`AccessPoint`: publishes the notifications of the publishers that are connected to a server.

A publication of a class above best effort is matched here, once, against the durable subscriptions
of all servers. It is addressed to the owners of the matching ones. A publication in a sequence is
sent to its sequencer instead, which then acts as its access point.

A publication waits, in order and for a bounded time, while its sequencer is unreachable or the past
of its publisher is unknown (`PublisherPasts`).

Invariants: a publication is accepted or fails as a whole; a notification with a number that is not
above its publisher's highest accepted one is a duplicate, and is not published again.

Source: EPFL 2503 §5.2.2 (QoS of obvents).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from sys import maxsize
from typing import NamedTuple, TypeAlias

from contrada.delivery.delivery_class import DeliveryClass, delivery_class
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    AskPast,
    CausalRow,
    Context,
    Notice,
    Past,
    Payload,
    Returned,
    Sequenced,
    Shipment,
    ToSequence,
)
from contrada.delivery.durable_table import Addressees, DurableTable
from contrada.delivery.inbox import Inbox
from contrada.delivery.orders import Causality, Sequences
from contrada.delivery.outbox import Outbox, Posting
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.publishers import (
    LOCAL,
    Publisher,
    PublisherPasts,
    Publishers,
    SequencerEpoch,
)
from contrada.delivery.store import KEPT_BYTES_MAX, Notes, Store
from contrada.delivery.transit import Transit
from contrada.errors import (
    CannotPublishError,
    ContradaError,
    DeliveryError,
    InvalidValueError,
    LimitError,
)
from contrada.model import Notification


class Confirmed(NamedTuple):
    """A publication is held here, on stable storage if it is certified.

    `fresh` are its notifications without the duplicates.
    """

    token: int
    fresh: Sequence[Notification] = ()


class Failed(NamedTuple):
    """A publication was not published, for a reason."""

    token: int
    error: ContradaError


class Publication(NamedTuple):
    """Notifications of one class, published together. `token` identifies the publication."""

    token: int
    publisher: str
    notifications: Sequence[Notification]
    guarantee: DeliveryClass
    until_us: int


PublishRequest: TypeAlias = tuple[int, str, Sequence[Notification]]
"""A token, the publisher, and its notifications of one class."""


class AccessPoint:
    """The publications of one server. It collects `outcomes` and `shipments`."""

    def __init__(
        self,
        name: str,
        store: Store | None,
        transit: Transit,
        table: DurableTable,
        outbox: Outbox,
        inbox: Inbox,
        logs: OwnedLogs,
        sequences: Sequences,
        causality: Causality,
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self.name, self._limits = name, limits
        self.outcomes: list[Confirmed | Failed] = []
        self.shipments: list[Shipment] = []
        self.duplicates = 0
        self.failed = 0
        self._store, self._transit = store, transit
        self._table, self._outbox, self._logs = table, outbox, logs
        self._sequences, self._causality = sequences, causality
        self._waiting: dict[int, Publication] = {}
        self._is_stale = False
        self._held_orders: set[tuple[str, str]] = set()  # of waiting publications
        self._rows = 0
        self._is_causal = outbox.held > 0  # held since before a restart
        self._publishers = Publishers(Notes(store), outbox, inbox, causality, limits)
        self.pasts = PublisherPasts(
            name, table, outbox, self._publishers, self.send, self.recheck_waiting, limits
        )

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> None:
        """Publishes notifications of one class above best effort."""
        try:
            guarantee = _common_class(notifications)
        except ContradaError as error:
            of = Publication(token, publisher, notifications, DeliveryClass(), now_us)
            self._give_up(of, error)
            return
        of = Publication(token, publisher, notifications, guarantee, now_us + self._limits.wait_us)
        if self._waiting_reason(of) is None and not self._would_overtake(of):
            self._publish(of, now_us)
        elif len(self._waiting) >= self._limits.waiting_max:
            reason = f"waiting_max = {self._limits.waiting_max} publications wait already"
            is_unknown = publisher in self.pasts
            self._give_up(of, CannotPublishError("", reason=reason, may_be_published=is_unknown))
        else:
            self._wait(of)

    def publish_all(self, publications: Sequence[PublishRequest], now_us: int) -> None:
        """Publishes as `publish`, one after the other.

        Neighbours in the list of one publisher and of one unordered class are published in one
        step, which costs little more than one of them. Where that fails, so has none of them been
        published, and each is tried alone: one fault fails one publication.
        """
        for _, same in groupby(publications, key=_publisher_and_class):
            run = list(same)
            if len(run) == 1 or not self._publish_run(run, now_us):
                for token, publisher, notifications in run:
                    self.publish(token, publisher, notifications, now_us)

    def _publish_run(self, run: Sequence[PublishRequest], now_us: int) -> bool:
        """Publishes all in one step, or none. Returns whether it did."""
        publisher, whole = run[0][1], [each for _, _, its in run for each in its]
        known = self._publishers.get(publisher)
        try:
            guarantee = _common_class(whole)
            of = Publication(0, publisher, whole, guarantee, now_us)
            if guarantee.is_ordered or self._waiting_reason(of) or self._would_overtake(of):
                return False
            fresh = known.fresh(whole) if publisher else whole
            if len(fresh) < len(whole) or (guarantee.is_certified and self._store is None):
                return False
            self._distribute(of, whole, known, now_us)
        except ContradaError:
            return False
        if publisher:
            known.accept([each.envelope.sequence for each in whole])
            self._publishers.save(publisher, known)
        self.outcomes += [Confirmed(token, notifications) for token, _, notifications in run]
        return True

    def forget(self, server: str) -> None:
        """Ends all waits for a server that will never be back."""
        self.pasts.forget(server, maxsize)
        self.recheck_waiting()

    def past_of(self, message: AskPast) -> Past | None:
        """Returns the past of a publisher that has left; None until its last publication arrived.

        Its waiting publications fail. If their past is unknown too, they may have been published
        elsewhere.
        """
        publisher = message.publisher
        is_unknown = publisher in self.pasts
        for token in [each.token for each in self._waiting.values() if each.publisher == publisher]:
            reason = f"the publisher {publisher!r} has moved to another server"
            del self._waiting[token]
            self._fail(token, CannotPublishError("", reason=reason, may_be_published=is_unknown))
        known = self._publishers.get(publisher)
        if self._publishers.unsettled_sequencer(known, LOCAL) is not None:
            return None
        return Past(publisher, message.visit, known.sequence, known.failed, known.unknown_to)

    def sequence_of(self, publisher: str) -> int:
        """Returns a publisher's highest accepted or waiting number. Cost: all that wait."""
        mine = (of.notifications for of in self._waiting.values() if of.publisher == publisher)
        waiting = (each.envelope.sequence for notifications in mine for each in notifications)
        return max([self._publishers.get(publisher).sequence, *waiting])

    def _waiting_reason(self, of: Publication) -> str | None:
        """Returns why a publication must wait, or None."""
        if of.publisher in self.pasts:
            return f"the earlier publications of {of.publisher!r} at other servers are unknown here"
        known = self._publishers.get(of.publisher)
        if of.publisher and all(
            0 < each.envelope.sequence <= known.sequence for each in of.notifications
        ):
            return None  # All are duplicates.
        sequence = of.guarantee.sequence
        via = self._sequences.sequencer_of(sequence)[1] if sequence else self.name
        owner = self._table.owners.get(via)
        can_reach = via == self.name or via in self._transit.routes
        if sequence and not (can_reach and owner is not None and owner.sequences):
            return f"server {via!r}, the sequencer of {sequence!r}, cannot be reached"
        if not of.guarantee.is_fifo:
            return None
        before = self._publishers.unsettled_sequencer(known, self._route_of(of.guarantee))
        if before is None:
            return None
        return f"server {before!r} has not acknowledged the publication before"

    def pass_sequence(self, sequence: str, server: str) -> None:
        """Hands a sequence over to another server. Raises as `DeliveryServer`."""
        epoch, where = self._sequences.sequencer_of(sequence)
        owner = self._table.owners.get(server)
        if where != self.name or not self._table.own.sequences:
            raise DeliveryError(f"server {where!r} gives the order of {sequence!r}, not this one")
        needs_store = self._store is not None
        if owner is None or not owner.sequences or (needs_store and not owner.has_store):
            raise DeliveryError(f"server {server!r} cannot give the order of {sequence!r}")
        if server != self.name:
            self._sequences.check_room(sequence)
            self.learn_sequencer(Sequenced(sequence, epoch + 1, server, self.context()))

    def learn_sequencer(self, message: Sequenced) -> None:
        """Learns the new sequencer of a sequence, and floods the news."""
        self._causality.merge(message.context)
        if self._sequences.learn(message):
            self._sequences.move(message.sequence, message.epoch, message.server)
            self._transit.flood(message)
            self.recheck_waiting()

    # --- time ---------------------------------------------------------------------------------

    def recheck_waiting(self) -> None:
        """Rechecks the waiting publications at the next `publish_waiting`."""
        self._is_stale = bool(self._waiting)

    def publish_waiting(self, now_us: int) -> None:
        """Publishes waiting publications that are ready, and fails those past their deadline."""
        if not self._is_stale and (self.due_us is None or now_us < self.due_us):
            return
        self.pasts.ask_again([each.publisher for each in self._waiting.values()], now_us)
        self._is_stale = False
        waiting, self._waiting = self._waiting, {}
        self._held_orders.clear()
        for of in waiting.values():
            reason = self._waiting_reason(of)
            if reason is None and self._would_overtake(of):
                reason = "an earlier publication waits"
            if reason is None:
                self._publish(of, now_us)
            elif of.until_us <= now_us:
                is_unknown = of.publisher in self.pasts
                error = CannotPublishError("", reason=reason, may_be_published=is_unknown)
                self._give_up(of, error)
            else:
                self._wait(of)

    def _wait(self, of: Publication) -> None:
        self._waiting[of.token] = of
        self._held_orders.update(_order_keys(of))

    def _would_overtake(self, of: Publication) -> bool:
        """Whether a waiting publication must precede this one."""
        return bool(self._held_orders) and not self._held_orders.isdisjoint(_order_keys(of))

    @property
    def due_us(self) -> int | None:
        """The next deadline of a waiting publication, or of a question about a past."""
        if not self._waiting:
            return None
        until_us = next(iter(self._waiting.values())).until_us
        return min(until_us, self.pasts.due_us) if self.pasts else until_us

    @property
    def waiting(self) -> int:
        """The number of waiting publications."""
        return len(self._waiting)

    # --- publishing ---------------------------------------------------------------------------

    def _publish(self, of: Publication, now_us: int) -> None:
        known, guarantee = self._publishers.get(of.publisher), of.guarantee
        try:
            fresh = known.fresh(of.notifications) if of.publisher else list(of.notifications)
            self.duplicates += len(of.notifications) - len(fresh)
            if fresh and guarantee.is_certified and self._store is None:
                raise CannotPublishError("", reason="this server has no store, which it would need")
            if fresh:
                self._distribute(of, fresh, known, now_us)
        except ContradaError as error:
            self._give_up(of, error)
            return
        if fresh and of.publisher:
            known.accept([each.envelope.sequence for each in fresh])
            self._publishers.save(of.publisher, known)
        self.outcomes.append(Confirmed(of.token, fresh))

    def _distribute(
        self, of: Publication, fresh: list[Notification], known: Publisher, now_us: int
    ) -> None:
        """Publishes here or at a sequencer, and records the route of ordered publications."""
        found = self._table.with_room(fresh)
        here = [owners.get(self.name, ()) for owners in found]
        self._logs.check_room(zip(here, fresh, strict=True))
        guarantee = of.guarantee
        route = self._route_of(guarantee)
        # On another route than the last one it could overtake.
        with_context = known.needs_context or known.last_route not in (None, route)
        if guarantee.sequence:
            self.publish_in_sequence(
                fresh, route, now_us, with_context=with_context and guarantee.is_fifo, found=found
            )
        else:
            needs = guarantee.is_causal or (with_context and guarantee.is_fifo)
            self._address(fresh, found, guarantee, now_us, with_context=needs)
        if guarantee.is_fifo:
            self._publishers.record_route(known, route, with_context=with_context)

    def _route_of(self, guarantee: DeliveryClass) -> SequencerEpoch:
        if not guarantee.sequence:
            return LOCAL
        epoch, server = self._sequences.sequencer_of(guarantee.sequence)
        return LOCAL if server == self.name else (guarantee.sequence, server, epoch)

    def order_notification(
        self, source: str, message: ToSequence, now_us: int, *, with_context: bool
    ) -> None:
        """Orders a notification of a sequence; returns it if another server is the sequencer."""
        notification = message.notification
        guarantee = delivery_class(notification.envelope.delivery)
        if message.epoch > self._sequences.sequencer_of(guarantee.sequence)[0]:
            # It overtook the news of its epoch; its context orders it after earlier ones.
            self.learn_sequencer(Sequenced(guarantee.sequence, message.epoch, self.name))
        epoch, server = self._sequences.sequencer_of(guarantee.sequence)
        # It was sent to an earlier epoch: other notifications of its publisher may be elsewhere.
        is_late = guarantee.is_fifo and message.epoch < epoch
        # It is the sequencer even without room to record that; then it cannot hand it over.
        if message.epoch > epoch or (server == self.name and not is_late):
            self.publish_in_sequence([notification], LOCAL, now_us, with_context=with_context)
        else:
            back = Returned(notification, message.epoch, epoch, server)
            self.send(source, back, now_us, self.context(), spools=guarantee.is_certified)

    def resend_returned(self, source: str, message: Returned, now_us: int) -> None:
        """Sends a returned notification to the present sequencer."""
        notification = message.notification
        guarantee = delivery_class(notification.envelope.delivery)
        self.learn_sequencer(Sequenced(guarantee.sequence, message.epoch, message.server))
        route, publisher = self._route_of(guarantee), notification.envelope.publisher
        known = self._publishers.get(publisher)
        if guarantee.is_fifo:
            back = guarantee.sequence, source, message.asked
            route = self._publishers.next_route(known, back) or route
        self.publish_in_sequence([notification], route, now_us, with_context=guarantee.is_fifo)
        if guarantee.is_fifo:
            self._publishers.record_route(known, route, with_context=True)
            self._publishers.save(publisher, known)
        self.recheck_waiting()

    def publish_in_sequence(
        self,
        notifications: Sequence[Notification],
        route: SequencerEpoch,
        now_us: int,
        *,
        with_context: bool,
        found: list[Addressees] | None = None,
    ) -> None:
        """Publishes notifications of a sequence, here or at its sequencer. Raises its failures."""
        guarantee = delivery_class(notifications[0].envelope.delivery)
        # After a hand-over, notifications of the former sequencer may still be in flight.
        was_moved = self._sequences.sequencer_of(guarantee.sequence)[0] > 0
        with_context = with_context or guarantee.is_causal or was_moved
        if route == LOCAL:
            if not self._table.own.sequences:
                raise DeliveryError("a sequencer that lost its memory assigns no order")
            found = self._table.addressees(notifications) if found is None else found
            self._address(notifications, found, guarantee, now_us, with_context=with_context)
            return
        _, server, epoch = route
        owner = self._table.owners.get(server)
        if owner is None or (guarantee.is_certified and not owner.has_store):
            reason = f"server {server!r} is not known here, or has no store"
            raise CannotPublishError("", reason=reason)
        self._outbox.check_room((server,))
        context = self.context({server: len(notifications)}) if with_context else ()
        bodies = [Posting(ToSequence(each, epoch), {server: ()}, context) for each in notifications]
        self._post(bodies, now_us, spools=guarantee.is_certified)

    def _address(
        self,
        notifications: Sequence[Notification],
        found: list[Addressees],
        guarantee: DeliveryClass,
        now_us: int,
        *,
        with_context: bool,
    ) -> None:
        """Logs notifications here, or sends them to their owners. Raises CannotPublishError."""
        owners = dict.fromkeys(chain.from_iterable(found))
        # Shipments to this server alone would be spooled, taken and acknowledged in this step.
        if owners.keys() == {self.name} and not with_context and not self._outbox.holds(self.name):
            here = [each.get(self.name, ()) for each in found]
            if self._logs.append(zip(here, notifications, strict=True), now_us):
                return  # Without room they wait as shipments.
        self._outbox.check_room(owners)
        counts = Counter(chain.from_iterable(found))
        context = self.context(counts) if with_context else ()
        postings = [
            Posting(Notice(notification), each, context)
            for notification, each in zip(notifications, found, strict=True)
            if each
        ]
        if postings:
            self._post(postings, now_us, spools=guarantee.is_certified)

    def _post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> None:
        self.shipments += self._outbox.post(postings, now_us, spools=spools)

    def send(
        self, owner: str, body: Payload, now_us: int, context: Context = (), *, spools: bool = False
    ) -> None:
        """Sends a body to a known server. `spools`: it survives a crash."""
        if owner not in self._table.owners:
            return
        spools = spools and self._store is not None
        self._post([Posting(body, {owner: ()}, context)], now_us, spools=spools)

    def check_room(self, owner: str) -> None:
        """Raises CannotPublishError if the stream to a server is full."""
        self._outbox.check_room((owner,))

    def context(self, more: Mapping[str, int] | None = None) -> Context:
        """Returns the causal predecessors of a publication. `more`: its shipments, by owner."""
        self._is_causal = True
        return self._causality.context(self.row(more or {}))

    def known_context(self) -> Context:
        """Returns the context, or () if no causal message was ever seen."""
        return self.context() if self._is_causal or len(self._causality) else ()

    def row(self, more: Mapping[str, int]) -> CausalRow:
        """Returns this server's row: the last unacknowledged number, by owner."""
        self._rows += 1
        own = self._table.own
        return CausalRow(self.name, own.incarnation, own.boot, self._rows, self._outbox.row(more))

    def _give_up(self, of: Publication, error: ContradaError) -> None:
        """Fails a publication, and remembers its numbers as failed."""
        numbers = [each.envelope.sequence for each in of.notifications]
        if of.publisher and any(numbers):
            known = self._publishers.get(of.publisher)
            known.fail(each for each in numbers if each > known.sequence)
            self._publishers.save(of.publisher, known)
        self._fail(of.token, error)

    def _fail(self, token: int, error: ContradaError) -> None:
        self.failed += 1
        self.outcomes.append(Failed(token, error))


def _common_class(notifications: Sequence[Notification]) -> DeliveryClass:
    """Returns the class of all of them. Raises InvalidValueError, LimitError for a large one."""
    found = sorted({each.envelope.delivery for each in notifications})
    guarantee = delivery_class(found[0]) if found else DeliveryClass()
    if len(found) > 1 or not guarantee.is_reliable:
        raise InvalidValueError(found, "expected notifications of one class, reliable or certified")
    largest = max([len(each.span) + len(each.body) for each in notifications])
    if largest > KEPT_BYTES_MAX:
        raise LimitError("KEPT_BYTES_MAX", KEPT_BYTES_MAX, largest)
    return guarantee


def _publisher_and_class(request: PublishRequest) -> tuple[str, str]:
    _, publisher, notifications = request
    return publisher, notifications[0].envelope.delivery if notifications else ""


def _order_keys(of: Publication) -> list[tuple[str, str]]:
    """Returns the orders that a publication belongs to: its publisher's and its sequence's."""
    lines = ("publisher", of.publisher), ("sequence", of.guarantee.sequence)
    return [each for each in lines if each[1]]
