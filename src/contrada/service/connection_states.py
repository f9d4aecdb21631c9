"""`ConnectionStates`: the state of a service's connection, and its followers."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final
from weakref import WeakSet

from contrada.service.interface import ConnectionState

STATES_WAITING_MAX: Final = 1_000
"""Unread connection states of one follower. Beyond it: the oldest are skipped."""

_LOG: Final = logging.getLogger("contrada.service")


class ConnectionStates:
    """The state of a service's connection, and all followers; "closed" is the last state."""

    def __init__(self, on_connection: Callable[[ConnectionState], object] | None = None) -> None:
        """`on_connection` is called with each state; its exceptions are logged."""
        self.current = ConnectionState("new")
        self._on_connection = on_connection
        self._following: WeakSet[_FollowedStates] = WeakSet()

    def change(self, state: ConnectionState) -> None:
        """Changes the state."""
        if self.current.state == "closed":
            return
        self.current = state
        for each in list(self._following):
            each.add(state)
        if self._on_connection is not None:
            try:
                self._on_connection(state)
            except Exception:  # noqa: BLE001 - the owner's own code
                _LOG.exception(
                    "on_connection raised an error for the state %(state)s", {"state": state}
                )

    def follow(self) -> AsyncIterator[ConnectionState]:
        """The present state, then each further one; ends after "closed"."""
        followed = _FollowedStates(self.current)
        self._following.add(followed)
        return followed


async def reconnections(states: AsyncIterator[ConnectionState]) -> AsyncIterator[None]:
    """Yields at each connection that follows a lost one; ends with the states."""
    was_lost = False
    async for each in states:
        if each.state == "connected" and was_lost:
            yield
        was_lost = each.state != "connected"


class _FollowedStates(AsyncIterator[ConnectionState]):
    def __init__(self, current: ConnectionState) -> None:
        self._waiting = deque([current], STATES_WAITING_MAX)
        self._arrived = asyncio.Event()
        self._has_ended = False

    def add(self, state: ConnectionState) -> None:
        self._waiting.append(state)
        self._arrived.set()

    async def __anext__(self) -> ConnectionState:
        while not self._waiting:
            if self._has_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        state = self._waiting.popleft()
        self._has_ended = state.state == "closed"
        return state
