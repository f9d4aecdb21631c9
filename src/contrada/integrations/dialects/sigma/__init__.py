"""Sigma rules as filter sets: from YAML, and as they were prepared by others.

What values and modifiers mean is in `values`, conditions in `condition`, log sources and the
names of attributes in `sources`, whole rules in `rules`.

Source: Sigma specification 2.1.0.
"""

from contrada.integrations.dialects.sigma.prepared_rules import prepared_rule, read_prepared
from contrada.integrations.dialects.sigma.sigma_rules import filters, read, read_rules
from contrada.integrations.dialects.sigma.windows_events import attributes_of

__all__ = ["attributes_of", "filters", "prepared_rule", "read", "read_prepared", "read_rules"]
