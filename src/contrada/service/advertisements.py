"""`Offering` and `Advertisements`: the advertisements of a service, and the list of all of them.

Source: PODC 2000 §2 (advertisements).
"""

from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass

from contrada.routing.router_messages import Offer
from contrada.service.async_resource import AsyncResource


@dataclass(frozen=True, slots=True)
class OfferChange:
    """An advertisement that is on offer from now on, or no longer."""

    offer: Offer
    is_on_offer: bool


class Offering(AsyncResource):
    """An advertisement of a service; use it inside `async with`.

    Source: PODC 2000 §2, `advertise` and `unadvertise`.
    """

    @property
    @abstractmethod
    def offer(self) -> Offer:
        """The advertised notifications."""

    @abstractmethod
    async def unadvertise(self) -> None:
        """Withdraws it. A second call does nothing."""

    async def aclose(self) -> None:
        """Ends it, as `unadvertise`."""
        await self.unadvertise()


class Advertisements(AsyncResource, AsyncIterator[OfferChange]):
    """The advertisements on offer at a service, and their changes; iterate inside its `async with`.

    The iteration gives each advertisement on offer, then each change. Equal advertisements of
    several parties are given once. A change that is undone before it was read is not given. So the
    queue never exceeds the advertisements on offer and those reported, and nothing is lost.

    Source: PODC 2000 §2 (advertisements).
    """

    @property
    @abstractmethod
    def current(self) -> tuple[Offer, ...]:
        """The advertisements on offer now. Cost: a copy of all."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stops following; iteration ends."""

    @abstractmethod
    async def __anext__(self) -> OfferChange:
        """The next change; ends when closed, or with the service after the queued changes."""
