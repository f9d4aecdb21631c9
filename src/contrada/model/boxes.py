"""Subtracting boxes: what is left of a product when others are taken away.

A product is a box, one side per attribute. A box minus a box is a few disjoint boxes: for each
attribute in turn, the part outside the other on this attribute and inside on those before.
That decides whether a union of filters covers a filter, and finds a notification that it does
not cover. With several values of an attribute both stay right: a notification meets a box when
one choice of its values is a point of it, and the pieces together have all points of the box.

At each step the part that cuts the box into the fewest pieces is taken away first, and parts
that do not touch a piece are forgotten for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model import decision
from contrada.model.product import ENVELOPE_SETS, Product, product_covers, universe
from contrada.model.valueset import EVERYTHING, ValueSet

BOX_COMPARISONS_MAX: Final = 100_000
"""Comparisons of a box with a part in one question. Beyond it: not covered, and counted."""

Box: TypeAlias = Mapping[str, ValueSet]


def covered(whole: Product, parts: Sequence[Product]) -> bool:
    """Whether every notification of the product is in one of the parts, which are filters."""
    if any(product_covers(part, whole) for part in parts):
        return True
    try:
        return next(remaining(spread(whole.sets, whole.default, parts), parts), None) is None
    except LimitError:
        decision.safe_answers["covers: BOX_COMPARISONS_MAX"] += 1
        return False


def spread(box: Box, default: ValueSet, parts: Sequence[Product]) -> Box:
    """The box, with a side for what a part names where that is not everything by default."""
    if default is EVERYTHING:
        return box
    names = dict.fromkeys(name for part in parts for name in part.sets)
    return {**{name: ENVELOPE_SETS.get(name, default) for name in names}, **box}


def remaining(box: Box, parts: Sequence[Product]) -> Iterator[Box]:
    """The disjoint boxes that are left when all parts, which are filters, are taken away.

    Lazy. Raises LimitError after `BOX_COMPARISONS_MAX` comparisons.
    """
    waiting: list[tuple[Box, Sequence[Product]]] = [(box, parts)]
    compared = 0
    while waiting:
        box, parts = waiting.pop()
        if any(side.is_empty for side in box.values()):
            continue
        compared += len(parts)
        if compared > BOX_COMPARISONS_MAX:
            raise LimitError("BOX_COMPARISONS_MAX", BOX_COMPARISONS_MAX)
        near = [(count, part) for part in parts if (count := _pieces(box, part)) is not None]
        if not near:
            yield box
            continue
        fewest, first = min(near, key=lambda each: each[0])
        if fewest:
            rest = [part for _, part in near if part is not first]
            waiting += [(piece, rest) for piece in outside(box, first.sets)]


def outside(box: Box, other: Box) -> Iterator[Box]:
    """The disjoint boxes of those points of a box that are not in another."""
    inner = dict(box)
    for name, side in other.items():
        mine = inner[name] if name in inner else universe(name)
        beyond = mine - side
        if not beyond.is_empty:
            yield {**inner, name: beyond}
        within = mine & side
        if within.is_empty:
            return
        inner[name] = within


def _pieces(box: Box, part: Product) -> int | None:
    """Into how many pieces the part cuts the box: 0 where it holds it, None where apart."""
    count = 0
    for name, side in part.sets.items():
        mine = box[name] if name in box else universe(name)
        if not side.issuperset(mine):
            if not side.meets(mine):
                return None
            count += 1
    return count
