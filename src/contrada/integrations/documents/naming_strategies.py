"""What is in a document gets names: the strategies for elements that occur several times.

A document, be it XML or JSON, is a sequence of *slots* in its order: a text, an XML attribute or a
scalar of JSON, each with the names of the elements on the way to it and their numbers among
siblings of their name. A strategy turns slots into names:

- `multi`  the names alone; what occurs several times has several values (so do `xslt`, which is
           about what happens before, and `split`, which is about the parts of a document);
- `last`   the names alone, and of several values the last one (§6.1); what is lost is counted;
- `index`  `story.0.title`: an element with siblings of its name has its number as a segment of its
           own, from 0 on (`pattern` subscribes to such names, §6.4);
- `daemon` the first of several values keeps the plain name; all others get a generated one
           (§6.5): `story.title~2` is the title of the second story.

Names of `index` and `daemon` are unambiguous: of one document no two slots have the same. So in the
names that the document gives `.` is written `%2E`, `~` is `%7E` and `%` is `%25`; an XML name can
begin with no digit, and a digit that a key of JSON begins with is escaped too.

A generated name says its position and nothing else: after `~` stand the numbers, from 1 on, of the
elements on the way, joined by `_`, without the root's and without 1s at the end. An attribute has
the number 0 at the end. So a generated name means the same in each document of a kind.

Source: Erenkrantz 2001 §6.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

STRATEGIES: Final = ("multi", "last", "split", "index", "pattern", "xslt", "daemon")
"""The strategies by name."""

_BASES: Final = {"split": "multi", "xslt": "multi", "pattern": "index"}

_ESCAPES: Final = str.maketrans({".": "%2E", "~": "%7E", "%": "%25"})


def base_of(strategy: str) -> str:
    """The strategy by which names are made: one of `multi`, `last`, `index`, `daemon`."""
    return _BASES.get(strategy, strategy)


class Slot(NamedTuple):
    """A place of a value in a document.

    `plain` are the names on the way, `indexed` these with numbers; `numbers` are those of the
    elements below the root, as `daemon` writes them; `position` is for people.
    """

    plain: str
    indexed: str
    numbers: tuple[str, ...]
    position: str
    value: Any


class Original(NamedTuple):
    """What a generated name stands for: the name before, and where in a document."""

    name: str
    position: str


class Named(NamedTuple):
    """A value with the name that a strategy gives it."""

    name: str
    slot: Slot


def is_escaping(strategy: str) -> bool:
    """Whether the names that a document gives are escaped, so that no two slots have one name."""
    return base_of(strategy) in ("index", "daemon")


def escaped(name: str) -> str:
    """A name as a segment that cannot be taken for another, nor for a number."""
    if name.isalnum() and not name[0].isdecimal():  # for speed: most are
        return name
    segment = name.translate(_ESCAPES)
    if not segment:
        return "%"
    return f"%{ord(segment[0]):X}{segment[1:]}" if segment[0] in "0123456789" else segment


def named(slots: Iterable[Slot], strategy: str, lost: Counter[str]) -> list[Named]:
    """The slots by name, in their order. `lost` counts by name what `last` leaves out."""
    base = base_of(strategy)
    if base == "index":
        return [Named(slot.indexed, slot) for slot in slots]
    if base == "daemon":
        return list(_generated(slots))
    if base == "last":
        found: dict[str, Named] = {}
        for slot in slots:
            if slot.plain in found:
                lost[slot.plain] += 1
            found[slot.plain] = Named(slot.plain, slot)
        return list(found.values())
    return [Named(slot.plain, slot) for slot in slots]


def _generated(slots: Iterable[Slot]) -> Iterator[Named]:
    taken: set[str] = set()
    for slot in slots:
        name = slot.plain
        if name in taken:
            name = f"{name}~{_suffix(slot.numbers)}"
            while name in taken:  # What stands around an entry may be as it, and stand as it does.
                name += "_1"
        taken.add(name)
        yield Named(name, slot)


def _suffix(numbers: tuple[str, ...]) -> str:
    end = len(numbers)
    while end > 1 and numbers[end - 1] == "1":
        end -= 1
    return "_".join(numbers[:end]) or "1"
