"""The relations of the papers by their names, over products and unions of filters.

`covers` and `meets` decide all of them. `witness` finds an example: a notification that both match,
or that one matches and the other does not.

| PODC 2000 §3 | here |
|---|---|
| φ ⊏ α | `Constraint.matches` |
| f ⊏ᴺₛ n, a ⊏ᴺₐ n | `matches(f, n)`, `matches(a, n)` |
| f₁ ⊏ˢₛ f₂, a₁ ⊏ᴬₐ a₂ | `covers(f1, f2)`, `covers(a1, a2)` |
| f = g | `equal(f, g)` |
| a is relevant to f | `meets(a, f)` |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

from contrada.errors import InvalidFilterError, InvalidNotificationError, LimitError
from contrada.model.algebra import boxes, sets
from contrada.model.algebra.advertisement import Advertisement
from contrada.model.algebra.boxes import Box
from contrada.model.algebra.filter import RELATION_WORK_MAX, Filter, FilterSet, Selects, selection
from contrada.model.algebra.html_display import html_table
from contrada.model.algebra.notification import Envelope, Notification
from contrada.model.algebra.product import (
    ENVELOPE_SETS,
    Product,
    common_sets,
    example_of,
    product_covers,
    product_meets,
)
from contrada.model.algebra.value_set import ValueSet, of_cuts
from contrada.model.domains import line
from contrada.model.domains.values import ABSENT, TIME, Value, value_of
from contrada.model.languages import decision
from contrada.model.languages.work_budget import Work, spend

if TYPE_CHECKING:
    from contrada.model.algebra.match_explanation import MatchExplanation

Things: TypeAlias = Product | Selects
"""Products and unions of filters; filters may be given as text or as a mapping."""

_Thing: TypeAlias = Product | FilterSet

_PAIR_WORK: Final = 3  # Steps of work for a pair of filters
_COMMON_WORK: Final = 10  # Steps of work to intersect two filters

_MISSING: Any = None
"""The default of an argument that is required: its absence gets a better message than Python's."""

_Area: TypeAlias = tuple[Box, ValueSet]
"""A box and the set of the attributes that it does not name."""

_USUAL: Final = frozenset((Filter, FilterSet, Notification, Advertisement))
"""Types that need no `isinstance` of an abstract class, which is slower."""

_CHARACTERS: Final = sets.matches("^(?s:.)*$") | of_cuts(line.NOT_TEXT)
"""All but texts that are not UTF-8: the texts of an envelope."""

_ENVELOPE_FIELDS: Final = {"@id": "id", "@publisher": "publisher", "@time": "time_us"}


def covers(p: Things, q: Things) -> bool:
    """Whether every notification of q is one of p.

    Exact within the limits of `decision` and `boxes`; beyond them no, and counted.
    Source: PODC 2000 §3; CU-CS-946-03 §3.
    """
    p, q = _to_product(p), _to_product(q)
    if isinstance(p, FilterSet):
        if isinstance(q, FilterSet | Filter):
            return p.covers(q)
        return boxes.is_covered(q, p.filters)
    if isinstance(q, FilterSet):
        return all(product_covers(p, member) for member in q.filters)
    return product_covers(p, q)


def meets(p: Things, q: Things) -> bool:
    """Whether some notification is in both. Exact within the limits; beyond them yes, and counted.

    For two filters this is about notifications with one value per attribute: {a: 1, 9} matches `a <
    2` and `a > 4`, which do not meet. An advertisement covers a notification with all its values,
    so relevance is exact for several values too.

    Source: PODC 2000 §3 (relevance); CU-CS-948-03 §4, equation 2, and §7.
    """
    p, q = _to_product(p), _to_product(q)
    if isinstance(p, Product) and isinstance(q, Product):
        return product_meets(p, q)
    try:
        with Work("RELATION_WORK_MAX", RELATION_WORK_MAX):
            return any(product_meets(a, b) for a, b in _pairs(p, q))
    except LimitError:
        decision.safe_answers.add("meets: RELATION_WORK_MAX")
        return True


def matches(f: Things, notification: Notification | Mapping[str, Any] = _MISSING) -> bool:
    """Whether a filter matches a notification: every constraint has an attribute that satisfies it.

    Of an advertisement instead: whether it covers the notification with all its attributes. Exact.
    Source: PODC 2000 §3, f ⊏ᴺₛ n and a ⊏ᴺₐ n.
    """
    given: object = notification
    if not isinstance(given, Mapping):
        reason = "expected a filter and a notification; the operator on text is ct.ops.matches"
        raise InvalidFilterError("matches", (f,), reason)
    f = _to_product(f)
    if isinstance(f, Filter | FilterSet):
        return f.matches(notification)
    if not isinstance(notification, Notification):
        notification = Notification(notification)
    return product_covers(f, notification)


class Explanation(NamedTuple):
    """The answer of a relation, with evidence.

    `proved` is whether the answer is a proof, or else the safe one. `witness` is a notification
    that refutes `covers` or `equal`, or proves `meets`; None if there is none.
    """

    answer: bool
    proved: bool
    witness: Notification | None

    def __bool__(self) -> bool:
        return self.answer

    def _repr_html_(self) -> str:
        return html_table(self._fields, [[repr(each) for each in self]])


@overload
def explain(relation: Callable[[Things, Things], bool], f: Things, g: Things) -> Explanation: ...


@overload
def explain(relation: Selects, f: Notification | Mapping[str, Any]) -> "MatchExplanation": ...


def explain(relation: Any, f: Any, g: Any = _MISSING) -> "Explanation | MatchExplanation":
    """Returns the answer of `covers`, `meets` or `equal`, and whether it is proved.

    The safe answers are that f does not cover g, does not equal it, and meets it. Only a witness
    proves these; the opposite answers are always proved. Raises InvalidFilterError for another
    relation. Cost: the relation, and the search for a witness.

    `explain(filter, notification)` gives for each constraint whether the notification satisfies it,
    or the cause of the failure: see `explain_match`.
    """
    if g is _MISSING and not callable(relation):
        # Most programs never ask, and `import contrada` is to be quick.
        from contrada.model.algebra.match_explanation import explain_match

        return explain_match(relation, f)
    if relation not in _SAFE:
        reason = "expected covers, meets or equal"
        raise InvalidFilterError("explain", (relation,), reason)
    answer = relation(f, g)
    if answer is not _SAFE[relation]:
        return Explanation(answer, True, None)
    found = witness(f, g) if relation is meets else witness(g, but_not=f)
    if found is None and relation is equal:
        found = witness(f, but_not=g)
    return Explanation(answer, found is not None, found)


def equal(f: Things, g: Things) -> bool:
    """Whether f = g: each covers the other. Source: PODC 2000 §3."""
    return covers(f, g) and covers(g, f)


_SAFE: Final = {covers: False, meets: True, equal: False}
"""The answers that are also given for undecided relations."""


def merge(f: Filter | str, g: Filter | str) -> Filter | None:
    """Returns the one filter that matches the union of f and g, or None if there is no such filter.

    Perfect merging: one covers the other, or they differ in a single attribute, whose sets are
    united. Cost: one comparison per attribute.
    """
    f, g = (each if isinstance(each, Filter) else Filter(each) for each in (f, g))
    if product_covers(f, g):
        return f
    if product_covers(g, f):
        return g
    differing = [name for name, _ in common_sets(f, g) if f.set_of(name) != g.set_of(name)]
    if len(differing) != 1:
        return None
    (name,) = differing
    return Filter.of_sets({**f.sets, name: f.set_of(name) | g.set_of(name)})


def witness(
    p: Things, q: Things | None = None, *, but_not: Things | None = None
) -> Notification | None:
    """Returns a notification that p and q hold and `but_not` does not.

    None if no such notification exists, or if none could be constructed because of an opaque
    operator or a limit. Those cases are counted in `decision.safe_answers["witness"]`. Cost: as the
    relation that it explains.
    """
    pairs = _pairs(_to_product(p), Filter({}) if q is None else _to_product(q))
    left_out = None if but_not is None else _to_product(but_not)
    areas = (area for a, b in pairs for area in _areas(a, b, left_out))
    try:
        with Work("RELATION_WORK_MAX", RELATION_WORK_MAX):
            for box, default in areas:
                notification = _notification_in(box, default)
                if notification is not None:
                    return notification
                decision.safe_answers.add("witness")
    except LimitError:
        decision.safe_answers.add("witness")
    return None


def _to_product(given: Things) -> _Thing:
    if type(given) in _USUAL or isinstance(given, Product | FilterSet):
        return given  # type: ignore[return-value]
    return selection(given)


def _members_of(thing: _Thing) -> Sequence[Product]:
    return thing.filters if isinstance(thing, FilterSet) else (thing,)


def _pairs(p: _Thing, q: _Thing) -> Iterator[tuple[Product, Product]]:
    """Yields each member of one with each of the other; they are steps of work."""
    for a in _members_of(p):
        for b in _members_of(q):
            spend(_PAIR_WORK)
            yield a, b


def _areas(p: Product, q: Product, but_not: _Thing | None) -> Iterator[_Area]:
    spend(_COMMON_WORK)
    common = dict(common_sets(p, q))
    default = p.default & q.default
    if any(side.is_empty for side in common.values()):
        return
    if but_not is None:
        yield common, default
    elif isinstance(but_not, FilterSet | Filter):
        parts = _members_of(but_not)
        for box in boxes.subtract_boxes(
            boxes.extend_box(common, default, parts), [part.sets for part in parts]
        ):
            yield box, default
    else:
        yield from _outside_product(common, default, but_not)


def _outside_product(box: Box, default: ValueSet, other: Product) -> Iterator[_Area]:
    """As `boxes.subtract_box`, where the other product has a default of its own."""
    named = {name: other.set_of(name) for name in (*box, *other.sets)}
    whole = {name: box.get(name, ENVELOPE_SETS.get(name, default)) for name in named}
    for piece in boxes.subtract_box(whole, named):
        yield piece, default
    beyond = default - other.default
    if not beyond.is_empty:
        name = next(name for i in range(len(named) + 1) if (name := f"x{i}") not in named)
        yield {**whole, name: beyond}, default


def _notification_in(box: Box, default: ValueSet) -> Notification | None:
    """Returns a notification with one value of each side; None where a side names none."""
    if not default.holds((ABSENT, 0)):
        return None
    attributes: dict[str, Value] = {}
    envelope: dict[str, object] = {}
    whole = {
        name: side & _CHARACTERS if name in _ENVELOPE_FIELDS else side for name, side in box.items()
    }
    example = example_of(whole, readable=True)
    if example is None:
        return None
    for name, key in example.items():
        if name in _ENVELOPE_FIELDS:
            value = key[1] if key[0] == TIME else value_of(key)
            envelope[_ENVELOPE_FIELDS[name]] = value
        elif key[0] != ABSENT:
            attributes[name] = value_of(key)
    try:
        return Notification.from_attributes(attributes, b"", "", Envelope(**envelope))  # type: ignore[arg-type]
    except InvalidNotificationError:
        return None  # No envelope can hold it: it is no UTF-8, or too long.
