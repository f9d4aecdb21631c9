"""Schemas that documents must conform to: DTD, XML Schema or RELAX NG, recognized by their text.

lxml validates. The types of an XML Schema, which `xmlschema` reads, and those in RELAX NG also
declare the values of texts; see docs/documents.md. Without a type, as always with a DTD, values are
inferred. A schema is one text: one that includes or imports others is refused.

Source: Erenkrantz 2001 §3.1, §3.3 (documents that conform to their DTD).
"""

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

from lxml import etree

from contrada.errors import InputError, MissingRequirementError, ParseError
from contrada.integrations.documents.element_tree import XmlNode, safe_parser

_XSD: Final = "http://www.w3.org/2001/XMLSchema"
_RELAX_NG: Final = "http://relaxng.org/ns/structure/1.0"
_ASKING: Final = {
    **{
        f"{{{_XSD}}}{tag}": "schemaLocation"
        for tag in ("import", "include", "redefine", "override")
    },
    **{f"{{{_RELAX_NG}}}{tag}": "href" for tag in ("include", "externalRef")},
}
"""The elements that ask for another schema, and the attributes with its place."""
_OUTSIDE: Final = re.compile(rb"<!ENTITY\s[^>]*?\s(?:SYSTEM|PUBLIC)\s")

SCHEMAS_KEPT_MAX: Final = 16
"""Schemas that are cached. Beyond it: the least recently used is compiled again."""

SCHEMA_NAMES_MAX: Final = 65_536
"""Names with a cached schema type. Beyond it: all are looked up again."""

_NUMBERS: Final = (
    *("decimal", "float", "double", "integer", "long", "int", "short", "byte"),
    *("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger"),
    *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
)
_TIMES: Final = ("dateTime", "dateTimeStamp")
_KINDS: Final = {
    "boolean": "bool",
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(_TIMES, "time"),
}
_NAME: Final = f"{{{_RELAX_NG}}}name"
_TYPES_OF_XSD: Final = f"{_XSD}-datatypes"

Validator: TypeAlias = "etree.DTD | etree.XMLSchema | etree.RelaxNG"


@lru_cache(SCHEMAS_KEPT_MAX)
def validator_of(schema: bytes) -> Validator:
    """Returns the validator. Raises InputError for an invalid schema, or one that needs others."""
    try:
        root = _root(schema)
        if root is not None:
            return etree.XMLSchema(root) if _is_xsd(root) else etree.RelaxNG(root)
        if _OUTSIDE.search(schema):
            raise InputError("schema", "it asks for a text outside, and may open nothing")
        return etree.DTD(io.BytesIO(schema))
    except (etree.DTDParseError, etree.XMLSchemaParseError, etree.RelaxNGParseError) as error:
        raise InputError("schema", str(error)) from None


def validate(root: etree._Element, schema: bytes) -> None:
    """Raises ParseError, with the place, if a document does not conform to a schema."""
    validator = validator_of(schema)
    if validator.validate(root):
        return
    log: Any = validator.error_log
    for first in log:
        line, column = max(first.line, 1), max(first.column, 1)
        raise ParseError(line, column, first.message, "content that the schema allows")
    raise ParseError(1, 1, "a document that does not conform", "one that the schema allows")


def _root(schema: bytes) -> etree._Element | None:
    try:
        root = etree.fromstring(schema, safe_parser())
    except etree.XMLSyntaxError as error:
        if schema.lstrip().startswith((b"<!", b"<?xml")) and b"<!ELEMENT" in schema:
            return None
        raise InputError("schema", f"neither XML nor a DTD: {error.msg}") from None
    if not (_is_xsd(root) or str(root.tag).startswith(f"{{{_RELAX_NG}}}")):
        expected = "an XML Schema, RELAX NG in XML, or a DTD"
        raise InputError("schema", f"found the element {root.tag}, expected {expected}")
    for node in root.iter(*_ASKING):
        if node.get(_ASKING[str(node.tag)]) is not None:
            raise InputError("schema", "it asks for another one, and may open nothing")
    return root


def _is_xsd(root: etree._Element) -> bool:
    return root.tag == f"{{{_XSD}}}schema"


class SchemaTypes:
    """The types in a schema, by plain names (`feed.entry.updated`)."""

    def __init__(self, schema: bytes) -> None:
        """Raises InputError for an invalid schema, MissingRequirementError without xmlschema."""
        validator_of(schema)
        root = _root(schema)
        is_xsd = root is not None and _is_xsd(root)
        self._schema: Any = None
        if is_xsd:
            try:
                import xmlschema
            except ImportError:
                remedy = "pip install 'contrada[feeds]'"
                raise MissingRequirementError("xmlschema, which reads types", remedy) from None
            try:
                text = io.BytesIO(schema)
                self._schema = xmlschema.XMLSchema(text, allow="none", defuse="always")
            except (xmlschema.XMLSchemaException, ValueError) as error:
                raise InputError("schema", str(error).splitlines()[0]) from None
        self._by_name = {} if root is None or is_xsd else _types_of_grammar(root)
        self._elements: dict[str, Any] = {}
        self._kinds: dict[str, str | None] = {}

    def kind(self, name: str) -> str | None:
        """Returns `bool`, `number`, `time` or `text`; None for a name without a type."""
        if self._schema is None:
            return self._by_name.get(name.rpartition(".")[2].rpartition(":")[2])
        if len(self._kinds) >= SCHEMA_NAMES_MAX:
            self._kinds.clear()
            self._elements.clear()
        if name not in self._kinds:
            declared = self._element(name)
            if declared is None:
                outer, _, last = name.rpartition(".")
                around = self._element(outer) if outer else None
                if around is not None:
                    declared = _by_local_name(around.attributes.values(), last)
            self._kinds[name] = None if declared is None else _kind_of(declared.type)
        return self._kinds[name]

    def _element(self, name: str) -> Any:
        if name not in self._elements:
            outer, _, last = name.rpartition(".")
            content: Any = () if outer else self._schema.elements.values()
            around = getattr(self._element(outer), "type", None) if outer else None
            model: Any = getattr(around, "content", None)
            if hasattr(model, "iter_elements"):
                content = model.iter_elements()
            self._elements[name] = _by_local_name(content, last)
        return self._elements[name]


def _types_of_grammar(root: XmlNode) -> dict[str, str]:
    """Returns the types in RELAX NG by local names, if all patterns of a name agree."""
    defined: dict[str, list[XmlNode]] = {}
    for each in root.iter(f"{{{_RELAX_NG}}}define"):
        defined.setdefault(each.get("name"), []).append(each)
    found: dict[str, set[str | None]] = {}
    for each in root.iter(f"{{{_RELAX_NG}}}element", f"{{{_RELAX_NG}}}attribute"):
        name = each.get("name") or next((e.text for e in each if e.tag == _NAME), None)
        if name is None:
            return {}  # A class of names: no name has one pattern alone.
        kinds = found.setdefault(name.strip().rpartition(":")[2], set())
        kinds.update(_kinds_in(list(each), defined))
    single = {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}
    return {name: kind for name, kind in single.items() if kind is not None}


def _kinds_in(patterns: list[XmlNode], defined: dict[str, list[XmlNode]]) -> Iterator[str | None]:
    """Yields the types of the texts in patterns; None for text without a type."""
    seen: set[str] = set()
    while patterns:
        each = patterns.pop()
        tag = str(each.tag).removeprefix(f"{{{_RELAX_NG}}}")
        if tag in ("data", "value"):
            libraries = (e.get("datatypeLibrary") for e in (each, *each.iterancestors()))
            library = next((found for found in libraries if found is not None), None)
            kind = each.get("type")
            is_known = library == _TYPES_OF_XSD and kind is not None
            yield _KINDS.get(kind, "text") if is_known else None
        elif tag in ("text", "list", "mixed", "parentRef", "externalRef"):
            yield None
        elif tag == "ref" and each.get("name") not in seen:
            seen.add(each.get("name"))
            patterns += defined.get(each.get("name"), [])
        elif tag not in ("element", "attribute", "name", "anyName", "nsName"):
            patterns += list(each)


def _by_local_name(declared: Any, name: str) -> Any:
    """Returns the only declaration of a local name; None if there is none, or if several differ."""
    local = name.rpartition(":")[2]
    found = [each for each in declared if getattr(each, "local_name", None) == local]
    same = {id(each.type) for each in found}
    return found[0] if len(same) == 1 else None


def _kind_of(declared: Any) -> str | None:
    simple = declared if declared.is_simple() else getattr(declared, "content", None)
    if simple is None or not hasattr(simple, "primitive_type"):
        return None
    primitive = simple.primitive_type
    if primitive is None or primitive.local_name in ("anySimpleType", "anyAtomicType"):
        return None
    return _KINDS.get(primitive.local_name, "text")
