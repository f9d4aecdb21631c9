"""Numba's types for compiled kernels: the memory, entries, and some operations.

In a kernel the memory is one pointer, to the table of addresses and lengths of `Arrays`, and so is
each array of it. The address of an array is read from the table with a row. The table never changes
while compiled code runs, and the compiler knows that: it reads the address once.
"""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args, get_origin

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    register_model,
)

from contrada.matching.kernels import jit
from contrada.matching.kernels.schema import (
    ARRAYS,
    COLUMN,
    Bytes,
    Flags,
    GivenBytes,
    GivenColumns,
    GivenInts,
    Grid,
    Ints,
    Memory,
    RowNumbers,
)

# Numba has no types for these, and reads the following code itself: annotations are of no use.
_of_numba: Any = numba, cgutils, intrinsic, lower_getattr_generic, lower_builtin, signature
_numba, _code, _intrinsic, _lower_getattr, _lower, _signature = _of_numba
_infer: Any = infer_global
_init_struct: Any = models.StructModel.__init__
_tuple_of: Any = types.BaseTuple.from_types
_WORD = ir.IntType(64)


class MemoryType(types.Type):
    """The type of a memory."""

    def __init__(self) -> None:
        super().__init__("Memory")


class RowsType(types.Type):
    """The type of an array of the memory. Its rows are counted from 0 up: none is negative."""

    def __init__(self, name: str) -> None:
        self.dtype = _numba.from_dtype(ARRAYS[name])
        self.row_bytes = ARRAYS[name].itemsize
        self.place = _PLACES[name]
        super().__init__(f"Rows({name})")


class BytesType(types.Type):
    """The type of bytes in memory: their address and their number. They are counted from 0 up.

    An array is seven numbers, with a count of its references: to pass one to each of the small
    kernels for bytes takes longer than the kernel itself.
    """

    def __init__(self) -> None:
        super().__init__("BytesAt")


@register_model(BytesType)
class _BytesModel(models.StructModel):
    def __init__(self, manager: Any, of: Any) -> None:
        _init_struct(self, manager, of, [("address", types.int64), ("length", types.int64)])


_PLACES = {name: 2 * place for place, name in enumerate(ARRAYS)}
_memory = MemoryType()
_bytes = BytesType()
_rows = {name: RowsType(name) for name in ARRAYS}
for kind in (MemoryType, RowsType):
    register_model(kind)(models.OpaqueModel)


def _read(builder: Any, table: Any, place: int) -> Any:
    """Returns the code that reads a number of the table, which never changes meanwhile."""
    numbers = builder.bitcast(table, _WORD.as_pointer())
    number = builder.load(builder.gep(numbers, [_WORD(place)]))
    number.set_metadata("invariant.load", builder.module.add_metadata([]))
    return number


def _row_at(context: Any, builder: Any, of: Any, table: Any, row: Any, row_type: Any) -> Any:
    """Returns the code that finds the beginning of a row."""
    pointer = context.get_data_type(of.dtype).as_pointer()
    begin = builder.inttoptr(_read(builder, table, of.place), _code.voidptr_t)
    number = context.cast(builder, row, row_type, types.int64)
    offset = builder.mul(number, _WORD(of.row_bytes))
    return builder.bitcast(builder.gep(begin, [offset]), pointer)


@infer_getattr
class _RowsOfMemory(AttributeTemplate):
    key = MemoryType

    def generic_resolve(self, _of: Any, name: str) -> Any:  # type: ignore[override]
        return _rows.get(name)


@_lower_getattr(MemoryType)
def _rows_of_memory(_context: Any, _builder: Any, _of: Any, memory: Any, _name: str) -> Any:
    return memory


@_infer(operator.getitem)
class _GetRow(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        if isinstance(args[0], RowsType) and isinstance(args[1], types.Integer):
            return _signature(args[0].dtype, *args)
        return None


@_lower(operator.getitem, RowsType, types.Integer)
def _get_row(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    of, row_type = sig.args
    table, row = args
    place = _row_at(context, builder, of, table, row, row_type)
    return context.unpack_value(builder, of.dtype, place)


@_infer(operator.setitem)
class _SetRow(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        if isinstance(args[0], RowsType) and isinstance(args[1], types.Integer):
            return _signature(types.none, args[0], args[1], args[0].dtype)
        return None


@_lower(operator.setitem, RowsType, types.Integer, types.Any)
def _set_row(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    of, row_type, _ = sig.args
    table, row, value = args
    place = _row_at(context, builder, of, table, row, row_type)
    context.pack_value(builder, of.dtype, value, place)
    return context.get_dummy_value()


@_infer(len)
class _LengthOfRows(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        return _signature(types.intp, *args) if isinstance(args[0], RowsType) else None


@_lower(len, RowsType)
def _length_of_rows(_context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _read(builder, args[0], sig.args[0].place + 1)


def _bytes_made(context: Any, builder: Any, address: Any, length: Any) -> Any:
    """Returns the code that makes bytes in memory from their address and their number."""
    made = context.make_helper(builder, _bytes)
    made.address, made.length = address, length
    return made._getvalue()


@_infer(operator.getitem)
class _GetByte(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        if args[0] is _bytes and isinstance(args[1], types.Integer):
            return _signature(types.int64, *args)
        return None


@_lower(operator.getitem, BytesType, types.Integer)
def _get_byte(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    held = context.make_helper(builder, _bytes, args[0])
    at = context.cast(builder, args[1], sig.args[1], types.int64)
    place = builder.inttoptr(builder.add(held.address, at), _code.voidptr_t)
    return builder.zext(builder.load(place), _WORD)


@_infer(len)
class _LengthOfBytes(AbstractTemplate):
    def generic(self, args: Any, _kws: Any) -> Any:
        return _signature(types.intp, *args) if args[0] is _bytes else None


@_lower(len, BytesType)
def _length_of_bytes(context: Any, builder: Any, _sig: Any, args: Any) -> Any:
    return context.make_helper(builder, _bytes, args[0]).length


@_intrinsic
def memory_at(_typing: Any, address: Any) -> Any:
    """Returns the memory with this table of addresses; a memory itself if a kernel passes it on."""

    def generate(_context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if sig.args[0] is _memory:
            return arguments[0]
        return builder.inttoptr(arguments[0], _code.voidptr_t)

    return _memory(address), generate


@contextmanager
def _cached() -> Iterator[None]:
    """Lets Numba use the cache folder for exactly this text of the kernels."""
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(jit.cache_folder())
    try:
        yield
    finally:
        config.CACHE_DIR = before


def kernel(function: Any) -> Any:
    """Marks a function that only kernels call."""
    with _cached():
        return numba.njit(cache=True, nogil=True)(function)


_KINDS: dict[Any, Any] = {
    int: types.int64,
    bool: types.boolean,
    float: types.float64,
    Memory: types.int64,
    bytes: types.Bytes(types.uint8, 1, "C", readonly=True),
    Ints: types.int64[::1],
    RowNumbers: types.int32[::1],
    GivenColumns: types.Array(_numba.from_dtype(COLUMN), 1, "C"),
    Bytes: types.uint8[::1],
    Flags: types.boolean[::1],
    Grid: types.int64[:, ::1],
    GivenInts: types.Array(types.int64, 1, "C", readonly=True),
    GivenBytes: types.Array(types.uint8, 1, "C", readonly=True),
}
"""The types of the arguments of entries, by annotation."""


def _kind(annotated: Any) -> Any:
    if get_origin(annotated) is tuple:
        return _tuple_of(tuple(map(_kind, get_args(annotated))))
    return _KINDS[annotated]


def entry(function: Callable[..., Any]) -> Any:
    """Marks a function that Python calls. It is compiled, or loaded, now, for its annotated types.

    And once more for a kernel that calls it. The global lock is not held while it runs.
    """
    kinds = [each for name, each in function.__annotations__.items() if name != "return"]
    compiled = kernel(function)
    with _cached():
        compiled.compile(tuple(map(_kind, kinds)))
    return compiled


def array_entry(function: Callable[..., Any]) -> Any:
    """Marks a function for Python alone, as `entry`: never compiled for other types.

    A read-only argument may be a writable array, too.
    """
    compiled = entry(function)
    compiled.disable_compile()
    return compiled


@numba.njit(inline="always")
def double_bits(number: Any) -> Any:
    """Returns the bits of the double nearest to a number, as a signed integer."""
    return np.float64(number).view(np.int64)


@_intrinsic
def _pointer_at(_typing: Any, address: Any) -> Any:
    """Returns an address as a pointer."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _code.voidptr_t)

    return types.voidptr(address), generate


@numba.njit(inline="always")
def number_at(address: Any, row: Any, kind: Any) -> Any:
    """Returns a number of a type in memory."""
    return _numba.carray(_pointer_at(address), (row + 1,), kind)[row]


@_intrinsic
def bytes_at(_typing: Any, address: Any, length: Any) -> Any:
    """Returns bytes in memory, by address and length."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        length = context.cast(builder, arguments[1], sig.args[1], types.int64)
        return _bytes_made(context, builder, arguments[0], length)

    return _bytes(types.int64, length), generate


@_intrinsic
def bytes_of(_typing: Any, text: Any) -> Any:
    """Returns the bytes of a text that Python passed, and keeps alive."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        held = context.make_helper(builder, sig.args[0], arguments[0])
        return _bytes_made(context, builder, builder.ptrtoint(held.data, _WORD), held.nitems)

    return _bytes(text), generate


def _place_in(context: Any, builder: Any, array_type: Any, given: Any, kind: Any) -> Any:
    """Returns the code that finds a position in an array of bytes: the first two arguments."""
    held = context.make_array(array_type)(context, builder, given[0]).data
    return builder.bitcast(builder.gep(held, [given[1]]), kind.as_pointer())


@_intrinsic
def byte_at(_typing: Any, data: Any, at: Any) -> Any:
    """Returns a byte of an array, at a position that is not negative."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = _place_in(context, builder, sig.args[0], arguments, ir.IntType(8))
        return builder.zext(builder.load(place), _WORD)

    return types.int64(data, types.int64), generate


@_intrinsic
def _word_at(_typing: Any, data: Any, at: Any) -> Any:
    """Eight bytes of an array as a number."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = _place_in(context, builder, sig.args[0], arguments, _WORD)
        return builder.load(place, align=1)

    return types.uint64(data, types.int64), generate


@_intrinsic
def _put_word(_typing: Any, data: Any, at: Any, word: Any) -> Any:
    """Puts eight bytes into an array."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = _place_in(context, builder, sig.args[0], arguments, _WORD)
        builder.store(arguments[2], place, align=1)
        return context.get_dummy_value()

    return types.none(data, types.int64, types.uint64), generate


@_intrinsic
def _first_byte(_typing: Any, marks: Any) -> Any:
    """Returns the first of eight bytes with a bit set; 8 without one."""

    def generate(_context: Any, builder: Any, _sig: Any, arguments: Any) -> Any:
        zeros = builder.cttz(arguments[0], ir.IntType(1)(0))
        return builder.lshr(zeros, _WORD(3))

    return types.int64(types.uint64), generate


# A byte is marked by its highest bit. Behind the first that is marked others may be, too.
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS, _ZEROS = np.uint64(0x2020202020202020), np.uint64(0x3030303030303030)
_LINE_FEEDS, _LOWS = np.uint64(0x0A0A0A0A0A0A0A0A), ~_HIGHS
_TO_HIGH = np.uint64(0x7676767676767676)


@numba.njit(inline="always")
def plain_bytes(data: Any, at: Any) -> Any:
    """Returns the number of bytes, of eight, before a quote, a backslash or a control character."""
    word = _word_at(data, at)
    quote, slash = word ^ _QUOTES, word ^ _BACKSLASHES
    marks = ((quote - _ONES) & ~quote) | ((slash - _ONES) & ~slash) | ((word - _BLANKS) & ~word)
    return _first_byte(marks & _HIGHS)


@numba.njit(inline="always")
def sign_marks(data: Any, at: Any, sign: Any, other: Any) -> Any:
    """Marks, of eight bytes, exactly those that are one of two signs or LF, by their highest
    bits.
    """
    word = _word_at(data, at)
    one, two = word ^ (np.uint64(sign) * _ONES), word ^ (np.uint64(other) * _ONES)
    end = word ^ _LINE_FEEDS
    others = (one | ((one & _LOWS) + _LOWS)) & (two | ((two & _LOWS) + _LOWS))
    return ~(others & (end | ((end & _LOWS) + _LOWS))) & _HIGHS


@numba.njit(inline="always")
def first_marked(marks: Any) -> Any:
    """Returns the first marked one of eight bytes; 8 without one."""
    return _first_byte(marks)


@numba.njit(inline="always")
def without_first(marks: Any) -> Any:
    """Returns the marks without the first of them."""
    return marks & (marks - np.uint64(1))


@numba.njit(inline="always")
def digits_at(data: Any, at: Any) -> Any:
    """Returns the number of digits among eight bytes before another byte."""
    word = _word_at(data, at) ^ _ZEROS
    return _first_byte(((word + _TO_HIGH) | word) & _HIGHS)


@numba.njit(inline="always")
def are_same(data: Any, at: Any, other: Any, begin: Any, size: Any) -> Any:
    """Whether `size` bytes are the same; behind both eight more can be read."""
    step = 0
    while step + 8 <= size:
        if _word_at(data, at + step) != _word_at(other, begin + step):
            return False
        step += 8
    differing = _word_at(data, at + step) ^ _word_at(other, begin + step)
    return _first_byte(differing) >= size - step


@numba.njit(inline="always")
def put_bytes(data: Any, at: Any, out: Any, begin: Any, size: Any) -> None:
    """Copies `size` bytes, and maybe some of the next eight."""
    for step in range(0, size, 8):
        _put_word(out, begin + step, _word_at(data, at + step))


@_intrinsic
def prefetch(_typing: Any, rows: Any, row: Any) -> Any:
    """Prefetches a row of an array."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        table, number = arguments
        place = _row_at(context, builder, rows, table, number, row)
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_code.voidptr_t, flag, flag, flag])
        function = _code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = flag(0), flag(3), flag(1)
        builder.call(function, [builder.bitcast(place, _code.voidptr_t), read, keep, data])
        return context.get_dummy_value()

    return types.none(rows, row), generate
