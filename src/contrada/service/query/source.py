"""What a source is; and the two that need no library: records in memory, a function."""

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
"""Items one after another. Who goes through plain ones gives them a thread of their own, and closes
a generator that is not gone through to its end; who awaits others decides each by the question."""


@runtime_checkable
class DataSource(Protocol):
    """What answers questions."""

    def answer(self, question: SourceQuery) -> ItemStream:
        """The items that answer the question, lazily. Raises a ContradaError with the place."""
        ...

    def describe(self, now_us: int) -> Offer:
        """Which items there may be: none lies outside, as far as is known at this time.

        It may take as long as an answer. Raises as `answer`.
        """
        ...


class RecordSource:
    """Mappings, notifications or objects in memory, or whatever can be gone through again.

    `description` says what there may be; else it is worked out of the records, at most every
    `fresh_s` seconds. Records may be added meanwhile, as far as Python allows it.
    """

    def __init__(
        self,
        records: Iterable[Item],
        *,
        description: Offered | None = None,
        fresh_s: float = FRESH_S,
    ) -> None:
        if iter(records) is records:
            reason = "what can be gone through only once answers one question; give a list"
            raise ServiceError(f"cannot offer a {type(records).__name__}: {reason}")
        self._records = records
        self.fresh_s = fresh_s
        self._description = Fresh(
            lambda: described(map(notification_of, records)), description, fresh_s
        )

    def answer(self, question: SourceQuery) -> Iterator[Notification]:
        """See `DataSource`. Cost: some microseconds for each record."""
        return question.select(self._records)

    def describe(self, now_us: int) -> Offer:
        """See `DataSource`. Cost: as going through all."""
        return self._description.describe(now_us)


class FunctionSource:
    """A function that is given the question and gives items, at once or one after another.

    It may give more than answers: items are decided exactly again. An asynchronous result is passed
    on as it is; the code that awaits it applies `select`. Without a `description` every question
    meets it.
    """

    def __init__(
        self,
        function: Callable[[SourceQuery], ItemStream],
        *,
        description: Offered | None = None,
    ) -> None:
        if not callable(function):
            raise ServiceError(f"cannot ask a {type(function).__name__}: expected a function")
        self._function = function
        self._description = Fresh(lambda: Filter({}), description, FRESH_S)

    def answer(self, question: SourceQuery) -> Iterator[Notification] | AsyncIterable[Item]:
        """See `DataSource`."""
        given = self._function(question)
        return given if isinstance(given, AsyncIterable) else question.select(given)

    def describe(self, now_us: int) -> Offer:
        """See `DataSource`."""
        return self._description.describe(now_us)
