"""`FileSource`: files as a source; pyarrow reads Parquet and CSV, and JSON lines are objects.

A query becomes an Arrow condition that provably accepts every matching row, so row groups of
Parquet are skipped by their statistics. All accepted rows are checked exactly again. The pushed
condition may be wider:

    column                               pushed
    integers of up to 64 bits, signed    from the first to the last integer of each interval
    doubles                              intervals, widened to doubles; NaN separately
    texts                                intervals, by the first text that is not below a bound
    truth values                         one of the two
    times with a zone                    from the first to the last of the column's units
    others                               presence of a value

A column of CSV has numbers, truth values, or texts, also texts that look like times. Its first rows
determine this, and a later cell of another type is an error. An empty cell is absent. A JSON object
is converted to a notification, null being a value. Files are listed again for each query. Files may
have different columns; a missing column is absent.
"""

import math
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from glob import glob
from operator import and_, ge, gt, le, lt, or_
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from contrada.errors import ContradaError, InputError, MissingRequirementError, ServiceError
from contrada.integrations.dialects.sql import sql_writer
from contrada.integrations.files.csv_rows import is_blank
from contrada.integrations.files.json_objects import decode_object
from contrada.integrations.files.lines import open_lines, unpacked_name
from contrada.integrations.files.record import bad_record, check_line
from contrada.integrations.files.time_formats import zone_of
from contrada.integrations.sources.source_pushdown import SqlColumn, column_of
from contrada.integrations.sources.source_rows import errors_at, items_of, key_in
from contrada.model import Notification, ValueSet
from contrada.model.algebra.sets import eq
from contrada.model.algebra.value_set import EVERYTHING, NOTHING, PRESENT
from contrada.model.domains import line
from contrada.model.domains import values as domains
from contrada.model.domains.line import HalfOpen
from contrada.routing.router_messages import Offer
from contrada.service.query import source as descriptions
from contrada.service.query.source_query import SourceQuery
from contrada.service.subjects import Offered

FileFormat: TypeAlias = Literal["parquet", "csv", "json"]

INTERVALS_PUSHED_MAX: Final = 1_000
"""Intervals of a query that readers of files evaluate. Beyond it: all rows are checked here."""

ROWS_READ_AT_ONCE: Final = 8_192
"""Rows of files in memory at once. Beyond it: the next are read when these are consumed."""


class FileSource(descriptions.DescribedSource):
    """Files of one format, each row an item.

    `paths` is a path, a folder, a pattern as of `glob`, or several of these. The format is
    `parquet`, `csv` or `json` (an object on each line), by default that of the first file's name.
    All columns are attributes, or those in `columns`. `zone` is the zone of times without one.

    `description` advertises the items; by default it is computed, at most every `fresh_s` seconds:
    for Parquet from the statistics of row groups, for other files by reading all.

    Raises ServiceError, InvalidNameError; later InputError for faulty files and
    MissingRequirementError without pyarrow.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        format: FileFormat | None = None,
        columns: Sequence[str] | None = None,
        *,
        zone: str | None = None,
        description: Offered | None = None,
        fresh_s: float = descriptions.FRESH_S,
    ) -> None:
        self._patterns = [paths] if isinstance(paths, str | Path) else list(paths)
        if format is not None and format not in get_args(FileFormat):
            raise ServiceError(f"format = {format!r}: expected parquet, csv or json")
        self._format = format
        self._names = None if columns is None else tuple(map(domains.check_user_name, columns))
        self._zone = zone
        if zone is not None:
            zone_of(zone)
        super().__init__(description, fresh_s)

    @property
    def place(self) -> str:
        """The place of a fault in errors."""
        return ", ".join(map(str, self._patterns))

    def answer(self, question: SourceQuery) -> Generator[Notification, None, None]:
        """See `DataSource`. Cost: some microseconds for each accepted row."""
        with errors_at(self.place, _is_of_files):
            paths, kind = self._paths()
            if kind == "json":
                yield from filter(question.answers, self._objects(paths))
                return
            found = _dataset(paths, kind)
            names = self._columns(found.schema)
            kept = pushed(question, {each: found.schema.field(each).type for each in names})
            yield from filter(question.answers, self._items(found, names, kept))

    def _describe(self) -> Offer:
        with errors_at(self.place, _is_of_files):
            paths, kind = self._paths()
            if kind == "json":
                return descriptions.described(self._objects(paths))
            found = _dataset(paths, kind)
            names = self._columns(found.schema)
            if kind == "csv":
                return descriptions.described(self._items(found, names, None))
            types = {name: found.schema.field(name).type for name in names}
            is_whole = not any(map(_has_objects, types.values()))
            held = _held(found, types, self._zone)
            return descriptions.description_of_columns(held, is_whole=is_whole)

    def _items(self, found: Any, names: Sequence[str], kept: Any) -> Iterator[Notification]:
        options = {"batch_size": ROWS_READ_AT_ONCE, "use_threads": False}
        for batch in found.to_batches(columns=list(names), filter=kept, **options):
            columns = []
            for column in batch.columns:
                # Python has times in microseconds, and near its last year only in UTC.
                if _arrow().types.is_timestamp(column.type):
                    column = column.cast(_arrow().timestamp("us", column.type.tz and "UTC"))
                columns.append(column.to_pylist())
            rows: Iterable[Sequence[Any]] = zip(*columns, strict=True) if columns else ()
            yield from items_of(self.place, names, rows, self._zone)

    def _objects(self, paths: Sequence[str]) -> Iterator[Notification]:
        """Yields the objects in JSON lines; empty lines are skipped."""
        kept = None if self._names is None else frozenset(self._names)
        for path in paths:
            for number, text in enumerate(open_lines(Path(path)), 1):
                if not is_blank(text):
                    yield _object(path, number, text, kept)

    def _paths(self) -> tuple[list[str], FileFormat]:
        paths = [str(path) for each in self._patterns for path in _found(each)]
        if not paths:
            raise InputError(self.place, "there is no such file")
        if self._format is not None:
            return paths, self._format
        for kind, endings in _ENDINGS.items():
            if unpacked_name(paths[0]).lower().endswith(endings):
                return paths, kind
        raise InputError(paths[0], "its name has no known format: add 'parquet', 'csv' or 'json'")

    def _columns(self, schema: Any) -> list[str]:
        """Returns the columns that are attributes. Raises InputError unless each is there once."""
        names = list(schema.names) if self._names is None else list(self._names)
        for name in names:
            domains.check_user_name(name)
            if schema.get_field_index(name) < 0:
                reason = f"there is no column {name!r} once; there are {', '.join(schema.names)}"
                raise InputError(self.place, reason)
        return names


def _is_of_files(error: Exception) -> bool:
    arrow = sys.modules.get("pyarrow")
    known = (OSError, EOFError, OverflowError, UnicodeDecodeError, zlib.error)
    return isinstance(error, known if arrow is None else (*known, arrow.ArrowException))


_ENDINGS: Final[dict[FileFormat, tuple[str, ...]]] = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv",),
    "json": (".json", ".jsonl", ".ndjson"),
}


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        remedy = "pip install 'contrada[query]', which reads files"
        raise MissingRequirementError("pyarrow", remedy) from None
    return pyarrow


def _dataset(paths: Sequence[str], kind: FileFormat) -> Any:
    arrow = _arrow()
    format: Any = arrow.dataset.ParquetFileFormat()
    if kind == "csv":
        options = arrow.csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        format = arrow.dataset.CsvFileFormat(convert_options=options)
    fragments = arrow.dataset.dataset(paths, format=format).get_fragments()
    schema = arrow.unify_schemas([each.physical_schema for each in fragments])
    if kind == "csv":
        is_time = arrow.types.is_temporal  # Texts in these files that look like times stay texts.
        schema = arrow.schema(
            [each.with_type(arrow.string()) if is_time(each.type) else each for each in schema]
        )
    return arrow.dataset.dataset(paths, format=format, schema=schema)


def _object(path: str, number: int, line: str, kept: frozenset[str] | None) -> Notification:
    try:
        check_line(line)  # Also values that are left out.
        found = decode_object(line)
        if kept is not None:
            found = {name: value for name, value in found.items() if name in kept}
        return Notification(found)
    except ContradaError as error:
        raise bad_record(path, error, number).error() from None


def _found(pattern: str | Path) -> list[Path]:
    path = Path(pattern)
    if path.is_dir():
        visible = (each for each in path.rglob("*") if not each.name.startswith((".", "_")))
        return sorted(each for each in visible if each.is_file())
    if path.is_file():
        return [path]
    return sorted(each for each in map(Path, glob(str(pattern), recursive=True)) if each.is_file())


def _has_objects(kind: Any) -> bool:
    """Whether values may have attributes of their own."""
    types = _arrow().types
    return bool(types.is_nested(kind) and not types.is_list(kind))


# --- pushed conditions ------------------------------------------------------------------------


def pushed(question: SourceQuery, types: dict[str, Any]) -> Any:
    """Returns the Arrow condition on rows that may match; None for all."""
    columns = {
        name: SqlColumn(name, kind, _has_objects(kind), not _arrow().types.is_nested(kind))
        for name, kind in types.items()
    }
    alternatives: list[Any] = []
    intervals = 0
    for each in question.filters:
        intervals += sum(len(values.line) // 2 + 1 for values in each.sets.values())
        sides = [_side(name, values, columns) for name, values in each.sets.items()]
        sides = [side for side in sides if side is not None]
        if not sides:
            return None
        alternatives.append(reduce(and_, sides))
    if intervals > INTERVALS_PUSHED_MAX:
        return None
    return reduce(or_, alternatives) if alternatives else None


def _side(name: str, values: ValueSet, columns: Mapping[str, SqlColumn]) -> Any:
    dataset = _arrow().dataset
    column = column_of(name, values, columns)
    if isinstance(column, bool):
        return None if column else dataset.scalar(False)
    field = dataset.field(name)
    present = values & PRESENT
    there = field.is_valid()
    if present.text is None and present != PRESENT:
        found = _present(field, column.type, present)
        there = there if found is None else found
    return there | field.is_null() if values.holds(domains.ABSENT_KEY) else there


def _present(field: Any, kind: Any, values: ValueSet) -> Any:
    """Returns the condition on a present value; None for any value."""
    arrow = _arrow()
    types = arrow.types
    if types.is_boolean(kind):
        found = [field == truth for truth in (False, True) if values.holds((domains.BOOL, truth))]
    elif types.is_signed_integer(kind):
        found = list(_integers(field, kind, _bounds(values, domains.NUMBER)))
    elif types.is_timestamp(kind) and kind.tz is not None:
        found = list(_integers(field, kind, _bounds(values, domains.TIME), *_UNITS[kind.unit]))
    elif types.is_float64(kind):
        found = [_doubles(field, *bounds) for bounds in _bounds(values, domains.NUMBER)]
        if values.holds(domains.NAN_KEY):
            found.append(field.is_nan())
    elif types.is_string(kind) or types.is_large_string(kind):
        texts = (_texts(field, piece) for piece in _pieces(values, domains.TEXT))
        found = [each for each in texts if each is not None]
    else:
        return None
    return reduce(or_, found, arrow.dataset.scalar(False))


_UNITS: Final = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}
"""The conversion of each time unit to microseconds: multiply, then divide."""


def _pieces(values: ValueSet, tag: int) -> list[HalfOpen]:
    """Returns the intervals of a domain, without NaN."""
    domain = line.difference(line.domain(tag), line.point(domains.NAN_KEY))
    return list(line.pieces(line.intersection(values.line, domain)))


def _bounds(values: ValueSet, tag: int) -> Iterator[tuple[Any, Any]]:
    """Yields the least and the least greater value of each interval; None for none."""
    for piece in _pieces(values, tag):
        low, high = (None if cut is None or len(cut) < 2 else cut[1] for cut in piece)
        yield low, high


def _integers(
    field: Any, kind: Any, bounds: Iterable[tuple[Any, Any]], over: int = 1, under: int = 1
) -> Iterator[Any]:
    """Yields the ranges of integers, times `over` and divided by `under`, in the column's type."""
    beyond = 2 ** (kind.bit_width - 1)
    for low, high in bounds:
        first = -beyond if low is None else max(_ceiling(low, over, under), -beyond)
        last = beyond - 1 if high is None else min(_ceiling(high, over, under), beyond) - 1
        if first <= last:
            least, most = (_arrow().scalar(each, kind) for each in (first, last))
            yield (field >= least) & (field <= most)


def _ceiling(bound: Any, over: int, under: int) -> int:
    """Returns the first integer that is not below a bound; for infinity one beyond all columns."""
    if isinstance(bound, float) and math.isinf(bound):
        return 2**64 if bound > 0 else -(2**64)
    return int(-(-math.ceil(bound) * over // under))


def _doubles(field: Any, low: Any, high: Any) -> Any:
    """Returns a range of doubles, which may be a step wider."""
    first = -math.inf if low is None else float(low)
    last = math.inf if high is None else float(high)
    if low is not None and first > low:
        first = math.nextafter(first, -math.inf)
    if high is not None and last < high:
        last = math.nextafter(last, math.inf)
    return (field >= first) & (field <= last if high is None or last != high else field < last)


def _texts(field: Any, piece: HalfOpen) -> Any:
    """Returns a range of texts; None for an empty one."""
    low, high = sql_writer.lower_bound(piece[0]), sql_writer.upper_bound(piece[1])
    if low is sql_writer.NOWHERE:
        return None
    found = field.is_valid()
    for end in (low, high):
        if end is not None and end is not sql_writer.NOWHERE:
            found = found & _COMPARE[end[0]](field, end[1])
    return found


_COMPARE: Final = {">": gt, ">=": ge, "<": lt, "<=": le}


# --- statistics of Parquet --------------------------------------------------------------------


def _held(found: Any, types: dict[str, Any], zone: str | None) -> dict[str, ValueSet]:
    """Returns the values of columns, by the statistics of the row groups."""
    held = dict.fromkeys(types, NOTHING)
    for fragment in found.get_fragments():
        metadata = fragment.metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = {
                each.path_in_schema: each for each in map(group.column, range(group.num_columns))
            }
            for name, kind in types.items():
                if name in fragment.physical_schema.names:
                    held[name] |= _of_group(columns.get(name), kind, zone)
    return held


_ORDERED: Final = (
    *("integer", "float32", "float64", "boolean", "string", "large_string"),
    *("date32", "decimal", "timestamp"),
)
"""Types with statistics in the order of attribute values."""


def _of_group(column: Any, kind: Any, zone: str | None) -> ValueSet:
    """Returns the values of a column in a row group; everything without statistics."""
    statistics = None if column is None else column.statistics
    types = _arrow().types
    if statistics is None or not any(getattr(types, f"is_{each}")(kind) for each in _ORDERED):
        return EVERYTHING
    if not statistics.has_min_max:
        is_empty = statistics.has_null_count and statistics.null_count == column.num_values
        return NOTHING if is_empty else EVERYTHING
    if getattr(kind, "tz", None) is not None:
        zone = "UTC"  # That of times in statistics.
    try:
        low, high = key_in(statistics.min, zone), key_in(statistics.max, zone)
    except (ContradaError, ValueError, ArithmeticError):
        return EVERYTHING
    if low[0] != high[0] or high < low:
        return EVERYTHING
    values = descriptions.within(low, high)
    return values | eq(math.nan) if types.is_floating(kind) else values
