"""An index in one file, mapped by as many processes as want it.

The file is a header and the arrays of the store as they are. Loading maps them copy on write:
pages that nobody changes are shared between processes, and what one process adds to its index
stays its own. What is no array (names, sets, keys) stands in the header as msgpack.

    8 bytes  magic and version
    8 bytes  length of the header
    header   msgpack
    arrays   each at a multiple of 64 bytes
"""

import os
import struct
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from contrada.errors import ContradaError, EncodingError
from contrada.matching.generation import Generation
from contrada.matching.kernels.schema import ARRAYS, STORE
from contrada.matching.slots import Slots
from contrada.model.encoding import from_msgpack, to_msgpack

MAGIC: Final = b"CTRIDX\x00\x06"
ALIGNMENT: Final = 64
HEADER_BYTES_MAX: Final = 2**32
"""Bytes of the header of a saved index. Beyond it: EncodingError."""

_DAMAGED: Final = (
    *(struct.error, msgspec.MsgspecError, LookupError, TypeError, ValueError),
    *(AttributeError, OverflowError),
)
"""What comes of a header whose parts are not what they should be."""


def save(path: Path, generation: Generation, slots: Slots[Any]) -> None:
    """Writes a generation and whose filters it holds. Replaces the file at once.

    Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples of
    these.
    """
    arrays = {name: generation.arrays.saved(name) for name in STORE}
    keys = slots.by_slot()
    try:
        packed_keys = msgspec.msgpack.encode(keys)
        if [_as_key(key) for key in msgspec.msgpack.decode(packed_keys)] != keys:
            raise TypeError
    except (TypeError, OverflowError) as error:
        reason = "keys must be None, bool, int, float, str, bytes or tuples of these"
        raise EncodingError("the keys of an index", reason) from error
    header = {
        "arrays": {name: (len(array), int(array.nbytes)) for name, array in arrays.items()},
        "used": {name: generation.arrays.used[name] for name in STORE},
        "state": generation.state(to_msgpack),
        "keys": packed_keys,
        "free": slots.free,
    }
    packed = msgspec.msgpack.encode(header)
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        file.write(MAGIC + struct.pack("<Q", len(packed)) + packed)
        for array in arrays.values():
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(np.ascontiguousarray(array).tobytes())
    beside.replace(path)


def load(path: Path) -> tuple[Generation, Slots[Any]]:
    """What `save` wrote; the arrays are mapped. Raises EncodingError, OSError."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise EncodingError(str(path), "not an index of this version")
            (length,) = struct.unpack("<Q", file.read(8))
            if length > HEADER_BYTES_MAX:
                raise EncodingError(str(path), "its header is too long")
            header = msgspec.msgpack.decode(file.read(length))
        generation = Generation()
        arrays = _mapped(path, len(MAGIC) + 8 + length, header["arrays"])
        if any(header["used"][name] > len(array) for name, array in arrays.items()):
            raise ValueError("used")  # kernels would look for rows behind the end
        generation.restore(arrays, header["used"], header["state"], from_msgpack)
        keys = [_as_key(key) for key in msgspec.msgpack.decode(header["keys"])]
        slots: Slots[Any] = Slots.of(keys, list(header["free"]))
    except (ContradaError, OSError):
        raise
    except _DAMAGED as error:
        raise EncodingError(str(path), f"damaged ({type(error).__name__})") from error
    return generation, slots


def _mapped(path: Path, at: int, sizes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in STORE:
        rows, nbytes = sizes[name]
        at += -at % ALIGNMENT
        if rows < 1 or rows * ARRAYS[name].itemsize != nbytes:
            raise ValueError(name)
        mapped = np.memmap(path, dtype=ARRAYS[name], mode="c", offset=at, shape=(rows,))
        found[name] = np.asarray(mapped)
        at += nbytes
    return found


def _as_key(key: Any) -> Any:
    return tuple(map(_as_key, key)) if isinstance(key, list) else key
