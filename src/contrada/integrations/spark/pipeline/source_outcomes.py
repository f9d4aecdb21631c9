"""`open_sources` and `outcomes_of`: the records of sources as outcomes.

Workers read text formats by the readers of `contrada match`, so that both give the same results
(docs/spark.md has the sources). Spark's readers would lose exact integers, the difference between
NULL and `null`, unclosed quotes, line numbers, and the entries after a broken one.

The intermediate *rows* have a struct for each source: the rows of several sources are one frame,
and each micro-batch can be matched by another base.
"""

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError, InputError
from contrada.integrations.files import FORMATS, WHOLE, CsvRows, open_lines, parts_of
from contrada.integrations.files.csv_rows import columns_of, has_open_quote
from contrada.integrations.files.event_logs import EVTX
from contrada.integrations.files.lines import PART_BYTES, open_blocks, readable
from contrada.integrations.files.match_diagnosis import RECORDS_EXPLAINED_MAX, missing_attributes
from contrada.integrations.files.read_options import plain_format
from contrada.integrations.files.record import bad_record
from contrada.integrations.files.record_matcher import RecordFilter
from contrada.integrations.spark.pipeline import outcome_task as tasks
from contrada.integrations.spark.pipeline import worker_files
from contrada.integrations.spark.pipeline.job_progress import is_remote
from contrada.integrations.spark.pipeline.pipeline_description import Source
from contrada.integrations.spark.transforms.filter_bases import Base, is_local
from contrada.integrations.spark.transforms.notification_transform import builder_of
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model import Filter
from contrada.model.codec import notification_from_msgpack

FILE_COST_BYTES: Final = 2**16
"""The least size of a file when parts are distributed among tasks."""

LISTED_HERE_MAX: Final = 1_000
"""Local files that the driver inspects itself. Beyond it: a job does."""

COLUMNS_LISTED: Final = 20
"""Columns of a header that a message names. Beyond it: it has their number."""

OBSERVED: Final = "contrada"
"""The name of the metrics `read`, `bad` and `matched` for Spark's listeners."""

_GLOB: Final = re.compile(r"([\\*?\[\]{}])")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]+:")
_OF_FILES: Final = ("parquet", "orc", "avro")
_SOURCE: Final = "source"

OpenedSources = tuple[DataFrame, tasks.OutcomeTask]


def outcomes(session: SparkSession, source: Source, base: Base) -> DataFrame:
    """Returns the outcomes of a source's records, lazily, with the columns of OUTCOME_DDL.

    `subscriptions` are positions among the base's keys. Large files of lines are scanned once
    before, to find and count lines. Raises InputError without a file, and for a column that cannot
    be an attribute.
    """
    return outcomes_of(*open_sources(session, [source]), base)


def missing_in(session: SparkSession, source: Source, asked: Iterable[RecordFilter]) -> list[str]:
    """Returns the `missing_attributes` of the first records of a source. Cost: a job that reads
    about as many records.
    """
    every = outcomes(session, source, Base({0: Filter({})})).where("notification is not null")
    rows = every.select("notification").limit(RECORDS_EXPLAINED_MAX).collect()
    found = [notification_from_msgpack(bytes(row[0])) for row in rows]
    return missing_attributes(asked, found) if found else []


def open_sources(
    session: SparkSession, sources: Sequence[Source], *, stream: bool = False
) -> OpenedSources:
    """Returns the rows of several sources in one frame, and the task that makes outcomes of them.
    In a stream, give `outcomes_of` each micro-batch of the rows. Cost and errors: as `outcomes`;
    InputError in a stream without a folder.
    """
    frames, readers = [], []
    for place, source in enumerate(sources):
        opened = _open_texts if source.format in FORMATS else _open_table
        rows, reader = opened(session, source, stream)
        row = F.struct(*(F.col(name) for name in rows.columns)).alias(f"r{place}")
        frames.append(rows.select(F.lit(place).alias(_SOURCE), row))
        readers.append(reader)
    every = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
    return every, tasks.OutcomeTask(tuple(readers))


def outcomes_of(rows: DataFrame, task: tasks.OutcomeTask, base: Base) -> DataFrame:
    """Returns the outcomes of rows, matched by a base; listeners of Spark observe their counts."""
    shipped = replace(task, base=base.ship(rows.sparkSession))
    work = for_worker(partial(tasks.outcome_batches, shipped))
    made = rows.mapInArrow(work, tasks.OUTCOME_DDL)
    counts = {"read": F.sum("read"), "bad": F.sum("bad"), "matched": F.count("notification")}
    return made.observe(OBSERVED, *(count.alias(name) for name, count in counts.items()))


def describe_matching(source: Source, base: Base) -> str:
    """Describes how a source is read and matched."""
    return f"{source.format}; {len(base)} filter{'s' * (len(base) != 1)} by an index in workers"


# --- formats of Spark -----------------------------------------------------------------------------


def _open_table(
    session: SparkSession, source: Source, stream: bool
) -> tuple[DataFrame, tasks.SparkRows]:
    """Returns the rows of a format that Spark reads; the option `schema` has their columns."""
    options = dict(source.options)
    schema: Any = options.pop("schema", None)
    if stream and source.paths:
        worker_files.check_exists(source.name, _single_path(source, source.paths))
    if stream and schema is None and source.format in _OF_FILES and source.paths:
        # A stream of files needs the columns: those of present files.
        there = session.read.format(source.format).options(**options)
        schema = there.load(_single_path(source, source.paths)).schema
    reader: Any = session.readStream if stream else session.read
    if stream and source.format in _OF_FILES:
        reader = reader.option("maxFileAge", worker_files.ANY_AGE)
    reader = reader.options(**options)
    if source.format != "table":
        reader = reader.format(source.format)
    if schema is not None:
        reader = reader.schema(schema)
    if source.table is not None:
        frame = reader.table(source.table)
    elif not source.paths:
        frame = reader.load()
    elif stream or len(source.paths) == 1:
        frame = reader.load(_single_path(source, source.paths))
    else:
        frame = reader.load(list(source.paths))
    columns, builder = builder_of(frame, source.reading, source.of, source.column)
    named = [column.alias(str(n)) for n, column in enumerate(columns)]
    return frame.select(*named), tasks.SparkRows(source.name, builder)


def _single_path(source: Source, paths: Sequence[str]) -> str:
    if len(paths) != 1:
        reason = f"found {len(paths)} paths, expected one: a stream reads one path, or glob"
        raise InputError(f"source {source.name!r}", reason)
    return paths[0]


# --- text formats ---------------------------------------------------------------------------------


def missing_columns(session: SparkSession, source: Source, *, stream: bool) -> Iterator[str]:
    """Yields a line for each CSV file that lacks columns named in options. Skips Connect sessions,
    and addresses that Arrow does not know. Cost: a read of each header.
    """
    format_name, reading = plain_format(source.format, source.reading)
    if format_name != "csv" or is_remote(session):
        return
    try:
        addresses = worker_files.list_files(session, source.name, _paths_of(source), source.options)
    except InputError:
        if not stream:
            raise
        return  # Files may appear later.
    for address in addresses if worker_files.are_known(addresses) else ():
        shown = worker_files.display_name(address, None)
        try:
            columns = columns_of(open_blocks(worker_files.open_file(address)), reading)
        except ContradaError as error:
            yield f"{source.name}: {bad_record(shown, error, 1).error()}"
            continue
        if lacking := sorted(reading.names_expected().difference(columns, reading.drop)):
            found = list(map(repr, filter(None, columns)))
            rest = len(found) - COLUMNS_LISTED
            listed = ", ".join(found[:COLUMNS_LISTED]) + (f", and {rest} more" if rest > 0 else "")
            named = f"{', '.join(map(repr, lacking))}, which options name"
            yield f"{source.name}: {shown} lacks {named}; its columns are {listed}"


def _paths_of(source: Source) -> tuple[str, ...]:
    return source.paths or tuple(_GLOB.sub(r"\\\1", str(file)) for file in source.files)


def _open_texts(
    session: SparkSession, source: Source, stream: bool
) -> tuple[DataFrame, tasks.TextFiles]:
    paths = _paths_of(source)
    relative = not any(_ABSOLUTE.match(path) for path in paths)
    if relative and is_local(session):  # Java may have another working directory.
        paths = tuple(map(os.path.abspath, paths))
    files = tasks.TextFiles(
        source.name, source.format, source.reading, os.getcwd() if relative else None
    )
    if stream:
        path = _single_path(source, paths)
        worker_files.check_exists(source.name, path)
        columns = ("path",) if worker_files.are_known(paths) else ("path", "content")
        return worker_files.new_files(session, path, source.options).select(*columns), files
    addresses = worker_files.list_files(session, source.name, paths, source.options)
    if not worker_files.are_known(addresses):
        contents = worker_files.binary_files(session, paths, source.options)
        return contents.select("path", "content"), files
    parts = tuple(_distribute(_all_parts(session, addresses, source)))
    places = session.range(0, len(parts), 1, len(parts)).select(F.col("id").alias("place"))
    return places, replace(files, parts=parts)


def _all_parts(
    session: SparkSession, addresses: list[str], source: Source
) -> list[tuple[int, list[tasks.FilePart]]]:
    """Returns the size and the parts of each file: determined here, or in a job."""
    cut = partial(_split, source=source)
    schemes = set(map(worker_files.scheme_of, addresses))
    is_here = is_local(session) and schemes == {worker_files.LOCAL}
    if is_here and len(addresses) <= LISTED_HERE_MAX:
        return list(map(cut, addresses))
    places = session.range(0, len(addresses), 1, min(len(addresses), LISTED_HERE_MAX))
    work = for_worker(partial(_split_batches, addresses, cut), needs_kernels=False)
    rows = places.mapInArrow(work, "cut binary")
    return [pickle.loads(row["cut"]) for row in rows.collect()]


def _split_batches(
    addresses: list[str], cut: Callable[[str], Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        cuts = [cut(addresses[each]) for each in batch.column(0).to_pylist()]
        yield pa.record_batch([list(map(pickle.dumps, cuts))], ["cut"])


def _split(address: str, source: Source) -> tuple[int, list[tasks.FilePart]]:
    """Returns the size and the parts of a file; a single part if its reader will raise an error. A
    file whose rows span several lines is one part, too: one task must find where each row begins.
    """
    whole = [tasks.FilePart(address)]
    format_name, reading = plain_format(source.format, source.reading)
    is_rows = format_name == "csv"
    try:
        file = worker_files.open_file(address)
        with readable(file), file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
        if format_name in ("xml", EVTX) or (reading.entries and not is_rows):
            return size, whole
        is_whole = partial(has_open_quote, quote=reading.quote) if is_rows else None
        first, *rest = parts_of(file, is_whole) if size > PART_BYTES else (WHOLE,)
        header = None
        if rest and is_rows:
            header = next(open_lines(file), "")  # It may be empty meanwhile.
            CsvRows(header, reading)
    except ContradaError:
        return 0, whole
    return size, [
        tasks.FilePart(address, first),
        *(tasks.FilePart(address, part, header) for part in rest),
    ]


def _distribute(
    files: Iterable[tuple[int, list[tasks.FilePart]]],
) -> Iterator[tuple[tasks.FilePart, ...]]:
    """Yields the parts for each task: about PART_BYTES together."""
    held: list[tasks.FilePart] = []
    size = 0
    for size_of_file, parts in files:
        for each in parts:
            end = each.part.end or size_of_file
            held.append(each)
            size += max(end - each.part.begin, FILE_COST_BYTES)
            if size >= PART_BYTES:
                yield tuple(held)
                held, size = [], 0
    if held:
        yield tuple(held)
