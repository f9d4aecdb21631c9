"""The algebra: values, value sets, products, filters, patterns, relations, text syntax."""

from contrada.model.algebra.advertisement import Advertisement, Query
from contrada.model.algebra.constraint import Constraint
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.notification import Envelope, Notification, Values, mark_name
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.product import Product
from contrada.model.algebra.sets import (
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
from contrada.model.algebra.valueset import ValueSet
from contrada.model.domains.values import Value
from contrada.model.syntax.parsing import parse

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
