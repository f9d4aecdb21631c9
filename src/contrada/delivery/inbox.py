"""`Inbox`: the streams to this server, and what cannot be taken yet.

    put ==> came before its turn: early ==> came in order: ready ==> use

What has come in order is used when what causally precedes it was used (see `causality`) and who
uses it can; until then it waits here. What finds no room is sent again by its source. What was sent
by another start of the source than the one that is known is not for now: either it is old, or what
the source announced is still on its way.

Invariant: of each stream all is used once, in order, but for what its source lost in a crash.

Source: EPFL 2503 §5.2.2.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from sys import maxsize
from typing import TypeAlias

from contrada.delivery.causality import waits_for
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Context, Destination, Notice, Shipment, ToSequence
from contrada.delivery.notes import Notes
from contrada.delivery.streams import Incoming, NumberedRun

ArrivedShipment: TypeAlias = tuple[Destination, Shipment]
"""A parcel that has come, and its address here."""


@dataclass(slots=True)
class _SourceStream:
    """The stream from a source: in which of its lives and starts, and up to where it was used."""

    incarnation: int
    boot: int
    taken: int
    incoming: Incoming[ArrivedShipment]
    is_gone: bool = False
    ready: deque[ArrivedShipment] = field(default_factory=deque)
    early: dict[int, ArrivedShipment] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of what is early, a heap


class Inbox:
    """What has come to a server `name` in its `incarnation`."""

    def __init__(
        self, name: str, incarnation: int, notes: Notes, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        """Goes on where it was before a restart."""
        self.name = name
        self._early_max = limits.early_max
        self.incarnation = incarnation
        self.dropped = 0
        self._notes = notes
        self._streams: dict[str, _SourceStream] = {}
        self._ready: dict[str, None] = {}  # sources of which something is ready
        self._taken: dict[str, tuple[int, int]] = {}  # what nobody need wait for any more
        for source, (its_incarnation, taken, is_gone) in notes.of("in", tuple[int, int, bool]):
            self._set(source, _SourceStream(its_incarnation, 0, taken, Incoming(taken), is_gone))

    def _set(self, source: str, of: _SourceStream) -> None:
        self._streams[source] = of
        self._update_taken(source)

    def _update_taken(self, source: str) -> None:
        """Nobody waits for what a source lost in a crash: what is ready tells of that."""
        of = self._streams[source]
        until = of.ready[0][0].number - 1 if of.ready else of.taken
        self._taken[source] = of.incarnation, maxsize if of.is_gone else until

    def learn_start(self, source: str, incarnation: int, boot: int) -> None:
        """A source has started anew: drops parcels that came early, since it sends them again."""
        known = self._streams.get(source)
        if known is None or known.incarnation < incarnation:
            self._ready.pop(source, None)
            self._set(source, _SourceStream(incarnation, boot, 0, Incoming()))
        elif known.incarnation == incarnation and (known.boot < boot or known.is_gone):
            known.boot, known.is_gone = boot, False
            known.early.clear()
            known.numbers.clear()
            self._set(source, known)

    def forget(self, source: str) -> None:
        """A source will never be back: nothing waits for what it has sent."""
        of = self._streams.get(source)
        if of is not None:
            self._ready.pop(source, None)
            self._set(
                source,
                _SourceStream(of.incarnation, of.boot, of.taken, Incoming(of.taken), is_gone=True),
            )
            self._note(source)

    def _note(self, source: str) -> None:
        of = self._streams[source]
        self._notes.put("in", source, (of.incarnation, of.taken, of.is_gone))

    def receive(
        self, source: str, incarnation: int, boot: int, arrivals: Sequence[ArrivedShipment]
    ) -> None:
        """Takes in what is addressed to this server, in the order of its numbers."""
        of = self._streams.get(source)
        if of is None or (of.incarnation, of.boot, of.is_gone) != (incarnation, boot, False):
            self.dropped += len(arrivals)
            return
        runs = _runs(arrivals, self.incarnation)
        self.dropped += len(arrivals) - sum(len(run.items) for run in runs)
        has_room = len(of.ready) < self._early_max
        for run in runs:
            if run.before > of.incoming.taken:
                self._keep_early(of, run)
            elif has_room:
                of.ready += of.incoming.take(run)
            else:
                self.dropped += len(run.items)
        while of.numbers and has_room:
            address, _ = arrival = of.early[of.numbers[0]]
            if address.before > of.incoming.taken:
                break
            of.ready += of.incoming.take(NumberedRun(address.before, address.number, (arrival,)))
            del of.early[heappop(of.numbers)]
        if of.ready:
            self._ready[source] = None
            self._update_taken(source)

    def _keep_early(self, of: _SourceStream, run: NumberedRun[ArrivedShipment]) -> None:
        for number, arrival in enumerate(run.items, run.first):
            if number not in of.early:
                if len(of.early) >= self._early_max:
                    self.dropped += 1
                    continue
                heappush(of.numbers, number)
            of.early[number] = arrival

    def use_ready(self, use: Callable[[str, Sequence[ArrivedShipment]], int]) -> Mapping[str, None]:
        """Hands all parcels whose turn it is to `use`; returns the sources of those used.

        `use` returns how many of its parcels it has used. It gets the others again.
        """
        changed: dict[str, None] = {}
        while self._use_round(use, changed):
            pass
        for source in changed:
            self._note(source)
        return changed

    def _use_round(
        self, use: Callable[[str, Sequence[ArrivedShipment]], int], changed: dict[str, None]
    ) -> bool:
        """Goes over all streams once; whether something was used for which others may wait."""
        waited = progress = False
        for source in list(self._ready):
            of = self._streams[source]
            turn = self._ready_run(source, of)
            waited |= len(turn) < len(of.ready)
            count = use(source, turn) if turn else 0
            if count:
                of.taken = turn[count - 1][0].number
                for _ in range(count):
                    of.ready.popleft()
                self._update_taken(source)
                changed[source] = None
                progress = True
            if not of.ready:
                del self._ready[source]
        return waited and progress

    def _ready_run(self, source: str, of: _SourceStream) -> list[ArrivedShipment]:
        """What is ready and waits for nothing."""
        turn = []
        for arrival in of.ready:
            shipment = arrival[1]
            if (
                shipment.context
                and isinstance(shipment.body, Notice | ToSequence)
                and waits_for(shipment.context, self.name, self.incarnation, source, self._taken)
            ):
                break
            turn.append(arrival)
        return turn

    def waits_for(self, context: Context) -> bool:
        """Whether something that rows say was sent to this server has not been taken."""
        return waits_for(context, self.name, self.incarnation, "", self._taken) is not None

    def taken(self, source: str) -> tuple[int, int]:
        """The life of a source, and up to which number was used from it."""
        of = self._streams.get(source)
        return (0, 0) if of is None else (of.incarnation, of.taken)

    @property
    def waiting(self) -> int:
        """Parcels that wait for their turn."""
        return sum(len(of.early) + len(of.ready) for of in self._streams.values())

    @property
    def repeated(self) -> int:
        """Parcels that came again."""
        return sum(of.incoming.repeated for of in self._streams.values())


def _runs(
    arrivals: Sequence[ArrivedShipment], incarnation: int
) -> list[NumberedRun[ArrivedShipment]]:
    """What came for this life, as runs of numbers without gaps."""
    runs: list[NumberedRun[ArrivedShipment]] = []
    items: list[ArrivedShipment] = []
    following = -1
    for arrival in arrivals:
        address = arrival[0]
        if address.incarnation != incarnation or not address.before < address.number:
            continue
        if address.number != following or address.before != following - 1:
            items = []
            runs.append(NumberedRun(address.before, address.number, items))
        items.append(arrival)
        following = address.number + 1
    return runs
