# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disable-error-code="untyped-decorator, type-arg, import-untyped, operator"
"""`pack_plain` and `stamp_plain`: make plain notifications in one pass, compiled into
`contrada._native`: their encodings for a wire, or notifications for this process. `plain_fields`
and `plain_values`: objects as attributes, and back.

A notification is *plain* if it is as most are: single values, a complete envelope, best effort, the
default priority and no lifetime. This module and `plain_scanner` handle no other, and refuse what
they cannot decide: `model.codec` handles these one by one, raises the errors, and is the meaning.

Invariant: bytes and decisions are those of `model.codec`. A test compares them, also where this
source is interpreted. One buffer serves all calls, since no Python code of others runs in between.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cython

from contrada.model.algebra.attributes import ATTRIBUTES_KEPT_MAX, ATTRIBUTES_MAX
from contrada.model.domains.values import INT_MAX, INT_MIN

if cython.compiled:
    from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
    from cython.cimports.libc.string import memcpy

if not cython.compiled:

    def untrack(of: object) -> None:
        """Hides a notification from the collector of cycles: it holds none, and a collection would
        look at each of those in queues. Compiled, it is `PyObject_GC_UnTrack`.
        """

    def new_object(kind: Any) -> object:
        """Returns an object with empty slots. Compiled, it is `PyType_GenericAlloc`."""
        return object.__new__(kind)

    def get_slot(of: object, name: str) -> Any:
        """Returns the value of a slot. Compiled, it is one load."""
        return vars(type(of))[name].__get__(of)

    def set_slot(of: object, name: str, value: object) -> None:
        """Sets a slot of an object that refuses to be changed. Compiled, it is one store."""
        vars(type(of))[name].__set__(of, value)


HEAD: Final = b"\x93\x01\xacnotification\x94"
"""Version and kind, before the attributes."""

TAIL: Final = b"\xc0\x04\xabbest-effort"
"""The end of an envelope: no lifetime, priority, delivery."""

PACKED_BYTES_MAX: Final = 65_536
"""Bytes of a notification that is encoded here. Beyond it: `model.codec` encodes it."""

_HEADER_BYTES: Final = 9

# Variables of C; the names above are for Python. An annotation would not declare them: at each use
# they would be looked up by name, and compared as objects.
_room = cython.declare(cython.Py_ssize_t, PACKED_BYTES_MAX)
_attributes = cython.declare(cython.Py_ssize_t, ATTRIBUTES_MAX)
_attributes_kept = cython.declare(cython.Py_ssize_t, ATTRIBUTES_KEPT_MAX)
head = cython.declare(bytes, HEAD)
tail = cython.declare(bytes, TAIL)
_end = cython.declare(bytes, TAIL + b"\xc4\x00\xa0")


@cython.cfunc
@cython.exceptval(check=False)
def is_single(value: object) -> cython.bint:
    """Whether `put_value` writes values of this type."""
    kind: object = type(value)
    is_number: cython.bint = kind is int or kind is float or kind is bool
    return kind is str or is_number or value is None or kind is bytes


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
    @cython.exceptval(check=False)
    def put_big_endian(self, value: cython.ulonglong, size: cython.Py_ssize_t) -> cython.void:
        """Writes the last `size` bytes of a number."""
        place: cython.Py_ssize_t
        for place in range(size):
            self.out[self.at + place] = (value >> (8 * (size - 1 - place))) & 0xFF
        self.at += size

    @cython.cfunc
    @cython.exceptval(-1)
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
    @cython.exceptval(check=False)
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
    @cython.exceptval(check=False)
    def put_text_head(self, size: cython.Py_ssize_t) -> cython.void:
        """Writes the header of a text of so many bytes."""
        if size < 32:
            self.put_big_endian(0xA0 + size, 1)
        else:
            self.put_header(0xD9, size, 0)

    @cython.cfunc
    @cython.exceptval(-1)
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
        self.put_text_head(size)
        return self.put_bytes(data, size)

    @cython.cfunc
    @cython.exceptval(check=False)
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
    @cython.exceptval(-1)
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
            self.put_big_endian(0xCB, 1)
            number = value
            if cython.compiled:
                memcpy(cython.address(bits), cython.address(number), 8)
            else:
                (bits,) = struct.unpack("<Q", struct.pack("<d", number))
            self.put_big_endian(bits, 8)
        elif value is None:
            self.put_big_endian(0xC0, 1)
        elif kind is bool:
            self.put_big_endian(0xC3 if value is True else 0xC2, 1)
        elif kind is bytes:
            self.put_header(0xC4, len(cython.cast(bytes, value)), 0)
            return self.put_bytes(value, len(cython.cast(bytes, value)))
        else:
            return False
        return self.at <= _room

    @cython.cfunc
    @cython.exceptval(-1)
    def put_attributes(self, item: object, good: set) -> cython.bint:
        """Writes head and attributes. False for anything but a dict with names and values that need
        no look of their own.
        """
        attributes: dict
        count: cython.Py_ssize_t
        if type(item) is not dict:
            return False
        attributes = item
        count = len(attributes)
        if count > _attributes:
            return False
        self.at = 0
        self.put_bytes(head, len(head))
        if count < 16:
            self.put_big_endian(0x80 + count, 1)
        else:
            self.put_header(0xDD, count, 1)
        try:
            for name, value in attributes.items():
                # A member of an enumeration equals its text, and is another type.
                if type(name) is not str or name not in good:
                    return False
                if not self.put_text(name) or not self.put_value(value):
                    return False
        except (OverflowError, UnicodeEncodeError):
            return False
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def put_asked(self, attributes: dict, asked: dict) -> cython.bint:
        """Writes the attributes with names in `asked`. False if any value is not single: an object
        may hold an attribute that is asked for.
        """
        kept: cython.Py_ssize_t = 0
        is_short: cython.bint = len(attributes) < 16
        self.at = 1 if is_short else 5
        for name, value in attributes.items():
            if type(name) is not str:
                return False
            if name in asked:
                if not self.put_text(name) or not self.put_value(value):
                    return False
                kept += 1
            elif not is_single(value):
                return False
        end: cython.Py_ssize_t = self.at
        self.at = 0
        if is_short:
            self.put_big_endian(0x80 + kept, 1)
        else:
            self.put_big_endian(0xDF, 1)
            self.put_big_endian(kept, 4)
        self.at = end
        return True

    @cython.cfunc
    @cython.exceptval(-1)
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
        self.put_big_endian(0x97, 1)
        size = len(prefix) + digits
        self.put_text_head(size)
        if not self.put_bytes(prefix, len(prefix)) or self.at + digits > _room:
            return False
        left = sequence
        for place in range(digits):
            self.out[self.at + digits - 1 - place] = 48 + left % 10
            left //= 10
        self.at += digits
        size = len(publisher)
        self.put_text_head(size)
        if not self.put_bytes(publisher, size) or self.at + 64 > _room:
            return False
        self.put_int(sequence)
        self.put_int(time_us)
        return self.put_bytes(_end, len(_end))


_writer = cython.declare(PlainWriter, PlainWriter())


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
    for at in range(first, end):
        if not writer.put_attributes(items[at], good):
            break
        if not writer.put_envelope(before, name, number, stamp_us):
            break
        found.append(cython.cast(bytes, writer.out[: writer.at]))
        number += 1
    return found


def pack_asked(attributes: dict, asked: dict) -> bytes | None:
    """Returns the span of those attributes that have names in `asked`.

    None if any attribute is not plain. Cost: 0.1 microseconds for four attributes.
    """
    writer: PlainWriter = _writer
    try:
        if not writer.put_asked(attributes, asked):
            return None
    except (OverflowError, UnicodeEncodeError):
        return None
    return bytes(writer.out[: writer.at])


def plain_fields(of: Any, fields: dict, form: dict) -> dict | None:
    """Returns a copy of a mapping with the fields of an object in it, by name.

    None if the type of any is none of those that `fields` gives it. Cost: 0.3 microseconds for six.
    """
    found: dict = form.copy()
    kinds: set
    for name, kinds in fields.items():
        value = getattr(of, name)
        if type(value) not in kinds:
            return None
        found[name] = value
    return found


def plain_values(attributes: dict, fields: dict, marks: dict) -> tuple | None:
    """Returns the values of the fields in their order, the reverse of `plain_fields`.

    None if there are attributes beside them and the marks, or a value is of another type.
    """
    found: list = []
    kinds: set
    if len(attributes) != len(fields) + len(marks):
        return None
    for mark in marks:
        if attributes.get(mark) is not True:
            return None
    for name, kinds in fields.items():
        value = attributes.get(name, found)  # `found` is of no type of a field.
        if type(value) not in kinds:
            return None
        found.append(value)
    return tuple(found)


@cython.cfunc
def filled(envelope: object, id_: object, publisher: object, number: object, us: object) -> object:
    """Returns the envelope, a fresh copy, with these fields; they are valid."""
    set_slot(envelope, "id", id_)
    set_slot(envelope, "publisher", publisher)
    set_slot(envelope, "sequence", number)
    set_slot(envelope, "time_us", us)
    return envelope


@cython.cfunc
def made_of_parts(
    kind: object, span: object, body: object, content: object, envelope: object, values: object
) -> object:
    """Returns a notification of valid parts."""
    notification: object = new_object(kind)
    untrack(notification)
    set_slot(notification, "span", span)
    set_slot(notification, "body", body)
    set_slot(notification, "content_type", content)
    set_slot(notification, "envelope", envelope)
    set_slot(notification, "packed", b"")
    set_slot(notification, "_values", values)
    return notification


def stamp_copy(
    of: Any, kind: type[Any], id_: str, publisher: str, sequence: int, time_us: int
) -> Any:
    """Returns a notification with the same parts and these fields changed. Cost: 0.3 µs."""
    envelope = filled(of.envelope.__copy__(), id_, publisher, sequence, time_us)
    values = of._values or None  # As in `Notification.with_envelope`.
    return made_of_parts(kind, of.span, of.body, of.content_type, envelope, values)


def stamp_plain(
    items: list[Any],
    begin: int,
    most: int,
    prefix: str,
    publisher: str,
    sequence: int,
    time_us: int,
    good: set[str],
    kind: type[Any],
    unstamped: Any,
) -> list[Any]:
    """Returns stamped notifications of the first plain mappings from `begin`, as `pack_plain`.

    Each is of `kind`, with a copy of the envelope `unstamped` that has the rest. Cost: 0.5
    microseconds for six attributes.
    """
    found: list = []
    at: cython.Py_ssize_t
    first: cython.Py_ssize_t = begin
    end: cython.Py_ssize_t = min(first + most, len(items))
    number: cython.longlong = sequence
    stamp_us: object = time_us
    writer: PlainWriter = _writer
    copied: object = unstamped.__copy__
    attributes: dict
    values: object
    span: object
    envelope: object
    for at in range(first, end):
        if not writer.put_attributes(items[at], good):
            break
        # First: a collection of cycles at a later allocation may run code that uses the writer.
        # A cast, since `bytes` would be called for what is bytes already.
        span = cython.cast(bytes, writer.out[len(head) : writer.at])
        attributes = items[at]
        values = attributes.copy() if len(attributes) <= _attributes_kept else None
        envelope = filled(copied(), f"{prefix}{number}", publisher, number, stamp_us)
        found.append(made_of_parts(kind, span, b"", "", envelope, values))
        number += 1
    return found
