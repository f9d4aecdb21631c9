"""XML documents, and JSON, as named values; strategies name repeated elements.

Source: Erenkrantz 2001, *Handling Hierarchical Events in an Internet-Scale Event Service*.
"""

from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.document_shape import (
    SHAPE_TYPE,
    NamesIn,
    document_of,
    names_in,
)
from contrada.integrations.documents.element_tree import DOCUMENT_DEPTH_MAX
from contrada.integrations.documents.naming_strategies import STRATEGIES, Original

__all__ = [
    "DOCUMENT_DEPTH_MAX",
    "DocumentLimits",
    "NamesIn",
    "Original",
    "SHAPE_TYPE",
    "STRATEGIES",
    "document_of",
    "names_in",
]
