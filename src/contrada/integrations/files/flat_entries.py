"""`FlatEntries`: a fast path for plain documents, and plain entries of documents.

Each name is computed once and values are packed together. It handles only strategies with several
values for repeated elements, and no type marks. `contrada.integrations.files.renderer` defines the
meaning. It also reads every entry that is not plain (a refused name or value, too many values, too
deep) and reports the fault.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from contrada.errors import ContradaError
from contrada.integrations.documents.element_tree import (
    DOCUMENT_DEPTH_MAX,
    XML_BLANKS,
    XmlNode,
    attributes_of,
    element_name,
)
from contrada.integrations.documents.entry_splitter import DocumentEntry
from contrada.integrations.documents.naming_strategies import Named, Slot
from contrada.integrations.files.read_options import (
    NAMES_KEPT_MAX,
    ReadOptions,
    SlotReader,
    untyped_value,
)
from contrada.model import Notification
from contrada.model.algebra.attributes import ATTRIBUTES_MAX, VALUES_MAX
from contrada.model.algebra.notification import from_plain
from contrada.model.domains.values import check_user_name

VALUES_KEPT_MAX: Final = 4_096
"""Texts with cached values. Beyond it: the oldest are converted again."""

_untyped: Final = lru_cache(VALUES_KEPT_MAX)(untyped_value)

_BEGINS_OTHER: Final = frozenset("-0123456789tf")
"""First characters of numbers and truth values."""


class _OddEntryError(Exception):
    """An entry is not plain."""


class FlatEntries:
    """Converts plain entries to notifications."""

    def __init__(
        self, options: ReadOptions, values: SlotReader, note: Callable[[str, int], None]
    ) -> None:
        """`note` receives the number of children of one element that share a name."""
        self.options, self.values = options, values
        self.note = note
        self._roots: dict[tuple[str, str], _PathPlace] = {}
        self._around: list[Slot] | None = None
        self._shared: dict[str, Any] = {}
        self._several: frozenset[str] = frozenset()
        self._count = 0

    def notification(self, entry: DocumentEntry) -> Notification | None:
        """Returns the notification of an entry, None if it is not plain."""
        try:
            if entry.around is not self._around:
                self._take_around(entry.around)
            found = self._shared.copy()
            several: set[str] = set()
            for name in self._several:  # An entry may add to them.
                found[name] = list(found[name])
                several.add(name)
            node = entry.node
            key = (node.tag, entry.path.plain)
            place = self._roots.get(key)
            if place is None:
                place = self._roots[key] = self.place(entry.path.plain, entry.path.depth)
            place.take(node, found, several)
            options = self.options
            if options.add:
                found |= options.add
                several -= options.add.keys()
            if len(found) > ATTRIBUTES_MAX:
                raise _OddEntryError
            return from_plain(found, options.envelope(found), several)
        except (ContradaError, _OddEntryError):
            return None

    def place(self, path: str, depth: int) -> "_PathPlace":
        """Returns a new place for a path. Raises _OddEntryError for one that is too deep, and if
        too many places are held, which are dropped then.
        """
        if depth > DOCUMENT_DEPTH_MAX:
            raise _OddEntryError
        if self._count >= NAMES_KEPT_MAX:
            self._count = 0
            self._roots.clear()
            raise _OddEntryError
        self._count += 1
        return _PathPlace(self, path, depth)

    def _take_around(self, around: list[Slot]) -> None:
        shared = self.values.of([Named(slot.plain, slot) for slot in around])
        for name in shared:
            check_user_name(name)
        self._around, self._shared = around, shared
        self._several = frozenset(name for name in shared if isinstance(shared[name], list))


class _PathPlace:
    """The cached attribute, converter and children of one path."""

    def __init__(self, all_: FlatEntries, path: str, depth: int) -> None:
        self._all, self._path, self._depth = all_, path, depth
        self._below: dict[tuple[Any, Any], _PathPlace] = {}
        self._attributes: dict[str, _PathPlace] = {}
        self._name = name = all_.options.attribute(path)
        self._absent = all_.options.absent
        self._convert: Callable[[str], Any] | None = None
        if name is not None:
            check_user_name(name)
            convert = all_.values.converter(name, path)
            self._convert = convert if self._absent or convert is not untyped_value else None
        self._is_odd = self._name is None or self._convert is not None
        self._noted: list[str] | None = None

    def take(self, node: XmlNode, found: dict[str, Any], several: set[str]) -> None:
        """Adds the values of an element and of its descendants."""
        if node.keys():
            self._take_attributes(node, found, several)
        text = node.text
        if text is not None and (text := text.strip(XML_BLANKS)):
            self.put(text, found, several)
        below = self._below
        paths = []
        for child in node:
            place = below.get((child.tag, child.prefix))
            if place is None:
                place = self._new_below(child)
            paths.append(place._path)
            if len(child):
                place.take(child, found, several)
            else:
                if child.keys():
                    place._take_attributes(child, found, several)
                text = child.text
                if text is not None and (text := text.strip(XML_BLANKS)):
                    if text[0] in _BEGINS_OTHER or place._is_odd or place._name in found:
                        place.put(text, found, several)
                    else:  # the usual case, for speed
                        found[place._name] = text  # type: ignore[index]
            text = child.tail
            if text is not None and (text := text.strip(XML_BLANKS)):
                self.put(text, found, several)
        if len(set(paths)) < len(paths) and paths != self._noted:
            self._noted = paths
            for path, count in Counter(paths).items():
                if count > 1:
                    self._all.note(path, count)

    def put(self, text: str, found: dict[str, Any], several: set[str]) -> None:
        """Adds a value of this path."""
        name, convert = self._name, self._convert
        value: Any = text
        if convert is not None:
            if text in self._absent:
                return
            value = convert(text)
        elif text[0] in _BEGINS_OTHER:
            value = _untyped(text)
        if name is None:
            return
        if name not in found:
            found[name] = value
        elif name in several:
            held = found[name]
            if len(held) >= VALUES_MAX:
                raise _OddEntryError
            held.append(value)
        else:
            found[name] = [found[name], value]
            several.add(name)

    def _take_attributes(self, node: XmlNode, found: dict[str, Any], several: set[str]) -> None:
        if len(node.keys()) > ATTRIBUTES_MAX:
            raise _OddEntryError
        for written, value in attributes_of(node).items():
            text = value.strip(XML_BLANKS)
            if text:
                place = self._attributes.get(written)
                if place is None:
                    place = self._all.place(f"{self._path}.{written}", self._depth)
                    self._attributes[written] = place
                place.put(text, found, several)

    def _new_below(self, node: XmlNode) -> "_PathPlace":
        if not isinstance(node.tag, str):
            raise _OddEntryError
        place = self._all.place(f"{self._path}.{element_name(node)}", self._depth + 1)
        self._below[node.tag, node.prefix] = place
        return place
