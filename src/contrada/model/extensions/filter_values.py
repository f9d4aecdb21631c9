"""Filters as values: `x && "price < 100"` matches if the filter in x meets this one.

The value is a filter, or a filter set, in the text syntax. A value that is no filter (malformed, a
pattern, an unregistered operator, beyond the limits below) does not match; such a constant is
refused. The three relations are those of the algebra, between the filters within:

- `&& f` accepts g when `meets(f, g)`;
- `&& f` covers `&& g` exactly when `covers(f, g)`: a filter that meets g then meets f; and for a
  notification in g and not in f, the filter of just its values meets g and not f;
- `&& f` and `&& g` intersect, by the value `everything`, unless f or g is empty.

Beyond the limits of `decision` and `boxes`, `apply` accepts (a notification too many), and `covers`
is false.

Source: CU-CS-946-03 §7.3, figures 8a and 8b.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from contrada.errors import ContradaError, InvalidFilterError, LimitError, ParseError
from contrada.model.algebra import relations
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.extensions.extended_type import ExtendedOperator, ExtendedType
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import atoms_of
from contrada.model.languages.work_budget import spend
from contrada.model.syntax import parse

FILTER_BYTES_MAX: Final = 16_384
"""Bytes of a filter as a value or constant. Beyond it: a constant is refused, no value matches."""

FILTER_NESTING_MAX: Final = 4
"""Nesting of filters as constants. Beyond it: a constant is refused, a value does not match."""

_READING_WORK: Final = 20  # Steps of work for each byte of a parsed filter

FILTERS_CACHED_MAX: Final = 1_024
"""Cached filters of values. Beyond it: the least recently used is parsed again."""

_Filters: TypeAlias = Filter | FilterSet


class FilterIntersects(ExtendedOperator):
    """Filters that have a notification in common with the constant. Source: CU-CS-946-03 §7.3."""

    name = "&&"

    def check(self, constant: bytes) -> None:
        try:
            _filters(constant)
        except ContradaError as error:
            raise InvalidFilterError(self.name, (constant,), str(error)) from None

    def apply(self, value: bytes, constant: bytes) -> bool:
        """See the class. Cost: parsing a new value, then `meets`."""
        try:
            offered = _filters(value)
        except ContradaError:
            return False
        asked = _filters(constant)
        spend(len(asked.filters) * len(offered.filters))
        return relations.meets(asked, offered)

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        """Decides as the filters do, for another `&&`; see the module."""
        if other.operator != self.name:
            return None
        return relations.covers(_filters(constant), _filters(other.constant))

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        """True for another `&&`, unless a filter is empty; see the module."""
        if other.operator != self.name:
            return None
        return not (_filters(constant).is_empty or _filters(other.constant).is_empty)


class FilterType(ExtendedType):
    """Filters in text. Source: CU-CS-946-03 §7.3."""

    name = "Filter"

    def operators(self) -> Sequence[ExtendedOperator]:
        return (FilterIntersects(),)


@lru_cache(maxsize=FILTERS_CACHED_MAX)
def _filters(serialised: bytes) -> _Filters:
    if len(serialised) > FILTER_BYTES_MAX:
        raise LimitError("FILTER_BYTES_MAX", FILTER_BYTES_MAX, len(serialised))
    spend(_READING_WORK * len(serialised))
    try:
        parsed = parse(serialised.decode())
    except UnicodeDecodeError as error:
        raise ParseError(1, error.start + 1, "bytes that are not UTF-8", "a filter") from None
    if not isinstance(parsed, Filter | FilterSet):
        raise ParseError(1, 1, "a pattern (`->`)", "a filter or filters joined by `or`")
    if _levels(parsed) > FILTER_NESTING_MAX:
        raise LimitError("FILTER_NESTING_MAX", FILTER_NESTING_MAX, _levels(parsed))
    return parsed


def _levels(of: _Filters) -> int:
    sets = [each for member in of.filters for each in member.sets.values()]
    atoms = [atom for each in sets if each.text is not None for atom in atoms_of(each.text)]
    inner = [_levels(_filters(atom.constant)) for atom in atoms if atom.operator == "&&"]
    return 1 + max(inner, default=0)
