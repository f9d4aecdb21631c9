"""`BatchRun`: the steps of a batch run that are the same on each engine; `LocalRun`: one without
Spark's JVM, over small local files of text formats.

The outcomes of a source have the same columns on each engine, so one may resume the run of another.
`LocalRun` reads as workers do (`outcome_task`), and writes the same columns and folders by Arrow, a
portion at a time. So its results are those of Spark, in fewer files.
"""

import glob
import hashlib
import os
import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrada.errors import InputError
from contrada.integrations.documents.name_patterns import PATTERN
from contrada.integrations.files import FORMATS
from contrada.integrations.files.match_diagnosis import RECORDS_EXPLAINED_MAX, missing_attributes
from contrada.integrations.spark.pipeline import job_progress, run_folder
from contrada.integrations.spark.pipeline import pipeline_results as results
from contrada.integrations.spark.pipeline.outcome_task import (
    OUTCOME,
    OUTCOMES_MAX,
    FilePart,
    OutcomeTask,
    TextFiles,
    outcome_batches,
)
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary, SourceCounts
from contrada.integrations.spark.pipeline.pipeline_subscriptions import LoadedSubscriptions
from contrada.integrations.spark.pipeline.source_outcomes import describe_matching
from contrada.integrations.spark.transforms.filter_bases import Base
from contrada.integrations.spark.transforms.frames import arrow_schema
from contrada.model import Filter
from contrada.model.codec import notification_from_msgpack

LOCAL_BYTES_MAX: Final = 32 * 2**20
"""Bytes of all files of a run without Spark. Beyond it: it is run on Spark."""

PAIRS_BYTES: Final = 32 * 2**20
"""Bytes of matches that are written at once, if all records are as large as the largest. Beyond it:
the next portion has the rest."""

PAIR_COST_BYTES: Final = 256
"""The assumed size of the other columns of a match."""

_OF_SPARK: Final = frozenset("\\{}[]:")  # with a meaning in Spark's paths
_IN_PATHS: Final = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")  # which Spark escapes
_PART: Final = "part-0.parquet"
_EPOCH: Final = date(1970, 1, 1)
_MATCHES: Final = arrow_schema(results.MATCHES_DDL)
_OF_PAIRS: Final = ["source", "file", "record", "time_us", "attributes", "notification"]
_OF_BAD: Final = ("source", "file", "record", "column", "reason", "text")
_BAD: Final = pa.schema([OUTCOME.field(name) for name in _OF_BAD]).set(
    2, OUTCOME.field("record").with_name("line")
)


class RunState(msgspec.Struct):
    """The finished sources of a run. `digest` is of its description."""

    digest: str
    done: dict[str, SourceCounts] = {}


@dataclass(slots=True, kw_only=True)
class BatchRun(ABC):
    """The steps of a run, and the seconds of its stages. An engine fills the abstract ones."""

    pipeline: Pipeline
    asked: LoadedSubscriptions
    base: Base
    on_progress: job_progress.ProgressListener
    stop: threading.Event
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Runs the block as a stage. Raises KeyboardInterrupt once `stop` is set."""
        job_progress.check_stop(self.stop)
        began = monotonic()
        with self.watch(what):
            yield
        self.seconds[what] = monotonic() - began

    def save(self, run: run_folder.RunFolder, state: RunState) -> None:
        """Writes the state of a run."""
        path = run.path / run_folder.STATE_FILE
        run_folder.write_atomically(path, msgspec.json.encode(state))

    def _digest(self) -> str:
        described = (self.pipeline.text, self.base.digest, list(self.asked.filters))
        return hashlib.sha256(repr(described).encode()).hexdigest()

    def begin(self) -> tuple[run_folder.RunFolder, RunState]:
        """Returns a new run with its state."""
        run_folder.delete_unfinished(self.pipeline.output)
        run, state = run_folder.new_run(self.pipeline.output), RunState(self._digest())
        self.save(run, state)
        return run, state

    def resume(self) -> tuple[run_folder.RunFolder, RunState]:
        """Returns the last unfinished run with its state; a new one if nothing was written yet."""
        output = self.pipeline.output
        run = run_folder.unfinished_run(output)
        if run is None and run_folder.current_run(output) is not None:
            raise InputError(str(output), "the last run has ended")
        known = run_folder.read_state(run.path / run_folder.STATE_FILE, RunState) if run else None
        if run is None or known is None:
            return self.begin()
        if known.digest != self._digest():
            reason = "the run that was not ended had another description"
            raise InputError(str(output), f"{reason}; without --resume one begins")
        return run, known

    def places(self, run: run_folder.RunFolder) -> list[str]:
        """Returns the folders of the outcomes, by source."""
        numbers = map(str, range(len(self.pipeline.sources)))
        return [run.place(run_folder.OUTCOMES, number) for number in numbers]

    @abstractmethod
    def match(self, source: Source, place: str) -> SourceCounts:
        """Writes the outcomes of a source; returns the counts."""

    @abstractmethod
    def write(self, run: run_folder.RunFolder) -> dict[str, int]:
        """Writes the results of a run; returns the number of matches of each pattern."""

    @abstractmethod
    def missing_in(self, source: Source) -> list[str]:
        """Returns the attributes in filters that the first records of a source lack."""

    @abstractmethod
    def watch(self, what: str) -> AbstractContextManager[None]:
        """Reports the progress of the block."""

    def summary(
        self, done: Mapping[str, SourceCounts], patterns: dict[str, int]
    ) -> PipelineSummary:
        """Returns the summary before publishing."""
        matches: Counter[int] = Counter()
        for each in done.values():
            matches.update(each.matches)
        pipeline, asked = self.pipeline, self.asked
        return PipelineSummary(
            tuple(done[each.name].summary(each.name) for each in pipeline.sources),
            {name: matches[position] for position, name in enumerate(asked.filters)},
            published=0,
            publish_seconds=0.0,
            seconds=0.0,
            output=str(pipeline.output.absolute()),
            patterns=patterns,
            stages=self.seconds,
            plan={each.name: describe_matching(each, self.base) for each in pipeline.sources},
            refused=asked.refused,
            missing=() if matches else tuple(self.missing(done)),
        )

    def missing(self, done: Mapping[str, SourceCounts]) -> Iterator[str]:
        """Yields the attributes in filters that the sources lack, with the source."""
        for source in self.pipeline.sources:
            if done[source.name].read and source.reading.strategy != PATTERN:
                with self.stage(f"explain {source.name}"):
                    found = self.missing_in(source)
                yield from (f"{source.name}: {each}" for each in found)


def why_spark(pipeline: Pipeline) -> str | None:
    """Returns what a run needs Spark for; None if it may be a `LocalRun`."""
    needs = {
        "it is a stream": pipeline.is_stream,
        "its output is at an address": not isinstance(pipeline.output, Path),
        "it has patterns": bool(pipeline.patterns),
        "it has tables": bool(pipeline.tables),
        "it has settings of Spark": bool(pipeline.spark),
    }
    needs |= {
        f"source {each.name}: Spark reads {each.format}, or lists its paths": not _is_local(each)
        for each in pipeline.sources
    }
    for reason, is_needed in needs.items():
        if is_needed:
            return reason
    size = _size(pipeline)
    return f"its files have {size} bytes" if size > LOCAL_BYTES_MAX else None


def is_small(pipeline: Pipeline) -> bool:
    """Whether the sources have as few bytes, in local files, as those of a `LocalRun`."""
    return all(map(_is_local, pipeline.sources)) and _size(pipeline) <= LOCAL_BYTES_MAX


def _size(pipeline: Pipeline) -> int:
    return sum(file.stat().st_size for each in pipeline.sources for file in each.files)


def _is_local(source: Source) -> bool:
    """Whether the files of a source are those that Spark would list."""
    if source.format not in FORMATS or source.options or not source.files:
        return False
    if any(_OF_SPARK & set(path) for path in source.paths):
        return False
    # Spark lists the folders that a pattern meets, and skips hidden names.
    met = [Path(each) for path in source.paths for each in glob.glob(path)]
    return not any(each.is_dir() or each.name.startswith(("_", ".")) for each in met)


@dataclass(slots=True, kw_only=True)
class LocalRun(BatchRun):
    """A run in this process."""

    def watch(self, what: str) -> AbstractContextManager[None]:
        self.on_progress(what, 0, 1)
        return nullcontext()

    def match(self, source: Source, place: str) -> SourceCounts:
        self.read(source, Path(place))
        return _counts_of(_batches(place), len(self.asked.filters))

    def read(self, source: Source, folder: Path) -> None:
        """Writes the outcomes of a source."""
        _write_file(_outcomes(source, self.base), OUTCOME, folder)

    def write(self, run: run_folder.RunFolder) -> dict[str, int]:
        with self.stage("write"):
            places = self.places(run)
            # A base needs a subscription.
            names = pa.array([*self.asked.filters, None], pa.string())
            types = results.types_of(self.pipeline)
            matches = (
                rows for each in _batches(*places) for rows in _matches_of(each, names, types)
            )
            _write_parts(matches, Path(run.place("matches")), self.pipeline.partitions("matches"))
            bad = map(_quarantine_of, _batches(*places))
            _write_file(bad, _BAD, Path(run.place("quarantine")))
        return {}

    def missing_in(self, source: Source) -> list[str]:
        packed = (
            each
            for batch in _outcomes(source, Base({0: Filter({})}))
            for each in batch.column("notification").drop_null().to_pylist()
        )
        found = [notification_from_msgpack(each) for each in islice(packed, RECORDS_EXPLAINED_MAX)]
        return missing_attributes(self.asked.filters.values(), found) if found else []


def _outcomes(source: Source, base: Base) -> Iterable[pa.RecordBatch]:
    addresses = sorted({os.path.abspath(file) for file in source.files})
    is_relative = not any(path.startswith("/") for path in source.paths)
    beside = os.getcwd() if is_relative else None
    parts = (tuple(map(FilePart, addresses)),)
    files = TextFiles(source.name, source.format, source.reading, beside, parts)
    task = OutcomeTask((files,), base.saved)
    rows = pa.StructArray.from_arrays([pa.array([0], pa.int64())], ["place"])
    return outcome_batches(task, [pa.record_batch([pa.array([0]), rows], ["source", "r0"])])


def _batches(*places: str) -> Iterator[pa.RecordBatch]:
    """Yields the outcomes in some folders, about as many as a task wrote at once."""
    for place in places:
        for file in sorted(Path(place).glob("*.parquet")):
            yield from pq.ParquetFile(file).iter_batches(OUTCOMES_MAX)


def _counts_of(batches: Iterable[pa.RecordBatch], subscriptions: int) -> SourceCounts:
    """Counts the outcomes of one source as `pipeline_results.counts_of`."""
    matches = np.zeros(subscriptions, np.int64)
    read = bad = matched = 0
    reasons: Counter[str] = Counter()
    unmet: set[str] | None = None
    for batch in batches:
        lists = batch["subscriptions"]
        positions = pc.list_flatten(lists).to_numpy()
        matches += np.bincount(positions, minlength=subscriptions)[:subscriptions]
        matched += pc.sum(pc.greater(pc.list_value_length(lists), 0)).as_py() or 0
        reasons.update(batch["reason"].drop_null().to_pylist())
        bad += pc.sum(batch["bad"]).as_py() or 0
        read += pc.sum(batch["read"]).as_py() or 0
        # Tasks without any record do not restrict the absent attributes.
        for of_task in batch.filter(pc.greater(batch["read"], 0))["unmet"].to_pylist():
            unmet = {*of_task} if unmet is None else unmet & {*of_task}
    frequent = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    found = matches.nonzero()[0]
    return SourceCounts(
        read,
        bad,
        matched,
        dict(zip(found.tolist(), matches[found].tolist(), strict=True)),
        dict(frequent[: results.REASONS_MAX]),
        tuple(sorted(unmet or ())),
    )


def _matches_of(
    batch: pa.RecordBatch, names: pa.Array, types: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `pipeline_results.matches_of`, of some PAIRS_BYTES at once."""
    batch = batch.filter(pc.greater(pc.list_value_length(batch["subscriptions"]), 0))
    lists = batch["subscriptions"]
    of_row, positions = pc.list_parent_indices(lists), pc.list_flatten(lists)
    firsts = pc.list_element(lists, 0)
    sizes = (pc.binary_length(batch[name]) for name in ("attributes", "notification"))
    largest = pc.max(pc.add(*sizes)).as_py() or 0
    at_once = max(PAIRS_BYTES // (largest + PAIR_COST_BYTES), 1)
    for begin in range(0, len(positions), at_once):
        row, position = of_row.slice(begin, at_once), positions.slice(begin, at_once)
        pairs = batch.select(_OF_PAIRS).take(row)
        time = pairs["time_us"].cast(pa.timestamp("us", "UTC"))
        columns = {
            "subscription": names.take(position),
            **{name: pairs[name] for name in ("source", "file", "record")},
            "time": time,
            **{name: pairs[name] for name in ("attributes", "notification")},
            "is_first": pc.equal(position, firsts.take(row)),
            "date": pc.fill_null(time.cast(pa.timestamp("us")).cast(pa.date32()), _EPOCH),
            "type": pa.array(map(types.__getitem__, pairs["source"].to_pylist()), pa.string()),
        }
        yield pa.RecordBatch.from_pydict(columns, _MATCHES)


def _quarantine_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows of `pipeline_results.quarantine_of`."""
    bad = batch.filter(pc.is_valid(batch["reason"]))
    return pa.RecordBatch.from_arrays([bad[name] for name in _OF_BAD], schema=_BAD)


def _write_file(batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: Path) -> None:
    """Replaces a folder by one with a file."""
    _make_empty(folder)
    with pq.ParquetWriter(folder / _PART, schema) as writer:
        for each in batches:
            writer.write_batch(each)


def _make_empty(folder: Path) -> None:
    """Makes a folder, in place of that of a killed run, also on Spark."""
    if folder.exists():
        run_folder.delete_folder(folder)
    folder.mkdir(parents=True)


def _write_parts(
    batches: Iterable[pa.RecordBatch], folder: Path, partitions: tuple[str, ...]
) -> None:
    """Replaces a folder of matches: a file or some for each value of the partitions."""
    if not partitions:
        _write_file(batches, _MATCHES, folder)
        return
    import pyarrow.dataset as ds  # It imports pandas, for a quarter of a second.

    _make_empty(folder)
    kinds = pa.schema([_MATCHES.field(name) for name in partitions])
    ds.write_dataset(
        batches,
        folder,
        schema=_MATCHES,
        format="parquet",
        partitioning=ds.partitioning(kinds, flavor="hive"),
        basename_template="part-{i}.parquet",
        max_partitions=2**31 - 1,  # As many as there are.
    )
    # Arrow escapes the bytes of all but ASCII, and Spark reads an escape as a character.
    for part in list(folder.rglob("type=*")):
        name = unquote(part.name).removeprefix("type=")
        part.rename(part.with_name("type=" + _IN_PATHS.sub(_escape, name)))


def _escape(sign: re.Match[str]) -> str:
    return f"%{ord(sign[0]):02X}"
