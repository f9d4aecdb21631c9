"""Sigma rules as filter sets: from YAML, and in a prepared form.

`sigma_values` holds values and modifiers, `sigma_items` selections, `sigma_conditions` conditions,
`sigma_residue` comparisons that are no filters, `sigma_pipelines` pipelines, `log_sources` log
sources and names of attributes, `sigma_correlations` correlations, `sigma_rules` whole rules.

Source: Sigma specification 2.1.0.
"""

from contrada.integrations.dialects.sigma.prepared_rules import prepared_rule, read_prepared
from contrada.integrations.dialects.sigma.sigma_pipelines import (
    WINDOWS,
    ProcessingPipeline,
    load_pipeline,
    read_pipeline,
)
from contrada.integrations.dialects.sigma.sigma_rules import filters, read, read_all, read_rules
from contrada.integrations.dialects.sigma.windows_events import attributes_of

__all__ = [
    "WINDOWS",
    "ProcessingPipeline",
    "attributes_of",
    "filters",
    "load_pipeline",
    "prepared_rule",
    "read",
    "read_all",
    "read_pipeline",
    "read_prepared",
    "read_rules",
]
