# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disable-error-code="untyped-decorator, type-arg, import-untyped, operator"
"""`plain_attributes` and `value_of`: the attributes of received plain notifications, which
`plain_scanner` has checked, decoded at the first access.

Most notifications of a stream have the same names, and many the same texts, at the same places. A
short text that equals the one of the notification before is that object, without a copy.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import cython
from msgspec.msgpack import decode

from contrada.model.algebra.plain_encoder import get_slot, head, set_slot
from contrada.model.algebra.plain_scanner import PLAIN_NAMES_MAX, PlainScanner

if cython.compiled:
    from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
    from cython.cimports.libc.string import memcmp, memcpy

TEXT_BYTES_KEPT_MAX: Final = 64
"""Bytes of a text that the next notification may share. Beyond it: each has its own."""

_text_kept = cython.declare(cython.Py_ssize_t, TEXT_BYTES_KEPT_MAX)
_reading = cython.declare(PlainScanner, PlainScanner())
_texts = cython.declare(list, [""] * (2 * PLAIN_NAMES_MAX))
"""The last texts by their places: names and values in turns."""


@cython.cfunc
def _text(scanner: PlainScanner, place: cython.Py_ssize_t) -> str:
    """Returns the next text, which is UTF-8, and passes it."""
    begin: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    data: cython.p_const_uchar
    text: str = _texts[place]
    scanner.read_text()
    begin = scanner.at
    scanner.at += scanner.size
    if cython.compiled:
        data = cython.cast(
            cython.p_const_uchar, PyUnicode_AsUTF8AndSize(text, cython.address(size))
        )
        if size == scanner.size and memcmp(data, scanner.data + begin, size) == 0:
            return text
        text = PyUnicode_DecodeUTF8(
            cython.cast(cython.p_const_char, scanner.data + begin), scanner.size, "strict"
        )
    else:
        found = bytes(scanner.data[begin : scanner.at]).decode()
        if found == text:
            return text
        text = found
    if scanner.size <= _text_kept:
        _texts[place] = text
    return text


@cython.cfunc
def _value(scanner: PlainScanner, place: cython.Py_ssize_t) -> object:
    """Returns the next value, and passes it."""
    lead: cython.uchar = scanner.data[scanner.at]
    begin: cython.Py_ssize_t = scanner.at
    bits: cython.ulonglong
    number: cython.double = 0.0
    if 0xA0 <= lead <= 0xBF or 0xD9 <= lead <= 0xDB:
        return _text(scanner, place)
    if lead == 0xCB:
        scanner.at += 1
        bits = scanner.big_endian(8)
        if cython.compiled:
            memcpy(cython.address(number), cython.address(bits), 8)
        else:
            (number,) = struct.unpack("<d", struct.pack("<Q", bits))
        return number
    scanner.pass_value()
    if lead <= 0x7F or lead >= 0xE0 or 0xCC <= lead <= 0xD3:
        return scanner.number
    return decode(bytes(scanner.data[begin : scanner.at]))


def plain_attributes(packed: object) -> dict[str, Any]:
    """Returns the attributes of an encoded notification that `plain_scanner` has found plain.

    Raises IndexError for less than an encoding. Cost: 0.2 microseconds for six.
    """
    data: bytes = packed if type(packed) is bytes else bytes(packed)  # type: ignore[call-overload]
    if len(data) < len(head) + 3:  # Compiled, an index is not checked.
        raise IndexError("an encoding without attributes")
    lead: cython.int = data[len(head)]
    at: cython.Py_ssize_t = len(head) + 1
    count: cython.Py_ssize_t = lead - 0x80
    place: cython.Py_ssize_t
    scanner: PlainScanner = _reading
    if lead == 0xDE:
        count = data[at + 1]
        at += 2
    # Before the scanner is used: a collection of cycles may run code that reads others.
    found: dict = {}
    scanner.data, scanner.at, scanner.end = data, at, len(data)
    for place in range(count):
        name = _text(scanner, 2 * place)
        found[name] = _value(scanner, 2 * place + 1)
    return found


def value_of(notification: Any, name: Any) -> Any:
    """Returns the value of an attribute, a tuple of several ones. Raises KeyError."""
    values: Any = get_slot(notification, "_values")
    attributes: dict
    if values is False:
        attributes = plain_attributes(get_slot(notification, "packed"))
        set_slot(notification, "_values", attributes)
    else:
        attributes = values or notification._read()
    if name is None:  # Cython's own error has no name then.
        raise KeyError(None)
    return attributes[name]
