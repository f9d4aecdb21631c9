"""Questions of a service to sources of data, and the sources that it offers.

Askable: CU-CS-948-03 §2 (query, advertise, and respond).
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, TypedDict, TypeVar

from contrada.routing.aggregation import Aggregate
from contrada.routing.disjuncts import Disjunct
from contrada.routing.router_messages import Offer, SourceReport, SourceState
from contrada.service.async_resource import AsyncResource
from contrada.service.subjects import Offered, Subscribable

T_co = TypeVar("T_co", covariant=True)

QUESTION_WAIT_S: Final = 10.0
"""Seconds that a question waits for answers, by default. Beyond it: nothing is waited for, and
sources that have not ended are reported."""


class SupportsAnswer(Protocol):
    """An object that answers queries; `DataSource` describes itself, too."""

    def answer(self, question: Any) -> Any:
        """The items that answer a question, or more: a plain or an asynchronous iterable."""
        ...


class SupportsAlternatives(Protocol):
    """A query as its alternatives, as `contrada.SourceQuery` is."""

    alternatives: tuple[Disjunct, ...]


Queryable: TypeAlias = Subscribable | SupportsAlternatives
"""What can be asked of sources."""

SourceLike: TypeAlias = SupportsAnswer | Callable[[Any], Any]
"""What can be offered: a source, or a function of the question that gives what `answer` does."""

Computed: TypeAlias = Aggregate | str
"""What is computed of answers; text as `count`, `sum(price)`, `top 3(price)`."""

Description: TypeAlias = Offered | Iterable[Offered]
"""What describes data: each of several is enough."""


class ComputeOptions(TypedDict, total=False):
    """Options of a question that computes something."""

    by: str
    """An attribute to group by: there is a result for each of its values."""
    timeout_s: float
    """Seconds after which no answers are waited for; QUESTION_WAIT_S, if not said."""
    hops: int
    """Links between servers that it goes over at most."""
    asker: str
    """The asker's name, told to the sources; without it the asker stays anonymous."""


class QueryOptions(TypedDict, total=False):
    """How a question is asked, and how its answers are collated."""

    timeout_s: float
    """Seconds after which no answers are waited for; QUESTION_WAIT_S, if not said."""
    limit: int
    """Answers at most; sources that are not done then are stopped."""
    sort: str
    """An attribute by which answers come in order, `-price` for the largest first.

    They come when all have come. Those without it come last.
    """
    distinct: bool
    """Whether of equal answers one is enough. Source and body count for nothing."""
    hops: int
    """Links between servers that it goes over at most."""
    asker: str
    """The asker's name, told to the sources; without it the asker stays anonymous."""


class Answers(AsyncResource, AsyncIterator[T_co]):
    """The answers to a question; iterate them, inside their own `async with` or without.

    Answers come as sources give them. Iteration ends when all sources that were asked have ended,
    at the limit, or when the time is over: then `reports` says what became of each source. Who
    leaves `async with`, or drops it, does not wait any longer, and the sources are told.

    Askable: CU-CS-948-03 §2 (the response that a query has).
    """

    @property
    @abstractmethod
    def reports(self) -> tuple[SourceReport, ...]:
        """The reports so far of the sources that were asked, in the order in which they came.

        A server that could not be asked, or was lost, is reported as `@NAME`: sources behind it may
        be missing.
        """

    @property
    def is_complete(self) -> bool:
        """Whether all sources asked have ended, and none failed or was cut short."""
        done = (SourceState.ANSWERED, SourceState.EMPTY)
        return self.has_ended and all(each.state in done for each in self.reports)

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether nothing comes any more, but what has come and is not read."""

    @abstractmethod
    async def aclose(self) -> None:
        """Wait for no more answers; iteration ends after what has come. Twice is once."""

    @abstractmethod
    async def __anext__(self) -> T_co:
        """The next answer; raises as `open`. Sources wait for who reads slowly."""

    async def _end(self) -> None:
        await self.aclose()


class SourceOffer(AsyncResource):
    """A source of data that may be asked, from when it is open; use it inside `async with`.

    Askable: CU-CS-948-03 §2 (advertisers), §4 (descriptions).
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What the source is called in reports and answers.

        Where it was given no name it has none before it is open, then one below the service's own.
        """

    @property
    @abstractmethod
    def described(self) -> tuple[Offer, ...]:
        """What it is asked about; empty before it is open where the source describes itself."""

    @abstractmethod
    async def describe(self, description: Any = None) -> None:
        """Describe it otherwise, without a gap; without a description as the source does now.

        Raises as `Service.offer`.
        """

    @abstractmethod
    async def withdraw(self) -> None:
        """It is not asked any more; what it is asked just now is ended. Twice is once."""

    async def _end(self) -> None:
        await self.withdraw()
