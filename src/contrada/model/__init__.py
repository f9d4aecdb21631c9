"""Values, sets of texts, value sets and their products, the text syntax, the encodings."""

from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.filter import Filter, FilterSet, Selection
from contrada.model.algebra.notification import Envelope, Notification, mark_name
from contrada.model.algebra.operators import Constraint
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.product import Product
from contrada.model.algebra.value_set import ValueSet
from contrada.model.codec import from_json, from_msgpack, to_json, to_msgpack
from contrada.model.domains.values import Value
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
