"""Executors that write while their broker is killed: each row is published once."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.connections import connect_sync
from contrada.integrations.spark.connector.frame_writers import PUBLISH_ROWS
from contrada.integrations.spark.spark_session import cause_of
from contrada.net.wire.address import parse_addresses
from tests.integrations.spark.connector.conftest import packed
from tests.integrations.spark.connector.test_stream_reader import numbers
from tests.net.processes import serving

PARTS = 2
ROWS = 6 * PUBLISH_ROWS * PARTS


def killing(frame: DataFrame, broker: int, killed: Path) -> DataFrame:
    """Returns the rows; the task that has given half of its own first kills the broker."""

    def kill(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = 0
        for batch in batches:
            given += len(batch)
            if given > ROWS // PARTS // 2 and not killed.exists():
                killed.touch()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(broker, signal.SIGKILL)
            yield batch

    return frame.mapInArrow(kill, frame.schema)


def write(frame: DataFrame, address: str, **options: str) -> None:
    writer = frame.select("notification").write.format("contrada").mode("append")
    writer.options(address=address, delivery="certified", query="q", batch="0", **options).save()


@pytest.mark.slow
@pytest.mark.parametrize("is_back", [True, False], ids=["restarted", "away"])
def test_each_row_is_published_once(spark: SparkSession, tmp_path: Path, is_back: bool) -> None:
    """Rows on their way would be lost or published twice, or a write wait for ever."""
    store, killed = ("--store", str(tmp_path / "store.db")), tmp_path / "killed"
    frame = packed(spark, [{"n": n} for n in range(ROWS)], PARTS)
    with ExitStack() as stack:
        process, address = stack.enter_context(serving("--port", "0", *store))
        (at,) = parse_addresses(address)
        again = ("--port", str(at.port), *store)
        with connect_sync(address) as service, service.subscribe("n any", durable="log"):
            pass
        dying = killing(frame, process.pid, killed)
        if is_back:
            revive = threading.Thread(
                target=lambda: (process.wait(), stack.enter_context(serving(*again)))
            )
            revive.start()
            write(dying, address)
            revive.join()
        else:
            with pytest.raises(Exception) as caught:
                write(dying, address, reconnect_wait="1")
            assert address in cause_of(str(caught.value))
            stack.enter_context(serving(*again))
            write(frame, address)
        assert killed.exists()
        assert sorted(numbers(address, "log")) == [*range(ROWS)]
        write(frame, address)  # All are known.
        assert not numbers(address, "log")


@pytest.mark.slow
def test_tasks_wait_for_a_broker_that_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """Each task that begins meanwhile would fail at once, and so the job."""
    frame = packed(spark, [{"n": n} for n in range(PARTS)], PARTS)
    store = ("--store", str(tmp_path / "store.db"))
    with ExitStack() as stack:
        _, address = stack.enter_context(serving("--port", "0", *store))
        (at,) = parse_addresses(address)
        with connect_sync(address) as service, service.subscribe("n any", durable="log"):
            pass
        stack.close()
        listener = socket.create_server((at.host, at.port))

        def begin() -> None:
            with listener:
                listener.accept()[0].close()  # A task has tried.
            stack.enter_context(serving("--port", str(at.port), *store))

        revive = threading.Thread(target=begin)
        revive.start()
        write(frame, address)
        revive.join()
        assert sorted(numbers(address, "log")) == [*range(PARTS)]
