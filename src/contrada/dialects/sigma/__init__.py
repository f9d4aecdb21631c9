"""Sigma rules as filter sets: from YAML, and as they were prepared by others.

What values and modifiers mean is in `values`, conditions in `condition`, log sources and the
names of attributes in `sources`, whole rules in `rules`.

Source: Sigma specification 2.1.0.
"""

from contrada.dialects.sigma.events import attributes_of
from contrada.dialects.sigma.prepared import prepared_rule, read_prepared
from contrada.dialects.sigma.rules import filters, read, read_rules

__all__ = ["attributes_of", "filters", "prepared_rule", "read", "read_prepared", "read_rules"]
