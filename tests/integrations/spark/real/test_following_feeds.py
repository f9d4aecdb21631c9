"""Real data through `detect` and `detect_stream`: the matches of the embedded matcher."""

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.integrations.files import ReadOptions
from contrada.integrations.spark import detect, detection_statistics
from contrada.model import Envelope, Notification, Pattern
from contrada.model.domains.values import time_us_of
from contrada.patterns.runs import PatternLimits
from tests.integrations.spark.real.feeds import SharedData, records, table_of
from tests.integrations.spark.transforms.sequences import Result, expected, found_in
from tests.integrations.spark.transforms.test_detection import Stream

Batches = list[tuple[pa.Table, list[Notification]]]
"""Rows in arrival order, and the notifications for the embedded matcher."""

HOUR_US: Final = 3_600_000_000

QUAKES: Final = {
    "after a strong one": Pattern("mag >= 4.5 -> mag between 2.5 and 4.4 by net within 1 h"),
    "ever stronger": Pattern("mag < 1 -> mag between 1 and 2 -> mag > 2 by net within 2 h"),
    "along a coast": Pattern("every net = 'ak' and mag > 3 -> net in ('ci', 'nc') and mag > 3"),
    "all blasts": Pattern("every type != 'earthquake' -> type != 'earthquake' by net"),
    "felt": Pattern("every felt > 10 -> status = 'automatic' and depth > 50 within 30 min"),
}

ALERTS: Final = {
    "worse": Pattern(
        "every feed.entry.cap:severity = 'Moderate' -> feed.entry.cap:severity = 'Severe' "
        "by feed.entry.cap:areaDesc within 12 h"
    ),
    "warned": Pattern(
        "feed.entry.cap:event suffix 'Watch' -> feed.entry.cap:event suffix 'Warning' within 2 h"
    ),
    "floods everywhere": Pattern(
        "every feed.entry.cap:event prefix 'Flood' -> feed.entry.cap:event contains 'Thunderstorm' "
        "within 20 min"
    ),
    "in a county": Pattern(
        "feed.entry.cap:event any -> feed.entry.cap:urgency = 'Immediate' "
        "by feed.entry.cap:geocode.value"
    ),
}

PRICES: Final = {
    "doubled": Pattern("every low < 20 -> close > 40 by symbol"),
    "up and down": Pattern(
        "close between 80 and 81 -> close > 84 -> close < 80 by symbol within 60 d"
    ),
    "one after the other": Pattern(
        "every symbol = 'AAPL' and close < 108 -> symbol = 'MSFT' and close < 44 within 10 d"
    ),
    "by volume": Pattern("volume > 100000000 -> volume > 100000000 -> close < 20 within 5 d"),
    "three": Pattern(
        "symbol = 'XOM' and close < 75 -> symbol = 'CVX' and close < 80 "
        "-> symbol in ('COP', 'SLB') and close < 70"
    ),
}


def earthquakes(shared_data: SharedData) -> Batches:
    """A week of earthquakes in the order of their reports, not of their times."""
    path = shared_data("earthquakes", "usgs_all_week_2018-02-06.geojson.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        features = json.load(file)["features"]
    names = {"mag": float, "net": str, "type": str, "felt": int, "status": str}
    rows = []
    for each in sorted(features, key=lambda each: each["properties"]["updated"]):
        given = each["properties"]
        row = {name: None if given[name] is None else of(given[name]) for name, of in names.items()}
        row["depth"] = float(each["geometry"]["coordinates"][2])
        rows.append(row | {"time": given["time"] * 1000})
    schema = pa.schema(
        [
            *(("mag", pa.float64()), ("net", pa.string()), ("type", pa.string())),
            *(("felt", pa.int32()), ("status", pa.string()), ("depth", pa.float64())),
            ("time", pa.timestamp("us", "UTC")),
        ]
    )
    return in_batches(pa.Table.from_pylist(rows, schema), 5)


def quotes(shared_data: SharedData) -> Batches:
    """A year of prices; the time of a row is its day."""
    columns = {"date": pa.timestamp("us"), "symbol": pa.string(), "volume": pa.int64()}
    path = str(shared_data("quotes", "sp500_daily_2015.csv.gz"))
    table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=columns))
    days = table.column("date").cast(pa.timestamp("us", "UTC"))
    return in_batches(table.drop_columns("date").append_column("time", days), 4)


def alerts(shared_data: SharedData) -> Batches:
    """Three reports of a weather service; many alerts are repeated."""
    sent = "feed.entry.cap:effective"
    reading = ReadOptions(entries="entry", types={sent: "time"}, time=sent)
    names = ("2015-06-29T1735", "2015-06-29T1736", "2018-08-15")
    found = []
    for name in names:
        path = shared_data("xml_feeds", f"nws_cap_atom_{name}.xml")
        given = records(path, reading)
        found.append((table_of(given), given))
    return found


def in_batches(table: pa.Table, count: int) -> Batches:
    """Returns rows of columns in a number of parts."""
    ends = [len(table) * number // count for number in range(count + 1)]
    parts = [table.slice(begin, end - begin) for begin, end in pairwise(ends)]
    return [(part, list(notifications(part))) for part in parts]


def notifications(table: pa.Table) -> Iterator[Notification]:
    """Returns the notifications of rows: NULL is absent, and `time` stamps them."""
    for row in table.to_pylist():
        attributes = {name: value for name, value in row.items() if value is not None}
        yield Notification(attributes, envelope=Envelope(time_us=time_us_of(row["time"])))


CASES: Final = {
    "earthquakes": (earthquakes, QUAKES, 6 * HOUR_US),
    "quotes": (quotes, PRICES, 0),
    "alerts": (alerts, ALERTS, 24 * HOUR_US),
}


def together(results: Sequence[Result]) -> Result:
    """Returns all matches of some batches."""
    return sum(results, start=Result())


@pytest.mark.parametrize("name", CASES)
def test_feeds_give_the_matches_of_the_embedded_matcher(
    spark: SparkSession, shared_data: SharedData, tmp_path: Path, name: str
) -> None:
    """A sequence would be lost or found twice, in a frame or in a stream."""
    read, patterns, slack_us = CASES[name]
    batches = read(shared_data)
    given = [of for _, of in batches]
    every = [each for of in given for each in of]
    (whole,), _ = expected(patterns, [every], limits=PatternLimits(pending_max=len(every)))
    assert {key for key, _, _ in whole} == {*patterns}
    frame = spark.createDataFrame(pa.concat_tables(part for part, _ in batches))
    assert found_in(frame.transform(detect(patterns))) == whole

    results, matcher = expected(patterns, given, slack_us)
    assert together(results)
    stream = Stream(spark, tmp_path)
    (tmp_path / "in").mkdir()
    for number, (part, _) in enumerate(batches):
        pq.write_table(part, tmp_path / "in" / f"{number:05}.parquet")
        if number != 1:  # So that a query takes one batch, another one several.
            stream.run(patterns, slack_us)
    assert [stream.results[number] for number in range(len(batches))] == results
    told, known = detection_statistics(stream.checkpoint), matcher.statistics()
    assert (told.matched, told.watermark_us) == (known.matched, known.watermark_us)
    assert told.dropped == known.dropped
