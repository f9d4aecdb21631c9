"""Subtracting boxes: what is left of a product when others are taken away.

A product is a box, one side per attribute. A box minus a box is a few disjoint boxes: for each
attribute in turn, the part outside the other on this attribute and inside on those before.
That decides whether a union of filters covers a filter, and finds a notification that it does
not cover. Both stay right where attributes have several values: a notification matches a box when
one choice of its values is a point of the box, and the pieces have the points of the box.

Before, parts that do not meet the box are left out, and of the others the sides that contain the
box's side; parts that differ in one attribute are merged. Then at each step the part that cuts the
box into the fewest pieces is taken away first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.algebra.product import ENVELOPE_SETS, Product, product_covers, universe
from contrada.model.algebra.valueset import EVERYTHING, ValueSet, union
from contrada.model.domains.line import Cuts
from contrada.model.languages import decision
from contrada.model.languages.language import Language

BOX_WORK_MAX: Final = 3_000_000
"""Steps to subtract boxes in one question. About a second's worth. Beyond it: the safe answer,
counted; `witness` gives none."""

TEXT_WORK: Final = 100
"""Steps that a comparison with an expression on text counts for; a cut counts for one."""

Box: TypeAlias = Mapping[str, ValueSet]
Form: TypeAlias = tuple[tuple[str, Cuts, Language | None], ...]


def covered(whole: Product, parts: Sequence[Product]) -> bool:
    """Whether every notification of the product is in one of the parts, which are filters."""
    if any(product_covers(part, whole) for part in parts):
        return True
    try:
        return next(remaining(spread(whole.sets, whole.default, parts), parts), None) is None
    except LimitError:
        decision.safe_answers.add("covers: BOX_WORK_MAX")
        return False


def spread(box: Box, default: ValueSet, parts: Sequence[Product]) -> Box:
    """The box, with its default as the side of each further attribute that a part names."""
    if default is EVERYTHING:
        return box
    names = dict.fromkeys(name for part in parts for name in part.sets)
    return {**{name: ENVELOPE_SETS.get(name, default) for name in names}, **box}


def remaining(box: Box, parts: Sequence[Product]) -> Iterator[Box]:
    """The disjoint boxes that are left when all parts, which are filters, are taken away.

    Lazy. Raises LimitError after `BOX_WORK_MAX` steps.
    """
    work = _Work()
    near = merged(_near(box, [part.sets for part in parts], work))
    waiting: list[tuple[Box, Sequence[Box]]] = [(box, near)]
    while waiting:
        box, boxes = waiting.pop()
        if any(side.is_empty for side in box.values()):
            continue
        near = _near(box, boxes, work)
        if not near:
            yield box
            continue
        first = min(near, key=len)
        if first:
            rest = [part for part in near if part is not first]
            waiting += [(piece, rest) for piece in outside(box, first)]


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


def merged(boxes: Iterable[Box]) -> list[Box]:
    """Fewer boxes with the same union: those that agree in all sides but one become one.

    Sides agree when they have the same form. One attribute after the other, until a whole
    round merges nothing.
    """
    members = list({form(box): box for box in boxes}.values())
    while True:
        count = len(members)
        for name in sorted({name for box in members for name in box}):
            members = _merged_along(name, members)
        if len(members) == count:
            return members


def form(box: Box) -> Form:
    """The sides as they are written down, for comparing without deciding."""
    return tuple(sorted((name, side.line, side.text) for name, side in box.items()))


class _Work:
    """The steps that a question may still take."""

    def __init__(self) -> None:
        self._left = BOX_WORK_MAX

    def compare(self, side: ValueSet, mine: ValueSet) -> None:
        """Counts one comparison. Raises LimitError where there were too many."""
        self._left -= 1 + len(side.line) + len(mine.line)
        if side.text is not None or mine.text is not None:
            self._left -= TEXT_WORK
        if self._left < 0:
            raise LimitError("BOX_WORK_MAX", BOX_WORK_MAX)


def _near(box: Box, parts: Iterable[Box], work: _Work) -> list[Box]:
    """The parts that touch the box, each with only the sides that do not hold the box's."""
    return [near for part in parts if (near := _cutting(box, part, work)) is not None]


def _cutting(box: Box, part: Box, work: _Work) -> Box | None:
    """The sides of a part that cut a box; None where they are apart."""
    cutting = {}
    for name, side in part.items():
        mine = box[name] if name in box else universe(name)
        work.compare(side, mine)
        if not side.issuperset(mine):
            if not side.meets(mine):
                return None
            cutting[name] = side
    return cutting


def _merged_along(name: str, members: list[Box]) -> list[Box]:
    """Unites the sides of one attribute where all other sides agree."""
    groups: dict[Form, list[Box]] = {}
    kept: list[Box] = []
    for member in members:
        if name in member:
            rest = form({other: side for other, side in member.items() if other != name})
            groups.setdefault(rest, []).append(member)
        else:
            kept.append(member)
    for group in groups.values():
        if len(group) == 1:
            kept += group
        else:
            kept.append({**group[0], name: union(member[name] for member in group)})
    return kept
