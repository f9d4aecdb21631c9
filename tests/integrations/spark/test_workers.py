"""Workers with missing requirements report one line, which commands show."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.spark import Base, covering, detect, match, profile, to_notifications
from contrada.integrations.spark.spark_session import cause_of
from contrada.integrations.spark.transforms import worker_code
from contrada.model import Notification
from contrada.model.codec import to_msgpack
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE

PATTERN: Final = "n = 1 -> n = 2"
MANY: Final = {f"{n}": f"n > {n}" for n in range(20)}

Asks = Callable[[DataFrame, Path], DataFrame]


def matched(frame: DataFrame, folder: Path) -> DataFrame:
    """Matches whole rows."""
    return frame.transform(match(Base(MANY, folder=folder)))


def matched_packed(frame: DataFrame, folder: Path) -> DataFrame:
    """Matches one column."""
    spark = frame.sparkSession
    packed = spark.createDataFrame([(to_msgpack(Notification({"n": 1})),)], "notification binary")
    return packed.transform(match(Base(MANY, folder=folder)))


def detected(frame: DataFrame, folder: Path) -> DataFrame:
    """Patterns."""
    return frame.transform(detect(PATTERN))


def profiled(frame: DataFrame, folder: Path) -> DataFrame:
    """A profile."""
    return frame.transform(profile)


def reduced(frame: DataFrame, folder: Path) -> DataFrame:
    """A base."""
    given = [(f"{n}", f"n > {n}") for n in range(3)]
    return frame.sparkSession.createDataFrame(given, "key string, f string").transform(covering)


ALL: Final = (matched, matched_packed, detected, profiled, reduced)


def said_by_workers(spark: SparkSession, asks: Asks, folder: Path) -> str:
    """Returns the line that a command would show of a worker's error."""
    frame = spark.sql("SELECT 1 AS n, current_timestamp() AS time")
    with pytest.raises(PySparkException) as caught:
        asks(frame, folder).collect()
    return cause_of(str(caught.value))


@pytest.fixture
def worker(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets an environment variable of workers, which Spark then restarts."""
    return lambda name, value: monkeypatch.setitem(spark.sparkContext.environment, name, value)


@pytest.mark.parametrize("asks", ALL)
def test_a_worker_without_the_package(
    spark: SparkSession, worker: Callable[[str, str], None], asks: Asks, tmp_path: Path
) -> None:
    """The user would see a page of Python's import errors."""
    (tmp_path / "contrada.py").write_text("raise ImportError(\"No module named 'contrada'\")")
    worker("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    said = said_by_workers(spark, asks, tmp_path / "bases")
    assert "cannot import contrada (No module named 'contrada')" in said
    assert said.endswith("install 'contrada[spark]' there")


@pytest.mark.skipif(NATIVE is None, reason="the driver has no compiled kernels either")
@pytest.mark.parametrize("asks", ALL)
def test_a_worker_without_compiled_kernels(
    spark: SparkSession, worker: Callable[[str, str], None], asks: Asks, tmp_path: Path
) -> None:
    """Matching would be a hundred times slower, silently."""
    worker(INTERPRETED_VARIABLE, "1")
    said = said_by_workers(spark, asks, tmp_path)
    assert "compiled matching at this worker" in said
    assert "a wheel of contrada" in said


def test_notifications_are_made_without_compiled_kernels(
    spark: SparkSession, worker: Callable[[str, str], None]
) -> None:
    """Rows would be refused by workers that can encode them, if more slowly."""
    worker(INTERPRETED_VARIABLE, "1")
    made = spark.sql("SELECT 1 AS n").transform(to_notifications()).collect()
    assert [bytes(row.notification) for row in made] == [to_msgpack(Notification({"n": 1}))]


@pytest.mark.parametrize("asks", [matched, detected])
def test_a_worker_with_another_python(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, asks: Asks, tmp_path: Path
) -> None:
    """Pickles of one Python would be loaded by another."""
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.2")
    said = said_by_workers(spark, asks, tmp_path)
    assert "different version: 3." in said
    assert "than that in driver: 3.2" in said


def test_a_worker_with_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would see what pickle lacks, such as an argument."""
    run = worker_code.for_worker(worker_code.check_compiled)
    monkeypatch.delattr(worker_code, "check_compiled")
    with pytest.raises(RuntimeError, match="has another version of contrada than the driver"):
        run(False)


def test_loaded_modules_are_frozen_once(spark: SparkSession, tmp_path: Path) -> None:
    """Each task would scan all modules for garbage: 60 ms for a task."""

    def seen(batches):  # type: ignore[no-untyped-def]
        import gc

        import pyarrow as pa

        for batch in batches:
            yield pa.record_batch([[gc.get_freeze_count()] * len(batch)], ["frozen"])

    frame = spark.range(0, 8, 1, 8).withColumnRenamed("id", "n")
    for _ in range(2):
        assert matched(frame, tmp_path).count() == 8
    counts = [
        row.frozen for row in spark.range(0, 8, 1, 8).mapInArrow(seen, "frozen long").collect()
    ]
    assert max(counts) > 10_000


def test_modules_are_no_work_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task would scan the objects of all kernels, which takes longer than a small task."""
    froze: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: froze.append(1))
    monkeypatch.setattr(worker_code, "_settled", 0)
    worker_code.freeze_modules()
    worker_code.freeze_modules()
    assert len(froze) == 1
    monkeypatch.setitem(sys.modules, "a_module_of_this_test", sys)
    worker_code.freeze_modules()
    assert len(froze) == 2


def test_lists_of_rows_and_queries_have_the_same_workers(spark: SparkSession) -> None:
    """Spark would start Python twice, for a second, and keep both."""

    def parents(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for batch in batches:
            yield pa.record_batch([[os.getppid()] * len(batch)], ["parent"])

    frame = spark.createDataFrame([(1,), (2,)], "n int")
    of_rows = frame.rdd.map(lambda _: os.getppid()).collect()
    of_queries = [row.parent for row in frame.mapInArrow(parents, "parent bigint").collect()]
    assert len({*of_rows, *of_queries}) == 1
