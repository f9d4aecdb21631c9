"""`Filter` and `FilterSet`: conjunctions of constraints, and finite unions of them.

The constraints on one attribute are held as one value set, their intersection. An unrestricted
attribute is not held at all, so the empty filter matches everything. `or`, lifted predicates and
translated rules give filter sets.

Source: PODC 2000 §2, figure 3; §3 (a filter as a subscription).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, overload

from contrada.errors import InvalidFilterError, InvalidNameError, InvalidValueError, LimitError
from contrada.model.algebra import boxes, notation
from contrada.model.algebra.expression import And, Formula, Member, Or, conjunctions, negation
from contrada.model.algebra.html_display import html_table
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.product import HeldProduct, product_covers, universe
from contrada.model.algebra.sets import in_
from contrada.model.algebra.value_set import ValueSet, of_keys
from contrada.model.domains.values import Key, Value, check_name, key_of
from contrada.model.languages import decision
from contrada.model.languages.work_budget import Work

RELATION_WORK_MAX: Final = 5_000_000
"""Steps, of about a microsecond, of a relation between unions of filters or of a witness. Beyond
it: the safe answer, counted: covers nothing, meets all, no witness."""


class Selection(ABC):
    """The base of `Filter` and `FilterSet`: a selection of notifications.

    `f | g`, `f & g`, `f - g` and `~f` are the union, the intersection, the difference and the
    complement; g may be a text or a mapping. They are exact. Combining unions can give many
    filters: LimitError beyond `expression.CONJUNCTIONS_MAX`.

    A notification with several values of an attribute is selected if some choice of one value per
    attribute is. So both f and `~f` can select it.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def filters(self) -> "tuple[Filter, ...]":
        """The filters of the union; of a filter itself."""

    @property
    def is_empty(self) -> bool:
        """Whether no notification matches. Beyond the limits: no, and counted."""
        return all(member.is_empty for member in self.filters)

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the notification, or one of these attributes, is selected. Exact."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return any(member.matches(notification) for member in self.filters)

    def unknown(self) -> tuple[str, ...]:
        """Returns the names of unregistered operators."""
        return tuple(dict.fromkeys(name for member in self.filters for name in member.unknown()))

    def __or__(self, other: "Selects") -> "FilterSet":
        return FilterSet((self, selection(other)))

    def __and__(self, other: "Selects") -> "Filter | FilterSet":
        return filter_set(And((_condition(self), _condition(selection(other)))))

    def __sub__(self, other: "Selects") -> "FilterSet":
        return filter_set(And((_condition(self), negation(_condition(selection(other))))))

    def __rand__(self, other: "Selects") -> "Filter | FilterSet":
        return self & other

    def __ror__(self, other: "Selects") -> "FilterSet":
        return self | other

    def __rsub__(self, other: "Selects") -> "FilterSet":
        return filter_set(And((_condition(selection(other)), negation(_condition(self)))))

    def __invert__(self) -> "FilterSet":
        """Returns the complement; of several values of an attribute one not selected is enough."""
        return filter_set(negation(_condition(self)))

    def __bool__(self) -> bool:
        """Raises TypeError: `and`, `or` and `not` would take one filter and drop the other."""
        raise TypeError("filters are joined by `&`, `|` and `~`; ask one for is_empty or matches")


class Filter(HeldProduct, Selection):
    """A conjunction of constraints on attributes. Immutable.

    `Filter("price < 100 and symbol = 'DIS'")` parses (ParseError gives the position);
    `Filter({"price": ct.ops.lt(100), "symbol": "DIS"})` builds: a value alone means equality, a
    collection of values means one of them. `&` joins two filters.

    Source: PODC 2000 §2, figure 3.
    """

    __slots__ = ()

    def __init__(self, constraints: str | Mapping[str, ValueSet | Value | Iterable[Value]]) -> None:
        if isinstance(constraints, str):
            self._hold(notation.parse_as(Filter, constraints).sides)
        else:
            self._hold(check_sets(constraints))

    @property
    def filters(self) -> "tuple[Filter, ...]":
        return (self,)

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the filter, as a subscription, matches the notification (φ for every set).

        Exact. Raises UnknownOperatorError for an unregistered operator. Source: PODC 2000 §3, the
        relation between subscription and notification.
        """
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        for name, value_set in self.sides.items():
            if not holds_one(value_set, notification.keys_of(name)):
                return False
        return True

    def covers(self, other: "Selects") -> bool:
        """Whether every notification that the other matches is matched by this one."""
        return all(product_covers(self, member) for member in selection(other).filters)

    @overload
    def __and__(self, other: "Filter") -> "Filter": ...

    @overload
    def __and__(self, other: "Selects") -> "Filter | FilterSet": ...

    def __and__(self, other: "Selects") -> "Filter | FilterSet":
        if not isinstance(other, Filter):
            other = selection(other)
            if not isinstance(other, Filter):
                return super().__and__(other)
        sets = dict(self.sides)
        for name, value_set in other.sides.items():
            known = sets.get(name)
            sets[name] = value_set if known is None else known & value_set
        return Filter.of_sets(sets)

    def unknown(self) -> tuple[str, ...]:
        with_text = [value_set for value_set in self.sides.values() if value_set.text is not None]
        if not with_text:  # As mostly.
            return ()
        return tuple(dict.fromkeys(name for each in with_text for name in each.unknown()))

    def __eq__(self, other: object) -> bool:
        """Whether both match the same notifications. Beyond the limits: no, and counted."""
        if not isinstance(other, Filter):
            return NotImplemented
        names = dict.fromkeys((*self.sides, *other.sides))
        if all(self.set_of(name) == other.set_of(name) for name in names):
            return True
        return self.is_empty and other.is_empty

    def __hash__(self) -> int:
        if self.is_empty:
            return hash(Filter)
        # A set may be everything although its form does not show it.
        parts = [
            (name, each)
            for name, each in self.sides.items()
            if each.text is None or each.key() != universe(name).key()
        ]
        return hash(tuple(parts))


class FilterSet(Selection):
    """A finite union of filters. Immutable; the order of its filters has no meaning.

    `FilterSet("a = 1 or b = 2")` parses; `FilterSet([f, g])` builds, with filter sets as members
    too. Without members it matches nothing.
    """

    __slots__ = ("filters",)

    filters: tuple[Filter, ...]
    """The members."""

    def __init__(self, members: "str | Selection | Iterable[Selects]") -> None:
        if isinstance(members, str):
            flat: Iterable[Filter] = notation.parse_as(FilterSet, members).filters
        elif isinstance(members, Selection):
            flat = members.filters
        elif isinstance(members, Mapping) or not isinstance(members, Iterable):
            raise InvalidFilterError("or", (members,), "a filter set is made of filters")
        else:
            flat = [each for member in members for each in selection(member).filters]
        object.__setattr__(self, "filters", tuple(flat))

    def covers(self, other: "Selects") -> bool:
        """Whether every notification that the other matches is matched by this one.

        A union can cover a filter that none of its members covers: the members' boxes are
        subtracted from the other's. Exact up to `boxes.BOX_WORK_MAX` for each member, and
        `RELATION_WORK_MAX` for all; beyond these no, and counted.
        """
        others = selection(other).filters
        if len(others) > 1:  # Unions are often alike but for a few members.
            mine = {boxes.form(member.sets) for member in self.filters}
            others = tuple([each for each in others if boxes.form(each.sets) not in mine])
        try:
            with Work("RELATION_WORK_MAX", RELATION_WORK_MAX):
                return all(boxes.is_covered(each, self.filters) for each in others)
        except LimitError:
            decision.safe_answers.add("covers: RELATION_WORK_MAX")
            return False

    def __iter__(self) -> Iterator[Filter]:
        return iter(self.filters)

    def __len__(self) -> int:
        return len(self.filters)

    def __eq__(self, other: object) -> bool:
        """Whether both match the same notifications. Beyond the limits: no, and counted."""
        if not isinstance(other, FilterSet):
            return NotImplemented
        if self.filters == other.filters:
            return True
        return self.covers(other) and other.covers(self)

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a FilterSet cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (FilterSet, (self.filters,))

    def __str__(self) -> str:
        return notation.text_of(self)

    def __repr__(self) -> str:
        return f"FilterSet({str(self)!r})"

    def _repr_html_(self) -> str:
        return html_table(("filters",), ((each,) for each in self.filters))


Selects: TypeAlias = Selection | str | Mapping[str, Any]
"""A selection, its text, or a mapping as `Filter` accepts it."""


def selection(given: Selects) -> Filter | FilterSet:
    """Returns the filter or filter set. Raises InvalidFilterError for another object."""
    if isinstance(given, Filter | FilterSet):
        return given
    if isinstance(given, str):
        found = notation.parse_as(FilterSet, given)
        return found.filters[0] if len(found.filters) == 1 else found
    if isinstance(given, Mapping) and not isinstance(given, Notification):
        return Filter(given)
    raise InvalidFilterError("filter", (given,), "a filter is a Filter, FilterSet, text or mapping")


def filter_set(condition: Formula) -> FilterSet:
    """Returns the filters of a condition. Cost and errors: as `expression.conjunctions`."""
    return FilterSet(Filter(sets) for sets in conjunctions(condition))


def _condition(of: Selection) -> Formula:
    return Or(
        tuple(
            And(tuple(Member(name, values) for name, values in each.sets.items()))
            for each in of.filters
        )
    )


def check_sets(given: Mapping[str, ValueSet | Value | Iterable[Value]]) -> dict[str, ValueSet]:
    """Returns the value sets of a user's mapping, with names and values checked."""
    return {name: _as_set(name, each) for name, each in check_mapping(given).items()}


def check_mapping(constraints: object) -> Mapping[str, Any]:
    """Returns the constraints. Raises InvalidFilterError if they are no mapping."""
    if not isinstance(constraints, Mapping):
        reason = "constraints are a text, or a mapping of names to values or sets"
        raise InvalidFilterError("constraint", (constraints,), reason)
    return constraints


def _as_set(name: str, given: ValueSet | Value | Iterable[Value]) -> ValueSet:
    check_name(name)
    if isinstance(given, ValueSet):
        return given
    if isinstance(given, Mapping):
        reason = f"name nested attributes with dots, as '{name}.b'; a set is ct.ops.lt(5)"
        raise InvalidFilterError("=", (given,), reason, name)
    try:
        if isinstance(given, list | tuple | set | frozenset):
            return in_(*given)
        return of_keys((key_of(given),))  # type: ignore[arg-type]
    except InvalidFilterError as error:
        raise InvalidFilterError(error.operator, error.constants, error.reason, name) from None
    except (InvalidValueError, InvalidNameError) as error:
        raise InvalidFilterError("=", (given,), error.reason, name) from None


def holds_one(value_set: ValueSet, keys: tuple[Key, ...]) -> bool:
    """Whether the set holds one of the values with these keys."""
    holds = value_set.holds
    return any(holds(key) for key in keys) if len(keys) > 1 else holds(keys[0])
