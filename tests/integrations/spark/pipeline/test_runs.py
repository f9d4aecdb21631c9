"""Runs of pipelines: origins of subscriptions, patterns, tables, and results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql.types import StructType

from contrada.connections import connect_sync
from contrada.errors import ConnectionFailedError, InputError
from contrada.integrations.spark.pipeline import pipeline_run as running
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
from contrada.integrations.spark.pipeline.preflight import plan_lines
from contrada.integrations.spark.pipeline.run_folder import unfinished_run
from tests.integrations.files.event_log_file import event_log, windows_event
from tests.net.processes import serving

ROWS = "n,at\n1,2026-01-01T00:00:01Z\n5,2026-01-02T00:00:00Z\nbad\n2,2026-01-01T00:00:02Z\n"

SOURCE = """
[[source]]
name = "rows"
format = "csv"
paths = ["a.csv"]
types = { at = "time" }
time = "at"
type_marks = ["Row"]
"""

HEAD = 'subscriptions = "subs"\noutput = "out"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three rows and a bad one, and two subscriptions."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "subs").write_text("low: n < 2\nmore: n >= 2\n")
    return tmp_path


def run(spark: SparkSession, folder: Path, text: str, **options: Any) -> PipelineSummary:
    (folder / "p.toml").write_text(text)
    return run_pipeline(spark, read_pipeline(folder / "p.toml"), **options)


def table(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def test_logs_are_sources(spark: SparkSession, folder: Path) -> None:
    """Logs could be matched on one machine only."""
    access = '::1 - - [10/Oct/2000:13:55:36 +0000] "GET /a HTTP/1.1" {} -\n'
    (folder / "a.log").write_text(access.format(200) + "x\n" + access.format(500))
    (folder / "b.txt").write_text("took 700 ms\n")
    event = windows_event(500, [("Image", "a")])
    (folder / "c.evtx").write_bytes(event_log(windows_event(1, []), event) + b"x")
    (folder / "subs").write_text("slow: status >= 500\n")
    log = '[[source]]\nname = "web"\nformat = "access"\npaths = ["a.log"]\ntime = "time"\n'
    lines = '[[source]]\nname = "app"\nformat = "lines"\npaths = ["b.txt"]\n'
    pattern = "pattern = 'took (?P<status>[0-9]+)'\n"
    events = '[[source]]\nname = "events"\nformat = "evtx"\npaths = ["c.evtx"]\n'
    events += 'rename = { EventID = "status" }\n'
    found = run(spark, folder, HEAD + log + lines + pattern + events)
    counts = [(each.read, each.bad, each.matched) for each in found.sources]
    assert counts == [(2, 1, 1), (1, 0, 1), (2, 1, 1)]
    rows = sorted((row["source"], row["record"]) for row in table(folder / "out" / "matches"))
    assert rows == [("app", 1), ("events", 2), ("web", 3)]
    with pytest.raises(InputError, match="the format lines needs one"):
        run(spark, folder, HEAD + log + lines)


def test_a_run_without_a_match_names_what_no_record_has(spark: SparkSession, folder: Path) -> None:
    """A slip in a name, or numbers that are texts, would look like data without a match."""
    (folder / "a.csv").write_text("n,N,at\nNA,1,2026-01-01T00:00:01Z\n5,2,2026-01-01T00:00:02Z\n")
    (folder / "subs").write_text("odd: n > 9\nslip: no = 1\n")
    summary = run(spark, folder, HEAD + SOURCE)
    assert summary.missing == (
        "rows: n: 1 number and 1 text, expected a number; texts such as 'NA' may mean no value: "
        "--absent NA",
        "rows: no record has 'no'",
    )
    (folder / "subs").write_text("odd: n > 3\nslip: no = 1\n")
    assert run(spark, folder, HEAD + SOURCE).missing == ()


def test_matches_are_partitioned_by_date_and_type(spark: SparkSession, folder: Path) -> None:
    """A reader of one day, or one type, would have to read everything."""
    run(spark, folder, HEAD + SOURCE)
    matches = folder / "out" / "matches"
    parts = sorted(str(each.parent.relative_to(matches)) for each in matches.rglob("*.parquet"))
    assert parts == ["date=2026-01-01/type=Row", "date=2026-01-02/type=Row"]
    found = spark.read.parquet(str(matches)).where("date = '2026-01-02'").collect()
    assert [(row["subscription"], row["type"], row["is_first"]) for row in found] == [
        ("more", "Row", True)
    ]


def test_the_partition_is_configurable(spark: SparkSession, folder: Path) -> None:
    """Records of many days would be as many small files."""
    run(spark, folder, HEAD + 'partition = ["type"]\n' + SOURCE)
    matches = folder / "out" / "matches"
    assert {each.parent.name for each in matches.rglob("*.parquet")} == {"type=Row"}
    assert {str(row["date"]) for row in table(matches)} == {"2026-01-01", "2026-01-02"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_odd_types_and_dates_are_partitions(spark: SparkSession, folder: Path, mode: str) -> None:
    """A folder's name would be another type or date, or lie outside of the output."""
    days = ["0001-01-01", "1582-10-10", "1969-12-31", "9999-12-31"]
    (folder / "a.csv").write_text("n,at\n" + "".join(f"1,{day}T23:00:00Z\n" for day in days))
    odd = "../a/b=c %2F\u00e9:*{}"
    text = f'mode = "{mode}"\n{HEAD}{SOURCE}'.replace("Row", odd)
    (folder / "p.toml").write_text(text)
    pipeline = read_pipeline(folder / "p.toml")
    (run_stream if mode == "stream" else run_pipeline)(spark, pipeline)
    found = spark.read.parquet(str(folder / "out" / "matches"))
    rows = found.selectExpr("cast(date as string) day", "cast(to_date(time) as string)", "type")
    assert sorted(map(tuple, rows.collect())) == [(day, day, odd) for day in days]
    assert {each.name for each in folder.iterdir()} == {"a.csv", "subs", "p.toml", "out"}


def test_patterns_see_all_records(spark: SparkSession, folder: Path) -> None:
    """A pattern whose steps match no subscription would find nothing, or be a subscription."""
    (folder / "subs").write_text("five: n = 5\n")
    (folder / "sequences").write_text("# up\nrise: n = 1 -> n = 2 within 5 s\n")
    patterns = '[[pattern]]\nname = "fall"\npattern = "n = 2 -> n = 1"\n'
    patterns += '[[pattern]]\nfile = "sequences"\n'
    summary = run(spark, folder, HEAD + patterns + SOURCE)
    assert summary.patterns == {"fall": 0, "rise": 1}
    assert summary.matches == {"five": 1}
    assert (summary.sources[0].matched, summary.sources[0].read) == (1, 3)
    assert [row["pattern"] for row in table(folder / "out" / "patterns")] == ["rise"]
    assert len(table(folder / "out" / "matches")) == 1


def test_rules_of_other_dialects_are_subscriptions(spark: SparkSession, folder: Path) -> None:
    """They would have to be translated first, and lose their residues."""
    (folder / "rules.cesql").write_text("n >= 2\nn >\nABS(n) = 1\n")  # The last is no filter.
    asked = '[[subscriptions]]\nfile = "rules.cesql"\ndialect = "cesql"\n'
    asked += '[[subscriptions]]\nfile = "subs"\n'
    summary = run(spark, folder, 'output = "out"\n' + asked + SOURCE)
    assert sorted(summary.matches.values()) == [1, 1, 2, 2]
    assert len(summary.refused) == 1
    assert "rules.cesql" in summary.refused[0]


def test_a_brokers_own_subscriptions(spark: SparkSession, folder: Path) -> None:
    """Subscriptions of a broker's clients would have to be copied by hand."""
    with serving("--port", "0") as (_, address):
        text = f'output = "out"\n[[subscriptions]]\nbroker = "{address}"\n' + SOURCE
        assert run(spark, folder, text).matches == {}
        with connect_sync(address) as service, service.subscribe("n > 1 and n < 5"):
            (name,) = run(spark, folder, text).matches
    assert [row["subscription"] for row in table(folder / "out" / "matches")] == [name]


def test_other_formats_and_tables(spark: SparkSession, folder: Path) -> None:
    """Data in Spark's formats would have to be converted to text and back."""
    spark.createDataFrame([(1, "a"), (5, "b")], "n INT, s STRING").write.parquet(
        str(folder / "in.parquet")
    )
    text = HEAD + '[[source]]\nname = "p"\nformat = "parquet"\npaths = ["in.parquet"]\n'
    text += '[[table]]\npath = "rows"\n[[table]]\npath = "bad"\nrows = "quarantine"\n'
    summary = run(spark, folder, text + SOURCE)
    assert summary.matches == {"low": 2, "more": 3}
    found = spark.read.parquet(str(folder / "rows")).collect()
    assert sorted((row["subscription"], row["source"]) for row in found) == [
        ("low", "p"),
        ("low", "rows"),
        ("more", "p"),
        ("more", "rows"),
        ("more", "rows"),
    ]
    assert spark.read.parquet(str(folder / "bad")).count() == 1
    run(spark, folder, text)
    assert spark.read.parquet(str(folder / "rows")).count() == 2
    with pytest.raises(InputError, match="source 'p': "):
        run(spark, folder, text.replace('"parquet"', '"no.such.format"'))


def test_formats_of_packages(spark: SparkSession, folder: Path) -> None:
    """A format that only the session knows, such as delta, would be refused, or lose its options,
    as a source and as a sink.
    """
    kept = str(folder / "kept")

    class Writer(D.DataSourceWriter):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def write(self, iterator: Iterator[Row]) -> D.WriterCommitMessage:
            lines = [f"{row['subscription']} {self.options['mark']}\n" for row in iterator]
            with open(kept, "a", encoding="utf-8") as file:
                file.writelines(lines)
            return D.WriterCommitMessage()

    class Reader(D.DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def read(self, partition: D.InputPartition) -> Iterator[tuple[int]]:
            return iter([(int(self.options["number"]),)])

    class Packaged(D.DataSource):
        @classmethod
        def name(cls) -> str:
            return "packaged"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: StructType) -> D.DataSourceReader:
            return Reader(dict(self.options))

        def writer(self, schema: StructType, overwrite: bool) -> D.DataSourceWriter:
            return Writer(dict(self.options))

    spark.dataSource.register(Packaged)
    text = HEAD + '[[source]]\nname = "p"\nformat = "packaged"\noptions = { number = 7 }\n'
    text += '[[table]]\npath = "there"\nformat = "packaged"\noptions = { mark = "kept" }\n'
    assert run(spark, folder, text).matches == {"low": 0, "more": 1}
    assert Path(kept).read_text("utf-8") == "more kept\n"


def test_jobs_of_a_run_are_described(spark: SparkSession, folder: Path) -> None:
    """Spark's page would show line numbers of this package."""
    scala: Any = spark.sparkContext._jsc.sc()
    first = scala.dagScheduler().nextJobId()
    run(spark, folder, HEAD + SOURCE)
    scala.listenerBus().waitUntilEmpty()
    jobs = scala.statusStore().jobsList(None)
    new = [job for job in map(jobs.apply, range(jobs.size())) if job.jobId() >= first]
    described = {job.description().get() for job in new}
    assert described == {"contrada pipeline: match rows", "contrada pipeline: write"}


def test_a_failed_run_keeps_the_former_results(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Yesterday's results would be lost by a failure today."""
    run(spark, folder, HEAD + SOURCE)
    before = table(folder / "out" / "matches"), (folder / "out" / "report.json").read_bytes()
    (folder / "a.csv").write_text("n\n7\n")

    class EndedError(Exception):
        pass

    def ended(*arguments: object) -> None:
        raise EndedError

    second = SOURCE.replace('"rows"', '"again"')
    patch = pytest.MonkeyPatch()
    patch.setattr(running.SparkRun, "write", ended)
    text = HEAD + SOURCE.replace('types = { at = "time" }\ntime = "at"\n', "")
    text += second.replace('types = { at = "time" }\ntime = "at"\n', "")
    with pytest.raises(EndedError):
        run(spark, folder, text)
    assert (table(folder / "out" / "matches"), (folder / "out" / "report.json").read_bytes()) == (
        before
    )
    patch.undo()
    monkeypatch.setattr(running.SparkRun, "match", ended)  # All sources are matched.
    state = unfinished_run(folder / "out")
    assert state is not None
    with pytest.raises(InputError, match="another description"):
        run(spark, folder, text.replace("Row", "Other"), resume=True)
    summary = run(spark, folder, text, resume=True)
    assert [each.read for each in summary.sources] == [1, 1]
    assert [row["subscription"] for row in table(folder / "out" / "matches")] == ["more"] * 2
    assert summary.run == state.name
    with pytest.raises(InputError, match="the last run has ended"):
        run(spark, folder, text, resume=True)


def test_a_dry_run_checks_everything_and_writes_nothing(spark: SparkSession, folder: Path) -> None:
    """A wrong table or an unreachable broker would show after an hour."""
    text = HEAD + '[[table]]\npath = "rows"\n' + SOURCE
    (folder / "p.toml").write_text(text)
    before = sorted(folder.rglob("*"))
    lines = list(plan_lines(spark, read_pipeline(folder / "p.toml"), None))
    assert lines[0] == f"2 subscriptions of {folder / 'subs'}"
    assert any("source rows: 1 path" in each for each in lines)
    assert any(str(folder / "rows") in each for each in lines)
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(ConnectionFailedError):
        list(plan_lines(spark, read_pipeline(folder / "p.toml"), "contrada://127.0.0.1:1"))


def test_the_report_has_all_counts(spark: SparkSession, folder: Path) -> None:
    """The counts of a run would be lost later."""
    (folder / "subs").write_text("<b>low</b>: n < 2\nmore: n >= 2\n")
    summary = run(spark, folder, HEAD + SOURCE)
    told = json.loads((folder / "out" / "report.json").read_text())
    assert told["matches"] == summary.matches == {"<b>low</b>": 1, "more": 2}
    assert told["sources"][0]["reasons"] == {"found 1 cells, expected 2": 1}
    assert set(told["stages"]) == {"match rows", "write"}
    page = (folder / "out" / "report.html").read_text()
    assert "&lt;b&gt;low&lt;/b&gt;" in page
    assert "found 1 cells, expected 2" in page
    assert "3 records, 3 matches" in page
