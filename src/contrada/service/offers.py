"""`HeldOffering` and `FollowedOffers`: advertisements of a service, and the list of all of them.

They use an `OfferBoard`: the dispatcher of an embedded service, or the broker of a client.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable

from contrada.errors import ContradaError, ServiceClosedError, ServiceError
from contrada.routing.router_messages import Advertise, Client, Offer, Unadvertise
from contrada.routing.tables.poset import form_of
from contrada.service.dispatcher import Dispatcher
from contrada.service.loop_guards import check_loop, running_loop
from contrada.service.query_interface import Advertisements, OfferChange, Offering


class OfferBoard(ABC):
    """The place where a service advertises, and reads the advertisements of others.

    `on_offer` has the advertisements on offer, by their form.
    """

    def __init__(self, on_offer: dict[Hashable, Offer]) -> None:
        self.on_offer = on_offer
        self._identities = itertools.count(1)
        self._following: dict[FollowedOffers, None] = {}

    @abstractmethod
    async def advertise(self, offer: Offer) -> str:
        """Puts an advertisement in force; returns its identity. Raises as `Offering`."""

    @abstractmethod
    async def unadvertise(self, identity: str) -> None:
        """Withdraws an advertisement in force."""

    @abstractmethod
    async def follow(self, following: "FollowedOffers") -> None:
        """Reports each change from now on; `on_offer` is complete when this returns."""

    async def unfollow(self, following: "FollowedOffers") -> None:
        """Stops reporting; a second call does nothing."""
        self._following.pop(following, None)

    def end(self, failure: ContradaError | None = None) -> None:
        """Ends all iterations with the service, after the queued changes."""
        following, self._following = self._following, {}
        for each in following:
            each.end(failure)

    def _report(self, offer: Offer, is_on_offer: bool) -> None:
        for each in self._following:
            each.changed(offer, is_on_offer)


class LocalOfferBoard(OfferBoard):
    """The advertisements of this process."""

    def __init__(
        self, dispatcher: Dispatcher, client: Client, require_open: Callable[[], None]
    ) -> None:
        super().__init__(dispatcher.on_offer)
        self._dispatcher, self._client, self._require_open = dispatcher, client, require_open
        dispatcher.followers[self._report] = None

    async def advertise(self, offer: Offer) -> str:
        self._require_open()
        identity = str(next(self._identities))
        self._dispatcher.request(self._client, Advertise(identity, offer))
        return identity

    async def unadvertise(self, identity: str) -> None:
        self._dispatcher.request(self._client, Unadvertise(identity))

    async def follow(self, following: "FollowedOffers") -> None:
        self._require_open()
        self._following[following] = None


class HeldOffering(Offering):
    """An advertisement of a service."""

    def __init__(self, board: OfferBoard, offer: Offer) -> None:
        self._board, self._offer = board, offer
        self._identity: str | None = None
        self._ended = False
        self._changing = asyncio.Lock()

    @property
    def offer(self) -> Offer:
        return self._offer

    async def open(self) -> None:
        async with self._changing:
            if self._ended:
                raise ServiceClosedError("this advertisement was withdrawn; advertise anew")
            if self._identity is None:
                self._identity = await self._board.advertise(self._offer)

    async def unadvertise(self) -> None:
        self._ended = True
        async with self._changing:  # An offer that is being opened is withdrawn then.
            identity, self._identity = self._identity, None
            if identity is not None:
                await self._board.unadvertise(identity)


class FollowedOffers(Advertisements):
    """The advertisements at a service, with changes.

    Invariant: the queued changes are the difference between the present and the reported state.
    """

    def __init__(self, board: OfferBoard) -> None:
        self._board = board
        self._changes: OrderedDict[Hashable, OfferChange] = OrderedDict()
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._opened = False
        self._ended = False
        self._failure: ContradaError | None = None

    @property
    def current(self) -> tuple[Offer, ...]:
        return tuple(self._board.on_offer.values())

    async def open(self) -> None:
        async with self._opening:
            if self._ended:
                raise ServiceClosedError("these advertisements are followed no longer; ask anew")
            if self._opened:
                return
            self._loop = running_loop()
            await self._board.follow(self)
            for form, offer in self._board.on_offer.items():
                self._changes[form] = OfferChange(offer, is_on_offer=True)
            self._opened = True

    async def aclose(self) -> None:
        self._changes.clear()
        self.end()
        async with self._opening:  # A follower that is being opened ends then.
            await self._board.unfollow(self)

    def end(self, failure: ContradaError | None = None) -> None:
        """Ends the iteration after the queued changes, with the failure if any."""
        if not self._ended:
            self._failure = failure
        self._ended = True
        self._arrived.set()

    def changed(self, offer: Offer, is_on_offer: bool) -> None:
        """Queues a change."""
        form = form_of(offer)
        if form in self._changes:
            del self._changes[form]  # The change before was not read yet; the two cancel out.
        elif not self._ended:
            self._changes[form] = OfferChange(offer, is_on_offer)
            self._arrived.set()

    async def __anext__(self) -> OfferChange:
        if not self._opened and not self._ended:
            raise ServiceError("iterate advertisements inside their own `async with`")
        while not self._changes:
            if self._ended:
                if self._failure is not None:
                    raise self._failure.copy()
                raise StopAsyncIteration
            check_loop(self._loop)
            self._arrived.clear()
            await self._arrived.wait()
        return self._changes.popitem(last=False)[1]
