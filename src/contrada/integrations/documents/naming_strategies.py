"""Strategies that name the values of a document, for elements that occur several times.

A document, XML or JSON, is a sequence of *slots* in its order: a text, an XML attribute or a JSON
scalar, each with the names of the elements on its path and their numbers among siblings of the same
name. A strategy turns slots into names; docs/documents.md describes all of them. Names of `index`
and `daemon` are unambiguous: no two slots of a document share one. A name that `daemon` generates
has the same meaning in all documents of a kind.

Source: Erenkrantz 2001 §6.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

STRATEGIES: Final = ("multi", "last", "split", "index", "pattern", "xslt", "daemon")
"""The strategies by name."""

_BASES: Final = {"split": "multi", "xslt": "multi", "pattern": "index"}

_ESCAPES: Final = str.maketrans({".": "%2E", "~": "%7E", "%": "%25"})


def base_of(strategy: str) -> str:
    """Returns the strategy that makes the names: `multi`, `last`, `index` or `daemon`."""
    return _BASES.get(strategy, strategy)


class Slot(NamedTuple):
    """A place of a value in a document.

    `plain` is the path of names, `indexed` that with numbers; `numbers` are those of the elements
    below the root; `position` is for people.
    """

    plain: str
    indexed: str
    numbers: tuple[str, ...]
    position: str
    value: Any


class Original(NamedTuple):
    """The original of a generated name: the name, and the position in a document."""

    name: str
    position: str


class Named(NamedTuple):
    """A value with the name that a strategy gives it."""

    name: str
    slot: Slot


def is_escaping(strategy: str) -> bool:
    """Whether names of a document are escaped, so that no two slots share a name."""
    return base_of(strategy) in ("index", "daemon")


def escaped(name: str) -> str:
    """Returns a name as a segment that is unambiguous and not a number."""
    if name.isalnum() and not name[0].isdecimal():  # for speed: most are
        return name
    segment = name.translate(_ESCAPES)
    if not segment:
        return "%"
    return f"%{ord(segment[0]):X}{segment[1:]}" if segment[0] in "0123456789" else segment


def named(slots: Iterable[Slot], strategy: str, lost: Counter[str]) -> Iterable[Named]:
    """Returns the slots by name, in order; lazily, but for `last`.

    `lost` counts values that `last` omits, by name.
    """
    base = base_of(strategy)
    if base == "index":
        return (Named(slot.indexed, slot) for slot in slots)
    if base == "daemon":
        return _generated(slots)
    if base == "last":
        found: dict[str, Named] = {}
        for slot in slots:
            if slot.plain in found:
                lost[slot.plain] += 1
            found[slot.plain] = Named(slot.plain, slot)
        return found.values()
    return (Named(slot.plain, slot) for slot in slots)


def noted(items: Iterable[T], into: list[T]) -> Iterator[T]:
    """Yields the items, each once it is in the list."""
    for each in items:
        into.append(each)
        yield each


def _generated(slots: Iterable[Slot]) -> Iterator[Named]:
    taken: set[str] = set()
    for slot in slots:
        name = slot.plain
        if name in taken:
            numbers = list(slot.numbers)
            while len(numbers) > 1 and numbers[-1] == "1":
                numbers.pop()
            name = f"{name}~{'_'.join(numbers) or '1'}"
            while name in taken:  # Context of an entry may have the same name and numbers.
                name += "_1"
        taken.add(name)
        yield Named(name, slot)
