"""Patterns of names: `story.*.title`, `story.<0-9>.title`.

`*` matches a segment of a name, or any part of one (`geo*`), but no dot. `<0-9>` matches an integer
in this range, without leading zeros. A backslash escapes `*`, `<` and itself. In a filter a pattern
takes the place of a name. It matches if one replacement of all patterns by names matches; each is
replaced independently. See docs/feeds.md.

Routers know nothing of patterns. `WildFilters.expand` returns filters for a set of known names;
`WildFilters.matches` decides by the names of a notification.

Source: Erenkrantz 2001 §6.4 (wildcards in names, refused there for their cost in a server).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any, Final, TypeAlias

from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.model import Filter, FilterSet, Notification, ValueSet
from contrada.model.domains.values import ABSENT_KEY, NAME_BYTES_MAX
from contrada.model.rule import Rule

NAME_PATTERNS_MAX: Final = 8
"""Patterns of names in one filter of a filter set. Beyond it: LimitError."""

NAME_PATTERNS_CACHED_MAX: Final = 1_024
"""Patterns of names that are cached. Beyond it: the least recently used is parsed again."""

PATTERN: Final = "pattern"
"""The strategy with patterns of names in subscriptions."""

_RANGE: Final = re.compile(r"<(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})>")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_ESCAPED: Final = frozenset("*<\\")

Token: TypeAlias = Callable[[str, set[int]], set[int]]
"""Maps possible begins in a name to possible ends."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of names, parsed by `name_pattern`."""

    text: str
    tokens: tuple[Token, ...]

    def matches(self, name: str) -> bool:
        """Whether it matches a name. Cost: at most the length of the name, for each part."""
        places = {0}
        for token in self.tokens:
            places = token(name, places)
            if not places:
                return False
        return len(name) in places


def _match_text(text: str, name: str, places: set[int]) -> set[int]:
    """Literal text."""
    return {place + len(text) for place in places if name.startswith(text, place)}


def _match_segment(least: int, name: str, places: set[int]) -> set[int]:
    """At least so many characters other than a dot."""
    found: set[int] = set()
    end = -1
    for place in sorted(places):
        if place > end:  # Else its segment was visited already, from its beginning on.
            dot = name.find(".", place)
            end = len(name) if dot < 0 else dot
            found.update(range(place + least, end + 1))
    return found


def _match_number(low: int, high: int, name: str, places: set[int]) -> set[int]:
    """An integer in a range."""
    found: set[int] = set()
    for place in places:
        number = _NUMBER.match(name, place)
        for end in range(place + 1, number.end() + 1 if number else 0):
            if low <= int(name[place:end]) <= high:
                found.add(end)
    return found


@lru_cache(NAME_PATTERNS_CACHED_MAX)
def name_pattern(text: str) -> NamePattern:
    """Returns the pattern of a text.

    Raises ParseError with the column: for `<` without a range like `<0-9>`, smaller number first,
    for two adjacent `*`, for a backslash before a plain character, and beyond NAME_BYTES_MAX.
    """
    if len(text.encode()) > NAME_BYTES_MAX:
        raise ParseError(1, 1, "a longer pattern", f"at most {NAME_BYTES_MAX} bytes")
    tokens: list[Token] = []
    plain = ""
    place = 0
    while place < len(text):
        sign, following = text[place], text[place + 1 : place + 2]
        if sign not in _ESCAPED:
            plain, place = plain + sign, place + 1
            continue
        if sign == "\\":
            if following not in _ESCAPED or not following:
                found = (
                    f"a backslash before {following!r}" if following else "a backslash at the end"
                )
                raise ParseError(1, place + 1, found, "one before *, < or another one")
            plain, place = plain + following, place + 2
            continue
        if plain:
            tokens.append(partial(_match_text, plain))
            plain = ""
        token, place = _star(text, place) if sign == "*" else _range(text, place)
        tokens.append(token)
    if plain:
        tokens.append(partial(_match_text, plain))
    return NamePattern(text, tuple(tokens))


def _star(text: str, place: int) -> tuple[Token, int]:
    if text[place + 1 : place + 2] == "*":
        raise ParseError(1, place + 2, "a second *", "one, for a segment or its part")
    is_whole = text[place - 1 : place] in ("", ".") and text[place + 1 : place + 2] in ("", ".")
    return partial(_match_segment, 1 if is_whole else 0), place + 1


def _range(text: str, place: int) -> tuple[Token, int]:
    found = _RANGE.match(text, place)
    if found is None:
        end = text.find(">", place) + 1 or len(text)
        raise ParseError(1, place + 1, repr(text[place:end]), "a range of numbers, as <0-9>")
    low, high = map(int, found.groups())
    if low > high:
        raise ParseError(1, place + 1, repr(found.group()), "the smaller number first")
    return partial(_match_number, low, high), found.end()


def is_wild(name: str) -> bool:
    """Whether a name in a filter is a pattern. Raises ParseError for an invalid one."""
    return not _ESCAPED.isdisjoint(name) and not name.startswith("@")


@dataclass(frozen=True, slots=True)
class WildFilter:
    """A filter with patterns among its names: the constraints on patterns, and all others.

    Raises ParseError for an invalid pattern, InvalidFilterError for a constraint on a pattern that
    holds for an absent attribute, and LimitError.
    """

    plain: Filter
    wild: tuple[tuple[NamePattern, ValueSet], ...]

    @classmethod
    def of(cls, filters: Filter) -> "WildFilter":
        """Returns the filter with its names parsed as patterns."""
        plain: dict[str, ValueSet] = {}
        wild: list[tuple[NamePattern, ValueSet]] = []
        for name, values in filters.sets.items():
            if not is_wild(name):
                plain[name] = values
                continue
            if values.holds(ABSENT_KEY):
                reason = "a pattern of names has no condition that an absent attribute satisfies"
                raise InvalidFilterError("filter", (str(Filter({name: values})),), reason, name)
            wild.append((name_pattern(name), values))
        if len(wild) > NAME_PATTERNS_MAX:
            raise LimitError("NAME_PATTERNS_MAX", NAME_PATTERNS_MAX, len(wild))
        return cls(Filter.of_sets(plain), tuple(wild))

    def matches(self, notification: Notification) -> bool:
        """Whether names of the notification can replace the patterns so that it matches. Exact.

        Cost: the plain part's; then each of its names against each pattern, and for a name with
        several values each of these, times 2 to the number of patterns at worst.
        """
        if not self.plain.matches(notification):
            return False
        whole = (1 << len(self.wild)) - 1
        met = {0}  # Which patterns can be met together, by the names looked at so far.
        for name in notification:
            bits = [
                (1 << number, values)
                for number, (pattern, values) in enumerate(self.wild)
                if pattern.matches(name)
            ]
            if not bits:
                continue
            own = self.plain.sides.get(name)
            chosen = {
                sum(bit for bit, values in bits if values.holds(key))
                for key in notification.keys_of(name)
                if own is None or own.holds(key)
            }
            met |= {before | now for before in met for now in chosen}
            if whole in met:
                return True
        return whole in met

    def expanded(self, candidates: list[list[str]]) -> Iterator[Filter]:
        """Yields the filters for all combinations of these names."""
        for chosen in product(*candidates):
            found = self.plain
            for name, (_, values) in zip(chosen, self.wild, strict=True):
                found &= Filter.of_sets({name: values})
            if not found.is_empty:
                yield found

    def covering(self, candidates: list[list[str]]) -> Iterator[Filter]:
        """Yields fewer, wider filters: only the pattern with the fewest names is replaced."""
        replacements = zip(candidates, self.wild, strict=True)
        names, (_, values) = min(replacements, key=lambda pair: len(pair[0]))
        return (self.plain & Filter.of_sets({name: values}) for name in names)


class WildFilters:
    """A filter or filter set with patterns among its names. Immutable. Raises as `WildFilter`."""

    __slots__ = ("filters", "limits", "members")

    def __init__(
        self,
        filters: Filter | FilterSet | str | Mapping[str, Any],
        limits: DocumentLimits = DocumentLimits(),
    ) -> None:
        self.limits = limits
        if isinstance(filters, str):
            filters = FilterSet(filters)
        elif not isinstance(filters, Filter | FilterSet):
            filters = Filter(filters)
        self.filters = filters
        self.members = tuple(WildFilter.of(member) for member in filters.filters)

    @property
    def is_wild(self) -> bool:
        """Whether it contains a pattern."""
        return any(member.wild for member in self.members)

    def matches(self, notification: Notification) -> bool:
        """Whether it matches by the notification's own names. Exact; see `WildFilter`."""
        return any(member.matches(notification) for member in self.members)

    def expand(self, names: Iterable[str]) -> FilterSet:
        """Returns equal filters for notifications with these names.

        A pattern without a name matches nothing. Cost: names times patterns. Raises LimitError.
        """
        return FilterSet(self._expanded(frozenset(names), is_exact=True))

    def cover(self, names: Iterable[str]) -> FilterSet:
        """Returns the same if they are few; else fewer, wider filters, or the plain part."""
        return FilterSet(self._expanded(frozenset(names), is_exact=False))

    def _expanded(self, names: frozenset[str], *, is_exact: bool) -> Iterator[Filter]:
        left = most = self.limits.wild_filters_max
        for member in self.members:
            candidates = [sorted(filter(pattern.matches, names)) for pattern, _ in member.wild]
            size = math.prod(map(len, candidates))
            least = min(map(len, candidates), default=1)
            if size <= left:
                yield from member.expanded(candidates)
            elif is_exact:
                raise LimitError("wild_filters_max", most, most - left + size)
            elif least <= left:
                size = least
                yield from member.covering(candidates)
            else:
                size = 0  # These are no more filters than the set has members.
                yield member.plain
            left -= size

    def rule(self, name: str = "", filters: FilterSet | None = None) -> Rule:
        """Returns a rule: its filters are the plain part, its residue decides by the patterns.

        So every matcher of rules matches it exactly. Other `filters` must match no less.
        """
        plain = FilterSet(member.plain for member in self.members)
        return Rule(name, plain if filters is None else filters, str(self.filters), self.matches)

    def __reduce__(self) -> tuple[Any, ...]:
        return WildFilters, (self.filters, self.limits)


def by_names(filters: Filter | FilterSet | Rule, name: str = "") -> Filter | FilterSet | Rule:
    """Returns a rule for filters with patterns, else the filters. Raises as `WildFilter`."""
    if isinstance(filters, Rule):
        return filters
    wild = WildFilters(filters)
    return wild.rule(name) if wild.is_wild else filters
