"""Advertisements and queries: the two other products that clients send.

An advertisement says what its client may publish: constraints on one attribute are a
disjunction, an attribute may also be absent, and one that is not named is absent. A query asks
data sources: an attribute that it does not name may be anything. It is a message kind of its
own and not a filter, although its sets look the same.

Source: PODC 2000 §2 and §3 (advertisements); CU-CS-948-03 §4 to §7 (queries).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from contrada.model.filter import Filter, checked_sets, system_name
from contrada.model.product import ENVELOPE_SETS, Product, universe
from contrada.model.values import Value
from contrada.model.valueset import ABSENT, EVERYTHING, ValueSet, union


class Advertisement(Product):
    """What a client may publish. Immutable.

    `Advertisement("what = 'alarm' and what = 'login' and username any")` parses: here two
    constraints on one attribute mean either. `Advertisement({"what": in_("alarm", "login")})`
    builds; a value may also be a list of sets.

    Source: PODC 2000 §3, the relation between advertisement and notification; table 2.
    """

    __slots__ = ("_sets",)

    _sets: dict[str, ValueSet]

    def __init__(
        self, constraints: str | Mapping[str, ValueSet | Value | Iterable[ValueSet | Value]]
    ) -> None:
        if isinstance(constraints, str):
            from contrada.model.parsing import parse_advertisement

            sets = parse_advertisement(constraints)._sets
        else:
            sets = _advertised(checked_sets(_united(constraints)))
        object.__setattr__(self, "_sets", sets)

    @classmethod
    def of_sets(cls, sets: Mapping[str, ValueSet]) -> "Advertisement":
        """The advertisement of these sets; absent is added where it belongs."""
        new = cls.__new__(cls)
        object.__setattr__(new, "_sets", _advertised(sets))
        return new

    @property
    def sets(self) -> Mapping[str, ValueSet]:
        """The sets of the named attributes, each with absent."""
        return MappingProxyType(self._sets)

    @property
    def sides(self) -> Mapping[str, ValueSet]:
        """The sets as they are held."""
        return self._sets

    @property
    def default(self) -> ValueSet:
        """Every other attribute is absent."""
        return ABSENT

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Advertisement):
            return NotImplemented
        return self._sets == other._sets or (self.is_empty and other.is_empty)

    def __hash__(self) -> int:
        return hash(Advertisement) if self.is_empty else hash(tuple(self._sets.items()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an Advertisement cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (Advertisement.of_sets, (self._sets,))

    def __str__(self) -> str:
        from contrada.model.printing import advertisement_text

        return advertisement_text(self)

    def __repr__(self) -> str:
        return f"Advertisement({str(self)!r})"


class Query(Product):
    """A question to data sources: a point or any set for each named attribute. Immutable.

    Source: CU-CS-948-03 §5, figure 2; equation 3.
    """

    __slots__ = ("_filter",)

    _filter: Filter

    def __init__(self, constraints: str | Mapping[str, ValueSet | Value | Iterable[Value]]) -> None:
        object.__setattr__(self, "_filter", Filter(constraints))

    @classmethod
    def of_sets(cls, sets: Mapping[str, ValueSet]) -> "Query":
        """The query with these sets."""
        new = cls.__new__(cls)
        object.__setattr__(new, "_filter", Filter.of_sets(sets))
        return new

    @property
    def sets(self) -> Mapping[str, ValueSet]:
        """The sets of the named attributes."""
        return self._filter.sets

    @property
    def default(self) -> ValueSet:
        """An attribute that is not named may be anything."""
        return EVERYTHING

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Query):
            return NotImplemented
        return self._filter == other._filter

    def __hash__(self) -> int:
        return hash((Query, self._filter))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Query cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (Query.of_sets, (dict(self.sets),))

    def __str__(self) -> str:
        return str(self._filter)

    def __repr__(self) -> str:
        return f"Query({str(self)!r})"


def _advertised(sets: Mapping[str, ValueSet]) -> dict[str, ValueSet]:
    """With absent; what an advertisement says of every attribute anyway is left out."""
    advertised: dict[str, ValueSet] = {}
    for name in sorted(sets):
        if system_name(name) in ENVELOPE_SETS:
            value_set = sets[name] & universe(name)
            if value_set != universe(name):
                advertised[name] = value_set
        else:
            value_set = sets[name] | ABSENT
            if value_set != ABSENT:
                advertised[name] = value_set
    return advertised


def _united(
    constraints: Mapping[str, ValueSet | Value | Iterable[ValueSet | Value]],
) -> dict[str, ValueSet | Value | Iterable[Value]]:
    """A list with sets in it becomes their union."""
    united: dict[str, ValueSet | Value | Iterable[Value]] = {}
    for name, given in constraints.items():
        if isinstance(given, list | tuple) and any(isinstance(each, ValueSet) for each in given):
            sets = checked_sets({f"{i}": each for i, each in enumerate(given)})
            united[name] = union(sets.values())
        else:
            united[name] = given  # type: ignore[assignment]
    return united
