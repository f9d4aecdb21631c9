"""`CollectionSpace`: the domain of a collection: a type of obvents, a subject, or a type under one.

A space maps an element to its notification, a consumer's condition to its rule, and a notification
to its elements. A `Quality` is a delivery guarantee, required by a collection and given by a type.

Source: EPFL 2503 §4.2.1 (a collection is of a type), §4.7.1 (subjects, and both), figure 4.7.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from typing import Any, Final, Generic, TypeVar, cast

from msgspec.structs import replace

from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.errors import ContradaError, InvalidObventError
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Subscribable, filters_of, narrowing_of, notification_of, residue_of
from contrada.typed.collections.subject_path import SUBJECT, Subject, subject_of
from contrada.typed.collections.together import MARK, Together, is_together, part_mark
from contrada.typed.obvent_type import type_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ALL_SUBJECTS: Final = "/"
"""The sequence of the total order of all collections of subjects."""


class Quality(StrEnum):
    """One delivery guarantee."""

    RELIABLE = "reliable"
    CERTIFIED = "certified"
    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"


def with_implied(qualities: Iterable[Quality]) -> frozenset[Quality]:
    """Returns these with all implied ones: causal order implies FIFO, and each implies reliable."""
    found = frozenset(qualities)
    if Quality.CAUSAL in found:
        found |= {Quality.FIFO}
    return found | {Quality.RELIABLE} if found else found


def qualities_of(delivery: str) -> frozenset[Quality]:
    """Returns the guarantees of a delivery class."""
    found = delivery_class(delivery)
    given = found.is_reliable, found.is_certified, found.is_fifo, found.is_causal, found.sequence
    return frozenset(compress(Quality, given))  # In the order of `Quality`.


def check_promises(
    collection: str, required: AbstractSet[Quality], name: str, delivery: str
) -> None:
    """Raises InvalidObventError if a collection promises more than the delivery of its type."""
    lacking = [each for each in Quality if each in required - qualities_of(delivery)]
    if lacking:
        words = " and ".join(lacking)
        reason = f"a {collection} promises {words}; its objects are published {delivery!r}"
        raise InvalidObventError(name, reason)


def delivery_of(required: AbstractSet[Quality]) -> str:
    """Returns the delivery class with these guarantees, for elements without a type."""
    if Quality.RELIABLE not in required:
        return BEST_EFFORT
    words = [Quality.CERTIFIED if Quality.CERTIFIED in required else Quality.RELIABLE]
    if Quality.FIFO in required:
        words.append(Quality.CAUSAL if Quality.CAUSAL in required else Quality.FIFO)
    total = [f"{Quality.TOTAL}:{ALL_SUBJECTS}"] if Quality.TOTAL in required else []
    return " ".join([*words, *total])


@dataclass(frozen=True, slots=True)
class Arrival(Generic[T_co]):
    """An element with the facts of its arrival.

    `notification` is the one that contained it, with its envelope; `part` its place, from 0, among
    the matched `parts` that were published together.

    Source: EPFL 2503 §4.3.1 (the sender), figure 4.24 (the subject beside the object).
    """

    obvent: T_co
    notification: Notification
    part: int = 0
    parts: int = 1

    @property
    def publisher(self) -> str:
        """The sender's identity, as stamped by its access point."""
        return self.notification.envelope.publisher

    @property
    def subject(self) -> str:
        """The path of the subject under which it was published; "" for none."""
        return subject_of(self.notification.attributes)


@dataclass(frozen=True, slots=True)
class ElementRule(Rule, Generic[T]):
    """The rule of a consumer. It returns the arrivals in a notification, at least one."""

    read: Callable[[Notification], tuple[Arrival[T], ...]] = field(kw_only=True)

    def to_filters(self) -> FilterSet:
        """Returns its filters."""
        return self.filters

    def from_notification(self, notification: Notification) -> tuple[Arrival[T], ...]:
        """Returns the matching elements. Raises InvalidObventError for an unreadable one."""
        return self.read(notification)


class CollectionSpace(Generic[T]):
    """A type, a subject, or both. Raises InvalidObventError, InvalidValueError."""

    def __init__(self, of: Any, subject: Subject | str | None = None) -> None:
        if isinstance(subject, str):
            subject = Subject(subject)
        if isinstance(of, Subject):
            if subject is not None:
                reason = "it is of a subject already, and named another one"
                raise InvalidObventError(str(of), reason)
            self.cls: type[T] | None = None
            self.subject: Subject | None = of
            self.delivery = ""
        else:
            if not isinstance(of, type):
                raise InvalidObventError(repr(of), "expected a class of obvents, or a Subject")
            self.cls, self.subject = of, subject
            self.delivery = type_of(of).qos.delivery
        self._kind: Any = Filter({}) if self.cls is None else self.cls
        of_type = "" if self.cls is None else type_of(self.cls).name
        self.name = of_type + ("" if self.subject is None else str(self.subject))
        """The name of the space in messages, and of the default queue of consumers that remove."""

    def accepts(self, item: object) -> bool:
        """Whether an object may be an element."""
        if self.cls is None:
            return isinstance(item, Notification | Mapping) or (
                not isinstance(item, type) and hasattr(item, "to_notification")
            )
        return isinstance(item, self.cls)

    @property
    def offered(self) -> Filter:
        """The filter of its elements, published one by one."""
        own = Filter({}) if self.cls is None else type_of(self.cls).filters
        return own & self._under()

    def bare(self, found: Notification) -> Notification:
        """Returns the content of a notification, without publisher and subject."""
        content = found.body, found.content_type
        return Notification.from_attributes(_without_subject(found), *content, Envelope())

    def notification_of(self, item: T, delivery: str, *, under: bool = True) -> Notification:
        """Returns the notification of an element; its type decides the delivery, or `delivery`
        without one.

        `under` decides whether it gets the subject. Raises InvalidObventError for an object of
        another type.
        """
        if self.cls is not None and not isinstance(item, self.cls):
            reason = f"{type(item).__qualname__} is another type; expected {self.cls.__qualname__}"
            raise InvalidObventError(self.name, reason)
        made = notification_of(cast(Any, item))
        if self.subject is None or not under:
            return made
        envelope = made.envelope
        if self.cls is None and delivery != BEST_EFFORT:
            envelope = replace(envelope, delivery=delivery)
        attributes = {**made.attributes, SUBJECT: self.subject.text}
        return Notification.from_attributes(attributes, made.body, made.content_type, envelope)

    def rule(self, where: Subscribable | Callable[[T], object] | None) -> ElementRule[T]:
        """Returns the rule of a consumer with this condition. Raises as `Service.subscribe`."""
        narrowed = narrowing_of(self._kind, where)
        own = filters_of(self._kind, narrowed) & self._under()
        filters_of(own)  # Refuses a filter that nothing can match.
        residue = residue_of(self._kind, narrowed)

        def is_element(found: Notification) -> bool:
            return own.matches(found) and (residue is None or residue(found))

        def elements(found: Notification) -> list[Notification]:
            return [each for each in Together.from_notification(found).parts if is_element(each)]

        def holds(found: Notification) -> bool:
            if MARK not in found.attributes:
                return residue is None or residue(found)
            if not is_together(found):
                return False
            try:
                return bool(elements(found))
            except ContradaError:
                return True  # Its reader reports the damage.

        def read(found: Notification) -> tuple[Arrival[T], ...]:
            if not is_together(found):
                return (Arrival(self._made(found), found),)
            parts = elements(found)
            return tuple(
                Arrival(self._made(it), it, number, len(parts)) for number, it in enumerate(parts)
            )

        marks = () if self.cls is None else type_of(self.cls).required_marks
        together = Filter({MARK: True, **{part_mark(it): True for it in marks}}) & self._under()
        filters = FilterSet((*own.filters, together))
        return ElementRule(self.name, filters, "parts of joint notifications", holds, read=read)

    def _under(self) -> Filter:
        return Filter({}) if self.subject is None else self.subject.to_filters()

    def _made(self, found: Notification) -> T:
        if self.cls is None:
            return cast(T, found)
        attributes = found.attributes
        if SUBJECT in attributes:  # The object would keep it as an unknown part.
            found = Notification.from_attributes(
                _without_subject(found), found.body, found.content_type, found.envelope
            )
        made: T = cast(Any, self.cls).from_notification(found)
        return made


def _without_subject(found: Notification) -> dict[str, Any]:
    return {name: value for name, value in found.attributes.items() if name != SUBJECT}
