"""Values, sets of texts, value sets and their products, the text syntax, the encodings.

The layers are `domains`, `languages`, `algebra`, then `syntax` and `codec`; each uses those before
it.
"""

from contrada.model.algebra import (
    Advertisement,
    Constraint,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Product,
    Query,
    Selection,
    Values,
    ValueSet,
    mark_name,
)
from contrada.model.codec import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.domains import Value
from contrada.model.syntax import parse

__all__ = [
    "Advertisement",
    "Constraint",
    "Envelope",
    "Filter",
    "FilterSet",
    "Notification",
    "Pattern",
    "Product",
    "Query",
    "Selection",
    "Value",
    "ValueSet",
    "Values",
    "from_json",
    "from_msgpack",
    "mark_name",
    "parse",
    "to_json",
    "to_msgpack",
]
