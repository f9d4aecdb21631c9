"""What can be subscribed, published and advertised.

These are protocols: a class that satisfies one need not know this package.

Source: PODC 2000 §2; EPFL 2503 §3.3, §3.4.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.patterns import Match

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class SelectsFilters(Protocol):
    """A subject: it says which notifications it asks for."""

    def to_filters(self) -> Filter | FilterSet:
        """The filters that a notification must match one of."""
        ...


@runtime_checkable
class Interest(SelectsFilters, Protocol[T_co]):
    """A subject that gives objects of its own, for example a class of obvents."""

    def from_notification(self, notification: Notification) -> T_co:
        """What the subscriber gets. Raises a ContradaError when it cannot be made."""
        ...


@runtime_checkable
class Narrowable(SelectsFilters, Protocol):
    """A subject that checks the filters that narrow it."""

    def check_where(self, where: Filter | FilterSet) -> None:
        """Raises a ContradaError for a filter that makes no sense for it."""
        ...


@runtime_checkable
class Liftable(SelectsFilters, Protocol):
    """What can be subscribed and narrowed by a predicate over its objects."""

    def lift(self, predicate: Callable[[Any], object]) -> Rule:
        """The filters that cover a predicate, with the rest of it, which the subscriber decides.

        Raises a ContradaError for what is no predicate.
        """
        ...


@runtime_checkable
class MatchInterest(Protocol[T_co]):
    """A pattern that gives objects of its own, for each match."""

    def from_match(self, match: Match[Any]) -> T_co:
        """What the subscriber gets. Raises a ContradaError when it cannot be made."""
        ...


class Publishable(Protocol):
    """What can be published: it says what its notification is."""

    def to_notification(self) -> Notification:
        """The notification to publish, its envelope not yet stamped."""
        ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _AttrsClass(Protocol):
    __attrs_attrs__: ClassVar[Any]


class _Model(Protocol):
    __pydantic_fields__: ClassVar[dict[str, Any]]


Declared: TypeAlias = _Dataclass | _AttrsClass | _Model | msgspec.Struct
"""An object of a class with declared fields. It can be published if the class was made an obvent
class."""

Item: TypeAlias = Notification | Mapping[str, Any] | Publishable | Declared
"""What can be published."""

Subscribable: TypeAlias = Filter | FilterSet | str | Mapping[str, Any] | SelectsFilters | Rule
"""What can be subscribed. What a rule of another dialect leaves open of its filters is decided
where it is subscribed, of each notification that they match."""

Predicate: TypeAlias = Callable[[T], object]
"""What narrows by objects: it says whether one is asked for. One that raises says no, counted."""

EnvelopePredicate: TypeAlias = Callable[[T, Envelope], object]
"""One with two parameters is given the envelope too."""

Offered: TypeAlias = Advertisement | Filter | str | Mapping[str, Any] | SelectsFilters
"""What can be advertised: text and mapping are an `Advertisement`; a filter, or what offers one as
a class of obvents does, allows any further attributes."""
