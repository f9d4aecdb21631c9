"""`files_taken`: the files of a micro-batch, from Spark's log in the checkpoint.

    CHECKPOINT/query/offsets/BATCH            the last entry of each source, a line for each
    CHECKPOINT/query/sources/N/ENTRY          a line of JSON for each file
    CHECKPOINT/query/sources/N/ENTRY.compact  those of all entries up to this one

Spark skips a file that was deleted before its task starts, so no task can report it.
"""

import os
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

import msgspec

from contrada.errors import StoreError
from contrada.integrations.spark.pipeline.hadoop_paths import Folder
from contrada.integrations.spark.pipeline.worker_files import LOCAL, local_path, scheme_of

GONE: Final = "gone before it was read"
"""The reason of a file that Spark selected and no task received."""

_VERSION: Final = "v1"


class _Offset(msgspec.Struct, frozen=True):
    entry: int | None = msgspec.field(default=None, name="logOffset")


class _TakenFile(msgspec.Struct, frozen=True):
    path: str
    entry: int = msgspec.field(name="batchId")


def files_taken(checkpoint: Folder, batch: int, source: int) -> list[str]:
    """Returns the addresses of a source's files in a micro-batch. Empty for a source without files.
    Raises StoreError for a log that Spark did not write.
    """
    query = checkpoint / "query"
    last = _last_entry(query, batch, source)
    before = _last_entry(query, batch - 1, source) if batch else -1
    entries = range(before + 1, last + 1)
    return [path for entry in entries for path in _entry(query / "sources" / str(source), entry)]


def may_be_gone(address: str) -> bool:
    """Whether a file may be deleted; always true elsewhere, where a check costs too much."""
    return scheme_of(address) != LOCAL or not os.path.exists(local_path(address))


def _last_entry(query: Folder, batch: int, source: int) -> int:
    """Returns the last entry of a source up to a micro-batch; -1 before the first."""
    found = _lines(query / "offsets" / str(batch))
    try:
        offset = msgspec.json.decode(found[1 + source], type=_Offset | None)
    except (IndexError, msgspec.DecodeError):
        return -1  # It has no entry yet, or is no source of files.
    return -1 if offset is None or offset.entry is None else offset.entry


def _entry(folder: Folder, entry: int) -> Iterator[str]:
    """Yields the addresses of the files of an entry."""
    place = folder / str(entry)
    if not place.exists():
        later = [each for each in folder.glob("*.compact") if int(each.stem) >= entry]
        place = min(later, key=lambda each: int(each.stem), default=place)
    for line in _lines(place):
        taken = msgspec.json.decode(line, type=_TakenFile)
        if taken.entry == entry:
            yield unquote(taken.path)


def _lines(file: Folder) -> list[str]:
    """Returns the lines of a log file after its version."""
    try:
        version, *lines = file.read_bytes().decode().splitlines()
    except FileNotFoundError:
        raise StoreError(f"{file}: the log of a micro-batch is gone") from None
    if version != _VERSION:
        raise StoreError(f"{file}: found {version!r}, expected {_VERSION}")
    return lines
