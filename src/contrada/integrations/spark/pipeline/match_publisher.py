"""`publish_matches`: publishes the matches of a run, and resumes after an interruption.

Each notification is published once, in the order of sources, files and records, by jobs of one task
each. Matches and order do not change, so each notification always has the same number, and the
broker drops duplicates. After each job a file beside the matches records the published count; a
later run resumes there and repeats an interrupted job. Jobs are the same on each engine, so one
may resume the publication of another.

If one job publishes a whole source, it sorts the rows. Otherwise the rows are sorted once, into
files for one job each, which are deleted at the end.
"""

import re
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ConnectionFailedError, ContradaError, InputError, ServiceError
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.connector.frame_writers import (
    PUBLISH_ROWS,
    SequenceNumbers,
    publish,
)
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.pipeline_results import MATCHES_DDL, publish_rows
from contrada.integrations.spark.spark_session import cause_of
from contrada.integrations.spark.transforms.frames import arrow_schema
from contrada.net.wire.address import parse_addresses, shown_addresses

_ORDER: Final = ("file", "record", "notification")
_SORTED: Final = ".publishing"
_JOBS_BITS: Final = 24
_MATCHES: Final = arrow_schema(MATCHES_DDL)
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)\.")
_RAISED: Final = re.compile(r"contrada\.[\w.]*?(\w+Error): (.*)", re.DOTALL)
_OF_A_CALL: Final = re.compile(r" \d+ notifications of the batch were published before$")
"""Removed from the message of one call: it would look like a count of the source."""


class _PublishedState(msgspec.Struct, forbid_unknown_fields=True):
    """The published counts by source, the last broker, and the query that numbers rows."""

    address: str | None = None
    sources: dict[str, int] = {}
    query: str = ""


class _Jobs(msgspec.Struct):
    """The jobs of a source: the file of sorted rows of each, None for all rows, and its count."""

    files: list[tuple[str | None, int]]


def publish_matches(
    session: SparkSession | None,
    pipeline: Pipeline,
    address: str,
    on_progress: job_progress.ProgressListener = job_progress.no_progress,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publishes the unpublished matches of the last run, without a session in this process; returns
    their count by source. Raises ConnectionFailedError with the published count, ServiceError, and
    InputError without matches.
    """
    run = run_folder.current_run(pipeline.output)
    if run is None:
        raise InputError(str(pipeline.matches), "found no matches of a run before")
    known = run_folder.read_state(run.path / run_folder.PROGRESS_FILE, _PublishedState)
    state = known or _PublishedState()
    state.address = shown_addresses(parse_addresses(address))
    state.query = state.query or secrets.token_hex(8)
    given = (run, address, pipeline, state, on_progress, stop or threading.Event())
    publisher = _LocalPublisher(*given) if session is None else _SparkPublisher(*given, session)
    now: dict[str, int] = {}
    with publisher.watch():
        totals = publisher.totals()
        # First those of the state: numbers of rows are by place, whatever is described since.
        for name in (*(each.name for each in pipeline.sources), *sorted(totals)):
            state.sources.setdefault(name, 0)
        for place, name in enumerate([*state.sources]):
            now[name] = publisher.publish(place, name, totals.get(name, 0))
    if (run.path / _SORTED).is_dir():
        run_folder.delete_folder(run.path / _SORTED)
    return now


def publish_rest(
    session: SparkSession | None,
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
class _MatchPublisher(ABC):
    """The publication of one run to one broker. An engine reads, sorts and sends the rows."""

    run: run_folder.RunFolder
    address: str
    pipeline: Pipeline
    state: _PublishedState
    on_progress: job_progress.ProgressListener
    stop: threading.Event

    def publish(self, place: int, name: str, total: int) -> int:
        """Publishes the rest of a source's notifications; returns their count."""
        known = self.state.sources
        before = done = known[name]
        for number, count, file in self._jobs(place, name, total) if total > before else ():
            if done >= count:
                done -= count
                continue
            job_progress.check_stop(self.stop)
            self._save_state()  # Before publishing: brokers may know rows by this name from now on.
            self.on_progress(f"publish {name}", known[name], total)
            try:
                self.send(self._options(place << _JOBS_BITS | number), name, file)
            except ContradaError as error:
                progress = f"at least {known[name]} of {total} notifications of {name}"
                raise self._failure(error, f"{progress} are published") from None
            known[name] += count
            self._save_state()
            self.on_progress(f"publish {name}", known[name], total)
        return known[name] - before

    @abstractmethod
    def watch(self) -> AbstractContextManager[None]:
        """Ends what the engine has begun when the block raises."""

    @abstractmethod
    def totals(self) -> dict[str, int]:
        """Returns the number of matched notifications by source."""

    @abstractmethod
    def send(self, options: dict[str, str], name: str, file: str | None) -> None:
        """Publishes the sorted rows of a file, or of a source. Raises ContradaError."""

    @abstractmethod
    def sort(self, name: str, folder: str) -> list[tuple[str, int]]:
        """Writes a source's sorted rows, `published_at_once` to a file; returns names and counts of
        the files.
        """

    def _options(self, batch: int) -> dict[str, str]:
        return {
            "address": self.address,
            "delivery": self.pipeline.delivery,
            "query": self.state.query,
            "batch": str(batch),
            "reconnect_wait": str(self.pipeline.limits.broker_away_s),
        }

    def _save_state(self) -> None:
        path = self.run.path / run_folder.PROGRESS_FILE
        run_folder.write_atomically(path, msgspec.json.encode(self.state))

    def _jobs(self, place: int, name: str, total: int) -> Iterator[tuple[int, int, str | None]]:
        """Yields the number, count and file of each job of a source, always the same."""
        folder = self.run.place(_SORTED, self.run.name, str(place))
        # At an address all runs share one folder.
        file_list = self.run.path / _SORTED / self.run.name / f"{place}.json"
        # First: the limit may be another one since, and numbers of rows are those of their jobs.
        found = run_folder.read_state(file_list, _Jobs)
        if found is None:
            is_one = total <= self.pipeline.limits.published_at_once
            found = _Jobs([(None, total)] if is_one else [*self.sort(name, folder)])
            run_folder.write_atomically(file_list, msgspec.json.encode(found))
        for number, (file, count) in enumerate(found.files):
            yield number, count, file and f"{folder}/{file}"

    def _failure(self, error: ContradaError, progress: str) -> ServiceError:
        if not isinstance(error, ConnectionFailedError):
            return ServiceError(f"{_OF_A_CALL.sub('', str(error))}; {progress}")
        remedy = "once it is back, --resume publishes the rest"
        why = _OF_A_CALL.sub("", error.reason)
        return ConnectionFailedError(self.address, f"{why}; {progress}; {remedy}")


@dataclass(frozen=True, slots=True)
class _SparkPublisher(_MatchPublisher):
    session: SparkSession

    def watch(self) -> AbstractContextManager[None]:
        # Progress is reported by rows, not tasks; but the job must end with this block.
        return job_progress.watch_jobs(self.session, "publish", job_progress.no_progress)

    def totals(self) -> dict[str, int]:
        return {row[0]: row[1] for row in self._rows().groupBy("source").count().collect()}

    def send(self, options: dict[str, str], name: str, file: str | None) -> None:
        rows = self._of_source(name)
        if file is not None:
            rows = self.session.read.schema(rows.schema).parquet(file)
        rows = rows.repartition(1).sortWithinPartitions(*_ORDER)
        try:
            publish_rows(rows, **options)
        except (Py4JJavaError, PySparkException) as error:
            raised = _RAISED.search(cause_of(str(error)))
            if raised is None:
                raise
            kind, why = raised[1], raised[2].strip()
            if kind != ConnectionFailedError.__name__:
                raise ServiceError(why) from None
            why = why.removeprefix(f"{self.address}: ")
            raise ConnectionFailedError(self.address, why) from None

    def sort(self, name: str, folder: str) -> list[tuple[str, int]]:
        writer = self._of_source(name).orderBy(*_ORDER).write.mode("overwrite")
        writer = writer.option("maxRecordsPerFile", self.pipeline.limits.published_at_once)
        writer.parquet(folder)
        file = F.col("_metadata.file_name").alias("file")
        counts = self.session.read.parquet(folder).groupBy(file).count().collect()
        # The numbers in the names that Spark gave give the order.
        return sorted(map(tuple, counts), key=lambda row: [*map(int, _PART.findall(row[0])[0])])

    def _rows(self) -> DataFrame:
        every = self.session.read.schema(MATCHES_DDL).parquet(self.run.place("matches"))
        return every.where("is_first")

    def _of_source(self, name: str) -> DataFrame:
        return self._rows().where(F.col("source") == name).select(*_ORDER)


@dataclass(frozen=True, slots=True)
class _LocalPublisher(_MatchPublisher):
    """A publication by this process, of as few rows as a `LocalRun` matches."""

    def watch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def totals(self) -> dict[str, int]:
        counted = self._rows("source").column("source").value_counts().to_pylist()
        return {each["values"]: each["counts"] for each in counted}

    def send(self, options: dict[str, str], name: str, file: str | None) -> None:
        rows = self._of_source(name) if file is None else pq.read_table(file)
        checked = Options.of(options)
        numbers = SequenceNumbers(checked.query, checked.batch or 0, 0)
        publish(checked, numbers, self._until_stop(rows))

    def sort(self, name: str, folder: str) -> list[tuple[str, int]]:
        rows, at_once = self._of_source(name), self.pipeline.limits.published_at_once
        Path(folder).mkdir(parents=True, exist_ok=True)
        files = []
        for number, first in enumerate(range(0, len(rows), at_once)):
            part = rows.slice(first, at_once)
            # As Spark names the files of one task, which may read them to resume.
            files.append((f"part-00000-local-c{number:03}.parquet", len(part)))
            pq.write_table(part, f"{folder}/{files[-1][0]}")
        return files

    def _until_stop(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in rows.to_batches(PUBLISH_ROWS):
            job_progress.check_stop(self.stop)
            yield batch

    def _rows(self, *columns: str, source: str | None = None) -> pa.Table:
        import pyarrow.dataset as ds  # It imports pandas, for a quarter of a second.

        matches = ds.dataset(self.run.place("matches"), _MATCHES, "parquet")
        chosen = pc.field("is_first")
        if source is not None:
            chosen &= pc.field("source") == source
        return matches.to_table(list(columns), filter=chosen)

    def _of_source(self, name: str) -> pa.Table:
        rows = self._rows(*_ORDER, source=name)
        return rows.sort_by([(column, "ascending") for column in _ORDER])
