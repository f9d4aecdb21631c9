"""The algebra: values, value sets, products, filters, patterns, relations, text syntax."""

from contrada.model.advertisement import Advertisement, Query
from contrada.model.constraint import Constraint
from contrada.model.filter import Filter, FilterSet
from contrada.model.notification import Envelope, Notification, Values, mark_name
from contrada.model.parsing import parse
from contrada.model.pattern import Pattern
from contrada.model.product import Product
from contrada.model.sets import (
    absent,
    any_but,
    between,
    cidr,
    contains,
    eq,
    exists,
    extension,
    ge,
    gt,
    in_,
    le,
    lt,
    matches,
    ne,
    none_of,
    not_in,
    prefix,
    suffix,
    wildcard,
)
from contrada.model.values import Value
from contrada.model.valueset import ValueSet

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
    "Value",
    "ValueSet",
    "Values",
    "absent",
    "any_but",
    "between",
    "cidr",
    "contains",
    "eq",
    "exists",
    "extension",
    "ge",
    "gt",
    "in_",
    "le",
    "lt",
    "mark_name",
    "matches",
    "ne",
    "none_of",
    "not_in",
    "parse",
    "prefix",
    "suffix",
    "wildcard",
]
