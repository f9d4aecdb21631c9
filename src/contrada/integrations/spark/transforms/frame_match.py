"""`match` and `route`: the subscriptions that each notification of a frame matches.

One Arrow function makes a column of keys: only the columns in filters are sent to the Python
workers, and only the keys return. `frames` defines the attributes of rows.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from contrada.integrations.spark.transforms.filter_bases import Base, SubscribedInterest
from contrada.integrations.spark.transforms.frames import NOTIFICATION, quote
from contrada.integrations.spark.transforms.match_plan import MatchMethod, MatchPlan, plan_of
from contrada.integrations.spark.transforms.packed_rows import WorkerSetup
from contrada.integrations.spark.transforms.spark_predicates import is_bad
from contrada.integrations.spark.transforms.worker_code import import_in_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BaseLike: TypeAlias = "Base | Mapping[Any, SubscribedInterest] | str | Path | DataFrame"
"""A base, or the subscriptions of one."""

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""A function for `DataFrame.transform`."""


def match(
    subscriptions: BaseLike,
    *,
    column: str = "subscriptions",
    zone: str | None = None,
    drop: Iterable[str] = (),
    way: MatchMethod | None = None,
) -> Transform:
    """Returns a transform that adds a column of the keys of matching subscriptions, in the base's
    order.

    The column is an array of texts, or of integers like the base's keys; empty without a match, and
    NULL if the row is no notification. `zone` is that of dates and of times without one; columns to
    `drop` are no attributes. Only columns in filters are read. `way` overrides `plan`. Raises
    InputError if a column in filters cannot be an attribute, and for an invalid base.
    """
    base = Base.of(subscriptions)
    dropped = (*drop, column)

    def matched(frame: "DataFrame") -> "DataFrame":
        chosen = plan_of(frame, base, zone, dropped, way)
        if chosen.is_whole:
            return _by_rows(frame, base, chosen, column, only_matches=False)
        return frame.withColumn(column, _keys(frame, base, chosen))

    return matched


def route(
    subscriptions: BaseLike,
    *,
    column: str = "subscription",
    zone: str | None = None,
    drop: Iterable[str] = (),
    way: MatchMethod | None = None,
) -> Transform:
    """Returns a transform to a row for each matching pair of a notification and a subscription's
    key. By predicates, only matching rows are read, if the source supports it. Options and errors:
    as `match`.
    """
    base = Base.of(subscriptions)
    dropped = (*drop, column)

    def routed(frame: "DataFrame") -> "DataFrame":
        chosen = plan_of(frame, base, zone, dropped, way)
        others = [F.col(quote(name)) for name in frame.columns if name != column]
        if chosen.is_whole:
            frame = _by_rows(frame, base, chosen, column, only_matches=True)
            keys = F.col(quote(column))
        else:
            keys = _keys(frame, base, chosen)
            if chosen.way == "predicates":
                frame = frame.where(reduce(or_, chosen.predicates))
        return frame.select(*others, F.explode(keys).alias(column))

    return routed


def plan(
    frame: "DataFrame",
    subscriptions: BaseLike,
    *,
    zone: str | None = None,
    drop: Iterable[str] = (),
) -> MatchPlan:
    """Returns the plan of `match` and `route` for a frame. Errors: as `match`."""
    return plan_of(frame, Base.of(subscriptions), zone, drop, None)


def _keys(frame: "DataFrame", base: Base, chosen: MatchPlan) -> "Column":
    """Returns the keys of each row, as an array; the columns in filters are sent to workers."""
    if chosen.way == "predicates":
        return _by_predicates(base, chosen)
    asked = [chosen.frame.attributes[name] for name in chosen.columns if not chosen.is_packed]
    setup = _pack_setup(frame, base, chosen, ())
    columns = [F.col(NOTIFICATION)] if chosen.is_packed else [F.expr(a.expression) for a in asked]
    # Workers need a column to know the number of rows.
    # PySpark's annotations require a function type, which PySpark itself warns of.
    made: Any = arrow_udf
    found: Column = made(_of_columns(setup), keys_type(base))(*(columns or [F.lit(1)]))
    return found


def _by_rows(
    frame: "DataFrame", base: Base, chosen: MatchPlan, column: str, *, only_matches: bool
) -> "DataFrame":
    """Returns the frame with the keys of each row; all columns are sent to workers and back."""
    others = frame.drop(column)
    setup = _pack_setup(others, base, chosen, tuple(others.columns), only_matches=only_matches)
    schema = T.StructType([*others.schema.fields, T.StructField(column, keys_type(base))])
    return others.mapInArrow(_of_batches(setup), schema)


def _pack_setup(
    frame: "DataFrame",
    base: Base,
    chosen: MatchPlan,
    places: tuple[str, ...],
    *,
    only_matches: bool = False,
) -> bytes:
    """Returns the encoded setup of workers, and ships the files of the base."""
    kinds: tuple[str, ...] = ()
    if not chosen.is_packed:
        kinds = tuple(chosen.frame.attributes[name].kind for name in chosen.columns)
    setup = WorkerSetup(
        base.ship(frame.sparkSession),
        () if chosen.is_packed else chosen.columns,
        kinds,
        chosen.frame.zone,
        chosen.is_packed,
        tuple(places.index(name) for name in chosen.columns) if places else None,
        only_matches,
    )
    return setup.packed()


def keys_type(base: Base) -> T.ArrayType:
    """Returns the type of a column of keys."""
    key = T.LongType() if base.saved.are_integers else T.StringType()
    return T.ArrayType(key, containsNull=False)


def _by_predicates(base: Base, chosen: MatchPlan) -> "Column":
    """Returns the keys of each row by predicates; NULL for a bad row, as with an index."""
    assert base.interests is not None
    keys = [
        F.when(predicate, F.lit(key).cast("bigint") if base.saved.are_integers else F.lit(key))
        for key, predicate in zip(base.interests, chosen.predicates, strict=True)
    ]
    found = F.array_compact(F.array(*keys))
    bad = is_bad(chosen.frame, chosen.columns)
    return found if bad is None else F.when(~bad, found)


def _of_columns(setup: bytes) -> Callable[..., Any]:
    """Returns the function from the columns of a batch to the keys of its rows."""
    imported = import_in_worker("packed_rows")

    def matched(*columns: pa.Array) -> pa.Array:
        return imported().keys_of(setup, columns)

    return matched


def _of_batches(setup: bytes) -> Callable[..., Any]:
    """Returns the function that adds a column of keys to batches."""
    imported = import_in_worker("packed_rows")

    def matched(batches):  # type: ignore[no-untyped-def]
        return imported().match_batches(setup, batches)

    return matched
