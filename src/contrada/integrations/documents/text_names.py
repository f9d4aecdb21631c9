"""`named_texts`: the texts of a document by name, and its entries, one notification each.

The name of an element's text is its path, joined by dots from the root (`backslash.story.title`);
an XML attribute has its element's path and its own name (`feed.link.href`). Repeated elements have
several texts under one name, so nothing is lost; the paper's own system sent one of them (§6.1).

Source: Erenkrantz 2001 §5 (parsing), §6 (repeated elements), §8.2 (one event per story).
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from contrada.errors import LimitError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.element_tree import Element

Texts: TypeAlias = dict[str, list[str]]
"""The texts of a document or an entry by name."""


class ContextRoom:
    """The number of values that elements around entries may still add to entries."""

    def __init__(self, size: int, limits: DocumentLimits) -> None:
        """`size` is that of the document in bytes."""
        self.limits = limits
        self._left = limits.context_added_max + size

    def grow(self, size: int) -> None:
        """Adds bytes of the document."""
        self._left += size

    def take(self, values: int) -> None:
        """Counts values that are added to one entry. Raises LimitError."""
        self._left -= values
        if self._left < 0:
            raise LimitError("context_added_max", self.limits.context_added_max)


def named_texts(
    root: Element, entries: str | None, size: int = 0, limits: DocumentLimits = DocumentLimits()
) -> Iterator[Texts]:
    """Yields the texts of a document, or of each of its entries.

    With `entries` each outermost element of that name is a part: its content, and from each element
    around it the attributes, the own text and the children that contain only text. Cost:
    proportional to the document, once more for each level above the entries, plus the surroundings
    of each entry. `size` is that of the document in bytes. Raises LimitError.
    """
    if entries is None:
        yield _texts(root, root.name, {})
    else:
        yield from _entries_within(root, root.name, entries, {}, ContextRoom(size, limits))


def note_repeated(element: Element, path: str, note: Callable[[str, int], None]) -> None:
    """Reports each name that several children of one element share, and their number."""
    counts: dict[str, int] = {}
    for child in element.children:
        counts[child.name] = counts.get(child.name, 0) + 1
        if child.children:
            note_repeated(child, f"{path}.{child.name}", note)
    for name, count in counts.items():
        if count > 1:
            note(f"{path}.{name}", count)


def _entries_within(
    element: Element, path: str, entries: str, context: Texts, room: ContextRoom
) -> Iterator[Texts]:
    """Yields the outermost entries of an element, each with its surroundings."""
    if element.name == entries:
        room.take(sum(map(len, context.values())))
        yield _texts(element, path, context)
        return
    inner: Texts | None = None
    for child in element.children:
        if not _holds(child, entries):
            continue
        if inner is None:
            inner = _context(element, path, entries, context, room.limits)
        yield from _entries_within(child, f"{path}.{child.name}", entries, inner, room)


def _holds(element: Element, entries: str) -> bool:
    return element.name == entries or any(_holds(child, entries) for child in element.children)


def _context(
    element: Element, path: str, entries: str, outer: Texts, limits: DocumentLimits
) -> Texts:
    """Returns the texts around entries: with an element's attributes, own text, leaf children."""
    texts = _copy(outer)
    _add_own(element, path, texts)
    for child in element.children:
        if not child.children and child.name != entries:
            _add_own(child, f"{path}.{child.name}", texts)
    size = sum(map(len, texts.values()))
    if size > limits.context_values_max:
        raise LimitError("context_values_max", limits.context_values_max, size)
    return texts


def _texts(element: Element, path: str, context: Texts) -> Texts:
    """Returns all texts of an element and its descendants, after those around it."""
    texts = _copy(context)
    _add_all(element, path, texts)
    return texts


def _add_all(element: Element, path: str, texts: Texts) -> None:
    _add_own(element, path, texts)
    for child in element.children:
        _add_all(child, f"{path}.{child.name}", texts)


def _add_own(element: Element, path: str, texts: Texts) -> None:
    for name, value in element.attributes:
        texts.setdefault(f"{path}.{name}", []).append(value)
    if element.texts:
        texts.setdefault(path, []).extend(element.texts)


def _copy(texts: Texts) -> Texts:
    return {name: list(found) for name, found in texts.items()}
