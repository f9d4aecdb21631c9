"""`detect` on Spark gives the matches of the embedded matcher, in frames and in streams."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.errors import InputError, StoreError
from contrada.integrations.spark.transforms import detection_worker, frames
from contrada.integrations.spark.transforms.detection import (
    detect,
    detect_stream,
    detection_statistics,
)
from contrada.integrations.spark.transforms.detection_worker import BAD
from contrada.integrations.spark.transforms.state_files import States
from contrada.model import Envelope, Notification, Pattern
from contrada.model.codec import to_msgpack
from contrada.patterns.pattern_engine import DUPLICATE, LATE
from contrada.patterns.runs import PatternLimits
from tests.integrations.spark.transforms.sequences import (
    PATTERNS,
    SCHEMA,
    Result,
    expected,
    found_in,
    made,
    notification_of,
    write,
)

SLACK_US: Final = 2


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Returns a frame of columns, in several partitions."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).repartition(3)


def test_a_frame_gives_the_embedded_matches(spark: SparkSession) -> None:
    """Ties, odd values, NULL, groups or several patterns would change matches."""
    (rows,) = made(1, 1, 3_000)
    (result,), _ = expected(PATTERNS, [list(map(notification_of, rows))])
    assert len(result) > 500
    assert {name for name, _, _ in result} == set(PATTERNS) - {"no such"}
    assert found_in(frame_of(spark, rows).transform(detect(PATTERNS))) == result


def test_rows_followed_in_portions_give_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large frame would lose matches between portions."""
    (rows,) = made(2, 1, 400)
    (result,), _ = expected(PATTERNS, [list(map(notification_of, rows))])
    monkeypatch.setattr(detection_worker, "ROWS_FOLLOWED_AT_ONCE", 7)
    find = finding(1)
    table = pa.Table.from_pylist(rows, SCHEMA)
    steps = [*map(pa.Table.from_batches, [[each] for each in find(table.to_batches())])]
    ordered = pa.concat_tables(steps).sort_by("time_us").to_batches(max_chunksize=5)
    matches = list(detection_worker.FollowSteps(find.patterns, PatternLimits())(ordered))
    assert sum(each.num_rows for each in matches) == sum(result.values())


def finding(parts: int) -> detection_worker.FindSteps:
    """Returns the step finder for rows of these columns."""
    shipped = detection_worker.Patterns(tuple(PATTERNS), tuple(map(to_msgpack, PATTERNS.values())))
    kinds = (frames.TEXT, frames.DOUBLE, frames.INTEGER, frames.BOOL, frames.TIME)
    columns = detection_worker.FrameColumns(
        tuple(SCHEMA.names), kinds, time_at=SCHEMA.get_field_index("time")
    )
    return detection_worker.FindSteps(shipped, parts, columns, PatternLimits())


@pytest.mark.parametrize("limit", ["SHARE_ROWS", "SHARE_BYTES"])
def test_rows_shared_in_portions_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Later shares, or those of a part without rows, would be lost."""
    batches = made(7, 2, 300)
    results, _ = expected(PATTERNS, [list(map(notification_of, each)) for each in batches], 0)
    monkeypatch.setattr(detection_worker, limit, 1)
    share = detection_worker.ShareSteps(finding(5))
    states = States(str(tmp_path), 5)
    for batch, rows in enumerate(batches):
        table = pa.Table.from_pylist(rows, SCHEMA)
        shares = list(share(table.to_batches(max_chunksize=20)))
        assert len(shares) > 10
        follow = detection_worker.FollowShares(
            share.find.patterns, PatternLimits(), 0, batch, states
        )
        matches = list(follow(shares))
        assert sum(each.num_rows for each in matches) == sum(results[batch].values()) > 0
        assert None not in states.counts(batch)


def test_columns_that_are_not_plain_give_the_same(spark: SparkSession) -> None:
    """Several values, struct members and envelope filters would be ignored."""
    (rows,) = made(3, 1, 300)
    patterns = {
        "zones": Pattern("every place.zone = 'n' -> code = 2 by tags within 40 us"),
        "envelope": Pattern("@time > @2001-01-01T00:00:00Z and code = 1 -> code = 2 by host"),
    }
    for number, row in enumerate(rows):
        row["tags"] = [["x", "y"], ["x"], [], None][number % 4]
        row["place"] = {"zone": "nsn"[number % 3]}
    notifications = [notification_of(row) for row in rows]
    (result,), _ = expected(patterns, [notifications])
    assert {name for name, _, _ in result} == set(patterns)
    of = pa.schema([*SCHEMA, ("tags", pa.list_(pa.string()))])
    of = of.append(pa.field("place", pa.struct([("zone", pa.string())])))
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, of))
    assert found_in(frame.transform(detect(patterns))) == result
    found = found_in(frame.transform(detect(patterns["envelope"], drop=("time", "tags"))))
    assert 0 < sum(found.values()) <= len(rows)
    assert b"tags" not in b"".join(each for _, _, run in found for each in run)


def test_whole_notifications_keep_their_envelopes(spark: SparkSession) -> None:
    """Publisher, number and id would not order ties; or a bad row would end the run."""
    pattern = Pattern("every kind = 'a' -> kind = 'b' by @publisher")
    notifications = [
        Notification(
            {"kind": "ab"[(number // 2) % 2], "x": number % 3},
            envelope=Envelope(publisher="pq"[number % 2], sequence=number, time_us=number // 8),
        )
        for number in range(100)
    ]
    (result,), _ = expected({"p": pattern}, [notifications])
    packed = [(to_msgpack(each),) for each in notifications]
    frame = spark.createDataFrame([*packed, (b"none",), (None,)], "notification binary")
    assert len(result) == 50
    assert found_in(frame.transform(detect({"p": pattern}))) == result


def test_a_column_that_is_no_attribute_is_refused_by_name(spark: SparkSession) -> None:
    """A column would be ignored silently, or the run fail in a worker."""
    for columns, name in (
        ("current_timestamp() time, current_date() day", "day"),
        ("current_timestamp() time, named_struct('m', X'00') s", "s.m"),
        ("1 time", "time"),
        ("1 a", "time"),
    ):
        frame = spark.sql(f"SELECT {columns}")
        with pytest.raises(InputError, match=f"column '{name}'"):
            frame.transform(detect(PATTERNS))


class Stream:
    """A stream of files, one for each micro-batch, with its output by batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint = str(folder / "checkpoint")
        self.results: dict[int, Result] = {}
        self.sink: Callable[[DataFrame, int], object] = self.keep

    def keep(self, matches: DataFrame, batch: int) -> None:
        """Records the matches of a batch."""
        self.results[batch] = found_in(matches)

    def run(self, patterns: dict[str, Pattern], slack_us: int = SLACK_US) -> None:
        """Processes all new files, and ends."""
        reader = self.spark.readStream.schema(self.spark.read.parquet(self.files).schema)
        frame = reader.option("maxFilesPerTrigger", 1).parquet(self.files)
        writer = detect_stream(
            frame, patterns, checkpoint=self.checkpoint, sink=self.sink, slack_us=slack_us
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    @property
    def files(self) -> str:
        """The folder that the stream reads."""
        return str(self.folder / "in")


def test_a_stream_gives_the_embedded_matches_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Runs, waiting rows or the watermark would be lost between batches or queries."""
    batches = made(4, 5, 300, back_us=6)
    results, matcher = expected(
        PATTERNS, [list(map(notification_of, rows)) for rows in batches], SLACK_US
    )
    stream = Stream(spark, tmp_path)
    for number, rows in enumerate(batches):
        write(tmp_path / "in", number, rows)
        if number in (0, 2, 4):
            stream.run(PATTERNS)
    assert [stream.results[number] for number in range(5)] == results
    told, known = detection_statistics(stream.checkpoint), matcher.statistics()
    assert (told.batch, told.watermark_us) == (4, known.watermark_us)
    assert told.matched == known.matched == sum(sum(each.values()) for each in results)
    assert told.dropped[LATE] == known.dropped[LATE] > 0
    assert told.dropped[DUPLICATE] > 0
    assert not (tmp_path / "checkpoint/state/1").exists()


def test_a_batch_with_an_idle_sink_writes_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """The next batch would find no state, or only that of some parts."""
    batches = made(5, 3, 200)
    notifications = [list(map(notification_of, rows)) for rows in batches]
    results, _ = expected(PATTERNS, notifications, SLACK_US)
    stream = Stream(spark, tmp_path)
    for number, rows in enumerate(batches):
        write(tmp_path / "in", number, rows)
        stream.sink = stream.keep if number == 2 else lambda matches, batch: matches.take(batch)
        stream.run(PATTERNS)
    assert stream.results == {2: results[2]}


def test_a_repeated_batch_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A failed sink would get other matches in the repetition."""
    batches = made(6, 3, 200)
    stream = Stream(spark, tmp_path)
    seen: list[Result] = []

    def fails_once(matches: DataFrame, batch: int) -> None:
        seen.append(found_in(matches))
        if len(seen) == 2:
            raise OSError("the disk is full")

    stream.sink = fails_once
    for number, rows in enumerate(batches):
        write(tmp_path / "in", number, rows)
        if number == 1:
            with pytest.raises(Exception, match="the disk is full"):
                stream.run(PATTERNS)
        stream.run(PATTERNS)
    notifications = [list(map(notification_of, rows)) for rows in batches]
    first, second, third = expected(PATTERNS, notifications, SLACK_US)[0]
    assert seen == [first, second, second, third]


def test_a_checkpoint_of_other_patterns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Runs of other patterns would be continued."""
    stream = Stream(spark, tmp_path)
    with pytest.raises(StoreError, match="no state"):
        detection_statistics(stream.checkpoint)
    write(tmp_path / "in", 0, made(7, 1, 10)[0])
    stream.run(PATTERNS)
    write(tmp_path / "in", 1, made(7, 1, 10)[0])
    with pytest.raises(Exception, match="it is of other patterns"):
        stream.run({"storm": PATTERNS["storm"]})


def test_bad_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """A bad row would be lost silently."""
    good = to_msgpack(Notification({"host": "a"}, envelope=Envelope(time_us=1)))
    schema = pa.schema([("notification", pa.binary())])
    table = pa.Table.from_pylist([{"notification": each} for each in (good, b"x", None)], schema)
    stream = Stream(spark, tmp_path)
    (tmp_path / "in").mkdir()
    pa.parquet.write_table(table, tmp_path / "in" / "0.parquet")
    stream.run(PATTERNS)
    assert detection_statistics(stream.checkpoint).dropped == Counter({BAD: 2})
    shape = json.loads((tmp_path / "checkpoint/state/shape.json").read_text())
    assert shape["parts"] == 2
