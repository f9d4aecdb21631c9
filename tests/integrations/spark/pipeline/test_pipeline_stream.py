"""A pipeline as a stream, against the embedded engine, micro-batch by micro-batch."""

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.sql import SparkSession

from contrada.errors import InputError, StoreError
from contrada.integrations.spark.pipeline import pipeline_stream, subscription_versions
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
from contrada.integrations.spark.pipeline.pipeline_subscriptions import load_origins
from contrada.integrations.spark.pipeline.preflight import plan_lines
from contrada.integrations.spark.pipeline.subscription_versions import Versions
from contrada.integrations.spark.transforms.detection import detection_statistics
from contrada.model import Envelope, Notification
from contrada.model.domains.values import time_us_of
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import Match

DESCRIPTION = """
mode = "stream"
subscriptions = "subs"
output = "out"

[[source]]
name = "rows"
format = "jsonl"
paths = ["in/*.jsonl"]
options = { maxFilesPerTrigger = 1 }
types = { at = "time" }
time = "at"
type_marks = ["Row"]

[[pattern]]
name = "rise"
pattern = "n = 1 -> n = 2 by key within 1 min"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A description of a stream, without files."""
    (tmp_path / "in").mkdir()
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "p.toml").write_text(DESCRIPTION)
    return tmp_path


def give(folder: Path, name: str, *rows: dict[str, Any] | str) -> None:
    """Writes a file of rows, a second apart, in the order of all files."""
    lines: list[str] = []
    for each in rows:
        if isinstance(each, dict):
            second = len(list((folder / "in").iterdir())) * 10 + len(lines)
            each = json.dumps({**each, "at": f"2026-01-01T00:00:{second:02}Z"})
        lines.append(each)
    (folder / f".{name}").write_text("\n".join(lines))
    os.utime(folder / f".{name}", (0, 1_700_000_000 + ord(name)))
    (folder / f".{name}").rename(folder / "in" / f"{name}.jsonl")


def matched(folder: Path) -> list[tuple[int, str, int, int]]:
    """Returns micro-batch, subscription, `n` and version of each match."""
    return sorted(
        (row["batch"], row["subscription"], json.loads(row["attributes"])["n"], row["version"])
        for row in pq.read_table(folder / "out" / "matches").to_pylist()
    )


def rows_in(folder: Path, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "out" / what).to_pylist()
    return found


def test_subscriptions_change_between_micro_batches(spark: SparkSession, folder: Path) -> None:
    """The subscriptions of a notification would be unknown, or new ones would wait."""
    give(folder, "a", {"n": 1, "key": "x"}, {"n": 5, "key": "x"}, "{")
    first = run_stream(spark, read_pipeline(folder / "p.toml"))
    assert matched(folder) == [(0, "low", 1, 1)]
    assert (first.batches, first.sources[0].read, first.sources[0].bad) == (1, 2, 1)
    (folder / "subs").write_text("low: n < 2\nhigh: n >= 5\n")
    give(folder, "b", {"n": 2, "key": "x"}, {"n": 1, "key": "y"}, {"n": 7, "key": "x"})
    give(folder, "c", {"n": 9, "key": "z"}, {"n": 2, "key": "z"})
    second = run_stream(spark, read_pipeline(folder / "p.toml"))
    assert matched(folder) == [
        (0, "low", 1, 1),
        (1, "high", 7, 2),
        (1, "low", 1, 2),
        (2, "high", 9, 2),
    ]
    assert second.matches == {"low": 2, "high": 2}
    assert [each.partition(",")[0] for each in second.versions] == [
        "1: 1 subscriptions",
        "2: 2 subscriptions",
    ]
    assert [row["text"] for row in rows_in(folder, "quarantine")] == ["{"]
    (pattern,) = rows_in(folder, "patterns")
    assert (pattern["pattern"], json.loads(pattern["by"])) == ("rise", {"key": "x"})
    assert second.patterns == {"rise": 1}
    report = json.loads((folder / "out" / "report.json").read_text())
    assert (report["batches"], report["sources"][0]["read"]) == (3, 7)


def test_a_file_deleted_before_its_read_is_reported(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark skips it: the file would be lost, and only Spark's log would show it."""
    other = DESCRIPTION[DESCRIPTION.index("[[source]]") : DESCRIPTION.index("[[pattern]]")]
    other = other.replace('"rows"', '"others"').replace("in/*.jsonl", "other/*.jsonl")
    text = DESCRIPTION.replace("maxFilesPerTrigger = 1", "maxFilesPerTrigger = 2")
    (folder / "p.toml").write_text(text.replace("[[source]]", f"{other}[[source]]"))
    (folder / "other").mkdir()
    (folder / "other" / "o.jsonl").write_text("")
    for name in ("a", "b é%20", "c"):
        give(folder, name[0], {"n": 1, "key": name})
        (folder / "in" / f"{name[0]}.jsonl").rename(folder / "in" / f"{name}.jsonl")
    taken = Versions.of_batch

    def of_batch(self: Any, batch: int) -> Any:
        if batch == 0:  # Spark has taken two files by now.
            (folder / "in" / "b é%20.jsonl").unlink()
        return taken(self, batch)

    monkeypatch.setattr(Versions, "of_batch", of_batch)
    summary = run_stream(spark, read_pipeline(folder / "p.toml"))
    assert [row[0] for row in matched(folder)] == [0, 1]
    (gone,) = rows_in(folder, "quarantine")
    assert gone["file"] == str(folder / "in" / "b é%20.jsonl")
    assert (gone["source"], gone["reason"], gone["line"]) == (
        "rows",
        "removed before it was read",
        None,
    )
    (others, rows) = summary.sources
    assert (others.source, others.bad) == ("others", 0)
    assert (rows.read, rows.bad, rows.reasons) == (2, 1, {"removed before it was read": 1})


@pytest.mark.parametrize(
    ("subscription", "ending"),
    [  # Each way of reading with each subscription: CSV and JSON lines are read by one.
        ("low: n < 2", "parquet"),
        ("high: n >= 5", "parquet"),
        ("low: n < 2", "csv"),
        ("high: n >= 5", "jsonl"),
    ],
)
def test_unmatched_records_advance_the_watermark(
    spark: SparkSession, folder: Path, subscription: str, ending: str
) -> None:
    """The last match would wait for another matching record, possibly for ever."""
    (folder / "subs").write_text(subscription)
    types = 'types = { at = "time" }\n'
    text = DESCRIPTION.replace("jsonl", ending).replace(types, types if ending != "parquet" else "")
    (folder / "p.toml").write_text(text)
    matcher, known = PatternMatcher[str](), list[Match[str]]()
    matcher.add("rise", "n = 1 -> n = 2 by key within 1 min")
    for batch, numbers in enumerate([(1, 9), (2, 8), (7, 6), (0,)]):
        times = [datetime(2026, 1, 1, 0, batch, second, tzinfo=UTC) for second in range(2)]
        rows = [{"n": n, "key": "x", "at": at} for n, at in zip(numbers, times, strict=False)]
        put(rows, folder / "in" / f"{batch}.{ending}")
        os.utime(folder / "in" / f"{batch}.{ending}", (0, 1_700_000_000 + batch))
        summary = run_stream(spark, read_pipeline(folder / "p.toml"))
        for n, at in zip(numbers, times, strict=False):
            envelope = Envelope(time_us=time_us_of(at))
            known += matcher.push(Notification({"n": n, "key": "x"}, envelope=envelope))
        assert summary.patterns["rise"] == len(known) == min(batch, 1), batch
        statistics = detection_statistics(str(folder / "out" / ".checkpoint"))
        assert statistics.watermark_us == matcher.statistics().watermark_us


def put(rows: list[dict[str, Any]], file: Path) -> None:
    """Writes a file of rows in the format of its suffix."""
    table = pa.Table.from_pylist(rows)
    if file.suffix == ".parquet":
        pq.write_table(table, file)
    elif file.suffix == ".csv":
        csv.write_csv(table, file)
    else:
        texts = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows]
        file.write_text("\n".join(texts))


def test_unreadable_subscriptions_keep_the_last_version(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in a changing file would end a stream, or leave it without subscriptions."""
    give(folder, "a", {"n": 1, "key": "x"})
    give(folder, "b", {"n": 1, "key": "x"})
    pipeline = read_pipeline(folder / "p.toml")
    with pytest.MonkeyPatch.context() as patch:
        spoil = spoiled(lambda: (folder / "subs").write_text("low n < 2"), load_origins)
        patch.setattr(subscription_versions, "load_origins", spoil)
        run_stream(spark, pipeline)
    assert matched(folder) == [(0, "low", 1, 1), (1, "low", 1, 1)]
    assert "the subscriptions stay as they were" in caplog.text


def spoiled(first: Callable[[], object], ask: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that acts before it loads."""

    def asked(*arguments: Any) -> Any:
        first()
        return ask(*arguments)

    return asked


def test_a_resumed_stream_reads_its_subscriptions_again(spark: SparkSession, folder: Path) -> None:
    """Later records would be matched by the subscriptions at the start."""
    give(folder, "a", {"n": 1, "key": "x"})
    run_stream(spark, read_pipeline(folder / "p.toml"))
    started = read_pipeline(folder / "p.toml")
    (folder / "subs").write_text("high: n >= 5\n")
    give(folder, "b", {"n": 1, "key": "x"}, {"n": 9, "key": "x"})
    run_stream(spark, started)
    assert matched(folder) == [(0, "low", 1, 1), (1, "high", 9, 2)]


def test_an_old_file_that_appears_late_is_read(spark: SparkSession, folder: Path) -> None:
    """Files copied with their times would be lost silently."""
    give(folder, "a", {"n": 1, "key": "x"})
    run_stream(spark, read_pipeline(folder / "p.toml"))
    give(folder, "b", {"n": 0, "key": "x"})
    os.utime(folder / "in" / "b.jsonl", (0, 1_600_000_000))
    run_stream(spark, read_pipeline(folder / "p.toml"))
    assert matched(folder) == [(0, "low", 1, 1), (1, "low", 0, 1)]


def test_matches_without_a_service_do_not_count_as_published(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report would claim publications that were never sent."""
    monkeypatch.setattr(
        "contrada.integrations.spark.pipeline.preflight.check_reachable", lambda address: None
    )
    monkeypatch.setattr(pipeline_stream._MicroBatches, "_publish", lambda *_: None)
    pipeline = read_pipeline(folder / "p.toml")
    counts = []
    for name, to in (("a", None), ("b", "contrada://there:1"), ("c", None)):
        give(folder, name, {"n": 1, "key": "x"}, {"n": 0, "key": "x"})
        summary = run_stream(spark, pipeline, publish=to)
        (source,) = summary.sources
        counts.append((source.matched, source.published, summary.published))
    assert counts == [(2, 0, 0), (4, 2, 2), (6, 2, 2)]


def dry_run(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Returns the plan."""
    return list(plan_lines(spark, pipeline, None))


class EndedError(Exception):
    """Ends a driver in these tests."""


@pytest.mark.parametrize(
    ("step", "is_done"),
    [("_write", False), ("_detect", False), ("_detect", True), ("_add", True)],
    ids=["chosen", "written", "detected", "counted"],
)
def test_a_repeated_micro_batch(
    spark: SparkSession, folder: Path, step: str, is_done: bool
) -> None:
    """Rows would be lost, duplicated or matched by two versions after the end of a driver."""
    give(folder, "a", {"n": 1, "key": "x"}, {"n": 9, "key": "x"}, {"n": 2, "key": "x"})
    give(folder, "b", {"n": 1, "key": "z"}, {"n": 9, "key": "z"})
    do = getattr(pipeline_stream._MicroBatches, step)

    def ended(*arguments: Any) -> Any:
        if is_done:
            do(*arguments)
        raise EndedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_stream._MicroBatches, step, ended)
        with pytest.raises(EndedError):
            run_stream(spark, read_pipeline(folder / "p.toml"))
    (folder / "subs").write_text("high: n >= 5\n")
    summary = run_stream(spark, read_pipeline(folder / "p.toml"))
    assert matched(folder) == [(0, "low", 1, 1), (1, "high", 9, 2)]
    assert summary.matches == {"low": 1, "high": 1}
    assert summary.sources[0].read == 5
    assert len(rows_in(folder, "patterns")) == summary.patterns["rise"] == 1


def test_a_stopped_stream_resumes(spark: SparkSession, folder: Path) -> None:
    """It would wait for ever for a micro-batch, or leave one out."""
    for name, n in zip("abcdef", (0, 1, 2, 3, 4, 2), strict=True):
        give(folder, name, {"n": n, "key": "x"})
    stop, do = threading.Event(), pipeline_stream._MicroBatches._process

    def done(batches: Any, frame: Any, batch: int) -> None:
        do(batches, frame, batch)
        if batch == 1:
            stop.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_stream._MicroBatches, "_process", done)
        first = run_stream(spark, read_pipeline(folder / "p.toml"), stop=stop)
    assert 2 <= first.batches <= 6
    last = run_stream(spark, read_pipeline(folder / "p.toml"))
    assert (last.batches, last.sources[0].read) == (6, 6)
    assert matched(folder) == [(0, "low", 0, 1), (1, "low", 1, 1)]
    (pattern,) = rows_in(folder, "patterns")
    assert pattern["pattern"] == "rise"


def test_a_failure_during_a_stop_is_raised(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost broker would look like an orderly end."""
    give(folder, "a", {"n": 1, "key": "x"})
    stop = threading.Event()

    def fail(batches: Any, frame: Any, batch: int) -> None:
        stop.set()
        while not batches.is_ending:
            stop.wait()
        raise EndedError

    monkeypatch.setattr(pipeline_stream._MicroBatches, "_process", fail)
    with pytest.raises(EndedError):
        run_stream(spark, read_pipeline(folder / "p.toml"), stop=stop)


@pytest.mark.parametrize(
    ("old", "new", "what"), [("n = 1 ->", "n = 3 ->", "patterns"), ('"rows"', '"r"', "sources")]
)
def test_a_checkpoint_of_other_sources_or_patterns_is_refused(
    spark: SparkSession, folder: Path, old: str, new: str, what: str
) -> None:
    """Positions of one file, or runs of one pattern, would be used for others."""
    run_stream(spark, read_pipeline(folder / "p.toml"))
    assert dry_run(spark, read_pipeline(folder / "p.toml"))
    (folder / "p.toml").write_text(DESCRIPTION.replace(old, new))
    for ask in (run_stream, dry_run):
        with pytest.raises(StoreError, match=f"is of other {what}"):
            ask(spark, read_pipeline(folder / "p.toml"))


def test_runs_and_streams_have_outputs_of_their_own(spark: SparkSession, folder: Path) -> None:
    """A run would delete a stream's results, or a stream write into a run's links."""
    give(folder, "a", {"n": 1, "key": "x"})
    batch = DESCRIPTION.replace('"stream"', '"batch"')
    (folder / "batch.toml").write_text(batch)
    run_stream(spark, read_pipeline(folder / "p.toml"))
    refused: tuple[Callable[..., Any], ...] = (run_pipeline, dry_run)
    for ask in refused:
        with pytest.raises(InputError, match="results of a stream"):
            ask(spark, read_pipeline(folder / "batch.toml"))
    (folder / "other.toml").write_text(batch.replace('"out"', '"other"'))
    run_pipeline(spark, read_pipeline(folder / "other.toml"))
    (folder / "p.toml").write_text(DESCRIPTION.replace('"out"', '"other"'))
    refused = (run_stream, dry_run)
    for ask in refused:
        with pytest.raises(InputError, match="results of a run"):
            ask(spark, read_pipeline(folder / "p.toml"))


def test_an_output_has_one_checkpoint(spark: SparkSession, folder: Path) -> None:
    """A new stream would replace some micro-batches and keep others."""
    give(folder, "a", {"n": 1, "key": "x"})
    run_stream(spark, read_pipeline(folder / "p.toml"))
    (folder / "p.toml").write_text('checkpoint = "new"\n' + DESCRIPTION)
    for ask in (run_stream, dry_run):
        with pytest.raises(InputError, match="with another checkpoint"):
            ask(spark, read_pipeline(folder / "p.toml"))
    assert matched(folder) == [(0, "low", 1, 1)]
