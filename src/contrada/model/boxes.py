"""Subtracting boxes: what is left of a product when others are taken away.

A product is a box, one side per attribute. A box minus a box is a few disjoint boxes: for each
attribute in turn, the part outside the other on this attribute and inside on those before.
That decides whether a union of filters covers a filter, and finds a notification that it does
not cover. With several values of an attribute both stay right: a notification meets a box when
one choice of its values is a point of it, and the pieces together have all points of the box.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from contrada.model import decision
from contrada.model.product import Product, product_covers, product_meets, universe
from contrada.model.valueset import ValueSet

BOXES_MAX: Final = 10_000
"""Boxes looked at in one question. Beyond it the answer is that something is left, counted."""

Box: TypeAlias = dict[str, ValueSet]


def covered(whole: Product, parts: Sequence[Product]) -> bool:
    """Whether every notification of the product is in one of the parts."""
    if any(product_covers(part, whole) for part in parts):
        return True
    near = [part for part in parts if product_meets(part, whole)]
    if len(near) < 2:
        return whole.is_empty
    budget = [BOXES_MAX]
    left = next(remaining(dict(whole.sets), near, budget), None)
    if budget[0] < 0:
        decision.safe_answers["covers: BOXES_MAX"] += 1
    return left is None


def remaining(box: Box, parts: Sequence[Product], budget: list[int]) -> Iterator[Box]:
    """The disjoint boxes that are left when all parts are taken away, lazily.

    All parts leave every attribute they do not name free, as filters do. `budget` holds how
    many boxes may still be looked at; when it is used up the rest counts as left.
    """
    budget[0] -= 1
    if not parts or budget[0] < 0:
        if not any(side.is_empty for side in box.values()):
            yield box
        return
    for piece in outside(box, parts[0].sets):
        yield from remaining(piece, parts[1:], budget)


def outside(box: Box, other: Mapping[str, ValueSet]) -> Iterator[Box]:
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
