"""Predicates hold for exactly the rows that a filter matches, in memory and in files."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada import Filter, parse
from contrada.errors import InputError
from contrada.integrations.spark import Base, match, plan, route
from contrada.integrations.spark.transforms.frame_match import PARTS_MAX
from contrada.integrations.spark.transforms.frames import frame_of
from contrada.integrations.spark.transforms.spark_predicates import predicate_of

NUMBERS: tuple[str, ...] = (
    "= 0",
    "= -0.0",
    "< 0",
    ">= 0",
    "<= 0",
    "> 0",
    "!= 3",
    "in (3, 4.5, 9007199254740993)",
)
NUMBERS += ("= 9007199254740993", "> 9007199254740992", "< 9007199254740993", ">= 0.1", "= 0.1")
NUMBERS += ("> 9223372036854775807", ">= 9223372036854775807", "<= -9223372036854775808", "< 1e300")
NUMBERS += ("= nan", "any", "absent", "(< 3 | absent)", "any but (3)", "none of (3)", "= 'x'")
TEXTS: tuple[str, ...] = (
    "= 'a'",
    "prefix 'a'",
    "prefix 'é'",
    "suffix 'b'",
    "contains 'b'",
    "!= 'a'",
    "< 'b'",
)
TEXTS += ("(prefix 'a' | suffix 'é')", "contains ''", "none of ('a')", "absent", "= 3", ">= ''")
BOOLS = ("= true", "= false", "!= true", "any", "(= false | absent)", "= 1")
TIMES: tuple[str, ...] = (
    "= @2013-01-01T05:00:00Z",
    "< @2013-01-01T05:00:00Z",
    "> @2013-01-01T05:00:00Z",
    "any",
)
TIMES += (">= @9999-12-31T23:59:59.999999Z", "absent", "none of (@2013-01-01T05:00:00Z)")

COLUMNS: dict[str, tuple[str, tuple[str, ...], list[Any]]] = {
    "small": ("tinyint", NUMBERS, [0, 3, -1, 127, None]),
    "long": ("bigint", NUMBERS, [0, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), None]),
    "single": ("float", NUMBERS, [0.0, -0.0, 0.1, 3.0, math.nan, math.inf, None]),
    "double": (
        "double",
        NUMBERS,
        [0.0, -0.0, 0.1, 4.5, 5e-324, 2.0**53, math.nan, -math.inf, None],
    ),
    "text": ("string", TEXTS, ["", "a", "ab", "é", "éb", "b", "\U0010ffff", None]),
    "flag": ("boolean", BOOLS, [True, False, None]),
    "time": (
        "timestamp",
        TIMES,
        [
            datetime(2013, 1, 1, 5, tzinfo=UTC),
            datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(1969, 12, 31, tzinfo=UTC),
            None,
        ],
    ),
}
"""Type, sets of values, and odd values by column name."""


def wishes() -> dict[str, Any]:
    """Returns a filter for each set of a column."""
    return {
        f"{name} {each}": parse(f"{name} {each}")
        for name, (_, sets, _) in COLUMNS.items()
        for each in sets
    }


def rows() -> list[dict[str, Any]]:
    """Returns each value alone in a row."""
    return [{name: value} for name, (_, _, held) in COLUMNS.items() for value in held]


def frame_of_rows(spark: SparkSession) -> DataFrame:
    """The rows as a frame, with their places."""
    schema = "place int, " + ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    listed = [(n, *(row.get(name) for name in COLUMNS)) for n, row in enumerate(rows())]
    return spark.createDataFrame(listed, schema)


def expected() -> set[tuple[int, str]]:
    """Returns the pairs by filters; a 32-bit number is the double that it equals."""
    found: set[tuple[int, str]] = set()
    for place, row in enumerate(rows()):
        held = {n: _widened(n, value) for n, value in row.items() if value is not None}
        found.update((place, key) for key, wish in wishes().items() if wish.matches(held))
    return found


def _widened(name: str, value: Any) -> Any:
    import struct

    is_single = name == "single"
    return struct.unpack("f", struct.pack("f", value))[0] if is_single else value


def pairs(frame: DataFrame) -> set[tuple[int, str]]:
    """Returns the routed pairs."""
    found = [(row["place"], row["subscription"]) for row in frame.collect()]
    assert len(found) == len(set(found)), "a pair came twice"
    return set(found)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The base of all filters."""
    return Base(wishes(), folder=tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="module")
def file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The rows in a Parquet file."""
    path = str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    frame_of_rows(spark).coalesce(1).write.parquet(path)
    return path


def test_predicates_and_index_equal_filters(spark: SparkSession, base: Base, file: str) -> None:
    """NaN, -0.0, numbers above 2^53, absent values, other types or bytes of text would differ."""
    frame = spark.read.parquet(file)
    assert pairs(frame.transform(route(base, way="index"))) == expected()
    assert pairs(frame.transform(route(base, way="predicates"))) == expected()


@pytest.mark.parametrize("name", COLUMNS)
def test_predicates_pushed_to_files_lose_nothing(
    spark: SparkSession, file: str, name: str, tmp_path: Path
) -> None:
    """File statistics (-0.0, NaN, truncated texts) would hide a row."""
    frame = spark.read.parquet(file)
    of_name = [(key, wish) for key, wish in wishes().items() if key.startswith(f"{name} ")]
    for key, wish in of_name[:: len(of_name) // 3]:
        found = frame.transform(route(Base({key: wish}, folder=tmp_path)))
        assert pairs(found) == {pair for pair in expected() if pair[1] == key}


def test_the_filters_that_equal_predicates_are_pushed(spark: SparkSession, file: str) -> None:
    """The whole file would be read, decoded and transferred."""
    asked = {"a": "text = 'a'", "b": "double > 3 and text prefix 'a'"}
    said = _explained(spark.read.parquet(file).transform(route(asked)))
    assert "PushedFilters: [Or(EqualTo(text,a),And(" in said
    assert "Python" not in said


def _explained(frame: DataFrame) -> str:
    said: str = frame._jdf.queryExecution().toString()
    return said


@pytest.mark.parametrize(
    ("schema", "wish"),
    [
        ("text string collate UTF8_LCASE", "text = 'a'"),
        ("text string", "text = nocase 'a'"),
        ("text string", "text matches 'a+'"),
        ("price decimal(10, 2)", "price = 1"),
        ("texts array<string>", "texts = 'a'"),
        ("held map<string, string>", "held.a = 'a'"),
        ("notification binary", "text = 'a'"),
    ],
)
def test_filters_without_an_equal_predicate_have_none(
    spark: SparkSession, schema: str, wish: str
) -> None:
    """An unequal predicate would lose or add rows."""
    frame = spark.createDataFrame([], schema)
    assert predicate_of(Filter(wish), frame_of(frame)) is None
    with pytest.raises(InputError, match="cannot match by predicates"):
        frame.transform(match({"a": wish}, way="predicates"))
    assert plan(frame, {"a": wish}).way == "index"


def test_many_intervals_are_no_predicate(spark: SparkSession) -> None:
    """Java would not compile such expressions: minutes instead of seconds."""
    frame = spark.createDataFrame([], "size bigint, text string")
    most = ", ".join(str(2 * number) for number in range(PARTS_MAX - 1))
    asked = {"a": f"size in ({most})", "b": "text suffix 'b'"}
    assert plan(frame, asked).way == "predicates"
    assert plan(frame, {**asked, "c": "size < 0"}).why == (
        f"their predicates would have more than {PARTS_MAX} parts"
    )


def test_an_impossible_time_is_in_no_set(spark: SparkSession) -> None:
    """A row with a time after the year 9999 would match."""
    frame = spark.range(1).select(
        F.timestamp_micros(F.lit(2**62)).alias("time"), F.lit(1).alias("n")
    )
    asked = {"n": "n = 1", "time": "time any"}
    for way in ("index", "predicates"):
        (row,) = frame.transform(match(asked, way=way)).select("subscriptions").collect()
        assert row[0] is None, way
        assert frame.transform(route(asked, way=way)).count() == 0


def test_negative_zeros_are_found_in_files(spark: SparkSession, tmp_path: Path) -> None:
    """A file may have the maximum -0.0, which a reader may order below 0."""
    path = str(tmp_path / "rows")
    spark.createDataFrame([(-0.0,)] * 10, "double double").coalesce(1).write.parquet(path)
    frame = spark.read.parquet(path)
    for wish, count in (("= 0", 10), (">= 0", 10), ("> 0", 0), ("<= 0", 10), ("< 0", 0)):
        assert frame.transform(route({"a": f"double {wish}"})).count() == count, wish
