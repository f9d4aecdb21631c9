"""`without_damage`: the readable entries of a document that is not well formed.

An XML parser must stop at the first fault, and everything after it would be lost. Here entries are
cut out of the text and parsed separately, and broken ones are replaced by blanks (line ends stay,
so all places remain right). If the rest is well formed, or only truncated, its entries are read. A
document that is damaged outside its entries is refused.

The cost is a few passes over the document. Declarations before the entries, namespaces and
entities, are read with each entry.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from lxml import etree

from contrada.errors import ContradaError, ParseError
from contrada.integrations.documents.element_tree import element_name, parsed

DamagedPiece: TypeAlias = tuple[ParseError, bytes]
"""A fault, at its place in the document, and the piece around it."""

_NAMESPACE: Final = re.compile(rb"""\sxmlns(?::[\w.-]+)?\s*=\s*(?:"[^"<]*"|'[^'<]*')""")
_DECLARATION: Final = re.compile(rb"<\?xml\s[^<>]*\?>")
_DOCTYPE: Final = re.compile(
    rb"""<!DOCTYPE\s[^\[<>]*\[(?:<!--.*?-->|<\?.*?\?>|"[^"]*"|'[^']*'|[^\]"'])*+\]\s*>""", re.DOTALL
)
_BLANKED: Final = bytes(byte if byte in b"\r\n" else 32 for byte in range(256))
_ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
_CUT_TAG: Final = re.compile(rb"<[^<>]*\Z")
_ENDED: Final = re.compile(rb"(</[^<>]*|/)>\Z")
_INNER_LINE: Final = re.compile(r" line \d+")

DECLARED_BYTES_MAX: Final = 16_384
"""Bytes of the namespaces and the document type before the entries of a document that is not
well formed. Beyond it: the document is a bad record, and none of its entries is kept."""


def without_damage(
    data: bytes, entries: str, *, instructions: bool = False
) -> tuple[list[DamagedPiece], etree._Element | None]:
    """Returns the faults of a document, and the root of its intact part; None if it has none."""
    faults: list[DamagedPiece] = []
    pieces: list[bytes] = []
    opening: bytes | None = None
    done = 0
    line, line_start, counted = 1, 0, 0
    for start, end in _spans(data, entries):
        if opening is None:
            opening = _opening(data[:start])
            if len(opening) > DECLARED_BYTES_MAX:
                return [], None
            try:
                parsed(opening + b"</e>")
            except ContradaError:
                return [], None
        line += data.count(b"\n", counted, start)
        line_start = max(line_start, data.rfind(b"\n", counted, start) + 1)
        counted = start
        fault = _fault(data[start:end], opening, line, start - line_start)
        if fault is not None:
            faults.append((fault, data[start:end]))
            pieces += (data[done:start], data[start:end].translate(_BLANKED))
            done = end
    pieces.append(data[done:])
    rest = b"".join(pieces)
    try:
        return faults, parsed(rest, instructions=instructions)
    except ParseError as error:
        fault = error
    except ContradaError:
        return faults, None
    try:
        whole_tags = _CUT_TAG.sub(b"", rest.rstrip())
        whole = whole_tags + _closing_tags(whole_tags)
        root = parsed(whole, instructions=instructions)
    except ContradaError:
        return [], None
    return [*faults, (fault, rest[-200:])], root


def _opening(before: bytes) -> bytes:
    """Returns an opening for one entry: encoding, document type, namespaces, in one line."""
    encoding = _DECLARATION.match(before)
    document_type = _DOCTYPE.search(before)
    declared = _NAMESPACE.findall(before, document_type.end() if document_type else 0)
    namespaces = {each.split(b"=")[0].strip(): each for each in declared}
    parts = [each.group() for each in (encoding, document_type) if each]
    return b"".join((*parts, b"<e", *namespaces.values(), b">")).translate(_ON_ONE_LINE)


def _spans(data: bytes, entries: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges of entries; an unclosed one ends before the next entry, or at the end."""
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
            start = match.start()
            if match.group(1):
                yield match.span()
                start = None
    if start is not None:
        yield start, len(data)


def _fault(entry: bytes, opening: bytes, line: int, before: int) -> ParseError | None:
    """Returns the fault of an entry with `before` bytes before it on its first line, or None."""
    if not _ENDED.search(entry):
        return ParseError(line, before + 1, "an entry without an end", "its end tag")
    try:
        parsed(opening + entry + b"</e>")
    except ParseError as fault:
        column = fault.column + (before - len(opening) if fault.line == 1 else 0)
        # Lines named inside the message count from the entry, not from the document.
        found = _INNER_LINE.sub("", fault.found)
        return ParseError(line + fault.line - 1, max(column, 1), found, fault.expected)
    return None


def _closing_tags(data: bytes) -> bytes:
    """Returns the missing end tags of a truncated document."""
    internal: Any = "internal"
    parser = etree.XMLPullParser(
        events=("start", "end"), resolve_entities=internal, no_network=True, load_dtd=False
    )
    try:
        parser.feed(data)
    except etree.XMLSyntaxError:
        return b""
    open_tags: list[str] = []
    for event, node in parser.read_events():
        if event == "end":
            open_tags.pop()
        elif isinstance(node, etree._Element):
            open_tags.append(f"</{element_name(node)}>")
    return "".join(reversed(open_tags)).encode()
