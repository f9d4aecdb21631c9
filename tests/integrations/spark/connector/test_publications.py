"""Publications of a task, with a real broker and without Spark."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from contrada.connections import connect_sync
from contrada.errors import EncodingError
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.connector.frame_writers import (
    PUBLISH_ROWS,
    PublishedRows,
    SequenceNumbers,
    publish,
)
from contrada.model import Notification, to_msgpack
from contrada.net.wire.address import parse_addresses
from tests.integrations.spark.connector.conftest import Fill
from tests.net.processes import serving

ROWS = 5 * PUBLISH_ROWS + 7


def batches(bad: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yields batches of packed rows, of which one may be no notification."""
    rows = [bytes(to_msgpack(Notification({"n": n}))) for n in range(ROWS)]
    if bad is not None:
        rows[bad] = b"bad"
    for first in range(0, ROWS, 2 * PUBLISH_ROWS):
        some = pa.array(rows[first : first + 2 * PUBLISH_ROWS], pa.binary())
        yield pa.RecordBatch.from_pydict({"notification": some})


def published(address: str, rows: Iterable[pa.RecordBatch]) -> PublishedRows:
    options = Options.of({"address": address, "delivery": "certified"})
    return publish(options, SequenceNumbers("job", 0, 0), rows)


def log(address: str) -> list[object]:
    """Returns the published numbers, behind which is another one."""
    with connect_sync(address) as service, service.subscribe(durable="log") as events:
        service.publish({"n": -1}, delivery="certified")
        return [each.item["n"] for each in islice(events, ROWS + 1)]


@pytest.mark.parametrize("bad", [0, PUBLISH_ROWS, 3 * PUBLISH_ROWS - 1, ROWS - 1])
def test_a_repeated_task_publishes_the_rest(address: str, fill: Fill, bad: int) -> None:
    """A row would be passed over, or repeated, after a failure while a publication is sent."""
    fill([])
    with pytest.raises(EncodingError):
        published(address, batches(bad))
    done = published(address, batches())
    assert done.known == bad // PUBLISH_ROWS * PUBLISH_ROWS
    assert done.published == ROWS - done.known
    assert log(address) == [*range(ROWS), -1]


def test_a_killed_broker_has_each_row_once(tmp_path: Path) -> None:
    """The publication on its way would be lost, or published again."""
    store = ("--store", str(tmp_path / "store.db"))
    with ExitStack() as stack:
        process, address = stack.enter_context(serving("--port", "0", *store))
        (at,) = parse_addresses(address)
        with connect_sync(address) as service, service.subscribe("n any", durable="log"):
            pass

        def killing() -> Iterator[pa.RecordBatch]:
            first, second, *_ = batches()
            yield first
            process.kill()
            process.wait()
            stack.enter_context(serving("--port", str(at.port), *store))
            yield second

        assert published(address, killing()).published == 4 * PUBLISH_ROWS
        assert published(address, batches()).known == 4 * PUBLISH_ROWS
        assert log(address) == [*range(ROWS), -1]
