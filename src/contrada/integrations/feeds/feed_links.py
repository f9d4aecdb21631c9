"""`resolve_links`: makes the relative links in a feed absolute.

A link is resolved by the `xml:base` of the elements around it, and these by the address that the
feed was read from. Links are attributes and elements that have an address in RSS, Atom and XHTML.

Source: RFC 3986 §5; XML Base (W3C, second edition) §3, §4; RFC 4287 §2.
"""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urljoin, urlsplit

from lxml import etree

_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_RDF: Final = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_ATTRIBUTES: Final = ("href", "src", "url", "uri", "cite", f"{_RDF}about", f"{_RDF}resource")
_ELEMENTS: Final = frozenset(
    ("link", "url", "uri", "icon", "logo", "comments", "commentRss", "docs")
)


def resolve_links(root: etree._Element, address: str) -> None:
    """Resolves the links in a document, in place; `address` is "" for a document from a file.
    Links that are absolute, or no addresses, stay unchanged. Cost: proportional to the document.
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
