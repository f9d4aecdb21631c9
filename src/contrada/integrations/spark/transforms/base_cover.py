"""`covering`: reduces a base to fewer filters that together match the same notifications.

    given -> forms (empty ones apart, equal ones united)
          -> merged, in passes: mergeable ones meet in one task
          -> the widest of them: the filters that one of these covers
          -> placed: each filed once, looked up at each of its places
          -> shards: the filters covered within each
          -> the remaining filters

`cover_worker` has the work of each step, and the proof of exactness. Frames between the steps are
kept on the executors' disks, until the result is freed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import groupby, islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ContradaError, InputError
from contrada.integrations.spark.spark_versions import repartition_by_id
from contrada.integrations.spark.transforms import cover_worker
from contrada.integrations.spark.transforms.cover_worker import Examples, FilterForm, Shard, Verdict
from contrada.integrations.spark.transforms.frames import arrow_schema
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model import Filter, FilterSet
from contrada.model.algebra.filter import selection
from contrada.model.codec import from_msgpack, to_msgpack
from contrada.model.extensions import load, loaded

Batches: TypeAlias = Iterator[pa.RecordBatch]
WorkerStep: TypeAlias = Callable[[Batches], Iterator[tuple[Any, ...]]]
"""A step of a worker, from batches to rows."""

FILED_MAX: Final = 50_000
"""Approximate filters that are filed in one shard, as many as a worker holds at once, some
kilobytes each. Beyond it: there are more shards, and a look-up at a crowded place goes to
several."""

MERGED_AT_ONCE_MAX: Final = 20_000
"""Filters that a worker compares at once. Beyond it: the rest may merge in a later pass."""

MERGE_PASSES_MAX: Final = 8
"""Passes over all filters to merge them. Beyond it: the remaining filters stay unmerged."""

WIDEST_MAX: Final = 2_000
"""Filters among which each is looked up first. Beyond it: the widest ones are used."""

SAMPLED_MAX: Final = 100_000
"""Filters for the statistics of frequent values. Beyond it: a sample of this size."""

SHARES_MAX: Final = 10_000
"""Values with a known share of the filters. Beyond it: the rarer ones count as rare."""

ROWS: Final = 10_000
"""Rows of an Arrow batch of a worker. Beyond it: the next batch has the rest."""


def covering(subscriptions: DataFrame, *, every: bool = False) -> DataFrame:
    """Returns a base without covered filters, with mergeable ones merged and equal ones united.

    `subscriptions` has two columns: a key (text or integer), and a filter as text or packed bytes;
    each filter of a union counts by itself. The result has the same two columns. A remaining filter
    has the least key of those merged into it, and filters of one key form one union again; together
    they match exactly the same notifications. An undecidable filter stays.

    With `every` there is a row for each given filter, with `by`, the remaining filter that covers
    it, and `reason`, one of

    - `kept`: it remains itself;
    - `undecided`: it remains; it may be covered, but that could not be decided;
    - `equal`: it has the same sets as a remaining filter with a smaller key;
    - `covered`: a remaining filter covers it, possibly one that it was merged into;
    - `empty`: it matches nothing; the filter and `by` are NULL.

    All steps but the last run in this call. Each worker holds about FILED_MAX filters at once.
    Raises Spark's errors; the cause is an InputError with the key of an unreadable filter. Cost:
    some hundred microseconds of a core for each filter. Source: PODC 2000 §4.
    """
    steps = _Steps.of(subscriptions)
    given = _checkpoint(steps.run(subscriptions, _read, _MEMBER))
    full = given.where("form IS NOT NULL")
    shards = 1 + full.count() // FILED_MAX
    left = _checkpoint(_merge(steps, full, shards))
    found = _checkpoint(_find_covered(steps, left))
    kept = left.join(found.where("by IS NOT NULL"), "form", "left_anti")
    if every:
        explained = _explain(steps, given, _checkpoint(kept), found, shards)
        columns = "key {key}, form {filter}, by {filter}, reason string"
        rows = steps.run(explained, partial(_write, steps.filter), columns)
        return rows.toDF(*subscriptions.columns, "by", "reason")
    united = kept.groupBy("key").agg(F.sort_array(F.collect_list("form")).alias("forms"))
    rows = steps.run(united, partial(_unite, steps.filter), "key {key}, form {filter}")
    return rows.toDF(*subscriptions.columns)


_MEMBER: Final = "key {key}, form binary, first bigint, last bigint"
"""A filter, or a merged one; `first` and `last` are numbers of `cover_worker.cluster_of`."""

_PLACED: Final = (
    "form binary, rank double, low binary, high binary, own array<bigint>, asks array<bigint>"
)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The column types and extensions with which the workers' steps run."""

    key: str
    filter: str
    extensions: tuple[str, ...]

    @classmethod
    def of(cls, subscriptions: DataFrame) -> "_Steps":
        """Raises InputError for a frame without a column of keys and one of filters."""
        types = [kind for _, kind in subscriptions.dtypes]
        if (
            len(types) != 2
            or types[0] not in ("string", "bigint", "int")
            or types[1] not in ("string", "binary")
        ):
            reason = "expected a key (string, int or bigint) and a filter (string or binary)"
            raise InputError("subscriptions", f"found columns of {', '.join(types)}; {reason}")
        return cls(types[0], types[1], tuple(loaded()))

    def place(self, frame: DataFrame, shares: Mapping[int, float]) -> DataFrame:
        """Returns the forms of a frame with the places where each is filed and looked up."""
        return self.run(frame.select("form"), partial(_place, shares), _PLACED)

    def run(self, frame: DataFrame, step: WorkerStep, columns: str) -> DataFrame:
        filled = columns.format(key=self.key, filter=self.filter)
        work = for_worker(partial(_in_arrow, step, filled, self.extensions))
        return frame.mapInArrow(work, filled)


def _checkpoint(frame: DataFrame) -> DataFrame:
    """Returns the frame, computed once and kept on the executors' disks."""
    return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _merge(steps: _Steps, full: DataFrame, shards: int) -> DataFrame:
    """Returns the filters with the least key of equal ones, merged until nothing changes."""
    least = [F.min("key").alias("key"), F.min("first").alias("first"), F.min("last").alias("last")]
    left = _checkpoint(full.groupBy("form").agg(*least).select("key", "form", "first", "last"))
    counts = [left.count()]
    if counts[0] <= MERGED_AT_ONCE_MAX:
        left = steps.run(left.repartition(1), partial(_merge_members, None), _MEMBER)
    for number in range(MERGE_PASSES_MAX if counts[0] > MERGED_AT_ONCE_MAX else 0):
        by = "last" if number % 2 else "first"
        together = left.repartition(shards, by).sortWithinPartitions(by, "form")
        merge = partial(_merge_members, by)
        left = _checkpoint(steps.run(together, merge, _MEMBER))
        counts.append(left.count())
        if number and len({*counts[-3:]}) == 1:
            break
    return left.groupBy("form").agg(*least).select("key", "form", "first", "last")


def _find_covered(steps: _Steps, left: DataFrame) -> DataFrame:
    """Returns the covered filters, in one or more rows with their coverers. The widest filters are
    tried first. If these few cover most, nearly all are decided without a shard.
    """
    forms = left.select("form")
    widest = steps.run(forms, _widest, "rank double, form binary").orderBy("rank", "form")
    few = [bytes(row.form) for row in widest.limit(WIDEST_MAX).collect()]
    soon = _checkpoint(steps.run(forms, partial(_by_few, few), "form binary, by binary"))
    rest = _checkpoint(forms.join(soon, "form", "left_anti"))
    shards = 1 + rest.count() // FILED_MAX
    placed = _checkpoint(steps.place(rest, _shares(steps, rest) if shards > 1 else {}))
    return soon.unionAll(_verdicts(steps, placed, placed, shards, strictly=True))


def _verdicts(
    steps: _Steps, filed: DataFrame, asked: DataFrame, shards: int, *, strictly: bool
) -> DataFrame:
    """Returns the filters covered by filed ones, a row for each shard with a coverer."""
    columns = ("form", "rank", "low", "high")
    own = filed.select(*columns, F.explode("own").alias("place"))
    parts = F.least(F.ceil(F.count("*") / FILED_MAX), F.lit(shards)).alias("parts")
    used = own.groupBy("place").agg(parts)

    def shard(part: Column) -> Column:
        return F.pmod(F.xxhash64("place") + part, F.lit(shards)).cast("int").alias("shard")

    part = shard(F.pmod(F.xxhash64("form"), "parts"))
    rows = own.join(used, "place").select(part, F.lit(False).alias("asked"), *columns)
    looked_up = (
        asked.select(*columns, F.explode("asks").alias("place"))
        .join(used, "place")
        .withColumn("part", F.explode(F.sequence(F.lit(0), F.col("parts") - 1)))
        .select(shard(F.col("part")), F.lit(True).alias("asked"), *columns)
    )
    placed = repartition_by_id(rows.union(looked_up), shards, "shard")
    ordered = placed.sortWithinPartitions("shard", "asked", "rank", "form")
    return steps.run(ordered, partial(_look_up, strictly), "form binary, by binary")


def _shares(steps: _Steps, filed: DataFrame) -> dict[int, float]:
    """Returns the approximate share of filters at each of the most frequent places."""
    count = filed.count()
    some = filed.select("form")
    if count > SAMPLED_MAX:
        some = some.where(F.pmod(F.xxhash64("form"), F.lit(count // SAMPLED_MAX + 1)) == 0)
    counted = steps.run(some, _count, "place bigint, filters bigint").groupBy("place")
    most = counted.agg(F.sum("filters").alias("filters")).orderBy(F.desc("filters"), "place")
    return {place: filters / count for place, filters in most.limit(SHARES_MAX).collect()}


def _explain(
    steps: _Steps, given: DataFrame, kept: DataFrame, found: DataFrame, shards: int
) -> DataFrame:
    """Returns the outcome of each given filter, and the remaining filter that covers it."""
    gone = given.where("form IS NOT NULL").join(kept, "form", "left_anti").select("form").distinct()
    shares = _shares(steps, kept) if shards > 1 else {}
    filed, asked = (_checkpoint(steps.place(each, shares)) for each in (kept, gone))
    by = _verdicts(steps, filed, asked, shards, strictly=False).groupBy("form")
    first = found.groupBy("form").agg(F.min("by").alias("once"))
    is_kept, is_open = F.col("least").isNotNull(), F.col("open").isNotNull()
    reason = (
        F.when(F.col("form").isNull(), "empty")
        .when(is_kept & (F.col("key") != F.col("least")), "equal")
        .when(is_kept & is_open, "undecided")
        .when(is_kept, "kept")
        .otherwise("covered")
    )
    return (
        given.select("key", "form")
        .join(kept.select("form", F.col("key").alias("least")), "form", "left")
        .join(by.agg(F.min("by").alias("by")), "form", "left")
        .join(first.withColumn("open", F.col("once").isNull()), "form", "left")
        .select(
            "key",
            "form",
            F.when(is_kept, F.col("form")).otherwise(F.coalesce("by", "once")).alias("by"),
            reason.alias("reason"),
        )
    )


# --- the functions of a worker ----------------------------------------------------------------


def _in_arrow(
    step: WorkerStep, columns: str, extensions: tuple[str, ...], batches: Batches
) -> Batches:
    for name in extensions:
        load(name)
    schema, rows = arrow_schema(columns), step(batches)
    while some := list(islice(rows, ROWS)):
        yield pa.RecordBatch.from_arrays(list(zip(*some, strict=True)), schema=schema)


def _rows(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _read(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """Converts keys and filters to members."""
    for key, given in _rows(batches):
        for each in _filters(key, given):
            if each.is_empty:
                yield key, None, None, None
            else:
                yield _member(key, each.sides)


def _filters(key: object, given: str | bytes | None) -> tuple[Filter, ...]:
    try:
        read = from_msgpack(given) if isinstance(given, bytes) else selection(given)  # type: ignore[arg-type]
    except ContradaError as error:
        raise InputError(f"subscription {key!r}", str(error)) from None
    if not isinstance(read, Filter | FilterSet):
        reason = f"found a {type(read).__name__}, expected a filter"
        raise InputError(f"subscription {key!r}", reason)
    return read.filters


def _member(key: object, sets: Mapping[str, Any]) -> tuple[Any, ...]:
    clusters = (cover_worker.cluster_of(sets, first=first) for first in (True, False))
    return key, cover_worker.form_of(sets), *clusters


def _merge_members(by: str | None, batches: Batches) -> Iterator[tuple[Any, ...]]:
    """Merges the members of each cluster in turn, or all at once."""
    at = {"first": 2, "last": 3}.get(by or "")
    for _, cluster in groupby(_rows(batches), lambda row: None if at is None else row[at]):
        while some := list(islice(cluster, MERGED_AT_ONCE_MAX)):
            if len(some) == 1:
                yield some[0]
                continue
            members = cover_worker.merge([(row[0], cover_worker.sets_of(row[1])) for row in some])
            yield from some if len(members) == len(some) else (_member(*each) for each in members)


def _count(batches: Batches) -> Iterator[tuple[int, int]]:
    counts: Counter[int] = cover_worker.count_places(form for (form,) in _rows(batches))
    yield from counts.most_common(SHARES_MAX)


def _place(shares: Mapping[int, float], batches: Batches) -> Iterator[tuple[Any, ...]]:
    for (form,) in _rows(batches):
        sets = cover_worker.sets_of(form)
        own, asks = cover_worker.filing_places(sets, shares), cover_worker.lookup_places(sets)
        yield form, cover_worker.rank_of(sets), *cover_worker.examples_of(sets), own, asks


def _widest(batches: Batches) -> Iterator[tuple[float, FilterForm]]:
    read = ((cover_worker.sets_of(form), form) for (form,) in _rows(batches))
    yield from nsmallest(WIDEST_MAX, ((cover_worker.rank_of(sets), form) for sets, form in read))


def _by_few(few: list[FilterForm], batches: Batches) -> Iterator[Verdict]:
    forms = (form for (form,) in _rows(batches))
    yield from cover_worker.covered_by_few(few, iter(lambda: list(islice(forms, FILED_MAX)), []))


def _look_up(strictly: bool, batches: Batches) -> Iterator[Verdict]:
    """Yields the verdicts of shards, where filed rows are first; looks up each filter once."""
    shard, at, last = Shard(strictly=strictly), -1, None
    for batch in batches:
        begin = 0
        for (number, asked), rows in groupby(
            zip(batch["shard"].to_pylist(), batch["asked"].to_pylist(), strict=True)
        ):
            count = sum(1 for _ in rows)
            part = batch.slice(begin, count)
            begin += count
            if number != at:
                shard, at, last = Shard(strictly=strictly), number, None
            forms = part["form"].to_pylist()
            if asked:
                before = [last, *forms]
                once = [row for row, form in enumerate(forms) if form != before[row]]
                last = forms[-1]
                part, forms = part.take(once), [forms[row] for row in once]
            given = Examples(forms, part["rank"].to_pylist(), part["low"], part["high"])
            yield from shard.look_up(given) if asked else shard.file(given)


def _write(kind: str, batches: Batches) -> Iterator[tuple[Any, ...]]:
    for key, form, by, reason in _rows(batches):
        known = (each and _written(kind, cover_worker.filter_of(each)) for each in (form, by))
        yield key, *known, reason


def _unite(kind: str, batches: Batches) -> Iterator[tuple[Any, ...]]:
    for key, forms in _rows(batches):
        filters = list(map(cover_worker.filter_of, forms))
        yield key, _written(kind, filters[0] if len(filters) == 1 else FilterSet(filters))


def _written(kind: str, given: Filter | FilterSet) -> str | bytes:
    return str(given) if kind == "string" else to_msgpack(given)
