"""The index's memory in Python, and `entry` and `kernel`: functions that are compiled ahead.

A kernel is an ordinary function on integers and on the arrays of `schema`, element by element. It
gets all of them as one *memory*, `m`, with `m.buckets[row].length` as a number. A function that
Python calls is an `entry`. `native/source.py` translates both to Cython, as one module
`contrada._native`: every integer has 64 bits, by the annotations arguments are numbers, texts,
arrays or the memory.

Where that module is missing, the same functions run as they are on views of the same arrays, with
every access checked: right and slow. Tests do so, too.

Integers fit into 64 bits by construction: hashes have 31 or 32 bits and are multiplied by at most
26.
"""

import ctypes
import functools
import mmap
import struct
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeVar

from contrada.matching.kernels.schema import Bytes, Layout, Marks
from contrada.model.native import NATIVE

_F = TypeVar("_F", bound=Callable[..., Any])

MAPPED_BYTES_MIN: Final = 2**20
"""Bytes of an array from which on it is mapped: pages are only used when they are written."""

_PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
"""Mapped arrays are those of one process: by default a forked one would share what it writes."""


class _Row:
    """A row as kernels see it without compilation."""

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: "Rows", row: int) -> None:
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> int:
        return getattr(self._rows, name)[self._row]

    def __setattr__(self, name: str, value: int) -> None:
        getattr(self._rows, name)[self._row] = int(value)


class Rows:
    """An array: `rows.length[row]`, or `rows.numbers[row]` without names; it has `size` rows."""

    def __init__(self, layout: Layout, buffer: Any) -> None:
        """The buffer has whole rows."""
        self.numbers: memoryview = memoryview(buffer).cast("B").cast(layout.code)  # type: ignore[call-overload]
        self.layout = layout
        self.size = len(self.numbers) // max(1, len(layout.fields))

    @classmethod
    def zeros(cls, layout: Layout, count: int) -> "Rows":
        """Returns rows of zeros."""
        size = count * layout.row_bytes
        if size < MAPPED_BYTES_MIN:
            return cls(layout, bytearray(size))
        return cls(layout, mmap.mmap(-1, size, **_PRIVATE))

    def __getattr__(self, name: str) -> Any:
        """Returns the numbers of a field; they are kept from the first access on.

        Most fields are only read by kernels: the views of all took half the bytes of a small index.
        """
        fields = self.layout.fields
        if name not in fields:
            raise AttributeError(name)
        found = self.numbers[fields.index(name) :: len(fields)]
        setattr(self, name, found)
        return found

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> _Row:
        if not 0 <= row < self.size:
            raise IndexError(row)
        return _Row(self, row)

    def __setitem__(self, row: int, other: _Row) -> None:
        for name in self.layout.fields:
            setattr(self[row], name, getattr(other, name))

    def part(self, first: int, end: int) -> memoryview:
        """Returns the numbers of some rows."""
        width = max(1, len(self.layout.fields))
        return self.numbers[first * width : end * width]


def kernel(function: _F) -> _F:
    """Marks a function that only kernels call."""
    return function


def entry(function: _F) -> _F:
    """Marks a function that Python calls: the compiled one takes its place."""
    if NATIVE is not None:
        return getattr(NATIVE, native_name(function))

    @functools.wraps(function)
    def interpreted(*arguments: Any) -> Any:
        return function(*map(_numbers_of, arguments))

    return interpreted  # type: ignore[return-value]


array_entry = entry
"""As `entry`: the compiled one releases the global lock while it runs."""


def native_name(function: Callable[..., Any]) -> str:
    """Returns the name of a function in the compiled module."""
    return f"{function.__module__.rpartition('.')[2]}_{function.__name__}"


def _numbers_of(argument: Any) -> Any:
    """Returns the numbers of an array as Python's: those of NumPy would overflow at other sizes."""
    if isinstance(argument, tuple):
        return type(argument)(*map(_numbers_of, argument))
    is_array = hasattr(argument, "__array_interface__")
    return memoryview(argument) if is_array else argument


def address_of(memory: Any) -> int:
    """Returns the address of writable memory, which the caller keeps alive."""
    if NATIVE is not None:
        return NATIVE.address_of(memory)
    view = memoryview(memory).cast("B")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0


def numbers(count: int) -> "array[int]":
    """Returns an array of zeros, of 64 bits each."""
    return array("q", bytes(8 * count))


# --- operations that the translation has in C -----------------------------------------------------


def double_bits(number: float) -> int:
    """Returns the bits of the double nearest to a number, as a signed integer."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


_WORD: Final = 2**64 - 1
_NUMBERS: Final[dict[str, Any]] = {
    "b": ctypes.c_int8,
    "h": ctypes.c_int16,
    "i": ctypes.c_int32,
    "q": ctypes.c_int64,
    "B": ctypes.c_uint8,
    "H": ctypes.c_uint16,
    "I": ctypes.c_uint32,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}


def number_at(address: int, row: int, code: str) -> Any:
    """Returns a number of a type in memory; `code` as in `struct`."""
    kind = _NUMBERS[code]
    return kind.from_address(address + row * ctypes.sizeof(kind)).value


def bytes_at(address: int, length: int) -> Bytes:
    """Returns bytes in memory, by address and length."""
    return memoryview((ctypes.c_uint8 * length).from_address(address)).cast("B")


def plain_bytes(data: Bytes, at: int) -> int:
    """Returns the number of bytes, of eight, before a quote, a backslash or a control character."""
    found = enumerate(data[at : at + 8])
    return next((n for n, each in found if each < 0x20 or each in b'"\\'), 8)


def sign_marks(data: Bytes, at: int, sign: int, other: int) -> Marks:
    """Marks, of eight bytes, those that are one of two signs or LF, by their highest bits."""
    found = enumerate(data[at : at + 8])
    return sum(0x80 << 8 * n for n, each in found if each in (sign, other, 0x0A))


def first_marked(marks: Marks) -> int:
    """Returns the first marked one of eight bytes; 8 without one."""
    return (marks & -marks).bit_length() // 8 - 1 if marks else 8


def without_first(marks: Marks) -> Marks:
    """Returns the marks without the first of them."""
    return marks & (marks - 1)


def digits_at(data: Bytes, at: int) -> int:
    """Returns the number of digits among eight bytes before another byte."""
    found = enumerate(data[at : at + 8])
    return next((n for n, each in found if not 0x30 <= each <= 0x39), 8)


def are_same(data: Bytes, at: int, other: Bytes, begin: int, size: int) -> bool:
    """Whether `size` bytes are the same; behind both eight more can be read."""
    return bytes(data[at : at + size]) == bytes(other[begin : begin + size])


def put_bytes(data: Bytes, at: int, out: Bytes, begin: int, size: int) -> None:
    """Copies `size` bytes, and maybe some of the next eight."""
    out[begin : begin + size] = data[at : at + size]


def random_word(key: Marks, at: int) -> Marks:
    """Returns the word of a key at a position: SplitMix64."""
    word = (key + 0x9E3779B97F4A7C15 * at) & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def below(word: Marks, bound: int) -> int:
    """Returns a word as a whole number below a bound of up to 2^32."""
    return (word >> 32) * bound >> 32


def lanes_within(
    lanes: Any,
    count: int,
    at: int,
    low: int,
    high: int,
    other: int,
    other_low: int,
    other_high: int,
) -> int:
    """Returns which of `count` numbers from `at` on, and from `other` on, both lie between two
    ends, which are included: as bits.
    """
    pairs = enumerate(zip(lanes[at : at + count], lanes[other : other + count], strict=True))
    return sum(
        1 << n for n, (one, two) in pairs if low <= one <= high and other_low <= two <= other_high
    )


def first_lane(bits: int) -> int:
    """Returns the number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def prefetch(array: Any, row: int) -> None:
    """Prefetches a row of an array. Only compiled code does so."""
