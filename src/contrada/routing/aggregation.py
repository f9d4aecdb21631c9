"""`Combination` and `Partial`: results computed on the path of a query, by group.

A source combines its own items first, and each server the results from below; so one *partial
result* crosses each link, whatever the number of items. Any grouping and order gives the same
result: see `accumulators`. A result beyond the limits fails the query; there is no silent
approximation.

Source: CU-CS-948-03 §8 (Site-Select: aggregation inside the network).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from contrada.errors import (
    EncodingError,
    InvalidCombinationError,
    InvalidNameError,
    LimitError,
    shortened,
)
from contrada.model import Notification
from contrada.model.domains.values import ABSENT, ABSENT_KEY, Key, check_name, value_of
from contrada.model.languages.work_budget import spend
from contrada.routing import accumulators

AGGREGATES_MAX: Final = 16
"""Aggregates of one query. Beyond it: InvalidCombinationError."""

GROUPS_MAX: Final = 10_000
"""Groups of a partial result. Beyond it: LimitError, and the query fails."""

TOP_MAX: Final = 1_000
"""Largest or smallest items of one aggregate. Beyond it: InvalidCombinationError."""

PARTIAL_BYTES_MAX: Final = 4 * 2**20
"""Bytes of a partial result, and of its items and hashes. Beyond it: LimitError, and the query
fails; EncodingError while decoding."""

_BYTES_PER_STEP: Final = 64
"""Bytes per step of work: the largest partial result fits a request's budget."""


class AggregateKind(StrEnum):
    """The functions of aggregates."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    TOP = "top"
    BOTTOM = "bottom"
    DISTINCT = "distinct"


class Aggregate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One function of an attribute, over all items of an answer.

    `aggregate_of` parses one: `count` counts items, `count(price)` those with a price; `sum`,
    `mean`, `min`, `max`, `distinct` take an attribute; `top 3(price)` gives the three items with
    the largest prices, `bottom 3(price)` those with the smallest. Each of an attribute's several
    values counts. `accumulators` defines the results. Raises InvalidCombinationError.
    """

    kind: AggregateKind
    attribute: str = ""
    items: int = 0

    def __post_init__(self) -> None:
        try:
            msgspec.structs.force_setattr(self, "kind", AggregateKind(self.kind))
            if self.attribute or self.kind is not AggregateKind.COUNT:
                check_name(self.attribute)
        except (ValueError, InvalidNameError) as error:
            raise InvalidCombinationError(self, str(error)) from None
        most = TOP_MAX if self.kind in (AggregateKind.TOP, AggregateKind.BOTTOM) else 0
        if type(self.items) is not int or not min(most, 1) <= self.items <= most:
            raise InvalidCombinationError(self, f"items: expected {min(most, 1)} to {most}")

    @property
    def name(self) -> str:
        """The name of its result: `count`, `sum(price)`, `top 3(price)`."""
        number = f" {self.items}" if self.items else ""
        return f"{self.kind}{number}" + (f"({self.attribute})" if self.attribute else "")


_AGGREGATE: Final = re.compile(r"\s*(\w+)(?:\s+(\d+))?\s*(?:\((.*)\))?\s*", re.DOTALL)


def aggregate_of(text: Aggregate | str) -> Aggregate:
    """Parses `count`, `sum(price)` or `top 3(price)`. Raises InvalidCombinationError."""
    if isinstance(text, Aggregate):
        return text
    given: object = text
    found = _AGGREGATE.fullmatch(given) if isinstance(given, str) else None
    if found is None or found[1] not in {*AggregateKind}:
        known = ", ".join(AggregateKind)
        raise InvalidCombinationError(text, f"expected one of {known}, as 'sum(price)'")
    return Aggregate(AggregateKind(found[1]), found[3] or "", int(found[2] or 0))


class Combination(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The aggregates to compute over all items, for each value of `by`, if given.

    An item with several values of `by` belongs to the group of each. Items without `by` form a
    group of their own. Raises InvalidCombinationError for no aggregate, too many, or two results of
    one name.
    """

    aggregates: tuple[Aggregate, ...]
    by: str = ""

    def __post_init__(self) -> None:
        aggregates = self.aggregates
        given: object = aggregates
        if not isinstance(given, tuple | list) or not 1 <= len(aggregates) <= AGGREGATES_MAX:
            raise InvalidCombinationError(self, f"expected 1 to {AGGREGATES_MAX} aggregates")
        if not all(isinstance(each, Aggregate) for each in aggregates):
            raise InvalidCombinationError(self, "expected aggregates, as Aggregate('sum', 'price')")
        msgspec.structs.force_setattr(self, "aggregates", tuple(aggregates))
        names = [each.name for each in aggregates]
        if self.by:
            try:
                names.append(check_name(self.by))
            except InvalidNameError as error:
                raise InvalidCombinationError(self, str(error)) from None
        if len({*names, SKIPPED, ESTIMATED}) < len(names) + 2:
            raise InvalidCombinationError(self, "two results of one name")


SKIPPED: Final = "skipped"
"""The key under which results count the values that an aggregate could not take."""

ESTIMATED: Final = "estimated"
"""The key under which results give the bounds of estimates, right 19 times of 20."""

_ACCUMULATORS: Final[Mapping[AggregateKind, Callable[[Aggregate], accumulators.Accumulator]]] = {
    AggregateKind.COUNT: lambda of: accumulators.Counted(every=not of.attribute),
    AggregateKind.SUM: lambda of: accumulators.Total(),
    AggregateKind.MEAN: lambda of: accumulators.Total(is_mean=True),
    AggregateKind.MIN: lambda of: accumulators.Extreme(least=True),
    AggregateKind.MAX: lambda of: accumulators.Extreme(least=False),
    AggregateKind.TOP: lambda of: accumulators.Best(of.attribute, of.items, least=False),
    AggregateKind.BOTTOM: lambda of: accumulators.Best(of.attribute, of.items, least=True),
    AggregateKind.DISTINCT: lambda of: accumulators.Distinct(),
}


class _PackedGroup(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: tuple[int, bool | int | float | bytes]
    held: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=AGGREGATES_MAX)]


_decoder: Final = msgspec.msgpack.Decoder(
    Annotated[list[_PackedGroup], msgspec.Meta(max_length=GROUPS_MAX)]
)
_encoder: Final = msgspec.msgpack.Encoder()


class Partial:
    """The exact result of some items, which combines with others; unusable after LimitError."""

    def __init__(self, combination: Combination) -> None:
        self.combination = combination
        self._groups: dict[Key, list[accumulators.Accumulator]] = {}
        self._bytes = 0
        if not combination.by:
            self._group(ABSENT_KEY)  # There is one result then, even of no items.

    def add(self, item: Notification | Mapping[str, Any]) -> None:
        """Takes an item. Cost: some microseconds. Raises LimitError."""
        if not isinstance(item, Notification):
            item = Notification(item)
        combination = self.combination
        keys = [
            accumulators.present_keys(item, each.attribute) if each.attribute else ()
            for each in combination.aggregates
        ]
        for group in item.keys_of(combination.by) if combination.by else (ABSENT_KEY,):
            for held, values in zip(self._group(group), keys, strict=True):
                self._bytes += held.add(values, item)
        self._check_bytes()

    def add_all(self, items: Iterable[Notification | Mapping[str, Any]]) -> None:
        """Takes several items."""
        for item in items:
            self.add(item)

    def combine(self, other: "Partial") -> None:
        """Takes the contents of another. Raises LimitError, InvalidCombinationError."""
        if other.combination != self.combination:
            reason = "combined with a partial result of another combination"
            raise InvalidCombinationError(other.combination, reason)
        for key, theirs in other._groups.items():
            for held, each in zip(self._group(key), theirs, strict=True):
                self._bytes += held.combine(each)
        self._check_bytes()

    def to_bytes(self) -> bytes:
        """Encodes it without its combination. Raises LimitError beyond PARTIAL_BYTES_MAX."""
        groups = [(key, [each.packed() for each in held]) for key, held in self._sorted()]
        packed = _encoder.encode(groups)
        if len(packed) > PARTIAL_BYTES_MAX:
            raise LimitError("PARTIAL_BYTES_MAX", PARTIAL_BYTES_MAX, len(packed))
        return packed

    @classmethod
    def from_bytes(cls, combination: Combination, data: bytes) -> "Partial":
        """Decodes the bytes of `to_bytes`. Raises EncodingError for others. Cost: linear."""
        if len(data) > PARTIAL_BYTES_MAX:
            reason = f"{len(data)} bytes, more than PARTIAL_BYTES_MAX = {PARTIAL_BYTES_MAX}"
            raise EncodingError("a partial result", reason)
        spend(len(data) // _BYTES_PER_STEP)
        partial = cls(combination)
        try:
            for packed in _decoder.decode(data):
                partial._restore(packed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LimitError) as error:
            raise EncodingError("a partial result", shortened(str(error))) from None
        return partial

    def _restore(self, packed: _PackedGroup) -> None:
        key = accumulators.read_key(packed.key)
        if len(packed.held) != len(self.combination.aggregates):
            raise EncodingError("a partial result", "another number of aggregates")
        # Each group occurs once; without `by` there is only one.
        if key in self._groups if self.combination.by else key != ABSENT_KEY:
            raise EncodingError("a partial result", "a group that is not due")
        for held, each in zip(self._group(key), packed.held, strict=True):
            self._bytes += held.restore(each)
        self._check_bytes()

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def results(self, most: int = GROUPS_MAX) -> list[dict[str, Any]]:
        """Returns a mapping for each of the first groups, in the order of `by`; without `by` always
        one.

        It has the group's value under the name of `by`, if the group has one, and each result under
        its aggregate's name. `skipped` counts the values that could not be taken, `estimated` holds
        the bounds of estimates, both by the name of the result.
        """
        return [self._result(key, held) for key, held in self._sorted()[:most]]

    def ordered(self) -> list[Notification]:
        """Returns the items of its first aggregate, `top` or `bottom`, then those without it."""
        best = self._group(ABSENT_KEY)[0]
        assert isinstance(best, accumulators.Best), "its items are in no order"
        return best.ordered()

    def _result(self, key: Key, held: list[accumulators.Accumulator]) -> dict[str, Any]:
        combination = self.combination
        result = {} if key[0] == ABSENT else {combination.by: value_of(key)}
        named = [(of.name, each) for of, each in zip(combination.aggregates, held, strict=True)]
        result |= {name: each.result() for name, each in named}
        skipped = {name: each.skipped for name, each in named if each.skipped}
        estimated = {name: bounds for name, each in named if (bounds := each.bounds)}
        return (
            result
            | ({SKIPPED: skipped} if skipped else {})
            | ({ESTIMATED: estimated} if estimated else {})
        )

    def _sorted(self) -> list[tuple[Key, list[accumulators.Accumulator]]]:
        return sorted(self._groups.items(), key=lambda each: each[0])

    def _group(self, key: Key) -> list[accumulators.Accumulator]:
        held = self._groups.get(key)
        if held is None:
            if len(self._groups) >= GROUPS_MAX:
                raise LimitError("GROUPS_MAX", GROUPS_MAX)
            made = [_ACCUMULATORS[each.kind](each) for each in self.combination.aggregates]
            self._groups[key] = held = made
            self._bytes += len(key[1]) if isinstance(key[1], bytes) else 0
        return held

    def _check_bytes(self) -> None:
        if self._bytes > PARTIAL_BYTES_MAX:
            raise LimitError("PARTIAL_BYTES_MAX", PARTIAL_BYTES_MAX, self._bytes)
