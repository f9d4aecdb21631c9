"""`Causality`: what a home must have received before it delivers what is published here.

Each server has a *row*: for each home, the last number of its stream to that home that is not
acknowledged yet. A causally ordered parcel carries all rows that its server knows, with its own.
The home that takes the parcel waits until it has what each row says was sent to it. From then on
the home knows these rows, too.

    A  -- n1 to H (7), to B (3) -->  B takes n1, with A's row: H 7, B 3
                                     B -- n2 to H, with the rows of A and B -->  H
    H  waits with n2 until it has taken 7 from A

A newer row of a server replaces an older one, so acknowledged numbers are forgotten with the old
row.

Invariant: before a home delivers a parcel, it has delivered every parcel for it that the
publisher's server knew to be sent earlier, unless that was lost with a server's memory.

Source: EPFL 2503 §5.2.2 (causal order).
"""

from collections.abc import Mapping

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import CausalRow, Context
from contrada.delivery.notes import Notes


class Causality:
    """The newest row of each server but `name` that is known there."""

    def __init__(self, name: str, notes: Notes, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self.name = name
        self._owners_max = limits.owners_max
        self._notes = notes
        self._rows = dict(notes.of("row", CausalRow))

    def merge(self, context: Context) -> None:
        """Takes in rows of other servers that are newer."""
        for row in context:
            known = self._rows.get(row.server)
            is_news = (
                len(self._rows) < self._owners_max if known is None else _age(known) < _age(row)
            )
            if row.server != self.name and is_news:
                self._rows[row.server] = row
                self._notes.put("row", row.server, row)

    def forget(self, server: str) -> None:
        """A server will never be back."""
        if self._rows.pop(server, None) is not None:
            self._notes.put("row", server, None)

    def row_of(self, server: str) -> Context:
        """The row of a server, if it is known."""
        row = self._rows.get(server)
        return () if row is None else (row,)

    def context(self, own: CausalRow) -> Context:
        """All rows that name a home, with this server's own."""
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
    """A server of which a parcel must arrive here first; None if there is none.

    `taken`: of each server its life, and the number taken from it in this life. Parcels of an
    earlier life, of either end, will not come.
    """
    for row in context:
        if row.server == source:
            continue  # A stream is in order by itself.
        for to, its_incarnation, number in row.numbers:
            if to == owner and its_incarnation == incarnation:
                known, until = taken.get(row.server, (0, 0))
                if known < row.incarnation or (known == row.incarnation and until < number):
                    return row.server
    return None
