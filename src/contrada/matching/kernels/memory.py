"""Kernels: functions over the index's arrays that Numba compiles.

A kernel is an ordinary function on integers and on the arrays of `schema`, element by element. It
gets all of them as one *memory*, `m`, with `m.buckets[row].length` as a number. A function that
Python calls is an `entry`: its last argument is the address of the memory, and `memory_at` converts
it. To pass thirty arrays to compiled code would cost more than matching.

Without Numba, or if it is disabled (`jit.is_pure`), the same functions are plain Python on views of
the same arrays, with every access checked. That is for tests, and for a saved index.

Integers fit into 64 bits by construction: hashes have 31 or 32 bits and are multiplied by at most
26. A field of fewer bits is read as `field + 0` before it is shifted or returned: compiled, that is
64 bits from then on.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from contrada.matching.kernels import jit

_F = TypeVar("_F", bound=Callable[..., Any])


class _CheckedRow:
    """A row as kernels see it without compilation."""

    __slots__ = ("_fields", "_row")

    def __init__(self, fields: "Fields", row: int) -> None:
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_row", row)

    def __getattr__(self, name: str) -> int:
        return getattr(self._fields, name)[self._row]  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: int) -> None:
        getattr(self._fields, name)[self._row] = int(value)


class Fields:
    """An array of rows: `fields.length[row]` is twice as fast for Python as `array[row]`."""

    def __init__(self, array: Any) -> None:
        self._rows = len(array)
        for name in array.dtype.names:
            setattr(self, name, array[name].data)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> _CheckedRow:
        if not 0 <= row < self._rows:
            raise IndexError(row)
        return _CheckedRow(self, row)

    def __setitem__(self, row: int, other: _CheckedRow) -> None:
        for name in vars(self).keys() - {"_rows"}:
            setattr(self[row], name, getattr(other, name))


def views_of(array: Any) -> Any:
    """Returns an array for Python: numbers by memory views."""
    return Fields(array) if array.dtype.names else array.data


if jit.is_pure():

    def kernel(function: _F) -> _F:
        """Marks a function that only kernels call."""
        return function

    entry: Any = kernel
    array_entry: Any = kernel

    def memory_at(at: Any) -> Any:
        """Returns the memory of an entry's argument: here it is the arrays themselves."""
        return at

    def double_bits(number: Any) -> Any:
        """Returns the bits of the double nearest to a number, as a signed integer."""
        return struct.unpack("<q", struct.pack("<d", number))[0]

    def number_at(*of: Any) -> Any:
        """Returns a number of a type in memory; only compiled code reads columns."""
        raise NotImplementedError

    bytes_at = number_at

    def bytes_of(text: Any) -> Any:
        """Returns the bytes of a text that Python passed."""
        return text

    def byte_at(data: Any, at: Any) -> Any:
        """Returns a byte of an array, at a position that is not negative."""
        return int(data[at])

    def plain_bytes(data: Any, at: Any) -> Any:
        """The number of bytes, of eight, before a quote, a backslash or a control character."""
        held = data[at : at + 8].tolist()
        return next((n for n, each in enumerate(held) if each < 0x20 or each in b'"\\'), 8)

    def sign_marks(data: Any, at: Any, sign: Any, other: Any) -> Any:
        """Marks, of eight bytes, those that are one of two signs or LF, by their highest bits."""
        held = enumerate(data[at : at + 8].tolist())
        return sum(0x80 << 8 * n for n, each in held if each in (sign, other, 0x0A))

    def first_marked(marks: Any) -> Any:
        """Returns the first marked one of eight bytes; 8 without one."""
        return (marks & -marks).bit_length() // 8 - 1 if marks else 8

    def without_first(marks: Any) -> Any:
        """Returns the marks without the first of them."""
        return marks & (marks - 1)

    def digits_at(data: Any, at: Any) -> Any:
        """Returns the number of digits among eight bytes before another byte."""
        held = data[at : at + 8].tolist()
        return next((n for n, each in enumerate(held) if not 0x30 <= each <= 0x39), 8)

    def are_same(data: Any, at: Any, other: Any, begin: Any, size: Any) -> Any:
        """Whether `size` bytes are the same; behind both eight more can be read."""
        return data[at : at + size].tobytes() == other[begin : begin + size].tobytes()

    def put_bytes(data: Any, at: Any, out: Any, begin: Any, size: Any) -> None:
        """Copies `size` bytes, and maybe some of the next eight."""
        out[begin : begin + size] = data[at : at + size]

    def prefetch(array: Any, row: Any) -> Any:
        """Prefetches a row of an array. Only compiled code does so."""

else:
    from contrada.matching.kernels.native import (  # noqa: F401  handed on
        are_same,
        array_entry,
        byte_at,
        bytes_at,
        bytes_of,
        digits_at,
        double_bits,
        entry,
        first_marked,
        kernel,
        memory_at,
        number_at,
        plain_bytes,
        prefetch,
        put_bytes,
        sign_marks,
        without_first,
    )
