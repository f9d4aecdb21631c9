"""`LogStreamReader`: a durable subscription as a stream, with positions as offsets.

Spark requests the next batch from the end of the last committed one, also after a crash. Everything
before that is acknowledged then, not earlier: uncommitted records stay in the log, and are read
again. The last batch of a stopped query is acknowledged when the query resumes.

    query          plan 1..5   run   commit log   plan 5..9   run   kill -9   plan: 5..9 again
    broker                                        acknowledge before 5
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from contrada.errors import DeliveryError, ServiceError
from contrada.integrations.spark.connector.arrow_columns import ArrowColumns
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.connector.frame_readers import (
    BrokerConnection,
    batches,
    split_range,
)
from contrada.net.wire.durable_messages import LogState

Offset = dict[str, Any]
"""`home` (the owner) and `number` of the subscription, and the next position to read."""


class LogStreamReader(D.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a durable subscription as a stream; `max_rows` bounds a batch."""

    def __init__(self, options: Options, schema: T.StructType) -> None:
        ArrowColumns(schema)
        if not options.durable:
            raise ServiceError(
                'a stream reads a durable subscription: option("durable", "name"), and '
                'option("filter", …) to begin it'
            )
        if options.until is not None or options.count is not None or options.seconds is not None:
            raise ServiceError("until, count and seconds are for a read in batch: a stream goes on")
        self._options, self._schema = options, schema
        self._broker = BrokerConnection(options)
        self._last: int | None = None  # the end, of a query that does not go on

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Returns `position`, `since` or the first unacknowledged record."""
        options = self._options
        state = self._broker.log(options.since)
        first = state.at if options.since is not None else options.position or state.undone
        return _offset(state, max(first, state.first))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns `max_rows` as the bound of a batch."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Returns the end of the next batch; acknowledges all before its start, which is
        committed.
        """
        state = self._state(start)
        first = int(start["position"])
        if state.undone < first <= state.next:
            self._broker.acknowledge(state.number, first)
        end = state.next if self._last is None else min(self._last, state.next)
        if isinstance(limit, ReadMaxRows):
            # Acknowledged ranges may have any number of positions without a record.
            again = self._options.position is not None or self._options.since is not None
            end = min(end, (first if again else max(first, state.undone)) + limit.max_rows)
        return _offset(state, max(first, end))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Returns the end of the log."""
        state = self._broker.log()
        return _offset(state, state.next)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Bounds the query by the present end of the log."""
        self._last = self._broker.log().next

    def partitions(self, start: Offset, end: Offset) -> list[D.InputPartition]:
        """Splits the positions of a batch; a repeated batch has the same parts."""
        state = self._state(start)
        return [*split_range(self._options, state, int(start["position"]), int(end["position"]))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range."""
        return batches(self._options, self._schema, partition)

    def commit(self, end: Offset) -> None:
        """Does nothing yet; see `latestOffset`."""

    def stop(self) -> None:
        """Closes the connection at the end of the query. Idempotent."""
        self._broker.close()

    def _state(self, known: Offset) -> LogState:
        state = self._broker.log()
        if (state.owner, state.number) != (known["home"], known["number"]):
            raise DeliveryError(
                f"{self._options.durable!r} has ended, and another one has its name: its positions "
                "are others than those of the checkpoint"
            )
        return state


def _offset(state: LogState, position: int) -> Offset:
    return {"home": state.owner, "number": state.number, "position": position}
