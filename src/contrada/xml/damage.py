"""What can still be read of a document that is not well formed.

An XML parser must stop at the first fault, and everything after it would be lost. Entries are
cut out of the text instead, each is parsed alone, and the broken ones are blanked out (line
ends stay, so that all places remain right). When the rest is well formed, or only ends too
early, its entries are read. A document that is damaged outside its entries is not guessed at.

The cost is that of a few passes over the document.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from lxml import etree

from contrada.errors import ContradaError, ParseError
from contrada.xml.tree import element_name, parsed, safe_parser, syntax_error, tree_of

Fault: TypeAlias = tuple[ParseError, bytes]
"""What is wrong, at its place in the document, and the piece of the document it is in."""

_NAMESPACE: Final = re.compile(rb"""\sxmlns(?::[\w.-]+)?\s*=\s*(?:"[^"<]*"|'[^'<]*')""")
_BLANKED: Final = bytes(byte if byte in b"\r\n" else 32 for byte in range(256))
_CUT_TAG: Final = re.compile(rb"<[^<>]*\Z")
_ENDED: Final = re.compile(rb"(</[^<>]*|/)>\Z")
_INNER_LINE: Final = re.compile(r" line \d+")


Root: TypeAlias = etree._Element | None


def without_damage(
    data: bytes, entries: str, *, instructions: bool = False
) -> tuple[list[Fault], Root]:
    """The faults of a document, and the root of what is whole in it; None where it has none."""
    faults: list[Fault] = []
    pieces: list[bytes] = []
    namespaces: bytes | None = None
    done = 0
    for start, end in _spans(data, entries):
        if namespaces is None:
            declared = _NAMESPACE.findall(data[:start])
            found = {one.split(b"=")[0].strip(): one for one in declared}
            namespaces = b"".join(found.values())
        fault = _fault(data, start, end, namespaces)
        if fault is not None:
            faults.append((fault, data[start:end]))
            pieces += (data[done:start], data[start:end].translate(_BLANKED))
            done = end
    pieces.append(data[done:])
    return _parsed_rest(b"".join(pieces), faults, instructions)


def _spans(data: bytes, entries: str) -> Iterator[tuple[int, int]]:
    """Where entries stand; one that is not closed ends where the next begins, or at the end."""
    name = re.escape(entries.encode())
    tag = re.compile(
        rb"<" + name + rb"(?=[\s/>])[^<>]*?(/?)>|<(/)" + name + rb"\s*>|<" + name + rb"(?=[\s<]|$)"
    )
    start: int | None = None
    for match in tag.finditer(data):
        if match.group(2):
            if start is not None:
                yield start, match.end()
            start = None
        else:
            if start is not None:
                yield start, match.start()
            start = None if match.group(1) else match.start()
    if start is not None:
        yield start, len(data)


def _fault(data: bytes, start: int, end: int, namespaces: bytes) -> ParseError | None:
    """What is wrong with an entry, at its place in the document."""
    opening = b"<e" + namespaces + b">"
    line_start = data.rfind(b"\n", 0, start) + 1
    line = data.count(b"\n", 0, start) + 1
    if not _ENDED.search(data, start, end):
        return ParseError(line, start - line_start + 1, "an entry without an end", "its end tag")
    try:
        etree.fromstring(opening + data[start:end] + b"</e>", safe_parser())
    except etree.XMLSyntaxError as error:
        fault = syntax_error(error)
        extra = opening.count(b"\n")
        column = fault.column
        if fault.line == 1 + extra:
            column += start - line_start - len(opening)
        # Lines named inside the message count from the entry, not from the document.
        found = _INNER_LINE.sub("", fault.found)
        return ParseError(line + fault.line - 1 - extra, max(column, 1), found, fault.expected)
    return None


def _parsed_rest(data: bytes, faults: list[Fault], instructions: bool) -> tuple[list[Fault], Root]:
    try:
        return faults, _checked(data, instructions)
    except ParseError as error:
        fault = error
    except ContradaError:
        return faults, None
    try:
        whole_tags = _CUT_TAG.sub(b"", data.rstrip())
        root = _checked(whole_tags + _closing_tags(whole_tags), instructions)
    except ContradaError:
        return [], None
    return [*faults, (fault, data[-200:])], root


def _checked(data: bytes, instructions: bool) -> etree._Element:
    """The root of a document that is no deeper than it may be and has no entities of its own."""
    root = parsed(data)
    tree_of(root)
    return parsed(data, instructions=True) if instructions else root


def _closing_tags(data: bytes) -> bytes:
    """The end tags that a document lacks which ends too early."""
    parser = etree.XMLPullParser(
        events=("start", "end"), resolve_entities=False, no_network=True, load_dtd=False
    )
    open_tags: list[str] = []
    try:
        parser.feed(data)
    except etree.XMLSyntaxError:
        return b""
    for event, node in parser.read_events():
        if event == "end":
            open_tags.pop()
        elif isinstance(node, etree._Element):
            open_tags.append(element_name(node))
    return "".join(f"</{tag}>" for tag in reversed(open_tags)).encode()
