"""The pipeline on a real Spark gives the results of `contrada match`."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.errors import ConnectionFailedError
from contrada.integrations.files import BadRecord, plain_attributes, read_file
from contrada.integrations.spark.pipeline import source_outcomes as spark_reading
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, read_pipeline
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.matching.index import Index
from contrada.model import Notification
from contrada.model.codec import from_msgpack

SUBSCRIPTIONS = """
everything:   kind exists
exact:        big = 9007199254740993
near:         big = 9007199254740992
nan:          v none of (0)
zero:         v = 0
null:         v = null
absent:       v absent
odd:          `odd "name", x` > 5
text:         v = "007" or v = "x,y"
hot:          doc.e.t > 30
nested:       o.p = 1
late:         at > @2013-01-01T00:00:00Z
typed:        @is.Reading = true
"""

DESCRIPTION = """
subscriptions = "subs"
output = "out"

[[source]]
name = "rows"
format = "csv"
paths = ["*.csv", "*.csv.gz"]
types = { code = "text", at = "time", n = "number" }
absent = ["NA"]
add = { kind = "row" }

[[source]]
name = "objects"
format = "json"
paths = ["*.jsonl"]
types = { v = "text", n = "number", at = "time" }
add = { kind = "object" }
type_marks = ["Reading"]

[[source]]
name = "documents"
format = "xml"
paths = ["*.xml"]
entries = "e"
add = { kind = "document" }
"""

FILES = {
    "a.csv": 'v,big,"odd ""name"", x",code,at,n\n'
    "007,9007199254740993,6,1E5,2013-01-01T05:00:00Z,NaN\n"
    "-0.0,9007199254740992,5,,,\r\n"
    "\n"
    '"x,y",1,NA,"","2012-12-31",1e3\n'
    ",,,,,\n"
    "too,few\n"
    '"never closed,,,,,\n'
    'closed "too" early,,,,,"x"y\n'
    ",,,,nodate,\n"
    "ünï,,,,,\n",
    "b.csv": "\ufeffv\n0\n1\n\n2",
    "odd name + é%20#.csv": "v\n0\n",
    "_hidden.csv": "v\n0\n",
    "wild[1]{2}.csv": "v\n0\n",
    "bad header.csv": "v,v\n0,0\n",
    "empty.csv": "",
    "a.jsonl": '{"v":null,"big":9007199254740993}\n{"v":"","n":"NaN","big":9007199254740993.0}\n'
    '{"o":{"p":1,"q":[1,2,{"r":1}]},"at":"2013-06-01"}\n\n{"v":-0.0}\n{"v":["007",null]}\n'
    '{"v":1\n[1]\n{"big":9223372036854775808}\n{"n":NaN}\n{"v":1,"v":2}\n{"v":"\\ud800"}\n'
    '{"v":"x,y","odd \\"name\\", x":6}\n{"@id":1}',
    "a.xml": "<doc a='1'><e><t>31</t><t>1</t></e><e><t>30</t></e><m><e><t>40</t></e></m></doc>",
    "broken.xml": "<doc>\n<e><t>31</t></e>\n<e><t>32</e>\n<e><t>33</t></e></doc>",
    "cut.xml": "<doc><e><t>31</t></e><e><t>32</t></e><e><t>3",
    "garbage.xml": "no xml at all",
    "ns.xml": "<doc xmlns:c='u'><e><c:t x='1'>50</c:t>mixed<b/>text</e></doc>",
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A description of files of every kind with every fault."""
    folder = tmp_path_factory.mktemp("pipeline")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    (folder / "latin.csv").write_bytes(b"v\ncaf\xe9\n0\n")
    rows = "v,n\n" + "".join(f"{number},{number / 4}\n" for number in range(1000))
    packed = gzip.compress(rows.encode(), mtime=0)
    (folder / "whole.csv.gz").write_bytes(packed)
    (folder / "damaged.csv.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "subs").write_text(SUBSCRIPTIONS)
    (folder / "p.toml").write_text(DESCRIPTION)
    return read_pipeline(folder / "p.toml")


@pytest.fixture(scope="module")
def summary(spark: SparkSession, pipeline: Pipeline) -> PipelineSummary:
    """The summary of the first run."""
    return run_pipeline(spark, pipeline)


def expected(pipeline: Pipeline) -> tuple[Counter[Any], Counter[Any], Counter[str]]:
    """Returns matches, bad records and counts, without Spark."""
    index: Index[str] = Index()
    for name, wish in pipeline.subscriptions.items():
        index.add(name, wish)
    matches: Counter[Any] = Counter()
    bad: Counter[Any] = Counter()
    read: Counter[str] = Counter()
    for source in pipeline.sources:
        for file in source.files:
            if file.name.startswith("_"):
                continue  # Spark passes over such files.
            for found in read_file(file, source.format, source.reading):
                if isinstance(found, BadRecord):
                    place = (found.line, found.column)
                    bad[source.name, found.source, *place, found.reason, found.text] += 1
                    continue
                read[source.name] += 1
                for name in index.match(found.notification):
                    attributes = json.dumps(plain_attributes(found.notification))
                    key = (name, source.name, found.source, found.number, attributes)
                    matches[*key, found.notification] += 1
    return matches, bad, read


def written(pipeline: Pipeline) -> tuple[Counter[Any], Counter[Any]]:
    """Returns the matches and quarantine of a run."""
    matches: Counter[Any] = Counter()
    for row in pq.read_table(pipeline.matches).to_pylist():
        notification = from_msgpack(row["notification"])
        assert isinstance(notification, Notification)
        attributes = json.dumps(json.loads(row["attributes"]))
        key = (row["subscription"], row["source"], row["file"], row["record"], attributes)
        matches[*key, notification] += 1
    quarantine = pq.read_table(pipeline.output / "quarantine").to_pylist()
    names = ("source", "file", "line", "column", "reason", "text")
    return matches, Counter(tuple(row[name] for name in names) for row in quarantine)


def test_same_answers_with_and_without_spark(pipeline: Pipeline, summary: PipelineSummary) -> None:
    """A subscription would have another meaning on a cluster."""
    matches, bad, read = expected(pipeline)
    found_matches, found_bad = written(pipeline)
    assert found_matches == matches
    assert found_bad == bad
    for source in summary.sources:
        assert source.read == read[source.source]
        assert source.bad == sum(n for key, n in bad.items() if key[0] == source.source)
    by_name = Counter(dict.fromkeys(pipeline.subscriptions, 0))
    for key, count in matches.items():
        by_name[key[0]] += count
    assert summary.matches == by_name
    assert all(by_name.values()), by_name


def test_nothing_else_is_lost(pipeline: Pipeline, summary: PipelineSummary) -> None:
    """One bad row, line or entry would silently remove good ones."""
    assert sum(source.bad for source in summary.sources) == 19
    quarantine = pq.read_table(pipeline.output / "quarantine").to_pylist()
    by_file = Counter(Path(row["file"]).name for row in quarantine)
    assert by_file == {
        "a.csv": 4,
        "bad header.csv": 1,
        "empty.csv": 1,
        "latin.csv": 1,
        "damaged.csv.gz": 1,
        "a.jsonl": 7,
        "broken.xml": 1,
        "cut.xml": 2,
        "garbage.xml": 1,
    }
    assert all(row["reason"] for row in quarantine)
    matches = pq.read_table(pipeline.matches).to_pylist()
    good = Counter(Path(row["file"]).name for row in matches if row["subscription"] == "everything")
    assert (good["a.csv"], good["a.jsonl"]) == (5, 6)
    assert (good["broken.xml"], good["cut.xml"], good["whole.csv.gz"]) == (2, 2, 1000)


def test_a_run_replaces_the_run_before(
    spark: SparkSession, pipeline: Pipeline, summary: PipelineSummary
) -> None:
    """A repeated run would duplicate its matches."""
    once = written(pipeline)
    run_pipeline(spark, pipeline)
    assert written(pipeline) == once


def test_lines_are_numbered_where_files_are_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad row of a large file could not be found in it."""
    monkeypatch.setattr("contrada.integrations.files.lines.PART_BYTES", 1500)
    monkeypatch.setattr(spark_reading, "PART_BYTES", 1500)
    rows = [f"{n},x{n}\n" if n % 100 else "bad\n" for n in range(1, 2001)]
    (tmp_path / "a.csv").write_text("n,x\n" + "".join(rows))
    (tmp_path / "b.csv").write_text("n,x\n" + "".join(rows[:700]))
    (tmp_path / "subs").write_text("all: n exists")
    (tmp_path / "p.toml").write_text(
        'subscriptions = "subs"\noutput = "out"\n'
        '[[source]]\nname = "r"\nformat = "csv"\npaths = ["*.csv"]\n'
    )
    cut = read_pipeline(tmp_path / "p.toml")
    summary = run_pipeline(spark, cut)
    assert (summary.sources[0].read, summary.sources[0].bad) == (2673, 27)
    assert written(cut) == expected(cut)[:2]


def test_an_unreachable_service_is_reported_first(spark: SparkSession, pipeline: Pipeline) -> None:
    """The user would wait for the whole run, and then lose its publication."""
    with pytest.raises(ConnectionFailedError):
        run_pipeline(spark, pipeline, publish="contrada://127.0.0.1:1")
