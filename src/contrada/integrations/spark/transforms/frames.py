"""`NotificationFrame`: the columns of a frame as attributes.

A frame is *packed* with a binary column `notification` of packed notifications, or *wide*: each
column is an attribute (docs/spark.md has the table). Kernels read most columns directly in Arrow's
memory; other scalars are converted once for each distinct value; the rest is read row by row.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError, InputError
from contrada.integrations.files.time_formats import in_zone, zone_of
from contrada.integrations.files.value_columns import MISSING, REFUSED, Column
from contrada.matching.index import Index
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US, check_user_name, normal

NOTIFICATION: Final = "notification"
"""The binary column of a packed frame."""

TEXT: Final = "text"
BOOL: Final = "bool"
INTEGER: Final = "integer"
FLOAT: Final = "float"
DOUBLE: Final = "double"
TIME: Final = "time"
CONVERTED: Final = "converted"
"""A decimal, date or local time: each distinct one is converted once."""
SEVERAL: Final = "several"
"""An array, map or variant: it is read row by row."""

_LOCAL: Final = (T.DateType, T.TimestampNTZType)
_KINDS: Final[dict[str, tuple[type[T.DataType], ...]]] = {
    TEXT: (T.StringType, T.CharType, T.VarcharType),
    BOOL: (T.BooleanType,),
    INTEGER: (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    FLOAT: (T.FloatType,),
    DOUBLE: (T.DoubleType,),
    TIME: (T.TimestampType,),
    CONVERTED: (T.DecimalType, *_LOCAL),
    SEVERAL: (T.ArrayType, T.MapType, T.VariantType),
}


@dataclass(frozen=True, slots=True)
class ColumnAttribute:
    """A column, or a struct member, as an attribute. `kind` selects the reading of its values,
    `type` is Spark's. `refused` is the reason why the column cannot be an attribute, or "". With
    `is_padded` it is a CHAR(n), so Spark pads constants before a comparison.
    """

    name: str
    path: tuple[str, ...]
    kind: str
    type: T.DataType
    refused: str = ""
    is_padded: bool = False

    @property
    def expression(self) -> str:
        """Its expression in Spark SQL."""
        return ".".join(map(quote, self.path))

    def may_be(self, names: Collection[str]) -> bool:
        """Whether it may give an attribute with one of these names."""
        if self.name in names or self.kind != SEVERAL:
            return self.name in names
        return any(name.startswith(f"{self.name}.") for name in names)


def quote(name: str) -> str:
    """Returns a column's name, quote for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class NotificationFrame:
    """The attributes of a wide frame by name, none of a packed one; the zone of local times."""

    attributes: Mapping[str, ColumnAttribute]
    is_packed: bool
    zone: str | None = None

    def select(self, names: Collection[str] | None) -> list[ColumnAttribute]:
        """Returns the attributes with these names, or all. Raises InputError for a refused one."""
        found = [each for each in self.attributes.values() if names is None or each.may_be(names)]
        for each in found:
            if each.refused:
                raise InputError(f"column {each.name!r}", each.refused)
        return found


def frame_of(
    frame: DataFrame, *, zone: str | None = None, drop: Iterable[str] = ()
) -> NotificationFrame:
    """Returns the attributes of a frame. Raises InputError for a bad zone or a double name.

    Names of attributes differ by case. Unless Spark's do, columns whose names differ by nothing
    else are refused.
    """
    found = attributes_of(frame.schema, zone=zone, drop=drop)
    is_exact = frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    names = Counter() if is_exact else Counter(name.lower() for name in found.attributes)
    alike = [each for each in found.attributes.values() if names[each.name.lower()] > 1]
    if not alike:
        return found
    reason = "Spark cannot distinguish {}: rename one, or set spark.sql.caseSensitive to true"
    shown = reason.format(" from ".join(repr(each.name) for each in alike))
    refused = {each.name: replace(each, refused=each.refused or shown) for each in alike}
    return replace(found, attributes={**found.attributes, **refused})


def numbered(frame: DataFrame) -> DataFrame:
    """Returns a frame with numbers as names: `mapInArrow` finds no columns with dots in theirs."""
    return frame.toDF(*map(str, range(len(frame.columns))))


def attributes_of(
    schema: T.StructType, *, zone: str | None = None, drop: Iterable[str] = ()
) -> NotificationFrame:
    """As `frame_of`, for a schema."""
    if zone is not None:
        zone_of(zone)
    if any(
        each.name == NOTIFICATION and isinstance(each.dataType, T.BinaryType)
        for each in schema.fields
    ):
        return NotificationFrame({}, is_packed=True)
    found: dict[str, ColumnAttribute] = {}
    dropped = frozenset(drop)
    for each in _leaves(schema, (), zone, dropped):
        if each.name in found:
            raise InputError(f"column {each.name!r}", "found another column of this name")
        found[each.name] = each
    return NotificationFrame(found, is_packed=False, zone=zone)


def _leaves(
    schema: T.StructType, path: tuple[str, ...], zone: str | None, drop: Collection[str]
) -> Iterable[ColumnAttribute]:
    for field in schema.fields:
        here = (*path, field.name)
        name = ".".join(here)
        if name in drop:
            continue
        if isinstance(field.dataType, T.StructType):
            yield from _leaves(field.dataType, here, zone, drop)
        else:
            found = _attribute(name, here, field.dataType, zone)
            yield replace(found, is_padded=_LENGTH in (field.metadata or {}))


def _attribute(
    name: str, path: tuple[str, ...], kind: T.DataType, zone: str | None
) -> ColumnAttribute:
    refused = ""
    try:
        check_user_name(name)
    except ContradaError as error:
        refused = str(error)
    read = next((read for read, of in _KINDS.items() if isinstance(kind, of)), None)
    if read is None:
        reason = f"{kind.simpleString()} is no value of an attribute; convert it, or drop it"
        refused = refused or reason
    elif isinstance(kind, _LOCAL) and zone is None:
        refused = f"{kind.simpleString()} is no moment; give the zone that it is in, or drop it"
    elif isinstance(kind, T.MapType) and not isinstance(kind.keyType, T.StringType):
        refused = "the keys of a map must be text; drop it"
    return ColumnAttribute(name, path, read or CONVERTED, kind, refused)


_LENGTH: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata that Spark gives columns of CHAR(n) and VARCHAR(n), which are STRING else."""


# --- in workers -----------------------------------------------------------------------------------

_ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
    "date": pa.date32(),
}


def arrow_schema(columns: str) -> pa.Schema:
    """Returns the Arrow schema of columns such as `n bigint, texts array<string>`."""
    fields = []
    for name, kind in (column.split(" ") for column in columns.split(", ")):
        member = _ARROW_TYPES[kind.removeprefix("array<").removesuffix(">")]
        fields.append((name, pa.list_(member) if kind.startswith("array") else member))
    return pa.schema(fields)


class WideRows:
    """A batch of a wide frame: columns for kernels, and rows that are matched one by one. `table`
    has the columns for kernels. `odd` marks rows with further values, and `bad` rows with a value
    that no attribute can have, which are no notifications.
    """

    def __init__(
        self, names: Sequence[str], kinds: Sequence[str], arrays: Sequence[Any], zone: str | None
    ) -> None:
        count = len(arrays[0])
        self._zone = zone
        self.bad = np.zeros(count, dtype=bool)
        self.odd = np.zeros(count, dtype=bool)
        self._whole: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        for name, kind, array in zip(names, kinds, arrays, strict=False):
            self._whole[name] = array
            if kind == SEVERAL:
                self.odd |= is_valid(array)
            elif kind == CONVERTED:
                values, codes = convert_distinct(array, partial(scalar_value, zone=zone))
                self.bad |= np.array([each is REFUSED for each in values], dtype=bool)[codes]
                self._whole[name] = column = Column(values, codes)
                held, odd = column.in_arrow
                if held is not None:
                    columns[name] = held
                if odd is not None:
                    self.odd |= odd
            else:
                columns[name] = array
                if kind == TIME and (outside := outside_times(array)) is not None:
                    self.bad |= outside
                    nothing = pa.scalar(None, array.type)
                    columns[name] = pc.if_else(pa.array(outside), nothing, array)
        # The table needs a column to have a number of rows.
        self.table = pa.table(columns or {"": pa.nulls(count)})

    def matched(self, index: Index[int]) -> tuple[Any, Any]:
        """Matches as `Index.match_batch`; the caller ignores the results of odd and bad rows."""
        found: tuple[Any, Any] = index.match_batch(self.table)
        return found

    def notification(self, row: int) -> dict[str, Any] | None:
        """Returns all attributes of a row. None for a bad row."""
        found = {}
        try:
            for name, column in self._whole.items():
                if isinstance(column, Column):
                    value = column.value(row)
                    if value is not None and value is not MISSING:
                        found[name] = value
                elif (cell := column[row]).is_valid:  # A variant may hold the null of JSON.
                    found[name] = python_value(cell, self._zone)
        except (ContradaError, OverflowError, ValueError):
            self.bad[row] = True
            return None
        return found


def convert_distinct(array: Any, convert: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Converts each distinct value of a column; returns the results and MISSING, and their place
    for each row.
    """
    coded = array.dictionary_encode()
    values = [convert(each) for each in scalars_of(coded.dictionary)]
    codes = coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return [*values, MISSING], codes


def outside_times(array: Any) -> Any:
    """Returns the rows with out-of-range times, or None."""
    whole = array.cast(pa.int64())
    ends = pc.min_max(whole)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low >= TIME_MIN_US and high <= TIME_MAX_US):
        return None
    outside = pc.or_(pc.less(whole, TIME_MIN_US), pc.greater(whole, TIME_MAX_US))
    return pc.fill_null(outside, False).to_numpy(zero_copy_only=False)


def is_valid(array: Any) -> Any:
    """Returns the rows that are not NULL."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def is_utf8(column: Any) -> bool:
    """Whether all texts of a column are UTF-8, which Spark does not guarantee."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def scalars_of(array: Any) -> list[Any]:
    """Returns the values of a column; REFUSED for dates that Python cannot hold."""
    found: list[Any] = []
    try:
        found += array.to_pylist()
    except (OverflowError, ValueError):
        for cell in array:
            try:
                found.append(cell.as_py())
            except (OverflowError, ValueError):
                found.append(REFUSED)
    return found


def scalar_value(value: Any, zone: str | None) -> Any:
    """Converts a decimal, date or local time; returns REFUSED for an invalid one."""
    try:
        return _moment(value, zone) if isinstance(value, date) else normal(value)
    except (ContradaError, OverflowError):
        return REFUSED


def _moment(value: date, zone: str | None) -> datetime:
    assert zone is not None
    local = value if isinstance(value, datetime) else datetime.combine(value, time())
    return local.astimezone(UTC) if local.tzinfo else in_zone(local, zone, str(value))


def python_value(cell: Any, zone: str | None) -> Any:
    """Returns a cell as a Python value; None for NULL. Raises ContradaError, ValueError."""
    kind = cell.type
    if not cell.is_valid:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        data: bytes = cell.as_buffer().to_pybytes()
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data
    if pa.types.is_map(kind):
        entries = ((each["key"], each["value"]) for each in cell.values if each["value"].is_valid)
        return {python_value(key, zone): python_value(value, zone) for key, value in entries}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        members = [python_value(each, zone) for each in cell.values]
        return [each for each in members if each is not None]
    if pa.types.is_struct(kind):
        if any((field.metadata or {}).get(b"variant") == b"true" for field in kind):
            return T.VariantVal(cell["value"].as_py(), cell["metadata"].as_py()).toPython()
        return {name: python_value(each, zone) for name, each in cell.items() if each.is_valid}
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        if zone is None:
            raise ValueError("a local time, and no zone is given")
        return _moment(cell.as_py(), zone)
    return cell.as_py()
