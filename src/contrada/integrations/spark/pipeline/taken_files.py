"""Which files Spark took into a micro-batch, by its log in the checkpoint.

    CHECKPOINT/query/offsets/BATCH            the last entry of each source, a line for each
    CHECKPOINT/query/sources/N/ENTRY          a line of JSON for each file
    CHECKPOINT/query/sources/N/ENTRY.compact  those of all entries up to this one

Spark passes over a file that is gone when its task begins, so that no task can tell of it.
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
"""Why a file is bad that Spark took and no task was given."""

_VERSION: Final = "v1"


class _Offset(msgspec.Struct, frozen=True):
    entry: int | None = msgspec.field(default=None, name="logOffset")


class _TakenFile(msgspec.Struct, frozen=True):
    path: str
    entry: int = msgspec.field(name="batchId")


def files_taken(checkpoint: Folder, batch: int, source: int) -> list[str]:
    """The addresses of the files of a source that Spark took into a micro-batch.

    None of a source that has none. Raises StoreError where the log is not as Spark writes it.
    """
    query = checkpoint / "query"
    last = _last_entry(query, batch, source)
    before = _last_entry(query, batch - 1, source) if batch else -1
    entries = range(before + 1, last + 1)
    return [path for entry in entries for path in _entry(query / "sources" / str(source), entry)]


def may_be_gone(address: str) -> bool:
    """Whether a file may not have been there; that of other places costs too much to be asked."""
    return scheme_of(address) != LOCAL or not os.path.exists(local_path(address))


def _last_entry(query: Folder, batch: int, source: int) -> int:
    """The last entry of a source that was taken up to a micro-batch; -1 where there is none yet."""
    found = _lines(query / "offsets" / str(batch))
    try:
        offset = msgspec.json.decode(found[1 + source], type=_Offset | None)
    except (IndexError, msgspec.DecodeError):
        return -1  # Nothing of it has come yet, or it is no source of files.
    return -1 if offset is None or offset.entry is None else offset.entry


def _entry(folder: Folder, entry: int) -> Iterator[str]:
    """The addresses of the files of an entry."""
    place = folder / str(entry)
    if not place.exists():
        later = [each for each in folder.glob("*.compact") if int(each.stem) >= entry]
        place = min(later, key=lambda each: int(each.stem), default=place)
    for line in _lines(place):
        taken = msgspec.json.decode(line, type=_TakenFile)
        if taken.entry == entry:
            yield unquote(taken.path)


def _lines(file: Folder) -> list[str]:
    """The lines of a file of the log, behind that of its version."""
    try:
        version, *lines = file.read_bytes().decode().splitlines()
    except FileNotFoundError:
        raise StoreError(f"{file}: the log of a micro-batch is gone") from None
    if version != _VERSION:
        raise StoreError(f"{file}: found {version!r}, expected {_VERSION}")
    return lines
