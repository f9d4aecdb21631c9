"""`Advertisement` and `Query`: two products that clients send besides filters.

An advertisement describes the publications of a client: constraints on one attribute are a
disjunction, an attribute may also be absent, and an unnamed one is absent. A query asks data
sources: an unnamed attribute may be anything. It is a message kind of its own, although its sets
look like those of a filter.

Source: PODC 2000 §2 and §3 (advertisements); CU-CS-948-03 §4 to §7 (queries).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from contrada.model.algebra import notation
from contrada.model.algebra.filter import Filter, check_mapping, check_sets
from contrada.model.algebra.product import ENVELOPE_SETS, HeldProduct, universe, within_universe
from contrada.model.algebra.value_set import ABSENT, ValueSet, union
from contrada.model.domains.values import Value


class Advertisement(HeldProduct):
    """The publications that a client may make. Immutable.

    `Advertisement("what = 'alarm' and what = 'login' and username any")` parses: two constraints on
    one attribute mean either. `Advertisement({"what": ct.ops.in_("alarm", "login")})` builds; a
    value may also be a list of sets.

    Source: PODC 2000 §3, the relation between advertisement and notification; table 2.
    """

    __slots__ = ()

    def __init__(
        self, constraints: str | Mapping[str, ValueSet | Value | Iterable[ValueSet | Value]]
    ) -> None:
        if isinstance(constraints, str):
            self._hold(notation.parse_as(Advertisement, constraints).sides)
            return
        united: dict[str, ValueSet | Value | Iterable[Value]] = {}
        for name, given in check_mapping(constraints).items():
            united[name] = given
            if isinstance(given, list | tuple) and any(isinstance(e, ValueSet) for e in given):
                united[name] = union(check_sets({f"{i}": e for i, e in enumerate(given)}).values())
        self._hold(check_sets(united))

    @staticmethod
    def _normal(sets: Mapping[str, ValueSet]) -> dict[str, ValueSet]:
        """Returns the sets with *absent* added, without those that equal the default."""
        advertised: dict[str, ValueSet] = {}
        for name in sorted(sets):
            whole, value_set = ABSENT, sets[name] | ABSENT
            if name in ENVELOPE_SETS:
                whole, value_set = universe(name), within_universe(name, sets[name])
            if value_set != whole:
                advertised[name] = value_set
        return advertised

    default: ClassVar[ValueSet] = ABSENT
    """Every other attribute is absent."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Advertisement):
            return NotImplemented
        return self.sides == other.sides or (self.is_empty and other.is_empty)

    def __hash__(self) -> int:
        return hash(Advertisement) if self.is_empty else hash(tuple(self.sides.items()))


class Query(HeldProduct):
    """A conjunctive query to data sources: a point or any set for each attribute. Immutable.

    `Service.query` takes it. `contrada.SourceQuery` is what sources receive: alternatives of such
    queries, with variables between attributes.

    Source: CU-CS-948-03 §5, figure 2; equation 3.
    """

    __slots__ = ()

    def __init__(self, constraints: str | Mapping[str, ValueSet | Value | Iterable[Value]]) -> None:
        self._hold(Filter(constraints).sides)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same question. Beyond the limits: no, and counted."""
        if not isinstance(other, Query):
            return NotImplemented
        return Filter.of_sets(self.sides) == Filter.of_sets(other.sides)

    def __hash__(self) -> int:
        return hash((Query, Filter.of_sets(self.sides)))

    def to_filters(self) -> Filter:
        """The filter that matches the items which answer, so that services accept a query."""
        return Filter.of_sets(self.sides)
