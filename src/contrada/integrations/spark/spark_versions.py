"""The differences between Spark 4.0 and later versions that this room has to know.

| absent before | what | here instead |
|---|---|---|
| 4.1 | `arrow_udf` | None: whole rows are sent to workers (`frame_match`) |
| 4.1 | `repartitionById` | `repartition_by_id`, by hashes |
| 4.1 | `approx_top_k` | `profile` raises MissingRequirementError |
| 4.1 | pushed filters of Python readers | a reader without them (`data_source.is_pushing`) |
| 4.1 | `DataSourceStreamArrowWriter` | a writer of rows, which `record_batches` converts |
| 4.2 | bounds of a stream's batches, the start of a batch | `ReadMaxRows` is None |
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it
from pyspark.sql.pandas import functions
from pyspark.sql.pandas.types import to_arrow_schema

HASHED_NUMBERS: Final = 64
"""Numbers for each partition among which one is hashed into it."""

arrow_udf: Final[Any] = getattr(functions, "arrow_udf", None)
"""PySpark's function; its annotations require a function type, which PySpark itself warns of."""

StreamArrowWriter: Any = getattr(D, "DataSourceStreamArrowWriter", D.DataSourceStreamWriter)

SupportsAvailableNow: Any = object
ReadMaxRows: Any = None
ReadAllAvailable: Any = None
try:
    from pyspark.sql.streaming import datasource as _streams
except ImportError:
    pass
else:
    SupportsAvailableNow = _streams.SupportsTriggerAvailableNow
    ReadMaxRows, ReadAllAvailable = _streams.ReadMaxRows, _streams.ReadAllAvailable


def utc_arrow_schema(schema: T.StructType) -> pa.Schema:
    """Returns the Arrow schema of a frame, with times in UTC."""
    convert: Any = to_arrow_schema
    try:
        return convert(schema, timezone="UTC")
    except TypeError:  # Before 4.2 times are always in UTC.
        return convert(schema)


def repartition_by_id(frame: DataFrame, parts: int, column: str) -> DataFrame:
    """Returns a frame whose rows are in the partition of the number in a column. Cost before 4.1: a
    job that finds a number for each partition that Spark hashes into it.
    """
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(parts, column)
    hashed = F.pmod(F.hash("id"), F.lit(parts)).alias("part")
    numbers = frame.sparkSession.range(HASHED_NUMBERS * parts).groupBy(hashed).agg(F.min("id"))
    keys = F.array(*(F.lit(row[1]).cast("bigint") for row in sorted(numbers.collect())))
    return frame.repartition(parts, F.get(keys, F.col(column)))


def record_batches(given: Iterable[Any], column: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches unchanged, and `rows` rows at a time as batches of one binary column."""
    given = iter(given)
    for first in given:
        if isinstance(first, pa.RecordBatch):
            yield first
            continue
        some = [first, *itertools.islice(given, rows - 1)]
        yield pa.RecordBatch.from_pydict(
            {column: pa.array([row[column] for row in some], "binary")}
        )
