"""Sets of characters: ranges of code points, sorted and apart, and those without case.

Without case, a class has every character that folds like one of its own (see `casefold`).

Source: the syntax page of RE2 (github.com/google/re2), for the classes that have names.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Final, TypeAlias

from contrada.model.languages import casefold

CHARACTER_LAST: Final = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]

DIGITS: Final[Ranges] = ((0x30, 0x39),)
WORD: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Final[Ranges] = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
LINE_FEED: Final[Ranges] = ((0x0A, 0x0A),)
POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}


def complement(ranges: Ranges) -> Ranges:
    """Returns all other characters."""
    found, start = [], 0
    for first, last in ranges:
        if start < first:
            found.append((start, first - 1))
        start = last + 1
    if start <= CHARACTER_LAST:
        found.append((start, CHARACTER_LAST))
    return tuple(found)


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Returns sorted ranges; those that touch are joined."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def fold_ranges(ranges: Ranges) -> Ranges:
    """Returns the characters and all that fold like one. Cost: linear in those with case."""
    codes = _with_case()
    held: set[int] = set()
    for first, last in ranges:
        held.update(codes[bisect_left(codes, first) : bisect_right(codes, last)])
    targets = {casefold.TABLE.get(code, code) for code in held}
    same = chain.from_iterable(map(casefold.characters_by_fold().__getitem__, targets))
    return join_ranges((*ranges, *((code, code) for code in held.symmetric_difference(same))))


@cache
def _with_case() -> list[int]:
    """Returns the characters of which some fold alike, in order."""
    return sorted({*casefold.TABLE, *casefold.TABLE.values()})
