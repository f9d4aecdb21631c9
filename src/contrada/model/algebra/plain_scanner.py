# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disable-error-code="untyped-decorator, type-arg, import-untyped, operator"
"""`PlainScanner`: checks plain notifications in one pass.

One scanner serves all calls. Where an object is made, a collection of cycles may run other code,
which may use the scanner; `calls` shows that, and the rest is left to `model.codec`.
"""

from __future__ import annotations

from typing import Any, Final

import cython

from contrada.model.algebra.plain_encoder import filled, head, new_object, set_slot, tail, untrack
from contrada.model.algebra.product import ENVELOPE_TEXT_BYTES_MAX
from contrada.model.domains.values import INT_MAX, NAME_BYTES_MAX, TIME_MAX_US, TIME_MIN_US

if cython.compiled:
    from cython.cimports.libc.string import memcmp

PLAIN_NAMES_MAX: Final = 32
"""Attributes of a received notification checked here. Beyond it: `model.codec` checks it."""

PUBLISH_HEAD: Final = b"\x95\xa7publish"
"""The beginning of a `Publish` of `routing.router_messages`, before its notifications."""

PUBLISH_TAIL: Final = b"\x00\xa0\x01"
"""The end of one that a client has published: no hops, no source, the version."""

# Variables of C, as in `plain_encoder`.
_names = cython.declare(cython.Py_ssize_t, PLAIN_NAMES_MAX)
_name_bytes = cython.declare(cython.Py_ssize_t, NAME_BYTES_MAX)
_text_bytes = cython.declare(cython.Py_ssize_t, ENVELOPE_TEXT_BYTES_MAX)
_time_min = cython.declare(cython.longlong, TIME_MIN_US)
_time_max = cython.declare(cython.longlong, TIME_MAX_US)
_int_max = cython.declare(cython.ulonglong, INT_MAX)
_second = cython.declare(cython.ulonglong, 10**9)
_publish_head = cython.declare(bytes, PUBLISH_HEAD)
_publish_tail = cython.declare(bytes, PUBLISH_TAIL)


@cython.final
@cython.cclass
class PlainScanner:
    """A position in encoded bytes, and the parts that were found before it."""

    data: cython.p_const_uchar
    end: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    calls: cython.longlong
    """How often it was begun."""
    number: cython.longlong
    sequence: cython.longlong
    id_at: cython.Py_ssize_t
    id_size: cython.Py_ssize_t
    publisher_at: cython.Py_ssize_t
    publisher_size: cython.Py_ssize_t
    names_at: cython.Py_ssize_t[32]
    names_size: cython.Py_ssize_t[32]
    before: cython.p_const_uchar
    """The bytes of the last notification with valid names: most have the same, in the same order.
    """
    names_before: cython.Py_ssize_t
    """The number of those. Each call begins with 0: the bytes of an earlier one may be gone."""

    def __init__(self) -> None:
        self.end = self.at = self.size = self.calls = 0
        self.number = self.sequence = self.names_before = 0
        if not cython.compiled:
            self.names_at = [0] * PLAIN_NAMES_MAX
            self.names_size = [0] * PLAIN_NAMES_MAX

    @cython.cfunc
    @cython.exceptval(check=False)
    def begin(self) -> cython.longlong:
        """Begins a call, which knows no names yet; returns its number."""
        self.names_before = 0
        self.calls += 1
        return self.calls

    @cython.cfunc
    @cython.exceptval(check=False)
    def big_endian(self, size: cython.Py_ssize_t) -> cython.ulonglong:
        """Reads a number of so many bytes, which are there."""
        value: cython.ulonglong = 0
        place: cython.Py_ssize_t
        for place in range(size):
            value = (value << 8) | self.data[self.at + place]
        self.at += size
        return value

    @cython.cfunc
    @cython.exceptval(-1)
    def skip(self, text: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Passes these bytes; False where there are others."""
        if size > self.end - self.at or not _are_same(self.data, self.at, text, 0, size):
            return False
        self.at += size
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def is_ascii(self, begin: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether these bytes are ASCII. A loop without an exit handles many bytes together."""
        data: cython.p_const_uchar = self.data
        together: cython.uchar = 0
        place: cython.Py_ssize_t
        for place in range(begin, begin + size):
            together |= data[place]
        return together < 0x80

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def read_lead(self) -> cython.int:
        """Reads the first byte of a value; -1 at the end, which begins none."""
        if self.at >= self.end:
            return -1
        self.at += 1
        return self.data[self.at - 1]

    @cython.cfunc
    @cython.exceptval(-1)
    def read_size(self, lead: cython.int, first: cython.int) -> cython.bint:
        """Reads the size of bytes that follow, in 1, 2 or 4 bytes; False where these are absent."""
        width: cython.Py_ssize_t = 1 << (lead - first)
        if width > self.end - self.at:
            return False
        self.size = self.big_endian(width)
        return self.size <= self.end - self.at

    @cython.cfunc
    @cython.exceptval(-1)
    def read_text(self) -> cython.bint:
        """Reads the header of a text; False for anything else."""
        lead: cython.int = self.read_lead()
        if 0xA0 <= lead <= 0xBF:
            self.size = lead - 0xA0
            return self.size <= self.end - self.at
        return 0xD9 <= lead <= 0xDB and self.read_size(lead, 0xD9)

    @cython.cfunc
    @cython.exceptval(-1)
    def read_bytes(self) -> cython.bint:
        """Reads the header of bytes; False for anything else."""
        lead: cython.int = self.read_lead()
        return 0xC4 <= lead <= 0xC6 and self.read_size(lead, 0xC4)

    @cython.cfunc
    @cython.exceptval(-1)
    def read_array(self) -> cython.bint:
        """Reads the header of an array of less than 65,536 items; False for anything else."""
        lead: cython.int = self.read_lead()
        if 0x90 <= lead <= 0x9F:
            self.size = lead - 0x90
            return True
        if lead != 0xDC or self.end - self.at < 2:
            return False
        self.size = self.big_endian(2)
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def read_int(self) -> cython.bint:
        """Reads an integer of 64 bits; False for anything else."""
        lead: cython.int = self.read_lead()
        width: cython.Py_ssize_t
        value: cython.ulonglong
        half: cython.longlong
        if 0 <= lead <= 0x7F:
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
    @cython.exceptval(-1)
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
    @cython.exceptval(-1)
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
    @cython.exceptval(-1)
    def pass_name(self, known: set) -> cython.bint:
        """Passes a text that is a valid name; False for another, and where it is not known."""
        place: cython.Py_ssize_t
        char: cython.uchar
        is_usual: cython.bint
        if self.size < 1 or self.size > _name_bytes:
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
    @cython.exceptval(-1)
    def is_repeated(self, count: cython.Py_ssize_t) -> cython.bint:
        """Whether the name at a place is one of those before it."""
        size: cython.Py_ssize_t = self.names_size[count]
        earlier: cython.Py_ssize_t
        for earlier in range(count):
            if self.names_size[earlier] == size and _are_same(
                self.data, self.names_at[count], self.data, self.names_at[earlier], size
            ):
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1)
    def is_as_before(self, place: cython.Py_ssize_t) -> cython.bint:
        """Whether the text is the name at this place of the notification before."""
        return (
            place < self.names_before
            and self.size == self.names_size[place]
            and _are_same(self.data, self.at, self.before, self.names_at[place], self.size)
        )

    @cython.cfunc
    @cython.exceptval(-1)
    def pass_attributes(self, known: set) -> cython.bint:
        """Passes a map of distinct valid names and single values; False for another."""
        lead: cython.int = self.read_lead()
        count: cython.Py_ssize_t
        place: cython.Py_ssize_t
        are_alike: cython.bint = True
        if 0x80 <= lead <= 0x8F:
            count = lead - 0x80
        elif lead == 0xDE and self.end - self.at >= 2:
            count = self.big_endian(2)
        else:
            return False
        if count > _names:
            return False
        for place in range(count):
            if not self.read_text():
                return False
            # Names that are alike so far were checked, and are distinct.
            are_alike = are_alike and self.is_as_before(place)
            if are_alike:
                self.at += self.size
            elif not self.pass_name(known):
                return False
            self.names_size[place] = self.size
            self.names_at[place] = self.at - self.size
            if (not are_alike and self.is_repeated(place)) or not self.pass_value():
                return False
        self.before, self.names_before = self.data, count
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def pass_ascii(self) -> cython.bint:
        """Passes a text of the envelope; False where it must be looked at singly."""
        if not self.read_text() or self.size > _text_bytes:
            return False
        self.at += self.size
        return self.is_ascii(self.at - self.size, self.size)

    @cython.cfunc
    @cython.exceptval(-1)
    def pass_envelope(self) -> cython.bint:
        """Passes envelope and body, up to the end; False for unusual ones. Keeps its parts."""
        time_us: cython.longlong
        if not self.skip(b"\x97", 1) or not self.pass_ascii():
            return False
        self.id_at, self.id_size = self.at - self.size, self.size
        if not self.pass_ascii():
            return False
        self.publisher_at, self.publisher_size = self.at - self.size, self.size
        if not self.read_int() or self.number < 0:
            return False
        self.sequence = self.number
        if not self.read_int():
            return False
        time_us = self.number
        if not _time_min <= time_us <= _time_max or not self.skip(tail, len(tail)):
            return False
        if not self.read_bytes():
            return False
        self.at += self.size
        self.number = time_us
        return self.pass_ascii() and self.at == self.end

    @cython.cfunc
    def text_at(self, begin: cython.Py_ssize_t, size: cython.Py_ssize_t) -> str:
        """Returns a text of the envelope, which is ASCII."""
        return bytes(self.data[begin : begin + size]).decode("ascii")


@cython.cfunc
@cython.inline
def _are_same(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    other: cython.p_const_uchar,
    begin: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Whether so many bytes, which are there, are the same at two places."""
    if cython.compiled:
        return memcmp(data + at, other + begin, size) == 0
    return data[at : at + size] == other[begin : begin + size]


_scanner = cython.declare(PlainScanner, PlainScanner())


def plain_entries(
    encodings: list[bytes], begin: int, known: set[str], kind: type[Any], beside: int
) -> list[tuple[Any, int, None]]:
    """Returns the first plain notifications of a list from `begin`, as entries of a queue.

    Each is of `kind`, with its encoding; its parts are decoded when they are read. Its size is that
    of the encoding and `beside`. Names in `known` are valid. Cost: 0.2 microseconds for six
    attributes.
    """
    found: list = []
    at: cython.Py_ssize_t
    first: cython.Py_ssize_t = begin
    more: cython.Py_ssize_t = beside
    scanner: PlainScanner = _scanner
    packed: bytes
    entry: tuple
    call: cython.longlong = scanner.begin()
    for at in range(first, len(encodings)):
        if scanner.calls != call or type(encodings[at]) is not bytes:
            break
        packed = encodings[at]
        scanner.data, scanner.at, scanner.end = packed, 0, len(packed)
        if not scanner.skip(head, len(head)) or not scanner.pass_attributes(known):
            break
        if not scanner.pass_envelope():
            break
        entry = _made(kind, packed), more + len(packed), None
        untrack(entry)
        found.append(entry)
    return found


@cython.cfunc
def _made(kind: object, packed: bytes) -> object:
    """Returns a notification of an encoding; it refuses to be changed by anything else."""
    notification: object = new_object(kind)
    untrack(notification)
    set_slot(notification, "packed", packed)
    set_slot(notification, "_values", False)
    return notification


def few_requested(
    frame_head: bytes, size_max: int, known: set, kind: object, unstamped: Any, stream: Any, at: int
) -> tuple[int, int, tuple[Any, ...], int] | None:
    """Returns number, wait, notifications and size of a frame that publishes at most 15 plain ones;
    None for all else. It is at a place of the stream, and has all fields of a request. Each is
    of `kind`, as those of `plain_entries`, with an envelope: a copy of `unstamped` that has the
    rest. Cost: half a microsecond for six attributes.
    """
    found: list = []
    number: cython.longlong
    count: cython.Py_ssize_t
    end: cython.Py_ssize_t
    scanner: PlainScanner = _scanner
    call: cython.longlong = scanner.begin()
    data: bytes = stream if type(stream) is bytes else b""  # Not of one that grows.
    scanner.data, scanner.at, scanner.end = data, at, len(data)
    if not scanner.skip(frame_head, len(frame_head)) or scanner.end - scanner.at < 4:
        return None
    end = scanner.big_endian(4)
    end += scanner.at
    if end > scanner.end or end - at > size_max:
        return None
    scanner.end = end
    if not scanner.skip(_publish_head, 1) or not scanner.read_int():
        return None  # Both arrays have five items.
    number = scanner.number
    has_array = scanner.skip(_publish_head, len(_publish_head)) and scanner.read_array()
    count = scanner.size if has_array else 0
    if not 0 < count < 16:
        return None
    while count > 0:
        notification = _stamped(scanner, data, known, kind, unstamped)
        if notification is None or scanner.calls != call:
            return None
        found.append(notification)
        scanner.end = end
        count -= 1
    if not scanner.skip(_publish_tail, len(_publish_tail)) or not scanner.read_int():
        return None  # Behind it: credit, wait, and no policy.
    if not scanner.read_int() or not scanner.skip(b"\xa0", 1) or scanner.at != end:
        return None
    return int(number), int(scanner.number), tuple(found), int(end - at)


@cython.cfunc
def _stamped(
    scanner: PlainScanner, data: bytes, known: set, kind: object, unstamped: Any
) -> object:
    """Returns the encoded notification at the scanner, with its envelope; None for another."""
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    span_end: cython.Py_ssize_t
    if not scanner.read_bytes():
        return None
    begin = scanner.at
    end = scanner.end = begin + scanner.size
    if not scanner.skip(head, len(head)) or not scanner.pass_attributes(known):
        return None
    span_end = scanner.at
    if not scanner.pass_envelope():
        return None
    id_ = scanner.text_at(scanner.id_at, scanner.id_size)
    publisher = scanner.text_at(scanner.publisher_at, scanner.publisher_size)
    sequence, time_us = scanner.sequence, scanner.number
    notification = _made(kind, data[begin:end])
    set_slot(notification, "span", data[begin + len(head) : span_end])
    envelope = filled(unstamped.__copy__(), id_, publisher, sequence, time_us)
    set_slot(notification, "envelope", envelope)
    return notification


PARTS: Final = 9
"""The parts of a notification: the position of its attributes, its time, of the texts of id and
publisher their position and length, begin and end of its encoding, and the position of its item in
a message."""

PUBLISHED_BYTES_MIN: Final = 48
"""Bytes of a plain notification in a message, at least. Fewer: the message is of another kind."""

_parts = cython.declare(cython.Py_ssize_t, PARTS)
PLAIN, SAME = 1, 2
"""All notifications are plain; and of the same publisher."""


@cython.cfunc
@cython.exceptval(-1)
def _write_parts(
    scanner: PlainScanner, known: set, parts: cython.longlong[::1], row: cython.Py_ssize_t
) -> cython.int:
    """Writes the parts of the notification up to the scanner's end; returns as `plain_parts`."""
    at: cython.Py_ssize_t = _parts * row
    parts[at + 6], parts[at + 7], parts[at + 8] = scanner.at, scanner.end, scanner.at
    if not scanner.skip(head, len(head)):
        return 0
    parts[at] = scanner.at
    if not scanner.pass_attributes(known) or not scanner.pass_envelope():
        return 0
    parts[at + 1] = scanner.number
    parts[at + 2], parts[at + 3] = scanner.id_at, scanner.id_size
    parts[at + 4], parts[at + 5] = scanner.publisher_at, scanner.publisher_size
    if scanner.publisher_size == parts[5] and _are_same(
        scanner.data, parts[at + 4], scanner.data, parts[4], parts[5]
    ):
        return 2
    return 1


def plain_parts(
    joined: bytearray, starts: cython.longlong[::1], parts: cython.longlong[::1], known: set[str]
) -> int:
    """Writes `PARTS` numbers of each notification of a batch; returns PLAIN, SAME, or 0 for others.

    Notification i is `joined[starts[i] : starts[i + 1]]`. Names in `known` are valid. Cost: 0.15
    microseconds for six attributes.
    """
    scanner: PlainScanner = _scanner
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = len(starts) - 1
    found: cython.int
    least: cython.int = 2
    scanner.begin()
    scanner.data = joined
    for row in range(rows):
        scanner.at = starts[row]
        scanner.end = starts[row + 1]
        found = _write_parts(scanner, known, parts, row)
        if found == 0:
            return 0
        least = min(least, found)
    return int(least)


def encoded_bytes(parts: cython.longlong[::1]) -> int:
    """Returns the bytes of all encodings, whose parts these are."""
    size: cython.longlong = 0
    row: cython.Py_ssize_t
    for row in range(len(parts) // _parts):
        size += parts[_parts * row + 7] - parts[_parts * row + 6]
    return int(size)


def published_count(message: bytes) -> int:
    """Returns the number of notifications in a `Publish` of a client; 0 for another message."""
    scanner: PlainScanner = _scanner
    scanner.begin()
    scanner.data, scanner.at, scanner.end = message, 0, len(message)
    has_array = scanner.skip(_publish_head, len(_publish_head)) and scanner.read_array()
    count: cython.Py_ssize_t = scanner.size if has_array else 0
    return 0 if count > len(message) // PUBLISHED_BYTES_MIN else int(count)


def published_parts(message: bytes, parts: cython.longlong[::1], known: set[str]) -> int:
    """As `plain_parts`, of the `published_count` notifications of a message. 0 also for another."""
    scanner: PlainScanner = _scanner
    row: cython.Py_ssize_t
    item: cython.Py_ssize_t
    whole: cython.Py_ssize_t = len(message)
    rows: cython.Py_ssize_t = len(parts) // _parts
    found: cython.int
    least: cython.int = 2
    scanner.begin()
    scanner.data, scanner.at, scanner.end = message, 0, whole
    if not scanner.skip(_publish_head, len(_publish_head)) or not scanner.read_array():
        return 0
    if scanner.size != rows:
        return 0
    for row in range(rows):
        item = scanner.at
        scanner.end = whole
        if not scanner.read_bytes():
            return 0
        scanner.end = scanner.at + scanner.size
        found = _write_parts(scanner, known, parts, row)
        if found == 0:
            return 0
        parts[_parts * row + 8] = item
        least = min(least, found)
    return int(least) if message[scanner.at :] == PUBLISH_TAIL else 0
