"""`RemoteOfferBoard`: the advertisements of a client, and the offers at its broker.

Advertisements keep their identity on the next connection. Its offers are compared with those
before, and followers get the difference.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Final, TypeVar

from contrada.errors import ConnectionFailedError, ContradaError, FrameError, ServiceError
from contrada.net.client.reconnection import Reconnection
from contrada.net.wire.frames import Offers, Reply
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.payload_codec import offer_from
from contrada.routing.router_messages import Advertise, Follow, Offer, Unadvertise, Unfollow
from contrada.routing.tables.poset import form_of
from contrada.service.offers import FollowedOffers, OfferBoard

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


async def refusals_of(
    asked: Iterable[tuple[T, asyncio.Future[Reply]]],
) -> AsyncIterator[tuple[T, ServiceError]]:
    """Yields refused requests with their errors. Raises ConnectionFailedError."""
    for what, answer in asked:
        try:
            await answer
        except ConnectionFailedError:
            raise
        except ServiceError as error:
            yield what, error


class RemoteOfferBoard(OfferBoard):
    """The offers at a broker."""

    def __init__(self, client: Reconnection) -> None:
        super().__init__({})
        self._client = client
        self._offered: dict[str, Offer] = {}
        self._lock = asyncio.Lock()
        self._is_followed = False
        self._initial: dict[Hashable, Offer] | None = None

    async def advertise(self, offer: Offer) -> str:
        await self._client.ready()
        identity = str(next(self._identities))
        message = encode_message(Advertise(identity, offer))
        self._offered[identity] = offer
        try:
            await self._client.request(message)
        except BaseException as error:
            del self._offered[identity]
            if isinstance(error, asyncio.CancelledError):
                # It may have been added; no caller waits.
                self._client.request_unanswered(encode_message(Unadvertise(identity)))
            raise
        return identity

    async def unadvertise(self, identity: str) -> None:
        if self._offered.pop(identity, None) is not None:
            await self._client.request_in_time(encode_message(Unadvertise(identity)))

    async def follow(self, following: FollowedOffers) -> None:
        async with self._lock:
            await self._client.ready()
            if not self._is_followed:
                await self._begin_to_follow()
                self._is_followed = True
            self._following[following] = None

    async def unfollow(self, following: FollowedOffers) -> None:
        self._following.pop(following, None)
        async with self._lock:
            if self._is_followed and not self._following:
                self._is_followed = False
                await self._client.request_in_time(encode_message(Unfollow()))
                self.on_offer.clear()

    async def resume(self) -> None:
        """Restores all advertisements at once on a new connection. Raises ConnectionFailedError."""
        asked = [
            (offer, self._client.request(encode_message(Advertise(identity, offer))))
            for identity, offer in self._offered.items()
        ]
        async for offer, error in refusals_of(asked):
            _LOG.warning(
                "%(advertisement)s is not advertised any longer: %(reason)s",
                {"advertisement": offer, "reason": error},
            )
        if self._is_followed:
            await self._begin_to_follow()

    def on_offers(self, frame: Offers) -> None:
        """Handles changes of the offers."""
        for data, is_on_offer in frame.changes:
            try:
                offer = offer_from(data)
            except ContradaError as error:
                raise FrameError("malformed", f"an advertisement: {error}") from None
            if self._initial is None:
                self._change(form_of(offer), offer, is_on_offer)
            elif is_on_offer:
                self._initial[form_of(offer)] = offer
            else:
                self._initial.pop(form_of(offer), None)

    async def _begin_to_follow(self) -> None:
        self._initial = {}
        try:
            await self._client.request(encode_message(Follow()))
            now, before = self._initial, dict(self.on_offer)
        except asyncio.CancelledError:
            # The broker may report, but nobody follows.
            self._client.request_unanswered(encode_message(Unfollow()))
            raise
        finally:
            self._initial = None
        for form in before.keys() - now.keys():
            self._change(form, before[form], is_on_offer=False)
        for form, offer in now.items():
            if form not in before:
                self._change(form, offer, is_on_offer=True)

    def _change(self, form: Hashable, offer: Offer, is_on_offer: bool) -> None:
        if is_on_offer:
            self.on_offer[form] = offer
        else:
            self.on_offer.pop(form, None)
        self._report(offer, is_on_offer)
