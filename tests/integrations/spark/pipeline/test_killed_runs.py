"""Runs that are killed, driver and Java together, in each of their steps."""

import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contrada.connections import connect_sync
from tests.integrations.spark.pipeline import killed_run
from tests.integrations.spark.pipeline.test_killed_pipelines import (
    RUN_S,
    address,
    matching_names,
    published,
    run,
)
from tests.own_operators import CONTRADA

__all__ = ("address",)  # A fixture.

FILE_ROWS = 1_000
SOURCES = 2
FILES = 2

HEAD = 'subscriptions = "subs"\noutput = "out"\npublish = "{address}"\n'
SOURCE = """
[[source]]
name = "source{n}"
format = "csv"
paths = ["{n}-*.csv"]
"""


def described(folder: Path, address: str) -> Path:
    """Sources of files of rows, each file with a bad one; every third row matches nothing."""
    (folder / "subs").write_text("a: n > 5 and third < 2\nb: third = 1\n")
    for file in range(SOURCES * FILES):
        numbers = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        rows = "".join(f"{n},{n % 3}\n" for n in numbers)
        source, part = divmod(file, FILES)
        (folder / f"{source}-{part}.csv").write_text(f"n,third\n{rows}bad\n")
    path = folder / "p.toml"
    sources = "".join(SOURCE.format(n=n) for n in range(SOURCES))
    path.write_text(HEAD.format(address=address) + sources)
    return path


def check_output(folder: Path) -> None:
    """Checks that matches, quarantine and report are complete, each once."""
    every = range(SOURCES * FILES * FILE_ROWS)
    expected = Counter((name, n) for n in every for name in matching_names(n))
    found = Counter(
        (row["subscription"], json.loads(row["attributes"])["n"])
        for row in pq.read_table(folder / "out" / "matches").to_pylist()
    )
    assert found == expected
    assert pq.read_table(folder / "out" / "quarantine").num_rows == SOURCES * FILES
    report = json.loads((folder / "out" / "report.json").read_text())
    assert [each["read"] for each in report["sources"]] == [FILES * FILE_ROWS] * SOURCES
    assert report["matches"] == dict(Counter(name for name, _ in expected.elements()))
    told = json.loads((folder / "out" / "published.json").read_text())
    assert sum(told["sources"].values()) == len({n for _, n in expected})


@pytest.mark.long
@pytest.mark.timeout(5 * RUN_S)
@pytest.mark.parametrize("goes_on", [True, False], ids=["resumed", "anew"])
def test_a_killed_run_loses_and_doubles_nothing(
    address: str, tmp_path: Path, goes_on: bool
) -> None:
    """A run would start again from the beginning, and publish matches twice or never."""
    description = described(tmp_path, address)
    with connect_sync(address) as service, service.subscribe("n any", durable="log"):
        pass
    # A run that begins anew would publish its own matches, so no other one has published any.
    for number, step in enumerate(["match", "write", "publish"] if goes_on else ["match", "write"]):
        options = ["--resume"] if number and goes_on else []
        script = (sys.executable, killed_run.__file__, step, str(description), address)
        ended = run(*script, *options)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    command = [*CONTRADA, "pipeline", "run", str(description), "--cores", "1"]
    ended = run(*command, *(["--resume"] if goes_on else []))
    assert ended.returncode == 0, ended.stderr
    check_output(tmp_path)
    expected = [n for n in range(SOURCES * FILES * FILE_ROWS) if matching_names(n)]
    assert published(address, len(expected)) == expected
