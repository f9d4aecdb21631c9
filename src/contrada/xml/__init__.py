"""XML documents to named texts. The naming service for repeated elements will stand here.

Source: Erenkrantz 2001, *Handling Hierarchical Events in an Internet-Scale Event Service*.
"""

from contrada.xml.damage import without_damage
from contrada.xml.names import CONTEXT_VALUES_MAX, Texts, named_texts
from contrada.xml.tree import DOCUMENT_DEPTH_MAX, Element, parse_document

__all__ = [
    "CONTEXT_VALUES_MAX",
    "DOCUMENT_DEPTH_MAX",
    "Element",
    "Texts",
    "named_texts",
    "parse_document",
    "without_damage",
]
