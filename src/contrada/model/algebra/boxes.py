"""Subtraction of boxes: the parts of a product that remain when others are removed.

A product is a box, one side per attribute. A box minus a box is a few disjoint boxes: for each
attribute in turn, the part outside the other on this attribute and inside on the attributes before.
This decides whether a union of filters covers a filter, and finds a notification that it does not
cover. Both hold for attributes with several values: a notification matches a box if one choice of
its values is a point of the box, and the pieces have the points of the box.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.algebra.hulls import components, hull
from contrada.model.algebra.product import ENVELOPE_SETS, Product, product_covers, universe
from contrada.model.algebra.value_set import EVERYTHING, ValueSet, union
from contrada.model.domains.line import TEXT_START, Cuts
from contrada.model.languages import decision
from contrada.model.languages.work_budget import spend

BOX_WORK_MAX: Final = 3_000_000
"""Steps of subtraction in a decision, about a second. Beyond it: the safe answer, counted."""

FORMS_WORK_MAX: Final = 1_000_000
"""Pairs of operators compared in a decision. Beyond it: LimitError; a rule is refused."""

FORMS_UNASKED_WORK: Final = 10  # Steps that two sets count for that are too large to be compared

TEXT_WORK: Final = 100
"""Steps that a comparison with an expression on text counts for; a cut counts for one."""

_STEPS_PER_WORK: Final = 3  # Steps of boxes that take about as long as one of `work_budget.spend`
_SIDE_WORK: Final = 5  # Steps of work to merge or group by one side
_PART_WORK: Final = 3  # Steps of work to test whether one part alone covers a product

Box: TypeAlias = Mapping[str, ValueSet]
Form: TypeAlias = tuple[tuple[str, Hashable], ...]
_BoxParts: TypeAlias = tuple[Box, Sequence[Box]]
"""A box, and the parts that are to be removed from it."""


class BoxRelations:
    """Relations between sides, with the work that remains for a subtraction."""

    limit = ("BOX_WORK_MAX", BOX_WORK_MAX)

    def __init__(self) -> None:
        self._left = self.limit[1]
        self._hulls: dict[tuple[int, bool], tuple[ValueSet, Cuts]] = {}
        """By the id of a set that is kept, so that no other set gets the id."""

    def inside(self, mine: ValueSet, side: ValueSet) -> bool:
        """Whether the first set is a subset. Raises LimitError, as all these methods."""
        self._compare(mine, side)
        return side.issuperset(mine)

    def apart(self, mine: ValueSet, side: ValueSet) -> bool:
        """Whether the two have no value in common."""
        self._compare(mine, side)
        return not side.meets(mine)

    def is_empty(self, side: ValueSet) -> bool:
        """Whether a set has no value."""
        return side.is_empty

    def hull(self, side: ValueSet, *, backwards: bool) -> Cuts:
        """Returns the hull of a set, computed once. The caller counts the work."""
        key = (id(side), backwards)
        if key not in self._hulls:
            self._hulls[key] = side, hull(side, backwards=backwards)
        return self._hulls[key][1]

    def take(self, steps: int) -> None:
        """Counts steps. Raises LimitError beyond the limit."""
        spend(1 + steps // _STEPS_PER_WORK)
        self._left -= steps
        if self._left < 0:
            raise LimitError(*self.limit)

    def _compare(self, mine: ValueSet, side: ValueSet) -> None:
        on_text = side.text is not None or mine.text is not None
        self.take(1 + len(side.line) + len(mine.line) + (TEXT_WORK if on_text else 0))


class FormRelations(BoxRelations):
    """Relations that are decided without automata; an undecided one counts as a no."""

    limit = ("FORMS_WORK_MAX", FORMS_WORK_MAX)

    def inside(self, mine: ValueSet, side: ValueSet) -> bool:
        return self.apart(mine, ~side)

    def apart(self, mine: ValueSet, side: ValueSet) -> bool:
        texts = mine.parts()[1], side.parts()[1]
        pairs = decision.pairs_of(*texts)
        self.take(len(mine.line) + len(side.line))
        self.take(pairs if pairs <= decision.PAIRS_ASKED_MAX else FORMS_UNASKED_WORK)
        return mine.shows_apart(side)

    def is_empty(self, side: ValueSet) -> bool:
        return side.shows_empty()


def is_covered(whole: Product, parts: Sequence[Product]) -> bool:
    """Whether every notification of the product is in one of the parts, which are filters."""
    spend(_PART_WORK * len(parts))
    if any(product_covers(part, whole) for part in parts):
        return True
    try:
        box = extend_box(whole.sets, whole.default, parts)
        return next(subtract_boxes(box, [part.sets for part in parts]), None) is None
    except LimitError:
        decision.safe_answers.add("covers: BOX_WORK_MAX")
        return False


def extend_box(box: Box, default: ValueSet, parts: Sequence[Product]) -> Box:
    """Returns the box, with its default as the side of each further attribute that a part names."""
    if default is EVERYTHING:
        return box
    names = dict.fromkeys(name for part in parts for name in part.sets)
    return {**{name: ENVELOPE_SETS.get(name, default) for name in names}, **box}


def subtract_boxes(
    box: Box, parts: Sequence[Box], asking: BoxRelations | None = None
) -> Iterator[Box]:
    """Yields the disjoint boxes that remain when all parts are removed, lazily.

    Parts that do not meet the box are dropped, and others merged that differ in one attribute. Then
    each step removes the part that cuts the box into the fewest pieces. Raises LimitError after
    `BOX_WORK_MAX` steps, or beyond the limits of `asking`.
    """
    asking = asking or BoxRelations()
    waiting: list[_BoxParts] = [(box, merge_boxes(_touching_parts(box, parts, asking)))]
    while waiting:
        box, boxes = waiting.pop()
        if any(asking.is_empty(side) for side in box.values()):
            continue
        # A piece is smaller than its box: it is apart from more parts, and more of
        # their sides hold its own.
        near = _touching_parts(box, boxes, asking)
        if not near:
            yield box
        elif all(near):  # else a part has no side left that cuts: it holds the whole piece
            pieces = _group_parts(box, near, asking)
            if not pieces:
                first = min(near, key=len)  # it leaves one piece for each of its sides, at most
                # The first cut makes all later pieces narrow, so it uses the side that most parts
                # share: narrow pieces are apart from more of them.
                common = Counter(name for part in near for name in part)
                cut = {name: first[name] for name in sorted(first, key=lambda name: -common[name])}
                rest = [part for part in near if part is not first]
                pieces = [(piece, rest) for piece in subtract_box(box, cut, asking)]
            waiting += reversed(pieces)  # the last is popped first, so the first piece is next


def _group_parts(box: Box, parts: Sequence[Box], asking: BoxRelations) -> list[_BoxParts]:
    """Returns pieces of a box that few of the parts touch each; none if there is no such division.

    The box is cut along the attribute where the hulls of the parts' sides form the most groups.
    Parts without a hull there remain with all pieces.
    """
    groups: list[list[Box]] = []
    at = ""
    spend(_SIDE_WORK * sum(map(len, parts)))
    for name, count in Counter(name for part in parts for name in part).items():
        for backwards in (False, True) if count > max(len(groups), 1) else ():
            hulls = [
                asking.hull(part[name], backwards=backwards) if name in part else ()
                for part in parts
            ]
            # Of a side with all text, as an operator gives that no interval bounds, none is known.
            known = [number for number, cuts in enumerate(hulls) if cuts and cuts[-1] != TEXT_START]
            found = components([hulls[number] for number in known])
            if len(found) > max(len(groups), 1):
                groups, at = [[parts[known[place]] for place in group] for group in found], name
    grouped = {id(part) for group in groups for part in group}
    others = [part for part in parts if id(part) not in grouped]
    mine = box[at] if at in box else universe(at)
    # The cut is by the sides themselves, not by their hulls: the rest must be exact.
    sides = [union(part[at] for part in group) for group in groups]
    pieces: list[_BoxParts] = [
        ({**box, at: mine & side}, [*group, *others])
        for group, side in zip(groups, sides, strict=True)
    ]
    return [({**box, at: mine - union(sides)}, others), *pieces] if pieces else []


def subtract_box(box: Box, other: Box, asking: BoxRelations | None = None) -> Iterator[Box]:
    """Yields the disjoint boxes of those points of a box that are not in another."""
    is_empty = (asking or BoxRelations()).is_empty
    inner = dict(box)
    for name, side in other.items():
        mine = inner[name] if name in inner else universe(name)
        # Inside the earlier sides, outside this one, the later ones unchanged: disjoint.
        beyond = mine - side
        if not is_empty(beyond):
            yield {**inner, name: beyond}
        within = mine & side
        if is_empty(within):
            return
        inner[name] = within


def merge_boxes(boxes: Iterable[Box]) -> list[Box]:
    """Merges boxes that agree in all sides but one, and returns fewer with the same union.

    Sides agree if they have the same form. One attribute after the other, until a whole round
    merges nothing.
    """
    members = list({form(box): box for box in boxes}.values())
    while True:
        count = len(members)
        common = Counter(name for box in members for name in box)
        for name in sorted(name for name, boxes in common.items() if boxes > 1):
            members = _merge_along(name, members)
        if len(members) == count:
            return members


def form(box: Box) -> Form:
    """Returns a key of the sides as they are written, for a comparison without a decision."""
    return tuple([(name, box[name].form()) for name in sorted(box)])


def _touching_parts(box: Box, parts: Iterable[Box], asking: BoxRelations) -> list[Box]:
    """Returns the parts that touch the box, each without the sides that contain the box's."""
    touching: list[Box] = []
    for part in parts:
        cutting = {}
        for name, side in part.items():
            mine = box[name] if name in box else universe(name)
            if not asking.inside(mine, side):
                if asking.apart(mine, side):
                    break
                cutting[name] = side
        else:
            touching.append(cutting)
    return touching


def _merge_along(name: str, members: list[Box]) -> list[Box]:
    """Unites the sides of one attribute where all other sides agree."""
    groups: dict[Form, list[Box]] = {}
    kept: list[Box] = []
    spend(_SIDE_WORK * len(members))
    for member in members:
        spend(len(member))
        if name in member:
            rest = form({other: side for other, side in member.items() if other != name})
            groups.setdefault(rest, []).append(member)
        else:
            kept.append(member)
    kept += [
        {**group[0], name: union(member[name] for member in group)} for group in groups.values()
    ]
    return kept
