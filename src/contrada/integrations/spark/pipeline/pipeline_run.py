"""`run_pipeline`: a batch run that reads, matches, detects, writes, publishes and reports.

The outcomes of each source are written as they are computed, so that no run holds them in memory,
and an interrupted run resumes with the next source. At the end one step replaces the results of the
previous run (`run_folder`). Then each matched notification is published once, however many
subscriptions it matches.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic

import msgspec
from pyspark.sql import SparkSession

from contrada.errors import InputError
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline.match_publisher import publish_matches
from contrada.integrations.spark.pipeline.outcome_task import OUTCOME_DDL
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary, SourceCounts
from contrada.integrations.spark.pipeline.pipeline_subscriptions import LoadedSubscriptions
from contrada.integrations.spark.pipeline.preflight import base_of, check_pipeline, named_source
from contrada.integrations.spark.pipeline.source_outcomes import describe_matching, outcomes
from contrada.integrations.spark.transforms.detection import detect
from contrada.integrations.spark.transforms.filter_bases import Base


class _RunState(msgspec.Struct):
    """The finished sources of a run. `digest` is of its description."""

    digest: str
    done: dict[str, SourceCounts] = {}


def run_pipeline(
    session: SparkSession,
    pipeline: Pipeline,
    *,
    publish: str | None = None,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
    resume: bool = False,
) -> PipelineSummary:
    """Runs a batch pipeline. `publish` replaces the address of its description.

    With `resume`, the last interrupted run continues after its finished sources. Once `stop` is
    set, no further step starts, and KeyboardInterrupt is raised. Raises ConnectionFailedError
    before anything is read, and InputError for bad data, and without a run to resume.
    """
    began = monotonic()
    address = publish or pipeline.publish
    asked = check_pipeline(session, pipeline, address)
    base = base_of(pipeline, asked)
    of = _BatchRun(session, pipeline, asked, base, on_progress, stop or threading.Event())
    with run_folder.lock_output(pipeline.output) as check_alone:
        run_folder.repair(pipeline.output)
        run, state = of.resume() if resume else of.begin()
        for number, source in enumerate(pipeline.sources):
            if source.name not in state.done:
                with of.stage(f"match {source.name}"):
                    place = run.place(run_folder.OUTCOMES, str(number))
                    state.done[source.name] = of.match(source, place)
                of.save(run, state)
        patterns = of.write(run)
        summary = of.summary(state.done, patterns)
        summary = replace(summary, seconds=monotonic() - began, run=run.name)
        run_folder.write_atomically(run.path / run_folder.PROGRESS_FILE, b"{}")
        results.write_report(summary, run.path)
        check_alone()
        run = run.show()
        if address and any(each.matched for each in summary.sources):
            published = monotonic()
            counts = publish_matches(session, pipeline, address, on_progress, of.stop)
            summary = replace(
                summary,
                sources=tuple(
                    replace(each, published=counts[each.source]) for each in summary.sources
                ),
                published=sum(counts.values()),
                publish_seconds=monotonic() - published,
            )
            results.write_report(replace(summary, seconds=monotonic() - began), run.path)
    return replace(summary, seconds=monotonic() - began)


@dataclass(slots=True)
class _BatchRun:
    """The steps of a run, and the seconds of its stages."""

    session: SparkSession
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
        with job_progress.watch_jobs(self.session, what, self.on_progress):
            yield
        self.seconds[what] = monotonic() - began

    def save(self, run: run_folder.RunFolder, state: _RunState) -> None:
        """Writes the finished sources."""
        path = run.path / run_folder.STATE_FILE
        run_folder.write_atomically(path, msgspec.json.encode(state))

    def _digest(self) -> str:
        described = (self.pipeline.text, self.base.digest, list(self.asked.filters))
        return hashlib.sha256(repr(described).encode()).hexdigest()

    def begin(self) -> tuple[run_folder.RunFolder, _RunState]:
        """Returns a new run with its state."""
        run_folder.delete_unfinished(self.pipeline.output)
        run, state = run_folder.new_run(self.pipeline.output), _RunState(self._digest())
        self.save(run, state)
        return run, state

    def resume(self) -> tuple[run_folder.RunFolder, _RunState]:
        """Returns the last unfinished run with its state."""
        output = self.pipeline.output
        run = run_folder.unfinished_run(output)
        known = run_folder.read_state(run.path / run_folder.STATE_FILE, _RunState) if run else None
        if run is None or known is None:
            raise InputError(str(output), "found no run to go on with")
        if known.digest != self._digest():
            reason = "the run that was not ended had another description"
            raise InputError(str(output), f"{reason}; without --resume one begins")
        return run, known

    def match(self, source: Source, place: str) -> SourceCounts:
        """Writes the outcomes of a source; returns the counts."""
        began = monotonic()
        with named_source(source.name):
            frame = outcomes(self.session, source, self.base)
        frame.write.mode("overwrite").parquet(place)
        written = self.session.read.schema(OUTCOME_DDL).parquet(place)
        counts = results.counts_of(written, [source], len(self.asked.filters))[source.name]
        return replace(counts, seconds=monotonic() - began)

    def write(self, run: run_folder.RunFolder) -> dict[str, int]:
        """Writes the results of a run; returns the number of matches of each pattern."""
        session, pipeline = self.session, self.pipeline
        numbers = map(str, range(len(pipeline.sources)))
        places = [run.place(run_folder.OUTCOMES, number) for number in numbers]
        every = session.read.schema(OUTCOME_DDL).parquet(*places)
        types = results.types_of(pipeline)
        rows = {
            "matches": results.matches_of(every, list(self.asked.filters), types),
            "quarantine": results.quarantine_of(every),
        }
        counts: dict[str, int] = dict.fromkeys(pipeline.patterns, 0)
        with self.stage("write"):
            for name, frame in rows.items():
                results.write_parquet(frame, run.place(name), *pipeline.partitions(name))
        if pipeline.patterns:
            with self.stage("detect"):
                packed = every.where("notification is not null").select("notification")
                matches = packed.transform(detect(pipeline.patterns))
                dated = matches.withColumn("date", results.date_of("time"))
                place = run.place("patterns")
                results.write_parquet(dated, place, *pipeline.partitions("patterns"))
                rows["patterns"] = session.read.schema(dated.schema).parquet(place)
                counted = rows["patterns"].groupBy("pattern").count().collect()
                counts |= {row[0]: row[1] for row in counted}
        for sink in pipeline.tables:
            if sink.rows in rows:
                with self.stage(f"table {sink}"):
                    results.write_table(rows[sink.rows], sink)
        return counts

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
        )
