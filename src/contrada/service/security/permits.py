"""What becomes of a wish: it is allowed, narrowed to what is allowed, or refused.

    wish                     allowed where                     narrowed to
    subscribe to filters     the subscribe filters cover them  the intersections
    a pattern                each of its filters is allowed    where each has one intersection
    a question               its alternatives are covered      the intersections
    an offer, a description  the publish filters meet it, and  where there is one intersection
                             it says nothing beyond them
    publish                  the publish filters cover it      never: it is refused

A notification with several values of an attribute is covered where it is with each of them alone,
in each combination: else `what = 'quote'` would let pass what is a quote and an alert, which those
get who ask for alerts. Who may read a notification, by one of its values, reads all of it.

Reading is decided again where something is handed over that did not come by a subscription: answers
and records. An answer that cannot be decided within the limits of the algebra is no.

Source: PODC 2000 §6 (security), §3 (relations).
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import count
from math import inf
from typing import Final, TypeAlias, TypeVar

from contrada.errors import LimitError, NotPermittedError, shortened
from contrada.matching import Index
from contrada.matching.packed import Bundle
from contrada.model import Advertisement, Filter, FilterSet, Notification, Pattern, Selection
from contrada.model.algebra.product import HeldProduct, product_meets
from contrada.model.algebra.value_set import ABSENT, of_keys
from contrada.model.domains.values import ENVELOPE_NAMES
from contrada.model.languages.work_budget import Work
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.disjuncts import Disjunct, alternative
from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX, Notifications, Offer
from contrada.service.security.principals import ANY_NAME, EVERYTHING, Principal, owns

T = TypeVar("T")

_Many: TypeAlias = Notifications | Sequence[Notification]

CHECK_WORK_MAX: Final = 50_000
"""Steps to check in one go whether a principal may publish, or read, several notifications. Beyond
it: fewer are checked in one go; a single notification that takes more is refused."""

READ_CHECKS_MAX: Final = 20
"""Goes in which it is checked whether a principal may read several notifications. Beyond it: the
rest is kept from it."""

SHARED_FILTERS_MAX: Final = 16
"""Publish filters of one principal that are checked one after the other. Beyond it: the principal
has an index of its own."""

_FEWER: Final = 8


class PublishFilters:
    """The publish filters of many principals in one index, to check those of one. For one thread.

    Shared parts, as names of attributes, are there once. If each principal had an index of its own,
    principals that publish in turns would evict each other's index from the caches.
    """

    def __init__(self) -> None:
        self._index: Index[int] = Index()
        # By the filters' `id`, which no other object gets while they are held: whether they are
        # few.
        self._held: dict[int, tuple[FilterSet, bool]] = {}

    def all_match(self, filters: FilterSet, bundle: Bundle) -> bool:
        """Whether each of a bundle matches one of the filters. No also where that takes longer."""
        key = id(filters)
        if key not in self._held:
            self._held[key] = filters, _are_few(filters)
            if _are_few(filters):
                self._index.add(key, filters)
        return self._held[key][1] and self._index.all_match(key, bundle, CHECK_WORK_MAX)


class Permit:
    """What one principal may do. Used by one thread."""

    def __init__(self, principal: Principal, publish: PublishFilters | None = None) -> None:
        """`publish` is shared by the principals of a broker."""
        self.principal = principal
        self.has_narrowed = False
        """Whether some wish was granted in part only, or refused, or something was kept from it."""
        self._writes = _Check(principal.publish, publish, is_covering=True)
        self._reads = _Check(principal.subscribe)
        self._names_any = ANY_NAME in principal.publishers

    # --- reading ------------------------------------------------------------------------------

    def subscribed(self, wish: Selection) -> Selection:
        """What it subscribes to. Raises NotPermittedError."""
        return self._granted(wish, "subscribe to")

    def watched(self, pattern: Pattern) -> Pattern:
        """The pattern that it subscribes to. Raises NotPermittedError."""
        granted = [self._granted(each, "subscribe to") for each in pattern.filters]
        parts = [self._one(each.filters, "subscribe to", whole=pattern) for each in granted]
        return Pattern(parts, by=pattern.by, within_us=pattern.within_us, every=pattern.every)

    def asked(self, alternatives: Sequence[Disjunct]) -> tuple[Disjunct, ...]:
        """What it asks sources for. Raises NotPermittedError."""
        granted: list[Disjunct] = []
        for each in alternatives:
            region = Filter.of_sets(each.query.sides)
            found = self._granted(region, "ask for")
            if found is region:
                granted.append(each)
            else:
                granted += (alternative(part.sides, each.same) for part in found.filters)
        if len(granted) > ALTERNATIVES_MAX:
            raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, len(granted))
        return tuple(granted)

    def readable(self, items: Sequence[Notification]) -> list[Notification]:
        """The notifications that the principal may read."""
        refused = self.unreadable(items)
        return [item for at, item in enumerate(items) if at not in refused]

    def unreadable(self, items: Sequence[Notification]) -> set[int]:
        """The positions of notifications that it may not read. Cost: one match of all."""
        looking = self._reads.refused(items, goes_max=READ_CHECKS_MAX)
        while True:
            try:
                next(looking)
            except StopIteration as end:
                return set(end.value)

    def may_hear(self, offer: Offer) -> bool:
        """Whether it is told of an offer: where it may subscribe to some of it."""
        if any(product_meets(each, offer) for each in self.principal.subscribe.filters):
            return True
        self.has_narrowed = True
        return False

    # --- writing ------------------------------------------------------------------------------

    def offered(self, offer: HeldProduct) -> Offer:
        """What it advertises, or describes. Raises NotPermittedError."""
        parts: list[Offer] = []
        for each in self.principal.publish.filters:
            if product_meets(each, offer):
                part = _offer_within(offer, each)
                if part == offer:
                    return part
                parts.append(part)
        if not self.principal.narrows or not parts:
            raise self._error("offer", offer)
        self.has_narrowed = True
        return self._one(parts, "offer", whole=offer)

    def unpublishable(self, notifications: _Many) -> Generator[None, None, list[int]]:
        """The positions of notifications that it may not publish. Cost: one match of all.

        Where it yields the others may have a turn.
        """
        refused = yield from self._writes.refused(notifications)
        if self._names_any:
            return refused
        mine = self.principal.publishers
        if isinstance(notifications, Bundle):
            if all(owns(mine, each) for each in notifications.publishers()):
                return refused
            said: Iterable[str] = (publisher for publisher, _ in notifications.identities())
        else:
            said = (each.envelope.publisher for each in notifications)
        strange = (at for at, publisher in enumerate(said) if not owns(mine, publisher))
        return sorted({*refused, *strange})

    def why_unpublishable(self, notification: Notification) -> NotPermittedError:
        """The error for a notification that the principal may not publish.

        It names attributes, but tells no values: brokers write it into their logs, too.
        """
        name, publisher = self.principal.name, notification.envelope.publisher
        if not owns(self.principal.publishers, publisher):
            return self._not_as(publisher, "publish")
        what = shortened(", ".join(sorted(notification))) or "no attributes"
        reason = "none of the publish filters matches it"
        if self.principal.publish.matches(notification):
            reason = "of several values it has to be allowed with each"
        return NotPermittedError(f"{name!r} may not publish a notification of {what}: {reason}")

    # --- names --------------------------------------------------------------------------------

    def check_durable(self, name: str) -> None:
        """Raises NotPermittedError where the name of a durable subscription is not its own."""
        if not owns(self.principal.durable, name):
            raise NotPermittedError(
                f"{self.principal.name!r} may not use the durable subscription {name!r}"
            )

    def check_publisher(self, name: str, what: str = "publish") -> None:
        """Raises NotPermittedError where it may not publish, ask or answer under a name."""
        if not owns(self.principal.publishers, name):
            raise self._not_as(name, what)

    def _not_as(self, name: str, what: str) -> NotPermittedError:
        mine = self.principal.publishers
        said = " or ".join(f"{each!r}, or below it: {each + '/…'!r}" for each in mine)
        reason = f"may not {what} as {name!r}; it may as {said or 'nobody'}"
        return NotPermittedError(f"{self.principal.name!r} {reason}")

    def check_inspect(self) -> None:
        """Raises NotPermittedError where it may not look at what a broker holds and did."""
        if not self.principal.may_inspect:
            reason = "may not inspect this broker; users with `inspect` may"
            raise NotPermittedError(f"{self.principal.name!r} {reason}")

    # --- decisions ----------------------------------------------------------------------------

    def _granted(self, wish: Selection, what: str) -> Selection:
        """The wish where it is covered, else its intersection with the allowed filters.

        Raises NotPermittedError.
        """
        allowed = self.principal.subscribe
        if allowed is EVERYTHING or allowed.covers(wish):
            return wish
        self.has_narrowed = True
        if not self.principal.narrows:
            raise self._error(what, wish)
        granted: list[Filter] = []
        for each in wish.filters:
            if allowed.covers(each):
                granted.append(each)
            else:
                both = (each & other for other in allowed.filters)
                granted += (part for part in both if not part.is_empty)
            if len(granted) > SUBSCRIPTION_FILTERS_MAX:
                raise LimitError("SUBSCRIPTION_FILTERS_MAX", SUBSCRIPTION_FILTERS_MAX)
        if not granted and not wish.is_empty:
            raise self._error(what, wish)
        return granted[0] if len(granted) == 1 else FilterSet(granted)

    def _one(self, parts: Sequence[T], what: str, *, whole: object) -> T:
        """The only part. Raises NotPermittedError where there are several, or none."""
        if len(parts) != 1:
            raise self._error(what, whole)
        return parts[0]

    def _error(self, what: str, wish: object) -> NotPermittedError:
        return NotPermittedError(f"{self.principal.name!r} may not {what} {shortened(str(wish))}")


class _Check:
    """Decides which of several notifications match one of some filters, or are covered by them."""

    def __init__(
        self,
        filters: FilterSet,
        shared: PublishFilters | None = None,
        *,
        is_covering: bool = False,
    ) -> None:
        self._covered_in = _names_in(filters) if is_covering else set[str]()
        self._is_everything = filters == EVERYTHING
        self._filters = filters
        self._shared = shared
        self._index: Index[int] | None = None

    def refused(
        self, notifications: _Many, goes_max: float = inf
    ) -> Generator[None, None, list[int]]:
        """The positions of those that match none; where it yields the others may have a turn."""
        if self._is_everything or not notifications:
            return []
        if self._all_match(notifications):
            return []
        if not self._filters.filters:
            return [*range(len(notifications))]
        found, done, size = list[int](), 0, len(notifications)
        for go in count(1):
            if go > goes_max:
                return [*found, *range(done, len(notifications))]
            part = notifications[done : done + size]
            try:
                with Work("CHECK_WORK_MAX", CHECK_WORK_MAX, is_strict=True):
                    found += [done + at for at in self._unmatched(part)]
            except LimitError:
                if len(part) > 1:
                    size = max(1, len(part) // _FEWER)
                    yield
                    continue
                found.append(done)
            done += len(part)
            if done >= len(notifications):
                break
            yield
        return found

    def _all_match(self, notifications: _Many) -> bool:
        """Whether all match, as they mostly do. No also where that is not found out at once."""
        if self._shared is None or not isinstance(notifications, Bundle):
            return False
        return self._shared.all_match(self._filters, notifications)

    def _unmatched(self, notifications: _Many) -> list[int]:
        index = self._index
        if index is None:  # Many principals only ever read.
            index = self._index = Index()
            index.add(0, self._filters)
        if not isinstance(notifications, Bundle):
            return [at for at, each in enumerate(notifications) if not self._holds(each, index)]
        ends = index.match_batch(notifications)[0]
        return (ends[1:] == ends[:-1]).nonzero()[0].tolist()  # type: ignore[no-any-return]

    def _holds(self, notification: Notification, index: Index[int]) -> bool:
        """Bundles have single values: what is matched with these is covered, too."""
        if not index.match(notification):
            return False
        keys = {name: notification.keys_of(name) for name in self._covered_in}
        if all(len(each) == 1 for each in keys.values()):
            return True
        # Attributes that no filter names do not matter.
        values = Filter.of_sets({name: of_keys(each) for name, each in keys.items()})
        return self._filters.covers(values)


def _names_in(filters: FilterSet) -> set[str]:
    return set[str]().union(*(each.sides for each in filters.filters))


def _are_few(filters: FilterSet) -> bool:
    """Whether to look at one after the other, without the envelope, is the shortest."""
    is_short = len(filters.filters) <= SHARED_FILTERS_MAX
    return is_short and _names_in(filters).isdisjoint(ENVELOPE_NAMES)


def _offer_within(offer: HeldProduct, allowed: Filter) -> Offer:
    """What is offered and allowed; absence is no matter of offers."""
    if isinstance(offer, Filter):
        return offer & allowed
    sides = dict(offer.sides)
    for name, values in sides.items():
        sides[name] = values & (allowed.set_of(name) | ABSENT)
    return Advertisement.of_sets(sides)
