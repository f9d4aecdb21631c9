"""`Causality` and `Sequences`: causal order, and the sequencer of each total order.

Each server has a *row*: for each owner, the last number of its stream to that owner that is not
acknowledged yet. A causally ordered shipment carries all rows that its server knows, with its own.
Its owner waits for the numbers in them, and knows them from then on. A newer row of a server
replaces the older one.

    A  -- n1 to H (7), to B (3) -->  B takes n1, with A's row: H 7, B 3
                                     B -- n2 to H, with the rows of A and B -->  H
    H  holds n2 until it has taken 7 from A

All publications in a sequence are sent to one server, its *sequencer*, which publishes them; its
streams keep that order. Only the sequencer hands the role over: it writes that down, then announces
the one of the next epoch, with the context of its own publications. See docs/delivery.md, "Orders".

Invariants: before an owner delivers a shipment, it has delivered every shipment for it that the
publisher's server knew to be earlier, unless that was lost with a server's memory; each epoch of a
sequence has one sequencer, named by that of the epoch before.

Source: EPFL 2503 §5.2.2 (causal order, total order).
"""

from collections.abc import Iterator, Mapping

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import CausalRow, Context, Sequenced
from contrada.delivery.store import Notes
from contrada.errors import LimitError


class Causality:
    """The newest known row of each server but `name`."""

    def __init__(self, name: str, notes: Notes, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self.name = name
        self._owners_max = limits.owners_max
        self._notes = notes
        self._rows = dict(notes.of("row", CausalRow))

    def merge(self, context: Context) -> None:
        """Takes newer rows of other servers."""
        for row in context:
            known = self._rows.get(row.server)
            is_news = (
                len(self._rows) < self._owners_max if known is None else _age(known) < _age(row)
            )
            if row.server != self.name and is_news:
                self._rows[row.server] = row
                self._notes.put("row", row.server, row)

    def forget(self, server: str) -> None:
        """Forgets a server that will never be back."""
        if self._rows.pop(server, None) is not None:
            self._notes.put("row", server, None)

    def row_of(self, server: str) -> Context:
        """Returns the row of a server, if it is known."""
        row = self._rows.get(server)
        return () if row is None else (row,)

    def context(self, own: CausalRow) -> Context:
        """Returns all rows that name an owner, with this server's own."""
        rows = [row for row in self._rows.values() if row.numbers]
        return (*rows, own) if own.numbers else tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)


def _age(row: CausalRow) -> tuple[int, int, int]:
    return row.incarnation, row.boot, row.count


def waits_for(
    context: Context,
    owner: str,
    incarnation: int,
    source: str,
    taken: Mapping[str, tuple[int, int]],
) -> str | None:
    """Returns a server with a missing shipment, or None.

    `taken`: of each server its incarnation, and the last number taken from it. Shipments of an
    earlier incarnation, of either end, are lost.
    """
    for row in context:
        if row.server == source:
            continue  # The stream itself keeps the order.
        for to, its_incarnation, number in row.numbers:
            if to == owner and its_incarnation == incarnation:
                known, until = taken.get(row.server, (0, 0))
                if known < row.incarnation or (known == row.incarnation and until < number):
                    return row.server
    return None


class Sequences:
    """The known sequencers. `first` has all sequences that were never handed over."""

    def __init__(self, first: str, notes: Notes, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self.first = first
        self._sequences_max = limits.sequences_max
        self.left_out = 0
        self._notes = notes
        self.moved = dict(notes.of("sequence", tuple[int, str]))
        """The epoch and the sequencer of each sequence that was handed over."""

    def sequencer_of(self, sequence: str) -> tuple[int, str]:
        """Returns the epoch and the sequencer of a sequence."""
        return self.moved.get(sequence, (0, self.first))

    def check_room(self, sequence: str) -> None:
        """Raises LimitError without room for one more sequence."""
        if sequence not in self.moved and len(self.moved) >= self._sequences_max:
            raise LimitError("sequences_max", self._sequences_max, len(self.moved) + 1)

    def move(self, sequence: str, epoch: int, server: str) -> None:
        """Sets the sequencer of a sequence."""
        self.moved[sequence] = epoch, server
        self._notes.put("sequence", sequence, (epoch, server))

    def learn(self, message: Sequenced) -> bool:
        """Whether a sequencer is news, and there is room for it; then call `move`."""
        if message.epoch <= self.sequencer_of(message.sequence)[0]:
            return False
        if message.sequence not in self.moved and len(self.moved) >= self._sequences_max:
            self.left_out += 1
            return False
        return True

    def announcements(self, context: Context) -> Iterator[Sequenced]:
        """Yields all hand-overs, for a new neighbour."""
        for sequence, (epoch, server) in self.moved.items():
            yield Sequenced(sequence, epoch, server, context)
