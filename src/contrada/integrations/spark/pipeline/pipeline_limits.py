"""`PipelineLimits`: the bounds and time-outs of runs and streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """Limits of a `Pipeline`."""

    published_at_once: int = 100_000
    """Notifications that one job publishes. Beyond it: the next job publishes the rest."""
    broker_away_s: float = 10.0
    """Seconds that a run waits for a lost broker. Beyond it: the run ends; `--resume` publishes the
    rest."""
    batch_end_wait_s: float = 30.0
    """Seconds that a stopping stream waits for its micro-batch. Beyond it: the micro-batch is
    cancelled, and repeated when the stream resumes."""
