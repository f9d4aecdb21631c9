"""XML documents to named texts. The naming service for repeated elements will stand here.

Source: Erenkrantz 2001, *Handling Hierarchical Events in an Internet-Scale Event Service*.
"""

from contrada.xml.names import named_texts
from contrada.xml.tree import DOCUMENT_DEPTH_MAX, Element, parse_document

__all__ = [
    "DOCUMENT_DEPTH_MAX",
    "Element",
    "named_texts",
    "parse_document",
]
