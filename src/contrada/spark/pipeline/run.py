"""A run of a pipeline: read, match, write, publish, and say what happened.

A run replaces the output of the run before, so that a run that is repeated doubles nothing.
Each source is one job, whose outcomes are kept until the end of the run; the files are read
once. A notification is published once, however many subscriptions it matches, after all
results are written.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from time import monotonic
from typing import Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.spark.pipeline.description import Pipeline, Source
from contrada.spark.pipeline.publishing import (
    Told,
    check_reachable,
    forget_published,
    go_on,
    publish_matches,
)
from contrada.spark.pipeline.reading import outcomes
from contrada.spark.transforms.bases import Base

REASONS_MAX: Final = 10
"""Reasons of bad records of a source that a summary names, the most frequent ones. Beyond it: the
quarantine has them all."""

PROGRESS_S: Final = 0.25
"""How often a run tells how far it is."""


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """What became of one source. `matched` counts notifications, not pairs.

    `reasons` are the most frequent ones of bad records; `unmet` are the attributes that options
    speak of, and that no record had.
    """

    source: str
    read: int
    bad: int
    matched: int
    published: int
    seconds: float
    reasons: dict[str, int]
    unmet: tuple[str, ...]

    @property
    def rows_per_s(self) -> float:
        """Records per second, reading and matching."""
        return (self.read + self.bad) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """What a run did. `matches` counts the matches of each subscription; `output` is where they,
    and what is bad, were written.
    """

    sources: tuple[SourceSummary, ...]
    matches: dict[str, int]
    published: int
    publish_seconds: float
    seconds: float
    output: str


def run_pipeline(
    session: SparkSession,
    pipeline: Pipeline,
    *,
    publish: str | None = None,
    told: Told = lambda what, done, total: None,
    stop: threading.Event | None = None,
) -> PipelineSummary:
    """Run a pipeline. `publish` replaces the address of its description.

    When `stop` is set nothing more is begun and KeyboardInterrupt is raised.

    Raises ConnectionFailedError where the service cannot be reached (before anything is read).
    """
    stop = stop or threading.Event()
    began = monotonic()
    address = publish or pipeline.publish
    if address:
        check_reachable(address)
    base = Base(pipeline.subscriptions)
    kept: list[tuple[Source, DataFrame, SourceSummary]] = []
    matches = dict.fromkeys(pipeline.subscriptions, 0)
    try:
        for source in pipeline.sources:
            go_on(stop)
            frame = outcomes(session, source, base).persist(StorageLevel.MEMORY_AND_DISK)
            with _watched(session, f"match {source.name}", told):
                kept.append((source, frame, _counted(source, frame, matches)))
        go_on(stop)
        with _watched(session, "write", told):
            forget_published(pipeline)
            _write(pipeline, [(source, frame) for source, frame, _ in kept])
    finally:
        for _, frame, _ in kept:
            frame.unpersist()
    publish_began = monotonic()
    published: dict[str, int] = {}
    if address and any(each.matched for _, _, each in kept):
        published = publish_matches(session, pipeline, address, told, stop)
    ended = monotonic()
    return PipelineSummary(
        tuple(replace(each, published=published.get(each.source, 0)) for _, _, each in kept),
        matches,
        sum(published.values()),
        ended - publish_began,
        ended - began,
        str(pipeline.output.absolute()),
    )


def _counted(source: Source, frame: DataFrame, matches: dict[str, int]) -> SourceSummary:
    """Compute a source's outcomes and count them, adding the matches of each subscription."""
    began = monotonic()
    rows = (
        # NULL is the position of what did not match, so that all is counted in one job.
        frame.select("read", "bad", "subscriptions", F.explode_outer("subscriptions").alias("at"))
        .groupBy("at")
        .agg(
            F.sum("read"), F.sum("bad"), F.count("at"), F.count_if(F.expr("at = subscriptions[0]"))
        )
        .collect()
    )
    names = list(matches)
    read = bad = matched = 0
    for position, read_there, bad_there, count, first in rows:
        read += read_there or 0
        bad += bad_there or 0
        matched += first
        if position is not None:
            matches[names[position]] += count
    reasons = _reasons(frame) if bad else {}
    unmet = _unmet(frame, source) if read else ()
    return SourceSummary(source.name, read, bad, matched, 0, monotonic() - began, reasons, unmet)


def _reasons(frame: DataFrame) -> dict[str, int]:
    """The most frequent reasons of bad records, and how often each was."""
    counted = frame.where("reason is not null").groupBy("reason").count()
    rows = counted.orderBy(F.desc("count"), "reason").limit(REASONS_MAX).collect()
    return {row["reason"]: row["count"] for row in rows}


def _unmet(frame: DataFrame, source: Source) -> tuple[str, ...]:
    """The attributes that options speak of and that no task has seen."""
    if not source.reading.names_expected():
        return ()
    tasks = frame.where("read > 0 and unmet is not null").select("unmet").collect()
    return tuple(sorted(set.intersection(*(set(row["unmet"]) for row in tasks))))


def _write(pipeline: Pipeline, frames: list[tuple[Source, DataFrame]]) -> None:
    """Write matches and quarantine."""
    every = reduce(DataFrame.unionAll, [frame for _, frame in frames])
    names = F.array(*map(F.lit, pipeline.subscriptions))
    every.where("notification is not null").withColumn(
        "position", F.explode("subscriptions")
    ).select(
        F.element_at(names, F.col("position") + 1).alias("subscription"),
        "source",
        "file",
        "record",
        F.timestamp_micros("time_us").alias("time"),
        "attributes",
        "notification",
    ).write.mode("overwrite").parquet(str(pipeline.matches.absolute()))
    every.where("reason is not null").select(
        "source", "file", F.col("record").alias("line"), "column", "reason", "text"
    ).write.mode("overwrite").parquet(str(pipeline.quarantine.absolute()))


@contextmanager
def _watched(session: SparkSession, what: str, told: Told) -> Iterator[None]:
    """Tell of the progress of the jobs inside; cancel them when the block ends in an error."""
    context = session.sparkContext
    context.setJobGroup(what, what, interruptOnCancel=True)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, what, told, ended), daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelAllJobs()
        raise
    finally:
        ended.set()
        watcher.join()


def _watch(session: SparkSession, what: str, told: Told, ended: threading.Event) -> None:
    while not ended.wait(PROGRESS_S):
        try:
            done, total = _tasks(session, what)
        except (Py4JError, ConnectionError):
            return  # Java has ended; whoever waits for the job is told.
        told(what, done, total)


def _tasks(session: SparkSession, group: str) -> tuple[int, int]:
    """How many tasks of a group of jobs are done, and how many there are."""
    tracker = session.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            tasks = tracker.getStageInfo(stage)
            if tasks is not None:
                done += tasks.numCompletedTasks
                total += tasks.numTasks
    return done, total
