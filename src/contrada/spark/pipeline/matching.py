"""What a Spark task does: raw records in Arrow batches to outcomes in Arrow batches.

An outcome is a record that matched, a record that could not be read, or (one per task, last)
the count of what was read. Everything here runs in the workers; what a record means is decided
by `contrada.records`, what it matches too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from contrada.model.encoding import to_msgpack
from contrada.records import (
    WHOLE,
    BadRecord,
    MatchedRecord,
    Matcher,
    Outcomes,
    Part,
    Reading,
    plain_attributes,
)
from contrada.spark.transforms.bases import Opened, SavedBase, opened

OUTCOMES_MAX: Final = 2_000
"""Outcomes of one Arrow batch, and so of what a task holds. Beyond it: the next batch takes the
rest."""

OUTCOME: Final = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("record", pa.int64()),
        ("column", pa.int64()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("time_us", pa.int64()),
        ("attributes", pa.string()),
        ("notification", pa.binary()),
        ("subscriptions", pa.list_(pa.int32())),
        ("read", pa.int64()),
        ("bad", pa.int64()),
        ("unmet", pa.list_(pa.string())),
    ]
)
OUTCOME_DDL: Final = (
    "source string, file string, record bigint, column bigint, reason string, text string, "
    "time_us bigint, attributes string, notification binary, subscriptions array<int>, "
    "read bigint, bad bigint, unmet array<string>"
)

Batches: TypeAlias = Iterator[pa.RecordBatch]


class FilePart(NamedTuple):
    """A part of a file, and the header of a CSV file where the part does not begin with it."""

    path: str
    part: Part = WHOLE
    header: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What the tasks of one source are told; travels to the workers.

    `shown` names each file (by its path) as the user knows it, `parts` are those of files that
    each task reads.
    """

    source: str
    format: str
    reading: Reading
    base: SavedBase
    shown: Mapping[str, str]
    parts: tuple[tuple[FilePart, ...], ...]

    def of_parts(self, batches: Batches) -> Batches:
        """For rows (place): which of the parts are read."""
        matcher = matcher_of(self.base, self.reading)
        matcher.unmet = self.reading.names_expected()
        return batches_of(
            self.source,
            (
                outcomes
                for batch in batches
                for place in batch.column(0).to_pylist()
                for path, part, header in self.parts[place]
                for outcomes in matcher.file(
                    Path(path), self.format, self.shown[path], part, header
                )
            ),
            lambda: sorted(matcher.unmet),
        )


def batches_of(
    source: str, outcomes: Iterable[Outcomes], unmet: Callable[[], list[str]] = list
) -> Batches:
    """The outcomes of a task: what matched, what is bad, and at last the counts.

    With these stands which of the attributes that options speak of no record had.
    """
    held: list[dict[str, Any]] = []
    read = bad = 0
    for each in outcomes:
        read += each.read
        for told in each.told:
            if isinstance(told, BadRecord):
                bad += 1
                held.append(_bad(source, told))
            else:
                held.append(_matched(source, told))
            if len(held) == OUTCOMES_MAX:
                yield pa.RecordBatch.from_pylist(held, schema=OUTCOME)
                held = []
    held.append({"source": source, "read": read, "bad": bad, "unmet": unmet()})
    yield pa.RecordBatch.from_pylist(held, schema=OUTCOME)


_matchers: Final[list[tuple[str, Reading, Matcher]]] = []


def matcher_of(base: SavedBase, reading: Reading) -> Matcher:
    """What matches the records of a source; built once in each worker, the last one is kept."""
    if not _matchers or _matchers[0][:2] != (base.digest, reading):
        matcher = Matcher(_filters(opened(base)), reading, bulk_after_bytes=0)
        matcher.decide(opened(base).residues)
        _matchers[:] = [(base.digest, reading, matcher)]
    return _matchers[0][2]


def _filters(base: Opened) -> list[Any]:
    """What each key of a base asks for, in their order."""
    found: list[Any] = [None] * base.saved.keys
    for shard in range(len(base.saved.shards)):
        for position, filters in base.index(shard).items():
            found[position] = filters
    return found


def _matched(source: str, matched: MatchedRecord) -> dict[str, Any]:
    notification = matched.record.notification
    return {
        "source": source,
        "file": matched.record.source,
        "record": matched.record.number,
        "time_us": notification.envelope.time_us,
        "attributes": msgspec.json.encode(plain_attributes(notification)).decode(),
        "notification": to_msgpack(notification),
        "subscriptions": matched.positions,
    }


def _bad(source: str, record: BadRecord) -> dict[str, Any]:
    return {
        "source": source,
        "file": record.source,
        "record": record.line,
        "column": record.column,
        "reason": record.reason,
        "text": record.text,
    }
