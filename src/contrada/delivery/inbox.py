"""`Inbox`: the streams to this server, and what has come too early.

What has come is taken when it is its turn: what its source sent before has been taken, and what
causally precedes it has come (see `causality`). Until then it waits here, within limits; what finds
no room is sent again by its source. Who takes may also say that it cannot now, and is asked again.

Source: EPFL 2503 §5.2.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from contrada.delivery.causality import waits_for
from contrada.delivery.messages import Address, Context, Notice, Parcel, ToSequence
from contrada.delivery.notes import Notes
from contrada.delivery.streams import Incoming, Run

EARLY_MAX: Final = 1_000
"""Parcels from one source that wait for their turn. Beyond it: they are dropped, counted, and sent
again later."""


@dataclass(slots=True)
class _From:
    """The stream from a source in one of its lives, and what waits of it, by number."""

    life: int
    boot: int
    incoming: Incoming[Parcel]
    early: dict[int, tuple[Address, Parcel]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # a heap


class Inbox:
    """What has come to a server `name` in its `life`."""

    def __init__(self, name: str, life: int, notes: Notes) -> None:
        """Goes on where it was before a restart."""
        self.name = name
        self.life = life
        self.dropped = 0
        self._notes = notes
        self._streams: dict[str, _From] = {}
        self._taken: dict[str, tuple[int, int]] = {}
        for source, (its_life, taken) in notes.of("in", tuple[int, int]):
            self._streams[source] = _From(its_life, 0, Incoming(taken))
            self._taken[source] = its_life, taken

    def meet(self, source: str, life: int, boot: int) -> None:
        """A source has started anew; of what it sent in an earlier life nothing comes any more."""
        known = self._streams.get(source)
        if known is None or known.life < life:
            self._streams[source] = _From(life, boot, Incoming())
            self._taken[source] = life, 0
        elif known.life == life:
            known.boot = max(known.boot, boot)

    def put(self, source: str, life: int, address: Address, parcel: Parcel) -> None:
        """Takes in a parcel that is addressed to this server, to be taken when it is its turn."""
        of = self._streams[source]
        number = address.number
        if of.life != life or address.life != self.life:
            self.dropped += 1  # of an earlier life of one of the ends
        elif number <= of.incoming.taken:
            of.incoming.repeated += 1
        elif number not in of.early:
            if len(of.early) >= EARLY_MAX:
                self.dropped += 1
                return
            of.early[number] = address, parcel
            heappush(of.numbers, number)

    def take(self, use: Callable[[str, Address, Parcel], bool]) -> set[str]:
        """Lets all be used whose turn it is, until `use` says no; the sources of what was taken."""
        changed: set[str] = set()
        while self._pass(use, changed):
            pass
        for source in changed:
            self._notes.put("in", source, self._taken[source])
        return changed

    def _pass(self, use: Callable[[str, Address, Parcel], bool], changed: set[str]) -> bool:
        """Goes over all streams once; whether something was taken on which others may wait."""
        waited = progress = False
        for source, of in self._streams.items():
            while of.numbers:
                number = of.numbers[0]
                address, parcel = of.early[number]
                if address.before > of.incoming.taken:
                    break
                if number > of.incoming.taken:
                    if isinstance(parcel.body, Notice | ToSequence) and waits_for(
                        parcel.context, self.name, self.life, source, self._taken
                    ):
                        waited = True
                        break
                    if not use(source, address, parcel):
                        break
                    of.incoming.take(Run(address.before, number, (parcel,)))
                    self._taken[source] = of.life, of.incoming.taken
                    changed.add(source)
                    progress = True
                del of.early[heappop(of.numbers)]
        return waited and progress

    def waits_for(self, context: Context) -> bool:
        """Whether something that rows say was sent to this server has not been taken."""
        return waits_for(context, self.name, self.life, "", self._taken) is not None

    def taken(self, source: str) -> tuple[int, int]:
        """The life of a source, and up to which number was taken from it."""
        return self._taken.get(source, (0, 0))

    @property
    def waiting(self) -> int:
        """Parcels that wait for their turn."""
        return sum(len(of.early) for of in self._streams.values())

    @property
    def repeated(self) -> int:
        """Parcels that came again."""
        return sum(of.incoming.repeated for of in self._streams.values())
