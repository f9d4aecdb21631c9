"""Streams in processes of their own, with a broker: they end in order, or are killed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from contrada.connections import connect_sync
from contrada.errors import MissingRequirementError
from contrada.integrations.spark.spark_session import check_requirements
from tests.integrations.spark.pipeline import killed_pipeline
from tests.net.processes import serving
from tests.own_operators import CONTRADA

RUN_S = 300
ROWS = 40

DESCRIPTION = """
mode = "stream"
trigger = "{trigger}"
subscriptions = "subs"
output = "out"
publish = "{address}"

[[source]]
name = "rows"
format = "csv"
paths = ["in/*.csv"]
options = {{ maxFilesPerTrigger = 1 }}
types = {{ at = "epoch" }}
time = "at"

[[pattern]]
name = "pairs"
pattern = "every part = 0 -> part = 1 by key"

[[table]]
path = "table"
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker with a store."""
    try:
        check_requirements()
    except MissingRequirementError as missing:
        pytest.skip(str(missing))
    with serving("--port", "0", "--store", str(tmp_path / "store.db")) as (_, address):
        yield address


def described(folder: Path, address: str, trigger: str, batches: int) -> Path:
    """A stream of files of rows; every third row matches nothing, and each file has a bad one."""
    (folder / "in").mkdir()
    (folder / "subs").write_text("a: n > 5 and third < 2\nb: third = 1\n")
    for batch in range(batches):
        rows = [
            f"{n},{n % 3},{n % 2},{n // 2},{n}\n" for n in range(batch * ROWS, (batch + 1) * ROWS)
        ]
        file = folder / "in" / f"{batch}.csv"
        file.write_text("n,third,part,key,at\n" + "".join(rows) + "bad\n")
        os.utime(file, (0, 1_700_000_000 + batch))
    path = folder / "p.toml"
    path.write_text(DESCRIPTION.format(address=address, trigger=trigger))
    return path


def matching_names(n: int) -> list[str]:
    """Returns the subscriptions that a row matches."""
    return ["a"] * (n > 5 and n % 3 < 2) + ["b"] * (n % 3 == 1)


def check_output(folder: Path, batches: int) -> None:
    """Checks that matches, table, quarantine, pattern matches and report are complete, each
    once.
    """
    every = range(batches * ROWS)
    expected = Counter((name, n) for n in every for name in matching_names(n))
    for place in ("out/matches", "table"):
        found = Counter(
            (row["subscription"], json.loads(row["attributes"])["n"])
            for row in pq.read_table(folder / place).to_pylist()
        )
        assert found == expected, place
    assert pq.read_table(folder / "out" / "quarantine").num_rows == batches
    pairs = pq.read_table(folder / "out" / "patterns").to_pylist()
    keys = Counter(json.loads(row["by"])["key"] for row in pairs)
    # The last moment waits for the next one.
    assert keys == Counter(range(batches * ROWS // 2 - 1))
    report = json.loads((folder / "out" / "report.json").read_text())
    assert (report["batches"], report["sources"][0]["read"]) == (batches, batches * ROWS)
    assert report["sources"][0]["bad"] == batches
    assert report["matches"] == dict(Counter(name for name, _ in expected.elements()))
    assert report["patterns"] == {"pairs": len(keys)}


def published(address: str, count: int) -> list[Any]:
    """Returns the content of the durable subscription."""
    with connect_sync(address) as service, service.subscribe(durable="log") as events:
        found = [each.item["n"] for each in islice(events, count)]
        service.publish({"n": -1}, delivery="certified")
        assert events.next(timeout_s=30).item["n"] == -1
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=RUN_S
    )


@pytest.mark.long
@pytest.mark.timeout(5 * RUN_S)
def test_a_killed_stream_loses_and_doubles_nothing(address: str, tmp_path: Path) -> None:
    """Matches, tables, patterns and publications would differ after kills of the driver."""
    description = described(tmp_path, address, "available-now", 5)
    with connect_sync(address) as service, service.subscribe("n any", durable="log"):
        pass
    kills = [(0, "before", "_write"), (1, "behind", "_write"), (2, "behind", "_detect")]
    for batch, when, step in [*kills, (3, "behind", "_add")]:
        script = (sys.executable, killed_pipeline.__file__, str(description))
        ended = run(*script, str(batch), when, step)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    ended = run(*CONTRADA, "pipeline", "run", str(description), "--cores", "1")
    assert ended.returncode == 0, ended.stderr
    check_output(tmp_path, 5)
    expected = [n for n in range(5 * ROWS) if matching_names(n)]
    assert published(address, len(expected)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_stream_ends_in_order(address: str, tmp_path: Path, how: signal.Signals) -> None:
    """Ctrl-C would cut a micro-batch, lose the report, or leave a traceback or a running Java."""
    description = described(tmp_path, address, "100 ms", 2)
    last = max(n for n in range(2 * ROWS) if matching_names(n))
    command = [*CONTRADA, "pipeline", "run", str(description), "--cores", "2", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        connect_sync(address) as service,
        service.subscribe(f"n = {last}") as events,
        subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process,  # type: ignore[call-overload]
    ):
        try:
            assert events.next(timeout_s=120)["n"] == last
            # A terminal sends Ctrl-C to all that it runs.
            (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    summary = json.loads(output)
    assert summary["batches"] == 2
    assert summary["published"] == sum(1 for n in range(2 * ROWS) if matching_names(n))
    check_output(tmp_path, 2)
