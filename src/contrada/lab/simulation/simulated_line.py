"""`Line`: a link between two servers: an ordered session over an unreliable transport.

The transport delays packets, loses, repeats and reorders them, and carries nothing while it is cut.
The session numbers its packets, acknowledges and repeats them, so faults of the transport cost
time, never order. An end that receives nothing for `SILENCE_US` closes the session: packets in
flight are lost, the server learns that the link is down, and a new session begins as soon as both
ends have closed the old one.

    end 0            transport            end 1
    up   -- 0: hello ----------------->   up
         -- 1: message --x  (lost)
         -- 2: message --------------->   held back: 1 is missing
         <-------------------- ack 1 --
         -- 1, 2 again --------------->   1, 2

Invariants: an end that is up takes the messages that the other end sent in this session, in order,
each once; a message handed to `send` is either taken or reported as lost, once.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from contrada.lab.simulation.schedule import Schedule

SILENCE_US: Final = 400_000
"""The time without packets after which an end closes the session."""

REPEAT_FACTOR: Final = 3
"""Delays of the line after which an unacknowledged packet is repeated."""

RESUME_US: Final = 20_000
"""The time from the end of a session to the next."""

PACKETS_REPEATED_MAX: Final = 64
"""Packets that a simulated link repeats at one time. Beyond it: the rest waits."""

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a transport: chances of loss and duplication, and the largest extra delay."""

    loss: float = 0.0
    duplication: float = 0.0
    late_us: int = 0


class Owner(Protocol[M_contra]):
    """The receiver of a line's events. An end is 0 or 1."""

    def line_up(self, line: int, end: int) -> None:
        """A session has begun at an end."""

    def line_down(self, line: int, end: int) -> None:
        """An end has closed the session."""

    def take(self, line: int, end: int, message: M_contra) -> None:
        """A message has arrived at an end."""

    def lose(self, line: int, message: M_contra) -> None:
        """A message is lost."""


class _LineEnd(Enum):
    WAITING = "learns of the session from its first packet"
    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class _Flow(Generic[M]):
    """One direction of a session. `early` packets arrived before a missing one."""

    numbered: int = 0
    acknowledged: int = 0
    expected: int = 0
    early: set[int] = field(default_factory=set)
    untaken: dict[int, M | None] = field(default_factory=dict)
    is_timed: bool = False


class Line(Generic[M]):
    """A line with its number; `faults` None: no loss, delay or cut."""

    def __init__(
        self,
        number: int,
        schedule: Schedule,
        owner: Owner[M],
        delay_us: int,
        *,
        faults: Faults | None = None,
        seed: int = 0,
    ) -> None:
        self.delay_us = delay_us
        self._number = number
        self._schedule = schedule
        self._owner = owner
        self._faults = faults
        self._chance = random.Random(seed)
        self._session = 0
        self._cuts = 0
        self._cut = False
        self._ends = [_LineEnd.DOWN, _LineEnd.DOWN]
        self._running = [True, True]
        self._flows: tuple[_Flow[M], _Flow[M]] = (_Flow(), _Flow())
        self._begin_is_due = False

    # --- calls of the owner -------------------------------------------------------------------

    def begin(self) -> None:
        """Begins a session at end 0, as soon as possible."""
        if not self._begin_is_due and self._can_begin():
            self._begin_is_due = True
            self._schedule.after(RESUME_US if self._session else 0, self._begin)

    def send(self, end: int, message: M) -> None:
        """Sends a message from an end that is up; otherwise it is lost."""
        if self._ends[end] is not _LineEnd.UP or self._ends[1 - end] is _LineEnd.DOWN:
            self._owner.lose(self._number, message)
            return
        self._post(end, message)

    def cut(self) -> None:
        """Cuts the transport."""
        assert self._faults is not None, "a line without faults cannot be cut"
        self._cut = True
        self._cuts += 1
        for end in (0, 1):
            self._listen(end)

    def mend(self) -> None:
        """Repairs the transport; an end that has closed the session reports it."""
        self._cut = False
        for end in (0, 1):
            if self._ends[end] is _LineEnd.DOWN and self._running[end]:
                self._tell(1 - end)
        self.begin()

    def crash(self, end: int) -> None:
        """Stops the server at an end, with its part of the session."""
        self._running[end] = False
        self._end_at(end)
        self._lose_undeliverable()
        self._listen(1 - end)

    def restart(self, end: int) -> None:
        """Restarts the server at an end without a session; the other end learns that."""
        self._running[end] = True
        self._tell(1 - end)

    # --- sessions -----------------------------------------------------------------------------

    def _can_begin(self) -> bool:
        return not self._cut and all(self._running) and self._ends == [_LineEnd.DOWN, _LineEnd.DOWN]

    def _begin(self) -> None:
        self._begin_is_due = False
        if not self._can_begin():
            return
        self._session += 1
        self._flows = (_Flow(), _Flow())
        self._ends = [_LineEnd.UP, _LineEnd.WAITING]
        self._post(0, None)
        self._owner.line_up(self._number, 0)

    def _in_session(self, delay_us: int, action: Callable[[], None]) -> None:
        """Arranges an action, unless this session has ended."""
        session = self._session
        self._schedule.after(delay_us, lambda: action() if session == self._session else None)

    def _listen(self, end: int) -> None:
        """Closes the session at an end after a time, unless packets arrive by then."""
        cuts = self._cuts

        def give_up() -> None:
            if (self._cut and cuts == self._cuts) or not self._running[1 - end]:
                self._go_down(end)

        self._in_session(SILENCE_US + self._chance.randrange(SILENCE_US // 4), give_up)

    def _tell(self, end: int) -> None:
        """Reports to an end that the other has closed this session."""

        def hear() -> None:
            # Nothing arrives over a cut line or at a crashed server.
            if not self._cut and self._running[end]:
                self._go_down(end)
                self.begin()

        self._in_session(self.delay_us, hear)

    def _go_down(self, end: int) -> None:
        was = self._ends[end]
        if was is _LineEnd.DOWN:
            return
        self._end_at(end)
        if was is _LineEnd.UP:
            self._owner.line_down(self._number, end)
        self._lose_undeliverable()
        self._tell(1 - end)
        self.begin()

    def _end_at(self, end: int) -> None:
        self._ends[end] = _LineEnd.DOWN
        if self._ends[1 - end] is _LineEnd.WAITING:
            self._ends[1 - end] = _LineEnd.DOWN

    def _lose_undeliverable(self) -> None:
        """Reports the messages in flight to an end that is down as lost."""
        for end in (0, 1):
            if self._ends[end] is _LineEnd.DOWN:
                untaken = self._flows[1 - end].untaken
                lost = [message for message in untaken.values() if message is not None]
                untaken.clear()
                for message in lost:
                    self._owner.lose(self._number, message)

    # --- packets ------------------------------------------------------------------------------

    def _post(self, end: int, message: M | None) -> None:
        flow = self._flows[end]
        number, flow.numbered = flow.numbered, flow.numbered + 1
        flow.untaken[number] = message
        self._transmit(end, number)
        if self._faults is not None:
            self._time(end)

    def _transmit(self, end: int, number: int) -> None:
        for delay_us in self._arrivals():
            self._schedule.after(delay_us, partial(self._arrive, self._session, end, number))

    def _arrivals(self) -> list[int]:
        """Returns the delay of each copy of a packet."""
        faults, chance = self._faults, self._chance
        if faults is None:
            return [self.delay_us]
        if self._cut:
            return []
        copies = (chance.random() >= faults.loss) + (chance.random() < faults.duplication)
        return [self.delay_us + chance.randrange(faults.late_us + 1) for _ in range(copies)]

    def _arrive(self, session: int, end: int, number: int) -> None:
        other = 1 - end
        if session != self._session or self._ends[other] is _LineEnd.DOWN or self._cut:
            return
        flow = self._flows[end]
        if number >= flow.expected:
            flow.early.add(number)
        while flow.expected in flow.early:
            flow.early.remove(flow.expected)
            flow.expected += 1
            message = flow.untaken.pop(flow.expected - 1)
            if message is not None:
                self._owner.take(self._number, other, message)
            elif other == 1:
                self._ends[1] = _LineEnd.UP
                self._owner.line_up(self._number, 1)
        if self._faults is not None:
            self._acknowledge(flow)

    def _acknowledge(self, flow: _Flow[M]) -> None:
        for delay_us in self._arrivals():
            self._schedule.after(delay_us, partial(self._on_ack, flow, flow.expected))

    def _on_ack(self, flow: _Flow[M], expected: int) -> None:
        if not self._cut:  # A late one of an earlier session has no effect.
            flow.acknowledged = max(flow.acknowledged, expected)

    def _time(self, end: int) -> None:
        flow = self._flows[end]
        if flow.is_timed:
            return
        flow.is_timed = True

        def repeat() -> None:
            flow.is_timed = False
            if self._ends[end] is not _LineEnd.UP:
                return
            if flow.acknowledged < flow.numbered and self._ends[1 - end] is not _LineEnd.DOWN:
                last = min(flow.numbered, flow.acknowledged + PACKETS_REPEATED_MAX)
                for number in range(flow.acknowledged, last):
                    self._transmit(end, number)
                self._time(end)

        late_us = self._faults.late_us if self._faults else 0
        self._in_session(REPEAT_FACTOR * self.delay_us + late_us, repeat)
