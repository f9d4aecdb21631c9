"""`Dissemination`: the events at one participant, level by level.

    in a round     each buffered event is sent to those of F random contacts that count as
                   interested; after the expected number of rounds it descends a level, or is
                   dropped
    on receipt     a new event is added to the buffer of its level

The protocols differ in which contacts count as interested; they pass that function. The identities
of dropped events are remembered, so that a late copy does not start again.

Source: EPFL 2503 §6.2, §6.3.4, §6.5.1, figures 6.1, 6.2, 6.6; §6.5.4 (digests), §6.6.1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, TypeAlias

from contrada.gossip.condensation import is_interested
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import (
    RUMOURS_SENT_MAX,
    Contact,
    EventId,
    Gossip,
    LevelId,
    Rumour,
    event_id,
)
from contrada.gossip.group_policy import Chance
from contrada.gossip.membership import GroupMembership
from contrada.gossip.rounds import ROUNDS_MAX, exchanges_digests, expected_rounds
from contrada.gossip.views import KnownContact
from contrada.model import FilterSet, Notification
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.routing.duplicates import Duplicates

KEPT_ROUNDS: Final = 8
"""Rounds that an event is kept for requests after its gossip has ended."""

_MESSAGE_EVENT_BYTES: Final = 524_288
"""Bytes of events in one message, unless one is larger."""

_rounds: Final = lru_cache(maxsize=4_096)(expected_rounds)

Counts: TypeAlias = Callable[[int, Notification], Callable[[KnownContact], bool]]
"""The contacts that count as interested in an event at a level: event ◁ dest of the figures."""


@dataclass(slots=True, eq=False)
class HeldRumour:
    """An event in the buffer of a level; `is_own` if it was published here."""

    event: Notification
    prob: float
    round: int
    level: int
    is_own: bool = False
    has_sent_digest: bool = False


class RumourBuffers:
    """The buffers of events in transit by level, and for some rounds the events after that."""

    def __init__(self, levels: int, limits: GossipLimits = GossipLimits()) -> None:
        self._limits = limits
        self._by_level: list[dict[EventId, HeldRumour]] = [{} for _ in range(levels)]
        self._kept: dict[EventId, tuple[int, HeldRumour]] = {}
        self._bytes = 0

    def has_room(self, event: Notification) -> bool:
        """Returns whether an event may be added."""
        size = self._bytes + size_of(event)
        return len(self) < self._limits.rumours_max and size <= self._limits.buffered_bytes_max

    def add(self, rumour: HeldRumour) -> bool:
        """Adds an event to the buffer of its level. Returns whether there was room."""
        if not self.has_room(rumour.event):
            return False
        self._bytes += size_of(rumour.event)
        self._by_level[rumour.level - 1][event_id(rumour.event)] = rumour
        return True

    def at(self, level: int) -> list[HeldRumour]:
        """Returns the events at a level."""
        return list(self._by_level[level - 1].values())

    def end(self, rumour: HeldRumour) -> None:
        """Removes an event after its rounds at its level."""
        if self._by_level[rumour.level - 1].pop(event_id(rumour.event), None) is not None:
            self._bytes -= size_of(rumour.event)

    def keep(self, rumour: HeldRumour, round_: int) -> None:
        """Keeps an event for requests."""
        identity, size = event_id(rumour.event), self._bytes + size_of(rumour.event)
        fits = len(self._kept) < self._limits.rumours_max
        fits = fits and size <= self._limits.buffered_bytes_max
        if fits and identity not in self._kept:
            self._bytes = size
            self._kept[identity] = round_ + KEPT_ROUNDS, rumour

    def forget(self, round_: int) -> None:
        """Drops kept events after `KEPT_ROUNDS`."""
        for identity, (until, held) in list(self._kept.items()):
            if until > round_:
                break
            self._bytes -= size_of(held.event)
            del self._kept[identity]

    def find(self, identity: EventId) -> HeldRumour | None:
        """Returns an event in transit, or kept."""
        for level in self._by_level:
            if identity in level:
                return level[identity]
        kept = self._kept.get(identity)
        return None if kept is None else kept[1]

    def clear(self) -> None:
        """Drops everything."""
        for level in self._by_level:
            level.clear()
        self._kept.clear()
        self._bytes = 0

    def validate(self) -> None:
        """Raises AssertionError where an event is at two levels, or at another than its own."""
        identities = list(chain.from_iterable(self._by_level))
        assert len(identities) == len(set(identities)), "an event is at one level"
        kept = (held for _, held in self._kept.values())
        total = sum(size_of(each.event) for each in chain(self, kept))
        assert self._bytes == total <= self._limits.buffered_bytes_max, "so many bytes are held"
        for number, level in enumerate(self._by_level, start=1):
            assert all(held.level == number for held in level.values()), "in its level's buffer"

    def __iter__(self) -> Iterator[HeldRumour]:
        return chain.from_iterable(level.values() for level in self._by_level)

    def __len__(self) -> int:
        return sum(map(len, self._by_level))


def size_of(event: Notification) -> int:
    """Returns the bytes of an event that its publisher chose."""
    return len(event.span) + len(event.body)


class Announcements:
    """Announced events that were not received, and the round of their last request."""

    def __init__(self, limits: GossipLimits = GossipLimits()) -> None:
        self._limits = limits
        self._asked: dict[EventId, int] = {}

    def is_due(self, identity: EventId, round_: int) -> bool:
        """Returns whether to request an event, at most once in a round; notes the request."""
        if self._asked.get(identity) == round_:
            return False
        if identity not in self._asked and len(self._asked) >= self._limits.announced_max:
            del self._asked[next(iter(self._asked))]
        self._asked[identity] = round_
        return True

    def remove(self, identity: EventId) -> None:
        """Removes a received event."""
        self._asked.pop(identity, None)


class Dissemination:
    """The events in transit at one participant. `refused` counts by reason."""

    def __init__(self, membership: GroupMembership, rng: Chance, counts: Counts) -> None:
        self._limits = membership.limits
        self.buffers = RumourBuffers(membership.view.space.levels, self._limits)
        self.refused: Counter[str] = Counter()
        self.duplicates = 0
        self._membership = membership
        self._parameters, self._conduct = membership.parameters, membership.conduct
        self._rng = rng
        self._counts = counts
        self._seen = Duplicates()
        self._announcements = Announcements(self._limits)
        self._unacknowledged: dict[EventId, tuple[Rumour, dict[str, int]]] = {}

    # --- messages received ---------------------------------------------------------------------

    def publish(self, event: Notification) -> str:
        """Starts an event at the top; HPMCAST of figure 6.6. Returns a refusal, or no text."""
        if not self.buffers.has_room(event):
            return "buffers full"
        if not self._is_new(event_id(event)):
            return "published before"
        top = len(self._membership.view.tables)
        self._hold(HeldRumour(event, self._prob(top, event), 0, top, is_own=True))
        return ""

    def receive(self, rumour: Rumour) -> bool:
        """Buffers a new event; RECEIVE of the figures. Returns whether it is new."""
        publisher, identity = event_id(rumour.event)
        if not publisher or not identity:
            self.refused["no identity"] += 1
            return False
        if not self._is_new((publisher, identity)):
            self.duplicates += 1
            return False
        self._announcements.remove((publisher, identity))
        floods = self._conduct.floods_bottom and rumour.level == 1
        round_ = ROUNDS_MAX if floods else rumour.round
        self._hold(HeldRumour(rumour.event, rumour.prob, round_, rumour.level))
        return True

    def _is_new(self, identity: EventId) -> bool:
        """Returns whether this is the first copy of an event; records it."""
        # A flood may end the memory of an event that is still in transit.
        return self._seen.is_new(*identity) and self.buffers.find(identity) is None

    def has(self, identity: EventId) -> bool:
        """Returns whether an event was received or published here."""
        return self._seen.knows(*identity)

    def fetches(self, announced: Rumour, desires: Sequence[FilterSet]) -> bool:
        """Returns whether an announced event is to be fetched from its announcer.

        It is not if the announced attributes show that nobody here wants it: they include all
        attributes in the filters of this subsystem and of the participant.
        """
        identity = event_id(announced.event)
        if self._seen.knows(*identity):
            self.duplicates += 1
            return False
        names = frozenset(announced.names or ())
        if not self._conduct.broadcasts and announced.level > 1:
            view = self._membership.view
            held = view.table(announced.level).get(view.digit(announced.level))
            filters = [*desires] + ([held.filters] if held else [])
            is_known = held is not None and _names_of(filters) <= names
            if is_known and not any(is_interested(each, announced.event) for each in filters):
                self.refused["declined"] += 1
                return False
        return self._announcements.is_due(identity, self._membership.view.round)

    def whole(self, level: int, identity: EventId) -> Rumour | None:
        """Returns the whole event after an announcement or a digest, at the requested level."""
        held = self.buffers.find(identity)
        if held is None:
            self.refused["no such event"] += 1
            return None
        if held.level != level:
            return Rumour(held.event, 0.0, ROUNDS_MAX, level)
        return Rumour(held.event, held.prob, held.round, level)

    def accept_ack(self, identity: EventId, place: str) -> None:
        """Removes the receiver at a place from those that have not acknowledged."""
        if identity in self._unacknowledged:
            self._unacknowledged[identity][1].pop(place, None)

    def clear(self) -> None:
        """Drops all events."""
        self.buffers.clear()
        self._unacknowledged.clear()

    def _hold(self, rumour: HeldRumour) -> None:
        if not self.buffers.add(rumour):
            self.refused["buffers full"] += 1

    # --- rounds --------------------------------------------------------------------------------

    def round(self, mail: "Mail") -> None:
        """Sends the events of a round: the task Gossip of the figures."""
        for level in range(len(self._membership.view.tables), 0, -1):
            for rumour in self.buffers.at(level):
                self._gossip(level, rumour, mail)
        self.buffers.forget(self._membership.view.round)
        self._resend(mail)

    def _gossip(self, level: int, held: HeldRumour, mail: "Mail") -> None:
        """Does one round of one event at its level; after its last round it descends."""
        table = self._membership.view.table(level)
        known = table.known()
        counts = self._counts(level, held.event)
        me = self._membership.contact
        others = [each for each in known if each.contact != me]
        is_first = held.is_own and held.round == 0 and level > 1
        if is_first and self._begins_below(held, others, counts):
            self._descend(level, held)
            return
        hits = min(len(known), round(held.prob * len(known)))
        rounds = _rounds(self._parameters, level, max(len(known), hits), hits)
        if level == 1 and self._conduct.floods_bottom:
            if held.round < ROUNDS_MAX:
                self._send(held, filter(counts, others), mail)
            self._descend(level, held)
        elif held.round < rounds:
            held.round += 1
            chosen = self._rng.sample(others, min(self._parameters.fanout, len(others)))
            self._send(held, filter(counts, chosen), mail)
        elif exchanges_digests(self._parameters, hits) and not held.has_sent_digest:
            held.has_sent_digest = True
            for each in filter(counts, others):
                mail.known.setdefault(each.contact.place, []).append((level, *event_id(held.event)))
        else:
            self._descend(level, held)

    def _begins_below(
        self, held: HeldRumour, others: list[KnownContact], counts: Callable[[KnownContact], bool]
    ) -> bool:
        """Returns whether the publisher's event skips the top level, or is sent there reliably."""
        view = self._membership.view
        top = len(view.tables)
        if self._conduct.skips_first and not self._conduct.broadcasts:
            branch = view.address[:1]
            wants = [each for each in view.table(top).known() if counts(each)]
            if wants and all(each.contact.address[:1] == branch for each in wants):
                return True
        if not self._conduct.reliable_top:
            return False
        waiting = {each.contact.place: 0 for each in filter(counts, others)}
        if len(self._unacknowledged) >= self._limits.unacknowledged_max:
            return False
        rumour = Rumour(held.event, held.prob, ROUNDS_MAX, top, acknowledge=True)
        if waiting:
            self._unacknowledged[event_id(held.event)] = rumour, waiting
        return True

    def _resend(self, mail: "Mail") -> None:
        """Sends events again to the delegates of the top that have not acknowledged."""
        for identity, (rumour, waiting) in list(self._unacknowledged.items()):
            for place, times in list(waiting.items()):
                if times >= self._limits.resends_max:
                    del waiting[place]
                    self.refused["unacknowledged"] += 1
                    continue
                waiting[place] = times + 1
                mail.rumours.setdefault(place, []).append(rumour)
            if not waiting:
                del self._unacknowledged[identity]

    def _send(self, held: HeldRumour, to: Iterable[KnownContact], mail: "Mail") -> None:
        rumour: Rumour | None = None
        for each in to:
            if rumour is None:
                rumour = self._rumour(held)
            mail.rumours.setdefault(each.contact.place, []).append(rumour)

    def _rumour(self, held: HeldRumour) -> Rumour:
        """Returns the event for its level: whole, or announced."""
        names = None
        event = held.event
        if self._conduct.announces and held.level > 1:
            table = self._membership.view.table(held.level)
            asked = _names_of(held.filters for held in table.live())
            if len(asked) > self._limits.announced_names_max:
                return Rumour(event, held.prob, held.round, held.level)
            names = tuple(sorted(asked))
            named = {name: event[name] for name in names if name in event}
            event = Notification.from_attributes(named, b"", "", event.envelope)
        return Rumour(event, held.prob, held.round, held.level, names)

    def _descend(self, level: int, held: HeldRumour) -> None:
        """Moves an event to the next level, or keeps it for requests."""
        self.buffers.end(held)
        if level > 1:
            self._hold(HeldRumour(held.event, self._prob(level - 1, held.event), 0, level - 1))
        elif self._conduct.announces or self._parameters.digest:
            self.buffers.keep(held, self._membership.view.round)

    def _prob(self, level: int, event: Notification) -> float:
        """Returns the share of contacts of a level that count as interested: GETPROB."""
        known = self._membership.view.table(level).known()
        return sum(map(self._counts(level, event), known)) / len(known) if known else 0.0

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold. Cost: all events."""
        self.buffers.validate()


class Mail:
    """The messages of a round by place."""

    def __init__(self) -> None:
        self.rumours: dict[str, list[Rumour]] = {}
        self.known: dict[str, list[LevelId]] = {}
        self.digests: dict[str, Contact] = {}

    def messages(self, sender: Contact) -> Iterator[tuple[str, Contact | None, Gossip]]:
        """Yields the messages by place; the first to a place has the contact of its digest."""
        for place in dict.fromkeys((*self.digests, *self.rumours, *self.known)):
            rumours, known = _split_rumours(self.rumours.get(place, [])), self.known.get(place, [])
            contact = self.digests.get(place)
            for number in range(max(1, len(rumours), -(-len(known) // RUMOURS_SENT_MAX))):
                at = number * RUMOURS_SENT_MAX
                told = rumours[number] if number < len(rumours) else ()
                part = tuple(known[at : at + RUMOURS_SENT_MAX])
                yield place, contact, Gossip(sender, told, known=part)
                contact = None


def _split_rumours(rumours: list[Rumour]) -> list[tuple[Rumour, ...]]:
    parts: list[list[Rumour]] = []
    left = 0
    for rumour in rumours:
        size = size_of(rumour.event) + sum(4 * len(name) for name in rumour.names or ())
        if size > left or len(parts[-1]) == RUMOURS_SENT_MAX:
            parts.append([])
            left = max(_MESSAGE_EVENT_BYTES, size)
        left -= size
        parts[-1].append(rumour)
    return [tuple(part) for part in parts]


def _names_of(filters: Iterable[FilterSet]) -> frozenset[str]:
    """Returns the attributes in filters, without those of the envelope, which are always sent."""
    names = {name for each in filters for member in each.filters for name in member.sets}
    return frozenset(names.difference(ENVELOPE_SETS))
