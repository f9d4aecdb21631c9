"""`BatchWriter` and `StreamWriter`: tasks publish the column `notification` of a frame.

A repeated publication is recognised by its number (`SequenceNumbers`), from the names of a query
and its batch (docs/spark.md). There is no commit and no rollback.
"""

import logging
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import DeliveryError, FormatError, LimitError
from contrada.integrations.spark.connector.arrow_columns import PACKED
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.spark_versions import StreamArrowWriter, record_batches
from contrada.model import Envelope, Notification
from contrada.model.codec import notification_from_msgpack
from contrada.net.client.tcp_service import TcpService
from contrada.service.sync import SyncService

PUBLISH_ROWS: Final = 256
"""Rows of one publication, beside which a task prepares the next. Beyond it: they wait for the
answer."""

ADMISSION_WAIT_S: Final = 60.0
"""Seconds that a task waits until the broker knows that the previous task of its partition has
ended. Beyond it: it fails, and Spark may retry it."""

PARTITION_ROWS_MAX: Final = 2**31 - 1
"""Rows that one partition publishes in one batch. Beyond it: LimitError."""

_ADMISSION_STEP_S: Final = 0.2
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_CHECK_BITS: Final = 16
_PLACE_BITS: Final = 31
_CHECK: Final = 2**_CHECK_BITS - 1
_BATCH_BITS: Final = 16
_LOG: Final = logging.getLogger(__name__)


@dataclass
class PublishedRows(D.WriterCommitMessage):
    """The published, known and empty rows of a task."""

    published: int = 0
    known: int = 0
    empty: int = 0


class _Writer:
    """The common part of batch and stream writers."""

    def __init__(self, options: Options, schema: T.StructType) -> None:
        if PACKED not in schema.names or schema[PACKED].dataType != T.BinaryType():
            reason = f"publications are a column `{PACKED}` BINARY; `to_notifications` makes it"
            raise FormatError("UNSUPPORTED_SCHEMA", reason)
        self._options = options
        self._query = options.query or secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> D.WriterCommitMessage:
        """Publishes a partition in order. Raises the errors of `Service.publish_batch`."""
        task = TaskContext.get()
        assert task is not None, "tasks write"
        batch = task.getLocalProperty(_BATCH)
        query = self._options.query or task.getLocalProperty(_QUERY) or self._query
        number = int(batch) if batch else self._options.batch or 0
        rows = record_batches(iterator, PACKED, PUBLISH_ROWS)
        return publish(self._options, SequenceNumbers(query, number, task.partitionId()), rows)

    def commit(self, messages: list[D.WriterCommitMessage | None], *_: Any) -> None:
        """Logs rows without a notification. Idempotent."""
        written = [each for each in messages if isinstance(each, PublishedRows)]
        empty = sum(each.empty for each in written)
        if empty:
            _LOG.warning(
                "%(count)d rows have no notification and are not published", {"count": empty}
            )

    def abort(self, messages: list[D.WriterCommitMessage | None], *_: Any) -> None:
        """Does nothing: published rows stay published, and are recognised when published again."""


class BatchWriter(_Writer, D.DataSourceArrowWriter):
    """Publishes a frame."""


class StreamWriter(_Writer, StreamArrowWriter):
    """Publishes the batches of a stream."""


class SequenceNumbers:
    """The numbers of one partition's rows in one batch, in order.

    A partition of a query publishes under a name of its own, and brokers keep the highest number of
    each name (`delivery/publishers.py`). A row's number consists of its batch, its place in the
    partition, and a checksum of all rows up to it:

        batch modulo 2^16   |  place from 1: 31 bits  |  check: 16 bits

    So the highest number shows a repeated batch which rows are published, and that they were the
    same rows in the same order. The name has the higher bits of the batch.
    """

    def __init__(self, query: str, batch: int, partition: int) -> None:
        high, low = divmod(batch, 2**_BATCH_BITS)
        self.publisher = f"{query}/{partition}/{high}"
        """The name under which they are published."""
        self._base = low << (_PLACE_BITS + _CHECK_BITS)
        self._end = (low + 1) << (_PLACE_BITS + _CHECK_BITS)
        self._known = self._base
        self._place = self._sum = 0

    def resume_after(self, highest: int) -> bool:
        """Takes the highest number that the broker knows; False if it belongs to a later batch."""
        self._known = max(highest, self._base)
        return highest < self._end

    def next(self, content: bytes) -> int:
        """Returns the number of the next row; 0 if it is known. Cost: a checksum of its bytes.
        Raises DeliveryError if another row was published in its place, LimitError.
        """
        self._place += 1
        if self._place > PARTITION_ROWS_MAX:
            raise LimitError("PARTITION_ROWS_MAX", PARTITION_ROWS_MAX)
        self._sum = zlib.crc32(content, self._sum)
        number = self._base | self._place << _CHECK_BITS | self._sum & _CHECK
        if number >> _CHECK_BITS == self._known >> _CHECK_BITS and number != self._known:
            raise self._mismatch(f"row {self._place} of the batch is another one")
        return number if number > self._known else 0

    def end(self) -> None:
        """Checks the end of the rows. Raises DeliveryError if more rows were published before."""
        if self._place < (self._known - self._base) >> _CHECK_BITS:
            raise self._mismatch(f"the batch has {self._place} rows, which are fewer")

    def _mismatch(self, what: str) -> DeliveryError:
        return DeliveryError(
            f"{self.publisher}: {what} than when it was published before; sort the rows of each "
            "partition, or take another `query`"
        )


def publish(
    options: Options, numbering: SequenceNumbers, rows: Iterable[pa.RecordBatch]
) -> PublishedRows:
    """Publishes rows, except known ones. Raises DeliveryError for another row of a number."""
    is_numbered = options.delivery != "best-effort"
    client, service = options.open(numbering.publisher)
    done = PublishedRows()
    with closing(service):
        is_latest = True
        if is_numbered:
            is_latest = numbering.resume_after(_wait_admission(client, service))
        with ThreadPoolExecutor(1) as sender:
            sent: Future[int] | None = None
            for fresh in _publications(rows, options, numbering if is_latest else None, done):
                # One is on its way: if it is refused, no later number may be known to the broker.
                done.published += sent.result() if sent else 0
                sent = sender.submit(service.publish_batch, fresh)
            done.published += sent.result() if sent else 0
        if is_latest:
            numbering.end()
    if not is_latest:
        _LOG.warning(
            "%(publisher)s: a later batch was published before", {"publisher": numbering.publisher}
        )
    return done


def _publications(
    rows: Iterable[pa.RecordBatch],
    options: Options,
    numbering: SequenceNumbers | None,
    done: PublishedRows,
) -> Iterator[list[Notification]]:
    for batch in rows:
        column = batch.column(PACKED)
        for first in range(0, len(column), PUBLISH_ROWS):
            fresh = []
            for data in column.slice(first, PUBLISH_ROWS).to_pylist():
                if data is None:
                    done.empty += 1
                    continue
                found = notification_from_msgpack(data)
                number = numbering.next(found.span + found.body) if numbering else 0
                if numbering and number:
                    fresh.append(_with_number(found, options, numbering, number))
                else:
                    done.known += 1
            if fresh:
                yield fresh


def _wait_admission(client: TcpService, service: SyncService) -> int:
    """Returns the highest known number, once no other task publishes under the name."""
    until_s = monotonic() + ADMISSION_WAIT_S

    async def ask() -> int:  # The client is asked on its own event loop.
        return await client.delivery().known_sequence()

    while True:
        try:
            return service.run(ask())
        except DeliveryError:
            if monotonic() > until_s:
                raise
            time.sleep(_ADMISSION_STEP_S)


def _with_number(
    of: Notification, options: Options, numbering: SequenceNumbers, number: int
) -> Notification:
    envelope = Envelope(
        id=f"{numbering.publisher}/{number}",
        publisher=numbering.publisher,
        sequence=number,
        time_us=of.envelope.time_us,
        delivery=options.delivery,
    )
    return of.with_envelope(envelope)
