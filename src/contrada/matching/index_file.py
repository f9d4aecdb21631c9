"""The file of a saved index, mapped by any number of processes.

The file is a header and the arrays unchanged. Loading maps them copy on write: processes share
unchanged pages, and the additions of one process to its index are its own. Names, sets and keys are
in the header as msgpack.

    8 bytes  magic and version
    4 bytes  CRC-32 of the rest
    8 bytes  length of the header
    header   msgpack
    arrays   each at a multiple of 64 bytes

The sum detects a damaged file, not a malicious one: the contents of arrays are not checked. So load
only files that you or a trusted person saved.
"""

import mmap
import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, EncodingError
from contrada.file_replacement import replace_file
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import ARRAYS, STORE
from contrada.matching.key_table import KeyTable
from contrada.matching.segment import IndexSegment
from contrada.model.codec import from_msgpack, to_msgpack

MAGIC: Final = b"CTRIDX\x00\x11"
ALIGNMENT: Final = 64
_FIRST: Final = struct.Struct("<8sI")
_LENGTH: Final = struct.Struct("<Q")

_DAMAGED: Final = (
    *(struct.error, msgspec.MsgspecError, LookupError, TypeError, ValueError),
    *(AttributeError, OverflowError),
)
"""The errors of a header with invalid parts."""


def save(path: Path, segment: IndexSegment, slots: KeyTable[Any]) -> None:
    """Writes a segment and the keys of its slots. Replaces the file atomically.

    Raises EncodingError for keys that are not None, bool, int of 64 bits, float, str, bytes, or
    tuples of these.
    """
    arrays = {name: segment.arrays.used_rows(name) for name in STORE}
    keys = slots.by_slot()
    try:
        packed_keys = msgspec.msgpack.encode(keys)
        if [_as_key(key) for key in msgspec.msgpack.decode(packed_keys)] != keys:
            raise TypeError
    except (TypeError, OverflowError) as error:
        reason = "keys must be None, bool, int of 64 bits, float, str, bytes or tuples of these"
        raise EncodingError("the keys of an index", reason, writing=True) from error
    header = {
        "arrays": {name: array.nbytes // ARRAYS[name].row_bytes for name, array in arrays.items()},
        "used": {name: segment.arrays.used[name] for name in STORE},
        "state": segment.state(to_msgpack),
        "keys": packed_keys,
        "free": slots.free,
    }
    packed = msgspec.msgpack.encode(header)
    checksum = 0
    for part in _parts(packed, arrays):
        checksum = zlib.crc32(part, checksum)
    replace_file(path, chain([_FIRST.pack(MAGIC, checksum)], _parts(packed, arrays)))


def _parts(header: bytes, arrays: dict[str, Any]) -> Iterator[Any]:
    yield _LENGTH.pack(len(header)) + header
    at = _FIRST.size + _LENGTH.size + len(header)
    for array in arrays.values():
        yield bytes(-at % ALIGNMENT)
        yield array.cast("B")
        at += -at % ALIGNMENT + array.nbytes


def load(path: Path) -> tuple[IndexSegment, KeyTable[Any]]:
    """Maps the output of `save`. Raises EncodingError, OSError."""
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        magic, checksum = _FIRST.unpack(data[: _FIRST.size])
        if magic != MAGIC:
            raise EncodingError(str(path), "not an index of this version")
        if zlib.crc32(data[_FIRST.size :]) != checksum:
            raise EncodingError(str(path), "damaged: its checksum is another")
        (length,) = _LENGTH.unpack_from(data, _FIRST.size)
        end = _FIRST.size + _LENGTH.size + length
        header = msgspec.msgpack.decode(data[end - length : end])
        segment = IndexSegment()
        arrays = _map_arrays(data, end, header["arrays"])
        if any(header["used"][name] > len(array) for name, array in arrays.items()):
            raise ValueError("used")  # kernels would look for rows behind the end
        segment.restore(arrays, header["used"], header["state"], from_msgpack)
        keys = [_as_key(key) for key in msgspec.msgpack.decode(header["keys"])]
        slots: KeyTable[Any] = KeyTable.of(keys, list(header["free"]))
    except (ContradaError, OSError):
        raise
    except _DAMAGED as error:
        raise EncodingError(str(path), f"damaged ({type(error).__name__})") from error
    return segment, slots


def _map_arrays(data: memoryview, at: int, rows: dict[str, int]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for name in STORE:
        at += -at % ALIGNMENT
        end = at + rows[name] * ARRAYS[name].row_bytes
        if rows[name] < 1 or end > len(data):
            raise ValueError(name)
        found[name] = Rows(ARRAYS[name], data[at:end])
        at = end
    return found


def _as_key(key: Any) -> Any:
    return tuple(map(_as_key, key)) if isinstance(key, list) else key
