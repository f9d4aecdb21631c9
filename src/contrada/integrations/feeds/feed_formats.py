"""Feeds as documents: their format, their entries, and the identity of an entry.

docs/feeds.md has the table of formats, with the identities of entries and feeds. Atom has an
element for changes that its publisher finds significant, `updated`. Other changes, such as a word
in a title, count only with `edits`. Without this element the content is compared. The content is
the identity of an entry with no other: it can be new, but never changed. Content is names with
their namespaces, attributes in any order, and texts without surrounding blanks.

Feeds are read where only their form is wrong in a common way: with other output of their server
before `<?xml`, and with entities of HTML (`&nbsp;`).

Source: RFC 4287 §2, §4.2.6 (an Atom id never changes, wherever the feed moves), §4.2.15
(`updated`); RFC 3986 §5, XML Base (W3C, second edition) §3, §4 (links); Erenkrantz 2001 §8 (a feed
as a source of events).
"""

import re
from collections.abc import Iterable, Iterator
from html.entities import html5
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from lxml import etree

from contrada.errors import InputError, LimitError, ParseError
from contrada.integrations.documents import element_tree as trees
from contrada.integrations.documents.damaged_document import DamagedPiece, without_damage
from contrada.integrations.documents.entry_splitter import tag_of
from contrada.integrations.feeds.feed_document import FeedDocument, FeedEntry, digest
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.json_feed import JSON, is_json, only_items, read_json_feed
from contrada.model.algebra.attributes import ATTRIBUTES_MAX

_RDF: Final = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_ABOUT: Final = f"{_RDF}about"
_ATOM: Final = "http://www.w3.org/2005/Atom"
_WRITTEN: Final = re.compile(rb"<((?:[\w.-]+:)?(?:item|entry))[\s/>]")
_BEGINNING: Final = re.compile(rb"<\?xml\s+version\s*=")
_XML_ENTITIES: Final = frozenset(("amp", "lt", "gt", "quot", "apos"))
# One that does not end is skipped as a whole: else each would be searched to the end of the feed.
_HTML_ENTITY: Final = re.compile(
    rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|&([A-Za-z][A-Za-z0-9]{1,31});", re.DOTALL
)

BEFORE_BYTES_MAX: Final = 4_096
"""Bytes before the beginning of a feed that are left out. Beyond it: the feed is refused."""
_ENTRIES: Final = {"rss": "item", "RDF": "item", "feed": "entry"}
"""The local name of entries, by that of the root."""


def read_feed(
    data: bytes,
    source: str,
    entries: str | None = None,
    identity: str | None = None,
    *,
    edits: bool = False,
    entries_max: int = FeedLimits().feed_entries_max,
) -> FeedDocument:
    """Returns the feed of a document.

    `entries` names the elements that are its entries, with their prefix, or the array in JSON; the
    default depends on the format. `identity` is the path, from an entry on, of the element,
    attribute or value that identifies it, such as `head.guid`. With `edits` every change of content
    counts. Intact entries of XML that is not well formed are read, as by `Renderer`. Cost:
    proportional to the document. Raises ParseError, LimitError, InputError for an unknown format.
    """
    if is_json(data):
        return read_json_feed(data, source, entries, identity, edits, entries_max)
    root, faults = _without_preface(data, entries)
    format_name, entries_name, nodes = _entries(root, source, entries)
    found: list[FeedEntry] = []
    for node in nodes:
        if len(found) >= entries_max:
            raise LimitError("feed_entries_max", entries_max)
        content = digest(_content(node))
        named = _at_path(node, identity) if identity else _identity(node, format_name)
        updated = ""
        if format_name == "feed" and named and not edits:
            updated = _child_text(node, "updated") or _child_text(node, "modified")
        version = digest([updated]) if updated else content
        found.append(FeedEntry(digest(named) if named else content, version, node))
    own = " ".join(_feed_identity(root, format_name)) or source
    omitted = tuple(digest([piece]) for _, piece in faults)
    return FeedDocument(format_name, own, entries_name, tuple(found), root, faults, omitted)


def _without_preface(
    data: bytes, entries: str | None
) -> tuple[etree._Element, tuple[DamagedPiece, ...]]:
    """Returns the root and the damaged pieces of a document, without what precedes it."""
    try:
        return _whole(_without_entities(data), entries)
    except ParseError:
        found = _BEGINNING.search(data, 1, BEFORE_BYTES_MAX)
        if found is None:
            raise
    begin = found.start()
    lines = data.count(b"\n", 0, begin)
    try:
        root, faults = _whole(_without_entities(data[begin:]), entries)
    except ParseError as fault:
        raise _moved(fault, lines) from None
    return root, tuple((_moved(fault, lines), piece) for fault, piece in faults)


def _moved(fault: ParseError, lines: int) -> ParseError:
    return ParseError(fault.line + lines, fault.column, fault.found, fault.expected)


def _without_entities(data: bytes) -> bytes:
    if b"<!ENTITY" in data:
        return data  # They may have another meaning here.
    return _HTML_ENTITY.sub(_without_entity, data)


def _without_entity(found: re.Match[bytes]) -> bytes:
    name = (found[1] or b"").decode()
    text = "" if name in _XML_ENTITIES else html5.get(f"{name};", "")
    return "".join(f"&#{ord(each)};" for each in text).encode() or found[0]


def _whole(data: bytes, entries: str | None) -> tuple[etree._Element, tuple[DamagedPiece, ...]]:
    """Returns the root of the intact part of a document, and the damaged pieces."""
    try:
        return trees.parsed(data), ()
    except ParseError:
        written = _WRITTEN.search(data)
        name = entries or (written.group(1).decode() if written else "")
        faults, root = without_damage(data, name) if name else ([], None)
        if root is None or not faults:
            raise
        return root, tuple(faults)


def only(feed: FeedDocument, chosen: Iterable[FeedEntry], address: str = "") -> bytes:
    """Returns the document with only these entries, and in XML with absolute links; `address` is
    where it was read. The feed is unusable afterwards.
    """
    if feed.format_name == JSON:
        return only_items(feed, chosen)
    kept = {id(each) for each in chosen}
    for each in feed.entries:
        parent = each.node.getparent()
        if id(each) in kept or parent is None:
            continue
        before, tail = each.node.getprevious(), each.node.tail
        if tail and before is None:
            parent.text = (parent.text or "") + tail
        elif tail and before is not None:
            before.tail = (before.tail or "") + tail
        each.node.tail = None
        parent.remove(each.node)
    if feed.format_name in _ENTRIES:
        resolve_links(feed.root, address)
    return etree.tostring(feed.root.getroottree(), encoding="utf-8", xml_declaration=True)


def _entries(
    root: etree._Element, source: str, entries: str | None
) -> tuple[str, str | None, list[etree._Element]]:
    """Returns the format, the written name of entries, and the entries."""
    local = str(root.tag).rpartition("}")[2]
    format_name = local if local in _ENTRIES else "xml"
    if entries is not None:
        named = root.iter(tag_of(entries))
        return (
            format_name,
            entries,
            _outermost(e for e in named if trees.element_name(e) == entries),
        )
    if local == "alert":
        return local, None, [root]
    if format_name == "xml":
        reason = f"found the root {local!r}, which is no feed's"
        raise InputError(source, f"{reason}; name the elements of its entries (--entries)")
    found = _outermost(root.iter("{*}" + _ENTRIES[local]))
    name = trees.element_name(found[0]) if found else _ENTRIES[local]
    return format_name, name, [each for each in found if trees.element_name(each) == name]


def _outermost(nodes: Iterable[etree._Element]) -> list[etree._Element]:
    """Returns the nodes that are in no other of these nodes."""
    found: list[etree._Element] = []
    taken: set[etree._Element] = set()
    for node in nodes:
        if taken.isdisjoint(node.iterancestors()):
            found.append(node)
            taken.add(node)
    return found


def _identity(node: etree._Element, format_name: str) -> list[str]:
    """Returns the identity of an entry; an empty list if it has none."""
    if format_name == "alert":
        named = [_child_text(node, name) for name in ("sender", "identifier", "sent")]
        return named if named[1] else []
    if format_name == "feed":
        return _some(_child_text(node, "id") or _link(node, "{*}link", "alternate", "alternate"))
    if format_name == "rss":
        return _some(_child_text(node, "guid") or _child_text(node, "link"))
    if format_name == "RDF":
        return _some(node.get(_ABOUT, "") or _child_text(node, "link"))
    return []


def _feed_identity(root: etree._Element, format_name: str) -> list[str]:
    """Returns the identity of a feed, wherever it is read; an empty list if it has none."""
    if format_name in ("feed", "alert"):
        return _some(_child_text(root, "id" if format_name == "feed" else "sender"))
    channel = root.find("{*}channel")
    if channel is None:
        return []
    named = channel.get(_ABOUT, "") or _link(channel, f"{{{_ATOM}}}link", "self", "")
    if named:
        return [named]
    link, title = _child_text(channel, "link"), _child_text(channel, "title")
    return [link, title] if link else []


def _link(node: etree._Element, path: str, relation: str, default_relation: str) -> str:
    """Returns the address of an element's first link with a relation."""
    links = (each for each in node.iterfind(path) if each.get("rel", default_relation) == relation)
    return next((link.get("href", "") for link in links), "")


def _child_text(node: etree._Element, local: str) -> str:
    """Returns the text of the first child of a name, in the namespace of the element or in none."""
    namespace = str(node.tag).rpartition("}")[0]
    child = node.find(f"{namespace}}}{local}" if namespace else local)
    return "" if child is None else _text(child.text)


def _at_path(node: etree._Element, path: str) -> list[str]:
    """Returns the text of the first element or attribute on a path of written names."""
    name, dot, rest = path.partition(".")
    if not dot:
        for written, value in trees.attributes_of(node).items():
            if written == name:
                return _some(value.strip(trees.XML_BLANKS))
    for child in node.iterchildren("*"):
        if trees.element_name(child) == name:
            found = _at_path(child, rest) if dot else _some(_text(child.text))
            if found:
                return found
    return []


def _some(text: str) -> list[str]:
    return [text] if text else []


def _content(node: etree._Element) -> list[Any]:
    """Returns the content of an element: no prefixes, sorted attributes, no blanks around texts."""
    children: list[Any] = [_text(node.text)]
    for child in node:
        children += (_content(child), _text(child.tail))
    if len(node.attrib) > ATTRIBUTES_MAX:  # Reading them costs the square of their number.
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(node.attrib))
    attributes = sorted((str(name), _text(str(value))) for name, value in node.items())
    return [str(node.tag), attributes, children]


def _text(text: str | None) -> str:
    return (text or "").strip(trees.XML_BLANKS)


# --- links ----------------------------------------------------------------------------------------

_BASE: Final = f"{{{trees.XML_NAMESPACE}}}base"
_ATTRIBUTES: Final = ("href", "src", "url", "uri", "cite", _ABOUT, f"{_RDF}resource")
_ELEMENTS: Final = frozenset(
    ("link", "url", "uri", "icon", "logo", "comments", "commentRss", "docs")
)


def resolve_links(root: etree._Element, address: str) -> None:
    """Makes the relative links in a document absolute, in place.

    A link is resolved by the `xml:base` of the elements around it, and these by the address, "" for
    a document from a file. Links are attributes and elements that have an address in RSS, Atom and
    XHTML. Absolute ones, and those that are no addresses, stay. Cost: proportional to the document.
    """
    for node, base in _based(root, address):
        if not base:
            continue
        for name in _ATTRIBUTES:
            if link := node.get(name):
                node.set(name, _resolved(base, link))
        local = str(node.tag).rpartition("}")[2]
        if local in _ELEMENTS and node.text and not len(node) and node.text.strip():
            node.text = _resolved(base, node.text)


def _based(root: etree._Element, address: str) -> Iterator[tuple[etree._Element, str]]:
    """Yields each element and its base."""
    bases = [address]
    for event, node in etree.iterwalk(root, events=("start", "end")):
        if event == "end":
            bases.pop()
            continue
        own = node.get(_BASE)
        bases.append(_resolved(bases[-1], own) if own else bases[-1])
        yield node, bases[-1]


def _resolved(base: str, link: str) -> str:
    """Returns a link as an absolute one, or unchanged if it is no relative reference."""
    try:
        relative = link.strip()
        return link if urlsplit(relative).scheme else urljoin(base, relative)
    except ValueError:  # No address, such as `//[`: there is nothing to resolve.
        return link
