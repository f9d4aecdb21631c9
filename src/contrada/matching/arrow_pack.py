"""`Blobs`, byte strings in one array, in the layout of Arrow; and rows of columns as msgpack.

Rows of Arrow columns become msgpack without a notification for each: byte for byte the output of
`Notification` and `to_msgpack` for the same row, with NULL as absent. This supports columns of
plain types; if `pieces_of` returns None, rows are made into notifications one by one.

pyarrow is not imported here: a table is known by its methods.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from contrada.matching.kernels import msgpack_writer
from contrada.matching.kernels.msgpack_writer import BOOL, FLOAT, INT, TEXT, TIME
from contrada.model import Envelope, Notification, to_msgpack

_INTS: Final = frozenset(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"))
_FLOATS: Final = frozenset(("halffloat", "float", "double"))
_TEXTS: Final = frozenset(("string", "large_string"))
_TIME: Final = "timestamp[us, tz="
_INT_END: Final = 2.0**63

_encode: Final = msgspec.msgpack.Encoder().encode


class Blobs(NamedTuple):
    """Byte strings: string i is `data[starts[i] : starts[i + 1]]`."""

    starts: Any
    data: Any

    @property
    def size(self) -> int:
        """The number of strings."""
        return len(self.starts) - 1

    def each(self) -> Iterator[bytes]:
        """Returns the strings."""
        data, starts = self.data.tobytes(), self.starts.tolist()
        return (data[begin:end] for begin, end in pairwise(starts))

    def at(self, row: int) -> bytes:
        """Returns one string."""
        found: bytes = self.data[self.starts[row] : self.starts[row + 1]].tobytes()
        return found

    def select(self, rows: Any) -> "Blobs":
        """Returns the strings of some rows. Cost: a copy."""
        starts = starts_of((self.starts[1:] - self.starts[:-1])[rows])
        data = np.empty(starts[-1], dtype=np.uint8)
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        msgpack_writer.gather(self.starts, self.data, rows, starts, data)
        return Blobs(starts, data)

    def codes(self) -> tuple[Any, Any]:
        """Returns a number for each string, equal for equal ones, and the first row of each."""
        found = np.empty(self.size, dtype=np.int64)
        table = np.full(1 << (2 * self.size + 1).bit_length(), -1, dtype=np.int64)
        firsts = np.empty(self.size, dtype=np.int64)
        count = msgpack_writer.codes(self.starts, self.data, table, firsts, found)
        return found, firsts[:count]

    def parts(self, count: int) -> Any:
        """Returns for each string its part of `count` parts: the same in every process."""
        found = np.empty(self.size, dtype=np.int64)
        msgpack_writer.parts_of(self.starts, self.data, count, found)
        return found


def starts_of(lengths: Any) -> Any:
    """Returns the positions of strings of these lengths, and the end of the last one."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def join_blobs(some: Sequence[Blobs]) -> Blobs:
    """Returns the strings of all in sequence. Cost: a copy, if there are several."""
    some = [each for each in some if each.size] or list(some[:1])
    if len(some) == 1:
        return some[0]
    data = np.concatenate([each.data[each.starts[0] : each.starts[-1]] for each in some])
    return Blobs(starts_of(np.concatenate([np.diff(each.starts) for each in some])), data)


def blobs_of(strings: Sequence[bytes]) -> Blobs:
    """Returns the strings as blobs. Cost: a copy."""
    lengths = np.fromiter(map(len, strings), dtype=np.int64, count=len(strings))
    return Blobs(starts_of(lengths), np.frombuffer(bytearray().join(strings), dtype=np.uint8))


def blobs_in(column: Any) -> Blobs:
    """Returns the strings of an Arrow column of binary values or texts, uncopied; NULL is empty."""
    wide = np.int64 if str(column.type).startswith("large") else np.int32
    _, starts, data = column.buffers()
    if not len(column) or data is None or not data.size:
        return Blobs(np.zeros(len(column) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8))
    begin, end = column.offset, column.offset + len(column) + 1
    held = np.frombuffer(data, dtype=np.uint8)
    return Blobs(np.frombuffer(starts, dtype=wide)[begin:end].astype(np.int64), held)


# --- columns as msgpack -------------------------------------------------------------------------


class ColumnPiece(NamedTuple):
    """A value of each row: numbers as int64, or texts; the bytes before each; and its kind."""

    before: Any
    kinds: Any
    values: Any

    @property
    def is_there(self) -> Any:
        """Marks rows with a value."""
        return self.kinds != 0


def piece_of(before: bytes, column: Any, *, plain: bool = False) -> ColumnPiece | None:
    """Returns a column as a piece; None for an unsupported type.

    With `plain`, equal values are encoded alike: a double as the integer that it equals.
    """
    type_name = str(column.type)
    values: Any
    if type_name in _TEXTS:
        kind, values = TEXT, blobs_in(column)
    elif type_name in _FLOATS:
        kind, values = FLOAT, _numbers(column, "float64").view(np.int64)
    elif type_name in _INTS or type_name == "bool" or type_name.startswith(_TIME):
        kind = INT if type_name in _INTS else BOOL if type_name == "bool" else TIME
        values = _numbers(column, "int64")
    else:
        return None
    kinds = np.full(len(column), kind, dtype=np.int64)
    if plain and kind == FLOAT:
        kinds, values = _to_plain(values.view(np.float64), kinds, INT)
    if column.null_count:
        kinds[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return ColumnPiece(np.frombuffer(before, dtype=np.uint8), kinds, values)


def _numbers(column: Any, type_name: str) -> Any:
    return column.cast(type_name).fill_null(0).to_numpy(zero_copy_only=False).copy()


def _to_plain(doubles: Any, kinds: Any, integer: int) -> tuple[Any, Any]:
    """Converts doubles to the integers that they equal, and NaN to one value."""
    with np.errstate(invalid="ignore"):
        is_int = (doubles == np.floor(doubles)) & (doubles >= -_INT_END) & (doubles < _INT_END)
        integers = np.where(is_int, doubles, 0).astype(np.int64)
    one_nan = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
    return np.where(is_int, integer, kinds), np.where(is_int, integers, one_nan)


def pieces_of(names: Sequence[str], columns: Sequence[Any], *, plain: bool = False) -> Any:
    """Returns the columns as pieces of a map; None if one of them is unsupported."""
    pieces = []
    for name, column in zip(names, columns, strict=True):
        piece = piece_of(_encode(name), column, plain=plain)
        if piece is None:
            return None
        pieces.append(piece)
    return pieces


def write_maps(
    rows: int,
    pieces: Sequence[ColumnPiece],
    head: bytes = b"",
    after: Sequence[ColumnPiece | bytes] = (),
) -> Blobs:
    """Encodes for each row a head, a map of the pieces, and a tail.

    Cost: some ten nanoseconds for each value, and the bytes.
    """
    counts, others = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    sizes = np.full(rows, len(head), dtype=np.int64)
    for piece, tally in [*((each, counts) for each in pieces), *((each, others) for each in after)]:
        if isinstance(piece, bytes):
            sizes += len(piece)
        elif isinstance(piece.values, Blobs):
            starts = piece.values.starts
            msgpack_writer.count_texts(piece.kinds, starts, len(piece.before), sizes, tally)
        else:
            msgpack_writer.count_numbers(piece.kinds, piece.values, len(piece.before), sizes, tally)
    sizes += np.where(counts < 16, 1, 3)
    starts = starts_of(sizes)
    out, at = np.empty(starts[-1], dtype=np.uint8), starts[:-1].copy()
    msgpack_writer.put_heads(np.frombuffer(head, dtype=np.uint8), counts, at, out)
    for each in (*pieces, *after):
        if isinstance(each, bytes):
            msgpack_writer.put_same(np.frombuffer(each, dtype=np.uint8), at, out)
        elif isinstance(each.values, Blobs):
            msgpack_writer.put_texts(each.kinds, *each.values, each.before, at, out)
        else:
            msgpack_writer.put_numbers(each.kinds, each.values, each.before, at, out)
    return Blobs(starts, out)


def pack_rows(rows: int, pieces: Sequence[ColumnPiece], times_us: Any = None) -> Blobs:
    """As `to_msgpack` of these attributes for each row, with a time or none. See `write_maps`."""
    head, before, unstamped, after = _FRAME
    if times_us is None:
        return write_maps(rows, pieces, head, (before + unstamped + after,))
    kinds = np.full(rows, INT, dtype=np.int64)
    time = ColumnPiece(np.frombuffer(before, dtype=np.uint8), kinds, times_us)
    return write_maps(rows, pieces, head, (time, after))


def constant_piece(rows: int, name: str, packed: bytes) -> ColumnPiece:
    """Returns an attribute of one value, given as msgpack, in each row.

    All of it but its last byte is the head; and a truth value is one byte, 0xc2 and a number.
    """
    before = np.frombuffer(_encode(name) + packed[:-1], dtype=np.uint8)
    last = np.full(rows, packed[-1] - 0xC2, dtype=np.int64)
    return ColumnPiece(before, np.full(rows, BOOL, dtype=np.int64), last)


def _envelope_bytes() -> tuple[bytes, bytes, bytes, bytes]:
    """Returns the bytes before the attributes, before the time, for no time, and after it."""
    packed = to_msgpack(Notification({}, envelope=Envelope(time_us=1)))
    without = to_msgpack(Notification({}))
    attributes_at = packed.index(b"\x94") + 1
    time_at = next(at for at in range(len(packed)) if packed[at] != without[at])
    before = packed[attributes_at + 1 : time_at]
    return packed[:attributes_at], before, without[time_at : time_at + 1], packed[time_at + 1 :]


_FRAME: Final = _envelope_bytes()
