"""Notifications as bytes: the span of one, and a `Bundle` of several.

A span is a map of checked attributes, encoded as a notification's are, type marks among them; the
envelope is no part of it. A match takes a notification, a mapping with the attributes of an
unstamped one, or a span and an envelope.

Notifications that arrive together are forwarded as bytes, in a `Bundle`: one call of a kernel
checks all of them, and a notification is decoded at its first access.
"""

from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import sub
from typing import Any, Final, TypeAlias, final, overload

import msgspec

from contrada.errors import EncodingError
from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels.batch_match import BLOCK_MIN, COLUMNS
from contrada.matching.kernels.memory import Rows, address_of, numbers
from contrada.matching.kernels.schema import BLOCK_CELLS, COLUMN, LANES, NEED_FOUND, OK, UNREADABLE
from contrada.model import Envelope, Filter, Notification, Value
from contrada.model.algebra.attributes import check_span
from contrada.model.algebra.filter import selection
from contrada.model.algebra.nested_objects import flatten_mapping
from contrada.model.algebra.notification import UNSTAMPED, from_parts
from contrada.model.codec import (
    from_msgpack,
    notification_from_msgpack,
    parts_of_batch,
    parts_of_message,
)
from contrada.model.domains.values import datetime_of, is_system_name
from contrada.model.native import NATIVE

Attributes: TypeAlias = Mapping[str, Any]

Given: TypeAlias = Notification | Attributes
"""The argument of a match: a notification, or the attributes of an unstamped one."""

EMPTY_SPAN: Final = b"\x80"
"""A map of no attributes."""

encode: Final = msgspec.msgpack.Encoder().encode

_ENVELOPE: Final[dict[str, Callable[[Envelope], Value]]] = {
    "@id": lambda envelope: envelope.id,
    "@publisher": lambda envelope: envelope.publisher,
    "@time": lambda envelope: datetime_of(envelope.at_us),
}


def decode_span(span: bytes) -> dict[str, Any]:
    """Returns the attributes in a span, checked. Raises EncodingError, InvalidNotificationError."""
    try:
        return check_span(span)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise EncodingError("a span of msgpack", str(error)) from None


def to_notification(
    given: Given | bytes, envelope: Envelope, asked: Container[str]
) -> Notification:
    """Returns the notification, of a mapping with only the attributes that are asked for.

    Raises EncodingError, InvalidNotificationError.
    """
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        decode_span(given)
        return from_parts(given, b"", "", envelope)
    return Notification(select_attributes(given, asked))


def to_whole_notification(given: Given | bytes, envelope: Envelope = UNSTAMPED) -> Notification:
    """Returns the notification with all its attributes. Raises InvalidNotificationError."""
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        return from_parts(given, b"", "", envelope)
    return Notification({name: each for name, each in given.items() if not is_system_name(name)})


def reencode(notification: Notification) -> Notification:
    """Returns the notification with its span as this package encodes it.

    msgpack has more encodings of a value than kernels read: numbers of 32 bits with a point, times
    with a longer header.
    """
    return Notification.from_attributes(dict(notification), b"", "", notification.envelope)


def select_attributes(attributes: Attributes, asked: Container[str]) -> dict[str, Any]:
    """Returns those attributes of a mapping that are asked for, without the system's."""
    flat, _ = flatten_mapping(attributes)
    return {n: each for n, each in flat.items() if n in asked and not is_system_name(n)}


def with_envelope(span: bytes, envelope: Envelope, names: tuple[str, ...]) -> bytes:
    """Returns the span with these attributes of the envelope behind its own."""
    lead = span[0] if span else 0
    if 0x80 <= lead <= 0x8F:
        count, begin = lead & 0xF, 1
    elif lead in (0xDE, 0xDF):
        begin = 3 if lead == 0xDE else 5
        count = int.from_bytes(span[1:begin], "big")
    else:
        return span  # no map: its reader will raise
    if len(span) < begin or count + len(names) >= 2**32:
        return span  # A truncated header must not become a whole one, and no map is so large.
    more = encode({name: _ENVELOPE[name](envelope) for name in names})
    head = b"\xdf" + (count + len(names)).to_bytes(4, "big")
    return head + span[begin:] + more[1:]


# --- several together ---------------------------------------------------------------------------


BUNDLE_MIN: Final = 4
"""Notifications of a bundle, at least: for fewer a call costs more than it saves."""

RESULTS_KEPT_MAX: Final = 2**21
"""Results of a batch whose memory is kept for the next one: new memory costs more than a match.
Beyond it: it is freed."""

_BEHIND: Final = b"\0"
"""Behind the last notification: memory of no bytes has no address, which means columns."""

PARTS: Final = 9
"""The parts of a notification: the position of its attributes, its time, of the texts of id and
publisher their position and length, begin and end of its encoding, and the position of its item in
a message (`plain_scanner.plain_parts`)."""

_BEGIN, _END, _ITEM = range(6, PARTS)

SAME: Final = 2
"""All notifications of a batch are plain, and of one publisher."""


@final
class Bundle(Sequence[Notification]):
    """Several notifications as their encodings.

    Each is stamped, best effort, of the default priority and without a lifetime, as most are; else
    there is no bundle. It has no subclasses, so `type(x) is Bundle` tests for it, once for each
    publication: for an abstract class `isinstance` takes five times as long.
    """

    __slots__ = ("_encoded_bytes", "_encodings", "_is_of_one", "_joined", "_parts", "_spans")

    def __init__(
        self,
        joined: bytes | bytearray,
        parts: "array[int]",
        is_of_one: bool,
        encodings: list[bytes] | None,
    ) -> None:
        """`encodings` are None if they are in a message, with the headers of their items."""
        self._joined, self._parts, self._is_of_one = joined, parts, is_of_one
        self._encodings = encodings
        self._spans: PackedBatch | None = None
        self._encoded_bytes = 0

    @classmethod
    def of(cls, encodings: list[bytes]) -> "Bundle | None":
        """Returns a bundle of these; None if they are few, or one of them is unusual."""
        if len(encodings) < BUNDLE_MIN:
            return None
        joined = bytearray().join((*encodings, _BEHIND))
        starts = array("q", accumulate(map(len, encodings), initial=0))
        parts = numbers(PARTS * len(encodings))
        found = parts_of_batch(joined, starts, parts)
        return cls(joined, parts, found == SAME, encodings) if found else None

    @classmethod
    def of_message(cls, message: bytes) -> "Bundle | None":
        """Returns a bundle of the notifications in a message that publishes them, without a copy.

        None for another message, if they are few, or one of them is unusual.
        """
        found, parts = parts_of_message(message, BUNDLE_MIN, PARTS)
        return cls(message, parts, found == SAME, None) if found else None

    @property
    def encodings(self) -> list[bytes]:
        """The encoding of each; a copy, if it was made of a message."""
        if self._encodings is not None:
            return self._encodings
        bounds = zip(self._parts[_BEGIN::PARTS], self._parts[_END::PARTS], strict=True)
        return [bytes(self._joined[begin:end]) for begin, end in bounds]

    def __len__(self) -> int:
        return len(self._parts) // PARTS

    @overload
    def __getitem__(self, at: int) -> Notification: ...

    @overload
    def __getitem__(self, at: slice) -> "Bundle": ...

    def __getitem__(self, at: int | slice) -> "Notification | Bundle":
        if isinstance(at, int):
            first = PARTS * range(len(self))[at]
            begin, end = self._parts[first + _BEGIN], self._parts[first + _END]
            return notification_from_msgpack(bytes(self._joined[begin:end]))
        begin, end, step = at.indices(len(self))
        if step != 1:
            raise ValueError("notifications of a bundle are taken in a row")
        if end - begin == len(self):
            return self
        parts = self._parts[PARTS * begin : PARTS * end]
        encodings = None if self._encodings is None else self._encodings[begin:end]
        return Bundle(self._joined, parts, self._is_of_one, encodings)

    def __iter__(self) -> Iterator[Notification]:
        return map(notification_from_msgpack, self.encodings)

    def may_have(self, text: bytes) -> bool:
        """Whether its memory has these bytes, which rules out most bundles without decoding."""
        return text in self._joined

    @property
    def joined_bytes(self) -> int:
        """The bytes of its memory beside the encodings, also for a slice."""
        return len(self._joined)

    @property
    def encoded_bytes(self) -> int:
        """The bytes of all encodings."""
        if not self._encoded_bytes:  # Without the compiled codec there are no bundles.
            self._encoded_bytes = NATIVE.encoded_bytes(self._parts)
        return self._encoded_bytes

    def sizes(self) -> list[int]:
        """Returns the bytes of each encoding."""
        return [*map(sub, self._parts[_END::PARTS], self._parts[_BEGIN::PARTS])]

    @property
    def is_in_message(self) -> bool:
        """Whether it was made of a message."""
        return self._encodings is None

    def items(self) -> bytes:
        """Returns the items of the message that have these encodings, each with its header.

        Raises ValueError for a bundle that was not made of a message.
        """
        if self._encodings is not None:
            raise ValueError("the encodings were not in a message")
        return bytes(self._joined[self._parts[_ITEM] : self._parts[_END - PARTS]])

    def spans(self) -> "PackedBatch":
        """Returns their attributes; behind each is its envelope."""
        if self._spans is None:  # They are matched twice if permissions to publish are checked.
            starts = self._parts[::PARTS]
            starts.append(self._parts[_END - PARTS])
            self._spans = PackedBatch(address_of(self._joined), starts, self._joined)
        return self._spans

    @property
    def times_us(self) -> list[int]:
        """The times of publication."""
        return self._parts[1::PARTS].tolist()

    @property
    def first_us(self) -> int:
        """The time of publication of the first one."""
        return self._parts[1]

    def publishers(self) -> set[str]:
        """Returns the publishers: mostly one, as the check has found."""
        if not self._is_of_one:
            return {publisher for publisher, _ in self.identities()}
        return {self._text(4)}

    def identities(self) -> Iterator[tuple[str, str]]:
        """Yields the publisher and the id of each."""
        for first in range(0, len(self._parts), PARTS):
            yield self._text(first + 4), self._text(first + 2)

    def _text(self, part: int) -> str:
        begin, length = self._parts[part : part + 2]
        return self._joined[begin : begin + length].decode()


class PackedBatch:
    """Spans of msgpack in sequence in memory, with the beginning of each in `starts`.

    The last number of `starts` is the end of the last one. `owner` has the memory.
    """

    described, cells = Rows(COLUMN, b""), numbers(1)  # It has no columns.

    def __init__(self, address: int, starts: Any, owner: object) -> None:
        self.rows = len(starts) - 1
        self.address, self.starts = address, starts
        self._owner = owner


def filters_from(encoding: bytes) -> tuple[Filter, ...]:
    """Returns the filters of an encoding of `to_msgpack`. Raises EncodingError, LimitError,
    InvalidFilterError for one of something else.
    """
    return selection(from_msgpack(encoding)).filters  # type: ignore[arg-type]


def spans_of(spans: Sequence[bytes]) -> PackedBatch:
    """Joins spans. Cost: a copy of them."""
    starts = array("q", accumulate(map(len, spans), initial=0))
    joined = bytearray().join((*spans, _BEHIND))
    return PackedBatch(address_of(joined), starts, joined)


def match_rows(
    arrays: Arrays, rows: Any, matched_row: Callable[[int], Sequence[int]]
) -> "tuple[array[int], array[int]]":
    """Returns (offsets, results) for each row; `matched_row` matches one that needs the model."""
    offsets, row = numbers(rows.rows + 1), 0
    found, arrays.results = arrays.results, numbers(0)  # A match within this one gets another.
    if len(found) < rows.rows:
        found = numbers(4 * rows.rows + 64)
    begun = _reserve_block(arrays, rows)
    while row < rows.rows:
        status, row = arrays.match_rows(rows, row, offsets, found)
        if status == NEED_FOUND:
            arrays.prepare_repeat()
            found += numbers(len(found))
        elif status == UNREADABLE:
            results = matched_row(row)
            if arrays.batches != begun:  # A batch within this one has used the memory of the block.
                begun = _reserve_block(arrays, rows)
            begin, end = offsets[row], offsets[row] + len(results)
            if end > len(found):
                found += numbers(2 * end)
            found[begin:end] = array("q", results)
            row += 1
            offsets[row] = end
        elif status != OK:
            arrays.grow_for(status)
    if len(found) <= RESULTS_KEPT_MAX:
        arrays.results = found
    return offsets, found[: offsets[-1]]


def _reserve_block(arrays: Arrays, rows: Any) -> int:
    """Makes room for blocks of the rows of columns, if there are enough; returns their number."""
    columns, most = len(rows.described), 0
    if columns and rows.rows > BLOCK_MIN:
        most = min(arrays.block_rows_max, rows.rows, BLOCK_CELLS // columns)
        arrays.reserve("block_rows", most)
        arrays.reserve("halves", most * columns)
        arrays.reserve("lanes", COLUMNS + LANES * columns)
        arrays.reserve("lane_stamps", columns)
    arrays.counters.block_end[0], arrays.counters.block_max[0] = 0, most
    arrays.batches += 1
    return arrays.batches
