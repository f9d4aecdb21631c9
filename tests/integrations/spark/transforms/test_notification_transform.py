"""`to_notifications`: each kind of row gives the notification that `integrations.files` reads."""

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from contrada import Notification, from_msgpack, to_msgpack
from contrada.errors import ContradaError, InputError
from contrada.integrations.files import BadRecord, ReadOptions, Renderer, read_document
from contrada.integrations.files.json_objects import (
    notification_of_content,
    notification_of_object,
    read_array,
)
from contrada.integrations.files.record import record_of
from contrada.integrations.spark import match, to_notifications
from contrada.integrations.spark.transforms import notification_transform as making
from contrada.integrations.spark.transforms.frames import DOUBLE, INTEGER, SEVERAL, TEXT, TIME
from contrada.integrations.spark.transforms.notification_transform import RowBuilder, build_batches

WIDE = """
    code string, size bigint, small tinyint, price double, rough float, flag boolean, at timestamp,
    cost decimal(20, 2), day date, local timestamp_ntz, place struct<`x.y`: string, deep: int>,
    tags array<string>, held map<string, double>
"""
NAMES = [
    "code",
    "size",
    "small",
    "price",
    "rough",
    "flag",
    "at",
    "cost",
    "day",
    "local",
    "place",
    "tags",
    "held",
]
AT = datetime(2013, 1, 1, 5, tzinfo=UTC)

FULL: tuple[Any, ...] = (
    "DIS",
    2**53 + 1,
    -3,
    -0.0,
    0.1,
    True,
    AT,
    Decimal("1.50"),
    date(2013, 1, 1),
    datetime(2013, 1, 1, 5),  # noqa: DTZ001 - without a zone
    Row(**{"x.y": "é", "deep": 7}),
    ["b", "a", None],
    {"a": 1.0, "b": None},
)
NOTHING = (None,) * len(FULL)
PLAIN = (*FULL[:-2], [], None)
TOO_PRECISE = (*FULL[:7], Decimal("123456789012345678.91"), *FULL[8:-2], None, None)
ROWS = [FULL, NOTHING, PLAIN, ("NA", *NOTHING[1:]), TOO_PRECISE, (*NOTHING[:6], AT, *NOTHING[7:])]

READINGS = [
    ReadOptions(zone="UTC"),
    ReadOptions(
        types={"code": "time", "size": "epoch_us", "place.x.y": "number"},
        absent=frozenset({"NA"}),
        zone="America/New_York",
    ),
    ReadOptions(
        add={"kind": "row", "several": [1, "x"], "none": None, "size": 3, "when": AT},  # type: ignore[dict-item]
        time="at",
        marks=("Event", "Quote"),
        rename={"code": "name", "place.deep": "depth"},
        drop=frozenset({"held", "price"}),
        zone="UTC",
    ),
    ReadOptions(add={"when": AT}, time="when", zone="Europe/Rome"),
    ReadOptions(
        time="stamp", rename={"local": "stamp"}, zone="Europe/Rome", absent=frozenset({"DIS"})
    ),
]


def content_of(row: tuple[Any, ...], zone: str) -> dict[str, Any]:
    """Returns a row of WIDE as an object, without NULL, and with local times in their zone."""
    from contrada.integrations.files.time_formats import in_zone

    found: dict[str, Any] = {}
    for name, value in zip(NAMES, row, strict=True):
        if name == "rough" and value is not None:
            found[name] = pa.scalar(value, pa.float32()).as_py()
        elif name in ("day", "local") and value is not None:
            local = datetime(value.year, value.month, value.day, getattr(value, "hour", 0))  # noqa: DTZ001
            found[name] = in_zone(local, zone, str(value))
        elif isinstance(value, Row):
            found[name] = {k: each for k, each in value.asDict().items() if each is not None}
        elif isinstance(value, list):
            found[name] = [each for each in value if each is not None]
        elif isinstance(value, dict):
            found[name] = {k: each for k, each in value.items() if each is not None}
        elif value is not None:
            found[name] = value
    return found


def expected(contents: Iterable[Any], reading: ReadOptions) -> list[bytes | None]:
    """Returns the notifications of objects one by one; None for a bad one."""
    found: list[bytes | None] = []
    for content in contents:
        try:
            found.append(to_msgpack(notification_of_content(content, reading)))
        except ContradaError:
            found.append(None)
    return found


def made(frame: DataFrame) -> list[bytes | None]:
    """Returns the result of each row; NULL has a reason and shows the row."""
    found = []
    for row in frame.collect():
        is_bad = row["notification"] is None
        assert bool(row["reason"]) == (row["text"] is not None) == is_bad, row
        found.append(None if is_bad else bytes(row["notification"]))
    return found


def same(found: list[bytes | None], wanted: list[bytes | None]) -> None:
    """Whether notifications are equal with envelopes, and bad rows in the same places."""
    assert [each is None for each in found] == [each is None for each in wanted]
    for each, other in zip(found, wanted, strict=True):
        assert each is None or from_msgpack(each) == from_msgpack(other or b"")


@pytest.mark.parametrize("reading", READINGS, ids=range(len(READINGS)))
def test_wide_rows_equal_json_objects(spark: SparkSession, reading: ReadOptions) -> None:
    """A row would be another notification than the same object in a JSON file."""
    frame = spark.createDataFrame(ROWS * 2, WIDE).coalesce(1)
    wanted = expected([content_of(row, reading.zone or "UTC") for row in ROWS * 2], reading)
    assert None in wanted
    same(made(frame.transform(to_notifications(reading))), wanted)


def test_rows_in_columns_are_written_as_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows written together would differ from rows alone, or all be built one by one."""
    alone = []
    of_row = making._of_row

    def noted(making: RowBuilder, batch: Any, row: int) -> Any:
        alone.append(row)
        return of_row(making, batch, row)

    monkeypatch.setattr(making, "_of_row", noted)
    batch = pa.record_batch(
        {
            "0": pa.array(["a", None, "NA", "é" * 40]),
            "1": pa.array([1, 2**40, None, -5]),
            "2": pa.array([1.5, float("nan"), None, 2.0]),
            "3": pa.array([0, 1, None, 2], pa.timestamp("us", "UTC")),
            "4": pa.array([1, 2, 3, 4]),
        }
    )
    reading = ReadOptions(
        absent=frozenset({"NA"}), add={"x": "y"}, marks=("T",), types={"b": "epoch"}
    )
    told = RowBuilder("wide", reading, ("a", "b", "c", "d"), (TEXT, INTEGER, DOUBLE, TIME))
    (found,) = build_batches(told, [batch])
    assert found.column(0).to_pylist() == [1, 2, 3, 4], "what is kept"
    rows = [
        {
            name: value
            for name, value in zip("abcd", row.values(), strict=False)
            if value is not None
        }
        for row in batch.to_pylist()
    ]
    assert found.column("notification").to_pylist() == expected(rows, reading)


LINES = [
    '{"v": null, "big": 9007199254740993, "at": "2013-01-01", "t": 5}',
    '{"v": ["007", null], "o": {"p": 1, "q": [1, 2, {"r": 1}]}, "n": "NaN"}',
    '{"v": "NA", "n": "1e3", "e": []}',
    '{"v": 1',
    "[1]",
    "",
    '{"v": 1,\n"w": 2}',
    '{"v":1,"v":2}',
    '{"big":9223372036854775808}',
    '{"v":"\\ud800"}',
    '{"at": "nodate"}',
    '{"at": {"$time": "2013-01-01T00:00:00Z"}}',
    '{"@id": 1}',
    '{"v": "x"}',
]
TEXT_READINGS = [
    ReadOptions(),
    ReadOptions(types={"n": "number", "at": "time", "t": "epoch"}, absent=frozenset({"NA"})),
    ReadOptions(time="at", types={"at": "time"}, add={"kind": "x"}, marks=("T",)),
    ReadOptions(rename={"v": "value"}, drop=frozenset({"o.q", "e"})),
]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("reading", TEXT_READINGS, ids=range(len(TEXT_READINGS)))
def test_json_texts_are_lines_of_json(
    spark: SparkSession, reading: ReadOptions, binary: bool
) -> None:
    """A Kafka message would be another notification than the same line of a file."""
    lines: list[str | None] = [*LINES, None]
    kind, given = "string", [(n, each) for n, each in enumerate(lines)]
    if binary:
        kind = "binary"
        given = [(n, each.encode() if each is not None else None) for n, each in given]  # type: ignore[misc]
        given.append((len(given), b'{"v": "\xff"}'))  # type: ignore[arg-type]
    wanted: list[bytes | None] = []
    for line in LINES:
        found = record_of(lambda line: notification_of_object(line, reading), "", 1, line)
        wanted.append(None if isinstance(found, BadRecord) else to_msgpack(found.notification))
    wanted += [None] * (len(given) - len(LINES))
    frame = spark.createDataFrame(given, f"place int, value {kind}").coalesce(1)
    result = frame.transform(to_notifications(reading, of="json", column="value", keep=["place"]))
    assert [row["place"] for row in result.collect()] == list(range(len(given)))
    assert made(result) == wanted


def test_variants_and_maps(spark: SparkSession) -> None:
    """Their members would have other names or values than those of an object."""
    texts = ['{"a": {"b": 1.5, "c": [1, "x"]}, "d": true}', "[1]", '{"a": "NA"}', None]
    frame = spark.createDataFrame([(each,) for each in texts], "t string").selectExpr(
        "parse_json(t) v"
    )
    reading = ReadOptions(absent=frozenset({"NA"}), add={"k": 1})
    wanted = expected([json.loads(each) for each in (texts[0], texts[2])], reading)  # type: ignore[arg-type]
    found = made(frame.transform(to_notifications(reading, of="variant")))
    same(found, [wanted[0], None, wanted[1], None])
    held = spark.createDataFrame(
        [({"a": "1", "b.c": None, "d": "NA"},), (None,)], "m map<string,string>"
    )
    reading = ReadOptions(types={"a": "number"}, absent=frozenset({"NA"}))
    same(
        made(held.transform(to_notifications(reading, of="map"))),
        [*expected([{"a": 1}], ReadOptions()), None],
    )


def test_documents_give_a_row_for_each_entry(spark: SparkSession) -> None:
    """Entries of XML and of JSON arrays would be lost, or lack the kept columns."""
    documents = [
        "<d><e><t>31</t><t>1</t></e><e><t>x</t></e></d>",
        "<d>\n<e><t>31</t></e>\n<e><t>32</e>\n<e><t>33</t></e></d>",
        "no xml",
    ]
    frame = spark.createDataFrame(list(enumerate(documents)), "n int, x string").coalesce(1)
    reading = ReadOptions(entries="e", types={"t": "number"})
    result = frame.transform(to_notifications(reading, of="xml", keep=["n"]))
    wanted: list[tuple[int, bytes | None]] = []
    for place, text in enumerate(documents):
        for each in read_document(text.encode(), "", reading):
            is_bad = isinstance(each, BadRecord)
            wanted.append((place, None if is_bad else to_msgpack(each.notification)))  # type: ignore[union-attr]
    found = made(result)
    assert list(zip([row["n"] for row in result.collect()], found, strict=True)) == wanted
    array = '{"list": [{"a": 1}, 5, {"a": 2}]}'
    frame = spark.createDataFrame([(array,)], "value string")
    reading = ReadOptions(entries="list")
    found = made(frame.transform(to_notifications(reading, of="json")))
    read = list(read_array(array.encode(), "", reading))
    same(found, [None if isinstance(e, BadRecord) else to_msgpack(e.notification) for e in read])


def test_strategies_are_those_of_the_renderer(spark: SparkSession) -> None:
    """Documents on Spark would become other notifications."""
    texts = {
        "xml": "<d><e><t>1</t><t>x</t></e><e><t>2.0</t></e></d>",
        "json": '{"e": [{"t": [1, "x"]}, {"t": 2.0}]}',
    }
    for of, text in texts.items():
        frame = spark.createDataFrame([(text,)], "value string").coalesce(1)
        for strategy in ("last", "split", "index", "daemon"):
            reading = ReadOptions(strategy=strategy)
            records = Renderer(reading, of).render(text.encode())
            wanted = [to_msgpack(each.notification) for each in records]  # type: ignore[union-attr]
            assert made(frame.transform(to_notifications(reading, of=of))) == wanted  # type: ignore[arg-type]
    wide = spark.sql("SELECT array(named_struct('t', 1), named_struct('t', 2)) AS e")
    (packed,) = made(wide.transform(to_notifications(ReadOptions(strategy="index"))))
    found = from_msgpack(packed)  # type: ignore[arg-type]
    assert isinstance(found, Notification)
    assert dict(found) == {"e.0.t": 1, "e.1.t": 2}
    with pytest.raises(InputError, match="for documents"):
        to_notifications(ReadOptions(strategy="split"))


def test_whole_notifications_stay_as_they_are(spark: SparkSession) -> None:
    """Notifications of a broker would lose their envelopes; or a broken one would end the run."""
    packed = to_msgpack(Notification({"a": 1}))
    frame = spark.createDataFrame([(packed,), (b"x",), (None,)], "notification binary")
    result = frame.transform(to_notifications())
    assert made(result) == [packed, None, None]
    keyed = result.transform(match({"one": "a = 1"}))
    assert [row["subscriptions"] for row in keyed.collect()] == [["one"], None, None]
    with pytest.raises(InputError, match="no options change"):
        frame.transform(to_notifications(ReadOptions(time="a")))


def test_refusals_name_the_column(spark: SparkSession) -> None:
    """A missing or impossible column would fail in a worker."""
    frame = spark.createDataFrame([(b"x", "a", "b", 1)], "raw binary, v string, w string, n int")
    for told, options in [
        ("raw", {}),
        ("column: found none, expected the one of json", {"of": "json"}),
        ("found 'z'", {"of": "json", "column": "z"}),
        ("found 'n'", {"of": "json", "column": "n"}),
        ("of: found 'xs'", {"of": "xs"}),
        ("all columns are taken", {"column": "v"}),
    ]:
        with pytest.raises(InputError, match=told):
            frame.transform(to_notifications(**options))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="another column"):
        frame.drop("raw").transform(to_notifications(ReadOptions(rename={"v": "w"})))
    with pytest.raises(InputError, match="name of the result"):
        frame.select("n", frame["v"].alias("text")).transform(to_notifications(keep=["text"]))
    dropped = frame.transform(to_notifications(ReadOptions(drop=frozenset({"raw", "v", "w"}))))
    assert made(dropped) == [to_msgpack(Notification({"n": 1}))]


SCALARS: dict[str, tuple[Any, Any]] = {
    TEXT: (pa.string(), st.sampled_from(["", "NA", "5", "é", "2013-01-01", "x" * 40])),
    INTEGER: (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)),
    DOUBLE: (pa.float64(), st.floats() | st.sampled_from([-0.0, 3.0])),
    TIME: (pa.timestamp("us", "UTC"), st.integers(-(2**62), 2**62) | st.integers(0, 10**10)),
}


def _reading(*, add: dict[str, Any], time: str | None, **options: Any) -> ReadOptions:
    """Returns options; those with an invalid constant time are refused."""
    if time in add:
        add = {**add, time: AT}
    return ReadOptions(add=add, time=time, **options)


ANY_READING = st.builds(
    _reading,
    types=st.dictionaries(
        st.sampled_from("abc"), st.sampled_from(["number", "text", "time", "epoch", "bool"])
    ),
    absent=st.sampled_from([frozenset(), frozenset({"NA", ""})]),
    add=st.dictionaries(st.sampled_from("axy"), st.sampled_from([1, None, "t", AT, -1.5])),
    time=st.sampled_from([None, None, "a", "x"]),
    marks=st.sampled_from([(), ("T", "U")]),
    rename=st.sampled_from([{}, {"b": "d"}]),
)


@given(st.data(), st.lists(st.sampled_from(sorted(SCALARS)), min_size=1, max_size=3), ANY_READING)
def test_all_columns_are_written_as_rows(data: Any, kinds: list[str], reading: ReadOptions) -> None:
    """Some combination of options would give columns another meaning than their rows."""
    count = data.draw(st.integers(0, 5))
    columns = []
    for kind in kinds:
        arrow, values = SCALARS[kind]
        drawn = data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns.append(pa.array(drawn, arrow))
    names = list("abc"[: len(kinds)])
    batch = pa.record_batch(columns, names)
    told = RowBuilder("wide", reading, tuple(names), tuple(kinds))
    (found,) = build_batches(told, [batch])
    rows: list[Any] = []
    for row in range(count):
        try:
            held = {name: batch.column(name)[row].as_py() for name in names}
            rows.append({name: value for name, value in held.items() if value is not None})
        except (ValueError, OverflowError):
            rows.append("no object")
    same(found.column("notification").to_pylist(), expected(rows, reading))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "NA", "5", "2013-01-01", "é", "\n", '"', "{"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "a.b", "$time"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "c", "a.b", "@x", ""]), JSON_VALUES, max_size=3),
        max_size=4,
    ),
    ANY_READING,
    st.booleans(),
)
def test_all_json_is_read_as_its_lines(
    objects: list[Any], reading: ReadOptions, is_ascii: bool
) -> None:
    """Many lines at once would be other notifications than each by itself."""
    lines = [json.dumps(each, ensure_ascii=is_ascii) for each in objects]
    told = RowBuilder("json", reading)
    (found,) = build_batches(told, [pa.record_batch([pa.array(lines, pa.string())], ["0"])])
    wanted: list[bytes | None] = []
    for line in lines:
        read = record_of(lambda line: notification_of_object(line, reading), "", 1, line)
        wanted.append(None if isinstance(read, BadRecord) else to_msgpack(read.notification))
    same(found.column("notification").to_pylist(), wanted)


def test_a_stream_of_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a stream would be read differently from those of a table."""
    (tmp_path / "in").mkdir()
    spark.createDataFrame([(each,) for each in LINES], "value string").coalesce(1).write.mode(
        "overwrite"
    ).parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("value string").parquet(str(tmp_path / "in"))
    query = (
        stream.transform(to_notifications(of="json"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    table = spark.read.parquet(str(tmp_path / "in")).transform(to_notifications(of="json"))
    found = made(spark.read.parquet(str(tmp_path / "out")))
    assert sorted(map(repr, found)) == sorted(map(repr, made(table)))
    assert len(found) == len(LINES)


def test_a_key_of_a_map_that_is_no_text_makes_a_bad_row() -> None:
    """The whole job would end, at the text that shows the row."""
    texts = pa.array([b"a\xff", b"ok"], pa.binary()).view(pa.string())
    days = pa.array(
        [[[(date(2026, 1, 1), 1)]], [[(date(2026, 1, 2), 2)]]],
        pa.list_(pa.map_(pa.date32(), pa.int64())),
    )
    for of, column, good in (
        ("map", pa.MapArray.from_arrays([0, 1, 2], texts, [1, 2]), [False, True]),
        ("wide", days, [False, False]),
    ):
        builder = RowBuilder(of, ReadOptions(), ("m",), (SEVERAL,))
        made = builder.build(pa.record_batch([column], ["0"]))
        assert made.notifications.is_valid().to_pylist() == good
        assert [each is None for each in made.reasons.to_pylist()] == good
