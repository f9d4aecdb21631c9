"""`to_notifications`: rows of columns, maps, JSON, XML or VARIANT as packed notifications.

A row has the meaning of a JSON object with the same values, read with the same options
(`contrada.integrations.files`); a text has the meaning that it has for `contrada match`.
`notification_worker` has the workers' part.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, TypeAlias, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812

from contrada.errors import InputError
from contrada.integrations.files.read_options import ReadOptions, plain_format
from contrada.integrations.spark.transforms.frames import NOTIFICATION, frame_of, quote
from contrada.integrations.spark.transforms.notification_worker import RowBuilder, build_batches
from contrada.integrations.spark.transforms.worker_code import for_worker

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
    are unchanged. Cost: rows of plain columns are encoded in columns, with Numba; others one by
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
            raise InputError("keep", f"found {taken[0]!r}, which is the name of what is made")
        columns, builder = builder_of(frame, reading, of, column)
        others = frame.select(*map(quote, kept)).schema.fields
        rows = frame.select(*columns, *map(quote, kept))
        work = for_worker(partial(build_batches, builder))
        return rows.mapInArrow(work, T.StructType([*others, *RESULT.fields]))

    return made


def builder_of(
    frame: DataFrame, reading: ReadOptions, of: str, column: str | None
) -> tuple[list[Column], RowBuilder]:
    """Returns the columns for workers, and their setup. Errors: as `to_notifications`."""
    if of != "wide":
        taken = F.col(quote(_column(frame.schema, of, column)))
        return [taken.alias("0")], RowBuilder(of, reading)
    if column is not None:
        raise InputError("column", f"found {column!r}, expected none: all columns are taken")
    described = frame_of(frame.schema, zone=reading.zone, drop=reading.drop)
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
    """Returns the input column of notifications."""
    kinds = _INPUT_TYPES[of]
    fitting = [each.name for each in schema.fields if isinstance(each.dataType, kinds)]
    if column is None and len(fitting) == 1:
        return fitting[0]
    if column in fitting:
        return column
    shown = ", ".join(fitting) or "none"
    found = "none" if column is None else repr(column)
    raise InputError("column", f"found {found}, expected the one of {of}, of: {shown}")
