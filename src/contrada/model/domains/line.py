"""Sets of values as sorted cuts of one line.

All values of all domains, and the point *absent*, lie on one line (see `values`). A *cut* is a
place between two neighbours of that line. A set of pieces of the line is the sorted tuple of
the cuts where membership changes: outside before the first cut, inside after it, outside after
the second, and so on; an odd number of cuts means inside up to the end of the line. That form
is unique, so equal sets are equal tuples.

A cut just before the value with key (d, v) is written (d, v) itself; the cut at the beginning
of domain d is (d,), and never (d, smallest value). Python's order of tuples is then the order
of the line: (d,) < (d, v) < (d + 1,), and `bisect` answers membership.

        absent   null   bool            number                text
    ----|--------|------|-------- … ----|------[=======)------|------- …
      (0,)     (1,)   (2,)            (4,)  (4, 3)  (4, 7)  (6,)

Every function here is exact and costs at most the sum of the lengths of its arguments.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

import msgspec

from contrada.model.domains import values
from contrada.model.domains.values import ABSENT, BOOL, NAN, NULL, NUMBER, TEXT, TIME, Key

Cut: TypeAlias = tuple[int] | tuple[int, bool | int | float | bytes]
Cuts: TypeAlias = tuple[Cut, ...]
S = TypeVar("S")

HalfOpen: TypeAlias = tuple[Cut, Cut | None]
"""One interval: from a cut up to a cut; None is the end of the line."""

START: Final[Cut] = (ABSENT,)
TEXT_START: Final[Cut] = (TEXT,)
EMPTY: Final[Cuts] = ()
EVERYTHING: Final[Cuts] = (START,)
ABSENT_POINT: Final[Cuts] = (START, (NULL,))
PRESENT: Final[Cuts] = ((NULL,),)
ALL_TEXT: Final[Cuts] = (TEXT_START,)
NOT_TEXT: Final[Cuts] = (START, TEXT_START)

_FIRST: Final[tuple[bool | int | float | bytes, ...]] = (
    0,
    0,
    False,
    0,
    -math.inf,
    values.TIME_MIN_US,
    b"",
)
"""The smallest comparable of each domain."""


def check(cuts: object) -> None:
    """Raises ValueError, with the expected form, if these are not the cuts of a set."""
    if not isinstance(cuts, tuple):
        raise ValueError("a tuple of cuts")
    for cut in cuts:
        _check_cut(cut)
    if not all(a < b for a, b in pairwise(cuts)):
        raise ValueError("cuts in order")


def _check_cut(cut: object) -> None:
    if not (isinstance(cut, tuple) and 1 <= len(cut) <= 2 and type(cut[0]) is int):
        raise ValueError("a cut, a pair of a domain and a comparable")
    tag = cut[0]
    if not ABSENT <= tag <= TEXT:
        raise ValueError("a cut's domain")
    if len(cut) == 2:
        comparable = cut[1]
        if type(comparable) not in _COMPARABLE[tag]:
            raise ValueError(f"a cut in {values.DOMAIN_NAMES[tag]}")
        if tag == TIME and not values.TIME_MIN_US < comparable <= values.TIME_MAX_US:
            raise ValueError("a time of the years 1 to 9999")
        key = cut if tag == TIME else values.key_of(comparable)
        if key[0] != tag or cut_before(key) != cut:
            raise ValueError("a cut that is not a domain's first")


_COMPARABLE: Final[dict[int, tuple[type, ...]]] = {
    ABSENT: (),
    NULL: (),
    BOOL: (bool,),
    NAN: (),
    NUMBER: (int, float),
    TIME: (int,),
    TEXT: (bytes,),
}


packed: Final[Callable[[Cuts | tuple[Key, ...]], bytes]] = msgspec.msgpack.Encoder().encode
"""Cuts, or keys of values, as bytes, the same for equal ones: the keys of dictionaries.

Python salts the hash of bytes in each process, but not of numbers: a stranger could choose any
number of combinations with one hash, and each look-up would compare them all. Single numbers need
no packing: some tens at most share a hash."""


def cut_before(key: Key) -> Cut:
    """Returns the cut just before a value."""
    domain, comparable = key
    return (domain,) if comparable == _FIRST[domain] else key


def cut_after(key: Key) -> Cut:
    """Returns the cut just after a value."""
    domain, comparable = key
    if domain == TEXT:
        return (TEXT, comparable + b"\0")  # type: ignore[operator]
    if domain == NUMBER:
        above = values.successor(comparable)  # type: ignore[arg-type]
        return (TIME,) if above is None else (NUMBER, above)
    if domain == TIME:
        return (TEXT,) if comparable == values.TIME_MAX_US else (TIME, comparable + 1)  # type: ignore[operator]
    if domain == BOOL and comparable is False:
        return (BOOL, True)
    return (domain + 1,)


def point(key: Key) -> Cuts:
    """Returns the set of one value."""
    return (cut_before(key), cut_after(key))


def below(key: Key) -> Cuts:
    """Returns all values of the key's domain that are smaller."""
    return interval((key[0],), cut_before(key))


def at_most(key: Key) -> Cuts:
    """Returns all values of the key's domain that are smaller or equal."""
    return interval((key[0],), cut_after(key))


def above(key: Key) -> Cuts:
    """Returns all values of the key's domain that are larger."""
    return interval(cut_after(key), domain_end(key[0]))


def at_least(key: Key) -> Cuts:
    """Returns all values of the key's domain that are larger or equal."""
    return interval(cut_before(key), domain_end(key[0]))


def starting_with(prefix: bytes) -> Cuts:
    """Returns all text that begins with a prefix; the only place that defines this.

    The set is [p, next(p)), where next(p) drops trailing 0xFF bytes and adds one to the last; it
    has no upper end if p is empty or all 0xFF. One prefix covers another exactly when its interval
    contains the other.
    """
    stem = prefix.rstrip(b"\xff")
    end: Cut | None = (TEXT, stem[:-1] + bytes((stem[-1] + 1,))) if stem else None
    return interval(cut_before((TEXT, prefix)), end)


def within_characters(cuts: Cuts, bytes_max: int) -> Cuts:
    """Returns the set without texts that are not UTF-8 of at most `bytes_max` bytes.

    Each cut in text becomes the one before the next such text, so that sets with the same of these
    texts are equal tuples. Cost: one look at each cut, some microseconds for one that moves.
    """
    moved: list[Cut] = []
    for cut in cuts:
        if len(cut) == 2 and cut[0] == TEXT:
            text = _next_characters(cut[1], bytes_max)  # type: ignore[arg-type]
            if text is None:
                continue  # Nothing is behind it: it is the end of the line.
            cut = (TEXT, text)
        if moved and moved[-1] == cut:
            moved.pop()
        else:
            moved.append(cut)
    return tuple(moved)


def _next_characters(text: bytes, bytes_max: int) -> bytes | None:
    """Returns the first text in UTF-8 of at most `bytes_max` bytes that is not before this one."""
    try:
        characters, rest = text.decode(), b""
    except UnicodeDecodeError as error:
        characters, rest = text[: error.start].decode(), text[error.start :]
    if not rest and len(text) <= bytes_max:
        return text
    size = len(characters.encode())
    while True:
        if size <= bytes_max and rest:
            number = bisect_left(range(_CHARACTERS), rest, key=_character)
            if number < _CHARACTERS and size + len(_character(number)) <= bytes_max:
                return characters.encode() + _character(number)
        if not characters:
            return None
        last = characters[-1].encode()
        characters, size = characters[:-1], size - len(last)
        rest = last + b"\0"  # Another character than the last one, behind it.


_SURROGATES: Final = range(0xD800, 0xE000)
_CHARACTERS: Final = 0x110000 - len(_SURROGATES)


def _character(number: int) -> bytes:
    """Returns the character with this number in the order of all, which is that of their bytes."""
    return chr(number if number < _SURROGATES.start else number + len(_SURROGATES)).encode()


def domain(tag: int) -> Cuts:
    """Returns all values of a domain. NaN counts as a number."""
    first = NAN if tag == NUMBER else tag
    return interval((first,), domain_end(tag))


def domain_end(tag: int) -> Cut | None:
    """Returns the cut behind a domain's last value; None at the end of the line."""
    return None if tag == TEXT else (tag + 1,)


def interval(start: Cut, end: Cut | None) -> Cuts:
    """Returns the values from one cut up to another; empty if the cuts are in the other order."""
    if end is None:
        return (start,)
    return (start, end) if start < end else EMPTY


def holds(cuts: Cuts, key: Key) -> bool:
    """Whether the set holds the value. Cost: logarithmic in the number of cuts."""
    return bisect_right(cuts, key) & 1 == 1


def complement(cuts: Cuts) -> Cuts:
    """Returns every other value of the line, absent included."""
    return cuts[1:] if cuts and cuts[0] == START else (START, *cuts)


def union(a: Cuts, b: Cuts) -> Cuts:
    """Returns the values in one set or the other."""
    return _merge(a, b, lambda in_a, in_b: in_a or in_b)


def intersection(a: Cuts, b: Cuts) -> Cuts:
    """Returns the values in both sets."""
    return _merge(a, b, lambda in_a, in_b: in_a and in_b)


def join_all(join: Callable[[S, S], S], sets: list[S]) -> S:
    """Joins many sets, by pairs. Cost: their total size, times the logarithm of their number."""
    while len(sets) > 1:
        pairs = zip(sets[::2], sets[1::2], strict=False)
        sets = [join(a, b) for a, b in pairs] + sets[len(sets) & ~1 :]
    return sets[0]


def difference(a: Cuts, b: Cuts) -> Cuts:
    """Returns the values in the first set and not in the second."""
    return _merge(a, b, lambda in_a, in_b: in_a and not in_b)


def includes(a: Cuts, b: Cuts) -> bool:
    """Whether the first set holds all values of the second."""
    if len(b) == 2:
        if len(a) == 2:
            return a[0] <= b[0] and b[1] <= a[1]
        return _inside(a, b)
    if not b or a == b:
        return True
    return all(_inside(a, piece) for piece in pieces(b))


def overlaps(a: Cuts, b: Cuts) -> bool:
    """Whether some value is in both sets."""
    if len(a) == 2 and len(b) == 2:
        return a[0] < b[1] and b[0] < a[1]
    i = j = 0
    while i < len(a) and j < len(b):
        if j + 1 == len(b) or a[i] < b[j + 1]:
            if i + 1 == len(a) or b[j] < a[i + 1]:
                return True
            i += 2
        else:
            j += 2
    return False


def pieces(cuts: Cuts) -> Iterator[HalfOpen]:
    """Yields the set's intervals in order."""
    for i in range(0, len(cuts) - 1, 2):
        yield cuts[i], cuts[i + 1]
    if len(cuts) & 1:
        yield cuts[-1], None


def first_key(cut: Cut) -> Key:
    """Returns the key of the first value after a cut."""
    return cut if len(cut) == 2 else (cut[0], _FIRST[cut[0]])


def single(cuts: Cuts | HalfOpen) -> Key | None:
    """Returns the key of the only value of the set, or None if it has none or several."""
    if len(cuts) == 2 and cuts[1] == cut_after(key := first_key(cuts[0])):
        return key
    return None


def friendly_key(cuts: Cuts) -> Key:
    """Returns a readable key of a nonempty set.

    Numbers come before text, text before the rest, absent last; whole numbers before others.
    """
    tags = (NUMBER, TEXT, TIME, BOOL, NULL, NAN, ABSENT)
    parts = ((tag, intersection(cuts, interval((tag,), domain_end(tag)))) for tag in tags)
    tag, inside = next(part for part in parts if part[1])
    first = first_key(inside[0])
    wanted: tuple[Key, ...] = ()
    if tag == NUMBER:
        wanted = tuple((NUMBER, n) for n in (0, *_integers_above(first[1])))  # type: ignore[arg-type]
    elif tag == TIME:
        wanted = ((TIME, 0),)
    elif tag == TEXT:
        wanted = ((TEXT, b"a"),)
    return next((key for key in wanted if holds(inside, key)), first)


def _integers_above(number: int | float) -> tuple[int, ...]:
    if math.isinf(number):
        return (values.INT_MIN,)
    whole = math.ceil(number)
    wanted = (whole, whole + 1)
    return tuple(n for n in wanted if values.INT_MIN <= n <= values.INT_MAX)


def _inside(a: Cuts, piece: HalfOpen) -> bool:
    start, end = piece
    after = bisect_right(a, start)
    if not after & 1:
        return False
    return after == len(a) or (end is not None and end <= a[after])


def _merge(a: Cuts, b: Cuts, keep: Callable[[bool, bool], bool]) -> Cuts:
    """Returns the cuts where keep(inside a, inside b) changes."""
    out: list[Cut] = []
    i = j = 0
    inside = False
    while i < len(a) or j < len(b):
        cut = a[i] if j == len(b) or (i < len(a) and a[i] <= b[j]) else b[j]
        if i < len(a) and a[i] == cut:
            i += 1
        if j < len(b) and b[j] == cut:
            j += 1
        if keep(i & 1 == 1, j & 1 == 1) != inside:
            inside = not inside
            out.append(cut)
    return tuple(out)
