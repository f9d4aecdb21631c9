"""`detect` and `detect_stream`: sequence patterns over frames of notifications and over streams.

The semantics are those of `contrada.patterns.pattern_engine` (docs/spark.md). In a stream the
watermark advances between micro-batches: a row is never late because of another row of its batch.
So the results are those of a `PatternMatcher` that takes a batch, and then advances. Groups are
distributed among parts, and limits hold for each part.

Source: PODC 2000 §2, figure 4.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from contrada.errors import InputError
from contrada.integrations.spark.spark_versions import repartition_by_id
from contrada.integrations.spark.transforms import detection_worker as worker
from contrada.integrations.spark.transforms.frames import NOTIFICATION, TIME, frame_of
from contrada.integrations.spark.transforms.state_files import states_of
from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.model import Pattern
from contrada.model.codec import to_msgpack
from contrada.model.domains.values import INT_MAX, TIME_MIN_US
from contrada.patterns.pattern_engine import check_pattern
from contrada.patterns.reorder_buffer import check_slack
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits

GivenPatterns: TypeAlias = Mapping[str, Pattern | str] | Pattern | str
"""Patterns by name, or one pattern, whose name is its text."""

Sink: TypeAlias = Callable[[DataFrame, int], object]
"""Receives the matches of a micro-batch, and its number."""

SEEN: Final = "seen_us"
"""The column of times beside notifications."""

_log: Final = logging.getLogger("contrada.integrations.spark")


def detect(
    patterns: GivenPatterns,
    *,
    time: str = "time",
    zone: str | None = None,
    drop: Iterable[str] = (),
    limits: PatternLimits = DEFAULT_LIMITS,
) -> Callable[[DataFrame], DataFrame]:
    """Returns a transform to the matches of patterns in a whole frame.

    `time` names the TIMESTAMP column of a row with attribute columns; NULL is the first moment of
    1970, as in the engine. The result has a row for each match: the pattern's name, the values of
    `by` as JSON, the time of the last notification, and all notifications in order, with their
    times. Spark sorts the frame, so nothing is late, and a worker's memory does not grow with its
    rows. `zone` and `drop` are as for `match`. Raises ParseError, UnknownOperatorError, and
    InputError for a column that cannot be an attribute.
    """
    shipped = _pack(patterns)
    dropped = tuple(drop)
    own = replace(limits, pending_max=INT_MAX)  # Waiting rows have one time only.

    def matches(frame: DataFrame) -> DataFrame:
        parts = parts_of(frame.sparkSession)
        columns, described = _describe(frame, time, zone, dropped)
        find = worker.FindSteps(shipped, parts, described, own)
        found = columns.mapInArrow(for_worker(find), worker.STEPS_SCHEMA)
        steps = repartition_by_id(found, parts, "part").sortWithinPartitions("part", "time_us")
        follow = for_worker(worker.FollowSteps(shipped, own))
        return steps.mapInArrow(follow, worker.MATCHES_SCHEMA).drop("batch")

    return matches


def detect_stream(
    frame: DataFrame,
    patterns: GivenPatterns,
    *,
    checkpoint: str,
    sink: Sink,
    slack_us: int = 0,
    time: str = "time",
    zone: str | None = None,
    drop: Iterable[str] = (),
    limits: PatternLimits = DEFAULT_LIMITS,
) -> DataStreamWriter:
    """Returns a stream writer that gives the matches of each micro-batch to `sink`.

    Set a trigger and call `start()`. `sink(matches, batch)` gets rows as those of `detect`, with
    the batch's number in a column. After a failure a batch may be repeated with the same rows: a
    sink that replaces its earlier output of the batch loses and duplicates nothing. `checkpoint` is
    a folder that the driver and all executors reach. Raises as `detect`; StoreError for a
    checkpoint of other patterns.
    """
    shipped = _pack(patterns)
    columns, described = _describe(frame, time, zone, drop)
    detection = _Detection(shipped, limits, described, check_slack(slack_us), checkpoint, sink)
    folder = f"{checkpoint.rstrip('/')}/query"
    writer = columns.writeStream.foreachBatch(detection)
    return writer.option("checkpointLocation", folder)


def detection(
    patterns: GivenPatterns, *, checkpoint: str, sink: Sink, slack_us: int
) -> Callable[[DataFrame, int], None]:
    """Returns the work of `detect_stream` on a micro-batch, for a `foreachBatch` with further work.

    The frames have two columns: `notification`, packed, and SEEN. A row with a time in SEEN is no
    notification, but the time of one that no pattern matches, so that the watermark advances over
    it. All batch numbers from 0 on must be given. Options and errors: as `detect_stream`.
    """
    slack_us = check_slack(slack_us)
    columns = worker.FrameColumns(tells_seen=True)
    return _Detection(_pack(patterns), DEFAULT_LIMITS, columns, slack_us, checkpoint, sink)


@dataclass(frozen=True, slots=True)
class DetectionStatistics:
    """The statistics up to a batch, None before the first; see `PatternStatistics`."""

    batch: int | None
    groups: int
    runs: int
    pending: int
    watermark_us: int
    matched: int
    dropped: Mapping[str, int]


def detection_statistics(checkpoint: str) -> DetectionStatistics:
    """Returns the statistics up to the last batch. Raises StoreError without a state."""
    states = states_of(checkpoint, {}, None)
    last = states.last()
    return _statistics(last, [] if last is None else states.counts(last))


def _statistics(batch: int | None, counts: list[dict[str, Any] | None]) -> DetectionStatistics:
    finished = [each for each in counts if each is not None]
    dropped: Counter[str] = Counter()
    for each in finished:
        dropped.update(each["dropped"])
    summed = ("groups", "runs", "pending", "matched")
    return DetectionStatistics(
        batch,
        watermark_us=min((each["watermark_us"] for each in finished), default=TIME_MIN_US),
        dropped=dropped,
        **{name: sum(each[name] for each in finished) for name in summed},
    )


@dataclass(frozen=True, slots=True)
class _Detection:
    """The driver's work on each micro-batch."""

    patterns: worker.Patterns
    limits: PatternLimits
    columns: worker.FrameColumns
    slack_us: int
    checkpoint: str
    sink: Sink

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.columns.tells_seen:
            frame = frame.select(NOTIFICATION, SEEN)
        parts = partial(parts_of, frame.sparkSession)
        digest = hashlib.sha256(b"".join(self.patterns.packed)).hexdigest()
        states = states_of(self.checkpoint, {"patterns": digest}, parts)
        before = _statistics(batch - 1, states.counts(batch - 1)) if batch else None
        watermark_us = before.watermark_us if before else TIME_MIN_US
        find = worker.FindSteps(
            self.patterns, states.parts, self.columns, self.limits, watermark_us
        )
        follow = worker.FollowShares(self.patterns, self.limits, self.slack_us, batch, states)
        shares = frame.mapInArrow(for_worker(worker.ShareSteps(find)), worker.SHARES_SCHEMA)
        by_part = repartition_by_id(shares, find.parts, "part")
        matches = by_part.mapInArrow(for_worker(follow), worker.MATCHES_SCHEMA)
        self.sink(matches, batch)
        if None in states.counts(batch):  # The sink did not consume all matches.
            matches.write.format("noop").mode("overwrite").save()
        for part, counts in enumerate(states.counts(batch)):
            if counts is None:  # Without a task, the part keeps its state.
                list(follow.part(part, []))
        states.prune(batch)
        _log_dropped(before, _statistics(batch, states.counts(batch)))


def _log_dropped(before: DetectionStatistics | None, after: DetectionStatistics) -> None:
    known = before.dropped if before else {}
    new = {name: count - known.get(name, 0) for name, count in after.dropped.items()}
    if any(new.values()):
        reasons = ", ".join(f"{name}: {count}" for name, count in new.items() if count)
        _log.warning(
            "batch %(batch)s: took no part or was dropped: %(reason)s",
            {"batch": after.batch, "reason": reasons},
        )


def parts_of(session: SparkSession) -> int:
    """Returns the number of parts of a new state."""
    return int(session.conf.get("spark.sql.shuffle.partitions") or 1)


def _pack(patterns: GivenPatterns) -> worker.Patterns:
    if isinstance(patterns, Pattern | str):
        patterns = {str(patterns): patterns}
    made = {
        name: Pattern(each) if isinstance(each, str) else each for name, each in patterns.items()
    }
    for pattern in made.values():
        check_pattern(pattern)
    return worker.Patterns(tuple(made), tuple(map(to_msgpack, made.values())))


def _describe(
    frame: DataFrame, time: str, zone: str | None, drop: Iterable[str]
) -> tuple["DataFrame", worker.FrameColumns]:
    """Returns the columns of a frame that workers need, with their description. Raises InputError
    for a column that cannot be an attribute, and without a time.
    """
    described = frame_of(frame, zone=zone, drop=drop)
    if described.is_packed:
        return frame.select(NOTIFICATION), worker.FrameColumns()
    attributes = described.select(None)
    if not attributes:
        raise InputError("the frame", "no column is an attribute")
    times = frame_of(frame, zone=zone).attributes
    if time not in times or times[time].kind != TIME:
        found = times[time].type.simpleString() if time in times else "no such column"
        raise InputError(f"column {time!r}", f"the time of a row is a TIMESTAMP, found {found}")
    names, kinds = (tuple(getattr(each, of) for each in attributes) for of in ("name", "kind"))
    expressions = [each.expression for each in attributes]
    if time not in names:
        expressions.append(times[time].expression)
    # By number: PySpark allows no names with dots here.
    selected = frame.selectExpr(*(f"{each} AS `{place}`" for place, each in enumerate(expressions)))
    time_at = names.index(time) if time in names else len(names)
    return selected, worker.FrameColumns(names, kinds, zone, time_at)
