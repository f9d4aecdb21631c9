"""Contrada: publish/subscribe that understands what it carries.

import contrada as ct

f = ct.Filter("price < 100 and symbol = 'DIS'")
f.matches(ct.Notification({"symbol": "DIS", "price": 99.5}))
"""

from contrada import errors
from contrada.matching import Index
from contrada.model import (
    Advertisement,
    Constraint,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Product,
    Query,
    Value,
    ValueSet,
    absent,
    any_but,
    between,
    contains,
    eq,
    exists,
    ge,
    gt,
    in_,
    le,
    lt,
    ne,
    none_of,
    not_in,
    parse,
    prefix,
    suffix,
)
from contrada.model.relations import covers, meets, merge, witness
from contrada.model.simplify import simplify

__all__ = [
    "Advertisement",
    "Constraint",
    "Envelope",
    "Filter",
    "FilterSet",
    "Index",
    "Notification",
    "Pattern",
    "Product",
    "Query",
    "Value",
    "ValueSet",
    "absent",
    "any_but",
    "between",
    "contains",
    "covers",
    "eq",
    "errors",
    "exists",
    "ge",
    "gt",
    "in_",
    "le",
    "lt",
    "meets",
    "merge",
    "ne",
    "none_of",
    "not_in",
    "parse",
    "prefix",
    "simplify",
    "suffix",
    "witness",
]
