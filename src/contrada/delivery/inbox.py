"""`Inbox`: the incoming streams of a server, and their shipments that wait.

    receive ==> out of order: early ==> in order: ready ==> use

A ready shipment is used after its causal predecessors (see `orders`), once the handler has room;
until then it waits here. Without room in the inbox it is dropped, and its source sends it again. A
shipment of another start of the source is dropped, too: either it is old, or the source's
announcement is still in flight.

Invariant: all of each stream is used once, in order, apart from losses in a crash of its source.

Source: EPFL 2503 §5.2.2.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from sys import maxsize
from typing import TypeAlias

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Context, Destination, Notice, Shipment, ToSequence
from contrada.delivery.orders import waits_for
from contrada.delivery.store import Notes
from contrada.delivery.streams import Incoming, NumberedRun

ArrivedShipment: TypeAlias = tuple[Destination, Shipment]
"""A shipment, and its destination here."""


@dataclass(slots=True)
class _SourceStream:
    """The stream from a source: its incarnation and boot, and the last used number."""

    incarnation: int
    boot: int
    taken: int
    incoming: Incoming[ArrivedShipment]
    is_gone: bool = False
    ready: deque[ArrivedShipment] = field(default_factory=deque)
    early: dict[int, ArrivedShipment] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of early shipments, a heap


class Inbox:
    """The incoming streams of a server `name` in its `incarnation`."""

    def __init__(
        self, name: str, incarnation: int, notes: Notes, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        """Continues as before a restart."""
        self.name = name
        self._early_max = limits.early_max
        self.incarnation = incarnation
        self.dropped = 0
        self._notes = notes
        self._streams: dict[str, _SourceStream] = {}
        self._ready: dict[str, None] = {}  # sources with ready shipments
        self._taken: dict[str, tuple[int, int]] = {}  # for causal order
        for source, (its_incarnation, taken, is_gone) in notes.of("in", tuple[int, int, bool]):
            self._set(source, _SourceStream(its_incarnation, 0, taken, Incoming(taken), is_gone))

    def _set(self, source: str, of: _SourceStream) -> None:
        self._streams[source] = of
        self._update_taken(source)

    def _update_taken(self, source: str) -> None:
        """Publishes the progress of a stream, so that causal successors wait no longer for it."""
        of = self._streams[source]
        until = of.ready[0][0].number - 1 if of.ready else of.taken
        self._taken[source] = of.incarnation, maxsize if of.is_gone else until

    def learn_start(self, source: str, incarnation: int, boot: int) -> None:
        """Learns a source's start: drops its early shipments, which it sends again."""
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
        """Forgets a source that will never be back: no shipment waits for it."""
        of = self._streams.get(source)
        if of is not None:
            self._ready.pop(source, None)
            incoming = Incoming[ArrivedShipment](of.taken)
            gone = _SourceStream(of.incarnation, of.boot, of.taken, incoming, is_gone=True)
            self._set(source, gone)
            self._note(source)

    def _note(self, source: str) -> None:
        of = self._streams[source]
        self._notes.put("in", source, (of.incarnation, of.taken, of.is_gone))

    def receive(
        self, source: str, incarnation: int, boot: int, arrivals: Sequence[ArrivedShipment]
    ) -> None:
        """Takes shipments for this server, in the order of their numbers."""
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
        """Hands all ready shipments to `use`. Returns the sources of the used ones.

        `use` returns the number of shipments that it has used. It gets the others again.
        """
        changed: dict[str, None] = {}
        while self._ready and self._use_round(use, changed):
            pass
        for source in changed:
            self._note(source)
        return changed

    def _use_round(
        self, use: Callable[[str, Sequence[ArrivedShipment]], int], changed: dict[str, None]
    ) -> bool:
        """Passes over all streams once. Returns whether it may have enabled waiting shipments."""
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
        """Returns the ready shipments without missing predecessors."""
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
        """Whether some shipment to this server in these rows has not been taken."""
        return waits_for(context, self.name, self.incarnation, "", self._taken) is not None

    def taken(self, source: str) -> tuple[int, int]:
        """Returns the incarnation of a source, and its last used number."""
        of = self._streams.get(source)
        return (0, 0) if of is None else (of.incarnation, of.taken)

    @property
    def waiting(self) -> int:
        """The number of waiting shipments."""
        return sum(len(of.early) + len(of.ready) for of in self._streams.values())

    @property
    def repeated(self) -> int:
        """The number of shipments that arrived again."""
        return sum(of.incoming.repeated for of in self._streams.values())


def _runs(
    arrivals: Sequence[ArrivedShipment], incarnation: int
) -> list[NumberedRun[ArrivedShipment]]:
    """Returns the shipments for this incarnation, as runs of numbers without gaps."""
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
