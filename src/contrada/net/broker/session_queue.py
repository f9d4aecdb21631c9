"""`SessionQueue`: the queue of a client's subscription at a broker, with its credit.

A bundle that matches as a whole is held as it arrived, and its items are copied into a Delivery
together: a step for each of its notifications would cost more than their match. Everything but the
next Delivery makes entries of the bundles first, so all rules of `SubscriptionQueue` hold.

Invariant: while bundles are held there are no entries; and a bundle is at least half of the message
that it keeps in memory.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any, Final, Protocol

import msgspec

from contrada.delivery.backlog import QueueEntry
from contrada.matching.packed import Bundle
from contrada.model.codec import notification_from_msgpack, published_us
from contrada.net.broker.ingress_queue import UndecidedNotification
from contrada.net.broker.latencies import Latencies
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.user_usage import LossBudget
from contrada.net.wire import frames
from contrada.net.wire.payload_codec import encode_match, encoding_of
from contrada.routing.router_messages import Notifications
from contrada.service import trace_spans
from contrada.service.dispatch_routes import Route
from contrada.service.loop_guards import checked_when_full
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import (
    BLOCK,
    DROP_OLDEST,
    ENTRY_BYTES,
    QUEUE_FULL,
    Passed,
    SubscriptionQueue,
    entries_of,
)

DELIVER_NOTIFICATIONS_MAX: Final = 512
"""Notifications in a Delivery. Beyond it: the next Delivery has the rest."""

DELIVER_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a Delivery is full. Beyond it: the next has the rest."""

PASSED_ON_BYTES_MAX: Final = 64 * 1024
"""Bytes of a notification that may pass an empty queue. Beyond it: it is queued, so that the bounds
of the queues apply."""

CREDIT_MAX: Final = 2**40
"""Bytes of credit of a subscription. Beyond it: it is cut to this."""


class QueueOwner(Protocol):
    """The client of a queue."""

    connection: ServerConnection
    latencies: Latencies
    losses: LossBudget

    def cut_off(self, queue: "SessionQueue") -> None:
        """Ends a subscription that does not keep up."""


class SessionQueue(SubscriptionQueue[Passed]):
    """The queue of a subscription, with its remaining credit.

    While its reader is behind, `when_full` is `drop-oldest` instead of `block`.
    """

    __slots__ = ("_bundled", "_bundles", "_is_behind", "_owner", "credit", "route")

    route: Route[Passed]

    def __init__(self, owner: QueueOwner, request: frames.Request) -> None:
        """Raises ServiceError."""
        asked: Any = request.when_full
        when_full = checked_when_full(asked) if asked else BLOCK
        permit = owner.connection.permit
        if when_full == BLOCK and permit is not None and not permit.principal.may_block:
            when_full = DROP_OLDEST
        super().__init__(budget=owner.connection.budget, when_full=when_full)
        self.credit = min(max(request.credit, 0), CREDIT_MAX)
        self._owner = owner
        self._is_behind = False
        self._bundles: deque[tuple[Bundle, int]] | None = None
        self._bundled = 0

    def __len__(self) -> int:
        return self._bundled or (len(self._entries) if self._entries else 0)

    def take_whole(self, notifications: Notifications) -> bool:
        """Holds a bundle; a lone notification is written at once where nothing waits before it."""
        if type(notifications) is Bundle:
            return self.offer_bundle(notifications)
        if len(notifications) != 1:
            return False
        packed, envelope = notifications[0].packed, notifications[0].envelope
        line, size, route = self._line, ENTRY_BYTES + len(packed), self.route
        if (
            not packed  # Not encoded yet.
            or type(packed) is not bytes  # Undecided.
            or envelope.ttl_us is not None
            or size > PASSED_ON_BYTES_MAX
            or self._entries
            or self._bundles
            or self.finished
            or self.credit <= 0
            or (line and line.waiting)
            or trace_spans.is_on
        ):
            return False
        frame = frames.Delivery(route.identity, route.dropped, [packed], False, route.expired)
        if not self._owner.connection.pass_on(frame):
            return False
        self.credit -= size
        self._owner.latencies.observe(envelope.time_us or 0)
        return True

    def offer_bundle(self, bundle: Bundle) -> bool:
        """Adds a bundle, if there is room for all of it; else False."""
        line, bounds = self._line, self._bounds
        is_apart = self._entries or (line and line.waiting) or trace_spans.is_on
        if self.finished or is_apart or not bundle.is_in_message:
            return False
        count, encoded = len(bundle), bundle.encoded_bytes
        size = ENTRY_BYTES * count + encoded
        if (
            2 * encoded < bundle.joined_bytes  # A small part would keep all of its message.
            or self._bundled + count > bounds.notifications
            or not self._has_bytes(size)
        ):
            return False
        if self._bundles is None:
            self._bundles = deque()
        self._bundles.append((bundle, size))
        self._bundled += count
        self.held_bytes += size
        if self._budget is not None:
            self._budget.change(size)
        self._owner.connection.mark_ready(self)
        return True

    def _unbundle(self) -> None:
        held: deque[QueueEntry[Passed]] = deque()
        for bundle, _ in self._bundles or ():
            held.extend(entries_of(bundle))
        self._entries, self._bundles, self._bundled = held, None, 0
        self._taken(self.held_bytes - sum([size for _, size, _ in held]))

    def offer_all(self, entries: Sequence[QueueEntry[Passed]]) -> int:
        if self._bundles:
            self._unbundle()
        return SubscriptionQueue.offer_all(self, entries)

    async def put(self, entry: QueueEntry[Passed], wait_s: float, until_s: float = inf) -> bool:
        if self._bundles:
            self._unbundle()
        return await SubscriptionQueue.put(self, entry, wait_s, until_s)

    def discard(self) -> Sequence[QueueEntry[Passed]]:
        if self._bundles:
            self._unbundle()
        return SubscriptionQueue.discard(self)

    @property
    def is_held_up(self) -> bool:
        """Whether the client has granted no credit, or does not read its socket."""
        return self.credit <= 0 or self._owner.connection.is_write_paused

    def fall_behind(self) -> None:
        """Drops the oldest until there is ample room."""
        SubscriptionQueue.fall_behind(self)
        if self.when_full == BLOCK:
            self.when_full, self._is_behind = DROP_OLDEST, True

    def _relieve(self) -> None:
        if self._is_behind:
            self.when_full, self._is_behind = BLOCK, False
        SubscriptionQueue._relieve(self)

    def _append(self, entries: Sequence[QueueEntry[Passed]], size: int, is_plain: bool) -> None:
        SubscriptionQueue._append(self, entries, size, is_plain)
        self._owner.connection.mark_ready(self)

    def _overflow(self, entries: Sequence[QueueEntry[Passed]]) -> None:
        if self._owner.losses.charge():
            self._count_lost(QUEUE_FULL, entries)
            self.cut_off()
        else:
            SubscriptionQueue._overflow(self, entries)

    def cut_off(self) -> None:
        """Ends the subscription, which does not keep up."""
        self._owner.cut_off(self)

    def next_frame(self) -> frames.Delivery | frames.MatchDelivery | None:
        """Returns the next Delivery, within the credit; None where there is nothing to send."""
        if self._bundles:
            return self._frame_of_bundles(self._bundles) if self.credit > 0 else None
        most = min(self.credit, DELIVER_BYTES_MAX)
        batch, size = self.take_batch(DELIVER_NOTIFICATIONS_MAX, most)
        if not batch:
            return None
        self.credit -= size
        return self._frame_of(batch)

    def _frame_of_bundles(self, bundles: deque[tuple[Bundle, int]]) -> frames.Delivery:
        """Returns the next Delivery: of whole bundles, or of a part of the first one."""
        room, count = min(self.credit, DELIVER_BYTES_MAX), 0
        items: list[bytes] = []
        oldest_us = bundles[0][0].first_us
        while bundles and room > 0 and count < DELIVER_NOTIFICATIONS_MAX:
            bundle, held = bundles.popleft()
            size = ENTRY_BYTES * len(bundle) + bundle.encoded_bytes
            if size > room or count + len(bundle) > DELIVER_NOTIFICATIONS_MAX:
                if items:  # Not divided: a part costs a step for each notification.
                    bundles.appendleft((bundle, held))
                    break
                sums = [*accumulate(ENTRY_BYTES + each for each in bundle.sizes())]
                end = min(bisect_left(sums, room) + 1, DELIVER_NOTIFICATIONS_MAX)
                if end < len(bundle):  # The rest keeps the whole message, and is held as such.
                    bundles.appendleft((bundle[end:], held))
                    bundle, size, held = bundle[:end], sums[end - 1], 0
            items.append(bundle.items())
            count += len(bundle)
            room -= size
            self.credit -= size
            self._bundled -= len(bundle)
            self._taken(held)
        self._owner.latencies.observe(oldest_us)
        array: Any = msgspec.Raw(b"".join((b"\xdc", count.to_bytes(2, "big"), *items)))
        route = self.route
        return frames.Delivery(route.identity, route.dropped, array, False, route.expired)

    def _frame_of(self, batch: list[Any]) -> frames.Delivery | frames.MatchDelivery:
        # Mostly encodings, which need no call.
        packed = [
            each if type(each) is bytes else each.packed or encoding_of(each) for each in batch
        ]
        self._owner.latencies.observe(published_us(packed[0]))
        is_undecided = UndecidedNotification in map(type, packed)
        if is_undecided:
            packed = [bytes(each) for each in packed if self._is_readable([each])]
        route = self.route
        if trace_spans.is_on:
            node = self._owner.connection.broker.dispatcher.router.name
            trace_spans.trace_departures("deliver", node, route.client.name, packed)
        return frames.Delivery(route.identity, route.dropped, packed, is_undecided, route.expired)

    def _is_readable(self, packed: Sequence[bytes]) -> bool:
        """Returns whether the user may read notifications that were undecided at the router."""
        permit = self._owner.connection.permit
        if permit is None or UndecidedNotification not in map(type, packed):
            return True
        if not permit.unreadable([*map(notification_from_msgpack, packed)]):
            return True
        self._owner.connection.broker.dropped[NOT_PERMITTED] += len(packed)
        self.route.note_dropped(NOT_PERMITTED, [(each, len(each), None) for each in packed])
        self.credit += sum(ENTRY_BYTES + len(each) for each in packed)
        return False


class MatchQueue(SessionQueue):
    """The queue of a pattern subscription."""

    __slots__ = ()

    def _frame_of(self, batch: Sequence[Any]) -> frames.Delivery | frames.MatchDelivery:
        self._owner.latencies.observe(published_us(encoding_of(batch[0].notifications[0])))
        is_undecided = any(
            type(each.packed) is UndecidedNotification
            for match in batch
            for each in match.notifications
        )
        if is_undecided:
            batch = [it for it in batch if self._is_readable([*map(encoding_of, it.notifications)])]
        route = self.route
        matches = [*map(encode_match, batch)]
        return frames.MatchDelivery(
            route.identity, route.dropped, matches, is_undecided, route.expired
        )
