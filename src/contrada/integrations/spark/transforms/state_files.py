"""`States`: the state of a stateful transform between micro-batches, a file for each (batch, part).

    CHECKPOINT/state/shape.json        the patterns' digest, and the number of parts
    CHECKPOINT/state/BATCH/PART        the state of a part after a batch
    CHECKPOINT/state/BATCH/PART.json   its counts

A batch starts from the state after the previous one, and never changes that: a repeated batch
writes the same files again, atomically. All executors must reach the folder.
"""

import contextlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from contrada.errors import StoreError

BATCHES_KEPT: Final = 3
"""Batches whose state is kept, including the last one. Beyond it: the oldest is deleted. Spark
repeats only the last batch, if it is not committed."""


@dataclass(frozen=True, slots=True)
class States:
    """The states below a folder, for a number of parts."""

    folder: str
    parts: int

    def read(self, batch: int, part: int) -> bytes:
        """Returns the state of a part after a batch. Raises StoreError without one."""
        try:
            return self._read(f"{batch}/{part}")
        except FileNotFoundError:
            reason = f"{self.folder}: the state of batch {batch}, part {part} is not there"
            raise StoreError(f"{reason}; begin with an empty checkpoint") from None

    def write(self, batch: int, part: int, state: bytes, counts: dict[str, Any]) -> None:
        """Writes the state of a part after a batch, and then its counts."""
        self._write(f"{batch}/{part}", state)
        self._write(f"{batch}/{part}.json", json.dumps(counts).encode())

    def counts(self, batch: int) -> list[dict[str, Any] | None]:
        """Returns the counts of each part after a batch; None for an unfinished part."""
        found: list[dict[str, Any] | None] = [None] * self.parts
        for part in range(self.parts):
            with contextlib.suppress(FileNotFoundError):
                found[part] = json.loads(self._read(f"{batch}/{part}.json"))
        return found

    def last(self) -> int | None:
        """Returns the last batch that all parts have finished; None before the first."""
        done = (batch for batch in sorted(self._batches(), reverse=True))
        return next((batch for batch in done if None not in self.counts(batch)), None)

    def prune(self, batch: int) -> None:
        """Deletes states that no batch from this one on needs."""
        files, folder = _files(self.folder)
        for each in self._batches():
            if each <= batch - BATCHES_KEPT:
                files.delete_dir(f"{folder}/{each}")

    def _batches(self) -> list[int]:
        from pyarrow.fs import FileSelector

        files, folder = _files(self.folder)
        found = files.get_file_info(FileSelector(folder, allow_not_found=True))
        return [int(each.base_name) for each in found if each.base_name.isdecimal()]

    def _read(self, name: str) -> bytes:
        files, folder = _files(self.folder)
        with files.open_input_file(f"{folder}/{name}") as stream:
            found: bytes = stream.read()
        return found

    def _write(self, name: str, content: bytes) -> None:
        files, folder = _files(self.folder)
        path = f"{folder}/{name}"
        files.create_dir(path.rpartition("/")[0])
        # Two attempts of one task may write at once, each to a file of its own.
        own = f"{path}.{uuid.uuid4().hex}.new"
        with files.open_output_stream(own) as stream:
            stream.write(content)
        files.move(own, path)


def states_of(checkpoint: str, shape: dict[str, Any], parts: Callable[[], int] | None) -> States:
    """Returns the states of a checkpoint, with its original number of parts. `parts` returns that
    of a new one; None creates none. Raises StoreError without a state, and for another shape.
    """
    states = States(f"{checkpoint.rstrip('/')}/state", 0)
    try:
        known = json.loads(states._read("shape.json"))
    except FileNotFoundError:
        if parts is None:
            raise StoreError(f"{checkpoint}: there is no state") from None
        known = {"parts": parts(), **shape}
        states._write("shape.json", json.dumps(known).encode())
    differs = [name for name in shape if known.get(name) != shape[name]]
    if differs:
        reason = f"it is of other {' and '.join(differs)}; begin with an empty one"
        raise StoreError(f"the checkpoint {checkpoint}: {reason}")
    return States(states.folder, known["parts"])


def _files(folder: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" not in folder and not folder.startswith("file:"):
        return LocalFileSystem(), folder
    files, path = FileSystem.from_uri(folder)
    return files, path
