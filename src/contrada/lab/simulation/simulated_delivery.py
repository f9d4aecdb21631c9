"""`DeliveryServers`: the delivery servers of a simulated network, and their disks.

The effects of a server are performed once its disk has the changes, a moment later; a crash in
between loses them, or a part of them.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Closed, DeliveryMessage, Records
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.transit import SendMessage
from contrada.errors import ContradaError
from contrada.lab.simulation.schedule import Schedule
from contrada.routing.router_messages import Neighbour

SYNC_US: Final = 2_000
"""The duration of a sync."""

SEQUENCER: Final = "0"
"""The first sequencer of every world."""


@dataclass(slots=True, eq=False)
class _RunningServer:
    """A running server, and the effects that wait for its disk."""

    machine: DeliveryServer
    store: MemoryStore | None
    waiting: deque[tuple[Callable[[], None], list[DeliveryEffect]]] = field(default_factory=deque)
    tick_us: int | None = None
    routes: Mapping[str, str] | None = None


class Lines(Protocol):
    """The transport of messages between servers."""

    def send_delivery(self, broker: int, to: str, message: DeliveryMessage) -> None:
        """Sends a message over the line to a neighbour."""


class DeliveryServers(ABC):
    """Servers by number, most with a disk. Those of `storeless` have none."""

    def __init__(
        self,
        brokers: int,
        schedule: Schedule,
        lines: Lines,
        storeless: Iterable[int],
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self._limits = limits
        self._schedule, self._lines = schedule, lines
        storeless = set(storeless)
        self._disks = [None if each in storeless else MemoryStore() for each in range(brokers)]
        self.servers: list[_RunningServer | None] = [None] * brokers
        for broker in range(brokers):
            self._start(broker, is_new=True)

    @abstractmethod
    def _answer(self, broker: int, token: int, error: ContradaError | None) -> None:
        """Handles the confirmation, or refusal, of a publication."""

    @abstractmethod
    def _deliver(self, broker: int, consumer: str, message: Records | Closed) -> None:
        """Handles the records, or the closing, of a consumer."""

    def _start(self, broker: int, *, is_new: bool) -> None:
        store = self._disks[broker]
        incarnation = 1 + self._schedule.now_us
        machine = DeliveryServer(
            str(broker),
            incarnation=incarnation,
            store=store,
            sequencer=SEQUENCER,
            is_new=is_new,
            limits=self._limits,
        )
        self.servers[broker] = _RunningServer(machine, store)
        self.do(broker, [])

    def _stop(self, broker: int, chance: random.Random, *, keeps_store: bool) -> bool:
        """Stops a server. Returns whether its disk survives, with a part of the unsynced
        changes.
        """
        store = self._disks[broker]
        survives = keeps_store and store is not None
        if store is not None and survives:
            store.crash(chance.randint(0, store.unsynced))
            store.is_full = False
        elif store is not None:
            self._disks[broker] = MemoryStore()
        self.servers[broker] = None
        return survives

    def fill(self, broker: int, *, is_full: bool) -> None:
        """Fills the disk of a server, or frees room."""
        store = self._disks[broker]
        if store is not None:
            store.is_full = is_full

    def link_up(self, broker: int, neighbour: str) -> None:
        """A session with a neighbour has begun."""
        self._at(broker, lambda of: of.link_up(Neighbour(neighbour), self._schedule.now_us))

    def link_down(self, broker: int, neighbour: str) -> None:
        """A session with a neighbour has ended."""
        self._at(broker, lambda of: of.link_down(Neighbour(neighbour), self._schedule.now_us))

    def change_routes(self, broker: int, ways: Mapping[str, str]) -> None:
        """Sets the routes of the router."""
        server = self.servers[broker]
        if server is None or ways is server.routes:
            return
        server.routes = ways
        self._at(broker, lambda of: of.change_routes(ways, self._schedule.now_us))

    def receive(self, broker: int, neighbour: str, message: DeliveryMessage) -> None:
        """Handles a message."""
        now_us = self._schedule.now_us
        self._at(broker, lambda of: of.receive(Neighbour(neighbour), message, now_us))

    def _at(self, broker: int, act: Callable[[DeliveryServer], list[DeliveryEffect]]) -> None:
        server = self.servers[broker]
        if server is not None:
            self.do(broker, act(server.machine))

    def do(self, broker: int, effects: list[DeliveryEffect]) -> None:
        """Performs effects once the disk has all earlier changes."""
        server = self.servers[broker]
        assert server is not None, "a server that has crashed does nothing"
        if server.store is None:
            self._perform(broker, effects)
        else:
            server.waiting.append((server.store.seal(), effects))
            self._schedule.after(SYNC_US, lambda: self._on_sync(broker, server))
        due_us = server.machine.due_us
        if due_us is not None and (server.tick_us is None or due_us < server.tick_us):
            server.tick_us = due_us
            delay_us = max(0, due_us - self._schedule.now_us)
            self._schedule.after(delay_us, lambda: self._tick(broker, server, due_us))

    def _on_sync(self, broker: int, server: _RunningServer) -> None:
        if server is self.servers[broker]:
            bring, effects = server.waiting.popleft()
            bring()
            self._perform(broker, effects)

    def _tick(self, broker: int, server: _RunningServer, due_us: int) -> None:
        if server is self.servers[broker] and server.tick_us == due_us:
            server.tick_us = None
            self.do(broker, server.machine.tick(self._schedule.now_us))

    def _perform(self, broker: int, effects: Iterable[DeliveryEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage(to, message):
                    self._lines.send_delivery(broker, to.name, message)
                case Confirmed(token):
                    self._answer(broker, token, None)
                case Failed(token, error):
                    self._answer(broker, token, error)
                case HandRecords(client, message):
                    self._deliver(broker, client, message)

    def check(self) -> None:
        """Checks the invariants of all running servers."""
        for server in self.servers:
            if server is not None:
                server.machine.validate()
