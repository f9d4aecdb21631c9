"""The history of real brokers and clients, in the form that the checkers of worlds judge.

The order is by a clock that all processes share. Knowledge that a simulated network has by its
virtual time is derived from *rests*: moments at which all running brokers are linked, and at which
a marker that is then published at each has reached each subscription. So

- a request before a rest is known everywhere at its beginning;
- a publication answered before a rest is no longer in flight at its end;
- a link is down from before the kill of a broker until a rest begins; a restored subscription is
  another one from then on;
- a durable subscription is known once all brokers report the same number of them at a rest;
- an acknowledgement counts only for a record read on the same connection: the records of a lost
  connection are delivered to others. With a reader elsewhere it counts only for a record published
  after the last crash of its broker and of the owner, which may have been unreachable.

Without a later rest no delivery is required; *may*, *once* and the guarantees are judged in any
case. Ordinary subscriptions get durable notifications, too: for these only *may* and *once* are
judged. Late and unordered reads are not judged, since their time is known only inside a client, nor
are patterns.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.errors import CannotPublishError
from contrada.lab.simulation.oracle import Outcome, Violation, judge, judge_delivery
from contrada.lab.simulation.run_records import (
    Cause,
    Change,
    Delivered,
    DeliveryHistory,
    DurableSpan,
    History,
    InterestSpan,
    PublishedRecord,
    Sent,
)
from contrada.lab.simulation.script_steps import Kind, filters_of
from contrada.model import Envelope, Notification
from contrada.routing.router_messages import Role, Subscribe
from tests.net.crowd import Event, What

AUDITOR: Final = "auditor"
"""The client that finally reads the unacknowledged records."""

REPLAYER: Final = "replayer"
"""The client that then reads all kept records."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A rest: all are linked from `begin` on, and notifications in flight have arrived at `end`."""

    begin: int
    end: int


@dataclass
class Real:
    """Real brokers, as `Observed`."""

    kind: Kind
    links: Sequence[tuple[int, int, bool]]
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.ends = [(a, b) for a, b, _ in self.links]
        self.costs = [1] * len(self.ends)
        self._parents = {(b, a) for a, b, is_parent in self.links if is_parent}

    def role(self, a: int, b: int) -> Role:
        """Returns the role of the second of two linked servers for the first."""
        if (a, b) in self._parents:
            return Role.PARENT
        return Role.CHILD if (b, a) in self._parents else Role.PEER


class Told:
    """Replays the events in order."""

    def __init__(self, real: Real, rests: Sequence[Rest], sequencer: int) -> None:
        self.real, self._rests = real, rests
        self.promises = DeliveryHistory(sequencers={sequencer})
        self.violations: list[Violation] = []
        self._held: dict[tuple[str, str], InterestSpan] = {}
        self._published: dict[str, PublishedRecord] = {}
        self._taken: set[tuple[str, str, str]] = set()
        self._known: set[str] = set()
        self._crashed: dict[int, int] = {}
        self._lost: dict[str, int] = {}
        self._read_at: dict[tuple[str, str, int], int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._unseen: Counter[str] = Counter()
        self._kills: Counter[str] = Counter()
        self._crashes = 0
        self._readers: dict[str, set[str]] = defaultdict(set)

    def tell(self, events: Iterable[Event]) -> None:
        """Replays the events of all processes."""
        does: dict[What, Callable[[Event], None]] = {
            "asks": self._ask,
            "unwishes": self._end,
            "lost": self._lose,
            "leaves": self._end_all,
            "killed": self._kill,
            "delivered": self._deliver,
            "sends": self._send,
            "answered": self._answer,
            "refused": self._answer,
            "stands": self._stand,
            "known": self._know,
            "reads": self._read,
            "replays": self._read,
            "acknowledged": self._acknowledge,
            "up": self._change,
            "down": self._change,
            "crash": self._crash,
        }
        for event in sorted(events, key=lambda each: each.at):
            if event.what in does:
                does[event.what](event)

    # --- brokers and links --------------------------------------------------------------------

    def _change(self, event: Event) -> None:
        """Changes the links between running and stopped brokers."""
        for line in event.positions:
            for end in (0, 1):
                change = Change(event.at, line, end, is_up=event.what == "up")
                self.real.history.changes.append(change)

    def _crash(self, event: Event) -> None:
        self._crashes += 1
        (broker,) = event.brokers
        self._crashed[broker] = event.at
        self.promises.crashes.append((event.at, broker, True))
        self.promises.forget_acknowledged(broker, event.at)
        self._begin_anew([key for key, held in self._held.items() if held.broker == broker], event)

    # --- best effort --------------------------------------------------------------------------

    def _ask(self, event: Event) -> None:
        (broker,) = event.brokers
        message = Subscribe(event.name, filters_of(event.text))
        held = InterestSpan(event.client, broker, message, event.at)
        self._held[event.client, event.name] = held
        self.real.history.subscriptions.append(held)

    def _end(self, event: Event) -> None:
        self._held.pop((event.client, event.name)).ended = event.at

    def _end_all(self, event: Event) -> None:
        for key in [each for each in self._held if each[0] == event.client]:
            self._held.pop(key).ended = event.at

    def _lose(self, event: Event) -> None:
        self._lost[event.client] = event.at
        self._begin_anew([each for each in self._held if each[0] == event.client], event)

    def _begin_anew(self, keys: Iterable[tuple[str, str]], event: Event) -> None:
        for key in keys:
            before = self._held[key]
            before.ended = event.at
            self._held[key] = InterestSpan(before.client, before.broker, before.message, event.at)
            self.real.history.subscriptions.append(self._held[key])

    def _deliver(self, event: Event) -> None:
        (broker,) = event.brokers
        at, names = event.at, (event.name,)
        is_known = event.id in self._published
        if not is_known:
            self.violations.append(Violation("unknown", f"{event}"))
            return
        # A reader that moved may get its records again: a new service does not know the old one.
        taken = event.client, event.name, event.id
        is_taken = taken not in self._taken
        if not is_taken and self._may_come_again(self.promises.sent[event.id]):
            return
        self._taken.add(taken)
        delivered = Delivered(
            at, "/".join(taken[:2]), broker, names, event.id, is_taken, at // 1_000
        )
        self.real.history.delivered.append(delivered)

    def _may_come_again(self, sent: Sent) -> bool:
        """Whether its access point crashed: its number may not have been on the disk yet."""
        return sent.guarantee.is_reliable and any(
            self._crashed.get(each, 0) > sent.order for each in sent.brokers
        )

    # --- durable traffic ----------------------------------------------------------------------

    def _send(self, event: Event) -> None:
        notification = Notification(
            {**event.values, "id": event.id},
            envelope=Envelope(id=event.id, publisher=event.session, delivery=event.text),
        )
        promised = delivery_class(event.text)
        sent = Sent(event.id, notification, promised, event.session, 0, order=event.at)
        sent.brokers += event.brokers
        self.promises.note_sent(sent)
        if event.text != BEST_EFFORT:
            sent.known = frozenset(
                name
                for name in self._known
                if self.promises.subscriptions[name].filters.matches(notification)
            )
        settled = max((each.begin for each in self._rests if each.end < event.at), default=0)
        published = PublishedRecord(
            notification,
            event.session,
            event.brokers[0],
            event.at,
            settled,
            False,
            (),
            Cause(False, event.at),
        )
        self._published[event.id] = published
        self.real.history.published.append(published)

    def _answer(self, event: Event) -> None:
        sent = self.promises.sent[event.id]
        if event.what == "refused":
            sent.error = CannotPublishError("", reason=event.text)
            del self._published[event.id]
            return
        sent.sequence = event.sequence or 0
        sent.is_accepted = True
        if not sent.guarantee.is_reliable:
            after = [each.end for each in self._rests if each.begin > event.at]
            self._published[event.id].cause.ended = min(after, default=None)

    def _stand(self, event: Event) -> None:
        assert event.retention is not None, "it is said where one begins"
        (owner,) = event.brokers
        self.promises.subscriptions[event.name] = DurableSpan(
            event.name, filters_of(event.text), owner, True, event.retention
        )

    def _know(self, _: Event) -> None:
        self._known = set(self.promises.subscriptions)

    def _read(self, event: Event) -> None:
        sent = self.promises.sent.get(event.id)
        if sent is None:
            self.violations.append(Violation("unknown", f"{event}"))
            return
        if sent.sequence not in (0, event.sequence):
            was = f"it was number {sent.sequence}"
            self.violations.append(Violation("another number", f"{event}: {was}"))
        sent.sequence = event.sequence or 0
        (position,) = event.positions
        self._read_at[event.session, event.name, position] = event.at
        is_replay = event.what == "replays"
        self.promises.note_read(event.session, event.name, position, event.id, is_replay=is_replay)

        if is_replay:
            return
        self._readers[event.name].add(event.client)
        if event.attempt > 1 and (event.name, position) not in self._seen:
            self._unseen[event.name] += 1
        self._seen.add((event.name, position))

    def _kill(self, event: Event) -> None:
        self._kills[event.client] += 1
        self._end_all(event)

    def uncounted(self) -> Iterator[Violation]:
        """Yields subscriptions with attempts of records that nobody saw.

        A killed reader, or one whose broker crashed, counts one: its first unacknowledged record,
        which may have killed it.
        """
        for name, unseen in self._unseen.items():
            readers = self._readers[name]
            ends = sum(self._kills[each] for each in readers) + self._crashes * len(readers)
            if unseen > ends:
                was = f"{name}: {unseen} unseen records count an attempt after {ends} lost readers"
                yield Violation("attempt", was)

    def _acknowledge(self, event: Event) -> None:
        owner, (where,) = self.promises.subscriptions[event.name].broker, event.brokers
        crashed = max(self._crashed.get(each, 0) for each in (owner, where))
        lost = self._lost.get(event.client, 0)
        read = self.promises.reads[event.session, event.name].records
        for position in event.positions:
            is_sure = where == owner or self.promises.sent[read[position]].order > crashed
            if is_sure and self._read_at[event.session, event.name, position] > lost:
                self.promises.acknowledged[event.name][position] = event.at, where


def judged(
    kind: Kind,
    links: Sequence[tuple[int, int, bool]],
    events: Sequence[Event],
    rests: Sequence[Rest],
    sequencer: int,
) -> Outcome:
    """Returns the verdict of the checkers over a history."""
    real = Real(kind, links)
    told = Told(real, rests, sequencer)
    told.tell(events)
    for each in real.history.subscriptions:
        each.client = f"{each.client}/{each.message.identity}"
    outcome = judge(real)
    outcome.violations += [*told.violations, *told.uncounted()]
    outcome.violations += judge_delivery(told.promises, outcome)
    outcome.published -= len(real.history.published)
    return outcome
