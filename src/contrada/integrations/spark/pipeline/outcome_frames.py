"""The reading and matching of sources, and its plan."""

from contrada.integrations.spark.pipeline.outcome_task import OutcomeTask, TextFiles
from contrada.integrations.spark.pipeline.pipeline_description import Source
from contrada.integrations.spark.pipeline.source_outcomes import (
    opened_sources,
    outcomes,
    outcomes_of,
)
from contrada.integrations.spark.transforms.filter_bases import Base

__all__ = ["OutcomeTask", "TextFiles", "opened_sources", "outcomes", "outcomes_of", "planned"]


def planned(source: Source, base: Base) -> str:
    """Describes how a source is read and matched."""
    shards = len(base.saved.shards)
    index = "an index" if shards == 1 else f"{shards} indexes"
    return f"{source.format}; {len(base)} filter{'s' * (len(base) != 1)} by {index} in workers"
