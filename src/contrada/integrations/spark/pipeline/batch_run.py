"""`BatchRun`: the steps of a batch run that are the same on each engine.

The outcomes of a source have the same columns on each engine, so one may resume the run of another.
"""

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from contrada.errors import InputError
from contrada.integrations.documents.name_patterns import PATTERN
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary, SourceCounts
from contrada.integrations.spark.pipeline.pipeline_subscriptions import LoadedSubscriptions
from contrada.integrations.spark.pipeline.source_outcomes import describe_matching
from contrada.integrations.spark.transforms.filter_bases import Base


class RunState(msgspec.Struct):
    """The finished sources of a run. `digest` is of its description."""

    digest: str
    done: dict[str, SourceCounts] = {}


@dataclass(slots=True, kw_only=True)
class BatchRun(ABC):
    """The steps of a run, and the seconds of its stages. An engine fills the abstract ones."""

    pipeline: Pipeline
    asked: LoadedSubscriptions
    base: Base
    on_progress: job_progress.ProgressListener
    stop: threading.Event
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Runs the block as a stage. Raises KeyboardInterrupt once `stop` is set."""
        job_progress.check_stop(self.stop)
        began = monotonic()
        with self.watch(what):
            yield
        self.seconds[what] = monotonic() - began

    def save(self, run: run_folder.RunFolder, state: RunState) -> None:
        """Writes the state of a run."""
        path = run.path / run_folder.STATE_FILE
        run_folder.write_atomically(path, msgspec.json.encode(state))

    def _digest(self) -> str:
        described = (self.pipeline.text, self.base.digest, list(self.asked.filters))
        return hashlib.sha256(repr(described).encode()).hexdigest()

    def begin(self) -> tuple[run_folder.RunFolder, RunState]:
        """Returns a new run with its state."""
        run_folder.delete_unfinished(self.pipeline.output)
        run, state = run_folder.new_run(self.pipeline.output), RunState(self._digest())
        self.save(run, state)
        return run, state

    def resume(self) -> tuple[run_folder.RunFolder, RunState]:
        """Returns the last unfinished run with its state; a new one if nothing was written yet."""
        output = self.pipeline.output
        run = run_folder.unfinished_run(output)
        if run is None and run_folder.current_run(output) is not None:
            raise InputError(str(output), "the last run has ended")
        known = run_folder.read_state(run.path / run_folder.STATE_FILE, RunState) if run else None
        if run is None or known is None:
            return self.begin()
        if known.digest != self._digest():
            reason = "the run that was not ended had another description"
            raise InputError(str(output), f"{reason}; without --resume one begins")
        return run, known

    def places(self, run: run_folder.RunFolder) -> list[str]:
        """Returns the folders of the outcomes, by source."""
        numbers = map(str, range(len(self.pipeline.sources)))
        return [run.place(run_folder.OUTCOMES, number) for number in numbers]

    @abstractmethod
    def match(self, source: Source, place: str) -> SourceCounts:
        """Writes the outcomes of a source; returns the counts."""

    @abstractmethod
    def write(self, run: run_folder.RunFolder) -> dict[str, int]:
        """Writes the results of a run; returns the number of matches of each pattern."""

    @abstractmethod
    def missing_in(self, source: Source) -> list[str]:
        """Returns the attributes in filters that the first records of a source lack."""

    @abstractmethod
    def watch(self, what: str) -> AbstractContextManager[None]:
        """Reports the progress of the block."""

    def summary(
        self, done: Mapping[str, SourceCounts], patterns: dict[str, int]
    ) -> PipelineSummary:
        """Returns the summary before publishing."""
        matches: Counter[int] = Counter()
        for each in done.values():
            matches.update(each.matches)
        pipeline, asked = self.pipeline, self.asked
        return PipelineSummary(
            tuple(done[each.name].summary(each.name) for each in pipeline.sources),
            {name: matches[position] for position, name in enumerate(asked.filters)},
            published=0,
            publish_seconds=0.0,
            seconds=0.0,
            output=str(pipeline.output.absolute()),
            patterns=patterns,
            stages=self.seconds,
            plan={each.name: describe_matching(each, self.base) for each in pipeline.sources},
            refused=asked.refused,
            missing=() if matches else tuple(self.missing(done)),
        )

    def missing(self, done: Mapping[str, SourceCounts]) -> Iterator[str]:
        """Yields the attributes in filters that the sources lack, with the source."""
        for source in self.pipeline.sources:
            if done[source.name].read and source.reading.strategy != PATTERN:
                with self.stage(f"explain {source.name}"):
                    found = self.missing_in(source)
                yield from (f"{source.name}: {each}" for each in found)
