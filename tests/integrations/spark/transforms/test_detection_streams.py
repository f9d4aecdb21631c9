"""Random patterns over random streams, and the state of a stream over hours of event time."""

import random
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.spark.transforms.detection import detect, detection_statistics
from contrada.model import Filter, Pattern
from contrada.model.domains.values import datetime_of
from contrada.patterns.pattern_engine import LATE
from tests.integrations.spark.transforms.sequences import (
    expected,
    found_in,
    made,
    notification_of,
    write,
)
from tests.integrations.spark.transforms.test_detection import Stream, frame_of

STEPS: Final = (
    *("host = 'a'", "host in ('b', 'c')", "host suffix 'é'", "host absent", "level any"),
    *("level > 1", "level between 0 and 2.5", "level != 3", "code = 1", "code < 0"),
    *("code in (1, 2) and is_up = true", "is_up = false", "code = 2 and level > 0"),
    "time > @2023-11-14T22:13:20.000100Z",
)
"""Filters that some rows match, and that overlap."""


def pattern(chance: random.Random) -> Pattern:
    """Returns a pattern of two to four steps."""
    return Pattern(
        [Filter(chance.choice(STEPS)) for _ in range(chance.choice((2, 2, 3, 4)))],
        by=chance.choice(((), ("host",), ("host",), ("code", "is_up"))),
        within_us=chance.choice((None, 0, 5, 40, 200)),
        every=chance.random() < 0.5,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_patterns_over_random_streams(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """A kind of pattern, of order or of a break between queries would change matches."""
    chance = random.Random(seed)
    patterns = {f"p{n}": pattern(chance) for n in range(6)}
    slack_us = chance.choice((0, 1, 3, 10))
    count = chance.choice((2, 3, 4))
    batches = made(100 + seed, count, chance.choice((80, 150)), back_us=chance.choice((0, 4, 12)))
    given = [list(map(notification_of, rows)) for rows in batches]
    results, matcher = expected(patterns, given, slack_us)
    stream = Stream(spark, tmp_path)
    for number, rows in enumerate(batches):
        write(tmp_path / "in", number, rows)
        if number == count - 1 or chance.random() < 0.5:
            stream.run(patterns, slack_us)
    assert [stream.results[number] for number in range(count)] == results
    told, known = detection_statistics(stream.checkpoint), matcher.statistics()
    assert (told.matched, told.watermark_us) == (known.matched, known.watermark_us)
    assert told.dropped.get(LATE, 0) == known.dropped.get(LATE, 0)
    (whole,), _ = expected(patterns, [[each for of in given for each in of]])
    rows = [row for of in batches for row in of]
    assert found_in(frame_of(spark, rows).transform(detect(patterns))) == whole
    assert whole


HOURS: Final = 12
HOUR_US: Final = 3_600_000_000


@pytest.mark.slow
def test_state_is_bounded_over_hours(spark: SparkSession, tmp_path: Path) -> None:
    """New groups in each hour would fill the disks of a stream that runs for months."""
    patterns = {
        "once": Pattern("level > 2 -> level < 1 by host within 10 min"),
        "every": Pattern("every level > 2 -> level = 0 by host within 10 min"),
    }
    (tmp_path / "in").mkdir()
    chance = random.Random(1)
    batches: list[list[dict[str, Any]]] = []
    for hour in range(HOURS):
        times = sorted(chance.randrange(HOUR_US) for _ in range(1_000))
        batches.append(
            [
                {
                    "host": f"{hour}-{chance.randrange(200)}",
                    "level": chance.choice((0.0, 0.5, 1.5, 2.5, 3.0)),
                    "code": None,
                    "is_up": None,
                    "time": datetime_of(1_700_000_000_000_000 + hour * HOUR_US + at),
                }
                for at in times
            ]
        )
        write(tmp_path / "in", hour, batches[-1])
    results, _ = expected(patterns, [list(map(notification_of, rows)) for rows in batches], 2)
    stream = Stream(spark, tmp_path)
    held: list[tuple[int, int, int]] = []

    def sink(matches: DataFrame, batch: int) -> None:
        stream.keep(matches, batch)
        told = detection_statistics(stream.checkpoint)
        files = (tmp_path / "checkpoint" / "state" / str(batch)).iterdir()
        held.append((told.groups, told.runs, sum(each.stat().st_size for each in files)))

    stream.sink = sink
    stream.run(patterns)
    assert [stream.results[number] for number in range(HOURS)] == results
    assert sum(sum(each.values()) for each in results) > HOURS * 100
    # Ten minutes of the last hour are open; earlier hours leave nothing.
    for of in zip(*held, strict=True):
        assert max(of) < 1.5 * of[0], held
    kept = (tmp_path / "checkpoint" / "state").glob("[0-9]*")
    assert len([*kept]) <= 4
