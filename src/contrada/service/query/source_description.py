"""Descriptions of data that are derived from it: values where these are few, otherwise ranges.

A description is wider than its data, never narrower. It is derived again at its first use after
`fresh_s`. Until then, queries that do not meet it miss new data outside of it.

Source: CU-CS-948-03 §4 (an advertisement may cover more than there is).
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final, TypeAlias

from contrada.errors import ServiceError
from contrada.model import Advertisement, Filter, Notification, ValueSet
from contrada.model.algebra.value_set import ABSENT, of_cuts, of_keys
from contrada.model.domains import line
from contrada.model.domains.values import Key
from contrada.routing.router_messages import Offer
from contrada.service.requests import offer_of
from contrada.service.subjects import Offered

DESCRIBED_VALUES_MAX: Final = 100
"""Values of an attribute that a description lists. Beyond it: it has their range in each domain."""

DESCRIBED_NAMES_MAX: Final = 1_000
"""Attributes that a description constrains. Beyond it: it constrains none, so that every query
meets it."""

FRESH_S: Final = 60.0
"""Seconds for which a derived description holds by default. Beyond it: its next use derives it
again."""

OfferMaker: TypeAlias = Callable[[], Offer]


class Fresh:
    """A derived description that is cached for `fresh_s`, or a given one."""

    def __init__(self, work_out: OfferMaker, given: Offered | None, fresh_s: float) -> None:
        given_s: object = fresh_s
        if isinstance(given_s, bool) or not isinstance(given_s, int | float) or not given_s >= 0:
            raise ServiceError(f"fresh_s = {fresh_s!r}: expected seconds, 0 or more")
        self._given = None if given is None else offer_of(given)
        self._work_out = work_out
        self._fresh_us = fresh_s * 1e6
        self._known: tuple[int, Offer] | None = None

    def describe(self, now_us: int) -> Offer:
        """The description; derived again when it is too old, or the clock was put back."""
        if self._given is not None:
            return self._given
        if self._known is None or not 0 <= now_us - self._known[0] < self._fresh_us:
            self._known = now_us, self._work_out()
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
        """Replaces the values by their range."""
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
