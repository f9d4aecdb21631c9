"""`GossipNode`: one participant of a group, over UDP.

It drives an `Hpmcast`: a tick in each period P, received messages, and its effects. Each datagram
is checked in this order: size; group; rates; clock, number and seal; pieces; then the participant
checks the message. A refused datagram is not answered, but counted by reason.

Source: EPFL 2503 §6.4 to §6.6.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from contrada.delivery.backlog import QueueEntry
from contrada.errors import (
    AddressError,
    ConnectionFailedError,
    LimitError,
    ServiceClosedError,
    ServiceError,
    TooSlowError,
)
from contrada.gossip import gossip_messages as messages
from contrada.gossip.addresses import LogicalAddress
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.hpmcast import GossipStatistics, Hpmcast
from contrada.gossip.udp.datagram_seal import GroupKey, GroupSeal
from contrada.gossip.udp.fragments import DATAGRAM_BYTES_MAX, Reassembly, pieces_of
from contrada.gossip.udp.gossip_group import (
    GossipGroup,
    check_own_host,
    own_host,
    place_text,
    resolve_place,
    split_place,
)
from contrada.gossip.udp.rate_limits import Inflow, Outflow, Rates, UdpAddress
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.notification import Body
from contrada.service import (
    Item,
    WhenFull,
    filters_of,
    narrowing_of,
    publication_of,
    reader_of,
    residue_of,
)
from contrada.service.async_resource import AsyncResource
from contrada.service.clock import monotonic_us, wall_clock_us
from contrada.service.embedded_service import LocalQueue
from contrada.service.envelope_factory import EnvelopeFactory, with_identity
from contrada.service.loop_guards import check_loop, checked_when_full, running_loop
from contrada.service.queued_subscription import QueuedSubscription
from contrada.service.security.signatures import Signer
from contrada.service.subscription_queue import PUBLISH_WAIT_S, QUEUE_FULL, QueueSettings, entry_of

OVERSIZED: Final = "oversized"
_TAKEN: Final = "the address is taken"
_EPHEMERAL: Final = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """The counts of a node. `participant` counts messages, the others datagrams.

    `refused` counts inputs by reason, with those of the participant; `dropped` counts unsent
    outputs. `senders` are remembered against replay; `incomplete` messages lack pieces.
    """

    place: str
    address: LogicalAddress
    participant: GossipStatistics
    published: int
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    refused: Mapping[str, int]
    dropped: Mapping[str, int]
    senders: int
    incomplete: int
    waiting_bytes: int


class _UdpEnd(asyncio.DatagramProtocol):
    """Forwards the callbacks of the socket to a node."""

    def __init__(self, node: "GossipNode") -> None:
        self._node = node

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._node.on_datagram(data, (addr[0], addr[1]))

    def error_received(self, exc: Exception) -> None:
        self._node.refused[f"socket: {getattr(exc, 'strerror', None) or exc}"] += 1

    def pause_writing(self) -> None:
        self._node.outflow.pause()

    def resume_writing(self) -> None:
        self._node.outflow.resume()


class GossipNode(AsyncResource):
    """A participant of a group, in the group inside `async with`.

    Delivery is best effort, with the probability that `contrada.lab.analysis` computes.
    """

    def __init__(
        self,
        key: GroupKey,
        group: GossipGroup | None = None,
        *,
        join: Sequence[str] = (),
        at: str | None = None,
        address: LogicalAddress | None = None,
        publisher: str | Signer | None = None,
        rates: Rates | None = None,
        limits: GossipLimits = GossipLimits(),
    ) -> None:
        """`join` has places of participants, of which one suffices; without any, a group starts.

        `at` is the place of this one, by default a free port of the IP address that reaches the
        first of `join`, else of 127.0.0.1. `address` is its address in the hierarchy, by default
        random. Raises AddressError, InvalidValueError, ServiceError.
        """
        self.group = group if group is not None else GossipGroup()
        if address is not None:
            self.group.addresses.check(address)
        for each in join:
            split_place(each)
        self._join = tuple(join)
        self._at = at
        self._address = address
        self.limits = limits
        self._rates = rates or Rates()
        self._stamp = EnvelopeFactory(publisher)
        self._seal = GroupSeal(key, self.group.agreed, senders_max=limits.senders_max)
        self._assembling = Reassembly(limits)
        self._inflow = Inflow(self._rates, monotonic_us(), limits.places_rated_max)
        self.outflow = Outflow(self._rates, self._transmit, monotonic_us, limits.unsent_bytes_max)
        self.refused: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._subscriptions: dict[str, GroupSubscription] = {}
        self._places: dict[str, UdpAddress] = {}
        self._messages = self._identities = 0
        self._participant: Hpmcast | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._joined: asyncio.Future[str] | None = None
        self._ticked: asyncio.Event = asyncio.Event()
        self._opening = asyncio.Lock()
        self._is_closed = False

    # --- being in the group ----------------------------------------------------------------------

    async def open(self) -> None:
        """Enters the group.

        Raises AddressError, ServiceError, and ConnectionFailedError where no participant
        answers.
        """
        async with self._opening:
            if self._is_closed:
                raise ServiceClosedError("this participant has left; make another")
            if self._transport is not None:
                check_loop(self._loop)
                return
            self._loop = running_loop()
            towards = [await resolve_place(each) for each in self._join]
            try:
                await self._bind(towards)
                if self._is_closed:  # It has left meanwhile, without a socket to close.
                    raise ServiceClosedError("this participant has left; make another")
                await self._enter(towards)
            except BaseException:
                self._close()
                raise

    async def _bind(self, towards: list[UdpAddress]) -> None:
        host, port = split_place(self._at, 0) if self._at else split_place(_EPHEMERAL)
        if self._at is None and towards:
            host = own_host(towards[0])
        assert self._loop is not None, "it is being opened"
        try:
            self._transport, _ = await self._loop.create_datagram_endpoint(
                lambda: _UdpEnd(self), local_addr=(check_own_host(host), port)
            )
        except OSError as error:
            reason = f"a place that this machine can have ({error.strerror or error})"
            raise AddressError(place_text((host, port)), reason) from None
        name = self._transport.get_extra_info("sockname")
        self.place = place_text((name[0], name[1]))

    async def _enter(self, towards: list[UdpAddress]) -> None:
        """Asks for a place until it is admitted; tries another address where one is taken."""
        places = tuple(map(place_text, towards))
        addresses, refusal = self.group.addresses, _TAKEN
        for _ in range(self.limits.addresses_drawn_max):
            address = self._address or addresses.of_number(secrets.randbelow(addresses.size))
            chance = secrets.SystemRandom()
            self._participant = self.group.participant(address, self.place, chance, self.limits)
            self._joined = running_loop().create_future()
            if self._timer is None:
                self._plan(first=True)
            self.handle(messages.JoinGroup(places))
            try:
                async with asyncio.timeout(self.limits.group_join_wait_s):
                    refusal = await self._joined
            except TimeoutError:
                raise ConnectionFailedError(", ".join(places), self._why_not()) from None
            if not refusal:
                return
            if refusal != _TAKEN or self._address is not None:
                break
        raise ServiceError(f"{place_text(towards[0])} does not let this in: {refusal}")

    def _why_not(self) -> str:
        reason = (
            f"no participant let this in for {self.limits.group_join_wait_s:g} s; it is reached at "
            f"{self.place}: are key, protocol and parameters the same there, and the clocks?"
        )
        heard = ", ".join(f"{count} {reason}" for reason, count in self.refused.items())
        return f"{reason} Refused datagrams: {heard}" if heard else reason

    async def aclose(self) -> None:
        """Leaves the group; iterations end after their queues. Twice is once."""
        if self._transport is not None and not self._is_closed:
            check_loop(self._loop)
            for subscription in list(self._subscriptions.values()):
                subscription.end()
            self._is_closed = True
            self.handle(messages.LeaveGroup())
            await self.outflow.wait_empty(self.limits.leave_wait_s)
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.outflow.close()
        self._ticked.set()
        if self._transport is not None:
            self._transport.close()

    def require_open(self) -> None:
        """Raises unless it is in the group."""
        if self._is_closed:
            raise ServiceClosedError("this participant has left")
        _ = self.participant
        check_loop(self._loop)

    @property
    def participant(self) -> Hpmcast:
        """The state machine. Raises ServiceError before it is open."""
        if self._participant is None:
            raise ServiceError("use the participant inside `async with`")
        return self._participant

    # --- calls of the user -----------------------------------------------------------------------

    async def publish(
        self,
        item: Item,
        *,
        body: Body = b"",
        content_type: str = "",
        ttl_s: float | None = None,
        priority: int | None = None,
    ) -> Envelope:
        """Multicasts one notification; an identity is kept, and sent once.

        Waits while many events are in transit. Raises as `Service.publish`; ServiceError where the
        group refuses it.
        """
        notification = publication_of(
            item, {"body": body, "content_type": content_type, "ttl_s": ttl_s, "priority": priority}
        )
        self.require_open()
        await self._room()
        (stamped,) = self._stamp.stamped((with_identity(notification),), self._stamp.now_us())
        refusal = self.handle(messages.Multicast(stamped))
        if refusal and refusal != "published before":
            raise ServiceError(f"the group does not take {stamped.envelope.id}: {refusal}")
        self._counts["published"] += not refusal
        return stamped.envelope

    async def _room(self) -> None:
        buffers = self.participant.dissemination.buffers
        try:
            await self._until_fewer(self.limits.events_in_transit_max, PUBLISH_WAIT_S)
            self.require_open()
        except TimeoutError:
            held = f"{len(buffers)} events are under way here"
            raise ServiceError(f"{held}, and no fewer after {PUBLISH_WAIT_S:g} s") from None

    async def _until_fewer(self, events: int, wait_s: float) -> None:
        """Waits until fewer events are in transit, or this has left. Raises TimeoutError."""
        async with asyncio.timeout(wait_s):
            while len(self.participant.dissemination.buffers) >= events and not self._is_closed:
                self._ticked.clear()
                await self._ticked.wait()

    async def spread(self, wait_s: float | None = None) -> None:
        """Waits, for a bounded time, until no event is in transit here: else they are lost."""
        with suppress(TimeoutError):
            await self._until_fewer(1, self.limits.spread_wait_s if wait_s is None else wait_s)

    def subscribe(
        self, subject: Any, where: Any = None, *, when_full: WhenFull = "drop-newest"
    ) -> "GroupSubscription":
        """Returns a subscription, in force inside `async with`; see `Service.subscribe`.

        A group does not wait: `block` drops the newest. All know the subscription after some
        rounds.
        """
        where = narrowing_of(subject, where)
        filters, residue = filters_of(subject, where), residue_of(subject, where)
        settled = checked_when_full(when_full)
        return GroupSubscription(self, filters, reader_of(subject), residue, settled)

    def new_identity(self) -> str:
        """Returns a unique name for a subscription."""
        self._identities += 1
        return str(self._identities)

    def enter(self, identity: str, filters: FilterSet, subscription: "GroupSubscription") -> None:
        """Adds a subscription. Raises ServiceError where it is refused."""
        self.require_open()
        if refusal := self.handle(messages.AddInterest(identity, filters)):
            raise ServiceError(f"the group does not take the subscription: {refusal}")
        self._subscriptions[identity] = subscription

    def leave(self, identity: str) -> None:
        """Removes a subscription."""
        if self._subscriptions.pop(identity, None) is not None and not self._is_closed:
            self.handle(messages.RemoveInterest(identity))

    def now_us(self) -> int:
        """Returns the time of publications."""
        return self._stamp.now_us()

    # --- the participant -------------------------------------------------------------------------

    def handle(self, event: messages.GossipEvent) -> str:
        """Handles an event and its effects. Returns a refusal, or an empty text."""
        refusal = ""
        for effect in self.participant.handle(event, self._stamp.now_us()):
            if isinstance(effect, messages.TurnedDown) and effect.event is event:
                refusal = effect.reason
            self._carry_out(effect)
        return refusal

    def _carry_out(self, effect: messages.GossipEffect) -> None:
        match effect:
            case messages.SendGossip(place, message):
                self._send(place, message)
            case messages.GiveEvent(event):
                for subscription in list(self._subscriptions.values()):
                    subscription.give(event)
            case messages.Joined():
                self._settle_join("")
            case messages.TurnedDown(messages.Datagram(), reason):
                self._settle_join(reason)
            case messages.TurnedDown():
                pass  # `handle` returns it to its caller.

    def _settle_join(self, refusal: str) -> None:
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(refusal)

    def _plan(self, *, first: bool = False) -> None:
        period_s = self.group.parameters.period_us / 1e6
        wait_s = period_s * secrets.randbelow(1000) / 1000 if first else period_s
        assert self._loop is not None, "it is open"
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._plan()
        self._assembling.forget(monotonic_us())
        self.handle(messages.Tick())
        self._ticked.set()

    # --- datagrams -------------------------------------------------------------------------------

    def on_datagram(self, datagram: bytes, source: UdpAddress) -> None:
        """Handles an untrusted datagram."""
        if self._is_closed or self._participant is None:
            return
        self._counts["received"] += 1
        self._counts["received_bytes"] += len(datagram)
        passed = monotonic_us()
        reason = OVERSIZED if len(datagram) > DATAGRAM_BYTES_MAX else self._seal.is_ours(datagram)
        reason = reason or self._inflow.refuses(source, len(datagram), passed)
        if reason:
            self.refused[reason] += 1
            return
        opened = self._seal.open(datagram, self.place, self._now_us(), passed)
        if isinstance(opened, str):
            self.refused[opened] += 1
            return
        place = place_text(source)
        message = self._assembling.take(opened.incarnation, place, opened.content, passed)
        if message is not None:
            self.handle(messages.Datagram(place, message))

    def _send(self, place: str, message: messages.GossipMessage) -> None:
        try:
            to = self._place_of(place)
            content = messages.encode_gossip(message)
        except AddressError:
            self.outflow.dropped["no place"] += 1
            return
        except LimitError:
            self.outflow.dropped[OVERSIZED] += 1
            return
        self._messages += 1
        self.outflow.put(pieces_of(content, self._messages), to)

    def _place_of(self, text: str) -> UdpAddress:
        """Returns the address of a place in a message. Raises AddressError."""
        found = self._places.get(text)
        if found is None:
            host, port = split_place(text, None)
            found = check_own_host(host), port
            if port == 0 or place_text(found) != text:
                raise AddressError(text, "a place by IP address")
            if len(self._places) >= self.limits.places_known_max:
                self._places.clear()
            self._places[text] = found
        return found

    def _transmit(self, piece: bytes, place: UdpAddress) -> None:
        if self._transport is not None and not self._transport.is_closing():
            datagram = self._seal.seal(piece, place_text(place), self._now_us())
            self._counts["sent"] += 1
            self._counts["sent_bytes"] += len(datagram)
            self._transport.sendto(datagram, place)

    def _now_us(self) -> int:
        return wall_clock_us()

    # --- statistics ------------------------------------------------------------------------------

    def statistics(self) -> NodeStatistics:
        """Returns the counts. Cost: the whole view."""
        participant = self.participant.statistics()
        counts = self._counts
        return NodeStatistics(
            self.place,
            self.participant.membership.contact.address,
            participant,
            counts["published"],
            counts["sent"],
            counts["sent_bytes"],
            counts["received"],
            counts["received_bytes"],
            dict(self.refused + self._assembling.refused + Counter(participant.refused)),
            dict(self.outflow.dropped),
            self._seal.senders,
            len(self._assembling),
            self.outflow.waiting_bytes,
        )


class GroupSubscription(QueuedSubscription[Any]):
    """A subscription to the events of a group."""

    def __init__(
        self,
        node: GossipNode,
        filters: Filter | FilterSet,
        reader: Callable[[Any], Any] | None,
        residue: Callable[[Notification], bool] | None,
        when_full: WhenFull,
    ) -> None:
        queue = LocalQueue(node.now_us, QueueSettings(when_full), self.cut_off)
        queue.keeper = self
        super().__init__(filters, queue, reader, residue)
        self._node = node
        self._identity = node.new_identity()

    def give(self, event: Notification) -> None:
        """Queues an event if it matches."""
        if not self.is_asked(event) or self.queue.finished:
            return
        entry = entry_of(event)
        if not self.queue.offer_all([entry]):  # Only where `block` would wait.
            self.count_dropped(QUEUE_FULL, 1)

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        """Counts notifications dropped in the queue."""
        self.count_dropped(reason, len(entries))

    def cut_off(self) -> None:
        """Ends the subscription, which does not keep up."""
        self.end(TooSlowError())
        self._node.leave(self._identity)

    async def _enter(self) -> None:
        self._node.enter(self._identity, FilterSet(self._filters), self)

    async def _replace(self) -> None:
        assert self._next is not None, "it is updated"
        self._node.enter(self._identity, FilterSet(self._next), self)

    async def _leave(self) -> None:
        with suppress(ServiceClosedError):
            self._node.leave(self._identity)
