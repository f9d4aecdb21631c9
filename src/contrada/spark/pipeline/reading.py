"""Sources to DataFrames of outcomes: who reads what.

Files of lines are cut into parts of whole lines, documents are parts as they are. Tasks read parts
with the readers of `contrada match`, so that both give the same. Spark's own `csv` and `json`
readers would lose what must be kept: the exact integers and the difference between NULL and `null`,
quotes that are never closed, which line it was. Its `xml` reader loses what follows a broken entry.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from contrada.errors import ContradaError, InputError
from contrada.records import Rows, open_lines, parts_of
from contrada.records.joining import has_open_quote
from contrada.records.lines import PART_BYTES
from contrada.records.reading import plain_format
from contrada.spark.pipeline.description import Source
from contrada.spark.pipeline.matching import OUTCOME_DDL, FilePart, Task
from contrada.spark.transforms.bases import Base

FILE_COST_BYTES: Final = 2**16
"""A file counts for at least as many bytes when parts are dealt out to tasks."""


def outcomes(
    session: SparkSession, source: Source, base: Base, *, stream: bool = False
) -> DataFrame:
    """The outcomes of a source's records, not yet computed. See OUTCOME_DDL for the columns.

    `subscriptions` are positions among the base's keys. Of a stream, each micro-batch has what is
    new, with a counting row for each of its tasks.

    The driver looks at each large file of lines once, to find lines and count them.
    """
    if stream:
        raise InputError(f"source {source.name!r}", "files are not read as a stream yet")
    shown = {str(path.absolute()): str(path) for path in source.files}
    parts = tuple(_dealt(part for path in shown for part in _parts(path, source)))
    told = base.ship(session)
    task = Task(source.name, source.format, source.reading, told, shown, parts)
    places = session.range(0, len(parts), 1, len(parts))
    return places.mapInArrow(task.of_parts, OUTCOME_DDL)


def _parts(path: str, source: Source) -> list[FilePart]:
    """The parts of a file; it is one where its reader will have to say what is wrong with it."""
    format_name, reading = plain_format(source.format, source.reading)
    is_rows = format_name == "csv"
    if format_name == "xml" or (reading.entries and not is_rows):
        return [FilePart(path)]
    try:
        # Where rows take several lines one task has to find where each begins.
        is_whole = partial(has_open_quote, quote=reading.quote) if is_rows else None
        first, *rest = parts_of(Path(path), is_whole)
        header = None
        if rest and is_rows:
            header = next(open_lines(Path(path)))
            Rows(header, reading)
    except ContradaError:
        return [FilePart(path)]
    return [FilePart(path, first), *(FilePart(path, part, header) for part in rest)]


def _dealt(parts: Iterable[FilePart]) -> Iterator[tuple[FilePart, ...]]:
    """The parts that each task reads: about PART_BYTES together."""
    held: list[FilePart] = []
    size = 0
    for each in parts:
        end = each.part.end or _size(each.path)
        held.append(each)
        size += max(end - each.part.begin, FILE_COST_BYTES)
        if size >= PART_BYTES:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def _size(path: str) -> int:
    """The bytes of a file, 0 where it cannot be asked; its reader will say so."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
