"""What a Spark task does: raw records in Arrow batches to outcomes in Arrow batches.

An outcome is a record that matched, a record that could not be read, or (one per task, last)
the count of what was read. Everything here runs in the workers; what a record means is decided
by `contrada.records`, what it matches by `contrada.matching`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from contrada.extensions import load, loaded
from contrada.matching import Index
from contrada.model import Notification
from contrada.model.encoding import from_msgpack, to_msgpack
from contrada.records import (
    BadRecord,
    Reading,
    Record,
    Rows,
    notification_of_object,
    plain_attributes,
    read_file,
    record_of,
    records_of_tree,
)
from contrada.records.rows import is_blank
from contrada.spark.trees import tree_of

OUTCOMES_MAX: Final = 2_000
"""Outcomes of one Arrow batch, and so of what a task holds. Beyond it: the next batch takes the
rest."""

OUTCOME: Final = pa.schema(
    [
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
    ]
)
OUTCOME_DDL: Final = (
    "file string, record bigint, column bigint, reason string, text string, time_us bigint, "
    "attributes string, notification binary, subscriptions array<int>, read bigint, bad bigint"
)

Batches: TypeAlias = Iterator[pa.RecordBatch]
Outcomes: TypeAlias = Iterator[Record | BadRecord]
Place: TypeAlias = tuple[str, int]
"""A file and the byte at which a part of it begins."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the tasks of one source are told; travels to the workers.

    `shown` names each file (by its path) as the user knows it, `headers` holds the first line of
    CSV files, `first_lines` the number of the first line of each part, where files are cut.
    `extensions` are the names of those that the driver has loaded: the workers load them too.
    """

    format: str
    reading: Reading
    filters: tuple[bytes, ...]
    shown: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    first_lines: Mapping[Place, int] = field(default_factory=dict)
    extensions: tuple[str, ...] = field(default_factory=loaded)

    def of_lines(self, batches: Batches) -> Batches:
        """For rows (file, block, line) of text files."""
        return self._outcomes(self._lines(batches))

    def of_trees(self, batches: Batches) -> Batches:
        """For rows (file, root, tree) of documents."""
        return self._outcomes(self._trees(batches))

    def of_files(self, batches: Batches) -> Batches:
        """For rows (file) of files that the task reads itself."""
        return self._outcomes(self._files(batches))

    def _outcomes(self, records: Outcomes) -> Batches:
        for name in self.extensions:
            load(name)
        return outcomes(records, self.filters)

    def _lines(self, batches: Batches) -> Outcomes:
        counts: dict[Place, int] = {}
        makers: dict[str, Callable[[str], Notification]] = {}
        for uri, block, data in _rows(batches):
            path = local_path(uri)
            if path not in makers:
                makers[path] = self._maker(path)
            place = (path, block)
            number = counts.get(place) or self.first_lines.get(place, 1)
            counts[place] = number + 1
            if number == 1 and self.format == "csv":
                continue
            line = data.decode("utf-8", "surrogateescape")
            if not is_blank(line):
                yield record_of(makers[path], self.shown[path], number, line)

    def _maker(self, path: str) -> Callable[[str], Notification]:
        if self.format == "csv":
            return Rows(self.headers[path], self.reading).notification
        reading = self.reading
        return lambda line: notification_of_object(line, reading)

    def _trees(self, batches: Batches) -> Outcomes:
        for path, root, text in _rows(batches):
            tree = tree_of(root, text)
            if tree is None:
                yield from self._file(path)
            else:
                yield from records_of_tree(tree, self.shown[path], self.reading)

    def _files(self, batches: Batches) -> Outcomes:
        for (path,) in _rows(batches):
            yield from self._file(path)

    def _file(self, path: str) -> Outcomes:
        return read_file(Path(path), self.format, self.reading, self.shown[path])


def local_path(uri: str) -> str:
    """The path of a local file whose address Spark gives."""
    return unquote(urlsplit(uri).path)


def outcomes(records: Iterable[Record | BadRecord], filters: tuple[bytes, ...]) -> Batches:
    """The outcomes of a task: what matched, what is bad, and at last the counts."""
    index = index_of(filters)
    held: list[dict[str, Any]] = []
    read = bad = 0
    for record in records:
        if isinstance(record, BadRecord):
            bad += 1
            held.append(_bad(record))
        else:
            read += 1
            matched = sorted(index.match(record.notification))
            if matched:
                held.append(_matched(record, matched))
        if len(held) == OUTCOMES_MAX:
            yield pa.RecordBatch.from_pylist(held, schema=OUTCOME)
            held = []
    held.append({"read": read, "bad": bad})
    yield pa.RecordBatch.from_pylist(held, schema=OUTCOME)


@lru_cache(maxsize=1)
def index_of(filters: tuple[bytes, ...]) -> Index[int]:
    """The index of a pipeline's filters, built once in each worker; keys are positions."""
    index: Index[int] = Index()
    for position, encoded in enumerate(filters):
        wish: Any = from_msgpack(encoded)
        index.add(position, wish)
    return index


def _rows(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _matched(record: Record, subscriptions: list[int]) -> dict[str, Any]:
    notification = record.notification
    return {
        "file": record.source,
        "record": record.number,
        "time_us": notification.envelope.time_us,
        "attributes": msgspec.json.encode(plain_attributes(notification)).decode(),
        "notification": to_msgpack(notification),
        "subscriptions": subscriptions,
    }


def _bad(record: BadRecord) -> dict[str, Any]:
    return {
        "file": record.source,
        "record": record.line,
        "column": record.column,
        "reason": record.reason,
        "text": record.text,
    }
