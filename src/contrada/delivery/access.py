"""`AccessPoint`: what a server does for the publishers that are connected to it.

What is published more than at best effort is matched here, once, against all that stands anywhere,
and addressed to the homes of what it matches. What is in a sequence goes to its sequencer, which
does the same as its access point.

    publish ==> not a duplicate? ==> in a sequence? --no--> address, number, hold ==> parcels
                                          `---yes--> to the sequencer, or wait for it

What must wait waits in order, a bounded time: for a sequencer that cannot be reached, and for what a
publisher did elsewhere before it came here.

Invariants: a publication is accepted whole or fails whole; of a publisher, what has a number not
above the highest one accepted is a duplicate, and is published no second time.

Source: EPFL 2503 §5.2.2 (QoS of obvents).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from contrada.delivery.causality import Causality
from contrada.delivery.classes import DeliveryClass, delivery_class
from contrada.delivery.logs import Logs
from contrada.delivery.messages import (
    Body,
    Context,
    Notice,
    Parcel,
    PassSequence,
    Row,
    ToSequence,
)
from contrada.delivery.outbox import Outbox, Posting
from contrada.delivery.sequences import Sequences
from contrada.delivery.standing import StandingTable
from contrada.delivery.store import Store
from contrada.errors import CannotPublishError, ContradaError, InvalidValueError
from contrada.model import Notification

WAITING_MAX: Final = 10_000
"""Publications that wait for a sequencer or for a publisher's past. Beyond it: CannotPublishError."""

WAIT_US: Final = 5_000_000
"""How long a publication waits for these. Beyond it: CannotPublishError; nothing is published."""

PUBLISHERS_MAX: Final = 100_000
"""Publishers whose last number is known. Beyond it: who published longest ago is forgotten, and
duplicates of its last publications would be taken for new."""

_NOTE: Final = "publisher/"


class Accepted(NamedTuple):
    """A publication is held here, and on stable storage where it is certified."""

    token: int


class Failed(NamedTuple):
    """A publication was not published, and why."""

    token: int
    error: ContradaError


class Publication(NamedTuple):
    """Notifications that are published together, all of one class. `token` tells it from others."""

    token: int
    publisher: str
    notifications: Sequence[Notification]
    promised: DeliveryClass
    until_us: int


class _Publisher(msgspec.Struct, array_like=True):
    """The highest number accepted, and whether the publisher came from another server."""

    sequence: int = 0
    has_moved: bool = False


class AccessPoint:
    """Publishing at one server. What comes of it is collected in `outcomes` and `parcels`."""

    def __init__(
        self,
        name: str,
        store: Store | None,
        table: StandingTable,
        outbox: Outbox,
        logs: Logs,
        sequences: Sequences,
        causality: Causality,
    ) -> None:
        self.name = name
        self.outcomes: list[Accepted | Failed] = []
        self.parcels: list[Parcel] = []
        self.duplicates = 0
        self.failed = 0
        self.ways: Mapping[str, str] = {}
        self._store = store
        self._table, self._outbox, self._logs = table, outbox, logs
        self._sequences, self._causality = sequences, causality
        self._waiting: dict[int, Publication] = {}
        self._is_stale = False
        self._kept_back: set[tuple[str, str]] = set()  # publishers and sequences of what waits
        self._awaited: set[str] = set()  # publishers whose past is asked for
        self._to_sequencers: dict[str, tuple[str, int, int]] = {}
        self._rows = 0
        self._publishers: dict[str, _Publisher] = {}
        self._is_causal = len(causality) > 0
        for note, value in (store.notes() if store is not None else {}).items():
            if note.startswith(_NOTE):
                known = msgspec.msgpack.decode(value, type=_Publisher)
                self._publishers[note.removeprefix(_NOTE)] = known

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> None:
        """Publishes what is more than best effort. All of it has one class."""
        promised = delivery_class(notifications[0].envelope.delivery)
        of = Publication(token, publisher, notifications, promised, now_us + WAIT_US)
        others = {each.envelope.delivery for each in notifications}
        if len(others) > 1 or not promised.is_reliable:
            reason = "expected notifications of one class, reliable or certified"
            self._fail(of, InvalidValueError(sorted(others), reason))
        elif self._hindrance(of) is None and not self._would_overtake(of):
            self._publish(of, now_us)
        elif len(self._waiting) >= WAITING_MAX:
            reason = f"WAITING_MAX = {WAITING_MAX} publications wait already"
            self._fail(of, CannotPublishError("", reason=reason))
        else:
            self._wait(of)

    def await_past(self, publisher: str) -> None:
        """What a publisher publishes waits until `meet` says what it did elsewhere."""
        self._awaited.add(publisher)

    def meet(self, publisher: str, sequence: int) -> None:
        """A publisher has come from another server, where this was its last number."""
        self._awaited.discard(publisher)
        self._remember(publisher, sequence, has_moved=True)
        self.look_again()

    def sequence_of(self, publisher: str) -> int:
        """The highest number that was accepted of a publisher, or 0."""
        known = self._publishers.get(publisher)
        return 0 if known is None else known.sequence

    def _hindrance(self, of: Publication) -> str | None:
        """Why a publication has to wait; None where it need not."""
        if of.publisher in self._awaited:
            return f"what {of.publisher!r} published elsewhere is not known here"
        sequence = of.promised.sequence
        if not sequence:
            return None
        _, server = self._sequences.where(sequence)
        home = self._table.homes.get(server)
        if home is None or not home.sequences or (server != self.name and server not in self.ways):
            return f"server {server!r}, which gives the order of {sequence!r}, cannot be reached"
        before, life, number = self._to_sequencers.get(sequence, (server, 0, 0))
        if before != server:
            # What went to the sequencer before must have been passed on by it.
            its_life, _, taken = self._outbox.sent(before)
            if its_life == life and taken < number:
                return f"server {before!r} has not passed on what is in {sequence!r}"
        return None

    # --- time ---------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Something has changed for which publications may wait."""
        self._is_stale = bool(self._waiting)

    def go_on(self, now_us: int) -> None:
        """Publishes what need not wait any longer, and gives up what has waited too long."""
        if not self._is_stale and (self.due_us is None or now_us < self.due_us):
            return
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
                self._fail(of, CannotPublishError("", reason=reason))
            else:
                self._wait(of)

    def _wait(self, of: Publication) -> None:
        self._waiting[of.token] = of
        self._kept_back.update(_orders(of))

    def _would_overtake(self, of: Publication) -> bool:
        """Whether something that waits is to come before it."""
        return bool(self._kept_back) and not self._kept_back.isdisjoint(_orders(of))

    @property
    def due_us(self) -> int | None:
        """When the first of what waits is given up."""
        return min((each.until_us for each in self._waiting.values()), default=None)

    @property
    def waiting(self) -> int:
        """Publications that wait."""
        return len(self._waiting)

    # --- publishing ---------------------------------------------------------------------------

    def _publish(self, of: Publication, now_us: int) -> None:
        known = self._publishers.get(of.publisher)
        accepted = 0 if known is None else known.sequence
        fresh = fresh_of(of.publisher, of.notifications, accepted)
        self.duplicates += len(of.notifications) - len(fresh)
        promised = of.promised
        carries = promised.is_causal or (known is not None and known.has_moved and promised.is_fifo)
        try:
            if promised.is_certified and self._store is None:
                raise CannotPublishError(
                    "", reason="this server has no store for what is certified"
                )
            if fresh and promised.sequence:
                self.sequence(fresh, now_us, carries=carries)
            elif fresh:
                self._address(fresh, promised, now_us, carries=carries)
        except ContradaError as error:
            self._fail(of, error)
            return
        if fresh and of.publisher:
            last = max(each.envelope.sequence for each in fresh)
            if last:
                self._remember(of.publisher, last)
        self.outcomes.append(Accepted(of.token))

    def sequence(
        self, notifications: Sequence[Notification], now_us: int, *, carries: bool
    ) -> None:
        """Publishes what is in a sequence, here or at its sequencer. Raises CannotPublishError."""
        promised = delivery_class(notifications[0].envelope.delivery)
        epoch, server = self._sequences.where(promised.sequence)
        carries = carries or promised.is_causal or epoch > 0
        if server == self.name:
            self._address(notifications, promised, now_us, carries=carries)
            return
        home = self._table.homes[server]
        if promised.is_certified and not home.has_store:
            reason = f"server {server!r} has no store for what is certified"
            raise CannotPublishError("", reason=reason)
        self._outbox.check_room({server: ()})
        context = self.context({server: len(notifications)}) if carries else ()
        bodies = [Posting(ToSequence(each), {server: ()}, context) for each in notifications]
        self._post(bodies, now_us, spools=promised.is_certified)
        life, last, _ = self._outbox.sent(server)
        self._to_sequencers[promised.sequence] = server, life, last

    def _address(
        self,
        notifications: Sequence[Notification],
        promised: DeliveryClass,
        now_us: int,
        *,
        carries: bool,
    ) -> None:
        """Addresses notifications to all that stands and matches. Raises CannotPublishError."""
        found = self._table.addressees(notifications)
        counts: dict[str, int] = {}
        here: dict[int, list[Notification]] = {}
        for notification, homes in zip(notifications, found, strict=True):
            for home, ids in homes.items():
                counts[home] = counts.get(home, 0) + 1
                standing = self._table.homes[home].standing
                full = next((each for each in ids if standing[each].is_full), None)
                if full is not None:
                    raise CannotPublishError(standing[full].name)
                if home == self.name:
                    for number in ids:
                        here.setdefault(number, []).append(notification)
        self._outbox.check_room(counts)
        self._logs.check_room(here)
        context = self.context(counts) if carries else ()
        postings = [
            Posting(Notice(notification), homes, context)
            for notification, homes in zip(notifications, found, strict=True)
            if homes
        ]
        if postings:
            self._post(postings, now_us, spools=promised.is_certified)

    def _post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> None:
        self.parcels += self._outbox.post(postings, now_us, spools=spools)

    def send(self, home: str, body: Body, now_us: int, context: Context = ()) -> None:
        """Sends something to one server, to arrive there once."""
        spools = isinstance(body, PassSequence)
        self._post([Posting(body, {home: ()}, context)], now_us, spools=spools)

    def context(self, more: Mapping[str, int] | None = None) -> Context:
        """What others must have who get what is published here now, so much to some homes."""
        self._is_causal = True
        return self._causality.context(self.row(more or {}))

    def known_context(self) -> Context:
        """The same, if there has been anything for which it matters."""
        return self.context() if self._is_causal else ()

    def row(self, more: Mapping[str, int]) -> Row:
        """What this server has sent and was not taken yet."""
        self._rows += 1
        own = self._table.own
        return Row(self.name, own.life, own.boot, self._rows, self._outbox.row(more))

    def _remember(self, publisher: str, sequence: int, *, has_moved: bool = False) -> None:
        known = self._publishers.pop(publisher, None) or _Publisher()
        known.sequence = max(known.sequence, sequence)
        known.has_moved |= has_moved
        self._publishers[publisher] = known
        if self._store is not None:
            self._store.note(_NOTE + publisher, msgspec.msgpack.encode(known))
        if len(self._publishers) > PUBLISHERS_MAX:
            oldest = next(iter(self._publishers))
            del self._publishers[oldest]
            if self._store is not None:
                self._store.note(_NOTE + oldest, None)

    def _fail(self, of: Publication, error: ContradaError) -> None:
        self.failed += 1
        self.outcomes.append(Failed(of.token, error))


def fresh_of(
    publisher: str, notifications: Iterable[Notification], accepted: int
) -> list[Notification]:
    """What is no duplicate, where a publisher's highest number so far is known.

    What has no publisher or no number never is one.
    """
    fresh = []
    for each in notifications:
        sequence = each.envelope.sequence
        if not publisher or not sequence or sequence > accepted:
            fresh.append(each)
            accepted = max(accepted, sequence)
    return fresh


def _orders(of: Publication) -> list[tuple[str, str]]:
    """In which lines a publication stands: its publisher's and its sequence's."""
    return [("publisher", of.publisher)] + [
        ("sequence", each) for each in (of.promised.sequence,) if each
    ]
