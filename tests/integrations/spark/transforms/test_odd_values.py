"""Every way gives the same on odd texts, times and names, in memory and from files."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada import Filter, Notification, parse
from contrada.errors import InputError
from contrada.integrations.spark import Base, match, plan, route, to_notifications
from contrada.integrations.spark.transforms.frames import frame_of
from contrada.integrations.spark.transforms.spark_predicates import predicate_of
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import datetime_of, key_of
from tests import strategies as some

Pairs = set[tuple[int, str]]

TEXTS = [
    *(b"", b"a", b"a\x7f", b"a\x80", b"a\xff", b"b", b"z", b"\x7f", b"\x80", b"\xff", b"\xff\x01"),
    *(
        b"\xc2",
        b"\xd0",
        b"\xd0\xc0",
        b"\xed\xa0\x80",
        b"Z\xc3",
        "Z\xfcrich".encode(),
        b"[",
        b"\xbf",
    ),
    *("\u043f".encode(), "\u043f\u0440".encode(), "\U0001f63f".encode(), "\U0001f63fx".encode()),
    *("\ue000".encode(), "\ufffd".encode(), "\uffff".encode(), "\U0010ffff".encode(), b"10.0.0.1"),
]
CONSTANTS = ["'\u043f'", "'\U0001f63f'", "'\xbf'", 'x"ff01"', 'x"ff"', 'x"80"', "'Z\xfc'", "'a'"]
CONSTANTS += ["'\U0010ffff'", "'\ue000'", "'\ufffd'", "''", 'x"eda080"']
PHRASES = ["= {}", "!= {}", "prefix {}", "not prefix {}", "suffix {}", "contains {}"]
PHRASES += ["not contains {}", "< {}", "<= {}", "> {}", ">= {}"]
OF_INDEX = ["wildcard '?'", "matches /^.$/", "cidr '10.0.0.0/8'", "= nocase 'A'"]

TIMES = [
    *("0001-01-01T00:00:00", "0001-01-01T05:00:00", "0900-01-01T00:00:00", "1582-10-04T12:00:00"),
    *("1582-10-05T00:00:00", "1582-10-10T00:00:00", "1582-10-14T23:59:59.999999"),
    *(
        "1582-10-15T00:00:00",
        "1883-11-18T12:00:00",
        "1900-01-01T00:00:00",
        "1900-01-03T00:00:00.000001",
    ),
    *("2013-03-31T01:30:00", "9999-12-31T23:59:59.999999"),
]
ORDERS = ("=", "<", "<=", ">", ">=")


def expected(rows: Iterable[Mapping[str, Any]], wishes: Mapping[str, Filter]) -> Pairs:
    """The pairs of the filters themselves."""
    made = [Notification(row) for row in rows]
    return {
        (place, key)
        for place, each in enumerate(made)
        for key, wish in wishes.items()
        if wish.matches(each)
    }


def routed(frame: DataFrame, wishes: Any, folder: Path, **options: Any) -> Pairs:
    """The pairs of `route`."""
    found = frame.transform(route(Base(wishes, folder=folder), **options))
    return {tuple(row) for row in found.select("place", "subscription").collect()}


def texts(spark: SparkSession) -> DataFrame:
    """The texts as a frame, with their places."""
    rows = [(place, bytearray(text)) for place, text in enumerate(TEXTS)]
    frame = spark.createDataFrame(rows, "place int, data binary")
    return frame.select("place", F.col("data").cast("string").alias("x"))


def times(spark: SparkSession) -> DataFrame:
    """The times as a frame, with their places."""
    frame = spark.createDataFrame(list(enumerate(TIMES)), "place int, at string")
    return frame.select("place", F.concat("at", F.lit("Z")).cast("timestamp").alias("at"))


@pytest.fixture(scope="module", params=["parquet", "orc"])
def files(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DataFrame]:
    """The texts and the times, from files of one row, whose statistics tell each value."""
    folder, found = tmp_path_factory.mktemp("files"), {}
    for name, frame in (("x", texts(spark)), ("at", times(spark))):
        path = str(folder / name)
        frame.repartition(frame.count(), "place").write.format(request.param).save(path)
        found[name] = spark.read.schema(frame.schema).format(request.param).load(path)
    return found


def test_text_is_its_bytes_by_every_way(spark: SparkSession, tmp_path: Path) -> None:
    """A bound would be another text, or a text that is no UTF-8 end the run."""
    phrases = [phrase.format(each) for phrase in PHRASES for each in CONSTANTS]
    wishes: Any = {f"x {each}": parse(f"x {each}") for each in phrases}
    rows = [{"x": text} for text in TEXTS]
    frame = texts(spark)
    assert routed(frame, wishes, tmp_path, way="predicates") == expected(rows, wishes)
    wishes |= {f"x {each}": parse(f"x {each}") for each in OF_INDEX}
    assert routed(frame, wishes, tmp_path, way="index") == expected(rows, wishes)


@pytest.mark.quick_every(3)
@pytest.mark.parametrize(
    "phrase",
    [
        *("not prefix '\u043f'", "prefix '\U0001f63f'", "not prefix '\xbf'", 'contains x"ff"'),
        *('= x"ff01"', 'prefix x"80"', "< '\u043f'", "<= 'Z\xfc'", ">= '\ue000'", "= '\U0010ffff'"),
        *("prefix 'a'", "!= 'a'"),
    ],
)
def test_sources_get_no_text_that_they_change(
    files: dict[str, DataFrame], tmp_path: Path, phrase: str
) -> None:
    """Statistics of files would hide rows from a bound that became another text on its way."""
    wishes: Any = {"x": parse(f"x {phrase}")}
    result = expected([{"x": text} for text in TEXTS], wishes)
    assert routed(files["x"], wishes, tmp_path) == result


def test_sources_get_the_ascii_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """A whole file would be read for a prefix that is not ASCII."""
    texts(spark).write.parquet(str(tmp_path / "files"))
    frame = spark.read.parquet(str(tmp_path / "files"))
    found = frame.transform(route({"x": "x prefix 'Z\xfcrich'"}))
    said = found._jdf.queryExecution().toString()
    assert "GreaterThanOrEqual(x,Z\x7f), LessThan(x,[)]" in said


@pytest.mark.quick_every(3)
@pytest.mark.parametrize(("order", "at"), list(zip(ORDERS * 3, TIMES, strict=False)))
def test_sources_get_no_time_that_they_change(
    files: dict[str, DataFrame], tmp_path: Path, order: str, at: str
) -> None:
    """Times before 1900 have another calendar in some sources, which hides rows."""
    # ORC reads the days of October 1582 that were left out as others.
    read = files["at"].select("place", F.unix_micros("at")).orderBy("place").collect()
    wishes: Any = {"at": parse(f"at {order} @{at}Z")}
    result = expected([{"at": datetime_of(row[1])} for row in read], wishes)
    assert routed(files["at"], wishes, tmp_path) == result


def test_names_with_dots_and_backticks_in_whole_rows(spark: SparkSession) -> None:
    """PySpark would not find the columns."""
    frame = spark.createDataFrame(
        [(0, "10.0.0.1", "t"), (1, "11.0.0.1", "u")],
        "place int, `id.orig_h` string, `we``ird` string",
    )
    asked = {"near": "`id.orig_h` cidr '10.0.0.0/8'", "odd": "`we``ird` = 'u' and place > 0"}
    assert plan(frame, asked).is_whole
    found = frame.transform(match(asked)).orderBy("place")
    assert found.columns == [*frame.columns, "subscriptions"]
    assert [row["subscriptions"] for row in found.collect()] == [["near"], ["odd"]]
    kept = frame.transform(to_notifications(keep=frame.columns)).orderBy("place")
    assert kept.columns[:3] == frame.columns
    made = [notification_from_msgpack(bytes(row["notification"])) for row in kept.collect()]
    assert [each["id.orig_h"] for each in made] == ["10.0.0.1", "11.0.0.1"]


def test_padded_columns_have_their_blanks(spark: SparkSession, tmp_path: Path) -> None:
    """Spark pads constants for a CHAR column, so that predicates would match more than an index."""
    spark.sql(f"create table padded (place int, c char(4)) using parquet location '{tmp_path}/c'")
    try:
        spark.sql("insert into padded values (0, 'ab'), (1, 'abcd')")
        phrases = ("= 'ab'", "= 'ab  '", "prefix 'ab '", "< 'abc'", "suffix 'b'", ">= 'ab'")
        wishes: Any = {each: parse(f"c {each}") for each in phrases}
        result = expected([{"c": "ab  "}, {"c": "abcd"}], wishes)
        for way in ("predicates", "index"):
            assert routed(spark.table("padded"), wishes, tmp_path, way=way) == result
    finally:
        spark.sql("drop table padded")


def test_the_null_of_a_variant_is_a_value(spark: SparkSession) -> None:
    """It would count as absent, while that of a member does not."""
    frame = spark.sql(
        "select * from values (0, parse_json('null')), (1, cast(null as variant)), "
        "(2, parse_json('3')), (3, parse_json('{\"a\": null}')) as t(place, v)"
    )
    asked = {"null": "v = null", "absent": "v absent", "member": "v.a = null"}
    found = frame.transform(match(asked)).orderBy("place").collect()
    keys = [row["subscriptions"] for row in found]
    assert keys == [["null"], ["absent"], [], ["absent", "member"]]
    made = frame.transform(to_notifications(keep=["place"])).orderBy("place").collect()
    assert [
        notification_from_msgpack(bytes(row["notification"])).get("v", "-") for row in made
    ] == [*(None, "-", 3, "-")]


def test_names_tell_case_apart(spark: SparkSession) -> None:
    """A filter would find another column here than elsewhere, by a setting of Spark."""
    frame = spark.createDataFrame([("x",)], "Price string")
    for way in ("predicates", "index"):
        asked = {"lower": "price = 'x'", "as it is": "Price = 'x'"}
        (row,) = frame.transform(match(asked, way=way)).collect()
        assert row["subscriptions"] == ["as it is"]
    assert "no column: price (there is Price)" in str(plan(frame, {"lower": "price = 'x'"}))


def test_a_plan_names_attributes_without_a_column(spark: SparkSession) -> None:
    """A slip of the pen in a name would look like missing data."""
    frame = spark.createDataFrame([(1, {"a": 2})], "price int, parts map<string, int>")
    asked = {"slip": "prise = 1", "part": "parts.a = 2", "other": "kind = 1 and @id any"}
    found = plan(frame, asked)
    assert found.missing == ("kind", "prise")
    assert "no column: kind, prise (there is price)" in str(found)
    assert "no column" not in str(plan(frame, {"f": "price = 1"}))


def test_a_plan_names_columns_of_other_types(spark: SparkSession) -> None:
    """A price that was read as text would look like a market without a match."""
    frame = spark.createDataFrame([("1", 2.0, True)], "price string, size double, held boolean")
    asked = {"a": "price < 3 and held = 1", "b": "size > 1 and price absent", "c": "held any"}
    assert plan(frame, asked).misfits == ()
    found = plan(frame, {"a": asked["a"], "b": "size > 1 and price = 2"})
    assert found.misfits == (
        "held is of type boolean, expected a number",
        "price is of type string, expected a number",
    )
    assert "; held is of type boolean, expected a number; price" in str(found)


def test_columns_that_spark_cannot_tell_apart_are_named(spark: SparkSession) -> None:
    """Spark's error would name one of them twice."""
    frame = spark.createDataFrame([("x", "y", 1)], "A string, a string, n int")
    (row,) = frame.transform(match({"a": "a = 'y'", "A": "A = 'y'"})).collect()
    assert row["subscriptions"] == ["a"]
    spark.conf.set("spark.sql.caseSensitive", "false")
    try:
        with pytest.raises(
            InputError, match=r"Spark cannot distinguish 'A' from 'a'.*caseSensitive"
        ):
            frame.transform(match({"a": "a = 'y'"}))
        assert plan(frame, {"n": "n = 1"}).columns == ("n",)
    finally:
        spark.conf.set("spark.sql.caseSensitive", "true")


COLUMNS = {
    "t": "cast(t as string)",
    "c": "cast(c as string) collate UTF8_LCASE",
    "id.orig_h": "cast(h as string)",
    "we`ird.a.b": "cast(w as string)",
    "d": "d",
    "n": "n",
    "at": "timestamp_micros(at)",
}
"""The attributes of the random frame, and how they are made of plain columns."""

_KINDS: dict[str, Any] = {
    **dict.fromkeys(("t", "c", "id.orig_h", "we`ird.a.b"), some.texts),
    "d": st.floats(),
    "n": st.integers(-(2**63), 2**63 - 1),
    "at": some.times,
}
_filters = some.filters(some.value_sets(), st.sampled_from(sorted(_KINDS)))
_rows = st.fixed_dictionaries({}, optional=_KINDS)


@pytest.mark.slow
@settings(max_examples=2, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.lists(_rows, min_size=20, max_size=40), st.lists(_filters, min_size=20, max_size=40))
def test_random_filters_by_every_way(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    filters: list[Filter],
) -> None:
    """A way would lose or add a row that the planner's choice hides."""
    folder = tmp_path_factory.mktemp("odd")
    wishes = {str(place): each for place, each in enumerate(filters) if not each.is_empty}
    result = expected(rows, wishes)
    frame = _frame(spark, rows)
    assert routed(frame, wishes, folder, way="index", drop=["raw"]) == result
    described = frame_of(frame, drop=["raw"])
    equal = {key: it for key, it in wishes.items() if predicate_of(it, described) is not None}
    of_equal = {pair for pair in result if pair[1] in equal}
    if equal:
        assert routed(frame, equal, folder, way="predicates", drop=["raw"]) == of_equal
    plain = frame.withColumn("c", F.expr("c collate UTF8_BINARY"))
    plain.write.parquet(str(folder / "rows"))
    # Spark reads no stream of files with a collation in its schema.
    stream = spark.readStream.schema(plain.schema).parquet(str(folder / "rows"))
    stream = stream.withColumn("c", F.expr("c collate UTF8_LCASE"))
    query = (
        stream.transform(route(Base(wishes, folder=folder), drop=["raw"]))
        .select("place", "subscription")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "at"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    assert {tuple(row) for row in spark.read.parquet(str(folder / "out")).collect()} == result
    stored = spark.read.parquet(str(folder / "rows"))
    for key in list(equal)[:4]:
        alone = routed(stored, {key: equal[key]}, folder, drop=["raw"])
        assert alone == {pair for pair in result if pair[1] == key}


def _frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    plain = [
        (
            place,
            *(_data(row.get(name)) for name in ("t", "c", "id.orig_h", "we`ird.a.b")),
            row.get("d"),
            row.get("n"),
            key_of(row["at"])[1] if "at" in row else None,
        )
        for place, row in enumerate(rows)
    ]
    schema = "place int, t binary, c binary, h binary, w binary, d double, n bigint, at bigint"
    made = spark.createDataFrame(plain, schema)
    of = COLUMNS
    nested = f"named_struct('a.b', {of['we`ird.a.b']}) as `we``ird`"
    return made.selectExpr(
        "place",
        *(f"{of[name]} as `{name}`" for name in ("t", "c", "id.orig_h", "d", "n", "at")),
        nested,
        "t as raw",
    )


def _data(text: str | bytes | None) -> bytearray | None:
    return None if text is None else bytearray(text.encode() if isinstance(text, str) else text)
