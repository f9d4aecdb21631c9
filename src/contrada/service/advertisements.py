"""Advertisements of a service, and the advertisements that are on offer at it.

Source: PODC 2000 §2 (advertisements).
"""

from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass

from contrada.routing.router_messages import Offer
from contrada.service.async_resource import AsyncResource


@dataclass(frozen=True, slots=True)
class OfferChange:
    """Something is on offer now, or no longer."""

    offer: Offer
    is_on_offer: bool


class Offering(AsyncResource):
    """A standing advertisement: its service may publish this; use it inside `async with`.

    Source: PODC 2000 §2, `advertise` and `unadvertise`.
    """

    @property
    @abstractmethod
    def offer(self) -> Offer:
        """What may be published."""

    @abstractmethod
    async def unadvertise(self) -> None:
        """Withdraw it. Twice is once."""

    async def _end(self) -> None:
        await self.unadvertise()


class Advertisements(AsyncResource, AsyncIterator[OfferChange]):
    """The advertisements on offer at a service, and their changes; iterate inside its `async with`.

    First comes each advertisement that is on offer, then each change. An advertisement comes once,
    however many parties make it. A change that is undone before it was read does not come. So the
    queue never exceeds the advertisements on offer and those told of, and nothing is lost.

    Source: PODC 2000 §2 (advertisements).
    """

    @property
    @abstractmethod
    def current(self) -> tuple[Offer, ...]:
        """What is on offer at this moment. Cost: all of it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Follow no longer; iteration ends."""

    @abstractmethod
    async def __anext__(self) -> OfferChange:
        """The next change; ends when closed, or after what waits when the service is."""

    async def _end(self) -> None:
        await self.aclose()
