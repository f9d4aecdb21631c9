"""Matching through Spark Connect, in a session and process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contrada import Notification
from tests.integrations.spark.transforms.test_frame_match import attributes, keys_by_index

PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from contrada import from_msgpack
from contrada.integrations.spark import Base, match, route, to_notifications
from contrada.integrations.spark.transforms import frame_match
from tests.integrations.spark.transforms.test_frame_match import ROWS, SCHEMA, WISHES

folder = Path(sys.argv[1])
session = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = session.createDataFrame(ROWS, SCHEMA)
base = Base(WISHES, folder=folder / "here")
for frame_match.JOIN_COLUMNS in (0, 100):
    print([row["subscriptions"] for row in frame.transform(match(base)).collect()])
few = frame.transform(route({"cheap": "price < 100 and symbol = 'DIS'"}))
print([row["subscription"] for row in few.collect()])
made = frame.transform(to_notifications()).collect()
print([from_msgpack(bytes(row["notification"])) if not row["reason"] else None for row in made])
shipped = frame.transform(match(Base({"five": "size = 5"}, folder=folder / "here"), way="index"))
(folder / "here").rename(folder / "gone")
print([row["subscriptions"] for row in shipped.collect()])
session.stop()
"""


@pytest.mark.slow
def test_matching_through_connect(tmp_path: Path) -> None:
    """A Connect client would be refused, or its workers not find the base."""
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    by_columns, by_rows, few, made, shipped = done.stdout.decode().splitlines()
    assert by_columns == by_rows == str(keys_by_index(attributes()))
    assert few == "['cheap']"
    assert made == str([Notification(each) for each in attributes()])
    assert shipped == "[['five'], [], [], [], [], []]"
