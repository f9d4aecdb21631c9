"""`WorldResults`: a file to which a run of worlds appends each result, and from which it resumes.

A line of the file is one run's conditions or the result of one world, as JSON. A line is written
whole, so a killed run loses only the worlds in work, and the last line may be torn. The lines of a
run follow its conditions. The end of a killed machine, not of a process, may lose more.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from contrada.errors import InputError
from contrada.lab.simulation.script_steps import Kind
from contrada.lab.simulation.worlds import WorldResult, kinds


class SeedShard(msgspec.Struct, frozen=True):
    """One of `parts` disjoint parts of all seeds, counted from 1: seeds that leave `part` - 1."""

    part: int = 1
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"

    def seeds(self, first: int, count: int) -> range:
        """Returns the seeds of this part among `count` consecutive ones."""
        return range(first + (self.part - 1 - first) % self.parts, first + count, self.parts)


class RunConditions(msgspec.Struct, frozen=True):
    """The conditions of a run of worlds: the code, the machine, and the wanted worlds.

    `code` is a digest of the sources: two runs with one digest ran the same code.
    """

    version: str
    code: str
    machine: str
    began: datetime
    first: int
    count: int
    shard: SeedShard
    only: str = ""

    @classmethod
    def here(cls, first: int, count: int, shard: SeedShard, only: str = "") -> Self:
        """Returns the conditions of a run that begins now, on this machine."""
        now = datetime.now(UTC).replace(microsecond=0)
        version, machine = importlib.metadata.version("contrada"), describe_machine()
        return cls(version, code_digest(), machine, now, first, count, shard, only)

    @property
    def wanted(self) -> dict[Kind, range]:
        """The seeds that are to run, by kind."""
        return dict.fromkeys(kinds(self.only), self.shard.seeds(self.first, self.count))


class _ResultsLine(msgspec.Struct, frozen=True, omit_defaults=True):
    run: RunConditions | None = None
    world: WorldResult | None = None


_DECODER: Final = msgspec.json.Decoder(_ResultsLine)
_BEGINNINGS: Final = (b'{"run":', b'{"world":')


class WorldResults:
    """The file of results of one run at a time, open for appending.

    `earlier` are the results of former runs, in order; a torn last line is removed. Raises
    InputError for another file, and while another run has the file open.
    """

    def __init__(self, path: Path, conditions: RunConditions) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.earlier: Sequence[WorldResult] = [world for _, world in read_results(path)]
            cut_torn_line(path)
        except BlockingIOError:
            self._file.close()
            raise InputError(str(path), "another run is writing to this file") from None
        except BaseException:
            self._file.close()
            raise
        self._write(_ResultsLine(run=conditions))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def done(self) -> dict[Kind, set[int]]:
        """The seeds of former runs, by kind."""
        done: dict[Kind, set[int]] = defaultdict(set)
        for each in self.earlier:
            done[each.kind].add(each.seed)
        return done

    def append(self, world: WorldResult) -> None:
        """Writes a result to the file."""
        self._write(_ResultsLine(world=world))

    def _write(self, line: _ResultsLine) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()


def read_results(path: Path) -> Iterator[tuple[RunConditions, WorldResult]]:
    """Yields the results of a file, each with the conditions of its run, without a torn last line.

    Raises InputError for another file.
    """
    conditions: RunConditions | None = None
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                if not any(text[: len(each)] == each[: len(text)] for each in _BEGINNINGS):
                    raise InputError(str(path), "no line of results", number)
                return
            try:
                line = _DECODER.decode(text)
            except msgspec.DecodeError as error:
                raise InputError(str(path), f"no line of results: {error}", number) from None
            conditions = line.run or conditions
            if conditions is None:
                raise InputError(str(path), "no line of results: a run is missing", number)
            if line.world is not None:
                yield conditions, line.world


def read_runs(path: Path) -> list[RunConditions]:
    """Returns the conditions of all runs of a file, in order. Raises InputError."""
    with path.open("rb") as file:
        lines = [text for text in file if text.startswith(_BEGINNINGS[0]) and text.endswith(b"\n")]
    try:
        return [run for text in lines if (run := _DECODER.decode(text).run) is not None]
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"no line of results: {error}") from None


def cut_torn_line(path: Path) -> None:
    """Removes the last line of a file if it has no end."""
    with path.open("rb+") as file:
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def describe_machine() -> str:
    """Returns the name of this machine, its processors and its Python."""
    return f"{platform.node()}, {os.cpu_count()} processors, Python {platform.python_version()}"


def code_digest() -> str:
    """Returns a short digest of all Python sources of the package, with their names."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
