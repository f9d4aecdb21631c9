"""`Store`: the protocol of stores, with logs of records and with `Notes` that survive a crash.

A *log* has a name and records. A record has a position, one more than that of the record before, a
time and bytes. It is kept until it is truncated. Acknowledged positions are stored with the log. A
*note* is a small value by name, for any other state.

Readers see each change at once; it is on stable storage when a later `sync` has returned. The
changes between two syncs survive a crash all or not at all. A record with another checksum, or a
gap, is reported as `Damaged`.

Source: EPFL 2503 §5.3.6 (subscriptions that outlive their process), §5.2.2 (certified delivery).
"""

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from contrada.errors import InvalidValueError, LimitError
from contrada.model import from_msgpack, to_msgpack

T = TypeVar("T")

LOG_NAME_CHARS_MAX: Final = 255
"""Characters of the name of a log. Beyond it: InvalidValueError."""

OWN_LOGS: Final = "@"
"""The prefix of logs that belong to no subscription."""

NOTE_NAME_CHARS_MAX: Final = 1_024
"""Characters of the name of a note. Beyond it: InvalidValueError."""

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of the attributes and the body of a notification above best effort. Beyond it: LimitError
to its publisher."""

RECORD_BYTES_MAX: Final = KEPT_BYTES_MAX + 65_536
"""Bytes of a record: the largest notification, and its surroundings. Beyond it: LimitError."""

READ_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of the records of one read, or handed out in one step of a server; the last record may
exceed them. Beyond it: the next one."""

APART_MAX: Final = 10_000
"""Separate intervals of acknowledged positions of one log. Beyond it: LimitError; acknowledge up to
a position first."""


class LogRecord(NamedTuple):
    """A record of a log; the time is in microseconds since 1970, UTC."""

    position: int
    time_us: int
    data: bytes


class Damaged(NamedTuple):
    """The position of a lost record, and the reason."""

    position: int
    reason: str


StoredRecord: TypeAlias = LogRecord | Damaged

StoredRow: TypeAlias = tuple[int, int, bytes, int]
"""A position, a time, bytes, and their stored checksum."""


class Extent(NamedTuple):
    """The contents of a log: the first position and the next, and the records' bytes.

    The positions from each first to before each end of `left_out` belong to no record.
    """

    first: int
    next: int
    held_bytes: int
    left_out: tuple[tuple[int, int], ...] = ()

    @property
    def records(self) -> int:
        """The number of records."""
        count = self.next - self.first
        for first, end in self.left_out:
            count -= end - max(first, self.first)
        return count

    def first_kept(self, position: int) -> int:
        """Returns the lowest position from this one on that is not left out."""
        for first, end in self.left_out:
            if first <= position < end:
                return end
        return position

    def before(self, position: int, count: int) -> int:
        """Returns the position from which on `count` records precede this one."""
        for first, end in reversed(self.left_out):
            between = position - min(end, position)
            if first < position and between < count:
                position, count = first, count - between
        return position - count


@runtime_checkable
class Store(Protocol):
    """Logs and notes on stable storage. Errors: StoreError and its kinds."""

    def append(self, log: str, records: Sequence[bytes], time_us: int) -> int:
        """Appends records to a log, which is created if needed. Returns the position of the first.

        All of them are appended or, with an error, none. Times of a log never decrease: an earlier
        time is replaced by the log's last one.
        """
        ...

    def read(self, log: str, first: int, count: int) -> list[StoredRecord]:
        """Returns up to `count` entries in order, from a position on or the first kept one.

        Fewer beyond READ_BYTES_MAX, but one.
        """
        ...

    def acknowledge(self, log: str, intervals: Iterable[tuple[int, int]]) -> None:
        """Stores the acknowledged positions, from each first to before each end."""

    def acknowledged(self, log: str) -> list[tuple[int, int]]:
        """Returns the acknowledged positions that are kept, as few intervals, in order."""
        ...

    def leave_out(self, log: str, count: int) -> None:
        """Leaves out the next `count` positions of a log; they count as acknowledged."""

    def position_at(self, log: str, time_us: int) -> int:
        """Returns the first kept position that is not earlier than a time, or the next one."""
        ...

    def truncate(self, log: str, before: int) -> None:
        """Drops the records before a position."""

    def drop(self, log: str) -> None:
        """Drops a log. One of the same name begins anew."""

    def extent(self, log: str) -> Extent | None:
        """Returns the contents of a log, or None."""
        ...

    def logs(self) -> list[str]:
        """Returns the names of all logs."""
        ...

    def note(self, name: str, value: bytes | None) -> None:
        """Sets a note; None removes it."""

    def notes(self) -> Mapping[str, bytes]:
        """Returns all notes."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether records of `size` bytes can be appended now."""
        ...

    def seal(self) -> Callable[[], None]:
        """Ends the group of changes that survive together. A call of the result writes it.

        That may take long, and run in a thread while the next group begins. Groups are written in
        order. Raises StoreError there: the group is retried with the next one.
        """
        ...

    def sync(self) -> None:
        """Returns when all earlier changes are on stable storage: `seal`, and its result."""


_SUMMED: Final = struct.Struct("<qq")


Interval = tuple[int, int]
"""Positions from the first to before the second."""


class Positions:
    """A set of positions that grows. Invariant: intervals are in order, none empty, none touch.

    Cost: adding costs a search and, in the middle, moving the intervals behind.
    """

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._count = 0
        for first, end in intervals:
            self.add(first, end)

    def add(self, first: int, end: int) -> int:
        """Adds the positions from one to before another. Returns the number of new ones."""
        if end <= first:
            return 0
        low = bisect_left(self._ends, first)  # the first interval that touches, or lies behind
        high = bisect_right(self._firsts, end)  # behind the last one that touches
        there = sum(self._ends[low:high]) - sum(self._firsts[low:high])
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]
        self._count += end - first - there
        return end - first - there

    def forget(self, before: int) -> None:
        """Removes the positions before one."""
        self._count = self.count_from(before)
        removed = bisect_right(self._ends, before)
        del self._firsts[:removed], self._ends[:removed]
        if self._firsts:
            self._firsts[0] = max(self._firsts[0], before)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._firsts, position) - 1
        return at >= 0 and position < self._ends[at]

    def __iter__(self) -> Iterator[Interval]:
        return iter(zip(self._firsts, self._ends, strict=True))

    def __len__(self) -> int:
        """The number of intervals."""
        return len(self._firsts)

    def first_without(self, position: int) -> int:
        """Returns the lowest position from this one on that is not in the set."""
        at = bisect_right(self._firsts, position) - 1
        return self._ends[at] if at >= 0 and position < self._ends[at] else position

    def count_from(self, position: int) -> int:
        """Returns the number of positions from one on. Cost: the intervals before it."""
        at = bisect_right(self._ends, position)
        before = max(position - self._firsts[at], 0) if at < len(self) else 0
        return self._count - sum(self._ends[:at]) + sum(self._firsts[:at]) - before


class LogHead:
    """The state of a log apart from its records."""

    __slots__ = (
        "acknowledged",
        "first",
        "left_out",
        "next",
        "seed",
        "time_us",
        "total",
        "truncated",
    )

    def __init__(self, name: str) -> None:
        self.seed = zlib.crc32(name.encode())  # the seed of its records' checksums
        self.first = self.next = 1
        self.time_us = 0
        self.total = self.truncated = 0  # bytes of all records ever, and of the dropped ones
        self.acknowledged = Positions()
        self.left_out: tuple[tuple[int, int], ...] = ()

    def append(self, records: Sequence[bytes], time_us: int) -> list[tuple[StoredRow, int]]:
        """Assigns positions to records. Returns each as stored, with the bytes before it."""
        self.time_us = time_us = max(self.time_us, time_us)
        rows = []
        crc, pack = zlib.crc32, _SUMMED.pack
        for position, data in enumerate(records, self.next):
            # The sum depends on the log and the position.
            summed = crc(data, crc(pack(position, time_us), self.seed))
            rows.append(((position, time_us, data, summed), self.total))
            self.total += len(data)
        self.next += len(rows)
        return rows

    def acknowledge(self, intervals: Iterable[tuple[int, int]]) -> None:
        """Acknowledges existing positions. Raises LimitError beyond `APART_MAX`."""
        intervals = list(intervals)
        if len(self.acknowledged) + len(intervals) > APART_MAX:
            merged = len(Positions([*self.acknowledged, *intervals]))
            if merged > APART_MAX:
                raise LimitError("APART_MAX", APART_MAX, merged)
        for first, end in intervals:
            self.acknowledged.add(max(first, self.first), min(end, self.next))

    def leave_out(self, count: int) -> None:
        """Leaves out the next positions; LimitError beyond `APART_MAX`."""
        first, self.next = self.next, self.next + count
        self.left_out = tuple(Positions([*self.left_out, (first, self.next)]))
        self.acknowledge([(first, self.next)])

    def truncate(self, before: int, truncated: int) -> None:
        """Drops positions, with the bytes of all records before them."""
        self.first, self.truncated = before, truncated
        self.acknowledged.forget(before)
        self.left_out = tuple([each for each in self.left_out if each[1] > before])

    @property
    def extent(self) -> Extent:
        """The contents of the log."""
        return Extent(self.first, self.next, self.total - self.truncated, self.left_out)


def check_sum(name: Any, value: Any, summed: Any) -> bool:
    """Whether the head of a log, or a note, fits its stored checksum."""
    is_told = isinstance(name, str) and isinstance(value, bytes)
    return is_told and bool(sum_of(name, value) == summed)


def sum_of(name: str, value: bytes) -> int:
    """Returns the checksum of the head of a log, or a note."""
    return zlib.crc32(value, zlib.crc32(name.encode()))


def check_log_name(name: str) -> None:
    """Raises InvalidValueError for an invalid name of a log."""
    if not 0 < len(name) <= LOG_NAME_CHARS_MAX or not name.isprintable():
        raise InvalidValueError(name, f"expected 1 to {LOG_NAME_CHARS_MAX} printable characters")


def check_note_name(name: str) -> None:
    """Raises InvalidValueError for an invalid name of a note."""
    if not 0 < len(name) <= NOTE_NAME_CHARS_MAX:
        raise InvalidValueError(name, f"expected 1 to {NOTE_NAME_CHARS_MAX} characters")


def check_records(records: Sequence[bytes]) -> None:
    """Raises LimitError for a large record."""
    longest = max(map(len, records), default=0)
    if longest > RECORD_BYTES_MAX:
        raise LimitError("RECORD_BYTES_MAX", RECORD_BYTES_MAX, longest)


def end_of_read(befores: Iterable[tuple[int, int]], end: int) -> int:
    """Returns the position before which the records of one read lie, at most `end`.

    `befores`: their positions in order, each with the bytes of all records before it.
    """
    most: int | None = None
    for position, before in befores:
        if most is None:
            most = before + READ_BYTES_MAX
        elif before >= most:
            return position
    return end


def entries_of(
    head: LogHead, first: int, end: int, found: Iterable[StoredRow]
) -> list[StoredRecord]:
    """Returns the entries from one position to before another, in order.

    A position is damaged if it is neither found nor left out, or has a wrong checksum.
    """
    entries: list[StoredRecord] = []
    due, seed = first, head.seed
    crc, pack = zlib.crc32, _SUMMED.pack  # Attribute lookups cost more than the checksums.
    for position, time_us, data, summed in found:
        if position > due:
            entries += _missing_entries(head, due, position)
        if crc(data, crc(pack(position, time_us), seed)) == summed:
            entries.append(LogRecord(position, time_us, data))
        else:
            entries.append(Damaged(position, "its checksum is another"))
        due = position + 1
    if due < end:
        entries += _missing_entries(head, due, end)
    return entries


def _missing_entries(head: LogHead, first: int, end: int) -> list[Damaged]:
    first_kept = head.extent.first_kept
    missing = [at for at in range(first, end) if first_kept(at) == at]
    return [Damaged(at, "it is not there") for at in missing]


class StoreChanges(NamedTuple):
    """The names of the logs and notes of a store that another process has changed or removed."""

    logs: Collection[str]
    notes: Collection[str]


class Notes:
    """The notes in a store, as values of messages and of the model."""

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def put(self, kind: str, name: str, value: object) -> None:
        """Writes a note; None removes it."""
        if self._store is not None:
            self._store.note(f"{kind}/{name}", None if value is None else encoder.encode(value))

    def of(self, kind: str, expected: type[T]) -> Iterator[tuple[str, T]]:
        """Yields the names and values of a kind. Cost: a look at the name of each note."""
        decoder = msgspec.msgpack.Decoder(expected, dec_hook=unpack)
        prefix, notes = f"{kind}/", {} if self._store is None else self._store.notes()
        for note in [each for each in notes if each.startswith(prefix)]:
            yield note.removeprefix(prefix), decoder.decode(notes[note])

    def get(self, kind: str, name: str, expected: type[T]) -> T | None:
        """Returns the value of a note, or None."""
        value = None if self._store is None else self._store.notes().get(f"{kind}/{name}")
        if value is None:
            return None
        return msgspec.msgpack.decode(value, type=expected, dec_hook=unpack)

    def all(self) -> StoreChanges:
        """Returns all names of the store, as if another process had just made them."""
        return (
            StoreChanges((), ())
            if self._store is None
            else StoreChanges(self._store.logs(), list(self._store.notes()))
        )


def unpack(expected: type, data: Any) -> Any:
    """Decodes a value of the model."""
    thing = from_msgpack(data)
    if not isinstance(thing, expected):
        raise TypeError(f"expected {expected.__name__}, found {type(thing).__name__}")
    return thing


encoder: Final = msgspec.msgpack.Encoder(enc_hook=to_msgpack)


RESTORED_GAP: Final = 2**40
"""Numbers that a restored server leaves out of each sequence of numbers: more than it has assigned
since the copy was made. Beyond it: one number would have two meanings."""


def records_between(read: int, position: int) -> int:
    """Returns how many positions between two belong to records: those left out do not.

    The first was read, maybe before the log was restored, and after the copy was made. Then its
    present record, and the following positions, are left out; so slightly less than whole gaps
    counts as none.
    """
    count = (position - read - 1) % RESTORED_GAP
    return count if count < RESTORED_GAP // 2 else 0


def renew(store: Store) -> None:
    """Turns a copy of a store into one on which a server may start; the caller syncs it.

    Such a server has forgotten everything after the copy, and others have not. So each of its
    sequences of numbers continues far above any number that it may have assigned since; none ever
    has two meanings. Its incarnation stays, so that owners recognise shipments that are sent again.
    By its boot number, which is far higher, other servers notice that it may have lost shipments.
    See docs/delivery.md, "The store".

    Raises StoreError; LimitError if a log has too many acknowledged intervals.
    """
    notes = Notes(store)
    for name, (incarnation, boot, sequences) in list(notes.of("life", tuple[int, int, bool])):
        notes.put("life", name, (incarnation, boot + RESTORED_GAP, sequences))
    for owner, (incarnation, reserved, since) in list(notes.of("out", tuple[int, int, int])):
        notes.put("out", owner, (incarnation, reserved + RESTORED_GAP, since))
    # It may have sent to owners that the copy does not know.
    begin = next((number for _, number in notes.of("first", int)), 1)
    notes.put("first", "", begin + RESTORED_GAP)
    following = next((number for _, number in notes.of("next", int)), 1)
    notes.put("next", "subscription", following + RESTORED_GAP)
    for log in store.logs():
        if not log.startswith(OWN_LOGS):
            store.leave_out(log, RESTORED_GAP)
