"""`Line`: a link between two servers: a session that keeps order, over a transport that need not.

The transport delays packets, loses, repeats and overtakes them, and carries nothing while it is
cut. The session numbers what it sends, acknowledges what has come and repeats what was not
acknowledged, so that faults of the transport cost time, never order. Where an end hears nothing for
`SILENCE_US` it gives the session up: what was on its way is lost, the server is told that the link
is down, and a new session is begun as soon as both ends have given up the old one.

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
"""How long an end waits for a sign of life."""

REPEAT_FACTOR: Final = 3
"""What is not acknowledged is sent again after so many delays of the line."""

RESUME_US: Final = 20_000
"""How long after both ends are down a new session is begun."""

PACKETS_REPEATED_MAX: Final = 64
"""Packets that a simulated link sends again at one time. Beyond it: the rest waits."""

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Faults:
    """What a transport does to a packet: with which probability, and how late it may come."""

    loss: float = 0.0
    duplication: float = 0.0
    late_us: int = 0


class Owner(Protocol[M_contra]):
    """Who is told what happens to a line. An end is 0 or 1."""

    def line_up(self, line: int, end: int) -> None:
        """A session has begun at an end."""

    def line_down(self, line: int, end: int) -> None:
        """An end has given up the session."""

    def take(self, line: int, end: int, message: M_contra) -> None:
        """A message has come to an end."""

    def lose(self, line: int, message: M_contra) -> None:
        """A message will never come."""


class _LineEnd(Enum):
    WAITING = "hears of the session when its first packet comes"
    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class _Flow(Generic[M]):
    """What goes one way in one session. `early` has come before what is missing."""

    numbered: int = 0
    acknowledged: int = 0
    expected: int = 0
    early: set[int] = field(default_factory=set)
    untaken: dict[int, M | None] = field(default_factory=dict)
    is_timed: bool = False


class Line(Generic[M]):
    """A line with its number; `faults` None: nothing is lost, late or cut, and none is checked."""

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

    # --- what the owner does ------------------------------------------------------------------

    def begin(self) -> None:
        """Begins a session at end 0, as soon as it can be."""
        if not self._begin_is_due and self._can_begin():
            self._begin_is_due = True
            self._schedule.after(RESUME_US if self._session else 0, self._begin)

    def send(self, end: int, message: M) -> None:
        """Sends a message from an end that is up; else it is lost."""
        if self._ends[end] is not _LineEnd.UP or self._ends[1 - end] is _LineEnd.DOWN:
            self._owner.lose(self._number, message)
            return
        self._post(end, message)

    def cut(self) -> None:
        """The transport carries nothing from now on."""
        assert self._faults is not None, "a line without faults cannot be cut"
        self._cut = True
        self._cuts += 1
        for end in (0, 1):
            self._listen(end)

    def mend(self) -> None:
        """The transport carries packets again; an end that gave up meanwhile says so."""
        self._cut = False
        for end in (0, 1):
            if self._ends[end] is _LineEnd.DOWN and self._running[end]:
                self._tell(1 - end)
        self.begin()

    def crash(self, end: int) -> None:
        """The server at an end is gone, and its part of the session with it."""
        self._running[end] = False
        self._end_at(end)
        self._lose_what_cannot_come()
        self._listen(1 - end)

    def restart(self, end: int) -> None:
        """The server at an end is back, and knows of no session; the other end hears of that."""
        self._running[end] = True
        self._tell(1 - end)

    @property
    def is_up(self) -> bool:
        """Whether both ends are up."""
        return self._ends == [_LineEnd.UP, _LineEnd.UP]

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
        """Arranges that something happens, if this session is still the one."""
        session = self._session
        self._schedule.after(delay_us, lambda: action() if session == self._session else None)

    def _listen(self, end: int) -> None:
        """An end gives up after a time, unless there are signs of life by then."""
        cuts = self._cuts

        def give_up() -> None:
            if (self._cut and cuts == self._cuts) or not self._running[1 - end]:
                self._go_down(end)

        self._in_session(SILENCE_US + self._chance.randrange(SILENCE_US // 4), give_up)

    def _tell(self, end: int) -> None:
        """An end will hear that the other has given up this session."""

        def hear() -> None:
            # While the line is cut it does not hear, and while it has crashed it need not.
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
        self._lose_what_cannot_come()
        self._tell(1 - end)
        self.begin()

    def _end_at(self, end: int) -> None:
        self._ends[end] = _LineEnd.DOWN
        if self._ends[1 - end] is _LineEnd.WAITING:
            self._ends[1 - end] = _LineEnd.DOWN

    def _lose_what_cannot_come(self) -> None:
        """An end that is down takes nothing any more; messages on their way to it are lost."""
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
        """How long each copy of a packet takes."""
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
            self._schedule.after(delay_us, partial(self._acknowledged, flow, flow.expected))

    def _acknowledged(self, flow: _Flow[M], expected: int) -> None:
        if not self._cut:  # That of a session before is nobody's.
            flow.acknowledged = max(flow.acknowledged, expected)

    def _time(self, end: int) -> None:
        """Sees to it that what is not acknowledged in time is sent again."""
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
