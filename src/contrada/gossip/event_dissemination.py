"""`Dissemination`: what becomes of events at one participant, level by level.

    in a round     each event in a buffer is sent to those of F known ones, chosen at random, who
                   count as interested; after as many rounds as are expected it goes on a level
                   below, or is dropped
    on receipt     what is new is put into the buffer of its level

Who counts as interested is what the protocols differ in: it is handed in. What has come is
remembered after it was dropped, so that a late copy does not begin anew.

Source: EPFL 2503 §6.2, §6.5.1, figures 6.1, 6.2, 6.6; §6.5.4 (digests), §6.6.1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from contrada.gossip.condensation import interested
from contrada.gossip.gossip_messages import (
    NAMES_SENT_MAX,
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
from contrada.gossip.rumours import Announcements, HeldRumour, RumourBuffers, size_of
from contrada.gossip.views import KnownContact
from contrada.model import FilterSet, Notification
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.routing.duplicates import Duplicates

EVENT_BYTES_MAX: Final = 524_288
"""Bytes of the attributes and the body of what is multicast. Beyond it: turned down."""

RESENDS_MAX: Final = 10
"""Times that an event is sent to a delegate of the top that does not acknowledge it. Beyond it:
delivery to that delegate is left to the others of its subsystem."""

UNACKNOWLEDGED_MAX: Final = 256
"""Events that were sent to delegates of the top and are not acknowledged. Beyond it: the next is
gossiped there."""

_rounds: Final = lru_cache(maxsize=4_096)(expected_rounds)

Counts: TypeAlias = Callable[[int, Notification], Callable[[KnownContact], bool]]
"""Who counts as interested in an event at a level: event ◁ dest of the figures."""


class Dissemination:
    """The events under way at one participant. `refused` counts by reason."""

    def __init__(self, membership: GroupMembership, rng: Chance, counts: Counts) -> None:
        self.buffers = RumourBuffers(membership.view.space.levels)
        self.refused: Counter[str] = Counter()
        self.duplicates = 0
        self._membership = membership
        self._parameters, self._conduct = membership.parameters, membership.conduct
        self._rng = rng
        self._counts = counts
        self._seen = Duplicates()
        self._announcements = Announcements()
        self._unacknowledged: dict[EventId, tuple[Rumour, dict[str, int]]] = {}

    # --- what comes ----------------------------------------------------------------------------

    def publish(self, event: Notification) -> str:
        """Begins at the top; HPMCAST of figure 6.6. Why not; empty: it has begun."""
        if not self.buffers.has_room(event):
            return "buffers full"
        if not self._seen.is_new(*event_id(event)):
            return "published before"
        top = len(self._membership.view.tables)
        self._hold(HeldRumour(event, self._prob(top, event), 0, top, is_own=True))
        return ""

    def receive(self, rumour: Rumour) -> bool:
        """RECEIVE of the figures: buffers what is new. Whether it is."""
        publisher, identity = event_id(rumour.event)
        if not publisher or not identity:
            self.refused["no identity"] += 1
            return False
        if not self._seen.is_new(publisher, identity):
            self.duplicates += 1
            return False
        self._announcements.came((publisher, identity))
        floods = self._conduct.floods_bottom and rumour.level == 1
        round_ = ROUNDS_MAX if floods else rumour.round
        self._hold(HeldRumour(rumour.event, rumour.prob, round_, rumour.level))
        return True

    def has(self, identity: EventId) -> bool:
        """Whether an event has come here, or was published here, as far as is remembered."""
        return self._seen.knows(*identity)

    def fetches(self, announced: Rumour, desires: Sequence[FilterSet]) -> bool:
        """Whether an event that was only announced is to be fetched from its announcer.

        Not where the announced attributes already show that nobody here wants it: then they include
        all attributes that the line of this subsystem, and the participant's own filters, ask
        about.
        """
        identity = event_id(announced.event)
        if self._seen.knows(*identity):
            self.duplicates += 1
            return False
        names = frozenset(announced.names or ())
        if not self._conduct.broadcasts and announced.level > 1:
            held = self._membership.view.table(announced.level).get(
                self._membership.view.digit(announced.level)
            )
            filters = [*desires] + ([held.filters] if held else [])
            if (
                held is not None
                and _names_of(filters) <= names
                and not any(interested(each, announced.event) for each in filters)
            ):
                self.refused["declined"] += 1
                return False
        return self._announcements.is_due(identity, self._membership.view.round)

    def whole(self, level: int, identity: EventId) -> Rumour | None:
        """The whole event that was announced, or named in a digest, as it is at the level asked
        for.
        """
        held = self.buffers.find(identity)
        if held is None:
            self.refused["no such event"] += 1
            return None
        if held.level != level:
            return Rumour(held.event, 0.0, ROUNDS_MAX, level)
        return Rumour(held.event, held.prob, held.round, level)

    def acknowledged(self, identity: EventId, place: str) -> None:
        """An event has come to who is at a place."""
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
        """The task Gossip of the figures."""
        for level in range(len(self._membership.view.tables), 0, -1):
            for rumour in self.buffers.at(level):
                self._gossip(level, rumour, mail)
        self.buffers.forget(self._membership.view.round)
        self._resend(mail)

    def _gossip(self, level: int, held: HeldRumour, mail: "Mail") -> None:
        """One round of one event at its level; after its last round there it goes a level down."""
        table = self._membership.view.table(level)
        known = table.known()
        counts = self._counts(level, held.event)
        me = self._membership.contact
        others = [each for each in known if each.contact != me]
        is_first = held.is_own and held.round == 0 and level > 1
        if is_first and self._begins_below(held, others, counts):
            self._go_down(level, held)
            return
        hits = min(len(known), round(held.prob * len(known)))
        rounds = _rounds(self._parameters, level, max(len(known), hits), hits)
        if level == 1 and self._conduct.floods_bottom:
            if held.round < ROUNDS_MAX:
                self._send(held, filter(counts, others), mail)
            self._go_down(level, held)
        elif held.round < rounds:
            held.round += 1
            chosen = self._rng.sample(others, min(self._parameters.fanout, len(others)))
            self._send(held, filter(counts, chosen), mail)
        elif exchanges_digests(self._parameters, hits) and not held.has_told:
            held.has_told = True
            for each in filter(counts, others):
                mail.known.setdefault(each.contact.place, []).append((level, *event_id(held.event)))
        else:
            self._go_down(level, held)

    def _begins_below(
        self,
        held: HeldRumour,
        others: list[KnownContact],
        counts: Callable[[KnownContact], bool],
    ) -> bool:
        """Whether who publishes leaves the top level at once, or has a surer protocol do it."""
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
        if len(self._unacknowledged) >= UNACKNOWLEDGED_MAX:
            return False
        rumour = Rumour(held.event, held.prob, ROUNDS_MAX, top, acknowledge=True)
        if waiting:
            self._unacknowledged[event_id(held.event)] = rumour, waiting
        return True

    def _resend(self, mail: "Mail") -> None:
        """The surer protocol of the top: again to all who have not acknowledged."""
        for identity, (rumour, waiting) in list(self._unacknowledged.items()):
            for place, times in list(waiting.items()):
                if times >= RESENDS_MAX:
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
        """An event as it is sent at its level: whole, or only announced."""
        names = None
        event = held.event
        if self._conduct.announces and held.level > 1:
            table = self._membership.view.table(held.level)
            asked = _names_of(held.filters for held in table.live())
            if len(asked) > NAMES_SENT_MAX:
                return Rumour(event, held.prob, held.round, held.level)
            names = tuple(sorted(asked))
            event = Notification.restored(
                {name: event[name] for name in names if name in event}, b"", "", event.envelope
            )
        return Rumour(event, held.prob, held.round, held.level, names)

    def _go_down(self, level: int, held: HeldRumour) -> None:
        """The rounds of a level are over: the next one below begins, or it is kept for a while."""
        self.buffers.end(held)
        if level > 1:
            self._hold(HeldRumour(held.event, self._prob(level - 1, held.event), 0, level - 1))
        elif self._conduct.announces or self._parameters.digest:
            self.buffers.keep(held, self._membership.view.round)

    def _prob(self, level: int, event: Notification) -> float:
        """GETPROB: the share of those known at a level who count as interested."""
        known = self._membership.view.table(level).known()
        return sum(map(self._counts(level, event), known)) / len(known) if known else 0.0

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold. Cost: all events."""
        self.buffers.validate()
        for rumour in self.buffers:
            assert self.has(event_id(rumour.event)), "what is held has come"


class Mail:
    """What goes to each place in a round."""

    def __init__(self) -> None:
        self.rumours: dict[str, list[Rumour]] = {}
        self.known: dict[str, list[LevelId]] = {}
        self.digests: dict[str, Contact] = {}

    def posted(self, sender: Contact) -> Iterator[tuple[str, Contact | None, Gossip]]:
        """The messages, with their places; the first to a place with whom its digest is for."""
        for place in dict.fromkeys((*self.digests, *self.rumours, *self.known)):
            rumours, known = _parted(self.rumours.get(place, [])), self.known.get(place, [])
            contact = self.digests.get(place)
            for number in range(max(1, len(rumours), -(-len(known) // RUMOURS_SENT_MAX))):
                at = number * RUMOURS_SENT_MAX
                told = rumours[number] if number < len(rumours) else ()
                yield (
                    place,
                    contact,
                    Gossip(sender, told, known=tuple(known[at : at + RUMOURS_SENT_MAX])),
                )
                contact = None


def _parted(rumours: list[Rumour]) -> list[tuple[Rumour, ...]]:
    """The rumours to one place, in as many messages as they need."""
    parts: list[list[Rumour]] = []
    left = 0
    for rumour in rumours:
        size = size_of(rumour.event) + sum(4 * len(name) for name in rumour.names or ())
        if size > left or len(parts[-1]) == RUMOURS_SENT_MAX:
            parts.append([])
            left = max(EVENT_BYTES_MAX, size)
        left -= size
        parts[-1].append(rumour)
    return [tuple(part) for part in parts]


def _names_of(filters: Iterable[FilterSet]) -> frozenset[str]:
    """The attributes that filters ask about, but for the envelope's, which always travel."""
    names = {name for each in filters for member in each.filters for name in member.sets}
    return frozenset(names.difference(ENVELOPE_SETS))
