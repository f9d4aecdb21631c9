"""`entries_in`: yields the entries of a document that arrives in pieces, in constant memory.

Only the elements around the current entry are kept, with their texts and leaf children. So an entry
includes context *before* its end only. Context behind it, which a reader of the whole document
would add, is reported as an error at the end.

Source: Erenkrantz 2001 §8 (one event per story).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lxml import etree

from contrada.errors import InputError, LimitError
from contrada.integrations.documents import element_tree as trees
from contrada.integrations.documents.document_slots import ElementPath, Walk, adds
from contrada.integrations.documents.element_tree import XmlNode
from contrada.integrations.documents.naming_strategies import Slot

_NO_NAME: Final = re.compile("[\0-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that no document has in a name."""


class DocumentEntry(NamedTuple):
    """An entry, its path, and the slots around it, which entries share if unchanged."""

    node: XmlNode
    path: ElementPath
    around: list[Slot]


def entries_of(root: XmlNode, entries: str, walk: Walk, size: int) -> Iterator[DocumentEntry]:
    """Yields the outermost entries of a document of `size` bytes. Raises LimitError, ParseError."""
    chain = _ElementChain(entries, walk, size)
    for node in root.iter(tag_of(entries)):
        if chain.is_outermost(node):
            yield chain.entry(node)


def entries_in(
    pieces: Iterable[bytes], entries: str, walk: Walk, *, exact: bool = False
) -> Iterator[DocumentEntry]:
    """Yields the outermost entries of a document in pieces; each is valid until the next.

    `exact` keeps instructions, and texts of blanks alone. Raises ParseError for a document that is
    not well formed, LimitError for an entry that is too large or too deep, and InputError for
    values of entries behind them: in each case after the entries before the error.
    """
    parser = trees.pull_parser(tag_of(entries), instructions=exact, blanks=exact)
    chain = _FlatChain(entries, walk)
    held = [0]
    before = b""
    skips = False
    entry_bytes_max = walk.limits.entry_bytes_max
    try:
        for piece in _joined(pieces, held):
            held[0] += len(piece)
            chain.size += len(piece)
            fault = _fed(parser, piece)
            if chain.is_first and len(before) < trees.DOCTYPE_BYTES_MAX:
                before += piece
                if any(trees.has_parts(each.message, before) for each in parser.feed_error_log):
                    skips, tag = True, tag_of(entries)
                    parser = trees.pull_parser(
                        tag, instructions=exact, blanks=exact, entities=False
                    )
                    fault = _fed(parser, before)
            if fault is None and (unknown := trees.unknown_entity(parser.feed_error_log, skips)):
                raise unknown  # The parser skips it and continues, so no entry is certain.
            for entry in _read(parser, chain):
                yield entry
                held[0] = len(piece)
            if fault is not None:
                raise fault
            if held[0] > entry_bytes_max:
                raise LimitError("entry_bytes_max", entry_bytes_max)
        parser.close()
        yield from _read(parser, chain)  # It may have waited for the end, behind some doctypes.
    except etree.XMLSyntaxError as error:
        raise trees.syntax_error(error) from None
    chain.end()


def _read(parser: etree.XMLPullParser, chain: "_FlatChain") -> Iterator[DocumentEntry]:
    """Yields the complete entries of the parser. Raises as `entries_in`."""
    node: XmlNode
    for _, node in parser.read_events():
        if chain.is_first:
            trees.check_entities(node)
        if chain.is_outermost(node):
            yield chain.entry(node)


def _joined(pieces: Iterable[bytes], held: list[int]) -> Iterator[bytes]:
    """Yields pieces, combined if much is pending since the last entry.

    The parser scans a pending text again for each piece, so larger pieces save time.
    """
    waiting: list[bytes] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= held[0] // 4:
            yield b"".join(waiting)
            waiting.clear()
    yield b"".join(waiting)


def _fed(parser: etree.XMLPullParser, piece: bytes) -> etree.XMLSyntaxError | None:
    try:
        parser.feed(piece)
    except etree.XMLSyntaxError as error:
        return error
    return None


def tag_of(entries: str) -> str:
    """Returns the tag of lxml for a written name, in any namespace. Raises InputError for a name
    that no element can have, and lxml does not take.
    """
    local = entries.rpartition(":")[2]
    if not local or _NO_NAME.search(local):
        raise InputError("entries", f"found {entries!r}, expected the name of an element")
    return "{*}" + local


class _ElementChain:
    """The elements around the entries of a document, and the slots that each of them adds.

    `size` is that of the document in bytes, as far as it was read.
    """

    def __init__(self, entries: str, walk: Walk, size: int = 0) -> None:
        self.size = size
        self._added = 0
        """The values that elements around entries have added to them."""
        self._entries, self._walk = entries, walk
        self._last: tuple[XmlNode, ElementPath, list[Slot]] | None = None
        self._count = 0
        """The entries of the last parent so far."""
        self._counts: dict[XmlNode, int] = {}
        """Those of other parents, which may have more."""
        self._known: dict[XmlNode, tuple[ElementPath, list[Slot]]] = {}

    @property
    def is_first(self) -> bool:
        """Whether no entry was yielded yet."""
        return self._last is None

    def is_outermost(self, node: XmlNode) -> bool:
        """Whether an element has exactly the entries' name, and is in no other entry."""
        if trees.element_name(node) != self._entries:
            return False
        if self._last is not None and node.getparent() is self._last[0]:
            return True
        return all(trees.element_name(each) != self._entries for each in node.iterancestors())

    def entry(self, node: XmlNode) -> DocumentEntry:
        parent = node.getparent()
        if parent is None:
            return DocumentEntry(node, self._path_to_root(node), [])
        last = self._last
        if last is None or parent is not last[0] or parent not in self._known:
            path, around = self._around(parent)
            path = path.child(self._entries)
            if last is not None and parent is not last[0]:
                self._counts[last[0]] = self._count
                self._count = self._counts.pop(parent, 0)
            self._last = last = (parent, path, around)
        self._count += 1
        self._added += len(last[2])
        added_max = self._walk.limits.context_added_max
        if self._added > added_max + self.size:
            raise LimitError("context_added_max", added_max)
        if self._count > 1:
            self._walk.note(last[1].plain, self._count)
        return DocumentEntry(node, last[1], last[2])

    def _around(self, node: XmlNode) -> tuple[ElementPath, list[Slot]]:
        """Returns the path to an element around entries, and all slots around these."""
        known = self._known.get(node)
        if known is None:
            parent = node.getparent()
            if parent is None:
                outer: list[Slot] = []
                path = self._path_to_root(node)
            else:
                outer_path, outer = self._around(parent)
                path = outer_path.child(trees.element_name(node))
            if path.depth >= trees.DOCUMENT_DEPTH_MAX:
                raise LimitError("DOCUMENT_DEPTH_MAX", trees.DOCUMENT_DEPTH_MAX)
            known = self._known[node] = path, [*outer, *self._own(node, path)]
        return known

    def _path_to_root(self, node: XmlNode) -> ElementPath:
        return ElementPath.to_root(trees.element_name(node), escape=self._walk.escape)

    def _own(self, node: XmlNode, path: ElementPath) -> list[Slot]:
        return self._walk.around(node, path, self._entries)


class _FlatChain(_ElementChain):
    """A chain for a document in pieces: it keeps only content before an entry, and releases it."""

    def __init__(self, entries: str, walk: Walk) -> None:
        super().__init__(entries, walk)
        self._before: XmlNode | None = None
        self._until: dict[XmlNode, XmlNode] = {}
        self._first: dict[XmlNode, tuple[ElementPath, list[Slot]]] = {}
        self._late: list[Slot] = []

    def entry(self, node: XmlNode) -> DocumentEntry:
        """As `_ElementChain.entry`; releases everything before the entry that is not around it."""
        before, parent = node.getprevious(), node.getparent()
        if before is not None and before is self._before and not _has_tail(before):
            parent.remove(before)  # the usual case, for speed
        else:
            self._let_go(node)
        self._before = node
        return super().entry(node)

    def end(self) -> None:
        """Ends the document. Raises InputError if entries lack context."""
        for node in list(self._first):
            self._close(node)
        if self._late:
            names = ", ".join(sorted({slot.plain for slot in self._late})[:10])
            reason = (
                f"elements after the entries belong to them: {names}; the entries lack these, "
                "since the document was read in pieces"
            )
            raise InputError("entries", reason)

    def _let_go(self, node: XmlNode) -> None:
        around = list(node.iterancestors())
        self._known.clear()
        self._until = dict(zip(around, [node, *around], strict=False))
        self._counts = {each: self._counts[each] for each in self._counts if each in self._until}
        for each in [each for each in self._first if each not in self._until]:
            self._close(each)
        for parent, child in self._until.items():
            for each in list(child.itersiblings(preceding=True)):
                if each.tag is etree.PI or not adds(each, self._entries):
                    if _has_tail(each):
                        each.clear(keep_tail=True)
                    else:
                        parent.remove(each)

    def _own(self, node: XmlNode, path: ElementPath) -> list[Slot]:
        own = self._walk.around(node, path, self._entries, self._until[node])
        self._first.setdefault(node, (path, own))
        return own

    def _close(self, node: XmlNode) -> None:
        """Checks the context that an ended element would have added to its first entries."""
        path, first = self._first.pop(node)
        own = self._walk.around(node, path, self._entries)
        known = {(slot.plain, slot.numbers): slot.value for slot in first}
        self._late += [slot for slot in own if known.get((slot.plain, slot.numbers)) != slot.value]


def _has_tail(node: XmlNode) -> bool:
    return bool(node.tail and node.tail.strip(trees.XML_BLANKS))
