"""Frames where one value is in most rows, and all filters are on one attribute."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada import Index, Notification, to_msgpack
from contrada.integrations.spark import Base, match, plan, route
from contrada.integrations.spark.spark_versions import arrow_udf
from contrada.integrations.spark.transforms import packed_rows
from contrada.integrations.spark.transforms.frames import TEXT
from contrada.integrations.spark.transforms.packed_rows import WorkerSetup, key_lists

ROWS: Final = 2_000
HOT: Final = "hot"
SYMBOLS: Final = [HOT if n % 10 else f"v{n % 70}" for n in range(ROWS)]
"""Nine of ten are equal; between them the others."""

WISHES: Final[dict[str, Any]] = {
    **{f"hot {n}": f"symbol = '{HOT}'" for n in range(8)},
    **{f"cold {n}": f"symbol = 'v{n}'" for n in range(100)},
    **{f"prefix {n}": f"symbol prefix '{'hot'[: 1 + n % 3]}'" for n in range(6)},
}


def columns(spark: SparkSession, width: int) -> DataFrame:
    """Returns the symbols with their places, and further columns."""
    table = pa.table({"place": range(ROWS), "symbol": SYMBOLS})
    for n in range(width - 2):
        table = table.append_column(f"c{n}", pa.nulls(ROWS, pa.int64()))
    return spark.createDataFrame(table)


def packed(spark: SparkSession) -> DataFrame:
    """Returns the symbols as packed notifications, with their places."""
    made = [bytes(to_msgpack(Notification({"symbol": each}))) for each in SYMBOLS]
    return spark.createDataFrame(pa.table({"place": range(ROWS), "notification": made}))


def pairs() -> Counter[tuple[int, str]]:
    """Returns the pairs of the embedded engine."""
    index: Index[str] = Index()
    for key, wish in WISHES.items():
        index.add(key, wish)
    return Counter(
        (place, key) for place, each in enumerate(SYMBOLS) for key in index.match({"symbol": each})
    )


def frame_of(spark: SparkSession, form: str) -> DataFrame:
    """Returns a frame that is matched in this way."""
    return packed(spark) if form == "packed" else columns(spark, 3 if form == "whole rows" else 40)


@pytest.mark.quick_first
@pytest.mark.parametrize("form", ["columns", "whole rows", "packed"])
def test_most_rows_have_one_value(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """Pairs of the frequent value would be lost, or given to other rows."""
    frame, base = frame_of(spark, form), Base(WISHES, folder=tmp_path)
    assert plan(frame, base).is_whole == (form == "whole rows" or arrow_udf is None)
    found = frame.transform(route(base)).select("place", "subscription").collect()
    assert Counter(map(tuple, found)) == pairs()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["whole rows", "columns", "packed"])
def test_each_row_matches_thousands(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """A batch would end Java, which takes its keys as a whole."""
    many = packed_rows.KEYS_AT_ONCE // ROWS // 10 * 40
    base = Base({n: f"symbol = '{HOT if n % 10 else 'v1'}'" for n in range(many)}, folder=tmp_path)
    found = frame_of(spark, form).repartition(1).transform(match(base))
    counted = found.selectExpr("place", "size(subscriptions) n", "get(subscriptions, 1) second")
    hot, cold = many - many // 10, many // 10
    of_symbol = {HOT: (hot, 2), "v1": (cold, 10)}
    expected = {place: of_symbol.get(each, (0, None)) for place, each in enumerate(SYMBOLS)}
    assert {row.place: (row.n, row.second) for row in counted.collect()} == expected


@pytest.mark.parametrize("is_packed", [False, True])
def test_no_portion_has_many_keys(
    tmp_path: Path, is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One portion with all keys would have the right ones, and need as much memory as before."""
    monkeypatch.setattr(packed_rows, "KEYS_AT_ONCE", 500)
    saved = Base(WISHES, folder=tmp_path).saved
    if is_packed:
        setup = WorkerSetup(saved, (), (), None, is_packed=True)
        column = pa.array([bytes(to_msgpack(Notification({"symbol": each}))) for each in SYMBOLS])
    else:
        setup = WorkerSetup(saved, ("symbol",), (TEXT,), None)
        column = pa.array(SYMBOLS)
    found = list(key_lists(setup, [column.slice(0, 1_000), (column.slice(1_000),)]))
    assert max(len(each.flatten()) for each in found) <= 500
    assert sum(map(len, found)) == ROWS
    assert sum(len(each.flatten()) for each in found) == sum(pairs().values())
    # A base whose rows cannot have many is matched as before.
    monkeypatch.setattr(packed_rows, "KEYS_AT_ONCE", ROWS * len(WISHES))
    assert len(list(key_lists(setup, [column]))) == 1
