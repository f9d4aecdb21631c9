"""The messages of a link to a neighbour with limited rights: those it may send, and is sent.

    it says        Advertise     held to what it may publish: narrowed, or refused
                   Subscribe     as it is: what is delivered for it is looked at, one by one
    it is told     Subscribe     where it meets what it may publish: of the rest it learns nothing
                   Advertise     where it meets what it may read
    both ways      all other router messages; no questions, patterns or delivery above best effort

If a filter meets its publish filters, so do its coverers and merged filters. So the neighbour is
told of all subscriptions that it may publish for. Routers give an identity to one product, until
they withdraw it.
"""

from typing import Final, TypeAlias

from msgspec import structs

from contrada.model import FilterSet
from contrada.model.algebra.product import HeldProduct, product_meets
from contrada.model.languages.work_budget import Unbounded
from contrada.routing.router_messages import (
    AckLinks,
    Advertise,
    AnnounceLinks,
    Message,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from contrada.service.security.permits import Permit

_CHECKED: Final = (
    Publish,
    Subscribe,
    Unsubscribe,
    Advertise,
    Unadvertise,
    AnnounceLinks,
    AckLinks,
)
"""The messages that go over such a link. The content of others cannot be checked here."""

_ForwardedKey: TypeAlias = tuple[bool, str, str]


class LinkPermissions:
    """Looks at what goes over one link, whose permission stays as it is: else it is made anew."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self._forwarded: set[_ForwardedKey] = set()

    def is_allowed(self, message: Message) -> bool:
        """Whether something of its kind goes over the link, in either direction."""
        return isinstance(message, _CHECKED)

    def incoming(self, message: Message) -> Message:
        """What becomes of what it says. Raises NotPermittedError."""
        if not isinstance(message, Advertise):
            return message
        offer = self._permit.offered(message.offer)
        return message if offer is message.offer else structs.replace(message, offer=offer)

    def outgoing(self, message: Message) -> Message | None:
        """What of a message it is told; None for nothing. Cost: its filters, each with his."""
        principal = self._permit.principal
        if isinstance(message, Subscribe):
            # It is said in the middle of something, which must not end half way.
            with Unbounded():
                kept = [it for it in message.filters.filters if _meets(principal.publish, it)]
            if not kept:
                return None
            self._forwarded.add((True, message.owner, message.identity))
            if len(kept) == len(message.filters.filters):
                return message
            return structs.replace(message, filters=FilterSet(kept))
        if isinstance(message, Advertise):
            with Unbounded():
                if not _meets(principal.subscribe, message.offer):
                    return None
            self._forwarded.add((False, message.owner, message.identity))
        elif isinstance(message, Unsubscribe | Unadvertise):
            key = isinstance(message, Unsubscribe), message.owner, message.identity
            if key not in self._forwarded:
                return None
            self._forwarded.remove(key)
        return message


def _meets(filters: FilterSet, product: HeldProduct) -> bool:
    return any(product_meets(each, product) for each in filters.filters)
