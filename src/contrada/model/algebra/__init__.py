"""Value sets, products of them, and the relations between products.

Notifications, filters, advertisements and queries are products of value sets. The operators that
make value sets are in `sets`. The layers `syntax` and `codec` above convert them to text and bytes.
"""

from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.constraint import Constraint
from contrada.model.algebra.filter import Filter, FilterSet, Selection
from contrada.model.algebra.notification import Envelope, Notification, mark_name
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.product import ENVELOPE_SETS, Product, product_covers, product_meets
from contrada.model.algebra.relations import covers, meets, merge, witness
from contrada.model.algebra.value_set import (
    ABSENT,
    EVERYTHING,
    NOTHING,
    PRESENT,
    ValueSet,
    intersection,
    of_keys,
    union,
)

__all__ = [
    "ABSENT",
    "Advertisement",
    "Constraint",
    "ENVELOPE_SETS",
    "EVERYTHING",
    "Envelope",
    "Filter",
    "FilterSet",
    "NOTHING",
    "Notification",
    "PRESENT",
    "Pattern",
    "Product",
    "Query",
    "Selection",
    "ValueSet",
    "Values",
    "covers",
    "intersection",
    "mark_name",
    "meets",
    "merge",
    "of_keys",
    "product_covers",
    "product_meets",
    "union",
    "witness",
]
