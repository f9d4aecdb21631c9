"""Conversions of a caller's arguments into notifications, filters and offers.

Every service uses these functions, so that all accept and refuse the same things with the same
errors. A filter that no notification can match is refused here.
"""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.errors import (
    InvalidNotificationError,
    LimitError,
    ServiceError,
    UnsatisfiableFilterError,
)
from contrada.model import Advertisement, Filter, FilterSet, Notification, Pattern, parse
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX
from contrada.model.algebra.notification import OWN, Body
from contrada.model.domains.values import is_number
from contrada.model.rule import Rule
from contrada.patterns import Match
from contrada.routing.router_messages import Offer
from contrada.service.subjects import (
    DurableRecord,
    Interest,
    Item,
    Liftable,
    MatchInterest,
    Narrowable,
    Offered,
    PublishOptions,
    SelectsFilters,
    Subscribable,
)

PRIORITY_MAX: Final = 9
"""The highest priority; 0 is the lowest. Beyond it: ServiceError; in a given envelope
InvalidNotificationError."""

TTL_S_MAX: Final = 10**9
"""The longest time to live: some thirty years. Beyond it: ServiceError."""


def notification_of(item: Item, body: Body = b"", content_type: str = "") -> Notification:
    """The notification of an item.

    `body` and `content_type` belong to a mapping, or to an object published by its fields; other
    items have their own. The notification of a mapping is stamped in place.
    """
    kind = type(item)
    # By its type: a check of the protocol would cost as much as all the rest.
    make = None if kind is dict else getattr(kind, "to_notification", None)
    if make is None and (
        kind is dict or (isinstance(item, Mapping) and not isinstance(item, Notification))
    ):
        return Notification(item, body=body, content_type=content_type, envelope=OWN)  # type: ignore[arg-type]
    if kind is DurableRecord:  # Its fields were not published; its item was.
        return notification_of(item.item, body, content_type)  # type: ignore[union-attr]
    if make is None and _field_names(kind) is not None:
        return _of_fields(item, body, content_type)
    if body or content_type:
        raise ServiceError(
            f"body and content_type are options for a mapping; this {kind.__name__} has its own"
        )
    if make is not None:
        made: Notification = make(item)
        return made
    if isinstance(item, Notification):  # Last: for another class this asks all abstract ones.
        return item
    raise ServiceError(
        f"cannot publish {_kind_of(item)}: expected a Notification, a mapping of attributes, "
        f"or an object with fields or to_notification(){_obvent_hint(item)}"
    )


def _of_fields(item: object, body: Body, content_type: str) -> Notification:
    """The notification of an object of no obvent class: that of the mapping of its fields."""
    try:
        content = _plain(item)
        return Notification(content, body=body, content_type=content_type, envelope=OWN)
    except InvalidNotificationError as error:
        error.add_note(f"an obvent can hold values of more types{_obvent_hint(item)}")
        raise
    except RecursionError:  # It contains itself.
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX) from None


def _plain(value: Any) -> Any:
    """A value as in a mapping: an object with declared fields is the mapping of these."""
    names = _field_names(type(value))
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value


def _field_names(cls: type[Any]) -> Collection[str] | None:
    """The declared fields of a dataclass, an attrs class, a msgspec struct or a pydantic model."""
    if dataclasses.is_dataclass(cls):
        return [each.name for each in dataclasses.fields(cls)]
    if hasattr(cls, "__attrs_attrs__"):
        return [each.name for each in cls.__attrs_attrs__]
    names: Collection[str] | None = getattr(cls, "__struct_fields__", None)
    return getattr(cls, "__pydantic_fields__", None) if names is None else names


def dissemination_of(item: object) -> str | None:
    """The dissemination that the class of an item chose; None: the service's own way.

    Raises the errors of `chosen_dissemination` of the class.
    """
    kind = type(item)
    if kind is dict or kind is Notification or not hasattr(kind, "chosen_dissemination"):
        return None
    chosen: str | None = item.chosen_dissemination()  # type: ignore[attr-defined]
    return chosen


_PUBLISH_OPTIONS: Final = frozenset(PublishOptions.__annotations__)


def publication_of(item: Item, options: PublishOptions) -> Notification:
    """The notification that `Service.publish` publishes. Raises as it does."""
    if not options:  # As mostly.
        return notification_of(item)
    if not options.keys() <= _PUBLISH_OPTIONS:
        check_options("publish", options, PublishOptions.__annotations__)
    body, content_type = options.get("body", b""), options.get("content_type", "")
    notification = notification_of(item, body, content_type)
    ttl_s, priority = options.get("ttl_s"), options.get("priority")
    if ttl_s is not None or priority is not None:
        notification = with_transmission(notification, ttl_s, priority)
    delivery = options.get("delivery")
    return notification if delivery is None else with_delivery(notification, delivery)


def check_options(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises ServiceError with the known options for unknown ones."""
    known = (*known,)
    unknown = ", ".join(sorted({*given}.difference(known)))
    if unknown:
        raise ServiceError(f"{function} has no option {unknown}: expected {', '.join(known)}")


def with_transmission(
    notification: Notification, ttl_s: float | None, priority: int | None
) -> Notification:
    """The notification with the given time to live in seconds and priority.

    Raises ServiceError for invalid values.
    """
    given: dict[str, int] = {}
    if ttl_s is not None:
        if not is_number(ttl_s) or not 0 < ttl_s <= TTL_S_MAX:
            raise ServiceError(f"ttl_s = {ttl_s!r}: expected seconds above 0, at most {TTL_S_MAX}")
        given["ttl_us"] = max(round(ttl_s * 1e6), 1)
    if priority is not None:
        if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
            expected = f"expected 0 (lowest) to {PRIORITY_MAX}"
            raise ServiceError(f"priority = {priority!r}: {expected}")
        given["priority"] = priority
    return notification.with_envelope(replace(notification.envelope, **given))


def with_delivery(notification: Notification, delivery: str) -> Notification:
    """The notification with this delivery class. Raises ServiceError, InvalidValueError."""
    if not isinstance(delivery, str):
        raise ServiceError(f"delivery = {delivery!r}: expected words, for example 'certified'")
    delivery_class(delivery)
    return notification.with_envelope(replace(notification.envelope, delivery=delivery))


def is_above_best_effort(notifications: Iterable[Notification]) -> bool:
    """Whether any of them has a delivery class above best effort."""
    for each in notifications:
        envelope = each.envelope
        if envelope is not OWN and envelope.delivery != BEST_EFFORT:
            return True
    return False


def filters_of(subject: Subscribable, where: Subscribable | None = None) -> Filter | FilterSet:
    """The filters of a subject, narrowed to those of `where`.

    Raises UnsatisfiableFilterError when no notification can match, ServiceError for an invalid
    subject, LimitError for too many filters.
    """
    wanted = _asked(subject)
    if where is not None:
        narrower = _asked(where)
        if isinstance(subject, Narrowable):
            narrower = subject.check_where(narrower)
        wanted = wanted & narrower
    if wanted.is_empty:
        raise UnsatisfiableFilterError(wanted)
    return wanted


def narrowing_of(subject: Any, where: Any) -> Subscribable | None:
    """`where` as a subject that narrows another: a predicate becomes a rule.

    Raises ServiceError for a predicate over a subject without objects, and for one that does not
    return its answer when it is called.
    """
    if not is_predicate(where):
        return cast(Subscribable | None, where)
    is_generator = inspect.isgeneratorfunction(where) or inspect.isasyncgenfunction(where)
    if is_generator or inspect.iscoroutinefunction(where):
        raise ServiceError(
            f"{getattr(where, '__qualname__', where)!r} answers later, which would be a yes for "
            "all: a predicate is neither async nor a generator"
        )
    if isinstance(subject, str | Filter | FilterSet) or not isinstance(subject, Liftable):
        raise ServiceError(
            "a predicate narrows a type of obvents, or another subject with lift(); narrow "
            "notifications by a filter or its text"
        )
    return subject.lift(where)


def is_predicate(where: Any) -> bool:
    """Whether it narrows by a predicate."""
    return callable(where) and not isinstance(where, type | SelectsFilters)


def offer_of(offered: Offered) -> Offer:
    """The offer of an advertisement. Raises UnsatisfiableFilterError for an empty one."""
    offer: object = offered
    if isinstance(offered, str | Mapping) and not isinstance(offered, Notification):
        offer = Advertisement(offered)
    elif isinstance(offered, SelectsFilters) and not isinstance(
        offered, Filter | FilterSet | Pattern
    ):
        offer = offered.to_filters()
    if isinstance(offer, FilterSet) and len(offer.filters) == 1:
        offer = offer.filters[0]
    if not isinstance(offer, Advertisement | Filter):
        raise ServiceError(
            f"cannot advertise {_kind_of(offer)}: expected an Advertisement, its text, a mapping, "
            f"or one filter{_obvent_hint(offer)}"
        )
    if offer.is_empty:
        raise UnsatisfiableFilterError(offer)
    return offer


def pattern_of(subject: Pattern, where: object = None) -> Pattern:
    """The pattern of a subscription. Raises UnsatisfiableFilterError, ServiceError."""
    if where is not None:
        raise ServiceError("what narrows a pattern is said in its filters, not by `where`")
    if subject.is_empty:
        raise UnsatisfiableFilterError(subject)
    if type(subject) is not Pattern:  # Its reader is known here only.
        return Pattern(
            subject.filters, by=subject.by, within_us=subject.within_us, every=subject.every
        )
    return subject


def reader_of(subject: Any) -> Callable[[Notification], Any] | None:
    """The function that makes the subject's object of a notification; None without one."""
    if not isinstance(subject, str | Filter | FilterSet) and isinstance(subject, Interest):
        return cast(Callable[[Notification], Any], subject.from_notification)
    return None


def reading_of(
    subject: Any, where: Any
) -> tuple[
    Filter | FilterSet,
    Callable[[Any], Any] | None,
    Callable[[Notification], bool] | None,
    Pattern | None,
]:
    """The filters of a subscription, its reader, its residue, and its pattern.

    Raises as `filters_of`, `narrowing_of` and `pattern_of`.
    """
    if isinstance(subject, Pattern):
        pattern = pattern_of(subject, where)

        def read(found: Match[Any]) -> Any:
            return Match(subject, found.by, found.notifications)

        made = subject.from_match if isinstance(subject, MatchInterest) else read
        return FilterSet(pattern.filters), made, None, pattern
    where = narrowing_of(subject, where)
    return filters_of(subject, where), reader_of(subject), residue_of(subject, where), None


def residue_of(subject: Any, where: Any = None) -> Callable[[Notification], bool] | None:
    """The residues of a subject and `where`; None if there are none."""
    return both(getattr(subject, "residue_holds", None), getattr(where, "residue_holds", None))


def both(
    one: Callable[[Notification], bool] | None, other: Callable[[Notification], bool] | None
) -> Callable[[Notification], bool] | None:
    """The conjunction of two residues, of which None holds for all."""
    if one is None or other is None:
        return other if one is None else one
    return lambda notification: one(notification) and other(notification)


def _asked(subject: object) -> Filter | FilterSet:
    if isinstance(subject, Filter | FilterSet):
        return subject
    if isinstance(subject, Rule):
        return subject.filters
    wanted: object = subject
    if isinstance(subject, str):
        wanted = parse(subject)
    elif isinstance(subject, Mapping) and not isinstance(subject, Notification):
        wanted = Filter(subject)
    elif isinstance(subject, SelectsFilters) and not isinstance(subject, Pattern):
        # An event has the filters of its class, which are not about this one.
        is_of_class = getattr(subject.to_filters, "__self__", None) is type(subject)
        is_event = is_of_class and hasattr(subject, "to_notification")
        wanted = subject if is_event else subject.to_filters()
    if isinstance(wanted, Filter | FilterSet):
        return wanted
    if isinstance(wanted, Pattern):
        raise ServiceError("a pattern is subscribed as an object, Pattern(text), and not updated")
    several = "; several filters are one FilterSet([…])" if isinstance(wanted, Collection) else ""
    raise ServiceError(
        f"cannot subscribe to {_kind_of(wanted)}: expected a filter, its text, a mapping, "
        f"or something with to_filters(){several}{_obvent_hint(wanted)}"
    )


def _kind_of(thing: object) -> str:
    if isinstance(thing, type):
        return f"the class {thing.__qualname__}"
    return f"an object of type {type(thing).__name__}"


def _obvent_hint(thing: object) -> str:
    """Advice for an undecorated class with declared fields, or an object of one, and for a class of
    events in place of an object or the reverse; otherwise "".
    """
    cls = thing if isinstance(thing, type) else type(thing)
    if cls is thing and hasattr(cls, "to_notification"):
        return "; publish objects of it"
    if cls is not thing and hasattr(cls, "to_filters"):
        return "; give its class"
    if not getattr(cls, "__annotations__", None):
        return ""
    return f'; for a class of events, decorate it: @ct.obvent(name="{cls.__name__}")'
