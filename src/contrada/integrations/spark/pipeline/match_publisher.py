"""Publishing the matches of a run, and what is left of them when a run or a broker was ended.

A notification is published once, however many subscriptions it matches: source by source, in the
order of files and records, read from the matches that were written. Tasks publish them
(`integrations/spark/connector/frame_writers.py`), some hundred thousand in a job, and one task at a
time, since two would keep no order. What was written stays as it is, and so does the order: each
notification has the same number whenever it is published, and a broker takes it once. After each
job a file beside the matches says how many are published, so that another run goes on there; a job
that was cut off is done again.

Where one job would publish all of a source, its rows are sorted by that. Else they are sorted once,
into files that a job publishes each, and that go when all is published.
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
from contrada.integrations.spark.pipeline.job_progress import ProgressListener, go_on, watched
from contrada.integrations.spark.pipeline.output_sinks import MATCHES_DDL
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.run_folder import (
    PROGRESS_FILE,
    RunFolder,
    alone_in,
    current_run,
    free,
    mend,
    read_whole,
    write_whole,
)
from contrada.integrations.spark.spark_session import cause_of
from contrada.net.wire.address import parse_addresses, shown_addresses

PUBLISHED_AT_ONCE: Final = 100_000
"""Notifications that one job publishes. Beyond it: the next job takes the rest."""

BROKER_AWAY_S: Final = 10.0
"""How long a run tries to have its broker back. Beyond it: it ends, and another one publishes the
rest."""

_UNTOLD: Final[ProgressListener] = lambda what, done, total: None  # noqa: E731 - a default, and no more

_ORDER: Final = ("file", "record", "notification")
_SORTED: Final = ".publishing"
_JOBS_BITS: Final = 24
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)\.")
_RAISED: Final = re.compile(r"contrada\.[\w.]*?(\w+Error): (.*)", re.DOTALL)
_OF_A_CALL: Final = re.compile(r" \d+ notifications of the batch were published before$")
"""What a call says beside; here it would be taken for what is said of a source."""


class _PublishedState(msgspec.Struct, forbid_unknown_fields=True):
    """How many of a run's matches are published, by source, and where the last of them went.

    `query` is the name under which brokers know them.
    """

    address: str | None = None
    sources: dict[str, int] = {}
    query: str = ""


class _SortedFiles(msgspec.Struct):
    """The files of a source's rows in their order, and how many each has."""

    files: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Job:
    """Some rows of a source, in the order in which they are published."""

    number: int
    count: int
    rows: DataFrame


def forget_published(run: RunFolder) -> None:
    """From now on nothing of the matches of a run counts as published."""
    write_whole(run.path / PROGRESS_FILE, b"{}")


def publish_matches(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    told: ProgressListener = _UNTOLD,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publish what the last run wrote and is not yet published; how many of each source are now.

    Raises ConnectionFailedError, with how many were published, where the service goes away,
    ServiceError where it refuses something, and InputError where there are no matches.
    """
    run = current_run(pipeline.output)
    if run is None:
        raise InputError(str(pipeline.matches), "found no matches of a run before")
    state = read_whole(run.path / PROGRESS_FILE, _PublishedState) or _PublishedState()
    state.address = shown_addresses(parse_addresses(address))
    state.query = state.query or secrets.token_hex(8)
    publisher = _MatchPublisher(session, run, address, pipeline.delivery, state, told)
    now: dict[str, int] = {}
    # A job is no progress that anybody wants to see; but it has to end where this ends.
    with watched(session, "publish", _UNTOLD):
        totals = {row[0]: row[1] for row in publisher.rows.groupBy("source").count().collect()}
        for place, source in enumerate(pipeline.sources):
            total = totals.get(source.name, 0)
            now[source.name] = publisher.publish(
                place, source.name, total, stop or threading.Event()
            )
    _free_sorted(run)
    return now


def publish_rest(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    told: ProgressListener = _UNTOLD,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """`publish_matches` where no run is under way; two would get into each other's way.

    Raises InputError where one is, too.
    """
    with alone_in(pipeline.output):
        mend(pipeline.output)
        return publish_matches(session, pipeline, address, told, stop)


@dataclass(frozen=True, slots=True)
class _MatchPublisher:
    """What is published of a run, and where to."""

    session: SparkSession
    run: RunFolder
    address: str
    delivery: str
    state: _PublishedState
    told: ProgressListener

    @property
    def rows(self) -> DataFrame:
        """All notifications, each once."""
        every = self.session.read.schema(MATCHES_DDL).parquet(self.run.place("matches"))
        return every.where("is_first")

    def publish(self, place: int, name: str, total: int, stop: threading.Event) -> int:
        """Publish what is left of a source's notifications; how many these are."""
        known = self.state.sources
        before = behind = known.get(name, 0)
        for job in self._jobs(place, name, total) if total > before else ():
            if behind >= job.count:
                behind -= job.count
                continue
            go_on(stop)
            self._keep()  # From now on something may be known under this name.
            self.told(f"publish {name}", known.get(name, 0), total)
            try:
                self._publish(place, job, behind)
            except (Py4JJavaError, PySparkException) as error:
                said = f"at least {known.get(name, 0)} of {total} notifications of {name}"
                raise _failure(error, self.address, f"{said} are published") from None
            known[name] = known.get(name, 0) + job.count - behind
            behind = 0
            self._keep()
            self.told(f"publish {name}", known[name], total)
        return known.get(name, 0) - before

    def _publish(self, place: int, job: _Job, behind: int) -> None:
        rows = job.rows.repartition(1).sortWithinPartitions(*_ORDER)
        options = {
            "address": self.address,
            "delivery": self.delivery,
            "query": self.state.query,
            "batch": str(place << _JOBS_BITS | job.number),
            "reconnect_wait": str(BROKER_AWAY_S),
        }
        rest = rows.offset(behind) if behind else rows  # Another version stopped in between.
        writer = rest.select("notification").write.format("contrada").mode("append")
        writer.options(**options).save()

    def _keep(self) -> None:
        write_whole(self.run.path / PROGRESS_FILE, msgspec.json.encode(self.state))

    def _jobs(self, place: int, name: str, total: int) -> Iterator[_Job]:
        """The rows of a source, cut into jobs: always in the same way."""
        rows = self.rows.where(F.col("source") == name).select(*_ORDER)
        if total <= PUBLISHED_AT_ONCE:
            yield _Job(0, total, rows)
            return
        folder = self.run.place(_SORTED, self.run.name, str(place))
        for number, (file, count) in enumerate(self._sorted(place, rows, folder).files):
            job = self.session.read.schema(rows.schema).parquet(f"{folder}/{file}")
            yield _Job(number, count, job)

    def _sorted(self, place: int, rows: DataFrame, folder: str) -> _SortedFiles:
        """The files of a source's rows in their order, which are written where they are not."""
        # At an address all runs lie in one folder.
        told = self.run.path / _SORTED / self.run.name / f"{place}.json"
        found = read_whole(told, _SortedFiles)
        if found is None:
            writer = rows.orderBy(*_ORDER).write.mode("overwrite")
            writer.option("maxRecordsPerFile", PUBLISHED_AT_ONCE).parquet(folder)
            file = F.col("_metadata.file_name").alias("file")
            counts = self.session.read.parquet(folder).groupBy(file).count().collect()
            found = _SortedFiles(sorted(map(tuple, counts), key=lambda each: _part(each[0])))
            write_whole(told, msgspec.json.encode(found))
        return found


def _part(file: str) -> tuple[int, ...]:
    """Where a file of Spark stands among those of its folder."""
    found = _PART.match(file)
    assert found is not None, file
    return tuple(map(int, found.groups()))


def _free_sorted(run: RunFolder) -> None:
    folder = run.path / _SORTED
    if folder.is_dir():
        free(folder)


def _failure(error: Exception, address: str, said: str) -> Exception:
    """What a task raised, as an error of here that says how far it came."""
    raised = _RAISED.search(cause_of(str(error)))
    if raised is None:
        return error
    kind, why = raised[1], _OF_A_CALL.sub("", raised[2].strip())
    if kind != ConnectionFailedError.__name__:
        return ServiceError(f"{why}; {said}")
    why = why.removeprefix(f"{address}: ")
    return ConnectionFailedError(
        address, f"{why}; {said}; once it is back, --resume publishes the rest"
    )
