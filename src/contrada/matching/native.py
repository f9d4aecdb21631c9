"""Entries to the compiled kernels that take the addresses of the arrays.

Handing two dozen arrays to compiled code costs more than matching. A table of their addresses
and lengths is one array; here it becomes the named tuples again, inside compiled code. The
arrays must outlive the call and stay where they are: `Arrays` sees to both.
"""

# Numba reads these functions' code; types would tell it nothing.
from typing import Any

import numba
import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from contrada.matching import jit
from contrada.matching.tables import (
    ATTR_COLUMNS,
    BUCKET_COLUMNS,
    C_ATTR,
    C_DATA,
    C_KIND,
    C_OFFSET,
    C_TEXT,
    C_VALID,
    COLUMN_COLUMNS,
    DOUBTED,
    ENTRY_COLUMNS,
    FILTER_COLUMNS,
    KIND_BOOL,
    KIND_DOUBLE,
    KIND_FLOAT,
    KIND_INT8,
    KIND_INT16,
    KIND_INT32,
    KIND_INT64,
    KIND_TEXT,
    KIND_TIME,
    KIND_UINT16,
    KIND_UINT32,
    LINK_COLUMNS,
    MATCHED,
    NEED_FOUND,
    OK,
    OUT,
    POOL_COLUMNS,
    SEEN_ALL,
    SET_COLUMNS,
    SHAPES,
    SKETCH_COLUMNS,
    STATE_COLUMNS,
    TREE_COLUMNS,
    UNREADABLE,
    VALUE_COLUMNS,
    Scratch,
    Store,
    new_array,
)
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US

K: Any = jit.part("kernels")
U: Any = jit.part("updating")
R: Any = jit.part("reading")
S: Any = jit.part("seeking")
V: Any = jit.part("values")
carray: Any = numba.carray  # type: ignore[attr-defined]

_EXERCISED_ROWS = 64
"""A power of two, as of a hash table; no array of fixed size has more."""

_inlined: Any = njit(cache=True, nogil=True, forceinline=True)
"""What is called for each row: to hand all the arrays to it would cost more than what it does."""


@intrinsic
def pointer_at(typing_context: Any, address: Any) -> Any:
    """An address as a pointer, inside compiled code."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = pointer_at


@njit(inline="always")
def _flat(table: Any, i: Any, kind: Any) -> Any:
    return carray(_pointer(table[2 * i]), (table[2 * i + 1],), kind)


@njit(inline="always")
def _rows(table: Any, i: Any, columns: Any, kind: Any) -> Any:
    return carray(_pointer(table[2 * i]), (table[2 * i + 1], columns), kind)


@njit(cache=True, nogil=True)
def store_at(table: Any) -> Any:
    """The store whose arrays' addresses are in the table."""
    return Store(
        _flat(table, 0, numba.int32),
        _rows(table, 1, ATTR_COLUMNS, numba.int64),
        _flat(table, 2, numba.uint8),
        _flat(table, 3, numba.int32),
        _rows(table, 4, BUCKET_COLUMNS, numba.int32),
        _rows(table, 5, ENTRY_COLUMNS, numba.int32),
        _flat(table, 6, numba.int64),
        _rows(table, 7, FILTER_COLUMNS, numba.int32),
        _rows(table, 8, LINK_COLUMNS, numba.int32),
        _flat(table, 9, numba.int32),
        _flat(table, 10, numba.int64),
        _rows(table, 11, SET_COLUMNS, numba.int64),
        _rows(table, 12, TREE_COLUMNS, numba.int64),
        _rows(table, 13, POOL_COLUMNS, numba.int64),
        _flat(table, 14, numba.int64),
        _flat(table, 15, numba.int64),
        _flat(table, 16, numba.int32),
        _flat(table, 17, numba.uint8),
        _rows(table, 18, SKETCH_COLUMNS, numba.int64),
    )


@njit(cache=True, nogil=True)
def scratch_at(table: Any) -> Any:
    """The scratch whose arrays' addresses are in the table, behind the store's."""
    return Scratch(
        _flat(table, 19, numba.int64),
        _rows(table, 20, STATE_COLUMNS, numba.int32),
        _rows(table, 21, VALUE_COLUMNS, numba.int64),
        _flat(table, 22, numba.int32),
        _flat(table, 23, numba.uint8),
        _flat(table, 24, numba.int64),
        _flat(table, 25, numba.int32),
        _flat(table, 26, numba.int32),
        _flat(table, 27, numba.int64),
        _flat(table, 28, numba.int64),
        _flat(table, 29, numba.int64),
        _flat(table, 30, numba.int64),
    )


def exercise() -> None:
    """Calls every entry once on empty arrays, so that all are compiled, or loaded, now."""
    arrays = [new_array(name, _EXERCISED_ROWS) for name in SHAPES]
    addresses = [number for each in arrays for number in (each.ctypes.data, len(each))]
    table = np.array(addresses, dtype=np.int64)
    match(b"\x80", table)
    text_hash(b"")
    point_hash(0, 0, 0)
    words = np.zeros(1, dtype=np.int64)
    enter(words, 0, 0, 0, False, table)
    cheapest_value(0, 0, table, table)
    count(0, 0, table)
    share(0, 0, 0.0, table)
    hang(place_bucket(1, 0, 0.0, 0, 0, table, table, 1) >> 2, 0, 0, 0, table, 0)
    hang_at_value(0, 0, table, table, 0, 0)
    unhang(1, 0, 0, table)
    keys, slots = np.zeros(8, dtype=np.int64), np.zeros(16, dtype=np.int32)
    by_key = np.array([keys.ctypes.data, 8, slots.ctypes.data, 16], dtype=np.int64)
    slots[-1 - find_key(0, by_key)] = 1
    drop_key(0, by_key)
    rehash_keys(slots, by_key)
    find_bucket(1, table)
    box, found = np.zeros(4, dtype=np.int64), np.zeros(2, dtype=np.int64)
    touching(box, 0, 0, 0, 0, found, 0, table)
    columns, offsets = np.zeros((0, COLUMN_COLUMNS), dtype=np.int64), np.zeros(1, dtype=np.int64)
    match_rows(columns, 0, offsets, 0, offsets, np.zeros(1, dtype=np.int64), table)
    enter_name(0, table)
    for rehash in (rehash_buckets, rehash_filters, rehash_names):
        rehash(table, 0)


@njit(cache=True, nogil=True)
def match(msg: Any, table: Any) -> Any:
    """See `kernels.match`."""
    return K.match(msg, store_at(table), scratch_at(table))


@njit(cache=True, nogil=True)
def text_hash(text: Any) -> Any:
    """See `reading.text_hash`."""
    return R.text_hash(text, 0, len(text))


@njit(cache=True, nogil=True)
def point_hash(attr: Any, domain: Any, key: Any) -> Any:
    """See `reading.point_hash`."""
    return R.point_hash(attr, domain, key)


@njit(cache=True, nogil=True)
def enter(words: Any, count: Any, number: Any, begin: Any, is_wider: Any, table: Any) -> Any:
    """See `updating.enter`."""
    return U.enter(words, count, number, begin, is_wider, store_at(table))


@njit(cache=True, nogil=True)
def cheapest_value(number: Any, seen: Any, table: Any, statistics: Any) -> Any:
    """See `values.cheapest_value`."""
    return V.cheapest_value(number, seen, store_at(table), store_at(statistics))


@njit(cache=True, nogil=True)
def count(row: Any, h: Any, table: Any) -> None:
    """See `values.count`."""
    V.count(row, h, store_at(table))


@njit(cache=True, nogil=True)
def share(h: Any, attr: Any, unseen: Any, table: Any) -> Any:
    """See `values.share`."""
    return V.share(h, attr, unseen, store_at(table))


@njit(cache=True, nogil=True)
def place_bucket(
    h: Any,
    attr: Any,
    unseen: Any,
    domain: Any,
    operand: Any,
    table: Any,
    statistics: Any,
    used: Any,
) -> Any:
    """See `updating.place_bucket`."""
    return U.place_bucket(
        h, attr, unseen, domain, operand, store_at(table), store_at(statistics), used
    )


@njit(cache=True, nogil=True)
def find_bucket(h: Any, table: Any) -> Any:
    """See `seeking.find_bucket`."""
    return S.find_bucket(store_at(table), h)


@njit(cache=True, nogil=True)
def hang(bucket: Any, number: Any, hung: Any, flags: Any, table: Any, used: Any) -> Any:
    """See `updating.hang`."""
    return U.hang(bucket, number, hung, flags, store_at(table), used)


@njit(cache=True, nogil=True)
def hang_at_value(
    number: Any, seen: Any, table: Any, statistics: Any, entries: Any, buckets: Any
) -> Any:
    """See `updating.hang_at_value`."""
    return U.hang_at_value(number, seen, store_at(table), store_at(statistics), entries, buckets)


@njit(cache=True, nogil=True)
def unhang(bucket: Any, number: Any, at: Any, table: Any) -> Any:
    """See `updating.unhang`."""
    return U.unhang(bucket, number, at, store_at(table))


@njit(cache=True, nogil=True)
def find_key(key: Any, table: Any) -> Any:
    """See `updating.find_key`."""
    return U.find_key(key, _flat(table, 0, numba.int64), _flat(table, 1, numba.int32))


@njit(cache=True, nogil=True)
def drop_key(key: Any, table: Any) -> None:
    """See `updating.drop_key`."""
    U.drop_key(key, _flat(table, 0, numba.int64), _flat(table, 1, numba.int32))


@njit(cache=True, nogil=True)
def rehash_keys(old: Any, table: Any) -> None:
    """See `updating.rehash_keys`."""
    U.rehash_keys(old, _flat(table, 0, numba.int64), _flat(table, 1, numba.int32))


@njit(cache=True, nogil=True)
def rehash_buckets(table: Any, used: Any) -> None:
    """See `updating.rehash_buckets`."""
    U.rehash_buckets(store_at(table), used)


@njit(cache=True, nogil=True)
def rehash_filters(table: Any, used: Any) -> None:
    """See `updating.rehash_filters`."""
    U.rehash_filters(store_at(table), used)


@njit(cache=True, nogil=True)
def enter_name(row: Any, table: Any) -> None:
    """See `updating.enter_name`."""
    U.enter_name(row, store_at(table))


@njit(cache=True, nogil=True)
def rehash_names(table: Any, used: Any) -> None:
    """See `updating.rehash_names`."""
    U.rehash_names(store_at(table), used)


@njit(cache=True, nogil=True)
def touching(
    box: Any,
    rows: Any,
    closed: Any,
    inside: Any,
    first: Any,
    found: Any,
    used: Any,
    table: Any,
) -> Any:
    """See `updating.touching`."""
    return U.touching(box, rows, closed, inside, first, found, used, store_at(table))


@njit(inline="always")
def _at(address: Any, row: Any, kind: Any) -> Any:
    """A number of a type in memory."""
    return carray(_pointer(address), (row + 1,), kind)[row]


@_inlined
def _bit(address: Any, row: Any) -> Any:
    return (_at(address, row >> 3, numba.uint8) >> (row & 7)) & 1


@_inlined
def _integer(kind: Any, address: Any, row: Any) -> Any:
    """A value that is an integer in memory."""
    if kind in (KIND_INT64, KIND_TIME):
        return _at(address, row, numba.int64)
    if kind == KIND_INT32:
        return numba.int64(_at(address, row, numba.int32))
    if kind == KIND_INT16:
        return numba.int64(_at(address, row, numba.int16))
    if kind == KIND_INT8:
        return numba.int64(_at(address, row, numba.int8))
    if kind == KIND_UINT32:
        return numba.int64(_at(address, row, numba.uint32))
    if kind == KIND_UINT16:
        return numba.int64(_at(address, row, numba.uint16))
    return numba.int64(_at(address, row, numba.uint8))


@_inlined
def _load_text(
    kind: Any, starts: Any, data: Any, row: Any, attr: Any, store: Any, scratch: Any
) -> Any:
    if kind == KIND_TEXT:
        start = numba.int64(_at(starts, row, numba.int32))
        end = numba.int64(_at(starts, row + 1, numba.int32))
    else:
        start, end = _at(starts, row, numba.int64), _at(starts, row + 1, numba.int64)
    text = carray(_pointer(data), (end,), numba.uint8)
    return R.add_text(text, start, end - start, attr, store, scratch)


@_inlined
def _load_cell(kind: Any, data: Any, row: Any, attr: Any, scratch: Any) -> Any:
    """Adds a value outside text, as `reading.load_value` does."""
    if kind == KIND_BOOL:
        bit = numba.int64(_bit(data, row))
        return R.add_key(R.BOOL, bit, bit, attr, scratch)
    if kind in (KIND_FLOAT, KIND_DOUBLE):
        if kind == KIND_FLOAT:
            number = numba.float64(_at(data, row, numba.float32))
        else:
            number = _at(data, row, numba.float64)
        if number != number:
            return R.add_key(R.NAN, 0, 0, attr, scratch)
        key = R.ordered(R.double_bits(number))
        return R.add_key(R.NUMBER, key, key, attr, scratch)
    integer = _integer(kind, data, row)
    if kind == KIND_TIME:
        if integer < TIME_MIN_US or integer > TIME_MAX_US:
            return UNREADABLE
        return R.add_key(R.TIME, integer, integer, attr, scratch)
    key = R.ordered(R.double_bits(integer))
    if -R.EXACT_MAX <= integer <= R.EXACT_MAX:
        return R.add_key(R.NUMBER, key, key, attr, scratch)
    return R.add_large(integer, key, attr, scratch)


@_inlined
def _listed(columns: Any, row: Any, cells: Any) -> Any:
    """Lists the columns in which a row is not NULL; how many. Without branches, as most are."""
    count = 0
    for i in range(len(columns)):
        cells[count] = i
        valid = columns[i, C_VALID]
        count += 1 if valid == 0 else _bit(valid, columns[i, C_OFFSET] + row)
    return count


@_inlined
def load_row(columns: Any, row: Any, cells: Any, store: Any, scratch: Any) -> Any:
    """Brings a row of columns into the scratch, as `reading.load` does with a notification."""
    R.begin(scratch)
    for n in range(_listed(columns, row, cells)):
        i = cells[n]
        at = columns[i, C_OFFSET] + row
        kind, attr, data = columns[i, C_KIND], columns[i, C_ATTR], columns[i, C_DATA]
        R.begin_attr(attr, scratch)
        if kind >= KIND_TEXT:
            status = _load_text(kind, data, columns[i, C_TEXT], at, attr, store, scratch)
        else:
            status = _load_cell(kind, data, at, attr, scratch)
        if status != OK:
            return status
    return OK


@njit(cache=True, nogil=True)
def match_rows(
    columns: Any, data: Any, starts: Any, row: Any, offsets: Any, found: Any, table: Any
) -> Any:
    """Matches rows from one on; (status, the row that comes next).

    The rows are those of the columns; or, where `data` is an address and not 0, the spans of
    msgpack that begin and end there at `starts`. `offsets` and `found` get what `kernels.match`
    puts out. A row that needs more room of any array, or that only the model can match
    (UNREADABLE), comes next again.
    """
    store, scratch = store_at(table), scratch_at(table)
    cells = np.zeros(len(columns) + 1, dtype=np.int64)
    while row < len(offsets) - 1:
        if data != 0:
            start = starts[row]
            span = carray(_pointer(data + start), (starts[row + 1] - start,), numba.uint8)
            status = R.load(span, store, scratch)
        else:
            status = load_row(columns, row, cells, store, scratch)
        if status == OK:
            K.seek(store, scratch)
            status = K.find(store, scratch)
        if status == OK and scratch.counters[DOUBTED] != 0:
            status = UNREADABLE  # only the model can tell, and will look at it again
            scratch.counters[SEEN_ALL] -= 1
            scratch.counters[MATCHED] -= 1
        used, count = offsets[row], scratch.counters[OUT]
        if status == OK and used + count > len(found):
            status = NEED_FOUND
        if status != OK:
            return status, row
        for i in range(count):
            found[used + i] = scratch.out[i]
        row += 1
        offsets[row] = used + count
    return OK, row
