"""Spark's own stateful operator as the check of `detect_stream`, on a pattern that it supports."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.spark_peers import two_steps
from contrada.integrations.spark.transforms.detection import detect_stream
from contrada.model.domains.values import datetime_of
from tests.integrations.spark.transforms.sequences import write

STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PATTERN = "level > 80 -> level < 10 by host within 10 s"


@pytest.mark.slow
def test_it_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """State of this project would evolve differently from Spark's."""
    chance, number = random.Random(9), 0
    for file in range(3):
        rows: list[dict[str, Any]] = []
        for _ in range(200):
            number += 1
            time = datetime_of(1_700_000_000_000_000 + number * 1_000_000)
            level = chance.choice((5.0, 50.0, 90.0))
            rows.append({"host": chance.choice("abc"), "level": level, "time": time})
        write(tmp_path / "in", file, rows)
    found: dict[str, list[tuple[str, int]]] = {"own": [], "theirs": []}

    def own(matches: DataFrame, _batch: int) -> None:
        told = matches.selectExpr("get_json_object(by, '$.host')", "unix_micros(time)")
        found["own"] += [(host, end_us) for host, end_us in told.collect()]

    def theirs(matches: DataFrame, _batch: int) -> None:
        found["theirs"] += [(row.host, row.end_us) for row in matches.collect()]

    files = str(tmp_path / "in")
    reader = spark.readStream.schema(spark.read.parquet(files).schema)
    frame = reader.option("maxFilesPerTrigger", 1).parquet(files)
    writers = (
        detect_stream(frame, PATTERN, checkpoint=str(tmp_path / "own"), sink=own),
        two_steps(frame)
        .writeStream.foreachBatch(theirs)
        .option("checkpointLocation", str(tmp_path / "theirs")),
    )
    spark.conf.set(STORE, ROCKS)
    try:
        for writer in writers:
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(STORE)
    last_us = 1_700_000_000_000_000 + number * 1_000_000
    expected = [each for each in found["theirs"] if each[1] < last_us]  # The last one waits.
    assert sorted(found["own"]) == sorted(expected)
    assert len(expected) > 20
