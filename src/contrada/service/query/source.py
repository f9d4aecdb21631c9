"""`DataSource`: the interface of a source; `RecordSource`, `FunctionSource`, descriptions of data.

A description is wider than its data, never narrower. One that is derived from the data is derived
again at its first use after `fresh_s`: until then, queries that do not meet it miss new data.

Source: CU-CS-948-03 §4 (an advertisement may cover more than there is).
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from functools import reduce
from typing import Final, Protocol, TypeAlias, runtime_checkable

from contrada.errors import ServiceError
from contrada.model import Advertisement, Filter, Notification, ValueSet
from contrada.model.algebra.value_set import ABSENT, of_cuts, of_keys
from contrada.model.domains import line
from contrada.model.domains.values import Key, is_number
from contrada.routing.router_messages import Offer
from contrada.service.query.source_query import SourceQuery
from contrada.service.requests import notification_of, offer_of
from contrada.service.subjects import Item, Offered

ItemStream: TypeAlias = Iterable[Item] | AsyncIterable[Item]
"""Items one after another. A plain iterable is iterated on a thread of its own, and a generator is
closed at the end; the items of an asynchronous iterable are tested one by one."""


DESCRIBED_VALUES_MAX: Final = 100
"""Values of an attribute that a description lists. Beyond it: it has their range in each domain."""

DESCRIBED_NAMES_MAX: Final = 1_000
"""Attributes of a description. Beyond it: it constrains none; every query meets it."""

FRESH_S: Final = 60.0
"""Seconds that a derived description holds by default. Beyond it: its next use derives it again."""


class DescribedSource(ABC):
    """The base of sources with a given description, or a derived one that holds for `fresh_s`."""

    def __init__(self, description: Offered | None, fresh_s: float) -> None:
        if not is_number(fresh_s) or not fresh_s >= 0:
            raise ServiceError(f"fresh_s = {fresh_s!r}: expected seconds, 0 or more")
        self.fresh_s = fresh_s
        self._given = None if description is None else offer_of(description)
        self._known: tuple[int, Offer] | None = None

    @abstractmethod
    def _describe(self) -> Offer:
        """Derives the description."""

    def describe(self, now_us: int) -> Offer:
        """The description; derived again when it is too old, or the clock was put back."""
        if self._given is not None:
            return self._given
        if self._known is None or not 0 <= now_us - self._known[0] < self.fresh_s * 1e6:
            self._known = now_us, self._describe()
        return self._known[1]


class SeenRanges:
    """The values of each attribute: some single values, or the range in each domain."""

    def __init__(self) -> None:
        self._values: dict[str, set[Key]] = {}
        self._ends: dict[str, dict[int, tuple[Key, Key]]] = {}

    def add(self, item: Notification) -> None:
        """Adds the values of an item."""
        for name in item:
            values = self._values.setdefault(name, set())
            values.update(item.keys_of(name))
            if len(values) > DESCRIBED_VALUES_MAX:
                self._pass_on(name)

    def _pass_on(self, name: str) -> None:
        ends = self._ends.setdefault(name, {})
        for key in self._values[name]:
            low, high = ends.get(key[0], (key, key))
            ends[key[0]] = min(low, key), max(high, key)
        self._values[name].clear()

    def offer(self) -> Offer:
        """The description of all added items."""
        if len(self._values) > DESCRIBED_NAMES_MAX:
            return Filter({})
        return Advertisement.of_sets({name: self._set(name) for name in self._values})

    def _set(self, name: str) -> ValueSet:
        if name in self._ends:
            self._pass_on(name)
            return reduce(ValueSet.__or__, [within(*e) for e in self._ends[name].values()])
        return of_keys(self._values[name])


def within(low: Key, high: Key) -> ValueSet:
    """The interval between two values of the same domain."""
    return of_cuts(line.intersection(line.at_least(low), line.at_most(high)))


def described(items: Iterable[Notification]) -> Offer:
    """A description of the items. Cost: some microseconds for each attribute of each item."""
    ranges = SeenRanges()
    for item in items:
        ranges.add(item)
    return ranges.offer()


def description_of_columns(sets: dict[str, ValueSet], *, is_whole: bool) -> Offer:
    """The description of columns with these values, or NULL.

    `is_whole`: the items have no other attributes, as where no value is an object.
    """
    if len(sets) > DESCRIBED_NAMES_MAX:
        return Filter({})
    if is_whole:
        return Advertisement.of_sets(sets)
    return Filter.of_sets({name: values | ABSENT for name, values in sets.items()})


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


class RecordSource(DescribedSource):
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
        super().__init__(description, fresh_s)
        self._records = records

    def answer(self, query: SourceQuery) -> Iterator[Notification]:
        """See `DataSource`. Cost: some microseconds for each record."""
        return query.select(self._records)

    def _describe(self) -> Offer:
        """Derives the description. Cost: an iteration of all records."""
        return described(map(notification_of, self._records))


class FunctionSource(DescribedSource):
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
        super().__init__(description, FRESH_S)
        self._function = function

    def answer(self, query: SourceQuery) -> Iterator[Notification] | AsyncIterable[Item]:
        given = self._function(query)
        return given if isinstance(given, AsyncIterable) else query.select(given)

    def _describe(self) -> Offer:
        return Filter({})
