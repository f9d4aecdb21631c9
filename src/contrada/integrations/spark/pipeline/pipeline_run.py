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
from dataclasses import dataclass, replace
from time import monotonic

import msgspec
from pyspark.sql import SparkSession

from contrada.errors import InputError
from contrada.integrations.spark.pipeline import job_progress, output_sinks, run_folder
from contrada.integrations.spark.pipeline.match_publisher import publish_matches, reset_published
from contrada.integrations.spark.pipeline.outcome_counts import (
    PipelineSummary,
    SourceCounts,
    counts_of,
    write_report,
)
from contrada.integrations.spark.pipeline.outcome_task import OUTCOME_DDL
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.integrations.spark.pipeline.pipeline_subscriptions import LoadedSubscriptions
from contrada.integrations.spark.pipeline.preflight import base_of, check_pipeline, named_source
from contrada.integrations.spark.pipeline.source_outcomes import describe_matching, outcomes
from contrada.integrations.spark.transforms.detection import detect
from contrada.integrations.spark.transforms.filter_bases import Base


class _RunState(msgspec.Struct):
    """The finished sources of a run. `digest` is of its description."""

    digest: str
    done: dict[str, SourceCounts] = {}


@dataclass(slots=True)
class _StageTimes:
    """The seconds of each stage, and the progress listener."""

    session: SparkSession
    on_progress: job_progress.ProgressListener
    stop: threading.Event
    seconds: dict[str, float]

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Runs the block as a stage. Raises KeyboardInterrupt once `stop` is set."""
        job_progress.check_stop(self.stop)
        began = monotonic()
        with job_progress.watch_jobs(self.session, what, self.on_progress):
            yield
        self.seconds[what] = monotonic() - began


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
    set, no further step starts, and KeyboardInterrupt is raised. Raises ConnectionFailedError if a
    service is unreachable, before anything is read, and InputError for unreadable or unwritable
    data, and without a run to resume.
    """
    began = monotonic()
    stages = _StageTimes(session, on_progress, stop or threading.Event(), {})
    address = publish or pipeline.publish
    asked = check_pipeline(session, pipeline, address)
    base = base_of(pipeline, asked)
    with run_folder.lock_output(pipeline.output) as check_alone:
        run_folder.repair(pipeline.output)
        run, state = _begin(pipeline, base, asked, resume=resume)
        for number, source in enumerate(pipeline.sources):
            if source.name not in state.done:
                with stages.at(f"match {source.name}"):
                    place = run.place(run_folder.OUTCOMES, str(number))
                    state.done[source.name] = _match(session, source, base, place, asked)
                run_folder.write_atomically(
                    run.path / run_folder.STATE_FILE, msgspec.json.encode(state)
                )
        patterns = _write(stages, pipeline, asked, run)
        summary = replace(
            _summary(pipeline, asked, state.done),
            seconds=monotonic() - began,
            run=run.name,
            patterns=patterns,
            stages=stages.seconds,
            plan={each.name: describe_matching(each, base) for each in pipeline.sources},
        )
        reset_published(run)
        write_report(summary, run.path)
        check_alone()
        run = run.show()
        if address and any(each.matched for each in summary.sources):
            summary = _publish(session, pipeline, address, summary, stages)
            write_report(replace(summary, seconds=monotonic() - began), run.path)
    return replace(summary, seconds=monotonic() - began)


def _summary(
    pipeline: Pipeline, asked: LoadedSubscriptions, done: Mapping[str, SourceCounts]
) -> PipelineSummary:
    """Returns the summary after matching."""
    matches: Counter[int] = Counter()
    for each in done.values():
        matches.update(each.matches)
    return PipelineSummary(
        tuple(done[each.name].summary(each.name) for each in pipeline.sources),
        {name: matches[position] for position, name in enumerate(asked.filters)},
        0,
        0.0,
        0.0,
        str(pipeline.output.absolute()),
        refused=asked.refused,
    )


def _publish(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    summary: PipelineSummary,
    stages: _StageTimes,
) -> PipelineSummary:
    """Publishes the matches; returns the summary with the counts."""
    began = monotonic()
    counts = publish_matches(session, pipeline, address, stages.on_progress, stages.stop)
    return replace(
        summary,
        sources=tuple(replace(each, published=counts[each.source]) for each in summary.sources),
        published=sum(counts.values()),
        publish_seconds=monotonic() - began,
    )


def _begin(
    pipeline: Pipeline, base: Base, asked: LoadedSubscriptions, *, resume: bool
) -> tuple[run_folder.RunFolder, _RunState]:
    """Returns a new run, or the resumed one, with its state."""
    described = (pipeline.text, base.digest, list(asked.filters))
    digest = hashlib.sha256(repr(described).encode()).hexdigest()
    if not resume:
        run_folder.delete_unfinished(pipeline.output)
        run, state = run_folder.new_run(pipeline.output), _RunState(digest)
        run.begin()
        run_folder.write_atomically(run.path / run_folder.STATE_FILE, msgspec.json.encode(state))
        return run, state
    before = run_folder.unfinished_run(pipeline.output)
    known = (
        run_folder.read_state(before.path / run_folder.STATE_FILE, _RunState) if before else None
    )
    if before is None or known is None:
        raise InputError(str(pipeline.output), "found no run to go on with")
    if known.digest != digest:
        reason = "the run that was not ended had another description; without --resume one begins"
        raise InputError(str(pipeline.output), reason)
    return before, known


def _match(
    session: SparkSession, source: Source, base: Base, place: str, asked: LoadedSubscriptions
) -> SourceCounts:
    """Writes the outcomes of a source; returns the counts."""
    began = monotonic()
    with named_source(source.name):
        frame = outcomes(session, source, base)
    frame.write.mode("overwrite").parquet(place)
    written = session.read.schema(OUTCOME_DDL).parquet(place)
    counts = counts_of(written, [source], len(asked.filters))[source.name]
    return replace(counts, seconds=monotonic() - began)


def _write(
    stages: _StageTimes, pipeline: Pipeline, asked: LoadedSubscriptions, run: run_folder.RunFolder
) -> dict[str, int]:
    """Writes the results of a run; returns the number of matches of each pattern."""
    session = stages.session
    places = [
        run.place(run_folder.OUTCOMES, str(number)) for number in range(len(pipeline.sources))
    ]
    every = session.read.schema(OUTCOME_DDL).parquet(*places)
    rows = {
        "matches": output_sinks.matches_of(
            every, list(asked.filters), output_sinks.types_of(pipeline)
        ),
        "quarantine": output_sinks.quarantine_of(every),
    }
    counts: dict[str, int] = dict.fromkeys(pipeline.patterns, 0)
    with stages.at("write"):
        output_sinks.write_parquet(
            rows["matches"], run.place("matches"), *pipeline.partitions("matches")
        )
        output_sinks.write_parquet(rows["quarantine"], run.place("quarantine"))
    if pipeline.patterns:
        with stages.at("detect"):
            packed = every.where("notification is not null").select("notification")
            matches = packed.transform(detect(pipeline.patterns))
            dated = matches.withColumn("date", output_sinks.date_of("time"))
            output_sinks.write_parquet(
                dated, run.place("patterns"), *pipeline.partitions("patterns")
            )
            rows["patterns"] = session.read.schema(dated.schema).parquet(run.place("patterns"))
            counts |= {
                row[0]: row[1] for row in rows["patterns"].groupBy("pattern").count().collect()
            }
    for sink in pipeline.tables:
        if sink.rows in rows:
            with stages.at(f"table {sink}"):
                output_sinks.write_table(rows[sink.rows], sink)
    return counts
