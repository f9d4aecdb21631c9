"""`SessionOffers`: the advertisements of a client, and its subscription to changes of offers.

The difference between the present offers and those already sent is queued for the client, as for a
follower in one process (`service/offers.py`), and counts as held bytes.
"""

from collections.abc import Hashable
from itertools import islice
from typing import Final

from msgspec.structs import replace

from contrada.errors import FrameError, LimitError
from contrada.model.codec import to_msgpack
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.frames import Frame, Offers, Reply
from contrada.routing.router_messages import Advertise, Client, Follow, Offer, Unadvertise, Unfollow
from contrada.routing.tables.poset import form_of
from contrada.service.dispatcher import Dispatcher
from contrada.service.subscription_queue import ENTRY_BYTES

OFFERS_BYTES_MAX: Final = 256 * 1024
"""Bytes of advertisements after which a frame is full. Beyond it: the next frame has the rest."""

_ANSWER: Final = object()


class SessionOffers:
    """The advertisements of one client, and its subscription to changes."""

    def __init__(self, connection: ServerConnection, client: Client) -> None:
        self._connection, self._client = connection, client
        self._dispatcher = connection.broker.dispatcher
        self._identities: set[str] = set()
        self._queue: _OfferQueue | None = None

    def handle(self, number: int, message: Advertise | Unadvertise | Follow | Unfollow) -> None:
        """Handles a request, and answers it. Raises LimitError, ServiceError, FrameError."""
        match message:
            case Advertise():
                self._advertise(message)
            case Unadvertise():
                self._dispatcher.request(self._client, message)
                self._identities.discard(message.identity)
            case Follow():
                if self._queue is not None:
                    raise FrameError("repeated", "this connection follows advertisements already")
                self._queue = _OfferQueue(self._connection, self._dispatcher, number)
                return  # The answer follows the present advertisements.
            case Unfollow():
                self.end()
        self._connection.send(Reply(number))

    def withdraw_some(self) -> bool:
        """Withdraws one of the advertisements. Returns whether there are more."""
        if self._identities:
            self._dispatcher.request(self._client, Unadvertise(self._identities.pop()))
        return bool(self._identities)

    def _advertise(self, message: Advertise) -> None:
        if message.identity in self._identities:
            raise FrameError("repeated", f"advertisement {message.identity} is in force already")
        if len(self._identities) >= (most := self._connection.broker.limits.offers_per_client_max):
            raise LimitError("offers_per_client_max", most)
        with request_work():
            if self._connection.permit is not None:
                message = replace(message, offer=self._connection.permit.allow_offer(message.offer))
            self._dispatcher.request(self._client, message)
        self._identities.add(message.identity)

    def end(self) -> None:
        """Ends the subscription to changes."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()


class _OfferQueue:
    """The queue of changes: an offer that is gone, or None for a new one, by form."""

    def __init__(self, connection: ServerConnection, dispatcher: Dispatcher, number: int) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._number = number
        on_offer = dispatcher.on_offer.items()
        self._changes: dict[Hashable, Offer | None] = dict.fromkeys(
            form for form, offer in on_offer if self._is_readable(offer)
        )
        self._changes[_ANSWER] = None
        self._held = 0
        self._hold()
        dispatcher.followers[self._changed] = None
        connection.mark_ready(self)

    def __len__(self) -> int:
        return len(self._changes)

    def close(self) -> None:
        del self._dispatcher.followers[self._changed]
        self._connection.forget_feed(self)
        self._changes.clear()
        self._hold()

    def next_frame(self) -> Frame | None:
        """Returns the next frame of changes, or the answer; None where there is neither."""
        changes: list[tuple[bytes, bool]] = []
        taken, size = [], 0
        most = self._connection.broker.limits.offers_per_frame_max
        for form, gone in islice(self._changes.items(), most):
            if size >= OFFERS_BYTES_MAX or (changes and form is _ANSWER):
                break
            taken.append(form)
            if form is _ANSWER:
                break
            offer = self._dispatcher.on_offer[form] if gone is None else gone
            changes.append((to_msgpack(offer), gone is None))
            size += len(changes[-1][0])
        for form in taken:
            del self._changes[form]
        self._hold()
        if changes:
            return Offers(changes)
        return Reply(self._number) if taken else None

    def _changed(self, offer: Offer, is_on_offer: bool) -> None:
        if not self._is_readable(offer):
            return
        form = form_of(offer)
        if form in self._changes:
            del self._changes[form]  # The earlier change was not sent yet; the two cancel out.
        else:
            self._changes[form] = None if is_on_offer else offer
            self._connection.mark_ready(self)
        self._hold()

    def _is_readable(self, offer: Offer) -> bool:
        return self._connection.permit is None or self._connection.permit.may_hear(offer)

    def _hold(self) -> None:
        held = len(self._changes) * ENTRY_BYTES
        self._connection.budget.change(held - self._held)
        self._held = held
