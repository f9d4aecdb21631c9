"""Ten million generated rows on Spark give the results of the embedded engine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from contrada.errors import MissingRequirementError
from contrada.integrations.spark.spark_session import check_requirements
from contrada.matching.index import Index
from contrada.model import Envelope, Notification, Pattern
from contrada.model.algebra.nested_objects import json_values
from contrada.model.codec import to_msgpack
from contrada.model.domains.values import TIME_MAX_US
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import Match
from tests.integrations.spark.real import made_rows

ROWS: Final = 10_000_000
CHUNK_ROWS: Final = 500_000

FEWER: Final = {"1000": ROWS // 10, "100000": ROWS // 10, "run": ROWS // 10, "detect": ROWS // 2}
"""The smaller numbers of rows for the comparison of memory. Patterns follow 262,144 rows of a part
at once; both numbers must be several times as large."""

MEMORY_MORE_MIB: Final = {"detect": 192}
"""The allowed additional memory for more rows; 96 by default, several times that of `match`. A
worker that follows patterns took 706 MiB for 5, 818 for 10 and 725 for 20 million rows: its
allocators vary by more."""

WORKER_MIB_MAX: Final = 1_000
JAVA_MIB_MAX: Final = 1_700
"""The bound of the JVM: its heap, and its other memory."""


def run(what: str, rows: int, folder: Path) -> dict[str, Any]:
    """Returns the results of Spark and its memory, from processes of their own."""
    command = [sys.executable, made_rows.__file__, what, str(rows), str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def chunks(make: made_rows.Makes) -> Iterator[pa.RecordBatch]:
    """Yields all rows in portions."""
    for begin in range(0, ROWS, CHUNK_ROWS):
        yield make(np.arange(begin, min(begin + CHUNK_ROWS, ROWS)))


def pairs(count: int) -> dict[str, list[int]]:
    """Returns the digests of the embedded engine's matches."""
    index: Index[int] = Index()
    for key, wish in made_rows.filters(count).items():
        index.add(key, wish)
    found: dict[str, list[int]] = {}
    for batch in chunks(made_rows.quotes):
        offsets, keys = index.match_batch(pa.Table.from_batches([batch]))
        rows = batch.column("row").to_numpy()
        for bucket, number, total in made_rows.pair_digests(rows, np.diff(offsets), keys):
            of = found.setdefault(str(bucket), [0, 0])
            of[0] += number
            of[1] += total
    return found


def followed() -> dict[str, list[int]]:
    """Returns the digests of the embedded matcher's matches in rows that match a step."""
    matcher: PatternMatcher[str] = PatternMatcher()
    patterns = {name: Pattern(text) for name, text in made_rows.PATTERNS.items()}
    for name, pattern in patterns.items():
        matcher.add(name, pattern)
    found: dict[str, list[int]] = {name: [0, 0] for name in patterns}

    def count(matches: Iterable[Match[str]]) -> None:
        for match in matches:
            names = patterns[match.key].by
            by = {n: json_values(v) for n, v in zip(names, match.by, strict=True)}
            packed = map(to_msgpack, match.notifications)
            found[match.key][0] += 1
            found[match.key][1] += made_rows.match_digest(match.key, by, packed)

    for batch in chunks(made_rows.events):
        level = batch.column("level")
        some = pc.or_(pc.less(level, made_rows.LOW), pc.greater_equal(level, made_rows.HIGH))
        for row in batch.filter(some).to_pylist():
            stamp = Envelope(time_us=made_rows.TIME_US + row["row"] * made_rows.STEP_US)
            count(matcher.push(Notification(row, envelope=stamp)))
    count(matcher.advance(TIME_MAX_US))
    return found


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["1000", "100000", "run", "detect"])
def test_ten_million_rows_give_the_results_of_the_embedded_engine(
    what: str, tmp_path: Path
) -> None:
    """Results of few rows would not hold for many, or memory grow with them."""
    try:
        check_requirements()
    except MissingRequirementError as missing:
        pytest.skip(str(missing))
    many, fewer = (run(what, rows, tmp_path) for rows in (ROWS, FEWER[what]))
    assert sum(found for found, _ in many["digests"].values()) > ROWS // 100
    if what == "detect":
        expected = followed()
    else:
        expected = pairs(made_rows.RUN_FILTERS if what == "run" else int(what))
    assert many["digests"] == expected
    print(f"{what}: {many['memory']} MiB, of {FEWER[what]} rows {fewer['memory']}")  # noqa: T201
    assert many["memory"]["java"] < JAVA_MIB_MAX
    assert many["memory"]["worker"] < WORKER_MIB_MAX
    for process in ("driver", "worker"):
        assert many["memory"][process] < fewer["memory"][process] + MEMORY_MORE_MIB.get(what, 96)
