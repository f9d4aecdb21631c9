"""`profile`: the attributes of notifications, their domains, and the distribution of their values.

Workers convert batches to values, one row each, and Spark aggregates them locally: it shuffles a
row for each task, attribute and domain. Counts and bounds are exact; estimates have `about` in
their names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, nan, nextafter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError, MissingRequirementError
from contrada.integrations.spark.transforms import frames
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model import Advertisement, Notification, ValueSet
from contrada.model.algebra.sets import eq, ge, in_, le
from contrada.model.algebra.value_set import union
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains import values as domains

QUANTILES: Final = tuple(number / 20 for number in range(21))
"""The shares of values in `quantiles_about`."""

FREQUENT_MAX: Final = 20
"""Most frequent values of an attribute in a profile. Beyond it: they are left out."""

FREQUENT_TRACKED: Final = 1_000
"""Counted values of an attribute. Beyond it: counts of frequent ones are estimates."""

EXACT_INTEGERS: Final = 2.0**53
"""Larger numbers are rounded to doubles: a range of them is widened by one step."""

VALUE: Final = "attribute string, domain string, number double, text binary"
_VALUES: Final = frames.arrow_schema(VALUE)


def profile(
    notifications: DataFrame, *, zone: str | None = None, drop: Iterable[str] = ()
) -> DataFrame:
    """Returns a row for each attribute and domain of a frame of notifications, wide or packed.

    - `attribute`, `domain`: the attribute's name, and the type of its values;
    - `values`: their number; one notification may have several;
    - `share`: values per notification; bad rows do not count;
    - `distinct_about`: the number of different ones; usually within 5 %;
    - `equality_about`: the share of notifications that an equality with one of them matches;
    - `least`, `greatest`, `quantiles_about`: doubles; of times microseconds since 1970;
    - `first`, `last`: of text, in byte order;
    - `frequent_about`: the most frequent values with counts, most frequent first.

    `zone` and `drop` as for `match`. Raises InputError for columns that cannot be attributes, and
    MissingRequirementError with Spark 4.0. Cost: some tenths of a microsecond for a value of a
    column, some microseconds for other values.
    """
    if notifications.sparkSession.version.startswith("4.0."):
        raise MissingRequirementError("Spark 4.1", "install it: profile uses its approx_top_k")
    described = frames.frame_of(notifications, zone=zone, drop=drop)
    if described.is_packed:
        packed = notifications.select(frames.NOTIFICATION)
        values = packed.mapInArrow(for_worker(_packed_values), VALUE)
    else:
        attributes = described.select(None)
        columns = [F.expr(each.expression) for each in attributes] or [F.lit(1)]
        names, kinds = [each.name for each in attributes], [each.kind for each in attributes]
        wide = frames.numbered(notifications.select(*columns))
        values = wide.mapInArrow(for_worker(partial(_wide_values, names, kinds, zone)), VALUE)
    shown = F.coalesce(F.col("text").cast("string"), F.col("number").cast("string"))
    counted = values.withColumn("shown", shown).groupBy("attribute", "domain")
    found = counted.agg(
        F.coalesce(F.sum(F.when(F.col("attribute").isNull(), F.col("number"))), F.count("*"))
        .cast("bigint")
        .alias("values"),
        # NaN, the one value of its domain, is not shown.
        F.greatest(F.approx_count_distinct("shown"), F.lit(1)).alias("distinct_about"),
        F.min("number").alias("least"),
        F.max("number").alias("greatest"),
        F.percentile_approx("number", list(QUANTILES)).alias("quantiles_about"),
        F.min("text").cast("string").alias("first"),
        F.max("text").cast("string").alias("last"),
        F.expr(f"approx_top_k(shown, {FREQUENT_MAX}, {FREQUENT_TRACKED})").alias("frequent_about"),
    )
    every = F.max(F.when(F.col("attribute").isNull(), F.col("values"))).over(Window.partitionBy())
    share = (F.col("values") / F.col("every")).alias("share")
    equality = (F.col("values") / F.col("every") / F.col("distinct_about")).alias("equality_about")
    first = ("attribute", "domain", "values", share, "distinct_about", equality)
    last = ("least", "greatest", "quantiles_about", "first", "last", "frequent_about")
    rows = found.withColumn("every", every).where(F.col("attribute").isNotNull())
    return rows.select(*first, *last).orderBy("attribute", "domain")


def advertisement_of(profiled: DataFrame) -> Advertisement:
    """Returns an advertisement that covers every notification of a profiled frame: the values of an
    attribute if all are known, else a range. Cost: collects the profile.
    """
    sets: dict[str, list[ValueSet]] = {}
    for row in profiled.collect():
        sets.setdefault(row["attribute"], []).append(_set_of(row))
    return Advertisement({name: union(each) for name, each in sets.items()})


def _set_of(row: Any) -> ValueSet:
    domain = domains.DOMAIN_NAMES.index(row["domain"])
    known = row["frequent_about"]
    are_all = sum(each["count"] for each in known) == row["values"]
    if domain == domains.TEXT:
        if any(_NO_CHARACTER in each for each in (row["first"], row["last"], *_items(known))):
            return ge("")  # Bytes that are no UTF-8 are shown replaced.
        if are_all:
            return in_(*_items(known))
        return ge(row["first"]) & le(row["last"])
    if domain == domains.NUMBER:
        return ge(_beyond(row["least"], -inf)) & le(_beyond(row["greatest"], inf))
    if domain == domains.TIME:
        low, high = _beyond(row["least"], -inf), _beyond(row["greatest"], inf)
        first, last = max(domains.TIME_MIN_US, int(low)), min(domains.TIME_MAX_US, int(high))
        return ge(domains.datetime_of(first)) & le(domains.datetime_of(last))
    if domain == domains.NAN:
        return eq(nan)
    if row["least"] is None:
        return eq(None)
    return in_(*{bool(row["least"]), bool(row["greatest"])})


_NO_CHARACTER: Final = "\ufffd"


def _items(known: Iterable[Any]) -> list[str]:
    return [each["item"] for each in known]


def _beyond(number: float, towards: float) -> float:
    return number if abs(number) < EXACT_INTEGERS else nextafter(number, towards)


# --- in workers -----------------------------------------------------------------------------------


def _wide_values(
    names: Sequence[str], kinds: Sequence[str], zone: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = frames.WideRows(names, kinds, batch.columns, zone)
        odd = [_attributes(rows, row) for row in np.flatnonzero(rows.odd & ~rows.bad).tolist()]
        usual = pa.array(~rows.odd & ~rows.bad)
        table = rows.table.filter(usual)
        for name in table.column_names:
            if name in names:
                yield from _of_column(name, table[name].drop_null().combine_chunks())
        yield _of_values(odd)
        yield _batch(None, None, [float(len(batch) - int(rows.bad.sum()))], [None])


def _attributes(rows: frames.WideRows, row: int) -> Mapping[str, Any]:
    """Returns the attributes of a row, nested ones too; marks a bad row, which has none."""
    given = rows.notification(row)
    try:
        return {} if given is None else Notification(given).attributes
    except ContradaError:
        rows.bad[row] = True
        return {}


def _of_column(name: str, values: Any) -> Iterator[pa.RecordBatch]:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield _batch(
            name, domains.TEXT, pa.nulls(len(values), pa.float64()), values.cast(pa.binary())
        )
        return
    if pa.types.is_boolean(kind):
        domain, numbers = domains.BOOL, values.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        microseconds = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        domain, numbers = domains.TIME, microseconds.cast(pa.float64(), safe=False)
    else:
        domain, numbers = domains.NUMBER, values.cast(pa.float64(), safe=False)
    is_nan = pc.is_nan(numbers)
    found = numbers.filter(pc.invert(is_nan))
    if len(found):
        yield _batch(name, domain, found, pa.nulls(len(found), pa.binary()))
    if count := pc.sum(is_nan).as_py():
        yield _batch(name, domains.NAN, pa.nulls(count, pa.float64()), pa.nulls(count, pa.binary()))


def _packed_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = []
        for packed in batch.column(0).to_pylist():
            try:
                read.append(dict(notification_from_msgpack(packed or b"")))
            except ContradaError:
                continue  # `to_notifications` reports the reason.
        yield _of_values(read)
        yield _batch(None, None, [float(len(read))], [None])


def _of_values(notifications: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    rows = []
    for each in notifications:
        for name, values in each.items():
            for value in values if isinstance(values, list | tuple) else (values,):
                domain, key = (*domains.key_of(value), None)[:2]
                is_text = isinstance(key, bytes)
                number = None if is_text or key is None else float(key)
                row = (name, domains.DOMAIN_NAMES[domain], number, key if is_text else None)
                rows.append(row)
    return _arrays(*(zip(*rows, strict=True) if rows else ((),) * 4))


def _batch(name: str | None, domain: int | None, numbers: Any, texts: Any) -> pa.RecordBatch:
    tag = None if domain is None else domains.DOMAIN_NAMES[domain]
    return _arrays([name] * len(numbers), [tag] * len(numbers), numbers, texts)


def _arrays(*columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), schema=_VALUES)
