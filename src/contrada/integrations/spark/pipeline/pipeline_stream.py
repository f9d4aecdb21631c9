"""`run_stream`: a pipeline as a stream of micro-batches with exactly one effect each.

Spark gives the same rows to a repeated micro-batch. Its version of the subscriptions
(`subscription_versions`), the state of patterns (`transforms.state_files`) and its results are the
same, too:

    OUTPUT/matches/batch=NUMBER     replaced as a whole, as quarantine and patterns
    tables                          the rows of this `batch` are replaced
    the broker                      drops known row numbers (`connector.frame_writers`)
    CHECKPOINT/totals/NUMBER.json   derived from those of the batch before

Behind Spark Connect a process beside the server does this; it knows only the pickled pipeline and
the checkpoint.
"""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TypeAlias

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql.streaming.query import StreamingQuery

from contrada.errors import StoreError
from contrada.integrations.spark.pipeline import job_progress, run_folder, source_outcomes
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline.hadoop_paths import path_for_workers
from contrada.integrations.spark.pipeline.outcome_task import OutcomeTask, TextFiles
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary, SourceCounts
from contrada.integrations.spark.pipeline.pipeline_subscriptions import load_origins
from contrada.integrations.spark.pipeline.preflight import Identity, check_pipeline, read_identity
from contrada.integrations.spark.pipeline.subscription_versions import Version, Versions
from contrada.integrations.spark.pipeline.worker_files import GONE, files_taken
from contrada.integrations.spark.transforms.detection import SEEN, detection, parts_of
from contrada.integrations.spark.transforms.state_files import BATCHES_KEPT
from contrada.model.extensions import load, loaded

_BatchCounts: TypeAlias = Mapping[str, SourceCounts]
_BadFiles: TypeAlias = Mapping[str, Mapping[str, str]]
"""The reason of each file, by source."""


class _Totals(msgspec.Struct, frozen=True):
    """The counts of all micro-batches up to one."""

    batches: int = 0
    sources: dict[str, SourceCounts] = {}
    matches: dict[str, int] = {}
    patterns: dict[str, int] = {}
    published: dict[str, int] = {}
    seconds: dict[str, float] = {}


def run_stream(
    session: SparkSession,
    pipeline: Pipeline,
    *,
    publish: str | None = None,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
) -> PipelineSummary:
    """Runs a stream from its last position, until all data is read or `stop` is set.

    On `stop`, the running micro-batch is finished first. The summary covers all micro-batches of
    the checkpoint. Raises ConnectionFailedError, InputError, StoreError for a checkpoint of another
    pipeline, and errors of sinks, after which the stream can resume.
    """
    address = publish or pipeline.publish
    asked = check_pipeline(session, pipeline, address)
    with (
        run_folder.lock_output(pipeline.output) as check_alone,
        TemporaryDirectory(prefix="contrada-") as here,
    ):
        run_folder.check_kind(pipeline.output, is_stream=True)
        identity = read_identity(pipeline)
        if identity is None:
            identity = Identity.of(pipeline, secrets.token_hex(8), parts_of(session))
            identity.write(pipeline)
        versions = Versions(pipeline, asked, Path(here))
        rows, task = source_outcomes.open_sources(session, pipeline.sources, stream=True)
        batches = _MicroBatches(pipeline, versions, task, address, identity, check_alone)
        is_remote = job_progress.is_remote(session)
        served = _ServedBatches(pipeline, task, address, identity) if is_remote else None
        writer = rows.writeStream.foreachBatch(served or batches)
        writer = writer.option("checkpointLocation", str(pipeline.checkpoint.absolute() / "query"))
        if pipeline.trigger_us is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{pipeline.trigger_us} microseconds")
        _follow(writer.start(), served or batches, on_progress, stop or threading.Event())
        if served is not None:  # The server has begun versions, too.
            batches.versions = Versions(pipeline, asked, Path(here))
        return batches.report()


def _follow(
    query: StreamingQuery,
    batches: "_MicroBatches | _ServedBatches",
    on_progress: job_progress.ProgressListener,
    stop: threading.Event,
) -> None:
    try:
        while query.isActive:
            last = query.lastProgress
            if last is not None:
                rate = f"{last.processedRowsPerSecond:,.0f} rows/s"
                on_progress(f"batch {last.batchId}, {rate}", 0, 0)
            if stop.is_set():
                batches.end(query)
                failure = batches.failure  # Read now: the stop itself causes another one.
                query.stop()
                if failure is not None:
                    raise failure
                return
            stop.wait(job_progress.PROGRESS_S)
        query.awaitTermination()
    except Exception:
        if batches.failure is not None:
            raise batches.failure from None
        raise


@dataclass(eq=False)
class _MicroBatches:
    """The driver's work on each micro-batch."""

    pipeline: Pipeline
    versions: Versions
    task: OutcomeTask
    address: str | None
    identity: Identity
    check_alone: Callable[[], None]
    turn: threading.Lock = field(default_factory=threading.Lock)
    is_ending: bool = False
    failure: Exception | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """The seconds of each stage of the running micro-batch."""
    began: float = field(default_factory=monotonic)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with self.turn:
            if self.is_ending:  # Without an error Spark would commit it.
                raise InterruptedError("the stream is ended")
            try:
                self._process(frame, batch)
            except Exception as error:
                self.failure = error  # Spark would wrap it.
                raise

    def end(self, query: StreamingQuery) -> None:
        """Refuses further micro-batches, and waits for the running one."""
        self.is_ending = True
        if self.turn.acquire(timeout=self.pipeline.limits.batch_end_wait_s):
            self.turn.release()

    def _process(self, frame: DataFrame, batch: int) -> None:
        self.check_alone()
        self.seconds.clear()
        version = self.versions.of_batch(batch)
        every = source_outcomes.outcomes_of(frame, self.task, version.base)
        every = every.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with self._stage("match"):
                counts = results.counts_of(every, self.pipeline.sources, len(version.names))
            seconds = self.seconds["match"] / len(counts)
            counts = {name: replace(each, seconds=seconds) for name, each in counts.items()}
            files = self._bad_files(every, batch)
            counts |= {name: counts[name].with_bad([*of.values()]) for name, of in files.items()}
            self._write(every, batch, version, counts, files)
            patterns = self._detect(every, batch, len(version.names))
        finally:
            every.unpersist()
        self._add(batch, version, counts, patterns)
        self.versions.prune(batch)
        self.report()

    @contextmanager
    def _stage(self, what: str) -> Iterator[None]:
        began = monotonic()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + monotonic() - began

    def _bad_files(self, every: DataFrame, batch: int) -> dict[str, dict[str, str]]:
        """Returns the files that Spark selected and no task received, and those that have changed
        since. Cost: at most a job.
        """
        bad: dict[str, dict[str, str]] = {}
        for place, source in enumerate(self.task.sources):
            if isinstance(source, TextFiles):
                files = files_taken(self.pipeline.checkpoint, batch, place)
                faults = ((source.display_name(file.address), file.fault()) for file in files)
                bad[source.name] = {name: reason for name, reason in faults if reason}
        if any(GONE in of.values() for of in bad.values()):
            rows = every.where("files is not null").select("source", F.explode("files")).collect()
            for source_name, name in rows:
                if bad[source_name].get(name) == GONE:
                    del bad[source_name][name]
        return {source_name: of for source_name, of in bad.items() if of}

    def _write(
        self, every: DataFrame, batch: int, version: Version, counts: _BatchCounts, files: _BadFiles
    ) -> None:
        pipeline = self.pipeline
        if any(each.matched for each in counts.values()):
            matches = results.matches_of(
                every, version.names, results.types_of(pipeline), version.number
            )
            with self._stage("write"):
                self._replace(matches, "matches", batch)
            if self.address:
                with self._stage("publish"):
                    self._publish(every, batch, len(version.names))
        if any(each.bad for each in counts.values()):
            with self._stage("write"):
                self._replace(results.quarantine_of(every, files), "quarantine", batch)

    def _replace(self, frame: DataFrame, rows: str, batch: int) -> None:
        # To another folder first, so that a reader never sees a part.
        beside: Any = self.pipeline.output.absolute() / ".batch" / rows
        results.write_parquet(frame, str(beside), *self.pipeline.partitions(rows))
        there = self.pipeline.output.absolute() / rows / f"batch={batch}"
        if there.exists():
            run_folder.delete_folder(there)
        there.parent.mkdir(exist_ok=True)
        beside.replace(there)
        for sink in self.pipeline.tables:
            if sink.rows == rows:
                results.write_table(frame, sink, batch)

    def _publish(self, every: DataFrame, batch: int, subscriptions: int) -> None:
        """Publishes the matches: one task for the rows of a file, in their order."""
        assert self.address is not None
        matched = every.where(f"subscriptions[0] < {subscriptions}")
        parted = matched.repartition(self.identity.parts, "source", "file")
        rows = parted.sortWithinPartitions("source", "file", "record", "time_us", "notification")
        results.publish_rows(
            rows,
            address=self.address,
            delivery=self.pipeline.delivery,
            query=self.identity.query,
            batch=str(batch),
        )

    def _detect(self, every: DataFrame, batch: int, subscriptions: int) -> dict[str, int]:
        """Detects patterns; returns the number of new matches of each. Patterns see the records
        that one of their steps matches, and the largest time that each task read.
        """
        if not self.pipeline.patterns:
            return {}
        found: dict[str, int] = {}

        def keep(matches: DataFrame, batch: int) -> None:
            dated = matches.drop("batch").withColumn("date", results.date_of("time"))
            held = dated.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                counted = held.groupBy("pattern").count().collect()
                found.update((row[0], row[1]) for row in counted)
                if found:
                    self._replace(held, "patterns", batch)
            finally:
                held.unpersist()

        follow = detection(
            self.pipeline.patterns,
            checkpoint=path_for_workers(self.pipeline.checkpoint),
            sink=keep,
            slack_us=self.pipeline.slack_us,
        )
        asked = f"array_max(subscriptions) >= {subscriptions}"
        seen = "read is not null and time_us is not null"
        rows = every.where(f"{asked} or ({seen})")
        with self._stage("detect"):
            follow(rows.selectExpr("notification", f"if({seen}, time_us, null) as {SEEN}"), batch)
        return found

    def _add(
        self, batch: int, version: Version, counts: _BatchCounts, patterns: Mapping[str, int]
    ) -> None:
        before = _Totals() if batch == 0 else self._totals(batch - 1)
        if before is None:
            reason = f"the totals of batch {batch - 1} are gone"
            raise StoreError(f"{self.pipeline.checkpoint}: {reason}")
        matches = Counter(before.matches)
        for each in counts.values():
            matches.update({version.names[at]: count for at, count in each.matches.items()})
        published = {name: each.matched for name, each in counts.items() if self.address}
        known = dict.fromkeys(counts, SourceCounts()) | before.sources
        totals = _Totals(
            batch + 1,
            {name: known[name] + each for name, each in counts.items()},
            dict(matches),
            dict(Counter(before.patterns) + Counter(patterns)),
            dict(Counter(before.published) + Counter(published)),
            {
                name: before.seconds.get(name, 0.0) + self.seconds.get(name, 0.0)
                for name in before.seconds | self.seconds
            },
        )
        run_folder.write_atomically(self._file(batch), msgspec.json.encode(totals))
        self._file(batch - BATCHES_KEPT).unlink(missing_ok=True)

    def _totals(self, batch: int) -> _Totals | None:
        return run_folder.read_state(self._file(batch), _Totals)

    def _file(self, batch: int) -> Any:
        return self.pipeline.checkpoint / "totals" / f"{batch}.json"

    def report(self) -> PipelineSummary:
        """Returns the summary of all micro-batches, and writes it to the output."""
        pipeline = self.pipeline
        done = [int(each.stem) for each in (pipeline.checkpoint / "totals").glob("*.json")]
        totals = (self._totals(max(done)) if done else None) or _Totals()
        names = [each.name for each in pipeline.sources]
        published = dict.fromkeys(names, 0) | totals.published
        sources = dict.fromkeys(names, SourceCounts()) | totals.sources
        asked = self.versions.last
        summary = PipelineSummary(
            tuple(sources[name].summary(name, published[name]) for name in names),
            dict.fromkeys(asked.names, 0) | totals.matches,
            sum(published.values()),
            totals.seconds.get("publish", 0.0),
            monotonic() - self.began,
            str(pipeline.output.absolute()),
            mode="stream",
            batches=totals.batches,
            patterns=dict.fromkeys(pipeline.patterns, 0) | totals.patterns,
            stages=totals.seconds,
            plan={
                each.name: source_outcomes.describe_matching(each, asked.base)
                for each in pipeline.sources
            },
            refused=self.versions.refused,
            versions=tuple(self.versions.all()),
        )
        results.write_report(summary, pipeline.output)
        return summary


@dataclass(eq=False)
class _ServedBatches:
    """The work on each micro-batch in a process beside a Spark Connect server, pickled and sent
    there. It opens the checkpoint with the first micro-batch.
    """

    pipeline: Pipeline
    task: OutcomeTask
    address: str | None
    identity: Identity
    extensions: tuple[str, ...] = field(default_factory=loaded)
    opened: _MicroBatches | None = None
    failure: Exception | None = None

    def __post_init__(self) -> None:
        """Makes paths absolute: the server's process may have another working directory."""
        self.pipeline = self.pipeline.absolute()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.opened is None:
            for name in self.extensions:
                load(name)
            pipeline = self.pipeline
            asked = pipeline.asked or load_origins(pipeline.origins)
            versions = Versions(pipeline, asked, Path())
            self.opened = _MicroBatches(
                pipeline, versions, self.task, self.address, self.identity, lambda: None
            )
        self.opened(frame, batch)

    def end(self, query: StreamingQuery) -> None:
        """Waits for the running micro-batch; one that starts meanwhile is cancelled."""
        give_up_s = monotonic() + self.pipeline.limits.batch_end_wait_s
        while query.isActive and query.status["isTriggerActive"] and monotonic() < give_up_s:
            query.awaitTermination(job_progress.PROGRESS_S)  # type: ignore[arg-type]
