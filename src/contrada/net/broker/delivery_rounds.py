"""`DeliveryRounds`: when a broker writes the queues of its connections.

After the turn of one connection the output for few others is written at once; for many, after the
input of all connections was read, so that each is written to once. The first notification of a turn
needs no queue at all, if nothing is before it.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

from contrada.errors import FrameError
from contrada.net.broker.ingress_queue import internal_failure

ROUND_S: Final = 0.05
"""Seconds in which queues are written to connections in a row. Beyond it: the loop gets a turn."""

WRITTEN_AT_ONCE_MAX: Final = 4
"""Connections written to at once after one connection has published. Beyond it: they are written to
after the input of all connections was read, so that each is written to once."""


class DueConnection(Protocol):
    """A connection with pending output."""

    def flush(self) -> None:
        """Writes its queues."""

    def end(self, error: FrameError) -> None:
        """Ends it after a fault."""


class DeliveryRounds:
    """The connections of a broker with pending output, in order."""

    def __init__(self) -> None:
        self._due: deque[DueConnection] = deque()
        self._is_due = False
        self._in_turn = False
        self.passes_on = False
        """Whether the next notification may pass a queue. Only the first of a turn may: the others
        share a frame."""

    def add(self, connection: DueConnection) -> None:
        """Adds a connection, to be flushed after the current turn, or in the next of the loop."""
        self._due.append(connection)
        if not self._in_turn:
            self._soon()

    def begin_turn(self) -> None:
        """Begins the turn of a connection."""
        self._in_turn = self.passes_on = True

    def end_turn(self) -> None:
        """Ends the turn; output for few connections is written without another turn of the loop."""
        self._in_turn = self.passes_on = False
        if not self._due:
            return
        if len(self._due) <= WRITTEN_AT_ONCE_MAX:
            self._flush()
        else:
            self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_due = False
        self._flush()

    def _flush(self) -> None:
        clock = asyncio.get_running_loop().time
        until_s = clock() + ROUND_S
        for _ in range(len(self._due)):  # Connections added meanwhile are flushed later.
            connection = self._due.popleft()
            try:
                connection.flush()
            except Exception as fault:  # noqa: BLE001 - it ends this peer, not the caller
                connection.end(internal_failure(fault))
            if self._due and clock() > until_s:  # Else the turns of all of them would be one.
                self._soon()
                break
