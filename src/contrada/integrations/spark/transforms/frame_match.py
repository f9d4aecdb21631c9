"""`match` and `route`: the subscriptions that each notification of a frame matches; `plan`: how.

All ways of matching give the same keys. Predicates need no Python and are pushed to files, so they
are chosen for a few filters that each have an equal predicate (see `spark_predicates`). Otherwise
an index in workers matches: only the columns in filters are sent to them, and only the keys return,
unless sending whole rows costs less.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812

from contrada.errors import InputError
from contrada.integrations.files.match_diagnosis import sets_by_name
from contrada.integrations.spark.spark_versions import arrow_udf
from contrada.integrations.spark.transforms import frames
from contrada.integrations.spark.transforms.filter_bases import Base, SubscribedInterest
from contrada.integrations.spark.transforms.packed_rows import WorkerSetup, key_lists, match_batches
from contrada.integrations.spark.transforms.spark_predicates import (
    DOMAINS,
    is_bad,
    parts_of,
    predicate_of,
)
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model.algebra.match_explanation import asked_domains, domain_nouns, similar_names
from contrada.model.domains import values

PREDICATES_MAX: Final = 16
"""Subscriptions that Spark predicates match. Beyond it: an index matches them."""

PARTS_MAX: Final = 64
"""Intervals and atoms of all subscriptions that Spark predicates match. Beyond it: an index matches
them, since Java does not compile such large expressions."""

JOIN_COLUMNS: Final = 8
"""Columns that may be sent to workers and back at the cost of joining keys to rows. Measured.
Beyond it, plus `ONE_WAY` for each column in filters: only those columns are sent."""

ONE_WAY: Final = 0.6
"""The cost of a column that is only sent to workers, relative to both directions."""

MISSING_SHOWN_MAX: Final = 20
"""Names without a column that a plan shows. Beyond it: they are in `MatchPlan.missing` alone."""

BaseLike: TypeAlias = Base | Mapping[Any, SubscribedInterest] | str | Path | DataFrame
"""A base, or the subscriptions of one."""

Transform: TypeAlias = Callable[[DataFrame], DataFrame]
"""A function for `DataFrame.transform`."""

MatchMethod: TypeAlias = Literal["predicates", "index"]
"""Spark's own predicates, or an index in workers."""


def match(
    subscriptions: BaseLike,
    *,
    column: str = "subscriptions",
    zone: str | None = None,
    drop: Iterable[str] = (),
    way: MatchMethod | None = None,
) -> Transform:
    """Returns a transform that adds the keys of matching subscriptions, in the base's order.

    The column is an array of texts, or of integers like the base's keys; empty without a match, and
    NULL if the row is no notification. `zone` is that of dates and of times without one; columns to
    `drop` are no attributes. Only columns in filters are read. `way` overrides `plan`. Raises
    InputError if a column in filters cannot be an attribute, and for an invalid base.
    """
    base = Base.of(subscriptions)
    dropped = (*drop, column)

    def matched(frame: DataFrame) -> DataFrame:
        chosen = _plan_of(frame, base, zone, dropped, way)
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
    """Returns a transform to a row for each pair of a notification and a key of `match`. By
    predicates, only matching rows are read, if the source supports it. Options: as `match`.
    """
    base = Base.of(subscriptions)
    dropped = (*drop, column)

    def routed(frame: DataFrame) -> DataFrame:
        chosen = _plan_of(frame, base, zone, dropped, way)
        others = [F.col(frames.quote(name)) for name in frame.columns if name != column]
        if chosen.is_whole:
            frame = _by_rows(frame, base, chosen, column, only_matches=True)
            keys = F.col(frames.quote(column))
        else:
            keys = _keys(frame, base, chosen)
            if chosen.way == "predicates":
                frame = frame.where(reduce(or_, chosen.predicates))
        return frame.select(*others, F.explode(keys).alias(column))

    return routed


# --- the plan -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """The way of matching a base on a frame.

    With `is_whole` all columns are sent to workers and back. `columns` are those in filters that
    the frame has; of a packed frame its one column. `missing` are names in filters that no column
    has, `misfits` sentences about columns whose type has no value that their filters ask for, of a
    base whose filters are in memory.
    """

    way: MatchMethod
    why: str
    subscriptions: int
    columns: tuple[str, ...]
    predicates: tuple[Column, ...]
    frame: frames.NotificationFrame
    is_whole: bool = False
    missing: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()

    def __str__(self) -> str:
        sent = "whole" if self.is_whole else "by these columns alone"
        rows = "" if self.way == "predicates" else f"; rows go to workers {sent}"
        asked = ", ".join(self.columns) or "none"
        shown = [
            f"{name}{_similar(name, self.frame.attributes)}"
            for name in self.missing[:MISSING_SHOWN_MAX]
        ]
        missing = f"; no column: {', '.join(shown)}" if shown else ""
        missing += "".join(f"; {each}" for each in self.misfits[:MISSING_SHOWN_MAX])
        found = f"{self.subscriptions} subscriptions by {self.way}: {self.why}"
        return f"{found}; asked for: {asked}{missing}{rows}"

    def attributes(self) -> list[frames.ColumnAttribute]:
        """Returns the attributes of the columns; none of a packed frame."""
        names = () if self.frame.is_packed else self.columns
        return [self.frame.attributes[each] for each in names]


def plan(
    frame: DataFrame, subscriptions: BaseLike, *, zone: str | None = None, drop: Iterable[str] = ()
) -> MatchPlan:
    """Returns the plan of `match` and `route` for a frame. Cost: one look at each filter in memory,
    some microseconds for each constraint. Errors: as `match`.
    """
    base = Base.of(subscriptions)
    chosen = _plan_of(frame, base, zone, drop, None)
    missing = () if chosen.frame.is_packed else _missing(base.saved.names, chosen.frame)
    return replace(chosen, missing=missing, misfits=tuple(_misfits(base, chosen.frame)))


def _plan_of(
    frame: DataFrame, base: Base, zone: str | None, drop: Iterable[str], way: MatchMethod | None
) -> MatchPlan:
    """Returns the plan without `missing` and `misfits`, as `match` needs it; `way` overrides the
    choice. Raises InputError for a column in filters that cannot be an attribute, and for an
    unknown or impossible way.
    """
    ways = get_args(MatchMethod)
    if way is not None and way not in ways:
        raise InputError("way", f"found {way!r}, expected one of: {', '.join(ways)}")
    described = frames.frame_of(frame, zone=zone, drop=drop)
    saved = base.saved
    asked = described.select(None if saved.has_residues else saved.names)
    why, predicates = _predicates(base, described, way)
    if way == "predicates" and why:
        raise InputError("way", f"cannot match by predicates: {why}")
    columns = (frames.NOTIFICATION,) if described.is_packed else tuple(each.name for each in asked)
    if not why and way != "index":
        why = "they are few, and each equals a Spark predicate"
        return MatchPlan("predicates", why, len(base), columns, predicates, described)
    is_whole = arrow_udf is None or _is_whole(frame.schema, described, len(columns))
    why = why or "asked for"
    return MatchPlan("index", why, len(base), columns, (), described, is_whole)


def _missing(names: Iterable[str], frame: frames.NotificationFrame) -> tuple[str, ...]:
    """Returns the names that no column gives, without the system's, which rows never have."""
    kinds = frame.attributes.values()
    within = tuple(f"{each.name}." for each in kinds if each.kind == frames.SEVERAL)
    others = (name for name in names if name not in frame.attributes)
    return tuple(it for it in others if not (values.is_system_name(it) or it.startswith(within)))


def _misfits(base: Base, frame: frames.NotificationFrame) -> Iterator[str]:
    """Yields a sentence for each column whose values are of other domains than its filters'."""
    for name, sets in sorted(sets_by_name((base.interests or {}).values()).items()):
        column = frame.attributes.get(name)
        if column is None or column.kind not in DOMAINS:
            continue
        asked = sorted({domain for each in sets for domain in asked_domains(each)})
        if not {values.ABSENT_KEY[0], *DOMAINS[column.kind]}.intersection(asked):
            kind = column.type.simpleString()
            yield f"{name} is of type {kind}, expected {domain_nouns(asked)}"


def _similar(name: str, known: Iterable[str]) -> str:
    near = " or ".join(similar_names(name, known))
    return f" (there is {near})" if near else ""


def _is_whole(schema: T.StructType, described: frames.NotificationFrame, asked: int) -> bool:
    """Whether whole rows, which are plain, cost less than some columns and a join of keys."""
    if described.is_packed or len(described.attributes) < len(schema.fields):
        return False
    if any(
        each.kind == frames.SEVERAL or each.refused or len(each.path) > 1
        for each in described.attributes.values()
    ):
        return False
    return len(schema.fields) < JOIN_COLUMNS + ONE_WAY * asked


def _predicates(
    base: Base, frame: frames.NotificationFrame, way: MatchMethod | None
) -> tuple[str, tuple[Column, ...]]:
    """Returns the predicates, or the reason why there are none."""
    most = PREDICATES_MAX if way is None else len(base)
    if base.interests is None or len(base) > most:
        return f"more than {most} of them", ()
    if base.saved.has_residues:
        return "rules leave a residue that needs the whole row", ()
    if frame.is_packed:
        return "the notifications are packed", ()
    if way is None and sum(map(parts_of, base.interests.values())) > PARTS_MAX:
        return f"their predicates would have more than {PARTS_MAX} parts", ()
    found = []
    for key, interest in base.interests.items():
        predicate = predicate_of(interest, frame)
        if predicate is None:
            return f"no Spark predicate equals {key!r} on these columns", ()
        found.append(predicate)
    return "", tuple(found)


# --- the keys of rows -----------------------------------------------------------------------------


def _keys(frame: DataFrame, base: Base, chosen: MatchPlan) -> Column:
    """Returns the keys of each row, as an array; the columns in filters are sent to workers."""
    if chosen.way == "predicates":
        return _by_predicates(base, chosen)
    columns = _asked_columns(chosen)
    work = for_worker(partial(key_lists, _worker_setup(frame, base, chosen)))

    # Iterators, because Java does not take any number of keys at once.
    def matched(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        yield from work(columns)

    # Workers need a column to know the number of rows.
    found: Column = arrow_udf(matched, _keys_type(base))(*(columns or [F.lit(1)]))
    return found


def _asked_columns(chosen: MatchPlan) -> list[Column]:
    if chosen.frame.is_packed:
        return [F.col(frames.NOTIFICATION)]
    return [F.expr(each.expression) for each in chosen.attributes()]


def _by_rows(
    frame: DataFrame, base: Base, chosen: MatchPlan, column: str, *, only_matches: bool
) -> DataFrame:
    """Returns the frame with the keys of each row; all columns are sent to workers and back."""
    sent = others = frame.drop(column)
    width = len(others.columns)
    if arrow_udf is not None:
        places = tuple(map(others.columns.index, chosen.columns))
    else:  # Also rows with nested columns, and packed ones: their columns in filters are appended.
        asked = _asked_columns(chosen)
        sent = others.select("*", *asked)
        places = tuple(range(width, width + len(asked)))
    setup = _worker_setup(others, base, chosen, width, places, only_matches)
    schema = T.StructType([*others.schema.fields, T.StructField(column, _keys_type(base))])
    return frames.numbered(sent).mapInArrow(for_worker(partial(match_batches, setup)), schema)


def _worker_setup(frame: DataFrame, base: Base, chosen: MatchPlan, *of_rows: Any) -> WorkerSetup:
    saved, of = base.ship(frame.sparkSession), chosen.attributes()
    names, kinds = tuple(each.name for each in of), tuple(each.kind for each in of)
    described = chosen.frame
    return WorkerSetup(saved, names, kinds, described.zone, described.is_packed, *of_rows)


def _keys_type(base: Base) -> T.ArrayType:
    key = T.LongType() if base.saved.are_integers else T.StringType()
    return T.ArrayType(key, containsNull=False)


def _by_predicates(base: Base, chosen: MatchPlan) -> Column:
    """Returns the keys of each row by predicates; NULL for a bad row, as with an index."""
    assert base.interests is not None
    keys = [
        F.when(predicate, F.lit(key).cast("bigint") if base.saved.are_integers else F.lit(key))
        for key, predicate in zip(base.interests, chosen.predicates, strict=True)
    ]
    found = F.array_compact(F.array(*keys))
    bad = is_bad(chosen.frame, chosen.columns)
    return found if bad is None else F.when(~bad, found)
