"""Sources to DataFrames of outcomes: which reader of Spark is trusted with which file.

- CSV and JSON come through Spark's text reader, line by line, and the workers take the lines
  apart. Spark's own `csv` and `json` readers would drop what must be kept: the exact integers
  and the difference between NULL and `null`, quotes that are never closed, which line it was.
- XML comes through Spark's own `xml` format, a whole document as one VARIANT of texts; see
  `contrada.spark.trees` for what is left to our parser, which every document falls back to.
- What Spark would skip, misread or die of (hidden files, names with wildcards, damaged
  archives, a CSV file without a header) is read by a task with the reader of `contrada match`.

So a file is either read the same way on both paths, or by the same reader.
"""

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError
from contrada.records import open_lines
from contrada.records.rows import header_rows
from contrada.spark.description import Source
from contrada.spark.matching import OUTCOME_DDL, Place, Task, local_path
from contrada.spark.trees import ATTRIBUTE_PREFIX, TEXT_NAME, spark_root

WHOLE_FILE_BYTES: Final = 4 * 2**20
"""Bytes of a file that Spark never cuts (spark.sql.files.openCostInBytes). Beyond it: the lines of
its parts are counted first."""

_CHUNK_BYTES: Final = 2**20
_HIDDEN: Final = ("_", ".")
_WILDCARDS: Final = frozenset("*?[]{}\\,")


def outcomes_of(session: SparkSession, source: Source, filters: tuple[bytes, ...]) -> DataFrame:
    """The outcomes of a source's records, not yet computed. See OUTCOME_DDL for the columns.

    The driver looks at each file once: at the first line of CSV, at all of a document.
    """
    shown = {str(path.absolute()): str(path) for path in source.files}
    own = [path for path in shown if not _spark_can_name(path)]
    rest = [path for path in shown if path not in set(own)]
    frames = []
    if source.format == "xml":
        roots = {path: spark_root(Path(path)) for path in rest}
        own += [path for path, root in roots.items() if root is None]
        task = Task(source.format, source.reading, filters, shown)
        frames += _of_documents(session, {path: root for path, root in roots.items() if root}, task)
    else:
        headers = _headers(rest, source)
        own += [path for path in rest if path not in headers]
        task = Task(source.format, source.reading, filters, shown, headers)
        frames += _of_lines(session, list(headers), task)
    if own:
        paths = session.createDataFrame([(path,) for path in own], "file string")
        frames.append(paths.mapInArrow(task.of_files, OUTCOME_DDL))
    return reduce(DataFrame.unionAll, frames)


def _spark_can_name(path: str) -> bool:
    """Whether Spark takes the path as it stands and does not skip the file as hidden."""
    return not (_WILDCARDS & set(path)) and not Path(path).name.startswith(_HIDDEN)


def _headers(paths: Iterable[str], source: Source) -> dict[str, str]:
    """The first line of each file that Spark can be trusted with (empty for JSON)."""
    headers = {}
    for path in paths:
        if not _is_whole(Path(path)):
            continue
        if source.format == "json":
            headers[path] = ""
            continue
        try:
            header = next(open_lines(Path(path)), None)
            if header is not None:
                header_rows(header, source.reading)
                headers[path] = header
        except ContradaError:
            continue  # our reader will say what is wrong with it, as a bad record
    return headers


def _is_whole(path: Path) -> bool:
    """Whether a compressed file can be unpacked to its end; a damaged one would end the job."""
    if path.suffix != ".gz":
        return path.suffix not in (".bz2", ".lz4", ".snappy", ".deflate", ".zst", ".zstd")
    try:
        with gzip.open(path) as stream:
            while stream.read(_CHUNK_BYTES):
                pass
    except (OSError, EOFError, zlib.error):
        return False
    return True


def _of_lines(session: SparkSession, paths: list[str], task: Task) -> list[DataFrame]:
    if not paths:
        return []
    # As bytes: a line that is not UTF-8 must come through to be reported.
    lines = session.read.text(paths).select(
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.col("value").cast("binary").alias("line"),
    )
    if any(Path(path).stat().st_size > WHOLE_FILE_BYTES for path in paths):
        task = replace(task, first_lines=_first_lines(lines))
    return [lines.mapInArrow(task.of_lines, OUTCOME_DDL)]


def _first_lines(lines: DataFrame) -> dict[Place, int]:
    """The number of the first line of each part; costs one pass that only counts."""
    parts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in lines.groupBy("file", "block").count().collect():
        parts[local_path(row["file"])].append((row["block"], row["count"]))
    first: dict[Place, int] = {}
    for path, counted in parts.items():
        number = 1
        for block, count in sorted(counted):
            first[path, block] = number
            number += count
    return first


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
    """The path of a local file whose address Spark gives, as `local_path` does in a task."""
    path = F.regexp_replace(uri, "^file:/+", "/")
    return F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
