"""`AccessPoint`: what a server does for the publishers that are connected to it.

A publication of a class above best effort is matched here, once, against the standing subscriptions
of all servers. It is addressed to the homes of those that it matches. A publication in a sequence
goes to its sequencer instead, which then acts as its access point.

    publish ==> not a duplicate? ==> in a sequence? --no--> address, number, hold ==> parcels
                                          `---yes--> to the sequencer, or wait for it

Some publications wait, in order and for a bounded time. They wait for a sequencer that cannot be
reached, or until this server knows what their publisher did at other servers before.

Invariants: a publication is accepted whole or fails whole; a notification whose number is not above
its publisher's highest accepted one is a duplicate, and is not published again.

Source: EPFL 2503 §5.2.2 (QoS of obvents).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from sys import maxsize
from typing import Final, NamedTuple

from contrada.delivery.causality import Causality
from contrada.delivery.delivery_class import DeliveryClass, delivery_class
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
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox, Posting
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.publishers import (
    HERE,
    Publisher,
    Publishers,
    PublisherSession,
    SequencerEpoch,
)
from contrada.delivery.sequences import Sequences
from contrada.delivery.store import KEPT_BYTES_MAX, Store
from contrada.delivery.transit import Transit
from contrada.errors import (
    CannotPublishError,
    ContradaError,
    DeliveryError,
    InvalidValueError,
    LimitError,
)
from contrada.model import Notification

WAITING_MAX: Final = 10_000
"""Publications that wait at a server. Beyond it: CannotPublishError."""

WAIT_US: Final = 5_000_000
"""How long a publication waits for these. Beyond it: CannotPublishError; nothing is published."""

ASK_AGAIN_US: Final = 1_000_000
"""After how long the past of a publisher that waits is asked for again."""


class Confirmed(NamedTuple):
    """A publication is held here, and on stable storage where it is certified.

    `fresh` is what of it was no duplicate.
    """

    token: int
    fresh: Sequence[Notification] = ()


class Failed(NamedTuple):
    """A publication was not published, and why."""

    token: int
    error: ContradaError


class Publication(NamedTuple):
    """Notifications of one class that are published together.

    `token` identifies the publication.
    """

    token: int
    publisher: str
    notifications: Sequence[Notification]
    promised: DeliveryClass
    until_us: int


class AccessPoint:
    """Publishing at one server. What comes of it is collected in `outcomes` and `shipments`."""

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
    ) -> None:
        self.name = name
        self.outcomes: list[Confirmed | Failed] = []
        self.shipments: list[Shipment] = []
        self.duplicates = 0
        self.failed = 0
        self._store, self._transit = store, transit
        self._table, self._outbox, self._inbox, self._logs = table, outbox, inbox, logs
        self._sequences, self._causality = sequences, causality
        self._waiting: dict[int, Publication] = {}
        self._is_stale = False
        self._kept_back: set[tuple[str, str]] = set()  # publishers and sequences of what waits
        self._awaited: dict[str, PublisherSession] = {}  # publishers whose past is asked for
        self._ask_us = 0
        self._rows = 0
        self._is_causal = outbox.held > 0  # since before a restart
        self._publishers = Publishers(Notes(store), outbox, inbox, causality)

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> None:
        """Publishes what is more than best effort. All of it has one class."""
        try:
            promised = _class_of(notifications)
        except ContradaError as error:
            of = Publication(token, publisher, notifications, DeliveryClass(), now_us)
            self._give_up(of, error)
            return
        of = Publication(token, publisher, notifications, promised, now_us + WAIT_US)
        if self._hindrance(of) is None and not self._would_overtake(of):
            self._publish(of, now_us)
        elif len(self._waiting) >= WAITING_MAX:
            reason = f"WAITING_MAX = {WAITING_MAX} publications wait already"
            is_unknown = publisher in self._awaited
            self._give_up(of, CannotPublishError("", reason=reason, may_be_published=is_unknown))
        else:
            self._wait(of)

    def await_past(self, publisher: str, past: Mapping[str, int], now_us: int) -> None:
        """A publisher's publications wait here until its past at other servers is known.

        `past`: those servers, each with its life at the time. Raises LimitError.
        """
        if publisher not in self._awaited and len(self._awaited) >= WAITING_MAX:
            raise LimitError("WAITING_MAX", WAITING_MAX, len(self._awaited) + 1)
        others = {
            server: incarnation for server, incarnation in past.items() if server != self.name
        }
        if others:
            self._awaited[publisher] = PublisherSession(now_us, others)
            self._ask_past(publisher, now_us)

    def forget_past(self, server: str, incarnation: int) -> None:
        """A server has begun this life: of its earlier lives no publisher's past is left there."""
        for publisher, visit in list(self._awaited.items()):
            if visit.incarnations.get(server, incarnation) < incarnation:
                self.meet(publisher, server)

    def meet(self, publisher: str, server: str, past: Past | None = None) -> None:
        """What a publisher did at another server is known; None: nothing is left of it.

        An answer to a question of an earlier visit is ignored: the publisher was there again since.
        """
        visit = self._awaited.get(publisher)
        is_late = past is not None and visit is not None and past.visit != visit.number
        if visit is None or server not in visit.incarnations or is_late:
            return
        del visit.incarnations[server]
        if not visit.incarnations:
            del self._awaited[publisher]
        known = self._publishers.known(publisher)
        if past is not None:
            known.learn(past.sequence, past.failed, past.untold)
        # Its publications there went another way, and may still be on it.
        known.carries = True
        self._publishers.remember(publisher, known)
        self.look_again()

    def forget(self, server: str) -> None:
        """A server will never say what its publishers did there."""
        self.forget_past(server, maxsize)
        self.look_again()

    def past_of(self, said: AskPast) -> Past | None:
        """What is known of a publisher that has left; None while its last is on its way.

        What waits of it is given up; if it is back, from where it may have been published.
        """
        publisher = said.publisher
        is_unknown = publisher in self._awaited
        for token in [each.token for each in self._waiting.values() if each.publisher == publisher]:
            reason = f"the publisher {publisher!r} has gone to another server"
            del self._waiting[token]
            error = CannotPublishError("", reason=reason, may_be_published=is_unknown)
            self._fail(token, error)
        known = self._publishers.known(publisher)
        if self._publishers.on_their_way(known, HERE) is not None:
            return None
        return Past(publisher, said.visit, known.sequence, known.failed, known.untold)

    def sequence_of(self, publisher: str) -> int:
        """The highest number of a publisher that was accepted, or waits. Cost: all that waits."""
        return _highest(self._publishers.known(publisher).sequence, publisher, self._waiting)

    def _hindrance(self, of: Publication) -> str | None:
        """Why a publication must wait; None where it need not."""
        if of.publisher in self._awaited:
            return f"what {of.publisher!r} published elsewhere is not known here"
        known = self._publishers.known(of.publisher)
        if of.publisher and all(
            0 < n.envelope.sequence <= known.sequence for n in of.notifications
        ):
            return None  # All was answered before.
        sequence = of.promised.sequence
        via = self._sequences.where(sequence)[1] if sequence else self.name
        owner = self._table.owners.get(via)
        can_reach = via == self.name or via in self._transit.ways
        if sequence and not (can_reach and owner is not None and owner.sequences):
            return f"server {via!r}, which gives the order of {sequence!r}, cannot be reached"
        if not of.promised.is_fifo:
            return None
        before = self._publishers.on_their_way(known, self._way_of(of.promised))
        if before is None:
            return None
        return f"server {before!r} has not said that it has what was published before"

    def pass_sequence(self, sequence: str, server: str) -> None:
        """Another server gives the order of a sequence from now on. Raises as `DeliveryServer`."""
        epoch, where = self._sequences.where(sequence)
        owner = self._table.owners.get(server)
        if where != self.name or not self._table.own.sequences:
            raise DeliveryError(f"server {where!r} gives the order of {sequence!r}, not this one")
        if (
            owner is None
            or not owner.sequences
            or (self._store is not None and not owner.has_store)
        ):
            raise DeliveryError(f"server {server!r} cannot give the order of {sequence!r}")
        if server != self.name:
            self._sequences.check_room(sequence)
            self.move(Sequenced(sequence, epoch + 1, server, self.context()))

    def move(self, said: Sequenced) -> None:
        """Another server gives the order of a sequence, if this is news; all are told."""
        self._causality.merge(said.context)
        if self._sequences.learn(said):
            self._sequences.move(said.sequence, said.epoch, said.server)
            self._transit.flood(said)
            self.look_again()

    # --- time ---------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Something has changed for which publications may wait."""
        self._is_stale = bool(self._waiting)

    def go_on(self, now_us: int) -> None:
        """Publishes publications that need wait no longer, gives up those that waited too long."""
        if not self._is_stale and (self.due_us is None or now_us < self.due_us):
            return
        self._ask_again(now_us)
        self._is_stale = False
        waiting, self._waiting = self._waiting, {}
        self._kept_back.clear()
        for of in waiting.values():
            reason = self._hindrance(of)
            if reason is None and self._would_overtake(of):
                reason = "what was published before it waits"
            if reason is None:
                self._publish(of, now_us)
            elif of.until_us <= now_us:
                is_unknown = of.publisher in self._awaited
                error = CannotPublishError("", reason=reason, may_be_published=is_unknown)
                self._give_up(of, error)
            else:
                self._wait(of)

    def _wait(self, of: Publication) -> None:
        self._waiting[of.token] = of
        self._kept_back.update(_orders(of))

    def _would_overtake(self, of: Publication) -> bool:
        """Whether a publication that waits must come before this one."""
        return bool(self._kept_back) and not self._kept_back.isdisjoint(_orders(of))

    @property
    def due_us(self) -> int | None:
        """When the first of what waits is given up, or a publisher's past is asked for again."""
        until_us = next((each.until_us for each in self._waiting.values()), None)
        if until_us is None or not self._awaited:
            return until_us
        return min(until_us, self._ask_us)

    def _ask_again(self, now_us: int) -> None:
        """Asks for the past of publishers that wait again: there may have been no answer yet."""
        if now_us < self._ask_us:
            return
        self._ask_us = now_us + ASK_AGAIN_US
        for publisher in dict.fromkeys(each.publisher for each in self._waiting.values()):
            self._ask_past(publisher, now_us)

    def _ask_past(self, publisher: str, now_us: int) -> None:
        """Asks for what a publisher did elsewhere, where no question is on its way."""
        visit = self._awaited.get(publisher)
        if visit is None:
            return
        for server, incarnation in list(visit.incarnations.items()):
            owner = self._table.owners.get(server)
            now, _, taken = self._outbox.sent(server)
            if owner is not None and incarnation < owner.incarnation:
                self.meet(publisher, server)
            elif owner is not None and visit.asked.get(server, (0, 0)) <= (now, taken):
                self.send(server, AskPast(publisher, visit.number), now_us)
                visit.asked[server] = self._outbox.sent(server)[:2]

    @property
    def waiting(self) -> int:
        """Publications that wait."""
        return len(self._waiting)

    # --- publishing ---------------------------------------------------------------------------

    def _publish(self, of: Publication, now_us: int) -> None:
        known, promised = self._publishers.known(of.publisher), of.promised
        try:
            fresh = known.fresh(of.notifications) if of.publisher else list(of.notifications)
            self.duplicates += len(of.notifications) - len(fresh)
            if fresh and promised.is_certified and self._store is None:
                raise CannotPublishError("", reason="this server has no store, which it would need")
            if fresh:
                self._send_on(of, fresh, known, now_us)
        except ContradaError as error:
            self._give_up(of, error)
            return
        if fresh and of.publisher:
            known.accept(each.envelope.sequence for each in fresh)
            self._publishers.remember(of.publisher, known)
        self.outcomes.append(Confirmed(of.token, fresh))

    def _send_on(
        self, of: Publication, fresh: list[Notification], known: Publisher, now_us: int
    ) -> None:
        """Publishes here or at a sequencer, and notes by which way what has an order went."""
        found = self._table.with_room(fresh)
        here = [owners.get(self.name, ()) for owners in found]
        self._logs.check_room(zip(here, fresh, strict=True))
        promised = of.promised
        way = self._way_of(promised)
        # What goes by another way than what was before could overtake it.
        carries = known.carries or known.way not in (None, way)
        if promised.sequence:
            self.sequence(fresh, way, now_us, carries=carries and promised.is_fifo, found=found)
        else:
            needs = promised.is_causal or (carries and promised.is_fifo)
            self._address(fresh, found, promised, now_us, carries=needs)
        if promised.is_fifo:
            self._publishers.note_way(known, way, carries=carries)

    def _way_of(self, promised: DeliveryClass) -> SequencerEpoch:
        """The way of an ordered publication."""
        epoch, server = self._sequences.where(promised.sequence)
        is_here = not promised.sequence or server == self.name
        return HERE if is_here else (promised.sequence, server, epoch)

    def order(self, source: str, said: ToSequence, now_us: int, *, carries: bool) -> None:
        """Gives a notification its place in a sequence; or returns it, where that was passed on."""
        notification = said.notification
        promised = delivery_class(notification.envelope.delivery)
        if said.epoch > self._sequences.where(promised.sequence)[0]:
            # The parcel overtook the news of this epoch; its context tells of the epochs before.
            self.move(Sequenced(promised.sequence, said.epoch, self.name))
        epoch, server = self._sequences.where(promised.sequence)
        # It was sent to an earlier epoch: other notifications of its publisher may be elsewhere.
        is_late = promised.is_fifo and said.epoch < epoch
        # It is the sequencer even where it has no room to remember that; then it cannot pass it on.
        if said.epoch > epoch or (server == self.name and not is_late):
            self.sequence([notification], HERE, now_us, carries=carries)
        else:
            back = Returned(notification, said.epoch, epoch, server)
            self.send(source, back, now_us, self.context(), spools=promised.is_certified)

    def returned(self, source: str, said: Returned, now_us: int) -> None:
        """Sends on what a server returned since it had passed on the sequence."""
        notification = said.notification
        promised = delivery_class(notification.envelope.delivery)
        self.move(Sequenced(promised.sequence, said.epoch, said.server))
        way, publisher = self._way_of(promised), notification.envelope.publisher
        known = self._publishers.known(publisher)
        if promised.is_fifo:
            back = promised.sequence, source, said.asked
            way = self._publishers.following(known, back) or way
        self.sequence([notification], way, now_us, carries=promised.is_fifo)
        if promised.is_fifo:
            self._publishers.note_way(known, way, carries=True)
            self._publishers.remember(publisher, known)
        self.look_again()

    def sequence(
        self,
        notifications: Sequence[Notification],
        way: SequencerEpoch,
        now_us: int,
        *,
        carries: bool,
        found: list[Addressees] | None = None,
    ) -> None:
        """Publishes what is in a sequence, here or at its sequencer; raises as `publish` fails."""
        promised = delivery_class(notifications[0].envelope.delivery)
        # After a hand-over, earlier notifications may still come from the sequencer before.
        carries = carries or promised.is_causal or self._sequences.where(promised.sequence)[0] > 0
        if way == HERE:
            if not self._table.own.sequences:
                raise DeliveryError("who has lost its memory gives no order any longer")
            found = self._table.addressees(notifications) if found is None else found
            self._address(notifications, found, promised, now_us, carries=carries)
            return
        _, server, epoch = way
        owner = self._table.owners.get(server)
        if owner is None or (promised.is_certified and not owner.has_store):
            reason = f"server {server!r} is not known here, or has no store"
            raise CannotPublishError("", reason=reason)
        self._outbox.check_room((server,))
        context = self.context({server: len(notifications)}) if carries else ()
        bodies = [Posting(ToSequence(each, epoch), {server: ()}, context) for each in notifications]
        self._post(bodies, now_us, spools=promised.is_certified)

    def _address(
        self,
        notifications: Sequence[Notification],
        found: list[Addressees],
        promised: DeliveryClass,
        now_us: int,
        *,
        carries: bool,
    ) -> None:
        """Addresses notifications to all that stands and matches. Raises CannotPublishError."""
        counts = Counter(owner for owners in found for owner in owners)
        self._outbox.check_room(counts)
        context = self.context(counts) if carries else ()
        postings = [
            Posting(Notice(notification), owners, context)
            for notification, owners in zip(notifications, found, strict=True)
            if owners
        ]
        if postings:
            self._post(postings, now_us, spools=promised.is_certified)

    def _post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> None:
        self.shipments += self._outbox.post(postings, now_us, spools=spools)

    def send(
        self, owner: str, body: Payload, now_us: int, context: Context = (), *, spools: bool = False
    ) -> None:
        """Sends a body once to a known server, else to nobody. `spools`: it survives a crash."""
        if owner not in self._table.owners:
            return
        spools = spools and self._store is not None
        self._post([Posting(body, {owner: ()}, context)], now_us, spools=spools)

    def check_room(self, owner: str) -> None:
        """Raises CannotPublishError where a server has not taken too much already."""
        self._outbox.check_room((owner,))

    def context(self, more: Mapping[str, int] | None = None) -> Context:
        """The causal predecessors of what is published now. `more`: parcels posted now, by home."""
        self._is_causal = True
        return self._causality.context(self.row(more or {}))

    def known_context(self) -> Context:
        """The context, or () if no causal message was ever seen."""
        return self.context() if self._is_causal or len(self._causality) else ()

    def row(self, more: Mapping[str, int]) -> CausalRow:
        """This server's row: what it has sent, by home, that was not acknowledged yet."""
        self._rows += 1
        own = self._table.own
        return CausalRow(self.name, own.incarnation, own.boot, self._rows, self._outbox.row(more))

    def _give_up(self, of: Publication, error: ContradaError) -> None:
        """A publication fails, and is known to have failed where it comes again."""
        numbers = [each.envelope.sequence for each in of.notifications]
        if of.publisher and any(numbers):
            known = self._publishers.known(of.publisher)
            known.fail(each for each in numbers if each > known.sequence)
            self._publishers.remember(of.publisher, known)
        self._fail(of.token, error)

    def _fail(self, token: int, error: ContradaError) -> None:
        self.failed += 1
        self.outcomes.append(Failed(token, error))


def _class_of(notifications: Sequence[Notification]) -> DeliveryClass:
    """What all of them promise. Raises InvalidValueError, LimitError for one that is too large."""
    found = sorted({each.envelope.delivery for each in notifications})
    promised = delivery_class(found[0]) if found else DeliveryClass()
    if len(found) > 1 or not promised.is_reliable:
        raise InvalidValueError(found, "expected notifications of one class, reliable or certified")
    largest = max(len(each.span) + len(each.body) for each in notifications)
    if largest > KEPT_BYTES_MAX:
        raise LimitError("KEPT_BYTES_MAX", KEPT_BYTES_MAX, largest)
    return promised


def _highest(known: int, publisher: str, waiting: Mapping[int, Publication]) -> int:
    """The highest number of a publisher, of what is known and what waits."""
    mine = (each.notifications for each in waiting.values() if each.publisher == publisher)
    return max([known, *(each.envelope.sequence for of in mine for each in of)])


def _orders(of: Publication) -> list[tuple[str, str]]:
    """The queues in which a publication waits: its publisher's and its sequence's, if any."""
    lines = ("publisher", of.publisher), ("sequence", of.promised.sequence)
    return [each for each in lines if each[1]]
