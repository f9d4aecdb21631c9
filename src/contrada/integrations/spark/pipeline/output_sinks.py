"""`matches_of`, `quarantine_of`, `write_table`: result rows, their folders and tables."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import InputError
from contrada.integrations.files import FORMATS
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, TableSink
from contrada.integrations.spark.pipeline.worker_files import GONE

TEXT_FORMATS: Final = tuple(FORMATS)
"""The formats of sources that Spark does not read."""

SPARK_FORMATS: Final = ("parquet", "orc", "csv", "json", "text", "xml", "jdbc", "contrada")
"""Built-in formats, some of which are slow to look up."""

_UNKNOWN: Final = re.compile(r"\[\w*DATA_SOURCE_NOT_(FOUND|ENABLED)\]")


def check_format(session: SparkSession, place: str, name: str, *also: str) -> None:
    """Raises InputError for a format that Spark does not know; `also` names further known ones."""
    if name in (*also, *SPARK_FORMATS):
        return
    try:
        session.read.format(name).load()
    except (PySparkException, Py4JJavaError) as error:  # A known format raises other errors.
        if _UNKNOWN.search(str(error)):
            known = ", ".join(dict.fromkeys((*also, *SPARK_FORMATS)))
            package = "one whose package Spark has, by --conf spark.jars.packages=…"
            reason = f"found the format {name!r}, expected {known}, or {package}"
            raise InputError(place, reason) from None


MATCHES_DDL = (
    "subscription string, source string, file string, record bigint, time timestamp, "
    "attributes string, notification binary, is_first boolean, date date, type string"
)
"""The columns of matches. `is_first` is true once for each record."""

BATCH = "batch"
"""The column of a stream's tables with the number of the micro-batch."""


def matches_of(
    outcomes: DataFrame, names: Sequence[str], types: Mapping[str, str], version: int | None = None
) -> DataFrame:
    """Returns a row for each pair of a subscription and a record. `types` has the type of each
    source; in a stream, `version` is that of the subscriptions.
    """
    columns = [pa.array(range(len(names)), pa.int32()), pa.array(names, pa.string())]
    table = pa.table(columns, ["position", "subscription"])
    schema = "position INT, subscription STRING"
    named = outcomes.sparkSession.createDataFrame(table, schema)
    position = F.explode("subscriptions").alias("position")
    first = F.element_at("subscriptions", 1).alias("first")
    time = F.timestamp_micros("time_us").alias("time")
    place, content = ("source", "file", "record"), ("attributes", "notification")
    matched = outcomes.where("notification is not null")
    pairs = matched.select(position, first, time, *place, *content)
    is_first = (F.col("position") == F.col("first")).alias("is_first")
    by_source = F.create_map(*(F.lit(each) for pair in types.items() for each in pair))
    kind = by_source[F.col("source")].alias("type")
    versions = () if version is None else (F.lit(version).alias("version"),)
    return pairs.join(F.broadcast(named), "position").select(
        *("subscription", *place, "time", *content),
        *(is_first, date_of("time").alias("date"), kind, *versions),
    )


def date_of(column: str) -> Column:
    """Returns the day of a time; NULL is the first day of 1970, as everywhere."""
    return F.coalesce(F.to_date(column), F.lit(date(1970, 1, 1)))


def quarantine_of(
    outcomes: DataFrame, gone: Mapping[str, Sequence[str]] | None = None
) -> DataFrame:
    """Returns the bad records, and the files of each source that are `gone`."""
    bad = outcomes.where("reason is not null").select(
        "source", "file", F.col("record").alias("line"), "column", "reason", "text"
    )
    rows = [
        (name, file, None, None, GONE, None) for name in gone or () for file in (gone or {})[name]
    ]
    return bad.union(outcomes.sparkSession.createDataFrame(rows, bad.schema)) if rows else bad


def types_of(pipeline: Pipeline) -> dict[str, str]:
    """Returns the type of each source's records: the most special mark, else the source's name."""
    return {each.name: (*each.reading.marks[-1:], each.name)[0] for each in pipeline.sources}


def write_parquet(frame: DataFrame, path: str, *partitions: str) -> None:
    """Replaces a Parquet folder. Each partition has one file or a few."""
    if partitions:
        frame = frame.hint("rebalance", *partitions)
    frame.write.mode("overwrite").partitionBy(*partitions).parquet(path)


def publish_rows(rows: DataFrame, **options: str) -> None:
    """Publishes the notifications of rows with options of `format("contrada")`."""
    writer = rows.select("notification").write.format("contrada").mode("append")
    writer.options(**options).save()


def check_table(session: SparkSession, sink: TableSink, frame: DataFrame) -> str:
    """Describes the writing to a table. Raises InputError for other columns or formats."""
    check_format(session, f"table {sink}", sink.format)
    try:
        if sink.table is None or not session.catalog.tableExists(sink.table):
            return f"{sink}: {sink.rows} as {sink.format}" + (", a new table" if sink.table else "")
        there = _columns(session.table(sink.table))
    except AnalysisException as error:
        raise InputError(str(sink), str(error).splitlines()[0]) from None
    given = _columns(frame)
    if there != given:
        shown = ", ".join(sorted(there.keys() ^ given.keys())) or "their types"
        raise InputError(sink.table, f"has other columns than {sink.rows}: {shown}")
    return f"{sink}: {sink.rows} into the table that is there"


def _columns(frame: DataFrame) -> dict[str, str]:
    """Returns names and types, ignoring nullability."""
    return {each.name: each.dataType.simpleString() for each in frame.schema}


def write_table(frame: DataFrame, sink: TableSink, batch: int | None = None) -> None:
    """Replaces all rows of a table, or in a stream those of this micro-batch."""
    session = frame.sparkSession
    if batch is not None:
        frame = frame.withColumn(BATCH, F.lit(batch).cast("bigint"))
    partitions = () if batch is None else (BATCH,)
    mode = "static" if batch is None else "dynamic"
    writer = frame.write.format(sink.format).options(**sink.options).mode("overwrite")
    writer = writer.option("partitionOverwriteMode", mode)
    if sink.path is not None:
        writer.partitionBy(*partitions).save(sink.path)
        return
    assert sink.table is not None
    if not session.catalog.tableExists(sink.table):
        empty = frame.limit(0).write.format(sink.format).options(**sink.options)
        empty.partitionBy(*partitions).saveAsTable(sink.table)
    columns = session.table(sink.table).columns
    try:
        into = frame.select(*columns).write.mode("overwrite")
        into.option("partitionOverwriteMode", mode).insertInto(sink.table)
    except AnalysisException as error:
        raise InputError(sink.table, str(error).splitlines()[0]) from None
