"""`Product`: a value set for every attribute, and the two basic relations.

A product maps attribute names to value sets and has a default set for all other names.
Notifications, filters, advertisements and queries are products; two relations give all relations of
the papers:

- `meets(p, q)`: some notification is in both: the sets overlap for every attribute.
- `covers(p, q)`: every notification of q is one of p: q is empty, or each set of q lies in p's.

Envelope attributes are present in every notification and have one domain each: see `universe`.

Source: PODC 2000 §3 (covering relations); CU-CS-948-03 §4 and §7 (intersection).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Self

from contrada.model.algebra import notation
from contrada.model.algebra.html_display import html_code
from contrada.model.algebra.value_set import EVERYTHING, ValueSet, of_cuts
from contrada.model.domains import line
from contrada.model.domains.values import TEXT, TIME, Key

ENVELOPE_SETS: Final = {
    "@id": ValueSet(line.domain(TEXT)),
    "@publisher": ValueSet(line.domain(TEXT)),
    "@time": ValueSet(line.domain(TIME)),
}
"""The envelope's attributes with their possible values. None of them is ever absent."""


ENVELOPE_TEXT_BYTES_MAX: Final = 255
"""Bytes, in UTF-8, of an envelope's id, publisher and delivery class, and of a content type.
Beyond it: InvalidNotificationError."""


def universe(name: str) -> ValueSet:
    """Returns all possible values of an attribute, *absent* included if it can be absent."""
    return ENVELOPE_SETS.get(name, EVERYTHING)


def within_universe(name: str, value_set: ValueSet) -> ValueSet:
    """Returns the possible values of an attribute in a set.

    The envelope's texts are UTF-8 of at most ENVELOPE_TEXT_BYTES_MAX bytes. Intervals are
    restricted to these exactly. Operators on text are not (only `witness` does), so a set of other
    bytes alone may appear nonempty, which is the safe answer.
    """
    whole = ENVELOPE_SETS.get(name)
    if whole is None:
        return value_set
    inside = value_set & whole
    if name == "@time" or inside.text is not None:
        return inside
    return of_cuts(line.within_characters(inside.line, ENVELOPE_TEXT_BYTES_MAX))


def example_of(sets: Mapping[str, ValueSet], *, readable: bool = False) -> dict[str, Key] | None:
    """Returns a key in each set, present if possible, or None. `readable`: see `some_key`."""
    example: dict[str, Key] = {}
    for name, side in sets.items():
        key = side.some_key(readable=readable)
        if key is None:
            return None
        example[name] = key
    return example


class Product(ABC):
    """A value set for every attribute: some by name, the rest by default."""

    __slots__ = ()

    @property
    @abstractmethod
    def sets(self) -> Mapping[str, ValueSet]:
        """The sets of the named attributes."""

    @property
    @abstractmethod
    def default(self) -> ValueSet:
        """The set of every attribute that is not named, envelope attributes apart."""

    @property
    def sides(self) -> Mapping[str, ValueSet]:
        """As `sets`, without the read-only wrapper: not for users."""
        return self.sets

    def set_of(self, name: str) -> ValueSet:
        """Returns the set of an attribute, named or not."""
        found = self.sides.get(name)
        if found is not None:
            return found
        return ENVELOPE_SETS.get(name, self.default)

    @property
    def is_empty(self) -> bool:
        """Whether no notification is in the product. Beyond the limits: no, and counted."""
        for value_set in self.sides.values():  # noqa: SIM110  any() takes twice the time
            if not value_set.line and value_set.is_empty:
                return True
        return False


class HeldProduct(Product):
    """A product that holds its sets by name, in a normal form. Immutable."""

    __slots__ = ("sides",)

    sides: dict[str, ValueSet]
    """The sets as they are held; not for users."""

    @staticmethod
    def _normal(sets: Mapping[str, ValueSet]) -> dict[str, ValueSet]:
        """Returns the sets by name, without unrestricted ones, the envelope's in their universe."""
        normal: dict[str, ValueSet] = {}
        for name in sorted(sets):
            value_set = sets[name]
            whole = EVERYTHING
            if name[0] == "@":
                whole = universe(name)
                value_set = within_universe(name, value_set)
            if value_set.line != whole.line or value_set.text is not None:
                normal[name] = value_set
        return normal

    default: ClassVar[ValueSet] = EVERYTHING
    """Every other attribute may have any value or be absent."""

    @classmethod
    def of_sets(cls, sets: Mapping[str, ValueSet]) -> Self:
        """Returns the product with these sets."""
        new = cls.__new__(cls)
        new._hold(sets)
        return new

    def _hold(self, sets: Mapping[str, ValueSet]) -> None:
        object.__setattr__(self, "sides", self._normal(sets))

    @property
    def sets(self) -> Mapping[str, ValueSet]:
        """The sets of the named attributes, by name in order; read only."""
        return MappingProxyType(self.sides)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).of_sets, (self.sides,))

    def __str__(self) -> str:
        return notation.text_of(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _repr_html_(self) -> str:
        return html_code(self)


def product_covers(p: Product, q: Product) -> bool:
    """Whether p holds every notification of q. Cost: one inclusion per named attribute."""
    default = q.default
    q_sets = q.sides
    for name, p_set in p.sides.items():
        q_set = q_sets.get(name)
        if q_set is None:
            q_set = default if name[0] != "@" else ENVELOPE_SETS.get(name, default)
        if p_set is not q_set and not p_set.issuperset(q_set):
            return q.is_empty
    if p.default is EVERYTHING:
        return True
    return _default_covers(p, q) or q.is_empty


def product_meets(p: Product, q: Product) -> bool:
    """Whether some notification is in both. Cost: one overlap per named attribute."""
    p_sets, q_sets = p.sides, q.sides
    for name, p_set in p_sets.items():
        if not p_set.meets(q.set_of(name)):
            return False
    for name, q_set in q_sets.items():
        if name not in p_sets and not q_set.meets(p.set_of(name)):
            return False
    return p.default.meets(q.default)


def common_sets(p: Product, q: Product) -> Iterator[tuple[str, ValueSet]]:
    """Yields the intersections of the sets of every attribute that one of the two names."""
    for name in dict.fromkeys((*p.sets, *q.sets)):
        yield name, p.set_of(name) & q.set_of(name)


def _default_covers(p: Product, q: Product) -> bool:
    p_sets = p.sets
    if not p.default.issuperset(q.default):
        return False
    return all(
        p.set_of(name).issuperset(q_set) for name, q_set in q.sets.items() if name not in p_sets
    )
