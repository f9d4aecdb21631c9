"""The same pattern in Spark's own stateful operator, as one would write it there by hand."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

MATCHES_SCHEMA = "host string, begin_us bigint, end_us bigint"


class TwoSteps(StatefulProcessor):
    """`level > 80 -> level < 10 by host within 10 s`: starts that were not outlived, by host."""

    WITHIN_US = 10_000_000

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Opens the state: the times of starts, the oldest first."""
        self._starts = handle.getListState("starts", "time_us bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """The events of a host in a batch."""
        starts = [each[0] for each in self._starts.get()] if self._starts.exists() else []
        for time_us, level in sorted((row.time_us, row.level) for row in rows):
            starts = [start for start in starts if time_us - start <= self.WITHIN_US]
            if level < 10 and starts:
                yield Row(host=key[0], begin_us=starts[0], end_us=time_us)
                starts = []
            elif level > 80:
                starts.append(time_us)
        if starts:
            self._starts.put([(start,) for start in starts])
        else:
            self._starts.clear()

    def close(self) -> None:
        """Nothing is open."""


def two_steps(frame: DataFrame) -> DataFrame:
    """The matches of the pattern in a streaming frame, without lateness, ties and duplicates."""
    rows = frame.selectExpr("host", "unix_micros(time) time_us", "level")
    return rows.groupBy("host").transformWithState(
        TwoSteps(), outputStructType=MATCHES_SCHEMA, outputMode="Append", timeMode="None"
    )
