"""`Identity`: the fixed settings of a stream's checkpoint."""

import msgspec

from contrada.errors import InputError, StoreError
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.run_folder import (
    holds_batches,
    read_state,
    write_atomically,
)

_FILE = "stream.json"


class Identity(msgspec.Struct, frozen=True):
    """The settings that a checkpoint was made with: its query name for brokers, its number of
    parts, sources and patterns. Sources and patterns are fixed, since their states in the
    checkpoint are found by position.
    """

    query: str
    parts: int
    sources: tuple[str, ...]
    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pipeline: Pipeline, query: str, parts: int) -> "Identity":
        """Returns the identity of a pipeline."""
        patterns = tuple((name, str(each)) for name, each in pipeline.patterns.items())
        return cls(query, parts, tuple(each.name for each in pipeline.sources), patterns)

    def write(self, pipeline: Pipeline) -> None:
        """Writes it to the checkpoint."""
        write_atomically(pipeline.checkpoint / _FILE, msgspec.json.encode(self))


def read_identity(pipeline: Pipeline) -> Identity | None:
    """Returns the identity of an existing checkpoint, else None. Only reads. Raises StoreError for
    a checkpoint with other sources or patterns, and InputError for an output that belongs to
    another checkpoint.
    """
    found = read_state(pipeline.checkpoint / _FILE, Identity)
    if found is None:
        if holds_batches(pipeline.output):
            place = pipeline.checkpoint
            reason = f"holds the results of a stream with another checkpoint than {place}"
            raise InputError(str(pipeline.output), reason)
        return None
    expected = Identity.of(pipeline, found.query, found.parts)
    if found != expected:
        what = "sources" if found.sources != expected.sources else "patterns"
        reason = f"it is of other {what}; begin with an empty one"
        raise StoreError(f"the checkpoint {pipeline.checkpoint}: {reason}")
    return found
