"""`LogFrameReader`, `LogStreamReader`, `SubscriptionReader`: read logs by position, or for a while.

A durable subscription is read by position (`net/broker/log_batches.py`): the driver splits its
positions into parts, and each task reads its part from the broker. A repeated task reads the same
records. Without `durable` one task subscribes, for `seconds` or until `count` notifications.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing, suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import DeliveryError, FormatError
from contrada.integrations.spark.connector import arrow_columns
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.spark_versions import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsAvailableNow,
    utc_arrow_schema,
)
from contrada.model import Filter, FilterSet, Pattern, ValueSet, parse, to_msgpack
from contrada.model.algebra import sets
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.durable_messages import AskRecordBatch, LogState, RecordBatch
from contrada.service.clock import wall_clock_us
from contrada.service.sync import SyncService

BATCH_ROWS: Final = 20_000
"""Approximate rows of an Arrow batch. Beyond it: the next batch has the rest."""

TASK_ROWS: Final = 100_000
"""Records of a log that justify a task, unless `partitions` is set."""

PARTITIONS_MAX: Final = 16
"""Tasks that read a log, unless `partitions` is set. Beyond it: each task reads more."""

_WAIT_S: Final = 0.5  # how long a batch of a subscription waits for more rows
_LOG: Final = logging.getLogger(__name__)


class LogRange(D.InputPartition):
    """The positions of a log for one task."""

    def __init__(self, name: str, number: int, first: int, end: int, *, is_again: bool) -> None:
        super().__init__((name, number, first, end, is_again))
        self.name, self.number, self.first, self.end = name, number, first, end
        self.is_again = is_again


class BrokerConnection:
    """A lazy connection to a broker; a pickled copy connects by itself."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._open: tuple[TcpService, SyncService] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_open": None}

    def service(self) -> tuple[TcpService, SyncService]:
        """Returns the service and its blocking form. Raises ConnectionFailedError, AddressError."""
        if self._open is None:
            self._open = self.options.open()
        return self._open

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()

    def log(self, time_us: int | None = None) -> LogState:
        """Returns the positions of the subscription, created if `filter` is set."""
        client, blocking = self.service()
        options = self.options

        async def ask() -> LogState:
            try:
                return await client.delivery().log(options.durable, time_us)
            except DeliveryError:
                if not options.filter:
                    raise
            async with client.subscribe(options.filter, durable=options.durable):
                pass
            return await client.delivery().log(options.durable, time_us)

        state = blocking.run(ask())
        if options.filter and state.filters != parse_filters(options.filter):
            raise DeliveryError(
                f"the durable subscription {options.durable!r} stands for {state.filters}, not for "
                f"{options.filter}; end it first, or take another name"
            )
        return state

    def acknowledge(self, number: int, before: int) -> None:
        """Acknowledges all records before a position. Raises DeliveryError."""
        client, blocking = self.service()

        async def send() -> None:
            await client.delivery().acknowledge(self.options.durable, number, before)

        blocking.run(send())


def parse_filters(text: str) -> FilterSet:
    """Parses filters. Raises ParseError, FormatError for a pattern."""
    found = parse(text)
    if isinstance(found, Pattern):
        reason = "option filter: expected filters, found a pattern; use the option `pattern`"
        raise FormatError("INVALID_OPTION", reason)
    return FilterSet(found.filters)


def split_range(options: Options, state: LogState, first: int, end: int) -> list[LogRange]:
    """Splits a range of positions into parts of equal length."""
    rows = max(0, end - first)
    wanted = options.partitions or min(PARTITIONS_MAX, -(-rows // TASK_ROWS))
    parts = max(1, min(wanted, rows))
    bounds = [first + rows * at // parts for at in range(parts + 1)]
    is_again = options.position is not None or options.since is not None
    return [
        LogRange(options.durable, state.number, begin, end, is_again=is_again)
        for begin, end in itertools.pairwise(bounds)
    ]


def batches(options: Options, schema: T.StructType, span: LogRange) -> Iterator[pa.RecordBatch]:
    """Yields the records of a log between two positions. Raises DeliveryError for deleted ones."""
    columns = arrow_columns.ArrowColumns(schema, options.misfits)
    with closing(BrokerConnection(options)) as broker:
        client, blocking = broker.service()
        ahead = _record_batches(client, span)

        async def take() -> RecordBatch | None:
            return await anext(ahead, None)

        gathered: list[pa.RecordBatch] = []
        now_us = wall_clock_us()
        while (records := blocking.run(take())) is not None:
            for position, reason in records.damaged:
                _LOG.warning(
                    "%(subscription)s: record %(position)d is damaged: %(reason)s",
                    {"subscription": span.name, "position": position, "reason": reason},
                )
            gathered.append(columns.of_record_batch(records, now_us))
            if sum(map(len, gathered)) >= BATCH_ROWS:
                yield pa.concat_batches(gathered)
                gathered.clear()
        if gathered:
            yield pa.concat_batches(gathered)
    columns.log_misfits()


async def _record_batches(client: TcpService, span: LogRange) -> AsyncIterator[RecordBatch]:
    """Yields the record batches of a range; the next one is requested while one is processed."""

    def request(first: int) -> asyncio.Task[RecordBatch]:
        asked = AskRecordBatch(span.name, span.number, first, span.end, span.is_again)
        return asyncio.ensure_future(client.delivery().record_batch(asked))

    at, requested = span.first, None
    while at < span.end:
        records = await (requested or request(at))
        if records.next <= at:
            raise DeliveryError(f"{span.name!r} has no position {at} yet")
        at = records.next
        requested = request(at) if at < span.end else None
        yield records


class LogFrameReader(D.DataSourceReader):
    """Reads a durable subscription up to its end at planning time."""

    def __init__(self, options: Options, schema: T.StructType) -> None:
        arrow_columns.ArrowColumns(schema)
        self._options, self._schema = options, schema

    def partitions(self) -> list[D.InputPartition]:
        """Returns the ranges from the start (`position`, `since`, unacknowledged) to the end."""
        options = self._options
        with closing(BrokerConnection(options)) as broker:
            state = broker.log(options.since)
            first = max(options.position or state.undone, state.first)
            if options.since is not None:
                first = state.at
            end = state.next if options.until is None else broker.log(options.until).at
        if options.count is not None:
            end = min(end, first + options.count)
        return [*split_range(options, state, first, end)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range."""
        return batches(self._options, self._schema, partition)


StreamOffset: TypeAlias = dict[str, Any]
"""`home` (the owner) and `number` of the subscription, and the next position to read."""


class LogStreamReader(D.DataSourceStreamReader, SupportsAvailableNow):
    """Reads a durable subscription as a stream; offsets are positions, `max_rows` bounds a batch.

    The records before a batch are acknowledged when it is planned, not earlier: uncommitted ones
    stay in the log, and are read again. Before Spark 4.2 the start of a batch is known later, to
    `partitions`, and a batch has no bound.

        query          plan 1..5   run   commit log   plan 5..9   run   kill -9   plan: 5..9 again
        broker                                        acknowledge before 5
    """

    def __init__(self, options: Options, schema: T.StructType) -> None:
        arrow_columns.ArrowColumns(schema)
        if not options.durable:
            raise FormatError(
                "MISSING_OPTION",
                'a stream reads a durable subscription: option("durable", "name"), and '
                'option("filter", …) to begin it',
            )
        if options.until is not None or options.count is not None or options.seconds is not None:
            reason = "until, count and seconds are for a read in batch: a stream does not end"
            raise FormatError("CONFLICTING_OPTIONS", reason)
        if options.max_rows is not None and ReadMaxRows is None:
            reason = "max_rows needs Spark 4.2: older versions read all that is there"
            raise FormatError("UNSUPPORTED_OPTION", reason)
        self._options, self._schema = options, schema
        self._broker = BrokerConnection(options)
        self._last: int | None = None  # the end of a query that ends

    def initialOffset(self) -> StreamOffset:  # noqa: N802 - Spark's name
        """Returns `position`, `since` or the first unacknowledged record."""
        options = self._options
        state = self._broker.log(options.since)
        first = state.at if options.since is not None else options.position or state.undone
        return _offset(state, max(first, state.first))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Returns `max_rows` as the bound of a batch."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: StreamOffset | None = None, limit: Any = None) -> StreamOffset:  # noqa: N802 - Spark's name
        """Returns the end of the next batch; acknowledges all before its start."""
        if start is None:
            state = self._broker.log()
            return _offset(state, max(state.next, self._options.position or 0))
        state, first = self._begin(start)
        end = state.next if self._last is None else min(self._last, state.next)
        if ReadMaxRows is not None and isinstance(limit, ReadMaxRows):
            # Acknowledged ranges may have any number of positions without a record.
            again = self._options.position is not None or self._options.since is not None
            end = min(end, (first if again else max(first, state.undone)) + limit.max_rows)
        return _offset(state, max(first, end))

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802 - Spark's name
        """Returns the end of the log."""
        state = self._broker.log()
        return _offset(state, state.next)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Bounds the query by the present end of the log."""
        self._last = self._broker.log().next

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[D.InputPartition]:
        """Splits the positions of a batch; a repeated batch has the same parts."""
        state, first = self._begin(start)
        return [*split_range(self._options, state, first, int(end["position"]))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range."""
        return batches(self._options, self._schema, partition)

    def commit(self, end: StreamOffset) -> None:
        """Does nothing yet; see `latestOffset`."""

    def stop(self) -> None:
        """Closes the connection at the end of the query. Idempotent."""
        self._broker.close()

    def _begin(self, known: StreamOffset) -> tuple[LogState, int]:
        """Returns the log and the first position of a batch; acknowledges all before it."""
        state, first = self._broker.log(), int(known["position"])
        if (state.owner, state.number) != (known["home"], known["number"]):
            raise DeliveryError(
                f"{self._options.durable!r} has ended, and another one has its name: its positions "
                "are others than those of the checkpoint"
            )
        if state.undone < first <= state.next:
            self._broker.acknowledge(state.number, first)
        return state, first


def _offset(state: LogState, position: int) -> StreamOffset:
    return {"home": state.owner, "number": state.number, "position": position}


class SubscriptionReader(D.DataSourceReader):
    """Subscribes for a while; push_down Spark filters narrow the subscription."""

    def __init__(self, options: Options, schema: T.StructType) -> None:
        arrow_columns.ArrowColumns(schema)
        if options.seconds is None and options.count is None:
            reason = "bound the read: set `seconds`, `count`, or `durable`"
            raise FormatError("MISSING_OPTION", reason)
        self._options, self._schema = options, schema
        self._pushed = Filter({})

    def subject(self) -> Filter | FilterSet:
        """Returns the filters of the subscription."""
        options = self._options
        return (parse_filters(options.filter) if options.filter else Filter({})) & self._pushed

    def partitions(self) -> list[D.InputPartition]:
        """Returns one partition: several would receive the same notifications."""
        _LOG.warning("subscribed to: %(filters)s", {"filters": self.subject()})
        return [D.InputPartition(None)]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields received notifications."""
        del partition
        columns = arrow_columns.ArrowColumns(self._schema, self._options.misfits)
        for found in _receive(self._options, self.subject()):
            yield columns.of_encodings([bytes(to_msgpack(each)) for each in found])
        columns.log_misfits()


class PushingReader(SubscriptionReader):
    """A reader for sessions that push filters."""

    def pushFilters(self, filters: list["D.Filter"]) -> Iterable["D.Filter"]:  # noqa: N802 - Spark's
        """Takes the filters that a subscription can express; see `push_down`."""
        self._pushed = push_down(filters, self._schema)
        return filters


class PatternReader(D.DataSourceReader):
    """Reads the matches of a pattern for a while."""

    SCHEMA: Final = "notifications ARRAY<BINARY>, `@time` TIMESTAMP"

    def __init__(self, options: Options, schema: T.StructType) -> None:
        if [(each.name, each.dataType) for each in schema] != [
            ("notifications", T.ArrayType(T.BinaryType())),
            ("@time", T.TimestampType()),
        ]:
            reason = f"matches of a pattern have the schema {self.SCHEMA}"
            raise FormatError("UNSUPPORTED_SCHEMA", reason)
        if options.seconds is None and options.count is None:
            reason = "bound the read of a pattern: set `seconds` or `count`"
            raise FormatError("MISSING_OPTION", reason)
        self._options, self._schema = options, schema
        self._pattern = parse(options.pattern)

    def partitions(self) -> list[D.InputPartition]:
        """Returns one partition: several would receive the same matches."""
        return [D.InputPartition(None)]

    def read(self, partition: D.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields complete matches."""
        del partition
        arrow = utc_arrow_schema(self._schema)
        for found in _receive(self._options, self._pattern):
            packed = [[bytes(to_msgpack(each)) for each in match.notifications] for match in found]
            times = [match.envelope.time_us for match in found]
            made = pa.array(times, pa.int64()).cast(arrow[1].type)
            yield pa.RecordBatch.from_arrays([pa.array(packed, arrow[0].type), made], schema=arrow)


def _receive(options: Options, subject: Any) -> Iterator[list[Any]]:
    """Yields lists of items of a subscription, until `count` or `seconds` is reached."""
    left = options.count
    until_s = None if options.seconds is None else monotonic() + options.seconds
    with closing(BrokerConnection(options)) as broker:
        client, blocking = broker.service()
        subscription = client.subscribe(subject)

        async def gather() -> list[Any]:
            found: list[Any] = []
            most = min(BATCH_ROWS, left or BATCH_ROWS)
            with suppress(TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    while len(found) < most:
                        found.append(await anext(subscription))
            return found

        blocking.run(subscription.__aenter__())
        while (left is None or left > 0) and (until_s is None or monotonic() < until_s):
            found = blocking.run(gather())
            if left is not None:
                left -= len(found)
            if found:
                yield found


# --- Spark filters as a subscription --------------------------------------------------------------

_NAN: Final = sets.eq(math.nan)


def push_down(filters: Iterable["D.Filter"], schema: T.StructType) -> Filter:
    """Returns the conjunction of Spark's filters, as far as a subscription can express it.

    Spark applies every filter again, so a pushed filter must match all passing rows, and may match
    others; docs/spark.md has the table. Of DOUBLE, `>` and `>=` match NaN, too, which Spark orders
    above all numbers. IsNull is left to Spark, since a misfit is NULL, too. So are envelope
    columns, arrays, texts with a collation, and comparisons with NULL.
    """
    found: dict[str, ValueSet] = {}
    for each in filters:
        constraint = _constraint(each, schema)
        if constraint is not None:
            name, values = constraint
            found[name] = found[name] & values if name in found else values
    return Filter.of_sets(found)


def _constraint(each: "D.Filter", schema: T.StructType) -> tuple[str, ValueSet] | None:
    inner = each.child if isinstance(each, D.Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names or path[0] in arrow_columns.OF_ENVELOPE:
        return None
    kind = schema[path[0]].dataType
    wanted = arrow_columns.PYTHON_TYPES.get(type(kind))
    if wanted is None or (isinstance(kind, T.StringType) and kind != T.StringType()):
        return None
    value: Any = getattr(inner, "value", ())
    values = tuple(value) if isinstance(inner, D.In) else () if value == () else (value,)
    for each_value in values:
        if type(each_value) is not wanted or getattr(each_value, "tzinfo", True) is None:
            return None
    found = _set(inner, values, is_negated=isinstance(each, D.Not))
    return None if found is None else (path[0], found)


def _set(of: "D.Filter", values: tuple[Any, ...], *, is_negated: bool) -> ValueSet | None:
    if is_negated:
        is_known = isinstance(of, D.EqualTo | D.In) and values
        return sets.any_but(*values) if is_known else None
    has_nan = any(type(each) is float and math.isnan(each) for each in values)
    match of:
        case D.EqualTo() | D.EqualNullSafe() | D.In() if values:
            return sets.in_(*values)
        case D.IsNotNull():
            return sets.exists()
        case D.LessThan() if not has_nan:
            return sets.lt(values[0])
        case D.LessThanOrEqual() if not has_nan:
            return sets.le(values[0])
        case D.GreaterThan() if not has_nan:
            return _with_nan(sets.gt(values[0]), values[0])
        case D.GreaterThanOrEqual() if not has_nan:
            return _with_nan(sets.ge(values[0]), values[0])
        case D.StringStartsWith():
            return sets.prefix(values[0])
        case D.StringEndsWith():
            return sets.suffix(values[0])
        case D.StringContains():
            return sets.contains(values[0])
    return None


def _with_nan(found: ValueSet, value: Any) -> ValueSet:
    return found | _NAN if type(value) is float else found
