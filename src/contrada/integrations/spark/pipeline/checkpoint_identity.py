"""What a stream's checkpoint is of: that stays, whatever else of a description changes."""

import msgspec

from contrada.errors import InputError, StoreError
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.run_folder import holds_batches, read_whole, write_whole

_FILE = "stream.json"


class Identity(msgspec.Struct, frozen=True):
    """The fixed settings of a checkpoint: the name under which it publishes, and its number of
    parts.

    Sources and patterns are fixed, too: their states in the checkpoint are found by their places.
    """

    query: str
    parts: int
    sources: tuple[str, ...]
    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pipeline: Pipeline, query: str, parts: int) -> "Identity":
        """That of a pipeline."""
        patterns = tuple((name, str(each)) for name, each in pipeline.patterns.items())
        return cls(query, parts, tuple(each.name for each in pipeline.sources), patterns)

    def keep(self, pipeline: Pipeline) -> None:
        """Writes it down in the checkpoint."""
        write_whole(pipeline.checkpoint / _FILE, msgspec.json.encode(self))


def known_identity(pipeline: Pipeline) -> Identity | None:
    """What the checkpoint of a pipeline is of, None where it has yet to begin. Only reads.

    Raises StoreError where it is of something else, and InputError where the output is that of
    another one.
    """
    found = read_whole(pipeline.checkpoint / _FILE, Identity)
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
