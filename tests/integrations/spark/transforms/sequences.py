"""Rows for `detect`, and the matches of the embedded matcher."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from contrada.model import Envelope, Notification, Pattern
from contrada.model.algebra.nested_objects import json_values
from contrada.model.codec import to_msgpack
from contrada.model.domains.values import datetime_of
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits

SCHEMA: Final = pa.schema(
    [
        ("host", pa.string()),
        ("level", pa.float64()),
        ("code", pa.int64()),
        ("is_up", pa.bool_()),
        ("time", pa.timestamp("us", "UTC")),
    ]
)

PATTERNS: Final[dict[str, Pattern]] = {
    "storm": Pattern("level > 2 -> level < 2 by host within 20 us"),
    "all": Pattern("every code = 1 -> is_up = true -> level != 0 by host within 9 us"),
    "anywhere": Pattern("host = 'a' -> host = 'b'"),
    "by level": Pattern("every code = 1 -> code = 2 by level, is_up within 30 us"),
    "no such": Pattern("code = 1 -> code = 2 by nothing"),
}

Result = Counter[tuple[str, str, tuple[bytes, ...]]]


def made(seed: int, batches: int, rows: int, back_us: int = 3) -> list[list[dict[str, Any]]]:
    """Returns batches of rows, with ties, repetitions, odd values, and descending times."""
    chance = random.Random(seed)
    now_us, found = 1_700_000_000_000_000, []
    for _ in range(batches):
        batch: list[dict[str, Any]] = []
        for _ in range(rows):
            now_us += chance.choice((0, 0, 1, 2))
            if batch and chance.random() < 0.1:
                batch.append(chance.choice(batch))
                continue
            row = {
                "host": chance.choice(("a", "b", "c", "", "é" * 40, None)),
                "level": chance.choice((0.0, -0.0, 1.0, 2.5, 3.0, float("nan"), None)),
                "code": chance.choice((1, 1, 2, -1, -200, 2**40, None)),
                "is_up": chance.choice((True, False, None)),
                "time": datetime_of(now_us - chance.randrange(back_us + 1)),
            }
            batch.append(row)
        found.append(batch)
    return found


def notification_of(row: Mapping[str, Any]) -> Notification:
    """Returns the notification of a row."""
    time_us = (row["time"] - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
    attributes = {name: value for name, value in row.items() if value is not None}
    return Notification(attributes, envelope=Envelope(time_us=time_us))


def expected(
    patterns: Mapping[str, Pattern],
    batches: Iterable[Sequence[Notification]],
    slack_us: int | None = None,
    limits: PatternLimits = DEFAULT_LIMITS,
) -> tuple[list[Result], "PatternMatcher[str]"]:
    """Returns the embedded matches of each batch; all at the end without slack."""
    matcher: PatternMatcher[str] = PatternMatcher(slack_us=None, limits=limits)
    for name, pattern in patterns.items():
        matcher.add(name, pattern)
    results, latest_us = [], -(2**62)
    for batch in batches:
        for each in batch:
            assert not matcher.push(each)
            latest_us = max(latest_us, each.envelope.at_us)
        found: Result = Counter()
        for match in matcher.advance(latest_us + 1 if slack_us is None else latest_us - slack_us):
            names = patterns[match.key].by
            by = {name: json_values(value) for name, value in zip(names, match.by, strict=True)}
            found[match.key, _text(by), tuple(map(to_msgpack, match.notifications))] += 1
        results.append(found)
    return results, matcher


def found_in(frame: DataFrame) -> Result:
    """Returns the matches in a frame, and checks their times."""
    result: Result = Counter()
    for row in frame.collect():
        assert row.times == sorted(row.times)
        assert row.time == row.times[-1]
        packed = tuple(map(bytes, row.notifications))
        result[row.pattern, _text(json.loads(row.by)), packed] += 1
    return result


def _text(by: Mapping[str, Any]) -> str:
    return json.dumps(by, sort_keys=True)


def write(folder: Path, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a batch as a file of a stream's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), path)
    # Spark reads files by their times in milliseconds, and files of one time in any order.
    written_s = 1_700_000_000 + number
    os.utime(path, (written_s, written_s))
