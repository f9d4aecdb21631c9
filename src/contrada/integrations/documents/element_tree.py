"""`Element`: an XML document as a tree of names and texts; `named_texts`: its texts by name.

Comments, processing instructions, blanks around texts and the order of differently named children
are dropped. Names keep the prefix in the document (`cap:event`), as people know them. The parser
opens nothing outside the document, and is bounded in depth and size. An entity that the document
declares is replaced by its text; the use of an external entity is refused. If a document type has
parts (`%part;`), these are skipped, and all entities are refused.

The name of an element's text is its path, joined by dots from the root (`backslash.story.title`);
an XML attribute has its element's path and its own name (`feed.link.href`). Repeated elements have
several texts under one name, so nothing is lost; the paper's own system sent one of them (§6.1).

Source: Erenkrantz 2001 §3.3 (the parser assumes nothing about the document), §5 (parsing), §6
(repeated elements), §8.2 (one event per story).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lxml import etree

from contrada.errors import LimitError, ParseError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.model.algebra.attributes import ATTRIBUTES_MAX

XmlNode: TypeAlias = Any
"""An element of the parser, or an instruction: annotations of lxml are too narrow."""

DOCUMENT_DEPTH_MAX: Final = 64
"""Levels of elements. Beyond it: the document is a bad record."""

ENTITY_CHARS_MAX: Final = 4_096
"""Characters of an entity that a document declares, including nested entities. Beyond it: the
document is a bad record. So it is if all entities expand, beyond a megabyte, to more than 5
times the input: that is the parser's own limit."""

DOCTYPE_BYTES_MAX: Final = 65_536
"""Bytes in which a document's type may use parts. Beyond it: the document is a bad record."""

XML_BLANKS: Final = " \t\r\n"
XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"

_ENTITY_DEPTH_MAX: Final = 40
_UNKNOWN: Final = re.compile("Entity '([^']*)' not defined")
_DECLARED: Final = "one that the document declares as a text"
_REFERENCE: Final = re.compile(r"&([^#;&][^;&]*);")
_POSITION: Final = re.compile(r"(, line \d+, column \d+)?( \(<string>, line \d+\))?$")


@dataclass(frozen=True, slots=True)
class Element:
    """An element: attributes, pieces of text, none empty, and children, stably sorted by name."""

    name: str
    attributes: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()
    children: tuple["Element", ...] = ()


def parse_document(data: bytes) -> Element:
    """Returns the tree of a document. Cost: linear.

    Raises ParseError, also for undeclared entities, and LimitError.
    """
    return tree_of(parsed(data))


def parsed(data: bytes, *, instructions: bool = False) -> etree._Element:
    """Returns the root of a document as parsed, in order. Raises ParseError and LimitError."""
    try:
        try:
            root = etree.fromstring(data, safe_parser(instructions=instructions))
        except etree.XMLSyntaxError as error:
            if not has_parts(error.msg or "", data):
                raise
            root = etree.fromstring(data, safe_parser(instructions=instructions, entities=False))
    except etree.XMLSyntaxError as error:
        raise syntax_error(error) from None
    except ValueError as error:  # lxml raises it for input without a beginning
        raise ParseError(1, 1, str(error), "an XML document") from None
    check_entities(root)
    return root


def has_parts(message: str, data: bytes) -> bool:
    """Whether a parser's message is about a part of the document type."""
    named = _UNKNOWN.match(message)
    return named is not None and b"%%%s;" % named[1].encode() in data[:DOCTYPE_BYTES_MAX]


def unknown_entity(log: Any) -> ParseError | None:
    """Returns the error for an entity that a parser has skipped; None if there is none."""
    for each in log:
        if _UNKNOWN.match(each.message):
            return ParseError(max(each.line, 1), max(each.column, 1), each.message, _DECLARED)
    return None


def check_entities(root: XmlNode) -> None:
    """Raises LimitError if the document of an element declares an entity that is too long."""
    declared = root.getroottree().docinfo.internalDTD
    if declared is None:
        return
    texts = {each.name: each.content or "" for each in declared.iterentities()}
    sizes: dict[str, int] = {}

    def size(name: str, depth: int) -> int:
        if depth > _ENTITY_DEPTH_MAX:  # The parser allows no more either, where it is used.
            raise LimitError("ENTITY_CHARS_MAX", ENTITY_CHARS_MAX)
        if name not in sizes:
            text = texts[name]
            inner = (each for each in _REFERENCE.findall(text) if each in texts)
            sizes[name] = len(text) + sum(size(each, depth + 1) for each in inner)
            if sizes[name] > ENTITY_CHARS_MAX:
                raise LimitError("ENTITY_CHARS_MAX", ENTITY_CHARS_MAX)
        return sizes[name]

    for name in texts:
        size(name, 1)


def tree_of(root: etree._Element, depth: int = 1) -> Element:
    """Returns the tree below an element at a depth. Raises as `parse_document`."""
    if depth > DOCUMENT_DEPTH_MAX:
        raise LimitError("DOCUMENT_DEPTH_MAX", DOCUMENT_DEPTH_MAX)
    pieces: list[str | None] = [root.text]
    children: list[Element] = []
    for child in root:
        if not isinstance(child.tag, str):
            raise entity_error(child)
        children.append(tree_of(child, depth + 1))
        pieces.append(child.tail)
    named = sorted(attributes_of(root).items()) if root.attrib else ()
    attributes = tuple((name, text) for name, value in named if (text := value.strip(XML_BLANKS)))
    texts = tuple(text for piece in pieces if piece and (text := piece.strip(XML_BLANKS)))
    children.sort(key=lambda child: child.name)  # Those of one name keep their order.
    return Element(element_name(root), attributes, texts, tuple(children))


_SAFELY: Final[dict[str, Any]] = {
    **dict.fromkeys(("no_network", "remove_comments", "strip_cdata"), True),
    **dict.fromkeys(("load_dtd", "dtd_validation", "attribute_defaults"), False),
    **dict.fromkeys(("huge_tree", "recover"), False),
}


def safe_parser(*, instructions: bool = False, entities: bool = True) -> etree.XMLParser:
    """Returns a parser that opens nothing else; with `entities` false it keeps references."""
    resolve: Any = "internal" if entities else False
    return etree.XMLParser(**_SAFELY, resolve_entities=resolve, remove_pis=not instructions)


def pull_parser(
    tag: str, *, instructions: bool = False, blanks: bool = True, entities: bool = True
) -> etree.XMLPullParser:
    """As `safe_parser`, for pieces; reports ends of a tag. `blanks` keeps texts of blanks alone."""
    options = {**_SAFELY, "remove_pis": not instructions, "remove_blank_text": not blanks}
    resolve: Any = "internal" if entities else False
    return etree.XMLPullParser(events=("end",), tag=tag, resolve_entities=resolve, **options)


def syntax_error(error: etree.XMLSyntaxError) -> ParseError:
    """Returns the parser's error, with its place and the input found."""
    line, column = error.position
    found = _POSITION.sub("", error.msg or "nothing that can be read").strip()
    expected = _DECLARED if _UNKNOWN.match(found) else "well-formed XML"
    return ParseError(max(line, 1), max(column, 1), found, expected)


def element_name(node: XmlNode) -> str:
    """Returns an element's name with the prefix in the document."""
    # Not by etree.QName, which refuses a prefix that the document has not bound.
    local = str(node.tag).rpartition("}")[2]
    return f"{node.prefix}:{local}" if node.prefix else local


def entity_error(node: XmlNode) -> ParseError:
    """Returns the error for an entity of the document's own."""
    return ParseError(node.sourceline or 1, 1, f"the entity {node.text}", "plain text")


def attributes_of(node: XmlNode) -> dict[str, str]:
    """Returns the attributes by their written names, in document order. Raises LimitError."""
    if len(node.attrib) > ATTRIBUTES_MAX:  # Reading them costs the square of their number.
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(node.attrib))
    return {_attribute_name(node, str(name)): str(value) for name, value in node.items()}


def _attribute_name(node: XmlNode, name: str) -> str:
    """Returns an attribute's name with the prefix of its namespace; the first of several."""
    if name[0] != "{":
        return name
    uri, _, local = name[1:].partition("}")
    if uri == XML_NAMESPACE:
        return f"xml:{local}"
    prefixes = sorted(prefix for prefix, bound in node.nsmap.items() if prefix and bound == uri)
    return f"{prefixes[0]}:{local}" if prefixes else local


# --- texts by name ------------------------------------------------------------------------------

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
