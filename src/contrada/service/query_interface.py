"""`Answers` and `SourceOffer`: the interface of queries, and of advertisements (`Offering`).

Askable: CU-CS-948-03 §2 (query, advertise, and respond).
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypedDict, TypeVar

from contrada.model import Notification
from contrada.routing.aggregation import Aggregate
from contrada.routing.router_messages import Disjunct, Offer, SourceReport, SourceState
from contrada.service.async_resource import AsyncResource
from contrada.service.subjects import Item, Offered, Subscribable

T_co = TypeVar("T_co", covariant=True)

QUESTION_WAIT_S: Final = 10.0
"""Seconds that a query waits for answers, by default. Beyond it: it ends, and sources that have not
ended are reported."""


class SupportsAnswer(Protocol):
    """An object that answers queries; `DataSource` describes itself, too."""

    def answer(self, question: Any) -> Any:
        """The items that answer a query, or more: a plain or an asynchronous iterable."""
        ...


class SupportsAlternatives(Protocol):
    """A query as its alternatives, as `contrada.SourceQuery` is."""

    @property
    def alternatives(self) -> tuple[Disjunct, ...]:
        """The alternatives, of which an answer meets one."""
        ...


Queryable: TypeAlias = Subscribable | SupportsAlternatives
"""The subject of a query."""

SourceLike: TypeAlias = SupportsAnswer | Callable[[Any], Any]
"""A source: an object with `answer`, or a function like it."""

Computed: TypeAlias = Aggregate | str
"""An aggregate of answers; text as `count`, `sum(price)`, `top 3(price)`."""

Replier: TypeAlias = Callable[[Notification], Awaitable[Item | None] | Item | None]
"""A function that replies to a request."""

Description: TypeAlias = Offered | Iterable[Offered]
"""A description of data: alternatives, of which each is enough."""


class _AnyOptions(TypedDict, total=False):
    timeout_s: float
    """Seconds after which the query ends; QUESTION_WAIT_S by default."""
    hops: int
    """Links between servers that the query may pass."""
    asker: str
    """Name that the sources see; by default the query is anonymous."""


class ComputeOptions(_AnyOptions, total=False):
    """Options of a query for aggregates."""

    by: str
    """Attribute to group by: each of its values has a result."""


class QueryOptions(_AnyOptions, total=False):
    """Options of a query."""

    limit: int
    """The most answers; then the sources are stopped."""
    sort: str
    """Attribute that orders the answers, `-price` for the largest first.

    The answers are given at the end of the query, those without the attribute last.
    """
    distinct: bool
    """Whether equal answers are given once. Source and body are not compared."""


class Answers(AsyncResource, AsyncIterator[T_co]):
    """The answers to a query; iterate them, inside their own `async with` or without.

    Answers are given as they arrive. Iteration ends when all sources have ended, at the limit, or
    when the time is over: then `reports` has the state of each source. Leaving `async with`, or
    dropping the object, ends the query and stops the sources.

    Askable: CU-CS-948-03 §2 (the response that a query has).
    """

    @property
    @abstractmethod
    def reports(self) -> tuple[SourceReport, ...]:
        """The reports of the sources so far, in the order of arrival.

        `@NAME` stands for a server that refused the query or was lost: sources behind it may be
        missing.
        """

    @property
    def is_complete(self) -> bool:
        """Whether all sources have ended, and none failed or was stopped."""
        done = (SourceState.ANSWERED, SourceState.EMPTY)
        return self.has_ended and all(each.state in done for each in self.reports)

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether no more answers arrive; some may still be unread."""

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the query; iteration ends after the answers that have arrived."""

    @abstractmethod
    async def __anext__(self) -> T_co:
        """The next answer; raises as `open`. Sources wait for a slow reader."""


class SourceOffer(AsyncResource):
    """A source of data, in force from `open`; use it inside `async with`.

    Askable: CU-CS-948-03 §2 (advertisers), §4 (descriptions).
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source in reports and answers.

        A source without a given name gets one below the service's own when it is opened.
        """

    @property
    @abstractmethod
    def described(self) -> tuple[Offer, ...]:
        """The alternatives of its description; empty before a self-describing source is open."""

    @abstractmethod
    async def describe(self, description: Any = None) -> None:
        """Replaces the description without a gap; None has the source describe itself.

        Raises as `Service.offer`.
        """

    @abstractmethod
    async def withdraw(self) -> None:
        """Withdraws it, and stops its open queries. A second call does nothing."""

    async def aclose(self) -> None:
        """Ends it, as `withdraw`."""
        await self.withdraw()


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
