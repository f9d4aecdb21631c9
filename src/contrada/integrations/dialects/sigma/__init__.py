"""Sigma rules as filter sets: from YAML, and in a prepared form.

`sigma_values` holds values and modifiers, `log_sources` log sources and names of attributes,
`sigma_rules` conditions and whole rules.

Source: Sigma specification 2.1.0.
"""

from contrada.integrations.dialects.sigma.prepared_rules import prepared_rule, read_prepared
from contrada.integrations.dialects.sigma.sigma_rules import filters, read, read_rules
from contrada.integrations.dialects.sigma.windows_events import attributes_of

__all__ = ["attributes_of", "filters", "prepared_rule", "read", "read_prepared", "read_rules"]
