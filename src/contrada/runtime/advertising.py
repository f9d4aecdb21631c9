"""Advertisements of the embedded service: one that stands, and what is on offer as it changes."""

import asyncio
from typing import Protocol

from contrada.errors import ServiceClosedError, ServiceError
from contrada.routing.messages import Client, Offer
from contrada.runtime.exchange import Exchange
from contrada.service import Advertisements, OfferChange, Offering


class AccessPoint(Protocol):
    """What advertisements need of the service that they belong to."""

    exchange: Exchange
    client: Client
    following: set["EmbeddedAdvertisements"]

    def require_open(self) -> None:
        """Raise unless the service is open."""

    def name_of_request(self) -> str:
        """An identity that no other request has."""
        ...


class EmbeddedOffering(Offering):
    """An advertisement of the embedded service."""

    def __init__(self, service: AccessPoint, offer: Offer) -> None:
        self._service = service
        self._offer = offer
        self._identity: str | None = None
        self._ended = False

    @property
    def offer(self) -> Offer:
        """What may be published."""
        return self._offer

    async def open(self) -> None:
        """Put it in force. Twice is once."""
        if self._ended:
            raise ServiceClosedError("this advertisement was withdrawn; advertise anew")
        if self._identity is None:
            self._service.require_open()
            identity = self._service.name_of_request()
            self._service.exchange.advertise(self._service.client, identity, self._offer)
            self._identity = identity

    async def unadvertise(self) -> None:
        """Withdraw it. Twice is once."""
        self._ended = True
        identity, self._identity = self._identity, None
        if identity is not None:
            self._service.exchange.unadvertise(self._service.client, identity, self._offer)


class EmbeddedAdvertisements(Advertisements):
    """What is on offer at the embedded service.

    Invariant: what waits is the difference between what is on offer and what was told.
    """

    def __init__(self, service: AccessPoint) -> None:
        self._service = service
        self._changes: dict[Offer, bool] = {}
        self._arrived = asyncio.Event()
        self._opened = False
        self._ended = False

    @property
    def current(self) -> tuple[Offer, ...]:
        """What is on offer at this moment."""
        return self._service.exchange.offers()

    async def open(self) -> None:
        """Begin to follow. Twice is once."""
        if self._ended:
            raise ServiceClosedError("these advertisements are followed no longer; ask anew")
        if self._opened:
            return
        self._service.require_open()
        self._changes = dict.fromkeys(self.current, True)
        self._service.exchange.followers[self._changed] = None
        self._service.following.add(self)
        self._opened = True

    async def aclose(self) -> None:
        """Follow no longer; iteration ends."""
        self._changes.clear()
        self.end()

    def end(self) -> None:
        """The service has ended: iteration ends after what waits."""
        self._ended = True
        self._arrived.set()
        self._service.exchange.followers.pop(self._changed, None)
        self._service.following.discard(self)

    def _changed(self, offer: Offer, is_on_offer: bool) -> None:
        if offer in self._changes:
            del self._changes[offer]  # It was not read yet, and is as it was before.
        else:
            self._changes[offer] = is_on_offer
            self._arrived.set()

    async def __anext__(self) -> OfferChange:
        if not self._opened and not self._ended:
            raise ServiceError("iterate advertisements inside their own `async with`")
        while not self._changes:
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        offer = next(iter(self._changes))
        return OfferChange(offer, self._changes.pop(offer))
