"""A sample of the ends of the ranges that filters ask for, by which bins of values are cut.

All ranges count, wherever their filters hang: if only those that hang by their range did, none
would begin to.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from contrada.matching.arrays import Arrays
from contrada.matching.placing import places_of, tree_key
from contrada.matching.tables import (
    ATTR_MASK,
    DOMAIN_SHIFT,
    OP_RANGE,
    OP_SET,
    OP_SHIFT,
    OP_TEXT_RANGE,
    PIVOTS,
    TREE,
)
from contrada.model import Filter
from contrada.model.algebra.valueset import EVERYTHING

PIVOTS_AT: Final = (64, 512)
"""An attribute gets bins, and better ones, when filters have asked for so many ranges of it; those
in its tree are hung anew then, at once. A renewed generation begins with the bins of what it goes
on from."""

KEPT: Final = 1024
"""Ends of ranges remembered per attribute."""

CROWDED_FROM: Final = 1_024
"""Ranges of an attribute from which on its bins are judged, each time that they are twice as
many."""

CROWDED_SHARE: Final = 1 / 8
"""Of the ends of ranges, the share in one bin beyond which the tree is worth renewing."""

CROWDED_STEP: Final = 4
"""One in so many of the ends of ranges that are remembered is looked at for that."""

_MASK: Final = 2**64 - 1

End = tuple[int, int]
"""A domain and a key, as `placing.tree_key` tells."""


class Bounds:
    """How many ranges filters asked for on each attribute, and some of their ends."""

    def __init__(self, before: "Bounds | None" = None) -> None:
        self.counts: dict[int, int] = {}
        self.kept: dict[int, list[End]] = {}
        self._before: dict[int, list[End]] = {} if before is None else before.kept

    def forget_before(self) -> None:
        """To be called when the generation that this one goes on from goes."""
        self._before = {}

    def known(self, attr: int) -> list[End]:
        """The ends that are known of an attribute, here or in what this goes on from."""
        return max(self._before.get(attr, []), self.kept.get(attr, []), key=len)

    def note(self, of: Filter, words: list[int]) -> Iterator[int]:
        """Counts the ranges of a filter, whose program these words are; their attributes.

        Attributes of ranges that tell nothing new are left out.
        """
        at = 0
        for value_set in of.sets.values():
            head = words[at]
            attr, op = head & ATTR_MASK, head >> OP_SHIFT & 0xFF
            if op == OP_RANGE:
                if self._is_telling(attr):
                    domain = head >> DOMAIN_SHIFT
                    self._keep(attr, (domain, words[at + 1]), (domain, words[at + 2]))
                    yield attr
            elif op in (OP_TEXT_RANGE, OP_SET) and value_set.text is None:
                cuts = value_set.line
                is_range = cuts and cuts != EVERYTHING.line and places_of(attr, value_set) is None
                if is_range and self._is_telling(attr):
                    self._keep(attr, tree_key(cuts[0]), tree_key(cuts[-1]))
                    yield attr
            at += 3 if op in (OP_RANGE, OP_TEXT_RANGE) else 2

    def _is_telling(self, attr: int) -> bool:
        """Counts a range of an attribute; whether this one is to be looked at.

        All of the first are, and then fewer and fewer, so that each is as likely to be remembered;
        and those at whose number bins are judged.
        """
        count = self.counts[attr] = self.counts.get(attr, 0) + 1
        return count < KEPT or count % (2 * count // KEPT) == 0 or _is_power(count)

    def _keep(self, attr: int, low: End, high: End) -> None:
        kept = self.kept.setdefault(attr, [])
        if len(kept) < KEPT:
            kept += (low, high)
        else:
            at = 2 * (_scattered(self.counts[attr]) % (KEPT // 2))
            kept[at : at + 2] = (low, high)

    def due(self, attr: int) -> list[End] | None:
        """The ends by which bins are to be cut now, after a range was noted; None: not now."""
        count, before = self.counts[attr], self._before.get(attr, [])
        if count == 1 and len(before) > PIVOTS:
            return before
        return self.kept[attr] if count in PIVOTS_AT and 2 * count > len(before) else None

    def crowd(self, attr: int, arrays: Arrays) -> bool:
        """Whether filters hang in a tree, and too many of the ends of its ranges in one bin.

        That is asked when ranges are twice as many as when it was asked before; else False.
        """
        count, tree = self.counts[attr], arrays.views["attrs"][attr, TREE]
        if tree < 0 or count < CROWDED_FROM or not _is_power(count):
            return False
        ends = sorted(set(self.kept[attr]))[::CROWDED_STEP]
        bins = Counter(arrays.bin_at(tree, end) for end in ends)
        return len(ends) > PIVOTS and max(bins.values()) > CROWDED_SHARE * len(ends)


def _is_power(count: int) -> bool:
    """Whether a number is a power of two."""
    return count & (count - 1) == 0


def _scattered(number: int) -> int:
    """A number of 64 bits that looks like chance, but is the same each time (splitmix64)."""
    number = number * 0x9E3779B97F4A7C15 & _MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31
