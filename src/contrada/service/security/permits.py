"""`Permit`: allows a principal's request, narrows it to the allowed part, or refuses it.

    request                  allowed if                        narrowed to
    subscribe to filters     the subscribe filters cover them  the intersections
    a pattern                each of its filters is allowed    one intersection each
    a query                  its alternatives are covered      the intersections
    an offer, a description  the publish filters meet it, and  the only intersection
                             it adds nothing to them
    publish                  the publish filters cover it      never: it is refused

A notification with several values of an attribute is covered if it is with each of them alone, in
each combination: it reaches the subscribers of each value. A check beyond the limits of the algebra
is answered by no. See docs/security.md.

Source: PODC 2000 §6 (security), §3 (relations).
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import count
from math import inf
from typing import Final, TypeAlias, TypeVar

from contrada.errors import LimitError, NotPermittedError, shortened
from contrada.matching.index import Index
from contrada.matching.packed import Bundle
from contrada.model import Advertisement, Filter, FilterSet, Notification, Pattern, Selection
from contrada.model.algebra.product import HeldProduct, product_meets
from contrada.model.algebra.value_set import ABSENT, of_keys
from contrada.model.domains.values import ENVELOPE_NAMES
from contrada.model.languages.work_budget import Work
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.router_messages import (
    SUBSCRIPTION_FILTERS_MAX,
    Disjunct,
    Notifications,
    Offer,
    alternative,
)
from contrada.service.security.principals import ANY_NAME, EVERYTHING, Principal, owns

T = TypeVar("T")

_Many: TypeAlias = Notifications | Sequence[Notification]

CHECK_WORK_MAX: Final = 50_000
"""Steps of one check of several notifications. Beyond it: fewer are checked together; a single
notification that needs more is refused."""

CHECKED_TOGETHER: Final = 16
"""Decoded notifications of a publication that are checked at once. Beyond it: other connections get
a turn."""

READ_CHECKS_MAX: Final = 20
"""Checks for which a principal may read several notifications. Beyond it: the rest is withheld."""

SHARED_FILTERS_MAX: Final = 16
"""Publish filters of one principal that are tested one by one. Beyond it: the principal gets an
index of its own."""

_FEWER: Final = 8


class PublishFilters:
    """The publish filters of many principals in one index, to check those of one. For one thread.

    The index shares parts, such as names of attributes. With an index each, principals that publish
    in turns would evict each other's from the caches.
    """

    def __init__(self) -> None:
        self._index: Index[int] = Index()
        # By the filters' `id`, which no other object gets while they are held: whether they are
        # few.
        self._held: dict[int, tuple[FilterSet, bool]] = {}

    def all_match(self, filters: FilterSet, bundle: Bundle) -> bool:
        """Whether each notification of a bundle matches a filter. No if that takes longer."""
        key = id(filters)
        if key not in self._held:
            self._held[key] = filters, _are_few(filters)
            if _are_few(filters):
                self._index.add(key, filters)
        return self._held[key][1] and self._index.all_match(key, bundle, CHECK_WORK_MAX)


class Permit:
    """The decisions for one principal. Used by one thread."""

    def __init__(self, principal: Principal, publish: PublishFilters | None = None) -> None:
        """`publish` is shared by the principals of a broker."""
        self.principal = principal
        self.has_narrowed = False
        """Whether a request was granted in part or refused, or notifications were withheld."""
        self._writes = _Check(principal.publish, publish, is_covering=True)
        self._reads = _Check(principal.subscribe)
        self._names_any = ANY_NAME in principal.publishers

    # --- reading ------------------------------------------------------------------------------

    def allow_filters(self, wish: Selection) -> Selection:
        """The filters that it may subscribe. Raises NotPermittedError."""
        return self._granted(wish, "subscribe to")

    def allow_pattern(self, pattern: Pattern) -> Pattern:
        """The pattern that it may subscribe. Raises NotPermittedError."""
        granted = [self._granted(each, "subscribe to") for each in pattern.filters]
        parts = [self._one(each.filters, "subscribe to", whole=pattern) for each in granted]
        return Pattern(parts, by=pattern.by, within_us=pattern.within_us, every=pattern.every)

    def allow_query(self, alternatives: Sequence[Disjunct]) -> tuple[Disjunct, ...]:
        """The alternatives that it may query. Raises NotPermittedError."""
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
        """Whether it may see an offer: if it may subscribe to some of it."""
        if any(product_meets(each, offer) for each in self.principal.subscribe.filters):
            return True
        self.has_narrowed = True
        return False

    # --- writing ------------------------------------------------------------------------------

    def allow_offer(self, offer: HeldProduct) -> Offer:
        """The offer that it may advertise or describe. Raises NotPermittedError."""
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

    @property
    def publishes_nothing(self) -> bool:
        """Whether it may publish no notification at all."""
        return not self.principal.publish.filters

    def unpublishable(self, notifications: _Many) -> Generator[None, None, list[int]]:
        """The positions of notifications that it may not publish. Cost: one match of all.

        It yields where other tasks may have a turn.
        """
        together = len(notifications) if isinstance(notifications, Bundle) else CHECKED_TOGETHER
        refused = yield from self._writes.refused(notifications, together=together)
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

        It names attributes, without values: brokers write it into their logs, too.
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
        """Raises NotPermittedError if the name of a durable subscription is not its own."""
        if not owns(self.principal.durable, name):
            raise NotPermittedError(
                f"{self.principal.name!r} may not use the durable subscription {name!r}"
            )

    def check_publisher(self, name: str, what: str = "publish") -> None:
        """Raises NotPermittedError if it may not publish, query or answer under a name."""
        if not owns(self.principal.publishers, name):
            raise self._not_as(name, what)

    def _not_as(self, name: str, what: str) -> NotPermittedError:
        mine = self.principal.publishers
        said = " or ".join(f"{each!r}, or below it: {each + '/…'!r}" for each in mine)
        reason = f"may not {what} as {name!r}; it may as {said or 'nobody'}"
        return NotPermittedError(f"{self.principal.name!r} {reason}")

    def check_inspect(self) -> None:
        """Raises NotPermittedError if it may not inspect a broker."""
        if not self.principal.may_inspect:
            reason = "may not inspect this broker; users with `inspect` may"
            raise NotPermittedError(f"{self.principal.name!r} {reason}")

    # --- decisions ----------------------------------------------------------------------------

    def _granted(self, wish: Selection, what: str) -> Selection:
        """The requested filters, or their intersection with the allowed ones if it narrows.

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
        """The only part. Raises NotPermittedError if there are several, or none."""
        if len(parts) != 1:
            raise self._error(what, whole)
        return parts[0]

    def _error(self, what: str, wish: object) -> NotPermittedError:
        return NotPermittedError(f"{self.principal.name!r} may not {what} {shortened(str(wish))}")


class _Check:
    """A check of several notifications against filters: match, or covering."""

    def __init__(
        self, filters: FilterSet, shared: PublishFilters | None = None, *, is_covering: bool = False
    ) -> None:
        self._covered_in = _names_in(filters) if is_covering else set[str]()
        self._is_everything = filters == EVERYTHING
        self._filters, self._shared = filters, shared
        self._index: Index[int] | None = None

    def refused(
        self, notifications: _Many, goes_max: float = inf, together: int | None = None
    ) -> Generator[None, None, list[int]]:
        """The positions of those that match none; it yields where other tasks may have a turn."""
        if self._is_everything or not notifications:
            return []
        if self._all_match(notifications):
            return []
        if not self._filters.filters:
            return [*range(len(notifications))]
        found, done, size = list[int](), 0, together or len(notifications)
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
        """Whether all match, as they mostly do. No if that is not decided at once."""
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
        """Whether a notification is covered. With single values, a match covers it."""
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
    """Whether tests one by one, without the envelope, are the fastest."""
    is_short = len(filters.filters) <= SHARED_FILTERS_MAX
    return is_short and _names_in(filters).isdisjoint(ENVELOPE_NAMES)


def _offer_within(offer: HeldProduct, allowed: Filter) -> Offer:
    """The allowed part of an offer; absence is not considered."""
    if isinstance(offer, Filter):
        return offer & allowed
    sides = dict(offer.sides)
    for name, values in sides.items():
        sides[name] = values & (allowed.set_of(name) | ABSENT)
    return Advertisement.of_sets(sides)
