# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disable-error-code="untyped-decorator, type-arg, import-untyped, operator"
"""`pack_plain` and `plain_entries`: the codec of plain notifications, compiled by Cython.

A notification is *plain* if it is as most are: single values, a complete envelope, best effort, the
default priority and no lifetime. This module encodes it, or checks it, in one pass over its bytes.
It refuses any other, and whatever it cannot decide: `model.codec` handles these one by one, raises
the errors, and is the meaning. This source is a part of `contrada._native`; where that is missing,
`model.codec` handles all.

Invariant: bytes and decisions are those of `model.codec`. A test compares them, also where this
source is interpreted. One buffer and one scanner serve all calls, since no Python code of others
runs in between.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cython

from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.model.algebra.product import ENVELOPE_TEXT_BYTES_MAX
from contrada.model.domains.values import INT_MAX, INT_MIN, NAME_BYTES_MAX, TIME_MAX_US, TIME_MIN_US

if cython.compiled:
    from cython.cimports.cpython.object import PyObject_GenericSetAttr
    from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
    from cython.cimports.libc.string import memcpy

HEAD: Final = b"\x93\x01\xacnotification\x94"
"""Version and kind, before the attributes."""

TAIL: Final = b"\xc0\x04\xabbest-effort"
"""The end of an envelope: no lifetime, priority, delivery."""

PACKED_BYTES_MAX: Final = 65_536
"""Bytes of a notification that is encoded here. Beyond it: `model.codec` encodes it."""

PLAIN_NAMES_MAX: Final = 32
"""Attributes of a received notification that is checked here: each is compared with all before it.
Beyond it: `model.codec` checks it."""

_HEADER_BYTES: Final = 9
_SECOND_NS: Final = 10**9

# As integers of C; the names above are for Python.
_room: cython.Py_ssize_t = PACKED_BYTES_MAX
_names: cython.Py_ssize_t = PLAIN_NAMES_MAX
_name_bytes: cython.Py_ssize_t = NAME_BYTES_MAX
_text_bytes: cython.Py_ssize_t = ENVELOPE_TEXT_BYTES_MAX
_attributes: cython.Py_ssize_t = ATTRIBUTES_MAX
_time_min: cython.longlong = TIME_MIN_US
_time_max: cython.longlong = TIME_MAX_US
_int_max: cython.ulonglong = INT_MAX
_second: cython.ulonglong = _SECOND_NS


# --- encoding -------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class PlainWriter:
    """Bytes that are written, in a buffer that is used again."""

    held: bytearray
    out: cython.p_uchar
    at: cython.Py_ssize_t

    def __init__(self) -> None:
        self.held = bytearray(PACKED_BYTES_MAX + _HEADER_BYTES)
        self.out = self.held
        self.at = 0

    @cython.cfunc
    def put_big_endian(self, value: cython.ulonglong, size: cython.Py_ssize_t) -> cython.void:
        """Writes the last `size` bytes of a number."""
        place: cython.Py_ssize_t
        for place in range(size):
            self.out[self.at + place] = (value >> (8 * (size - 1 - place))) & 0xFF
        self.at += size

    @cython.cfunc
    def put_bytes(self, data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Writes bytes. False where there is no room, for a header behind them too."""
        if self.at + size > _room:
            return False
        if cython.compiled:
            memcpy(self.out + self.at, data, size)
        else:
            self.out[self.at : self.at + size] = data
        self.at += size
        return True

    @cython.cfunc
    def put_header(
        self, lead: cython.uchar, size: cython.Py_ssize_t, steps: cython.Py_ssize_t
    ) -> cython.void:
        """Writes a lead byte and a size of 1, 2 or 4 bytes; `steps` skips the shorter ones."""
        while size >> (8 << steps) and steps < 2:
            steps += 1
        self.out[self.at] = lead + steps
        self.at += 1
        self.put_big_endian(size, 1 << steps)

    @cython.cfunc
    def put_text(self, text: str) -> cython.bint:
        """Writes a text. Raises UnicodeEncodeError."""
        data: cython.p_const_uchar
        size: cython.Py_ssize_t = 0
        if cython.compiled:
            data = cython.cast(
                cython.p_const_uchar, PyUnicode_AsUTF8AndSize(text, cython.address(size))
            )
        else:
            data = text.encode()
            size = len(data)
        if size < 32:
            self.out[self.at] = 0xA0 + size
            self.at += 1
        else:
            self.put_header(0xD9, size, 0)
        return self.put_bytes(data, size)

    @cython.cfunc
    def put_int(self, value: cython.longlong) -> cython.void:
        """Writes an integer in its shortest form."""
        steps: cython.Py_ssize_t = 0
        if -32 <= value <= 127:
            self.out[self.at] = value & 0xFF
            self.at += 1
            return
        if value >= 0:
            while steps < 3 and value >> (8 << steps):
                steps += 1
            self.out[self.at] = 0xCC + steps
        else:
            while steps < 3 and value >> ((8 << steps) - 1) != -1:
                steps += 1
            self.out[self.at] = 0xD0 + steps
        self.at += 1
        self.put_big_endian(value, 1 << steps)

    @cython.cfunc
    def put_value(self, value: object) -> cython.bint:
        """Writes a single value; False for another. Raises OverflowError, UnicodeEncodeError."""
        kind: object = type(value)
        number: cython.double
        bits: cython.ulonglong = 0
        if kind is str:
            return self.put_text(value)
        if kind is int:
            if not cython.compiled and not INT_MIN <= value <= INT_MAX:
                raise OverflowError
            self.put_int(value)
        elif kind is float:
            self.out[self.at] = 0xCB
            self.at += 1
            number = value
            if cython.compiled:
                memcpy(cython.address(bits), cython.address(number), 8)
            else:
                (bits,) = struct.unpack("<Q", struct.pack("<d", number))
            self.put_big_endian(bits, 8)
        elif value is None:
            self.out[self.at] = 0xC0
            self.at += 1
        elif kind is bool:
            self.out[self.at] = 0xC3 if value is True else 0xC2
            self.at += 1
        elif kind is bytes:
            self.put_header(0xC4, len(cython.cast(bytes, value)), 0)
            return self.put_bytes(value, len(cython.cast(bytes, value)))
        else:
            return False
        return self.at <= _room

    @cython.cfunc
    def put_attributes(self, attributes: dict, good: set) -> cython.bint:
        """Writes head and attributes. False where a name or a value must be looked at singly."""
        count: cython.Py_ssize_t = len(attributes)
        if count > _attributes:
            return False
        self.at = 0
        self.put_bytes(HEAD, len(HEAD))
        if count < 16:
            self.out[self.at] = 0x80 + count
            self.at += 1
        else:
            self.put_header(0xDD, count, 1)
        for name, value in attributes.items():
            # A member of an enumeration equals its text, and is another type.
            if type(name) is not str or name not in good:
                return False
            if not self.put_text(name) or not self.put_value(value):
                return False
        return True

    @cython.cfunc
    def put_envelope(
        self, prefix: bytes, publisher: bytes, sequence: cython.longlong, time_us: cython.longlong
    ) -> cython.bint:
        """Writes the envelope, and no body."""
        digits: cython.Py_ssize_t = 1
        left: cython.longlong = sequence
        size: cython.Py_ssize_t
        place: cython.Py_ssize_t
        while left > 9:
            left //= 10
            digits += 1
        self.out[self.at] = 0x97
        self.at += 1
        size = len(prefix) + digits
        if size < 32:
            self.out[self.at] = 0xA0 + size
            self.at += 1
        else:
            self.put_header(0xD9, size, 0)
        if not self.put_bytes(prefix, len(prefix)) or self.at + digits > _room:
            return False
        left = sequence
        for place in range(digits):
            self.out[self.at + digits - 1 - place] = 48 + left % 10
            left //= 10
        self.at += digits
        size = len(publisher)
        if size < 32:
            self.out[self.at] = 0xA0 + size
            self.at += 1
        else:
            self.put_header(0xD9, size, 0)
        if not self.put_bytes(publisher, size) or self.at + 64 > _room:
            return False
        self.put_int(sequence)
        self.put_int(time_us)
        return self.put_bytes(_END, len(_END))


_END: bytes = TAIL + b"\xc4\x00\xa0"
_writer: PlainWriter = PlainWriter()


def pack_plain(
    items: list[Any],
    begin: int,
    most: int,
    prefix: str,
    publisher: str,
    sequence: int,
    time_us: int,
    good: set[str],
) -> list[bytes]:
    """Returns the encodings of the first plain mappings of a list from `begin`, at most `most`.

    The id of each is the prefix and its number, from `sequence` on; names in `good` are valid.
    Cost: 0.3 microseconds for six attributes.
    """
    found: list = []
    at: cython.Py_ssize_t
    first: cython.Py_ssize_t = begin
    end: cython.Py_ssize_t = min(first + most, len(items))
    number: cython.longlong = sequence
    stamp_us: cython.longlong = time_us
    writer: PlainWriter = _writer
    before: bytes = prefix.encode()
    name: bytes = publisher.encode()
    item: object
    for at in range(first, end):
        item = items[at]
        if type(item) is not dict:
            break
        try:
            if not writer.put_attributes(item, good):
                break
            if not writer.put_envelope(before, name, number, stamp_us):
                break
        except (OverflowError, UnicodeEncodeError):
            break
        found.append(bytes(writer.out[: writer.at]))
        number += 1
    return found


# --- checking -------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class PlainScanner:
    """A position in encoded bytes, and the parts that were found before it."""

    data: cython.p_const_uchar
    end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    number: cython.longlong
    names_at: cython.Py_ssize_t[32]
    names_size: cython.Py_ssize_t[32]

    def __init__(self) -> None:
        self.end = self.at = self.size = 0
        self.number = 0
        if not cython.compiled:
            self.names_at = [0] * PLAIN_NAMES_MAX
            self.names_size = [0] * PLAIN_NAMES_MAX

    @cython.cfunc
    def big_endian(self, size: cython.Py_ssize_t) -> cython.ulonglong:
        """Reads a number of so many bytes, which are there."""
        value: cython.ulonglong = 0
        place: cython.Py_ssize_t
        for place in range(size):
            value = (value << 8) | self.data[self.at + place]
        self.at += size
        return value

    @cython.cfunc
    def skip(self, text: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Passes these bytes; False where there are others."""
        place: cython.Py_ssize_t
        if size > self.end - self.at:
            return False
        for place in range(size):
            if self.data[self.at + place] != text[place]:
                return False
        self.at += size
        return True

    @cython.cfunc
    def is_ascii(self, begin: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether these bytes are ASCII. A loop without an exit handles many bytes together."""
        data: cython.p_const_uchar = self.data
        together: cython.uchar = 0
        place: cython.Py_ssize_t
        for place in range(begin, begin + size):
            together |= data[place]
        return together < 0x80

    @cython.cfunc
    def read_size(self, lead: cython.uchar, first: cython.uchar) -> cython.bint:
        """Reads the size of bytes that follow, in 1, 2 or 4 bytes; False where these are absent."""
        width: cython.Py_ssize_t = 1 << (lead - first)
        if width > self.end - self.at:
            return False
        self.size = self.big_endian(width)
        return self.size <= self.end - self.at

    @cython.cfunc
    def read_text(self) -> cython.bint:
        """Reads the header of a text; False for anything else."""
        lead: cython.uchar
        if self.at >= self.end:
            return False
        lead = self.data[self.at]
        self.at += 1
        if 0xA0 <= lead <= 0xBF:
            self.size = lead - 0xA0
            return self.size <= self.end - self.at
        return 0xD9 <= lead <= 0xDB and self.read_size(lead, 0xD9)

    @cython.cfunc
    def read_int(self) -> cython.bint:
        """Reads an integer of 64 bits; False for anything else."""
        lead: cython.uchar
        width: cython.Py_ssize_t
        value: cython.ulonglong
        half: cython.longlong
        if self.at >= self.end:
            return False
        lead = self.data[self.at]
        self.at += 1
        if lead <= 0x7F:
            self.number = lead
            return True
        if lead >= 0xE0:
            self.number = lead
            self.number -= 256
            return True
        if not 0xCC <= lead <= 0xD3:
            return False
        width = 1 << (lead & 3)
        if width > self.end - self.at:
            return False
        value = self.big_endian(width)
        if lead <= 0xCF:
            if value > _int_max:
                return False
            self.number = value
        else:
            half = _int_max >> (64 - 8 * width)  # The largest of this width.
            self.number = value & half
            if value >> (8 * width - 1):
                self.number -= half
                self.number -= 1  # Not at once: 2^63 is none of C's.
        return True

    @cython.cfunc
    def pass_value(self) -> cython.bint:
        """Passes a single value; False for another."""
        lead: cython.uchar
        if self.at >= self.end:
            return False
        lead = self.data[self.at]
        if lead <= 0x7F or lead >= 0xE0 or 0xCC <= lead <= 0xD3:
            return self.read_int()
        if 0xA0 <= lead <= 0xBF or 0xD9 <= lead <= 0xDB:
            return self.read_text() and self.pass_utf8()
        self.at += 1
        if lead == 0xC0 or lead == 0xC2 or lead == 0xC3:
            return True
        if lead == 0xCB:
            self.at += 8
        elif 0xC4 <= lead <= 0xC6:
            if not self.read_size(lead, 0xC4):
                return False
            self.at += self.size
        elif lead == 0xD6 or lead == 0xD7:  # A time, in seconds or with nanoseconds.
            self.size = 4 if lead == 0xD6 else 8
            if self.size + 1 > self.end - self.at or self.data[self.at] != 0xFF:
                return False
            self.at += 1
            if self.big_endian(4) >> 2 >= _second and lead == 0xD7:
                return False
            self.at += self.size - 4
        else:
            return False
        return self.at <= self.end

    @cython.cfunc
    def pass_utf8(self) -> cython.bint:
        """Passes the text that was read; False where it is not UTF-8."""
        if not self.is_ascii(self.at, self.size):
            try:
                bytes(self.data[self.at : self.at + self.size]).decode()
            except UnicodeDecodeError:
                return False
        self.at += self.size
        return True

    @cython.cfunc
    def pass_name(self, known: set) -> cython.bint:
        """Passes a valid name; False for another, and where it is not known."""
        place: cython.Py_ssize_t
        char: cython.uchar
        is_usual: cython.bint
        if not self.read_text() or self.size < 1 or self.size > _name_bytes:
            return False
        is_usual = self.data[self.at] != 0x40
        for place in range(self.at, self.at + self.size):
            char = self.data[place]
            is_usual &= 0x20 <= char <= 0x7E
        if not is_usual:  # A mark, or beyond ASCII: one that was checked before.
            try:
                if bytes(self.data[self.at : self.at + self.size]).decode() not in known:
                    return False
            except UnicodeDecodeError:
                return False
        self.at += self.size
        return True

    @cython.cfunc
    def is_repeated(self, count: cython.Py_ssize_t) -> cython.bint:
        """Whether the name at a place is one of those before it."""
        data: cython.p_const_uchar = self.data
        size: cython.Py_ssize_t = self.names_size[count]
        mine: cython.Py_ssize_t = self.names_at[count]
        other: cython.Py_ssize_t
        earlier: cython.Py_ssize_t
        place: cython.Py_ssize_t
        for earlier in range(count):
            if self.names_size[earlier] != size:
                continue
            other = self.names_at[earlier]
            place = 0
            while place < size and data[mine + place] == data[other + place]:
                place += 1
            if place == size:
                return True
        return False

    @cython.cfunc
    def pass_attributes(self, known: set) -> cython.bint:
        """Passes a map of distinct valid names and single values; False for another."""
        lead: cython.uchar
        count: cython.Py_ssize_t
        place: cython.Py_ssize_t
        if self.at >= self.end:
            return False
        lead = self.data[self.at]
        self.at += 1
        if 0x80 <= lead <= 0x8F:
            count = lead - 0x80
        elif lead == 0xDE and self.end - self.at >= 2:
            count = self.big_endian(2)
        else:
            return False
        if count > _names:
            return False
        for place in range(count):
            if not self.pass_name(known):
                return False
            self.names_size[place] = self.size
            self.names_at[place] = self.at - self.size
            if self.is_repeated(place) or not self.pass_value():
                return False
        return True

    @cython.cfunc
    def pass_ascii(self) -> cython.bint:
        """Passes a text of the envelope; False where it must be looked at singly."""
        if not self.read_text() or self.size > _text_bytes:
            return False
        self.at += self.size
        return self.is_ascii(self.at - self.size, self.size)

    @cython.cfunc
    def pass_envelope(self) -> cython.bint:
        """Passes envelope and body, up to the end; False for unusual ones. Keeps the time."""
        time_us: cython.longlong
        if not self.skip(b"\x97", 1) or not self.pass_ascii() or not self.pass_ascii():
            return False
        if not self.read_int() or self.number < 0 or not self.read_int():
            return False
        time_us = self.number
        if not _time_min <= time_us <= _time_max or not self.skip(TAIL, len(TAIL)):
            return False
        if self.at >= self.end or not 0xC4 <= self.data[self.at] <= 0xC6:
            return False
        self.at += 1
        if not self.read_size(self.data[self.at - 1], 0xC4):
            return False
        self.at += self.size
        self.number = time_us
        return self.pass_ascii() and self.at == self.end


_scanner: PlainScanner = PlainScanner()
_new: object = object.__new__


def plain_entries(
    encodings: list[bytes], begin: int, known: set[str], kind: type[Any], beside: int
) -> list[tuple[Any, int, None]]:
    """Returns the first plain notifications of a list from `begin`, as entries of a queue.

    Each is of `kind`, with its encoding and its span; the other parts are decoded when they are
    read. Its size is that of the encoding and `beside`. Names in `known` are valid. Cost: 0.3
    microseconds for six attributes.
    """
    found: list = []
    at: cython.Py_ssize_t
    first: cython.Py_ssize_t = begin
    span_end: cython.Py_ssize_t
    more: cython.Py_ssize_t = beside
    scanner: PlainScanner = _scanner
    packed: bytes
    for at in range(first, len(encodings)):
        if type(encodings[at]) is not bytes:
            break
        packed = encodings[at]
        scanner.data = packed
        scanner.at = 0
        scanner.end = len(packed)
        if not scanner.skip(HEAD, len(HEAD)) or not scanner.pass_attributes(known):
            break
        span_end = scanner.at
        if not scanner.pass_envelope():
            break
        found.append((_made(kind, packed, packed[len(HEAD) : span_end]), more + len(packed), None))
    return found


@cython.cfunc
def _made(kind: object, packed: bytes, span: bytes) -> object:
    """Returns a notification of these parts; it refuses to be changed by anything else."""
    notification: object = _new(kind)
    if cython.compiled:
        PyObject_GenericSetAttr(notification, "packed", packed)
        PyObject_GenericSetAttr(notification, "span", span)
        PyObject_GenericSetAttr(notification, "_values", False)
    else:
        object.__setattr__(notification, "packed", packed)
        object.__setattr__(notification, "span", span)
        object.__setattr__(notification, "_values", False)
    return notification
