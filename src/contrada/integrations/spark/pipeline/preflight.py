"""`check_pipeline` and `plan_lines`: the checks before a run or stream, and its plan."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.connections import connect
from contrada.errors import InputError, StoreError
from contrada.integrations.files import FORMATS
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline import run_folder, source_outcomes
from contrada.integrations.spark.pipeline.hadoop_paths import HadoopPath
from contrada.integrations.spark.pipeline.job_progress import is_remote
from contrada.integrations.spark.pipeline.outcome_task import OUTCOME_DDL
from contrada.integrations.spark.pipeline.pipeline_description import (
    Pipeline,
    TableSink,
    check_owned,
)
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    LoadedSubscriptions,
    load_origins,
)
from contrada.integrations.spark.spark_session import cause_of
from contrada.integrations.spark.transforms.detection_worker import MATCHES_SCHEMA
from contrada.integrations.spark.transforms.filter_bases import Base
from contrada.model import FilterSet


def check_reachable(address: str) -> None:
    """Raises ConnectionFailedError if no service answers."""

    async def reach() -> None:
        async with connect(address, reconnect=False):
            pass

    asyncio.run(reach())


def base_of(pipeline: Pipeline, asked: LoadedSubscriptions, folder: Path | None = None) -> Base:
    """Returns the base of a pipeline: the subscriptions, then the steps of patterns. Keys are
    positions.
    """
    steps = [each for pattern in pipeline.patterns.values() for each in pattern.filters]
    every = [*asked.filters.values(), *steps] or [FilterSet([])]  # A base needs a subscription.
    return Base(dict(enumerate(every)), folder=folder)


def check_pipeline(
    session: SparkSession, pipeline: Pipeline, address: str | None
) -> LoadedSubscriptions:
    """Returns the subscriptions after all checks. Raises ConnectionFailedError, InputError."""
    check_places(session, pipeline)
    if address:
        check_reachable(address)
    asked = pipeline.asked or load_origins(pipeline.origins)
    for source in pipeline.sources:
        if not source.files:  # The description has checked files of lines.
            results.check_format(session, f"source {source.name!r}", source.format, *FORMATS)
            with named_source(source.name):
                source_outcomes.open_sources(session, [source], stream=pipeline.is_stream)
    for sink in pipeline.tables:
        _check_table(session, pipeline, sink)
    return asked


def check_places(session: SparkSession, pipeline: Pipeline) -> None:
    """Raises InputError for an output or checkpoint at an address without a driver here."""
    for folder in (pipeline.output, pipeline.checkpoint):
        if isinstance(folder, HadoopPath):
            if is_remote(session):
                reason = "an address needs the driver of Spark here, with --master: expected a path"
                raise InputError(str(folder), reason)
            folder.exists()  # Reports an unknown scheme early.
    if isinstance(pipeline.output, HadoopPath):
        check_owned(pipeline.output)


def _check_table(session: SparkSession, pipeline: Pipeline, sink: TableSink) -> str:
    """Describes the writing to a table, checked with an empty frame of its rows."""
    rows = session.createDataFrame([], OUTCOME_DDL)
    if sink.rows == "matches":
        version = 0 if pipeline.is_stream else None
        rows = results.matches_of(rows, [], results.types_of(pipeline), version)
    elif sink.rows == "quarantine":
        rows = results.quarantine_of(rows)
    else:
        rows = session.createDataFrame([], MATCHES_SCHEMA).drop(results.BATCH)
        rows = rows.withColumn("date", results.date_of("time"))
    if pipeline.is_stream:
        rows = rows.withColumn(results.BATCH, F.lit(0).cast("bigint"))
    return results.check_table(session, sink, rows)


@contextmanager
def named_source(source: str) -> Iterator[None]:
    """Converts Spark's errors to InputError with the name of the source."""
    try:
        yield
    except PySparkException as error:
        raise InputError(f"source {source!r}", str(error).splitlines()[0]) from None
    except Py4JJavaError as error:
        raise InputError(f"source {source!r}", cause_of(str(error))) from None


def find_problems(session: SparkSession, pipeline: Pipeline) -> Iterator[str]:
    """Yields likely mistakes of the author: headers that lack columns named in options."""
    for source in pipeline.sources:
        with named_source(source.name):
            yield from source_outcomes.missing_columns(session, source, stream=pipeline.is_stream)


def plan_lines(session: SparkSession, pipeline: Pipeline, publish: str | None) -> Iterator[str]:
    """Describes a run after all checks. Writes nothing. Raises as `check_pipeline`; InputError
    while another run is writing, and StoreError for a checkpoint of another pipeline.
    """
    check_places(session, pipeline)
    run_folder.check_unlocked(pipeline.output)
    run_folder.check_kind(pipeline.output, is_stream=pipeline.is_stream)
    if pipeline.is_stream:
        read_identity(pipeline)
    address = publish or pipeline.publish
    asked = check_pipeline(session, pipeline, address)
    base = base_of(pipeline, asked)
    origins = ", ".join(map(str, pipeline.origins))
    yield f"{len(asked.filters)} subscription{'s' * (len(asked.filters) != 1)} of {origins}"
    yield from (f"refused: {each}" for each in asked.refused)
    yield from (f"pattern {name}: {each}" for name, each in pipeline.patterns.items())
    for source in pipeline.sources:
        count = len(source.files) or len(source.paths)
        read = source.table or f"{count} path{'s' * (count != 1)}"
        yield f"source {source.name}: {read}; {source_outcomes.describe_matching(source, base)}"
    yield f"into {pipeline.output}: matches, quarantine" + ", patterns" * bool(pipeline.patterns)
    for sink in pipeline.tables:
        yield f"into {_check_table(session, pipeline, sink)}"
    if address:
        yield f"to {address}, delivery {pipeline.delivery}"
    if pipeline.is_stream:
        every = pipeline.trigger_us
        when = "until all is read that is there" if every is None else f"every {every / 1e6:g} s"
        yield f"as a stream, {when}, kept in {pipeline.checkpoint}"


# --- the checkpoint -------------------------------------------------------------------------------

_IDENTITY_FILE: Final = "stream.json"


class Identity(msgspec.Struct, frozen=True):
    """The settings of a checkpoint: its query name for brokers, its number of parts, its sources
    and patterns. These are fixed, since their states in the checkpoint are found by position.
    """

    query: str
    parts: int
    sources: tuple[str, ...]
    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pipeline: Pipeline, query: str, parts: int) -> "Identity":
        """Returns the identity of a pipeline."""
        patterns = tuple((name, str(each)) for name, each in pipeline.patterns.items())
        return cls(query, parts, tuple(each.name for each in pipeline.sources), patterns)

    def write(self, pipeline: Pipeline) -> None:
        """Writes it to the checkpoint."""
        run_folder.write_atomically(pipeline.checkpoint / _IDENTITY_FILE, msgspec.json.encode(self))


def read_identity(pipeline: Pipeline) -> Identity | None:
    """Returns the identity of an existing checkpoint, else None. Raises StoreError for one with
    other sources or patterns, and InputError for an output that belongs to another checkpoint.
    """
    found = run_folder.read_state(pipeline.checkpoint / _IDENTITY_FILE, Identity)
    if found is None:
        if run_folder.holds_batches(pipeline.output):
            place = pipeline.checkpoint
            reason = f"holds the results of a stream with another checkpoint than {place}"
            raise InputError(str(pipeline.output), reason)
        return None
    expected = Identity.of(pipeline, found.query, found.parts)
    if found != expected:
        what = "sources" if found.sources != expected.sources else "patterns"
        reason = f"it is of other {what}; begin with an empty one"
        raise StoreError(f"the checkpoint {pipeline.checkpoint}: {reason}")
    return found
