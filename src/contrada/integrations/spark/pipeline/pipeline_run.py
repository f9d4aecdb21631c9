"""`run_pipeline`: a batch run that reads, matches, detects, writes, publishes and reports.

The outcomes of each source are written as they are computed, so that no run holds them in memory,
and an interrupted run resumes with the next source. At the end one step replaces the results of the
previous run (`run_folder`). Then each matched notification is published once, however many
subscriptions it matches.
"""

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.sql import SparkSession

from contrada.errors import InputError
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline.local_run import BatchRun, LocalRun, why_spark
from contrada.integrations.spark.pipeline.match_publisher import publish_matches
from contrada.integrations.spark.pipeline.outcome_task import OUTCOME_DDL
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary, SourceCounts
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    LoadedSubscriptions,
    load_origins,
)
from contrada.integrations.spark.pipeline.preflight import (
    base_of,
    check_pipeline,
    check_reachable,
    named_source,
)
from contrada.integrations.spark.pipeline.source_outcomes import missing_in, outcomes
from contrada.integrations.spark.transforms.detection import detect
from contrada.integrations.spark.transforms.filter_bases import Base, is_local


def run_pipeline(
    session: SparkSession | None,
    pipeline: Pipeline,
    *,
    publish: str | None = None,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
    resume: bool = False,
    is_short: bool = False,
) -> PipelineSummary:
    """Runs a batch pipeline. `publish` replaces the address of its description. Without a session
    it is a `LocalRun`, and with `is_short`, where Spark is on this machine and a `LocalRun` would
    do, a `ShortRun`. The results are the same.

    With `resume`, the last interrupted run continues after its finished sources; one that has
    written nothing begins. Once `stop` is set, no further step starts, and KeyboardInterrupt is
    raised. Raises ConnectionFailedError before anything is read, and InputError for bad data, if
    the run to resume has ended, and without a session if it needs one.
    """
    began = monotonic()
    address = publish or pipeline.publish
    asked = _check(session, pipeline, address)
    steps: dict[str, Any] = {"pipeline": pipeline, "asked": asked, "on_progress": on_progress}
    steps |= {"base": base_of(pipeline, asked), "stop": stop or threading.Event()}
    of = _run_of(session, pipeline, steps, is_short=is_short)
    with run_folder.lock_output(pipeline.output) as check_alone:
        run_folder.repair(pipeline.output)
        run, state = of.resume() if resume else of.begin()
        for source, place in zip(pipeline.sources, of.places(run), strict=True):
            if source.name not in state.done:
                with of.stage(what := f"match {source.name}"):
                    counts = of.match(source, place)
                state.done[source.name] = replace(counts, seconds=of.seconds[what])
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
            published_of = publish_matches(session, pipeline, address, on_progress, of.stop)
            summary = replace(
                summary,
                sources=tuple(
                    replace(each, published=published_of[each.source]) for each in summary.sources
                ),
                published=sum(published_of.values()),
                publish_seconds=monotonic() - published,
            )
            results.write_report(replace(summary, seconds=monotonic() - began), run.path)
    return replace(summary, seconds=monotonic() - began)


def _check(
    session: SparkSession | None, pipeline: Pipeline, address: str | None
) -> LoadedSubscriptions:
    """Returns the subscriptions after all checks. Raises ConnectionFailedError, InputError."""
    if session is not None:
        return check_pipeline(session, pipeline, address)
    if reason := why_spark(pipeline):
        raise InputError("engine", f"a local run is impossible: {reason}")
    if address:
        check_reachable(address)
    return pipeline.asked or load_origins(pipeline.origins)


def _run_of(
    session: SparkSession | None, pipeline: Pipeline, steps: dict[str, Any], *, is_short: bool
) -> BatchRun:
    if session is None:
        return LocalRun(**steps)
    is_short = is_short and is_local(session) and why_spark(pipeline) is None
    return (ShortRun if is_short else SparkRun)(session=session, **steps)


def _write_outcomes(session: SparkSession, source: Source, base: Base, place: str) -> None:
    with named_source(source.name):
        frame = outcomes(session, source, base)
    results.write_parquet(frame, place)


@dataclass(slots=True, kw_only=True)
class ShortRun(LocalRun):
    """A run on Spark over little data: Spark matches, and this process counts and writes. Further
    jobs would load classes into Java for two seconds.
    """

    session: SparkSession

    def watch(self, what: str) -> AbstractContextManager[None]:
        return job_progress.watch_jobs(self.session, what, self.on_progress)

    def read(self, source: Source, folder: Path) -> None:
        _write_outcomes(self.session, source, self.base, str(folder))


@dataclass(slots=True, kw_only=True)
class SparkRun(BatchRun):
    """A run on Spark."""

    session: SparkSession

    def watch(self, what: str) -> AbstractContextManager[None]:
        return job_progress.watch_jobs(self.session, what, self.on_progress)

    def missing_in(self, source: Source) -> list[str]:
        with named_source(source.name):
            return missing_in(self.session, source, self.asked.filters.values())

    def match(self, source: Source, place: str) -> SourceCounts:
        _write_outcomes(self.session, source, self.base, place)
        written = self.session.read.schema(OUTCOME_DDL).parquet(place)
        return results.counts_of(written, [source], len(self.asked.filters))[source.name]

    def write(self, run: run_folder.RunFolder) -> dict[str, int]:
        session, pipeline = self.session, self.pipeline
        every = session.read.schema(OUTCOME_DDL).parquet(*self.places(run))
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
