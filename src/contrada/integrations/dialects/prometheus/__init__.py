"""Prometheus: queries that compare metrics with numbers, and files of rules with such queries."""

from contrada.integrations.dialects.prometheus.prometheus_rules import read, read_rules
from contrada.integrations.dialects.prometheus.promql import NAME, VALUE, filters

__all__ = ["NAME", "VALUE", "filters", "read", "read_rules"]
