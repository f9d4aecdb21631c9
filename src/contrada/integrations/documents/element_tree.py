"""`parsed`: XML documents as trees of lxml, bounded, with the names of elements and attributes.

Names keep the prefix in the document (`cap:event`), as people know them. The parser opens nothing
outside the document, and is bounded in depth and size. An entity that the document declares is
replaced by its text; the use of an external entity is refused. If a document type has parts
(`%part;`), these are skipped, and entities in texts and unknown ones in attributes are refused.

Source: Erenkrantz 2001 §3.3 (the parser assumes nothing about the document), §5 (parsing).
"""

import re
from typing import Any, Final, TypeAlias

from lxml import etree

from contrada.errors import LimitError, ParseError
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
_WARNINGS_MAX: Final = 100  # The parser reports no more.
_UNKNOWN: Final = re.compile("Entity '([^']*)' not defined")
_DECLARED: Final = "one that the document declares as a text"
_REFERENCE: Final = re.compile(r"&([^#;&][^;&]*);")
_POSITION: Final = re.compile(r"(, line \d+, column \d+)?( \(<string>, line \d+\))?$")


def parsed(data: bytes, *, instructions: bool = False) -> etree._Element:
    """Returns the root of a document as parsed, in order. Raises ParseError and LimitError."""
    try:
        try:
            root = etree.fromstring(data, safe_parser(instructions=instructions))
        except etree.XMLSyntaxError as error:
            if not has_parts(error.msg or "", data):
                raise
            parser = safe_parser(instructions=instructions, entities=False)
            root = etree.fromstring(data, parser)
            if unknown := unknown_entity(parser.error_log, True, data):
                raise unknown from None  # In an attribute no trace of it is left.
    except etree.XMLSyntaxError as error:
        raise syntax_error(error) from None
    except ValueError as error:  # lxml raises it for input without a beginning
        raise ParseError(1, 1, str(error), "an XML document") from None
    check_entities(root)
    check_depth(root)
    return root


def has_parts(message: str, data: bytes) -> bool:
    """Whether a parser's message is about a part of the document type."""
    named = _UNKNOWN.match(message)
    return named is not None and b"%%%s;" % named[1].encode() in data[:DOCTYPE_BYTES_MAX]


def unknown_entity(log: Any, skips: bool, data: bytes = b"") -> ParseError | None:
    """Returns the error for an entity that a parser has skipped; None if there is none.

    A full log of a parser that `skips` parts is an error, too, since it may lack such an entity. In
    the whole document `data` an unknown part is none, unless an entity has its name.
    """
    for each in log:
        named = _UNKNOWN.match(each.message)
        if named is None or (
            has_parts(each.message, data) and b"&%s;" % named[1].encode() not in data
        ):
            continue
        return ParseError(max(each.line, 1), max(each.column, 1), each.message, _DECLARED)
    if skips and len(log) >= _WARNINGS_MAX:
        found = f"{len(log)} warnings, the last of them {log[-1].message}"
        return ParseError(max(log[-1].line, 1), max(log[-1].column, 1), found, "fewer")
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


def check_depth(root: XmlNode) -> None:
    """Raises LimitError for a document with more than `DOCUMENT_DEPTH_MAX` levels of elements."""
    parents = [root]
    for _ in range(DOCUMENT_DEPTH_MAX - 1):
        parents = [child for each in parents for child in each if len(child)]
    if any(isinstance(child.tag, str) for each in parents for child in each):
        raise LimitError("DOCUMENT_DEPTH_MAX", DOCUMENT_DEPTH_MAX)


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
