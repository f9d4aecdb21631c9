"""`Pattern`: a sequence of filters, which the room `patterns` matches."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contrada.errors import InvalidFilterError, InvalidNameError
from contrada.model.algebra import notation
from contrada.model.algebra.filter import Filter
from contrada.model.algebra.html_display import html_code
from contrada.model.domains.values import INT_MAX, check_name

PATTERN_PARTS_MAX: Final = 64
"""Filters of a pattern. Beyond it: InvalidFilterError."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sequence of at least two filters. Immutable.

    `Pattern("every a = 1 -> b = 2 by host within 5 min")` parses; `Pattern([f, g], by=("host",),
    within_us=300_000_000, every=True)` builds.

    `by` names attributes whose values a match has in common; `within_us` is the longest time from
    the first to the last notification of a match, in microseconds; `every` opens a run for each
    notification that matches the first filter.

    Source: PODC 2000 §2, figure 4.
    """

    filters: tuple[Filter, ...]
    by: tuple[str, ...]
    within_us: int | None
    every: bool

    def __init__(
        self,
        filters: str | Iterable[Filter],
        *,
        by: str | Iterable[str] = (),
        within_us: int | None = None,
        every: bool = False,
    ) -> None:
        if isinstance(filters, str):
            parsed = notation.parse_as(Pattern, filters)
            if tuple(by) or within_us is not None or every:
                reason = "a pattern given as a text takes no further arguments"
                raise InvalidFilterError("->", (filters,), reason)
            filters, every = parsed.filters, parsed.every
            by, within_us = parsed.by, parsed.within_us
        if not isinstance(filters, Iterable):
            raise InvalidFilterError("->", (filters,), "a pattern is a text, or several filters")
        parts, names = tuple(filters), (by,) if isinstance(by, str) else tuple(by)
        if not 2 <= len(parts) <= PATTERN_PARTS_MAX:
            reason = f"a pattern has 2 to {PATTERN_PARTS_MAX} filters, this one {len(parts)}"
            raise InvalidFilterError("->", parts, reason)
        for part in parts:
            if not isinstance(part, Filter):
                raise InvalidFilterError("->", (part,), "a pattern is made of filters")
        try:
            distinct = tuple(dict.fromkeys(map(check_name, names)))
        except InvalidNameError as error:
            raise InvalidFilterError("by", names, error.reason) from None
        if within_us is not None and (type(within_us) is not int or not 0 <= within_us <= INT_MAX):
            reason = "expected microseconds as an int from 0"
            raise InvalidFilterError("within", (within_us,), reason)
        set_ = object.__setattr__
        set_(self, "filters", parts)
        set_(self, "by", distinct)
        set_(self, "within_us", within_us)
        set_(self, "every", every)

    @property
    def is_empty(self) -> bool:
        """Whether no sequence can match, because one of the filters cannot."""
        return any(part.is_empty for part in self.filters)

    def __str__(self) -> str:
        return notation.text_of(self)

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"

    def _repr_html_(self) -> str:
        return html_code(self)
