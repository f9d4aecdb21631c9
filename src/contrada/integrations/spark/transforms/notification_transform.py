"""`to_notifications`: rows of columns, maps, JSON, XML or VARIANT as packed notifications.

A row has the meaning of a JSON object with the same values, read with the same options
(`contrada.integrations.files`); a text has the meaning that it has for `contrada match`.

Workers encode rows of plain columns in columns (`matching.arrow_pack`) if no value needs a
conversion. All other rows are *fallback rows*: the readers of JSON and XML records build them one
by one, and report errors.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError, InputError, InvalidNotificationError, ParseError
from contrada.integrations.files import value_columns
from contrada.integrations.files.json_batch import JsonBatchReader
from contrada.integrations.files.json_objects import (
    notification_of_content,
    notification_of_object,
    records_of_object,
)
from contrada.integrations.files.lines import Block
from contrada.integrations.files.packed_records import RowStamps, binary_of, can_write
from contrada.integrations.files.read_options import ReadOptions, plain_format
from contrada.integrations.files.record import (
    BAD_TEXT_CHARS_MAX,
    BadRecord,
    Record,
    bad_record,
    record_of,
)
from contrada.integrations.files.renderer import read_document
from contrada.integrations.spark.transforms import frames
from contrada.integrations.spark.transforms.frames import NOTIFICATION, frame_of, numbered, quote
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.matching.arrow_pack import ColumnPiece, pack_rows, piece_of
from contrada.model import to_msgpack
from contrada.model.codec import notification_from_msgpack

Of: TypeAlias = Literal["wide", "json", "xml", "variant", "map"]
"""The input of a notification: all columns, or one column."""

RESULT: Final = (
    T.StructType()
    .add(NOTIFICATION, T.BinaryType())
    .add("reason", T.StringType())
    .add("text", T.StringType())
)
"""The resulting columns."""

_TEXTS: Final = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
_INPUT_TYPES: Final[dict[str, tuple[type[T.DataType], ...]]] = {
    "json": _TEXTS,
    "xml": _TEXTS,
    "variant": (T.VariantType,),
    "map": (T.MapType,),
}


def to_notifications(
    reading: ReadOptions | None = None,
    *,
    of: Of = "wide",
    column: str | None = None,
    keep: Iterable[str] = (),
) -> Callable[[DataFrame], DataFrame]:
    """Returns a transform from rows to packed notifications.

    The result has the columns to `keep`, then `notification`, packed; for a bad row this is NULL,
    `reason` has the error, and `text` shows the row. No row is dropped. `of` is the input of a
    notification: `wide`, all columns; or one column of `json` or `xml` (texts or bytes), `variant`
    or `map`, which `column` names if several exist. `reading` has the options of `contrada match`;
    with `entries`, or the strategy `split`, a text gives a row for each entry. Packed notifications
    are unchanged. Cost: rows of plain columns are encoded in columns by kernels; others one by
    one. Raises InputError for a column that is missing or cannot be an attribute, and for an
    unknown `of`.
    """
    reading = ReadOptions() if reading is None else reading
    if of not in get_args(Of):
        raise InputError("of", f"found {of!r}, expected one of: {', '.join(get_args(Of))}")
    if of in ("json", "xml"):
        plain_format(of, reading)
    elif reading.splits or reading.stylesheet is not None or reading.schema is not None:
        reason = f"split, stylesheets and schemas are for documents, and this is of {of!r}"
        raise InputError("strategy", reason)
    kept = tuple(keep)

    def made(frame: DataFrame) -> DataFrame:
        if taken := [name for name in kept if name in RESULT.names]:
            raise InputError("keep", f"found {taken[0]!r}, which is the name of the result")
        columns, builder = builder_of(frame, reading, of, column)
        others = frame.select(*map(quote, kept)).schema.fields
        rows = numbered(frame.select(*columns, *map(quote, kept)))
        work = for_worker(partial(build_batches, builder), needs_kernels=False)
        return rows.mapInArrow(work, T.StructType([*others, *RESULT.fields]))

    return made


def builder_of(
    frame: DataFrame, reading: ReadOptions, of: str, column: str | None
) -> "tuple[list[Column], RowBuilder]":
    """Returns the columns for workers, and their setup. Errors: as `to_notifications`."""
    if of != "wide":
        taken = F.col(quote(_column(frame.schema, of, column)))
        return [taken.alias("0")], RowBuilder(of, reading)
    if column is not None:
        raise InputError("column", f"found {column!r}, expected none: all columns are taken")
    described = frame_of(frame, zone=reading.zone, drop=reading.drop)
    if described.is_packed:
        if reading != ReadOptions():
            reason = "the rows are whole notifications already, which no options change"
            raise InputError(f"column {NOTIFICATION!r}", reason)
        return [F.col(NOTIFICATION)], RowBuilder("packed", reading)
    attributes = described.select(None)
    names = [each.name for each in attributes]
    renamed = [reading.rename.get(name, name) for name in names]
    if len(set(renamed)) < len(renamed):
        twice = next(name for name in renamed if renamed.count(name) > 1)
        raise InputError(f"column {twice!r}", "found another column of this name")
    columns = [F.expr(each.expression).alias(str(n)) for n, each in enumerate(attributes)]
    kinds = tuple(each.kind for each in attributes)
    builder = RowBuilder("wide", reading, tuple(names), kinds)
    # Workers need a column to know the number of rows.
    return columns or [F.lit(1).alias("0")], builder


def _column(schema: T.StructType, of: str, column: str | None) -> str:
    kinds = _INPUT_TYPES[of]
    fitting = [each.name for each in schema.fields if isinstance(each.dataType, kinds)]
    if column is None and len(fitting) == 1:
        return fitting[0]
    if column in fitting:
        return column
    shown = ", ".join(fitting) or "none"
    found = "none" if column is None else repr(column)
    raise InputError("column", f"found {found}, expected the one of {of}, of: {shown}")


# --- in workers -----------------------------------------------------------------------------------

NO_ROW: Final = "NULL"
"""The text of a missing text, map or variant in errors."""

_NUMBERS: Final = (frames.INTEGER, frames.FLOAT, frames.DOUBLE)


class BuiltRows(NamedTuple):
    """Packed notifications; for bad rows the reason, and a text that shows the row. `rows` has the
    input row of each; None for one result per row.
    """

    notifications: Any
    reasons: Any
    texts: Any
    rows: Any = None


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """The setup of workers. For wide rows, `names` and `kinds` are those of the columns."""

    of: str
    reading: ReadOptions
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def columns(self) -> int:
        """The number of leading input columns."""
        return max(1, len(self.names))

    def build(self, batch: Any) -> BuiltRows:
        """Builds the notifications of a batch."""
        if self.of == "wide":
            return _of_columns(self, batch)
        column = batch.column(0)
        if self.of == "json" and not self.reading.entries and not self.reading.splits:
            return _of_lines(column, self.reading)
        if self.of in ("json", "xml"):
            return _of_documents(column, self.of, self.reading)
        return _one_by_one(map(self._of_cell, column))

    def _of_cell(self, cell: Any) -> "bytes | _RefusedRows":
        """Returns the notification of a packed one, a map or a variant."""
        shown: Any = NO_ROW
        try:
            if not cell.is_valid:
                raise ParseError(1, 1, NO_ROW, f"a {self.of} one")
            if self.of == "packed":
                packed: bytes = cell.as_py()
                shown = packed.hex()
                notification_from_msgpack(packed)
                return packed
            shown = content = frames.python_value(cell, self.reading.zone)
            if not isinstance(content, dict):
                raise ParseError(1, 1, f"a {type(content).__name__}", "an object")
            return to_msgpack(notification_of_content(content, self.reading))
        except (ContradaError, OverflowError, ValueError) as error:
            return _refuse(error, shown if isinstance(shown, str) else _as_text(shown))


def build_batches(builder: RowBuilder, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the kept columns of each row, with its notification."""
    for batch in batches:
        made = builder.build(batch)
        kept = batch.columns[builder.columns :]
        if made.rows is not None:
            kept = [column.take(pa.array(made.rows)) for column in kept]
        columns = [*kept, made.notifications, made.reasons, made.texts]
        names = [*map(str, range(len(kept))), frames.NOTIFICATION, "reason", "text"]
        yield pa.RecordBatch.from_arrays(columns, names)


# --- one by one -----------------------------------------------------------------------------------


class _RefusedRows(NamedTuple):
    reason: str
    text: str


def _refuse(error: Exception, text: str) -> bytes | _RefusedRows:
    if not isinstance(error, ContradaError):
        reason = f"found a value that cannot be read: {error}"
        return _RefusedRows(reason, text[:BAD_TEXT_CHARS_MAX])
    return _result_of(bad_record("", error, None, text))


def _result_of(bad: Record | BadRecord) -> bytes | _RefusedRows:
    if isinstance(bad, Record):
        return to_msgpack(bad.notification)
    at = f"column {bad.column}: " if bad.column and bad.text else ""
    at = f"line {bad.line}, {at}" if at and bad.line and bad.line > 1 else at
    return _RefusedRows(f"{at}{bad.reason}", bad.text)


def _one_by_one(found: Iterable[bytes | _RefusedRows], rows: Any = None) -> BuiltRows:
    made = [(each, None, None) if isinstance(each, bytes) else (None, *each) for each in found]
    columns = zip(*made, strict=True) if made else ((), (), ())
    kinds = (pa.binary(), pa.string(), pa.string())
    notifications, reasons, texts = map(pa.array, columns, kinds)
    return BuiltRows(notifications, reasons, texts, rows)


def _as_text(content: Any) -> str:
    # A key of a map may be a date, or bytes that are no text.
    return json.dumps(content, ensure_ascii=False, default=str, skipkeys=True)


# --- texts ----------------------------------------------------------------------------------------


def _texts(column: Any) -> list[bytes | None]:
    kind = pa.large_binary() if str(column.type).startswith("large") else pa.binary()
    found: list[bytes | None] = column.cast(kind).to_pylist()
    return found


def _of_lines(column: Any, reading: ReadOptions) -> BuiltRows:
    """Builds notifications of texts with one JSON object each."""
    texts = _texts(column)
    found: list[bytes | _RefusedRows | None] = [None] * len(texts)
    # NULL and texts with a line break become empty lines, which are fallback rows.
    lines = [b"" if text is None or b"\n" in text or b"\r" in text else text for text in texts]
    if lines:
        block = Block.of(1, b"\n".join([*lines, b""]))
        # Other strategies need the whole JSON object.
        decoded = JsonBatchReader((), reading, set()).attributes(block) if reading.is_multi else ()
        for row, attributes in decoded:
            try:
                found[row] = to_msgpack(reading.notification(attributes))
            except ContradaError:
                continue  # It is read again below, which reports the place of the error.
    return _one_by_one(
        _of_line(text, reading) if each is None else each
        for text, each in zip(texts, found, strict=True)
    )


def _of_line(text: bytes | None, reading: ReadOptions) -> bytes | _RefusedRows:
    if text is None:
        return _refuse(ParseError(1, 1, NO_ROW, "a JSON object"), NO_ROW)
    line = text.decode("utf-8", "surrogateescape")
    return _result_of(record_of(lambda line: notification_of_object(line, reading), "", 1, line))


def _of_documents(column: Any, of: str, reading: ReadOptions) -> BuiltRows:
    read = read_document if of == "xml" else records_of_object
    rows: list[int] = []
    found: list[bytes | _RefusedRows] = []
    for row, text in enumerate(_texts(column)):
        if text is None:
            made = [_refuse(ParseError(1, 1, NO_ROW, "a document"), NO_ROW)]
        else:
            made = list(map(_result_of, read(text, "", reading)))
        rows += [row] * len(made)
        found += made
    return _one_by_one(found, np.array(rows, dtype=np.int64))


# --- columns --------------------------------------------------------------------------------------


def _of_columns(builder: RowBuilder, batch: Any) -> BuiltRows:
    count = batch.num_rows
    rows = _PlainRows(builder, batch)
    alone = np.flatnonzero(rows.is_fallback)
    made = _one_by_one(_of_row(builder, batch, row) for row in alone.tolist())
    if len(alone) == count:
        return made
    written = binary_of(pack_rows(count, rows.pieces, rows.stamped.times_us))
    nothing = pa.nulls(count, pa.string())
    if not len(alone):
        return BuiltRows(written, nothing, nothing)
    places = np.arange(count)
    places[alone] = count + np.arange(len(alone))
    pairs = zip((written, nothing, nothing), made[:3], strict=True)
    return BuiltRows(*(pa.concat_arrays(pair).take(pa.array(places)) for pair in pairs))


def _of_row(builder: RowBuilder, batch: Any, row: int) -> bytes | _RefusedRows:
    content: dict[str, Any] = {}
    problem: Exception | None = None
    for name, column in zip(builder.names, batch.columns, strict=False):
        try:
            if (cell := column[row]).is_valid:  # A variant may hold the null of JSON.
                content[name] = frames.python_value(cell, builder.reading.zone)
        except (ContradaError, OverflowError, ValueError) as error:
            reason = error.reason if isinstance(error, InvalidNotificationError) else str(error)
            shown = str(column.slice(row, 1).type)
            problem = problem or InvalidNotificationError(name, shown, reason)
            content[name] = shown
    try:
        if problem is not None:
            raise problem
        return to_msgpack(notification_of_content(content, builder.reading))
    except (ContradaError, OverflowError, ValueError) as error:
        return _refuse(error, _as_text(content))


class _PlainRows:
    """The rows of a batch as column pieces; `is_fallback` marks fallback rows."""

    def __init__(self, builder: RowBuilder, batch: Any) -> None:
        self._reading = reading = builder.reading
        count = batch.num_rows
        self.is_fallback = np.zeros(count, dtype=bool)
        self.pieces: list[ColumnPiece] = []
        self.stamped = RowStamps(reading, count)
        if not reading.is_multi or not can_write(builder.names, reading):
            self.is_fallback[:] = True
            return
        for name, kind, column in zip(builder.names, builder.kinds, batch.columns, strict=False):
            self._put(reading.rename.get(name, name), kind, column)
        self.is_fallback |= self.stamped.is_odd
        self.pieces += self.stamped.constants()

    def _put(self, name: str, kind: str, column: Any) -> None:
        """Adds a column as a piece, and marks its fallback rows."""
        if kind == frames.SEVERAL:
            self.is_fallback |= frames.is_valid(column)
            return
        if kind == frames.TIME:
            outside = frames.outside_times(column)
            if outside is not None:
                self.is_fallback |= outside
        elif kind == frames.TEXT and not frames.is_utf8(column):
            self.is_fallback[:] = True
            return
        before = msgspec.msgpack.encode(name)
        value = self._converter(name, kind)
        piece: ColumnPiece | None
        if value is not None:
            values, codes = frames.convert_distinct(column, value)
            # A refused value must not look absent: None is odd.
            values = [None if each is value_columns.REFUSED else each for each in values]
            piece, odd = value_columns.Column(values, codes).piece(before)
        else:
            piece = piece_of(before, column)
            if piece is None:  # A type that is read row by row.
                self.is_fallback |= frames.is_valid(column)
                return
            odd = np.zeros(len(column), dtype=bool)
        self.stamped.take(name, piece, odd)
        if name not in self._reading.add:
            self.pieces.append(piece)

    def _converter(self, name: str, kind: str) -> Any:
        """Returns the converter of distinct values; None if values need none."""
        reading = self._reading

        def is_absent(text: object) -> bool:
            return isinstance(text, str) and text in reading.absent

        if kind == frames.CONVERTED:
            return lambda each: frames.scalar_value(each, reading.zone)
        is_text = kind == frames.TEXT and (reading.absent or name in reading.types)
        if is_text or (kind in _NUMBERS and reading.takes_numbers(name)):
            is_stamp = name == reading.stamp
            return value_columns.converter(reading.typed(name), is_absent, is_stamp=is_stamp)
        return None
