"""`NotificationForwarder`: forwards notifications to clients, neighbours and patterns.

    Publish ==> admitted ==> index ==> Deliver, and one copy per link with interest

The next hops of equal sets of matching filters are cached until the router clears the cache.

Source: PODC 2000 §4 (downstream replication).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Final

from msgspec.structs import replace

from contrada.matching.packed import Bundle
from contrada.model.algebra.product import product_covers
from contrada.model.languages.work_budget import spend
from contrada.routing import router_messages as messages
from contrada.routing.admission import Admission
from contrada.routing.assembly.assembler import Assembler
from contrada.routing.assembly.split_pattern import Action
from contrada.routing.interest_forwarder import InterestForwarder
from contrada.routing.links.topology import Topology
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Client, Effect, Notifications, Publish, RefusedError
from contrada.routing.tables.next_hop_cache import ITSELF, NOBODY, NextHopCache, NextHops

_FEW: Final = 8
"""Deliveries of a notification that are not charged as work."""

_PAIR_WORK: Final = 4
"""Steps of work to deliver a notification for a subscription."""

_COVER_WORK: Final = 4
"""Steps of work to test whether an advertisement covers a notification."""


class NotificationForwarder:
    """The notifications of one server; `admitted` and `expired` count them."""

    def __init__(
        self,
        topology: Topology,
        admission: Admission,
        forwarding: InterestForwarder,
        assembler: Assembler,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        self.next_hops = NextHopCache(forwarding.subscriptions.poset.node, limits)
        self.admitted = 0
        self.expired = 0
        self._name = topology.name
        self._is_selective = bool(topology.name) or forwarding.uses_advertisements
        """Whether an admitted message may have notifications that are refused."""
        self._floods = forwarding.floods
        self._topology = topology
        self._admission = admission
        self._forwarding = forwarding
        self._index = forwarding.subscriptions.index
        self._assembler = assembler

    def publish(
        self, origin: messages.Origin, message: Publish, now_us: int
    ) -> tuple[list[Effect], list[Action]]:
        """Delivers notifications, and sends one copy over each link with interest.

        Returns the effects, and the actions of the assembler. Consecutive notifications with the
        same next hops share one effect and one message, so a batch costs little more than its
        matching.
        """
        # A client's own message, without hops and source, passes all of these checks.
        is_sent_on = message.hops or message.source or message.version != messages.VERSION
        if is_sent_on or type(origin) is not Client or origin.name == ITSELF.name:
            self._admission.check_forwarded(origin, message)
        whole = message.notifications
        # Too much work raises here, before any change: the caller retries in parts.
        envelope = whole[0].envelope if type(whole) is tuple and len(whole) == 1 else None
        interests: Sequence[NextHops]
        if envelope is not None and envelope.ttl_us is None:  # As mostly, at half the cost.
            numbers = self._index.match(whole[0])
            in_time, interests = whole, (self.next_hops.find(numbers) if numbers else NOBODY,)
        else:
            in_time, interests = self._find_next_hops(whole, now_us)
        effects: list[Effect] = []
        admitted = in_time
        if self._is_selective:
            admitted, interests = self._admit(origin, message, in_time, interests, effects)
        if in_time is not whole:
            self.expired += len(whole) - len(in_time)
        assembler = self._assembler
        if envelope is not None and admitted and not assembler.by_origin and not self._floods:
            interest, time_us = interests[0], envelope.time_us
            latest_us = now_us + assembler.ahead_max_us
            is_here = not (interest.next_hops or interest.parts)
            if is_here and time_us is not None and assembler.learned_us <= time_us <= latest_us:
                # As mostly: for clients alone, and without patterns only the time advances.
                assembler.learned_us = time_us
                self.admitted += 1
                for client, identities in interest.clients:
                    effects.append(messages.Deliver(client, identities, admitted))
                return effects, []
        assembler.begin_turn(now_us)
        return effects, self._forward(origin, message, admitted, interests, effects)

    def _forward(
        self,
        origin: messages.Origin,
        message: Publish,
        admitted: Notifications,
        interests: Sequence[NextHops],
        effects: list[Effect],
    ) -> list[Action]:
        floods, assembler = self._floods, self._assembler
        onward: dict[messages.Neighbour, list[Notifications]] = {}
        actions: list[Action] = []
        for interest, batch in _group_by_next_hops(admitted, interests):
            self.admitted += len(batch)
            for client, identities in interest.clients:
                effects.append(messages.Deliver(client, identities, batch))
            if interest.next_hops or floods:
                next_hops = None if floods else interest.next_hops
                for neighbour in self._topology.next_neighbours(origin, message.source, next_hops):
                    onward.setdefault(neighbour, []).append(batch)
            # Patterns take notifications singly: each one may advance the time of others.
            if interest.parts:
                for each in batch:
                    actions += assembler.push(each, origin, interest.parts)
            else:
                actions += assembler.learn_all(_times_us(batch))
        if onward:
            effects += self._copies(message, onward)
        return actions

    def _copies(
        self, message: Publish, onward: dict[messages.Neighbour, list[Notifications]]
    ) -> Iterator[messages.Send]:
        for neighbour in sorted(onward):
            source = self._topology.source_over(neighbour, message.source)
            for copies in _concatenate(onward[neighbour]):
                further = replace(
                    message, notifications=copies, hops=message.hops + 1, source=source
                )
                yield messages.Send(neighbour, further)

    def _admit(
        self,
        origin: messages.Origin,
        message: Publish,
        notifications: Notifications,
        interests: Sequence[NextHops],
        effects: list[Effect],
    ) -> tuple[Notifications, Sequence[NextHops]]:
        """Returns the first copies that are advertised, with their next hops.

        Adds effects for the refused ones of the message. Raises LimitError before any change.
        """
        refused: dict[int, RefusedError] = {}
        if self._forwarding.uses_advertisements and isinstance(origin, Client):
            refused = self._find_unadvertised(origin, notifications)
        if self._name:
            for number, (sender, identity) in enumerate(_identities(notifications)):
                if number not in refused:
                    try:
                        self._admission.check_duplicate(Publish, sender, identity)
                    except RefusedError as refusal:
                        refused[number] = refusal
        if not refused:  # As mostly.
            return notifications, interests
        for number, why in sorted(refused.items()):
            event = messages.Received(
                origin, replace(message, notifications=(notifications[number],))
            )
            effects.append(messages.Refused(event, why.reason, why.error))
        admitted = [n for n in range(len(notifications)) if n not in refused]
        return tuple(notifications[n] for n in admitted), [interests[n] for n in admitted]

    def _find_unadvertised(
        self, publisher: Client, notifications: Notifications
    ) -> dict[int, RefusedError]:
        """Returns refusals of notifications outside the publisher's advertisements, by number."""
        offers = [node.product for node in self._forwarding.offers.nodes(publisher)]
        spend(_COVER_WORK * len(offers) * len(notifications))
        return {
            number: RefusedError(messages.Reason.NOT_ADVERTISED)
            for number, each in enumerate(notifications)
            if not any(product_covers(offer, each) for offer in offers)
        }

    def _find_next_hops(
        self, notifications: Notifications, now_us: int
    ) -> tuple[Notifications, Sequence[NextHops]]:
        """Returns the notifications that have not expired, and the next hops of each.

        The next hops are mostly one cached object. Raises LimitError.
        """
        in_time = _drop_expired(notifications, now_us)
        if len(in_time) == 1:  # At half the cost.
            numbers = self._index.match(in_time[0])
            return in_time, (self.next_hops.find(numbers) if numbers else NOBODY,)
        interests: list[NextHops] = []
        for numbers, count in self._index.match_runs(in_time):
            interest = self.next_hops.find(numbers) if numbers else NOBODY
            interests += [interest] * count
            if interest.delivery_count > _FEW:
                spend(_PAIR_WORK * interest.delivery_count * count)
        return in_time, interests


def _group_by_next_hops(
    notifications: Notifications, interests: Sequence[NextHops]
) -> Iterator[tuple[NextHops, Notifications]]:
    if interests and interests.count(interests[0]) == len(interests):
        yield interests[0], notifications  # As of most batches, without a step for each.
        return
    interest, begin = NOBODY, 0
    for end, found in enumerate(interests):
        if found is not interest:
            if end > begin:
                yield interest, notifications[begin:end]
            interest, begin = found, end
    if len(notifications) > begin:
        yield interest, notifications[begin:]


def _concatenate(batches: Iterable[Notifications]) -> Iterator[Notifications]:
    """Yields as few batches as these make in order; a bundle stays a bundle."""
    for is_bundle, run in groupby(batches, lambda each: type(each) is Bundle):
        if is_bundle:
            yield from run
        else:
            yield tuple(chain.from_iterable(run))


def _times_us(notifications: Notifications) -> Sequence[int]:
    if type(notifications) is Bundle:
        return notifications.times_us
    return [each.envelope.at_us for each in notifications]


def _identities(notifications: Notifications) -> Iterable[tuple[str, str]]:
    if type(notifications) is Bundle:
        return notifications.identities()
    return [(each.envelope.publisher, each.envelope.id) for each in notifications]


def _drop_expired(notifications: Notifications, now_us: int) -> Notifications:
    if type(notifications) is Bundle:
        return notifications
    for each in notifications:
        if each.envelope.ttl_us is not None:
            ends = [(it, it.envelope.expires_us) for it in notifications]
            return tuple(it for it, end_us in ends if end_us is None or now_us < end_us)
    return notifications  # The usual case: the same tuple.
