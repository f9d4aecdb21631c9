"""`check_pipeline` and `plan_lines`: the checks before a run, and its plan."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.connections import connect
from contrada.errors import InputError
from contrada.integrations.spark.pipeline.checkpoint_identity import read_identity
from contrada.integrations.spark.pipeline.hadoop_paths import HadoopPath
from contrada.integrations.spark.pipeline.job_progress import is_remote
from contrada.integrations.spark.pipeline.outcome_task import OUTCOME_DDL
from contrada.integrations.spark.pipeline.output_sinks import (
    BATCH,
    TEXT_FORMATS,
    check_format,
    check_table,
    date_of,
    matches_of,
    quarantine_of,
    types_of,
)
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, check_owned
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    LoadedSubscriptions,
    load_origins,
)
from contrada.integrations.spark.pipeline.run_folder import check_kind, check_unlocked
from contrada.integrations.spark.pipeline.source_outcomes import (
    describe_matching,
    missing_columns,
    open_sources,
)
from contrada.integrations.spark.spark_session import cause_of
from contrada.integrations.spark.transforms.detection_worker import MATCHES_SCHEMA
from contrada.integrations.spark.transforms.filter_bases import Base, SubscribedInterest
from contrada.model import FilterSet


def check_reachable(address: str) -> None:
    """Raises ConnectionFailedError if no service answers."""

    async def reach() -> None:
        async with connect(address, reconnect=False):
            pass

    asyncio.run(reach())


def filters_of_base(pipeline: Pipeline, asked: LoadedSubscriptions) -> list[SubscribedInterest]:
    """Returns the filters of a pipeline's base: its subscriptions, then the steps of its
    patterns.
    """
    steps = [each for pattern in pipeline.patterns.values() for each in pattern.filters]
    return [*asked.filters.values(), *steps] or [FilterSet([])]  # A base needs a subscription.


def base_of(pipeline: Pipeline, asked: LoadedSubscriptions) -> Base:
    """Returns the base of a pipeline, with positions as keys."""
    return Base(dict(enumerate(filters_of_base(pipeline, asked))))


def check_pipeline(
    session: SparkSession, pipeline: Pipeline, address: str | None
) -> LoadedSubscriptions:
    """Checks the requirements of a run; returns the present subscriptions. Raises
    ConnectionFailedError, InputError.
    """
    check_places(session, pipeline)
    if address:
        check_reachable(address)
    asked = pipeline.asked or load_origins(pipeline.origins)
    for source in pipeline.sources:
        if not source.files:  # The description has checked files of lines.
            check_format(session, f"source {source.name!r}", source.format, *TEXT_FORMATS)
            with named_source(source.name):
                open_sources(session, [source], stream=pipeline.is_stream)
    for sink in pipeline.tables:
        check_table(session, sink, _rows_of(session, pipeline, sink.rows))
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


def _rows_of(session: SparkSession, pipeline: Pipeline, rows: str) -> DataFrame:
    """Returns an empty frame of the rows that a table takes."""
    empty = session.createDataFrame([], OUTCOME_DDL)
    if rows == "matches":
        found = matches_of(empty, [], types_of(pipeline), 0 if pipeline.is_stream else None)
    elif rows == "quarantine":
        found = quarantine_of(empty)
    else:
        found = session.createDataFrame([], MATCHES_SCHEMA).drop(BATCH)
        found = found.withColumn("date", date_of("time"))
    return found.withColumn(BATCH, F.lit(0).cast("bigint")) if pipeline.is_stream else found


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
            yield from missing_columns(session, source, stream=pipeline.is_stream)


def plan_lines(session: SparkSession, pipeline: Pipeline, publish: str | None) -> Iterator[str]:
    """Describes a run after all checks. Writes nothing. Raises as `check_pipeline`; InputError
    while another run is writing, and StoreError for a checkpoint of another pipeline.
    """
    check_places(session, pipeline)
    check_unlocked(pipeline.output)
    check_kind(pipeline.output, is_stream=pipeline.is_stream)
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
        yield f"source {source.name}: {read}; {describe_matching(source, base)}"
    yield f"into {pipeline.output}: matches, quarantine" + ", patterns" * bool(pipeline.patterns)
    for sink in pipeline.tables:
        yield f"into {check_table(session, sink, _rows_of(session, pipeline, sink.rows))}"
    if address:
        yield f"to {address}, delivery {pipeline.delivery}"
    if pipeline.is_stream:
        every = pipeline.trigger_us
        when = "until all is read that is there" if every is None else f"every {every / 1e6:g} s"
        yield f"as a stream, {when}, kept in {pipeline.checkpoint}"
