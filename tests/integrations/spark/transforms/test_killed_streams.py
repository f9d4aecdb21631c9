"""A stream of patterns whose driver is killed loses and duplicates nothing."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contrada.errors import MissingRequirementError
from contrada.integrations.spark.spark_session import check_requirements
from contrada.integrations.spark.transforms.detection import detection_statistics
from tests.integrations.spark.transforms.killed_stream import SLACK_US
from tests.integrations.spark.transforms.sequences import (
    PATTERNS,
    Result,
    expected,
    made,
    notification_of,
    write,
)

SCRIPT = Path(__file__).with_name("killed_stream.py")
RUN_S = 300


def run(folder: Path, killed_at: str = "") -> int:
    """Runs the stream until it ends or is killed; returns its status."""
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), str(folder), killed_at]
    return subprocess.run(
        command, env=environment, timeout=RUN_S, check=False, stderr=subprocess.DEVNULL
    ).returncode


def written(folder: Path, batch: int) -> Result:
    """Returns the matches in the output of a batch."""
    found: Result = Counter()
    for file in (folder / "out" / f"batch={batch}").glob("*.parquet"):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            assert row["batch"] == batch
            by = json.dumps(json.loads(row["by"]), sort_keys=True)
            found[row["pattern"], by, tuple(row["notifications"])] += 1
    return found


@pytest.mark.long
@pytest.mark.timeout(4 * RUN_S)
def test_a_killed_driver_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """State and output would differ after a kill before, within or after a batch."""
    try:
        check_requirements()
    except MissingRequirementError as missing:
        pytest.skip(str(missing))
    batches = made(8, 3, 300)
    for number, rows in enumerate(batches):
        write(tmp_path / "in", number, rows)
    for killed_at in ("0:written", "1:partly", "2:begun"):
        assert run(tmp_path, killed_at) == -signal.SIGKILL, killed_at
    assert run(tmp_path) == 0
    notifications = [list(map(notification_of, rows)) for rows in batches]
    results, matcher = expected(PATTERNS, notifications, SLACK_US)
    assert [written(tmp_path, number) for number in range(3)] == results
    told = detection_statistics(str(tmp_path / "checkpoint"))
    assert (told.batch, told.matched) == (2, matcher.statistics().matched)
