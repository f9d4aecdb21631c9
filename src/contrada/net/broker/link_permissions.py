"""`LinkPermissions`: the router messages that cross a link to a neighbour with limited rights.

    from it        Advertise     narrowed to its publish rights, or refused
                   Subscribe     unchanged: each notification for it is checked on delivery
    to it          Subscribe     only filters that meet its publish rights
                   Advertise     only offers that meet its subscribe rights
    both ways      all other router messages; no queries, patterns or reliable delivery

If a filter meets the publish rights, so do its coverers and merged filters. So the neighbour gets
all subscriptions that it may publish for. A router gives an identity to one product, until it is
withdrawn.
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

_CHECKED: Final = (Publish, Subscribe, Unsubscribe, Advertise, Unadvertise, AnnounceLinks, AckLinks)
"""The messages that may cross such a link. The content of others cannot be checked here."""

_ForwardedKey: TypeAlias = tuple[bool, str, str]


class LinkPermissions:
    """Filters the messages of one link; new rights need a new link."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self._forwarded: set[_ForwardedKey] = set()

    def is_allowed(self, message: Message) -> bool:
        """Returns whether messages of this kind may cross the link."""
        return isinstance(message, _CHECKED)

    def incoming(self, message: Message) -> Message:
        """Returns a message within the rights of the neighbour. Raises NotPermittedError."""
        if not isinstance(message, Advertise):
            return message
        offer = self._permit.allow_offer(message.offer)
        return message if offer is message.offer else structs.replace(message, offer=offer)

    def outgoing(self, message: Message) -> Message | None:
        """Returns the part of a message for the neighbour; None where nothing is left."""
        principal = self._permit.principal
        if isinstance(message, Subscribe):
            # An error here would leave the router half way through a change.
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
