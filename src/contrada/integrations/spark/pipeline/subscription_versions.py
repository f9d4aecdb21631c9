"""`Versions`: the versions of a stream's subscriptions, one for each micro-batch.

    CHECKPOINT/versions/NUMBER.json     a version, and the first micro-batch that has it
    CHECKPOINT/bases/                   the bases of the last versions, and their names
    CHECKPOINT/batches/NUMBER.json      the version of each of the last micro-batches

The subscriptions are read again before each new micro-batch. Its version is written before the
matching, so that a repeated micro-batch has the same version.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from contrada.errors import ContradaError, StoreError
from contrada.integrations.spark.pipeline.hadoop_paths import Folder, HadoopPath
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from contrada.integrations.spark.pipeline.pipeline_subscriptions import (
    LoadedSubscriptions,
    load_origins,
)
from contrada.integrations.spark.pipeline.preflight import base_of
from contrada.integrations.spark.pipeline.run_folder import read_state, write_atomically
from contrada.integrations.spark.transforms.filter_bases import Base
from contrada.integrations.spark.transforms.state_files import BATCHES_KEPT

VERSIONS_KEPT: Final = 3
"""Versions whose bases are kept, including the last one. Beyond it: the oldest is deleted. Only the
last micro-batch is repeated, with the last version or the one before."""

VERSIONS_TOLD: Final = 100
"""Versions in a report, the last ones. Beyond it: the checkpoint has all of them."""

_LOG: Final = logging.getLogger("contrada.integrations.spark")


class _SavedVersion(msgspec.Struct, frozen=True):
    """The file of a version. `digest` is of the origins, `base` of the filters."""

    version: int
    digest: str
    base: str
    since: str
    first_batch: int
    subscriptions: int

    def __str__(self) -> str:
        first = f"from micro-batch {self.first_batch} on, read {self.since}"
        return f"{self.version}: {self.subscriptions} subscriptions, {first}"


class _ChosenVersion(msgspec.Struct, frozen=True):
    version: int


@dataclass(frozen=True, slots=True)
class Version:
    """The subscriptions of a micro-batch; keys of the base are positions among the names."""

    number: int
    names: Sequence[str]
    base: Base


class Versions:
    """The versions of a pipeline's checkpoint; a new one has a first version from `asked`. If the
    checkpoint is at an address, bases are opened in the folder `here`.
    """

    def __init__(self, pipeline: Pipeline, asked: LoadedSubscriptions, here: Path) -> None:
        self._pipeline, self._asked = pipeline, asked
        self._checkpoint = checkpoint = pipeline.checkpoint
        self._bases = checkpoint / "bases"
        self._here = self._bases if isinstance(self._bases, Path) else here
        self._last_error, self._deleted = "", 1
        self.refused = asked.refused
        """The refused rules of the last reading."""
        known = [int(each.stem) for each in (checkpoint / "versions").glob("*.json")]
        if known:
            self._last = self._read(max(known))
            self._deleted = max(1, self._last.version - VERSIONS_KEPT)
        else:
            self._last = self._begin(1, 0, asked)
        self._open = self._open_version(self._last)

    def of_batch(self, batch: int) -> Version:
        """Returns the version of a micro-batch: the one chosen before, or the present one. If the
        subscriptions are unreadable, the last version stays in force, with a warning in the log.
        """
        file = self._checkpoint / "batches" / f"{batch}.json"
        chosen = read_state(file, _ChosenVersion)
        if chosen is None:
            self._refresh(batch)
            write_atomically(file, msgspec.json.encode(_ChosenVersion(self._last.version)))
            return self._open
        if chosen.version == self._last.version:
            return self._open
        return self._open_version(self._read(chosen.version))

    @property
    def last(self) -> Version:
        """The last version."""
        return self._open

    def all(self) -> list[str]:
        """Describes the last versions, a line for each."""
        last = self._last.version
        return [str(self._read(each)) for each in range(max(1, last - VERSIONS_TOLD + 1), last + 1)]

    def prune(self, batch: int) -> None:
        """Deletes versions that no micro-batch from this one on needs."""
        for each in (self._checkpoint / "batches").glob("*.json"):
            if int(each.stem) <= batch - BATCHES_KEPT:
                each.unlink()
        for number in range(max(1, self._deleted), self._last.version - VERSIONS_KEPT + 1):
            self._delete(number)
            self._deleted = number + 1

    def _refresh(self, batch: int) -> None:
        try:
            asked = self._asked = load_origins(self._pipeline.origins, self._asked)
        except ContradaError as error:
            if str(error) != self._last_error:
                _LOG.warning("the subscriptions stay as they were: %(reason)s", {"reason": error})
            self._last_error = str(error)
            return
        self._last_error, self.refused = "", asked.refused
        if asked.digest != self._last.digest:
            self._last = self._begin(self._last.version + 1, batch, asked)
            self._open = self._open_version(self._last)

    def _begin(self, number: int, batch: int, asked: LoadedSubscriptions) -> _SavedVersion:
        """Writes a new version, its base before its file."""
        base = base_of(self._pipeline, asked, self._here)
        if isinstance(self._bases, HadoopPath):
            for each in self._here.glob(f"{base.digest}.*"):
                (self._bases / each.name).send(each)
        since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        names = [*asked.filters]
        write_atomically(self._bases / f"{asked.digest}.names", msgspec.json.encode(names))
        saved = _SavedVersion(number, asked.digest, base.digest, since, batch, len(names))
        write_atomically(self._file(number), msgspec.json.encode(saved))
        return saved

    def _open_version(self, saved: _SavedVersion) -> Version:
        if isinstance(self._bases, HadoopPath) and not (self._here / f"{saved.base}.base").exists():
            for each in self._bases.glob(f"{saved.base}.*"):
                each.fetch(self._here / each.name)
        base = Base.load(saved.base, folder=self._here)
        names = read_state(self._bases / f"{saved.digest}.names", list[str])
        if names is None:
            raise StoreError(f"{self._checkpoint}: names of version {saved.version} are gone")
        return Version(saved.version, names, base)

    def _delete(self, number: int) -> None:
        """Deletes the base of a version and its names, unless a later one shares them."""
        gone = self._read(number)
        later = [self._read(each) for each in range(number + 1, self._last.version + 1)]
        kept = {name for each in later for name in (each.base, each.digest)}
        for name in {gone.base, gone.digest} - kept:
            for folder in {self._bases, self._here}:
                for path in folder.glob(f"{name}.*"):
                    path.unlink()

    def _read(self, number: int) -> _SavedVersion:
        found = read_state(self._file(number), _SavedVersion)
        if found is None:
            raise StoreError(
                f"{self._checkpoint}: version {number} of the subscriptions was removed"
            )
        return found

    def _file(self, number: int) -> Folder:
        return self._checkpoint / "versions" / f"{number}.json"
