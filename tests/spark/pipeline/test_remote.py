"""A run through Spark Connect, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PROGRAM = """
import sys
from pathlib import Path
from contrada.spark.pipeline.description import read_pipeline
from contrada.spark.pipeline.run import run_pipeline
from contrada.spark.session import spark_session

told = []
with spark_session(remote="local[1]") as session:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    pipeline = read_pipeline(Path(sys.argv[1]))
    run_pipeline(session, pipeline, told=lambda *how_far: told.append(how_far))
assert told
"""

DESCRIPTION = """
subscriptions = "subs"
output = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["a.csv"]
types = { at = "epoch" }
time = "at"
[[pattern]]
name = "rise"
pattern = "n = 1 -> n = 2"
[[table]]
path = "table"
"""


@pytest.mark.long
def test_a_run_through_connect(tmp_path: Path) -> None:
    """`--remote` would need what only a Spark of one's own has."""
    pytest.importorskip("grpc")
    (tmp_path / "a.csv").write_text("n,at\n1,1\n2,2\nbad\n")
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "p.toml").write_text(DESCRIPTION)
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "p.toml")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **paths},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["matches"], report["patterns"]) == ({"low": 1}, {"rise": 1})
    assert report["sources"][0]["bad"] == 1
    for place in ("out/matches", "out/patterns", "table"):
        assert pq.read_table(tmp_path / place).num_rows == 1
