"""`Hpmcast`: one participant of a group, as a pure state machine; `Pmcast` and `Rfpbcast`.

An event is gossiped among the delegates of the top first, and descends level by level. A contact
counts as interested if its subsystem is. At each level the event has the number of rounds expected
to infect those (`rounds`). A digest and the events for one place share a message in each round.

Source: EPFL 2503 §6.2, §6.5.1, figures 6.1, 6.2, 6.6; §6.5.4 (a threshold D of the audience).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from contrada.errors import EncodingError, InvalidValueError
from contrada.gossip import gossip_messages as messages
from contrada.gossip.addresses import AddressSpace, distance
from contrada.gossip.condensation import is_interested
from contrada.gossip.event_dissemination import Dissemination, Mail
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.group_policy import Chance, GroupPolicy
from contrada.gossip.membership import GroupMembership, Outgoing
from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import with_digests
from contrada.gossip.views import KnownContact
from contrada.model import FilterSet, Notification

_DEFAULT: Final = GroupPolicy()


@dataclass(frozen=True, slots=True)
class GossipStatistics:
    """The counts of a participant.

    `known` counts others in its view, `buffered` events in transit. Of the received events,
    `delivered` were wanted and `forwarded` were not. `duplicates` were received before. `sent` and
    `received` count messages by kind, `refused` refusals by reason.
    """

    round: int
    known: int
    buffered: int
    delivered: int
    forwarded: int
    duplicates: int
    sent: Mapping[str, int]
    received: Mapping[str, int]
    refused: Mapping[str, int]


class Hpmcast:
    """A participant of hpmcast: `handle` takes an event and returns effects.

    All of a group have the same address space, parameters and policy. `contact` has the address and
    the place of this one. `rng` is the only source of randomness. `membership` has the view of the
    group, `dissemination` the multicast events. Raises InvalidValueError where l is not that of the
    addresses.
    """

    def __init__(
        self,
        contact: messages.Contact,
        space: AddressSpace,
        parameters: Parameters,
        rng: Chance,
        conduct: GroupPolicy = _DEFAULT,
        limits: GossipLimits = GossipLimits(),
    ) -> None:
        if space.levels != parameters.levels:
            raise InvalidValueError(parameters.levels, f"l: addresses have {space.levels} digits")
        self.parameters = with_digests(parameters)
        self.conduct = conduct
        self.membership = GroupMembership(contact, space, self.parameters, conduct, rng, limits)
        self._desires: dict[str, FilterSet] = {}
        self.dissemination = Dissemination(self.membership, rng, self._counts)
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._delivered = self._forwarded = 0

    # --- events --------------------------------------------------------------------------------

    def handle(self, event: messages.GossipEvent, now_us: int) -> list[messages.GossipEffect]:
        """Handles an event at a time. Returns the effects, in order.

        Invalid messages never raise; they are refused and counted. Cost of a tick: a match for each
        event and each chosen contact, and the digest of a view.
        """
        effects = self._handle(event, now_us)
        for effect in effects:
            if isinstance(effect, messages.SendGossip):
                self._sent[type(effect.message).__name__] += 1
        return effects

    def _handle(self, event: messages.GossipEvent, now_us: int) -> list[messages.GossipEffect]:
        match event:
            case messages.Tick():
                return self._tick(now_us)
            case messages.MessageReceived(place, message):
                return self._handle_message(event, place, message, now_us)
            case messages.Datagram(place, content):
                try:
                    message = messages.decode_gossip(content)
                except EncodingError:
                    self._refused["not a message"] += 1
                    return []
                return self._handle_message(event, place, message, now_us)
            case messages.Multicast(notification):
                return self._multicast(event, notification)
            case messages.AddInterest() | messages.RemoveInterest():
                return self._desire(event)
            case messages.JoinGroup(()) if self.membership.is_in:
                return self._turn_down(event, "in a group already")
            case messages.JoinGroup(places):
                if places:
                    return _sent(self.membership.join(places, now_us))
                self.membership.start_group(now_us)
                return [messages.Joined()]
            case messages.LeaveGroup():
                self.dissemination.clear()
                return _sent(self.membership.leave(now_us))

    def _desire(
        self, event: messages.AddInterest | messages.RemoveInterest
    ) -> list[messages.GossipEffect]:
        is_full = len(self._desires) >= self.membership.limits.interests_max
        if isinstance(event, messages.RemoveInterest):
            if self._desires.pop(event.identity, None) is None:
                return self._turn_down(event, "unknown identity")
        elif event.identity not in self._desires and is_full:
            return self._turn_down(event, "too many subscriptions")
        elif event.filters.unknown():
            return self._turn_down(event, "unknown operator")
        else:
            self._desires[event.identity] = event.filters
        self.membership.set_interests(list(self._desires.values()))
        return []

    def _multicast(
        self, cause: messages.Multicast, event: Notification
    ) -> list[messages.GossipEffect]:
        publisher, identity = messages.event_id(event)
        if not self.membership.is_in:
            return self._turn_down(cause, "not in a group")
        if not identity or not publisher:
            return self._turn_down(cause, "no identity")
        if len(event.span) + len(event.body) > self.membership.limits.event_bytes_max:
            return self._turn_down(cause, "too large")
        reason = self.dissemination.publish(event)
        if reason:
            return self._turn_down(cause, reason)
        return self._give(event)

    def _turn_down(self, event: messages.GossipEvent, reason: str) -> list[messages.GossipEffect]:
        self._refused[reason] += 1
        return [messages.TurnedDown(event, reason)]

    # --- messages ------------------------------------------------------------------------------

    def _handle_message(
        self,
        event: messages.MessageReceived | messages.Datagram,
        place: str,
        message: messages.GossipMessage,
        now_us: int,
    ) -> list[messages.GossipEffect]:
        membership, sender = self.membership, message.sender
        if not membership.view.space.holds(sender.address) or sender.place != place:
            self._refused["sender"] += 1
            return []
        self._received[type(message).__name__] += 1
        if isinstance(message, messages.Redirect | messages.Welcome | messages.TurnAway):
            return self._handle_joining(event, message, now_us)
        if not membership.is_in:
            self._refused["not in a group"] += 1
            return []
        is_own = sender.address == membership.contact.address
        if is_own and not isinstance(message, messages.AskJoin):
            self._refused["sender"] += 1
            return []
        membership.mark_alive(sender)
        match message:
            case messages.Gossip():
                return self._handle_gossip(message, now_us)
            case messages.Update():
                answer = membership.exchange.learn(message, now_us)
                return [messages.SendGossip(place, answer)] if answer else []
            case messages.AskJoin():
                return _sent(membership.admit(message, place, now_us))
            case messages.Probe():
                return [messages.SendGossip(place, messages.Alive(membership.contact))]
            case messages.AskWhole(_, ids):
                once = {(by, name): level for level, by, name in ids}
                pairs = once.items()
                found = [self.dissemination.whole(level, identity) for identity, level in pairs]
                gossips = (messages.Gossip(membership.contact, (each,)) for each in found if each)
                return [messages.SendGossip(place, each) for each in gossips]
            case messages.AckEvents(_, ids):
                for identity in ids:
                    self.dissemination.accept_ack(identity, place)
                return []
            case messages.Alive():
                return []

    def _handle_joining(
        self,
        event: messages.MessageReceived | messages.Datagram,
        message: messages.Redirect | messages.Welcome | messages.TurnAway,
        now_us: int,
    ) -> list[messages.GossipEffect]:
        match message:
            case messages.Redirect():
                self.membership.follow_redirect(message)
            case messages.Welcome():
                is_in = self.membership.accept_welcome(message, now_us)
                return [messages.Joined()] if is_in else []
            case messages.TurnAway(_, reason):
                if self.membership.accept_refusal():
                    return [messages.TurnedDown(event, reason)]
        return []

    def _handle_gossip(self, message: messages.Gossip, now_us: int) -> list[messages.GossipEffect]:
        effects: list[messages.GossipEffect] = []
        acknowledged: list[messages.EventId] = []
        wanted: list[messages.LevelId] = []
        me, place = self.membership.contact, message.sender.place
        apart = distance(me.address, message.sender.address)
        for rumour in message.rumours:
            if not apart <= rumour.level <= len(self.membership.view.tables):
                self._refused["level"] += 1
                continue
            if rumour.acknowledge:
                acknowledged.append(messages.event_id(rumour.event))
            if rumour.names is None:
                expires_us = rumour.event.envelope.expires_us
                if expires_us is not None and expires_us <= now_us:
                    self._refused["expired"] += 1
                elif self.dissemination.receive(rumour):
                    effects += self._give(rumour.event)
            elif self.dissemination.fetches(rumour, list(self._desires.values())):
                wanted.append((rumour.level, *messages.event_id(rumour.event)))
        wanted += [each for each in message.known if not self.dissemination.has(each[1:])]
        if acknowledged:
            effects.append(messages.SendGossip(place, messages.AckEvents(me, tuple(acknowledged))))
        if wanted:
            ids = tuple(wanted[: messages.RUMOURS_SENT_MAX])
            effects.append(messages.SendGossip(place, messages.AskWhole(me, ids)))
        if message.digest:
            answer = self.membership.exchange.compare(message.sender, message.digest, now_us)
            if answer is not None:
                effects.append(messages.SendGossip(place, answer))
        return effects

    def _give(self, event: Notification) -> list[messages.GossipEffect]:
        if any(is_interested(filters, event) for filters in self._desires.values()):
            self._delivered += 1
            return [messages.GiveEvent(event)]
        self._forwarded += 1
        return []

    # --- rounds --------------------------------------------------------------------------------

    def _tick(self, now_us: int) -> list[messages.GossipEffect]:
        effects = _sent(self.membership.advance(now_us))
        if not self.membership.is_in:
            return effects
        mail = Mail()
        self.dissemination.round(mail)
        for contact in self.membership.partners():
            mail.digests[contact.place] = contact
        for place, partner, message in mail.messages(self.membership.contact):
            if partner is not None:
                message = replace(message, digest=self.membership.digest_for(partner))
            effects.append(messages.SendGossip(place, message))
        return effects

    def _counts(self, level: int, event: Notification) -> Callable[[KnownContact], bool]:
        """Returns the contacts that count as interested at a level: event ◁ dest of the figures."""
        if self.conduct.broadcasts:
            return _anybody
        answers: dict[int, bool] = {}  # One evaluation for all delegates of a line.

        def wants(known: KnownContact) -> bool:
            key = id(known.filters)
            if key not in answers:
                answers[key] = is_interested(known.filters, event)
            return answers[key]

        least = self.parameters.audience
        if not least:
            return wants
        known = self.membership.view.table(level).known()
        if not 0 < sum(map(wants, known)) < least:
            return wants
        first = {each.contact for each in known[:least]}
        return lambda each: each.contact in first or wants(each)

    # --- statistics and validation -------------------------------------------------------------

    def statistics(self) -> GossipStatistics:
        """Returns the counts. Cost: the whole view."""
        return GossipStatistics(
            self.membership.view.round,
            len(self.membership.view.known() - {self.membership.contact}),
            len(self.dissemination.buffers),
            self._delivered,
            self._forwarded,
            self.dissemination.duplicates,
            dict(self._sent),
            dict(self._received),
            dict(self._refused + self.dissemination.refused + self.membership.exchange.refused),
        )

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold. Cost: the whole state."""
        self.membership.validate()
        self.dissemination.validate()


class Pmcast(Hpmcast):
    """Probabilistic multicast: hpmcast with one level. Raises InvalidValueError for more levels."""

    def __init__(
        self, contact: messages.Contact, space: AddressSpace, *given: Any, **named: Any
    ) -> None:
        if space.levels != 1:
            raise InvalidValueError(space.levels, "l: without a hierarchy an address is one digit")
        super().__init__(contact, space, *given, **named)


class Rfpbcast(Pmcast):
    """Probabilistic broadcast, filtered by the receiver: events are sent to any others."""

    def _counts(self, level: int, event: Notification) -> Callable[[KnownContact], bool]:
        return _anybody


def _anybody(_: KnownContact) -> bool:
    """Returns True: a broadcast evaluates no filter."""
    return True


def _sent(outgoing: Outgoing) -> list[messages.GossipEffect]:
    return [messages.SendGossip(place, message) for place, message in outgoing]
