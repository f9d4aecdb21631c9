"""A run without Spark gives the outputs and the report of one on Spark."""

import json
import random
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import InputError
from contrada.integrations.spark.pipeline import local_run
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline import pipeline_run as running
from contrada.integrations.spark.pipeline.local_run import LocalRun, why_spark
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, read_pipeline
from contrada.integrations.spark.pipeline.pipeline_results import MATCHES_DDL
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline

DESCRIPTION = """
subscriptions = "subs"
output = "{output}"
partition = {partition}
[[source]]
name = "cells"
format = "csv"
paths = ["*.csv", "a*.csv"]
types = {{ at = "time", n = "number", gone = "text" }}
absent = ["NA"]
time = "at"
type_marks = ["Any", "Odd/a b%:='п"]
[[source]]
name = "objects"
format = "jsonl"
paths = ["in.jsonl"]
rename = {{ k = "name" }}
add = {{ kind = "object" }}
[[source]]
name = "entries"
format = "xml"
paths = ["in.xml"]
entries = "e"
"""
WISHES = """
few: n > 0 and n < 3
none: n > 1000000 and name = "x"
odd: name prefix "\u043f" or name = "\U0001f63f"
nan: n = nan
old: at < @1582-10-10T00:00:00Z
both: kind = "object" or `e.n` any
all: n any or name any
system: `@is.Any` any and n >= 2
"""
NUMBERS = ["1", "2.5", "-0.0", "NaN", "9007199254740993", "1e400", "", "NA", "x", "true"]
TIMES = ["0001-01-01T00:00:00Z", "1582-10-04T12:00:00Z", "1969-12-31T23:59:59.999999Z", ""]
TIMES += ["2024-02-29T12:00:00.5Z", "9999-12-31T23:59:59.999999Z", "yesterday"]
TEXTS = ["a", "\u043f\u0440", "\U0001f63f", "", "\x00", "a,b", 'q"uote', "two\nlines", "\ufffd"]
OBJECTS = ['{"n": 1, "k": "\u043f"}', '{"n": [1, 2, 2]}', '{"n": null}', "{bad", '{"k": {"n": 1}}']
OBJECTS += ['{"n": 1e999}', "[]", '{"n": 2, "n": 3}', '{"k": "\\ud800"}', "{}", '{"n": NaN}']
ENTRIES = ["<e><n>1</n></e>", "<e n='2'>t</e>", "<e><n>1</n><n>2</n></e>", "<f/>", "<e/>"]


def written(folder: Path, chance: random.Random) -> None:
    """Writes random files of the odd rows."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    for name in ("a.csv", "b.csv"):
        lines = [
            f"{chance.choice(NUMBERS)},{quoted(chance.choice(TEXTS))},{chance.choice(TIMES)}"
            for _ in range(chance.randrange(60))
        ]
        lines.append(chance.choice(["", "1,2", '3,"open', "4,a,,5"]))
        (folder / name).write_text("\n".join(["n,name,at", *lines]))
    (folder / "c.csv").write_text(chance.choice(["", "n\n", "n,n\n1,2\n", "\ufeffn\n1\n"]))
    objects = "\n".join(chance.choices(OBJECTS, k=chance.randrange(40)))
    (folder / "in.jsonl").write_bytes(objects.encode() + chance.choice([b"", b"\n\xff\n"]))
    entries = "".join(chance.choices(ENTRIES, k=chance.randrange(30)))
    (folder / "in.xml").write_text(f"<d>{entries}" + chance.choice(["</d>", "<e>", ""]))
    (folder / "subs").write_text(WISHES)


def described(folder: Path, output: str, partition: list[str]) -> Pipeline:
    file = folder / f"{output}.toml"
    file.write_text(DESCRIPTION.format(output=output, partition=json.dumps(partition)))
    return read_pipeline(file)


def outputs(spark: SparkSession, output: Path) -> dict[str, list[str]]:
    """Returns the rows that Spark reads from an output."""
    matches = spark.read.schema(MATCHES_DDL).parquet(str(output / "matches"))
    matches = matches.withColumn("time", F.unix_micros("time"))  # Python has no time of each zone.
    rows = {"matches": matches, "quarantine": spark.read.parquet(str(output / "quarantine"))}
    return {
        name: sorted(repr(row.asDict()) for row in frame.collect()) for name, frame in rows.items()
    }


def reported(summary: Any, output: Path) -> dict[str, Any]:
    """Returns a report without seconds and names of the run."""
    assert json.loads((output / "report.json").read_bytes())["matches"] == summary.matches
    found = asdict(summary)
    for each in found["sources"]:
        del each["seconds"]
    stages = [*found.pop("stages")]
    return {
        "stages": stages,
        **{name: found[name] for name in ("sources", "matches", "plan", "missing", "refused")},
    }


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("seed", "partition"),
    [(seed, kinds) for seed in range(4) for kinds in (["date", "type"], ["type"], [])],
)
def test_it_is_the_run_on_spark(
    spark: SparkSession, tmp_path: Path, seed: int, partition: list[str]
) -> None:
    """The size of the input would decide the answers."""
    written(tmp_path, random.Random(seed))
    runs = {"here": (None, False), "there": (spark, False), "short": (spark, True)}
    found = {}
    for name, (session, is_short) in runs.items():
        summary = run_pipeline(session, described(tmp_path, name, partition), is_short=is_short)
        output = tmp_path / name
        found[name] = (outputs(spark, output), reported(summary, output))
    assert found["here"][0]["quarantine"]
    assert found["here"] == found["there"] == found["short"]


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A description of one row."""
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "subs").write_text("low: n < 2\n")
    source = '[[source]]\nname = "rows"\nformat = "csv"\npaths = ["a.csv"]\n'
    (tmp_path / "p.toml").write_text(f'subscriptions = "subs"\noutput = "out"\n{source}')
    return tmp_path


def ended(*_: object) -> None:
    """A step that an interruption ends."""
    raise RuntimeError("ended")


def test_a_run_resumes_here(
    spark: SparkSession, one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was interrupted on Spark would begin anew."""
    pipeline = read_pipeline(one / "p.toml")
    with monkeypatch.context() as patch:
        patch.setattr(running.SparkRun, "write", ended)
        with pytest.raises(RuntimeError, match="ended"):
            run_pipeline(spark, pipeline)
    monkeypatch.setattr(LocalRun, "match", ended)  # All sources are matched.
    assert run_pipeline(None, pipeline, resume=True).matches == {"low": 1}


def test_outcomes_of_a_killed_run_are_replaced(
    spark: SparkSession, one: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The matches of a source would be doubled if Spark was killed after it wrote them."""
    pipeline = read_pipeline(one / "p.toml")
    with monkeypatch.context() as patch:
        patch.setattr(results, "counts_of", ended)
        with pytest.raises(RuntimeError, match="ended"):
            run_pipeline(spark, pipeline)
    assert run_pipeline(None, pipeline, resume=True).matches == {"low": 1}
    assert len(pq.read_table(one / "out" / "matches")) == 1


@pytest.mark.parametrize("amid", ["match", "write"])
def test_an_interrupted_short_run_shows_no_output(
    spark: SparkSession, one: Path, monkeypatch: pytest.MonkeyPatch, amid: str
) -> None:
    """Ctrl-C would leave a part of the matches where readers take them for all."""
    pipeline, stop = read_pipeline(one / "p.toml"), threading.Event()

    write_outcomes = running._write_outcomes

    def interrupted(*arguments: Any) -> None:
        write_outcomes(*arguments)
        stop.set()

    def half(batches: object, schema: object, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if amid == "match":
            patch.setattr(running, "_write_outcomes", interrupted)
        else:
            patch.setattr(local_run, "_write_file", half)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(spark, pipeline, stop=stop, is_short=True)
    assert not (one / "out" / "matches").exists()
    assert run_pipeline(spark, pipeline, resume=True, is_short=True).matches == {"low": 1}
    assert len(pq.read_table(one / "out" / "matches")) == 1
    assert pq.read_table(one / "out" / "quarantine").num_rows == 0


def test_a_short_run_leaves_nothing_out(spark: SparkSession, one: Path) -> None:
    """Patterns and tables would be left out in silence."""
    file = one / "p.toml"
    file.write_text(file.read_text() + f'[[table]]\npath = "{one / "beside"}"\n')
    assert run_pipeline(spark, read_pipeline(file), is_short=True).matches == {"low": 1}
    assert len(pq.read_table(one / "beside")) == 1


def test_matches_are_written_in_portions(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in most rows that most filters ask for would fill the memory with its matches."""
    rows, filters = 50, 40
    (one / "a.csv").write_text("n\n" + "1\n" * rows)
    (one / "subs").write_text("".join(f"s{each}: n < {each + 2}\n" for each in range(filters)))
    file = one / "p.toml"
    file.write_text("partition = []\n" + file.read_text())
    at_once = 16
    monkeypatch.setattr(local_run, "PAIRS_BYTES", at_once * local_run.PAIR_COST_BYTES)
    assert sum(run_pipeline(None, read_pipeline(file)).matches.values()) == rows * filters
    (written_to,) = (one / "out" / "matches").iterdir()
    groups = pq.ParquetFile(written_to)
    sizes = [groups.metadata.row_group(at).num_rows for at in range(groups.num_row_groups)]
    assert sum(sizes) == rows * filters
    assert max(sizes) <= at_once


def test_absent_names_are_explained(one: Path) -> None:
    """A run without a match would not name the attributes that its filters lack."""
    (one / "subs").write_text("low: m < 2\n")
    (missing,) = run_pipeline(None, read_pipeline(one / "p.toml")).missing
    assert "m" in missing


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('mode = "stream"\n', "it is a stream"),
        ('spark = { "spark.x" = "1" }\n', "it has settings of Spark"),
    ],
)
def test_what_needs_spark_is_refused(one: Path, text: str, reason: str) -> None:
    """A part of the description would be left out in silence."""
    file = one / "p.toml"
    file.write_text(text + file.read_text())
    pipeline = read_pipeline(file)
    assert why_spark(pipeline) == reason
    with pytest.raises(InputError, match=reason):
        run_pipeline(None, pipeline)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("_a.csv", "_a.csv"),
        ("[a].csv", "[[]a].csv"),
        ("a:b.csv", "a:b.csv"),
        ("more/b.csv", "more"),
        ("b.csv/c.csv", "*.csv"),
    ],
)
def test_files_that_spark_lists_otherwise_need_it(one: Path, name: str, path: str) -> None:
    """A file would be read here, and skipped on Spark, or the reverse."""
    (one / name).parent.mkdir(exist_ok=True)
    (one / name).write_text("n\n2\n")
    file = one / "p.toml"
    file.write_text(file.read_text().replace('["a.csv"]', f'["a.csv", "{path}"]'))
    found = why_spark(read_pipeline(file))
    assert found == "source rows: Spark reads csv, or lists its paths"


def test_a_folder_beside_the_files_needs_no_spark(one: Path) -> None:
    """The second run would need Java, since the first one has made its output."""
    file = one / "p.toml"
    file.write_text(file.read_text().replace("a.csv", "*.csv"))
    for _ in range(2):
        pipeline = read_pipeline(file)
        assert why_spark(pipeline) is None
        assert run_pipeline(None, pipeline).matches == {"low": 1}


def test_large_files_need_spark(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One core would read what a cluster should."""
    pipeline = read_pipeline(one / "p.toml")
    assert why_spark(pipeline) is None
    monkeypatch.setattr(local_run, "LOCAL_BYTES_MAX", 3)
    assert why_spark(pipeline) == "its files have 4 bytes"
