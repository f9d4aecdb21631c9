"""`SourceQuery`: a query as its sources receive it, made of a text or of any subject.

The text is in the language of filters, where a variable may follow `=`: attributes that equal the
same variable have equal values. On the way a query is represented by its filters, which are wider;
a source decides exactly. See docs/query.md.

Source: CU-CS-948-03 §4, §5, and §9 (variables and terms, its future work).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.syntax.parser import Binding, parse_question
from contrada.routing.admission import ALTERNATIVES_MAX
from contrada.routing.router_messages import Disjunct, alternative
from contrada.service.requests import both, filters_of, narrowing_of, notification_of
from contrada.service.subjects import Item, Narrowable, Subscribable


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """A query of one or more alternatives, of which an answer meets one.

    `SourceQuery("origin = $x and dest = $x and price < 100")`; a filter, a filter set, a mapping, a
    `Query`, a class of obvents or another subject selects what it would subscribe. `where` narrows
    it: a text, with variables of its own, or a predicate over the objects of a type.

    Raises ParseError with the place, UnsatisfiableFilterError for a query without possible answers,
    ServiceError for an invalid subject, and LimitError. Cost: that of making the filters.
    """

    alternatives: tuple[Disjunct, ...]
    """The alternatives, of which an item has to meet one. They are sent to servers."""
    residue: Callable[[Notification], bool] | None
    """The part of a rule or predicate that is no filter, evaluated by the client, or None."""
    asker: str = field(compare=False)
    """The name of the query's client, or ""."""

    def __init__(self, asked: "Subscribable | SourceQuery", where: Any = None) -> None:
        narrowing = narrowing_of(asked, where)
        found = _bindings(asked)
        if narrowing is not None:
            narrower = _bindings(narrowing)
            if isinstance(asked, Narrowable):
                narrower = [
                    Binding(checked.sets, each.same)
                    for each in narrower
                    for checked in asked.check_where(Filter.of_sets(each.sets)).filters
                ]
            if len(found) * len(narrower) > ALTERNATIVES_MAX:
                raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, len(found) * len(narrower))
            found = [_both(one, other) for one in found for other in narrower]
        residue: Callable[[Notification], bool] | None = getattr(asked, "residue_holds", None)
        if isinstance(asked, SourceQuery):
            residue = asked.residue
        if narrowing is not None:
            residue = both(residue, getattr(narrowing, "residue_holds", None))
        self._hold([alternative(*binding) for binding in found], residue)

    @classmethod
    def of(cls, alternatives: Iterable[Disjunct], asker: str = "") -> "SourceQuery":
        """The query of these alternatives, as received. Raises as the class."""
        new = cls.__new__(cls)
        new._hold([alternative(it.query.sides, it.same) for it in alternatives], None, asker)
        return new

    def _hold(
        self,
        alternatives: Iterable[Disjunct],
        residue: Callable[[Notification], bool] | None,
        asker: str = "",
    ) -> None:
        given = tuple(alternatives)
        held = given
        for each in given:
            if each.query.is_empty:
                held = tuple(it for it in given if not it.query.is_empty)
                break
        if not held:
            raise UnsatisfiableFilterError(FilterSet(Filter.of_sets(g.query.sets) for g in given))
        if len(held) > ALTERNATIVES_MAX:
            raise LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, len(held))
        object.__setattr__(self, "alternatives", held)
        object.__setattr__(self, "residue", residue)
        object.__setattr__(self, "asker", asker)

    @property
    def filters(self) -> FilterSet:
        """Filters of which one matches every answer; they ignore variables."""
        return FilterSet(Filter.of_sets(each.query.sets) for each in self.alternatives)

    def answers(self, item: Notification | Mapping[str, Any]) -> bool:
        """Whether the item is an answer. Exact, with the residue. Raises UnknownOperatorError."""
        if not isinstance(item, Notification):
            item = Notification(item)
        for each in self.alternatives:
            if each.matches(item):
                return self.residue is None or self.residue(item)
        return False

    def select(self, items: Iterable[Item]) -> Iterator[Notification]:
        """The items that are answers, as notifications, lazily. Raises as `publish`."""
        for item in items:
            notification = item if type(item) is Notification else notification_of(item)
            if self.answers(notification):
                yield notification

    def __str__(self) -> str:
        """The query as text, without the residue."""
        return " or ".join(map(_written, self.alternatives))

    def __repr__(self) -> str:
        return f"SourceQuery({str(self)!r})"


def _bindings(subject: Subscribable | SourceQuery) -> Sequence[Binding]:
    """The conjunctions of which an answer meets one. Raises as the class."""
    if isinstance(subject, SourceQuery):
        return [Binding(it.query.sets, (*map(frozenset, it.same),)) for it in subject.alternatives]
    if isinstance(subject, str):
        found = parse_question(subject)
        if not found:
            raise UnsatisfiableFilterError(FilterSet([]))
        return found
    return [Binding(each.sets) for each in filters_of(subject).filters]


def _both(one: Binding, other: Binding) -> Binding:
    """The conjunction of both; their variables are distinct."""
    sets = dict(one.sets)
    for name, values in other.sets.items():
        sets[name] = sets[name] & values if name in sets else values
    return Binding(sets, (*one.same, *other.same))


def _written(each: Disjunct) -> str:
    """An alternative as text; its variables are numbered."""
    bound = [
        str(Filter({name: "?"})).replace("'?'", f"$v{number}").replace('"?"', f"$v{number}")
        for number, group in enumerate(each.same)
        for name in group
    ]
    filters = str(Filter.of_sets(each.query.sets))
    return " and ".join([filters, *bound] if each.query.sets else bound or [filters])
