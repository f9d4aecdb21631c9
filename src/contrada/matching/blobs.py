"""`Blobs`: many byte strings one behind another, as Arrow has them; and columns written as such.

Without Numba the same is done by Python, string by string.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from contrada.matching.kernels import jit


class Blobs(NamedTuple):
    """Byte strings: string i is `data[starts[i] : starts[i + 1]]`."""

    starts: Any
    data: Any

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.starts) - 1

    def each(self) -> Iterator[bytes]:
        """The strings."""
        data, starts = self.data.tobytes(), self.starts.tolist()
        return (data[begin:end] for begin, end in pairwise(starts))

    def at(self, row: int) -> bytes:
        """One string."""
        found: bytes = self.data[self.starts[row] : self.starts[row + 1]].tobytes()
        return found

    def taken(self, rows: Any) -> "Blobs":
        """The strings of some rows. Cost: a copy."""
        starts = starts_of((self.starts[1:] - self.starts[:-1])[rows])
        data = np.empty(starts[-1], dtype=np.uint8)
        if not jit.is_pure():
            rows = np.ascontiguousarray(rows, dtype=np.int64)
            _writing().gather(self.starts, self.data, rows, starts, data)
        elif len(data):
            data[:] = np.frombuffer(b"".join(map(self.at, rows.tolist())), dtype=np.uint8)
        return Blobs(starts, data)

    def codes(self) -> tuple[Any, Any]:
        """A number for each string, equal ones the same, in the order of their first rows.

        And these rows.
        """
        found = np.empty(self.size, dtype=np.int64)
        if jit.is_pure():
            numbers: dict[bytes, int] = {}
            for row, each in enumerate(self.each()):
                found[row] = numbers.setdefault(each, len(numbers))
            return found, np.unique(found, return_index=True)[1]
        table = np.full(1 << (2 * self.size + 1).bit_length(), -1, dtype=np.int64)
        firsts = np.empty(self.size, dtype=np.int64)
        count = _writing().codes(self.starts, self.data, table, firsts, found)
        return found, firsts[:count]

    def parts(self, count: int) -> Any:
        """To which of so many parts each string belongs: the same in every process."""
        found = np.empty(self.size, dtype=np.int64)
        _writing().parts_of(self.starts, self.data, count, found)
        return found


def starts_of(lengths: Any) -> Any:
    """Where strings of these lengths begin, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def joined(some: Sequence[Blobs]) -> Blobs:
    """The strings of all, one behind another. Cost: a copy, where there are several."""
    some = [each for each in some if each.size] or list(some[:1])
    if len(some) == 1:
        return some[0]
    data = np.concatenate([each.data[each.starts[0] : each.starts[-1]] for each in some])
    return Blobs(starts_of(np.concatenate([np.diff(each.starts) for each in some])), data)


def blobs_of(strings: Sequence[bytes]) -> Blobs:
    """The strings as blobs. Cost: a copy."""
    lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    return Blobs(starts_of(lengths), np.frombuffer(bytearray().join(strings), dtype=np.uint8))


def blobs_in(column: Any) -> Blobs:
    """The strings of an Arrow column of binary values or texts, where they lie; NULL is empty."""
    wide = np.int64 if str(column.type).startswith("large") else np.int32
    _, starts, data = column.buffers()
    if not len(column) or data is None or not data.size:
        return Blobs(np.zeros(len(column) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8))
    begin, end = column.offset, column.offset + len(column) + 1
    held = np.frombuffer(data, dtype=np.uint8)
    return Blobs(np.frombuffer(starts, dtype=wide)[begin:end].astype(np.int64), held)


def _writing() -> Any:
    """The kernels, which are loaded when they are asked for first."""
    from contrada.matching.kernels import writing

    return writing
