"""`counts_of`, `matches_of`, `write_report`: counts, rows, tables and reports of outcomes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import InputError
from contrada.integrations.spark.pipeline.hadoop_paths import Folder
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source, TableSink
from contrada.integrations.spark.pipeline.run_folder import write_atomically

REASONS_MAX: Final = 10
"""The most frequent reasons of a source's bad records. Beyond it: the quarantine has all."""


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """The results of one source. `matched` counts notifications, not pairs. `reasons` are the most
    frequent reasons of bad records; `unmet` are attributes in options that no record had.
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
        """Records read and matched per second."""
        return (self.read + self.bad) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """The results of a run: `matches` by subscription, `patterns` by pattern, the folder `output`,
    `stages` as seconds, `plan` as the way of matching by source, `refused` rules of other dialects,
    `versions` of a stream's subscriptions; `missing` names, after a run of present data without a
    match, the attributes in filters that the first records of a source do not have.
    """

    sources: tuple[SourceSummary, ...]
    matches: dict[str, int]
    published: int
    publish_seconds: float
    seconds: float
    output: str
    mode: str = "batch"
    run: str = ""
    batches: int = 0
    patterns: dict[str, int] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)
    plan: dict[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The counts of one source: `matches` by the positions of subscriptions. A sum has no
    `matches`, since positions differ between versions of the subscriptions.
    """

    read: int = 0
    bad: int = 0
    matched: int = 0
    matches: dict[int, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: "SourceCounts") -> "SourceCounts":
        # Counts without any record do not restrict the attributes absent in both.
        unmet = [{*each.unmet} for each in (self, other) if each.read]
        return SourceCounts(
            self.read + other.read,
            self.bad + other.bad,
            self.matched + other.matched,
            reasons=Counter(self.reasons) + Counter(other.reasons),
            unmet=tuple(sorted(set.intersection(*unmet) if unmet else ())),
            seconds=self.seconds + other.seconds,
        )

    def with_bad(self, reasons: Sequence[str]) -> "SourceCounts":
        """Returns the counts with more bad records for these reasons."""
        every = Counter(self.reasons) + Counter(reasons)
        return replace(self, bad=self.bad + len(reasons), reasons=dict(every))

    def summary(self, source: str, published: int = 0) -> SourceSummary:
        """Returns the summary of the source."""
        frequent = sorted(self.reasons.items(), key=lambda each: (-each[1], each[0]))
        counts = (self.read, self.bad, self.matched, published)
        reasons = dict(frequent[:REASONS_MAX])
        return SourceSummary(source, *counts, self.seconds, reasons, self.unmet)


def sum_rows(rows: Iterable[Sequence[Any]], names: Iterable[str]) -> dict[str, SourceCounts]:
    """Sums rows by source. A row has a source, a position (None is that of outcomes without a
    match), the sums of read and of bad records, the outcomes at the position, and those whose first
    position it is. Cost: linear in rows, of which there is one for each position.
    """
    sums: dict[str, list[int]] = {name: [0, 0, 0] for name in names}
    matches: dict[str, dict[int, int]] = {name: {} for name in sums}
    for source, position, read, bad, count, first in rows:
        of_source = sums[source]
        of_source[0] += read or 0
        of_source[1] += bad or 0
        of_source[2] += first
        if position is not None:
            matches[source][position] = count
    return {
        name: SourceCounts(read, bad, matched, matches[name])
        for name, (read, bad, matched) in sums.items()
    }


def counts_of(
    outcomes: DataFrame, sources: Iterable[Source], subscriptions: int
) -> dict[str, SourceCounts]:
    """Counts outcomes by source. Positions behind the subscriptions do not count. Cost: a job over
    the outcomes; further jobs if some are bad, or options name attributes.
    """
    # NULL is the position of rows without a match, so that one job counts all rows.
    at = F.explode_outer("subscriptions").alias("at")
    pairs = outcomes.select("source", "read", "bad", "subscriptions", at)
    counted = pairs.where(f"at is null or at < {subscriptions}").groupBy("source", "at")
    first = F.count_if(F.expr("at = subscriptions[0]"))
    rows = counted.agg(F.sum("read"), F.sum("bad"), F.count("at"), first).collect()
    sources = tuple(sources)
    found = sum_rows(rows, [each.name for each in sources])
    reasons = _reasons(outcomes) if any(each.bad for each in found.values()) else {}
    unmet = _unmet(outcomes, [each for each in sources if found[each.name].read])
    return {
        name: replace(each, reasons=reasons.get(name, {}), unmet=unmet.get(name, ()))
        for name, each in found.items()
    }


def _reasons(outcomes: DataFrame) -> dict[str, dict[str, int]]:
    """Returns the most frequent reasons of each source's bad records, with counts."""
    counted = outcomes.where("reason is not null").groupBy("source", "reason").count()
    found: dict[str, dict[str, int]] = {}
    nth = F.expr("row_number() over (partition by source order by count desc, reason)")
    for row in counted.withColumn("nth", nth).where(f"nth <= {REASONS_MAX}").collect():
        found.setdefault(row["source"], {})[row["reason"]] = row["count"]
    return found


def _unmet(outcomes: DataFrame, sources: list[Source]) -> Mapping[str, tuple[str, ...]]:
    """Returns the attributes in options of a source that no task has seen."""
    asked = [each.name for each in sources if each.reading.names_expected()]
    if not asked:
        return {}
    tasks = outcomes.where("read > 0 and unmet is not null").select("source", "unmet").collect()
    found: dict[str, set[str]] = {}
    for name, unmet in tasks:
        found[name] = found.get(name, set(unmet)) & set(unmet)
    return {name: tuple(sorted(found.get(name, ()))) for name in asked}


# --- rows and tables ------------------------------------------------------------------------------

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
            package = "one with its package in Spark, by --conf spark.jars.packages=…"
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
    outcomes: DataFrame, files: Mapping[str, Mapping[str, str]] | None = None
) -> DataFrame:
    """Returns the bad records, and each source's bad `files` with reasons."""
    bad = outcomes.where("reason is not null").select(
        "source", "file", F.col("record").alias("line"), "column", "reason", "text"
    )
    rows = [
        (name, file, None, None, reason, None)
        for name, bad_files in (files or {}).items()
        for file, reason in bad_files.items()
    ]
    return bad.union(outcomes.sparkSession.createDataFrame(rows, bad.schema)) if rows else bad


def types_of(pipeline: Pipeline) -> dict[str, str]:
    """Returns the type of each source's records: the most special mark, else the source's name."""
    return {each.name: (*each.reading.marks[-1:], each.name)[0] for each in pipeline.sources}


# Their values differ: a dictionary would cost a quarter of the writing, and be dropped.
_NO_DICTIONARY: Final = {
    f"parquet.enable.dictionary#{each}": "false" for each in ("attributes", "notification")
}


def write_parquet(frame: DataFrame, path: str, *partitions: str) -> None:
    """Replaces a Parquet folder. Each partition has one file or a few."""
    if set(partitions) - {"type"}:  # Rows of one type are side by side: those of some sources.
        frame = frame.hint("rebalance", *partitions)
    writer = frame.write.options(**_NO_DICTIONARY).mode("overwrite")
    writer.partitionBy(*partitions).parquet(path)


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


# --- reports --------------------------------------------------------------------------------------

SUBSCRIPTIONS_SHOWN_MAX: Final = 1_000
"""Subscriptions on the page, by matches. Beyond it: `report.json` has all of them."""


def write_report(summary: PipelineSummary, folder: Folder) -> None:
    """Writes `report.json` for programs and `report.html` for people, replacing former ones."""
    write_atomically(folder / "report.json", msgspec.json.format(msgspec.json.encode(summary)))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frequent = sorted(summary.matches.items(), key=lambda each: -each[1])[:SUBSCRIPTIONS_SHOWN_MAX]
    page = environment.get_template("report.html.jinja").render(summary=summary, frequent=frequent)
    write_atomically(folder / "report.html", page.encode())
