"""Prometheus's queries that compare metrics with numbers, and files of rules with such queries."""

from contrada.dialects.prometheus.query import NAME, VALUE, filters
from contrada.dialects.prometheus.rules import read, read_rules

__all__ = ["NAME", "VALUE", "filters", "read", "read_rules"]
