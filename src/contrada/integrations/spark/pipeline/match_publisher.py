"""`publish_matches`: publishes the matches of a run, and resumes after an interruption.

Each notification is published once, in the order of sources, files and records, by jobs of one task
each. Matches and order do not change, so each notification always has the same number, and the
broker drops duplicates. After each job a file beside the matches records the published count; a
later run resumes there and repeats an interrupted job.

If one job publishes a whole source, it sorts the rows. Otherwise the rows are sorted once, into
files for one job each, which are deleted at the end.
"""

import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ConnectionFailedError, InputError, ServiceError
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.pipeline_results import MATCHES_DDL, publish_rows
from contrada.integrations.spark.spark_session import cause_of
from contrada.net.wire.address import parse_addresses, shown_addresses

_ORDER: Final = ("file", "record", "notification")
_SORTED: Final = ".publishing"
_JOBS_BITS: Final = 24
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)\.")
_RAISED: Final = re.compile(r"contrada\.[\w.]*?(\w+Error): (.*)", re.DOTALL)
_OF_A_CALL: Final = re.compile(r" \d+ notifications of the batch were published before$")
"""Removed from the message of one call: it would look like a count of the source."""


class _PublishedState(msgspec.Struct, forbid_unknown_fields=True):
    """The published counts by source, the last broker, and the query that numbers rows."""

    address: str | None = None
    sources: dict[str, int] = {}
    query: str = ""


class _SortedFiles(msgspec.Struct):
    """The files of a source's sorted rows, each with its count."""

    files: list[tuple[str, int]]


def publish_matches(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publishes the unpublished matches of the last run; returns their count by source. Raises
    ConnectionFailedError with the published count, ServiceError, and InputError without matches.
    """
    run = run_folder.current_run(pipeline.output)
    if run is None:
        raise InputError(str(pipeline.matches), "found no matches of a run before")
    known = run_folder.read_state(run.path / run_folder.PROGRESS_FILE, _PublishedState)
    state = known or _PublishedState()
    state.address = shown_addresses(parse_addresses(address))
    state.query = state.query or secrets.token_hex(8)
    stop = stop or threading.Event()
    publisher = _MatchPublisher(session, run, address, pipeline, state, on_progress)
    now: dict[str, int] = {}
    # Progress is reported by rows, not tasks; but the job must end with this block.
    with job_progress.watch_jobs(session, "publish", job_progress.no_progress):
        totals = {row[0]: row[1] for row in publisher.rows.groupBy("source").count().collect()}
        for place, source in enumerate(pipeline.sources):
            total = totals.get(source.name, 0)
            now[source.name] = publisher.publish(place, source.name, total, stop)
    if (run.path / _SORTED).is_dir():
        run_folder.delete_folder(run.path / _SORTED)
    return now


def publish_rest(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publishes as `publish_matches`, under the lock of the output."""
    with run_folder.lock_output(pipeline.output):
        run_folder.repair(pipeline.output)
        return publish_matches(session, pipeline, address, on_progress, stop)


@dataclass(frozen=True, slots=True)
class _MatchPublisher:
    """The publication of one run to one broker."""

    session: SparkSession
    run: run_folder.RunFolder
    address: str
    pipeline: Pipeline
    state: _PublishedState
    on_progress: job_progress.ProgressListener

    @property
    def rows(self) -> DataFrame:
        """All matched notifications, each once."""
        every = self.session.read.schema(MATCHES_DDL).parquet(self.run.place("matches"))
        return every.where("is_first")

    def publish(self, place: int, name: str, total: int, stop: threading.Event) -> int:
        """Publishes the rest of a source's notifications; returns their count."""
        known = self.state.sources
        before = behind = known.get(name, 0)
        for number, count, rows in self._jobs(place, name, total) if total > before else ():
            if behind >= count:
                behind -= count
                continue
            job_progress.check_stop(stop)
            self._save_state()  # Before publishing: brokers may know rows by this name from now on.
            self.on_progress(f"publish {name}", known.get(name, 0), total)
            try:
                self._publish(place << _JOBS_BITS | number, rows, behind)
            except (Py4JJavaError, PySparkException) as error:
                progress = f"at least {known.get(name, 0)} of {total} notifications of {name}"
                raise _failure(error, self.address, f"{progress} are published") from None
            known[name] = known.get(name, 0) + count - behind
            behind = 0
            self._save_state()
            self.on_progress(f"publish {name}", known[name], total)
        return known.get(name, 0) - before

    def _publish(self, batch: int, rows: DataFrame, behind: int) -> None:
        rows = rows.repartition(1).sortWithinPartitions(*_ORDER)
        # An older version may have stopped within a job.
        publish_rows(
            rows.offset(behind) if behind else rows,
            address=self.address,
            delivery=self.pipeline.delivery,
            query=self.state.query,
            batch=str(batch),
            reconnect_wait=str(self.pipeline.limits.broker_away_s),
        )

    def _save_state(self) -> None:
        path = self.run.path / run_folder.PROGRESS_FILE
        run_folder.write_atomically(path, msgspec.json.encode(self.state))

    def _jobs(self, place: int, name: str, total: int) -> Iterator[tuple[int, int, DataFrame]]:
        """Yields the number, count and rows of each job of a source, always the same."""
        rows = self.rows.where(F.col("source") == name).select(*_ORDER)
        if total <= self.pipeline.limits.published_at_once:
            yield 0, total, rows
            return
        folder = self.run.place(_SORTED, self.run.name, str(place))
        for number, (file, count) in enumerate(self._sort_once(place, rows, folder).files):
            yield number, count, self.session.read.schema(rows.schema).parquet(f"{folder}/{file}")

    def _sort_once(self, place: int, rows: DataFrame, folder: str) -> _SortedFiles:
        """Returns the files of a source's sorted rows; writes them if absent."""
        # At an address all runs share one folder.
        file_list = self.run.path / _SORTED / self.run.name / f"{place}.json"
        found = run_folder.read_state(file_list, _SortedFiles)
        if found is None:
            writer = rows.orderBy(*_ORDER).write.mode("overwrite")
            writer = writer.option("maxRecordsPerFile", self.pipeline.limits.published_at_once)
            writer.parquet(folder)
            file = F.col("_metadata.file_name").alias("file")
            counts = self.session.read.parquet(folder).groupBy(file).count().collect()
            # The numbers in the names that Spark gave give the order.
            found = _SortedFiles(sorted(map(tuple, counts), key=_numbers_of))
            run_folder.write_atomically(file_list, msgspec.json.encode(found))
        return found


def _numbers_of(counted: tuple[str, int]) -> list[int]:
    return [int(number) for number in _PART.findall(counted[0])[0]]


def _failure(error: Exception, address: str, progress: str) -> Exception:
    """Converts an error of a task, and adds the published count."""
    raised = _RAISED.search(cause_of(str(error)))
    if raised is None:
        return error
    kind, why = raised[1], _OF_A_CALL.sub("", raised[2].strip())
    if kind != ConnectionFailedError.__name__:
        return ServiceError(f"{why}; {progress}")
    why = why.removeprefix(f"{address}: ")
    remedy = "once it is back, --resume publishes the rest"
    return ConnectionFailedError(address, f"{why}; {progress}; {remedy}")
