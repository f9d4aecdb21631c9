"""Streams of pipelines whose files grow, vanish or are corrupt, with late records, under load."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
from contrada.integrations.spark.pipeline.subscription_versions import Versions
from contrada.integrations.spark.pipeline.worker_files import CHANGED
from contrada.integrations.spark.spark_session import cause_of
from contrada.integrations.spark.transforms.detection import detection_statistics
from contrada.model import Envelope, Notification, Pattern
from contrada.model.domains.values import datetime_of
from contrada.patterns.pattern_engine import LATE
from tests.integrations.spark.transforms.sequences import expected

ROWS: Final = 100
"""Rows of a file."""

HEAD: Final = """
mode = "{mode}"
subscriptions = "subs"
output = "out"
"""

SOURCE: Final = """
[[source]]
name = "rows"
format = "{format}"
paths = ["in/*"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of a source, and a subscription that matches each row."""
    (tmp_path / "in").mkdir()
    (tmp_path / "subs").write_text("all: n any\n")
    return tmp_path


def run(spark: SparkSession, folder: Path, text: str, **options: Any) -> PipelineSummary:
    (folder / "p.toml").write_text(text)
    work = run_stream if 'mode = "stream"' in text else run_pipeline
    return work(spark, read_pipeline(folder / "p.toml"), **options)


def text_of(format_name: str, mode: str = "stream", options: str = "") -> str:
    """Returns a description whose stream reads one file at a time, in the order of their names."""
    given = f"maxFilesPerTrigger = 1{options}" if mode == "stream" else ""
    source = SOURCE.format(format=format_name) + f"options = {{ {given} }}\n"
    return HEAD.format(mode=mode) + source


def put(folder: Path, number: int) -> Path:
    """Writes a Parquet file of rows."""
    file = folder / "in" / f"{number}.parquet"
    pq.write_table(pa.table({"n": range(number * ROWS, (number + 1) * ROWS)}), file)
    os.utime(file, (0, 1_700_000_000 + number))
    return file


def matched(folder: Path) -> list[int]:
    """Returns the matched rows."""
    table = pq.read_table(folder / "out" / "matches", columns=["attributes"])
    return sorted(json.loads(each)["n"] for each in table.column(0).to_pylist())


@contextmanager
def meanwhile(do: Callable[[int], object]) -> Iterator[None]:
    """Acts in each micro-batch, when Spark has selected its files."""
    taken = Versions.of_batch

    def of_batch(self: Versions, batch: int) -> Any:
        do(batch)
        return taken(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Versions, "of_batch", of_batch)
        yield


def test_a_file_that_grows_is_reported(spark: SparkSession, folder: Path) -> None:
    """Half a record would be read as another one, and nothing show it."""
    (folder / "in" / "a.csv").write_text("n\n1\n2")

    def grow(_: int = 0) -> None:
        with (folder / "in" / "a.csv").open("a") as file:
            file.write("3\n")

    with meanwhile(grow):
        summary = run(spark, folder, text_of("csv"))
    (source,) = summary.sources
    assert (source.read, source.bad, source.reasons) == (2, 1, {CHANGED: 1})
    (bad,) = pq.read_table(folder / "out" / "quarantine").to_pylist()
    assert (bad["file"], bad["reason"]) == (str(folder / "in" / "a.csv"), CHANGED)
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["stages"].keys() == {"match", "write"}
    grow()  # It was read, and is not read again.
    later = run(spark, folder, text_of("csv"))
    assert (later.batches, later.stages) == (1, report["stages"])
    assert matched(folder) == [1, 23]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_corrupt_parquet_is_named_and_may_be_mended(
    spark: SparkSession, folder: Path, mode: str
) -> None:
    """Nobody would know which of many files is corrupt; rows would be lost, or written twice."""
    files = [put(folder, number) for number in range(3)]
    whole = files[1].read_bytes()
    files[1].write_bytes(
        whole[:-40] + bytes(each ^ 255 for each in whole[-40:-8]) + whole[-8:]  # Its footer.
    )
    os.utime(files[1], (0, 1_700_000_001))
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        run(spark, folder, text_of("parquet", mode))
    assert str(files[1]) in cause_of(str(caught.value))
    assert (folder / "out" / "matches").exists() == (mode == "stream")
    files[1].write_bytes(whole)
    summary = run(spark, folder, text_of("parquet", mode))
    assert summary.sources[0].read == 3 * ROWS
    assert matched(folder) == [*range(3 * ROWS)]


@pytest.mark.slow
def test_vanished_parquet_is_named_and_may_be_left_out(spark: SparkSession, folder: Path) -> None:
    """Rows would be lost in silence, or a stream never go on without the file."""
    files = [put(folder, number) for number in range(2)]
    with (
        meanwhile(lambda batch: files[batch].unlink()),
        pytest.raises((PySparkException, Py4JJavaError)) as caught,
    ):
        run(spark, folder, text_of("parquet"))
    assert f"{files[0]} does not exist" in cause_of(str(caught.value))
    run(spark, folder, text_of("parquet", options=", ignoreMissingFiles = true"))
    assert matched(folder) == [*range(ROWS, 2 * ROWS)]


@pytest.mark.slow
def test_late_records_of_a_pipeline(spark: SparkSession, folder: Path) -> None:
    """Records within the slack would be dropped, or those beyond it be followed."""
    patterns = {"rise": Pattern("every n = 1 -> n = 2 by key within 1 min")}
    files = [
        [(10, 1, "x"), (15, 1, "y")],
        [(12, 2, "x"), (30, 0, "z")],  # Earlier than the last one, within the slack.
        [(22, 2, "y"), (9, 1, "x"), (14, 2, "y")],  # Two of them late: the watermark is 20.
        [(60, 0, "z")],
    ]
    batches = []
    for number, rows in enumerate(files):
        lines = [{"n": n, "key": key, "at": f"1970-01-01T00:00:{s % 60:02}Z"} for s, n, key in rows]
        lines[0]["at"] = str(datetime_of(rows[0][0] * 1_000_000).isoformat())
        file = folder / "in" / f"{number}.jsonl"
        file.write_text("\n".join(map(json.dumps, lines)))
        os.utime(file, (0, 1_700_000_000 + number))
        batches.append(
            [
                Notification(
                    {"n": n, "key": key, "at": datetime_of(s * 1_000_000)},
                    envelope=Envelope(time_us=s * 1_000_000),
                )
                for s, n, key in rows
            ]
        )
    text = text_of("jsonl") + 'time = "at"\ntypes = { at = "time" }\n'
    text = 'slack = "10 s"\n' + text
    text += f'[[pattern]]\nname = "rise"\npattern = "{patterns["rise"]}"\n'
    summary = run(spark, folder, text)
    results, matcher = expected(patterns, batches, 10_000_000)
    known = {number: sum(each.values()) for number, each in enumerate(results) if each}
    found = pq.read_table(folder / "out" / "patterns").to_pylist()
    assert Counter(row["batch"] for row in found) == known
    assert sorted(json.loads(row["by"])["key"] for row in found) == ["x", "y"]
    assert summary.patterns == {"rise": 2}
    statistics = detection_statistics(str(folder / "out" / ".checkpoint"))
    assert statistics.dropped[LATE] == matcher.statistics().dropped[LATE] == 2
    assert statistics.watermark_us == matcher.statistics().watermark_us


CHANGES: Final = 8


@pytest.mark.slow
def test_subscriptions_change_under_load(spark: SparkSession, folder: Path) -> None:
    """A micro-batch would have two versions, or rows one from before they were written."""
    text = text_of("jsonl").replace("maxFilesPerTrigger = 1", "maxFilesPerTrigger = 3")
    text = 'trigger = "10 ms"\n' + text
    stop, is_written, batches = threading.Event(), threading.Event(), threading.Semaphore(2)

    def change() -> None:
        for number in range(CHANGES):
            batches.acquire()  # So that changes and micro-batches alternate, at any point of both.
            lines = f"low {number}: n < {ROWS // 2}\nhigh {number}: n >= {ROWS // 2}\n"
            (folder / ".subs").write_text(lines)
            (folder / ".subs").rename(folder / "subs")
            rows = "\n".join(json.dumps({"n": n, "file": number}) for n in range(ROWS))
            (folder / ".rows").write_text(rows)
            (folder / ".rows").rename(folder / "in" / f"{number}.jsonl")
        is_written.set()

    def follow(*_: object) -> None:
        report = folder / "out" / "report.json"
        if is_written.is_set() and report.exists():
            read = json.loads(report.read_text())["sources"][0]["read"]
            if read == CHANGES * ROWS:
                stop.set()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with meanwhile(lambda _: batches.release()):
            run(spark, folder, text, on_progress=follow, stop=stop)
    finally:
        thread.join()
    rows = pq.read_table(folder / "out" / "matches").to_pylist()
    versions: dict[int, set[int]] = {}
    found: Counter[tuple[int, int]] = Counter()
    for row in rows:
        side, number = row["subscription"].split()
        values = json.loads(row["attributes"])
        found[values["file"], values["n"]] += 1
        assert side == ("low" if values["n"] < ROWS // 2 else "high")
        assert int(number) >= values["file"], "the subscriptions were written before the file"
        versions.setdefault(row["batch"], set()).add(int(number))
    assert found == Counter((number, n) for number in range(CHANGES) for n in range(ROWS))
    assert all(len(each) == 1 for each in versions.values())
    assert len(set().union(*versions.values())) > 2
