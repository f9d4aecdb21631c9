"""`ArrowColumns`: notifications as Arrow columns, one for each attribute, or as packed bytes.

One call of msgspec decodes the requested attributes of all notifications in a record batch; Arrow
then takes whole columns. Values are converted one by one only in columns with a misfit: a value
that the column cannot hold exactly, which is NULL and counted, or ends the read (option `misfits`).
The columns in `OF_ENVELOPE` are from the envelope and the log.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import FormatError
from contrada.integrations.spark.spark_versions import utc_arrow_schema
from contrada.model.algebra.notification import ENVELOPE_FIELDS
from contrada.model.domains.values import check_user_name
from contrada.net.wire.durable_messages import RecordBatch

PACKED: Final = "notification"
"""The column of packed notifications."""


EnvelopeFields: Any = msgspec.defstruct(
    "EnvelopeFields", ENVELOPE_FIELDS, array_like=True, gc=False
)
"""An encoded envelope, unchecked."""

_ENVELOPE: Final[dict[str, tuple[T.DataType, str]]] = {
    "@time": (T.TimestampType(), "time_us"),
    "@id": (T.StringType(), "id"),
    "@publisher": (T.StringType(), "publisher"),
    "@sequence": (T.LongType(), "sequence"),
    "@delivery": (T.StringType(), "delivery"),
}
_LOGGED: Final[dict[str, T.DataType]] = {"@position": T.LongType(), "@logged": T.TimestampType()}

OF_ENVELOPE: Final = _LOGGED | {name: kind for name, (kind, _) in _ENVELOPE.items()}
"""The types of columns that are no attributes. `@position` and `@logged`, the time of logging, are
NULL without a log."""

DEFAULT_SCHEMA: Final = "notification BINARY, " + ", ".join(
    f"`{name}` {kind.simpleString()}" for name, kind in OF_ENVELOPE.items()
)

PYTHON_TYPES: Final[dict[type[T.DataType], type]] = {
    T.BooleanType: bool,
    T.ByteType: int,
    T.ShortType: int,
    T.IntegerType: int,
    T.LongType: int,
    T.DoubleType: float,
    T.StringType: str,
    T.TimestampType: datetime,
}
"""The Python types that Arrow converts without loss."""


class ArrowColumns:
    """Makes batches of one schema. `misfits` counts the misfits by column."""

    def __init__(self, schema: T.StructType, on_misfits: str = "null") -> None:
        """Raises FormatError for a column that no notification can fill, InvalidNameError."""
        self.schema, self._on_misfits = schema, on_misfits
        self.arrow = utc_arrow_schema(schema)
        self.misfits: dict[str, int] = {}
        names = [each.name for each in schema if not _check(each)]
        # Attribute names may be no Python identifiers.
        self._slots = {name: f"a{at}" for at, name in enumerate(names)}
        attributes = msgspec.defstruct(
            "Attributes",
            [(slot, Any, None) for slot in self._slots.values()],
            rename={slot: name for name, slot in self._slots.items()},
            gc=False,
        )
        as_list = partial(msgspec.defstruct, array_like=True, gc=False)
        parts = as_list("Parts", [("attributes", attributes), ("envelope", EnvelopeFields)])
        whole = as_list("Whole", [("version", int), ("kind", str), ("parts", parts)])
        self._decode = msgspec.msgpack.Decoder(list[whole]).decode  # type: ignore[valid-type]

    def of_record_batch(self, records: RecordBatch, now_us: int) -> pa.RecordBatch:
        """Returns the unexpired notifications of a record batch. Raises FormatError."""
        lengths = np.frombuffer(records.lengths, "<u4").astype(np.int64)
        positions = np.frombuffer(records.positions, "<i8").astype(np.int64)
        times = np.frombuffer(records.times_us, "<i8").astype(np.int64)
        logged = {"@position": positions, "@logged": times}
        return self._batch(records.data, lengths, now_us, logged)

    def of_encodings(self, encodings: Sequence[bytes]) -> pa.RecordBatch:
        """Returns packed notifications of a subscription."""
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        return self._batch(b"".join(encodings), lengths, None, {})

    def log_misfits(self) -> None:
        """Logs the misfits of all batches."""
        for name, count in self.misfits.items():
            _LOG.warning(
                "column %(column)s: %(count)d values do not fit it and are NULL",
                {"column": name, "count": count},
            )

    def _batch(
        self, data: bytes, lengths: Any, now_us: int | None, logged: dict[str, Any]
    ) -> pa.RecordBatch:
        count = len(lengths)
        # The header of a msgpack list, followed by its members.
        found: list[Any] = self._decode(b"\xdd" + count.to_bytes(4, "big") + data)
        parts = [each.parts for each in found]
        attributes = [each.attributes for each in parts]
        envelopes = [each.envelope for each in parts]
        columns = []
        for field, arrow in zip(self.schema, self.arrow, strict=True):
            name = field.name
            if name == PACKED:
                offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
                buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
                columns.append(pa.Array.from_buffers(pa.binary(), count, buffers).cast(arrow.type))
            elif name in _LOGGED:
                values = logged.get(name)
                made = pa.nulls(count, pa.int64()) if values is None else pa.array(values)
                columns.append(made.cast(arrow.type))
            elif name in _ENVELOPE:
                of = _ENVELOPE[name][1]
                values = [*map(attrgetter(of), envelopes)]
                is_time = of == "time_us"
                made = pa.array(values, pa.int64() if is_time else None)
                columns.append(made.cast(arrow.type))
            else:
                values = [*map(attrgetter(self._slots[name]), attributes)]
                columns.append(self._column(name, field.dataType, arrow.type, values))
        if self.misfits and self._on_misfits == "fail":
            names = ", ".join(self.misfits)
            reason = f"values do not fit their columns, misfits=fail: {names}"
            raise FormatError("MISFIT_VALUES", reason)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.arrow)
        if now_us is not None and any(each.ttl_us is not None for each in envelopes):
            batch = batch.filter(pa.array([not _is_expired(each, now_us) for each in envelopes]))
        return batch

    def _column(self, name: str, kind: T.DataType, arrow: Any, values: list[Any]) -> Any:
        plain = PYTHON_TYPES.get(type(kind))
        if plain is not None and {plain, type(None)}.issuperset(map(type, values)):
            try:
                return pa.array(values, arrow)
            except (pa.ArrowInvalid, OverflowError):
                pass  # A value is out of range.
        fit = _converter(kind, arrow)
        fitted = [None if each is None else fit(each) for each in values]
        lost = sum(each is MISFIT for each in fitted)
        if lost:
            self.misfits[name] = self.misfits.get(name, 0) + lost
            fitted = [None if each is MISFIT else each for each in fitted]
        return pa.array(fitted, arrow)


MISFIT: Final = object()
_LOG: Final = logging.getLogger(__name__)


def _is_expired(envelope: Any, now_us: int) -> bool:
    ttl_us, time_us = envelope.ttl_us, envelope.time_us
    return ttl_us is not None and time_us is not None and time_us + ttl_us <= now_us


def _converter(kind: T.DataType, arrow: Any) -> Callable[[Any], Any]:
    """Returns the function that converts a value for a column, or returns MISFIT."""
    if isinstance(kind, T.ArrayType):
        fit = _converter(kind.elementType, arrow.value_type)

        def several(value: Any) -> Any:
            fitted = [fit(each) for each in (value if type(value) is list else [value])]
            return MISFIT if any(each is MISFIT for each in fitted) else fitted

        return several
    wanted = PYTHON_TYPES[type(kind)]
    if wanted is int:
        return partial(_fit_integer, 1 << arrow.bit_width - 1)
    if wanted is float:
        return _fit_double
    return lambda value: value if type(value) is wanted else MISFIT


def _fit_integer(end: int, value: Any) -> Any:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -end <= value < end else MISFIT


def _fit_double(value: Any) -> Any:
    if type(value) is int and abs(value) < 1 << 1023 and int(float(value)) == value:
        return float(value)
    return value if type(value) is float else MISFIT


def _check(field: T.StructField) -> bool:
    """Whether a column is no attribute. Raises FormatError, InvalidNameError."""
    name, kind = field.name, field.dataType
    if name == PACKED and kind == T.BinaryType():
        return True
    expected = OF_ENVELOPE.get(name)
    if expected is not None:
        if kind != expected:
            found, wanted = kind.simpleString(), expected.simpleString()
            reason = f"column {name} {found}: expected {wanted}"
            raise FormatError("UNSUPPORTED_SCHEMA", reason)
        return True
    check_user_name(name)
    member = kind.elementType if isinstance(kind, T.ArrayType) else kind
    if type(member) not in PYTHON_TYPES:
        raise FormatError(
            "UNSUPPORTED_SCHEMA",
            f"column {name} {kind.simpleString()}: expected BOOLEAN, BYTE, SHORT, INT, BIGINT, "
            "DOUBLE, STRING, TIMESTAMP or an ARRAY of these",
        )
    return False
