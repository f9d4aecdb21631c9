"""Sources to DataFrames of outcomes: who reads what.

- CSV and JSON are cut into parts of whole lines, which tasks read with the reader of `contrada
  match`. Spark's own `csv` and `json` readers would lose what must be kept: the exact integers
  and the difference between NULL and `null`, quotes that are never closed, which line it was.
- XML comes through Spark's own `xml` format, a whole document as one VARIANT of texts; see
  `contrada.spark.trees` for what is left to our parser, which every document falls back to. So
  are documents that Spark would skip (hidden files, names with wildcards).

So a file is either read the same way on both paths, or by the same reader.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError
from contrada.records import open_lines, parts_of
from contrada.records.lines import PART_BYTES
from contrada.records.rows import header_rows
from contrada.spark.description import Source
from contrada.spark.matching import OUTCOME_DDL, FilePart, Task
from contrada.spark.trees import ATTRIBUTE_PREFIX, TEXT_NAME, spark_root

FILE_COST_BYTES: Final = 2**16
"""A file counts for at least as many bytes when parts are dealt out to tasks."""

_HIDDEN: Final = ("_", ".")
_WILDCARDS: Final = frozenset("*?[]{}\\,")


def outcomes_of(session: SparkSession, source: Source, filters: tuple[bytes, ...]) -> DataFrame:
    """The outcomes of a source's records, not yet computed. See OUTCOME_DDL for the columns.

    The driver looks at each large file once, to find lines and count them, and at all documents.
    """
    shown = {str(path.absolute()): str(path) for path in source.files}
    task = Task(source.format, source.reading, filters, shown)
    if source.format != "xml":
        return _of_parts(session, [part for path in shown for part in _parts(path, source)], task)
    roots = {path: spark_root(Path(path)) if _spark_can_name(path) else None for path in shown}
    frames = _of_documents(session, {path: root for path, root in roots.items() if root}, task)
    if own := [FilePart(path) for path, root in roots.items() if root is None]:
        frames.append(_of_parts(session, own, task))
    return reduce(DataFrame.unionAll, frames)


def _spark_can_name(path: str) -> bool:
    """Whether Spark takes the path as it stands and does not skip the file as hidden."""
    return not (_WILDCARDS & set(path)) and not Path(path).name.startswith(_HIDDEN)


def _parts(path: str, source: Source) -> list[FilePart]:
    """The parts of a file; it is one where its reader will have to say what is wrong with it."""
    try:
        first, *rest = parts_of(Path(path))
        header = None
        if rest and source.format == "csv":
            header = next(open_lines(Path(path)))
            header_rows(header, source.reading)
    except ContradaError:
        return [FilePart(path)]
    return [FilePart(path, first), *(FilePart(path, part, header) for part in rest)]


def _of_parts(session: SparkSession, parts: Iterable[FilePart], task: Task) -> DataFrame:
    dealt = tuple(_dealt(parts))
    places = session.range(0, len(dealt), 1, len(dealt))
    return places.mapInArrow(replace(task, parts=dealt).of_parts, OUTCOME_DDL)


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


def _of_documents(session: SparkSession, roots: dict[str, str], task: Task) -> list[DataFrame]:
    by_root: dict[str, list[str]] = defaultdict(list)
    for path, root in roots.items():
        by_root[root].append(path)
    return [
        document_trees(session, root, paths).mapInArrow(task.of_trees, OUTCOME_DDL)
        for root, paths in by_root.items()
    ]


def document_trees(session: SparkSession, root: str, paths: Sequence[str]) -> DataFrame:
    """Documents of one kind of root as rows (file, root, tree), each file at least once.

    `tree` is JSON for `contrada.spark.trees.tree_of`, NULL where Spark reads no document; the
    join keeps those.
    """
    reader = session.read.format("xml").options(
        rowTag=root,
        singleVariantColumn="document",
        inferSchema=False,
        attributePrefix=ATTRIBUTE_PREFIX,
        valueTag=TEXT_NAME,
        mode="PERMISSIVE",
        # One document that makes the reader fail would end the job; the join finds it again.
        ignoreCorruptFiles=True,
    )
    trees = reader.load(list(paths)).select(
        _path_of(F.col("_metadata.file_path")).alias("file"), F.to_json("document").alias("tree")
    )
    files = session.createDataFrame([(path, root) for path in paths], "file string, root string")
    return files.join(trees, "file", "left").select("file", "root", "tree")


def _path_of(uri: Column) -> Column:
    """The path of a local file whose address Spark gives, as a file of this machine has it."""
    path = F.regexp_replace(uri, "^file:/+", "/")
    return F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
