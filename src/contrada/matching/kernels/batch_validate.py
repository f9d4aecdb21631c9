"""The kernel that recognizes packed notifications of the usual form, and finds their parts.

Such a notification is encoded as `model.codec` does, and passes all checks of a received one: names
are ASCII, none is reserved, no two are equal, values are single ones. It is stamped, best effort,
of the default priority, and without a lifetime. Of any other the kernel only detects that it is
different: Python checks it then.
"""

from contrada.matching.kernels.memory import bytes_at, entry, kernel
from contrada.matching.kernels.schema import Bytes, Grid, Ints
from contrada.matching.kernels.scratch import big_endian, header, utf8_size
from contrada.model.algebra.attributes import ATTRIBUTES_MAX
from contrada.model.algebra.notification import BEST_EFFORT, PRIORITY_DEFAULT
from contrada.model.algebra.product import ENVELOPE_TEXT_BYTES_MAX
from contrada.model.domains.values import NAME_BYTES_MAX, TIME_MAX_US, TIME_MIN_US

HEAD: Bytes = b"\x93\x01\xacnotification\x94"
"""Version and kind, before the attributes."""

ENVELOPE_LEAD = 0x97
TAIL: Bytes = b"\xc0" + bytes([PRIORITY_DEFAULT, 0xA0 + len(BEST_EFFORT)]) + BEST_EFFORT.encode()
"""The end of an envelope: no time to live, priority, delivery."""

SECOND_NS = 10**9
NAMES_MAX = 32
"""Attributes that are compared with each other. One with more is checked by Python."""

PARTS = 6
"""The parts of a notification: the position of its attributes, its time, and for the texts of id
and publisher their position and length."""

PLAIN, SAME = 1, 2
"""The result for notifications: they have the usual form; and the same publisher."""


@kernel
def stands(msg: Bytes, at: int, text: Bytes) -> bool:
    """Whether a text is at a position."""
    if at + len(text) > len(msg):
        return False
    for i in range(len(text)):
        if msg[at + i] != text[i]:
            return False
    return True


@kernel
def same(msg: Bytes, at: int, other: int, length: int) -> bool:
    """Whether `length` bytes are the same at two positions."""
    for i in range(length):
        if msg[at + i] != msg[other + i]:
            return False
    return True


@kernel
def is_name(msg: Bytes, at: int, length: int) -> bool:
    """Whether this is a valid user name of printable ASCII."""
    if length < 1 or length > NAME_BYTES_MAX or msg[at] == 0x40:
        return False
    for i in range(at, at + length):
        if msg[i] < 0x20 or msg[i] > 0x7E:
            return False
    return True


@kernel
def is_ascii(msg: Bytes, at: int, length: int) -> bool:
    """Whether this is ASCII. A loop without an exit handles many bytes together."""
    together = 0
    for i in range(at, at + length):
        together |= msg[i]
    return together <= 0x7F


@kernel
def is_text(msg: Bytes, at: int, length: int) -> bool:
    """Whether this is UTF-8."""
    if is_ascii(msg, at, length):
        return True
    end = at + length
    while at < end:
        if msg[at] <= 0x7F:
            at += 1
        else:
            size = utf8_size(msg, at, end)
            if size == 0:
                return False
            at += size
    return True


@kernel
def after_value(msg: Bytes, at: int, end: int) -> int:
    """Returns the position after a single value; -1 for another, or none."""
    if at >= end:
        return -1
    lead = msg[at] + 0
    kind, number, after = header(msg, at)
    if kind <= 3:
        return after if after <= end else -1
    if kind == 4:
        if number > end - after:
            return -1
        is_bytes = 0xC4 <= lead <= 0xC6
        if not is_bytes and not is_text(msg, after, number):
            return -1
        return after + number
    is_time = lead == 0xD6 or (lead == 0xD7 and big_endian(msg, at + 2, 4) >> 2 < SECOND_NS)
    return after if kind == 7 and is_time and after <= end else -1


@kernel
def after_attributes(msg: Bytes, at: int, end: int, names: Grid) -> int:
    """Returns the position after the attributes; -1 if they are not plain."""
    kind, pairs, at = header(msg, at)
    if kind != 6 or pairs > min(NAMES_MAX, ATTRIBUTES_MAX):
        return -1
    for i in range(pairs):
        if at >= end:
            return -1
        lead = msg[at] + 0
        kind, length, at = header(msg, at)
        if kind != 4 or 0xC4 <= lead <= 0xC6 or length > end - at or not is_name(msg, at, length):
            return -1
        for j in range(i):
            if names[j, 1] == length and same(msg, names[j, 0], at, length):
                return -1
        names[i, 0] = at
        names[i, 1] = length
        at = after_value(msg, at + length, end)
        if at < 0:
            return -1
    return at


@kernel
def ascii_text(msg: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the position of a text of the envelope, and its length; -1 if it is not ASCII."""
    if at >= end:
        return -1, 0
    lead = msg[at] + 0
    kind, length, at = header(msg, at)
    if kind != 4 or 0xC4 <= lead <= 0xC6 or length > ENVELOPE_TEXT_BYTES_MAX or length > end - at:
        return -1, 0
    return at if is_ascii(msg, at, length) else -1, length


@kernel
def read_parts(msg: Bytes, start: int, end: int, parts: Ints, first: int, names: Grid) -> bool:
    """Stores the parts of one notification; False for an unusual one."""
    if not stands(msg, start, HEAD):
        return False
    parts[first] = start + len(HEAD)
    at = after_attributes(msg, parts[first], end, names)
    if at < 0 or at >= end or msg[at] != ENVELOPE_LEAD:
        return False
    parts[first + 2], parts[first + 3] = ascii_text(msg, at + 1, end)
    if parts[first + 2] < 0:
        return False
    parts[first + 4], parts[first + 5] = ascii_text(msg, parts[first + 2] + parts[first + 3], end)
    if parts[first + 4] < 0 or parts[first + 4] + parts[first + 5] >= end:
        return False
    kind, sequence, at = header(msg, parts[first + 4] + parts[first + 5])
    if kind != 2 or sequence < 0 or at >= end:
        return False
    kind, time_us, at = header(msg, at)
    if kind != 2 or time_us < TIME_MIN_US or time_us > TIME_MAX_US or not stands(msg, at, TAIL):
        return False
    parts[first + 1] = time_us
    at += len(TAIL)
    if at >= end or not 0xC4 <= msg[at] <= 0xC6:
        return False
    _, length, at = header(msg, at)
    if length >= end - at:
        return False
    at, length = ascii_text(msg, at + length, end)  # The type of the body.
    return at >= 0 and at + length == end


@entry
def are_plain(data: int, starts: Ints, names: Grid, parts: Ints) -> int:
    """PLAIN, or SAME, if all notifications at `starts` have the usual form.

    Else 0. `parts` gets `PARTS` numbers of each. Behind the last one there is room for a header.
    """
    rows = len(starts) - 1
    msg = bytes_at(data, starts[rows] + 16)
    answer = SAME
    for row in range(rows):
        first = row * PARTS
        if not read_parts(msg, starts[row], starts[row + 1], parts, first, names):
            return 0
        at, length = parts[first + 4], parts[first + 5]
        if length != parts[5] or not same(msg, at, parts[4], length):
            answer = PLAIN
    return answer
