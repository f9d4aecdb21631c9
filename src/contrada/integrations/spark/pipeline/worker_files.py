"""`listed` and `open_file`: files that Spark lists and the workers open themselves.

Spark lists: directories, globs and addresses have the same meaning as for its own formats, and
names that begin with `_` or `.` are skipped. The workers open local paths and Arrow's file systems;
for other addresses, Spark reads whole files.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal
from urllib.parse import quote, unquote

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from contrada.errors import InputError, StoreError
from contrada.integrations.files.lines import DataFile, FileLimits
from contrada.integrations.spark.pipeline.hadoop_paths import Folder

LOCAL: Final = "file"
SCHEMES: Final[dict[str, str]] = {
    LOCAL: LOCAL,
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""Schemes of addresses that Arrow knows, with Arrow's names for them."""

ANY_AGE: Final = "36500d"
"""By default Spark skips files that are a week older than the newest one."""

_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(/.*)?", re.DOTALL)
_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")
_FILES: Final = "path string, modificationTime timestamp, length bigint, content binary"
_GONE: Final = "PATH_NOT_FOUND"


def scheme_of(address: str) -> str:
    """Returns the scheme of an address; that of local files for a path."""
    parts = _ADDRESS.fullmatch(address)
    return LOCAL if parts is None else parts.group(1).lower()


def are_known(addresses: Iterable[str]) -> bool:
    """Whether the workers can open all addresses themselves."""
    return all(scheme_of(each) in SCHEMES for each in addresses)


def list_files(
    session: SparkSession, source: str, paths: Iterable[str], options: Mapping[str, str]
) -> list[str]:
    """Returns the addresses that Spark lists, sorted. Raises InputError without any."""
    paths = list(paths)
    try:
        encoded = binary_files(session, paths, options).inputFiles()
    except AnalysisException as error:
        if error.getCondition() != _GONE:
            raise
        encoded = []
    if not encoded:
        raise InputError(f"source {source!r}", f"found no file for {', '.join(paths)}")
    return sorted(map(unquote, encoded))


def binary_files(
    session: SparkSession, paths: Iterable[str], options: Mapping[str, str]
) -> DataFrame:
    """Returns whole files that Spark reads: `path`, `content` and more."""
    return session.read.format("binaryFile").options(**options).load(list(paths))


def new_files(session: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """Returns the new files at a path as a stream: `path`, `content` and more. Spark skips a file
    that is deleted before its task starts; `files_taken` finds it.
    """
    if scheme_of(path) == LOCAL and os.path.isfile(local_path(path)):
        path = f"{path[:-1]}[{path[-1]}]"  # Spark accepts folders and patterns, but no file name.
    own = {"ignoreMissingFiles": "true", "maxFileAge": ANY_AGE}
    reader = session.readStream.format("binaryFile").schema(_FILES)
    return reader.options(**own | dict(options)).load(path)


def check_exists(source: str, path: str) -> None:
    """Raises InputError for a local path without its folder: a stream would wait for ever. The
    files of a pattern may appear later; the folder before its first wildcard must exist.
    """
    if scheme_of(path) != LOCAL:
        return
    whole = Path(local_path(path))
    pattern = [place for place, part in enumerate(whole.parts) if _PATTERN.search(part)]
    there = Path(*whole.parts[: pattern[0]]) if pattern else whole
    if not there.exists():
        named = "" if there == whole else f", named by {path}"
        raise InputError(f"source {source!r}", f"found nothing at {there}{named}")


def display_name(address: str, beside: str | None) -> str:
    """Returns the name of a file in results: a local one relative to `beside`, if given."""
    if scheme_of(address) != LOCAL:
        return address
    path = local_path(address)
    return path if beside is None else os.path.relpath(path, beside)


def local_path(address: str) -> str:
    """Returns the path of a local address."""
    return re.sub(r"^file:(//)?", "", address)


def open_file(address: str, content: bytes | None = None) -> DataFile:
    """Returns the file at an address. Raises InputError for a scheme that Arrow does not know."""
    scheme = scheme_of(address)
    if content is None and scheme == LOCAL:
        return Path(local_path(address))
    if content is None and scheme not in SCHEMES:
        reason = f"found the scheme {scheme!r}, expected one of {', '.join(SCHEMES)}"
        raise InputError(address, reason)
    return _AddressedFile(address, content)


@dataclass(frozen=True)
class _AddressedFile:
    """A file whose content is in memory, or one in Arrow's file systems."""

    address: str
    content: bytes | None

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.address).suffix

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        if self.content is not None:
            return io.BytesIO(self.content)
        from pyarrow import ArrowException, fs  # It would cost each worker 50 ms.

        parts = _ADDRESS.fullmatch(self.address)
        assert parts is not None
        scheme, authority, path = parts.groups(default="")
        uri = f"{SCHEMES[scheme.lower()]}:{authority}{quote(path)}"
        try:
            system, place = fs.FileSystem.from_uri(uri)
            raw: Any = system.open_input_file(place)
        except ArrowException as error:
            raise OSError(str(error)) from error
        return io.BufferedReader(raw, FileLimits().block_bytes)

    def __str__(self) -> str:
        return self.address


# --- the files of a micro-batch -------------------------------------------------------------------

GONE: Final = "removed before it was read"
"""The reason of a file that Spark selected and no task received."""

CHANGED: Final = "changed since it was found: move complete files to their place"
"""The reason of a file that was written, replaced or cut off, so that half a record may be read."""

_LOG_VERSION: Final = "v1"


class _Offset(msgspec.Struct, frozen=True):
    entry: int | None = msgspec.field(default=None, name="logOffset")


class TakenFile(msgspec.Struct, frozen=True):
    """A file that Spark selected, and the time of its last change before that."""

    address: str = msgspec.field(name="path")
    changed_ms: int = msgspec.field(name="timestamp")
    entry: int = msgspec.field(name="batchId")

    def fault(self) -> str | None:
        """Returns GONE or CHANGED, or None. Elsewhere a check costs too much: always GONE."""
        if scheme_of(self.address) != LOCAL:
            return GONE
        try:
            changed_ms = os.stat(local_path(self.address)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return GONE
        return None if changed_ms == self.changed_ms else CHANGED


def files_taken(checkpoint: Folder, batch: int, source: int) -> list[TakenFile]:
    """Returns a source's files in a micro-batch, from Spark's log. Empty for a source without
    files. Raises StoreError for a log that Spark did not write.

        CHECKPOINT/query/offsets/BATCH            the last entry of each source, a line for each
        CHECKPOINT/query/sources/N/ENTRY          a line of JSON for each file
        CHECKPOINT/query/sources/N/ENTRY.compact  those of all entries up to this one
    """
    query = checkpoint / "query"
    last = _last_entry(query, batch, source)
    before = _last_entry(query, batch - 1, source) if batch else -1
    entries = range(before + 1, last + 1)
    return [file for entry in entries for file in _entry(query / "sources" / str(source), entry)]


def _last_entry(query: Folder, batch: int, source: int) -> int:
    """Returns the last entry of a source up to a micro-batch; -1 before the first."""
    found = _lines(query / "offsets" / str(batch))
    try:
        offset = msgspec.json.decode(found[1 + source], type=_Offset | None)
    except (IndexError, msgspec.DecodeError):
        return -1  # It has no entry yet, or is no source of files.
    return -1 if offset is None or offset.entry is None else offset.entry


def _entry(folder: Folder, entry: int) -> Iterator[TakenFile]:
    place = folder / str(entry)
    if not place.exists():
        later = [each for each in folder.glob("*.compact") if int(each.stem) >= entry]
        place = min(later, key=lambda each: int(each.stem), default=place)
    for line in _lines(place):
        taken = msgspec.json.decode(line, type=TakenFile)
        if taken.entry == entry:
            yield msgspec.structs.replace(taken, address=unquote(taken.address))


def _lines(file: Folder) -> list[str]:
    try:
        version, *lines = file.read_bytes().decode().splitlines()
    except FileNotFoundError:
        raise StoreError(f"{file}: the log of a micro-batch is missing") from None
    if version != _LOG_VERSION:
        raise StoreError(f"{file}: found {version!r}, expected {_LOG_VERSION}")
    return lines
