"""`key_lists` and `match_batches`: the work of workers, from columns to matching keys.

Each row may match each subscription, so that the size of a batch does not bound its keys. Rows are
matched, and their keys sent, in portions of about KEYS_AT_ONCE keys.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contrada.errors import ContradaError
from contrada.integrations.files.value_columns import rows_at_once
from contrada.integrations.spark.transforms.filter_bases import OpenBase, SavedBase, open_base
from contrada.integrations.spark.transforms.frames import WideRows
from contrada.matching.index import Index
from contrada.matching.kernels.batch_match import sort_rows
from contrada.matching.packed import Bundle, to_whole_notification
from contrada.model import Notification
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import TIME_MIN_US
from contrada.model.rule import residue_accepts


class WorkerSetup(msgspec.Struct, frozen=True):
    """The setup of workers: the base, the names and kinds of the columns in filters, the zone. A
    packed frame has one column, without a name. Whole rows have `width` columns, and `places` are
    the positions of those in filters; with `only_matches` rows without a match are left out.
    """

    base: SavedBase
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    zone: str | None
    is_packed: bool = False
    width: int = 0
    places: tuple[int, ...] = ()
    only_matches: bool = False


KEYS_AT_ONCE: Final = 2**22
"""Keys of the rows that a worker matches at once, if some rows of the batch are typical. Beyond it:
the next portion has the rest. Java takes a portion as a whole, from a memory of the size of its
heap."""


def match_batches(setup: WorkerSetup, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields batches of whole rows, with the keys of each in a last column."""
    names = [*map(str, range(setup.width)), "keys"]
    for batch in batches:
        asked = [batch.column(place) for place in setup.places]
        begin = 0
        for keys in _keys_of(setup, asked or [pa.nulls(batch.num_rows)]):
            some = batch.slice(begin, len(keys))
            begin += len(keys)
            whole_rows = pa.RecordBatch.from_arrays([*some.columns[: setup.width], keys], names)
            if setup.only_matches:
                counts = pc.fill_null(pc.list_value_length(keys), 0)
                whole_rows = whole_rows.filter(pc.greater(counts, 0))
            yield whole_rows


def key_lists(setup: WorkerSetup, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the keys of each row, in order, as Arrow columns of lists; NULL for a bad row. A batch
    has a column, or is a tuple of them.
    """
    for columns in batches:
        yield from _keys_of(setup, columns if isinstance(columns, tuple) else (columns,))


def _keys_of(setup: WorkerSetup, columns: Sequence[Any]) -> Iterator[Any]:
    base = open_base(setup.base)

    def opened(some: Sequence[Any]) -> WideRows | PackedRows:
        if setup.is_packed:
            return PackedRows(some[0])
        return WideRows(setup.names, setup.kinds, some, setup.zone)

    for some in portions(base, columns, opened):
        rows = opened(some)
        counts, positions = matches_of(base, rows)
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        keys = pc.take(base.keys, pa.array(positions), boundscheck=False)
        mask = pa.array(rows.bad) if rows.bad.any() else None
        yield pa.ListArray.from_arrays(pa.array(offsets), keys, mask=mask)


def portions(
    base: OpenBase,
    columns: Sequence[Any],
    opened: Callable[[Sequence[Any]], "WideRows | PackedRows"],
) -> Iterator[Sequence[Any]]:
    """Yields the columns of a batch in portions of `rows_at_once`."""
    count = len(columns[0])

    def counts_of(places: Any) -> Any:
        return matches_of(base, opened([each.take(places) for each in columns]))[0]

    size = rows_at_once(count, base.saved.keys, KEYS_AT_ONCE, counts_of)
    for begin in range(0, max(count, 1), size):
        yield columns if size >= count else [each.slice(begin, size) for each in columns]


class PackedRows:
    """A batch of packed notifications; see `frames.WideRows`."""

    def __init__(self, column: Any) -> None:
        given = column.to_pylist()
        self.bad = np.zeros(len(given), dtype=bool)
        self.odd = np.zeros(len(given), dtype=bool)
        self._held: Sequence[Notification] | None = None if None in given else Bundle.of(given)
        if self._held is None:
            self._held = [self._read(row, each) for row, each in enumerate(given)]

    def _read(self, row: int, given: bytes | None) -> Notification:
        try:
            if given is not None:
                return notification_from_msgpack(given)
        except ContradaError:
            pass  # `to_notifications` reports the reason.
        self.bad[row] = True
        return _NONE

    def matched(self, index: Index[int]) -> tuple[Any, Any]:
        """Matches as `Index.match_batch`."""
        return index.match_batch(self._held)

    @property
    def latest_us(self) -> int:
        """The largest time of good rows."""
        if isinstance(self._held, Bundle):
            times = self._held.times_us
        else:
            good = zip(self._held or (), self.bad.tolist(), strict=True)
            times = [each.envelope.at_us for each, is_bad in good if not is_bad]
        return max(times, default=TIME_MIN_US)

    def notification(self, row: int) -> Notification:
        """Returns a notification by its row."""
        assert self._held is not None
        return self._held[row]


_NONE: Final = Notification({})


def matches_of(base: OpenBase, rows: WideRows | PackedRows) -> tuple[Any, Any]:
    """Returns the number of subscriptions of each row, and their positions, in order."""
    if base.residues.of or (rows.odd | rows.bad).any():
        of_row, positions = _pairs_of(base, rows)
        return np.bincount(of_row, minlength=len(rows.bad)), positions
    offsets, positions = rows.matched(base.index)
    counts = np.diff(offsets)
    sort_rows(offsets, positions, np.empty(counts.max(initial=1), dtype=np.int64))
    return counts, positions


def _pairs_of(base: OpenBase, rows: WideRows | PackedRows) -> tuple[Any, Any]:
    """Returns the sorted pairs of matching rows and the positions of their subscriptions."""
    count = base.saved.keys
    offsets, positions = rows.matched(base.index)
    of_row = np.repeat(np.arange(len(rows.bad)), np.diff(offsets))
    found = [(of_row * count + positions)[~rows.odd[of_row]]]
    alone = np.flatnonzero(rows.odd & ~rows.bad).tolist()
    found += [row * count + np.array(_match_row(base, rows, row), np.int64) for row in alone]
    of_row, positions = np.divmod(np.sort(np.concatenate(found)), count)
    kept = ~rows.bad[of_row]
    if base.residues.of:
        kept &= _decide_residues(base, rows, of_row, positions)
        kept &= ~rows.bad[of_row]
    return (of_row, positions) if kept.all() else (of_row[kept], positions[kept])


def _match_row(base: OpenBase, rows: WideRows | PackedRows, row: int) -> list[int]:
    """Returns the matches of one row; marks a bad one."""
    given = rows.notification(row)
    try:
        return [] if given is None else base.index.match(given)
    except ContradaError:
        rows.bad[row] = True
        return []


def _decide_residues(
    base: OpenBase, rows: WideRows | PackedRows, of_row: Any, positions: Any
) -> Any:
    """Returns the pairs that remain when residues of rules are decided on whole notifications."""
    stands = np.ones(len(positions), dtype=bool)
    is_open = np.zeros(base.saved.keys, dtype=bool)
    is_open[list(base.residues.of)] = True
    last, notification = -1, None
    for place in np.flatnonzero(is_open[positions] & ~rows.bad[of_row]).tolist():
        if of_row[place] != last:
            last = int(of_row[place])
            notification = _whole(rows, last)
        if notification is not None:
            stands[place] = residue_accepts(base.residues.of[int(positions[place])], notification)
    return stands


def _whole(rows: WideRows | PackedRows, row: int) -> Notification | None:
    """Returns a row with all its attributes; None for a bad one, which is marked."""
    given = rows.notification(row)
    try:
        if given is not None:
            return to_whole_notification(given)
    except ContradaError:
        rows.bad[row] = True
    return None
