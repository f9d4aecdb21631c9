"""Prometheus: queries that compare metrics with numbers, and files of rules with such queries."""

from contrada.integrations.dialects.prometheus.promql import NAME, VALUE, filters, read, read_rules

__all__ = ["NAME", "VALUE", "filters", "read", "read_rules"]
