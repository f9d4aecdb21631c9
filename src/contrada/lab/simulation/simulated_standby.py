"""`SimulatedStandby`: members of one name on one database; the one with the lease leads.

Each member decides by the `LeaseTerm` of the broker and by its own clocks: that of the lease has
another rate, and goes on while the member is paused; the wall clock, which times notifications, is
another one, and jumps. A member may die, end in order, be paused, and lose its database. A request
on its way to the database may arrive when its member is paused or cut off, and no answer return.

Clients look for a member that answers, and leave a silent one after `SILENT_US`. An acknowledgement
counts when it is on the disk. All records for `judge_delivery` are kept, as in `SimulatedDelivery`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from contrada.delivery import delivery_messages as messages
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_server import RETRY_US, DeliveryEffect, DeliveryServer
from contrada.delivery.durable_state import DurableState
from contrada.delivery.lease_term import LOOK_S, RENEWALS, LeaseTerm
from contrada.delivery.retention import Retention
from contrada.errors import LeaseError, StoreError
from contrada.lab.simulation.run_records import LogReading
from contrada.lab.simulation.schedule import Schedule
from contrada.lab.simulation.script_steps import MEMBERS, FaultName
from contrada.lab.simulation.simulated_database import MemberStore, MemberWrite, SimulatedDatabase
from contrada.lab.simulation.simulated_delivery import (
    SEQUENCER,
    Act,
    RunningServer,
    SendOver,
    SimulatedDelivery,
)
from contrada.model import Selection

LEASE_S: Final = 3.0
"""The time of a lease."""

SILENT_US: Final = 6_000_000
"""The time after which a client leaves a silent member."""

RATES: Final = 0.95, 1.05
"""The bounds of the rates of clocks: leases permit that they differ so."""

ARRIVAL_US: Final = 6_000_000
"""The longest way of a group to the database, when its member is paused or gone."""

OPENING_US: Final = 300_000
"""The longest time between a claim and the opening of the store."""

_BEGINNINGS: Final = ("kill", "end", "pause", "cut")

SETTLED_US: Final = 30_000_000
"""The time after the repairs in which a member leads and all clients have found it."""


@dataclass(slots=True, eq=False)
class _GroupMember:
    """A process. `actions` wait until it goes on."""

    rate: float
    begun_us: int
    wall_us: int
    jumped_s: float = 0.0
    term: LeaseTerm = field(default_factory=lambda: LeaseTerm(LEASE_S))
    holder: str = ""
    is_up: bool = True
    is_paused: bool = False
    is_opening: bool = False
    state: DurableState | None = None
    """What it knows of the store while it waits."""
    actions: deque[Callable[[], None]] = field(default_factory=deque)


class SimulatedStandby(SimulatedDelivery):
    """A group of members instead of one server, and their clients."""

    def __init__(
        self, schedule: Schedule, send_over: SendOver, seed: int, limits: DeliveryLimits
    ) -> None:
        super().__init__(0, schedule, send_over, seed, (), limits)
        self.database = SimulatedDatabase()
        self.database.faults = self.faults
        self.servers = [None] * MEMBERS
        self.sequencers = set(range(MEMBERS))
        self.leads = 0
        """How often a member has begun to lead."""
        self._is_settled = False
        self._seeking: set[str] = set()
        self._started = 0
        self._members = []
        for member in range(MEMBERS):
            rate, wall_us = self._chance.uniform(*RATES), self._chance.randrange(10_000_000)
            self._members.append(_GroupMember(rate, schedule.now_us, wall_us))
            self._boot(member)

    # --- faults -------------------------------------------------------------------------------

    def fail(self, fault: FaultName, member: int | None = None) -> None:
        """Makes or ends a fault of a member, if possible; without one see `MemberFault`."""
        leaders = [at for at, server in enumerate(self.servers) if server is not None]
        chosen = leaders[-1:] if fault in _BEGINNINGS else range(MEMBERS)
        for each in chosen if member is None else (member,):
            self._fail(each, fault)

    def _fail(self, member: int, fault: FaultName) -> None:
        of = self._members[member]
        match fault:
            case "kill" if of.is_up:
                self._send_first(member)
                self._end_process(member)
            case "end" if of.is_up and not of.is_paused:
                self._end_in_order(member)
            case "start" if not of.is_up:
                self._boot(member)
            case "pause" if of.is_up and not of.is_paused:
                self._send_first(member)
                of.is_paused = True
                self._schedule.after(SILENT_US, lambda: self._leave_silent(member))
            case "go on" if of.is_paused:
                of.is_paused = False
                while of.actions and not of.is_paused:
                    of.actions.popleft()()
            case "cut":
                self._send_first(member)
                self.database.is_cut.add(member)
            case "mend":
                self.database.is_cut.discard(member)

    def jump(self, member: int, by_us: int, *, also_lease: bool) -> None:
        """Changes the wall clock of a member, and the clock of its lease, too, which goes on."""
        self._members[member].wall_us += by_us
        if also_lease:
            self._members[member].jumped_s += abs(by_us) / 1e6
            self.is_clock_wrong = True

    def repair(self) -> None:
        """Repairs all faults, and ends all members but the leader, which keeps its lease."""
        self.fill(0, is_full=False)
        self.fail("mend")
        self.fail("go on")
        self.fail("start")
        self._schedule.run(self._schedule.now_us + SETTLED_US)
        assert self._leader() is not None, "nobody leads after the repairs"
        assert sum(each is not None for each in self.servers) == 1, "another one still leads"
        self._is_settled = True

    def fill(self, broker: int, *, is_full: bool) -> None:
        """Fills the disk of the database, or frees room."""
        self.database.is_full = is_full
        for server in self.servers:
            if server is not None:
                assert server.store is not None, "each has the database"
                server.store.is_full = is_full

    def _send_first(self, member: int) -> None:
        """The group that is written may be on its way to the database, without an answer."""
        server, of = self.servers[member], self._members[member]
        is_apart = of.is_paused or member in self.database.is_cut
        if server is None or not server.waiting or is_apart or self._chance.random() < 0.5:
            return
        write = server.waiting[0][0]
        assert isinstance(write, MemberWrite), "each has the database"

        def arrive() -> None:
            with suppress(StoreError):
                write.arrive()

        self._schedule.after(self._chance.randrange(ARRIVAL_US), arrive)

    def _boot(self, member: int) -> None:
        of = self._members[member]
        of.is_up, of.is_opening = True, False
        self._new_term(of)
        term, begins_us = of.term, self._chance.randrange(1, 500_000)
        self._schedule.after(
            begins_us, lambda: self._when_running(member, lambda: self._turn(member, term))
        )

    def _new_term(self, of: _GroupMember) -> None:
        self._started += 1
        of.state = None
        of.holder, of.term = f"holder {self._started}", LeaseTerm(LEASE_S)

    def _end_process(self, member: int) -> None:
        of = self._members[member]
        of.is_up = of.is_paused = of.is_opening = False
        of.actions.clear()
        self._end_server(member)
        self._new_term(of)

    def _end_in_order(self, member: int) -> None:
        of, server = self._members[member], self.servers[member]
        if server is not None:
            try:
                while server.waiting:
                    server.waiting[0][0]()
                    self._perform(member, server.waiting.popleft()[1])
            except StoreError:
                pass  # Nothing of it was confirmed.
            self._end_server(member)
            if of.term.rest_s(self._lease_s(member)) and member not in self.database.is_cut:
                self.database.release(of.holder)
        self._end_process(member)

    def _end_server(self, member: int) -> None:
        """Ends a leader: what is only in its memory is lost, and its clients look for another."""
        self.database.unlock(member)
        if self.servers[member] is None:
            return
        self.servers[member] = None
        self._order += 1
        self.crashes.append((self._order, member, True))
        for subscription in self.subscriptions.values():
            if subscription.broker == member and not subscription.is_durable:
                subscription.is_lost = True
        for client in [each for each, where in self._clients.items() if where == member]:
            self._disconnect(client)

    # --- the lease ----------------------------------------------------------------------------

    def _lease_s(self, member: int) -> float:
        of = self._members[member]
        return (self._schedule.now_us - of.begun_us) * of.rate / 1e6 + of.jumped_s

    def _now_us(self, broker: int) -> int:
        # No clock is before 1970: a time of 0 is none.
        return max(0, self._schedule.now_us + self._members[broker].wall_us)

    def _name_of(self, broker: int) -> str:
        return SEQUENCER

    def _when_running(self, member: int, action: Callable[[], None]) -> None:
        of = self._members[member]
        if of.is_paused:
            of.actions.append(action)
        else:
            action()

    def _turn(self, member: int, term: LeaseTerm) -> None:
        """A look of a standby at the lease, or of a leader at its own; the next one follows."""
        of = self._members[member]
        if of.term is not term or self._is_settled:
            return
        leads = self.servers[member] is not None
        after_s = LEASE_S / RENEWALS if leads else LOOK_S
        self._schedule.after(
            int(after_s * 1e6 / of.rate),
            lambda: self._when_running(member, lambda: self._turn(member, term)),
        )
        if leads:
            self._renew(member)
            return
        if not of.is_opening and member not in self.database.is_cut:
            self._follow(of, member)
        if not of.is_opening and member not in self.database.is_cut and self._may_lead(member):
            of.is_opening = True
            delay_us = self._chance.randrange(OPENING_US)
            self._schedule.after(
                delay_us, lambda: self._when_running(member, lambda: self._open_store(member, term))
            )

    def _follow(self, of: _GroupMember, member: int) -> None:
        """Takes over what the leader has written; by chance, since a look may last."""
        if self._chance.random() < 0.5:
            return
        if of.state is None:
            of.state = DurableState(SEQUENCER, MemberStore(self.database, member), self._limits)
        assert isinstance(of.state.store, MemberStore), "each has the database"
        deque(of.state.follow(of.state.store.follow()), maxlen=0)

    def _may_lead(self, member: int) -> bool:
        of, found = self._members[member], self.database.find()
        if found is None:
            return not self.database.is_locked
        return of.term.may_claim(found, self._lease_s(member)) and self.database.claim(
            of.holder, found
        )

    def _open_store(self, member: int, term: LeaseTerm) -> None:
        of, database = self._members[member], self.database
        if of.term is not term:
            return
        of.is_opening = False
        if member in database.is_cut or not database.lock(member):
            return

        def check_lease() -> None:
            if not (term.rest_s(self._lease_s(member)) or self._is_settled):
                raise LeaseError("its lease has ended")

        asked_s = self._lease_s(member)
        term.renew(asked_s)
        state = of.state or DurableState(SEQUENCER, MemberStore(database, member), self._limits)
        store, of.state = state.store, None
        assert isinstance(store, MemberStore), "each has the database"
        deque(state.follow(store.open(check_lease)), maxlen=0)
        database.begin(of.holder, store.epoch)
        self.leads += 1
        self._disks = [store] * MEMBERS
        self._start(member, is_new=self.leads == 1, state=state)

    def _renew(self, member: int) -> None:
        of, asked_s = self._members[member], self._lease_s(member)
        if not of.term.rest_s(asked_s):
            self._lose(member)
        elif member in self.database.is_cut:
            if self._chance.random() < 0.1:  # It was on its way; the answer is lost.
                self.database.renew(of.holder)
        elif self.database.renew(of.holder):
            of.term.renew(asked_s)
        else:
            self._lose(member)

    def _lose(self, member: int) -> None:
        """Ends a leader that has lost its lease; it is a standby again."""
        self._members[member].term.end()
        self._end_server(member)
        self._boot(member)

    # --- the leader ---------------------------------------------------------------------------

    def _at(self, broker: int, act: Act) -> None:
        def at_it() -> None:
            try:
                SimulatedDelivery._at(self, broker, act)
            except LeaseError:
                self._lose(broker)

        server = self.servers[broker]
        if server is not None:
            self._when_running(broker, lambda: at_it() if self.servers[broker] is server else None)

    def _on_sync(self, broker: int, server: RunningServer) -> None:
        def write() -> None:
            if server is not self.servers[broker]:
                return
            try:
                server.waiting[0][0]()
            except StoreError:
                self._schedule.after(RETRY_US, lambda: self._on_sync(broker, server))
            else:
                self._perform(broker, server.waiting.popleft()[1])

        self._when_running(broker, write)

    def change_routes(self, broker: int, ways: Mapping[str, str]) -> None:
        """Does nothing: a group has no neighbours."""

    # --- clients ------------------------------------------------------------------------------

    def _leader(self) -> int | None:
        for member, server in enumerate(self.servers):
            if server is not None and not self._members[member].is_paused:
                return member
        return None

    def move(self, client: str, broker: int) -> None:
        """Connects a client to the leader, at once or when there is one."""
        leader = self._leader()
        if leader is not None:
            self._seeking.discard(client)
            super().move(client, leader)
        elif client not in self._seeking:
            self._seeking.add(client)
            self._seek(client)

    def leave(self, client: str) -> None:
        """Disconnects a client, which keeps its state."""
        self._seeking.discard(client)
        super().leave(client)

    def _seek(self, client: str) -> None:
        def again() -> None:
            if client in self._seeking:
                self._seeking.discard(client)
                self.move(client, 0)

        self._schedule.after(self._chance.randrange(50_000, 500_000), again)

    def _disconnect(self, client: str) -> None:
        """Ends the connection of a client, which looks for a leader."""
        super().leave(client)
        self.move(client, 0)

    def _leave_silent(self, member: int) -> None:
        if self._members[member].is_paused:  # Perhaps again: then some leave early.
            for client in [each for each, where in self._clients.items() if where == member]:
                self._disconnect(client)

    def create_subscription(
        self, client: str, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        """Creates a durable subscription, unless the client's member is silent."""
        broker = self._clients.get(client)
        if broker is not None and not self._members[broker].is_paused:
            super().create_subscription(client, name, filters, retention, is_durable=is_durable)

    def _acknowledge(self, broker: int, client: str, name: str, read: LogReading) -> None:
        late, server = dict(read.late), self.servers[broker]
        read.late.clear()
        intervals = tuple((position, position + 1) for position in late)
        message = messages.Ack(name, read.consumer(client), intervals)
        time_out_us = self.subscriptions[name].retention.acknowledge_us

        def acknowledge(of: DeliveryServer, now_us: int) -> list[DeliveryEffect]:
            assert server is not None, "it has given the records"
            assert isinstance(server.store, MemberStore), "each has the database"
            at_us = self._schedule.now_us
            timely = [
                each
                for each, since_us in late.items()
                if not time_out_us or at_us < since_us + time_out_us
            ]
            server.store.when_written(
                lambda: self.acknowledged[name].update(dict.fromkeys(timely, (at_us, broker)))
            )
            return of.consume(message.consumer, message, now_us)

        self._at(broker, acknowledge)
