"""Where a filter hangs: at the place that the fewest notifications come by.

Every notification that a filter matches must come by the filter's place. Places are, from the
most to the least selective in general: one value (or each of a few), a text's beginning, end,
or some bytes of it; nodes of a tree of ranges; the presence of an attribute; everywhere.

How often notifications come by is estimated: from those seen, once there are enough, and else
from how many different constants all filters have for the attribute, wherever they hang. If only
those counted that hang at the attribute, the one that got the first filters would get them all.
"""

from typing import Final, NamedTuple

from contrada.matching.arrays import Arrays, Cheapest
from contrada.matching.compiling import CompiledConstraint, number_key
from contrada.matching.kernels.reading import (
    KIND_GRAM,
    KIND_PREFIX,
    KIND_SUFFIX,
    KIND_TEXT,
    KIND_TEXT_NOCASE,
    MASK,
    hash_of_text,
    mixed,
    place_hash,
    point_hash,
)
from contrada.matching.kernels.schema import (
    GRAMS,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_TEXT,
    OP_TEXT_RANGE,
    PIVOTS,
    PREFIXES,
    SUFFIXES,
)
from contrada.matching.kernels.seeking import (
    GRAM_BYTES_MAX,
    LENGTHS_MAX,
    POINTS_EXPECTED,
    count,
    presence_of,
    share,
)
from contrada.matching.traits import Trait, prefix_of, traits_of
from contrada.model import Filter, ValueSet
from contrada.model.algebra.valueset import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.values import NAN, NUMBER, TEXT, Key

PLACES_MAX: Final = 64
"""Places that one filter hangs in because of alternatives. Beyond it: it hangs by a range, by
presence, or everywhere."""


class Place(NamedTuple):
    """One hashed place: its hash, and what else a kernel must know of it.

    A place of a single value has that value, a text also by its reference, and whether it is all
    that is asked for; a place of a part of texts the column of `parts` and the length by
    which it is looked up; one of a substring its bytes, too.
    """

    hash: int
    column: int = 0
    length: int = 0
    domain: int = 0
    value: int | bytes = 0
    decides: bool = True

    @property
    def is_value(self) -> bool:
        """Whether a single value leads there: then no other value does."""
        return self.domain != 0


class Choice(NamedTuple):
    """Where a filter could hang because of one attribute, and how often notifications come."""

    cost: float
    attr: int
    places: tuple[Place, ...]
    bins: tuple[int, int] | None = None  # of the tree of ranges


def best_choice(
    number: int,
    of: Filter,
    constraints: list[CompiledConstraint],
    cheapest: Cheapest,
    arrays: Arrays,
    statistics: Arrays,
) -> Choice | None:
    """The cheapest choice for a filter; None where it must hang everywhere.

    The `cheapest` of its values was found before. What was seen is told by the `statistics`, which
    may be the arrays of an index with the same attributes. Trees are asked only where no hashed
    place is more selective than a single bin could be.
    """
    word, h, cost, is_settled = cheapest
    best: Choice | None = None
    if word >= 0:
        attr, domain, operand = arrays.constraint_at(number, word)
        best = Choice(cost, attr, (Place(h, 0, 0, domain, operand),))
    return best if is_settled else _best_other(best, of, constraints, arrays, statistics)


def _best_other(
    best: Choice | None,
    of: Filter,
    constraints: list[CompiledConstraint],
    arrays: Arrays,
    statistics: Arrays,
) -> Choice | None:
    """The cheapest of this choice and those of constraints that ask for no single value."""
    others: list[tuple[float, int, ValueSet]] = []
    for constraint, value_set in zip(constraints, of.sets.values(), strict=True):
        attr, op, _, _ = constraint
        if op in (OP_POINT, OP_TEXT) or (op == OP_SET and value_set.line[:1] == line.EVERYTHING):
            continue
        presence = presence_of(attr, arrays.memory)
        places = None if op == OP_RANGE else places_of(arrays.seed[0], attr, value_set)
        if places is None:
            others.append((presence, attr, value_set))
            continue
        for place in places:
            count(arrays.sketch_of(attr, place.column, place.length), place.hash, arrays.memory)
        cost = presence * min(sum(likelihood(attr, place, statistics) for place in places), 1.0)
        if best is None or cost < best.cost:
            best = Choice(cost, attr, places)
    for presence, attr, value_set in others:
        if best is None or best.cost * (PIVOTS + 1) > presence:
            choice = _ranged(presence, attr, value_set, arrays)
            if best is None or choice.cost < best.cost:
                best = choice
    return best


def _ranged(presence: float, attr: int, value_set: ValueSet, arrays: Arrays) -> Choice:
    """The choice of the attribute's tree, where it can have one, else of its presence."""
    bins = _bins(attr, value_set, arrays)
    if bins is None:
        return Choice(presence, attr, ())
    bins_share = (bins[1] - bins[0] + 1) / (arrays.trees.count[_cuts(attr, arrays)] + 1)
    return Choice(presence * bins_share, attr, (), bins)


def likelihood(attr: int, place: Place, arrays: Arrays) -> float:
    """The share of the notifications with the attribute that come by a place."""
    return share(place.hash, attr, unseen(attr, place, arrays), arrays.memory)  # type: ignore[no-any-return]


def unseen(attr: int, place: Place, arrays: Arrays) -> float:
    """The same of a place that nobody has looked at.

    A long part of a text is rare even where few filters ask for one.
    """
    counted = arrays.counted(arrays.sketch_of(attr, place.column, place.length))
    by_count = 1.0 / (counted + POINTS_EXPECTED)
    return min(by_count, 1.0 / (2 + 8 * place.length)) if place.length else by_count


# --- hashed places ------------------------------------------------------------------------------


def places_of(seed: int, attr: int, value_set: ValueSet) -> tuple[Place, ...] | None:
    """Hashed places of which every value of the set comes by one; None where there are none.

    What leads to a part of what is asked for may not decide.
    """
    traits = traits_of(value_set, PLACES_MAX)
    if traits is None:
        return None
    decides = value_set.text is None
    return tuple([_place(seed, attr, each, decides) for each in traits])


def _place(seed: int, attr: int, trait: Trait, decides: bool) -> Place:
    kind, nocase, of = trait
    case = int(nocase)
    if kind == "is":
        return _point_place(seed, attr, of, decides)
    if kind == "=":
        return Place(place_hash(seed, attr, KIND_TEXT_NOCASE, hash_of_text(seed, of)))
    if kind == "contains":
        return _gram_place(seed, attr, of, case)
    if kind == "prefix":
        part, column, at = of[:LENGTHS_MAX], PREFIXES + case, KIND_PREFIX + case
    else:
        part, column, at = of[::-1][:LENGTHS_MAX], SUFFIXES + case, KIND_SUFFIX + case
    return Place(place_hash(seed, attr, at, hash_of_text(seed, part)), column, len(part))


def _point_place(seed: int, attr: int, key: Key, decides: bool) -> Place:
    domain, comparable = key
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        h = place_hash(seed, attr, KIND_TEXT, hash_of_text(seed, comparable))
        return Place(h, 0, 0, TEXT, comparable, decides)
    assert not isinstance(comparable, bytes)
    number = number_key(comparable)[0] if domain == NUMBER else int(comparable)
    if domain == NAN:
        number = 0
    return Place(point_hash(seed, attr, domain, number), 0, 0, domain, number, decides)


def _gram_place(seed: int, attr: int, text: bytes, case: int) -> Place:
    """Some bytes of a substring; which, is spread by the text itself, rare letters first."""
    size = min(len(text), GRAM_BYTES_MAX)
    grams = {text[i : i + size] for i in range(len(text) - size + 1)}
    number = int.from_bytes(min(grams, key=_commonness), "big")
    h = mixed(seed, mixed(seed, seed & MASK, number), size)
    h = place_hash(seed, attr, KIND_GRAM + case, h)
    return Place(h, GRAMS + case, size, value=number)


_COMMON: Final = b" etaoinshrdlcumwfgypbvk0123456789\\/.:-_"


def _commonness(gram: bytes) -> tuple[int, bytes]:
    """Frequent letters count more."""
    return sum(max(0, 40 - _COMMON.find(b)) if b in _COMMON else 0 for b in gram.lower()), gram


# --- ranges -------------------------------------------------------------------------------------


def _cuts(attr: int, arrays: Arrays) -> int:
    return arrays.attrs.cuts[attr]  # type: ignore[no-any-return]


def _bins(attr: int, value_set: ValueSet, arrays: Arrays) -> tuple[int, int] | None:
    """The first and the last bin of a set's hull, where the attribute has bins."""
    tree = _cuts(attr, arrays)
    if tree < 0 or value_set.text is not None or not value_set.line:
        return None
    low = tree_key(value_set.line[0])
    if len(value_set.line) & 1:
        return arrays.bin_at(tree, low), arrays.trees.count[tree]
    return arrays.bin_at(tree, low), arrays.bin_at(tree, tree_key(value_set.line[-1]))


def tree_key(cut: line.Cut) -> tuple[int, int]:
    """Where a cut stands among the pivots: (domain, key)."""
    if len(cut) == 1:
        return cut[0], -(2**63)
    domain, comparable = cut
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        return domain, int.from_bytes(comparable[:7].ljust(7, b"\0"), "big")
    assert not isinstance(comparable, bytes)
    return domain, number_key(comparable)[0] if domain == NUMBER else int(comparable)


def nodes_between(first: int, last: int) -> list[int]:
    """The fewest nodes of the tree of 64 leaves whose leaves are just these bins."""
    nodes: list[int] = []
    low, high = first + PIVOTS + 1, last + PIVOTS + 2
    while low < high:
        if low & 1:
            nodes.append(low)
            low += 1
        if high & 1:
            high -= 1
            nodes.append(high)
        low >>= 1
        high >>= 1
    return nodes


def range_ends(op: int, attr: int, value_set: ValueSet) -> tuple[int, int, int, int] | None:
    """The ends of a set that is no interval of numbers or times, where it is looked up by them."""
    cuts = value_set.line
    if value_set.text is not None or cuts in ((), EVERYTHING.line):
        return None
    if op == OP_TEXT_RANGE:  # as below, but without a hash
        is_place = prefix_of(cuts[0], cuts[1] if len(cuts) == 2 else None) is not None
    else:
        is_place = traits_of(value_set, PLACES_MAX) is not None
    return None if is_place else (*tree_key(cuts[0]), *tree_key(cuts[-1]))
