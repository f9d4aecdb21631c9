"""Outcomes of sources: files listed by Spark, Spark's formats, in batch and as streams."""

import bz2
import gzip
import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada import FilterSet, Index, Notification, from_msgpack, to_msgpack
from contrada.errors import InputError
from contrada.integrations.files import BadRecord, ReadOptions, plain_attributes, read_file
from contrada.integrations.files.record_matcher import MatchedRecord, Matcher
from contrada.integrations.spark import Base
from contrada.integrations.spark.pipeline import source_outcomes as spark_reading
from contrada.integrations.spark.pipeline import worker_files
from contrada.integrations.spark.pipeline.outcome_task import FilePart, matcher_of
from contrada.integrations.spark.pipeline.pipeline_description import Source
from contrada.integrations.spark.pipeline.source_outcomes import (
    OBSERVED,
    open_sources,
    outcomes,
    outcomes_of,
)
from contrada.integrations.spark.pipeline.worker_files import open_file

WISHES: dict[str, Any] = {
    "many": "v > 5",
    "zero": "v = 0",
    "kind": "kind = 'row'",
    "late": "@time > @2013-01-01T00:00:00Z",
    "text": "v = 'x'",
}
PLAIN_WISHES: dict[str, Any] = {name: WISHES[name] for name in ("many", "zero", "text")}
AT = datetime(2013, 1, 2, tzinfo=UTC)
ROWS = "v,n\n" + "".join(f"{number % 9},{number / 4}\n" for number in range(400)) + "x,1\nfew\n"


@pytest.fixture
def base(tmp_path: Path) -> Base:
    """Filters, some of which match constants of all records of a source."""
    return Base(WISHES, folder=tmp_path / "bases")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of rows, one of them compressed, and one with an odd name."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(ROWS)
    (folder / "b é%20#+.csv").write_text("v\n0\n7\n")
    (folder / "c.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    (folder / "_hidden.csv").write_text("v\n0\n")
    return folder


def source_of(path: Path | str, format_name: str = "csv", **options: Any) -> Source:
    """Returns a source of some paths."""
    reading = options.pop("reading", ReadOptions(add={"kind": "row"}))
    paths = () if path == "" else (str(path),)
    return Source("rows", format_name, (), reading, paths, **options)


Told = tuple[Counter[Any], Counter[Any], int, int]


def told(rows: Iterable[Any]) -> Told:
    """Returns matches, bad records, and counts of outcomes."""
    matches: Counter[Any] = Counter()
    bad: Counter[Any] = Counter()
    read = bad_count = 0
    for row in rows:
        assert row["source"] == "rows"
        if row["notification"] is not None:
            notification = from_msgpack(bytes(row["notification"]))
            assert isinstance(notification, Notification)
            assert row["time_us"] == notification.envelope.time_us
            shown = json.loads(row["attributes"])
            assert shown == json.loads(json.dumps(plain_attributes(notification)))
            key = row["file"], row["record"], notification
            matches[(*key, tuple(row["subscriptions"]))] += 1
        elif row["reason"] is not None:
            bad[row["file"], row["record"], row["column"], row["reason"], row["text"]] += 1
        else:
            read += row["read"]
            bad_count += row["bad"]
    return matches, bad, read, bad_count


def expected(files: Iterable[Path], source: Source, wishes: dict[str, Any] = WISHES) -> Told:
    """Returns the same without Spark."""
    index: Index[int] = Index()
    for position, wish in enumerate(wishes.values()):
        index.add(position, wish)
    matches: Counter[Any] = Counter()
    bad: Counter[Any] = Counter()
    read = 0
    for file in files:
        for found in read_file(file, source.format, source.reading):
            if isinstance(found, BadRecord):
                bad[str(file), found.line, found.column, found.reason, found.text] += 1
                continue
            read += 1
            if positions := tuple(sorted(index.match(found.notification))):
                matches[str(file), found.number, found.notification, positions] += 1
    return matches, bad, read, sum(bad.values())


def shown_files(folder: Path) -> list[Path]:
    """Returns the listed files."""
    return [file for file in folder.iterdir() if not file.name.startswith("_")]


def test_counts_are_observed(spark: SparkSession, base: Base, folder: Path) -> None:
    """A listener of Spark would have to read the report."""
    source = source_of(folder / "a.csv")
    frame: Any = outcomes(spark, source, base)
    matches, _, read, bad = told(frame.collect())
    observed = frame._jdf.queryExecution().observedMetrics().apply(OBSERVED)
    assert [observed.getLong(n) for n in range(3)] == [read, bad, matches.total()]
    assert bad


@pytest.mark.parametrize("way", ["here", "job", "content"])
@pytest.mark.parametrize("where", ["", "*.csv*", "file:"])
def test_files_are_those_that_spark_lists(
    spark: SparkSession,
    base: Base,
    folder: Path,
    way: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Directories, globs and addresses would be other files, or lines have other numbers."""
    monkeypatch.setattr(spark_reading, "PART_BYTES", 700)
    monkeypatch.setattr("contrada.integrations.files.lines.PART_BYTES", 700)
    if way == "job":
        monkeypatch.setattr(spark_reading, "LISTED_HERE_MAX", 1)
    if way == "content":
        monkeypatch.setattr(worker_files, "SCHEMES", {})
    source = source_of(f"file://{folder}" if where == "file:" else folder / where)
    found = told(outcomes(spark, source, base).collect())
    assert found == expected(shown_files(folder), source)
    assert found[0]
    assert found[1]


def test_compressed_files(spark: SparkSession, base: Base, tmp_path: Path) -> None:
    """Bytes of an archive would be records, or a format that one machine reads be bad on Spark."""
    (tmp_path / "in").mkdir()
    compress: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    }
    for suffix, pack in compress.items():
        (tmp_path / "in" / f"a.csv{suffix}").write_bytes(pack(ROWS.encode()))
    source = source_of(tmp_path / "in")
    found = told(outcomes(spark, source, base).collect())
    assert found == expected(shown_files(tmp_path / "in"), source)
    assert (found[2], found[3]) == (401 * len(compress), len(compress))


def test_a_base_is_matched_by_its_own_index(
    spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    """Filters without constants of records would be matched differently."""
    source = source_of(folder)
    base = Base(PLAIN_WISHES, folder=tmp_path / "bases")
    found = told(outcomes(spark, source, base).collect())
    assert found == expected(shown_files(folder), source, PLAIN_WISHES)


def test_sources_with_equal_but_different_constants(tmp_path: Path) -> None:
    """A worker would give the records of one source the constants of another."""
    wishes: dict[str, Any] = {"one": "v = 1", "true": "v = true", "never": FilterSet(())}
    saved = Base(wishes, folder=tmp_path / "bases").saved
    file = tmp_path / "a.csv"
    file.write_text("n\n1\n")
    for value, position in ((1, 0), (True, 1), (1, 0)):
        matcher = matcher_of(saved, ReadOptions(add={"v": value}))
        matcher.packs = False
        (told,) = [told for each in matcher.file(file, "csv", "x") for told in each.records]
        assert isinstance(told, MatchedRecord)
        assert told.positions == [position]
        assert told.record.notification["v"] is value


def test_a_file_that_becomes_empty_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It, and all files after it, would not be read at all."""
    monkeypatch.setattr(spark_reading, "PART_BYTES", 700)
    monkeypatch.setattr("contrada.integrations.files.lines.PART_BYTES", 700)
    monkeypatch.setattr(spark_reading, "open_lines", lambda file: iter(()))
    file = tmp_path / "a.csv"
    file.write_text(ROWS)
    assert spark_reading._split(str(file), source_of(file)) == (0, [FilePart(str(file))])


def test_relative_paths_are_shown_as_they_are(
    spark: SparkSession, base: Base, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would use Java's working directory, and results show longer paths."""
    monkeypatch.chdir(folder.parent)
    rows = outcomes(spark, source_of("in/a.csv"), base).collect()
    assert {row["file"] for row in rows} == {"in/a.csv", None}


def test_files_that_cannot_be_opened_are_bad(spark: SparkSession, base: Base, folder: Path) -> None:
    """A deleted file, or one with an unknown scheme, would end the run, or be lost silently."""
    frame = outcomes(spark, source_of(folder), base)
    (folder / "a.csv").unlink()
    _, bad, read, count = told(frame.collect())
    gone = [key for key in bad if key[0] == str(folder / "a.csv")]
    assert [key[3] for key in gone] == ["cannot be read: No such file or directory"]
    assert (read, count) == (403, 2)
    with pytest.raises(InputError, match="found no file for"):
        outcomes(spark, source_of(folder / "none*"), base)
    with pytest.raises(InputError, match="the scheme 'odd'"):
        open_file("odd://there/a.csv")


def test_arrow_opens_other_file_systems(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in Arrow's file systems would be split differently from local ones."""
    monkeypatch.setattr(worker_files, "LOCAL", "nowhere")
    for path in shown_files(folder):
        elsewhere = open_file(f"file://{path}")
        assert not isinstance(elsewhere, Path)
        matchers = [Matcher([], ReadOptions(), 0) for _ in range(2)]
        found = [
            [(each.read, each.records) for each in matcher.file(file, "csv", "x")]
            for matcher, file in zip(matchers, (path, elsewhere), strict=True)
        ]
        assert sum(read for read, _ in found[0]) == sum(read for read, _ in found[1]) > 0
        assert [t for _, ts in found[0] for t in ts] == [t for _, ts in found[1] for t in ts]
    gone = list(Matcher([], ReadOptions()).file(open_file(f"file://{folder}/none"), "csv", "x"))
    assert isinstance(gone[0].records[0], BadRecord)


def followed(rows: DataFrame, task: Any, base: Base, state: Path) -> list[list[Any]]:
    """Returns the outcomes of each micro-batch."""
    found: list[list[Any]] = []

    def take(batch: DataFrame, _: int) -> None:
        found.append(outcomes_of(batch, task, base).collect())

    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(state))
    query.trigger(availableNow=True).start().awaitTermination()
    return found


@pytest.mark.parametrize("with_content", [False, True])
def test_a_stream_of_files(
    spark: SparkSession,
    base: Base,
    folder: Path,
    tmp_path: Path,
    with_content: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New files would be read differently, twice, or not at all."""
    if with_content:
        monkeypatch.setattr(worker_files, "SCHEMES", {})
    source = source_of(folder)
    rows, task = open_sources(spark, [source], stream=True)
    (first,) = followed(rows, task, base, tmp_path / "state")
    assert told(first) == expected(shown_files(folder), source)
    (folder / "new.csv").write_text("v\n8\nx\n1,2\n")
    rows, task = open_sources(spark, [source], stream=True)
    (second,) = followed(rows, task, base, tmp_path / "state")
    assert told(second) == expected([folder / "new.csv"], source)


def wide(spark: SparkSession) -> DataFrame:
    """Rows, of which the third is bad: no double has the digits of its price."""
    rows = [(7, "x", AT, "1.5"), (0, None, AT, None), (1, "y", AT, "123456789012345678.91")]
    return spark.createDataFrame(
        [(*row[:3], row[3]) for row in rows], "v int, s string, at timestamp, p string"
    ).selectExpr("v", "s", "at", "cast(p as decimal(20, 2)) p")


def test_formats_of_spark(spark: SparkSession, base: Base, tmp_path: Path) -> None:
    """Rows of tables and of messages would match differently from the same rows in a file."""
    path = tmp_path / "table"
    wide(spark).write.parquet(str(path))
    reading = ReadOptions(add={"kind": "row"}, time="at", types={"none": "number"})
    rows = outcomes(spark, source_of(path, "parquet", reading=reading), base).collect()
    matches, bad, read, count = told(rows)
    assert (read, count) == (2, 1)
    wanted = [
        Notification({"v": 7, "s": "x", "at": AT, "p": 1.5, "kind": "row"}),
        Notification({"v": 0, "at": AT, "kind": "row"}),
    ]
    assert {(key[2]["v"], key[3]) for key in matches} == {(7, (0, 2, 3)), (0, (1, 2, 3))}
    assert all(dict(key[2]) in map(dict, wanted) for key in matches)
    ((file, line, _, reason, text),) = bad
    assert (file, line) == (None, None)
    assert "123456789012345678.91" in reason
    assert json.loads(text)["v"] == 1
    assert {row["unmet"] and tuple(row["unmet"]) for row in rows} == {None, ("none",)}

    lines = ['{"v": 6}', "{", '{"v": "x"}']
    spark.createDataFrame([(each.encode(),) for each in lines], "value binary").write.parquet(
        str(tmp_path / "messages")
    )
    source = source_of(tmp_path / "messages", "parquet", of="json", column="value")
    matches, _, read, count = told(outcomes(spark, source, base).collect())
    assert {(key[2]["v"], key[3]) for key in matches} == {(6, (0, 2)), ("x", (2, 4))}
    assert (read, count) == (2, 1)


def test_tables_by_name(spark: SparkSession, base: Base) -> None:
    """A table of Spark's catalog would not be found."""
    wide(spark).createOrReplaceTempView("wide_rows")
    source = source_of("", "table", table="wide_rows", reading=ReadOptions())
    matches, _, read, count = told(outcomes(spark, source, base).collect())
    assert (read, count) == (2, 1)
    assert {key[3] for key in matches} == {(0,), (1,)}
    packed = to_msgpack(Notification({"v": 7}))
    spark.createDataFrame([(packed,), (b"x",)], "notification binary").createOrReplaceTempView("p")
    source = source_of("", "table", table="p", reading=ReadOptions())
    matches, _, read, count = told(outcomes(spark, source, base).collect())
    assert [key[2] for key in matches] == [Notification({"v": 7})]
    assert (read, count) == (1, 1)


@pytest.mark.parametrize("format_name", ["csv", "parquet"])
def test_a_stream_over_a_missing_folder_is_refused(
    spark: SparkSession, tmp_path: Path, format_name: str
) -> None:
    """A mistake in a path would wait for ever, silently."""
    (tmp_path / "in").mkdir()
    options = {} if format_name == "csv" else {"schema": "v long"}

    def open_stream(path: str) -> None:
        source = Source(
            "rows", format_name, (), ReadOptions(), (str(tmp_path / path),), None, options
        )
        open_sources(spark, [source], stream=True)

    for path, place in (("im/*.csv", "im"), ("im/x/", "im/x"), ("in/gone.csv", "in/gone.csv")):
        with pytest.raises(InputError, match=f"source 'rows': found nothing at {tmp_path / place}"):
            open_stream(path)
    for path in ("in", "in/*.csv", "in/2*/*.csv", "i?/[a-z].csv"):
        open_stream(path)


def test_a_stream_of_several_sources(
    spark: SparkSession, base: Base, folder: Path, tmp_path: Path
) -> None:
    """Rows of one source would be read as those of another, or a column be refused too late."""
    wide(spark).write.parquet(str(tmp_path / "table"))
    sources = [
        source_of(folder),
        source_of(tmp_path / "table", "parquet", reading=ReadOptions()),
        source_of(tmp_path / "empty", reading=ReadOptions()),
    ]
    (tmp_path / "empty").mkdir()
    rows, task = open_sources(spark, sources, stream=True)
    (found,) = followed(rows, task, base, tmp_path / "state")
    one, two = (told(outcomes(spark, each, base).collect()) for each in sources[:2])
    matches, bad, read, count = told(found)
    assert (matches, bad) == (one[0] + two[0], one[1] + two[1])
    assert (read, count) == (one[2] + two[2], one[3] + two[3])
    with pytest.raises(InputError, match="a stream reads one path"):
        open_sources(spark, [Source("s", "csv", (), ReadOptions(), ("a", "b"))], stream=True)
