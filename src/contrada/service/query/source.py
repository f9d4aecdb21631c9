"""`DataSource`: the interface of a source; `RecordSource` for records, `FunctionSource` for a
function.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Protocol, TypeAlias, runtime_checkable

from contrada.errors import ServiceError
from contrada.model import Filter, Notification
from contrada.routing.router_messages import Offer
from contrada.service.query.source_description import FRESH_S, Fresh, described
from contrada.service.query.source_query import SourceQuery
from contrada.service.requests import notification_of
from contrada.service.subjects import Item, Offered

ItemStream: TypeAlias = Iterable[Item] | AsyncIterable[Item]
"""Items one after another. A plain iterable is iterated on a thread of its own, and a generator is
closed at the end; the items of an asynchronous iterable are tested one by one."""


@runtime_checkable
class DataSource(Protocol):
    """A source of data that answers queries."""

    def answer(self, query: SourceQuery) -> ItemStream:
        """The items that answer the query, lazily. Raises a ContradaError with the place."""
        ...

    def describe(self, now_us: int) -> Offer:
        """A description of the items: none lies outside, as far as known at this time.

        It may take as long as an answer. Raises as `answer`.
        """
        ...


class RecordSource:
    """A source of mappings, notifications or objects in memory, or of any iterable but an iterator.

    Without a `description` it is derived from the records, at most every `fresh_s` seconds. Records
    may be added meanwhile, as far as Python allows it.
    """

    def __init__(
        self,
        records: Iterable[Item],
        *,
        description: Offered | None = None,
        fresh_s: float = FRESH_S,
    ) -> None:
        if iter(records) is records:
            reason = "an iterator could answer one query only; give a list"
            raise ServiceError(f"cannot offer a {type(records).__name__}: {reason}")
        self._records, self.fresh_s = records, fresh_s
        self._description = Fresh(
            lambda: described(map(notification_of, records)), description, fresh_s
        )

    def answer(self, query: SourceQuery) -> Iterator[Notification]:
        """See `DataSource`. Cost: some microseconds for each record."""
        return query.select(self._records)

    def describe(self, now_us: int) -> Offer:
        """See `DataSource`. Cost: an iteration of all records."""
        return self._description.describe(now_us)


class FunctionSource:
    """A source of the items that a function of the query returns, plainly or asynchronously.

    It may return more than answers: each item is tested exactly. An asynchronous result is passed
    on; the code that awaits it applies `select`. Without a `description` every query is passed to
    it.
    """

    def __init__(
        self, function: Callable[[SourceQuery], ItemStream], *, description: Offered | None = None
    ) -> None:
        if not callable(function):
            raise ServiceError(f"cannot ask a {type(function).__name__}: expected a function")
        self._function = function
        self._description = Fresh(lambda: Filter({}), description, FRESH_S)

    def answer(self, query: SourceQuery) -> Iterator[Notification] | AsyncIterable[Item]:
        """See `DataSource`."""
        given = self._function(query)
        return given if isinstance(given, AsyncIterable) else query.select(given)

    def describe(self, now_us: int) -> Offer:
        """See `DataSource`."""
        return self._description.describe(now_us)
