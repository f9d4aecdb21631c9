"""`ObventPattern`: sequence patterns over types of obvents.

Each part is a type, or a type with a filter or predicate. Patterns are matched in the network, so a
predicate must be expressed exactly by one filter.

Source: EPFL 2503 §2.4.4, §7 (event correlation); PODC 2000 §2, figure 4.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

from contrada.errors import InvalidObventError
from contrada.model import Envelope, Filter, Pattern
from contrada.model.domains.values import Value
from contrada.patterns import Match
from contrada.service import Interest, Predicate, Subscribable, filters_of, narrowing_of, residue_of
from contrada.typed.obvent_type import type_of

P = TypeVar("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

Part = type[A] | Interest[A] | tuple[type[A] | Interest[A], Subscribable | Predicate[A]]
"""A type, or a type with a filter or predicate."""


@dataclass(frozen=True, slots=True)
class ObventMatch(Generic[P]):
    """One match: its objects, one for each part, in order; `by` and `envelope` as in `Match`."""

    obvents: P
    by: tuple[Value, ...]
    envelope: Envelope


class PatternOptions(TypedDict, total=False):
    """The options of an `ObventPattern`."""

    by: str | Iterable[str]
    within: timedelta | None
    every: bool


class ObventPattern(Pattern, Generic[P]):
    """A sequence of obvents of these types.

    `by` names fields with equal values in the objects of a match, `within` is the longest time from
    the first to the last, `every` begins a match at each first object. Raises InvalidObventError
    for an unknown type or field, or a predicate that no filter expresses exactly.
    """

    @overload
    def __init__(
        self: "ObventPattern[tuple[A, B]]",
        first: Part[A],
        second: Part[B],
        /,
        **options: Unpack[PatternOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "ObventPattern[tuple[A, B, C]]",
        first: Part[A],
        second: Part[B],
        third: Part[C],
        /,
        **options: Unpack[PatternOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "ObventPattern[tuple[A, B, C, D]]",
        first: Part[A],
        second: Part[B],
        third: Part[C],
        fourth: Part[D],
        /,
        **options: Unpack[PatternOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "ObventPattern[tuple[Any, ...]]",
        first: Part[Any],
        second: Part[Any],
        third: Part[Any],
        fourth: Part[Any],
        fifth: Part[Any],
        /,
        *parts: Part[Any],
        **options: Unpack[PatternOptions],
    ) -> None: ...

    def __init__(
        self,
        *parts: Part[Any],
        by: str | Iterable[str] = (),
        within: timedelta | None = None,
        every: bool = False,
    ) -> None:
        named = (by,) if isinstance(by, str) else tuple(by)
        pairs = [part if isinstance(part, tuple) else (part, None) for part in parts]
        filters = [_filter_of(subject, where, named) for subject, where in pairs]
        within_us = None if within is None else within // timedelta(microseconds=1)
        super().__init__(filters, by=named, within_us=within_us, every=every)
        object.__setattr__(self, "_readers", tuple(subject for subject, _ in pairs))

    def from_match(self, match: Match[Any]) -> ObventMatch[P]:
        """Returns the objects of a match. Raises InvalidObventError for one that cannot be read."""
        readers: tuple[Any, ...] = self._readers  # type: ignore[attr-defined]
        pairs: Any = zip(readers, match.notifications, strict=True)
        obvents = tuple(subject.from_notification(each) for subject, each in pairs)
        return ObventMatch(cast(P, obvents), match.by, match.envelope)


def _filter_of(subject: Any, where: Any, by: tuple[str, ...]) -> Filter:
    name = getattr(subject, "__qualname__", str(subject))
    if not isinstance(subject, Interest):
        raise InvalidObventError(name, "a part of a pattern is a type of obvents")
    if isinstance(subject, type):
        shape = type_of(subject).codec.shape
        for field in by:
            held = shape.by_name.get(field)
            if held is None or not held.is_flat:
                raise InvalidObventError(name, f"`by` names {field!r}, which is no such field")
    where = narrowing_of(subject, where)
    filters = filters_of(subject, where)
    if residue_of(subject, where) is not None or len(filters.filters) != 1:
        explained = getattr(where, "residue", "") or str(filters)
        reason = f"a part of a pattern needs a predicate that is exactly one filter: {explained}"
        raise InvalidObventError(name, reason)
    found: Filter = filters.filters[0]
    return found
